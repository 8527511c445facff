//! A lane: one queue of the device and one socket of the port.
//!
//! ```text
//! at rest                       under load
//! wg-lane-N: both directions    wg-lane-N: socket -> device     wg-out-N: device -> socket
//! ```
//!
//! At rest one thread carries both directions: a lone packet and its answer find warm caches, and one processor less has to be
//! woken for them; it waits awake for answers that have been coming at once ([`super::replies`]). As soon as packets come in
//! numbers, the way out goes to a thread of its own, until none have for [`LULL`]. Packets that come one at a time are no load,
//! however steadily they come: a flow of requests and answers that follows on a stream would keep the second thread for good.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::counters::Event;
use super::device::Device;
use super::handshake::Message;
use super::inbound::Inbound;
use super::io::Wake;
use super::outbound::Outbound;
use super::replies::{Direction, Replies};
use super::turn::Turn;

/// The way out comes back to the lane's thread after there was no load in either direction for this long.
const LULL: Duration = Duration::from_millis(10);
/// A device or socket that fails to be read is tried again after this.
const RETRY: Duration = Duration::from_millis(10);

/// What the two threads of a lane tell each other.
#[derive(Default)]
pub(super) struct Handover {
    /// Where the way out is while neither works on it.
    place: Mutex<Place>,
    /// Packets came in in numbers since the helper looked.
    load_came_in: AtomicBool,
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
    let note = |replies: &mut Replies, direction: Direction, turn: Turn| {
        let awake = replies.carried(direction, turn, Instant::now());
        device.counters.add(Event::AnswersAwake, usize::from(awake));
    };
    let mut more_comes_in = false;
    while !device.stopping() {
        if outbound.is_none() && tun.is_read() {
            outbound = handover.for_lane();
        }
        // The configuration may have given the device another one.
        let socket = device.socket(number);
        let (at_socket, at_tun) = if more_comes_in && outbound.is_none() && socket.is_some() {
            (true, false)
        } else {
            let awake = outbound.is_some() && replies.awake(Instant::now());
            let (udp, tun) = (socket.as_ref().map(|it| it.readiness()), outbound.as_ref().map(|_| tun.readiness()));
            let found = ready(wake, udp, tun, if awake { PollTimeout::ZERO } else { PollTimeout::NONE })?;
            if awake && found == (false, false) {
                // Who is to answer may be waiting for this very processor.
                thread::yield_now();
                continue;
            }
            found
        };
        let mut out = Turn::default();
        if at_tun && let Some(outbound) = &mut outbound {
            out = outbound.turn()?;
            note(&mut replies, Direction::Out, out);
        }
        let mut incoming = Turn::default();
        if at_socket && let Some(socket) = &socket {
            incoming = inbound.turn(&**socket);
            // Under load the answers are not seen here.
            if outbound.is_some() {
                note(&mut replies, Direction::In, incoming);
            }
        }
        more_comes_in = incoming.more;
        if incoming.loaded() && outbound.is_none() {
            handover.load_came_in.store(true, Ordering::Relaxed);
        }
        // What only comes in needs no second thread, and its answers at most one.
        if (out.loaded() || incoming.blocked || (incoming.loaded() && out.packets > 0))
            && let Some(mut outbound) = outbound.take()
        {
            outbound.set_patient(true);
            replies.forget_last();
            handover.put(Place::ForHelper(outbound));
            device.counters.add(Event::Handovers, 1);
            device.wakes.helpers[number].signal();
        }
        if incoming.blocked {
            wake.wait(None, false, Some(RETRY))?;
        }
    }
    Ok(())
}

/// Waits until the socket or the device is ready, for the wake, or until the time is over, and says which of the two are.
fn ready(
    wake: &Wake,
    socket: Option<BorrowedFd<'_>>,
    tun: Option<BorrowedFd<'_>>,
    time: PollTimeout,
) -> io::Result<(bool, bool)> {
    let mut fds = [wake.as_fd(); 3].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let (mut count, mut places) = (1, [None; 2]);
    for (place, fd) in places.iter_mut().zip([socket, tun]) {
        if let Some(fd) = fd {
            fds[count] = PollFd::new(fd, PollFlags::POLLIN);
            *place = Some(count);
            count += 1;
        }
    }
    match poll(&mut fds[..count], time) {
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
            if turn.loaded() || handover.load_came_in.swap(false, Ordering::Relaxed) {
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
