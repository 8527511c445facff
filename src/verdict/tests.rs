use super::*;
use crate::record::fixture::Made;
use crate::record::{Check, Status};
use crate::units::Ratio;

const RATE: &str = "throughput_bits_per_second";
const RR: &str = "rr_p50_ns";

/// Field cases, Appendix D, Mbit/s: base and new by round.
const N1: ([f64; 12], [f64; 12]) = (
    [2375., 2449., 2378., 2370., 2311., 2380., 2507., 2441., 2500., 2424., 2438., 2418.],
    [2240., 2482., 2449., 2448., 2238., 2233., 2315., 2355., 2429., 2396., 2450., 2338.],
);
const N2: ([f64; 12], [f64; 12]) = (
    [2409., 2412., 2380., 2452., 2417., 2436., 2381., 2378., 2390., 2397., 2419., 2407.],
    [2243., 2227., 2240., 2293., 2232., 2263., 2269., 2211., 2257., 2295., 2196., 2246.],
);
const N3: ([f64; 3], [f64; 3]) = ([4966., 1140., 8790.], [4700., 5200., 4400.]);

/// One pair, two engines, one metric.
fn engines(base: &[f64], new: &[f64], metric: &str) -> Made {
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
    for (round, (base, new)) in base.iter().zip(new).enumerate() {
        let mut levels = [("old", *base), ("new", *new)];
        if round % 2 == 1 {
            levels.reverse();
        }
        for (engine, value) in levels {
            made.run(round as u32, &[(Factor::Pair, "a1>a2"), (Factor::Engine, engine)], &[(metric, value)]);
        }
    }
    made
}

fn within(made: &Made, policy: &Policy) -> Comparison {
    compare(&[Source { name: "run", record: &made.record }], None, policy).unwrap()
}

fn verdict_of(base: &[f64], new: &[f64], metric: &str, policy: &Policy) -> Row {
    within(&engines(base, new, metric), policy).rows.remove(0)
}

#[test]
fn field_series_get_their_verdicts() {
    let scaled = |values: &[f64]| values.iter().map(|value| value * 1e6).collect::<Vec<_>>();
    let row = verdict_of(&scaled(&N1.0), &scaled(&N1.1), RATE, &Policy::gate());
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
    let row = verdict_of(&scaled(&N2.0), &scaled(&N2.1), RATE, &Policy::gate());
    assert_eq!(row.verdict, Some(Verdict::Worse), "{}", row.why);
    let change = row.change.unwrap();
    assert!((change.value + 0.066).abs() < 0.001 && change.low.unwrap() < -0.074 && change.high.unwrap() > -0.058);
    let row = verdict_of(&scaled(&N3.0), &scaled(&N3.1), RATE, &Policy::default());
    assert_eq!(row.verdict, Some(Verdict::Inconclusive), "{}", row.why);
    assert!(row.rounds_needed.is_some_and(|rounds| rounds > 100), "{:?}", row.rounds_needed);
}

#[test]
fn less_latency_is_better_and_less_throughput_is_worse() {
    let (high, low) = ([200e3, 202e3, 199e3, 201e3], [150e3, 151e3, 149e3, 150e3]);
    assert_eq!(verdict_of(&high, &low, RR, &Policy::default()).verdict, Some(Verdict::Better));
    assert_eq!(verdict_of(&low, &high, RR, &Policy::default()).verdict, Some(Verdict::Worse));
    let rate = |values: [f64; 4]| values.map(|value| value * 1e4);
    assert_eq!(verdict_of(&rate(high), &rate(low), RATE, &Policy::default()).verdict, Some(Verdict::Worse));
}

#[test]
fn a_change_below_the_minimum_is_not_published_and_the_gate_has_its_own() {
    let base = [1e9, 1.002e9, 0.999e9, 1.001e9, 1.0e9];
    let new = base.map(|value| value * 0.93);
    let row = verdict_of(&base, &new, RATE, &Policy::default());
    assert_eq!((row.verdict, row.rounds_needed), (Some(Verdict::NoConsistentChange), None), "{}", row.why);
    assert!(row.why.contains("less than the minimum of 10 %"), "{}", row.why);
    assert_eq!(verdict_of(&base, &new, RATE, &Policy::gate()).verdict, Some(Verdict::Worse));
    let own = Policy { min_effects: [(RATE.to_owned(), Ratio::from_fraction(0.08))].into(), ..Policy::gate() };
    assert_eq!(verdict_of(&base, &new, RATE, &own).verdict, Some(Verdict::NoConsistentChange));
}

#[test]
fn two_runs_are_too_few() {
    let row = verdict_of(&[1e9, 1e9], &[5e8, 5e8], RATE, &Policy::default());
    assert_eq!((row.verdict, row.rounds_needed), (Some(Verdict::Inconclusive), Some(3)), "{}", row.why);
    let row = verdict_of(&[1e9], &[5e8], RATE, &Policy::default());
    assert_eq!(row.verdict, Some(Verdict::Inconclusive));
    assert!(row.change.unwrap().low.is_none(), "one run has no interval");
}

/// Two pairs, each with its own factor on the new stack.
fn two_pairs(factors: [f64; 2], noise: f64) -> Made {
    let mut made = Made::new(
        Factor::Stack,
        &[
            (Factor::Stack, &["standard", "ebpf"]),
            (Factor::Pair, &["a1>a2", "b1>b2"]),
            (Factor::Underlay, &["private"]),
        ],
    );
    for round in 0..5 {
        for (pair, factor) in [("a1>a2", factors[0]), ("b1>b2", factors[1])] {
            for (stack, factor) in [("standard", 1.0), ("ebpf", factor)] {
                let value = 3.3e9 * factor * made.noise(noise);
                let levels = [(Factor::Pair, pair), (Factor::Stack, stack), (Factor::Underlay, "private")];
                made.run(round, &levels, &[(RATE, value)]);
            }
        }
    }
    made
}

#[test]
fn all_of_few_pairs_must_agree() {
    let row = within(&two_pairs([1.23, 1.20], 0.01), &Policy::default()).rows.remove(0);
    assert_eq!((row.verdict, row.agree), (Some(Verdict::Better), 2), "{}", row.why);
    // R1: new connections +23 % on one pair, flat on the other.
    let row = within(&two_pairs([1.23, 1.00], 0.01), &Policy::default()).rows.remove(0);
    assert_eq!((row.verdict, row.agree), (Some(Verdict::NoConsistentChange), 1), "{}", row.why);
    assert!(row.why.contains("1 of 2 pairs moved that way"), "{}", row.why);
    let row = within(&two_pairs([1.3, 0.75], 0.01), &Policy::default()).rows.remove(0);
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
}

#[test]
fn each_pair_shows_its_own_medians_and_change() {
    let row = within(&two_pairs([1.39, 1.18], 0.005), &Policy::default()).rows.remove(0);
    let changes: Vec<f64> = row.pairs.iter().map(|pair| pair.change.unwrap().value).collect();
    assert!((changes[0] - 0.39).abs() < 0.02 && (changes[1] - 0.18).abs() < 0.02, "{changes:?}");
    assert_eq!(row.pairs[0].pair, "a1>a2");
    assert_eq!(row.pairs[0].base.unwrap().runs, 5);
}

#[test]
fn over_many_pairs_the_pairs_are_the_sample() {
    let mut made = Made::new(Factor::Stack, &[(Factor::Stack, &["standard", "ebpf"])]);
    for pair in 0..8 {
        let own = 1.2 * made.noise(0.05);
        for round in 0..3 {
            for (stack, factor) in [("standard", 1.0), ("ebpf", own)] {
                let value = 1e9 * factor * made.noise(0.01);
                made.run(round, &[(Factor::Pair, &format!("n{pair}>m")), (Factor::Stack, stack)], &[(RATE, value)]);
            }
        }
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!((row.verdict, row.agree, row.pairs.len()), (Some(Verdict::Better), 8, 8), "{}", row.why);
    let width = row.change.unwrap().high.unwrap() - row.change.unwrap().low.unwrap();
    assert!(width > 0.04, "the spread of pairs is in the interval: {width}");
}

#[test]
fn an_unproved_run_is_excluded_and_said() {
    let mut made = engines(&[1e9; 4], &[1e9; 4], RATE);
    let run = made.record.runs.iter_mut().find(|run| run.factors.get(Factor::Engine) == Some("new")).unwrap();
    run.metrics.insert(RATE.to_owned(), 9e9);
    run.proof.push(Check {
        check: "outer remote address".to_owned(),
        expected: "198.18.0.6".to_owned(),
        seen: "203.0.113.9".to_owned(),
        holds: false,
    });
    let comparison = within(&made, &Policy::default());
    assert_eq!(comparison.rows[0].new.unwrap().max, 1e9);
    assert_eq!(comparison.rows[0].paired, 3);
    assert_eq!((comparison.unmeasured[0].runs, comparison.unmeasured[0].of), (1, 4));
    assert!(comparison.unmeasured[0].why.contains("expected 198.18.0.6, saw 203.0.113.9"));
}

#[test]
fn a_level_without_a_usable_run_is_invalid_and_never_unchanged() {
    let mut made = engines(&[1e9; 4], &[1e9; 4], RATE);
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("new")) {
        run.status = Status::Failed;
        run.reason = Some("no handshake within 5 s".to_owned());
        run.metrics.clear();
    }
    let comparison = within(&made, &Policy::default());
    assert_eq!(comparison.rows[0].verdict, Some(Verdict::Invalid));
    assert!(comparison.rows[0].why.contains("no usable run at new: failed: no handshake within 5 s"));
    assert_eq!(gate(&comparison).result.exit_code(), 2);
}

#[test]
fn a_missing_metric_is_invalid_and_never_unchanged() {
    let mut made = engines(&[1e9; 4], &[1e9; 4], RATE);
    for run in made.record.runs.iter_mut().filter(|run| run.factors.get(Factor::Engine) == Some("new")) {
        run.metrics.clear();
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!((row.verdict, row.new), (Some(Verdict::Invalid), None));
    assert!(row.why.contains("the metric is missing in 4 runs at new"), "{}", row.why);
}

#[test]
fn what_is_near_zero_needs_its_absolute_floor() {
    let judge = |metric: &str| Policy { metrics: Some(vec![metric.to_owned()]), ..Policy::default() };
    // Field case S-13.
    let row = verdict_of(&[1e-5; 4], &[3e-5; 4], "loss_ratio", &judge("loss_ratio"));
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
    let row = verdict_of(&[4e3, 4.1e3, 3.9e3], &[7e3, 7.2e3, 6.9e3], "jitter_ns", &judge("jitter_ns"));
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
    let row = verdict_of(&[0.0; 4], &[0.02, 0.021, 0.019, 0.02], "loss_ratio", &judge("loss_ratio"));
    assert_eq!(row.verdict, Some(Verdict::Worse), "{}", row.why);
    let change = row.change.unwrap();
    assert_eq!(change.scale, Scale::Difference);
    assert!((change.value - 0.02).abs() < 1e-3);
    let row = verdict_of(&[0.0; 4], &[0.0; 4], "loss_ratio", &judge("loss_ratio"));
    assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
    // A tunnel that stalled: a ratio of zero would be undefined.
    let row = verdict_of(&[1e9, 1.01e9, 0.99e9, 1e9], &[0.0; 4], RATE, &judge(RATE));
    assert_eq!((row.verdict, row.change.unwrap().scale), (Some(Verdict::Worse), Scale::Difference), "{}", row.why);
}

#[test]
fn many_metrics_share_one_error() {
    // Alone it is a change; among forty like it, chance makes one too often.
    let base = [1e9, 1.01e9, 0.99e9, 1e9];
    let new = [0.85e9, 0.90e9, 0.80e9, 0.87e9];
    let alone = verdict_of(&base, &new, RATE, &Policy::default());
    assert_eq!(alone.verdict, Some(Verdict::Worse), "{}", alone.why);
    let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
    for cell in 0..40 {
        for round in 0..4_usize {
            for engine in ["old", "new"] {
                let noise = made.noise(0.03);
                let value = match (cell, engine) {
                    (0, "old") => base[round],
                    (0, _) => new[round],
                    _ => 1e9 * noise,
                };
                let levels = [(Factor::Engine, engine), (Factor::Test, &*format!("t{cell:02}"))];
                made.run(round as u32, &levels, &[(RATE, value)]);
            }
        }
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!(row.verdict, Some(Verdict::Inconclusive), "{}", row.why);
    assert!(row.why.contains("40 verdicts") && row.rounds_needed > Some(4), "{}", row.why);
}

#[test]
fn a_change_that_a_few_runs_carry_is_not_called() {
    let mut new = [1.0e9; 12];
    new[3] = 3.1e9;
    new[7] = 2.9e9;
    let base = [1.0e9; 12];
    let row = verdict_of(&base, &new, RATE, &Policy::default());
    assert_ne!(row.verdict, Some(Verdict::Better), "{}", row.why);
}

#[test]
fn what_repeated_visits_differ_by_is_the_least_change() {
    // Both levels swing together from round to round: the paired interval is narrow, the machine is not steady.
    let swing = [1.0, 1.5, 1.0, 1.5, 1.0, 1.5];
    let base = swing.map(|factor| 1e9 * factor);
    let jitter = [1.0, 1.004, 0.996, 1.002, 0.998, 1.0];
    let new: Vec<f64> = base.iter().zip(jitter).map(|(value, jitter)| value * 0.85 * jitter).collect();
    let row = verdict_of(&base, &new, RATE, &Policy::default());
    assert_eq!(row.verdict, Some(Verdict::Inconclusive), "{}", row.why);
    assert!(row.why.starts_with("repeated visits of one level differ by up to"), "{}", row.why);
    assert!(row.floor > Some(0.15) && row.minimum == row.floor.unwrap());
}

/// Two records of raw and embedded, the second scaled.
fn two_records(raw: f64, tunnel: f64) -> (Made, Made) {
    let record = |raw: f64, tunnel: f64| {
        let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["raw", "embedded"])]);
        for round in 0..6 {
            for (engine, rate) in [("raw", 9.4e9 * raw), ("embedded", 3.2e9 * tunnel)] {
                let value = rate * made.noise(0.01);
                made.run(round, &[(Factor::Pair, "a1>a2"), (Factor::Engine, engine)], &[(RATE, value)]);
            }
        }
        made
    };
    (record(1.0, 1.0), record(raw, tunnel))
}

fn between(old: &Made, new: &Made, policy: &Policy) -> Result<Comparison, VerdictError> {
    compare(&[Source { name: "old", record: &old.record }, Source { name: "new", record: &new.record }], None, policy)
}

#[test]
fn what_moved_with_the_raw_underlay_is_the_environment() {
    // Field case N9: raw and tunnel both lose a quarter.
    let (old, new) = two_records(0.75, 0.75);
    let comparison = between(&old, &new, &Policy::gate()).unwrap();
    for row in &comparison.rows {
        assert_eq!(row.verdict, Some(Verdict::NoConsistentChange), "{}", row.why);
        assert!(row.why.contains("environment: the raw underlay moved by -25 %"), "{}", row.why);
    }
    // The tunnel alone lost it.
    let (old, new) = two_records(1.0, 0.75);
    let comparison = between(&old, &new, &Policy::gate()).unwrap();
    let worse: Vec<_> = comparison.rows.iter().filter(|row| row.verdict == Some(Verdict::Worse)).collect();
    assert_eq!(worse.len(), 1);
    assert_eq!(worse[0].cell.get(Factor::Engine), Some("embedded"));
    assert!(comparison.cautions.iter().any(|caution| caution.contains("not interleaved")));
    // A kernel moves the raw path too: there it excuses nothing.
    let (old, new) = two_records(0.75, 0.75);
    let policy = Policy { changed: ["kernel".to_owned()].into(), ..Policy::gate() };
    let comparison = between(&old, &new, &policy).unwrap();
    assert!(comparison.rows.iter().all(|row| row.verdict == Some(Verdict::Worse)));
}

#[test]
fn a_small_change_between_records_is_not_called() {
    let (old, new) = two_records(1.0, 0.92);
    let comparison = between(&old, &new, &Policy::gate()).unwrap();
    assert!(comparison.rows.iter().all(|row| row.verdict == Some(Verdict::NoConsistentChange)));
}

#[test]
fn a_metric_that_the_new_record_lacks_is_invalid() {
    let (old, mut new) = two_records(1.0, 1.0);
    new.record.runs.retain(|run| run.factors.get(Factor::Engine) != Some("embedded"));
    let comparison = between(&old, &new, &Policy::gate()).unwrap();
    let row = comparison.rows.iter().find(|row| row.cell.get(Factor::Engine) == Some("embedded")).unwrap();
    assert_eq!(row.verdict, Some(Verdict::Invalid), "{}", row.why);
    assert_eq!(gate(&comparison).result, GateResult::Invalid);
}

#[test]
fn another_machine_is_refused_with_the_fields() {
    let (old, mut new) = two_records(1.0, 0.5);
    for facts in new.record.header.nodes.values_mut() {
        facts["kernel"] = "6.19.0".into();
        facts.as_object_mut().unwrap().remove("cpu_model");
    }
    for run in &mut new.record.runs {
        run.conditions.insert("tunnel_mtu".to_owned(), 1380.into());
        run.conditions.insert("steal_ratio".to_owned(), 0.25.into());
        run.conditions.insert("client.local".to_owned(), format!("10.0.0.1:{}", 40_000 + run.order).into());
        run.conditions.insert("client.send_buffer".to_owned(), serde_json::json!({"granted": 87_040 + run.order}));
    }
    let error = between(&old, &new, &Policy::gate()).unwrap_err().to_string();
    for part in
        ["node a1 kernel (\"6.18.0\" / \"6.19.0\")", "cpu_model (\"Milan\" / missing)", "tunnel_mtu", "(1420 / 1380)"]
    {
        assert!(error.contains(part), "no {part} in: {error}");
    }
    for part in ["steal", "local", "granted"] {
        assert!(!error.contains(part), "{part} is no condition of two records: {error}");
    }
    assert!(error.contains("--changed cpu_model,kernel,tunnel_mtu"), "{error}");
    let policy = |changed: &[&str]| Policy {
        changed: changed.iter().map(|field| (*field).to_owned()).collect(),
        ..Policy::gate()
    };
    assert!(between(&old, &new, &policy(&["kernel", "mtu"])).unwrap_err().to_string().contains("cpu_model"));
    assert!(between(&old, &new, &policy(&["kernel", "mtu", "cpu-model"])).is_ok());
}

#[test]
fn facts_that_nobody_wrote_are_not_equal() {
    let (mut old, mut new) = two_records(1.0, 1.0);
    old.record.header.nodes.clear();
    new.record.header.nodes.clear();
    assert!(
        between(&old, &new, &Policy::gate())
            .unwrap_err()
            .to_string()
            .contains("facts of the nodes (missing / missing)")
    );
}

#[test]
fn levels_and_factors_that_are_not_there_are_named() {
    let made = engines(&[1e9; 3], &[1e9; 3], RATE);
    let source = [Source { name: "run", record: &made.record }];
    let by = |text: &str| compare(&source, Some(&text.parse().unwrap()), &Policy::default()).unwrap_err().to_string();
    assert_eq!(by("engine=old,fresh"), "no run has engine `fresh`; its levels are old, new");
    assert!(by("pair").contains("pair has one level only, `a1>a2`") && by("pair").contains("--by engine"));
    assert!(by("stack").contains("one level only, `none`"));
    assert!(by("record").contains("one level only"));
    assert_eq!(compare(&[], None, &Policy::default()), Err(VerdictError::NoRecord));
    let mut unnamed = made.record.clone();
    unnamed.header.compare = None;
    let error = compare(&[Source { name: "run", record: &unnamed }], None, &Policy::default()).unwrap_err();
    assert!(error.to_string().contains("one of engine"), "{error}");
}

#[test]
fn the_first_level_named_is_the_baseline() {
    let made = engines(&[1e9; 3], &[2e9; 3], RATE);
    let source = [Source { name: "run", record: &made.record }];
    let by: By = "engine=new,old".parse().unwrap();
    let comparison = compare(&source, Some(&by), &Policy::default()).unwrap();
    assert_eq!((comparison.base.as_str(), comparison.new.as_slice()), ("new", &["old".to_owned()][..]));
    assert_eq!(comparison.rows[0].verdict, Some(Verdict::Worse));
}

#[test]
fn raw_is_no_baseline_where_two_engines_are() {
    let mut made = engines(&[1e9; 3], &[1e9; 3], RATE);
    for round in 0..3 {
        made.run(round, &[(Factor::Pair, "a1>a2"), (Factor::Engine, "raw")], &[(RATE, 9e9)]);
    }
    made.record.header.levels.insert(Factor::Engine, ["raw", "old", "new"].map(str::to_owned).to_vec());
    let comparison = within(&made, &Policy::default());
    assert_eq!((comparison.base.as_str(), comparison.new.len()), ("old", 1));
}

#[test]
fn a_row_carries_the_command_that_repeats_it() {
    let row = within(&two_pairs([1.2, 1.2], 0.01), &Policy::default()).rows.remove(0);
    assert_eq!(row.command, "wglab run pair --seed 7");
    let mut made = engines(&[1e9; 3], &[1e9; 3], RATE);
    made.record.header.levels.insert(Factor::Engine, ["raw", "old", "new"].map(str::to_owned).to_vec());
    made.record.header.command.push("it's here".to_owned());
    for run in &mut made.record.runs {
        run.factors = run.factors.clone().with(Factor::Underlay, "private");
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!(row.command, r"wglab run pair --seed 7 'it'\''s here' --only underlay=private --only engine=old,new");
}

#[test]
fn what_binds_is_said_where_most_runs_agree() {
    let mut made = engines(&[1e9; 4], &[1e9; 4], RATE);
    for run in made.record.runs.iter_mut().take(6) {
        run.bottleneck = Some(Bottleneck { is: "receiver cpu".to_owned(), evidence: "CPU 1: 97 %".to_owned() });
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!(row.base_bound_by.unwrap().evidence, "CPU 1: 97 %");
    for run in &mut made.record.runs {
        let evidence = "its own core is full".to_owned();
        run.bottleneck = Some(Bottleneck { is: "generator".to_owned(), evidence });
    }
    let row = within(&made, &Policy::default()).rows.remove(0);
    assert_eq!(row.verdict, Some(Verdict::Inconclusive), "{}", row.why);
}

#[test]
fn the_gate_counts_what_got_worse_first() {
    let worse = engines(&[1e9, 1.01e9, 0.99e9], &[5e8, 5.1e8, 4.9e8], RATE);
    assert_eq!(gate(&within(&worse, &Policy::gate())).result.exit_code(), 1);
    let same = engines(&[1e9, 1.01e9, 0.99e9, 1e9], &[1.005e9, 1e9, 1e9, 0.995e9], RATE);
    assert_eq!(gate(&within(&same, &Policy::gate())).result.exit_code(), 0);
    let noisy = engines(&N3.0.map(|value| value * 1e6), &N3.1.map(|value| value * 1e6), RATE);
    assert_eq!(gate(&within(&noisy, &Policy::gate())).result.exit_code(), 3);
    let unjudged = engines(&[1e9; 4], &[5e8; 4], "sent_bits_per_second");
    assert_eq!(gate(&within(&unjudged, &Policy::gate())).result.exit_code(), 2, "nothing is judged");
}

#[test]
fn a_policy_that_names_what_is_not_there_is_refused() {
    let judging = |name: &str| Policy { metrics: Some(vec![name.to_owned()]), ..Policy::default() }.check();
    assert!(judging("throughput").unwrap_err().to_string().contains("not a metric"));
    assert!(judging("rr_p50_n").unwrap_err().to_string().contains("did you mean `rr_p50_ns`?"));
    assert!(judging("sent_bits_per_second").unwrap_err().to_string().contains("cannot be judged"));
    let effect = Policy { min_effect: Some(Ratio::from_fraction(0.0)), ..Policy::default() };
    assert!(effect.check().is_err());
    let read: Policy =
        toml::from_str("metrics = [\"rr_p99_ns\"]\nmin-effect = \"5%\"\n[min-effects]\nrr_p99_ns = \"15%\"").unwrap();
    assert!(read.check().is_ok() && read.judges("rr_p99_ns") && !read.judges(RATE));
    assert!(toml::from_str::<Policy>("min_effect = \"5%\"").is_err());
}

#[test]
fn a_false_alarm_is_rare_over_identical_arms() {
    // Field cases S-01 and S-10: many metrics, no change, 4 % noise. docs/statistics.md has the whole grid.
    let mut alarms = 0;
    for seed in 0..100 {
        let mut made = Made::new(Factor::Engine, &[(Factor::Engine, &["old", "new"])]);
        for _ in 0..seed * 11 {
            made.noise(0.04);
        }
        for round in 0..3 {
            for cell in 0..12 {
                for engine in ["old", "new"] {
                    let value = 1e9 * made.noise(0.04);
                    let (test, underlay) = (format!("t{}", cell / 3), format!("u{}", cell % 3));
                    let levels = [
                        (Factor::Engine, engine),
                        (Factor::Test, test.as_str()),
                        (Factor::Underlay, underlay.as_str()),
                    ];
                    made.run(round, &levels, &[(RATE, value)]);
                }
            }
        }
        let called = |row: &Row| matches!(row.verdict, Some(Verdict::Better | Verdict::Worse));
        alarms += usize::from(within(&made, &Policy::gate()).rows.iter().any(called));
    }
    // Binomial, 100 at 5 %: 10 or fewer in 98 of 100.
    assert!(alarms <= 10, "{alarms} of 100");
}

/// Two pairs, three underlays, three rounds; what each underlay does on the new stack is given.
fn underlays(factors: [f64; 3], noise: f64) -> Comparison {
    let names = ["public-ipv4", "public-ipv6", "private"];
    let mut made = Made::new(Factor::Stack, &[(Factor::Stack, &["standard", "ebpf"]), (Factor::Underlay, &names)]);
    for round in 1..=3 {
        for pair in ["a1>a2", "b1>b2"] {
            for (underlay, factor) in names.iter().zip(factors) {
                for (stack, factor) in [("standard", 1.0), ("ebpf", factor)] {
                    let value = 3.3e9 * factor * made.noise(noise);
                    let levels = [(Factor::Pair, pair), (Factor::Stack, stack), (Factor::Underlay, underlay)];
                    made.run(round, &levels, &[(RATE, value)]);
                }
            }
        }
    }
    within(&made, &Policy::default())
}

fn verdicts(comparison: &Comparison) -> Vec<Option<Verdict>> {
    comparison.rows.iter().map(|row| row.verdict).collect()
}

#[test]
fn what_all_underlays_do_is_judged_over_all_of_them() {
    // Three rounds with 12 % noise: no underlay alone could say it.
    let comparison = underlays([0.62, 0.6, 0.64], 0.12);
    assert_eq!(verdicts(&comparison), [Some(Verdict::Worse); 3], "{}", comparison.rows[0].why);
    let together = comparison.rows[0].together.as_ref().unwrap();
    assert_eq!((together.underlays, comparison.judged), (3, 3));
    assert!(
        together.change.high.unwrap() < -0.25
            && comparison.rows[0].change.unwrap().high.unwrap() > together.change.high.unwrap()
    );
    assert!(
        comparison.rows[0].why.contains("4 verdicts, and 6 of 6 pairs on underlays agree"),
        "{}",
        comparison.rows[0].why
    );
    let comparison = underlays([1.0, 1.01, 0.99], 0.03);
    assert_eq!(verdicts(&comparison), [Some(Verdict::NoConsistentChange); 3]);
}

#[test]
fn an_underlay_that_moves_alone_is_judged_alone() {
    let comparison = underlays([1.0, 1.0, 0.6], 0.01);
    let expected = [Verdict::NoConsistentChange, Verdict::NoConsistentChange, Verdict::Worse].map(Some);
    assert_eq!(verdicts(&comparison), expected, "{}", comparison.rows[0].why);
    assert!(comparison.rows.iter().all(|row| row.together.is_none()));
    // Too noisy to be called alone, and yet too far to be hidden in the mean of all three.
    let comparison = underlays([1.0, 1.0, 0.75], 0.06);
    assert_ne!(comparison.rows[2].verdict, Some(Verdict::NoConsistentChange), "{}", comparison.rows[2].why);
    // One up, one down: the mean is still, the underlays are not.
    let comparison = underlays([1.5, 1.0, 0.67], 0.01);
    assert_eq!(verdicts(&comparison), [Some(Verdict::Better), Some(Verdict::NoConsistentChange), Some(Verdict::Worse)]);
}
