use std::time::{Duration, Instant};

use super::*;

fn local(address: &str) -> UdpSocket {
    UdpSocket::bind(&UdpOptions {
        address: Some(address.parse().unwrap()),
        buffer: 1 << 20,
        offload: true,
        ..UdpOptions::default()
    })
    .unwrap()
}

fn receive_all(socket: &UdpSocket, datagrams: usize) -> Vec<Vec<u8>> {
    let mut batch = ReceiveBatch::default();
    let mut all = Vec::new();
    let begin = Instant::now();
    while all.len() < datagrams && begin.elapsed() < Duration::from_secs(5) {
        match socket.receive(&mut batch) {
            Ok(()) => {
                for message in batch.iter() {
                    assert!(!message.truncated);
                    all.extend(message.data.chunks(message.segment).map(<[u8]>::to_vec));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
    all
}

#[test]
fn segments_arrive_as_they_were_laid_out() {
    for address in ["127.0.0.1", "::1"] {
        let (from, to) = (local(address), local(address));
        let destination = SocketAddr::new(address.parse().unwrap(), to.port().unwrap());
        let buffer: Vec<u8> = (0..64_000).map(|index| (index % 251) as u8).collect();
        let transmits = [
            Transmit { to: destination, start: 0, len: 1452 * 44, segment: 1452 },
            Transmit { to: destination, start: 100, len: 1400 * 3 + 1, segment: 1400 },
            Transmit { to: destination, start: 7, len: 33, segment: 33 },
        ];
        let mut scratch = SendScratch::default();
        let mut sent = 0;
        while sent < transmits.len() {
            sent += from.send(&buffer, &transmits[sent..], &mut scratch).unwrap();
        }
        let expected: Vec<Vec<u8>> = transmits
            .iter()
            .flat_map(|one| buffer[one.start..one.start + one.len].chunks(one.segment).map(<[u8]>::to_vec))
            .collect();
        assert_eq!(expected.len(), transmits.iter().map(Transmit::datagrams).sum::<usize>());
        assert_eq!(receive_all(&to, expected.len()), expected, "{address}");
    }
}

#[test]
fn a_socket_of_both_families_names_ipv4_peers_as_ipv4() {
    // On a host without IPv6 as well.
    let any = UdpSocket::bind(&UdpOptions { buffer: 1 << 18, ..UdpOptions::default() }).unwrap();
    let peer = local("127.0.0.1");
    let mut scratch = SendScratch::default();
    let here = SocketAddr::new("127.0.0.1".parse().unwrap(), any.port().unwrap());
    let there = SocketAddr::new("127.0.0.1".parse().unwrap(), peer.port().unwrap());
    peer.send(b"hello", &[Transmit { to: here, start: 0, len: 5, segment: 5 }], &mut scratch).unwrap();
    let mut batch = ReceiveBatch::default();
    let begin = Instant::now();
    while any.receive(&mut batch).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(batch.iter().next().unwrap().from, there);
    any.send(b"back", &[Transmit { to: there, start: 0, len: 4, segment: 4 }], &mut scratch).unwrap();
    assert_eq!(receive_all(&peer, 1), [b"back".to_vec()]);
}

#[test]
fn a_closed_port_is_reported_with_its_destination() {
    let socket = local("127.0.0.1");
    let closed = {
        let gone = local("127.0.0.1");
        SocketAddr::new("127.0.0.1".parse().unwrap(), gone.port().unwrap())
    };
    let mut scratch = SendScratch::default();
    socket.send(b"x", &[Transmit { to: closed, start: 0, len: 1, segment: 1 }], &mut scratch).unwrap();
    let begin = Instant::now();
    let error = loop {
        if let Some(error) = socket.take_network_error().unwrap() {
            break error;
        }
        assert!(begin.elapsed() < Duration::from_secs(5));
    };
    assert_eq!(error, NetworkError { destination: closed, errno: libc::ECONNREFUSED, from_network: true });
    assert_eq!(socket.take_network_error().unwrap(), None);
}

#[test]
fn a_range_outside_of_the_buffer_is_refused() {
    let socket = local("127.0.0.1");
    let to = "127.0.0.1:9".parse().unwrap();
    let mut scratch = SendScratch::default();
    for bad in [
        Transmit { to, start: 0, len: 11, segment: 11 },
        Transmit { to, start: usize::MAX, len: 2, segment: 2 },
        Transmit { to, start: 11, len: 0, segment: 1 },
    ] {
        let error = socket.send(&[0; 10], &[bad], &mut scratch).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn too_much_for_one_send_is_emsgsize() {
    let socket = local("127.0.0.1");
    let to: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let buffer = vec![0; 70_000];
    let mut scratch = SendScratch::default();
    let send = |len, segment, scratch: &mut SendScratch| {
        socket.send(&buffer, &[Transmit { to, start: 0, len, segment }], scratch).map_err(|error| error.raw_os_error())
    };
    assert_eq!(send(1452 * 48, 1452, &mut scratch), Err(Some(libc::EMSGSIZE)));
    assert_eq!(send(MAX_PAYLOAD_IPV4 + 1, 1452, &mut scratch), Err(Some(libc::EMSGSIZE)));
    assert_eq!(send(MAX_PAYLOAD_IPV4, 1452, &mut scratch), Ok(1));
}

#[test]
fn buffers_are_read_back() {
    let socket = local("127.0.0.1");
    let granted = socket.granted();
    assert!(granted.gso && granted.gro, "{granted:?}");
    assert!(granted.receive_buffer >= 100_000, "{granted:?}");
    assert_eq!(socket.dropped().unwrap(), 0);
}
