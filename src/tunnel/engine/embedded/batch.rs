//! Datagrams on their way out: laid one after the other, so that neighbours of one destination leave as one.

use std::io;
use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::counters::Event;
use super::device::Device;
use super::io::{OuterSocket, Wake};
use super::peer::Peer;
use crate::sys::udp::{MAX_MESSAGES, MAX_PAYLOAD_IPV4, MAX_PAYLOAD_IPV6, MAX_SEGMENTS, SendScratch, Transmit};

/// Bytes that a batch holds: two full sends and what begins the third.
const CAPACITY: usize = 192 << 10;
/// Bytes behind that for what was read from a device before the socket was full: one batch of the device, split into the smallest
/// segments that Linux makes (`TCP_MIN_SND_MSS`, 48), each with headers of its own. It costs memory only where it is needed.
const IN_HAND: usize = 384 << 10;
/// How long a full socket that takes nothing is waited for before a flush gives up what it has left.
const FULL_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a wait for room looks whether the engine is to end.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// How often a send is tried again while the network's reports about others come in its way.
const REPORTED_TRIES: u32 = 8;

/// Collects datagrams and sends them. Each thread that sends has one.
pub(super) struct SendBatch {
    buffer: Vec<u8>,
    used: usize,
    transmits: Vec<Transmit>,
    /// Whose each transmit is; cookie replies are nobody's.
    peers: Vec<Option<Arc<Peer>>>,
    scratch: SendScratch,
    wake: Wake,
    /// Which of the device's sockets it sends by.
    lane: usize,
}

impl SendBatch {
    pub(super) fn new(lane: usize) -> io::Result<Self> {
        Ok(Self {
            buffer: vec![0; CAPACITY + IN_HAND],
            used: 0,
            transmits: Vec::with_capacity(MAX_MESSAGES),
            peers: Vec::with_capacity(MAX_MESSAGES),
            scratch: SendScratch::default(),
            wake: Wake::new()?,
            lane,
        })
    }

    /// Room for a datagram of up to `len` bytes; `None`: flush first.
    pub(super) fn space(&mut self, len: usize) -> Option<&mut [u8]> {
        self.buffer[..CAPACITY].get_mut(self.used..self.used + len)
    }

    /// Room for a datagram of up to `len` bytes, where need be by sending what the socket takes at once; `None`: it is full.
    pub(super) fn make_room(&mut self, device: &Device, len: usize) -> Option<&mut [u8]> {
        if self.used + len > CAPACITY {
            self.offer(device);
        }
        self.space(len)
    }

    /// The same for what is in hand already, and would be lost: there is more room for it.
    pub(super) fn make_room_in_hand(&mut self, device: &Device, len: usize) -> Option<&mut [u8]> {
        if self.used + len > CAPACITY {
            self.offer(device);
        }
        self.buffer.get_mut(self.used..self.used + len)
    }

    /// Whether all of what a device gives at once finds room, whatever the socket takes meanwhile.
    pub(super) fn has_room_for_a_read(&self) -> bool {
        self.used <= CAPACITY / 2
    }

    /// Takes the datagram of `len` bytes that was put into [`SendBatch::space`].
    pub(super) fn commit(&mut self, peer: Option<&Arc<Peer>>, to: SocketAddr, len: usize, gso: bool) {
        let start = self.used;
        self.used += len;
        let gso = gso && !peer.is_some_and(|peer| peer.gso_refused.load(Ordering::Relaxed));
        if let Some(last) = self.transmits.last_mut()
            && gso
            && may_follow(last, to, len)
            && last.start + last.len == start
        {
            last.len += len;
            return;
        }
        self.transmits.push(Transmit { to, start, len, segment: len });
        self.peers.push(peer.cloned());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.transmits.is_empty()
    }

    /// Sends what cannot grow any more, and keeps the last one if it can.
    pub(super) fn flush_full(&mut self, device: &Device) {
        let Some(last) = self.transmits.last() else { return };
        let grows = last.len.is_multiple_of(last.segment) && may_follow(last, last.to, last.segment);
        if !grows || self.used + last.segment > CAPACITY {
            return self.flush(device);
        }
        self.send(device, self.transmits.len() - 1, true);
        // The buffer is used up to its end before what is left moves to the front, so that little is moved.
        if let [last] = &mut self.transmits[..]
            && self.used > CAPACITY / 2
        {
            self.buffer.copy_within(last.start..self.used, 0);
            self.used = last.len;
            last.start = 0;
        }
    }

    /// Sends everything, and waits for a full socket.
    pub(super) fn flush(&mut self, device: &Device) {
        self.send(device, self.transmits.len(), true);
    }

    /// Sends what the socket takes at once; `false` if something is left, which stays here for the next time.
    pub(super) fn offer(&mut self, device: &Device) -> bool {
        self.send(device, self.transmits.len(), false);
        self.is_empty()
    }

    /// Sends the first `count` transmits, in order: every datagram goes, is counted with the reason why it did not, or stays
    /// here where a full socket is not waited for.
    fn send(&mut self, device: &Device, mut count: usize, patient: bool) {
        if count == 0 {
            return;
        }
        let Self { buffer, transmits, peers, scratch, wake, lane, .. } = self;
        let counters = &device.counters;
        let mut at = 0;
        if let Some(socket) = device.socket(*lane) {
            let mut way = Way { device, socket: &*socket, buffer, scratch, wake, full_until: None, patient };
            while at < count {
                let first = transmits[at];
                match way.send(&transmits[at..count]) {
                    Ok(sent) => at += sent,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && !patient => break,
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) if first.datagrams() > 1 => {
                            let peer = peers[at].clone();
                            device.offload_refused(peer.as_ref(), &first, &error);
                            peers.splice(at..=at, iter::repeat_n(peer, first.datagrams()));
                            transmits.splice(at..=at, singly(first));
                            count += first.datagrams() - 1;
                        }
                        _ => {
                            counters.udp_send_error(&error, first.datagrams());
                            at += 1;
                        }
                    },
                }
            }
        } else {
            let datagrams = transmits[..count].iter().map(Transmit::datagrams).sum();
            counters.udp_send_error(&io::Error::from_raw_os_error(libc::ENOTCONN), datagrams);
            at = count;
        }
        transmits.drain(..at);
        peers.drain(..at);
        if transmits.is_empty() {
            self.used = 0;
        }
    }
}

/// The datagrams of a refused batch.
fn singly(batch: Transmit) -> impl Iterator<Item = Transmit> {
    let end = batch.start + batch.len;
    (batch.start..end).step_by(batch.segment).map(move |start| {
        let len = batch.segment.min(end - start);
        Transmit { to: batch.to, start, len, segment: len }
    })
}

/// What one flush needs of the world.
struct Way<'a> {
    device: &'a Device,
    socket: &'a dyn OuterSocket,
    buffer: &'a [u8],
    scratch: &'a mut SendScratch,
    wake: &'a Wake,
    /// Until when a full socket is waited for; `None` while it takes something.
    full_until: Option<Instant>,
    /// Whether a full socket is waited for.
    patient: bool,
}

impl Way<'_> {
    /// Sends as many of `transmits` as the socket takes at once, and counts them.
    ///
    /// # Errors
    /// Why the first one did not go.
    fn send(&mut self, transmits: &[Transmit]) -> io::Result<usize> {
        let mut tries = 0;
        loop {
            let error = match self.socket.send(self.buffer, transmits, self.scratch) {
                Ok(sent) => {
                    self.full_until = None;
                    let sent = sent.max(1);
                    let counters = &self.device.counters;
                    counters.add(Event::UdpSends, 1);
                    counters.add(Event::UdpSentDatagrams, transmits[..sent].iter().map(Transmit::datagrams).sum());
                    return Ok(sent);
                }
                Err(error) => error,
            };
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            if error.kind() == io::ErrorKind::WouldBlock {
                if self.patient && self.wait_for_room() {
                    continue;
                }
                return Err(error);
            }
            // An error that the network reported for an earlier send is told by the next one, whomever it is for. The report
            // itself may have been taken by the thread that receives, so there is a second try without one.
            let reports = self.device.take_network_errors(self.socket);
            if tries > 0 && (reports == 0 || tries == REPORTED_TRIES) {
                return Err(error);
            }
            tries += 1;
        }
    }

    /// Waits until the socket may take more; `false` if it takes nothing for a second, or the engine is to end.
    fn wait_for_room(&mut self) -> bool {
        // Reports end a wait as well, and the thread that would take them may be waiting for this one.
        self.device.take_network_errors(self.socket);
        let until = *self.full_until.get_or_insert_with(|| Instant::now() + FULL_TIMEOUT);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || self.device.stopping() {
            return false;
        }
        self.wake.wait(Some(self.socket.readiness()), true, Some(left.min(STOP_CHECK))).is_ok()
    }
}

/// Whether a datagram of `len` bytes to `to` may become part of `last`: same destination, no datagram but the last one
/// shorter than the first, and within what one send can carry.
fn may_follow(last: &Transmit, to: SocketAddr, len: usize) -> bool {
    let limit = if to.is_ipv4() { MAX_PAYLOAD_IPV4 } else { MAX_PAYLOAD_IPV6 };
    last.to == to
        && last.len.is_multiple_of(last.segment)
        && len <= last.segment
        && last.len + len <= limit
        && last.len / last.segment < MAX_SEGMENTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay_out(lengths: &[usize], gso: bool) -> Vec<(usize, usize)> {
        let mut batch = SendBatch::new(0).unwrap();
        for length in lengths {
            batch.space(*length).unwrap();
            batch.commit(None, "192.0.2.1:1".parse().unwrap(), *length, gso);
        }
        batch.transmits.iter().map(|transmit| (transmit.len, transmit.segment)).collect()
    }

    #[test]
    fn batches_keep_within_what_one_send_carries() {
        // A TSO super-packet at MSS 1368: 48 datagrams of 1,452 bytes are 69,696.
        assert_eq!(lay_out(&[1452; 48], true), [(45 * 1452, 1452), (3 * 1452, 1452)]);
        assert_eq!(lay_out(&[100; 65], true), [(6400, 100), (100, 100)]);
        for (segments, size) in [(1, 1492), (43, 1492), (44, 1492), (49, 1320), (64, 1232), (64, 1320)] {
            let out = lay_out(&vec![size; segments], true);
            assert!(out.iter().all(|(len, segment)| *len <= MAX_PAYLOAD_IPV4 && len / segment <= MAX_SEGMENTS));
            assert_eq!(out.iter().map(|(len, segment)| len / segment).sum::<usize>(), segments);
        }
    }

    #[test]
    fn a_short_one_ends_a_batch_and_a_long_one_begins_another() {
        assert_eq!(lay_out(&[100, 100, 99, 99], true), [(299, 100), (99, 99)].map(|(a, b)| (a, b)).to_vec());
        assert_eq!(lay_out(&[100, 101], true), [(100, 100), (101, 101)]);
        assert_eq!(lay_out(&[100, 1], true), [(101, 100)]);
        assert_eq!(lay_out(&[100, 100], false), [(100, 100), (100, 100)]);
    }
}
