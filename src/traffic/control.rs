//! What the threads of one job share: the gate that they wait at, its end, and the measured window.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::Socket;

use super::ports::{Port, Ports};
use super::{Buffers, Caution, Job, Outcome, TrafficError, Window};
use crate::sys::clock;

/// Every blocking call returns after this time at the latest, to look at [`Control`].
pub(super) const TICK: Duration = Duration::from_millis(50);

/// Joins the threads of a job and makes its outcome of what they saw.
pub(super) type Finish = Box<dyn FnOnce(&Control) -> Result<Outcome, TrafficError> + Send>;

/// Shared by the threads of one job.
pub(super) struct Control {
    gate: Mutex<Gate>,
    opened: Condvar,
    /// Set from outside, or by a thread that failed: everybody ends.
    stopped: AtomicBool,
    /// The measured part is over: who only helps (echo, watch) ends.
    finished: AtomicBool,
    prepared_ns: u64,
    /// Zero before the start.
    started_ns: AtomicU64,
    deadline: Duration,
    sockets: Mutex<Vec<Weak<Socket>>>,
    /// Packets and connections that did not belong to the job.
    pub(super) strangers: AtomicU64,
    /// The window that the job's threads share.
    pub(super) window: SharedWindow,
    ports: Arc<dyn Ports>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Closed,
    Open,
    Gone,
}

impl Control {
    pub(super) fn new(job: &Job, ports: Arc<dyn Ports>) -> Arc<Self> {
        Arc::new(Self {
            gate: Mutex::new(Gate::Closed),
            opened: Condvar::new(),
            stopped: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            prepared_ns: clock::now_ns(),
            started_ns: AtomicU64::new(0),
            deadline: job.deadline,
            sockets: Mutex::new(Vec::new()),
            strangers: AtomicU64::new(0),
            window: SharedWindow::new(job.warmup, job.duration),
            ports,
        })
    }

    /// Opens a UDP socket where the job's are.
    pub(super) fn udp(&self, job: &Job, buffers: Buffers) -> Result<Box<dyn Port>, TrafficError> {
        self.ports.open(job, buffers)
    }

    /// Opens the gate.
    pub(super) fn start(&self) {
        self.started_ns.store(clock::now_ns(), Ordering::Release);
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = Gate::Open;
        self.opened.notify_all();
    }

    /// Ends the job, started or not; blocked calls return.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if *gate == Gate::Closed {
            *gate = Gate::Gone;
        }
        drop(gate);
        self.opened.notify_all();
        self.wake();
    }

    /// The measured part is over.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
        // Taken once, so that nobody is between its look at the flag and its sleep.
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        self.opened.notify_all();
    }

    /// Sleeps until the job is finished, stopped or past its deadline, then wakes who still blocks on a socket. For jobs
    /// whose calls have no time-outs of their own.
    pub(super) fn guard(&self) {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.finished() && !self.stopped() {
            let left = self.deadline_ns().saturating_sub(clock::now_ns());
            if left == 0 {
                break;
            }
            let waited = self.opened.wait_timeout(gate, Duration::from_nanos(left));
            gate = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(gate);
        self.wake();
    }

    pub(super) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(super) fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// When the gate was opened.
    pub(super) fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Acquire)
    }

    /// When the job must be over.
    pub(super) fn deadline_ns(&self) -> u64 {
        self.started_ns().saturating_add(nanoseconds(self.deadline))
    }

    /// Since the start.
    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(clock::now_ns().saturating_sub(self.started_ns()))
    }

    /// Whether the job may go on waiting for `what`.
    pub(super) fn may_go_on(&self, what: impl Fn() -> String) -> Result<(), TrafficError> {
        if self.stopped() {
            return Err(TrafficError::Stopped { what: what() });
        }
        if clock::now_ns() >= self.deadline_ns() {
            return Err(TrafficError::Deadline { what: what(), deadline: self.deadline });
        }
        Ok(())
    }

    /// Lets `stop` and `wake` end the calls that block on `socket`.
    pub(super) fn watch(&self, socket: &Arc<Socket>) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(socket));
    }

    /// Makes the calls that block on the job's sockets return.
    pub(super) fn wake(&self) {
        for socket in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade) {
            // On an unconnected socket this says ENOTCONN, and wakes the receivers all the same
            // (net/ipv4/af_inet.c, inet_shutdown); a connection that is gone already needs no waking.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// The caution that packets or connections of others came.
    pub(super) fn strangers(&self) -> Option<Caution> {
        let count = self.strangers.load(Ordering::Relaxed);
        (count > 0).then_some(Caution::Strangers { count })
    }

    /// The window that `bounds` make, measured to its end.
    pub(super) fn whole_window(&self, bounds: Bounds) -> Window {
        Window {
            first_byte_after_ns: bounds.first_ns.saturating_sub(self.started_ns()),
            warmup_ns: bounds.begin_ns - bounds.first_ns,
            length_ns: bounds.end_ns - bounds.begin_ns,
        }
    }

    /// The error of an end that `what` never came to.
    pub(super) fn nothing_arrived(&self, what: impl Into<String>) -> TrafficError {
        TrafficError::NothingArrived { what: what.into(), waited: self.elapsed() }
    }

    fn wait_for_start(&self) -> Result<(), TrafficError> {
        let what = || "the start".to_owned();
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let give_up_ns = self.prepared_ns.saturating_add(nanoseconds(self.deadline));
        loop {
            match *gate {
                Gate::Open => return Ok(()),
                Gate::Gone => return Err(TrafficError::Stopped { what: what() }),
                Gate::Closed => {}
            }
            let left = give_up_ns.saturating_sub(clock::now_ns());
            if left == 0 {
                return Err(TrafficError::Deadline { what: what(), deadline: self.deadline });
            }
            let waited = self.opened.wait_timeout(gate, Duration::from_nanos(left));
            gate = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A named thread of a job.
pub(super) struct Worker<T> {
    name: String,
    thread: JoinHandle<Result<T, TrafficError>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts a thread that waits at the gate, then works. If it fails, the whole job is stopped.
    pub(super) fn spawn(
        control: &Arc<Control>,
        name: impl Into<String>,
        work: impl FnOnce(&Control) -> Result<T, TrafficError> + Send + 'static,
    ) -> Result<Self, TrafficError> {
        let (name, control) = (name.into(), Arc::clone(control));
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            let result = control.wait_for_start().and_then(|()| work(&control));
            if result.is_err() {
                control.stop();
            }
            result
        });
        match thread {
            Ok(thread) => Ok(Self { name, thread }),
            Err(source) => Err(TrafficError::Socket { what: format!("starting thread {name}"), source }),
        }
    }

    pub(super) fn join(self) -> Result<T, TrafficError> {
        let Self { name, thread } = self;
        thread.join().unwrap_or(Err(TrafficError::Panicked { thread: name }))
    }
}

/// Joins all of `workers`. Of several errors the first that is not just "stopped" is told, since one failure stops the
/// others.
pub(super) fn join_all<T: Send + 'static>(workers: Vec<Worker<T>>) -> Result<Vec<T>, TrafficError> {
    let mut results = Vec::with_capacity(workers.len());
    let mut failure: Option<TrafficError> = None;
    for worker in workers {
        match worker.join() {
            Ok(result) => results.push(result),
            Err(error) => failure = Some(graver(failure, error)),
        }
    }
    failure.map_or(Ok(results), Err)
}

/// The error that explains more.
fn graver(first: Option<TrafficError>, second: TrafficError) -> TrafficError {
    match first {
        None | Some(TrafficError::Stopped { .. }) => second,
        Some(first) => first,
    }
}

/// Joins `left` with `right`, telling the graver error of both.
pub(super) fn both<A, B>(
    left: Result<A, TrafficError>,
    right: Result<B, TrafficError>,
) -> Result<(A, B), TrafficError> {
    match (left, right) {
        (Ok(left), Ok(right)) => Ok((left, right)),
        (Err(left), Err(right)) => Err(graver(Some(left), right)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The measured window, opened by the first byte of any stream.
pub(super) struct SharedWindow {
    /// Zero before the first byte.
    first_ns: AtomicU64,
    warmup_ns: u64,
    duration_ns: u64,
}

/// The window's times, by the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) first_ns: u64,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

impl Bounds {
    pub(super) fn contains(&self, at_ns: u64) -> bool {
        (self.begin_ns..self.end_ns).contains(&at_ns)
    }
}

impl SharedWindow {
    fn new(warmup: Duration, duration: Duration) -> Self {
        Self { first_ns: AtomicU64::new(0), warmup_ns: nanoseconds(warmup), duration_ns: nanoseconds(duration) }
    }

    /// The window's times; the first call sets them.
    pub(super) fn open(&self, now_ns: u64) -> Bounds {
        let first = match self.first_ns.compare_exchange(0, now_ns, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => now_ns,
            Err(first) => first,
        };
        self.bounds_of(first)
    }

    /// The window's times, if there was a first byte.
    pub(super) fn bounds(&self) -> Option<Bounds> {
        match self.first_ns.load(Ordering::Acquire) {
            0 => None,
            first => Some(self.bounds_of(first)),
        }
    }

    fn bounds_of(&self, first_ns: u64) -> Bounds {
        let begin_ns = first_ns + self.warmup_ns;
        Bounds { first_ns, begin_ns, end_ns: begin_ns + self.duration_ns }
    }
}

/// Whole nanoseconds; 584 years at most.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
