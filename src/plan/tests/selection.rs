//! Narrowing, and engines on the command line.

use super::*;

#[test]
fn narrowing_keeps_what_was_asked_for_in_its_order() {
    let two_stacks = shipped_topology("two-stacks");
    let plan = planned(&two_stacks, &only(&["stack=ebpf,standard", "underlay=private", "test=tcp-rr", "pair=b1>b2"]));
    check(&plan);
    assert_eq!(plan.compared(), ["ebpf", "standard"]);
    assert_eq!(plan.arrangements.len(), 4);
    assert_eq!(plan.tests.len(), 1);
    assert_eq!(plan.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["b1", "b2"]);
    // Narrowing moves nothing: the address and name are those of the whole topology.
    let whole = planned(&two_stacks, &Request::default());
    assert_eq!(plan.node("b2").unwrap().attachment("private"), whole.node("b2").unwrap().attachment("private"));
    let alone = planned(&two_stacks, &only(&["stack=ebpf"]));
    assert_eq!((alone.compare, alone.compared().len()), (None, 0));
    let twice = planned(&two_stacks, &only(&["test=tcp-rr", "test=tcp-crr"]));
    assert_eq!(twice.tests.len(), 2);
    let mixed = planned(&two_stacks, &only(&["stack=standard>ebpf"]));
    check(&mixed);
    assert_eq!(mixed.arrangements[0].stacks(), ("standard", "ebpf"));
    let standard = Request { profile: Profile::Standard, ..only(&["streams=8", "direction=reverse"]) };
    let plan = planned(&two_stacks, &standard);
    assert_eq!(plan.tests.len(), 3, "one of six bulk tests, and the transactions, which have neither");
    let four = planned(&shipped_topology("four-nodes"), &only(&["rate=1000Mbit/s", "test=udp-stream"]));
    assert_eq!(four.levels[&Factor::Rate], ["1Gbit/s"]);
}

#[test]
fn a_narrowing_that_leaves_nothing_names_what_there_is() {
    let two_stacks = shipped_topology("two-stacks");
    for (words, reason) in [
        (
            &["underlay=privat"][..],
            "did you mean `private`? the levels of underlay are public-ipv4, public-ipv6, private",
        ),
        (&["stack=epbf"], "did you mean `ebpf`?"),
        (&["pair=a1>b1"], "the levels of pair are a1>a2, b1>b2"),
        (&["pair=a1"], "the levels of pair are a1>a2, b1>b2"),
        (&["engine=raw>embedded"], "there is no engine `raw>embedded`"),
        (&["test=udp-stream"], "the levels of test are tcp-stream, tcp-rr, tcp-crr"),
        (&["streams=16"], "the levels of streams are 4"),
        (&["rate=1Gbit/s"], "no test here has a rate"),
        (&["settings=bbr"], "the topology names no settings"),
        (&["streams=4", "test=tcp-stream", "direction=reverse"], "the levels of direction are forward"),
        (&["underlay=a\u{1b}[2J"], "a\\u{1b}[2J"),
    ] {
        let found = refused(&two_stacks, &only(words));
        assert!(found.contains(reason), "{words:?}: {found}");
        assert!(!found.chars().any(char::is_control));
    }
    let many = mesh(40);
    let long = refused(&many, &only(&["pair=x>y"]));
    assert!(long.contains("and 768 more") && long.len() < 500, "{long}");
}

#[test]
fn engines_on_the_command_line_replace_the_files() {
    let pair = shipped_topology("pair");
    let plan = planned(&pair, &engines(&["old=./old", "new=./new"]));
    check(&plan);
    assert_eq!(plan.levels[&Factor::Engine], ["raw", "old", "new"]);
    assert_eq!((plan.compare, plan.compared()), (Some(Factor::Engine), vec!["old", "new"]));
    assert_eq!(plan.engine("old").unwrap().spec, EngineSpec::Daemon("./old".to_owned()));
    // Two engines asked for are compared, whatever the file compares; one is not.
    let stacks = shipped_topology("two-stacks");
    assert_eq!(planned(&stacks, &engines(&["old=./x", "new=./x"])).compare, Some(Factor::Engine));
    assert_eq!(planned(&stacks, &engines(&["embedded"])).compare, Some(Factor::Stack));
    let mixed = planned(&pair, &engines(&["old=./old", "new=./new", "old>new", "new>old"]));
    check(&mixed);
    assert_eq!(mixed.levels[&Factor::Engine], ["raw", "old", "new", "old>new", "new>old"]);
    let named = planned(&pair, &engines(&["./wireguard-go", "gotatun", "embedded"]));
    assert_eq!(named.levels[&Factor::Engine], ["raw", "wireguard-go", "gotatun", "embedded"]);
    let raw = planned(&pair, &engines(&["raw"]));
    assert_eq!((raw.levels[&Factor::Engine].len(), raw.tunnels.len(), raw.has_tunnels()), (1, 0, false));
    for (words, reason) in [
        (&["embeded"][..], "did you mean `embedded`?"),
        (&["embedded=raw"], "is built in and cannot be another engine; call raw otherwise"),
        (&["x=nonsense engine"], "is not an engine"),
        (&["x="], "is not an engine"),
        (&["a b=./x"], "cannot name an engine"),
        (&["a\u{1b}=./x"], "cannot name an engine"),
        (&["raw=./x"], "raw is the underlay without any engine"),
        (&["x=./x", "x=./y"], "is given twice"),
        (&["x=wg0"], "the nodes are made here and have none"),
        (&["x=embeded"], "`embeded` is no engine; did you mean `embedded`? write"),
        (&["x=wiregaurd-go"], "did you mean `wireguard-go`?"),
        (&["kernal"], "did you mean `kernel`?"),
        (&["raw>embedded"], "joins two different tunnels"),
    ] {
        let found = refused(&pair, &engines(words));
        assert!(found.contains(reason), "{words:?}: {found}");
    }
}

/// On hosts a word may be an interface, so a slip of the pen must not become one.
#[test]
fn a_word_that_looks_like_an_engines_is_no_interface_of_a_host() {
    let text = "pairs = [\"a>b\"]\nengines = [\"raw\", \"production\"]\n[engine.production]\ninterface = \"wg0\"\n\
        [node.a]\nreach = \"ssh:a\"\naddress = { u = \"10.0.0.2\" }\n[node.b]\nreach = [\"kubectl\", \"exec\"]\n\
        address = { u = \"10.0.0.3\" }\n[underlay]\nu = { family = \"ipv4\" }\n[[test]]\nkind = \"tcp-stream\"\n";
    let hosts = topology(text);
    for (words, meant) in [
        (&["embeded"][..], "embedded"),
        (&["x=embeded"], "embedded"),
        (&["wiregaurd-go"], "wireguard-go"),
        (&["new=Wireguard_go"], "wireguard-go"),
        (&["x=kernal"], "kernel"),
        (&["productoin"], "production"),
        (&["embeded>production"], "embedded"),
    ] {
        let found = refused(&hosts, &engines(words));
        let word = words[0].rsplit_once('=').map_or(words[0], |(_, word)| word);
        let word = word.split('>').next().unwrap();
        assert!(found.contains(&format!("`{word}` is no engine; did you mean `{meant}`?")), "{words:?}: {found}");
        assert!(found.contains(&format!("`interface:{word}`")), "{words:?}: {found}");
    }
    for (word, name) in [("wg1", "wg1"), ("interface:embeded", "embeded"), ("tailscale0", "tailscale0")] {
        let plan = planned(&hosts, &engines(&[word]));
        assert_eq!(plan.engine(name).unwrap().spec, EngineSpec::Interface(name.to_owned()));
    }
    // Interfaces are numbered: another number is another one.
    let numbered = topology(&text.replace("\"production\"", "\"wg0\"").replace("[engine.production]", "[engine.wg0]"));
    for name in ["wg1", "wg"] {
        let plan = planned(&numbered, &engines(&[name]));
        assert_eq!(plan.engine(name).unwrap().spec, EngineSpec::Interface(name.to_owned()));
    }
}

#[test]
fn an_engine_carries_only_what_it_can() {
    let pair = shipped_topology("pair");
    let reason = refused(&pair, &engines(&["direct"]));
    assert!(
        reason.contains("`direct` can carry none of the tests (tcp-crr, tcp-rr, tcp-stream)")
            && reason.contains("it carries udp-stream, udp-rr, handshake: add one"),
        "{reason}"
    );
    let text = shipped("pair")
        .unwrap()
        .replace("[profile.standard]", "[[test]]\nkind = \"udp-stream\"\nrate = \"max\"\n[profile.standard]");
    let plan = planned(&topology(&text), &engines(&["direct", "embedded"]));
    check(&plan);
    let tests = |engine: &str| {
        let visit = plan.visits.iter().find(|visit| plan.arrangements[visit.arrangement].engine == engine).unwrap();
        visit.tests.iter().map(|&test| plan.tests[test].name.as_str()).collect::<BTreeSet<_>>()
    };
    assert_eq!(tests("direct"), BTreeSet::from(["udp-stream"]));
    assert_eq!(tests("embedded").len(), 4);
    let why = "direct is measured with udp-stream and not with tcp-crr, tcp-rr, tcp-stream: it has no interface for the kernel's sockets";
    assert_eq!(plan.left_out(), [why]);
    assert!(render_text(&plan).contains(why));
    assert!(planned(&pair, &Request::default()).left_out().is_empty());
    let shaken = topology(&text.replace("kind = \"udp-stream\"\nrate = \"max\"", "kind = \"handshake\""));
    let plan = planned(&shaken, &engines(&["direct", "embedded", "other=./other", "embedded>other"]));
    check(&plan);
    let out = plan.left_out();
    let said = |level: &str| out.iter().find(|line| line.starts_with(&format!("{level} is"))).map(String::as_str);
    assert!(said("raw").is_some_and(|line| line.ends_with("not with handshake: it has no tunnel")), "{out:?}");
    assert!(said("direct").is_some_and(|line| line.contains("with handshake and not with tcp-crr")), "{out:?}");
    assert_eq!(said("embedded"), None);
    for level in ["other", "embedded>other"] {
        assert!(said(level).is_some_and(|line| line.ends_with("when they are asked to")), "{out:?}");
    }
    let datagrams = planned(&shipped_topology("datagrams"), &Request::default());
    check(&datagrams);
    assert!(datagrams.left_out().is_empty());
    assert_eq!(datagrams.compared(), ["direct", "embedded"]);
    for kind in ["udp-search", "connections", "mtu"] {
        let text = shipped("pair")
            .unwrap()
            .replace("kind = \"tcp-rr\"\ncongestion_control = \"cubic\"", &format!("kind = \"{kind}\""));
        let topology = topology(&text);
        let reason = refused(&topology, &Request::default());
        assert!(reason.contains(&format!("does not measure {kind} yet")), "{reason}");
        assert!(plan_ok(&topology, &only(&["test=tcp-stream"])));
    }
}

#[test]
fn a_level_of_two_ends_has_devices_of_its_own_even_where_a_node_is_both() {
    let text = "nodes = [\"a\", \"b\", \"c\"]\npairs = \"mesh\"\nengines = [\"raw\", \"old\", \"new\", \"old>new\"]\n[underlay]\nu = { family = \"ipv6\" }\n[engine.old]\npath = \"./old\"\n[engine.new]\npath = \"./new\"\n[[test]]\nkind = \"tcp-rr\"\n";
    let plan = planned(&topology(text), &Request::default());
    check(&plan);
    let mixed = plan.tunnel("old>new", "u").unwrap();
    let devices: Vec<(&str, &str, &str)> =
        mixed.ends.iter().map(|end| (end.node.as_str(), end.engine.as_str(), end.interface.as_str())).collect();
    // a is a client only, c a server only, b both.
    assert_eq!(devices, [("a", "old", "wg2"), ("b", "old", "wg2"), ("b", "new", "wg3"), ("c", "new", "wg3")]);
    assert_eq!(mixed.ends[1].routes, ["10.2.128.3/32".parse().unwrap()]);
}
