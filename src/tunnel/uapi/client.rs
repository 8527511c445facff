//! The client's end of a UAPI socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use socket2::{Domain, SockAddr, Socket, Type};
use zeroize::Zeroizing;

use super::{GetDevice, SetDevice, UapiError, parse_set_answer};
use crate::tunnel::TunnelError;
use crate::tunnel::engine::embedded::Report;
use crate::tunnel::keys::PublicKey;
use crate::tunnel::status::Handshakes;

/// Where userspace implementations listen, and where `wg` looks.
pub(in crate::tunnel) const SOCKET_DIR: &str = "/var/run/wireguard";

/// An engine that says nothing for this long hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// One that has not said all by then hangs as well, however busily it talks.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(30);

/// 100,000 peers with some prefixes each; more than that is not an answer.
const ANSWER_LIMIT: u64 = 64 << 20;

/// A stream whose other end may neither be silent for long nor go on for ever.
#[derive(Debug)]
pub(in crate::tunnel) struct Timed<'a> {
    stream: &'a UnixStream,
    silence: Duration,
    whole: Duration,
    until: Instant,
}

impl<'a> Timed<'a> {
    /// Allows each read or write `silence`, and all of them `whole`.
    pub(in crate::tunnel) fn new(stream: &'a UnixStream, silence: Duration, whole: Duration) -> Self {
        Self { stream, silence, whole, until: Instant::now() + whole }
    }

    /// Begins to count anew.
    pub(in crate::tunnel) fn again(&mut self) {
        self.until = Instant::now() + self.whole;
    }

    /// What the next call may take.
    fn patience(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.too_late(self.whole)) } else { Ok(left.min(self.silence)) }
    }

    fn too_late(&self, time: Duration) -> io::Error {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the other end did not do its part within {} s", time.as_secs()),
        )
    }

    fn named<T>(&self, result: io::Result<T>) -> io::Result<T> {
        // What a time limit of a socket is called (socket(7), SO_RCVTIMEO).
        result.map_err(
            |error| if error.kind() == io::ErrorKind::WouldBlock { self.too_late(self.silence) } else { error },
        )
    }
}

impl io::Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.patience()?))?;
        let read = self.stream.read(buffer);
        self.named(read)
    }
}

impl io::Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.patience()?))?;
        let written = self.stream.write(buffer);
        self.named(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

pub(in crate::tunnel) fn socket_path(interface: &str) -> PathBuf {
    PathBuf::from(SOCKET_DIR).join(format!("{interface}.sock"))
}

/// Whether something listens at the interface's socket, be it that it takes no more callers.
pub(in crate::tunnel) fn is_listening(interface: &str) -> bool {
    match connect(&socket_path(interface), Duration::from_millis(1)) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::TimedOut,
    }
}

/// A process that is stopped has callers wait once its queue is full: for this long.
fn connect(path: &Path, time: Duration) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // What a connection waits for on a full queue, too (unix(7), SO_SNDTIMEO).
    socket.set_write_timeout(Some(time))?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(UnixStream::from(OwnedFd::from(socket))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "too many callers wait at its socket, and none is let in"))
        }
        Err(error) => Err(error),
    }
}

pub(in crate::tunnel) fn get(interface: &str) -> Result<GetDevice, TunnelError> {
    const ACTION: &str = "read";
    let answer = ask(interface, "get=1\n\n", ACTION)?;
    GetDevice::parse(&answer).map_err(|source| refused(interface, ACTION, source))
}

/// Whether the engine answers as it should, within `time`.
pub(in crate::tunnel) fn answers(interface: &str, time: Duration) -> Result<(), TunnelError> {
    const ACTION: &str = "read";
    let answer = ask_within(interface, "get=1\n\n", ACTION, time)?;
    parse_set_answer(&answer).map_err(|source| refused(interface, ACTION, source))
}

pub(in crate::tunnel) fn set(interface: &str, request: &SetDevice) -> Result<(), TunnelError> {
    const ACTION: &str = "configure";
    let answer = ask(interface, &request.encode(), ACTION)?;
    parse_set_answer(&answer).map_err(|source| refused(interface, ACTION, source))
}

/// The embedded engine's own request: one line of JSON, which no `wg` asks for.
pub(in crate::tunnel) fn status(interface: &str) -> Result<Report, TunnelError> {
    json(interface, "status=1\n\n", "read the counters of")
}

/// The same of new sessions with the peer `key`, made for `time`.
pub(in crate::tunnel) fn handshakes(
    interface: &str,
    key: &PublicKey,
    time: Duration,
) -> Result<Handshakes, TunnelError> {
    let request = format!("handshakes=1\npublic_key={}\nnanoseconds={}\n\n", key.to_hex(), time.as_nanos());
    json(interface, &request, "shake hands through")
}

/// A request that is answered by one line of JSON.
fn json<T: DeserializeOwned>(interface: &str, request: &str, action: &'static str) -> Result<T, TunnelError> {
    let answer = ask(interface, request, action)?;
    let line = answer.lines().next().unwrap_or_default();
    if line.starts_with("errno=") {
        parse_set_answer(&answer).map_err(|source| refused(interface, action, source))?;
    }
    serde_json::from_str(line).map_err(|error| TunnelError::Socket {
        action,
        interface: interface.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidData, error),
    })
}

fn refused(interface: &str, action: &'static str, source: UapiError) -> TunnelError {
    TunnelError::Uapi { action, interface: interface.to_owned(), source }
}

/// One connection per request: some implementations close after one, some wait for the client to close.
fn ask(interface: &str, request: &str, action: &'static str) -> Result<Zeroizing<String>, TunnelError> {
    ask_within(interface, request, action, WHOLE_TIMEOUT)
}

fn ask_within(
    interface: &str,
    request: &str,
    action: &'static str,
    whole: Duration,
) -> Result<Zeroizing<String>, TunnelError> {
    let failed = |source| TunnelError::Socket { action, interface: interface.to_owned(), source };
    let begin = Instant::now();
    let stream = connect(&socket_path(interface), ANSWER_TIMEOUT.min(whole)).map_err(failed)?;
    let left = whole.saturating_sub(begin.elapsed());
    answer_to(request, Timed::new(&stream, ANSWER_TIMEOUT, left)).map_err(failed)
}

/// Sends a request, and reads up to the empty line behind the errno line that ends an answer, or to the end of the stream.
fn answer_to(request: &str, mut stream: Timed<'_>) -> io::Result<Zeroizing<String>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Zeroizing::new(String::with_capacity(16 << 10));
    let mut reader = BufReader::new(stream.take(ANSWER_LIMIT));
    let mut errno = false;
    loop {
        let begin = answer.len();
        if reader.read_line(&mut answer)? == 0 {
            if reader.get_ref().limit() == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"));
            }
            return Ok(answer);
        }
        if errno && &answer[begin..] == "\n" {
            return Ok(answer);
        }
        errno = answer[begin..].starts_with("errno=");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client makes of an engine that answers so.
    fn answered(engine: impl FnOnce(UnixStream) + Send + 'static) -> io::Result<Zeroizing<String>> {
        let (client, server) = UnixStream::pair().unwrap();
        let engine = std::thread::spawn(move || engine(server));
        let times = (Duration::from_millis(300), Duration::from_secs(1));
        let result = answer_to("get=1\n\n", Timed::new(&client, times.0, times.1));
        drop(client);
        engine.join().unwrap();
        result
    }

    /// Writes the same until nobody listens any more.
    fn forever(bytes: &'static [u8], pause: Duration) -> impl FnOnce(UnixStream) + Send + 'static {
        move |mut stream| {
            while stream.write_all(bytes).is_ok() {
                std::thread::sleep(pause);
            }
        }
    }

    #[test]
    fn an_answer_ends_at_its_empty_line_though_the_engine_keeps_the_stream() {
        let whole = answered(|mut stream| {
            stream.write_all(b"listen_port=1\nerrno=0\n\nmore").unwrap();
            std::thread::sleep(Duration::from_millis(600));
        });
        assert_eq!(whole.unwrap().as_str(), "listen_port=1\nerrno=0\n\n");
    }

    #[test]
    fn an_engine_that_lets_nobody_in_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.sock");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        let _waits = connect(&path, Duration::from_millis(100)).unwrap();
        let begin = Instant::now();
        let error = connect(&path, Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(begin.elapsed() >= Duration::from_millis(100));
        drop(listener);
        assert_eq!(connect(&path, Duration::from_millis(100)).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_engine_that_hangs_or_never_ends_is_given_up() {
        let silent = |mut stream: UnixStream| {
            let _hung_up = stream.read_to_end(&mut Vec::new());
        };
        let cases: [(io::Result<_>, _); 4] = [
            (answered(silent), io::ErrorKind::TimedOut),
            (answered(forever(b"x", Duration::from_millis(50))), io::ErrorKind::TimedOut),
            (answered(forever(b"\n", Duration::from_millis(1))), io::ErrorKind::TimedOut),
            (answered(forever(b"\xff\xfe\n", Duration::from_millis(50))), io::ErrorKind::InvalidData),
        ];
        for (result, kind) in cases {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}
