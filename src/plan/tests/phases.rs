//! Runs that do not go straight through: phases of real stacks, rounds that end on a precision, plans read back.

use super::*;

/// Two pairs of real nodes on two stacks, with these lines about the stacks.
fn real_stacks(stacks: &str, pairs: &str) -> Topology {
    let mut text = format!("compare = \"stack\"\npairs = {pairs}\nengines = [\"raw\"]\n");
    for (index, node) in ["a1", "a2", "b1", "b2"].iter().enumerate() {
        let _ =
            write!(text, "[node.{node}]\nreach = \"ssh:{node}\"\naddress = {{ private = \"10.0.0.{}\" }}\n", index + 1);
    }
    topology(&format!("{text}{stacks}\n[underlay]\nprivate = {{ family = \"ipv4\" }}\n[[test]]\nkind = \"tcp-rr\"\n"))
}

const TWO_PAIRS: &str = "[\"a1>a2\", \"b1>b2\"]";

const TWO_STACKS: &str = "[stack.standard]\nverify = [\"./is\"]\n[stack.ebpf]\nswitch = [\"./stack\", \"on\"]\n";

#[test]
fn real_stacks_are_switched_between_phases_and_half_of_the_pairs_start_on_the_other() {
    let plan = planned(&real_stacks(TWO_STACKS, TWO_PAIRS), &Request { rounds: Some(3), ..Request::default() });
    let on = |phase: usize| plan.phases[phase].stacks.values().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(
        (plan.phases.len(), on(0), on(1)),
        (2, vec!["standard", "standard", "ebpf", "ebpf"], vec!["ebpf", "ebpf", "standard", "standard"],)
    );
    // Every pair has every round on every stack, once, and a phase ends before the next one begins.
    let mut seen = BTreeSet::new();
    for visit in &plan.visits {
        let arrangement = &plan.arrangements[visit.arrangement];
        assert!(plan.phases[visit.phase].holds(arrangement));
        assert!(seen.insert((&arrangement.pair, &arrangement.stack, visit.round)));
    }
    assert_eq!(seen.len(), 2 * 2 * 3);
    assert!(plan.visits.windows(2).all(|pair| (pair[0].phase, pair[0].round) <= (pair[1].phase, pair[1].round)));
    let text = render_text(&plan);
    for line in [
        " and the time of 1 switch of stacks",
        "phase 1   a1, a2 on standard",
        "b1, b2 on ebpf",
        "switched by hand, verified `./is`",
        "switched `./stack on`, verified by nothing",
        "phase 2  3  ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn pairs_that_share_nodes_are_switched_together() {
    let pairs = "[\"a1>a2\", \"b1>b2\", \"a2>b1\"]";
    let plan = planned(&real_stacks(TWO_STACKS, pairs), &Request::default());
    assert!(plan.phases[0].stacks.values().all(|stack| stack == "standard"));
    // A level that differs per end has a phase of its own, and takes nodes that are client or server only.
    let mixed = planned(&real_stacks(TWO_STACKS, TWO_PAIRS), &only(&["stack=standard,ebpf,standard>ebpf"]));
    let ends: Vec<&str> = mixed.phases[2].stacks.values().map(String::as_str).collect();
    assert_eq!(ends, ["standard", "ebpf", "standard", "standard"]);
    assert_eq!(mixed.visits.len(), 2 * 3 * 3);
    let reason = refused(&real_stacks(TWO_STACKS, pairs), &only(&["stack=standard,standard>ebpf"]));
    assert!(reason.contains("node `a2` would be on stack `ebpf` and on `standard`"), "{reason}");
}

#[test]
fn one_stack_with_a_command_is_a_phase_and_a_label_is_none() {
    let topology = real_stacks(TWO_STACKS, TWO_PAIRS);
    assert_eq!(planned(&topology, &only(&["stack=standard"])).phases.len(), 1);
    let labels = real_stacks("[stack.standard]\n[stack.ebpf]\n", TWO_PAIRS);
    assert_eq!(planned(&labels, &Request::default()).phases.len(), 2);
    assert!(planned(&labels, &only(&["stack=standard"])).phases.is_empty());
}

fn with_precision(percent: f64, rounds: u32) -> Request {
    let precision = Some(Precision::To(Ratio::from_fraction(percent / 100.0)));
    Request { precision, rounds: Some(rounds), ..Request::default() }
}

#[test]
fn a_precision_makes_rounds_a_ceiling_and_names_another_experiment() {
    let pair = shipped_topology("pair");
    let fixed = planned(&pair, &Request { rounds: Some(20), ..Request::default() });
    let adaptive = planned(&pair, &with_precision(3.0, 20));
    assert_eq!(fixed.visits, adaptive.visits);
    assert_ne!(fixed.hash(), adaptive.hash());
    assert_eq!(adaptive.forecast.time, fixed.forecast.time, "that of the ceiling");
    let ends: Vec<u32> = (1..=20).filter(|round| adaptive.may_end_after(*round)).collect();
    assert_eq!(ends, [4, 6, 8, 10, 12, 14, 16, 18, 20]);
    let text = render_text(&adaptive);
    assert!(text.starts_with("at most 120 runs in 40 visits, at most about "), "{text}");
    assert!(text.contains("every judged change is known to within 3 % either way; looks from round 4 on"), "{text}");
    assert!(!render_text(&fixed).contains("at most"));
    // Three engines: six rounds until every one followed every other equally often.
    let three = Request { engines: engines(&["a=embedded", "b=embedded"]).engines, ..with_precision(3.0, 20) };
    let ends: Vec<u32> = (1..=20).filter(|round| planned(&pair, &three).may_end_after(*round)).collect();
    assert_eq!(ends, [6, 12, 18]);
}

#[test]
fn a_precision_that_cannot_be_is_refused() {
    let pair = shipped_topology("pair");
    let reason = refused(&pair, &with_precision(3.0, 3));
    assert!(reason.contains("from round 4 on, and 3 is the most") && reason.contains("--rounds 20"), "{reason}");
    let one = Request { only: only(&["engine=raw"]).only, ..with_precision(3.0, 20) };
    assert!(refused(&pair, &one).contains("nothing is compared here"));
    let reason = refused(&real_stacks(TWO_STACKS, TWO_PAIRS), &with_precision(3.0, 20));
    assert!(reason.contains("switched between phases"), "{reason}");
    // The file's precision is given up by the command line's `off`.
    let text = shipped("pair").unwrap().replace("[profile.quick]\n", "[profile.quick]\nprecision = \"3%\"\n");
    let file = topology(&text);
    assert_eq!(planned(&file, &Request::default()).precision, Some(Ratio::from_fraction(0.03)));
    assert!(refused(&file, &only(&["engine=raw"])).contains("--precision off"));
    let off = Request { precision: Some(Precision::Off), ..only(&["engine=raw"]) };
    assert_eq!(planned(&file, &off).precision, None);
}

/// A record holds its plan, and a later sitting reads it back.
#[test]
fn a_plan_survives_its_own_json() {
    let all = SHIPPED.iter().map(|(name, _)| planned(&shipped_topology(name), &Request::default()));
    let more = [
        planned(&shipped_topology("pair"), &with_precision(0.7, 20)),
        planned(&real_stacks(TWO_STACKS, TWO_PAIRS), &Request::default()),
    ];
    for plan in all.chain(more) {
        let text = serde_json::to_string(&plan).unwrap();
        let back: Plan = serde_json::from_str(&text).unwrap();
        // The forecast, which no hash holds, may lose the last digit of a percentage.
        assert!(back.visits == plan.visits && back.hash() == plan.hash(), "{}", plan.name);
    }
}
