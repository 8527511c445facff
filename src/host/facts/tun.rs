//! Whether this process can make TUN devices, found out by making one.

use std::fmt;
use std::io;

use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};

use crate::sys::tun::Tun;

/// Why TUN devices cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunRefusal {
    /// There is no `/dev/net/tun`.
    Missing,
    /// There is, and no driver behind it.
    NoModule,
    /// This user may not open it.
    Permission,
    /// This process may open it, and not make interfaces (no CAP_NET_ADMIN).
    Capability,
    /// An interface of the probe's name is there.
    Busy,
    /// Anything else, in the system's words.
    Other(String),
}

impl From<io::Error> for TunRefusal {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => Self::Missing,
            Some(libc::ENODEV | libc::ENXIO) => Self::NoModule,
            Some(libc::EACCES) => Self::Permission,
            Some(libc::EPERM) => Self::Capability,
            Some(libc::EBUSY) => Self::Busy,
            _ => Self::Other(error.to_string()),
        }
    }
}

impl TunRefusal {
    /// What to do about it.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Missing => {
                "make it: `mkdir -p /dev/net && mknod /dev/net/tun c 10 200`; in a container, start it with `--device \
                 /dev/net/tun`"
            }
            Self::NoModule => "load the driver on the host: `modprobe tun` (CONFIG_TUN)",
            Self::Permission => {
                "run this as root, or let users open it: `chmod 0666 /dev/net/tun` (they still need the right to make \
                 interfaces, which a lab has in its own namespaces)"
            }
            Self::Capability => {
                "give the process CAP_NET_ADMIN: run this as root; in a container, start it with `--cap-add NET_ADMIN`"
            }
            Self::Busy => "another interface has the probe's name: try again",
            Self::Other(_) => "a security policy or a sandbox may forbid it",
        }
    }
}

impl fmt::Display for TunRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Missing => "/dev/net/tun is missing",
            Self::NoModule => "/dev/net/tun has no driver behind it",
            Self::Permission => "/dev/net/tun may not be opened by this user",
            Self::Capability => "this process may not make interfaces",
            Self::Busy => "the probe's interface name is taken",
            Self::Other(reason) => reason,
        };
        write!(f, "{what}: {}", self.remedy())
    }
}

impl std::error::Error for TunRefusal {}

/// Makes a TUN device and drops it.
///
/// Thread `tun-probe`: it does so in a network namespace of its own where it may, so that nobody sees an interface come
/// and go; it ends with the probe.
pub(super) fn probe() -> Result<(), TunRefusal> {
    let probe = std::thread::Builder::new().name("tun-probe".to_owned()).spawn(|| {
        // Where this is refused, the interface lives for a moment in the caller's own network.
        let _ = unshare(CloneFlags::CLONE_NEWNET);
        Tun::open("wglab-probe", false)
    });
    match probe.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(_))) => Ok(()),
        Ok(Ok(Err(error))) | Err(error) => Err(error.into()),
        Ok(Err(_)) => Err(TunRefusal::Other("the probe panicked".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_refusals_have_five_messages_and_remedies() {
        let refusals = [libc::ENOENT, libc::ENODEV, libc::EACCES, libc::EPERM, libc::EBUSY]
            .map(|errno| TunRefusal::from(io::Error::from_raw_os_error(errno)));
        let messages: std::collections::BTreeSet<String> = refusals.iter().map(ToString::to_string).collect();
        let remedies: std::collections::BTreeSet<&str> = refusals.iter().map(TunRefusal::remedy).collect();
        assert_eq!((messages.len(), remedies.len()), (5, 5));
        assert!(messages.iter().all(|message| !message.contains('\n')));
        let other = TunRefusal::from(io::Error::from_raw_os_error(libc::EIO));
        assert!(matches!(&other, TunRefusal::Other(reason) if reason.contains("os error 5")), "{other:?}");
    }
}
