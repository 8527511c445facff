//! How fast this machine's processors could carry a tunnel if they did nothing but the cipher.

use std::time::{Duration, Instant};

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};

const PACKET: usize = 1420;
/// Long enough to outlast a timer tick, short enough that it can be repeated.
const SLICE: Duration = Duration::from_millis(60);

/// Bits per second: every processor encrypts and decrypts packets of 1,420 bytes, each once, and does nothing else. The best
/// of several slices, since it is a bound.
pub(crate) fn bound() -> f64 {
    let (mut a, mut b) = session();
    let mut packet = vec![0; PACKET];
    // An IPv4 header with its length: all that the protocol reads of a packet.
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(PACKET as u16).to_be_bytes());
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let (begin, cpu, mut packets) = (Instant::now(), cpu_time(), 0_u32);
        let (mut datagram, mut inner) = ([0; 2048], [0; 2048]);
        while begin.elapsed() < SLICE {
            for _ in 0..64 {
                let TunnResult::WriteToNetwork(out) = a.encapsulate(&packet, &mut datagram) else { break };
                let length = out.len();
                let _decrypted = b.decapsulate(None, &datagram[..length], &mut inner);
                packets += 1;
            }
        }
        best = best.min((cpu_time() - cpu) / f64::from(packets.max(1)));
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    PACKET as f64 * 8.0 / best * processors
}

/// Seconds of CPU time of this thread: what else runs here takes none of it.
fn cpu_time() -> f64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    now.map_or(f64::NAN, |now| Duration::from(now).as_secs_f64())
}

/// Two ends that have shaken hands.
fn session() -> (Tunn, Tunn) {
    let keys = [[1; 32], [2; 32]].map(StaticSecret::from);
    let public = [PublicKey::from(&keys[0]), PublicKey::from(&keys[1])];
    let [one, two] = keys;
    let mut a = Tunn::new(one, public[1], None, None, 1, None);
    let mut b = Tunn::new(two, public[0], None, None, 2, None);
    let (mut first, mut second) = ([0; 2048], [0; 2048]);
    let length = |result: TunnResult<'_>| match result {
        TunnResult::WriteToNetwork(datagram) => datagram.len(),
        TunnResult::Done | TunnResult::Err(_) | TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToTunnelV6(..) => 0,
    };
    let initiation = length(a.format_handshake_initiation(&mut first, false));
    let response = length(b.decapsulate(None, &first[..initiation], &mut second));
    let keepalive = length(a.decapsulate(None, &second[..response], &mut first));
    let _confirmed = length(b.decapsulate(None, &first[..keepalive], &mut second));
    (a, b)
}
