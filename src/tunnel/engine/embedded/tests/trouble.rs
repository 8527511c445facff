//! A world that fails in mid-traffic, and requests that come at the wrong moment.

use super::*;
use crate::tunnel::engine::embedded::fakes::Capture;

fn super_packet_to(destination: [u8; 4], segments: usize) -> Vec<u8> {
    let mut packet = super_packet(&Flow::example(), &pattern(segments * 100, 1), 100);
    packet[VNET_HDR_LEN + 16..VNET_HDR_LEN + 20].copy_from_slice(&destination);
    packet
}

#[test]
fn a_device_that_is_down_for_a_while_keeps_its_offloads() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 4);
    b.tun.refuse_writes(Some(libc::EIO));
    a.tun.push(super_packet_to([10, 0, 0, 2], 10));
    wait_while(|| b.count(Event::DropTunWrite) < 10);
    b.tun.refuse_writes(None);
    let report = b.engine.device().report().engine;
    assert_eq!(report.tun_write_errors["EIO"], 10);
    assert!(report.offloads.tun_tso && report.offload_notes.is_empty(), "{:?}", report.offload_notes);
    // No memory for a long packet, but for short ones: nothing is lost, and nothing decided.
    b.tun.refuse_super_packets(Some(libc::ENOMEM));
    transfer(&a, &b, 6);
    b.tun.refuse_super_packets(None);
    transfer(&a, &b, 6);
    let report = b.engine.device().report().engine;
    assert!(report.offloads.tun_tso && report.offload_notes.is_empty(), "{:?}", report.offload_notes);
    assert!(b.count(Event::OffloadRefused) > 0);
    assert_eq!(b.count(Event::DropTunWrite), 10);
}

#[test]
fn reports_about_others_cost_no_datagram() {
    for errno in [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::EMSGSIZE, libc::EACCES] {
        let net = FakeNet::new();
        let (a, b) = pair(&net);
        transfer(&a, &b, 4);
        // One that the receiving thread took before, and several in a row.
        for (reports, reports_kept) in [(1, false), (5, true)] {
            net.set_faults(Faults { reports: (reports, errno), reports_kept, ..Faults::default() });
            transfer(&a, &b, 6);
        }
        let report = a.engine.device().report().engine;
        assert_eq!(a.count(Event::DropUdpSend), 0, "{report:?}");
        assert!(report.offloads.udp_gso && report.offload_notes.is_empty(), "{:?}", report.offload_notes);
    }
}

#[test]
fn a_flood_of_reports_ends_in_counted_losses() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 4);
    // Each send brings its own report, also those of a refused batch's datagrams.
    net.set_faults(Faults { reports: (usize::MAX, libc::EMSGSIZE), reports_kept: true, ..Faults::default() });
    a.tun.push(super_packet_to([10, 0, 0, 2], 10));
    wait_while(|| a.count(Event::DropUdpSend) < 10);
    assert_eq!(a.engine.device().report().engine.udp_send_errors["EMSGSIZE"], 10);
}

#[test]
fn a_socket_that_stays_full_holds_nobody_for_long() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 4);
    net.set_faults(Faults { full_towards: Some(b.address), ..Faults::default() });
    // Far more than one send carries: the second that a flush waits is not one for each.
    let begin = Instant::now();
    a.tun.push_all((0..8).map(|_| super_packet_to([10, 0, 0, 2], 600)));
    wait_while(|| a.count(Event::DropUdpSend) < 600);
    assert_eq!(a.engine.device().report().engine.udp_send_errors.keys().collect::<Vec<_>>(), ["EAGAIN"]);
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    a.tun.push_all((0..8).map(|_| super_packet_to([10, 0, 0, 2], 600)));
    let begin = Instant::now();
    a.engine.stop();
    assert!(begin.elapsed() < Duration::from_millis(800), "{:?}", begin.elapsed());
}

#[test]
fn reads_that_fail_are_counted_and_tried_again() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    a.tun.fail_reads(3, libc::ENOMEM);
    net.set_faults(Faults { fail_receives: 3, ..Faults::default() });
    transfer(&a, &b, 4);
    assert_eq!(a.count(Event::TunReadErrors), 3);
    let receives = || a.count(Event::UdpReceiveErrors) + b.count(Event::UdpReceiveErrors);
    wait_while(|| receives() < 3);
    assert_eq!(receives(), 3);
}

#[test]
fn what_nobody_takes_is_counted_by_the_packet() {
    let net = FakeNet::new();
    let (a, b) = strangers(&net);
    a.tun.push(super_packet_to([10, 9, 9, 9], 10));
    wait_while(|| a.count(Event::DropNoRoute) < 10);
    let nowhere = SetPeer { endpoint: None, ..a.peer(&b, &["10.7.0.0/16"]) };
    let nowhere = SetPeer { public_key: PrivateKey::generate().public(), ..nowhere };
    a.engine.device().set(&SetDevice { peers: vec![nowhere], ..SetDevice::default() }).unwrap();
    a.tun.push(super_packet_to([10, 7, 0, 1], 7));
    wait_while(|| a.count(Event::DropNoEndpoint) < 7);
    assert_eq!((a.count(Event::DropNoRoute), a.count(Event::DropNoEndpoint)), (10, 7));
    assert_eq!(a.count(Event::TunReadPackets), 17);
}

#[test]
fn a_peer_without_a_state_keeps_no_packets() {
    let net = FakeNet::new();
    let (a, b) = (node(&net, 1, true), node(&net, 2, true));
    // As one whose peer was removed between the look at the table and its lock: what it kept would never be given back.
    let peers = vec![a.peer(&b, &["10.0.0.2/32"])];
    a.engine.device().set(&SetDevice { peers, ..SetDevice::default() }).unwrap();
    a.tun.push(super_packet_to([10, 0, 0, 2], 10));
    wait_while(|| a.count(Event::DropNotEncrypted) < 10);
    assert_eq!(a.count(Event::DropNotEncrypted), 10);
    assert_eq!(a.engine.device().staged_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn peers_that_come_and_go_under_load_leave_no_budget_behind() {
    let net = FakeNet::new();
    let (a, b) = (node(&net, 1, true), node(&net, 2, true));
    let device = a.engine.device();
    a.configure(Vec::new());
    // b is not configured and answers nobody, so all packets wait.
    for round in 0..200 {
        let peer = a.peer(&b, &["10.0.0.2/32"]);
        let remove = SetPeer { remove: true, ..SetPeer::new(peer.public_key) };
        device.set(&SetDevice { peers: vec![peer], ..SetDevice::default() }).unwrap();
        a.tun.push_all((0..20).map(|_| super_packet_to([10, 0, 0, 2], 600)));
        if round % 2 == 0 {
            thread::sleep(Duration::from_micros(100 * round));
        }
        device.set(&SetDevice { peers: vec![remove], ..SetDevice::default() }).unwrap();
    }
    let lost = || {
        [Event::DropNoRoute, Event::DropNotEncrypted, Event::DropStaged, Event::DropStagedExpired]
            .map(|event| a.count(event))
            .iter()
            .sum::<u64>()
    };
    wait_while(|| lost() < 200 * 20 * 600);
    assert_eq!(lost(), 200 * 20 * 600, "{:?}", a.named());
    assert_eq!(device.staged_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn a_port_is_had_without_asking_and_kept_when_it_is_asked_for_again() {
    let net = FakeNet::new();
    let a = node(&net, 1, true);
    let device = a.engine.device();
    assert_eq!(device.get().listen_port, Some(0));
    device.set(&SetDevice { private_key: Some(Some(a.key.clone())), ..SetDevice::default() }).unwrap();
    let given = device.get().listen_port.filter(|port| *port != 0).unwrap();
    for port in [given, 0, given] {
        device.set(&SetDevice { listen_port: Some(port), ..SetDevice::default() }).unwrap();
    }
    // Another device of this address has it.
    let other = node(&net, 1, true);
    let taken = device.get().listen_port;
    let refused = other.engine.device().set(&SetDevice { listen_port: taken, ..SetDevice::default() });
    assert_eq!(refused, Err(libc::EADDRINUSE));
    assert_eq!(other.engine.device().get().listen_port, Some(0));
}

#[test]
fn numbers_at_the_end_of_a_session_are_refused_unread() {
    let net = FakeNet::new();
    let (a, b) = pair(&net);
    transfer(&a, &b, 1);
    let is_data = |capture: &Capture| capture.to == b.address && capture.bytes[0] == 4;
    let real = net.take_captured().into_iter().rfind(is_data).unwrap();
    let send = |counter: u64| {
        let mut bytes = real.bytes.clone();
        bytes[8..16].copy_from_slice(&counter.to_le_bytes());
        assert!(net.inject(a.address, b.address, &bytes));
    };
    let limit = u64::MAX - (1 << 13);
    send(limit - 1);
    wait_while(|| b.count(Event::DropAead) == 0);
    let before = b.count(Event::DropReplay);
    [limit, limit + 1, u64::MAX].into_iter().for_each(send);
    wait_while(|| b.count(Event::DropReplay) < before + 3);
    assert_eq!((b.count(Event::DropReplay), b.count(Event::DropAead)), (before + 3, 1));
    transfer(&a, &b, 1);
}
