//! TUN devices: the character device, its ioctls, and the MTU of an interface.
//!
//! The kernel's interface is `linux/if_tun.h`; the device lives as long as its file descriptor.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::sys::netlink::Netlink;

/// Offloads that `TUNSETOFFLOAD` granted: what the kernel may hand over unfinished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TunOffloads {
    /// Checksums are left to the reader, and TCP super-packets of both families arrive whole.
    pub tso: bool,
    /// UDP super-packets arrive whole (Linux 6.2).
    pub uso: bool,
}

/// A TUN device. Reads and writes never wait, and carry a virtio-net header of 10 bytes if it was opened with one.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes the device `name` in this thread's network namespace.
    ///
    /// # Errors
    /// As [`Tun::open_queues`].
    pub fn open(name: &str, vnet_hdr: bool) -> io::Result<Self> {
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | if vnet_hdr { libc::IFF_VNET_HDR } else { 0 };
        Self::attach(name, flags | libc::IFF_TUN_EXCL)
    }

    /// Makes the device `name` with `queues` queues, each to be read and written by itself. The kernel keeps a flow in one queue: the one through which its other direction is written.
    ///
    /// # Errors
    /// `ENOENT`, `ENODEV` or `EACCES` from opening `/dev/net/tun`; `EPERM` without CAP_NET_ADMIN; `EBUSY` if the name
    /// exists; `EINVAL` if the kernel knows no virtio-net header.
    pub fn open_queues(name: &str, vnet_hdr: bool, queues: usize) -> io::Result<Vec<Self>> {
        let common = libc::IFF_TUN
            | libc::IFF_NO_PI
            | if vnet_hdr { libc::IFF_VNET_HDR } else { 0 }
            | if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        // IFF_TUN_EXCL: never join a device that another process holds, which would take its packets.
        let mut all = vec![Self::attach(name, common | libc::IFF_TUN_EXCL)?];
        for _ in 1..queues {
            all.push(Self::attach(name, common)?);
        }
        Ok(all)
    }

    fn attach(name: &str, flags: libc::c_int) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        let mut request = interface_request(name)?;
        // These flags occupy the lower 16 bits; IFF_TUN_EXCL is the sign bit of a short.
        request.ifr_ifru.ifru_flags = (flags & 0xffff) as u16 as i16;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is, for the length of the call.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file })
    }

    /// Asks for offloads; what this kernel does not know is left out.
    ///
    /// # Errors
    /// The kernel does not take the request, not even one for none.
    pub fn set_offloads(&self, wanted: TunOffloads) -> io::Result<TunOffloads> {
        const CSUM: u32 = libc::TUN_F_CSUM;
        const TSO: u32 = libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        const USO: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        let mut attempts = Vec::new();
        if wanted.tso && wanted.uso {
            attempts.push((CSUM | TSO | USO, wanted));
        }
        if wanted.tso {
            attempts.push((CSUM | TSO, TunOffloads { tso: true, uso: false }));
        }
        attempts.push((0, TunOffloads::default()));
        let mut last = io::Error::from(io::ErrorKind::Unsupported);
        for (bits, granted) in attempts {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            let result = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(bits)) };
            if result >= 0 {
                return Ok(granted);
            }
            last = io::Error::last_os_error();
        }
        Err(last)
    }

    /// Reads one packet or super-packet.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Writes one packet or super-packet, given in parts.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` where a header contradicts its packet, `EIO` while the interface is down.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.file).write_vectored(parts)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The name of the device that a descriptor of `/dev/net/tun` is attached to, and whether it carries a virtio-net header.
///
/// # Errors
/// `EBADFD` where it is attached to none, `ENOTTY` where it is something else.
pub fn device_of(descriptor: &impl AsFd) -> io::Result<(String, bool)> {
    // SAFETY: an `ifreq` is plain old data, for which all zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: TUNGETIFF writes one `ifreq`, which `request` is, for the length of the call.
    let result = unsafe { libc::ioctl(descriptor.as_fd().as_raw_fd(), libc::TUNGETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = request.ifr_name.iter().map(|byte| byte.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    // SAFETY: TUNGETIFF filled in the flags, and every bit pattern is a short.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    Ok((String::from_utf8(name).map_err(io::Error::other)?, flags & libc::IFF_VNET_HDR != 0))
}

/// Sets an interface's MTU.
///
/// # Errors
/// The kernel's: `ENODEV` if there is no such interface, `EINVAL` out of its range, `EPERM` without CAP_NET_ADMIN.
pub fn set_mtu(name: &str, mtu: u16) -> io::Result<()> {
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_mtu = i32::from(mtu);
    interface_ioctl(libc::SIOCSIFMTU, &mut request)
}

/// Sets the length of an interface's transmit queue, in packets; of a TUN device it is the ring that readers empty.
///
/// Over netlink: the ioctl for it (`SIOCSIFTXQLEN`) wants CAP_NET_ADMIN of the machine, not of the namespace (Linux,
/// net/core/dev_ioctl.c), so that an ordinary user's lab may not use it.
///
/// # Errors
/// As [`set_mtu`].
pub fn set_queue_length(name: &str, packets: u16) -> io::Result<()> {
    let netlink = Netlink::open().map_err(|error| error.source)?;
    let link = netlink.link(name).map_err(|error| error.source)?;
    let link = link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    netlink.set_queue_length(link.index, name, u32::from(packets)).map_err(|error| error.source)
}

fn interface_ioctl(code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // Any socket of the namespace will do for interface ioctls.
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    // SAFETY: the SIOC*IF* codes read and write one `ifreq`, which `request` is, for the length of the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), code, &raw mut *request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an `ifreq` is plain old data, for which all zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is left for the terminating zero.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an interface name"));
    }
    for (target, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *target = byte.cast_signed();
    }
    Ok(request)
}
