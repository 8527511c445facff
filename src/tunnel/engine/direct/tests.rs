//! Two tunnels without devices on a network without a kernel.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::*;
use crate::sys::udp::UdpGranted;
use crate::tunnel::engine::embedded::fakes::{FakeNet, Faults};
use crate::tunnel::keys::PrivateKey;
use crate::tunnel::spec::{PeerSpec, TunnelEngine};
use crate::tunnel::uapi::SetPeer;

const PORT: u16 = 21_820;
const MTU: u64 = 1420;

struct End {
    direct: Arc<Direct>,
    key: PrivateKey,
    inner: Ipv4Addr,
    outer: SocketAddrV4,
}

fn end(net: &Arc<FakeNet>, last: u8) -> End {
    let spec = TunnelSpec {
        interface: format!("wg{last}"),
        mtu: Mtu::new(MTU).unwrap(),
        listen_port: PORT,
        engine: TunnelEngine::Direct,
        pin: None,
        fwmark: None,
        peers: Vec::new(),
    };
    let outer = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), PORT);
    let granted = UdpGranted { gso: true, gro: true, ..UdpGranted::default() };
    let direct = Direct::on(&spec, net.factory(IpAddr::V4(*outer.ip()), granted)).unwrap();
    End { direct, key: PrivateKey::generate(), inner: Ipv4Addr::new(10, 0, 0, last), outer }
}

fn join(one: &End, other: &End) {
    for (here, there) in [(one, other), (other, one)] {
        let peer = PeerSpec {
            public_key: there.key.public(),
            preshared_key: None,
            endpoint: Some(there.outer.into()),
            allowed_ips: vec![IpNet::from(IpAddr::V4(there.inner))],
            keepalive: None,
        };
        let request = SetDevice {
            private_key: Some(Some(here.key.clone())),
            listen_port: Some(PORT),
            replace_peers: true,
            peers: vec![SetPeer::exactly(&peer)],
            ..SetDevice::default()
        };
        here.direct.set(&request).unwrap();
    }
}

fn two(net: &Arc<FakeNet>) -> (End, End) {
    let (one, other) = (end(net, 1), end(net, 2));
    join(&one, &other);
    (one, other)
}

fn socket(end: &End, capacity: usize) -> Socket {
    let socket = end.direct.socket(end.inner, capacity).unwrap();
    socket.wait_at_most(Duration::from_secs(5));
    socket
}

/// Payloads received until there are `count`, or 5 s are over.
fn receive(socket: &Socket, count: usize) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let begin = Instant::now();
    let mut all = Vec::new();
    while all.len() < count && begin.elapsed() < Duration::from_secs(5) {
        let _timed_out = socket.receive(|arrived| {
            all.push((arrived.from, arrived.payload.to_vec()));
            true
        });
    }
    all
}

#[test]
fn every_datagram_arrives_once_whole_and_in_order() {
    let net = FakeNet::new();
    let (one, other) = two(&net);
    let (client, server) = (socket(&one, 1 << 20), socket(&other, 1 << 20));
    // Odd lengths, an empty one, the longest; the first of them starts the handshake and waits for it.
    let lengths = [0, 1, 33, 1391, 1392, 700];
    let payloads: Vec<Vec<u8>> =
        (0..200_usize).map(|n| (0..lengths[n % lengths.len()]).map(|at| (n * 7 + at) as u8).collect()).collect();
    for batch in payloads.chunks(70) {
        client
            .send(server.local(), batch.len(), |index| {
                let (head, tail) = batch[index].split_at(batch[index].len() / 2);
                [head, tail]
            })
            .unwrap();
    }
    let received = receive(&server, payloads.len());
    assert_eq!(received.len(), payloads.len());
    for ((from, payload), sent) in received.iter().zip(&payloads) {
        assert_eq!((*from, payload), (client.local(), sent));
    }
    let begin = Instant::now();
    let written = |report: &Report| report.engine.counters.get("tun.write-packets").copied();
    // Counted once for each batch, after its packets are there.
    while written(&other.direct.get().1) != Some(200) && begin.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (device, report) = other.direct.get();
    let carried: u64 = payloads.iter().map(|payload| payload.len() as u64).sum();
    assert!(device.peers[0].rx_bytes >= carried, "{device:?}");
    assert_eq!(written(&report), Some(200));
    assert_eq!(report.engine.counters.get("drop.no-socket"), None);
}

#[test]
fn what_is_too_long_is_refused_and_nothing_of_it_goes() {
    let net = FakeNet::new();
    let (one, other) = two(&net);
    let (client, server) = (socket(&one, 1 << 20), socket(&other, 1 << 20));
    let long = vec![0; MTU as usize - 27];
    for length in [long.len(), 65_508, 100_000] {
        let payload = vec![0; length];
        let refused = client.send(server.local(), 1, |_| [&payload[..], &[]]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE), "{length}");
    }
    client.send(server.local(), 1, |_| [&long[1..], &[]]).unwrap();
    assert_eq!(receive(&server, 1)[0].1.len(), long.len() - 1);
}

#[test]
fn a_full_inbox_drops_and_counts_and_goes_on() {
    let net = FakeNet::new();
    let (one, other) = two(&net);
    let (client, server) = (socket(&one, 1 << 20), socket(&other, 1000));
    client.send(server.local(), 1, |_| [b"first", &[]]).unwrap();
    assert_eq!(receive(&server, 1).len(), 1);
    client.send(server.local(), 30, |_| [&[7; 100], &[]]).unwrap();
    let begin = Instant::now();
    while server.dropped() < 20 && begin.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.dropped(), 20);
    // One at a time: what is left stays.
    for _ in 0..4 {
        let mut first = true;
        assert_eq!(server.try_receive(|_| std::mem::replace(&mut first, false)).unwrap(), 1);
    }
    assert_eq!(receive(&server, 6).len(), 6);
    client.send(server.local(), 1, |_| [b"last", &[]]).unwrap();
    assert_eq!(receive(&server, 1)[0].1, b"last");
}

#[test]
fn a_connected_socket_hears_its_peer_alone_and_a_closed_one_nobody() {
    let net = FakeNet::new();
    let (one, other) = two(&net);
    let (client, stranger, server) = (socket(&one, 1 << 20), socket(&one, 1 << 20), socket(&other, 1 << 20));
    assert_ne!(client.local(), stranger.local());
    server.connect(client.local());
    server.stamp_arrivals();
    stranger.send(server.local(), 3, |_| [b"stranger", &[]]).unwrap();
    client.send(server.local(), 1, |_| [b"client", &[]]).unwrap();
    let mut stamped = false;
    server
        .receive(|arrived| {
            assert_eq!((arrived.from, arrived.payload), (client.local(), &b"client"[..]));
            stamped = arrived.arrived_ns.is_some();
            true
        })
        .unwrap();
    assert!(stamped);
    let gone = server.local();
    drop(server);
    client.send(gone, 2, |_| [b"nobody", &[]]).unwrap();
    let begin = Instant::now();
    while other.direct.get().1.engine.counters.get("drop.no-socket") != Some(&(3 + 2)) {
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", other.direct.get().1.engine.counters);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn receiving_waits_as_long_as_it_was_told() {
    let net = FakeNet::new();
    let (one, _) = two(&net);
    let client = socket(&one, 1 << 20);
    client.wait_at_most(Duration::from_millis(20));
    let begin = Instant::now();
    assert_eq!(client.receive(|_| true).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert!(begin.elapsed() >= Duration::from_millis(20));
    assert_eq!(client.try_receive(|_| true).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_tunnel_is_woken_without_a_socket() {
    let net = FakeNet::new();
    let (one, other) = two(&net);
    one.direct.wake(one.inner, other.inner);
    let begin = Instant::now();
    let shaken = |end: &End| end.direct.get().1.handshakes.values().any(|counters| counters.completed > 0);
    while !(shaken(&one) && shaken(&other)) {
        assert!(begin.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(one.direct.dead(), None);
}

#[test]
fn a_network_that_loses_and_refuses_batches_loses_what_it_lost_and_no_more() {
    let net = FakeNet::new();
    let (one, other) = two(&net);
    let (client, server) = (socket(&one, 1 << 20), socket(&other, 4 << 20));
    client.send(server.local(), 1, |_| [b"first", &[]]).unwrap();
    assert_eq!(receive(&server, 1).len(), 1);
    net.set_faults(Faults { refuse_batches: Some(libc::EIO), partial: Some(3), ..Faults::default() });
    client.send(server.local(), 500, |_| [&[1; 1000], &[]]).unwrap();
    assert_eq!(receive(&server, 500).len(), 500);
    net.set_faults(Faults { lose_every: Some(10), ..Faults::default() });
    client.send(server.local(), 500, |_| [&[2; 1000], &[]]).unwrap();
    server.wait_at_most(Duration::from_millis(200));
    assert_eq!(receive(&server, 450).len(), 450);
    assert!(server.receive(|_| true).is_err());
}

#[test]
fn new_sessions_are_made_one_after_the_other_and_traffic_goes_on() {
    let net = FakeNet::new();
    let (one, other) = two(&net);
    let peer = other.key.public();
    // Long enough for more than either end takes without a cookie, where the machine is that fast.
    let seen = one.direct.handshakes(&peer, Duration::from_millis(1500)).unwrap();
    let counters = *one.direct.get().1.handshakes.values().next().unwrap();
    // One whose response came too late was lost, and completed.
    assert!(counters.completed >= seen.latencies_ns.len() as u64 && !seen.latencies_ns.is_empty(), "{counters:?}");
    assert!(counters.completed > 0 && counters.initiations_sent >= counters.completed, "{counters:?}");
    // Each end may ask for a cookie in the middle of one.
    assert!(seen.lost <= 2, "{} lost: {counters:?}", seen.lost);
    assert!(seen.latencies_ns.iter().sum::<u64>() <= 1_700_000_000);
    let (client, server) = (socket(&one, 1 << 20), socket(&other, 1 << 20));
    client.send(server.local(), 50, |_| [b"after", &[]]).unwrap();
    assert_eq!(receive(&server, 50).len(), 50);

    net.set_faults(Faults { lose_every: Some(1), ..Faults::default() });
    let seen = one.direct.handshakes(&peer, Duration::from_millis(150)).unwrap();
    assert_eq!((seen.latencies_ns.len(), seen.lost), (0, 2));
    let stranger = PrivateKey::generate().public();
    assert!(one.direct.handshakes(&stranger, Duration::from_millis(1)).is_err());
}
