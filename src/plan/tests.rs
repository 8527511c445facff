use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::cell::Factor;
use crate::topology::{SHIPPED, shipped};
use crate::units::{Bytes, Ratio, Span};

mod limits;
mod order;
mod phases;
mod selection;
mod spread;

fn topology(text: &str) -> Topology {
    Topology::parse("lab.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn shipped_topology(name: &str) -> Topology {
    Topology::parse(&format!("{name}.toml"), shipped(name).unwrap()).unwrap()
}

fn planned(topology: &Topology, request: &Request) -> Plan {
    plan(topology, request).unwrap_or_else(|error| panic!("{error}"))
}

/// `--only` as typed.
fn only(words: &[&str]) -> Request {
    let split = |word: &&str| {
        let (factor, levels) = word.split_once('=').unwrap();
        (factor.parse().unwrap(), levels.split(',').map(str::to_owned).collect())
    };
    Request { only: words.iter().map(split).collect(), ..Request::default() }
}

/// `--engine` as typed.
fn engines(words: &[&str]) -> Request {
    let split = |word: &&str| match word.split_once('=') {
        Some((name, spec)) => EngineRequest { name: name.to_owned(), spec: Some(spec.to_owned()) },
        None => EngineRequest { name: (*word).to_owned(), spec: None },
    };
    Request { engines: words.iter().map(split).collect(), ..Request::default() }
}

fn refused(topology: &Topology, request: &Request) -> String {
    plan(topology, request).map(|plan| plan.hash()).expect_err("refused").to_string()
}

fn plan_ok(topology: &Topology, request: &Request) -> bool {
    plan(topology, request).is_ok()
}

/// A full mesh of nodes made here on three underlays.
fn mesh(nodes: usize) -> Topology {
    let names: Vec<String> = (0..nodes).map(|index| format!("\"n{index}\"")).collect();
    topology(&format!(
        "nodes = [{}]\npairs = \"mesh\"\n[underlay]\npublic-ipv4 = {{ family = \"ipv4\" }}\npublic-ipv6 = {{ family = \"ipv6\" }}\nprivate = {{ family = \"ipv4\" }}\n[[test]]\nkind = \"tcp-stream\"\n",
        names.join(", ")
    ))
}

/// What must hold in every plan, whatever it was made of.
fn check(plan: &Plan) {
    let names: BTreeSet<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names.len(), plan.nodes.len());
    // Outer addresses and interfaces: distinct, short, in their underlay's network.
    let mut outer = BTreeSet::new();
    let mut provider = BTreeSet::new();
    for node in &plan.nodes {
        let mut interfaces = BTreeSet::new();
        for attachment in &node.attachments {
            assert!(outer.insert(attachment.address), "{} twice", attachment.address);
            let Some(link) = &attachment.link else { continue };
            assert!(interfaces.insert(&link.interface) && link.interface.len() <= 15);
            assert!(provider.insert(&link.provider_interface) && link.provider_interface.len() <= 15);
            assert_eq!(link.address.addr(), attachment.address);
            let underlay = plan.underlay(&attachment.underlay).unwrap();
            let network = underlay.network.unwrap();
            assert!(network.contains(&attachment.address));
            match (underlay.kind, link.gateway, link.provider_address) {
                (UnderlayKind::Bridged, None, None) => assert_eq!(link.address.prefix_len(), network.prefix_len()),
                (UnderlayKind::Routed, Some(gateway), Some(provider)) => {
                    assert_eq!(gateway, provider.addr());
                    assert!(link.address.contains(&gateway) && outer.insert(gateway));
                    assert!(
                        ![link.address.network(), link.address.broadcast()].contains(&attachment.address)
                            || attachment.address.is_ipv6()
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }
    // Tunnels: distinct networks, addresses, interfaces and ports; links that both ends know.
    let mut networks: Vec<ipnet::IpNet> = plan.underlays.iter().filter_map(|underlay| underlay.network).collect();
    let mut inner: BTreeSet<IpAddr> = BTreeSet::new();
    let mut devices: BTreeMap<(&str, &str), (&TunnelPlan, &TunnelEnd)> = BTreeMap::new();
    let mut ports = BTreeSet::new();
    for tunnel in &plan.tunnels {
        assert!(networks.iter().all(|other| !other.contains(&tunnel.network) && !tunnel.network.contains(other)));
        networks.push(tunnel.network);
        assert!(outer.iter().all(|address| !tunnel.network.contains(address)));
        let underlay = plan.underlay(&tunnel.underlay).unwrap();
        assert_eq!(tunnel.mtu.get(), underlay.mtu.get() - underlay.family.tunnel_overhead());
        for end in &tunnel.ends {
            assert!(inner.insert(end.inner.addr()) && tunnel.network.contains(&end.inner.addr()));
            let last = end.inner.addr().to_string();
            assert!(!last.ends_with(".0") && !last.ends_with(".255"), "{last}");
            assert!(devices.insert((&end.node, &end.interface), (tunnel, end)).is_none() && end.interface.len() <= 15);
            assert!(ports.insert((&end.node, end.listen_port)) && end.listen_port < 32_768);
            let attachment = plan.node(&end.node).unwrap().attachment(&tunnel.underlay).unwrap();
            assert_eq!(attachment.address, end.outer);
            assert!(!end.peers.is_empty());
        }
    }
    for ((node, interface), (tunnel, end)) in &devices {
        for peer in &end.peers {
            let (other_tunnel, other) = devices[&(peer.node.as_str(), peer.interface.as_str())];
            assert_eq!(other_tunnel.network, tunnel.network);
            assert_eq!(
                (other.inner.addr(), other.outer, other.listen_port),
                (peer.inner, peer.endpoint.ip(), peer.endpoint.port())
            );
            assert!(other.peers.iter().any(|back| back.node == *node && back.interface == *interface));
            let covered = end.inner.contains(&peer.inner) || end.routes.iter().any(|route| route.contains(&peer.inner));
            assert!(covered, "{node} has no route to {}", peer.inner);
        }
    }
    // Every arrangement has all that it names.
    for arrangement in &plan.arrangements {
        assert!(plan.pairs.contains(&arrangement.pair));
        for end in [&arrangement.pair.client, &arrangement.pair.server] {
            assert!(plan.node(end).unwrap().attachment(&arrangement.underlay).is_some());
        }
        let (client, server) = arrangement.engines();
        let (client, server) = (plan.engine(client).unwrap(), plan.engine(server).unwrap());
        let (client_stack, server_stack) = arrangement.stacks();
        assert!(plan.stack(client_stack).is_some() && plan.stack(server_stack).is_some());
        let made = |engine: &EnginePlan| !matches!(engine.spec, EngineSpec::Raw | EngineSpec::Interface(_));
        match plan.tunnel(&arrangement.engine, &arrangement.underlay) {
            None => assert!(!made(client) || !made(server)),
            Some(tunnel) => {
                assert_eq!(plan.tunnels_of(arrangement).count() as u32, arrangement.tunnels.unwrap_or(1));
                let (client_end, server_end) = tunnel.ends(&arrangement.pair).unwrap();
                assert_eq!((&client_end.engine, &server_end.engine), (&client.name, &server.name));
                assert!(
                    client_end
                        .peers
                        .iter()
                        .any(|peer| peer.node == server_end.node && peer.interface == server_end.interface)
                );
            }
        }
    }
    // Each round visits every arrangement once, and no cell is measured twice in a visit.
    for round in 1..=plan.rounds {
        let visited: Vec<usize> =
            plan.visits.iter().filter(|visit| visit.round == round).map(|visit| visit.arrangement).collect();
        assert_eq!(visited.len(), plan.arrangements.len());
        assert_eq!(visited.iter().collect::<BTreeSet<_>>().len(), plan.arrangements.len());
    }
    assert!(plan.visits.windows(2).all(|pair| (pair[0].phase, pair[0].round) <= (pair[1].phase, pair[1].round)));
    for visit in &plan.visits {
        let arrangement = &plan.arrangements[visit.arrangement];
        assert!(!visit.tests.is_empty());
        let cells: BTreeSet<_> = visit.tests.iter().map(|&test| plan.cell(arrangement, &plan.tests[test])).collect();
        assert_eq!(cells.len(), visit.tests.len());
        for cell in cells {
            for (factor, level) in cell.iter() {
                assert!(plan.levels[&factor].iter().any(|known| known == level), "{factor}={level}");
            }
        }
    }
    assert_eq!(plan.forecast.runs, plan.visits.iter().map(|visit| visit.tests.len() as u64).sum::<u64>());
    let json = serde_json::to_string(plan).unwrap();
    let mut back = serde_json::from_str::<Plan>(&json).unwrap();
    // Ratios are text in decimal, and come back to within a rounding.
    let near = |a: Option<Ratio>, b: Option<Ratio>| match (a, b) {
        (Some(a), Some(b)) => (a.fraction() - b.fraction()).abs() < 1e-9,
        (a, b) => a.is_none() && b.is_none(),
    };
    assert!(near(back.forecast.visible_effect, plan.forecast.visible_effect) && near(back.min_effect, plan.min_effect));
    back.forecast.visible_effect = plan.forecast.visible_effect;
    back.min_effect = plan.min_effect;
    assert!(back == *plan, "the JSON form does not come back as the plan: {json:.2000}");
    let text = render_text(plan);
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
}

#[test]
fn every_shipped_topology_plans_in_every_profile() {
    for (name, _) in SHIPPED {
        for profile in Profile::ALL {
            let plan = planned(&shipped_topology(name), &Request { profile, ..Request::default() });
            check(&plan);
            assert_eq!(plan.name, name);
        }
    }
}

#[test]
fn the_default_is_what_the_design_computes() {
    let plan = planned(&shipped_topology("two-stacks"), &Request::default());
    assert_eq!((plan.arrangements.len(), plan.rounds, plan.visits.len(), plan.forecast.runs), (24, 3, 72, 216));
    let visit = |visit: &Visit| -> Duration {
        visit.tests.iter().map(|&test| plan.tests[test].warmup.duration() + plan.tests[test].duration.duration()).sum()
    };
    // 0.6 + 0.3 + 0.25 s of traffic; 0.2 s more for switch, meters and proof.
    assert!(plan.visits.iter().all(|of| visit(of) == Duration::from_millis(1150)));
    assert!((97..110).contains(&plan.forecast.time.duration().as_secs()), "{:?}", plan.forecast.time);
    assert_eq!(plan.compared(), ["standard", "ebpf"]);
    let standard =
        planned(&shipped_topology("two-stacks"), &Request { profile: Profile::Standard, ..Request::default() });
    let streams: BTreeSet<_> = standard.tests.iter().map(|test| (test.streams, test.direction)).collect();
    assert_eq!(streams.len(), 7, "1, 4, 8 streams forward and reverse, and transactions: {streams:?}");
    assert!(standard.tests.iter().all(|test| test.duration.duration() == Duration::from_secs(10)));
}

#[test]
fn the_shipped_meshes_are_those_of_the_reference() {
    let four = planned(&shipped_topology("four-nodes"), &Request::default());
    assert_eq!(four.pairs.len(), 6);
    let bulk: BTreeSet<_> =
        four.tests.iter().filter(|test| test.name == "tcp-stream").map(|test| (test.streams, test.direction)).collect();
    assert_eq!(bulk.len(), 8);
    let cross = planned(&shipped_topology("cross-directions"), &Request::default());
    assert_eq!(cross.pairs.len(), 4);
    assert_eq!(cross.levels[&Factor::Stack], ["standard", "ebpf", "standard>ebpf", "ebpf>standard"]);
    assert_eq!(cross.arrangements.len(), 16);
}

#[test]
fn a_plan_reads_as_its_answer_first() {
    let plan = planned(&shipped_topology("pair"), &Request { rounds: Some(3), ..Request::default() });
    insta::assert_snapshot!(render_text(&plan), @r"
    18 runs in 6 visits, about 10.2 s, sees changes of about 58.9 % or more
    pair: how good is one tunnel, beside the network that carries it?
    profile quick, 3 rounds, seed 1, plan 072f1a4acb838ae5
    compares engine: raw (baseline) with embedded

    underlays
      private  IPv4  bridged 10.200.0.0/16  MTU 1450  carries about 4.52 GB at 10 Gbit/s (assumed)

    nodes, 2
      a1  made here  private  10.200.0.1/16
      a2  made here  private  10.200.0.2/16

    engines, stacks, settings
      engine  raw
      engine  embedded
      stack   standard  merged-tcp

    tunnels, 1 between 2 devices
      embedded  private  wg0 port 21820  MTU 1390  10.0.0.0/16  2 devices, 1 link

    pairs, 1
      a1>a2

    tests
      tcp-stream  forward, 4 streams, cubic  500 ms after 100 ms  probe 100/s
      tcp-rr      1B, cubic                  250 ms after 50 ms
      tcp-crr     1B, cubic                  200 ms after 50 ms

    order, 2 arrangements in 3 rounds
      1  a1>a2  private  raw       standard  tcp-streamx4, tcp-crr, tcp-rr
      1  a1>a2  private  embedded  standard  tcp-streamx4, tcp-crr, tcp-rr
      2  a1>a2  private  embedded  standard  tcp-crr, tcp-streamx4, tcp-rr
      2  a1>a2  private  raw       standard  tcp-crr, tcp-streamx4, tcp-rr
      3  a1>a2  private  raw       standard  tcp-crr, tcp-streamx4, tcp-rr
      3  a1>a2  private  embedded  standard  tcp-crr, tcp-streamx4, tcp-rr
    ");
}

#[test]
fn the_same_file_and_request_give_the_same_plan_and_hash() {
    let text = shipped("two-stacks").unwrap();
    let first = planned(&topology(text), &Request::default());
    assert_eq!(first.name, "lab");
    let again = planned(&topology(text), &Request { seed: Some(1), ..Request::default() });
    assert_eq!(first, again);
    assert_eq!(first.hash(), again.hash());
    let commented = format!("# does a comment matter?\n{}", text.replace("decides", "settles"));
    let commented = planned(&Topology::parse("other.toml", &commented).unwrap(), &Request::default());
    assert_ne!(commented.question, first.question);
    assert_eq!(commented.hash(), first.hash());
    for other in [
        Request { seed: Some(2), ..Request::default() },
        Request { rounds: Some(4), ..Request::default() },
        Request { duration: Some(Span::new(Duration::from_secs(1))), ..Request::default() },
        only(&["underlay=private"]),
    ] {
        assert_ne!(planned(&topology(text), &other).hash(), first.hash());
    }
    let hash = first.hash();
    assert!(hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()));
}

#[test]
fn the_hash_does_not_change_by_itself() {
    // A record names its experiment by this: a change here makes old and new records different experiments.
    assert_eq!(
        planned(&shipped_topology("cross-directions"), &Request::default()).hash(),
        "2cb228bf706d0e10d6fde4a40a3f01778b3647a7ecb81ebf4fc18333f4ad56fd"
    );
}

#[test]
fn tunnel_mtu_follows_from_the_underlay() {
    // Field cases M-01 and M-09, appendix B.
    for (mtu, v4, v6) in [
        (1500, 1440, 1420),
        (1492, 1432, 1412),
        (1460, 1400, 1380),
        (1450, 1390, 1370),
        (1400, 1340, 1320),
        (1280, 1220, 1200),
        (9001, 8941, 8921),
        (1420, 1360, 1340),
    ] {
        let plan = planned(
            &topology(&format!(
                "nodes = [\"a\", \"b\"]\npairs = \"mesh\"\n[underlay]\nfour = {{ family = \"ipv4\", mtu = {mtu} }}\nsix = {{ family = \"ipv6\", mtu = {mtu} }}\n[[test]]\nkind = \"tcp-stream\"\n"
            )),
            &Request::default(),
        );
        assert_eq!(plan.tunnels.iter().map(|tunnel| tunnel.mtu.get()).collect::<Vec<_>>(), [v4, v6], "underlay {mtu}");
    }
    let narrow = topology(
        "nodes = [\"a\", \"b\"]\npairs = \"mesh\"\n[underlay]\nu = { family = \"ipv4\", mtu = 600 }\n[[test]]\nkind = \"tcp-stream\"\n",
    );
    assert!(refused(&narrow, &Request::default()).contains("leaves 540 bytes"));
    assert_eq!(planned(&narrow, &engines(&["raw"])).tunnels.len(), 0);
}

#[test]
fn real_nodes_are_found_not_made() {
    let text = "pairs = \"mesh\"\nengines = [\"raw\", \"embedded\", \"wg0\"]\n[node.fra]\nreach = \"ssh:root@fra\"\naddress = { private = \"10.0.0.2\", vpn = \"198.18.0.1\" }\n[node.hel]\nreach = [\"sh\", \"-c\", \"echo banner; exec wglab agent\"]\naddress = { private = \"10.0.0.3\", vpn = \"198.18.0.2\" }\n[engine.wg0]\ninterface = \"wg0\"\n[underlay]\nprivate = { family = \"ipv4\", budget = \"5TB\" }\nvpn = { family = \"ipv4\", mtu = 1400 }\n[[test]]\nkind = \"tcp-stream\"\n";
    let plan = planned(&topology(text), &Request { memory: Some(Bytes::new(1)), ..Request::default() });
    check(&plan);
    assert!(plan.nodes.iter().flat_map(|node| &node.attachments).all(|attachment| attachment.link.is_none()));
    assert!(plan.underlays.iter().all(|underlay| underlay.network.is_none() && underlay.bridge.is_none()));
    assert_eq!(plan.underlays.iter().map(|underlay| underlay.mtu_given).collect::<Vec<_>>(), [false, true]);
    // Not in the private network's way, nor in that of an address in the benchmarking range; not called as a real wg0 is.
    assert_eq!(plan.tunnels[0].network.to_string(), "198.18.16.0/20");
    assert_eq!(plan.tunnels[0].ends[0].interface, "wglab0");
    assert!(plan.tunnel("wg0", "private").is_none() && plan.has_tunnels());
    let as_found = &plan.stacks[0];
    assert_eq!((as_found.name.as_str(), as_found.delivery, as_found.receive_queues), ("as-found", None, None));
    assert!(plan.phases.is_empty());
    let text = render_text(&plan);
    assert!(text.contains("sh -c 'echo banner; exec wglab agent'") && text.contains("MTU 1500 (assumed)"), "{text}");
}

#[test]
fn what_the_forecast_sees_follows_from_rounds_and_pairs() {
    let two_stacks = shipped_topology("two-stacks");
    let sees = |rounds: u32| {
        planned(&two_stacks, &Request { rounds: Some(rounds), ..Request::default() })
            .forecast
            .visible_effect
            .map(|effect| effect.fraction())
    };
    assert_eq!(sees(1), None, "one round has no error to judge with");
    let (three, ten) = (sees(3).unwrap(), sees(10).unwrap());
    assert!(0.1 < three && three < 0.5 && ten < three / 2.0, "{three} {ten}");
    assert_eq!(planned(&two_stacks, &only(&["stack=ebpf"])).forecast.visible_effect, None);
    let first_line = |rounds: u32, request: Request| {
        let plan = planned(&shipped_topology("pair"), &Request { rounds: Some(rounds), ..request });
        render_text(&plan).lines().next().unwrap().to_owned()
    };
    assert!(first_line(1, Request::default()).ends_with("too few rounds to tell a change from noise"));
    assert!(first_line(2, Request::default()).ends_with("too few rounds to tell a change from noise"));
    assert!(first_line(10, Request::default()).contains("sees changes of about"));
    assert!(first_line(1, engines(&["raw"])).ends_with(" s"), "one engine, nothing compared");
}

/// The fenced TOML of docs/topology.md, each completed with what it leaves out.
fn documented() -> Vec<String> {
    let docs = include_str!("../../docs/topology.md");
    let blocks: Vec<&str> =
        docs.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("```").map(|(block, _)| block)).collect();
    assert!(blocks.len() >= 8);
    blocks
        .into_iter()
        .map(|block| {
            let has = |start: &str| block.lines().any(|line| line.starts_with(start));
            let mut text = String::new();
            if !has("nodes") && !has("[node.") {
                text.push_str("nodes = [\"a1\", \"a2\"]\n");
            }
            if !has("pairs") {
                text.push_str("pairs = \"mesh\"\n");
            }
            text.push_str(block);
            if !has("[underlay]") {
                text.push_str("[underlay]\nprivate = { family = \"ipv4\" }\n");
            }
            if !has("[[test]]") {
                text.push_str("[[test]]\nkind = \"tcp-stream\"\n");
            }
            text
        })
        .collect()
}

#[test]
fn every_example_of_the_reference_plans() {
    for text in documented() {
        for profile in Profile::ALL {
            match plan(&topology(&text), &Request { profile, ..Request::default() }) {
                Ok(plan) => check(&plan),
                Err(error) => panic!("{error}\n{text}"),
            }
        }
    }
}

/// A topology of any shape that a file can have.
fn any_topology() -> impl Strategy<Value = String> {
    let underlay = (any::<bool>(), any::<bool>(), 1280_u16..9000);
    (2_usize..7, prop::collection::vec(underlay, 1..5), 1_usize..4, any::<bool>(), 0_usize..7, any::<u8>()).prop_map(
        |(nodes, underlays, engines, mixed, compare, bits)| {
            let names: Vec<String> = (0..nodes).map(|index| format!("\"n{index}\"")).collect();
            let mut text = format!("nodes = [{}]\npairs = \"mesh\"\n", names.join(", "));
            let mut levels: Vec<String> = vec!["\"raw\"".to_owned()];
            levels.extend((0..engines).map(|index| format!("\"e{index}\"")));
            if mixed && engines > 1 {
                levels.push("\"e0>e1\"".to_owned());
            }
            let _ = writeln!(text, "engines = [{}]\nstacks = [\"s\", \"t\", \"s>t\"]", levels.join(", "));
            let several = bits & (1 << 3) != 0;
            if several {
                text.push_str("tunnels = [1, 3]\n");
            }
            let compared = ["pair", "engine", "stack", "settings", "streams", "tunnels"].get(compare);
            let can = |factor: &&&str| (**factor != "pair" || nodes > 2) && (**factor != "tunnels" || several);
            if let Some(compared) = compared.filter(can) {
                let _ = writeln!(text, "compare = \"{compared}\"");
            }
            for index in 0..engines {
                let _ = writeln!(text, "[engine.e{index}]\nkind = \"embedded\"");
            }
            text.push_str("[underlay]\n");
            for (index, (six, bridged, mtu)) in underlays.iter().enumerate() {
                let (family, kind) = (if *six { 6 } else { 4 }, if *bridged { "bridged" } else { "routed" });
                let _ = writeln!(text, "u{index} = {{ family = \"ipv{family}\", kind = \"{kind}\", mtu = {mtu} }}");
            }
            text.push_str("[stack]\ns = { delivery = \"merged-tcp\" }\nt = { delivery = \"unmerged\" }\n[settings.x]\n[settings.y]\n");
            text.push_str("[[test]]\nkind = \"tcp-stream\"\nstreams = [1, 4]\n");
            for (bit, more) in ["kind = \"tcp-rr\"", "kind = \"ping\"", "kind = \"udp-stream\"\npayload = \"64B\"\nrate = [\"1Gbit/s\", \"max\"]\ndirection = \"both\""].iter().enumerate() {
                if bits & (1 << bit) != 0 {
                    let _ = writeln!(text, "[[test]]\n{more}");
                }
            }
            text
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_plans_is_whole(text in any_topology(), seed in any::<u64>(), rounds in 1_u32..5) {
        let topology = topology(&text);
        let request = Request { seed: Some(seed), rounds: Some(rounds), ..Request::default() };
        let plan = planned(&topology, &request);
        check(&plan);
        prop_assert_eq!(planned(&topology, &request).hash(), plan.hash());
    }
}
