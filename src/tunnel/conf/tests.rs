use proptest::prelude::*;

use super::*;

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
fn wg_quicks_keys_in_wgs_dialect() {
    for line in [
        "Address = 10.0.0.1/24",
        "DNS = 1.1.1.1",
        "MTU = 1420",
        "Table = off",
        "PreUp = a",
        "PostUp = a",
        "PreDown = a",
        "PostDown = a",
        "SaveConfig = true",
    ] {
        let error = Conf::parse("wg0.conf", whole(line, "").as_bytes(), Dialect::Wg).unwrap_err();
        assert_eq!(error.problems.len(), 1);
        assert!(error.problems[0].message.contains("a key of wg-quick"), "{error}");
        assert_eq!(Conf::parse_any("wg0.conf", whole(line, "").as_bytes()).unwrap().dialect, Dialect::WgQuick);
        let problem = refused_in_peer(line);
        assert!(problem.message.contains("belongs in [Interface]"), "{problem}");
    }
    let conf = Conf::parse_any("wg0.conf", whole("ListenPort = 1", "").as_bytes()).unwrap();
    assert_eq!(conf.dialect, Dialect::Wg);
    for (text, table) in
        [("off", Table::Off), ("auto", Table::Auto), ("51820", Table::Number(51820)), ("0", Table::Number(0))]
    {
        assert_eq!(warned(&format!("Table = {text}"), "").0.table, table);
    }
    for text in ["main", "OFF", "Auto", "-1", "0x10", "4294967296", "off auto", "local", "none"] {
        refused_in_interface(&format!("Table = {text}"));
    }
    assert!(warned("SaveConfig = true", "").1[0].message.contains("anew"));
    assert!(!warned("SaveConfig = False", "").0.save_config);
    for text in ["yes", "1", "on", "truee", "0"] {
        refused_in_interface(&format!("SaveConfig = {text}"));
    }
    for text in ["auto", "1420B", "+1420", "0x58c", "67", "-1", "1420.0", "1420,1380"] {
        refused_in_interface(&format!("MTU = {text}"));
    }
    for (text, warns) in [
        ("68", true),
        ("1279", true),
        ("1280", false),
        ("1420", false),
        ("1440", false),
        ("1500", true),
        ("8920", false),
        ("65535", false),
    ] {
        assert_eq!(warned(&format!("MTU = {text}"), "").1.len(), usize::from(warns), "{text}");
    }
}

#[test]
fn hooks_are_told_and_not_kept() {
    let secret = "curl -H 'Authorization: hunter2' https://example.net/$(wg show %i private-key)";
    let (conf, warnings) = warned(&format!("PreUp = a\nPostUp = {secret}\nPostUp = b = c\nPreDown=d\nPostDown=e"), "");
    let when: Vec<_> = conf.hooks.iter().map(|hook| (hook.when, hook.line)).collect();
    assert_eq!(when, [("PreUp", 3), ("PostUp", 4), ("PostUp", 5), ("PreDown", 6), ("PostDown", 7)]);
    assert_eq!(warnings.len(), 5);
    assert!(warnings.iter().all(|warning| warning.message.contains("not run")));
    assert!(!format!("{conf:?}").contains("hunter2"));
    let error = quick(&whole(&format!("PostUp = {secret}\nPost Up = {secret}"), "")).unwrap_err();
    assert!(!format!("{error:?} {error}").contains("hunter2"), "{error:?}");
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
fn keys_in_the_wrong_section() {
    refused_in_peer(&format!("PrivateKey = {K3}"));
    refused_in_peer("ListenPort = 1");
    refused_in_interface("AllowedIPs = 10.0.0.0/8");
    refused_in_interface("Endpoint = 192.0.2.1:1");
    refused_in_interface(&format!("PresharedKey = {K3}"));
}

#[test]
fn dialects_of_others() {
    for line in [
        "Jc = 4",
        "jmin = 40",
        "JMAX=70",
        "S1 = 15",
        "S2 = 0x0",
        "S4=9",
        "H1 = 1487709344-2131140817",
        "H2 = 1",
        "h3=4294967295",
        "I1 = <b 0xf6ab><c><t>",
        "J1 = <b 0x1>",
        "Itime = 120",
    ] {
        assert!(refused_in_interface(line).message.contains("obfuscated dialect"), "{line}");
    }
    assert!(refused_in_peer("AdvancedSecurity = on").message.contains("obfuscated"));
    let (_, warnings) = warned("S1 = 0\nS2=0\nH1=1\nH2 = 2\nH3=3\nH4 = 4\nJc = 0", "");
    assert_eq!(warnings.len(), 7, "the values that change nothing");
    for line in ["FirewallMark = 1", "RouteTable = main", "PresharedKeyFile=/etc/psk", "Kind = wireguard"] {
        assert!(refused_in_interface(line).message.contains("systemd-networkd"), "{line}");
    }
    assert!(refused_in_interface("ExcludedApplications = a.b").message.contains("Android"));
    let netdev = format!(
        "[NetDev]\nName = wg0\nKind = wireguard\n\n[WireGuard]\nPrivateKey = {K1}\nListenPort = 51820\n\n[WireGuardPeer]\nPublicKey = {K2}\nAllowedIPs = 10.0.0.0/8\n"
    );
    let error = quick(&netdev).unwrap_err();
    assert_eq!(error.problems.iter().map(|p| p.line).collect::<Vec<_>>(), [1, 5, 9], "{error}");
    assert!(error.problems.iter().all(|p| p.message.contains("systemd-networkd")));
    let manager =
        format!("[connection]\nid=wg0\n[wireguard]\nprivate-key={K1}\n[wireguard-peer.{K2}]\nendpoint=192.0.2.1:1\n");
    let error = quick(&manager).unwrap_err();
    assert_eq!(error.problems.len(), 3);
    hides_keys(&format!("{error:?} {error}"));
    for (line, meant) in [
        ("AllowedIP = 10.0.0.0/8", "AllowedIPs"),
        ("Allowed-IPs = 10.0.0.0/8", "AllowedIPs"),
        ("PreshardKey = x", "PresharedKey"),
        ("Endpont = a:1", "Endpoint"),
        ("PersistantKeepalive = 1", "PersistentKeepalive"),
    ] {
        assert!(refused_in_peer(line).help.contains(&format!("did you mean {meant}")), "{line}");
    }
    assert!(!refused_in_interface("Colour = blue").help.contains("did you mean"));
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

#[test]
fn secrets_show_nowhere() {
    for text in [
        format!("[Interface]\nPrivatKey = {K1}\n"),
        format!("[Interface]\nPrivateKey {K1}\n"),
        format!("[Interface]\n{K1}\n"),
        format!("{K1}\n[Interface]\n"),
        format!("[{K1}]\n"),
        format!("[Interface]\nPrivateKey = {K1} {K3}\n"),
        format!("[Interface]\nPrivateKey = {K1}\0\n"),
        format!("[Interface]\nPrivateKey = \u{1b}{K1}\n"),
        format!("[Interface]\nListenPort = {K1}\nTable = {K3}\nMTU={K4}\nAddress={K2}\nFwMark={K1}\nSaveConfig={K1}\n"),
        format!("[Peer]\nEndpoint = {K1}:1\nAllowedIPs = {K3}\nPersistentKeepalive = {K4}\nPublicKey={K2}x\n"),
        format!("[Interface]\nAddress = x # was {K1}\n"),
        format!("[Interface]\n; PrivateKey = {K1}\n"),
        format!("[Interface]\nPrivateKey = {}\n", &K1[..30]),
    ] {
        let error = quick(&text).unwrap_err();
        hides_keys(&format!("{error} {error:?} {}", error.render(true)));
    }
    let bytes = [b"[Interface]\nPrivateKey = ".as_slice(), K1.as_bytes(), b"\xff\n"].concat();
    let error = Conf::parse("x", &bytes, Dialect::Wg).unwrap_err();
    hides_keys(&format!("{error} {error:?}"));
    let (conf, _) = warned("", &format!("PresharedKey = {K3}"));
    assert!(conf.holds_secrets());
    hides_keys(&format!("{conf:?}").replace(&format!("PublicKey({K2})"), ""));
}

#[test]
fn bytes_that_are_no_text() {
    let file = |damage: &[u8]| [whole("", "").as_bytes(), damage, b"\nAllowedIPs = nonsense\n"].concat();
    for (damage, says) in [
        (&b"# caf\xe9"[..], "not UTF-8"),
        (b"Endpoint = \xff\xfe", "not UTF-8"),
        (b"MTU = 1\0", "NUL"),
        (b"# \x1b[2J", "control"),
    ] {
        let error = Conf::parse("wg0.conf", &file(damage), Dialect::WgQuick).unwrap_err();
        assert_eq!(
            error.problems.iter().map(|p| p.line).collect::<Vec<_>>(),
            [8, 9],
            "what follows is read too: {error}"
        );
        assert!(error.problems[0].message.contains(says), "{error}");
    }
    let utf16: Vec<u8> =
        std::iter::once(0xfeff).chain("[Interface]\n".encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let error = Conf::parse("wg0.conf", &utf16, Dialect::WgQuick).unwrap_err();
    assert!(error.problems[0].message.contains("UTF-16"), "{error}");
    // Printable and not ASCII is fine in a comment.
    assert!(quick(&whole("# Zürich — 東京", "")).is_ok());
}

#[test]
fn size_is_no_matter() {
    let prefixes: Vec<String> = (0..100_000).map(|n| format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255)).collect();
    let begin = std::time::Instant::now();
    let conf = quick(&whole("", &format!("AllowedIPs = {}", prefixes.join(", "))));
    // Quadratic search for repeated prefixes would take minutes.
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "{:?}", begin.elapsed());
    assert!(conf.is_ok_and(|conf| conf.peers[0].allowed_ips.len() >= 100_000));
    eprintln!("100,000 prefixes: {:?}", begin.elapsed());
    let long = format!("{}{}", "x".repeat(1 << 20), " = 1");
    let error = quick(&whole(&long, "")).unwrap_err();
    assert!(error.problems[0].message.len() < 200);
    assert!(error.render(false).len() < 4096, "{}", error.render(false).len());
    eprintln!("and a line of a megabyte: {:?}", begin.elapsed());
    let many = "nonsense\n".repeat(50_000);
    let error = quick(&whole("", &many)).unwrap_err();
    assert_eq!(error.problems.len(), 50_000);
    let rendered = error.render(false);
    eprintln!("and 50,000 problems: {:?}", begin.elapsed());
    assert!(rendered.len() < 10_000 && rendered.contains("49980 more problems"), "{}", rendered.len());
}

#[test]
fn all_problems_of_a_file_are_told() {
    let error = quick(&format!(
        "[Interface]\nPrivateKey = {}\nMTU = 0\nFwMark = x\n[Peer]\nEndpoint = y\nAllowedIPs = z, 10.0.0.0/33\n[Peer]\nPublicKey = {K2}\nJc = 1\n",
        &K1[..40]
    ))
    .unwrap_err();
    assert_eq!(error.problems.iter().map(|p| p.line).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 7, 10], "{error}");
    insta::assert_snapshot!(error.render(false).split("\n\n").take(2).collect::<Vec<_>>().join("\n\n"), @r"
    error: PrivateKey: a key has 44 characters, and this has 40
     --> wg0.conf:2:14
      |
    2 | PrivateKey = ****************************************
      |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = help: copy it again, whole: 43 characters of base64 and one `=`

    error: MTU: no packet fits into an MTU of 0
     --> wg0.conf:3:7
      |
    3 | MTU = 0
      |       ^
      |
      = help: an MTU is 68 to 65535 bytes, a whole number without unit; 1420 suits Ethernet
    ");
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

#[test]
fn modes_of_key_files() {
    for mode in [0o600, 0o400, 0o100600] {
        assert_eq!(mode_warning(mode), None);
    }
    for (mode, says) in
        [(0o644, "everybody"), (0o640, "group"), (0o100666, "everybody"), (0o604, "everybody"), (0o620, "group")]
    {
        let warning = mode_warning(mode).unwrap();
        assert!(warning.contains(says) && warning.contains("chmod 600"), "{warning}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for dialect in [Dialect::Wg, Dialect::WgQuick] {
            if let Err(error) = Conf::parse("x", &bytes, dialect) {
                prop_assert!(!error.problems.is_empty());
                let _rendered = error.render(true);
            }
        }
    }

    #[test]
    fn damaged_files_are_read_or_refused(
        cuts in prop::collection::vec((0_usize..900, 0_usize..12, "(\\PC|[\\x00-\\x1f=#\\[\\],;%/: -]){0,8}"), 1..6)
    ) {
        let mut text = A1.to_owned();
        for (at, length, with) in cuts {
            let floor = |mut at: usize| { while !text.is_char_boundary(at) { at -= 1; } at };
            let (start, end) = (floor(at.min(text.len())), floor((at + length).min(text.len())));
            text.replace_range(start..end, &with);
        }
        match quick(&text) {
            Ok(conf) => {
                let problems = conf.warnings.iter().all(|warning| warning.line >= 1);
                prop_assert!(problems);
            }
            Err(error) => {
                let lines = text.matches('\n').count() + 1;
                prop_assert!(error.problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
                let _rendered = error.render(false);
            }
        }
    }
}
