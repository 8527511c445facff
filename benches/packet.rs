//! What the tunnel's data path does per packet, each part alone: `cargo bench --bench packet`.
//!
//! One super-packet is 45 segments of 1,368 bytes, as a tunnel of MTU 1420 carries TCP with timestamps; throughput is that of
//! the payload.

use std::hint::black_box;

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use wglab::packet::checksum::{Sum, pseudo_header};
use wglab::packet::coalesce::{Coalescer, Taken};
use wglab::packet::split::Split;
use wglab::packet::vnet::{Gso, VnetHeader};

const SEGMENT: usize = 1368;
const SEGMENTS: usize = 45;
const HEADERS: usize = 52;

/// IPv4, TCP with timestamps, `payload` bytes of it.
fn tcp_packet(payload: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; HEADERS + payload];
    packet[..HEADERS].fill(0);
    packet[0] = 0x45;
    let total = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&total);
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = 6;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..24].copy_from_slice(&[0x30, 0x39, 0x14, 0x51]);
    packet[32] = 8 << 4;
    packet[33] = 0x10;
    packet[40..44].copy_from_slice(&[1, 1, 8, 10]);
    packet
}

fn super_packet() -> (VnetHeader, Vec<u8>) {
    let mut packet = tcp_packet(SEGMENT * SEGMENTS);
    let sum = pseudo_header(&packet[12..20], 6, packet.len() - 20).folded();
    packet[36..38].copy_from_slice(&sum.to_ne_bytes());
    let header = VnetHeader {
        gso: Gso::TcpV4,
        ecn: false,
        segment: SEGMENT as u16,
        checksum: Some((20, 16)),
        header_len: HEADERS as u16,
    };
    (header, packet)
}

fn pure(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packet");
    let data = vec![0x5a; SEGMENT];
    group.throughput(Throughput::Bytes(SEGMENT as u64));
    group.bench_function("checksum 1368 B", |bencher| {
        bencher.iter(|| Sum::default().add_bytes(black_box(&data)).checksum())
    });

    let (header, packet) = super_packet();
    group.throughput(Throughput::Bytes((SEGMENT * SEGMENTS) as u64));
    group.bench_function("split 45 segments", |bencher| {
        bencher.iter_batched_ref(
            || packet.clone(),
            |packet| {
                let mut split = Split::new(header, packet).expect("a right super-packet");
                while let Some(one) = split.next_packet() {
                    black_box(one);
                }
            },
            BatchSize::SmallInput,
        );
    });

    let mut arena = Vec::new();
    let mut places = Vec::new();
    let mut copy = packet.clone();
    let mut split = Split::new(header, &mut copy).expect("a right super-packet");
    while let Some(one) = split.next_packet() {
        places.push((arena.len(), one.len()));
        arena.extend_from_slice(one);
    }
    let mut coalescer = Coalescer::new(Taken { vnet: true, tcp: true, udp: true });
    group.bench_function("coalesce 45 segments", |bencher| {
        bencher.iter_batched_ref(
            || arena.clone(),
            |arena| {
                coalescer.clear();
                for (start, len) in &places {
                    coalescer.push(arena, *start, *len);
                }
                coalescer.finish(arena);
                assert_eq!(coalescer.outputs().count(), 1);
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// Two ends with a session.
fn session() -> (Tunn, Tunn) {
    let (a, b) = (StaticSecret::from([1; 32]), StaticSecret::from([2; 32]));
    let (public_a, public_b) = (PublicKey::from(&a), PublicKey::from(&b));
    let mut a = Tunn::new(a, public_b, None, None, 1, None);
    let mut b = Tunn::new(b, public_a, None, None, 2, None);
    let (mut one, mut two) = ([0; 256], [0; 256]);
    let TunnResult::WriteToNetwork(initiation) = a.format_handshake_initiation(&mut one, false) else {
        panic!("no initiation");
    };
    let TunnResult::WriteToNetwork(response) = b.decapsulate(None, initiation, &mut two) else { panic!("no response") };
    let mut three = [0; 256];
    let TunnResult::WriteToNetwork(keepalive) = a.decapsulate(None, response, &mut three) else {
        panic!("no keepalive");
    };
    let mut four = [0; 256];
    assert!(matches!(b.decapsulate(None, keepalive, &mut four), TunnResult::Done));
    (a, b)
}

fn cipher(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cipher");
    let packet = tcp_packet(SEGMENT);
    group.throughput(Throughput::Bytes(SEGMENT as u64));
    let (mut a, mut b) = session();
    let mut out = vec![0; 2048];
    group.bench_function("encapsulate 1420 B", |bencher| {
        bencher.iter(|| assert!(matches!(a.encapsulate(black_box(&packet), &mut out), TunnResult::WriteToNetwork(_))));
    });
    let mut inner = vec![0; 2048];
    group.bench_function("decapsulate 1420 B", |bencher| {
        bencher.iter_batched(
            || {
                let TunnResult::WriteToNetwork(datagram) = a.encapsulate(&packet, &mut out) else {
                    panic!("no session");
                };
                datagram.to_vec()
            },
            |datagram| assert!(matches!(b.decapsulate(None, &datagram, &mut inner), TunnResult::WriteToTunnelV4(..))),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, pure, cipher);
criterion_main!(benches);
