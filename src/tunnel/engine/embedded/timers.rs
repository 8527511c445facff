//! Time: retries, rekeys, keepalives, the rate limiter. Thread `wg-timers`.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boringtun::noise::TunnResult;
use boringtun::noise::errors::WireGuardError;

use super::batch::SendBatch;
use super::counters::Event;
use super::device::Device;
use super::outbound::send_staged;
use super::peer::{Crypto, Peer, message};

/// How often the protocol's timers are looked at. boringtun rounds its times to this call.
const TICK: Duration = Duration::from_millis(250);
/// How often the count of handshake messages begins anew.
const LIMIT_PERIOD: Duration = Duration::from_secs(1);

pub(super) fn run(device: &Device) -> io::Result<()> {
    let mut out = SendBatch::new(0)?;
    let mut limited = Instant::now();
    while !device.stopping() {
        let begin = Instant::now();
        if let Some(identity) = device.identity()
            && begin - limited >= LIMIT_PERIOD
        {
            identity.limiter.reset_count();
            limited = begin;
        }
        let table = device.table();
        for peer in table.peers() {
            tick(device, peer, begin, &mut out);
        }
        out.flush(device);
        let rest = TICK.saturating_sub(begin.elapsed());
        device.wakes.timers.wait(None, false, Some(rest))?;
    }
    Ok(())
}

fn tick(device: &Device, peer: &Arc<Peer>, now: Instant, out: &mut SendBatch) {
    let mut crypto = peer.lock();
    if !crypto.staged.is_empty() && crypto.has_session() {
        send_staged(device, peer, &mut crypto, out);
    }
    let mut buffer = [0; message::INITIATION_LEN];
    let Some(tunn) = crypto.tunn.as_mut() else { return };
    let due = match tunn.update_timers(&mut buffer) {
        TunnResult::WriteToNetwork(message) => Some(message.len()),
        TunnResult::Err(WireGuardError::ConnectionExpired) => {
            let dropped = crypto.staged.clear(&device.staged_bytes);
            device.counters.add(Event::DropStagedExpired, dropped);
            None
        }
        TunnResult::Done | TunnResult::Err(_) | TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToTunnelV6(..) => {
            None
        }
    };
    let due = due.inspect(|len| crypto.note_sent(&buffer[..*len])).or_else(|| keepalive(&mut crypto, now, &mut buffer));
    let (Some(len), Some(endpoint)) = (due, crypto.endpoint) else { return };
    crypto.last_sent = Some(now);
    match out.make_room(device, len) {
        Some(space) => {
            space.copy_from_slice(&buffer[..len]);
            out.commit(Some(peer), endpoint, len, false);
            peer.sent(len);
        }
        None => device.counters.udp_send_error(&io::Error::from_raw_os_error(libc::EAGAIN), 1),
    }
}

/// The persistent keepalive, or the handshake that it needs: at once after configuration, then whenever nothing was sent
/// for its interval. NAT mappings live by what is sent, so what is received does not put it off.
fn keepalive(crypto: &mut Crypto, now: Instant, buffer: &mut [u8]) -> Option<usize> {
    let interval = crypto.keepalive?;
    if crypto.last_sent.is_some_and(|sent| now.saturating_duration_since(sent) < interval) {
        return None;
    }
    if !crypto.has_session() {
        return crypto.initiate(buffer);
    }
    let TunnResult::WriteToNetwork(message) = crypto.tunn.as_mut()?.encapsulate(&[], buffer) else { return None };
    Some(message.len())
}
