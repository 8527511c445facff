//! Both ends of jobs over loopback. No figure is asserted but in generous bounds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::*;
use crate::units::{Bytes, Direction};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn server(kind: JobKind, direction: Direction) -> Job {
    Job {
        role: Role::Server,
        direction,
        kind,
        local: V4,
        local_interface: None,
        peer: None,
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

fn try_run(job: &Job) -> (Result<Outcome, TrafficError>, Result<Outcome, TrafficError>) {
    let server = prepare(job).unwrap();
    let client = prepare(&client(job, server.ports())).unwrap();
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
        assert!(sender.tcp.iter().all(|tcp| tcp.start.is_some()));
        let json = serde_json::to_string(&receiver).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), receiver);
    }
}

#[test]
fn requests_are_answered_one_at_a_time_and_timed() {
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

#[test]
fn a_client_that_never_starts_is_named_as_what_did_not_arrive() {
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
    for kind in [streams(2), tcp_rr()] {
        let job = Job { duration: Duration::from_secs(5), ..server(kind, Direction::Forward) };
        let server = prepare(&job).unwrap();
        let client = prepare(&client(&job, server.ports())).unwrap();
        let (client, server) = (client.start(), server.start());
        std::thread::sleep(Duration::from_millis(150));
        let begin = Instant::now();
        drop(client);
        let ended = server.wait();
        assert!(begin.elapsed() < Duration::from_secs(3));
        match job.kind {
            JobKind::TcpRr { .. } => assert!(ended.unwrap().counts.transactions.unwrap() > 0),
            _ => assert!(matches!(ended.unwrap_err(), TrafficError::EndedEarly { .. })),
        }
    }
}

#[test]
fn a_stop_ends_both_kinds_of_ends() {
    for kind in [streams(2), tcp_rr()] {
        let job = Job { duration: Duration::from_secs(5), ..server(kind, Direction::Forward) };
        let server = prepare(&job).unwrap();
        let client = prepare(&client(&job, server.ports())).unwrap();
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
    let job = Job { deadline: Duration::from_millis(350), ..server(streams(1), Direction::Forward) };
    let server = prepare(&job).unwrap();
    std::thread::sleep(Duration::from_millis(450));
    let error = server.start().wait().unwrap_err();
    assert!(error.to_string().contains("before the start"), "{error}");
}

#[test]
fn strangers_are_refused_and_counted() {
    let job = server(streams(1), Direction::Forward);
    let server = prepare(&job).unwrap();
    let mut stranger = std::net::TcpStream::connect((V4, server.ports()[0])).unwrap();
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n").unwrap();
    let client = prepare(&client(&job, server.ports())).unwrap();
    let (client, server) = (client.start(), server.start());
    client.wait().unwrap();
    assert!(server.wait().unwrap().cautions.contains(&Caution::Strangers { count: 1 }));
}

#[test]
fn an_unknown_congestion_control_and_a_closed_port_are_explained() {
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
        (Job { kind: JobKind::UdpRr { request: Bytes::new(1), response: Bytes::new(64) }, ..good.clone() }, "32"),
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
