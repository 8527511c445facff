//! An agent for tests: one JSON request per line, one JSON answer per line.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use wglab::host::interfaces::{InterfaceState, Interfaces};
use wglab::host::settings::{Settings, SettingsState};
use wglab::lab::provider::{Provider, ProviderState};
use wglab::reach::local::LocalAgent;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Read a file.
    Read(String),
    /// Write a file.
    Write(String, String),
    /// The names in a directory.
    List(String),
    /// Make the provider so; the answer has the time that it took, too.
    Provide(ProviderState),
    /// What has crossed the interfaces.
    Counters,
    /// Make the interfaces so.
    Interfaces(Vec<InterfaceState>),
    /// Apply settings.
    Settings(SettingsState),
    /// Accept one TCP connection at the address and read it to its end.
    Accept(SocketAddr),
    /// Send that many bytes over a TCP connection from the one address to the other.
    Send(IpAddr, SocketAddr, usize),
    /// Receive datagrams at the address.
    Receive(SocketAddr),
    /// Send super-packets from the one address to the other: how many, segments of each, bytes of a segment.
    SendSegmented(IpAddr, SocketAddr, u16, u16, u16),
    /// What the node is.
    Facts,
    /// Make a TUN device of this name as the embedded engine does.
    Tun(String),
    /// Look at every packet from now on.
    Watch,
    /// The lengths of those seen since, Ethernet headers included, with how many there were of each.
    Watched,
}

/// What an agent holds.
#[derive(Default)]
struct Held {
    provider: Option<Provider>,
    interfaces: Option<Interfaces>,
    settings: Option<Settings>,
    receiver: Option<UdpSocket>,
    watch: Option<Socket>,
}

pub(crate) fn serve() -> ExitCode {
    let mut held = Held::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let ask = serde_json::from_str(&line).map_err(|error| error.to_string());
        let answer = match ask.and_then(|ask| held.answer(ask).map_err(|error| in_words(&*error))) {
            Ok(value) => serde_json::json!({ "Ok": value }),
            Err(error) => serde_json::json!({ "Err": error }),
        };
        println!("{answer}");
    }
    ExitCode::SUCCESS
}

fn in_words(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", in_words(cause)),
        None => error.to_string(),
    }
}

impl Held {
    fn interfaces(&mut self) -> Result<&mut Interfaces, Box<dyn Error>> {
        if self.interfaces.is_none() {
            self.interfaces = Some(Interfaces::open()?);
        }
        self.interfaces.as_mut().ok_or_else(|| "just opened".into())
    }

    fn answer(&mut self, ask: Ask) -> Result<Value, Box<dyn Error>> {
        Ok(match ask {
            Ask::Read(path) => std::fs::read_to_string(path)?.into(),
            Ask::Write(path, content) => std::fs::write(path, content).map(|()| Value::Null)?,
            Ask::List(path) => {
                let entries = std::fs::read_dir(path)?.flatten();
                let mut names: Vec<String> =
                    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
                names.sort();
                Value::from(names)
            }
            Ask::Provide(state) => {
                if self.provider.is_none() {
                    self.provider = Some(Provider::open()?);
                }
                let start = Instant::now();
                let readings = self.provider.as_mut().ok_or("just opened")?.apply(&state)?;
                let micros = u64::try_from(start.elapsed().as_micros())?;
                serde_json::json!({ "ports": readings, "micros": micros })
            }
            Ask::Counters => serde_json::to_value(self.interfaces()?.counters()?)?,
            Ask::Interfaces(states) => serde_json::to_value(self.interfaces()?.apply(&states)?)?,
            Ask::Settings(state) => {
                if self.settings.is_none() {
                    self.settings = Some(Settings::open()?);
                }
                serde_json::to_value(self.settings.as_mut().ok_or("just opened")?.apply(&state))?
            }
            Ask::Accept(address) => {
                let listener = TcpListener::bind(address)?;
                std::thread::spawn(move || {
                    let (mut stream, _) = listener.accept()?;
                    std::io::copy(&mut stream, &mut std::io::sink())
                });
                Value::Null
            }
            Ask::Send(from, to, bytes) => {
                let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
                socket.bind(&SocketAddr::new(from, 0).into())?;
                socket.connect(&to.into())?;
                let mut stream = TcpStream::from(socket);
                stream.write_all(&vec![0; bytes])?;
                stream.shutdown(std::net::Shutdown::Write)?;
                // The other end closes when it has read everything.
                stream.read_to_end(&mut Vec::new())?.into()
            }
            Ask::Receive(address) => {
                self.receiver = None;
                self.receiver = Some(UdpSocket::bind(address)?);
                Value::Null
            }
            Ask::SendSegmented(from, to, count, segments, size) => {
                let socket = UdpSocket::bind(SocketAddr::new(from, 0))?;
                nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGsoSegment, &i32::from(size))?;
                for _ in 0..count {
                    socket.send_to(&vec![0; usize::from(segments) * usize::from(size)], to)?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Value::Null
            }
            Ask::Tun(name) => {
                let _device = wglab::sys::tun::Tun::open(&name, true)?;
                wglab::sys::tun::set_mtu(&name, 1420)?;
                wglab::sys::tun::set_queue_length(&name, 777)?;
                std::fs::read_to_string(format!("/sys/class/net/{name}/tx_queue_len"))?.into()
            }
            Ask::Facts => serde_json::to_value(wglab::host::facts::facts())?,
            Ask::Watch => {
                let every = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
                let socket = Socket::new(Domain::PACKET, Type::RAW, Some(every))?;
                socket.set_recv_buffer_size(4 << 20)?;
                socket.set_nonblocking(true)?;
                self.watch = Some(socket);
                Value::Null
            }
            Ask::Watched => {
                let socket = self.watch.take().ok_or("nothing was watched")?;
                let mut lengths = BTreeMap::<usize, u32>::new();
                // With MSG_TRUNC the answer is the packet's own length, however small the buffer.
                while let Ok(length) = socket.recv_with_flags(&mut [MaybeUninit::uninit(); 1], libc::MSG_TRUNC) {
                    *lengths.entry(length).or_default() += 1;
                }
                serde_json::to_value(lengths)?
            }
        })
    }
}

/// Asks one agent one thing.
pub(crate) fn ask(agent: &LocalAgent, ask: &Ask) -> Result<Value, String> {
    let mut pipe = &agent.pipe;
    writeln!(pipe, "{}", serde_json::to_string(ask).unwrap()).map_err(|error| error.to_string())?;
    let mut line = String::new();
    // Strictly one answer per request, so the buffer cannot hold more than this line.
    BufReader::new(pipe).read_line(&mut line).map_err(|error| error.to_string())?;
    serde_json::from_str::<Result<Value, String>>(&line).map_err(|error| format!("{error}: `{line}`"))?
}
