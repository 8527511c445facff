//! Several tunnels per pair.

use super::*;

/// Two nodes, two underlays, streams that can be spread and transactions that cannot.
const LAB: &str = "nodes = [\"a\", \"b\"]\npairs = [\"a>b\"]\ncompare = \"tunnels\"\nengines = [\"raw\", \"embedded\"]\n\
    tunnels = [1, 2, 4]\n[underlay]\nprivate = { family = \"ipv4\" }\npublic-ipv6 = { family = \"ipv6\" }\n\
    [[test]]\nkind = \"tcp-stream\"\nstreams = [1, 4]\n[[test]]\nkind = \"tcp-rr\"\n[profile.quick]\nrounds = 6\n";

/// `LAB` with each of these replaced.
fn changed(changes: &[(&str, &str)]) -> Topology {
    let text = changes.iter().fold(LAB.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    topology(&text)
}

/// The tests of each level of tunnels, in the order of the plan.
fn carried(plan: &Plan) -> BTreeMap<(String, Option<u32>), BTreeSet<String>> {
    let mut carried: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for visit in &plan.visits {
        let arrangement = &plan.arrangements[visit.arrangement];
        let tests = visit.tests.iter().map(|test| &plan.tests[*test]);
        let names = tests.map(|test| format!("{} {}", test.name, test.flows()));
        carried.entry((arrangement.engine.clone(), arrangement.tunnels)).or_default().extend(names);
    }
    carried
}

#[test]
fn each_level_has_its_devices_and_the_tests_that_fill_them() {
    let plan = planned(&topology(LAB), &Request::default());
    check(&plan);
    assert_eq!(plan.levels[&Factor::Tunnels], ["1", "2", "4"]);
    assert_eq!(plan.compared(), ["1", "2", "4"]);
    let carried = carried(&plan);
    let tests = |engine: &str, tunnels| carried[&(engine.to_owned(), tunnels)].iter().cloned().collect::<Vec<_>>();
    // The raw underlay has none, and is measured once.
    assert_eq!(tests("raw", None), ["tcp-rr 1", "tcp-stream 1", "tcp-stream 4"]);
    assert_eq!(tests("embedded", Some(1)), ["tcp-rr 1", "tcp-stream 1", "tcp-stream 4"]);
    assert_eq!(tests("embedded", Some(2)), ["tcp-stream 4"]);
    assert_eq!(tests("embedded", Some(4)), ["tcp-stream 4"]);
    assert_eq!(carried.len(), 4);
    // A device, an address and a port for each tunnel of each underlay, on both nodes.
    assert_eq!(plan.tunnels.len(), 2 * 4);
    let over = |underlay: &str| plan.tunnels.iter().filter(|tunnel| tunnel.underlay == underlay).collect::<Vec<_>>();
    assert_eq!(over("private").iter().map(|tunnel| tunnel.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let ends: BTreeSet<_> = plan.tunnels.iter().flat_map(|tunnel| &tunnel.ends).map(|end| end.listen_port).collect();
    assert_eq!(ends.len(), 8, "{ends:?}");
    let two = plan.arrangements.iter().find(|arrangement| arrangement.tunnels == Some(2)).unwrap();
    let of_two: Vec<u32> = plan.tunnels_of(two).map(|tunnel| tunnel.number).collect();
    assert_eq!(of_two, [0, 1]);
    assert!(plan.tunnels_of(two).all(|tunnel| tunnel.underlay == two.underlay && tunnel.engine == two.engine));
    let left_out: Vec<(&str, u32, u32)> =
        plan.spread_less().into_iter().map(|(test, most)| (test.name.as_str(), test.flows(), most)).collect();
    assert_eq!(left_out, [("tcp-stream", 1, 1), ("tcp-rr", 1, 1)]);
    // One more agent, eight devices on each of two nodes, of which four on each are busy at a time.
    let one = planned(&changed(&[("compare = \"tunnels\"\n", ""), ("[1, 2, 4]", "1")]), &Request::default()).forecast;
    assert!(plan.forecast.memory.get() > one.memory.get() + 6 * (64 << 20), "{:?}", plan.forecast.memory);
}

#[test]
fn levels_of_tunnels_are_interleaved_and_stand_beside_each_other() {
    let plan = planned(&topology(LAB), &Request::default());
    for round in 1..=plan.rounds {
        let visited: Vec<_> = plan
            .visits
            .iter()
            .filter(|visit| visit.round == round)
            .map(|visit| &plan.arrangements[visit.arrangement])
            .filter(|arrangement| arrangement.tunnels.is_some())
            .collect();
        // Raw may stand between two underlays, never between the levels of one.
        for three in visited.chunks(3) {
            let levels: BTreeSet<_> = three.iter().filter_map(|arrangement| arrangement.tunnels).collect();
            assert_eq!(levels.len(), 3);
            assert!(three.iter().all(|arrangement| arrangement.underlay == three[0].underlay));
        }
    }
}

#[test]
fn what_was_there_before_stays_where_it_is() {
    let without =
        planned(&changed(&[("compare = \"tunnels\"\n", ""), ("tunnels = [1, 2, 4]\n", "")]), &Request::default());
    let with = planned(&topology(LAB), &Request::default());
    let first: Vec<&TunnelPlan> = with.tunnels.iter().filter(|tunnel| tunnel.number == 0).collect();
    assert_eq!(first, without.tunnels.iter().collect::<Vec<_>>());
    assert_eq!(with.nodes, without.nodes);
    // Nothing in the form of the other plan says that there could be several.
    let json = serde_json::to_string(&without).unwrap();
    assert!(!json.contains("\"tunnels\":null") && !json.contains("\"number\""), "{json}");
}

#[test]
fn narrowing_keeps_what_it_says() {
    let lab = topology(LAB);
    let two = planned(&lab, &only(&["tunnels=2"]));
    check(&two);
    assert_eq!((two.levels[&Factor::Tunnels].clone(), two.compare), (vec!["2".to_owned()], None));
    assert!(two.arrangements.iter().any(|arrangement| arrangement.engine == "raw"));
    assert_eq!(two.tunnels.len(), 4);
    let swapped = planned(&lab, &only(&["tunnels=4,1"]));
    assert_eq!(swapped.compared(), ["4", "1"]);
    // Who asks for a test of one flow gets the level that has it.
    let rr = planned(&lab, &only(&["test=tcp-rr"]));
    check(&rr);
    assert_eq!((rr.levels[&Factor::Tunnels].clone(), rr.compare), (vec!["1".to_owned()], None));
    let raw = planned(&lab, &only(&["engine=raw"]));
    check(&raw);
    assert!(!raw.levels.contains_key(&Factor::Tunnels) && raw.tunnels.is_empty());
    for (words, reason) in [
        (&["tunnels=3"][..], "the levels of tunnels are 1, 2, 4"),
        (&["tunnels=1>2"], "the levels of tunnels are 1, 2, 4"),
        (&["tunnels=2", "test=tcp-rr"], "no test has flows for 2 tunnels"),
        (&["tunnels=2", "streams=1"], "the most here is 1"),
    ] {
        let found = refused(&lab, &only(words));
        assert!(found.contains(reason), "{words:?}: {found}");
    }
    let pair = refused(&shipped_topology("pair"), &only(&["tunnels=2"]));
    assert!(pair.contains("the topology names no tunnels"), "{pair}");
}

#[test]
fn what_cannot_be_spread_is_refused_with_the_remedy() {
    let many = refused(&changed(&[("[1, 2, 4]", "[1, 8]")]), &Request::default());
    assert!(many.contains("no test has flows for 8 tunnels") && many.contains("`streams = 8`"), "{many}");
    let profile = refused(&changed(&[("rounds = 6", "rounds = 6\nstreams = 2")]), &Request::default());
    assert!(profile.contains("no test has flows for 4 tunnels") && profile.contains("the most here is 2"), "{profile}");
    let (lab, request) = (changed(&[("[1, 2, 4]", "[1, 8]")]), Request::default());
    let error = plan(&lab, &request).map(|plan| plan.hash()).expect_err("8 tunnels");
    let shown = lab.at(&error.places(&request), &error.to_string()).unwrap();
    assert_eq!((shown.problems[0].line, shown.problems[0].column), (5, 11), "where `tunnels` says it: {shown}");
    let least = refused(&changed(&[("[1, 2, 4]", "[2, 4]")]), &Request::default());
    assert!(least.contains("test `tcp-rr` has 1 flow, too few for any level of tunnels (2 is the least)"), "{least}");
    let direct = changed(&[
        ("\"embedded\"", "\"direct\""),
        ("tcp-rr", "udp-rr"),
        ("\"tcp-stream\"", "\"udp-stream\"\nrate = \"max\""),
    ]);
    let direct = refused(&direct, &Request::default());
    assert!(direct.contains("engine `direct` cannot have 2 tunnels"), "{direct}");
    let hosts = "pairs = [\"a>b\"]\ntunnels = [1, 2]\nengines = [\"raw\", \"wg0\"]\n[engine.wg0]\ninterface = \"wg0\"\n\
        [node.a]\nreach = \"ssh:a\"\naddress = { private = \"10.0.0.2\" }\n\
        [node.b]\nreach = \"ssh:b\"\naddress = { private = \"10.0.0.3\" }\n\
        [underlay]\nprivate = { family = \"ipv4\" }\n[[test]]\nkind = \"tcp-stream\"\nstreams = 4\n";
    let found = refused(&topology(hosts), &Request::default());
    assert!(found.contains("engine `wg0` cannot have 2 tunnels: `wg0` is one interface"), "{found}");
    let one = planned(&topology(hosts), &only(&["tunnels=1"]));
    assert_eq!(one.arrangements.len(), 2);
}

#[test]
fn the_most_tunnels_fit_into_names_ports_and_addresses_or_are_refused() {
    let wide =
        |engines: &str| changed(&[("[1, 4]", "64"), ("[1, 2, 4]", "[1, 64]"), ("[\"raw\", \"embedded\"]\n", engines)]);
    let plan = planned(&wide("[\"raw\", \"embedded\"]\n"), &Request::default());
    check(&plan);
    assert_eq!(plan.tunnels.len(), 2 * 64);
    assert!(plan.tunnels.iter().flat_map(|tunnel| &tunnel.ends).all(|end| end.interface.len() <= 15));
    let ports: BTreeSet<u16> = plan.tunnels.iter().flat_map(|tunnel| &tunnel.ends).map(|end| end.listen_port).collect();
    assert_eq!(ports.iter().copied().max(), Some(21_820 + 127));
    // 256 networks, of which there are 200.
    let three = engines(&["one=embedded", "two=embedded"]);
    let found = refused(&wide("[\"raw\", \"embedded\"]\n"), &three);
    assert!(found.contains("no addresses are left for tunnel") && found.contains("tunnel of a pair"), "{found}");
}

#[test]
fn a_level_of_two_ends_has_several_tunnels_too() {
    let text = LAB.replace("[\"raw\", \"embedded\"]", "[\"raw\", \"embedded>gotatun\"]")
        + "[engine.gotatun]\npath = \"gotatun\"\n";
    let plan = planned(&topology(&text), &Request::default());
    check(&plan);
    let two = plan.arrangements.iter().find(|arrangement| arrangement.tunnels == Some(2)).unwrap();
    for tunnel in plan.tunnels_of(two) {
        let (client, server) = tunnel.ends(&two.pair).unwrap();
        assert_eq!((client.engine.as_str(), server.engine.as_str()), ("embedded", "gotatun"));
    }
}

#[test]
fn a_plan_says_over_how_many_tunnels() {
    let plan = planned(&topology(LAB), &only(&["underlay=private", "tunnels=1,2"]));
    let text = render_text(&plan);
    for line in [
        "compares tunnels: 1 (baseline) with 2",
        "embedded  private  wg1 port 21821  MTU 1390  10.1.0.0/16  2 devices, 1 link  number 2",
        "tests that have too few flows for some of the tunnels",
        "tcp-rr      over 1 tunnel at most",
        "embedded  2 tunnels  standard  tcp-streamx4",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
