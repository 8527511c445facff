use proptest::prelude::*;

use super::*;

mod nodes_and_pairs;

/// A file that is right; each case changes one thing.
const RIGHT: &str = r#"# right: is this right?
nodes = ["a1", "a2"]
pairs = ["a1>a2"]

[underlay]
private = { family = "ipv4" }

[[test]]
kind = "tcp-stream"
"#;

fn parse(text: &str) -> Result<Topology, Box<TopologyError>> {
    Topology::parse("lab.toml", text)
}

fn right(text: &str) -> Topology {
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// `RIGHT` with `from` replaced.
fn changed(from: &str, to: &str) -> String {
    assert!(RIGHT.contains(from), "{from}");
    RIGHT.replacen(from, to, 1)
}

/// The one problem of `text`, as `line:column message / help`.
fn problem(text: &str) -> String {
    let error = parse(text).expect_err(text);
    assert_eq!(error.problems.len(), 1, "{error}");
    let problem = &error.problems[0];
    format!("{}:{} {} / {}", problem.line, problem.column, problem.message, problem.help)
}

#[test]
fn shipped_topologies_parse_and_open_with_a_drawing_and_their_question() {
    for (name, text) in SHIPPED {
        let topology =
            Topology::parse(&format!("topologies/{name}.toml"), text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(topology.name, name);
        let question = topology.question.unwrap();
        assert!(question.ends_with('?') && !question.contains(name), "{question}");
        let comment: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(comment.iter().any(|line| line.contains("--")), "{name} has no drawing");
        for test in topology.tests.iter().filter(|test| test.kind.is_tcp()) {
            assert!(!test.congestion_control.is_empty());
        }
        let tcp = topology.tests.iter().filter(|test| test.kind.is_tcp()).count();
        assert_eq!(
            text.matches("congestion_control = \"cubic\"").count(),
            tcp,
            "{name} does not name every congestion control"
        );
    }
    assert!(shipped("pair").is_some() && shipped("pear").is_none());
}

#[test]
fn the_example_of_the_design_reads_as_written() {
    let topology = right(
        r#"
# two-stacks: does the stack under a server change its tunnels?
nodes   = ["a1", "a2", "b1", "b2"]          # a bare name: made here
pairs   = ["a1>a2", "b1>b2"]
compare = "stack"
engines = ["raw", "embedded"]
[underlay]
public-ipv4 = { family = "ipv4" }
public-ipv6 = { family = "ipv6" }
private     = { family = "ipv4", mtu = 1450 }
[stack]
standard = { delivery = "merged-tcp" }
ebpf     = { delivery = "unmerged" }
[[test]]
kind = "tcp-stream"
streams = 4
[profile.quick]
rounds = 3
"#,
    );
    assert_eq!(topology.question.as_deref(), Some("does the stack under a server change its tunnels?"));
    assert_eq!(topology.compare, Some(Factor::Stack));
    assert_eq!(topology.stack_levels, ["standard", "ebpf"]);
    assert_eq!(
        topology.underlays.iter().map(|underlay| underlay.kind).collect::<Vec<_>>(),
        [UnderlayKind::Routed, UnderlayKind::Routed, UnderlayKind::Bridged]
    );
    assert_eq!(topology.tests[0].streams, [4]);
    assert_eq!(topology.tests[0].congestion_control, ["cubic"]);
    assert_eq!(topology.tests[0].probe, Some(PacketRate::from_per_second(100)));
    assert_eq!(topology.profiles[&Profile::Quick].rounds, Some(3));
}

#[test]
fn real_hosts_read_as_written() {
    let topology = right(
        r#"
pairs = "mesh"
engines = ["raw", "embedded", "wg0"]
[node.fra]
reach = "ssh:root@fra"
address = { private = "10.0.0.2" }
[node.hel]
reach = ["sh", "-c", "echo banner; exec wglab agent"]
address = { private = "10.0.0.3" }
[node.ash]
reach = "ssh:root@[2001:db8::7]:2222"
address = { private = "10.0.0.4" }
[engine.wg0]
interface = "wg0"
[underlay]
private = { family = "ipv4", budget = "50GB" }
[[test]]
kind = "tcp-stream"
"#,
    );
    assert_eq!(topology.pairs.iter().map(ToString::to_string).collect::<Vec<_>>(), ["fra>hel", "fra>ash", "hel>ash"]);
    assert!(!topology.is_local());
    let argv = |index: usize| match &topology.nodes[index].place {
        Place::There { argv, .. } => argv.join(" "),
        Place::Here { .. } => panic!("real"),
    };
    assert_eq!(argv(0), "ssh -T -o BatchMode=yes -o ServerAliveInterval=5 -p 22 root@fra wglab agent");
    assert_eq!(argv(1), "sh -c echo banner; exec wglab agent");
    assert!(argv(2).contains("-p 2222 root@2001:db8::7 wglab"), "{}", argv(2));
    assert_eq!(topology.engines[2].spec, EngineSpec::Interface("wg0".to_owned()));
    assert_eq!(topology.stack_levels, ["as-found"]);
    assert_eq!(topology.underlays[0].budget, Some(Bytes::new(50_000_000_000)));
}

#[test]
fn an_error_shows_file_line_column_snippet_and_remedy() {
    let error = parse(&changed("nodes =", "noodes =")).unwrap_err().to_string();
    insta::assert_snapshot!(error, @r#"
    error: a topology needs nodes
     --> lab.toml:1:1
      |
    1 | # right: is this right?
      | ^
      |
      = help: write `nodes = ["a1", "a2"]`

    error: a topology has no key `noodes`
     --> lab.toml:2:1
      |
    2 | noodes = ["a1", "a2"]
      | ^^^^^^
      |
      = help: did you mean `nodes`? the keys of a topology are question, nodes, node, pairs, compare, min_effect, policy, engines, engine, tunnels, underlay, stack, stacks, settings, test, profile
    "#);
}

#[test]
fn unknown_keys_are_refused_with_the_likely_one() {
    for (from, to, place, suggestion) in [
        ("family = \"ipv4\"", "family = \"ipv4\", mtuu = 1450", "6:30", "did you mean `mtu`?"),
        ("kind = \"tcp-stream\"", "kind = \"tcp-stream\"\nstream = 4", "10:1", "did you mean `streams`?"),
        ("[[test]]", "[profile.quick]\nround = 3\n[[test]]", "9:1", "did you mean `rounds`?"),
        ("[[test]]", "[stack]\ns = { delivery = \"unmerged\", queues = 1 }\n[[test]]", "9:30", "receive_queues"),
        ("[[test]]", "[settings.s]\nsysctls = {}\n[[test]]", "9:1", "did you mean `sysctl`?"),
        ("[[test]]", "[node.a1]\nagents = []\n[[test]]", "9:1", "did you mean `agent`?"),
        ("[[test]]", "[engine.e]\npath = \"./e\"\nmtu = 1\n[[test]]", "10:1", "path, interface, kind"),
    ] {
        let problem = problem(&changed(from, to));
        assert!(problem.starts_with(place) && problem.contains(suggestion), "{problem}");
    }
}

#[test]
fn a_key_of_another_kind_of_test_is_refused() {
    for (kind, key) in [
        ("tcp-rr", "streams = 4"),
        ("tcp-stream", "rate = \"1Gbit/s\""),
        ("tcp-crr", "direction = \"both\""),
        ("ping", "congestion_control = \"cubic\""),
        ("udp-stream\"\nrate = \"1Gbit/s", "congestion_control = \"cubic\""),
    ] {
        let problem = problem(&changed("kind = \"tcp-stream\"", &format!("kind = \"{kind}\"\n{key}")));
        let key = key.split_once(' ').unwrap().0;
        assert!(problem.contains(&format!("has no `{key}`")), "{problem}");
    }
}

#[test]
fn wrong_units_and_types_are_refused_with_the_remedy() {
    let test = |line: &str| changed("kind = \"tcp-stream\"", &format!("kind = \"tcp-stream\"\n{line}"));
    let udp = |line: &str| changed("kind = \"tcp-stream\"", &format!("kind = \"udp-stream\"\n{line}"));
    let underlay = |keys: &str| changed("family = \"ipv4\"", &format!("family = \"ipv4\", {keys}"));
    for (text, place, words) in [
        (test("duration = 2"), "10:12", "has no unit"),
        (test("duration = 0.5"), "10:12", "has no unit"),
        (test("duration = \"2GB\""), "10:12", "ns, us"),
        (test("duration = \"0s\""), "10:12", "1ms to 24h"),
        (test("duration = \"30h\""), "10:12", "1ms to 24h"),
        (test("duration = [\"1s\"]"), "10:12", "is a list, not text"),
        (test("streams = \"4\""), "10:11", "is text, not a whole number"),
        (test("streams = 4.5"), "10:11", "not a whole number"),
        (test("streams = 0"), "10:11", "out of range"),
        (test("streams = -1"), "10:11", "out of range"),
        (test("streams = 99999999999999999999"), "10:11", "out of range"),
        (test("streams = []"), "10:11", "empty list"),
        (test("streams = [1, 1]"), "10:15", "names this twice"),
        (test("direction = \"forwards\""), "10:13", "did you mean `forward`?"),
        (test("direction = true"), "10:13", "is true or false, not text"),
        (test("probe = \"100\""), "10:9", "has no unit"),
        (test("probe = \"0/s\""), "10:9", "1/s to 10000/s"),
        (test("congestion_control = \"cubic; reboot\""), "10:22", "not a congestion control"),
        (udp("rate = \"1GB/s\""), "10:8", "bit/s, kbit/s"),
        (udp("rate = 1000"), "10:8", "no unit"),
        (udp("rate = \"0bit/s\""), "10:8", "no link has this rate"),
        (udp("rate = \"2000M/s\""), "10:8", "no link has this rate"),
        (udp("#"), "8:1", "a udp-stream test has no rate"),
        (udp("rate = \"max\"\npayload = \"1B\""), "11:11", "32B to 65000B"),
        (udp("rate = \"max\"\npayload = 1300"), "11:11", "no unit"),
        (underlay("mtu = 50"), "6:36", "from 576 to 65535"),
        (underlay("mtu = \"1450\""), "6:36", "is text, not a whole number"),
        (underlay("mtu = 70000"), "6:36", "from 576 to 65535"),
        (underlay("budget = \"50Gbit/s\""), "6:39", "B, kB, MB"),
        (underlay("budget = \"0GB\""), "6:39", "measures nothing"),
        (underlay("nominal = \"1GB\""), "6:40", "bit/s, kbit/s"),
        (underlay("kind = \"switched\""), "6:37", "choose routed, bridged"),
        (underlay("network = \"10.0.0.0/33\""), "6:40", "network"),
        (underlay("network = \"10.0.0.1/8\""), "6:40", "write \"10.0.0.0/8\""),
        (underlay("network = \"fd00::/64\""), "6:40", "is not an IPv4 network"),
        (underlay("network = \"127.0.0.0/8\""), "6:40", "no host can have"),
        (changed("\"ipv4\"", "\"ipv5\""), "6:22", "did you mean `ipv4`?"),
        (changed("\"ipv4\"", "\"ipv6\", mtu = 1000"), "6:36", "from 1280"),
        (changed("{ family = \"ipv4\" }", "{}"), "6:1", "has no family"),
        (changed("{ family = \"ipv4\" }", "1"), "6:11", "is a whole number, not a table"),
        (changed("\"tcp-stream\"", "\"tcp_stream\""), "9:8", "did you mean `tcp-stream`?"),
        (changed("kind = \"tcp-stream\"", "streams = 1"), "8:1", "a test has no kind"),
        (changed("[[test]]", "[test]"), "8:2", "in two brackets"),
        (changed("pairs", "min_effect = \"150%\"\npairs"), "3:14", "out of range"),
        (changed("pairs", "min_effect = 5\npairs"), "3:14", "no unit"),
        (changed("[[test]]", "[policy]\nmetrics = [\"rr_p50_n\"]\n[[test]]"), "9:12", "did you mean `rr_p50_ns`?"),
        (changed("[[test]]", "[policy]\nmetrics = [\"softirq_ratio\"]\n[[test]]"), "9:12", "it only explains"),
        (changed("[[test]]", "[policy]\nmin_effects = { rr_p50_ns = \"0%\" }\n[[test]]"), "9:29", "between 0 and 1"),
        (changed("[[test]]", "[policy]\nmetric = [\"rr_p50_ns\"]\n[[test]]"), "9:1", "did you mean `metrics`?"),
        (changed("pairs", "compare = \"stacks\"\npairs"), "3:11", "did you mean `stack`?"),
        (changed("[[test]]", "[profile.quick]\nrounds = 0\n[[test]]"), "9:10", "from 1 to 1000"),
        (changed("[[test]]", "[profile.quik]\nrounds = 1\n[[test]]"), "8:10", "did you mean `quick`?"),
        (
            changed("[[test]]", "[profile.quick]\nduration = { ping = \"1s\" }\n[[test]]"),
            "9:14",
            "there is no test `ping`",
        ),
        (
            changed("[[test]]", "[profile.quick]\ntests = [\"tcp-streem\"]\n[[test]]"),
            "9:10",
            "did you mean `tcp-stream`?",
        ),
        (changed("[[test]]", "[stack]\ns = {}\n[[test]]"), "9:1", "has no delivery"),
        (changed("[[test]]", "[stack]\n[[test]]"), "8:2", "empty table"),
        (changed("[[test]]", "[stack]\ns = { delivery = \"merged\" }\n[[test]]"), "9:18", "is not a delivery"),
    ] {
        let problem = problem(&text);
        assert!(problem.starts_with(&format!("{place} ")) && problem.contains(words), "{text}\n{problem}");
    }
}

#[test]
fn a_hostile_file_cannot_move_the_cursor() {
    let error = Topology::parse("x\u{1b}]0;y.toml", "a = \"\u{1b}[31m\"\nb = \"\u{9b}31m\"\n").unwrap_err();
    for color in [false, true] {
        let rendered = error.render(color);
        let plain = rendered.replace("\u{1b}[", "");
        let own = if color { plain } else { rendered };
        assert!(!own.chars().any(|c| c.is_control() && c != '\n'), "{own:?}");
    }
}

#[test]
fn engines_are_built_in_or_defined_and_every_definition_is_used() {
    let with = |top: &str, tables: &str| {
        changed("pairs", &format!("{top}\npairs")).replace("[[test]]", &format!("{tables}\n[[test]]"))
    };
    let topology = right(&with(
        "engines = [\"raw\", \"old\", \"new\", \"old>new\"]",
        "[engine.old]\npath = \"wireguard-go\"\n[engine.new]\nkind = \"embedded\"",
    ));
    assert_eq!(topology.engine_levels, ["raw", "old", "new", "old>new"]);
    assert_eq!(topology.engines.len(), 3);
    assert_eq!(right(RIGHT).engine_levels, ["raw", "embedded"]);
    assert_eq!(right(&with("", "[engine.go]\npath = \"./go\"")).engine_levels, ["raw", "go"]);
    for (top, tables, words) in [
        ("engines = [\"embeded\"]", "", "did you mean `embedded`?"),
        ("engines = [\"wireguard-go\"]", "", "there is no engine `wireguard-go`"),
        ("engines = [\"raw\", \"raw\"]", "", "is named twice"),
        ("engines = []", "", "empty list"),
        ("engines = [\"raw>embedded\"]", "", "cannot be raw"),
        ("engines = [\"embedded>embedded\"]", "", "is the same on both ends"),
        ("engines = [\"raw\"]", "[engine.go]\npath = \"./go\"", "`engines` does not name it"),
        ("", "[engine.go]", "has 0 of path, interface, kind"),
        ("", "[engine.go]\npath = \"./go\"\nkind = \"kernel\"", "has 2 of path, interface, kind"),
        ("", "[engine.go]\npath = \"go\"", "could be anything"),
        ("", "[engine.go]\npath = \"/usr/bin/\"", "is a directory"),
        ("", "[engine.go]\nkind = \"dirct\"", "did you mean `direct`?"),
        ("", "[engine.go]\npath = \"./g\\no\"", "control character"),
        ("", "[engine.go]\nkind = \"quantum\"", "is not a kind of engine"),
        ("", "[engine.go]\ninterface = \"a b\"", "is no interface"),
        ("", "[engine.go]\ninterface = \"all\"", "is no interface"),
        ("", "[engine.raw]\npath = \"./go\"", "is built in"),
    ] {
        let problem = problem(&with(top, tables));
        assert!(problem.contains(words), "{top} {tables}: {problem}");
    }
}

#[test]
fn stacks_and_settings_name_levels_and_every_definition_is_used() {
    let with = |top: &str| {
        changed("pairs", &format!("{top}\npairs")).replace(
            "[[test]]",
            "[stack]\na = { delivery = \"unmerged\" }\nb = { delivery = \"merged-all\" }\n[[test]]",
        )
    };
    assert_eq!(right(&with("stacks = [\"a\", \"b\", \"a>b\"]")).stack_levels, ["a", "b", "a>b"]);
    assert_eq!(right(RIGHT).stacks[0].delivery, Some(Delivery::MergedTcp));
    for (top, words) in [
        ("stacks = [\"a\", \"c\", \"b\"]", "there is no stack `c`"),
        ("stacks = [\"a\"]", "stack `b` is defined"),
        ("stacks = [\"a\", \"a>c\", \"b\"]", "there is no stack `c`"),
    ] {
        assert!(problem(&with(top)).contains(words), "{top}");
    }
    let settings = |table: &str| changed("[[test]]", &format!("[settings.s]\n{table}\n[[test]]"));
    let read = right(&settings(
        "sysctl = { \"net.ipv4.tcp_rmem\" = \"1 2 3\", \"net.core.x\" = 1 }\nfeatures = { gro = false }\nrps_cpus = [0, 1]",
    ));
    assert_eq!(read.settings[0].sysctl["net.core.x"], "1");
    assert_eq!(read.settings[0].rps_cpus, Some(vec![0, 1]));
    for (table, words) in [
        ("sysctl = { \"net/../../etc\" = \"1\" }", "is not the name of a sysctl"),
        ("sysctl = { \"net..x\" = \"1\" }", "is not the name of a sysctl"),
        ("sysctl = { \"vm.swappiness\" = \"1\" }", "is the whole machine's"),
        ("sysctl = { \"net.x\" = \"1\\n2\" }", "no value of one line"),
        ("sysctl = { \"net.x\" = \"\" }", "no value of one line"),
        ("features = { gro = \"on\" }", "not true or false"),
        ("features = { \"g ro\" = true }", "is not a feature"),
        ("rps_cpus = [0, 5000]", "out of range"),
    ] {
        let problem = problem(&settings(table));
        assert!(problem.contains(words), "{table}: {problem}");
    }
}

/// A file that names no pair and no network: each problem says what to write, and none to leave out what is required.
#[test]
fn what_is_required_and_empty_is_to_be_filled_in() {
    let empty = problem(&changed("[\"a1>a2\"]", "[]"));
    assert!(empty.contains("`pairs` is an empty list / write `pairs = ") && !empty.contains("leave"), "{empty}");
    let text = "pairs = [\"a>b\"]\n[node.a]\nreach = \"ssh:a\"\naddress = { private = \"10.0.0.1\" }\n\
        [node.b]\nreach = \"ssh:b\"\naddress = { private = \"10.0.0.2\" }\n[underlay]\n[[test]]\nkind = \"tcp-rr\"\n";
    let error = parse(text).unwrap_err().to_string();
    assert!(error.contains("a topology needs underlays") && !error.contains("the underlays are"), "{error}");
    assert!(error.contains("name the network that the nodes share in `[underlay]`"), "{error}");
}

#[test]
fn an_engine_cannot_be_named_like_a_level_of_two() {
    for engines in ["", "engines = [\"raw\", \"a>b\"]\n"] {
        let text = changed("[[test]]", "[engine.\"a>b\"]\npath = \"./x\"\n[[test]]").replacen(
            "pairs",
            &format!("{engines}pairs"),
            1,
        );
        let problem = problem(&text);
        assert!(problem.contains("`a>b` cannot name an engine: `>` is not one of"), "{problem}");
        assert!(problem.contains("`>` stands between the engines of two ends"), "{problem}");
    }
}

#[test]
fn tunnels_are_a_number_or_several() {
    let tunnels = |value: &str| changed("pairs", &format!("tunnels = {value}\npairs"));
    assert_eq!(right(RIGHT).tunnels, [] as [u32; 0]);
    assert_eq!(right(&tunnels("4")).tunnels, [4]);
    assert_eq!(right(&tunnels("[2, 1, 64]")).tunnels, [2, 1, 64]);
    for (value, words) in [
        ("0", "`tunnels` = 0 is out of range / write a whole number from 1 to 64"),
        ("[1, 65]", "`tunnels` = 65 is out of range"),
        ("[1, 1]", "names this twice"),
        ("[]", "is an empty list"),
        ("\"2\"", "is text, not a whole number"),
        ("{}", "is a table, not a whole number"),
    ] {
        let problem = problem(&tunnels(value));
        assert!(problem.contains(words), "{value}: {problem}");
    }
    let compared = problem(&tunnels("2\ncompare = \"tunnels\""));
    assert!(compared.contains("nothing to compare: 1 tunnels named / write two numbers"), "{compared}");
    let raw = problem(&tunnels("2\nengines = [\"raw\"]"));
    assert!(raw.contains("the raw underlay has no tunnels"), "{raw}");
}

#[test]
fn a_comparison_needs_two_levels() {
    for factor in ["pair", "underlay", "tunnels", "stack", "settings"] {
        let problem = problem(&changed("pairs", &format!("compare = \"{factor}\"\npairs")));
        assert!(problem.contains("nothing to compare"), "{problem}");
    }
    assert_eq!(right(&changed("pairs", "compare = \"engine\"\npairs")).compare, Some(Factor::Engine));
}

#[test]
fn several_faults_are_all_reported_in_the_order_of_the_file() {
    let text = changed("\"ipv4\"", "\"ipv5\", mtu = 3").replace("kind = \"tcp-stream\"", "kind = \"tcp\"\ncolour = 1")
        + "[profile.slow]\n";
    let error = parse(&text).unwrap_err();
    let lines: Vec<usize> = error.problems.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [6, 6, 9, 10, 11], "{error}");
}

#[test]
fn what_is_not_toml_is_shown_where_it_stops_being_it() {
    let error = parse("nodes = [\"a1\"\npairs = [\"a1>a2\"]\n").unwrap_err();
    assert!(error.problems.len() <= 3 && error.problems[0].message.starts_with("this is not TOML"), "{error}");
    let twice = problem(&changed("[[test]]", "[underlay]\n[[test]]"));
    assert!(twice.starts_with("8:2") && twice.contains("duplicate key"), "{twice}");
    let large = "#".repeat(5 << 20);
    assert!(parse(&large).unwrap_err().problems[0].message.contains("5242880 bytes"));
    assert!(parse(&format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000))).is_err());
}

#[test]
fn columns_count_characters_and_survive_a_byte_order_mark() {
    let text = changed("nodes = [\"a1\", \"a2\"]", "nodes = [\"a1\", \"a2\", \"ää\", \"b c\"]");
    let error = parse(&text).unwrap_err();
    assert_eq!(error.problems.iter().map(|problem| problem.column).collect::<Vec<_>>(), [22, 28]);
    assert_eq!(right(&format!("\u{feff}{RIGHT}")).question.as_deref(), Some("is this right?"));
    assert!(parse(&RIGHT.replace('\n', "\r\n")).is_ok());
}

#[test]
fn rates_are_levels_without_loss() {
    for (text, level) in [
        ("1Gbit/s", "1Gbit/s"),
        ("1000 Mbit/s", "1Gbit/s"),
        ("1234567891bit/s", "1.234567891Gbit/s"),
        ("999bit/s", "999bit/s"),
        ("100k/s", "100k/s"),
        ("1500/s", "1.5k/s"),
        ("max", "max"),
    ] {
        let rate: Rate = text.parse().unwrap();
        assert_eq!(rate.to_string(), level);
        assert_eq!(level.parse::<Rate>().unwrap(), rate);
        assert_eq!(serde_json::from_str::<Rate>(&serde_json::to_string(&rate).unwrap()).unwrap(), rate);
    }
}

#[test]
fn an_engine_spec_reads_back_as_itself() {
    for text in ["raw", "embedded", "direct", "kernel", "interface:wg0", "./wg", "/usr/bin/wireguard-go", "gotatun"] {
        let spec: EngineSpec = text.parse().unwrap();
        assert_eq!(spec.to_string(), text);
        assert_eq!(serde_json::from_str::<EngineSpec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
    }
    assert_eq!("wg0".parse::<EngineSpec>(), Ok(EngineSpec::Interface("wg0".to_owned())));
    for bad in ["", "a b", "./", "x\ny", "interface:", "interface:raw?", "averyverylonginterface"] {
        assert!(bad.parse::<EngineSpec>().is_err(), "{bad}");
    }
}

#[test]
fn the_reference_names_every_key() {
    let docs = include_str!("../../docs/topology.md");
    let keys = parse::KEYS.iter().chain(&parse::MORE_KEYS).chain(&nodes::NODE_KEYS).chain(&underlays::KEYS);
    let keys = keys.chain(&engines::KEYS).chain(&stacks::KEYS).chain(&settings::KEYS);
    for key in keys.chain(&tests_and_profiles::TEST_KEYS).chain(&tests_and_profiles::PROFILE_KEYS) {
        let named =
            [format!("`{key}`"), format!("`[{key}"), format!("`[[{key}")].iter().any(|form| docs.contains(form));
        assert!(named, "docs/topology.md does not name `{key}`");
    }
    for kind in TestKind::ALL {
        assert!(docs.contains(&format!("\"{kind}\"")), "docs/topology.md does not name {kind}");
    }
    for factor in Factor::ALL {
        assert!(docs.contains(&format!("`{factor}`")), "docs/topology.md does not name {factor}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\PC|\n){0,200}") {
        let _ = parse(&text);
    }

    /// A file with a few bytes of it changed is read or refused; what is printed about it cannot harm a terminal.
    #[test]
    fn no_damage_makes_the_reader_panic(
        which in 0..SHIPPED.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec!["", "\"", "[", "]", "{", "=", "\n", ">", "0", "-", "\u{1b}", "ä", "mesh", "raw", "\"1s\""])), 1..6),
    ) {
        let mut text: Vec<char> = SHIPPED[which].1.chars().collect();
        for (place, edit) in edits {
            let place = place.index(text.len());
            text.splice(place..=place, edit.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = parse(&text) {
            prop_assert!(!error.problems.is_empty());
            let rendered = error.render(false);
            prop_assert!(!rendered.chars().any(|c| c.is_control() && c != '\n'), "{rendered:?}");
            for problem in &error.problems {
                prop_assert!(text.get(problem.span.clone()).is_some());
            }
        }
    }

    /// Whatever a name holds, it is refused or plain.
    #[test]
    fn a_name_is_plain_or_refused(name in "\\PC{0,20}|[a-zA-Z0-9_=+.-]{0,40}") {
        if check_name(&name).is_ok() {
            prop_assert!((1..=32).contains(&name.len()));
            prop_assert!(name.chars().all(|c| c.is_ascii_graphic() && !"/\\'\"<>".contains(c)));
        }
        if check_interface(&name).is_ok() {
            prop_assert!((1..=15).contains(&name.len()));
        }
    }
}

#[test]
fn a_profile_names_a_precision() {
    let of = |value: &str| format!("{RIGHT}[profile.quick]\nprecision = {value}\n");
    let topology = right(&of("\"2.5%\""));
    assert_eq!(topology.profiles[&Profile::Quick].precision, Some(Ratio::from_fraction(0.025)));
    for (value, words) in [
        ("\"0%\"", "above 0% and below 100%"),
        ("\"100%\"", "above 0% and below 100%"),
        ("\"3\"", "is not a precision"),
        ("\"off\"", "leave `precision` out"),
    ] {
        assert!(problem(&of(value)).contains(words), "{value}: {}", problem(&of(value)));
    }
}
