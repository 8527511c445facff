//! How fast this machine's processors could carry a tunnel if they did nothing but the cipher.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};

const PACKET: usize = 1420;
/// Long enough to outlast a timer tick, short enough that it can be repeated.
const SLICE: Duration = Duration::from_millis(60);

/// Bits per second: every processor encrypts and decrypts packets of 1,420 bytes, each once, and does nothing else. The best
/// of several slices, since it is a bound.
pub(crate) fn bound() -> Result<f64> {
    let mut ends = session()?;
    let mut buffers = [[0; 2048]; 2];
    let mut packet = vec![0; PACKET];
    // An IPv4 header with its length: all that the protocol reads of a packet.
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(PACKET as u16).to_be_bytes());
    let processors = std::thread::available_parallelism().context("how many processors there are")?.get();
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let (begin, cpu, mut packets) = (Instant::now(), cpu_time()?, 0_u32);
        while begin.elapsed() < SLICE {
            for _ in 0..64 {
                carry(&mut ends, &packet, &mut buffers)?;
                packets += 1;
            }
        }
        best = best.max(rate(packets, cpu_time()?.checked_sub(cpu).unwrap_or_default(), processors)?);
    }
    Ok(best)
}

/// The packet from the first end to the second: whole, or an error. Only its length is looked at, since the time counts.
pub(crate) fn carry((from, to): &mut (Tunn, Tunn), packet: &[u8], buffers: &mut [[u8; 2048]; 2]) -> Result<()> {
    let [datagram, inner] = buffers;
    let TunnResult::WriteToNetwork(sent) = from.encapsulate(packet, datagram) else {
        bail!("the cipher's bound: a packet was not encrypted");
    };
    let length = sent.len();
    match to.decapsulate(None, &datagram[..length], inner) {
        TunnResult::WriteToTunnelV4(received, _) if received.len() == packet.len() => Ok(()),
        TunnResult::WriteToTunnelV4(..)
        | TunnResult::WriteToTunnelV6(..)
        | TunnResult::WriteToNetwork(_)
        | TunnResult::Done
        | TunnResult::Err(_) => bail!("the cipher's bound: a packet was not decrypted"),
    }
}

/// Bits per second of `processors` like the one that took `cpu` for `packets`.
pub(crate) fn rate(packets: u32, cpu: Duration, processors: usize) -> Result<f64> {
    ensure!(packets > 0 && !cpu.is_zero(), "the cipher's bound: {packets} packets in {cpu:?} of CPU time are no rate");
    Ok(PACKET as f64 * 8.0 * f64::from(packets) / cpu.as_secs_f64() * processors as f64)
}

/// CPU time of this thread: what else runs here takes none of it.
fn cpu_time() -> Result<Duration> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    Ok(now.context("the CPU time of the thread that measures the cipher")?.into())
}

/// Two ends that have shaken hands.
pub(crate) fn session() -> Result<(Tunn, Tunn)> {
    let keys = [[1; 32], [2; 32]].map(StaticSecret::from);
    let public = [PublicKey::from(&keys[0]), PublicKey::from(&keys[1])];
    let [one, two] = keys;
    let mut a = Tunn::new(one, public[1], None, None, 1, None);
    let mut b = Tunn::new(two, public[0], None, None, 2, None);
    let (mut first, mut second) = ([0; 2048], [0; 2048]);
    let length = |result: TunnResult<'_>| match result {
        TunnResult::WriteToNetwork(datagram) => Ok(datagram.len()),
        TunnResult::Done | TunnResult::Err(_) | TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToTunnelV6(..) => {
            bail!("the cipher's bound: two ends do not shake hands")
        }
    };
    let initiation = length(a.format_handshake_initiation(&mut first, false))?;
    let response = length(b.decapsulate(None, &first[..initiation], &mut second))?;
    let keepalive = length(a.decapsulate(None, &second[..response], &mut first))?;
    // The keepalive confirms the session to the second end; nothing is said to it.
    let _confirmed = b.decapsulate(None, &first[..keepalive], &mut second);
    Ok((a, b))
}
