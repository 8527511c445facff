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
use std::os::fd::AsFd as _;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::device::Device;
use super::handshake::Message;
use super::inbound::Inbound;
use super::outbound::Outbound;

/// The way out comes back to the lane's thread after the device was silent for this long.
const LULL: Duration = Duration::from_millis(10);
/// Packets of one turn from which on a direction counts as loaded.
const MANY: usize = 4;

/// One turn of a direction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turn {
    /// Packets that were carried.
    pub(super) packets: usize,
    /// There was no more.
    pub(super) drained: bool,
}

impl Turn {
    fn loaded(self) -> bool {
        self.packets > MANY
    }
}

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

    fn is_back(&self) -> bool {
        matches!(*self.place.lock().unwrap_or_else(PoisonError::into_inner), Place::ForLane(_))
    }

    fn take(&self, for_helper: bool) -> Option<Box<Outbound>> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        match (std::mem::take(&mut *place), for_helper) {
            (Place::ForHelper(outbound), true) | (Place::ForLane(outbound), false) => Some(outbound),
            (other, _) => {
                *place = other;
                None
            }
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
    let mut replies = Replies::new();
    while !device.stopping() {
        let socket = device.socket(number);
        let mut fds = [wake.as_fd(); 3].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut count = 1;
        if let Some(socket) = &socket {
            fds[count] = PollFd::new(socket.readiness(), PollFlags::POLLIN);
            count += 1;
        }
        let at_socket = count - 1;
        if outbound.is_some() {
            fds[count] = PollFd::new(tun.readiness(), PollFlags::POLLIN);
            count += 1;
        }
        match poll(&mut fds[..count], PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let ready = fds.map(|fd| fd.any().unwrap_or(false));
        if ready[0] {
            wake.take();
            if outbound.is_none() {
                outbound = handover.take(false);
            }
        }
        let mut loaded = false;
        if ready[count - 1]
            && count - 1 > at_socket
            && let Some(outbound) = &mut outbound
        {
            replies.came();
            loaded |= outbound.turn()?.loaded();
        }
        if let Some(socket) = &socket
            && ready[at_socket]
        {
            loop {
                let turn = inbound.turn(&**socket);
                loaded |= turn.loaded();
                // What has to go out does not wait for the end of what comes in.
                if turn.drained || outbound.is_some() || handover.is_back() || device.stopping() {
                    if let Some(outbound) = &mut outbound
                        && !loaded
                        && turn.packets > 0
                    {
                        replies.awaited(|| outbound.turn().map(|turn| turn.packets > 0))?;
                    }
                    break;
                }
            }
        }
        if loaded && let Some(outbound) = outbound.take() {
            handover.put(Place::ForHelper(outbound));
            device.wakes.outbound[number].signal();
        }
    }
    Ok(())
}

/// The body of `wg-out-N`.
pub(super) fn help(device: &Arc<Device>, number: usize, handover: &Handover) -> io::Result<()> {
    let (tun, wake) = (&device.tuns[number], &device.wakes.outbound[number]);
    while !device.stopping() {
        let Some(mut outbound) = handover.take(true) else {
            wake.wait(None, false, None)?;
            continue;
        };
        let mut last = Instant::now();
        while !device.stopping() {
            let turn = outbound.turn()?;
            if turn.packets > 0 {
                last = Instant::now();
            } else if last.elapsed() >= LULL {
                break;
            }
            if turn.drained {
                wake.wait(Some(tun.readiness()), false, Some(LULL))?;
            }
        }
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
        self.note(false);
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
        assert!((1..=4).contains(&patience), "{patience}");
        // A stream of which nothing is answered never makes it wait.
        assert!((0..100).all(|_| looks(&mut replies, true) == 0));
        replies.alone = true;
        replies.score = Replies::SURE;
        assert_eq!(looks(&mut replies, true), 0, "a lone processor");
    }
}
