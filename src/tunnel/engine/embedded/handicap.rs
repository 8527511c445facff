//! A slower engine on purpose: whoever trusts a gate wants to see it fail first.
//!
//! Around the device and the socket, so that nothing of the engine knows of it: before each read, the thread that reads is
//! kept busy for a share of the processor time that it has spent since the read before. Waiting takes no processor time, so an
//! idle engine stays idle.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::io::{OuterSocket, SocketFactory, TunBatch, TunDevice};
use crate::sys::tun::TunOffloads;
use crate::sys::udp::{NetworkError, ReceiveBatch, SendScratch, Transmit, UdpGranted};
use crate::units::Ratio;

/// What keeps one reading thread busy.
#[derive(Debug)]
struct Treadmill {
    share: Ratio,
    /// Who was let go last, and its processor time then, in nanoseconds. A lane hands the way out from thread to thread, whose
    /// processor times have nothing to do with each other.
    let_go: Mutex<Option<(ThreadId, i64)>>,
}

impl Treadmill {
    fn new(share: Ratio) -> Self {
        Self { share, let_go: Mutex::default() }
    }

    fn run(&self) -> io::Result<()> {
        let mut let_go = self.let_go.lock().unwrap_or_else(PoisonError::into_inner);
        let (me, begin) = (thread::current().id(), worked()?);
        let last = let_go.filter(|(who, _)| *who == me).map_or(begin, |(_, time)| time);
        let debt = Duration::from_nanos(begin.saturating_sub(last).unsigned_abs()).mul_f64(self.share.fraction());
        let mut now = begin;
        while Duration::from_nanos(now.saturating_sub(begin).unsigned_abs()) < debt {
            std::hint::spin_loop();
            now = worked()?;
        }
        *let_go = Some((me, now));
        Ok(())
    }
}

/// This thread's processor time in nanoseconds.
fn worked() -> io::Result<i64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// A device whose reader is slowed down.
pub(super) struct SlowTun(Arc<dyn TunDevice>, Treadmill);

impl SlowTun {
    pub(super) fn new(tun: Arc<dyn TunDevice>, share: Ratio) -> Self {
        Self(tun, Treadmill::new(share))
    }
}

impl TunDevice for SlowTun {
    fn read(&self, batch: &mut TunBatch) -> io::Result<()> {
        self.1.run()?;
        self.0.read(batch)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write(parts)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.0.readiness()
    }

    fn vnet_hdr(&self) -> bool {
        self.0.vnet_hdr()
    }

    fn offloads(&self) -> TunOffloads {
        self.0.offloads()
    }
}

/// Makes sockets whose readers are slowed down.
pub(super) struct SlowSockets<F>(pub(super) F, pub(super) Ratio);

impl<F: SocketFactory> SocketFactory for SlowSockets<F> {
    fn bind(&self, port: u16, fwmark: Option<u32>, count: usize) -> io::Result<Vec<Arc<dyn OuterSocket>>> {
        let slow = |socket| Arc::new(SlowSocket(socket, Treadmill::new(self.1))) as Arc<dyn OuterSocket>;
        Ok(self.0.bind(port, fwmark, count)?.into_iter().map(slow).collect())
    }
}

struct SlowSocket(Arc<dyn OuterSocket>, Treadmill);

impl OuterSocket for SlowSocket {
    fn send(&self, buffer: &[u8], transmits: &[Transmit], scratch: &mut SendScratch) -> io::Result<usize> {
        self.0.send(buffer, transmits, scratch)
    }

    fn receive(&self, batch: &mut ReceiveBatch) -> io::Result<()> {
        self.1.run()?;
        self.0.receive(batch)
    }

    fn take_network_error(&self) -> io::Result<Option<NetworkError>> {
        self.0.take_network_error()
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.0.readiness()
    }

    fn granted(&self) -> UdpGranted {
        self.0.granted()
    }

    fn port(&self) -> io::Result<u16> {
        self.0.port()
    }

    fn set_mark(&self, mark: u32) -> io::Result<()> {
        self.0.set_mark(mark)
    }

    fn dropped(&self) -> io::Result<u64> {
        self.0.dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work_until(nanoseconds: i64) {
        while worked().unwrap() < nanoseconds {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_reader_pays_its_share_of_what_it_worked_and_nothing_for_what_it_waited() {
        let treadmill = Treadmill::new("50%".parse().unwrap());
        treadmill.run().unwrap();
        let begin = worked().unwrap();
        work_until(begin + 4_000_000);
        let worked_so_far = worked().unwrap();
        treadmill.run().unwrap();
        assert!(worked().unwrap() - worked_so_far >= 2_000_000);

        // Asleep for a hundred times as long: next to nothing is owed. In processor time, so that other load is no matter.
        let before = worked().unwrap();
        thread::sleep(Duration::from_millis(200));
        treadmill.run().unwrap();
        assert!(worked().unwrap() - before < 50_000_000);
    }

    /// A lane hands the way out from one thread to the other: their processor times have nothing to do with each other.
    #[test]
    fn another_thread_owes_nothing_for_what_the_one_before_it_worked() {
        let treadmill = Arc::new(Treadmill::new("50%".parse().unwrap()));
        work_until(worked().unwrap() + 200_000_000);
        treadmill.run().unwrap();
        let other = thread::spawn(move || {
            let before = worked().unwrap();
            treadmill.run().unwrap();
            worked().unwrap() - before
        });
        let paid = other.join().unwrap();
        assert!(paid < 20_000_000, "a thread that did nothing was kept busy for {paid} ns");
    }
}
