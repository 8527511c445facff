//! The kinds of traffic that a test can be.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestKind {
    /// Bulk data over one or more TCP connections.
    TcpStream,
    /// Datagrams at an offered rate.
    UdpStream,
    /// The highest UDP rate at a bounded loss.
    UdpSearch,
    /// One request and one response at a time over one TCP connection.
    TcpRr,
    /// One request and one response at a time over UDP.
    UdpRr,
    /// Connect, request, response, close, again.
    TcpCrr,
    /// ICMP echo at a fixed rate.
    Ping,
    /// New WireGuard sessions.
    Handshake,
    /// Open connections until new ones fail.
    Connections,
    /// The largest packet that passes.
    Mtu,
}

impl TestKind {
    /// Every kind, in the glossary's order.
    pub const ALL: [Self; 10] = [
        Self::TcpStream,
        Self::UdpStream,
        Self::UdpSearch,
        Self::TcpRr,
        Self::UdpRr,
        Self::TcpCrr,
        Self::Ping,
        Self::Handshake,
        Self::Connections,
        Self::Mtu,
    ];

    /// The kinds that this version can measure; a plan refuses the others.
    pub const MEASURED: [Self; 7] =
        [Self::TcpStream, Self::UdpStream, Self::TcpRr, Self::UdpRr, Self::TcpCrr, Self::Ping, Self::Handshake];

    /// The kind's name in files and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpStream => "tcp-stream",
            Self::UdpStream => "udp-stream",
            Self::UdpSearch => "udp-search",
            Self::TcpRr => "tcp-rr",
            Self::UdpRr => "udp-rr",
            Self::TcpCrr => "tcp-crr",
            Self::Ping => "ping",
            Self::Handshake => "handshake",
            Self::Connections => "connections",
            Self::Mtu => "mtu",
        }
    }

    /// Whether it moves bulk data, in a direction, with latency probed beside it.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::TcpStream | Self::UdpStream | Self::UdpSearch)
    }

    /// Whether its data goes over TCP sockets, so that it has a congestion control.
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::TcpStream | Self::TcpRr | Self::TcpCrr | Self::Connections)
    }
}

impl fmt::Display for TestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no kind of traffic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a kind of test; {}the kinds are {}", super::did_you_mean(.text, TestKind::ALL.map(TestKind::name)), TestKind::ALL.map(TestKind::name).join(", "))]
pub struct UnknownTestKind {
    /// What was written.
    pub text: String,
}

impl FromStr for TestKind {
    type Err = UnknownTestKind;
    fn from_str(text: &str) -> Result<Self, UnknownTestKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| UnknownTestKind { text: text.to_owned() })
    }
}
