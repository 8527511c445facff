//! A UDP socket inside a tunnel that has no interface.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::Direct;
pub use super::inbox::Arrived;
use super::inbox::Inbox;

/// A UDP socket. Dropping it frees its port.
#[derive(Debug)]
pub struct Socket {
    direct: Arc<Direct>,
    local: SocketAddrV4,
    inbox: Arc<Inbox>,
    /// How long receiving waits, in nanoseconds.
    patience_ns: AtomicU64,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.direct.inboxes.close(self.local);
    }
}

impl AsFd for Socket {
    /// Readable while there is something to receive.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.readable.as_fd()
    }
}

impl Socket {
    pub(super) fn new(direct: Arc<Direct>, local: SocketAddrV4, inbox: Arc<Inbox>) -> Self {
        Self { direct, local, inbox, patience_ns: AtomicU64::new(u64::MAX) }
    }

    /// The tunnel that it is in.
    #[must_use]
    pub fn direct(&self) -> &Direct {
        &self.direct
    }

    /// Its address and port.
    #[must_use]
    pub fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// Whom it is connected to.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddrV4> {
        self.inbox.lock().peer
    }

    /// Takes datagrams of `peer` alone from now on.
    pub fn connect(&self, peer: SocketAddrV4) {
        self.inbox.lock().peer = Some(peer);
    }

    /// Has arrivals noted from now on.
    pub fn stamp_arrivals(&self) {
        self.inbox.lock().stamps = true;
    }

    /// Datagrams that came and did not fit. It may wrap around.
    #[must_use]
    pub fn dropped(&self) -> u32 {
        self.inbox.lock().dropped
    }

    /// How long receiving waits.
    pub fn wait_at_most(&self, time: Duration) {
        self.patience_ns.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Encrypts and sends `packets` datagrams, whose payloads have two parts each.
    ///
    /// # Errors
    /// `EMSGSIZE`: one is longer than the tunnel's MTU, and what came after it did not go either. What the tunnel loses later,
    /// it counts.
    pub fn send<'p>(&self, to: SocketAddrV4, packets: usize, parts: impl Fn(usize) -> [&'p [u8]; 2]) -> io::Result<()> {
        self.direct.send(self.local, to, packets, parts)
    }

    /// Gives what is there to `each` until it wants no more; what it did not take (`false`) stays. Tells how many went.
    ///
    /// # Errors
    /// `WouldBlock`: nothing is there.
    pub fn try_receive(&self, each: impl FnMut(Arrived<'_>) -> bool) -> io::Result<usize> {
        match self.inbox.take(each) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// The same, after waiting for the first one.
    ///
    /// # Errors
    /// `WouldBlock`: nothing came in time.
    pub fn receive(&self, mut each: impl FnMut(Arrived<'_>) -> bool) -> io::Result<usize> {
        let patience = Duration::from_nanos(self.patience_ns.load(Ordering::Relaxed));
        let mut begin = None;
        loop {
            let taken = self.inbox.take(&mut each);
            if taken > 0 {
                return Ok(taken);
            }
            let left = patience.saturating_sub(begin.get_or_insert_with(Instant::now).elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            let left = TimeSpec::new(seconds, i64::from(left.subsec_nanos()));
            match ppoll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], Some(left), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
