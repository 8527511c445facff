//! Configuration files of wg and of wg-quick. Pure: bytes in, values and remarks out.
//!
//! ```text
//! bytes -> text -> lines -> sections of settings -> Conf, with warnings       (odd but legal: loads exactly)
//!                                                -> ConfError, all problems  (wrong: refused, each with its line)
//! ```
//!
//! What is legal is what wireguard-tools takes (src/config.c, src/wg-quick/linux.bash). Hooks are told and never run. No
//! message, snippet or `Debug` holds a key.

use std::collections::BTreeMap;
use std::ops::Range;

use ipnet::IpNet;
use zeroize::Zeroizing;

use super::keys::{PresharedKey, PrivateKey, PublicKey};
use crate::units::Mtu;

mod check;
mod diagnostic;
mod endpoint;
mod lines;
mod settings;
mod values;
mod words;

pub use diagnostic::{ConfError, Remark};
pub use endpoint::{Endpoint, Host};

use diagnostic::Remarks;
use lines::{Entry, Section, SectionKind};
use words::Key;

/// No configuration is larger: 100,000 peers with a prefix each take a tenth of it.
pub const MOST_BYTES: usize = 128 << 20;

/// Whose rules a file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `wg setconf`: no addresses, no hooks.
    Wg,
    /// `wg-quick up`: the same and more in `[Interface]`.
    WgQuick,
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Wg => "wg",
            Self::WgQuick => "wg-quick",
        })
    }
}

/// A file, read.
#[derive(Debug, Clone)]
pub struct Conf {
    /// Whose rules it was read by.
    pub dialect: Dialect,
    /// `[Interface]`.
    pub private_key: Option<PrivateKey>,
    /// The outer port; `None` or 0: any.
    pub listen_port: Option<u16>,
    /// `SO_MARK` of outer packets.
    pub fwmark: Option<u32>,
    /// Inner addresses, host bits and all.
    pub addresses: Vec<IpNet>,
    /// Name servers and search domains, as written.
    pub dns: Vec<String>,
    /// The device's MTU.
    pub mtu: Option<Mtu>,
    /// Where wg-quick puts its routes.
    pub table: Table,
    /// Whether wg-quick writes the file anew when the device goes down.
    pub save_config: bool,
    /// Commands that wg-quick would run. Nobody here does.
    pub hooks: Vec<Hook>,
    /// The peers, in the order of the file.
    pub peers: Vec<ConfPeer>,
    /// What is odd, in the order of the file.
    pub warnings: Vec<Remark>,
}

/// Where wg-quick puts its routes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Table {
    /// The main table, and one of its own for a default route.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// The table of that number.
    Number(u32),
}

/// A command that wg-quick would run. Its text is not kept: it may hold secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// `PreUp`, `PostUp`, `PreDown` or `PostDown`.
    pub when: &'static str,
    /// The line.
    pub line: usize,
}

/// One `[Peer]`.
#[derive(Debug, Clone)]
pub struct ConfPeer {
    /// Who.
    pub public_key: PublicKey,
    /// The optional symmetric secret.
    pub preshared_key: Option<PresharedKey>,
    /// Where it is called; `None` waits for it.
    pub endpoint: Option<Endpoint>,
    /// Prefixes that lead to it, without host bits.
    pub allowed_ips: Vec<IpNet>,
    /// Persistent keepalive, seconds.
    pub keepalive: Option<u16>,
    /// What a comment at its section calls it.
    pub name: Option<String>,
    /// The line of its `[Peer]`.
    pub line: usize,
}

impl Conf {
    /// Reads the file called `file` by the rules of `dialect`.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column and remedy.
    pub fn parse(file: &str, bytes: &[u8], dialect: Dialect) -> Result<Self, Box<ConfError>> {
        let text = Zeroizing::new(lines::text(bytes));
        let mut remarks = Remarks::new(&text);
        let sections = lines::sections(bytes, &text, &mut remarks);
        let (mut conf, places) = settings::conf(dialect, &sections, &mut remarks);
        check::whole(&conf, &places, &sections, &mut remarks);
        let Remarks { mut problems, mut warnings, .. } = remarks;
        if problems.is_empty() {
            warnings.sort_by_key(|warning| warning.span.start);
            conf.warnings = warnings;
            return Ok(conf);
        }
        problems.sort_by_key(|problem| problem.span.start);
        Err(Box::new(ConfError::new(file, diagnostic::masked(&text), problems)))
    }

    /// Reads the file by the rules of wg-quick where a key of its own is in it, else by those of wg.
    ///
    /// # Errors
    /// As [`Conf::parse`].
    pub fn parse_any(file: &str, bytes: &[u8]) -> Result<Self, Box<ConfError>> {
        let is_quick = |line: &str| {
            let key = line.split(['=', '#']).next().unwrap_or_default().trim();
            Key::named(key).is_some_and(|key| key.home() == words::Home::Quick)
        };
        let text = Zeroizing::new(lines::text(bytes));
        let dialect = if text.lines().any(is_quick) { Dialect::WgQuick } else { Dialect::Wg };
        Self::parse(file, bytes, dialect)
    }

    /// The public key of the device itself.
    #[must_use]
    pub fn public_key(&self) -> Option<PublicKey> {
        self.private_key.as_ref().map(PrivateKey::public)
    }

    /// Whether it holds anything that others must not read.
    #[must_use]
    pub fn holds_secrets(&self) -> bool {
        self.private_key.is_some() || self.peers.iter().any(|peer| peer.preshared_key.is_some())
    }
}

/// What is to be said about the mode of a file that holds keys; `None` where its owner alone may read and write it.
#[must_use]
pub fn mode_warning(mode: u32) -> Option<String> {
    let open = mode & 0o077;
    (open != 0).then(|| {
        let who = if open & 0o007 != 0 { "everybody on this host" } else { "its group" };
        format!("the file holds keys and is open to {who} (mode {:04o}); `chmod 600` closes it", mode & 0o7777)
    })
}

/// Where things are in the file, for remarks about the whole.
struct Places {
    /// The span of each peer's header, in the order of `Conf::peers`.
    peers: Vec<Range<usize>>,
    /// The span of each peer's `PublicKey` line.
    keys: Vec<Range<usize>>,
    /// Each peer's prefixes with their spans.
    prefixes: Vec<Vec<(IpNet, Range<usize>)>>,
}

#[cfg(test)]
mod tests;
