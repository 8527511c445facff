//! Endpoints: where a peer is called.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::values::{self, Wrong};

/// Where a peer is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The host.
    pub host: Host,
    /// Its UDP port, not 0.
    pub port: u16,
}

/// A host, as the file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A link-local address, and the interface on whose link it is.
    LinkLocal(Ipv6Addr, String),
    /// A name, to be resolved.
    Name(String),
}

impl Endpoint {
    /// The address and port, where the file says both.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match &self.host {
            Host::Address(address) => Some(SocketAddr::new(*address, self.port)),
            Host::LinkLocal(..) | Host::Name(_) => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
            Host::LinkLocal(address, zone) => write!(f, "[{address}%{zone}]:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// An endpoint, and what is odd about it.
pub(super) struct Read {
    pub(super) endpoint: Endpoint,
    /// What is odd, and what to do.
    pub(super) odd: Option<(String, String)>,
}

const FORMS: &str = "write 192.0.2.1:51820, [2001:db8::1]:51820 or host.example:51820";

/// Reads `HOST:PORT` or `[HOST]:PORT`.
pub(super) fn read(text: &str) -> Result<Read, Wrong> {
    let wrong = |message: &str, help: String| Err((message.to_owned(), help));
    if let Some(quoted) = values::quotes(text) {
        return Err(quoted);
    }
    if text.contains("://") || text.contains('/') {
        return wrong("this is a URL or a prefix, not an endpoint", format!("{FORMS}: no scheme, no `/`"));
    }
    if text.contains(',') {
        return wrong("a peer has one endpoint", "write one of them".to_owned());
    }
    let (host, port, bracketed) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((host, after)) = rest.split_once(']') else {
                return wrong("the bracket is not closed", FORMS.to_owned());
            };
            let Some(port) = after.strip_prefix(':') else {
                return wrong("the port is missing", format!("{FORMS}: a colon and the port follow the bracket"));
            };
            (host, port, true)
        }
        None => match text.rsplit_once(':') {
            _ if text.parse::<Ipv6Addr>().is_ok() && text.matches(':').count() > 1 => {
                return wrong(
                    "an IPv6 address and its port cannot be told apart without brackets",
                    suggest_brackets(text),
                );
            }
            Some((host, _)) if host.contains(':') => {
                return wrong("an IPv6 address goes in brackets", suggest_brackets(text));
            }
            Some((host, port)) => (host, port, false),
            None => return wrong("the port is missing", FORMS.to_owned()),
        },
    };
    if port.is_empty() {
        return wrong("the port is missing", FORMS.to_owned());
    }
    let port = values::port(port, 1)?;
    let (host, odd) = self::host(host, bracketed)?;
    Ok(Read { endpoint: Endpoint { host, port }, odd })
}

/// The likeliest reading of an unbracketed IPv6 endpoint.
fn suggest_brackets(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((address, port)) if address.parse::<Ipv6Addr>().is_ok() && port.parse::<u16>().is_ok() => {
            format!("add brackets: [{address}]:{port}")
        }
        _ => "add brackets and the port, like [2001:db8::1]:51820".to_owned(),
    }
}

/// A host, and what is odd about it.
fn host(text: &str, bracketed: bool) -> Result<(Host, Option<(String, String)>), Wrong> {
    let wrong = |message: &str, help: &str| Err((message.to_owned(), help.to_owned()));
    if text.is_empty() {
        return wrong("the host is missing", FORMS);
    }
    if let Some((address, zone)) = text.split_once('%') {
        let Ok(address) = address.parse::<Ipv6Addr>() else {
            return wrong("only an IPv6 address has a zone", FORMS);
        };
        if !bracketed {
            return wrong("an IPv6 address goes in brackets", "add brackets, like [fe80::1%eth0]:51820");
        }
        if !address.is_unicast_link_local() {
            return wrong("only a link-local address (fe80::/10) has a zone", "remove `%` and what follows it");
        }
        if crate::text::check_interface(zone).is_err() {
            return wrong("the zone names no interface", "write the interface on whose link the peer is, like %eth0");
        }
        let odd = "a link-local endpoint is right on the hosts of one link only";
        let help = "write an address that is the same everywhere, where there is one";
        return Ok((Host::LinkLocal(address, zone.to_owned()), Some((odd.to_owned(), help.to_owned()))));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        if address.is_unspecified() || address.is_multicast() || address == IpAddr::from([255; 4]) {
            return wrong("no single host has this address", "write the address of the peer");
        }
        let odd = match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                return wrong(
                    "a link-local address says nothing without its interface",
                    "write the zone too, like [fe80::1%eth0]:51820",
                );
            }
            IpAddr::V6(address) => address.to_ipv4_mapped().map(|plain| {
                ("this is an IPv4 address in IPv6's clothes".to_owned(), format!("write {plain}, which it means"))
            }),
            IpAddr::V4(_) => bracketed.then(|| {
                ("brackets are for IPv6 addresses; wg reads this, others do not".to_owned(), "remove them".to_owned())
            }),
        };
        return Ok((Host::Address(address), odd));
    }
    if let Some(plain) = values::octal_free(text) {
        return Err((
            "a part of the address begins with 0, which some read as octal".to_owned(),
            format!("write it as it is meant, {plain} perhaps"),
        ));
    }
    name(text)?;
    let odd = bracketed.then(|| {
        ("brackets are for IPv6 addresses; wg reads this, others do not".to_owned(), "remove them".to_owned())
    });
    Ok((Host::Name(text.to_owned()), odd))
}

/// Whether it can be a host's name (RFC 1123 section 2.1; underscores are seen and resolve).
fn name(text: &str) -> Result<(), Wrong> {
    let wrong = |message: &str, help: &str| Err((message.to_owned(), help.to_owned()));
    if !text.is_ascii() {
        return wrong("the name is not in ASCII", "write its punycode, which begins with xn--");
    }
    let labels: Vec<&str> = text.strip_suffix('.').unwrap_or(text).split('.').collect();
    let fits = |label: &&str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if text.len() > 254 || !labels.iter().all(fits) {
        return wrong("this is neither an address nor a host's name", FORMS);
    }
    // What looks like an address and is none: resolvers read 10.1 or 0x7f.1 as one, each in its own way.
    let last = labels.last().copied().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
        return wrong("this looks like an IPv4 address and is none", "write all four numbers, each 0 to 255");
    }
    Ok(())
}
