//! `sendmmsg` with `UDP_SEGMENT`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use super::address::RawAddress;
use super::{MAX_MESSAGES, UdpSocket, mapped};

/// Datagrams for one destination that lie one after the other in a buffer: all `segment` bytes long, but for the last,
/// which may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Where they go.
    pub to: SocketAddr,
    /// Where the first one begins in the buffer.
    pub start: usize,
    /// Bytes of all of them.
    pub len: usize,
    /// Bytes of each; where it equals `len`, there is one and no offload is asked for.
    pub segment: usize,
}

impl Transmit {
    /// How many datagrams it is.
    #[must_use]
    pub fn datagrams(&self) -> usize {
        self.len.div_ceil(self.segment.max(1)).max(1)
    }
}

/// `CMSG_SPACE` of one u16, kept aligned as a `cmsghdr` must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct SegmentControl {
    header: libc::cmsghdr,
    segment: u16,
    padding: [u8; 6],
}

// cmsg(3): the header is padded to the machine word, data follows; CMSG_SPACE pads the end as well.
const _: () = assert!(size_of::<SegmentControl>() == size_of::<libc::cmsghdr>() + 8);

/// The system call's arrays, reused from call to call.
#[derive(Default)]
pub struct SendScratch {
    names: Vec<RawAddress>,
    vectors: Vec<libc::iovec>,
    controls: Vec<SegmentControl>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers inside are made anew by every call and never followed after it.
unsafe impl Send for SendScratch {}

impl std::fmt::Debug for SendScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SendScratch")
    }
}

impl UdpSocket {
    /// Sends up to [`MAX_MESSAGES`] of `transmits`, which lie in `buffer`, in order. Returns how many went: at least one.
    ///
    /// # Errors
    /// Why the first one did not go; none went then. Ranges outside of `buffer` are `InvalidInput`.
    pub fn send(&self, buffer: &[u8], transmits: &[Transmit], scratch: &mut SendScratch) -> io::Result<usize> {
        let transmits = &transmits[..transmits.len().min(MAX_MESSAGES)];
        if transmits.is_empty() {
            return Ok(0);
        }
        let SendScratch { names, vectors, controls, headers } = scratch;
        names.clear();
        vectors.clear();
        controls.clear();
        headers.clear();
        // Reserved first: the pointers below must not move.
        names.reserve(transmits.len());
        vectors.reserve(transmits.len());
        controls.reserve(transmits.len());
        for transmit in transmits {
            let end = transmit.start.checked_add(transmit.len).filter(|end| *end <= buffer.len());
            if end.is_none() || (transmit.segment < transmit.len && u16::try_from(transmit.segment).is_err()) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let (name, name_length) = RawAddress::new(mapped(transmit.to, self.dual));
            names.push(name);
            vectors.push(libc::iovec {
                // sendmmsg reads through this pointer only; the type has no const form.
                iov_base: buffer[transmit.start..].as_ptr().cast_mut().cast(),
                iov_len: transmit.len,
            });
            controls.push(SegmentControl {
                header: libc::cmsghdr {
                    cmsg_len: size_of::<libc::cmsghdr>() + size_of::<u16>(),
                    cmsg_level: libc::SOL_UDP,
                    cmsg_type: libc::UDP_SEGMENT,
                },
                segment: transmit.segment as u16,
                padding: [0; 6],
            });
            let index = names.len() - 1;
            let offload = transmit.segment < transmit.len;
            headers.push(libc::mmsghdr {
                msg_hdr: libc::msghdr {
                    msg_name: (&raw mut names[index]).cast(),
                    msg_namelen: name_length,
                    msg_iov: &raw mut vectors[index],
                    msg_iovlen: 1,
                    msg_control: if offload { (&raw mut controls[index]).cast() } else { std::ptr::null_mut() },
                    msg_controllen: if offload { size_of::<SegmentControl>() } else { 0 },
                    msg_flags: 0,
                },
                msg_len: 0,
            });
        }
        if let [header] = &headers[..] {
            // SAFETY: as below, for the only one.
            let sent = unsafe {
                libc::sendmsg(self.socket.as_raw_fd(), &header.msg_hdr, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
            };
            return if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(1) };
        }
        // SAFETY: each header points into `names`, `vectors` and `controls`, which were reserved above and not moved since,
        // and each vector into `buffer` with its end checked; all of them outlive the call.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        // Zero cannot be: there was something to send.
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
