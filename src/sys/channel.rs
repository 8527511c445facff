//! Whole messages with descriptors between two processes: a `SOCK_SEQPACKET` pair and `SCM_RIGHTS` (unix(7)).
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg,
    socketpair,
};

/// The most bytes that one message may have.
pub const MESSAGE_BYTES: usize = 64 * 1024;
/// The most descriptors that one message may carry.
pub const MESSAGE_FILES: usize = 4;

/// One message.
#[derive(Debug)]
pub struct Message {
    /// What was written.
    pub bytes: Vec<u8>,
    /// The descriptors that came with it, closed on exec.
    pub files: Vec<OwnedFd>,
}

/// One end. Message boundaries are kept; the other end's death reads as end of file.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Both ends, closed on exec.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Self(one), Self(other)))
    }

    /// From a descriptor that a parent left behind.
    pub fn from_owned(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The descriptor itself, to be inherited by a child.
    pub fn into_owned(self) -> OwnedFd {
        self.0
    }

    /// Another handle on the same end.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends one message.
    ///
    /// # Errors
    /// `EPIPE` when the other end is gone, `EMSGSIZE` when the message is over the limits.
    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.is_empty() || bytes.len() > MESSAGE_BYTES || files.len() > MESSAGE_FILES {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let raw: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
        let data = [IoSlice::new(bytes)];
        loop {
            match sendmsg::<UnixAddr>(self.0.as_raw_fd(), &data, control, MsgFlags::MSG_NOSIGNAL, None) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits for one message; `None` when the other end is gone.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        let mut control = cmsg_space!([RawFd; MESSAGE_FILES]);
        let (length, files, cut) = loop {
            let mut data = [IoSliceMut::new(&mut bytes)];
            let received =
                recvmsg::<UnixAddr>(self.0.as_raw_fd(), &mut data, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC);
            let received = match received {
                Err(Errno::EINTR) => continue,
                // A reset is what an end reads when the other died with messages unread: it is gone all the same.
                Err(Errno::ECONNRESET) => return Ok(None),
                other => other?,
            };
            let mut files = Vec::new();
            for message in received.cmsgs()? {
                if let ControlMessageOwned::ScmRights(raw) = message {
                    for fd in raw {
                        // SAFETY: the kernel installed this descriptor for this very message, and it is taken once.
                        files.push(unsafe { OwnedFd::from_raw_fd(fd) });
                    }
                }
            }
            break (received.bytes, files, received.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC));
        };
        if cut {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was longer than the channel allows"));
        }
        if length == 0 {
            return Ok(None);
        }
        bytes.truncate(length);
        Ok(Some(Message { bytes, files }))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn messages_keep_their_bounds_and_their_files() {
        let (one, other) = Channel::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        one.send(b"first", &[]).unwrap();
        one.send(b"second", &[writer.as_fd()]).unwrap();
        drop(writer);
        let first = other.receive().unwrap().unwrap();
        assert_eq!((first.bytes.as_slice(), first.files.len()), (b"first".as_slice(), 0));
        let mut second = other.receive().unwrap().unwrap();
        assert_eq!(second.bytes, b"second");
        std::fs::File::from(second.files.remove(0)).write_all(b"through").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        drop(one);
        assert!(other.receive().unwrap().is_none());
        assert_eq!(other.send(b"late", &[]).unwrap_err().raw_os_error(), Some(libc::EPIPE));
    }

    #[test]
    fn what_is_too_long_is_refused_whole() {
        let (one, _other) = Channel::pair().unwrap();
        assert!(one.send(&vec![1; MESSAGE_BYTES + 1], &[]).is_err());
        assert!(one.send(b"", &[]).is_err());
    }
}
