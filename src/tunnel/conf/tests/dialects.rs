//! wg, wg-quick, and what others write.

use super::*;

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
