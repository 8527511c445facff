//! Which underlay to use, over made-up records.

use super::*;

/// What one underlay does: forward and reverse rate with 8 streams; loss; the probe's p99.
#[derive(Clone, Copy)]
struct Does {
    underlay: &'static str,
    forward: f64,
    reverse: f64,
    noise: f64,
}

fn does(underlay: &'static str, forward: f64, reverse: f64, noise: f64) -> Does {
    Does { underlay, forward, reverse, noise }
}

/// A record with both directions, 1, 4 and 8 streams (a quarter, 0.8 and all of the rate), loss, latency and MTU.
fn mesh(all: &[Does], rounds: u32, skip: u64) -> Made {
    let names: Vec<&str> = all.iter().map(|does| does.underlay).collect();
    let mut made = Made::new(Factor::Underlay, &[(Factor::Pair, &["a>b"]), (Factor::Underlay, &names)]);
    (0..skip).for_each(|_| _ = made.noise(1.0));
    for round in 1..=rounds {
        for does in all {
            for (direction, rate) in [("forward", does.forward), ("reverse", does.reverse)] {
                for (streams, share) in [("1", 0.25), ("4", 0.8), ("8", 1.0)] {
                    let rate = rate * share * made.noise(does.noise);
                    let levels = [
                        (Factor::Pair, "a>b"),
                        (Factor::Underlay, does.underlay),
                        (Factor::Engine, "embedded"),
                        (Factor::Direction, direction),
                        (Factor::Test, "tcp-stream"),
                        (Factor::Streams, streams),
                    ];
                    made.run(round, &levels, &[(RATE, rate), ("probe_p99_ns", 9e5), ("probe_loss_ratio", 0.0)]);
                }
            }
        }
    }
    made
}

fn picked(made: &Made, need: Option<&str>) -> Pick {
    let options = PickOptions { need: need.map(|need| need.parse().unwrap()), ..PickOptions::default() };
    pick(&Source { name: "run", record: &made.record }, &options, &Policy::default()).picks.remove(0)
}

fn tiers(pick: &Pick) -> Vec<Vec<&str>> {
    pick.tiers.iter().map(|tier| tier.iter().map(|candidate| candidate.underlay.as_str()).collect()).collect()
}

#[test]
fn the_weaker_direction_decides() {
    // The first is faster one way, and much slower back.
    let pick = picked(&mesh(&[does("public", 4e9, 1e9, 0.01), does("private", 2e9, 2.1e9, 0.01)], 5, 0), None);
    assert_eq!(tiers(&pick), [["private"], ["public"]]);
    assert_eq!(pick.tiers[1][0].weaker.as_deref(), Some("reverse"));
    assert_eq!(pick.tiers[0][0].weaker.as_deref(), Some("forward"));
    assert!((pick.tiers[1][0].safe_tcp.unwrap() / 0.7e9 - 1.0).abs() < 0.02);
    assert!(pick.missing.is_empty() && pick.command.is_none(), "{:?}", pick.missing);
}

#[test]
fn a_tie_keeps_the_order_of_the_topology_and_says_what_would_break_it() {
    // The last has the highest rate, and nothing is decided.
    let all = [does("one", 2e9, 2e9, 0.2), does("two", 2.1e9, 2.1e9, 0.2), does("three", 2.3e9, 2.3e9, 0.2)];
    let pick = picked(&mesh(&all, 4, 0), None);
    assert_eq!(tiers(&pick), [["one", "two", "three"]]);
    assert!(pick.command.as_ref().unwrap().contains("--only underlay=one,two,three --rounds "), "{:?}", pick.command);
    // Alike, and measured well enough to know: nothing would break it, and no run is proposed.
    let all = [does("one", 2e9, 2e9, 0.005), does("two", 2.02e9, 2.02e9, 0.005)];
    let pick = picked(&mesh(&all, 6, 0), None);
    assert_eq!((tiers(&pick), pick.command.clone()), (vec![vec!["one", "two"]], None));
    assert!(pick.orders.iter().all(|order| !order.decided && order.rounds_needed.is_none()));
}

#[test]
fn who_is_beaten_by_one_and_not_by_the_other_stands_behind_the_one() {
    // The middle one is too noisy to stand before or behind any.
    let all = [does("best", 3e9, 3e9, 0.01), does("noisy", 2.6e9, 2.6e9, 0.35), does("worst", 2e9, 2e9, 0.01)];
    let pick = picked(&mesh(&all, 4, 0), None);
    assert_eq!(tiers(&pick), [vec!["best", "noisy"], vec!["worst"]]);
    assert_eq!(pick.tiers[1][0].behind, ["best"], "that is all that is known of it");
}

#[test]
fn no_order_is_printed_that_is_not_decided() {
    for seed in 0..40 {
        let rate = |place: u64| 2e9 * (1.0 + 0.15 * ((seed * 7 + place * 3) % 5) as f64);
        let noise = [0.02, 0.1, 0.3][seed as usize % 3];
        let all = [
            does("one", rate(0), rate(1), noise),
            does("two", rate(2), rate(3), noise),
            does("three", rate(4), rate(0), noise),
            does("four", rate(1), rate(2), noise),
        ];
        let pick = picked(&mesh(&all, 4, seed * 13), None);
        let beats = |winner: &str, loser: &str| {
            pick.orders.iter().any(|order| {
                order.decided
                    && ((order.of == winner && order.to == loser && order.change > 0.0)
                        || (order.of == loser && order.to == winner && order.change < 0.0))
            })
        };
        let tiers = tiers(&pick);
        for (place, tier) in tiers.iter().enumerate() {
            let topology = ["one", "two", "three", "four"];
            let places: Vec<usize> = tier.iter().map(|name| topology.iter().position(|t| t == name).unwrap()).collect();
            assert!(places.is_sorted(), "within a tier the topology's order, not the rates': {tier:?}");
            for lower in tiers[place + 1..].iter().flatten() {
                assert!(tier.iter().all(|upper| !beats(lower, upper)), "{lower} stands below one that it beats");
            }
            if place > 0 {
                let above: Vec<&&str> = tiers[..place].iter().flatten().collect();
                for (lower, candidate) in tier.iter().zip(&pick.tiers[place]) {
                    assert!(above.iter().any(|upper| beats(upper, lower)), "{lower} stands below without being beaten");
                    assert!(candidate.behind.iter().all(|upper| beats(upper, lower)));
                }
            }
        }
    }
}

#[test]
fn the_fewest_streams_that_carry_the_need_are_named() {
    let made = mesh(&[does("private", 2e9, 2e9, 0.002)], 3, 0);
    let streams = |need: &str| picked(&made, Some(need)).tiers[0][0].streams_for_need.clone();
    // Safe are 70 % of 0.5, 1.6 and 2 Gbit/s.
    assert_eq!(streams("300Mbit/s").as_deref(), Some("1"));
    assert_eq!(streams("1Gbit/s").as_deref(), Some("4"));
    assert_eq!(streams("1.3Gbit/s").as_deref(), Some("8"));
    assert_eq!(streams("1.5Gbit/s"), None);
}

#[test]
fn what_is_missing_is_named_with_the_run_that_supplies_it() {
    let all = [does("public", 4e9, 4e9, 0.01), does("private", 2e9, 2e9, 0.01)];
    let lacking = |change: &dyn Fn(&mut crate::record::Run)| {
        let mut made = mesh(&all, 4, 0);
        made.record.runs.iter_mut().for_each(change);
        let pick = picked(&made, None);
        assert!(pick.command.as_ref().is_some_and(|command| command.contains("--profile standard")));
        pick.missing
    };
    assert_eq!(lacking(&|run| _ = run.metrics.remove("probe_p99_ns")), ["latency under load"]);
    assert_eq!(lacking(&|run| _ = run.metrics.remove("probe_loss_ratio")), ["loss"]);
    assert_eq!(lacking(&|run| run.conditions.clear()), ["the MTU"]);
    assert_eq!(lacking(&|run| _ = run.metrics.remove(RATE)), ["TCP throughput"]);
    let one_way = |run: &mut crate::record::Run| {
        if run.factors.get(Factor::Direction) == Some("reverse") && run.factors.get(Factor::Underlay) == Some("private")
        {
            run.status = crate::record::Status::Failed;
        }
    };
    assert_eq!(lacking(&one_way), ["the direction opposite to forward over private"]);
}

#[test]
fn a_pick_that_lacks_a_direction_is_no_result() {
    let mut made = mesh(&[does("public", 4e9, 1e9, 0.01), does("private", 2e9, 2.1e9, 0.01)], 5, 0);
    let result = |made: &Made, need: &str| {
        let options = PickOptions { need: Some(need.parse().unwrap()), ..PickOptions::default() };
        pick(&Source { name: "run", record: &made.record }, &options, &Policy::default()).result()
    };
    assert_eq!(result(&made, "1Gbit/s"), PickResult::Picked);
    assert_eq!(result(&made, "9Gbit/s"), PickResult::NoneFits);
    made.record.runs.retain(|run| run.factors.get(Factor::Direction) == Some("forward"));
    assert_eq!(result(&made, "1Gbit/s"), PickResult::Incomplete);
    made.record.runs.clear();
    assert_eq!(result(&made, "1Gbit/s"), PickResult::Incomplete);
}
