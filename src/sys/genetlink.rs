//! Generic netlink (Linux, Documentation/userspace-api/netlink/intro.rst): a family by name, and dumps of it, as bytes.

use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use zeroize::Zeroizing;

/// `AF_NETLINK` and `NETLINK_GENERIC` (include/linux/socket.h, include/uapi/linux/netlink.h).
const AF_NETLINK: i32 = libc::AF_NETLINK;
const NETLINK_GENERIC: i32 = libc::NETLINK_GENERIC;
/// The controller's own family, its command and attributes (include/uapi/linux/genetlink.h).
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Flags and types of messages (include/uapi/linux/netlink.h).
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Lengths of `struct nlmsghdr`, `struct genlmsghdr` and `struct nlattr`.
const HEADER: usize = 16;
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;
/// The kernel fills at most this per message (`NLMSG_GOODSIZE` is less).
const BUFFER: usize = 64 << 10;
/// How often a dump is begun before what changes under it is given up.
const ATTEMPTS: u32 = 8;
/// A kernel that does not answer within this time never will.
const PATIENCE: Duration = Duration::from_secs(5);

/// A family of generic netlink, and a socket to it.
#[derive(Debug)]
pub struct Family {
    socket: Socket,
    id: u16,
}

impl Family {
    /// Finds the family of that name, in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel has none (`ENOENT`), or no generic netlink.
    pub fn open(name: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::from(AF_NETLINK), Type::RAW, Some(Protocol::from(NETLINK_GENERIC)))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut found = Self { socket, id: GENL_ID_CTRL };
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        let answers = found.ask(CTRL_CMD_GETFAMILY, 1, NLM_F_ACK, &attribute(CTRL_ATTR_FAMILY_NAME, &text))?;
        let id = answers
            .messages
            .iter()
            .flat_map(|answer| attributes(answer))
            .find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID);
        let id = id.and_then(|(_, value)| value.try_into().ok()).map(u16::from_ne_bytes);
        found.id = id.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel tells no family"))?;
        Ok(found)
    }

    /// Everything that `command` lists for `attributes`: the attributes of each message. A list that changed between two messages
    /// may lack some of it or tell it twice: it is asked for again.
    ///
    /// # Errors
    /// The kernel's refusal; or the list never was the same from its beginning to its end.
    pub fn dump(&mut self, command: u8, version: u8, attributes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..ATTEMPTS {
            let answers = self.ask(command, version, NLM_F_DUMP | NLM_F_ACK, attributes)?;
            if !answers.interrupted {
                return Ok(answers.messages);
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "it changed whenever it was read"))
    }

    /// Has `command` done with `attributes`, which may hold secrets: no copy of them is left behind here.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn change(&mut self, command: u8, version: u8, attributes: &[u8]) -> io::Result<()> {
        self.ask(command, version, NLM_F_ACK, attributes).map(drop)
    }

    fn ask(&mut self, command: u8, version: u8, flags: u16, attributes: &[u8]) -> io::Result<Answers> {
        let length = u32::try_from(HEADER + GENERIC + attributes.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the request is too long"))?;
        // Reserved, so that no half of it is left behind where it was moved from.
        let mut message = Zeroizing::new(Vec::with_capacity(length as usize));
        message.extend(length.to_ne_bytes());
        message.extend(self.id.to_ne_bytes());
        message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        message.extend([command, version, 0, 0]);
        message.extend(attributes);
        self.socket.write_all(&message)?;
        let mut answers = Answers::default();
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = self.socket.read(&mut buffer)?;
            if take(&buffer[..read], &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

/// What the kernel answered.
#[derive(Debug, Default)]
struct Answers {
    messages: Vec<Vec<u8>>,
    /// Whether what is listed changed meanwhile.
    interrupted: bool,
}

/// Takes the messages of one datagram; whether the last of them ends the answer.
fn take(mut datagram: &[u8], answers: &mut Answers) -> io::Result<bool> {
    let short = || io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel's answer is cut");
    while !datagram.is_empty() {
        let word = |at: usize| Some(u32::from_ne_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
        let length = word(0).ok_or_else(short)? as usize;
        let half = |at: usize| Some(u16::from_ne_bytes(datagram.get(at..at + 2)?.try_into().ok()?));
        let kind = half(4).ok_or_else(short)?;
        answers.interrupted |= half(6).ok_or_else(short)? & NLM_F_DUMP_INTR != 0;
        if length < HEADER || length > datagram.len() {
            return Err(short());
        }
        match kind {
            // An error of 0 acknowledges; the end of a dump carries its error in the same place.
            NLMSG_ERROR | NLMSG_DONE => {
                let errno = if length >= HEADER + 4 { word(HEADER).ok_or_else(short)?.cast_signed() } else { 0 };
                return if errno == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(errno.saturating_abs())) };
            }
            _ => answers.messages.push(datagram.get(HEADER + GENERIC..length).ok_or_else(short)?.to_vec()),
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// An attribute as bytes, padded.
#[must_use]
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    // INVARIANT: callers' values are names, keys and lists that they keep short; what were longer than 64 KiB would be refused
    // by the kernel.
    let length = u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(usize::from(length).next_multiple_of(4));
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The attributes in `bytes`: kind, without its flags, and value. What is cut ends the list.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const KIND: u16 = 0x3fff;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?) & KIND;
        let value = rest.get(ATTRIBUTE..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_its_own_family_and_others_are_not_there() {
        let mut controller = Family::open("nlctrl").unwrap();
        assert_eq!(controller.id, GENL_ID_CTRL);
        let families = controller.dump(CTRL_CMD_GETFAMILY, 1, &[]).unwrap();
        let name = |answer: &Vec<u8>| {
            attributes(answer).find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_NAME).map(|(_, name)| name.to_vec())
        };
        assert!(families.iter().any(|answer| name(answer).as_deref() == Some(b"nlctrl\0")), "{}", families.len());
        assert_eq!(Family::open("no-such-family").unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn a_list_that_changed_while_it_was_read_is_known() {
        let message = |kind: u16, flags: u16| {
            let mut bytes = 24_u32.to_ne_bytes().to_vec();
            bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
            bytes.extend([0; 16]);
            bytes
        };
        for (flags, interrupted) in [([0, 0], false), ([NLM_F_DUMP_INTR, 0], true), ([0, NLM_F_DUMP_INTR], true)] {
            let mut answers = Answers::default();
            assert!(!take(&message(30, 2 | flags[0]), &mut answers).unwrap());
            assert!(take(&message(NLMSG_DONE, 2 | flags[1]), &mut answers).unwrap());
            assert_eq!((answers.messages.len(), answers.interrupted), (1, interrupted));
        }
    }

    #[test]
    fn attributes_survive_their_bytes_and_cuts_end_them() {
        let bytes = [attribute(7, b"abcde"), attribute(0x8001, &[1, 2, 3, 4]), attribute(9, &[])].concat();
        let read: Vec<(u16, &[u8])> = attributes(&bytes).collect();
        assert_eq!(read, [(7, b"abcde".as_slice()), (1, &[1, 2, 3, 4]), (9, &[])]);
        for cut in 0..bytes.len() {
            assert!(attributes(&bytes[..cut]).count() <= 3);
        }
        assert_eq!(attributes(&[0, 0, 1, 0]).count(), 0, "a length that is shorter than its own header");
    }
}
