//! Hostile files, secrets, and whatever else a reader must stand.

use super::*;

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
        (&b"caf\xe9"[..], "not UTF-8"),
        (b"Endpoint = \xff\xfe", "not UTF-8"),
        (b"MTU = 1\0", "NUL"),
        (b"\x1b[2J", "control"),
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
fn white_space_that_is_none_to_wg() {
    // U+00A0 comes from web pages, U+3000 from input methods.
    for space in ['\u{a0}', '\u{2003}', '\u{3000}', '\u{2028}'] {
        for line in [
            format!("AllowedIPs{space}= 10.5.0.0/16"),
            format!("{space}AllowedIPs = 10.5.0.0/16"),
            format!("AllowedIPs = 10.5.0.0/16,{space}10.6.0.0/16"),
            format!("Endpoint = 192.0.2.1:51820{space}"),
        ] {
            assert!(refused_in_peer(&line).message.contains("white space"), "{line:?}");
        }
        assert!(quick(&whole(&format!("PostUp = echo a{space}b"), &format!("# a{space}b"))).is_ok());
        assert!(quick(&whole("", "").replace("[Peer]", &format!("[Peer]{space}"))).is_err());
    }
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
fn a_line_without_spaces_is_shown_as_it_stands() {
    for line in ["PersistentKeepalive=70000", "Endpoint=some-long-host-name.example.com"] {
        let error = quick(&format!("[Interface]\nPrivateKey={K1}\n[Peer]\nPublicKey={K2}\n{line}\n")).unwrap_err();
        assert!(error.render(false).contains(line), "{error}");
    }
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
