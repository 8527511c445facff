//! Streams that are spread over several paths: here, over several addresses of the loopback.

use super::*;

/// A server on three addresses: path `i` is 127.0.1.`i`.
fn spread(kind: JobKind, direction: Direction) -> Job {
    let at = |number: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 1, number));
    let path = |number: u8| Path { local: at(number), local_interface: None, peer: V4 };
    Job { local: at(0), more_paths: vec![path(1), path(2)], ..server(kind, direction) }
}

/// The client of all of them, from one address.
fn spread_client(server: &Job, ports: Vec<u16>) -> Job {
    let more_paths =
        server.more_paths.iter().map(|path| Path { local: V4, peer: path.local, ..path.clone() }).collect();
    Job { role: Role::Client, local: V4, peer: Some((server.local, ports)), more_paths, ..server.clone() }
}

#[test]
fn each_stream_takes_the_path_of_its_number() {
    let _turn = turn();
    for (kind, direction) in [
        (streams(4), Direction::Forward),
        (streams(5), Direction::Reverse),
        (udp_stream(Some(16), 4), Direction::Forward),
        (udp_stream(Some(16), 3), Direction::Reverse),
    ] {
        let job = Job { probe: Some(ProbeSpec::default()), ..spread(kind, direction) };
        let server = prepare(&job).unwrap();
        let ports = server.ports();
        let flows = if let JobKind::UdpStream { flows, .. } = job.kind { usize::from(flows) } else { job.paths() };
        assert_eq!(ports.len(), flows + 1, "one for each path or flow, and the probe's");
        let client = prepare(&spread_client(&job, ports)).unwrap().start();
        let server = server.start();
        let (client, server) = (client.wait().unwrap(), server.wait().unwrap());
        let receiver = if direction == Direction::Forward { &server } else { &client };
        assert!(receiver.streams.iter().all(|stream| stream.bytes > 0), "{:?}", receiver.streams);
        // The first stream's: its path is the first one.
        assert_eq!(server.conditions.local.unwrap().ip(), job.local);
        assert_eq!(client.conditions.peer.unwrap().ip(), job.local);
        assert!(client.probe.unwrap().latency.histogram.count() > 0);
    }
}

#[test]
fn a_path_that_is_not_there_is_missed() {
    let _turn = turn();
    // The second path leads to an address where nobody listens: its streams have nowhere to go.
    let job = spread(streams(3), Direction::Forward);
    let server = prepare(&job).unwrap();
    let mut elsewhere = spread_client(&job, server.ports());
    elsewhere.more_paths[0].peer = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 9));
    let error = prepare(&elsewhere).err().unwrap();
    assert!(matches!(error, TrafficError::Connect { peer, .. } if peer.ip().to_string() == "127.0.1.9"), "{error}");
}

#[test]
fn paths_need_a_stream_each_and_one_family() {
    let bad = |job: Job| prepare(&job).err().unwrap().to_string();
    let few = bad(spread(streams(2), Direction::Forward));
    assert!(few.contains("3 paths are more than 2 streams"), "{few}");
    let one = bad(spread(tcp_rr(), Direction::Forward));
    assert!(one.contains("3 paths are more than 1 streams"), "{one}");
    let mut mixed = spread(streams(3), Direction::Forward);
    mixed.more_paths[1].peer = V6;
    assert!(bad(mixed).contains("another family"));
}

#[test]
fn a_job_of_several_paths_survives_json_and_one_of_one_says_nothing_of_them() {
    let job = spread(streams(4), Direction::Forward);
    let json = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&json).unwrap(), job);
    assert!(!serde_json::to_string(&server(streams(4), Direction::Forward)).unwrap().contains("path"));
}
