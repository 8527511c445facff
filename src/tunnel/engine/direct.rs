//! `direct`: the embedded engine without a TUN device. Inner packets are made and consumed in this process.
//!
//! ```text
//! Socket::send --> headers, encrypt --> UDP batch -->           on the sender's own thread
//! Socket::receive <-- inbox <-- wg-lane-0: decrypt <-- UDP batch <--
//! ```
//!
//! Nothing of it needs privilege. What is left of a tunnel is the cipher and the underlay, so the difference to `embedded` is
//! the TUN device and the kernel's stack inside. Only UDP over IPv4 goes through it: it has no stack of its own.
//!
//! Threads: the engine's, of which the lane's carries only the way in; they end with the last socket and the tunnel.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::embedded::io::{KernelSockets, SocketFactory, TunDevice};
use super::embedded::{Engine, Outbound, Report};
use crate::tunnel::keys::PublicKey;
use crate::tunnel::status::Handshakes;
use crate::tunnel::uapi::{GetDevice, SetDevice};
use crate::tunnel::{TunnelError, TunnelSpec};
use crate::units::Mtu;

mod inbox;
mod socket;
mod turns;

pub use socket::{Arrived, Socket};

use inbox::Inboxes;
use turns::Turns;

/// Ports that are given to sockets, as the kernel's (net.ipv4.ip_local_port_range).
const FIRST_PORT: u16 = 32_768;

/// A tunnel without a device.
#[derive(Debug)]
pub struct Direct {
    interface: String,
    mtu: Mtu,
    engine: Engine,
    inboxes: Arc<Inboxes>,
    out: Turns<Outbound>,
    next_port: AtomicU16,
    /// Why the engine is dead, once it is.
    dead: OnceLock<String>,
}

impl Direct {
    /// Starts the engine that `spec` describes, on an outer socket of the kernel.
    pub(super) fn start(spec: &TunnelSpec) -> Result<Arc<Self>, TunnelError> {
        let sockets = KernelSockets {
            address: spec.pin.as_ref().map(|pin| pin.address),
            device: spec.pin.as_ref().map(|pin| pin.interface.clone()),
        };
        Self::on(spec, Box::new(sockets))
    }

    fn on(spec: &TunnelSpec, sockets: Box<dyn SocketFactory>) -> Result<Arc<Self>, TunnelError> {
        let failed = |source| TunnelError::System {
            action: format!("start the engine of {}", spec.interface),
            source,
            hint: "",
        };
        let inboxes = Arc::new(Inboxes::new().map_err(failed)?);
        let tun: Arc<dyn TunDevice> = Arc::<Inboxes>::clone(&inboxes);
        let engine = Engine::start(vec![tun], sockets, Vec::new(), Arc::new(|| ())).map_err(failed)?;
        let out = Outbound::new(engine.device(), 0).map_err(failed)?;
        Ok(Arc::new(Self {
            interface: spec.interface.clone(),
            mtu: spec.mtu,
            engine,
            inboxes,
            out: Turns::new(out),
            next_port: AtomicU16::new(FIRST_PORT),
            dead: OnceLock::new(),
        }))
    }

    /// The tunnel's name. There is no interface of this name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.interface
    }

    /// The longest inner packet.
    #[must_use]
    pub fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// A UDP socket at `address` on a free port, which holds up to `capacity` bytes that were not received yet.
    ///
    /// # Errors
    /// No port or no file descriptor is left.
    pub fn socket(self: &Arc<Self>, address: Ipv4Addr, capacity: usize) -> io::Result<Socket> {
        let count = u16::MAX - FIRST_PORT;
        for _ in 0..count {
            let next = self.next_port.fetch_add(1, Ordering::Relaxed);
            let local = SocketAddrV4::new(address, FIRST_PORT + next % count);
            if let Some(inbox) = self.inboxes.open(local, capacity)? {
                return Ok(Socket::new(Arc::clone(self), local, inbox));
            }
        }
        Err(io::Error::from_raw_os_error(libc::EADDRINUSE))
    }

    /// Sends one small datagram to nobody at `to`, so that the tunnel shakes hands.
    pub fn wake(&self, from: Ipv4Addr, to: Ipv4Addr) {
        const DISCARD: u16 = 9;
        // It fits into any MTU.
        let _sent = self.send(SocketAddrV4::new(from, DISCARD), SocketAddrV4::new(to, DISCARD), 1, |_| [&[0], &[]]);
    }

    /// Sends `packets` datagrams whose payloads have two parts each.
    fn send<'p>(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        packets: usize,
        parts: impl Fn(usize) -> [&'p [u8]; 2],
    ) -> io::Result<()> {
        let too_long = || io::Error::from_raw_os_error(libc::EMSGSIZE);
        self.out.with(|out| {
            for index in 0..packets {
                let [head, tail] = parts(index);
                let payload = head.len() + tail.len();
                let headers = crate::packet::ip::udp_ipv4(from, to, payload).ok_or_else(too_long)?;
                let len = headers.len() + payload;
                if len > usize::from(self.mtu.get()) {
                    return Err(too_long());
                }
                if out.space().is_none() {
                    out.send();
                }
                let Some(space) = out.space().and_then(|space| space.get_mut(..len)) else { return Err(too_long()) };
                let (into_headers, rest) = space.split_at_mut(headers.len());
                let (into_head, into_tail) = rest.split_at_mut(head.len());
                into_headers.copy_from_slice(&headers);
                into_head.copy_from_slice(head);
                into_tail.copy_from_slice(tail);
                out.commit(len);
            }
            out.send();
            Ok(())
        })
    }

    /// Configures it.
    pub(super) fn set(&self, request: &SetDevice) -> Result<(), TunnelError> {
        self.engine.device().set(request).map_err(|errno| TunnelError::System {
            action: format!("configure {}", self.interface),
            source: io::Error::from_raw_os_error(errno),
            hint: if errno == libc::EADDRINUSE { "end what uses its outer port" } else { "" },
        })
    }

    /// Its state, as the UAPI shows it, and what the engine tells beyond that.
    pub(super) fn get(&self) -> (GetDevice, Report) {
        let mut report = self.engine.device().report();
        let unclaimed = self.inboxes.unclaimed();
        if unclaimed > 0 {
            report.engine.counters.insert("drop.no-socket".to_owned(), unclaimed);
        }
        (self.engine.device().get(), report)
    }

    /// Makes new sessions with a peer for `time`.
    pub(super) fn handshakes(&self, key: &PublicKey, time: Duration) -> Result<Handshakes, TunnelError> {
        let failed = |source| TunnelError::System {
            action: format!("shake hands through {}", self.interface),
            source,
            hint: "",
        };
        let seen = self.engine.handshakes(key, time).map_err(failed)?;
        seen.ok_or_else(|| failed(io::Error::from_raw_os_error(libc::ENOENT)))
    }

    /// Why the engine is dead, if it is.
    pub(super) fn dead(&self) -> Option<String> {
        if let Some(end) = self.engine.ended() {
            let why = end.error.map_or_else(|| "without a reason".to_owned(), |error| error.to_string());
            let _told_already = self.dead.set(format!("ended: thread {} ended: {why}", end.thread));
        }
        self.dead.get().cloned()
    }
}

#[cfg(test)]
mod tests;
