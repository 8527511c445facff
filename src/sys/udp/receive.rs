//! `recvmmsg` with `UDP_GRO`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use super::address::RawAddress;
use super::{MAX_MESSAGES, UdpSocket};

/// The longest datagram, and the longest run of coalesced ones.
const SLOT_BYTES: usize = 65_535;
/// Slots begin this far apart. Not a power of two: short datagrams at such distances would all fall into the same sets of
/// the processor's caches.
const SLOT_STRIDE: usize = 65_536 + 1_600;
/// Messages that are asked for where few come.
const FEW_MESSAGES: usize = 4;
/// Bytes that one call should bring at most, so that they stay in the processor's cache until they are used.
const CALL_BYTES: usize = 128 << 10;

/// `CMSG_SPACE` of one int.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct GroControl {
    header: libc::cmsghdr,
    value: libc::c_int,
    padding: [u8; 4],
}

const _: () = assert!(size_of::<GroControl>() == size_of::<libc::cmsghdr>() + 8);

impl GroControl {
    const EMPTY: Self =
        Self { header: libc::cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 }, value: 0, padding: [0; 4] };
}

/// What one slot holds.
#[derive(Debug, Clone, Copy)]
struct Slot {
    from: Option<SocketAddr>,
    len: usize,
    /// Bytes of each datagram but the last.
    segment: usize,
    truncated: bool,
}

/// Buffers for received datagrams, filled by [`UdpSocket::receive`] or, in tests, by [`ReceiveBatch::push`].
pub struct ReceiveBatch {
    storage: Vec<u8>,
    slots: Vec<Slot>,
    /// Messages to ask for in the next call.
    ask: usize,
    /// The last call brought fewer than it asked for.
    drained: bool,
    names: Vec<RawAddress>,
    vectors: Vec<libc::iovec>,
    controls: Vec<GroControl>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers inside are made anew by every call and never followed after it.
unsafe impl Send for ReceiveBatch {}

impl std::fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveBatch").field("slots", &self.slots).finish_non_exhaustive()
    }
}

/// Datagrams of one sender that arrived as one.
#[derive(Debug)]
pub struct Received<'a> {
    /// Who sent them.
    pub from: SocketAddr,
    /// All of them, one after the other.
    pub data: &'a [u8],
    /// Bytes of each but the last, which may be shorter. Never zero.
    pub segment: usize,
    /// The end is missing: the last datagram is damaged.
    pub truncated: bool,
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        Self {
            // Untouched pages cost no memory: only what arrives does.
            storage: vec![0; SLOT_STRIDE * MAX_MESSAGES],
            slots: Vec::with_capacity(MAX_MESSAGES),
            ask: FEW_MESSAGES,
            drained: false,
            names: vec![RawAddress::empty(); MAX_MESSAGES],
            vectors: Vec::with_capacity(MAX_MESSAGES),
            controls: vec![GroControl::EMPTY; MAX_MESSAGES],
            headers: Vec::with_capacity(MAX_MESSAGES),
        }
    }
}

impl ReceiveBatch {
    /// What arrived, in order.
    pub fn iter(&self) -> impl Iterator<Item = Received<'_>> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let begin = index * SLOT_STRIDE;
            Some(Received {
                from: slot.from?,
                data: &self.storage[begin..begin + slot.len],
                segment: slot.segment.max(1),
                truncated: slot.truncated,
            })
        })
    }

    /// How many messages it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing arrived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Forgets what it holds.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.drained = false;
    }

    /// Whether the socket had no more when it was filled.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.drained
    }

    /// Adds a message, as if it had been received. Returns `false` if there is no room.
    pub fn push(&mut self, from: SocketAddr, data: &[u8], segment: usize) -> bool {
        if self.slots.len() == MAX_MESSAGES || data.len() > SLOT_BYTES {
            return false;
        }
        let begin = self.slots.len() * SLOT_STRIDE;
        self.storage[begin..begin + data.len()].copy_from_slice(data);
        self.slots.push(Slot { from: Some(from), len: data.len(), segment, truncated: false });
        true
    }

    /// Says of the message that was added last that its end is missing.
    pub fn mark_truncated(&mut self) {
        if let Some(last) = self.slots.last_mut() {
            last.truncated = true;
        }
    }

    /// Chooses how many messages to ask for: few when they are long or come singly, many when they are short and many.
    fn adapt(&mut self) {
        let bytes: usize = self.slots.iter().map(|slot| slot.len).sum();
        let mean = bytes / self.slots.len().max(1);
        let fits = (CALL_BYTES / mean.max(1)).clamp(2, MAX_MESSAGES);
        self.drained = self.slots.len() < self.ask;
        self.ask = fits.min(FEW_MESSAGES.max(4 * self.slots.len()));
    }
}

impl UdpSocket {
    /// Replaces what `batch` holds by what is ready to be received.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is; an error of the network that concerns an earlier send (see
    /// [`UdpSocket::take_network_error`]).
    pub fn receive(&self, batch: &mut ReceiveBatch) -> io::Result<()> {
        batch.slots.clear();
        batch.vectors.clear();
        batch.headers.clear();
        let ask = batch.ask;
        for (index, storage) in batch.storage.chunks_mut(SLOT_STRIDE).take(ask).enumerate() {
            batch.vectors.push(libc::iovec { iov_base: storage.as_mut_ptr().cast(), iov_len: SLOT_BYTES });
            batch.headers.push(libc::mmsghdr {
                msg_hdr: libc::msghdr {
                    msg_name: (&raw mut batch.names[index]).cast(),
                    msg_namelen: RawAddress::SIZE,
                    // Set below, once the vectors do not move any more.
                    msg_iov: std::ptr::null_mut(),
                    msg_iovlen: 1,
                    msg_control: (&raw mut batch.controls[index]).cast(),
                    msg_controllen: size_of::<GroControl>(),
                    msg_flags: 0,
                },
                msg_len: 0,
            });
        }
        for (header, vector) in batch.headers.iter_mut().zip(&mut batch.vectors) {
            header.msg_hdr.msg_iov = &raw mut *vector;
        }
        // SAFETY: each header points into `names`, `vectors` and `controls`, which are not moved before the call ends, and
        // each vector at a slot of its own within `storage` that is writable for SLOT_BYTES.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                batch.headers.as_mut_ptr(),
                ask as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (index, header) in batch.headers.iter().take(count).enumerate() {
            let len = (header.msg_len as usize).min(SLOT_BYTES);
            let control = &batch.controls[index];
            let has_control = header.msg_hdr.msg_controllen >= size_of::<libc::cmsghdr>() + size_of::<libc::c_int>()
                && control.header.cmsg_level == libc::SOL_UDP
                && control.header.cmsg_type == libc::UDP_GRO;
            let segment = if has_control { usize::try_from(control.value).unwrap_or(len) } else { len };
            batch.slots.push(Slot {
                from: batch.names[index].get(),
                len,
                segment,
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            });
        }
        batch.adapt();
        Ok(())
    }
}
