//! How single values are written and read.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use zeroize::Zeroizing;

use crate::tunnel::keys::{PresharedKey, PrivateKey, PublicKey};

pub(super) fn line(out: &mut String, key: &str, value: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(out, "{key}={value}");
}

pub(super) fn no_key() -> Zeroizing<String> {
    Zeroizing::new("0".repeat(64))
}

/// Digits only: `str::parse` would take a sign.
pub(super) fn number_in<T: std::str::FromStr>(value: &str) -> Option<T> {
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok()).flatten()
}

pub(super) fn yes(value: &str) -> Option<bool> {
    match value {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Keys are hexadecimal here, never base64.
fn key_text(value: &str) -> Option<&str> {
    (value.len() == 64).then_some(value)
}

pub(super) fn public_key(value: &str) -> Option<PublicKey> {
    key_text(value)?.parse().ok()
}

fn all_zero(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'0')
}

pub(super) fn optional_private_key(value: &str) -> Option<Option<PrivateKey>> {
    let text = key_text(value)?;
    if all_zero(text) { Some(None) } else { text.parse().ok().map(Some) }
}

pub(super) fn optional_preshared_key(value: &str) -> Option<Option<PresharedKey>> {
    let text = key_text(value)?;
    if all_zero(text) { Some(None) } else { text.parse().ok().map(Some) }
}

/// An endpoint that packets can be sent to: port 0 cannot. An IPv4 address in IPv6's clothes is an IPv4 address, as which
/// its datagrams will come back.
pub(super) fn endpoint(value: &str) -> Option<SocketAddr> {
    let mut endpoint: SocketAddr = value.parse().ok().or_else(|| with_named_zone(value))?;
    if let IpAddr::V6(v6) = endpoint.ip()
        && let Some(v4) = v6.to_ipv4_mapped()
    {
        endpoint = SocketAddr::new(v4.into(), endpoint.port());
    }
    (endpoint.port() != 0).then_some(endpoint)
}

/// `[fe80::1%eth0]:51820`: `wg` and wireguard-go write the zone's name.
fn with_named_zone(value: &str) -> Option<SocketAddr> {
    let (address, rest) = value.strip_prefix('[')?.split_once('%')?;
    let (zone, port) = rest.split_once("]:")?;
    let scope = nix::net::if_::if_nametoindex(zone).ok()?;
    Some(SocketAddrV6::new(address.parse().ok()?, number_in(port)?, 0, scope).into())
}
