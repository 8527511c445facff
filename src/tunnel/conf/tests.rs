use proptest::prelude::*;

use super::*;

mod dialects;
mod safety;
mod values;

const K1: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

const K2: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

const K3: &str = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=";

const K4: &str = "BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ=";

const A1: &str = "# site A   (mixed case, tabs, trailing comments, no newline at end of file)
[interface]
\tprivatekey=AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=   # secret
Address = 10.77.0.1/24
Address = fd77::1/64, 10.77.1.1/32
ListenPort = 51820
MTU = 1420
MTU = 1380
FwMark = 0xca6c
Table = off
SaveConfig = false

[Peer]
PublicKey=AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=
PresharedKey = AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=
AllowedIPs = 10.77.0.2
AllowedIPs = 192.168.9.77/24,fd77::2
Endpoint = [2001:db8:9::2]:51820
PersistentKeepalive = OFF";

fn quick(text: &str) -> Result<Conf, Box<ConfError>> {
    Conf::parse("wg0.conf", text.as_bytes(), Dialect::WgQuick)
}

/// A whole file around lines of `[Interface]` and of `[Peer]`.
fn whole(interface: &str, peer: &str) -> String {
    format!(
        "[Interface]\nPrivateKey = {K1}\n{interface}\n[Peer]\nPublicKey = {K2}\nAllowedIPs = 10.77.0.2/32\n{peer}\n"
    )
}

fn nets(conf: &[IpNet]) -> Vec<String> {
    conf.iter().map(ToString::to_string).collect()
}

/// The one problem of a file with this line in its `[Interface]` or `[Peer]`.
fn refused(interface: &str, peer: &str) -> Remark {
    let error = quick(&whole(interface, peer)).expect_err(&format!("{interface:?} {peer:?} must be refused"));
    assert_eq!(error.problems.len(), 1, "{interface:?} {peer:?}: {error}");
    let problem = error.problems[0].clone();
    let rendered = error.render(false);
    assert!(rendered.contains(&format!("wg0.conf:{}:{}", problem.line, problem.column)), "{rendered}");
    assert!(!problem.help.is_empty());
    hides_keys(&rendered);
    problem
}

fn refused_in_interface(line: &str) -> Remark {
    let problem = refused(line, "");
    assert_eq!(problem.line, 3, "{line}: {problem}");
    problem
}

fn refused_in_peer(line: &str) -> Remark {
    let problem = refused("", line);
    assert_eq!(problem.line, 7, "{line}: {problem}");
    problem
}

/// The warnings of a file with these lines, which loads.
fn warned(interface: &str, peer: &str) -> (Conf, Vec<Remark>) {
    let conf = quick(&whole(interface, peer)).unwrap_or_else(|error| panic!("{interface:?} {peer:?}: {error}"));
    let warnings = conf.warnings.clone();
    for warning in &warnings {
        hides_keys(&warning.to_string());
    }
    (conf, warnings)
}

fn hides_keys(text: &str) {
    for key in [K1, K2, K3, K4] {
        assert!(!text.contains(&key[..12]), "a key shows: {text}");
    }
}

#[test]
fn a1_odd_but_legal_loads_exactly() {
    for text in [A1.to_owned(), A1.replace('\n', "\r\n"), format!("{A1}\n"), format!("\u{feff}{A1}")] {
        let conf = quick(&text).unwrap();
        assert_eq!(nets(&conf.addresses), ["10.77.0.1/24", "fd77::1/64", "10.77.1.1/32"]);
        assert_eq!(conf.mtu.map(Mtu::get), Some(1380));
        assert_eq!((conf.listen_port, conf.fwmark), (Some(51820), Some(51820)));
        assert_eq!((conf.table, conf.save_config), (Table::Off, false));
        assert_eq!(conf.public_key(), Some(K1.parse::<PrivateKey>().unwrap().public()));
        let [peer] = &conf.peers[..] else { panic!("one peer") };
        assert_eq!(peer.public_key, K2.parse().unwrap());
        assert_eq!(peer.preshared_key, K3.parse().ok());
        assert_eq!(nets(&peer.allowed_ips), ["10.77.0.2/32", "192.168.9.0/24", "fd77::2/128"]);
        assert_eq!(peer.endpoint.as_ref().unwrap().socket_addr(), "[2001:db8:9::2]:51820".parse().ok());
        assert_eq!(peer.keepalive, None);
        let said: Vec<String> = conf.warnings.iter().map(ToString::to_string).collect();
        let bom = usize::from(text.starts_with('\u{feff}'));
        assert_eq!(said.len(), 2 + bom, "{said:?}");
        assert!(said[bom].contains("MTU is on lines 7 and 8; the last one counts"), "{said:?}");
        assert!(said[bom + 1].contains("192.168.9.77/24") && said[bom + 1].contains("192.168.9.0/24"), "{said:?}");
        assert_eq!((conf.warnings[bom].line, conf.warnings[bom + 1].line), (8, 17));
        hides_keys(&format!("{conf:?}").replace(&format!("PublicKey({K2})"), ""));
    }
}

#[test]
fn a2_one_fault_each() {
    for (line, says) in [
        ("AllowedIPs =", "AllowedIPs is empty"),
        ("AllowedIPs = 10.0.0.1/32,", "empty item"),
        ("; Endpoint = 192.0.2.1:51820", "no comment"),
        ("PersistentKeepalive = 25s", "no interval"),
        ("Endpoint = 2001:db8::1:51820", "brackets"),
        ("Endpoint = http://gw.example:8000:51820", "URL"),
        ("Endpoint = 192.0.2.1", "port is missing"),
        ("AllowedIPs = 12.0.0.012", "begins with 0"),
        ("AllowedIPs = 10.0.0.0/33", "out of range"),
        ("AllowedIPs = -10.0.0.0/24", "changes what a running device has"),
    ] {
        let problem = refused_in_peer(line);
        assert!(problem.message.contains(says), "{line}: {problem}");
    }
    for (line, says) in [
        ("FwMark = 0XCA6C", "0X"),
        ("Jc = 4", "obfuscated dialect"),
        ("PrivateKeyFile = /etc/k", "systemd-networkd"),
        ("Table = main", "no routing table"),
        ("MTU = 65536", "more than"),
        ("MTU = 0", "MTU of 0"),
    ] {
        let problem = refused_in_interface(line);
        assert!(problem.message.contains(says), "{line}: {problem}");
    }
    assert!(refused_in_peer("; x").help.contains('#'));
    assert!(refused_in_peer("Endpoint = 2001:db8::1:51820").help.contains("add brackets: [2001:db8::1]:51820"));
    let (conf, warnings) = warned("Address = 10.0.0.1/24,", "PersistentKeepalive = 025");
    assert_eq!((nets(&conf.addresses), conf.peers[0].keepalive), (vec!["10.0.0.1/24".to_owned()], Some(25)));
    assert!(warnings[0].message.contains("empty item") && warnings[0].line == 3, "{warnings:?}");
    let (conf, warnings) = warned("MTU = 576", "");
    assert_eq!(conf.mtu.map(Mtu::get), Some(576));
    assert!(warnings[0].message.contains("IPv6"), "{warnings:?}");
    let error = quick(&format!("[Interface]\nPrivateKey = {K1}\n[Peer]\nAllowedIPs = 10.0.0.0/8\n")).unwrap_err();
    assert!(error.problems[0].message.contains("no PublicKey") && error.problems[0].line == 3, "{error}");
    let own = K1.parse::<PrivateKey>().unwrap().public();
    let error = quick(&format!("[Interface]\nPrivateKey = {K1}\n[Peer]\nPublicKey = {own}\n")).unwrap_err();
    assert!(error.problems[0].message.contains("the device itself") && error.problems[0].line == 4, "{error}");
    assert!(!error.render(false).contains(&own.to_string()), "even a public key is hidden in a snippet");
    let error = quick(&format!("[Interface]\nPrivateKey = {K1}\n[Peer]\nPublicKey = {K1}\n")).unwrap_err();
    assert!(error.problems[0].message.contains("is the PrivateKey") && error.problems[0].line == 4, "{error}");
    assert!(refused_in_peer("AllowedIPs = 10.0.0.0/24 10.1.0.0/24").help.contains("commas"));
}

#[test]
fn lists_add_up_and_the_last_scalar_counts() {
    let (conf, _) = warned(
        "Address = 10.0.0.1/24\nAddress = fd00:5::1/64\nDNS = 192.0.2.53, example.net\nDNS = 2001:db8::53",
        "AllowedIPs = 10.0.0.0/24\nAllowedIPs = fd00:5::/64",
    );
    assert_eq!(nets(&conf.addresses), ["10.0.0.1/24", "fd00:5::1/64"]);
    assert_eq!(nets(&conf.peers[0].allowed_ips), ["10.77.0.2/32", "10.0.0.0/24", "fd00:5::/64"]);
    assert_eq!(conf.dns, ["192.0.2.53", "example.net", "2001:db8::53"]);
    for (interface, peer, lines, check) in [
        ("ListenPort = 1\nListenPort = 2", "", "lines 3 and 4", (|c| c.listen_port == Some(2)) as fn(&Conf) -> bool),
        ("FwMark = 1\nfwmark = off", "", "lines 3 and 4", |c| c.fwmark.is_none()),
        ("Table = off\nTable = 7", "", "lines 3 and 4", |c| c.table == Table::Number(7)),
        ("", "Endpoint = a:1\nEndpoint = b:2", "lines 7 and 8", |c| {
            c.peers[0].endpoint.as_ref().is_some_and(|e| e.to_string() == "b:2")
        }),
        ("", "PersistentKeepalive = 5\nPersistentKeepalive = 6", "lines 7 and 8", |c| c.peers[0].keepalive == Some(6)),
    ] {
        let (conf, warnings) = warned(interface, peer);
        assert!(check(&conf) && warnings[0].message.contains(lines), "{interface} {peer}: {warnings:?}");
    }
    let (conf, warnings) = warned("", &format!("PublicKey = {K4}"));
    assert_eq!(conf.peers[0].public_key, K4.parse().unwrap());
    assert!(warnings[0].help.contains("[Peer]"), "{warnings:?}");
}

#[test]
fn white_space_case_and_endings() {
    let text = format!(
        "[ Interface ]\r\nPRIVATEKEY\t=\t{K1}\r\n\r\n[ peer ]\r\npublickey = {K2}\r\nAllowed IPs = 10.0.0.1 /32"
    );
    let conf = quick(&text).unwrap();
    assert_eq!(nets(&conf.peers[0].allowed_ips), ["10.0.0.1/32"]);
    let said = conf.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(conf.warnings.iter().map(|warning| warning.line).collect::<Vec<_>>(), [1, 4, 6, 6], "{said:?}");
    assert!(said[0].contains("wg-quick does not"), "{said:?}");
    let (conf, warnings) = warned("ListenPort = 518 20", "Endpoint = 192.0.2.1 : 51820");
    assert_eq!(conf.listen_port, Some(51820));
    assert_eq!(conf.peers[0].endpoint.as_ref().map(ToString::to_string).as_deref(), Some("192.0.2.1:51820"));
    assert_eq!(warnings.len(), 2);
    // wg-quick's own keys are matched as they stand.
    assert!(refused_in_interface("Post Up = true").help.contains("PostUp"));
    refused_in_interface("MTU = 14 20");
    // Old line ends make one line of a file.
    let error = quick(&whole("", "").replace('\n', "\r")).unwrap_err();
    assert!(error.problems[0].message.contains("carriage return"), "{error}");
    hides_keys(&error.render(false));
}

#[test]
fn comments_cut_their_line() {
    let (conf, warnings) = warned(
        "#Address = 10.9.9.9/24\nAddress = 10.0.0.1/24#x # y",
        "# Endpoint = nonsense\nAllowedIPs = 10.0.0.2/32 # laptop\n   # = \nEndpoint=192.0.2.1:1#:2",
    );
    assert_eq!(nets(&conf.addresses), ["10.0.0.1/24"]);
    assert_eq!(conf.peers[0].endpoint.as_ref().unwrap().port, 1);
    assert!(warnings.is_empty(), "{warnings:?}");
    let conf =
        quick(&format!("[Interface]\nPrivateKey = {K1}#x\n[Peer]\nPublicKey = {K2}#x\nAllowedIPs=::/0")).unwrap();
    assert_eq!(conf.peers[0].public_key, K2.parse().unwrap());
    refused_in_peer("// old style");
    refused_in_peer(";");
}

#[test]
fn a_comment_may_be_in_any_encoding() {
    let file = |comment: &[u8]| {
        let text = whole("MTU = 1400", "AllowedIPs = 10.0.0.2");
        [text.trim_end().as_bytes(), b" # ", comment, b"\nPersistentKeepalive = 25\n"].concat()
    };
    for comment in [&b"B\xfcro"[..], b"\xff\xfe", b"\x1b[31mred", b"form\x0cfeed"] {
        let conf = Conf::parse("wg0.conf", &file(comment), Dialect::WgQuick).unwrap();
        assert_eq!(conf.peers[0].keepalive, Some(25));
        assert!(conf.warnings.iter().any(|warning| warning.message.contains("comment")), "{:?}", conf.warnings);
    }
    // Where some see the end of a line, or of the text.
    for comment in [&b"old\rPersistentKeepalive = 1"[..], b"nul\0"] {
        assert!(Conf::parse("wg0.conf", &file(comment), Dialect::WgQuick).is_err());
    }
}

#[test]
fn comments_name_peers() {
    let peer = |before: &str, inside: &str| {
        let text =
            format!("[Interface]\nPrivateKey={K1}\n\n{before}\n[Peer]\n{inside}\nPublicKey={K2}\nAllowedIPs=::/0\n");
        quick(&text).unwrap().peers[0].name.clone()
    };
    assert_eq!(peer("# fra", "").as_deref(), Some("fra"));
    assert_eq!(peer("### Client hel-1", "").as_deref(), Some("hel-1"));
    assert_eq!(peer("", "# Name = fra.example").as_deref(), Some("fra.example"));
    assert_eq!(peer("", "# friendly_name=sin").as_deref(), Some("sin"));
    for none in ["# the one in the cellar", "#", "# fra\n", "# ../x", &format!("# {K3}")] {
        assert_eq!(peer(none, ""), None, "{none}");
    }
}

#[test]
fn nothing_is_empty() {
    for line in [
        "PrivateKey =",
        "ListenPort=",
        "FwMark = # x",
        "Address =",
        "DNS =",
        "MTU =",
        "Table =",
        "SaveConfig =",
        "PostUp =",
    ] {
        let problem = refused_in_interface(line);
        assert!(problem.message.ends_with("is empty"), "{line}: {problem}");
    }
    for line in ["PublicKey =", "PresharedKey =", "Endpoint =", "AllowedIPs = \t", "PersistentKeepalive ="] {
        let problem = refused_in_peer(line);
        assert!(problem.message.ends_with("is empty"), "{line}: {problem}");
    }
    for line in ["AllowedIPs = 10.0.0.1/32,,10.0.0.3/32", "AllowedIPs = ,10.0.0.1/32"] {
        assert!(refused_in_peer(line).message.contains("empty item"), "{line}");
    }
    assert_eq!(quick(&whole("", "AllowedIPs = ,")).unwrap_err().problems.len(), 2);
    refused_in_interface("Address = ,");
    refused_in_interface("= 5");
    refused_in_interface("Address");
}

#[test]
fn a_prefix_has_one_owner() {
    let two = |one: &str, other: &str| {
        let text =
            format!("{}[Peer]\nPublicKey = {K4}\nAllowedIPs = {other}\n", whole("", &format!("AllowedIPs = {one}")));
        quick(&text)
    };
    for (one, other) in [
        ("10.9.0.0/24", "10.9.0.0/24"),
        ("10.9.0.1/24", "10.9.0.77/24"),
        ("::/0", "::/0"),
        ("10.9.0.5", "10.8.0.0/16, 10.9.0.5/32"),
        ("fd00:0::1", "fd00::1/128"),
    ] {
        let error = two(one, other).unwrap_err();
        let message = &error.problems[0].message;
        assert!(message.contains("lines 7 and 10") && message.contains("peer of line 4"), "{one} {other}: {error}");
    }
    for (one, other) in [("10.9.0.0/24", "10.9.0.5/32"), ("0.0.0.0/0", "::/0"), ("0.0.0.0/0", "10.0.0.0/8")] {
        assert_eq!(two(one, other).unwrap().peers.len(), 2, "nested prefixes are legal");
    }
}

#[test]
fn sparse_and_doubled_sections() {
    // Neither AllowedIPs nor Endpoint: legal, as on the side that answers.
    let conf = quick(&format!("[Interface]\nPrivateKey={K1}\n[Peer]\nPublicKey={K2}\n")).unwrap();
    assert!(conf.peers[0].endpoint.is_none() && conf.warnings[0].message.contains("no AllowedIPs"));
    let conf = quick(&format!("[Peer]\nPublicKey={K2}\nAllowedIPs=::/0\n")).unwrap();
    assert!(conf.warnings[0].message.contains("no [Interface]"), "{:?}", conf.warnings);
    let conf = quick("[Interface]\nListenPort = 5\n").unwrap();
    assert!(conf.warnings[0].message.contains("no PrivateKey"));
    let text = format!("{}[Interface]\nListenPort = 7\n", whole("ListenPort = 5", ""));
    let conf = quick(&text).unwrap();
    assert_eq!(conf.listen_port, Some(7));
    let said: Vec<String> = conf.warnings.iter().map(ToString::to_string).collect();
    assert!(said[0].contains("first on line 1") && said[1].contains("lines 3 and 9"), "{said:?}");
    let error = quick(&format!("PrivateKey = {K1}\n[Interface]\n")).unwrap_err();
    assert!(error.problems[0].message.contains("before any section") && error.problems[0].line == 1, "{error}");
    hides_keys(&error.to_string());
    for nothing in ["", "\n\n", "# only this\n", "\u{feff}", " \t\r\n"] {
        assert_eq!(quick(nothing).unwrap_err().problems.len(), 1, "{nothing:?}");
    }
    let error = quick(&format!("{}[Peer]\nPublicKey = {K2}\nAllowedIPs = ::/0\n", whole("", ""))).unwrap_err();
    assert!(error.problems[0].message.contains("lines 5 and 9"), "{error}");
    for line in ["[Peer", "[Interface] x", "[Peers]", "[]", "[peer.x]"] {
        let error = quick(&format!("{}{line}\n", whole("", ""))).unwrap_err();
        assert_eq!((error.problems.len(), error.problems[0].line), (1, 8), "{line}: {error}");
    }
}

#[test]
fn loops_and_own_addresses_are_noted() {
    let (_, warnings) = warned("Address = 10.77.0.2/24", "Endpoint = 203.0.113.7:1\nAllowedIPs = 203.0.113.0/24");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].message.contains("own address") && warnings[1].message.contains("goes into the tunnel"));
    // wg-quick marks its packets where the default route goes into the tunnel.
    assert!(warned("", "Endpoint = 203.0.113.7:1\nAllowedIPs = 0.0.0.0/0").1.is_empty());
    assert!(warned("Table = off", "Endpoint = 203.0.113.7:1\nAllowedIPs = 203.0.113.0/24").1.is_empty());
}
