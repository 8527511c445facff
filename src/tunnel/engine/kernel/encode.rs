//! A configuration as messages of `WG_CMD_SET_DEVICE`.
//!
//! ```text
//! IFNAME | PRIVATE_KEY FLAGS LISTEN_PORT FWMARK (the first only) | PEERS { 0 { PUBLIC_KEY ... ALLOWEDIPS { 0 { ... } } } ... }
//! ```
//!
//! A list is an attribute, and an attribute's length has 16 bits: what is long goes on in the next message. There the device's
//! own attributes are not told again, and a peer whose prefixes were cut goes on by its key alone, without the flag that
//! would throw the first ones away (Linux, include/uapi/linux/wireguard.h).

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use zeroize::Zeroizing;

use super::{allowed_ip, device, peer};
use crate::sys::genetlink::attribute;
use crate::tunnel::keys::{KEY_LEN, PresharedKey};
use crate::tunnel::uapi::{SetDevice, SetPeer};

/// What a message holds at most before the next one begins: far below an attribute's limit.
const ENOUGH: usize = 8 << 10;
/// `NLA_F_NESTED` (include/uapi/linux/netlink.h).
const NESTED: u16 = 0x8000;

/// Attributes, erased when dropped: they hold keys.
type Bytes = Zeroizing<Vec<u8>>;

/// The attributes of each message that makes `interface` what `request` says, in order.
pub(super) fn set(interface: &str, request: &SetDevice) -> Vec<Bytes> {
    let mut messages = Vec::new();
    let mut head = device_of(interface, request);
    let mut peers = Bytes::default();
    for told in &request.peers {
        let mut prefixes = told.allowed_ips.as_slice();
        let mut begun = false;
        loop {
            if head.len() + peers.len() >= ENOUGH {
                messages.push(message(&mut head, &mut peers, interface));
            }
            let room = ENOUGH.saturating_sub(head.len() + peers.len());
            prefixes = add_peer(&mut peers, told, begun, prefixes, room);
            begun = true;
            if prefixes.is_empty() {
                break;
            }
            messages.push(message(&mut head, &mut peers, interface));
        }
    }
    messages.push(message(&mut head, &mut peers, interface));
    messages
}

/// Closes a message; the next one begins with the interface's name alone.
fn message(head: &mut Bytes, peers: &mut Bytes, interface: &str) -> Bytes {
    let mut next = Bytes::default();
    put(&mut next, device::IFNAME, &name(interface));
    let mut whole = std::mem::replace(head, next);
    if !peers.is_empty() {
        put(&mut whole, device::PEERS | NESTED, peers);
        *peers = Bytes::default();
    }
    whole
}

fn device_of(interface: &str, request: &SetDevice) -> Bytes {
    let mut out = Bytes::default();
    put(&mut out, device::IFNAME, &name(interface));
    if let Some(key) = &request.private_key {
        // All zero bytes take the key away.
        let bytes = Zeroizing::new(key.as_ref().map_or([0; KEY_LEN], |key| key.secret().to_bytes()));
        put(&mut out, device::PRIVATE_KEY, &*bytes);
    }
    if request.replace_peers {
        put(&mut out, device::FLAGS, &device::REPLACE_PEERS.to_ne_bytes());
    }
    if let Some(port) = request.listen_port {
        put(&mut out, device::LISTEN_PORT, &port.to_ne_bytes());
    }
    if let Some(mark) = request.fwmark {
        put(&mut out, device::FWMARK, &mark.unwrap_or(0).to_ne_bytes());
    }
    out
}

/// Adds a peer with as many of its `prefixes` as fit into about `room` bytes, one at least; what is left of them is returned.
/// Of one that was `begun` in the message before only the key is told again.
fn add_peer<'p>(
    out: &mut Bytes,
    told: &SetPeer,
    begun: bool,
    prefixes: &'p [(IpNet, bool)],
    room: usize,
) -> &'p [(IpNet, bool)] {
    let mut peer = Bytes::default();
    put(&mut peer, peer::PUBLIC_KEY, told.public_key.as_bytes());
    let mut flags = if told.update_only { peer::UPDATE_ONLY } else { 0 };
    if !begun {
        flags |= if told.remove { peer::REMOVE_ME } else { 0 };
        flags |= if told.replace_allowed_ips { peer::REPLACE_ALLOWED_IPS } else { 0 };
    }
    if flags != 0 {
        put(&mut peer, peer::FLAGS, &flags.to_ne_bytes());
    }
    if !begun {
        if let Some(key) = &told.preshared_key {
            let bytes = Zeroizing::new(key.as_ref().map_or([0; KEY_LEN], PresharedKey::bytes));
            put(&mut peer, peer::PRESHARED_KEY, &*bytes);
        }
        if let Some(endpoint) = told.endpoint {
            put(&mut peer, peer::ENDPOINT, &socket_address(endpoint));
        }
        if let Some(seconds) = told.keepalive {
            put(&mut peer, peer::KEEPALIVE, &seconds.to_ne_bytes());
        }
    }
    let mut list = Vec::new();
    let mut taken = 0;
    for (net, add) in prefixes {
        if taken > 0 && peer.len() + list.len() >= room {
            break;
        }
        let mut prefix = Vec::new();
        let (family, address) = match net.addr() {
            IpAddr::V4(address) => (libc::AF_INET as u16, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6 as u16, address.octets().to_vec()),
        };
        put(&mut prefix, allowed_ip::FAMILY, &family.to_ne_bytes());
        put(&mut prefix, allowed_ip::ADDRESS, &address);
        put(&mut prefix, allowed_ip::MASK, &[net.prefix_len()]);
        if !add {
            put(&mut prefix, allowed_ip::FLAGS, &allowed_ip::REMOVE_ME.to_ne_bytes());
        }
        put(&mut list, NESTED, &prefix);
        taken += 1;
    }
    if !list.is_empty() {
        put(&mut peer, peer::ALLOWED_IPS | NESTED, &list);
    }
    put(out, NESTED, &peer);
    &prefixes[taken..]
}

fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let bytes = Zeroizing::new(attribute(kind, value));
    if out.capacity() - out.len() < bytes.len() {
        // Moved by hand, so that no key is left behind where it was.
        let mut larger = Vec::with_capacity((out.len() + bytes.len()).max(2 * ENOUGH));
        larger.extend_from_slice(out);
        drop(Zeroizing::new(std::mem::replace(out, larger)));
    }
    out.extend_from_slice(&bytes);
}

/// As the kernel reads strings (`NLA_NUL_STRING`).
fn name(interface: &str) -> Vec<u8> {
    [interface.as_bytes(), &[0]].concat()
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
fn socket_address(at: SocketAddr) -> Vec<u8> {
    match at {
        SocketAddr::V4(at) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            [&family[..], &at.port().to_be_bytes(), &at.ip().octets(), &[0; 8]].concat()
        }
        SocketAddr::V6(at) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            let (flow, scope) = (at.flowinfo().to_be_bytes(), at.scope_id().to_ne_bytes());
            [&family[..], &at.port().to_be_bytes(), &flow, &at.ip().octets(), &scope].concat()
        }
    }
}

#[cfg(test)]
mod tests;
