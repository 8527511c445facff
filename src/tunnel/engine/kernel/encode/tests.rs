//! The bytes are written out from the layout that include/uapi/linux/wireguard.h documents, not computed.

use super::super::{key, prefix};
use super::*;
use crate::sys::genetlink::attributes;
use crate::tunnel::keys::{PrivateKey, PublicKey};

fn peer(number: u8) -> SetPeer {
    SetPeer::new(PublicKey::from_bytes([number; 32]).unwrap())
}

fn nets(count: u32) -> Vec<(IpNet, bool)> {
    let net = |number: u32| {
        let v4 = format!("10.{}.{}.0/24", number >> 8, number & 255);
        if number.is_multiple_of(2) { v4 } else { format!("fd00:{number:x}::/64") }
    };
    (0..count).map(|number| (net(number).parse().unwrap(), true)).collect()
}

/// The peers and prefixes that a kernel which reads the messages one after the other would have. One that goes on is the same.
fn read(messages: &[Bytes]) -> Vec<(PublicKey, Vec<IpNet>)> {
    let mut peers: Vec<(PublicKey, Vec<IpNet>)> = Vec::new();
    let lists = messages.iter().flat_map(|message| attributes(message));
    for (_, told) in lists.filter(|(kind, _)| *kind == device::PEERS).flat_map(|(_, list)| attributes(list)) {
        let part = |wanted: u16| attributes(told).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
        let key = key(part(peer::PUBLIC_KEY).unwrap()).unwrap();
        let nets = part(peer::ALLOWED_IPS).into_iter().flat_map(attributes);
        let nets = nets.map(|(_, value)| prefix(value).unwrap());
        match peers.last_mut().filter(|(last, _)| *last == key) {
            Some((_, known)) => known.extend(nets),
            None => peers.push((key, nets.collect())),
        }
    }
    peers
}

fn kinds(bytes: &[u8]) -> Vec<u16> {
    attributes(bytes).map(|(kind, _)| kind).collect()
}

#[test]
#[cfg(target_endian = "little")]
fn a_device_and_a_peer_are_the_documented_bytes() {
    let request = SetDevice {
        private_key: Some(Some(PrivateKey::from_bytes([8; 32]).unwrap())),
        listen_port: Some(21_820),
        fwmark: Some(None),
        replace_peers: true,
        peers: vec![SetPeer {
            preshared_key: Some(PresharedKey::from_bytes([9; 32])),
            endpoint: "192.0.2.1:51820".parse().ok(),
            keepalive: Some(25),
            replace_allowed_ips: true,
            allowed_ips: ["10.0.0.0/24", "fd00::/64"].map(|net| (net.parse().unwrap(), true)).to_vec(),
            ..peer(2)
        }],
    };
    // Each line is an attribute: length with this header, kind (0x80 in the high byte: nested), value, padding to four bytes.
    #[rustfmt::skip]
    let expected: Vec<u8> = [
        &[0x08, 0, 2, 0][..], b"wg0\0",                                // WGDEVICE_A_IFNAME
        &[0x24, 0, 3, 0], &[8; 32],                                    // WGDEVICE_A_PRIVATE_KEY
        &[0x08, 0, 5, 0], &[1, 0, 0, 0],                               // WGDEVICE_A_FLAGS: REPLACE_PEERS
        &[0x06, 0, 6, 0], &[0x3c, 0x55, 0, 0],                         // WGDEVICE_A_LISTEN_PORT
        &[0x08, 0, 7, 0], &[0, 0, 0, 0],                               // WGDEVICE_A_FWMARK: none
        &[0xbc, 0, 8, 0x80],                                           // WGDEVICE_A_PEERS
          &[0xb8, 0, 0, 0x80],                                         //   0
            &[0x24, 0, 1, 0], &[2; 32],                                //     WGPEER_A_PUBLIC_KEY
            &[0x08, 0, 3, 0], &[2, 0, 0, 0],                           //     WGPEER_A_FLAGS: REPLACE_ALLOWEDIPS
            &[0x24, 0, 2, 0], &[9; 32],                                //     WGPEER_A_PRESHARED_KEY
            &[0x14, 0, 4, 0], &[2, 0, 0xca, 0x6c, 192, 0, 2, 1], &[0; 8], // WGPEER_A_ENDPOINT: sockaddr_in
            &[0x06, 0, 5, 0], &[25, 0, 0, 0],                          //     WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL
            &[0x48, 0, 9, 0x80],                                       //     WGPEER_A_ALLOWEDIPS
              &[0x1c, 0, 0, 0x80],                                     //       0
                &[0x06, 0, 1, 0], &[2, 0, 0, 0],                       //         WGALLOWEDIP_A_FAMILY: AF_INET
                &[0x08, 0, 2, 0], &[10, 0, 0, 0],                      //         WGALLOWEDIP_A_IPADDR
                &[0x05, 0, 3, 0], &[24, 0, 0, 0],                      //         WGALLOWEDIP_A_CIDR_MASK
              &[0x28, 0, 0, 0x80],                                     //       0
                &[0x06, 0, 1, 0], &[10, 0, 0, 0],                      //         AF_INET6
                &[0x14, 0, 2, 0], &[0xfd], &[0; 15],
                &[0x05, 0, 3, 0], &[64, 0, 0, 0],
    ].concat();
    let messages = set("wg0", &request);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].as_slice(), expected);
}

#[test]
#[cfg(target_endian = "little")]
fn what_is_taken_away_is_told_by_flags_and_zeros() {
    let request = SetDevice {
        private_key: Some(None),
        fwmark: Some(Some(0x1234)),
        peers: vec![
            SetPeer { remove: true, update_only: true, ..peer(3) },
            SetPeer {
                preshared_key: Some(None),
                endpoint: "[2001:db8::1]:7".parse().ok(),
                keepalive: Some(0),
                allowed_ips: vec![("10.0.0.0/8".parse().unwrap(), false)],
                ..peer(4)
            },
        ],
        ..SetDevice::default()
    };
    #[rustfmt::skip]
    let expected: Vec<u8> = [
        &[0x08, 0, 2, 0][..], b"wg1\0",
        &[0x24, 0, 3, 0], &[0; 32],
        &[0x08, 0, 7, 0], &[0x34, 0x12, 0, 0],
        &[0xd0, 0, 8, 0x80],
          &[0x30, 0, 0, 0x80],
            &[0x24, 0, 1, 0], &[3; 32],
            &[0x08, 0, 3, 0], &[5, 0, 0, 0],                           // REMOVE_ME | UPDATE_ONLY
          &[0x9c, 0, 0, 0x80],
            &[0x24, 0, 1, 0], &[4; 32],
            &[0x24, 0, 2, 0], &[0; 32],
            &[0x20, 0, 4, 0], &[10, 0, 0, 7, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8], &[0; 11], &[1], &[0; 4], // sockaddr_in6
            &[0x06, 0, 5, 0], &[0, 0, 0, 0],
            &[0x28, 0, 9, 0x80],
              &[0x24, 0, 0, 0x80],
                &[0x06, 0, 1, 0], &[2, 0, 0, 0],
                &[0x08, 0, 2, 0], &[10, 0, 0, 0],
                &[0x05, 0, 3, 0], &[8, 0, 0, 0],
                &[0x08, 0, 4, 0], &[1, 0, 0, 0],                       // WGALLOWEDIP_A_FLAGS: REMOVE_ME
    ].concat();
    assert_eq!(set("wg1", &request)[0].as_slice(), expected);
}

#[test]
fn nothing_asked_is_a_name_and_no_more() {
    let messages = set("wg0", &SetDevice::default());
    assert_eq!((messages.len(), kinds(&messages[0])), (1, vec![device::IFNAME]));
}

#[test]
fn many_prefixes_go_on_in_the_next_message_and_none_is_thrown_away() {
    for count in [100, 200, 300, 1000, 5000] {
        let request = SetDevice {
            private_key: Some(Some(PrivateKey::from_bytes([8; 32]).unwrap())),
            replace_peers: true,
            peers: vec![
                SetPeer { keepalive: Some(9), ..peer(1) },
                SetPeer { replace_allowed_ips: true, allowed_ips: nets(count), keepalive: Some(7), ..peer(2) },
                peer(3),
            ],
            ..SetDevice::default()
        };
        let messages = set("wg0", &request);
        assert!(messages.iter().all(|message| message.len() < ENOUGH + 256), "{count}");
        assert_eq!(messages.len() > 1, count > 200, "{count}: {}", messages.len());
        let read = read(&messages);
        let expected: Vec<IpNet> = nets(count).into_iter().map(|(net, _)| net).collect();
        assert_eq!(read.iter().map(|(_, nets)| nets.len()).collect::<Vec<_>>(), [0, expected.len(), 0]);
        assert_eq!(read[1].1, expected);
        for (index, message) in messages.iter().enumerate() {
            let first = index == 0;
            assert_eq!(kinds(message).contains(&device::PRIVATE_KEY), first);
            assert_eq!(kinds(message).contains(&device::FLAGS), first, "a second one would remove the first's peers");
            let peers = attributes(message).find(|(kind, _)| *kind == device::PEERS).map(|(_, peers)| peers).unwrap();
            for (_, told) in attributes(peers) {
                let key = attributes(told).next().map(|(_, key)| key[0]).unwrap();
                if key == 2 {
                    assert_eq!(
                        kinds(told).contains(&peer::FLAGS),
                        first,
                        "a second one would remove the first's prefixes"
                    );
                    assert_eq!(kinds(told).contains(&peer::KEEPALIVE), first);
                }
            }
        }
    }
}

#[test]
fn many_peers_fill_messages_and_each_is_told_once() {
    let peers: Vec<SetPeer> = (0..2000_u32)
        .map(|number| {
            let mut key = [1; 32];
            key[..4].copy_from_slice(&number.to_ne_bytes());
            SetPeer { allowed_ips: nets(number % 4), ..SetPeer::new(PublicKey::from_bytes(key).unwrap()) }
        })
        .collect();
    let request = SetDevice { replace_peers: true, peers, ..SetDevice::default() };
    let messages = set("wg0", &request);
    assert!(messages.len() > 10 && messages.iter().all(|message| message.len() < ENOUGH + 512), "{}", messages.len());
    let read = read(&messages);
    assert_eq!(read.len(), request.peers.len());
    for ((key, nets), told) in read.iter().zip(&request.peers) {
        assert_eq!((*key, nets.len()), (told.public_key, told.allowed_ips.len()));
    }
}
