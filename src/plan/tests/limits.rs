//! What is too large, and what cannot be.

use super::*;

#[test]
fn forty_nodes_in_a_full_mesh_on_three_underlays_plan_in_under_a_second() {
    // Field case N-05.
    let topology = mesh(40);
    // This thread's own time: what else the machine does is no property of the plan.
    let clock = || Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let begin = clock();
    let plan = planned(&topology, &Request::default());
    let took = clock() - begin;
    assert!(took < Duration::from_secs(1), "{took:?}");
    check(&plan);
    assert_eq!(plan.pairs.len(), 780);
    let links: usize = plan.tunnels.iter().flat_map(|tunnel| &tunnel.ends).map(|end| end.peers.len()).sum();
    assert_eq!(links / 2, 2340);
    let text = render_text(&plan);
    for words in ["nodes, 40", "tunnels, 2,340 between 120 devices", "pairs, 780", "4,680 arrangements"] {
        assert!(text.contains(words), "{words}");
    }
}

#[test]
fn nodes_beyond_one_byte_have_addresses_too() {
    let topology = mesh(300);
    let narrowed = Request { rounds: Some(1), only: only(&["underlay=private"]).only, ..engines(&["embedded"]) };
    let plan = planned(&topology, &narrowed);
    let addresses: BTreeSet<IpAddr> = plan.tunnels[0].ends.iter().map(|end| end.inner.addr()).collect();
    assert_eq!(addresses.len(), 300);
    assert!(addresses.contains(&"10.0.1.50".parse().unwrap()));
    assert_eq!(plan.node("n299").unwrap().attachment("private").unwrap().address.to_string(), "10.200.1.44");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let two_stacks = shipped_topology("two-stacks");
    let small = Request { memory: Some(Bytes::new(100_000_000)), ..Request::default() };
    let reason = refused(&two_stacks, &small);
    assert!(reason.contains("5 agents, 12 tunnel devices") && reason.contains("100 MB are free"), "{reason}");
    assert!(plan(&two_stacks, &Request { memory: Some(Bytes::new(8_000_000_000)), ..Request::default() }).is_ok());
    // Field case B-05: what buffers take is predicted.
    let streams = "nodes = [\"a\", \"b\"]\npairs = \"mesh\"\n[underlay]\nu = { family = \"ipv4\" }\n[[test]]\nkind = \"tcp-stream\"\nstreams = 1024\n";
    assert!(planned(&topology(streams), &Request::default()).forecast.memory.get() > 5_000_000_000);

    let budget = |more: &str| shipped("two-stacks").unwrap().replace("mtu = 1450 }", &format!("mtu = 1450, {more} }}"));
    let reason = refused(&topology(&budget("budget = \"10GB\"")), &Request::default());
    assert!(
        reason.contains("`private`") && reason.contains("an assumed 10 Gbit/s") && reason.contains("budget is 10 GB"),
        "{reason}"
    );
    let reason = refused(&topology(&budget("budget = \"1GB\", nominal = \"1Gbit/s\"")), &Request::default());
    assert!(reason.contains("its nominal 1 Gbit/s"), "{reason}");
    assert!(plan(&topology(&budget("budget = \"10GB\", nominal = \"1Gbit/s\"")), &Request::default()).is_ok());

    let begin = Instant::now();
    let reason = refused(&mesh(400), &Request { profile: Profile::Thorough, ..Request::default() });
    assert!(reason.contains("up to 4788000 visits, and 1000000 is the most"), "{reason}");
    assert!(begin.elapsed() < Duration::from_secs(10), "refused before it is multiplied out");
    let reason = refused(&two_stacks, &Request { rounds: Some(0), ..Request::default() });
    assert!(reason.contains("--rounds is out of range: 1 to 1000"), "{reason}");
    let reason = refused(&two_stacks, &Request { duration: Some(Span::default()), ..Request::default() });
    assert!(reason.contains("--duration is out of range"), "{reason}");
}

#[test]
fn networks_run_out_with_a_reason() {
    let mut text = "nodes = [\"a\", \"b\"]\npairs = \"mesh\"\n[underlay]\nwide = { family = \"ipv4\", kind = \"bridged\", network = \"10.0.0.0/8\" }\n[[test]]\nkind = \"tcp-stream\"\n".to_owned();
    let reason = refused(&topology(&text), &Request::default());
    assert!(
        reason.contains("no addresses are left for tunnel `embedded` over `wide`") && reason.contains("0 networks"),
        "{reason}"
    );
    assert!(plan(&topology(&text), &engines(&["raw"])).is_ok());
    text = text.replace("10.0.0.0/8", "10.0.0.0/9");
    assert_eq!(planned(&topology(&text), &Request::default()).tunnels[0].network.to_string(), "10.128.0.0/16");

    let mut many = "nodes = [\"a\", \"b\"]\npairs = \"mesh\"\n[underlay]\n".to_owned();
    for index in 0..16 {
        let _ = writeln!(many, "u{index} = {{ family = \"ipv4\" }}");
    }
    many.push_str("[[test]]\nkind = \"tcp-stream\"\n");
    for index in 0..13 {
        let _ = writeln!(many, "[engine.e{index}]\nkind = \"embedded\"");
    }
    let many = topology(&many);
    let reason = refused(&many, &Request::default());
    assert!(reason.contains("200 networks are free"), "{reason}");
    let plan = planned(&many, &only(&["engine=e0,e1"]));
    check(&plan);
    assert_eq!(plan.underlays[2].network.unwrap().to_string(), "100.64.0.0/16");
}

#[test]
fn datagrams_that_would_be_cut_are_refused() {
    let text = |payload: &str| {
        format!(
            "nodes = [\"a\", \"b\"]\npairs = \"mesh\"\n[underlay]\nprivate = {{ family = \"ipv4\" }}\n[[test]]\nkind = \"udp-stream\"\nrate = \"max\"\npayload = \"{payload}\"\n"
        )
    };
    // 1450 - 60 - 28 inside the tunnel, 1450 - 28 outside.
    assert!(plan_ok(&topology(&text("1362B")), &Request::default()));
    let reason = refused(&topology(&text("1363B")), &Request::default());
    assert!(reason.contains("in tunnel `embedded` over `private` (MTU 1390): 1362 bytes"), "{reason}");
    assert!(plan_ok(&topology(&text("1422B")), &engines(&["raw"])));
    assert!(refused(&topology(&text("1423B")), &engines(&["raw"])).contains("on underlay `private`"));
}

/// What is refused is shown at its place, and what only the request says has none.
#[test]
fn a_refusal_names_its_place_in_the_file() {
    let head = "nodes = [\"a\", \"b\"]\npairs = \"mesh\"\n";
    let tail = "[[test]]\nkind = \"tcp-stream\"\n";
    let shown = |text: &str, request: &Request| {
        let topology = topology(text);
        let error = plan(&topology, request).map(|plan| plan.hash()).expect_err(text);
        let places = error.places(request);
        topology.at(&places, &error.to_string()).map(|error| {
            let problem = &error.problems[0];
            format!("{}:{} {} / {}", problem.line, problem.column, &text[problem.span.clone()], problem.help)
        })
    };
    let underlay = |more: &str| format!("{head}[underlay]\nu = {{ family = \"ipv4\", {more} }}\n{tail}");
    let cases = [
        (underlay("budget = \"1kB\""), "4:33 \"1kB\" / take fewer rounds"),
        (underlay("mtu = 600"), "4:30 600 / widen it"),
        (underlay("mtu = 1400") + "[settings.large]\nmtu = 1500\n", "8:7 1500 / give the underlay an `mtu` of 1500"),
        (
            format!("{head}[underlay]\nu = {{ family = \"ipv4\", network = \"10.0.0.0/8\" }}\n{tail}"),
            "4:34 \"10.0.0.0/8\" / narrow with",
        ),
        (
            format!(
                "{head}[underlay]\nu = {{ family = \"ipv4\" }}\n[[test]]\nname = \"big\"\nkind = \"ping\"\npayload = \"9kB\"\n"
            ),
            "8:11 \"9kB\" / write payload",
        ),
        (
            format!("{head}[underlay]\nu = {{ family = \"ipv4\" }}\n[[test]]\nkind = \"mtu\"\n"),
            "6:8 \"mtu\" / it measures",
        ),
        (underlay("").replace(", }", " }") + "[profile.quick]\nprecision = \"3%\"\n", "8:13 \"3%\" / name two levels"),
        (underlay("").replace(", }", " }") + "[engine.e]\ninterface = \"wg0\"\n", "8:13 \"wg0\" / give nodes"),
    ];
    for (text, expected) in cases {
        let shown = shown(&text, &Request::default()).unwrap_or_else(|| panic!("no place for {expected} in\n{text}"));
        assert!(shown.starts_with(expected), "{shown}\n{text}");
    }
    assert_eq!(shown(&underlay("").replace(", }", " }"), &Request { rounds: Some(0), ..Request::default() }), None);
    let small = Request { memory: Some(Bytes::new(1)), ..Request::default() };
    assert!(shown(&underlay("").replace(", }", " }"), &small).unwrap().starts_with("1:9 [\"a\", \"b\"] / "));
}
