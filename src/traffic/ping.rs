//! `ping`: ICMP echo on a schedule. The peer's kernel answers.

use std::io;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use socket2::{Protocol, Socket, Type};

use super::control::{Control, Worker};
use super::handshake;
use super::job::{Buffers, Job, Role};
use super::outcome::{Conditions, Counts, IcmpSocket, Outcome};
use super::round_trips::{self, Echo};
use super::sockets::{self, failed};
use super::{Opened, TrafficError};
use crate::sys::clock;
use crate::units::{Bytes, PacketRate};

/// Type, code, checksum, identifier, sequence (RFC 792; RFC 4443 section 4.1).
const ICMP_HEADER: usize = 8;

pub(super) fn open(
    job: &Job,
    control: &Arc<Control>,
    rate: PacketRate,
    payload: Bytes,
) -> Result<Opened, TrafficError> {
    let owned = job.clone();
    let worker = match job.role {
        Role::Server => Worker::spawn(control, "ping", move |control| handshake::wait_out(control, &owned))?,
        Role::Client => {
            let (address, _) = job
                .peer
                .clone()
                .ok_or_else(|| TrafficError::BadJob { reason: "a client needs its peer".to_owned() })?;
            let (socket, kind) = icmp_socket(job)?;
            let peer: SocketAddr = sockets::socket_address(job, address, 0)?;
            socket.connect(&peer.into()).map_err(|source| TrafficError::Connect { peer, source })?;
            socket.set_nonblocking(true).map_err(failed("making a socket non-blocking"))?;
            let interval_ns = (1_000_000_000 / rate.per_second().max(1)).max(1);
            Worker::spawn(control, "ping", move |control| {
                ask(control, &owned, socket, kind, interval_ns, payload.get() as usize)
            })?
        }
    };
    Ok(Opened::single(Vec::new(), worker))
}

/// An ICMP socket: without privilege where the system lets this group ping, else raw.
fn icmp_socket(job: &Job) -> Result<(Socket, IcmpSocket), TrafficError> {
    let protocol = if job.local.is_ipv6() { Protocol::ICMPV6 } else { Protocol::ICMPV4 };
    let opened = sockets::open(job, Type::DGRAM, protocol)
        .map(|socket| (socket, IcmpSocket::Datagram))
        .or_else(|_| sockets::open(job, Type::RAW, protocol).map(|socket| (socket, IcmpSocket::Raw)));
    match opened {
        Ok((socket, kind)) => {
            sockets::bind(job, &socket)?;
            Ok((socket, kind))
        }
        Err(TrafficError::Socket { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            Err(TrafficError::NoPingSocket { source })
        }
        Err(error) => Err(error),
    }
}

struct Icmp {
    socket: Socket,
    is_ipv6: bool,
    seed: u64,
    identifier: u16,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Echo for Icmp {
    fn send(&mut self, number: u64) -> io::Result<()> {
        let packet = &mut self.outgoing;
        packet[0] = if self.is_ipv6 { 128 } else { 8 };
        packet[2..4].fill(0);
        packet[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        packet[6..8].copy_from_slice(&(number as u16).to_be_bytes());
        packet[8..16].copy_from_slice(&self.seed.to_be_bytes());
        packet[16..24].copy_from_slice(&number.to_be_bytes());
        if !self.is_ipv6 {
            // The kernel fills in ICMPv6's, and a datagram socket's, but not a raw ICMP socket's.
            let sum = internet_checksum(packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        self.socket.send(packet).map(|_| ())
    }

    fn receive(&mut self) -> io::Result<Option<u64>> {
        let count = { &self.socket }.read(&mut self.incoming)?;
        Ok(parse_reply(&self.incoming[..count], self.is_ipv6, self.seed))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The number of the request that a packet answers, if it answers one of ours. A raw IPv4 socket gives the IP header, too.
fn parse_reply(packet: &[u8], is_ipv6: bool, seed: u64) -> Option<u64> {
    let first = *packet.first()?;
    // An echo reply begins with its type, 0 or 129; an IPv4 header with version 4.
    let icmp = if !is_ipv6 && first >> 4 == 4 { packet.get(usize::from(first & 15) * 4..)? } else { packet };
    let reply = if is_ipv6 { 129 } else { 0 };
    let body = icmp.get(ICMP_HEADER..ICMP_HEADER + 16)?;
    let u64_at = |at: usize| body[at..at + 8].try_into().map(u64::from_be_bytes).ok();
    (*icmp.first()? == reply && u64_at(0)? == seed).then(|| u64_at(8)).flatten()
}

/// RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

fn ask(
    control: &Control,
    job: &Job,
    socket: Socket,
    kind: IcmpSocket,
    interval_ns: u64,
    payload: usize,
) -> Result<Outcome, TrafficError> {
    let conditions =
        Conditions { icmp_socket: Some(kind), path_mtu: None, ..sockets::conditions(job, &socket, Buffers::default()) };
    let mut outgoing = vec![0xa5; ICMP_HEADER + payload];
    outgoing[1] = 0;
    let mut echo = Icmp {
        socket,
        is_ipv6: job.local.is_ipv6(),
        seed: job.seed,
        // A datagram socket's is replaced by the kernel; a raw one's only helps who reads a packet trace.
        identifier: job.seed as u16,
        outgoing,
        // Room for the largest IPv4 header.
        incoming: vec![0; 60 + ICMP_HEADER + payload],
    };
    let bounds = control.window.open(clock::now_ns());
    let seen = round_trips::run(control, &mut echo, interval_ns, || Some(bounds))?;
    if seen.latency.histogram.count() == 0 {
        let what = match seen.counts.errors.first_key_value() {
            Some((name, count)) => format!("an answer to any of {} pings ({count} times {name})", seen.sent),
            None => format!("an answer to any of {} pings", seen.sent),
        };
        return Err(control.nothing_arrived(what));
    }
    Ok(Outcome {
        window: Some(control.whole_window(bounds)),
        counts: Counts {
            sent_packets: Some(seen.sent),
            received_packets: Some(seen.latency.histogram.count()),
            lost_packets: Some(seen.latency.unanswered),
            ..seen.counts
        },
        latency: Some(seen.latency),
        lateness: Some(seen.lateness),
        conditions,
        cautions: control.strangers().into_iter().collect(),
        ..Outcome::new(job)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(kind: u8, seed: u64, number: u64) -> Vec<u8> {
        let mut packet = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        packet.extend(seed.to_be_bytes());
        packet.extend(number.to_be_bytes());
        packet
    }

    #[test]
    fn replies_are_told_from_requests_and_from_others() {
        assert_eq!(parse_reply(&reply(0, 7, 42), false, 7), Some(42));
        assert_eq!(parse_reply(&reply(129, 7, 42), true, 7), Some(42));
        assert_eq!(parse_reply(&reply(8, 7, 42), false, 7), None);
        assert_eq!(parse_reply(&reply(0, 8, 42), false, 7), None);
        assert_eq!(parse_reply(&reply(0, 7, 42)[..23], false, 7), None);
        let mut raw = vec![0x46; 24];
        raw.extend(reply(0, 7, 42));
        assert_eq!(parse_reply(&raw, false, 7), Some(42));
        assert_eq!(parse_reply(&[], false, 7), None);
    }

    #[test]
    fn the_checksum_is_rfc_1071s() {
        // The example of section 3: the sum of 0001 f203 f4f5 f6f7 is ddf2.
        assert_eq!(internet_checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(internet_checksum(&[0xff]), !0xff00);
    }
}
