//! The sockets of a tunnel without an interface, and the handshakes of one of ours, as the generator wants them.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::sys::mmsg::ReceiveBatch;
use crate::traffic::{Buffers, Conditions, Handshakes, Job, Outgoing, Port, Ports, TrafficError};
use crate::tunnel::{Direct, DirectArrived, DirectSocket, Shaker};

/// What a socket holds where the job does not say: the kernel's usual default (net.core.rmem_default).
const RECEIVE_BUFFER: usize = 212_992;

/// A tunnel without an interface, and its addresses.
pub(super) struct Inside {
    pub(super) direct: Arc<Direct>,
    pub(super) addresses: Vec<IpNet>,
}

impl Inside {
    /// Shakes hands with whoever has the address.
    pub(super) fn wake(&self, target: IpAddr) {
        let here = self.addresses.iter().find_map(|net| match (net.addr(), target) {
            (IpAddr::V4(here), IpAddr::V4(there)) => Some((here, there)),
            _ => None,
        });
        if let Some((here, there)) = here {
            self.direct.wake(here, there);
        }
    }
}

impl Handshakes for Shaker {
    fn shake(&self, time: Duration) -> Result<(Vec<u64>, u64), Box<dyn Error + Send + Sync>> {
        let seen = self.shake(time)?;
        Ok((seen.latencies_ns, seen.lost))
    }
}

/// All tunnels without an interface, by name. A job over several tunnels has sockets in each.
pub(super) struct Insides(pub(super) BTreeMap<String, Inside>);

impl Ports for Insides {
    fn open(&self, job: &Job, buffers: Buffers) -> Result<Box<dyn Port>, TrafficError> {
        let tunnel = job.local_interface.as_deref().unwrap_or_default();
        match self.0.get(tunnel) {
            Some(inside) => inside.open(job, buffers),
            None => Err(TrafficError::BadJob { reason: format!("`{tunnel}` is no tunnel without an interface") }),
        }
    }
}

impl Inside {
    fn open(&self, job: &Job, buffers: Buffers) -> Result<Box<dyn Port>, TrafficError> {
        let has = self.addresses.iter().any(|net| net.addr() == job.local);
        let local = match job.local {
            IpAddr::V4(local) if has => local,
            IpAddr::V4(_) | IpAddr::V6(_) => {
                let reason = format!("{} is no IPv4 address of tunnel {}", job.local, self.direct.name());
                return Err(TrafficError::BadJob { reason });
            }
        };
        let asked = buffers.receive.and_then(|bytes| usize::try_from(bytes.get()).ok());
        let socket = self.direct.socket(local, asked.unwrap_or(RECEIVE_BUFFER)).map_err(|source| {
            TrafficError::Socket { what: format!("opening a socket inside tunnel {}", self.direct.name()), source }
        })?;
        Ok(Box::new(socket))
    }
}

/// The address, if it can be one inside such a tunnel.
fn v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
    }
}

/// Copies what there is room for, and keeps who sent it.
fn copy<'b>(
    buffer: &'b mut [u8],
    from: &'b mut Option<(usize, SocketAddrV4)>,
) -> impl FnMut(DirectArrived<'_>) -> bool + 'b {
    move |arrived| {
        if from.is_some() {
            return false;
        }
        let fits = arrived.payload.len().min(buffer.len());
        buffer[..fits].copy_from_slice(&arrived.payload[..fits]);
        *from = Some((fits, arrived.from));
        true
    }
}

impl Port for DirectSocket {
    fn number(&self) -> io::Result<u16> {
        Ok(self.local().port())
    }

    fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.connect(v4(peer)?);
        Ok(())
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        let peer = self.peer().ok_or_else(|| io::Error::from_raw_os_error(libc::EDESTADDRREQ))?;
        self.send(peer, 1, |_| [datagram, &[]])
    }

    fn try_send(&self, datagram: &[u8]) -> io::Result<()> {
        Port::send(self, datagram)
    }

    fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        self.send(v4(to)?, 1, |_| [datagram, &[]])
    }

    fn send_batch(&self, batch: &mut Outgoing, packets: usize) -> io::Result<usize> {
        let peer = self.peer().ok_or_else(|| io::Error::from_raw_os_error(libc::EDESTADDRREQ))?;
        self.send(peer, packets, |index| [&batch.heads[index], batch.tail()])?;
        Ok(packets)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_from(buffer).map(|(length, _)| length)
    }

    fn receive_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut from = None;
        self.receive(copy(buffer, &mut from))?;
        from.map(|(length, from)| (length, from.into())).ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut from = None;
        self.try_receive(copy(buffer, &mut from))?;
        from.map(|(length, _)| length).ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn receive_batch(&self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        batch.clear();
        self.receive(|arrived| batch.push(arrived.payload, arrived.arrived_ns))
    }

    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.wait_at_most(time);
        Ok(())
    }

    fn stamp_arrivals(&self) -> io::Result<()> {
        self.stamp_arrivals();
        Ok(())
    }

    fn dropped(&self) -> io::Result<u32> {
        Ok(self.dropped())
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn conditions(&self, _job: &Job, _buffers: Buffers) -> Conditions {
        Conditions {
            local: Some(self.local().into()),
            peer: self.peer().map(SocketAddr::from),
            interface: Some(self.direct().name().to_owned()),
            interface_mtu: Some(u32::from(self.direct().mtu().get())),
            ..Conditions::default()
        }
    }
}
