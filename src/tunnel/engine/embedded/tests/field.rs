//! What the field has broken: packets of every kind, batches at the limits, floods, storms, strangers.
//!
//! Where a test must send what our engine never would, the other end is a [`Client`]: the bare protocol, without an engine.

use std::collections::BTreeSet;

use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519;

use super::*;
use crate::packet::checksum::{Sum, pseudo_header};
use crate::tunnel::engine::embedded::fakes::{Capture, with_plain_header};
use crate::tunnel::keys::PublicKey;

/// One end of the protocol, by hand.
struct Client {
    tunn: Tunn,
    key: PrivateKey,
    address: SocketAddr,
    to: SocketAddr,
    net: Arc<FakeNet>,
    /// Handshakes that it completed.
    sessions: usize,
}

impl Client {
    fn new(net: &Arc<FakeNet>, key: PrivateKey, address: &str, to: SocketAddr, of: &PublicKey) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let index = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // A client of its own counts nobody as too many.
        let limiter = Arc::new(RateLimiter::new(&x25519::PublicKey::from(*key.public().as_bytes()), u64::MAX));
        let of = x25519::PublicKey::from(*of.as_bytes());
        let tunn = Tunn::new(key.secret(), of, None, None, index, Some(limiter));
        Self { tunn, key, address: address.parse().unwrap(), to, net: Arc::clone(net), sessions: 0 }
    }

    /// One for which `node` is the only peer.
    fn of(net: &Arc<FakeNet>, address: &str, node: &Node) -> Self {
        Self::new(net, PrivateKey::generate(), address, node.address, &node.key.public())
    }

    fn peer(&self, allowed: &[&str]) -> SetPeer {
        SetPeer {
            allowed_ips: allowed.iter().map(|net| (net.parse().unwrap(), true)).collect(),
            ..SetPeer::new(self.key.public())
        }
    }

    fn send(&self, bytes: &[u8]) {
        assert!(self.net.inject(self.address, self.to, bytes));
    }

    fn call(&mut self) {
        let mut buffer = [0; 256];
        if let TunnResult::WriteToNetwork(message) = self.tunn.format_handshake_initiation(&mut buffer, true) {
            let message = message.to_vec();
            self.send(&message);
        }
    }

    /// Takes what was sent to it and answers it.
    fn hear(&mut self, captured: &[Capture]) {
        for capture in captured.iter().filter(|capture| capture.to == self.address) {
            let mut buffer = vec![0; 2048];
            if let TunnResult::WriteToNetwork(answer) = self.tunn.decapsulate(None, &capture.bytes, &mut buffer) {
                let answer = answer.to_vec();
                self.send(&answer);
                // A response is answered by the keepalive that confirms the session.
                self.sessions += usize::from(capture.bytes[0] == 2);
            }
        }
    }

    fn connected(&self) -> bool {
        self.sessions > 0
    }

    /// Calls, and waits for the answer.
    fn connect(&mut self) {
        let (before, begin) = (self.sessions, Instant::now());
        self.call();
        while begin.elapsed() < LONG {
            self.hear(&self.net.take_captured());
            if self.sessions > before {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no handshake");
    }

    /// The datagram that carries `packet`.
    fn data(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut buffer = vec![0; packet.len() + 200];
        let TunnResult::WriteToNetwork(datagram) = self.tunn.encapsulate(packet, &mut buffer) else {
            panic!("no session");
        };
        datagram.to_vec()
    }
}

/// A small packet from `source`, with a right checksum.
fn from(source: &str) -> Vec<u8> {
    let source: IpAddr = source.parse().unwrap();
    let flow = Flow { v4: source.is_ipv4(), tcp: false, ..Flow::example() };
    let mut packet = flow.packet(0, b"payload", 0);
    let (transport, addresses) = (flow.transport(), if flow.v4 { 12..20 } else { 8..40 });
    match source {
        IpAddr::V4(v4) => packet[12..16].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => packet[8..24].copy_from_slice(&v6.octets()),
    }
    packet[transport + 6..transport + 8].fill(0);
    if flow.v4 {
        packet[10..12].fill(0);
        let header = Sum::default().add_bytes(&packet[..20]).checksum();
        packet[10..12].copy_from_slice(&header.to_ne_bytes());
    }
    let sum = pseudo_header(&packet[addresses], 17, packet.len() - transport).add_bytes(&packet[transport..]);
    packet[transport + 6..transport + 8].copy_from_slice(&sum.udp_checksum().to_ne_bytes());
    packet
}

/// Single packets that differ in all that decides whether they may be merged.
fn every_kind() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (flow, base) in flows().into_iter().enumerate() {
        for index in 0..60_u16 {
            // ECN marks come and go, payloads are odd and even, and every seventh is pushed or ends something.
            let shape = Shape {
                tos: [0, 0, 0, 1, 2, 3, 0, 0x88][usize::from(index / 4) % 8],
                no_checksum: index % 10 > 6,
                may_fragment: index % 20 > 15,
                ..base.shape.clone()
            };
            let flags = if index % 7 == 6 { [0x18, 0x11, 0x30, 0x90][usize::from(index / 7) % 4] } else { 0x10 };
            let length = [500, 500, 500, 499, 1, 1_300, 500, 501][usize::from(index) % 8];
            let offset = u32::from(index) * 500;
            all.push(Flow { shape, ..base.clone() }.packet_at(index, offset, &pattern(length, flow as u8), flags));
        }
    }
    all.extend(odd_ones());
    all
}

/// What no offload knows: fragments, extension headers, other protocols, IP options.
fn odd_ones() -> Vec<Vec<u8>> {
    let whole = Flow { tcp: false, ..Flow::example() }.packet(0, &pattern(400, 9), 0);
    let mut all = Vec::new();
    for (field, more) in [(0_u16, true), (25, true), (50, false)] {
        let mut fragment = whole.clone();
        fragment[6..8].copy_from_slice(&(field | u16::from(more) << 13).to_be_bytes());
        all.push(fragment);
    }
    for protocol in [1, 47, 50, 132, 255] {
        let mut other = whole.clone();
        other[9] = protocol;
        all.push(other);
    }
    let mut options = Flow::example().packet(0, &pattern(100, 3), 0x10);
    options.splice(20..20, [1; 4]);
    options[0] = 0x46;
    let length = options.len() as u16;
    options[2..4].copy_from_slice(&length.to_be_bytes());
    all.extend([options.clone(), options]);
    // IPv6: hop-by-hop options, a routing header, a fragment, ICMPv6, no next header.
    for next in [0, 43, 44, 58, 59] {
        let mut packet = Flow { v4: false, ..Flow::example() }.packet(0, &pattern(200, next), 0x10);
        packet[6] = next;
        all.extend([packet.clone(), packet]);
    }
    all
}

#[test]
fn packets_of_every_kind_come_out_as_they_went_in() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    let sent = every_kind();
    a.tun.push_all(sent.iter().map(|packet| with_plain_header(packet)));
    let received = b.take_packets(sent.len());
    assert_eq!(received.len(), sent.len(), "{:?}", b.named());
    // To the bit and in order within a flow: sorted stably by what makes a flow, both are the same list.
    let by_flow = |packets: &[Vec<u8>]| {
        let mut packets = packets.to_vec();
        packets.sort_by_key(|packet| {
            let v4 = packet[0] >> 4 == 4;
            (v4, packet[if v4 { 9 } else { 6 }], packet[if v4 { 20 } else { 40 }..][..2].to_vec())
        });
        packets
    };
    for (sent, received) in by_flow(&sent).iter().zip(&by_flow(&received)) {
        assert_eq!(sent, received);
    }
    assert!(b.count(Event::TunWrites) < sent.len() as u64, "some were merged: {:?}", b.named());
}

/// Field case O-03: whatever is queued, no send is more than the kernel takes, which the fake refuses as the kernel does.
#[test]
fn batches_stay_within_the_kernels_limits() {
    for (address, other) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
        let net = FakeNet::new();
        let (a, b) = (node_at(&net, address), node_at(&net, other));
        a.configure(vec![a.peer(&b, &["10.0.0.2/32", "fd00::/16"])]);
        b.configure(vec![b.peer(&a, &["10.0.0.1/32", "fd00::/16"])]);
        a.tun.push(super_packet(&Flow { port: 9, ..Flow::example() }, &[0], 100));
        assert_eq!(b.take_packets(1).len(), 1);
        for segments in [1, 43, 44, 49, 64, 65, 129] {
            for size in [33, 1232, 1320, 1452, 1492, 9_000] {
                // A datagram of `size` bytes: 32 of them are the protocol's, and a packet has at least its headers.
                let payload = (size - 32_usize).saturating_sub(40).max(1);
                for tail in [payload, payload.saturating_sub(1).max(1), 1] {
                    let flow = Flow::example();
                    let lengths = (0..segments).map(|index| if index + 1 == segments { tail } else { payload });
                    let packets = lengths.enumerate().map(|(index, length)| {
                        let packet = flow.packet_at(index as u16, (index * payload) as u32, &pattern(length, 1), 0x10);
                        with_plain_header(&packet)
                    });
                    a.tun.push_all(packets);
                    let received = b.take_packets(segments);
                    assert_eq!(received.len(), segments, "{segments} x {size}, tail {tail}: {:?}", a.named());
                }
            }
        }
        assert_eq!(a.count(Event::OffloadRefused), 0, "{:?}", a.named());
        assert_eq!(net.largest_refused(), None);
        assert!(a.count(Event::UdpSends) * 4 < a.count(Event::UdpSentDatagrams), "{:?}", a.named());
    }
}

#[test]
fn padding_is_taken_off_and_nonsense_inside_is_counted() {
    let net = FakeNet::new();
    let b = node(&net, 2, true);
    let mut client = Client::of(&net, "192.0.2.77:7", &b);
    b.configure(vec![client.peer(&["10.0.0.1/32", "fd00::/16"])]);
    client.connect();
    // Field case M-14: an implementation that pads to 16 bytes, as the kernel does.
    for v4 in [true, false] {
        for payload in [1, 4, 15, 16, 17, 1_299, 1_392] {
            let packet = Flow { v4, tcp: false, ..Flow::example() }.packet(0, &pattern(payload, 5), 0);
            let mut padded = packet.clone();
            padded.resize(packet.len().next_multiple_of(16), 0);
            let datagram = client.data(&padded);
            client.send(&datagram);
            assert_eq!(b.take_packets(1), [packet], "{payload} bytes");
        }
    }
    let good = from("10.0.0.1");
    let mut longer = good.clone();
    longer[2..4].copy_from_slice(&2_000_u16.to_be_bytes());
    // Shorter than their own headers.
    let [shorter, empty] = [19, 0].map(|length| {
        let mut packet = good.clone();
        packet[2..4].copy_from_slice(&[0, length]);
        packet
    });
    let nonsense = [vec![0x55; 40], vec![0x45], vec![0x45; 19], vec![0x60; 39], longer, shorter, empty, vec![0]];
    for packet in &nonsense {
        let datagram = client.data(packet);
        client.send(&datagram);
    }
    let dropped = || b.count(Event::DropInner) + b.count(Event::DropSource);
    wait_while(|| dropped() < nonsense.len() as u64);
    assert_eq!(dropped(), nonsense.len() as u64, "{:?}", b.named());
    let datagram = client.data(&good);
    client.send(&datagram);
    assert_eq!(b.take_packets(1), [good]);
}

#[test]
fn a_peer_may_use_its_own_sources_only() {
    let net = FakeNet::new();
    let b = node(&net, 2, true);
    let mut client = Client::of(&net, "192.0.2.77:7", &b);
    let other = Client::of(&net, "192.0.2.78:7", &b);
    b.configure(vec![
        client.peer(&["10.0.0.0/24", "fd00::/64"]),
        other.peer(&["10.0.0.128/25", "10.0.0.9/32", "fd00::9/128"]),
    ]);
    client.connect();
    let own = ["10.0.0.1", "10.0.0.127", "fd00::1", "10.0.0.8"];
    let foreign = ["10.0.0.128", "10.0.0.9", "10.0.1.1", "fd00::9", "fd01::1", "0.0.0.0", "::1", "127.0.0.1"];
    for source in own.iter().chain(&foreign) {
        let datagram = client.data(&from(source));
        client.send(&datagram);
    }
    assert_eq!(b.take_packets(own.len()), own.map(from));
    wait_while(|| b.count(Event::DropSource) < foreign.len() as u64);
    assert_eq!(b.count(Event::DropSource), foreign.len() as u64);
    assert!(b.tun.take_written(1, Duration::from_millis(50)).is_empty());
}

#[test]
fn only_authenticated_data_moves_an_endpoint() {
    let net = FakeNet::new();
    let b = node(&net, 2, true);
    let mut client = Client::of(&net, "192.0.2.77:7", &b);
    b.configure(vec![client.peer(&["10.0.0.1/32"])]);
    client.connect();
    let home = client.address;
    let first = client.data(&from("10.0.0.1"));
    client.send(&first);
    assert_eq!(b.take_packets(1).len(), 1);
    let elsewhere: SocketAddr = "203.0.113.9:4242".parse().unwrap();
    let fresh = client.data(&from("10.0.0.1"));
    let flipped = |at: usize| {
        let mut bytes = fresh.clone();
        bytes[at] ^= 1;
        bytes
    };
    // Replayed; changed in its counter, its text, its tag; cut.
    let forged = [first, flipped(8), flipped(20), flipped(fresh.len() - 1), fresh[..fresh.len() - 1].to_vec()];
    for bytes in &forged {
        assert!(net.inject(elsewhere, b.address, bytes));
    }
    let dropped = || b.count(Event::DropAead) + b.count(Event::DropReplay);
    wait_while(|| dropped() < forged.len() as u64);
    let endpoint = || b.engine.device().get().peers[0].endpoint;
    assert_eq!((dropped(), endpoint()), (forged.len() as u64, Some(home)), "{:?}", b.named());
    // The true one is good still, since nothing forged may take its place in the window.
    assert!(net.inject(elsewhere, b.address, &fresh));
    assert_eq!(b.take_packets(1).len(), 1);
    assert_eq!(endpoint(), Some(elsewhere));
}

/// New sessions again and again while data flows, some of it late: what was sent in an older session arrives all the same.
#[test]
fn rekeys_under_load_lose_nothing() {
    const REKEYS: usize = 20;
    const PACKETS: usize = 60;
    let net = FakeNet::new();
    let b = node(&net, 2, true);
    let mut client = Client::of(&net, "192.0.2.77:7", &b);
    b.configure(vec![client.peer(&["10.0.0.1/32"])]);
    client.connect();
    let mut sent = Vec::new();
    for rekey in 0..REKEYS {
        let mut late = Vec::new();
        for index in 0..PACKETS {
            let number = (rekey * PACKETS + index) as u32;
            let packet = Flow { tcp: false, ..Flow::example() }.packet(0, &number.to_be_bytes(), 0);
            let datagram = client.data(&packet);
            sent.push(packet);
            if index % 3 == 0 { late.push(datagram) } else { client.send(&datagram) }
        }
        client.connect();
        for datagram in late {
            client.send(&datagram);
        }
        // The other direction rekeys, too.
        b.tun.push(with_plain_header(&from_b()));
    }
    // Datagrams that were merged were numbered anew by IP, so what they carry is compared.
    let carried = |packets: &[Vec<u8>]| packets.iter().map(|packet| packet[28..].to_vec()).collect::<BTreeSet<_>>();
    let received = b.take_packets(sent.len());
    assert_eq!(received.len(), sent.len(), "{:?}", b.named());
    assert_eq!(carried(&received), carried(&sent));
    let handshakes = b.engine.device().report().handshakes[&client.key.public()];
    assert_eq!(handshakes.initiations_received as usize, REKEYS + 1);
    assert_eq!(b.count(Event::DropReplay) + b.count(Event::DropUnknownIndex), 0, "{:?}", b.named());
}

/// A packet from `10.0.0.2` to `10.0.0.1`.
fn from_b() -> Vec<u8> {
    let mut packet = Flow { tcp: false, ..Flow::example() }.packet(0, b"back", 0);
    packet[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    packet
}

/// Field case Z-03: a thousand initiations per second with valid MAC1, from ever other addresses and keys.
#[test]
fn a_flood_of_handshakes_stops_neither_data_nor_a_new_client() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    let mut client = Client::of(&net, "192.0.2.77:7", &b);
    let peers = vec![b.peer(&a, &["10.0.0.1/32", "fd00::/16"]), client.peer(&["10.9.0.1/32"])];
    b.engine.device().set(&SetDevice { peers, ..SetDevice::default() }).unwrap();
    // Made beforehand, so that the flood costs its victim more than its maker; and each comes from many places.
    let messages: Vec<Vec<u8>> = (0..200)
        .map(|_| {
            let mut buffer = [0; 256];
            let mut stranger = Client::of(&net, "198.18.0.1:1", &b);
            let initiation = stranger.tunn.format_handshake_initiation(&mut buffer, true);
            let TunnResult::WriteToNetwork(message) = initiation else { panic!("no initiation") };
            message.to_vec()
        })
        .collect();
    const LEAST: u32 = 6_000;
    let (begin, mut sent, mut called, mut connected_after) = (Instant::now(), 0, None::<Instant>, None);
    while begin.elapsed() < Duration::from_secs(5) && (sent < LEAST || connected_after.is_none()) {
        for message in messages.iter().cycle().skip(sent as usize % messages.len()).take(10) {
            let source = IpAddr::from((0xc612_0000 + sent).to_be_bytes());
            assert!(net.inject(SocketAddr::new(source, 1_000), b.address, message));
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
        client.hear(&net.take_captured());
        if client.connected() {
            connected_after = connected_after.or_else(|| Some(begin.elapsed()));
        } else if sent > LEAST / 2 && called.is_none_or(|at| at.elapsed() > Duration::from_millis(300)) {
            // The protocol waits five seconds before it calls again (REKEY_TIMEOUT).
            called = Some(Instant::now());
            client.call();
        }
        if sent % 500 == 0 {
            transfer(&a, &b, 1);
        }
    }
    let named = b.named();
    assert!(connected_after.is_some(), "the client never got through: {named:?}");
    assert!(b.count(Event::CookiesSent) > u64::from(LEAST) / 4, "most strangers were asked to come again: {named:?}");
    let datagram = client.data(&from("10.9.0.1"));
    client.send(&datagram);
    assert_eq!(b.take_packets(1).len(), 1);
    assert_eq!(b.engine.device().report().handshakes[&a.key.public()].completed, 1, "the old session was left alone");
}

/// More initiations at once than the queue holds: what does not fit is counted, and all that came is accounted for.
#[test]
fn the_queue_of_handshakes_is_bounded() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    let stranger = Client::of(&net, "203.0.113.9:9", &b);
    let mut message = [7; 148];
    message[..4].copy_from_slice(&[1, 0, 0, 0]);
    const COUNT: u64 = 20_000;
    for _ in 0..COUNT {
        stranger.send(&message);
    }
    let counted = || b.count(Event::DropUnderLoad) + b.count(Event::DropMac1);
    wait_while(|| counted() < COUNT);
    assert_eq!(counted(), COUNT, "{:?}", b.named());
    transfer(&a, &b, 2);
}

/// Field case N-03: a thousand peers come up at once.
#[test]
fn a_thousand_peers_come_up_at_once() {
    const PEERS: usize = 1_000;
    let net = FakeNet::new();
    let hub = node(&net, 1, true);
    let mut clients: Vec<Client> = (0..PEERS)
        .map(|index| Client::of(&net, &format!("198.51.{}.{}:7", index / 250, index % 250 + 1), &hub))
        .collect();
    let place = |index: usize| format!("10.{}.{}.1", index / 250, index % 250);
    let peers = clients.iter().enumerate().map(|(index, client)| client.peer(&[&format!("{}/32", place(index))]));
    hub.configure(peers.collect());
    let whose: BTreeMap<SocketAddr, usize> =
        clients.iter().enumerate().map(|(index, client)| (client.address, index)).collect();
    let begin = Instant::now();
    let mut last_call = begin;
    clients.iter_mut().for_each(Client::call);
    let mut left = PEERS;
    while left > 0 && begin.elapsed() < Duration::from_secs(30) {
        let mut heard: BTreeMap<usize, Vec<Capture>> = BTreeMap::new();
        for capture in net.take_captured() {
            if let Some(index) = whose.get(&capture.to) {
                heard.entry(*index).or_default().push(capture);
            }
        }
        for (index, captured) in heard {
            clients[index].hear(&captured);
        }
        left = clients.iter().filter(|client| !client.connected()).count();
        // Who was told to come again does so; the protocol waits longer.
        if last_call.elapsed() > Duration::from_millis(500) {
            last_call = Instant::now();
            clients.iter_mut().filter(|client| !client.connected()).for_each(Client::call);
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(left, 0, "after {:?}: {:?}", begin.elapsed(), hub.named());
    // And each is heard.
    for (index, client) in clients.iter_mut().enumerate() {
        let datagram = client.data(&from(&place(index)));
        client.send(&datagram);
    }
    let received: BTreeSet<Vec<u8>> = hub.take_packets(PEERS).into_iter().collect();
    assert_eq!(received.len(), PEERS, "{:?}", hub.named());
}

/// Field case R-04: both call each other at the same time, and agree.
#[test]
fn two_that_call_at_once_agree_on_a_session() {
    for _ in 0..10 {
        let net = FakeNet::new();
        let (a, b) = strangers(&net);
        let there: Vec<_> =
            (0..50_u8).map(|number| Flow { tcp: false, ..Flow::example() }.packet(0, &[number], 0)).collect();
        let back: Vec<_> = there
            .iter()
            .map(|packet| {
                let mut packet = packet.clone();
                packet[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
                packet
            })
            .collect();
        thread::scope(|scope| {
            scope.spawn(|| a.tun.push_all(there.iter().map(|packet| with_plain_header(packet))));
            scope.spawn(|| b.tun.push_all(back.iter().map(|packet| with_plain_header(packet))));
        });
        assert_eq!((b.take_packets(50).len(), a.take_packets(50).len()), (50, 50), "{:?} {:?}", a.named(), b.named());
        let completed =
            |node: &Node, other: &Node| node.engine.device().report().handshakes[&other.key.public()].completed;
        assert!((1..=2).contains(&completed(&a, &b)) && (1..=2).contains(&completed(&b, &a)));
        // It is over: neither calls again. On a busy machine the last answer may still be on its way.
        net.take_captured();
        let rests = (0..10).any(|_| {
            thread::sleep(Duration::from_millis(300));
            net.take_captured().iter().all(|capture| capture.bytes[0] == 4)
        });
        assert!(rests, "they go on calling");
    }
}

/// Field case R-06: the first keepalive goes at once, and idle peers do not answer keepalives with keepalives.
#[test]
fn a_keepalive_goes_at_once_and_starts_no_chatter() {
    let net = FakeNet::new();
    let (a, b) = (node(&net, 1, true), node(&net, 2, true));
    b.configure(vec![b.peer(&a, &["10.0.0.1/32"])]);
    let begin = Instant::now();
    a.configure(vec![SetPeer { keepalive: Some(25), ..a.peer(&b, &["10.0.0.2/32"]) }]);
    let completed = || a.engine.device().report().handshakes[&b.key.public()].completed;
    wait_while(|| completed() == 0);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    thread::sleep(Duration::from_secs(2));
    let seen = net.take_captured();
    // The call, the answer, and the keepalive that confirms; one more from the other end at most.
    assert!(seen.len() <= 4, "{:?}", seen.iter().map(|capture| (capture.from, capture.bytes[0])).collect::<Vec<_>>());
}
