//! Handshake messages. Thread `wg-handshakes`.
//!
//! They cost a hundred times what data costs, so they have a thread of their own: a storm of them delays each other, and
//! no data. The queue before it is bounded; what does not fit is counted, and its sender tries again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::{Packet, TunnResult};

use super::batch::SendBatch;
use super::counters::Event;
use super::device::{Device, Identity, Table};
use super::outbound::send_staged;
use super::peer::{Peer, message};
use crate::tunnel::keys::PublicKey;
use crate::tunnel::status::Handshakes;

/// Messages that wait.
pub(super) const QUEUE: usize = 1024;

/// A message of the right kind and length, copied out of its batch.
pub(super) struct Message {
    from: SocketAddr,
    len: usize,
    bytes: [u8; message::INITIATION_LEN],
}

impl Message {
    /// `None` if the datagram cannot be a handshake message.
    pub(super) fn new(from: SocketAddr, datagram: &[u8]) -> Option<Self> {
        let (&[kind, 0, 0, 0], _) = datagram.split_first_chunk::<4>()? else { return None };
        let len = match kind {
            message::INITIATION => message::INITIATION_LEN,
            message::RESPONSE => message::RESPONSE_LEN,
            message::COOKIE => message::COOKIE_LEN,
            _ => return None,
        };
        if datagram.len() != len {
            return None;
        }
        let mut bytes = [0; message::INITIATION_LEN];
        bytes[..len].copy_from_slice(datagram);
        Some(Self { from, len, bytes })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

pub(super) fn run(device: &Device, queue: &Receiver<Message>) -> io::Result<()> {
    let mut out = SendBatch::new(0)?;
    let mut table = (0, device.table());
    loop {
        let message = match queue.try_recv() {
            Ok(message) => message,
            Err(_) => {
                out.flush(device);
                // The queue ends when the last of those who fill it has ended.
                let Ok(message) = queue.recv() else { return Ok(()) };
                message
            }
        };
        device.refresh(&mut table);
        match device.identity() {
            Some(identity) => handle(device, &identity, &table.1, &message, &mut out),
            // A device without a key has nobody to be.
            None => device.counters.add(Event::DropMac1, 1),
        }
    }
}

fn handle(device: &Device, identity: &Identity, table: &Table, message: &Message, out: &mut SendBatch) {
    let counters = &device.counters;
    let mut cookie = [0; message::COOKIE_LEN];
    // MAC1 first: without it nothing is computed, and nothing answered. Under load, MAC2 as well.
    let parsed = match identity.limiter.verify_packet(Some(message.from.ip()), message.bytes(), &mut cookie) {
        Ok(parsed) => parsed,
        Err(TunnResult::WriteToNetwork(reply)) => {
            counters.add(Event::CookiesSent, 1);
            send(device, out, None, message.from, reply);
            return;
        }
        Err(TunnResult::Err(WireGuardError::InvalidMac)) => return counters.add(Event::DropMac1, 1),
        Err(_) => return counters.add(Event::DropMalformed, 1),
    };
    let peer = match &parsed {
        Packet::HandshakeInit(initiation) => {
            match parse_handshake_anon(&identity.private, &identity.public, initiation) {
                Ok(half) => match PublicKey::from_bytes(half.peer_static_public) {
                    Ok(key) => {
                        let peer = table.peer_of_key(&key);
                        if peer.is_none() {
                            device.note_unknown_caller(key);
                            counters.add(Event::DropUnknownPeer, 1);
                        }
                        peer
                    }
                    Err(_) => return counters.add(Event::DropHandshakeAead, 1),
                },
                Err(_) => return counters.add(Event::DropHandshakeAead, 1),
            }
        }
        Packet::HandshakeResponse(response) => known(device, table, response.receiver_idx),
        Packet::PacketCookieReply(reply) => known(device, table, reply.receiver_idx),
        Packet::PacketData(_) => return counters.add(Event::DropMalformed, 1),
    };
    let Some(peer) = peer else { return };
    answer(device, peer, message, out);
}

/// An initiation that nobody answers within this time is lost.
const LOST_AFTER: Duration = Duration::from_millis(100);

/// Makes new sessions with a peer for `time`, one after the other, whatever sessions there are. `None`: there is no such peer,
/// or nobody knows where it is.
pub(super) fn measure(device: &Device, key: &PublicKey, time: Duration) -> io::Result<Option<Handshakes>> {
    let table = device.table();
    let Some(peer) = table.peer_of_key(key) else { return Ok(None) };
    let mut out = SendBatch::new(0)?;
    let mut seen = Handshakes::default();
    let begin = Instant::now();
    while begin.elapsed() < time && !device.stopping() {
        let asked = Instant::now();
        let mut before = peer.heard.so_far();
        let responses = before.responses;
        // Once more for each cookie: it is a part of the handshake with a peer that is under load.
        let answered = loop {
            if !initiate(device, peer, &mut out) {
                return Ok(None);
            }
            let after = peer.heard.after(before, LOST_AFTER.saturating_sub(asked.elapsed()));
            if after.responses != responses {
                break true;
            }
            if after == before {
                break false;
            }
            before = after;
        };
        if answered {
            seen.latencies_ns.push(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX));
        } else {
            seen.lost += 1;
        }
    }
    Ok(Some(seen))
}

/// Calls the peer, also where there is a session.
fn initiate(device: &Device, peer: &Arc<Peer>, out: &mut SendBatch) -> bool {
    let mut buffer = [0; message::INITIATION_LEN];
    let mut crypto = peer.lock();
    let (Some(endpoint), Some(tunn)) = (crypto.endpoint, crypto.tunn.as_mut()) else { return false };
    let TunnResult::WriteToNetwork(initiation) = tunn.format_handshake_initiation(&mut buffer, true) else {
        return false;
    };
    let len = initiation.len();
    crypto.note_sent(&buffer[..len]);
    crypto.last_sent = Some(Instant::now());
    drop(crypto);
    peer.sent(len);
    send(device, out, Some(peer), endpoint, &buffer[..len]);
    out.flush(device);
    true
}

fn known<'t>(device: &Device, table: &'t Table, index: u32) -> Option<&'t Arc<Peer>> {
    let peer = table.peer_of_index(index);
    if peer.is_none() {
        device.counters.add(Event::DropUnknownIndex, 1);
    }
    peer
}

/// Gives a message to its peer's state machine.
fn answer(device: &Device, peer: &Arc<Peer>, message: &Message, out: &mut SendBatch) {
    let mut buffer = [0; message::INITIATION_LEN];
    let mut crypto = peer.lock();
    let kind = message.bytes[0];
    if kind == message::RESPONSE {
        crypto.handshakes.responses_received += 1;
    }
    // The peer was removed while its message waited.
    let Some(tunn) = crypto.tunn.as_mut() else { return device.counters.add(Event::DropUnknownPeer, 1) };
    let reply = match tunn.decapsulate(Some(message.from.ip()), message.bytes(), &mut buffer) {
        TunnResult::WriteToNetwork(reply) => Some(reply.len()),
        TunnResult::Done => None,
        TunnResult::Err(error) => {
            let event = match (kind, error) {
                (message::INITIATION, WireGuardError::WrongTai64nTimestamp) => {
                    crypto.handshakes.initiations_stale += 1;
                    Event::DropHandshake
                }
                (message::RESPONSE, WireGuardError::InvalidAeadTag) => {
                    crypto.handshakes.responses_rejected += 1;
                    Event::DropHandshakeAead
                }
                (_, WireGuardError::InvalidAeadTag) => Event::DropHandshakeAead,
                _ => Event::DropHandshake,
            };
            device.counters.add(event, 1);
            return;
        }
        TunnResult::WriteToTunnelV4(..) | TunnResult::WriteToTunnelV6(..) => return,
    };
    peer.received(message.len);
    match kind {
        message::INITIATION => crypto.handshakes.initiations_received += 1,
        message::COOKIE => {
            crypto.handshakes.cookies_received += 1;
            peer.heard.hear(|answers| answers.cookies += 1);
        }
        _ => {
            crypto.handshake_completed();
            peer.heard.hear(|answers| answers.responses += 1);
        }
    }
    if kind != message::COOKIE {
        device.counters.add(Event::Roamed, usize::from(peer.is_at(&mut crypto, message.from)));
    }
    if let Some(len) = reply {
        crypto.note_sent(&buffer[..len]);
        crypto.last_sent = Some(Instant::now());
        peer.sent(len);
        send(device, out, Some(peer), message.from, &buffer[..len]);
    }
    if !crypto.staged.is_empty() && crypto.has_session() {
        send_staged(device, peer, &mut crypto, out);
    }
}

fn send(device: &Device, out: &mut SendBatch, peer: Option<&Arc<Peer>>, to: SocketAddr, bytes: &[u8]) {
    match out.make_room(device, bytes.len()) {
        Some(space) => {
            space.copy_from_slice(bytes);
            out.commit(peer, to, bytes.len(), false);
        }
        None => device.counters.udp_send_error(&io::Error::from_raw_os_error(libc::EAGAIN), 1),
    }
}
