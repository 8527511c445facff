use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::tunnel::keys::{PresharedKey, PrivateKey, PublicKey};

fn key(byte: u8) -> PublicKey {
    PublicKey::from_bytes([byte; 32]).unwrap()
}

fn sample() -> SetDevice {
    SetDevice {
        private_key: Some(Some(PrivateKey::from_bytes([9; 32]).unwrap())),
        listen_port: Some(51820),
        fwmark: Some(Some(0xca6c)),
        replace_peers: true,
        peers: vec![
            SetPeer {
                preshared_key: Some(PresharedKey::from_bytes([3; 32])),
                endpoint: Some("[2001:db8::2]:51820".parse().unwrap()),
                keepalive: Some(25),
                replace_allowed_ips: true,
                allowed_ips: vec![
                    ("10.0.0.0/24".parse().unwrap(), true),
                    ("fd00::/64".parse().unwrap(), true),
                    ("10.0.1.0/24".parse().unwrap(), false),
                ],
                ..SetPeer::new(key(2))
            },
            SetPeer { remove: true, ..SetPeer::new(key(4)) },
            SetPeer { update_only: true, preshared_key: Some(None), ..SetPeer::new(key(5)) },
        ],
    }
}

#[test]
fn a_request_survives_its_own_text() {
    let text = sample().encode();
    let body = text.strip_prefix("set=1\n").unwrap().strip_suffix("\n").unwrap();
    let read = SetDevice::parse(body).unwrap();
    assert_eq!(read.encode(), text);
    assert_eq!(read.peers.len(), 3);
    assert_eq!(read.peers[0].allowed_ips.len(), 3);
    assert!(!read.peers[0].allowed_ips[2].1);
}

#[test]
fn a_wrong_line_refuses_the_whole_request() {
    let k = key(2).to_hex();
    for (text, errno) in [
        ("listen_port".to_owned(), errno::EPROTO),
        ("listen_port=65536".to_owned(), errno::EINVAL),
        ("listen_port=+1".to_owned(), errno::EINVAL),
        ("listen_port=-1".to_owned(), errno::EINVAL),
        ("nonsense=1".to_owned(), errno::EINVAL),
        ("endpoint=192.0.2.1:1".to_owned(), errno::EINVAL),
        ("private_key=00".to_owned(), errno::EINVAL),
        ("private_key=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".to_owned(), errno::EINVAL),
        (format!("public_key={}", "0".repeat(64)), errno::EINVAL),
        (format!("public_key={k}\nlisten_port=1"), errno::EINVAL),
        (format!("public_key={k}\nendpoint=192.0.2.1:0"), errno::EINVAL),
        (format!("public_key={k}\nendpoint=host.example:1"), errno::EINVAL),
        (format!("public_key={k}\nallowed_ip=10.0.0.0/33"), errno::EINVAL),
        (format!("public_key={k}\nallowed_ip=10.0.0.0"), errno::EINVAL),
        (format!("public_key={k}\npersistent_keepalive_interval=65536"), errno::EINVAL),
        (format!("public_key={k}\nprotocol_version=2"), errno::EINVAL),
        (format!("public_key={k}\nremove=yes"), errno::EINVAL),
        (format!("public_key={k}\n\n"), errno::EPROTO),
    ] {
        assert_eq!(SetDevice::parse(&text).unwrap_err().errno(), errno, "{text}");
    }
}

#[test]
fn host_bits_are_dropped_and_all_zero_keys_clear() {
    let text = format!("private_key={}\npublic_key={}\nallowed_ip=10.0.0.7/24\n", "0".repeat(64), key(2).to_hex());
    let read = SetDevice::parse(&text).unwrap();
    assert!(matches!(read.private_key, Some(None)));
    assert_eq!(read.peers[0].allowed_ips[0].0.to_string(), "10.0.0.0/24");
}

#[test]
fn an_ipv4_endpoint_is_one_however_it_is_written() {
    let endpoint = |text: &str| {
        let request = format!("public_key={}\nendpoint={text}\n", key(1).to_hex());
        SetDevice::parse(&request).ok().and_then(|device| device.peers[0].endpoint)
    };
    assert_eq!(endpoint("[::ffff:192.0.2.1]:7"), "192.0.2.1:7".parse().ok());
    assert_eq!(endpoint("[fe80::1%3]:7"), "[fe80::1%3]:7".parse().ok());
    for wrong in [
        "192.0.2.1:0",
        "[2001:db8::1]:0",
        "192.0.2.1",
        "192.0.2.1:65536",
        "2001:db8::1:7",
        "host.example:7",
        "192.0.2.1:+7",
    ] {
        assert_eq!(endpoint(wrong), None, "{wrong}");
    }
}

#[test]
fn last_handshake_is_never_an_age_or_a_time() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_100);
    let age = |seconds: &str| {
        let text = format!("public_key={}\nlast_handshake_time_sec={seconds}\nerrno=0\n\n", key(2).to_hex());
        GetDevice::parse(&text).unwrap().peers[0].last_handshake.age(now)
    };
    assert_eq!(age("0"), None);
    assert_eq!(age("12"), Some(Duration::from_secs(12)));
    assert_eq!(age("1750000000"), Some(Duration::from_secs(100)));
    assert_eq!(age("1750000200"), Some(Duration::ZERO), "a clock that went back");
    assert_eq!(age("-5"), None);
}

#[test]
fn an_answer_survives_its_own_text() {
    let device = GetDevice {
        private_key: Some(PrivateKey::from_bytes([9; 32]).unwrap()),
        own_public_key: None,
        listen_port: Some(51820),
        fwmark: None,
        peers: vec![GetPeer {
            public_key: key(2),
            preshared_key: None,
            endpoint: Some("192.0.2.1:7".parse().unwrap()),
            last_handshake: LastHandshake::At(Duration::new(1_750_000_000, 5)),
            tx_bytes: 1,
            rx_bytes: u64::MAX,
            keepalive: 25,
            allowed_ips: vec!["10.0.0.0/8".parse().unwrap(), "::/0".parse().unwrap()],
        }],
    };
    let text = device.encode();
    assert_eq!(GetDevice::parse(&text).unwrap().encode(), text);
}

#[test]
fn refusals_and_cut_answers_are_errors() {
    assert_eq!(parse_set_answer("errno=0\n\n"), Ok(()));
    assert_eq!(parse_set_answer("errno=22\n\n"), Err(UapiError::Errno(22)));
    assert_eq!(parse_set_answer("errno=-98\n\n"), Err(UapiError::Errno(98)), "wireguard-go answers negative numbers");
    assert_eq!(parse_set_answer(""), Err(UapiError::Truncated));
    assert_eq!(GetDevice::parse("listen_port=1\n").unwrap_err(), UapiError::Truncated);
    assert!(GetDevice::parse("own_public_key=xyz\nfuture=1\nerrno=0\n\n").is_ok(), "unknown keys are passed over");
}

#[test]
fn errors_do_not_repeat_values() {
    let error = SetDevice::parse("private_key=deadbeef").unwrap_err().to_string();
    assert!(!error.contains("deadbeef"), "{error}");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "([a-z_]{1,12}=[-+0-9a-f.:/]{0,70}\n|\\PC{0,20}\n){0,8}") {
        let _ = SetDevice::parse(&text);
        let _ = GetDevice::parse(&text);
    }

    #[test]
    fn a_request_cut_anywhere_is_read_or_refused(at in 0_usize..900) {
        let text = sample().encode();
        let cut = &text[..at.min(text.len())];
        let _ = SetDevice::parse(cut);
    }
}

#[test]
fn endpoints_may_name_their_zone() {
    let text = format!("public_key={}\nendpoint=[fe80::1%lo]:51820\n", key(2).to_hex());
    let endpoint = Some("[fe80::1%1]:51820".parse().unwrap());
    assert_eq!(SetDevice::parse(&text).unwrap().peers[0].endpoint, endpoint, "as wg writes it");
    assert_eq!(GetDevice::parse(&format!("{text}errno=0\n\n")).unwrap().peers[0].endpoint, endpoint);
    for none in ["[fe80::1%none]:1", "[fe80::1%lo]:0", "[fe80::1%lo]:+1", "[192.0.2.1%lo]:1", "fe80::1%lo:1"] {
        assert!(SetDevice::parse(&format!("public_key={}\nendpoint={none}\n", key(2).to_hex())).is_err(), "{none}");
    }
}

#[test]
fn prefixes_before_replace_allowed_ips_are_replaced_too() {
    let text = format!(
        "public_key={}\nallowed_ip=10.1.0.0/16\nreplace_allowed_ips=true\nallowed_ip=10.2.0.0/16\n",
        key(2).to_hex()
    );
    assert_eq!(SetDevice::parse(&text).unwrap().peers[0].allowed_ips, [("10.2.0.0/16".parse().unwrap(), true)]);
}
