//! What the engine needs of the world: a TUN device and an outer socket, in batches.
//!
//! Both are traits, so that the engine runs on the fakes of [`super::fakes`] as it does on the kernel. Neither waits by
//! itself: the caller polls [`TunDevice::readiness`] and [`OuterSocket::readiness`] together with its [`Wake`].

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::packet::vnet::VNET_HDR_LEN;
use crate::sys::tun::{Tun, TunOffloads};
use crate::sys::udp::{NetworkError, ReceiveBatch, SendScratch, Transmit, UdpGranted, UdpOptions, UdpSocket};

/// A packet, or a super-packet, with its virtio-net header.
const MAX_READ: usize = 65_535 + VNET_HDR_LEN;
/// Packets of one batch.
const BATCH_PACKETS: usize = 64;
/// A batch ends when it holds this much, so that it stays in the processor's cache: one super-packet fills it.
const BATCH_BYTES: usize = 48 << 10;

/// What was read from a TUN device: packets one after the other, each behind its virtio-net header if there is one.
#[derive(Debug)]
pub struct TunBatch {
    storage: Vec<u8>,
    used: usize,
    packets: Vec<(usize, usize)>,
    /// Packets at most.
    limit: usize,
    /// The device had no more when the batch ended.
    drained: bool,
}

impl Default for TunBatch {
    fn default() -> Self {
        Self {
            storage: vec![0; BATCH_BYTES + MAX_READ],
            used: 0,
            packets: Vec::with_capacity(BATCH_PACKETS),
            limit: BATCH_PACKETS,
            drained: false,
        }
    }
}

impl TunBatch {
    /// Room for the next packet, `MAX_READ` bytes of it; `None` when the batch is full.
    pub fn space(&mut self) -> Option<&mut [u8]> {
        if self.packets.len() >= self.limit || self.used >= BATCH_BYTES {
            return None;
        }
        self.storage.get_mut(self.used..self.used + MAX_READ)
    }

    /// Limits it to a single packet from now on, or lets it take as many as fit.
    pub(super) fn limit_to_one(&mut self, one: bool) {
        self.limit = if one { 1 } else { BATCH_PACKETS };
    }

    /// Takes the packet of `len` bytes that was put into [`TunBatch::space`].
    pub fn commit(&mut self, len: usize) {
        debug_assert!(len <= MAX_READ, "longer than the space");
        self.packets.push((self.used, len));
        // The next one begins at a cache line.
        self.used += len.next_multiple_of(64);
    }

    /// Says that the device has no more for now.
    pub fn set_drained(&mut self) {
        self.drained = true;
    }

    /// Whether the device had no more.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.drained
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Forgets what it holds.
    pub fn clear(&mut self) {
        self.used = 0;
        self.packets.clear();
        self.drained = false;
    }

    /// How many packets it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// The packet at `index`, header and all, to be changed in place.
    pub fn packet(&mut self, index: usize) -> &mut [u8] {
        let (start, len) = self.packets[index];
        &mut self.storage[start..start + len]
    }
}

/// A TUN device.
pub trait TunDevice: Send + Sync {
    /// Replaces what `batch` holds by packets that are ready, as many as fit. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if none is; otherwise the device is gone or broken. With an error, the batch is empty.
    fn read(&self, batch: &mut TunBatch) -> io::Result<()>;

    /// Writes one packet or super-packet, whose parts follow each other: the virtio-net header first, if the device has one.
    ///
    /// # Errors
    /// It was not taken, and nothing of it was.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Becomes readable when packets are ready.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// Whether packets carry a virtio-net header.
    fn vnet_hdr(&self) -> bool;

    /// Offloads that were granted.
    fn offloads(&self) -> TunOffloads;

    /// Whether packets come by [`TunDevice::read`], so that a thread waits for them.
    fn is_read(&self) -> bool {
        true
    }
}

/// An outer socket.
pub trait OuterSocket: Send + Sync {
    /// Sends transmits that lie in `buffer`, in order; returns how many went, at least one. Never waits.
    ///
    /// # Errors
    /// Why the first did not go; none went then.
    fn send(&self, buffer: &[u8], transmits: &[Transmit], scratch: &mut SendScratch) -> io::Result<usize>;

    /// Replaces what `batch` holds by what is ready. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is; an error that the network reported for an earlier send.
    fn receive(&self, batch: &mut ReceiveBatch) -> io::Result<()>;

    /// Takes the oldest report about an earlier send.
    ///
    /// # Errors
    /// The kernel's.
    fn take_network_error(&self) -> io::Result<Option<NetworkError>>;

    /// Becomes readable when datagrams or reports are ready, writable when datagrams can be sent.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// What was granted.
    fn granted(&self) -> UdpGranted;

    /// The local port.
    ///
    /// # Errors
    /// The kernel's.
    fn port(&self) -> io::Result<u16>;

    /// Sets `SO_MARK`, 0 for none.
    ///
    /// # Errors
    /// The kernel's.
    fn set_mark(&self, mark: u32) -> io::Result<()>;

    /// Datagrams that were dropped because the receive buffer was full.
    ///
    /// # Errors
    /// The kernel's.
    fn dropped(&self) -> io::Result<u64>;
}

/// Makes outer sockets: the port is the configuration's to choose, the address and the device are not.
pub trait SocketFactory: Send + Sync {
    /// Binds `count` sockets to the same `port`, 0 for any. Each sender's datagrams arrive at one of them.
    ///
    /// # Errors
    /// The kernel's.
    fn bind(&self, port: u16, fwmark: Option<u32>, count: usize) -> io::Result<Vec<Arc<dyn OuterSocket>>>;
}

/// A TUN device of the kernel.
#[derive(Debug)]
pub struct KernelTun {
    tun: Tun,
    vnet_hdr: bool,
    offloads: TunOffloads,
}

impl KernelTun {
    /// Wraps an open device.
    #[must_use]
    pub fn new(tun: Tun, vnet_hdr: bool, offloads: TunOffloads) -> Self {
        Self { tun, vnet_hdr, offloads }
    }
}

impl TunDevice for KernelTun {
    fn read(&self, batch: &mut TunBatch) -> io::Result<()> {
        batch.clear();
        while let Some(space) = batch.space() {
            match self.tun.read(space) {
                Ok(len) => batch.commit(len),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if batch.is_empty() => return Err(error),
                Err(error) => {
                    // Another error comes again, and is told then.
                    if error.kind() == io::ErrorKind::WouldBlock {
                        batch.set_drained();
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        loop {
            match self.tun.write(parts) {
                // The device takes a packet whole or not at all.
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }

    fn vnet_hdr(&self) -> bool {
        self.vnet_hdr
    }

    fn offloads(&self) -> TunOffloads {
        self.offloads
    }
}

impl OuterSocket for UdpSocket {
    fn send(&self, buffer: &[u8], transmits: &[Transmit], scratch: &mut SendScratch) -> io::Result<usize> {
        self.send(buffer, transmits, scratch)
    }

    fn receive(&self, batch: &mut ReceiveBatch) -> io::Result<()> {
        self.receive(batch)
    }

    fn take_network_error(&self) -> io::Result<Option<NetworkError>> {
        self.take_network_error()
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn granted(&self) -> UdpGranted {
        self.granted()
    }

    fn port(&self) -> io::Result<u16> {
        self.port()
    }

    fn set_mark(&self, mark: u32) -> io::Result<()> {
        self.set_mark(mark)
    }

    fn dropped(&self) -> io::Result<u64> {
        self.dropped()
    }
}

/// What both buffers of the outer socket are asked to be: as much as wireguard-go asks for.
pub(super) const UDP_BUFFER: usize = 7 << 20;

/// Makes kernel sockets, bound to an address and a device.
#[derive(Debug)]
pub(in crate::tunnel) struct KernelSockets {
    /// The local address; `None`: any, of both families.
    pub(in crate::tunnel) address: Option<IpAddr>,
    /// The interface; `None`: any.
    pub(in crate::tunnel) device: Option<String>,
}

impl SocketFactory for KernelSockets {
    fn bind(&self, port: u16, fwmark: Option<u32>, count: usize) -> io::Result<Vec<Arc<dyn OuterSocket>>> {
        let mut options = UdpOptions {
            address: self.address,
            port,
            device: self.device.clone(),
            fwmark,
            buffer: UDP_BUFFER,
            offload: true,
            shared: false,
        };
        let mut sockets: Vec<Arc<dyn OuterSocket>> = Vec::with_capacity(count);
        for _ in 0..count {
            let socket = UdpSocket::bind(&options)?;
            if count > 1 {
                // The others share the port that the first one was given. That one asked for it alone: two engines of one
                // user would else share a port without a word, and each take a part of the other's datagrams.
                socket.share_port()?;
                options.shared = true;
                options.port = socket.port()?;
            }
            sockets.push(Arc::new(socket));
        }
        Ok(sockets)
    }
}

/// Readable while something is in a queue.
#[derive(Debug)]
pub(in crate::tunnel) struct Level(EventFd);

impl Level {
    pub(in crate::tunnel) fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?))
    }

    pub(in crate::tunnel) fn set(&self) {
        let _set_already = self.0.write(1);
    }

    pub(in crate::tunnel) fn clear(&self) {
        let _clear_already = self.0.read();
    }
}

impl AsFd for Level {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ends a thread's wait.
#[derive(Debug)]
pub struct Wake(EventFd);

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake {
    /// A new one.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?))
    }

    /// Ends the current wait, or the next one.
    pub fn signal(&self) {
        // It can fail only where the counter is full, and then it is signalled anyway.
        let _full = self.0.write(1);
    }

    /// Takes the signal, if there is one.
    pub(super) fn take(&self) {
        let _not_signalled = self.0.read();
    }

    /// Waits until `readiness` is readable (or writable, if that is asked), this is signalled, or `timeout` is over.
    /// Takes the signal.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, readiness: Option<BorrowedFd<'_>>, writable: bool, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
            // Rounded up: a wait that ends early would spin.
            PollTimeout::try_from(timeout + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX)
        });
        let flags = if writable { PollFlags::POLLOUT } else { PollFlags::POLLIN };
        let own = PollFd::new(self.0.as_fd(), PollFlags::POLLIN);
        let (mut one, mut two);
        let fds: &mut [PollFd<'_>] = match readiness {
            Some(fd) => {
                two = [own, PollFd::new(fd, flags)];
                &mut two
            }
            None => {
                one = [own];
                &mut one
            }
        };
        match poll(fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if fds[0].any().unwrap_or(false) {
            self.take();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_share_a_port_and_engines_do_not() {
        let factory = || KernelSockets { address: Some(IpAddr::from([127, 0, 0, 1])), device: None };
        {
            let one = factory().bind(0, None, 3).unwrap();
            let port = one[0].port().unwrap();
            assert!(one.iter().all(|socket| socket.port().unwrap() == port));
            for lanes in [1, 2] {
                let error = factory().bind(port, None, lanes).err().unwrap();
                assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
            }
            drop(one);
            factory().bind(port, None, 2).unwrap();
        }
    }
}
