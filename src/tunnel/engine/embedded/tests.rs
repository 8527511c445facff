//! Two engines on a network in memory: no kernel, no privileges.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::counters::Event;
use super::fakes::{FakeNet, FakeTun, Faults};
use super::*;
use crate::packet::coalesce::tests::{Flow, Shape, verify};
use crate::packet::split::Split;
use crate::packet::vnet::{Gso, VNET_HDR_LEN, VnetHeader};
use crate::sys::tun::TunOffloads;
use crate::sys::udp::UdpGranted;
use crate::tunnel::keys::{PresharedKey, PrivateKey};
use crate::tunnel::uapi::{SetDevice, SetPeer};

mod field;
mod load;
mod trouble;

const PORT: u16 = 51820;
const LONG: Duration = Duration::from_secs(10);
const OFFLOADS: TunOffloads = TunOffloads { tso: true, uso: true };
const GRANTED: UdpGranted = UdpGranted { gso: true, gro: true, receive_buffer: 0, send_buffer: 0, forced: false };

/// Waits until `condition` is over, or for ever so long; the caller's assertion tells which.
fn wait_while(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while condition() && begin.elapsed() < LONG {
        thread::sleep(Duration::from_millis(1));
    }
}

struct Node {
    engine: Engine,
    tun: Arc<FakeTun>,
    /// The queue of a second lane, if there is one.
    second: Option<Arc<FakeTun>>,
    key: PrivateKey,
    address: SocketAddr,
}

fn node(net: &Arc<FakeNet>, last: u8, vnet: bool) -> Node {
    node_with(net, last, vnet, 1)
}

fn node_at(net: &Arc<FakeNet>, address: &str) -> Node {
    node_on(net, address.parse().unwrap(), true, 1)
}

fn node_with(net: &Arc<FakeNet>, last: u8, vnet: bool, lanes: usize) -> Node {
    node_on(net, IpAddr::from([192, 0, 2, last]), vnet, lanes)
}

fn node_on(net: &Arc<FakeNet>, ip: IpAddr, vnet: bool, lanes: usize) -> Node {
    let offloads = if vnet { OFFLOADS } else { TunOffloads::default() };
    let tuns: Vec<_> = (0..lanes).map(|_| FakeTun::new(vnet, offloads).unwrap()).collect();
    let queues = tuns.iter().map(|tun| tun.clone() as Arc<dyn io::TunDevice>).collect();
    let engine = Engine::start(queues, net.factory(ip, GRANTED), Vec::new(), Arc::new(|| ())).unwrap();
    let (tun, second) = (tuns[0].clone(), tuns.get(1).cloned());
    Node { engine, tun, second, key: PrivateKey::generate(), address: SocketAddr::new(ip, PORT) }
}

impl Node {
    fn configure(&self, peers: Vec<SetPeer>) {
        let request = SetDevice {
            private_key: Some(Some(self.key.clone())),
            listen_port: Some(PORT),
            replace_peers: true,
            peers,
            ..SetDevice::default()
        };
        self.engine.device().set(&request).unwrap();
    }

    fn peer(&self, other: &Self, allowed: &[&str]) -> SetPeer {
        SetPeer {
            endpoint: Some(other.address),
            allowed_ips: allowed.iter().map(|net| (net.parse().unwrap(), true)).collect(),
            ..SetPeer::new(other.key.public())
        }
    }

    fn count(&self, event: Event) -> u64 {
        self.engine.device().counters.get(event)
    }

    fn named(&self) -> BTreeMap<String, u64> {
        self.engine.device().report().engine.counters
    }

    /// All packets that came out of the tunnel, super-packets split again.
    fn take_packets(&self, count: usize) -> Vec<Vec<u8>> {
        let begin = Instant::now();
        let mut packets = Vec::new();
        while packets.len() < count && begin.elapsed() < LONG {
            for written in self.tun.take_written(1, Duration::from_millis(50)) {
                let mut written = written;
                let (header, packet) = written.split_at_mut(VNET_HDR_LEN);
                let header = VnetHeader::decode(header).unwrap();
                let mut split = Split::new(header, packet).unwrap();
                while let Some(packet) = split.next_packet() {
                    packets.push(packet.to_vec());
                }
            }
        }
        packets
    }
}

/// Two nodes with a session: `a` owns the sources, and `b` the destinations that [`Flow`] uses.
fn pair(net: &Arc<FakeNet>) -> (Node, Node) {
    let (a, b) = strangers(net);
    a.tun.push(super_packet(&Flow { port: 9, ..Flow::example() }, &[0], 100));
    assert_eq!(b.take_packets(1).len(), 1);
    (a, b)
}

/// The same without a session.
fn strangers(net: &Arc<FakeNet>) -> (Node, Node) {
    let (a, b) = (node(net, 1, true), node(net, 2, true));
    a.configure(vec![a.peer(&b, &["10.0.0.2/32", "fd00::/16"])]);
    b.configure(vec![b.peer(&a, &["10.0.0.1/32", "fd00::/16"])]);
    (a, b)
}

fn super_packet(flow: &Flow, payload: &[u8], segment: u16) -> Vec<u8> {
    let packet = flow.packet(0, payload, 0x10);
    let (transport, offset) = (flow.transport(), if flow.tcp { 16 } else { 6 });
    let gso = match (flow.tcp, flow.v4) {
        _ if payload.len() <= usize::from(segment) => Gso::None,
        (true, true) => Gso::TcpV4,
        (true, false) => Gso::TcpV6,
        (false, _) => Gso::Udp,
    };
    let mut packet = packet;
    let addresses = if flow.v4 { 12..20 } else { 8..40 };
    let protocol = if flow.tcp { 6 } else { 17 };
    let sum = crate::packet::checksum::pseudo_header(&packet[addresses], protocol, packet.len() - transport).folded();
    packet[transport + offset..][..2].copy_from_slice(&sum.to_ne_bytes());
    let header =
        VnetHeader { gso, ecn: false, segment, checksum: Some((transport as u16, offset as u16)), header_len: 0 };
    [&header.encode()[..], &packet].concat()
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed).wrapping_add((at >> 8) as u8)).collect()
}

fn flows() -> Vec<Flow> {
    [(true, true), (false, true), (true, false), (false, false)]
        .into_iter()
        .flat_map(|(tcp, v4)| {
            [None, Some(77)].map(|timestamps| Flow {
                tcp,
                v4,
                port: 1000 + u16::from(tcp) * 4 + u16::from(v4) * 2 + u16::from(timestamps.is_some()),
                shape: Shape { timestamps, ..Shape::default() },
                ..Flow::example()
            })
        })
        .collect()
}

/// Sends super-packets of mixed flows from `a`; every byte must come out of `b`, in order within each flow.
fn transfer(a: &Node, b: &Node, rounds: u8) {
    transfer_as(a, b, rounds, |packet| packet);
}

/// The same from the far end of [`pair`]. No sum changes where both addresses change places.
fn transfer_back(b: &Node, a: &Node, rounds: u8) {
    transfer_as(b, a, rounds, |mut packet| {
        let (at, len) = if packet[VNET_HDR_LEN] >> 4 == 4 { (12, 4) } else { (8, 16) };
        let (source, destination) = packet[VNET_HDR_LEN + at..][..2 * len].split_at_mut(len);
        source.swap_with_slice(destination);
        packet
    });
}

fn transfer_as(a: &Node, b: &Node, rounds: u8, change: impl Fn(Vec<u8>) -> Vec<u8>) {
    assert!(rounds > 0, "something is to cross");
    let flows = flows();
    let mut expected: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    let mut packets = 0;
    for round in 0..rounds {
        for (index, flow) in flows.iter().enumerate() {
            let segment = [1368_u16, 536, 100, 1200][usize::from(round) % 4];
            let len = [60_000, 1368, 1, 4 * 536, 4 * 536 + 1, 30_001][(usize::from(round) + index) % 6];
            let payload = pattern(len, round);
            packets += len.div_ceil(usize::from(segment));
            a.tun.push(change(super_packet(flow, &payload, segment)));
            expected.entry(flow.port).or_default().extend(payload);
        }
    }
    let received = b.take_packets(packets);
    assert_eq!(received.len(), packets, "a: {:?} b: {:?}", a.named(), b.named());
    let mut seen: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    for packet in &received {
        verify(packet);
        let v4 = packet[0] >> 4 == 4;
        let transport = if v4 { 20 } else { 40 };
        let port = u16::from_be_bytes([packet[transport], packet[transport + 1]]);
        let flow = flows.iter().find(|flow| flow.port == port).unwrap();
        seen.entry(port).or_default().extend_from_slice(&packet[flow.headers()..]);
    }
    assert_eq!(seen, expected);
}

#[test]
fn every_byte_of_mixed_flows_crosses_in_order() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 12);
    transfer_back(&b, &a, 12);
    assert_eq!(a.engine.device().report().handshakes[&b.key.public()].completed, 1);
    let datagrams = b.count(Event::UdpReceivedDatagrams);
    assert!(b.count(Event::UdpReceivedMessages) * 4 < datagrams, "batches stay batches: {:?}", b.named());
    assert!(b.count(Event::TunWrites) * 4 < datagrams, "writes are merged: {:?}", b.named());
}

#[test]
fn packets_that_wait_for_the_handshake_are_not_lost() {
    let net = FakeNet::new();
    let (a, b) = strangers(&net);
    let flow = Flow::example();
    for index in 0..100 {
        a.tun.push(super_packet(&flow, &pattern(100, index), 1368));
    }
    assert_eq!(b.take_packets(100).len(), 100);
    assert_eq!(a.count(Event::DropStaged), 0);
}

#[test]
fn what_the_staging_queue_cannot_hold_is_counted() {
    let net = FakeNet::new();
    let a = node(&net, 1, true);
    let b = node(&net, 2, true);
    a.configure(vec![a.peer(&b, &["10.0.0.2/32"])]);
    // b is not configured: nobody answers.
    a.tun.push(super_packet(&Flow::example(), &pattern(60_000, 1), 100));
    wait_while(|| a.count(Event::TunReadPackets) < 600);
    assert_eq!(a.count(Event::DropStaged), 600 - 256);
}

#[test]
fn refused_batches_lose_nothing_and_are_said_once() {
    for errno in [libc::EIO, libc::EINVAL, libc::EMSGSIZE] {
        let net = FakeNet::new();
        let (a, b) = pair(&net);
        transfer(&a, &b, 4);
        net.set_faults(Faults { refuse_batches: Some(errno), ..Faults::default() });
        transfer(&a, &b, 6);
        let report = a.engine.device().report().engine;
        assert!(!report.offloads.udp_gso);
        assert_eq!(report.offload_notes.len(), 1, "{:?}", report.offload_notes);
        assert_eq!(a.count(Event::DropUdpSend), 0);
        // The fault is gone, but the decision stays.
        net.set_faults(Faults::default());
        transfer(&a, &b, 4);
        assert!(!a.engine.device().report().engine.offloads.udp_gso);
    }
}

#[test]
fn a_device_that_refuses_super_packets_gets_packets() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 4);
    b.tun.refuse_super_packets(Some(libc::EINVAL));
    transfer(&a, &b, 6);
    let report = b.engine.device().report().engine;
    assert!(!report.offloads.tun_tso);
    assert_eq!(report.offload_notes.len(), 1, "{:?}", report.offload_notes);
    assert_eq!(b.count(Event::DropTunWrite), 0);
}

#[test]
fn partial_sends_and_full_sockets_lose_nothing() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    net.set_faults(Faults { partial: Some(1), ..Faults::default() });
    transfer(&a, &b, 6);
    assert_eq!(a.count(Event::DropUdpSend), 0);
    net.set_faults(Faults { partial: Some(3), refuse_batches: Some(libc::EIO), ..Faults::default() });
    for _ in 0..6 {
        // Once as a load and once out of rest, where one thread carries both directions.
        transfer(&a, &b, 6);
        thread::sleep(Duration::from_millis(15));
        transfer(&a, &b, 6);
    }
    assert_eq!(a.count(Event::DropUdpSend), 0);
}

#[test]
fn sends_that_fail_are_counted_by_errno() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 2);
    net.set_faults(Faults { refuse_destination: Some((b.address, libc::ENETUNREACH)), ..Faults::default() });
    a.tun.push(super_packet(&Flow::example(), &pattern(1000, 1), 100));
    wait_while(|| a.count(Event::DropUdpSend) < 10);
    assert_eq!(a.engine.device().report().engine.udp_send_errors["ENETUNREACH"], 10);
    net.set_faults(Faults::default());
    transfer(&a, &b, 2);
}

#[test]
fn duplicates_and_replays_are_delivered_once() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    net.set_faults(Faults { duplicates: 1, ..Faults::default() });
    transfer(&a, &b, 6);
    let captured = net.take_captured();
    let before = b.named();
    for capture in captured.iter().filter(|capture| capture.to == b.address) {
        assert!(net.inject("203.0.113.9:9".parse().unwrap(), b.address, &capture.bytes));
    }
    let replays = captured.iter().filter(|capture| capture.to == b.address && capture.bytes[0] == 4).count() as u64;
    let refused = || b.count(Event::DropReplay) - before.get("drop.replay").copied().unwrap_or(0);
    wait_while(|| refused() < replays);
    assert_eq!(refused(), replays);
    assert!(replays > 0 && b.tun.take_written(1, Duration::ZERO).is_empty());
    assert_eq!(b.count(Event::Roamed), 0, "a replay moves nobody");
    // The old initiation came again, too: the session must have survived it.
    net.set_faults(Faults::default());
    transfer(&a, &b, 2);
    assert_eq!(b.engine.device().report().handshakes[&a.key.public()].initiations_stale, 1);
}

#[test]
fn sources_of_other_peers_are_dropped() {
    let net = FakeNet::new();
    let (a, b, c) = (node(&net, 1, true), node(&net, 2, true), node(&net, 3, true));
    a.configure(vec![a.peer(&b, &["10.0.0.2/32", "fd00::/16"])]);
    c.configure(vec![c.peer(&b, &["10.0.0.2/32", "fd00::/16"])]);
    // The net of all is a's; one address in it is c's.
    b.configure(vec![b.peer(&a, &["10.0.0.0/24"]), b.peer(&c, &["10.0.0.1/32"])]);
    let flow = Flow::example();
    // Its source is 10.0.0.1: c may send it, a may not, although a owns a prefix that contains it.
    a.tun.push(super_packet(&flow, &pattern(500, 1), 100));
    wait_while(|| b.count(Event::DropSource) < 5);
    assert_eq!(b.count(Event::DropSource), 5);
    c.tun.push(super_packet(&flow, &pattern(500, 1), 100));
    assert_eq!(b.take_packets(5).len(), 5);
}

#[test]
fn malformed_datagrams_are_counted_and_harmless() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 2);
    let stranger: SocketAddr = "203.0.113.9:9".parse().unwrap();
    let typed = |kind: u8, len: usize| {
        let mut bytes = pattern(len, 7);
        bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
        bytes
    };
    let mut corpus = vec![Vec::new(), vec![1], typed(4, 31), typed(4, 32), typed(1, 147), typed(1, 149)];
    corpus.extend([typed(2, 91), typed(2, 93), typed(3, 63), typed(3, 65), typed(0, 100), typed(5, 100)]);
    corpus.extend([typed(255, 100), typed(1, 148), typed(2, 92), typed(3, 64)]);
    let mut reserved = typed(1, 148);
    reserved[3] = 1;
    corpus.push(reserved);
    // A real session's index, with counters at the edges.
    let real =
        net.take_captured().into_iter().rfind(|capture| capture.to == b.address && capture.bytes[0] == 4).unwrap();
    for counter in [0, u64::from(u32::MAX), u64::MAX, u64::MAX - 1] {
        let mut bytes = real.bytes.clone();
        bytes[8..16].copy_from_slice(&counter.to_le_bytes());
        corpus.push(bytes);
    }
    for cut in [16, 31, 32, 33] {
        corpus.push(real.bytes[..cut.min(real.bytes.len())].to_vec());
    }
    corpus.push(vec![4; 65_507]);
    for bytes in &corpus {
        assert!(net.inject(stranger, b.address, bytes));
    }
    let dropped =
        || b.named().iter().filter(|(name, _)| name.starts_with("drop.")).map(|(_, count)| count).sum::<u64>();
    wait_while(|| dropped() < corpus.len() as u64);
    assert_eq!(dropped(), corpus.len() as u64, "each is counted once: {:?}", b.named());
    assert_eq!(b.count(Event::Roamed), 0);
    transfer(&a, &b, 2);
}

#[test]
fn truncated_reads_lose_only_themselves() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 2);
    net.set_faults(Faults { truncate: Some(200), ..Faults::default() });
    a.tun.push(super_packet(&Flow::example(), &pattern(1000, 1), 500));
    wait_while(|| b.count(Event::DropAead) < 2);
    assert_eq!(b.count(Event::DropAead), 2);
    // The kernel says so, mostly.
    net.set_faults(Faults { say_truncated: true, ..Faults::default() });
    a.tun.push(super_packet(&Flow::example(), &pattern(500, 1), 500));
    wait_while(|| b.count(Event::DropTruncated) < 1);
    assert_eq!((b.count(Event::DropTruncated), b.count(Event::DropAead)), (1, 2));
    net.set_faults(Faults::default());
    transfer(&a, &b, 2);
}

#[test]
fn a_peer_that_moves_is_followed() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 2);
    a.engine.device().set(&SetDevice { listen_port: Some(4242), ..SetDevice::default() }).unwrap();
    transfer(&a, &b, 2);
    assert_eq!(b.count(Event::Roamed), 1);
    let endpoint = b.engine.device().get().peers[0].endpoint;
    assert_eq!(endpoint, Some("192.0.2.1:4242".parse().unwrap()));
    transfer_back(&b, &a, 2);
}

#[test]
fn a_wrong_preshared_key_and_a_wrong_key_are_told_apart() {
    let net = FakeNet::new();
    let (a, b) = (node(&net, 1, true), node(&net, 2, true));
    let with = |peer: SetPeer, byte| SetPeer {
        preshared_key: Some(PresharedKey::from_bytes([byte; 32])),
        keepalive: Some(1),
        ..peer
    };
    a.configure(vec![with(a.peer(&b, &["10.0.0.2/32"]), 1)]);
    b.configure(vec![SetPeer { keepalive: None, ..with(b.peer(&a, &["10.0.0.1/32"]), 2) }]);
    let handshakes = |node: &Node, other: &Node| node.engine.device().report().handshakes[&other.key.public()];
    wait_while(|| handshakes(&a, &b).responses_rejected == 0);
    assert_eq!(handshakes(&a, &b).responses_rejected, 1);
    assert_eq!(handshakes(&a, &b).completed, 0);
    // b changes its own key: a calls with a MAC1 for the old one.
    let renamed = SetDevice { private_key: Some(Some(PrivateKey::generate())), ..SetDevice::default() };
    b.engine.device().set(&renamed).unwrap();
    a.configure(vec![with(a.peer(&b, &["10.0.0.2/32"]), 3)]);
    wait_while(|| b.count(Event::DropMac1) == 0);
    assert!(b.count(Event::DropMac1) > 0, "{:?}", b.named());
}

#[test]
fn a_stranger_is_named() {
    let net = FakeNet::new();
    let (a, b) = (node(&net, 1, true), node(&net, 2, true));
    a.configure(vec![SetPeer { keepalive: Some(1), ..a.peer(&b, &["10.0.0.2/32"]) }]);
    b.configure(Vec::new());
    wait_while(|| b.count(Event::DropUnknownPeer) == 0);
    assert_eq!(b.engine.device().report().engine.unknown_caller, Some(a.key.public()));
}

#[test]
fn threads_end_with_the_engine() {
    let mine = |prefix: &str| {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with(prefix))
            .count()
    };
    // Other tests run engines in this process at the same time; ours are told apart by their stop alone.
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    assert!(mine("wg-") >= 8);
    let weak = [Arc::downgrade(a.engine.device()), Arc::downgrade(b.engine.device())];
    a.engine.stop();
    b.engine.stop();
    assert!(weak.iter().all(|device| device.upgrade().is_none()), "a thread still holds its device");
}

#[test]
fn a_thousand_peers_are_configured_quickly_and_shown_all() {
    let net = FakeNet::new();
    let hub = node(&net, 1, true);
    let keys: Vec<PrivateKey> = (0..1000).map(|_| PrivateKey::generate()).collect();
    let peers = keys
        .iter()
        .enumerate()
        .map(|(index, key)| SetPeer {
            endpoint: Some(SocketAddr::new(IpAddr::from([198, 51, 100, 1]), 1000 + index as u16)),
            allowed_ips: vec![(format!("10.{}.{}.0/24", index / 256, index % 256).parse().unwrap(), true)],
            ..SetPeer::new(key.public())
        })
        .collect();
    let begin = Instant::now();
    hub.configure(peers);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let shown = hub.engine.device().get().peers;
    assert_eq!(shown.len(), 1000);
    assert!(shown.iter().all(|peer| peer.allowed_ips.len() == 1));
    // Half of them go, in an order that is not theirs.
    let remove =
        keys.iter().rev().step_by(2).map(|key| SetPeer { remove: true, ..SetPeer::new(key.public()) }).collect();
    hub.engine.device().set(&SetDevice { peers: remove, ..SetDevice::default() }).unwrap();
    assert_eq!(hub.engine.device().get().peers.len(), 500);
}

#[test]
fn a_prefix_moves_to_the_last_peer_that_is_given_it() {
    let net = FakeNet::new();
    let (a, b, c) = (node(&net, 1, true), node(&net, 2, true), node(&net, 3, true));
    a.configure(vec![a.peer(&b, &["10.0.0.0/24", "10.1.0.0/24"]), a.peer(&c, &["10.0.0.0/24"])]);
    let owned = |node: &Node| {
        let peers = a.engine.device().get().peers;
        let peer = peers.into_iter().find(|peer| peer.public_key == node.key.public()).unwrap();
        peer.allowed_ips.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(owned(&b), ["10.1.0.0/24"]);
    assert_eq!(owned(&c), ["10.0.0.0/24"]);
    let update = SetPeer { update_only: true, ..SetPeer::new(PrivateKey::generate().public()) };
    a.engine.device().set(&SetDevice { peers: vec![update], ..SetDevice::default() }).unwrap();
    assert_eq!(a.engine.device().get().peers.len(), 2, "update_only makes no peer");
    let take = SetPeer { allowed_ips: vec![("10.1.0.0/24".parse().unwrap(), false)], ..SetPeer::new(b.key.public()) };
    a.engine.device().set(&SetDevice { peers: vec![take], ..SetDevice::default() }).unwrap();
    assert!(owned(&b).is_empty());
}

#[test]
fn two_lanes_send_for_one_peer_and_lose_nothing() {
    let net = FakeNet::new();
    let (a, b) = (node_with(&net, 1, true, 2), node(&net, 2, true));
    a.configure(vec![a.peer(&b, &["10.0.0.2/32"])]);
    b.configure(vec![b.peer(&a, &["10.0.0.1/32"])]);
    a.tun.push(super_packet(&Flow { port: 9, ..Flow::example() }, &[0], 100));
    assert_eq!(b.take_packets(1).len(), 1);
    // Each flow has its queue, as the kernel does it; together they are far more than a replay window.
    let (one, two) = (Flow { port: 1, ..Flow::example() }, Flow { port: 2, ..Flow::example() });
    let second = a.second.clone().unwrap();
    const ROUNDS: u8 = 40;
    for round in 0..ROUNDS {
        a.tun.push(super_packet(&one, &pattern(60_000, round), 500));
        second.push(super_packet(&two, &pattern(60_000, round), 500));
    }
    let packets = b.take_packets(usize::from(ROUNDS) * 240);
    assert_eq!(packets.len(), usize::from(ROUNDS) * 240, "{:?}", b.named());
    for flow in [one, two] {
        let bytes: Vec<u8> = packets
            .iter()
            .filter(|packet| packet[20..22] == flow.port.to_be_bytes())
            .flat_map(|packet| packet[flow.headers()..].to_vec())
            .collect();
        let expected: Vec<u8> = (0..ROUNDS).flat_map(|round| pattern(60_000, round)).collect();
        assert!(bytes == expected, "a flow was reordered");
    }
}
