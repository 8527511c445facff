//! The UAPI server: `get`, `set` and this program's own `status` and `handshakes` over a Unix socket. Threads `wg-uapi`,
//! which accepts, and a `wg-client` for each client, both owned by [`Control`] and ended by its drop.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use zeroize::Zeroizing;

use super::Device;
use super::io::Wake;
use crate::tunnel::keys::PublicKey;
use crate::tunnel::uapi::client::{SOCKET_DIR, Timed, socket_path};
use crate::tunnel::uapi::{SetDevice, errno};

/// Clients at a time. One more, and the first to have come that is not being answered is hung up on.
const CLIENTS: usize = 64;
/// A listener that fails is tried again after this.
const RETRY: Duration = Duration::from_millis(10);
/// A client that says nothing for this long is hung up on.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// One whose request is not whole by then, or whose answer not taken, is hung up on as well, however busily it goes on.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// 100,000 peers with some prefixes each.
const REQUEST_LIMIT: u64 = 64 << 20;

/// The server. Dropping it ends its thread and removes its socket.
pub(super) struct Control {
    path: PathBuf,
    stop: Arc<(AtomicBool, Wake)>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens at the interface's usual place, readable by its owner only.
    pub(super) fn start(interface: &str, device: Arc<Device>) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(SOCKET_DIR)?;
        let path = socket_path(interface);
        let listener = UnixListener::bind(&path)?;
        let stop = Arc::new((AtomicBool::new(false), Wake::new()?));
        // From here on, dropping removes the socket.
        let mut control = Self { path, stop: Arc::clone(&stop), thread: None };
        std::fs::set_permissions(&control.path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let body = move || listen(&listener, &stop, &device);
        control.thread = Some(thread::Builder::new().name("wg-uapi".to_owned()).spawn(body)?);
        Ok(control)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Release);
        self.stop.1.signal();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
        let _gone_already = std::fs::remove_file(&self.path);
    }
}

/// Accepts clients until it is told to stop, and hangs up on all then.
fn listen(listener: &UnixListener, stop: &(AtomicBool, Wake), device: &Arc<Device>) {
    let mut clients: Vec<Client> = Vec::new();
    while !stop.0.load(Ordering::Acquire) {
        let waited = match listener.accept() {
            Ok((stream, _)) => {
                clients.retain(|client| !client.thread.as_ref().is_none_or(JoinHandle::is_finished));
                if clients.len() == CLIENTS {
                    let idle = clients.iter().position(|client| !client.busy.load(Ordering::Acquire));
                    clients.remove(idle.unwrap_or(0));
                }
                // One that cannot be served is hung up on.
                clients.extend(Client::start(stream, device).ok());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stop.1.wait(Some(listener.as_fd()), false, None),
            // It would stay readable: no descriptor is left, say.
            Err(_) => stop.1.wait(None, false, Some(RETRY)),
        };
        if waited.is_err() {
            return;
        }
    }
}

/// A client that is served. Dropping it hangs up and waits for its thread.
struct Client {
    stream: Arc<UnixStream>,
    /// A request of it is being answered.
    busy: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn start(stream: UnixStream, device: &Arc<Device>) -> io::Result<Self> {
        let (stream, busy) = (Arc::new(stream), Arc::new(AtomicBool::new(false)));
        let body = {
            let (stream, busy, device) = (Arc::clone(&stream), Arc::clone(&busy), Arc::clone(device));
            move || {
                // A client that goes away in the middle is its own affair.
                let _client_gone = serve(&stream, &busy, &device);
                let _gone_already = stream.shutdown(Shutdown::Both);
            }
        };
        let thread = thread::Builder::new().name("wg-client".to_owned()).spawn(body)?;
        Ok(Self { stream, busy, thread: Some(thread) })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _gone_already = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Answers the requests of one connection. `busy` says when.
fn serve(stream: &UnixStream, busy: &AtomicBool, device: &Device) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let timed = || Timed::new(stream, CLIENT_TIMEOUT, REQUEST_TIMEOUT);
    serve_timed(timed(), timed(), busy, device)
}

/// The same, with the time that a client has.
fn serve_timed(requests: Timed<'_>, mut answers: Timed<'_>, busy: &AtomicBool, device: &Device) -> io::Result<()> {
    let mut reader = BufReader::new(requests.take(REQUEST_LIMIT));
    loop {
        reader.get_mut().get_mut().again();
        reader.get_mut().set_limit(REQUEST_LIMIT);
        let Some(request) = read_request(&mut reader)? else { return Ok(()) };
        busy.store(true, Ordering::Release);
        let answer = match std::str::from_utf8(&request) {
            Ok(request) => answer(request, device),
            Err(_) => refusal(errno::EPROTO),
        };
        answers.again();
        answers.write_all(answer.as_bytes())?;
        busy.store(false, Ordering::Release);
    }
}

/// Reads up to the empty line that ends a request; `None` when the client is done.
fn read_request(reader: &mut impl io::BufRead) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut request = Zeroizing::new(Vec::with_capacity(4096));
    loop {
        let begin = request.len();
        if reader.read_until(b'\n', &mut request)? == 0 {
            // wg ends each request with an empty line; whoever hangs up before has changed its mind.
            return Ok(None);
        }
        if &request[begin..] == b"\n" {
            if begin == 0 {
                // An empty line before a request belongs to none.
                request.clear();
                continue;
            }
            request.truncate(begin);
            return Ok(Some(request));
        }
    }
}

/// Negative, as wireguard-go answers: `wg` negates it again, and says "Unknown error -98" of a positive one.
fn refusal(errno: i32) -> Zeroizing<String> {
    Zeroizing::new(format!("errno={}\n\n", -errno))
}

fn answer(request: &str, device: &Device) -> Zeroizing<String> {
    let (operation, body) = request.split_once('\n').unwrap_or((request, ""));
    let result = match operation {
        "get=1" => return device.get().encode(),
        "status=1" => match serde_json::to_string(&device.report()) {
            Ok(json) => return Zeroizing::new(format!("{json}\nerrno=0\n\n")),
            Err(_) => Err(errno::EIO),
        },
        "handshakes=1" => match handshakes(body, device) {
            Ok(json) => return Zeroizing::new(format!("{json}\nerrno=0\n\n")),
            Err(errno) => Err(errno),
        },
        "set=1" => match SetDevice::parse(body) {
            Ok(request) => device.set(&request),
            Err(error) => {
                super::log(&format!("a set request was refused: {error}"));
                Err(error.errno())
            }
        },
        _ => Err(errno::EPROTO),
    };
    refusal(result.err().unwrap_or(0))
}

/// `public_key=` and `nanoseconds=`: sessions that were made meanwhile, as one line of JSON.
fn handshakes(body: &str, device: &Device) -> Result<String, i32> {
    /// Others wait meanwhile.
    const LONGEST: Duration = Duration::from_secs(1);
    let (mut key, mut time): (Option<PublicKey>, Option<u64>) = (None, None);
    for line in body.lines() {
        match line.split_once('=') {
            Some(("public_key", value)) => key = Some(value.parse().map_err(|_| errno::EINVAL)?),
            Some(("nanoseconds", value)) => time = Some(value.parse().map_err(|_| errno::EINVAL)?),
            _ => return Err(errno::EPROTO),
        }
    }
    let (key, time) = key.zip(time).ok_or(errno::EINVAL)?;
    let time = Duration::from_nanos(time).min(LONGEST);
    let seen = super::handshake::measure(device, &key, time).map_err(|_| errno::EIO)?.ok_or(errno::ENOENT)?;
    serde_json::to_string(&seen).map_err(|_| errno::EIO)
}

#[cfg(test)]
mod tests;
