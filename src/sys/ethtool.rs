//! Offload features of an interface: `SIOCETHTOOL` (Linux, include/uapi/linux/ethtool.h), without the tool.
#![allow(unsafe_code)]

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;

/// Why features could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum EthtoolError {
    /// No socket for the request.
    #[error("cannot open a socket to ask for interface features")]
    Socket(#[source] io::Error),
    /// The kernel refused.
    #[error("cannot {what} the features of interface {interface}")]
    Refused {
        /// `read` or `set`.
        what: &'static str,
        /// The interface.
        interface: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No kernel here knows that name.
    #[error("this kernel knows no interface feature `{feature}`")]
    Unknown {
        /// The name.
        feature: String,
    },
    /// The request was taken, and the interface is not as asked.
    #[error("interface {interface} did not take: {}", .features.join(", "))]
    NotGranted {
        /// The interface.
        interface: String,
        /// What it did not take, as `name on` or `name off`.
        features: Vec<String>,
    },
}

/// One feature of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Feature {
    /// Whether it is on.
    pub active: bool,
    /// Whether it can be changed.
    pub changeable: bool,
}

/// All features of an interface, by the kernel's names (`tx-tcp-segmentation`, `rx-gro`).
pub type Features = BTreeMap<String, Feature>;

/// The kernel's names behind a name that people use (ethtool(8), `-K`); the name itself where it is not such a one.
pub fn kernel_names<'a>(name: &'a str, known: &'a Features) -> Vec<&'a str> {
    let all = |matches: fn(&str) -> bool| known.keys().map(String::as_str).filter(|name| matches(name)).collect();
    match name {
        "gro" => vec!["rx-gro"],
        "gso" => vec!["tx-generic-segmentation"],
        "lro" => vec!["rx-lro"],
        "rx" => vec!["rx-checksum"],
        "rxhash" => vec!["rx-hashing"],
        "ntuple" => vec!["rx-ntuple-filter"],
        "sg" => all(|name| name.starts_with("tx-scatter-gather")),
        "tso" => all(|name| name.starts_with("tx-tcp") && name.ends_with("-segmentation")),
        "tx" => all(|name| name.starts_with("tx-checksum-")),
        name => vec![name],
    }
}

/// A socket to ask by, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
    /// Feature names by bit number. They are the kernel's, the same for every interface.
    names: OnceCell<Vec<String>>,
}

impl Ethtool {
    /// Opens the socket.
    pub fn open() -> Result<Self, EthtoolError> {
        let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|errno| EthtoolError::Socket(errno.into()))?;
        Ok(Self { socket, names: OnceCell::new() })
    }

    /// The features of `interface`.
    pub fn features(&self, interface: &str) -> Result<Features, EthtoolError> {
        let refused = |source| EthtoolError::Refused { what: "read", interface: interface.to_owned(), source };
        let names = self.names(interface).map_err(refused)?;
        let blocks = names.len().div_ceil(32);
        // struct ethtool_gfeatures: cmd, size, then {available, requested, active, never_changed} per 32 features.
        let mut request = vec![0_u32; 2 + 4 * blocks];
        set(&mut request, &[ETHTOOL_GFEATURES, blocks as u32]);
        self.call(interface, &mut request).map_err(refused)?;
        let bit = |word: usize, index: usize| {
            request.get(2 + 4 * (index / 32) + word).is_some_and(|block| block & (1 << (index % 32)) != 0)
        };
        Ok(names
            .iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
            .map(|(index, name)| (name.clone(), Feature { active: bit(2, index), changeable: bit(0, index) }))
            .collect())
    }

    /// Turns features on or off, by kernel names, and reads them back. What is as asked already is not touched.
    ///
    /// # Errors
    /// [`EthtoolError::NotGranted`] when the interface took only a part, which then stays.
    pub fn set_features(&self, interface: &str, wanted: &[(&str, bool)]) -> Result<Features, EthtoolError> {
        let before = self.features(interface)?;
        let differs = |features: &Features, name: &str, on: bool| {
            features
                .get(name)
                .map(|feature| feature.active != on)
                .ok_or_else(|| EthtoolError::Unknown { feature: name.to_owned() })
        };
        let mut changes = Vec::new();
        for (name, on) in wanted {
            if differs(&before, name, *on)? {
                changes.push((*name, *on));
            }
        }
        if changes.is_empty() {
            return Ok(before);
        }
        let refused = |source| EthtoolError::Refused { what: "set", interface: interface.to_owned(), source };
        let names = self.names(interface).map_err(refused)?;
        let blocks = names.len().div_ceil(32);
        // struct ethtool_sfeatures: cmd, size, then {valid, requested} per 32 features.
        let mut request = vec![0_u32; 2 + 2 * blocks];
        set(&mut request, &[ETHTOOL_SFEATURES, blocks as u32]);
        for (index, name) in names.iter().enumerate() {
            let Some((_, on)) = changes.iter().find(|(wanted, _)| wanted == name) else { continue };
            for (word, value) in [true, *on].into_iter().enumerate() {
                if let Some(block) = request.get_mut(2 + 2 * (index / 32) + word) {
                    *block |= u32::from(value) << (index % 32);
                }
            }
        }
        self.call(interface, &mut request).map_err(refused)?;
        let after = self.features(interface)?;
        let mut missed = Vec::new();
        for (name, on) in changes {
            if differs(&after, name, on)? {
                missed.push(format!("{name} {}", if on { "on" } else { "off" }));
            }
        }
        if missed.is_empty() {
            Ok(after)
        } else {
            Err(EthtoolError::NotGranted { interface: interface.to_owned(), features: missed })
        }
    }

    fn names(&self, interface: &str) -> io::Result<&[String]> {
        if let Some(names) = self.names.get() {
            return Ok(names);
        }
        // struct ethtool_sset_info: cmd, reserved, a 64-bit mask of sets, then one length per set.
        let mut request = vec![0_u32; 5];
        set(&mut request, &[ETHTOOL_GSSET_INFO]);
        let mask = (1_u64 << ETH_SS_FEATURES).to_ne_bytes();
        for (word, bytes) in request.iter_mut().skip(2).zip(mask.chunks_exact(4)) {
            *word = u32::from_ne_bytes(bytes.try_into().map_err(io::Error::other)?);
        }
        self.call(interface, &mut request)?;
        let count = request.get(4).copied().unwrap_or(0) as usize;
        // struct ethtool_gstrings: cmd, string set, length, then 32 bytes per string.
        let mut request = vec![0_u32; 3 + count * ETH_GSTRING_LEN / 4];
        set(&mut request, &[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
        self.call(interface, &mut request)?;
        let bytes: Vec<u8> = request.iter().skip(3).flat_map(|word| word.to_ne_bytes()).collect();
        let names = bytes.chunks_exact(ETH_GSTRING_LEN).map(|text| {
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            String::from_utf8_lossy(text.get(..end).unwrap_or_default()).into_owned()
        });
        Ok(self.names.get_or_init(|| names.collect()))
    }

    /// Makes the request. `request` must be as long as the command and the counts in it say.
    fn call(&self, interface: &str, request: &mut [u32]) -> io::Result<()> {
        // SAFETY: ifreq is plain data; all-zero is valid.
        let mut frame: libc::ifreq = unsafe { std::mem::zeroed() };
        // One byte less than there is room for: the name must end in a zero.
        let room = frame.ifr_name.len() - 1;
        if interface.len() > room {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in frame.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        frame.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // SAFETY:
        // - `frame` is a whole ifreq with a terminated name;
        // - its data points at `request`, which lives through the call and is as long as its header tells the kernel.
        let done = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut frame) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Puts `head` at the beginning of a request.
fn set(request: &mut [u32], head: &[u32]) {
    for (to, from) in request.iter_mut().zip(head) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_features_by_name() {
        let features = Ethtool::open().unwrap().features("lo").unwrap();
        // Loopback segments in software, always (Linux, drivers/net/loopback.c).
        assert!(features["tx-tcp-segmentation"].active, "{features:?}");
        assert!(!features["loopback"].changeable);
        assert!(kernel_names("tso", &features).contains(&"tx-tcp6-segmentation"));
        assert_eq!(kernel_names("gro", &features), ["rx-gro"]);
        assert_eq!(kernel_names("tx-udp-segmentation", &features), ["tx-udp-segmentation"]);
    }

    #[test]
    fn what_is_already_so_needs_no_privilege() {
        let ethtool = Ethtool::open().unwrap();
        let on = ethtool.features("lo").unwrap()["rx-gro"].active;
        ethtool.set_features("lo", &[("rx-gro", on)]).unwrap();
    }

    #[test]
    fn unknown_features_and_interfaces_are_named() {
        let ethtool = Ethtool::open().unwrap();
        let error = ethtool.set_features("lo", &[("tx-teleport", true)]).unwrap_err();
        assert!(error.to_string().contains("tx-teleport"), "{error}");
        let error = ethtool.features("no-such-one").unwrap_err();
        assert!(error.to_string().contains("no-such-one"), "{error}");
        assert!(ethtool.features("a-name-longer-than-any").is_err());
    }
}
