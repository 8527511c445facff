//! Under load: the engine's own rekeys, replays and rubbish between data, and every loss in its place.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use boringtun::noise::TunnResult;

use super::*;
use crate::tunnel::engine::embedded::batch::SendBatch;
use crate::tunnel::engine::embedded::fakes::with_plain_header;
use crate::tunnel::engine::embedded::outbound::send_staged;
use crate::tunnel::engine::embedded::peer::Peer;

/// Makes `node` begin a new session, as its timers do after two minutes, and waits until the session is there.
fn rekey(node: &Node, other: &Node) {
    let device = node.engine.device();
    let answered = || device.report().handshakes[&other.key.public()].responses_received;
    let before = answered();
    let peer = Arc::clone(device.table().peer_of_key(&other.key.public()).unwrap());
    let mut out = SendBatch::new(0).unwrap();
    {
        let mut crypto = peer.lock();
        let mut buffer = [0; 256];
        let initiation = crypto.tunn.as_mut().unwrap().format_handshake_initiation(&mut buffer, true);
        let TunnResult::WriteToNetwork(message) = initiation else { panic!("no initiation") };
        let (message, endpoint) = (message.to_vec(), crypto.endpoint.unwrap());
        crypto.note_sent(&message);
        out.space(message.len()).unwrap().copy_from_slice(&message);
        out.commit(Some(&peer), endpoint, message.len(), false);
    }
    out.flush(device);
    wait_while(|| answered() == before);
    assert!(answered() > before, "{:?}", node.named());
}

/// A datagram with this number, from `a` to `b` or back.
fn numbered(number: u32, back: bool) -> Vec<u8> {
    let mut packet = Flow { tcp: false, ..Flow::example() }.packet(0, &number.to_be_bytes(), 0);
    if back {
        packet[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    }
    packet
}

/// Both ends begin new sessions in turn while both send as fast as they can.
#[test]
fn the_engines_own_rekeys_under_load_lose_nothing() {
    const REKEYS: u64 = 20;
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    let over = AtomicBool::new(false);
    let send = |node: &Node, other: &Node, back: bool| {
        let (mut sent, mut seen) = (0, BTreeSet::new());
        while !over.load(Ordering::Relaxed) || sent == 0 {
            for _ in 0..40 {
                node.tun.push(with_plain_header(&numbered(sent, back)));
                sent += 1;
            }
            // What came out sets the pace: nothing may be lost for want of room.
            let begin = Instant::now();
            while seen.len() + 400 < sent as usize && begin.elapsed() < LONG {
                seen.extend(other.take_packets(1).iter().map(|packet| packet[28..].to_vec()));
            }
        }
        let begin = Instant::now();
        while seen.len() < sent as usize && begin.elapsed() < LONG {
            seen.extend(other.take_packets(1).iter().map(|packet| packet[28..].to_vec()));
        }
        (sent as usize, seen.len())
    };
    let (there, back) = thread::scope(|scope| {
        let there = scope.spawn(|| send(&a, &b, false));
        let back = scope.spawn(|| send(&b, &a, true));
        for round in 0..REKEYS {
            if round % 2 == 0 {
                rekey(&a, &b)
            } else {
                rekey(&b, &a)
            }
            thread::sleep(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
        (there.join().unwrap(), back.join().unwrap())
    });
    for ((sent, received), node) in [(there, &b), (back, &a)] {
        assert!(sent > 1_000, "{sent}");
        assert_eq!(received, sent, "{:?}", node.named());
    }
    let handshakes = a.engine.device().report().handshakes[&b.key.public()];
    // The first one was begun by `a`, too.
    assert_eq!((handshakes.initiations_sent, handshakes.initiations_received), (1 + REKEYS / 2, REKEYS / 2));
    for node in [&a, &b] {
        let drops: Vec<_> = node.named().into_iter().filter(|(name, _)| name.starts_with("drop.")).collect();
        assert!(drops.is_empty(), "{drops:?}");
    }
}

/// Packets that come one at a time are no load, however steadily they come.
#[test]
fn one_thread_carries_both_directions_again_after_a_load() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    let handovers = || a.count(Event::Handovers);
    let cross = |count: u32| {
        (0..count).for_each(|number| a.tun.push(with_plain_header(&numbered(number, false))));
        assert_eq!(b.take_packets(count as usize).len(), count as usize);
    };
    let begin = Instant::now();
    while handovers() == 0 && begin.elapsed() < LONG {
        cross(40);
    }
    let before = handovers();
    assert!(before > 0, "{:?}", a.named());
    let begin = Instant::now();
    while handovers() == before && begin.elapsed() < LONG {
        let singly = Instant::now();
        while singly.elapsed() < Duration::from_millis(50) {
            cross(1);
        }
        // Goes to the second thread if the first has it.
        cross(40);
    }
    assert!(handovers() > before, "{:?}", a.named());
}

/// What an observer can send: everything again, some of it changed, and what never was a message. It is all counted, moves nothing,
/// and no byte of those who talk is lost.
#[test]
fn replays_and_rubbish_under_load_are_counted_and_cost_nothing() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 4);
    let seen: Vec<Vec<u8>> = net
        .take_captured()
        .into_iter()
        .filter(|capture| capture.to == b.address && capture.bytes[0] == 4)
        .map(|capture| capture.bytes)
        .collect();
    assert!(seen.len() > 100, "{}", seen.len());
    let elsewhere: SocketAddr = "203.0.113.9:4242".parse().unwrap();
    let over = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let (mut replayed, mut rubbish) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                for bytes in seen.iter().take(50) {
                    assert!(net.inject(if replayed % 2 == 0 { a.address } else { elsewhere }, b.address, bytes));
                    replayed += 1;
                    let length = (replayed * 37) % 1_400;
                    assert!(net.inject(elsewhere, b.address, &pattern(length, replayed as u8 | 8)));
                    rubbish += 1;
                }
                thread::sleep(Duration::from_millis(1));
            }
            (replayed as u64, rubbish as u64)
        });
        transfer(&a, &b, 12);
        over.store(true, Ordering::Relaxed);
        flood.join().unwrap()
    });
    let counted = || (b.count(Event::DropReplay), b.count(Event::DropMalformed));
    wait_while(|| counted() != sent);
    assert_eq!(counted(), sent, "{:?}", b.named());
    assert_eq!(b.engine.device().get().peers[0].endpoint, Some(a.address));
    assert_eq!(b.count(Event::Roamed), 0);
}

/// A packet whose session or endpoint went before its turn came is lost, and that is counted.
#[test]
fn what_cannot_be_encrypted_any_more_is_counted() {
    let net = FakeNet::new();
    let (a, b) = strangers(&net);
    let (device, peer) = (a.engine.device(), Arc::new(Peer::new(b.key.public(), 7)));
    let mut out = SendBatch::new(0).unwrap();
    let stage = |count: u32| {
        let mut crypto = peer.lock();
        for number in 0..count {
            assert!(crypto.staged.push(&numbered(number, false), &device.staged_bytes));
        }
    };
    // Neither session nor endpoint; then an endpoint alone.
    stage(3);
    send_staged(device, &peer, &mut peer.lock(), &mut out);
    stage(2);
    peer.lock().endpoint = Some(b.address);
    send_staged(device, &peer, &mut peer.lock(), &mut out);
    assert_eq!(a.count(Event::DropNotEncrypted), 5, "{:?}", a.named());
    assert!(out.is_empty() && device.staged_bytes.load(Ordering::Relaxed) == 0);
}

/// A device without a key, and peers that are taken away while their messages wait: nothing vanishes uncounted.
#[test]
fn handshakes_for_nobody_are_counted() {
    let net = FakeNet::new();
    let b = node(&net, 2, true);
    b.engine.device().set(&SetDevice { listen_port: Some(PORT), ..SetDevice::default() }).unwrap();
    let mut message = [7; 148];
    message[..4].copy_from_slice(&[1, 0, 0, 0]);
    for _ in 0..10 {
        assert!(net.inject("203.0.113.9:9".parse().unwrap(), b.address, &message));
    }
    wait_while(|| b.count(Event::DropMac1) < 10);
    assert_eq!(b.count(Event::DropMac1), 10, "{:?}", b.named());
}

/// Alone, in numbers, and after a lull: the way out changes hands meanwhile.
#[test]
fn packets_that_come_singly_and_in_numbers_in_turn_all_cross_in_order() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    let (mut sent, mut arrived) = (0, Vec::new());
    for round in 0..12_u32 {
        let count = if round % 2 == 0 { 1 } else { 50 };
        for _ in 0..count {
            a.tun.push(with_plain_header(&numbered(sent, false)));
            sent += 1;
        }
        let packets = b.take_packets(count);
        arrived.extend(packets.iter().map(|packet| u32::from_be_bytes(*packet.last_chunk().unwrap())));
        thread::sleep(Duration::from_millis(u64::from(round % 3) * 3));
    }
    assert_eq!(arrived, (0..sent).collect::<Vec<_>>(), "{:?}", a.named());
}

/// What comes in without end does not hold up what goes out, wherever the way out is by then.
#[test]
fn a_packet_goes_out_while_a_flood_comes_in() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 0;
            while !over.load(Ordering::Relaxed) {
                a.tun.push(with_plain_header(&numbered(sent, false)));
                sent += 1;
            }
        });
        for number in 0..5 {
            // Longer than the way out stays away without work.
            thread::sleep(Duration::from_millis(30));
            b.tun.push(with_plain_header(&numbered(number, true)));
            assert_eq!(a.take_packets(1).len(), 1, "{number}: {:?}", b.named());
            b.tun.take_written(0, Duration::ZERO);
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// One super-packet fills a batch: what could still grow must not wait for what may never come.
#[test]
fn the_end_of_a_lone_super_packet_goes_as_well() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    // b's device has not been read yet, so nothing tells its lane to send singly what comes. (A sum does not change with the ends.)
    let mut back = super_packet(&Flow::example(), &pattern(47 * 1368, 1), 1368);
    back[VNET_HDR_LEN + 12..][..8].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    b.tun.push(back);
    assert_eq!(a.take_packets(47).len(), 47, "{:?}", b.named());
    for round in 0..4 {
        // Alone, after a lull and after a packet that came singly.
        thread::sleep(Duration::from_millis(20 * (round % 2)));
        a.tun.push(with_plain_header(&numbered(1, false)));
        assert_eq!(b.take_packets(1).len(), 1);
        // 47 segments of 1,368 bytes: 45 of the datagrams are all that one send carries.
        a.tun.push(super_packet(&Flow::example(), &pattern(47 * 1368, 1), 1368));
        assert_eq!(b.take_packets(47).len(), 47, "{:?}", a.named());
    }
}

#[test]
fn what_comes_in_does_not_wait_for_a_full_socket() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    // At rest, where one thread carries both directions.
    thread::sleep(Duration::from_millis(30));
    net.set_faults(Faults { full_towards: Some(b.address), ..Faults::default() });
    for number in 0..4 {
        let begin = Instant::now();
        a.tun.push(with_plain_header(&numbered(number, false)));
        thread::sleep(Duration::from_millis(20));
        b.tun.push(with_plain_header(&numbered(number, true)));
        assert_eq!(a.take_packets(1).len(), 1, "{:?}", a.named());
        assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
    }
    // What waited goes when there is room.
    net.set_faults(Faults::default());
    let lost = || a.count(Event::DropUdpSend);
    let arrived = b.take_packets(4 - lost() as usize).len() as u64;
    assert_eq!(arrived + lost(), 4, "{:?}", a.named());
}

/// The same where each datagram is a send of its own, so that a batch is full before the read is done.
#[test]
fn what_comes_in_does_not_wait_for_a_full_socket_that_takes_no_batches() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    net.set_faults(Faults { refuse_batches: Some(libc::EIO), ..Faults::default() });
    transfer(&a, &b, 4);
    thread::sleep(Duration::from_millis(50));
    net.set_faults(Faults { full_towards: Some(b.address), ..Faults::default() });
    a.tun.push(super_packet(&Flow::example(), &pattern(200 * 100, 1), 100));
    thread::sleep(Duration::from_millis(20));
    let begin = Instant::now();
    b.tun.push(with_plain_header(&numbered(1, true)));
    assert_eq!(a.take_packets(1).len(), 1);
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
}

/// Another path may take what the old one refused, whichever message showed it.
#[test]
fn a_peer_that_moves_by_a_handshake_is_sent_batches_again() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    net.set_faults(Faults { refuse_batches: Some(libc::EIO), ..Faults::default() });
    transfer(&a, &b, 4);
    assert!(!a.engine.device().report().engine.offloads.udp_gso);
    net.set_faults(Faults::default());
    b.engine.device().set(&SetDevice { listen_port: Some(4242), ..SetDevice::default() }).unwrap();
    rekey(&b, &a);
    assert_eq!(a.engine.device().get().peers[0].endpoint.unwrap().port(), 4242);
    assert!(a.engine.device().report().engine.offloads.udp_gso, "it is still sent to singly");
}
