//! The agent at work.
//!
//! Threads: `main` holds all state and starts every daemon (their parent-death signal follows it), `agent-read` takes frames
//! off standard input, `agent-job` waits for the job at work. The latter two only send events.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{self, Decoder, FrameError, MAGIC};
use super::messages::{Around, Ask, Assignment, Hello, JobKind, JobOutcome, PROTOCOL, Role, Status, Tell};
use crate::host;
use crate::text::with_causes as causes;
use crate::traffic::meters::{Meters, Snapshot};
use crate::traffic::{self, Outcome, Prepared, StopHandle, TrafficError};
use node::Node;

mod calibrate;
mod inside;
mod node;

/// Why an agent ends before its conductor wants it to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Standard input is not what an agent reads.
    #[error("standard input does not carry a conductor's messages: {0}; `wglab agent` is started by a conductor")]
    Frame(#[from] FrameError),
    /// What was changed on this host could not all be undone.
    #[error("this host is not as it was: {0}")]
    NotUndone(String),
    /// Standard input or output broke.
    #[error("the pipe to the conductor broke: {0}")]
    Pipe(#[from] io::Error),
}

/// What the main thread waits for.
enum Event {
    Asked(Ask),
    Broken(AgentError),
    Closed,
    Finished(Box<Result<Outcome, TrafficError>>),
}

/// The job, if there is one.
enum Work {
    Idle,
    Prepared(Box<Prepared>, Through),
    Running { stop: StopHandle, before: Box<Readings>, thread: thread::JoinHandle<()>, through: Through },
}

/// The interface that a job is bound to: a tunnel's or an underlay's.
type Through = Option<String>;

/// What is read before and after a job.
struct Readings {
    meters: Snapshot,
    tunnels: BTreeMap<String, Status>,
    /// Tunnels that could not be read, with the reason.
    lost: BTreeMap<String, String>,
}

/// Serves one conductor on standard input and output until the pipe ends, then tears everything down.
///
/// # Errors
/// The pipe carries something else, or breaks.
pub fn serve() -> Result<(), AgentError> {
    let mut output = io::stdout();
    output.write_all(MAGIC)?;
    output.flush()?;
    let (events, inbox) = channel();
    let reader = events.clone();
    thread::Builder::new().name("agent-read".to_owned()).spawn(move || read(&reader))?;
    let mut agent = Agent { node: Node::default(), work: Work::Idle, last_through: BTreeSet::new(), events };
    let end = agent.converse(&inbox, &mut output);
    agent.drop_work();
    agent.node.clear().map_err(|error| AgentError::NotUndone(error.to_string()))?;
    end
}

/// Frames from standard input, one event each.
fn read(events: &Sender<Event>) {
    let mut input = io::stdin().lock();
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let event = match decoder.message::<Ask>() {
            Ok(Some(ask)) => Event::Asked(ask),
            Err(error) => Event::Broken(error.into()),
            Ok(None) => match input.read(&mut buffer) {
                Ok(0) => Event::Closed,
                Ok(read) => {
                    decoder.push(&buffer[..read]);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Event::Broken(error.into()),
            },
        };
        let last = !matches!(event, Event::Asked(_));
        if events.send(event).is_err() || last {
            return;
        }
    }
}

struct Agent {
    node: Node,
    work: Work,
    /// The interfaces that the last job went through.
    last_through: BTreeSet<String>,
    events: Sender<Event>,
}

impl Agent {
    fn converse(&mut self, inbox: &Receiver<Event>, output: &mut impl Write) -> Result<(), AgentError> {
        // The agent itself holds a sender, so the channel does not end before an event says so.
        while let Ok(event) = inbox.recv() {
            let told = match event {
                Event::Asked(ask) => self.answer(ask),
                Event::Finished(result) => Some(self.finished(*result)),
                Event::Closed => return Ok(()),
                Event::Broken(error) => return Err(error),
            };
            if let Some(told) = told {
                output.write_all(&frame::encode(&told)?)?;
                output.flush()?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, ask: Ask) -> Option<Tell> {
        Some(match ask {
            Ask::Hello { .. } => Tell::Hello(Hello {
                protocol: PROTOCOL,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
            }),
            Ask::Probe => Tell::Facts(Box::new(host::facts())),
            Ask::Calibrate => calibrate::calibrate().map_or_else(|error| failed(&error), Tell::Calibration),
            Ask::Apply(state) => self.node.apply(&state).map_or_else(|error| failed(&error), Tell::Applied),
            Ask::Wake { targets } => match self.wake(&targets) {
                Ok(()) => Tell::Done,
                Err(error) => failed(&error),
            },
            Ask::Status => {
                let (known, mut lost) = self.tunnels(|_| true);
                match lost.pop_first() {
                    Some((_, what)) => Tell::Failed { what },
                    None => Tell::Status(known),
                }
            }
            Ask::Deaths => Tell::Deaths(self.node.deaths()),
            Ask::Prepare(assignment) => self.prepare(&assignment),
            Ask::Start => return self.start(),
            Ask::Stop => match &self.work {
                Work::Running { stop, .. } => {
                    stop.stop();
                    return None;
                }
                Work::Idle | Work::Prepared(..) => {
                    self.work = Work::Idle;
                    Tell::Done
                }
            },
        })
    }

    /// One datagram to each address: its content and port do not matter, the tunnel only needs something to carry.
    fn wake(&self, targets: &[IpAddr]) -> io::Result<()> {
        const DISCARD: u16 = 9;
        for target in targets {
            if let Some(inside) = self.node.inside_towards(*target) {
                inside.wake(*target);
                continue;
            }
            let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            UdpSocket::bind(any)?.send_to(&[0], SocketAddr::new(*target, DISCARD))?;
        }
        Ok(())
    }

    fn prepare(&mut self, assignment: &Assignment) -> Tell {
        if matches!(self.work, Work::Running { .. }) {
            return Tell::Failed { what: "a job is at work; stop it before preparing another".to_owned() };
        }
        let through = assignment.job.local_interface.clone();
        self.let_tunnels_rest();
        self.last_through = assignment.job.interfaces().cloned().collect();
        let job = &assignment.job;
        let tunnel = job.local_interface.as_deref();
        let insides = self.node.insides();
        let is_inside = tunnel.is_some_and(|tunnel| insides.0.contains_key(tunnel));
        let shaker = match (job.role, &job.kind, &job.peer) {
            (Role::Client, JobKind::Handshake, Some((peer, _))) => {
                tunnel.and_then(|tunnel| self.node.shaker(tunnel, *peer))
            }
            _ => None,
        };
        let prepared = match shaker {
            Some(shaker) => traffic::prepare_handshakes(job, Arc::new(shaker)),
            // The kernel has no way into a tunnel without an interface.
            None if is_inside => traffic::prepare_inside(job, Arc::new(insides)),
            None => traffic::prepare(job),
        };
        match prepared {
            Ok(prepared) => {
                let ports = prepared.ports();
                self.work = Work::Prepared(Box::new(prepared), through);
                Tell::Ready { ports }
            }
            Err(error) => self.failed_through(&error, through.as_deref()),
        }
    }

    /// What the job before has left in the queues of its tunnels arrives before this one begins: also in the same tunnel, whose
    /// engine would count later what the underlay has counted already. What does not come to rest is left to the proof, which
    /// sees it.
    fn let_tunnels_rest(&mut self) {
        /// Longer than the queues of a lab hold back a part of what is in them; a slow or long path may hold it for longer.
        const PAUSE: Duration = Duration::from_millis(5);
        const LONGEST: Duration = Duration::from_millis(500);
        let begin = Instant::now();
        let mut carried = BTreeMap::new();
        while !self.last_through.is_empty()
            && self.node.is_busy(&self.last_through, &mut carried)
            && begin.elapsed() < LONGEST
        {
            thread::sleep(PAUSE);
        }
    }

    /// A job failed. If the engine behind its interface did, that is the reason, and its last lines say more.
    fn failed_through(&mut self, error: &(dyn Error + 'static), through: Option<&str>) -> Tell {
        let what = causes(error);
        match through.and_then(|interface| self.node.death_of(interface)) {
            Some(death) => Tell::Failed { what: format!("{what}: {}", causes(&death)) },
            None => Tell::Failed { what },
        }
    }

    fn start(&mut self) -> Option<Tell> {
        let Work::Prepared(prepared, through) = std::mem::replace(&mut self.work, Work::Idle) else {
            return Some(Tell::Failed { what: "there is no prepared job to start".to_owned() });
        };
        let before = match self.readings_before(through.as_deref()) {
            Ok(before) => before,
            Err(what) => return Some(Tell::Failed { what }),
        };
        let running = prepared.start();
        let stop = running.stop_handle();
        let events = self.events.clone();
        let wait = move || {
            // The main thread is gone when nobody receives this, and then nobody wants it.
            let _unwanted = events.send(Event::Finished(Box::new(running.wait())));
        };
        match thread::Builder::new().name("agent-job".to_owned()).spawn(wait) {
            Ok(thread) => {
                self.work = Work::Running { stop, before: Box::new(before), thread, through };
                None
            }
            Err(error) => Some(failed(&error)),
        }
    }

    fn finished(&mut self, result: Result<Outcome, TrafficError>) -> Tell {
        let Work::Running { before, thread, through, .. } = std::mem::replace(&mut self.work, Work::Idle) else {
            return Tell::Failed { what: "a job ended that was not at work".to_owned() };
        };
        if thread.join().is_err() {
            return Tell::Failed { what: "the thread that waits for the job panicked".to_owned() };
        }
        let traffic = match result {
            Ok(traffic) => traffic,
            Err(error) => return self.failed_through(&error, through.as_deref()),
        };
        let after = match self.readings_after(through.as_deref()) {
            Ok(after) => after,
            Err(what) => return Tell::Failed { what },
        };
        let mut later = after.tunnels;
        let tunnels = before
            .tunnels
            .into_iter()
            .filter_map(|(interface, before)| {
                let after = later.remove(&interface)?;
                Some((interface, Around { before, after }))
            })
            .collect();
        let meters = before.meters.delta(&after.meters);
        let lost = before.lost.into_iter().chain(after.lost).collect();
        Tell::Outcome(Box::new(JobOutcome { traffic, meters, tunnels, lost }))
    }

    /// Before a job the host's meters are read first, after it last: what the end of another job still brings in must not
    /// be a tunnel's and not the interface's that carried it.
    fn readings_before(&mut self, through: Option<&str>) -> Result<Readings, String> {
        let (known, mut lost) = self.tunnels(|interface| Some(interface) == through);
        // Then the job has nothing to go through.
        if let Some(why) = through.and_then(|interface| lost.remove(interface)) {
            return Err(why);
        }
        let meters = self.meters(&known)?;
        let (tunnels, lost) = self.tunnels(|_| false);
        Ok(Readings { meters, tunnels, lost })
    }

    fn readings_after(&mut self, through: Option<&str>) -> Result<Readings, String> {
        let (tunnels, lost) = self.tunnels(|interface| Some(interface) == through);
        Ok(Readings { meters: self.meters(&tunnels)?, tunnels, lost })
    }

    /// The tunnels that could be read, and why others could not.
    fn tunnels(&mut self, again: impl Fn(&str) -> bool) -> (BTreeMap<String, Status>, BTreeMap<String, String>) {
        let (mut known, mut lost) = (BTreeMap::new(), BTreeMap::new());
        for (interface, status) in self.node.statuses(again) {
            match status {
                Ok(status) => drop(known.insert(interface, status)),
                Err(why) => drop(lost.insert(interface, why)),
            }
        }
        (known, lost)
    }

    fn meters(&mut self, tunnels: &BTreeMap<String, Status>) -> Result<Snapshot, String> {
        let processes = tunnels.values().filter_map(|status| status.process.as_ref());
        let pids: Vec<i32> = processes.filter_map(|process| i32::try_from(process.pid).ok()).collect();
        let interfaces = self.node.interface_names().map_err(|error| causes(&error))?;
        Ok(Meters::read(&interfaces, &pids))
    }

    fn drop_work(&mut self) {
        if let Work::Running { stop, thread, .. } = std::mem::replace(&mut self.work, Work::Idle) {
            stop.stop();
            // A panic of a thread that is being ended changes nothing any more.
            let _ended = thread.join();
        }
    }
}

fn failed(error: &(dyn Error + 'static)) -> Tell {
    Tell::Failed { what: causes(error) }
}
