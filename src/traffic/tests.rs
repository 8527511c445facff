//! Both ends of jobs over loopback. No figure is asserted but in generous bounds.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::*;
use crate::units::{BitRate, Bytes, Direction, PacketRate};

mod paths;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// One test at a time: two that move as much as they can only measure each other.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    // A test that failed has left nothing behind that another one could meet.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn server(kind: JobKind, direction: Direction) -> Job {
    Job {
        role: Role::Server,
        direction,
        kind,
        local: V4,
        local_interface: None,
        peer: None,
        more_paths: Vec::new(),
        // The one that every kernel has and lets anybody choose.
        congestion_control: Some("reno".to_owned()),
        warmup: Duration::from_millis(50),
        duration: Duration::from_millis(250),
        deadline: Duration::from_secs(10),
        probe: None,
        seed: 7,
    }
}

fn client(server: &Job, ports: Vec<u16>) -> Job {
    Job { role: Role::Client, peer: Some((server.local, ports)), ..server.clone() }
}

/// Both ends of `job`, which is the server's: the client's outcome, then the server's.
fn run(job: &Job) -> (Outcome, Outcome) {
    let (client, server) = try_run(job);
    (client.unwrap(), server.unwrap())
}

fn prepared(job: &Job) -> (Prepared, Prepared) {
    let server = prepare(job).unwrap();
    (prepare(&client(job, server.ports())).unwrap(), server)
}

fn try_run(job: &Job) -> (Result<Outcome, TrafficError>, Result<Outcome, TrafficError>) {
    let (client, server) = prepared(job);
    let client = client.start();
    let server = server.start();
    (client.wait(), server.wait())
}

fn streams(streams: u16) -> JobKind {
    JobKind::TcpStream { streams, buffers: Buffers::default() }
}

fn tcp_rr() -> JobKind {
    JobKind::TcpRr { request: Bytes::new(1), response: Bytes::new(1) }
}

#[test]
fn a_stream_is_measured_by_its_receiver_in_both_directions() {
    let _turn = turn();
    for (direction, family) in [(Direction::Forward, V4), (Direction::Reverse, V6)] {
        let (client, server) = run(&Job { local: family, ..server(streams(3), direction) });
        let (sender, receiver) = if direction == Direction::Forward { (client, server) } else { (server, client) };
        let received = receiver.counts.received_bytes.unwrap();
        assert!(receiver.counts.sent_bytes.is_none() && sender.counts.received_bytes.is_none());
        assert_eq!(received, receiver.streams.iter().map(|stream| stream.bytes).sum::<u64>());
        assert_eq!(received, receiver.series.as_ref().unwrap().bytes.iter().sum::<u64>());
        assert_eq!(receiver.streams.len(), 3);
        assert_eq!(receiver.window.unwrap().length_ns, 250_000_000);
        assert_eq!(receiver.window.unwrap().warmup_ns, 50_000_000);
        assert!(receiver.received_rate().unwrap().bits_per_second() > 10_000_000);
        assert_eq!(receiver.conditions.congestion_control.as_deref(), Some("reno"));
        assert_eq!(receiver.conditions.interface.as_deref(), Some("lo"));
        assert!(receiver.conditions.mss.is_some() && receiver.conditions.interface_mtu.is_some());
        // What the window counted is no more than the kernel's TCP delivered from its begin to its end.
        let delivered = receiver.tcp.iter().map(|tcp| tcp.end.bytes_received.unwrap()).sum::<u64>();
        assert!(received <= delivered && received * 3 > delivered, "{received} of {delivered}");
        // The window's 250 ms, and a tick of grace for the read at its end.
        assert!(receiver.streams.iter().all(|stream| (1..400_000_000).contains(&stream.cpu_ns.unwrap())));
        assert!(sender.tcp.iter().all(|tcp| tcp.start.is_some()));
        let json = serde_json::to_string(&receiver).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), receiver);
    }
}

#[test]
fn requests_are_answered_one_at_a_time_and_timed() {
    let _turn = turn();
    let (client, server) = run(&server(tcp_rr(), Direction::Forward));
    let transactions = client.counts.transactions.unwrap();
    assert!(transactions > 100, "{transactions}");
    assert!(server.counts.transactions.unwrap() >= transactions);
    let latency = client.latency.as_ref().unwrap();
    assert_eq!(latency.sampling, Sampling::ClosedLoop);
    assert!(latency.histogram.count().abs_diff(transactions) <= 1);
    let p50 = latency.histogram.quantile_ns(0.5).unwrap();
    assert!((1_000..50_000_000).contains(&p50), "{p50}");
    assert!(client.transactions_per_second().unwrap() > 400.0);
}

fn udp_stream(megabits: Option<u64>, flows: u16) -> JobKind {
    JobKind::UdpStream {
        rate: megabits.map(|megabits| BitRate::from_bits_per_second(megabits * 1_000_000)),
        payload: Bytes::new(1000),
        flows,
        buffers: Buffers::default(),
    }
}

#[test]
fn connections_are_made_and_closed_one_at_a_time() {
    let _turn = turn();
    for family in [V4, V6] {
        let kind = JobKind::TcpCrr { request: Bytes::new(32), response: Bytes::new(1024) };
        let (client, server) = run(&Job { local: family, ..server(kind, Direction::Forward) });
        let transactions = client.counts.transactions.unwrap();
        assert!(transactions > 50, "{transactions}");
        assert!(server.counts.transactions.unwrap() >= transactions);
        assert!(client.counts.errors.is_empty(), "{:?}", client.counts.errors);
        assert_eq!(client.counts.timeouts, Some(0));
        assert!(client.latency.unwrap().histogram.quantile_ns(0.5).is_some());
    }
}

#[test]
fn datagrams_are_paced_and_every_one_is_accounted_for() {
    let _turn = turn();
    for (local, direction, flows) in [(V4, Direction::Forward, 1), (V6, Direction::Reverse, 2)] {
        let (client, server) = run(&Job { local, ..server(udp_stream(Some(16), flows), direction) });
        let (sender, receiver) = if direction == Direction::Forward { (client, server) } else { (server, client) };
        // 16 Mbit/s of 1000 bytes: 2,000 datagrams per second, so 500 in the window, but for bursts that a busy machine
        // moves over its edges.
        let sent = sender.counts.sent_packets.unwrap();
        let offered = sender.counts.offered_packets.unwrap();
        assert!((300..=700).contains(&offered), "{offered}");
        // What was due before the window and is sent late within it counts as sent: 100 ms at most.
        assert!(sent <= offered + 200, "{sent} of {offered}");
        assert_eq!(receiver.counts.peer_sent_packets, Some(sent));
        let lost = receiver.counts.lost_packets.unwrap();
        let of_socket = receiver.counts.socket_drops.unwrap();
        assert!(lost <= of_socket, "{lost} lost, {of_socket} by the socket");
        assert_eq!(receiver.counts.duplicate_packets, Some(0));
        assert_eq!(receiver.counts.received_bytes.unwrap(), receiver.counts.received_packets.unwrap() * 1000);
        assert!(sender.lateness.is_some() && receiver.counts.jitter_ns.is_some());
        assert_eq!(receiver.streams.len(), usize::from(flows));
        assert!(receiver.streams.iter().all(|flow| flow.packets.unwrap() > 0));
        assert!(receiver.conditions.receive_buffer.unwrap().asked == Some(4 << 20));
        assert_eq!(receiver.loss_fraction(), Some(lost as f64 / sent as f64));
    }
}

#[test]
fn conditions_are_read_back_from_the_live_sockets() {
    let _turn = turn();
    let asked = Bytes::new(1 << 30);
    let kind = JobKind::TcpStream { streams: 1, buffers: Buffers { send: None, receive: Some(asked) } };
    let job = Job { local_interface: Some("lo".to_owned()), ..server(kind, Direction::Forward) };
    let (client, server) = run(&job);
    assert_eq!(client.conditions.bound_interface.as_deref(), Some("lo"));
    assert_eq!(client.conditions.peer, server.conditions.local);
    assert!(client.conditions.path_mtu.unwrap() >= 1280);
    // As root the kernel grants it; otherwise a system's limit is never as high, and that must be said.
    let buffer = server.conditions.receive_buffer.unwrap();
    assert_eq!(buffer.asked, Some(asked.get()));
    let granted = buffer.granted >= 2 * asked.get();
    let refused =
        Caution::BufferNotGranted { buffer: "receive".to_owned(), asked: asked.get(), granted: buffer.granted / 2 };
    assert_ne!(granted, server.cautions.contains(&refused), "{buffer:?} {:?}", server.cautions);

    let nowhere = Job { local_interface: Some("nosuch0".to_owned()), ..job };
    let error = prepare(&nowhere).err().unwrap().to_string();
    assert!(error.contains("nosuch0"), "{error}");
}

#[test]
fn an_unpaced_sender_outruns_a_small_buffer_and_the_loss_has_its_place() {
    let _turn = turn();
    let kind = JobKind::UdpStream {
        rate: None,
        payload: Bytes::new(200),
        flows: 1,
        buffers: Buffers { send: None, receive: Some(Bytes::new(4096)) },
    };
    let (client, server) = run(&server(kind, Direction::Forward));
    let sent = client.counts.sent_packets.unwrap();
    assert!(sent > 500, "{sent}");
    let counts = &server.counts;
    let lost = counts.lost_packets.unwrap();
    assert!(lost > 0);
    // On loopback nothing is lost but in the socket. Its drops are counted over the receiver's window, the loss over the
    // sender's: they differ by what came in between.
    let drops = counts.socket_drops.unwrap();
    assert!(drops.abs_diff(lost) <= lost / 5 + 1000, "{lost} lost, {drops} dropped");
    assert!(client.lateness.is_none(), "nothing was paced");
}

#[test]
fn udp_requests_are_answered_and_strangers_are_not() {
    let _turn = turn();
    let kind = JobKind::UdpRr { request: Bytes::new(64), response: Bytes::new(512) };
    let job = server(kind, Direction::Forward);
    let server = prepare(&job).unwrap();
    let stranger = UdpSocket::bind((V4, 0)).unwrap();
    stranger.send_to(&[0; 64], (V4, server.ports()[0])).unwrap();
    let client = prepare(&client(&job, server.ports())).unwrap();
    let (client, server) = (client.start(), server.start());
    let (client, server) = (client.wait().unwrap(), server.wait().unwrap());
    assert!(client.counts.transactions.unwrap() > 100);
    assert_eq!((client.counts.timeouts, client.latency.unwrap().unanswered), (Some(0), 0));
    assert!(server.cautions.contains(&Caution::Strangers { count: 1 }));
}

/// Passes datagrams to a server's port and its answers back; `pass` tells what is sent on for each that comes from the
/// client. Returns the port to connect to.
fn relay(server_port: u16, mut pass: impl FnMut(usize, &[u8]) -> Vec<Vec<u8>> + Send + 'static) -> u16 {
    let inside = UdpSocket::bind((V4, 0)).unwrap();
    let outside = UdpSocket::bind((V4, 0)).unwrap();
    outside.connect((V4, server_port)).unwrap();
    let port = inside.local_addr().unwrap().port();
    let (back_in, back_out) = (inside.try_clone().unwrap(), outside.try_clone().unwrap());
    let (tell, client) = std::sync::mpsc::channel();
    // Both threads end with the test's process, or when there is nothing to pass on for a while.
    for socket in [&inside, &outside] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket2::SockRef::from(socket).set_recv_buffer_size(2 << 20).unwrap();
    }
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        for number in 0.. {
            let Ok((count, from)) = inside.recv_from(&mut buffer) else { return };
            let _ = tell.send(from);
            for datagram in pass(number, &buffer[..count]) {
                let _ = outside.send(&datagram);
            }
        }
    });
    std::thread::spawn(move || {
        let Ok(client) = client.recv() else { return };
        let mut buffer = [0; 2000];
        while let Ok(count) = back_out.recv(&mut buffer) {
            let _ = back_in.send_to(&buffer[..count], client);
        }
    });
    port
}

#[test]
fn reordered_and_duplicate_datagrams_are_not_lost_ones() {
    let _turn = turn();
    let job = server(udp_stream(Some(8), 1), Direction::Forward);
    let server = prepare(&job).unwrap();
    let mut held: Option<Vec<u8>> = None;
    // Of eight datagrams of the stream one is overtaken by the next; one of twenty comes twice.
    let port = relay(server.ports()[0], move |number, datagram| {
        let is_data = matches!(datagram[8], 3 | 4);
        if is_data && number % 8 == 0 && held.is_none() {
            held = Some(datagram.to_vec());
            return Vec::new();
        }
        let copies = if is_data && number % 20 == 1 { 2 } else { 1 };
        let mut passed = vec![datagram.to_vec(); copies];
        passed.extend(held.take());
        passed
    });
    let client = prepare(&client(&job, vec![port])).unwrap();
    let (client, server) = (client.start(), server.start());
    let (client, server) = (client.wait().unwrap(), server.wait().unwrap());
    let sent = client.counts.sent_packets.unwrap();
    let counts = &server.counts;
    assert_eq!((counts.peer_sent_packets, counts.lost_packets), (Some(sent), Some(0)));
    let (reordered, duplicates) = (counts.reordered_packets.unwrap(), counts.duplicate_packets.unwrap());
    assert!(reordered.abs_diff(sent / 8) <= 2, "{reordered} of {sent}");
    assert!(duplicates.abs_diff(sent / 20) <= 2, "{duplicates} of {sent}");
    assert_eq!(counts.received_bytes.unwrap(), counts.received_packets.unwrap() * 1000, "each once");
}

#[test]
fn a_lost_request_costs_a_timeout_and_the_test_goes_on() {
    let _turn = turn();
    let kind = JobKind::UdpRr { request: Bytes::new(64), response: Bytes::new(64) };
    let job = Job { warmup: Duration::ZERO, duration: Duration::from_millis(600), ..server(kind, Direction::Forward) };
    let server = prepare(&job).unwrap();
    let port = relay(server.ports()[0], |number, datagram| match number % 50 {
        49 => Vec::new(),
        _ => vec![datagram.to_vec()],
    });
    let client = prepare(&client(&job, vec![port])).unwrap();
    let (client, server) = (client.start(), server.start());
    let outcome = client.wait().unwrap();
    let (answered, timeouts) = (outcome.counts.transactions.unwrap(), outcome.counts.timeouts.unwrap());
    assert!((1..=7).contains(&timeouts), "{timeouts}");
    assert!(answered >= timeouts * 49 - 49, "{answered} answered, {timeouts} timed out");
    let latency = outcome.latency.unwrap();
    assert_eq!(latency.unanswered, timeouts);
    assert!(latency.quantile_with_unanswered_ns(0.5) >= latency.histogram.quantile_ns(0.5));
    drop(server);
}

#[test]
fn a_stream_carries_a_probe_in_both_directions() {
    let _turn = turn();
    for (kind, direction) in [
        (streams(1), Direction::Forward),
        (streams(1), Direction::Reverse),
        (udp_stream(Some(8), 1), Direction::Forward),
        (udp_stream(Some(8), 1), Direction::Reverse),
    ] {
        let job = Job { probe: Some(ProbeSpec::default()), ..server(kind, direction) };
        let begin = Instant::now();
        let (client, server) = run(&job);
        assert!(server.probe.is_none());
        let probe = client.probe.unwrap();
        // 100 per second over 250 ms: a schedule of *intended* times, whatever the machine was doing.
        assert!((24..=26).contains(&probe.sent), "{}", probe.sent);
        assert_eq!(probe.latency.histogram.count() + probe.latency.unanswered, probe.sent);
        assert!(probe.latency.histogram.count() > 0);
        assert_eq!(probe.latency.sampling, Sampling::Paced);
        assert_eq!(probe.lateness.count(), probe.sent);
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn pings_are_answered_by_the_kernel_where_this_process_may_send_them() {
    let _turn = turn();
    for local in [V4, V6] {
        let kind = JobKind::Ping { rate: PacketRate::from_per_second(200), payload: Bytes::new(56) };
        let job = Job { local, ..server(kind, Direction::Forward) };
        let server = prepare(&job).unwrap();
        assert!(server.ports().is_empty());
        let client = match prepare(&client(&job, Vec::new())) {
            Ok(client) => client,
            Err(error @ TrafficError::NoPingSocket { .. }) => {
                assert!(error.to_string().contains("ping_group_range"));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let (client, server) = (client.start(), server.start());
        let outcome = client.wait().unwrap();
        server.wait().unwrap();
        assert_eq!(outcome.counts.sent_packets, Some(50));
        assert_eq!(outcome.counts.lost_packets, Some(0));
        assert_eq!(outcome.latency.unwrap().histogram.count(), 50);
        assert!(outcome.conditions.icmp_socket.is_some());
    }
}

#[test]
fn silence_is_an_error_that_names_what_did_not_come() {
    let _turn = turn();
    let silent = UdpSocket::bind((V4, 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let udp_rr = JobKind::UdpRr { request: Bytes::new(64), response: Bytes::new(64) };
    for (kind, direction, what) in [
        (udp_rr, Direction::Forward, "an answer"),
        (udp_stream(Some(8), 1), Direction::Forward, "greeting"),
        (udp_stream(Some(8), 1), Direction::Reverse, "first datagram"),
    ] {
        let job = Job { deadline: Duration::from_millis(700), ..server(kind, direction) };
        let begin = Instant::now();
        let error = prepare(&client(&job, vec![port])).unwrap().start().wait().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_client_that_never_starts_is_named_as_what_did_not_arrive() {
    let _turn = turn();
    let job = Job { deadline: Duration::from_millis(400), ..server(streams(1), Direction::Forward) };
    let server = prepare(&job).unwrap();
    let idle = Job { deadline: Duration::from_secs(10), ..client(&job, server.ports()) };
    let client = prepare(&idle).unwrap();
    let begin = Instant::now();
    let error = server.start().wait().unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(matches!(error, TrafficError::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("first byte"), "{error}");
    drop(client);
}

#[test]
fn a_client_that_dies_is_an_error_at_once() {
    let _turn = turn();
    for kind in [streams(2), tcp_rr()] {
        let job = Job { duration: Duration::from_secs(5), ..server(kind, Direction::Forward) };
        let (client, server) = prepared(&job);
        let (client, server) = (client.start(), server.start());
        std::thread::sleep(Duration::from_millis(150));
        let begin = Instant::now();
        drop(client);
        let ended = server.wait();
        assert!(begin.elapsed() < Duration::from_secs(3));
        if matches!(job.kind, JobKind::TcpRr { .. }) {
            assert!(ended.unwrap().counts.transactions.unwrap() > 0);
        } else {
            assert!(matches!(ended.unwrap_err(), TrafficError::EndedEarly { .. }));
        }
    }
}

#[test]
fn a_stop_ends_both_kinds_of_ends() {
    let _turn = turn();
    for kind in [streams(2), tcp_rr()] {
        let job = Job { duration: Duration::from_secs(5), ..server(kind, Direction::Forward) };
        let (client, server) = prepared(&job);
        let (client, server) = (client.start(), server.start());
        let stop = client.stop_handle();
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        stop.stop();
        assert!(matches!(client.wait().unwrap_err(), TrafficError::Stopped { .. }));
        server.stop_handle().stop();
        let _ = server.wait();
        assert!(begin.elapsed() < Duration::from_secs(3));
    }
}

#[test]
fn a_job_that_nobody_starts_ends_by_its_own_deadline() {
    let _turn = turn();
    let job = Job { deadline: Duration::from_millis(350), ..server(streams(1), Direction::Forward) };
    let server = prepare(&job).unwrap();
    std::thread::sleep(Duration::from_millis(450));
    let error = server.start().wait().unwrap_err();
    assert!(error.to_string().contains("before the start"), "{error}");
}

#[test]
fn strangers_are_refused_and_counted() {
    let _turn = turn();
    let job = server(streams(1), Direction::Forward);
    let server = prepare(&job).unwrap();
    let mut stranger = TcpStream::connect((V4, server.ports()[0])).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let client = prepare(&client(&job, server.ports())).unwrap();
    let (client, server) = (client.start(), server.start());
    client.wait().unwrap();
    assert!(server.wait().unwrap().cautions.contains(&Caution::Strangers { count: 1 }));
}

#[test]
fn an_unknown_congestion_control_and_a_closed_port_are_explained() {
    let _turn = turn();
    let job = Job { congestion_control: Some("nosuch".to_owned()), ..server(streams(1), Direction::Forward) };
    let error = prepare(&job).err().unwrap().to_string();
    assert!(error.contains("nosuch") && error.contains("reno"), "{error}");

    let job = server(streams(1), Direction::Forward);
    let free = prepare(&job).unwrap().ports();
    let error = prepare(&client(&job, free)).err().unwrap();
    assert!(matches!(error, TrafficError::Connect { .. }), "{error}");
}

#[test]
fn jobs_that_make_no_sense_are_refused() {
    let good = server(streams(1), Direction::Forward);
    for (job, reason) in [
        (Job { duration: Duration::ZERO, ..good.clone() }, "no length"),
        (Job { deadline: Duration::from_millis(299), ..good.clone() }, "deadline"),
        (Job { role: Role::Client, ..good.clone() }, "peer"),
        (Job { role: Role::Client, peer: Some((V6, vec![1])), ..good.clone() }, "family"),
        (Job { kind: streams(0), ..good.clone() }, "zero"),
        (Job { kind: tcp_rr(), probe: Some(ProbeSpec::default()), ..good.clone() }, "probe"),
        (Job { kind: JobKind::UdpRr { request: Bytes::new(1), response: Bytes::new(64) }, ..good }, "32"),
    ] {
        let error = prepare(&job).err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_job_survives_json() {
    let mut job = client(&server(streams(4), Direction::Reverse), vec![1, 2]);
    job.probe = Some(ProbeSpec::default());
    let json = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&json).unwrap(), job);
    assert!(json.contains(r#""kind":"tcp-stream""#), "{json}");
}
