//! The embedded engine: boringtun's protocol state, our batches around it.
//!
//! ```text
//!            TUN device                                          outer socket
//! kernel --> super-packet --> way out: split, encrypt    --> UDP batch -->
//!        <-- super-packet <-- way in:  decrypt, coalesce <-- UDP batch <--
//!                             wg-handshakes <-- handshake messages
//!                             wg-timers, wg-uapi
//! ```
//!
//! Threads, all owned by [`Engine`] and ended by its stop: `wg-lane-N` and `wg-out-N` for each lane, `wg-handshakes`,
//! `wg-timers`. A lane is a queue of the device with a socket of the port; the kernel keeps a flow in one queue and a sender
//! at one socket, so lanes carry peers in parallel and reorder no flow. There is no thread per peer. A peer's protocol
//! state stands behind one lock, taken once per batch; peers do not share one. The first thread that ends, for whatever
//! reason, ends the engine.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tunnel::keys::PublicKey;
use crate::tunnel::status::{EngineStatus, HandshakeCounters, Handshakes};

mod batch;
mod control;
pub mod counters;
mod device;
pub mod fakes;
mod handicap;
mod handshake;
mod inbound;
pub mod io;
mod lane;
mod outbound;
mod peer;
mod replies;
pub mod routes;
pub mod serve;
mod timers;
mod turn;

use lane::Handover;

pub use device::Device;
pub(super) use outbound::Outbound;

/// The answer to the engine's own `status` request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// The device's part.
    pub engine: EngineStatus,
    /// The peers' part.
    pub handshakes: BTreeMap<PublicKey, HandshakeCounters>,
}

/// A running engine. Dropping it ends its threads and waits for them.
#[derive(Debug)]
pub struct Engine {
    device: Arc<Device>,
    threads: Vec<JoinHandle<()>>,
    ends: Mutex<Receiver<End>>,
}

/// How a thread ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) thread: String,
    /// `None`: it was told to.
    pub(crate) error: Option<std::io::Error>,
}

/// Tells the owner that a thread ended, also when it panicked.
struct Farewell {
    thread: String,
    error: Option<std::io::Error>,
    ends: Sender<End>,
    on_end: Arc<dyn Fn() + Send + Sync>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let error = self
            .error
            .take()
            .or_else(|| thread::panicking().then(|| std::io::Error::other("it panicked; the lines above say where")));
        let _owner_gone = self.ends.send(End { thread: std::mem::take(&mut self.thread), error });
        (self.on_end)();
    }
}

impl Engine {
    /// Starts the threads, for as many lanes as `tuns` has queues. `on_end` is called by each thread when it ends.
    ///
    /// # Errors
    /// A file descriptor or a thread could not be had.
    pub fn start(
        tuns: Vec<Arc<dyn io::TunDevice>>,
        sockets: Box<dyn io::SocketFactory>,
        offload_notes: Vec<String>,
        on_end: Arc<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<Self> {
        let device = Arc::new(Device::new(tuns, sockets, offload_notes)?);
        let (ends_sender, ends) = channel();
        let (handshakes, queue) = sync_channel(handshake::QUEUE);
        let mut engine = Self { device: Arc::clone(&device), threads: Vec::new(), ends: Mutex::new(ends) };
        type Body = Box<dyn FnOnce(&Arc<Device>) -> std::io::Result<()> + Send>;
        let mut bodies: Vec<(String, Body)> = vec![
            ("wg-handshakes".to_owned(), Box::new(move |device| handshake::run(device, &queue))),
            ("wg-timers".to_owned(), Box::new(|device| timers::run(device))),
        ];
        for number in 0..device.tuns.len() {
            let (handshakes, handover) = (handshakes.clone(), Arc::new(Handover::default()));
            if device.tuns[number].is_read() {
                let handover = Arc::clone(&handover);
                bodies
                    .push((format!("wg-out-{number}"), Box::new(move |device| lane::help(device, number, &handover))));
            }
            let body = move |device: &Arc<Device>| lane::run(device, number, handshakes, &handover);
            bodies.push((format!("wg-lane-{number}"), Box::new(body)));
        }
        drop(handshakes);
        for (name, body) in bodies {
            let device = Arc::clone(&device);
            let mut farewell =
                Farewell { thread: name.clone(), error: None, ends: ends_sender.clone(), on_end: Arc::clone(&on_end) };
            let spawned = thread::Builder::new().name(name).spawn(move || {
                farewell.error = body(&device).err();
                drop(farewell);
            });
            // On failure the engine is dropped, and with it the threads that did start.
            engine.threads.push(spawned?);
        }
        Ok(engine)
    }

    /// The device, to configure and to look at.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Makes new sessions with a peer for `time`, one after the other; `None` where there is no such peer.
    pub(in crate::tunnel) fn handshakes(&self, key: &PublicKey, time: Duration) -> std::io::Result<Option<Handshakes>> {
        handshake::measure(&self.device, key, time)
    }

    /// The first thread that ended, if one did.
    pub(crate) fn ended(&self) -> Option<End> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }

    /// Ends the threads and waits for them.
    pub fn stop(self) {}
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.device.stop();
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

/// A line for the log, which is standard error: its reader is the parent process.
fn log(line: &str) {
    use std::io::Write as _;
    let _nobody_reads = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests;
