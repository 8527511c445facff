//! Bytes with their proof: flows of many kinds between two nodes, each of which carries the hash of what it is.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wglab::sys::socket::set_int;

/// `bytes-take ADDRESS FLOWS`: takes TCP flows and datagrams, then prints a [`Verdict`].
pub(crate) const TAKE_COMMAND: &str = "bytes-take";
/// `bytes-give ADDRESS FLOWS MILLISECONDS`: sends that many TCP flows for so long, and datagrams beside them.
pub(crate) const GIVE_COMMAND: &str = "bytes-give";

const PORT: u16 = 7007;
const HASH: usize = 32;
/// Of a datagram's hash, as much as small ones have room for.
const SHORT: usize = 8;

/// What arrived.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// TCP flows that ended in the hash of what they were.
    pub(crate) flows: usize,
    pub(crate) bytes: u64,
    /// Datagrams that were what they said, each counted once.
    pub(crate) datagrams: usize,
    /// Datagrams that were not.
    pub(crate) broken: usize,
    /// Datagrams that were sent.
    pub(crate) sent: usize,
}

pub(crate) fn main(mode: &str, arguments: &[String]) -> ExitCode {
    let address: IpAddr = arguments[0].parse().unwrap();
    let flows: usize = arguments[1].parse().unwrap();
    let address = SocketAddr::new(address, PORT);
    if mode == TAKE_COMMAND {
        println!("{}", serde_json::to_string(&take(address, flows)).unwrap());
    } else {
        give(address, flows, Duration::from_millis(arguments[2].parse().unwrap()));
    }
    ExitCode::SUCCESS
}

fn take(address: SocketAddr, flows: usize) -> Verdict {
    let listener = TcpListener::bind(address).unwrap();
    let datagrams = UdpSocket::bind(address).unwrap();
    datagrams.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    // An ordinary user gets less, and that is enough for what is sent.
    let _forced = set_int(&datagrams, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
    println!("ready");
    let counting = std::thread::spawn(move || {
        let (mut seen, mut broken) = (std::collections::BTreeSet::new(), 0);
        let mut buffer = vec![0; 65_536];
        let mut quiet = Instant::now();
        // The datagrams end long before the flows do; a test that sends none waits for nothing.
        while quiet.elapsed() < Duration::from_secs(3) {
            let Ok(length) = datagrams.recv(&mut buffer) else { continue };
            quiet = Instant::now();
            match number(&buffer[..length]) {
                Some(number) => drop(seen.insert(number)),
                None => broken += 1,
            }
        }
        (seen.len(), broken)
    });
    let takers: Vec<_> = (0..flows)
        .map(|_| {
            let (stream, _) = listener.accept().unwrap();
            std::thread::spawn(move || taken(stream))
        })
        .collect();
    let mut verdict = Verdict::default();
    for bytes in takers.into_iter().filter_map(|taker| taker.join().unwrap()) {
        verdict.flows += 1;
        verdict.bytes += bytes;
    }
    let (mut last, _) = listener.accept().unwrap();
    let mut sent = String::new();
    last.read_to_string(&mut sent).unwrap();
    verdict.sent = sent.parse().unwrap();
    (verdict.datagrams, verdict.broken) = counting.join().unwrap();
    verdict
}

/// The bytes of a flow, if its last ones are the hash of all others.
fn taken(mut stream: TcpStream) -> Option<u64> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let (data, hash) = bytes.split_at(bytes.len().checked_sub(HASH)?);
    (Sha256::digest(data)[..] == *hash).then_some(data.len() as u64)
}

fn give(address: SocketAddr, flows: usize, time: Duration) {
    let senders: Vec<_> = (0..flows)
        .map(|flow| {
            let stream = TcpStream::connect(address).unwrap();
            std::thread::spawn(move || send(stream, flow as u64, time))
        })
        .collect();
    let sent = datagrams(address);
    for sender in senders {
        sender.join().unwrap();
    }
    let mut last = TcpStream::connect(address).unwrap();
    write!(last, "{sent}").unwrap();
}

/// Every other flow pushes each write out by itself; lengths are odd and even, from a byte to more than a super-packet.
fn send(mut stream: TcpStream, flow: u64, time: Duration) {
    stream.set_nodelay(flow % 2 == 1).unwrap();
    let (mut hash, mut seed, begin) = (Sha256::new(), flow + 1, Instant::now());
    while begin.elapsed() < time {
        seed = scramble(seed);
        let length = [1, 3, 1_367, 1_368, 1_369, 9_001, 65_483, 100_003][(seed >> 32) as usize % 8];
        let bytes = pattern(length, seed);
        hash.update(&bytes);
        stream.write_all(&bytes).unwrap();
    }
    stream.write_all(&hash.finalize()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    // Until the other end has it all.
    stream.read_to_end(&mut Vec::new()).unwrap();
}

/// Single datagrams of all lengths (those beyond the tunnel's MTU go in fragments), some without a checksum; then
/// super-packets with even and uneven tails. Slowly, so that each may be asked for. Returns how many.
fn datagrams(address: SocketAddr) -> usize {
    let local: IpAddr = if address.is_ipv4() { [0, 0, 0, 0].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local, 0)).unwrap();
    socket.connect(address).unwrap();
    let mut sent = 0_u32;
    for round in 0..40 {
        // UDP over IPv6 without a checksum is another protocol (RFC 6936).
        if address.is_ipv4() {
            set_int(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, round % 2).unwrap();
        }
        for length in [12, 13, 99, 700, 1_201, 1_361, 1_362, 1_363, 3_999, 9_000] {
            socket.send(&datagram(sent, length)).unwrap();
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    if address.is_ipv4() {
        set_int(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 0).unwrap();
    }
    const SEGMENT: usize = 1_200;
    if set_int(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, SEGMENT as i32).is_ok() {
        for tail in [SEGMENT, SEGMENT - 1, 601, 12] {
            for count in [2, 7, 40] {
                let mut all = Vec::new();
                for index in 0..count {
                    all.extend(datagram(sent, if index + 1 == count { tail } else { SEGMENT }));
                    sent += 1;
                }
                socket.send(&all).unwrap();
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    }
    sent as usize
}

/// Its number, a pattern, and a hash of both.
fn datagram(number: u32, length: usize) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend(pattern(length - 4 - SHORT, u64::from(number)));
    let hash = Sha256::digest(&bytes);
    bytes.extend(&hash[..SHORT]);
    bytes
}

fn number(datagram: &[u8]) -> Option<u32> {
    let (data, hash) = datagram.split_at(datagram.len().checked_sub(SHORT)?);
    (Sha256::digest(data)[..SHORT] == *hash).then(|| data.first_chunk().map(|number| u32::from_be_bytes(*number)))?
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..length.div_ceil(8))
        .flat_map(|_| {
            state = scramble(state);
            state.to_le_bytes()
        })
        .take(length)
        .collect()
}

/// The mixing of SplitMix64.
fn scramble(state: u64) -> u64 {
    let mut value = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
