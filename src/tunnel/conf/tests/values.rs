//! What a value may be, key by key.

use super::*;

#[test]
fn keepalive_and_mark() {
    for (text, seconds) in
        [("off", None), ("OFF", None), ("0", None), ("025", Some(25)), ("65535", Some(65535)), ("1", Some(1))]
    {
        let (conf, _) = warned("", &format!("PersistentKeepalive = {text}"));
        assert_eq!(conf.peers[0].keepalive, seconds, "{text}");
    }
    for text in ["25s", "-1", "+25", "0x19", "65536", "on", "25.0", "99999999999999999999999", "1e3", "٢٥"] {
        refused_in_peer(&format!("PersistentKeepalive = {text}"));
    }
    for (text, mark) in [
        ("off", None),
        ("Off", None),
        ("0", None),
        ("0x0", None),
        ("51820", Some(51820)),
        ("051820", Some(51820)),
        ("0xca6c", Some(0xca6c)),
        ("0xCA6C", Some(0xca6c)),
        ("0xffffffff", Some(u32::MAX)),
        ("0x00000000ca6c", Some(0xca6c)),
        ("4294967295", Some(u32::MAX)),
    ] {
        assert_eq!(warned(&format!("FwMark = {text}"), "").0.fwmark, mark, "{text}");
    }
    for text in [
        "0XCA6C",
        "0x",
        "4294967296",
        "0x100000000",
        "-1",
        "+1",
        "ca6c",
        "0x1/0xff",
        "0x1-0x2",
        "1-5",
        "0x1g",
        "on",
        "0o7",
    ] {
        refused_in_interface(&format!("FwMark = {text}"));
    }
    for (text, port) in [("0", 0), ("65535", 65535), ("051820", 51820)] {
        assert_eq!(warned(&format!("ListenPort = {text}"), "").0.listen_port, Some(port));
    }
    for text in ["65536", "-1", "+1", "0x1", "ntp", "51820-51830", "51820,51821", "51820/udp", "auto"] {
        refused_in_interface(&format!("ListenPort = {text}"));
    }
}

#[test]
fn endpoints() {
    for (text, shown, warns) in [
        ("192.0.2.1:51820", "192.0.2.1:51820", false),
        ("[2001:db8::1]:51820", "[2001:db8::1]:51820", false),
        ("[2001:DB8:0::1]:1", "[2001:db8::1]:1", false),
        ("host.example:51820", "host.example:51820", false),
        ("host.example.:51820", "host.example.:51820", false),
        ("xn--bcher-kva.example:1", "xn--bcher-kva.example:1", false),
        ("_wg.host_1:65535", "_wg.host_1:65535", false),
        ("localhost:051820", "localhost:51820", false),
        ("1host:5", "1host:5", false),
        ("[fe80::1%eth0]:51820", "[fe80::1%eth0]:51820", true),
        ("[fe80::1%2]:51820", "[fe80::1%2]:51820", true),
        ("[192.0.2.1]:51820", "192.0.2.1:51820", true),
        ("[host.example]:51820", "host.example:51820", true),
        ("[::ffff:192.0.2.1]:51820", "[::ffff:192.0.2.1]:51820", true),
    ] {
        let (conf, warnings) = warned("", &format!("Endpoint = {text}"));
        assert_eq!(conf.peers[0].endpoint.as_ref().unwrap().to_string(), shown);
        assert_eq!(!warnings.is_empty(), warns, "{text}: {warnings:?}");
    }
    for text in [
        "2001:db8::1:51820",
        "2001:db8::1",
        "::1",
        "[2001:db8::1]",
        "[2001:db8::1]51820",
        "[2001:db8::1",
        "[]:1",
        ":51820",
        "http://h:8000:51820",
        "udp://192.0.2.1:51820",
        "192.0.2.1",
        "192.0.2.1:",
        "192.0.2.1:0",
        "192.0.2.1:65536",
        "192.0.2.1:-1",
        "192.0.2.1:+1",
        "192.0.2.1:0x1",
        "192.0.2.1:ntp",
        "192.0.2.1:51820/udp",
        "a:1,b:2",
        "a:1:2",
        "192.0.2:51820",
        "192.0.2.256:1",
        "192.0.2.01:51820",
        "0x7f.1:1",
        "3232235521:1",
        "0.0.0.0:1",
        "[::]:1",
        "224.0.0.1:1",
        "[ff02::1]:1",
        "255.255.255.255:1",
        "[fe80::1]:51820",
        "fe80::1%eth0:51820",
        "[2001:db8::1%eth0]:1",
        "192.0.2.1%eth0:1",
        "[fe80::1%]:1",
        "[fe80::1%a/b]:1",
        "-host:1",
        "ho..st:1",
        "bücher.example:1",
        "host!:1",
        "off",
        "(none)",
        "192.0.2.1:51820;x",
    ] {
        let problem = refused_in_peer(&format!("Endpoint = {text}"));
        assert!(problem.message.starts_with("Endpoint: "), "{problem}");
    }
    refused_in_peer(&format!("Endpoint = {}:1", "a".repeat(64)));
    refused_in_peer(&format!("Endpoint = {}a:1", "a.".repeat(130)));
    for (begin, end) in [("\u{201c}", "\u{201d}"), ("\u{2018}", "\u{2019}"), ("\"", "\""), ("'", "'"), ("", "\u{201d}")]
    {
        for value in ["Endpoint = \u{1}192.0.2.1:51820\u{2}", "AllowedIPs = \u{1}10.0.0.0/24\u{2}"] {
            let line = value.replace('\u{1}', begin).replace('\u{2}', end);
            let problem = refused_in_peer(&line);
            let marks = if begin.is_empty() { end } else { begin };
            assert!(problem.message.contains(&format!("in quotes (`{marks}`)")), "{line}: {problem}");
        }
    }
    assert!(refused_in_peer("Endpoint = 192.0.2.1:ntp").message.contains("service"));
}

#[test]
fn allowed_ips() {
    for (text, read, warns) in [
        ("10.0.0.7", "10.0.0.7/32", false),
        ("fd00::7", "fd00::7/128", false),
        ("10.0.0.7/24", "10.0.0.0/24", true),
        ("fd00::7/64", "fd00::/64", true),
        ("10.0.0.0/08", "10.0.0.0/8", false),
        ("0.0.0.0/0", "0.0.0.0/0", false),
        ("::/0", "::/0", false),
        ("::ffff:10.0.0.1/128", "::ffff:10.0.0.1/128", false),
        ("FD00::A/128", "fd00::a/128", false),
    ] {
        let (conf, warnings) = warned("", &format!("AllowedIPs = {text}"));
        assert_eq!(conf.peers[0].allowed_ips[1].to_string(), read, "{text}");
        assert_eq!(warnings.len(), usize::from(warns), "{text}: {warnings:?}");
    }
    for text in [
        "12.0.0.012",
        "10.0.0.0/33",
        "fd00::/129",
        "10.0.0.0/",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "10.0.0.0/0x8",
        "10.0.0.0/255.255.255.0",
        "+10.0.0.0/24",
        "-10.0.0.0/24",
        "-fd00::/8",
        "10.0.0",
        "10.1/16",
        "10.0.0.0/8/8",
        "any",
        "default",
        "fe80::1%eth0/64",
        "10.0.0.1-10.0.0.9",
        "10.0.0.0\\8",
        "::g/64",
        "10.0.0.256",
        "(none)",
        "[fd00::1]/64",
        "10.0.0.0/99999999999999999999",
    ] {
        refused_in_peer(&format!("AllowedIPs = {text}"));
    }
    // All of a list's faults at once, each with its own place.
    let error = quick(&whole("", "AllowedIPs = 10.0.0.0/33, 10.5.0.0/16, 12.0.0.012")).unwrap_err();
    assert_eq!(error.problems.iter().map(|p| p.column).collect::<Vec<_>>(), [14, 40], "{error}");
    assert_eq!(warned("", "AllowedIPs = 10.77.0.2/32, 10.77.0.2").0.peers[0].allowed_ips.len(), 1);
}

#[test]
fn interface_addresses() {
    for (text, read) in [
        ("10.0.0.1", vec!["10.0.0.1/32"]),
        ("10.0.0.1/24 fd00::1/64", vec!["10.0.0.1/24", "fd00::1/64"]),
        ("10.0.0.1/24,,fd00::1", vec!["10.0.0.1/24", "fd00::1/128"]),
        ("10.0.0.1/24, 10.0.0.1/24", vec!["10.0.0.1/24"]),
    ] {
        assert_eq!(nets(&warned(&format!("Address = {text}"), "").0.addresses), read, "{text}");
    }
    for text in ["10.0.0.1/33", "10.0.0.01/24", "dhcp", "10.0.0.1/255.0.0.0", "fe80::1%eth0/64"] {
        refused_in_interface(&format!("Address = {text}"));
    }
}

#[test]
fn keys_that_are_none() {
    let zero = "A".repeat(43) + "=";
    for (text, says) in [
        (&K1[..43], "has 43"),
        (&format!("{K1}="), "has 45"),
        (&K1[1..], "has 43"),
        ("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQF=", "damaged"),
        ("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB", "damaged"),
        ("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ==", "damaged"),
        ("AQEBAQEBAQEBAQEBAQEBAQEBAQEB*QEBAQEBAQEBAQE=", "damaged"),
        ("AQEBAQEBAQEBAQEBAQEBAQEBAQEB-QEBAQEBAQEBAQE=", "URL alphabet"),
        ("AQEBAQEBAQEBAQEBAQEBAQEBAQEB_QEBAQEBAQEBAQE=", "URL alphabet"),
        (&"01".repeat(32), "hexadecimal"),
        (&format!("\"{K1}\""), "quotes"),
        (&format!("\u{201c}{K1}\u{201d}"), "in quotes (`\u{201c}`)"),
        ("/etc/wireguard/private.key", "file's name"),
        ("abc", "has 3"),
        (&zero, "all zeros"),
    ] {
        for (interface, key) in [(true, "PrivateKey"), (false, "PublicKey"), (false, "PresharedKey")] {
            if key == "PresharedKey" && text == zero {
                continue;
            }
            let line = format!("{key} = {text}");
            let problem = if interface { refused_in_interface(&line) } else { refused_in_peer(&line) };
            assert!(problem.message.contains(says), "{line}: {problem}");
            let error =
                quick(&whole(if interface { &line } else { "" }, if interface { "" } else { &line })).unwrap_err();
            assert!(!format!("{error} {error:?}").contains(text), "{key} = {text}\n{error}");
        }
    }
    let (conf, warnings) = warned("", &format!("PresharedKey = {zero}"));
    assert!(conf.peers[0].preshared_key.is_none() && warnings[0].message.contains("is none"));
}
