use super::*;
use crate::plan::{Request, plan};
use draft::Underlay;

const KEYS: [&str; 4] = [
    "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
    "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=",
    "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=",
    "BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ=",
];

fn public(key: usize) -> String {
    KEYS[key].parse::<tunnel::PrivateKey>().unwrap().public().to_string()
}

/// A conf with this private key and these peers, each with an endpoint or none.
fn conf(own: usize, peers: &[(usize, Option<&str>)]) -> Conf {
    let mut text = format!("[Interface]\nPrivateKey = {}\nAddress = 10.8.0.{}/24\n", KEYS[own], own + 1);
    for (peer, endpoint) in peers {
        text.push_str(&format!("[Peer]\nPublicKey = {}\nAllowedIPs = 10.8.0.{}/32\n", public(*peer), peer + 1));
        text.extend(endpoint.map(|endpoint| format!("Endpoint = {endpoint}\n")));
    }
    Conf::parse_any("x.conf", text.as_bytes()).unwrap()
}

fn facts(interfaces: &[(&str, u32, &[&str])]) -> Facts {
    let mut facts = host::facts();
    let of = |(name, mtu, addresses): &(&str, u32, &[&str])| {
        let wireguard = name.starts_with("wg");
        let facts = host::facts::InterfaceFacts {
            mtu: *mtu,
            running: true,
            addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
            kind: wireguard.then(|| "tun".to_owned()),
            uapi_socket: wireguard,
        };
        ((*name).to_owned(), facts)
    };
    facts.interfaces = Some(interfaces.iter().map(of).collect());
    facts
}

fn resolver(name: &str) -> Vec<IpAddr> {
    match name {
        "both.example" => vec!["192.0.2.9".parse().unwrap(), "2001:db8::9".parse().unwrap()],
        _ => Vec::new(),
    }
}

/// The text, which must load and plan, and its topology.
fn loads(draft: &Draft) -> (String, Topology) {
    let (text, missing) = write::topology(draft);
    assert_eq!(missing, [], "{text}");
    let topology = Topology::parse("t.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    plan(&topology, &Request::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for key in KEYS {
        assert!(!text.contains(&key[..10]), "{text}");
    }
    (text, topology)
}

fn source(name: &str, conf: &Conf, here: Option<Facts>) -> Source {
    Source::of_conf(name.to_owned(), &format!("{name}.conf"), None, conf, here)
}

#[test]
fn files_of_two_hosts_make_a_pair() {
    let fra = source("fra", &conf(0, &[(1, Some("203.0.113.2:51820"))]), None);
    let hel = source("hel", &conf(1, &[(0, Some("203.0.113.1:51820"))]), None);
    let mut draft = Draft { sources: vec!["fra.conf".to_owned(), "hel.conf".to_owned()], ..Draft::default() };
    assert_eq!(conf::add(&mut draft, &[fra, hel], &resolver), Vec::<String>::new());
    let (text, topology) = loads(&draft);
    assert_eq!(topology.pairs.iter().map(ToString::to_string).collect::<Vec<_>>(), ["fra>hel"]);
    insta::assert_snapshot!(text, @r#"
    # What do the tunnels between these hosts cost beside their underlays?
    #
    # Written by `wglab init` from fra.conf, hel.conf. No key is in it: tunnels of a run get fresh ones.
    pairs   = ["fra>hel"]
    compare = "engine"
    engines = ["raw", "embedded"]

    # fra.conf: inner addresses 10.8.0.1/24, 1 peer
    # hel.conf:4: 10.8.0.1/32 behind it, no keepalive
    [node.fra]
    reach = "ssh:root@203.0.113.1"   # assumed: correct it where it is wrong
    address = { public-ipv4 = "203.0.113.1" }

    # hel.conf: inner addresses 10.8.0.2/24, 1 peer
    # fra.conf:4: 10.8.0.2/32 behind it, no keepalive
    [node.hel]
    reach = "ssh:root@203.0.113.2"   # assumed: correct it where it is wrong
    address = { public-ipv4 = "203.0.113.2" }

    [underlay]
    public-ipv4 = { family = "ipv4" }   # budget = "50GB" limits what a run may send

    [[test]]
    kind = "tcp-stream"
    streams = [1, 4]

    [[test]]
    kind = "tcp-rr"
    "#);
}

#[test]
fn one_file_is_this_hosts_and_names_are_resolved_to_all_their_addresses() {
    let here = facts(&[
        ("lo", 65_536, &["127.0.0.1/8", "::1/128"]),
        ("eth0", 1500, &["198.51.100.7/24", "2001:db8:7::7/64", "fe80::7/64"]),
        ("docker0", 1500, &["172.17.0.1/16"]),
        ("wg0", 1420, &["10.8.0.1/24"]),
    ]);
    let conf = conf(0, &[(1, Some("both.example:51820")), (2, Some("[2001:db8::c]:51820")), (3, None)]);
    let mut draft = Draft { sources: vec!["wg0.conf".to_owned()], ..Draft::default() };
    let notes = conf::add(&mut draft, &[source("here", &conf, Some(here))], &resolver);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("a peer without Endpoint"));
    let (text, topology) = loads(&draft);
    assert!(text.contains("# both.example is 192.0.2.9, 2001:db8::9"), "{text}");
    assert!(text.contains("reach = [\"wglab\", \"agent\"]") && text.contains("ssh:root@both.example"), "{text}");
    assert!(text.contains("reach = \"ssh:root@[2001:db8::c]\"   # assumed"), "{text}");
    assert!(text.contains("public-ipv6 = { family = \"ipv6\", mtu = 1500 }"), "{text}");
    assert!(!text.contains("172.17") && !text.contains("\"10.8.0.1\""), "{text}");
    assert_eq!(topology.pairs.len(), 2);
}

#[test]
fn hosts_that_answer_make_a_mesh_with_what_runs_on_all_of_them() {
    let mut draft = Draft { sources: vec!["ssh:a".to_owned(), "ssh:b".to_owned()], mesh: true, ..Draft::default() };
    for (name, addresses) in [("a", ["192.0.2.1/24", "10.0.0.1/24"]), ("b", ["192.0.2.2/24", "10.0.0.2/24"])] {
        let mut node =
            Node { name: name.to_owned(), reach: Some(Reach::Text(format!("ssh:{name}"))), ..Node::default() };
        node.take(&facts(&[
            ("eth0", 1500, &addresses[..1]),
            ("eth1", 1450, &addresses[1..]),
            ("wg0", 1420, &["10.8.0.1/24"]),
        ]));
        draft.add(node);
    }
    draft.leave_out_lonely();
    let (text, topology) = loads(&draft);
    assert_eq!(topology.engine_levels, ["raw", "embedded", "wg0"]);
    assert_eq!(topology.underlays.len(), 2);
    assert!(text.contains("private = { family = \"ipv4\", mtu = 1450 }"), "{text}");
    // Where it cannot be read on one of them, it is a comment.
    draft.nodes[1].tunnels.insert("wg0".to_owned(), false);
    let (text, topology) = loads(&draft);
    assert!(topology.engine_levels == ["raw", "embedded"] && text.contains("# [engine.wg0]"), "{text}");
}

#[test]
fn private_networks_of_the_same_kind_are_not_the_same_network() {
    let mut draft = Draft { mesh: true, ..Draft::default() };
    for (name, public, private) in [
        ("a", "192.0.2.1/24", "10.0.0.1/24"),
        ("b", "192.0.2.2/24", "10.0.0.2/24"),
        ("c", "192.0.2.3/24", "192.168.1.5/24"),
    ] {
        let mut node =
            Node { name: name.to_owned(), reach: Some(Reach::Text(format!("ssh:{name}"))), ..Node::default() };
        node.take(&facts(&[("eth0", 1500, &[public]), ("eth1", 1500, &[private])]));
        draft.add(node);
    }
    draft.leave_out_lonely();
    let (text, _) = loads(&draft);
    assert!(!text.contains("private = \"192.168.1.5\"") && text.contains("# its 192.168.1.5"), "{text}");
}

#[test]
fn what_is_not_known_is_left_to_be_filled_in_and_never_made_up() {
    let fra = source("fra", &conf(0, &[(1, Some("203.0.113.2:51820")), (2, Some("nowhere.example:5"))]), None);
    let mut draft = Draft::default();
    conf::add(&mut draft, &[fra], &resolver);
    let (text, missing) = write::topology(&draft);
    assert!(
        missing.iter().any(|missing| missing.named) && text.contains("# Left out: it has no known address."),
        "{text}"
    );
    assert!(text.contains("# nowhere.example could not be resolved"), "{text}");
    assert!(Topology::parse("t", &text).is_err(), "{text}");

    // One of three is not known: the rest loads.
    let mut draft = Draft { mesh: true, ..Draft::default() };
    for (name, address) in [("a", Some("192.0.2.1/24")), ("b", Some("192.0.2.2/24")), ("c", None)] {
        let mut node =
            Node { name: name.to_owned(), reach: Some(Reach::Text(format!("ssh:{name}"))), ..Node::default() };
        node.take(&facts(&address.iter().map(|net| ("eth0", 1500, std::slice::from_ref(net))).collect::<Vec<_>>()));
        draft.add(node);
    }
    let (text, missing) = write::topology(&draft);
    assert_eq!(missing[0].what, "node c has no known address: left out");
    assert_eq!(Topology::parse("t", &text).unwrap().nodes.len(), 2, "{text}");
}

/// Two hosts of which each is known on a network of its own: what is to be filled in stands there, and then it loads.
#[test]
fn where_no_network_is_shared_the_templates_make_a_topology() {
    let called = source("fra", &conf(0, &[(1, Some("203.0.113.2:51820"))]), None);
    let other = source("hel", &conf(1, &[(0, Some("10.0.0.1:51820"))]), None);
    let mut two = Draft::default();
    conf::add(&mut two, &[called, other], &resolver);
    let mut mesh = Draft { mesh: true, ..Draft::default() };
    for (name, address) in [("fra", "10.0.0.1/24"), ("hel", "203.0.113.2/24")] {
        let mut node =
            Node { name: name.to_owned(), reach: Some(Reach::Text(format!("ssh:{name}"))), ..Node::default() };
        node.take(&facts(&[("eth0", 1500, &[address])]));
        mesh.add(node);
    }
    for draft in [two, mesh] {
        let (text, missing) = write::topology(&draft);
        assert!(missing.iter().any(|missing| missing.what.contains("no network is known")), "{text}");
        assert!(!text.contains("pairs   = []") && !text.lines().any(|line| line == "[underlay]"), "{text}");
        let error = Topology::parse("t", &text).unwrap_err().to_string();
        assert!(!error.contains("leave `pairs` out"), "{error}");
        // As the comments say: an address on the network that is shared, and no `# ` before what is filled in.
        let filled: Vec<String> = text
            .lines()
            .filter_map(|line| {
                let line = ["# pairs", "# [", "# reach", "# address", "# public-ipv4 ="]
                    .iter()
                    .find_map(|begin| line.starts_with(begin).then(|| &line[2..]))
                    .unwrap_or(line);
                (!line.starts_with("# private ="))
                    .then(|| line.replace("private = \"10.0.0.1\"", "public-ipv4 = \"203.0.113.1\""))
            })
            .collect();
        let filled = filled.join("\n");
        let topology = Topology::parse("t", &filled).unwrap_or_else(|error| panic!("{error}\n{filled}"));
        assert_eq!((topology.nodes.len(), topology.pairs.len(), topology.underlays.len()), (2, 1, 1), "{filled}");
    }
}

#[test]
fn of_peers_behind_one_nat_one_is_measured() {
    let peers = [(1, Some("203.0.113.5:51820")), (2, Some("203.0.113.5:51821"))];
    let hub = source("hub", &conf(0, &peers), Some(facts(&[("eth0", 1500, &["192.0.2.1/24"])])));
    let mut draft = Draft::default();
    conf::add(&mut draft, &[hub], &resolver);
    let (text, missing) = write::topology(&draft);
    assert_eq!(Topology::parse("t", &text).unwrap().nodes.len(), 2, "{text}");
    assert!(matches!(&missing[..], [missing] if !missing.named), "{missing:?}");
    assert!(text.contains("behind one NAT"), "{text}");
}

#[test]
fn ends_of_which_neither_can_call_are_no_pair() {
    let fra = source("fra", &conf(0, &[(1, None)]), None);
    let hel = source("hel", &conf(1, &[(0, None)]), None);
    let notes = conf::add(&mut Draft::default(), &[fra, hel], &resolver);
    assert!(notes[0].contains("nobody can call"), "{notes:?}");
}

#[test]
fn names_are_made_to_fit() {
    let mut draft = Draft::default();
    for (given, name) in [
        ("fra", "fra"),
        ("fra", "fra-2"),
        ("203.0.113.7", "203.0.113.7"),
        ("2001-db8--1", "2001-db8--1"),
        ("a b\u{1b}[31m</script>", "a-b--31m--script-"),
        ("--", "node"),
        ("all", "node-2"),
        ("a-name-that-is-longer-than-any-table", "a-name-that-is-longer-than-a"),
    ] {
        let index = draft.add(Node { name: given.to_owned(), ..Node::default() });
        assert_eq!(draft.nodes[index].name, name, "{given:?}");
    }
}

#[test]
fn arguments_are_told_apart() {
    let host = |text: &str| match argument(text).unwrap() {
        Argument::Host { name, argv, .. } => (name, argv),
        other @ (Argument::Conf(_) | Argument::Interface(_)) => panic!("{text}: {other:?}"),
    };
    assert_eq!(host("ssh:root@fra.example.net:2222").0, "fra");
    assert_eq!(host("ssh:root@203.0.113.7").0, "203.0.113.7");
    assert_eq!(host("ssh:root@[2001:db8::1]:22").0, "2001-db8--1");
    assert_eq!(host("x=ssh:fra").0, "x");
    assert_eq!(host("pod=kubectl exec -i p -- wglab agent").1, ["kubectl", "exec", "-i", "p", "--", "wglab", "agent"]);
    assert_eq!(argument("/etc/wireguard/wg0.conf").unwrap(), Argument::Conf("/etc/wireguard/wg0.conf".to_owned()));
    assert_eq!(argument("wg0.conf").unwrap(), Argument::Conf("wg0.conf".to_owned()));
    assert_eq!(argument("wg0").unwrap(), Argument::Interface("wg0".to_owned()));
    for (text, says) in [
        ("root@fra", "ssh:root@fra"),
        ("ssh:", "ssh:root@fra"),
        ("eth0", "hosts call"),
        ("", "empty"),
        ("ssh:-oProxyCommand=x", "not a user or a host"),
    ] {
        let error = format!("{:#}", argument(text).unwrap_err());
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn networks_are_told_apart() {
    for (address, underlay) in [
        ("192.0.2.1", Some(Underlay::PublicIpv4)),
        ("10.0.0.1", Some(Underlay::Private)),
        ("172.31.0.1", Some(Underlay::Private)),
        ("172.32.0.1", Some(Underlay::PublicIpv4)),
        ("100.64.0.1", Some(Underlay::Private)),
        ("100.128.0.1", Some(Underlay::PublicIpv4)),
        ("2001:db8::1", Some(Underlay::PublicIpv6)),
        ("fd00::1", Some(Underlay::PrivateIpv6)),
        ("fe80::1", None),
        ("169.254.1.1", None),
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:192.0.2.1", None),
    ] {
        assert_eq!(Underlay::of(address.parse().unwrap()), underlay, "{address}");
    }
}

#[test]
fn thousands_of_peers_at_one_address_get_names_of_their_own_in_time() {
    let mut draft = Draft::default();
    let begin = std::time::Instant::now();
    for name in ["gw-2", "gw", "gw", "gw"] {
        draft.add(Node { name: name.to_owned(), ..Node::default() });
    }
    for _ in 0..20_000 {
        draft.add(Node { name: "gw".to_owned(), ..Node::default() });
    }
    let names: Vec<&str> = draft.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names[..4], ["gw-2", "gw", "gw-3", "gw-4"]);
    let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(distinct.len(), names.len());
    // Tried one after the other, each against all nodes, the names took minutes.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}
