//! An engine in trouble: flooded from outside while it carries traffic, and killed in the middle of a run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use libtest_mimic::Failed;
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, recv};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use wglab::cell::Factor;
use wglab::record::{Record, Run, Status};

use crate::interop::{FULL, Up};
use crate::left_over::Holdings;
use crate::product::{Running, WGLAB, children, lab_of, record, signal, text};

pub(crate) const TESTS: &[super::Test] = &[
    ("a_flood_from_outside_stops_no_stream_and_no_new_client", flooded),
    ("a_killed_engine_is_named_with_its_last_lines_and_takes_its_own_runs_only", killed),
    ("a_starved_engine_takes_its_own_runs_only_and_comes_back", starved),
];

/// `engine-ask INTERFACE REQUEST`: prints the answer of an engine, and its peak memory in KiB.
pub(crate) const ASK_COMMAND: &str = "engine-ask";
/// `engine-flood LOCAL TARGET KEY MILLISECONDS`: prints a client's public key; after a line on its input it floods, and prints
/// a [`Flood`].
pub(crate) const FLOOD_COMMAND: &str = "engine-flood";

pub(crate) fn main(mode: &str, arguments: &[String]) -> ExitCode {
    if mode == ASK_COMMAND {
        ask_engine(&arguments[0], &arguments[1]);
    } else {
        let time = Duration::from_millis(arguments[3].parse().unwrap());
        flood(arguments[0].parse().unwrap(), arguments[1].parse().unwrap(), &arguments[2], time);
    }
    ExitCode::SUCCESS
}

fn ask_engine(interface: &str, request: &str) {
    let mut socket = UnixStream::connect(format!("/var/run/wireguard/{interface}.sock")).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let engine = nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::PeerCredentials).unwrap().pid();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let status = fs::read_to_string(format!("/proc/{engine}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("{}\npeak={}", answer.trim_end(), peak.trim().trim_end_matches(" kB"));
}

/// What was sent, and what became of the client that called meanwhile.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Flood {
    /// Data messages that were seen on the wire, sent again.
    replayed: u64,
    /// Bytes that are no message.
    rubbish: u64,
    /// Initiations of strangers from ever other addresses, with a right MAC1.
    initiations: u64,
    /// Cookies that the client was asked to come again with.
    cookies: u64,
    /// Handshakes that it completed after the first of them.
    sessions: u64,
}

fn flood(local: Ipv4Addr, target: SocketAddrV4, key: &str, time: Duration) {
    let server = PublicKey::from(bytes_of(key));
    let own = StaticSecret::random();
    let public = PublicKey::from(&own);
    // It counts nobody as too many.
    let limiter = Arc::new(RateLimiter::new(&public, u64::MAX));
    let mut client = Tunn::new(own, server, None, None, 1, Some(limiter));
    let mut buffer = [0; 2048];
    let strangers: Vec<Vec<u8>> = (2..202)
        .map(|index| {
            let mut stranger = Tunn::new(StaticSecret::random(), server, None, None, index, None);
            let TunnResult::WriteToNetwork(message) = stranger.format_handshake_initiation(&mut buffer, true) else {
                panic!("no initiation");
            };
            message.to_vec()
        })
        .collect();
    let every = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
    let watch = Socket::new(Domain::PACKET, Type::RAW, Some(every)).unwrap();
    watch.set_recv_buffer_size(8 << 20).unwrap();
    watch.set_nonblocking(true).unwrap();
    println!("{}", public.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    std::io::stdin().read_line(&mut String::new()).unwrap();

    let seen = watched(&watch, target);
    assert!(!seen.is_empty(), "nothing to send again was seen");
    drop(watch);
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW))).unwrap();
    let socket = UdpSocket::bind((local, 0)).unwrap();
    socket.connect(target).unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut done, begin, mut called) = (Flood::default(), Instant::now(), Instant::now());
    let spoofed = |number: usize| SocketAddrV4::new(Ipv4Addr::from(0xc633_6400 + (number % 250 + 1) as u32), 4_000);
    let mut number = 0;
    // As long as was asked for, and on a slow machine until the client got in.
    while begin.elapsed() < time || (done.sessions == 0 && begin.elapsed() < 10 * time) {
        for _ in 0..50 {
            number += 1;
            done.initiations += send(&raw, spoofed(number), target, &strangers[number % strangers.len()]);
            if number.is_multiple_of(5) {
                // Again from where it came, and from elsewhere.
                let (from, data) = &seen[number / 5 % seen.len()];
                let from = if number.is_multiple_of(2) { *from } else { spoofed(number) };
                done.replayed += send(&raw, from, target, data);
                let rubbish = vec![number as u8 | 8; number * 37 % 1_400];
                done.rubbish += send(&raw, spoofed(number), target, &rubbish);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
        if begin.elapsed() > time / 4 && called.elapsed() > Duration::from_millis(50) {
            called = Instant::now();
            let call = client.format_handshake_initiation(&mut buffer, true);
            let TunnResult::WriteToNetwork(message) = call else { panic!("no initiation") };
            socket.send(message).unwrap();
        }
        let mut answer = [0; 2048];
        while let Ok(length) = socket.recv(&mut answer) {
            let reply = client.decapsulate(None, &answer[..length], &mut buffer);
            done.cookies += u64::from(answer[0] == 3 && matches!(reply, TunnResult::Done));
            if let TunnResult::WriteToNetwork(message) = reply {
                done.sessions += u64::from(answer[0] == 2 && done.cookies > 0);
                socket.send(message).unwrap();
            }
        }
    }
    println!("{}", serde_json::to_string(&done).unwrap());
}

fn bytes_of(hex: &str) -> [u8; 32] {
    std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
}

/// The single data messages to `target` that went by, with their senders.
fn watched(socket: &Socket, target: SocketAddrV4) -> Vec<(SocketAddrV4, Vec<u8>)> {
    /// Of the link, whose MTU is 1450.
    const FRAME: usize = 14 + 1_450;
    let mut seen = Vec::new();
    let mut buffer = [0; FRAME];
    while let Ok(length) = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
        // Super-packets cannot be sent again as they are.
        let Some(frame) = buffer.get(..length) else { continue };
        let Some((ethernet, packet)) = frame.split_at_checked(14) else { continue };
        if ethernet[12..] != [8, 0] || packet.len() < 28 || packet[0] != 0x45 || packet[9] != 17 {
            continue;
        }
        let address = |at: usize| Ipv4Addr::from([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
        let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        if SocketAddrV4::new(address(16), port(22)) == target && packet[28..].starts_with(&[4, 0, 0, 0]) {
            seen.push((SocketAddrV4::new(address(12), port(20)), packet[28..].to_vec()));
        }
    }
    seen
}

/// Sends a datagram as if from `from`; 1 if the kernel took it.
fn send(raw: &Socket, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> u64 {
    let length = ((8 + payload.len()) as u16).to_be_bytes();
    // The kernel fills in the length and the checksum of the header (raw(7)); a UDP checksum of zero is none.
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(length);
    packet.extend([0, 0]);
    packet.extend(payload);
    u64::from(raw.send_to(&packet, &SocketAddr::V4(to).into()).is_ok())
}

/// The answer of a node's engine, as key and value in order, and its peak memory in KiB.
fn ask(lab: &Up, node: &str, interface: &str, request: &str) -> Result<(Vec<(String, String)>, u64), Failed> {
    let this = std::env::current_exe()?.display().to_string();
    let said = lab.exec(node, &[&this, ASK_COMMAND, interface, request])?;
    let mut pairs: Vec<(String, String)> =
        said.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.into(), value.into())).collect();
    let (_, peak) = pairs.pop().ok_or("its peak memory")?;
    Ok((pairs, peak.parse()?))
}

fn counters(lab: &Up, node: &str, interface: &str) -> Result<BTreeMap<String, u64>, Failed> {
    let this = std::env::current_exe()?.display().to_string();
    let said = lab.exec(node, &[&this, ASK_COMMAND, interface, "status=1\n\n"])?;
    let status: serde_json::Value = serde_json::from_str(said.lines().next().ok_or("a status")?)?;
    Ok(serde_json::from_value(status["engine"]["counters"].clone())?)
}

/// While flows go through the tunnel, its far end is sent what it has seen already, rubbish, and calls of strangers from many
/// addresses. Every flow arrives whole, all is counted, nothing moves or grows, and a client that calls meanwhile is asked for
/// a cookie and gets in.
fn flooded() -> Result<(), Failed> {
    let before = Holdings::now();
    let lab = Up::start(&["ours"], None)?;
    let (near, _) = lab.tunnel("a1", "private")?;
    let (far, address) = lab.tunnel("a2", "private")?;
    let value = |pairs: &[(String, String)], key: &str| {
        pairs
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.clone())
            .ok_or_else(|| format!("{key} is told"))
    };
    let (of_near, _) = ask(&lab, "a1", &near, "get=1\n\n")?;
    let (key, target) = (value(&of_near, "public_key")?, value(&of_near, "endpoint")?);
    let (of_far, _) = ask(&lab, "a2", &far, "get=1\n\n")?;
    let endpoint: SocketAddr = value(&of_far, "endpoint")?.parse()?;
    // Else the kernel takes strangers' packets away before the engine can see them.
    for scope in ["all", "private"] {
        lab.exec("a2", &["sh", "-c", &format!("echo 0 > /proc/sys/net/ipv4/conf/{scope}/rp_filter")])?;
    }

    let this = std::env::current_exe()?.display().to_string();
    let local = endpoint.ip().to_string();
    let mut flood = lab
        .command("a1", &[&this, FLOOD_COMMAND, &local, &target, &key, "900"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(flood.stdout.take().ok_or("a pipe")?).lines();
    let client = said.next().ok_or("the client has a key")??;
    let set = format!("set=1\npublic_key={client}\nallowed_ip=10.99.0.1/32\n\n");
    assert_eq!(value(&ask(&lab, "a2", &far, &set)?.0, "errno")?, "0");
    let mut go = flood.stdin.take().ok_or("a pipe")?;
    let verdict = lab.give(&address, 4, FULL.time, || Ok(writeln!(go)?))?;
    let flooded: Flood = serde_json::from_str(&said.next().ok_or("the flood reports")??)?;
    assert!(flood.wait()?.success());

    assert_eq!((verdict.flows, verdict.broken), (4, 0), "{verdict:?}");
    assert!(verdict.bytes > 1_000_000, "{verdict:?}");
    let counters = counters(&lab, "a2", &far)?;
    let count = |names: &[&str]| names.iter().filter_map(|name| counters.get(*name)).sum::<u64>();
    let what = format!("{flooded:?}: {counters:?}");
    // What the kernel's full buffer took away is counted, too, whatever it was.
    let full = count(&["drop.udp-receive-buffer"]);
    assert!(flooded.replayed.min(flooded.rubbish) > 300 && flooded.initiations > 2_000, "{what}");
    assert!(count(&["drop.replay"]) + full >= flooded.replayed, "{what}");
    assert!(count(&["drop.malformed"]) + full >= flooded.rubbish, "{what}");
    let calls =
        ["handshake.cookies-sent", "drop.handshake-unknown-peer", "drop.handshake-queue", "drop.handshake-other"];
    assert!(count(&calls) + full >= flooded.initiations, "{what}");
    assert!(count(&["handshake.cookies-sent"]) > 0, "{what}");
    assert!(flooded.cookies > 0 && flooded.sessions > 0, "the client was asked for a cookie and got in: {what}");
    assert_eq!(count(&["peer.roamed"]), 0, "{what}");
    let (after, peak) = ask(&lab, "a2", &far, "get=1\n\n")?;
    assert!(after.contains(&("endpoint".to_owned(), endpoint.to_string())), "{after:?}");
    assert!(peak < 64 << 10, "{peak} KiB");
    lab.end()?;
    before.restored()
}

/// A daemon by path with a word for its log, which then is the engine.
fn doomed(directory: &std::path::Path) -> Result<String, Failed> {
    let path = directory.join("doomed");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo doomed 1; exit; }}\necho its last words >&2\n\
         exec {WGLAB} tunnel \"$2\" --mtu 1420\n"
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path.display().to_string())
}

/// A run of the raw underlay, ours, and an engine that is in for trouble.
struct Doomed {
    run: Option<Running>,
    directory: tempfile::TempDir,
}

impl Doomed {
    /// Runs until the engine was measured.
    fn start() -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let engine = format!("doomed={}", doomed(directory.path())?);
        let engines = ["--engine", "raw", "--engine", "ours=embedded", "--engine", &engine];
        let brief = ["--rounds", "200", "--duration", "50ms", "--only", "test=tcp-stream"];
        let arguments = [&["run", "pair", "--out", "r"][..], &engines, &brief].concat();
        let run = Running::start(directory.path(), &arguments)?;
        let doomed = Self { run: Some(run), directory };
        doomed.until("a run of the doomed engine", |record| of(record, "doomed").iter().any(Run::usable))?;
        Ok(doomed)
    }

    fn pid(&self) -> Result<u32, Failed> {
        Ok(self.run.as_ref().ok_or("it runs")?.pid())
    }

    fn record(&self) -> Result<Record, Failed> {
        record(&self.directory.path().join("r"))
    }

    fn until(&self, what: &str, reached: impl Fn(&Record) -> bool) -> Result<(), Failed> {
        let begin = Instant::now();
        while !self.record().is_ok_and(|record| reached(&record)) {
            if begin.elapsed() > Duration::from_secs(90) {
                return Err(format!("{what} did not come").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Sends a signal to its processes at the server.
    fn signal(&self, what: Signal) -> Result<(), Failed> {
        let (_, agents) = lab_of(self.pid()?).ok_or("the lab is there")?;
        let engines = children(agents[1]);
        // Ours hang on a lifeline, and only ours.
        let doomed = |command: &str| command.contains(" tunnel ") && !command.contains("--lifeline");
        let victims: Vec<u32> = engines.iter().filter(|(_, command)| doomed(command)).map(|(pid, _)| *pid).collect();
        assert!(!victims.is_empty(), "{engines:?}");
        victims.into_iter().try_for_each(|victim| signal(victim, what))
    }

    /// Waits until two runs of the engine failed, and some of others ended after them.
    fn until_it_failed(&self) -> Result<(), Failed> {
        let failed = |record: &Record| of(record, "doomed").iter().filter(|run| run.status == Status::Failed).count();
        self.until("two failed runs", |record| failed(record) >= 2)?;
        let runs = self.record()?.runs.len();
        self.until("runs after them", |record| record.runs.len() > runs + 6)
    }

    /// Interrupts the run. Returns the record and what was said.
    fn end(mut self) -> Result<(Record, String), Failed> {
        signal(self.pid()?, Signal::SIGINT)?;
        let output = self.run.take().ok_or("it runs")?.end()?;
        Ok((self.record()?, text(&output)))
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        // Only where a test failed: else it was waited for.
        if let Some(run) = self.run.take() {
            let _ended = signal(run.pid(), Signal::SIGINT);
            let _said = run.end();
        }
    }
}

fn of(record: &Record, engine: &str) -> Vec<Run> {
    record.runs.iter().filter(|run| is(run, engine)).cloned().collect()
}

/// The reasons of those runs of an engine that were not usable, but for the one in hand at the end.
fn reasons(record: &Record, engine: &str) -> Vec<String> {
    let runs = of(record, engine);
    let bad = runs.iter().filter(|run| !run.usable() && run.status != Status::Interrupted);
    bad.map(|run| run.reason.clone().unwrap_or_default()).collect()
}

fn killed() -> Result<(), Failed> {
    let before = Holdings::now();
    let lab = Doomed::start()?;
    lab.signal(Signal::SIGKILL)?;
    lab.until_it_failed()?;
    let (record, said) = lab.end()?;
    let why = reasons(&record, "doomed").pop().unwrap_or_default();
    for word in ["doomed", "signal: 9 (SIGKILL)", "its last words"] {
        assert!(why.contains(word), "{word}: {why}: {said}");
    }
    // The others live and are measured.
    assert_eq!((reasons(&record, "raw"), reasons(&record, "ours")), (Vec::new(), Vec::new()));
    before.restored()
}

/// An engine that gets no time at all: its runs fail, those of others go on, and when it has time again so do its own.
fn starved() -> Result<(), Failed> {
    let before = Holdings::now();
    let lab = Doomed::start()?;
    lab.signal(Signal::SIGSTOP)?;
    lab.until_it_failed()?;
    lab.signal(Signal::SIGCONT)?;
    let runs = lab.record()?.runs.len();
    let well = |record: &Record| record.runs.iter().skip(runs).any(|run| run.usable() && is(run, "doomed"));
    lab.until("a run of the engine after that", well)?;
    let (record, said) = lab.end()?;
    // The first one of the others found out that the engine does not answer, and that took its time.
    let others: Vec<String> = ["raw", "ours"].into_iter().flat_map(|engine| reasons(&record, engine)).collect();
    assert!(others.len() <= 2, "{others:?}: {said}");
    before.restored()
}

fn is(run: &Run, engine: &str) -> bool {
    run.factors.get(Factor::Engine) == Some(engine)
}
