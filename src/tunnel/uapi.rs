//! The cross-platform UAPI text protocol (wireguard.com/xplatform): requests and answers as values.
//!
//! Text in, values out; the system is asked for nothing but the number of a zone that an address names. Both roles are here, since this program is a client of other implementations and a
//! server for `wg`. A request is read whole before anything is applied, so a bad line changes nothing.

pub(super) mod client;
mod get;
mod set;
mod values;

pub use get::{GetDevice, GetPeer, LastHandshake, parse_set_answer};
pub use set::{SetDevice, SetPeer};

/// Errno values that the protocol uses (Linux numbers).
pub mod errno {
    /// There is no such peer.
    pub const ENOENT: i32 = 2;
    /// The request could not be read.
    pub const EIO: i32 = 5;
    /// A key or a value that makes no sense.
    pub const EINVAL: i32 = 22;
    /// A line that is not `key=value`.
    pub const EPROTO: i32 = 71;
    /// The port is taken.
    pub const EADDRINUSE: i32 = 98;
}

/// A line of a request or an answer that does not belong there. Values are not repeated: they may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UapiError {
    /// Not `key=value`.
    #[error("line {line} is not key=value")]
    NotAPair {
        /// Its number, from 1.
        line: usize,
    },
    /// A key that the protocol does not know, or that is out of place.
    #[error("line {line}: `{key}` does not belong here")]
    Key {
        /// Its number, from 1.
        line: usize,
        /// What was written.
        key: String,
    },
    /// A value that the key cannot have.
    #[error("line {line}: the value of `{key}` is wrong")]
    Value {
        /// Its number, from 1.
        line: usize,
        /// Which key.
        key: String,
    },
    /// The answer ended without `errno=`.
    #[error("the answer ends before its errno line")]
    Truncated,
    /// The other side refused.
    #[error("the engine answered errno {0} ({name})", name = std::io::Error::from_raw_os_error(*.0))]
    Errno(i32),
}

impl UapiError {
    /// What a server answers.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotAPair { .. } | Self::Truncated => errno::EPROTO,
            Self::Key { .. } | Self::Value { .. } => errno::EINVAL,
            Self::Errno(errno) => *errno,
        }
    }
}

#[cfg(test)]
mod tests;
