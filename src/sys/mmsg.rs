//! Many datagrams in one system call: `sendmmsg` and `recvmmsg` on connected sockets.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A `mmsghdr` that names nothing.
const EMPTY: libc::mmsghdr = {
    // SAFETY: `mmsghdr` is plain old data: all zero bytes are null pointers and zero lengths, a valid value.
    unsafe { std::mem::zeroed() }
};
const NO_BYTES: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Datagrams to send: each has a head of its own, and all share one tail.
pub struct SendBatch<const HEAD: usize> {
    /// The heads, one per datagram.
    pub heads: Vec<[u8; HEAD]>,
    tail: Vec<u8>,
    slices: Vec<[libc::iovec; 2]>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers in `slices` and `messages` are set anew by every call of `send` and not read outside it;
// everything else is owned, plain data.
unsafe impl<const HEAD: usize> Send for SendBatch<HEAD> {}

impl<const HEAD: usize> SendBatch<HEAD> {
    /// Room for `capacity` datagrams that end in `tail`.
    pub fn new(capacity: usize, tail: Vec<u8>) -> Self {
        Self {
            heads: vec![[0; HEAD]; capacity],
            tail,
            slices: vec![[NO_BYTES; 2]; capacity],
            messages: vec![EMPTY; capacity],
        }
    }

    /// What all datagrams end in.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Bytes of a datagram.
    pub fn size(&self) -> usize {
        HEAD + self.tail.len()
    }

    /// Sends the datagrams of `range` on a connected socket; tells how many the kernel took, in order.
    ///
    /// # Errors
    /// The error of `sendmmsg`, when not even the first was taken.
    pub fn send(&mut self, socket: &impl AsFd, range: std::ops::Range<usize>) -> io::Result<usize> {
        let range = range.start.min(self.heads.len())..range.end.min(self.heads.len());
        for index in range.clone() {
            self.slices[index] = [
                libc::iovec { iov_base: self.heads[index].as_mut_ptr().cast(), iov_len: HEAD },
                libc::iovec { iov_base: self.tail.as_mut_ptr().cast(), iov_len: self.tail.len() },
            ];
            let header = &mut self.messages[index].msg_hdr;
            header.msg_iov = self.slices[index].as_mut_ptr();
            header.msg_iovlen = 2;
        }
        let messages = &mut self.messages[range];
        // SAFETY: the descriptor is borrowed for the call; `messages` are `len` valid headers; each names two slices of
        // memory that this value owns and nothing else touches during the call; name and control are null with length 0.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_fd().as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_NOSIGNAL as _,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Bytes of ancillary data: one header and one `timespec`, as a 64-bit kernel lays them out (cmsg(3)).
const STAMP: usize = 32;

/// Room for received datagrams.
pub struct ReceiveBatch {
    bytes: Vec<u8>,
    size: usize,
    stamps: Vec<[u8; STAMP]>,
    slices: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    received: usize,
}

// SAFETY: the raw pointers in `slices` and `messages` are set anew by every call of `receive` and not read outside it;
// everything else is owned, plain data.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    /// Room for `capacity` datagrams of `size` bytes; longer ones are cut, and show as longer than `size`.
    pub fn new(capacity: usize, size: usize) -> Self {
        Self {
            bytes: vec![0; capacity * size],
            size,
            stamps: vec![[0; STAMP]; capacity],
            slices: vec![NO_BYTES; capacity],
            messages: vec![EMPTY; capacity],
            received: 0,
        }
    }

    /// Waits for one datagram (or the socket's receive time-out), then takes what else is there; tells how many.
    ///
    /// # Errors
    /// The error of `recvmmsg`, when there is not even a first one.
    pub fn receive(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        self.received = 0;
        let parts = self.slices.iter_mut().zip(&mut self.messages).zip(&mut self.stamps).enumerate();
        for (index, ((slice, message), stamp)) in parts {
            let at = index * self.size;
            *slice = libc::iovec { iov_base: self.bytes[at..at + self.size].as_mut_ptr().cast(), iov_len: self.size };
            message.msg_hdr.msg_iov = slice;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = stamp.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = STAMP as _;
            message.msg_hdr.msg_flags = 0;
        }
        // SAFETY: the descriptor is borrowed for the call; `messages` are `len` valid headers; each names one slice of
        // memory of its own within `bytes` and a control buffer of STAMP bytes of its own, which nothing else touches
        // during the call; the name is null with length 0; the time-out may be null.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.messages.as_mut_ptr(),
                self.messages.len() as libc::c_uint,
                (libc::MSG_WAITFORONE | libc::MSG_TRUNC) as _,
                std::ptr::null_mut(),
            )
        };
        self.received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        Ok(self.received)
    }

    /// Forgets what it holds.
    pub fn clear(&mut self) {
        self.received = 0;
    }

    /// Adds a datagram that came another way, with its arrival if that was noted; `false` where there is no room.
    pub fn push(&mut self, datagram: &[u8], arrived_ns: Option<u64>) -> bool {
        let index = self.received;
        let (Some(message), Some(stamp)) = (self.messages.get_mut(index), self.stamps.get_mut(index)) else {
            return false;
        };
        let fits = datagram.len().min(self.size);
        self.bytes[index * self.size..][..fits].copy_from_slice(&datagram[..fits]);
        message.msg_len = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        message.msg_hdr.msg_controllen = arrived_ns.map_or(0, |_| STAMP) as _;
        *stamp = arrived_ns.map_or([0; STAMP], encode_stamp);
        self.received += 1;
        true
    }

    /// The datagrams of the last `receive`, and those pushed since, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.messages[..self.received].iter().zip(&self.stamps).enumerate().map(|(index, (message, stamp))| {
            let length = message.msg_len as usize;
            // The C libraries disagree on its type.
            #[allow(clippy::unnecessary_cast)]
            let control = message.msg_hdr.msg_controllen as usize;
            Datagram {
                bytes: &self.bytes[index * self.size..][..length.min(self.size)],
                length,
                arrived_ns: parse_stamp(stamp, control),
            }
        })
    }
}

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// What there was room for.
    pub bytes: &'a [u8],
    /// The whole length.
    pub length: usize,
    /// When the kernel got it, by the *wall* clock, in nanoseconds since 1970: only differences mean anything. Absent
    /// unless [`stamp_arrivals`] was asked for.
    pub arrived_ns: Option<u64>,
}

/// Lets the kernel note when each datagram arrives (`SO_TIMESTAMPNS`), whenever it is read.
///
/// # Errors
/// The error of `setsockopt`.
pub fn stamp_arrivals(socket: &impl AsFd) -> io::Result<()> {
    super::socket::set_int(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// A control buffer as the kernel fills it with a time.
fn encode_stamp(at_ns: u64) -> [u8; STAMP] {
    let mut control = [0; STAMP];
    control[..8].copy_from_slice(&(STAMP as u64).to_ne_bytes());
    control[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control[12..16].copy_from_slice(&libc::SCM_TIMESTAMPNS.to_ne_bytes());
    control[16..24].copy_from_slice(&(at_ns / 1_000_000_000).to_ne_bytes());
    control[24..].copy_from_slice(&(at_ns % 1_000_000_000).to_ne_bytes());
    control
}

/// The time in a control buffer whose first `filled` bytes the kernel wrote; `None` without one.
fn parse_stamp(control: &[u8; STAMP], filled: usize) -> Option<u64> {
    // cmsghdr { len: usize, level: i32, type: i32 }, then timespec { seconds: i64, nanoseconds: i64 }.
    if cfg!(not(target_pointer_width = "64")) || filled < STAMP {
        return None;
    }
    let i32_at = |at: usize| control[at..at + 4].try_into().map(i32::from_ne_bytes).ok();
    let u64_at = |at: usize| control[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
    if (i32_at(8)?, i32_at(12)?) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
        return None;
    }
    u64_at(16)?.checked_mul(1_000_000_000)?.checked_add(u64_at(24)?)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_batch_arrives_whole_and_in_order() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let mut batch = SendBatch::<4>::new(8, vec![9; 100]);
        for (number, head) in batch.heads.iter_mut().enumerate() {
            *head = [number as u8; 4];
        }
        assert_eq!(batch.send(&sender, 2..7).unwrap(), 5);
        // Once more with room that is too small: cut, and said.
        assert_eq!(batch.send(&sender, 0..1).unwrap(), 1);
        let mut room = ReceiveBatch::new(5, batch.size());
        assert_eq!(room.receive(&receiver).unwrap(), 5);
        for (number, datagram) in (2..).zip(room.datagrams()) {
            assert_eq!((datagram.length, datagram.bytes.len(), datagram.bytes[4]), (104, 104, 9));
            assert_eq!(datagram.bytes[..4], [number; 4]);
            assert_eq!(datagram.arrived_ns, None);
        }
        let mut small = ReceiveBatch::new(5, 10);
        assert_eq!(small.receive(&receiver).unwrap(), 1);
        let cut: Vec<(usize, usize)> = small.datagrams().map(|cut| (cut.bytes.len(), cut.length)).collect();
        assert_eq!(cut, [(10, 104)]);
    }

    #[test]
    fn arrivals_are_stamped_when_they_come_not_when_they_are_read() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        stamp_arrivals(&receiver).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let mut batch = SendBatch::<4>::new(1, Vec::new());
        // The kernel starts stamping some time after the first socket asks for it (net_enable_timestamp defers it), and
        // stamps what came before when it is read.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(batch.send(&sender, 0..1).unwrap(), 1);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(batch.send(&sender, 0..1).unwrap(), 1);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut room = ReceiveBatch::new(8, 4);
        assert_eq!(room.receive(&receiver).unwrap(), 2);
        let stamps: Vec<u64> = room.datagrams().map(|datagram| datagram.arrived_ns.unwrap()).collect();
        assert!(stamps[1] - stamps[0] >= 19_000_000, "{stamps:?}");
    }

    #[test]
    fn what_came_another_way_reads_as_if_it_had_been_received() {
        let mut room = ReceiveBatch::new(2, 4);
        assert!(room.push(b"abcdef", None) && room.push(b"xy", Some(1_234_567_890_123)) && !room.push(b"z", None));
        let read: Vec<_> = room.datagrams().map(|cut| (cut.bytes, cut.length, cut.arrived_ns)).collect();
        assert_eq!(read, [(&b"abcd"[..], 6, None), (&b"xy"[..], 2, Some(1_234_567_890_123))]);
        room.clear();
        assert_eq!(room.datagrams().count(), 0);
    }

    #[test]
    fn a_refused_batch_is_an_error_with_its_errno() {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(
            SendBatch::<4>::new(2, Vec::new()).send(&sender, 0..2).unwrap_err().raw_os_error(),
            Some(libc::EDESTADDRREQ)
        );
        let mut batch = SendBatch::<4>::new(2, vec![0; 70_000]);
        sender.connect("127.0.0.1:9").unwrap();
        assert_eq!(batch.send(&sender, 0..2).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    }
}
