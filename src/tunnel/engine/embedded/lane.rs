//! A lane: one queue of the device and one socket of the port.
//!
//! ```text
//! at rest                       under load
//! wg-lane-N: both directions    wg-lane-N: socket -> device     wg-out-N: device -> socket
//! ```
//!
//! At rest one thread carries both directions: a lone packet and its answer find warm caches, and one processor less has to be
//! woken for them. As soon as packets come in numbers, the way out goes to a thread of its own, until the device has been
//! silent for [`LULL`].

use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::device::Device;
use super::handshake::Message;
use super::inbound::Inbound;
use super::io::Wake;
use super::outbound::Outbound;
use super::turn::{MANY, Turn};

/// The way out comes back to the lane's thread after the device was silent for this long.
const LULL: Duration = Duration::from_millis(10);
/// A device or socket that fails to be read is tried again after this.
const RETRY: Duration = Duration::from_millis(10);

/// Where the way out is while neither thread works on it.
#[derive(Default)]
pub(super) struct Handover {
    place: Mutex<Place>,
}

#[derive(Default)]
enum Place {
    #[default]
    Taken,
    ForHelper(Box<Outbound>),
    ForLane(Box<Outbound>),
}

impl Handover {
    fn put(&self, place: Place) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }

    /// For the helper, if it was put here for it.
    fn for_helper(&self) -> Option<Box<Outbound>> {
        self.take_if(|place| matches!(place, Place::ForHelper(_)))
    }

    /// For the lane, if the helper is done with it.
    fn for_lane(&self) -> Option<Box<Outbound>> {
        self.take_if(|place| matches!(place, Place::ForLane(_)))
    }

    fn take_if(&self, is_ours: impl FnOnce(&Place) -> bool) -> Option<Box<Outbound>> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_ours(&place) {
            return None;
        }
        match std::mem::take(&mut *place) {
            Place::ForHelper(outbound) | Place::ForLane(outbound) => Some(outbound),
            Place::Taken => None,
        }
    }
}

/// The body of `wg-lane-N`.
pub(super) fn run(
    device: &Arc<Device>,
    number: usize,
    handshakes: SyncSender<Message>,
    handover: &Handover,
) -> io::Result<()> {
    let (tun, wake) = (&device.tuns[number], &device.wakes.lanes[number]);
    let mut inbound = Inbound::new(device, number, handshakes)?;
    let mut outbound = tun.is_read().then(|| Outbound::new(device, number).map(Box::new)).transpose()?;
    if let Some(outbound) = &mut outbound {
        outbound.set_patient(false);
    }
    let mut replies = Replies::new();
    let mut more_comes_in = false;
    while !device.stopping() {
        if outbound.is_none() && tun.is_read() {
            outbound = handover.for_lane();
        }
        // The configuration may have given the device another one.
        let socket = device.socket(number);
        let at_hand = more_comes_in && outbound.is_none() && socket.is_some();
        let (at_socket, at_tun) = if at_hand {
            (true, false)
        } else {
            ready(wake, socket.as_ref().map(|socket| socket.readiness()), outbound.as_ref().map(|_| tun.readiness()))?
        };
        let mut out = Turn::default();
        if at_tun && let Some(outbound) = &mut outbound {
            replies.came();
            out = outbound.turn()?;
        }
        let mut incoming = Turn::default();
        if at_socket && let Some(socket) = &socket {
            incoming = inbound.turn(&**socket);
            if let Some(outbound) = &mut outbound
                && (1..MANY).contains(&incoming.packets)
                && !out.loaded()
            {
                replies.awaited(|| {
                    out = outbound.turn()?;
                    Ok(out.packets > 0 || out.loaded())
                })?;
            }
        }
        more_comes_in = incoming.more;
        // What only comes in needs no second thread, and its answers at most one.
        if (out.loaded() || incoming.blocked || (incoming.loaded() && out.packets > 0))
            && let Some(mut outbound) = outbound.take()
        {
            outbound.set_patient(true);
            handover.put(Place::ForHelper(outbound));
            device.wakes.helpers[number].signal();
        }
        if incoming.blocked {
            wake.wait(None, false, Some(RETRY))?;
        }
    }
    Ok(())
}

/// Waits until the socket or the device is ready, or for the wake, and says which of the two are.
fn ready(wake: &Wake, socket: Option<BorrowedFd<'_>>, tun: Option<BorrowedFd<'_>>) -> io::Result<(bool, bool)> {
    let mut fds = [wake.as_fd(); 3].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let (mut count, mut places) = (1, [None; 2]);
    for (place, fd) in places.iter_mut().zip([socket, tun]) {
        if let Some(fd) = fd {
            fds[count] = PollFd::new(fd, PollFlags::POLLIN);
            *place = Some(count);
            count += 1;
        }
    }
    match poll(&mut fds[..count], PollTimeout::NONE) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok((false, false)),
        Err(errno) => return Err(errno.into()),
    }
    let is = |place: Option<usize>| place.is_some_and(|place| fds[place].any().unwrap_or(false));
    if is(Some(0)) {
        wake.take();
    }
    Ok((is(places[0]), is(places[1])))
}

/// The body of `wg-out-N`.
pub(super) fn help(device: &Arc<Device>, number: usize, handover: &Handover) -> io::Result<()> {
    let (tun, wake) = (&device.tuns[number], &device.wakes.helpers[number]);
    while !device.stopping() {
        let Some(mut outbound) = handover.for_helper() else {
            wake.wait(None, false, None)?;
            continue;
        };
        let mut last = Instant::now();
        while !device.stopping() {
            let turn = outbound.turn()?;
            if turn.packets > 0 || turn.more {
                last = Instant::now();
            } else if last.elapsed() >= LULL {
                break;
            }
            if turn.blocked {
                wake.wait(None, false, Some(RETRY))?;
            } else if !turn.more {
                wake.wait(Some(tun.readiness()), false, Some(LULL))?;
            }
        }
        outbound.set_patient(false);
        handover.put(Place::ForLane(outbound));
        device.wakes.lanes[number].signal();
    }
    Ok(())
}

/// Whether what came in is answered at once, as far as one can tell from before.
///
/// Who was just given a request is often about to answer. Waiting for that awake, for less time than falling asleep and waking
/// up takes, saves both; where no answers come, it is not done.
struct Replies {
    /// How often lately an answer came in time: 0 to [`Replies::SURE`].
    score: u32,
    /// When something came in whose answer is waited for asleep.
    delivered: Option<Instant>,
    /// A lone processor is needed by who is to answer.
    alone: bool,
}

impl Replies {
    const IN_TIME: Duration = Duration::from_micros(20);
    const SURE: u32 = 16;

    fn new() -> Self {
        let alone = thread::available_parallelism().map_or(1, NonZero::get) == 1;
        Self { score: 0, delivered: None, alone }
    }

    fn expected(&self) -> bool {
        self.score > Self::SURE / 2 && !self.alone
    }

    fn note(&mut self, in_time: bool) {
        self.score = if in_time { (self.score + 1).min(Self::SURE) } else { self.score.saturating_sub(2) };
    }

    /// Waited in vain, awake. That costs more than sleeping would have: answers that take a little longer than is waited for
    /// must not make it happen again and again.
    fn note_vain(&mut self) {
        self.score = self.score.saturating_sub(Self::SURE / 2);
    }

    /// Something goes out that was waited for asleep.
    fn came(&mut self) {
        if let Some(delivered) = self.delivered.take() {
            // Waking up takes time, too.
            self.note(delivered.elapsed() < 3 * Self::IN_TIME);
        }
    }

    /// Something came in: `look` for what goes out, as long as that is promising.
    fn awaited(&mut self, mut look: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
        let begin = Instant::now();
        if self.delivered.replace(begin).is_some() {
            self.note(false);
        }
        if !self.expected() {
            return Ok(());
        }
        self.delivered = None;
        while begin.elapsed() < Self::IN_TIME {
            if look()? {
                self.note(true);
                return Ok(());
            }
            // Who is to answer may be waiting for this very processor.
            thread::yield_now();
        }
        self.note_vain();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_waited_for_awake_once_they_come_and_no_longer_when_they_do_not() {
        let mut replies = Replies { score: 0, delivered: None, alone: false };
        let looks = |replies: &mut Replies, found: bool| {
            let mut looks = 0;
            replies
                .awaited(|| {
                    looks += 1;
                    Ok(found)
                })
                .unwrap();
            looks
        };
        assert_eq!(looks(&mut replies, true), 0, "nothing is known yet");
        for _ in 0..Replies::SURE {
            replies.note(true);
        }
        assert_eq!(looks(&mut replies, true), 1);
        let patience = (0..).take_while(|_| looks(&mut replies, false) > 0).count();
        assert_eq!(patience, 1);
        // A stream of which nothing is answered never makes it wait.
        assert!((0..100).all(|_| looks(&mut replies, true) == 0));
        // Answers that always come a little too late are waited for awake once in a while only.
        let (mut vain, mut replies_late) = (0, Replies { score: 0, delivered: None, alone: false });
        for _ in 0..100 {
            vain += u32::from(looks(&mut replies_late, false) > 0);
            replies_late.delivered = None;
            replies_late.note(true);
        }
        assert!((1..=15).contains(&vain), "{vain}");
        replies.alone = true;
        replies.score = Replies::SURE;
        assert_eq!(looks(&mut replies, true), 0, "a lone processor");
    }
}
