//! Agents that send a tunnel's packets elsewhere than the conductor asked: what the proof of the path must see.
//!
//! Each is a program between the conductor and a real agent, or beside one.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

/// The outer flow leaves over `private`, with the addresses of `public-ipv4`.
pub(crate) const MISROUTE: &str = "tamper-misroute";
/// An engine that takes what comes over any interface.
pub(crate) const UNPIN: &str = "tamper-unpin";
/// The tunnel's far end is the relay.
pub(crate) const DETOUR: &str = "tamper-detour";
/// The far end of the second tunnel alone is the relay.
pub(crate) const DETOUR_SECOND: &str = "tamper-detour-second";
/// Every stream takes the first tunnel, whichever it was given.
pub(crate) const ONE_TUNNEL: &str = "tamper-one-tunnel";
/// A relay to the second tunnel.
pub(crate) const RELAY_SECOND: &str = "tamper-relay-second";
/// An ordinary agent on a node where something else holds the second tunnel's port.
pub(crate) const HOLD_SECOND: &str = "tamper-hold-second";
/// What this program can be.
pub(crate) const ALL: [&str; 8] =
    [MISROUTE, UNPIN, DETOUR, RELAY, DETOUR_SECOND, ONE_TUNNEL, RELAY_SECOND, HOLD_SECOND];
/// A node that passes datagrams on between two others.
pub(crate) const RELAY: &str = "tamper-relay";

/// The addresses that a plan gives the first, second and third node on the first routed IPv4 underlay.
const NODES: [&str; 3] = ["198.18.0.6", "198.18.0.10", "198.18.0.14"];

/// The port that a plan gives the tunnels over the first underlay.
const TUNNEL: u16 = 21_820;
/// That of the second ones.
const SECOND: u16 = TUNNEL + 1;
/// The relay's own.
const RELAYED: u16 = 9_999;

pub(crate) fn main(mode: &str, wglab: &str) -> ExitCode {
    match mode {
        RELAY => relay(wglab, TUNNEL),
        RELAY_SECOND => relay(wglab, SECOND),
        HOLD_SECOND => {
            let _held = UdpSocket::bind(("0.0.0.0", SECOND)).unwrap();
            between(wglab, str::to_owned, || {})
        }
        ONE_TUNNEL => between(wglab, one_tunnel, || {}),
        DETOUR_SECOND => between(wglab, |message| detour(message, SECOND), || {}),
        UNPIN => between(wglab, unpin, || {}),
        MISROUTE => between(wglab, unpin, || {
            background(|| {
                let to = format!("{}/32", NODES[1]);
                let route = ["route", "add", &to, "dev", "private", "src", NODES[0]];
                Command::new("ip").args(route).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
            });
        }),
        _ => between(wglab, |message| detour(message, TUNNEL), || {}),
    }
}

/// Without its pin the engine follows the node's routes.
fn unpin(message: &str) -> String {
    let mut value: serde_json::Value = serde_json::from_str(message).unwrap();
    for tunnel in value.pointer_mut("/apply/tunnels").and_then(|tunnels| tunnels.as_array_mut()).into_iter().flatten() {
        tunnel["spec"]["pin"] = serde_json::Value::Null;
    }
    value.to_string()
}

fn detour(message: &str, tunnel: u16) -> String {
    message.replace(&format!("{}:{tunnel}", NODES[1]), &format!("{}:{RELAYED}", NODES[2]))
}

/// The job's other paths become copies of its first one.
fn one_tunnel(message: &str) -> String {
    let mut value: serde_json::Value = serde_json::from_str(message).unwrap();
    if let Some(job) = value.pointer_mut("/prepare/job") {
        let path = serde_json::json!({
            "local": job["local"], "local_interface": job["local_interface"], "peer": job["peer"][0],
        });
        for other in job.get_mut("more_paths").and_then(|paths| paths.as_array_mut()).into_iter().flatten() {
            *other = path.clone();
        }
    }
    value.to_string()
}

/// A real agent behind this program, which changes what it is asked.
fn between(wglab: &str, change: fn(&str) -> String, beside: impl FnOnce()) -> ExitCode {
    let mut agent = Command::new(wglab).arg("agent").stdin(Stdio::piped()).spawn().unwrap();
    beside();
    let mut to_agent = agent.stdin.take().unwrap();
    while let Ok(message) = frame() {
        if pass(&mut to_agent, &change(&message)).is_err() {
            break;
        }
    }
    drop(to_agent);
    ExitCode::from(u8::from(!agent.wait().unwrap().success()))
}

fn frame() -> io::Result<String> {
    let mut input = io::stdin().lock();
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    input.read_exact(&mut body)?;
    String::from_utf8(body).map_err(io::Error::other)
}

fn pass(agent: &mut ChildStdin, message: &str) -> io::Result<()> {
    agent.write_all(&u32::try_from(message.len()).unwrap().to_be_bytes())?;
    agent.write_all(message.as_bytes())?;
    agent.flush()
}

/// Tries until it succeeds, or for ten seconds.
fn background(attempt: impl Fn() -> bool + Send + 'static) {
    std::thread::spawn(move || {
        for _ in 0..500 {
            if attempt() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

/// An ordinary agent, and a relay beside it: whatever the first node sends here goes on to the second
/// node's tunnel, and back.
fn relay(wglab: &str, tunnel: u16) -> ExitCode {
    std::thread::spawn(move || {
        let socket = UdpSocket::bind(("0.0.0.0", RELAYED)).unwrap();
        let (first, second) = (at(NODES[0], tunnel), at(NODES[1], tunnel));
        let mut buffer = vec![0; 65_535];
        // A datagram that cannot go on is lost, as relays lose it.
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let to = if from.ip() == first.ip() { second } else { first };
            let _lost = socket.send_to(&buffer[..length], to);
        }
    });
    let status = Command::new(wglab).arg("agent").status().unwrap();
    ExitCode::from(u8::from(!status.success()))
}

fn at(address: &str, tunnel: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), tunnel)
}
