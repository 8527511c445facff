//! Nodes, pairs, underlays and their names.

use super::*;

#[test]
fn names_are_refused_before_they_reach_anything() {
    // Field cases C-17 and C-19: line feeds, escapes, markup, and what no interface can be called.
    let long = "lab-frankfurt-ipv6-01";
    for bad in [
        long,
        "wg 0",
        "all",
        "default",
        "eth0",
        "..",
        "",
        "wg0",
        "lo",
        "a/b",
        "a\\nb",
        "a\\u001b[31m",
        "</script>",
        "-x",
        "ä",
    ] {
        let problem = problem(&changed("private", &format!("\"{bad}\"")));
        assert!(problem.contains("cannot name an underlay"), "{bad}: {problem}");
        assert!(!problem.chars().any(char::is_control), "{problem:?}");
    }
    for bad in ["", "a 1", "a\\nprivate_key=00", "a\\u001b[2J", "a>b", "all", &"x".repeat(33), "-oProxyCommand=x"] {
        let text = RIGHT.replace("a2", bad);
        let error = parse(&text).expect_err(bad);
        assert!(error.problems.iter().any(|problem| problem.message.contains("cannot name a node")), "{bad}: {error}");
        let rendered = error.render(false);
        assert!(!rendered.chars().any(|c| c.is_control() && c != '\n'), "{rendered:?}");
    }
    for (table, what) in [
        ("[stack]\n\"a b\" = { delivery = \"unmerged\" }", "a stack"),
        ("[settings.\"a b\"]", "settings"),
        ("[engine.\"a b\"]\npath = \"./x\"", "an engine"),
    ] {
        let problem = problem(&changed("[[test]]", &format!("{table}\n[[test]]")));
        assert!(problem.contains(&format!("cannot name {what}")), "{problem}");
    }
    let problem = problem(&changed("kind", "name = \"a\\u001b\"\nkind"));
    assert!(problem.contains("cannot name a test"), "{problem}");
}

#[test]
fn pairs_must_be_two_different_known_nodes() {
    for (pairs, words) in [
        ("[\"a1\"]", "a pair is two nodes"),
        ("[\"a1>a2>a1\"]", "a pair is two nodes"),
        ("[\"a1>\"]", "a pair is two nodes"),
        ("[\"a1>a3\"]", "did you mean `a1`?"),
        ("[\"a1>frankfurt\"]", "the nodes are a1, a2"),
        ("[\"a1>a1\"]", "pairs a node with itself"),
        ("[1]", "is text, not a whole number"),
        ("[]", "empty list"),
        ("\"ring\"", "a pair is two nodes"),
        ("[\"a1>a2\", \"a1>a2\"]", "names this twice"),
    ] {
        let problem = problem(&changed("[\"a1>a2\"]", pairs));
        assert!(problem.starts_with("3:") && problem.contains(words), "{problem}");
    }
    assert_eq!(right(&changed("[\"a1>a2\"]", "[\"a1>a2\", \"a2>a1\"]")).pairs.len(), 2);
    let unknown = problem(
        &changed("pairs = [\"a1>a2\"]", "pears = 1")
            .replace("nodes = [\"a1\", \"a2\"]\npears = 1", "nodes = [\"a1\", \"a2\"]"),
    );
    assert!(unknown.contains("a topology needs pairs"), "{unknown}");
}

#[test]
fn nodes_must_be_distinct_busy_and_all_of_one_kind() {
    let twice = problem(&changed("[\"a1\", \"a2\"]", "[\"a1\", \"a2\", \"a2\"]"));
    assert!(twice.starts_with("2:22") && twice.contains("named twice"), "{twice}");
    let idle = problem(&changed("[\"a1\", \"a2\"]", "[\"a1\", \"a2\", \"a3\"]"));
    assert!(idle.starts_with("2:22") && idle.contains("is in no pair"), "{idle}");
    let stray = problem(&changed("[[test]]", "[node.a11]\n[[test]]"));
    assert!(stray.contains("is not in `nodes`") && stray.contains("did you mean `a1`?"), "{stray}");
    let mixed =
        problem(&changed("[[test]]", "[node.a1]\nreach = \"ssh:h\"\naddress = { private = \"10.0.0.2\" }\n[[test]]"));
    assert!(mixed.contains("no network joins them"), "{mixed}");
    let unreached = problem(&changed("[[test]]", "[node.a1]\naddress = { private = \"10.0.0.2\" }\n[[test]]"));
    assert!(unreached.starts_with("9:1") && unreached.contains("no `reach`"), "{unreached}");
    let empty = problem(&changed("[\"a1\", \"a2\"]\npairs = [\"a1>a2\"]", "[]\npairs = \"mesh\""));
    assert!(empty.starts_with("2:9") && empty.contains("empty list"), "{empty}");
}

/// Two real nodes, with one line changed.
fn real(from: &str, to: &str) -> String {
    const REAL: &str = r#"pairs = "mesh"
[node.fra]
reach = "ssh:root@fra"
address = { private = "10.0.0.2" }
[node.hel]
reach = "ssh:root@hel"
address = { private = "10.0.0.3" }
[underlay]
private = { family = "ipv4" }
[[test]]
kind = "tcp-stream"
"#;
    assert!(REAL.contains(from), "{from}");
    REAL.replacen(from, to, 1)
}

#[test]
fn real_nodes_need_a_way_and_addresses_of_their_own() {
    for (from, to, place, words) in [
        ("ssh:root@fra", "root@fra", "3:9", "begins with no known way"),
        ("ssh:root@fra", "ssh:-oProxyCommand=sh", "3:9", "is not a user or a host"),
        ("ssh:root@fra", "ssh:root@-oProxyCommand", "3:9", "is not a user or a host"),
        ("ssh:root@fra", "ssh:root@fra:0", "3:9", "no valid port"),
        ("ssh:root@fra", "ssh:root@2001:db8::1", "3:9", "in brackets"),
        ("ssh:root@fra", "ssh:", "3:9", "is not a user or a host"),
        ("ssh:root@fra", "ssh:fra\\nProxyCommand x", "3:9", "is not a user or a host"),
        ("\"ssh:root@fra\"", "[]", "3:9", "empty list"),
        ("\"ssh:root@fra\"", "[\"sh\", 1]", "3:16", "not text"),
        ("\"10.0.0.2\"", "\"2001:db8::1\"", "4:23", "is not an IPv4 address"),
        ("\"10.0.0.2\"", "\"0.0.0.0\"", "4:23", "names no host"),
        ("\"10.0.0.2\"", "\"10.0.0\"", "4:23", "IP address"),
        ("\"10.0.0.2\"", "\"10.0.0.3\"", "5:7", "have the same address"),
        ("address = { private = \"10.0.0.2\" }", "", "2:7", "has no address"),
        (
            "{ private = \"10.0.0.2\" }",
            "{ privat = \"10.0.0.2\", private = \"10.0.0.4\" }",
            "4:13",
            "did you mean `private`?",
        ),
        ("[node.hel]", "agent = [\"x\"]\n[node.hel]", "5:1", "`agent` is for nodes made here"),
        ("[node.hel]", "underlays = [\"private\"]\n[node.hel]", "5:1", "`underlays` is for nodes made here"),
        ("family = \"ipv4\"", "family = \"ipv4\", network = \"10.0.0.0/8\"", "9:30", "its nodes are real"),
        ("[[test]]", "[stack]\nhcnet = { delivery = \"unmerged\" }\n[[test]]", "11:11", "the nodes are real"),
        ("[[test]]", "[stack]\na = { switch = \"./a\" }\n[[test]]", "11:16", "not a list"),
    ] {
        let problem = problem(&real(from, to));
        assert!(problem.starts_with(&format!("{place} ")) && problem.contains(words), "{from} -> {to}: {problem}");
    }
    assert_eq!(right(&real("[[test]]", "[stack]\nhcnet = {}\n[[test]]")).stack_levels, ["hcnet"]);
    let machine = right(&real("[[test]]", "[settings.s]\nsysctl = { \"vm.swappiness\" = \"1\" }\n[[test]]"));
    assert_eq!(machine.settings[0].sysctl["vm.swappiness"], "1");
    let v6 = real("family = \"ipv4\"", "family = \"ipv6\"")
        .replace("10.0.0.2", "fe80::1")
        .replace("10.0.0.3", "2001:db8::3");
    assert!(problem(&v6).contains("link-local"));
}

#[test]
fn an_underlay_that_nobody_has_is_refused() {
    let none = problem(&changed(
        "family = \"ipv4\" }",
        "family = \"ipv4\" }\nlonely = { family = \"ipv6\" }\n[node.a1]\nunderlays = [\"private\"]\n[node.a2]\nunderlays = [\"private\"]",
    ));
    assert!(none.starts_with("7:1 no node has underlay `lonely`"), "{none}");
    let one = problem(&changed(
        "family = \"ipv4\" }",
        "family = \"ipv4\" }\nlonely = { family = \"ipv6\" }\n[node.a1]\nunderlays = [\"private\"]",
    ));
    assert!(one.starts_with("7:1 no pair has both nodes on underlay `lonely`"), "{one}");
    let apart = problem(&changed(
        "[[test]]",
        "other = { family = \"ipv4\" }\n[node.a1]\nunderlays = [\"private\"]\n[node.a2]\nunderlays = [\"other\"]\n[[test]]",
    ));
    assert!(apart.starts_with("3:10") && apart.contains("no underlay in common"), "{apart}");
    let unknown = problem(&changed("[[test]]", "[node.a1]\nunderlays = [\"privat\"]\n[[test]]"));
    assert!(unknown.contains("there is no underlay `privat`"), "{unknown}");
}

#[test]
fn networks_must_not_overlap_and_must_have_room() {
    let two = |first: &str, second: &str| {
        changed(
            "private = { family = \"ipv4\" }",
            &format!(
                "private = {{ family = \"ipv4\", network = \"{first}\" }}\npublic = {{ family = \"ipv4\", network = \"{second}\" }}"
            ),
        )
    };
    for (first, second) in
        [("10.1.0.0/16", "10.1.0.0/16"), ("10.1.0.0/16", "10.0.0.0/8"), ("10.0.0.0/8", "10.9.0.0/16")]
    {
        let problem = problem(&two(first, second));
        assert!(problem.starts_with("7:1") && problem.contains("overlap"), "{problem}");
    }
    assert_eq!(right(&two("10.1.0.0/16", "10.2.0.0/16")).underlays.len(), 2);
    let narrow = problem(&two("10.1.0.0/31", "10.2.0.0/16"));
    assert!(narrow.contains("has 0 addresses, and `private` has 2 nodes"), "{narrow}");
    let narrow = problem(&two("10.1.0.0/30", "10.2.0.0/29"));
    assert!(narrow.contains("has 0 subnets of /30, and `public` has 2 nodes"), "{narrow}");
    assert_eq!(right(&two("10.1.0.0/30", "10.2.0.0/28")).underlays.len(), 2);
}

#[test]
fn stacks_of_real_nodes_are_labels_with_commands() {
    let topology =
        right(&real("[[test]]", "[stack.a]\n[stack.b]\nswitch = [\"./on\", \"b\"]\nverify = [\"./is\"]\n[[test]]"));
    assert_eq!(topology.stack_levels, ["a", "b"]);
    assert_eq!((topology.stacks[0].switch.as_ref(), topology.stacks[0].verify.as_ref()), (None, None));
    assert_eq!(topology.stacks[1].switch.as_deref(), Some(&["./on".to_owned(), "b".to_owned()][..]));
    assert_eq!(topology.stacks[1].verify.as_deref(), Some(&["./is".to_owned()][..]));
    let made = "nodes = [\"a\", \"b\"]\npairs = \"mesh\"\n[stack]\ns = { delivery = \"unmerged\", switch = [\"x\"] }\n[underlay]\nu = { family = \"ipv4\" }\n[[test]]\nkind = \"tcp-rr\"\n";
    assert!(problem(made).contains("`switch` is for real nodes"), "{}", problem(made));
}
