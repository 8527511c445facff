//! The UDP sockets of a job: the kernel's, or those of a tunnel that has no interface.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::sys::socket::MsgFlags;
use socket2::SockRef;

use super::TrafficError;
use super::datagram::HEADER;
use super::job::{Buffers, Job};
use super::outcome::Conditions;
use super::sockets::{self, failed};
use crate::sys::mmsg::{self, ReceiveBatch, SendBatch};
use crate::sys::socket;

/// Datagrams to send: each with the generator's head, all with one tail.
pub type Outgoing = SendBatch<HEADER>;

/// A UDP socket, as far as tests need one. Errors are what the kernel's would be: `WouldBlock` where nothing came in time.
pub trait Port: Send + Sync {
    /// The port that it is bound to.
    ///
    /// # Errors
    /// The kernel's.
    fn number(&self) -> io::Result<u16>;

    /// Sends to `peer` from now on, and takes datagrams of nobody else.
    ///
    /// # Errors
    /// The kernel's.
    fn connect(&self, peer: SocketAddr) -> io::Result<()>;

    /// Sends one datagram to the peer that it is connected to.
    ///
    /// # Errors
    /// The kernel's.
    fn send(&self, datagram: &[u8]) -> io::Result<()>;

    /// The same, without waiting for room.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` where there is no room.
    fn try_send(&self, datagram: &[u8]) -> io::Result<()>;

    /// Sends one datagram to anybody.
    ///
    /// # Errors
    /// The kernel's.
    fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()>;

    /// Sends the first `packets` of a batch; tells how many went, in order.
    ///
    /// # Errors
    /// Why not even the first went.
    fn send_batch(&self, batch: &mut Outgoing, packets: usize) -> io::Result<usize>;

    /// Waits for a datagram, as long as [`Port::wait_at_most`] says; tells its length.
    ///
    /// # Errors
    /// The kernel's.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// The same, and tells the sender.
    ///
    /// # Errors
    /// The kernel's.
    fn receive_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;

    /// Takes a datagram that is there.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` where there is none.
    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Waits for one datagram, then takes what else is there; tells how many.
    ///
    /// # Errors
    /// Why there is not even a first one.
    fn receive_batch(&self, batch: &mut ReceiveBatch) -> io::Result<usize>;

    /// How long a receive call waits.
    ///
    /// # Errors
    /// The kernel's.
    fn wait_at_most(&self, time: Duration) -> io::Result<()>;

    /// Has the arrival of each datagram noted, whenever it is read.
    ///
    /// # Errors
    /// The kernel's.
    fn stamp_arrivals(&self) -> io::Result<()>;

    /// Datagrams that its full buffer dropped. It may wrap around.
    ///
    /// # Errors
    /// The kernel's.
    fn dropped(&self) -> io::Result<u32>;

    /// Becomes readable when there is something to receive.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// What holds for it, read back. What nobody tells is absent.
    fn conditions(&self, job: &Job, buffers: Buffers) -> Conditions;
}

/// Where the UDP sockets of a job come from.
pub trait Ports: Send + Sync {
    /// Opens one on an ephemeral port of the job's address.
    ///
    /// # Errors
    /// It cannot be had.
    fn open(&self, job: &Job, buffers: Buffers) -> Result<Box<dyn Port>, TrafficError>;
}

/// The kernel's sockets.
pub(super) struct KernelPorts;

impl Ports for KernelPorts {
    fn open(&self, job: &Job, buffers: Buffers) -> Result<Box<dyn Port>, TrafficError> {
        Ok(Box::new(sockets::udp_socket(job, buffers)?))
    }
}

/// The number of a port, for the other end.
pub(super) fn number(port: &dyn Port) -> Result<u16, TrafficError> {
    port.number().map_err(failed("reading a socket's address"))
}

impl Port for UdpSocket {
    fn number(&self) -> io::Result<u16> {
        Ok(self.local_addr()?.port())
    }

    fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        Self::connect(self, peer)
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        Self::send(self, datagram).map(drop)
    }

    fn try_send(&self, datagram: &[u8]) -> io::Result<()> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        Ok(nix::sys::socket::send(self.as_raw_fd(), datagram, flags).map(drop)?)
    }

    fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        Self::send_to(self, datagram, to).map(drop)
    }

    fn send_batch(&self, batch: &mut Outgoing, packets: usize) -> io::Result<usize> {
        batch.send(self, 0..packets)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer)
    }

    fn receive_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from(buffer)
    }

    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(nix::sys::socket::recv(self.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?)
    }

    fn receive_batch(&self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        batch.receive(self)
    }

    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn stamp_arrivals(&self) -> io::Result<()> {
        mmsg::stamp_arrivals(self)
    }

    fn dropped(&self) -> io::Result<u32> {
        socket::receive_drops(self)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn conditions(&self, job: &Job, buffers: Buffers) -> Conditions {
        sockets::conditions(job, &SockRef::from(self), buffers)
    }
}
