//! How `benches/peers` judges a record: a bench without a harness cannot hold its own tests. Records made up here, small.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../benches/peers/bars.rs"]
mod bars;
#[path = "../benches/peers/beside.rs"]
mod beside;
#[path = "../benches/peers/cipher.rs"]
mod cipher;
#[path = "../benches/peers/conditions.rs"]
mod conditions;
#[path = "../benches/peers/figures.rs"]
mod figures;
#[path = "../benches/peers/limits.rs"]
mod limits;
#[path = "../benches/peers/versions.rs"]
mod versions;
#[path = "../benches/peers/whole.rs"]
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use wglab::cell::{Cell, Factor};
use wglab::record::{Check, Class, End, EndStatus, FORMAT, Header, Meters, Record, Run, Status, VERSION};

use crate::bars::Judged;
use crate::beside::{Beside, Program};
use crate::figures::{Figure, OURS, PEERS};
use crate::limits::{Limit, Point, Standing, State, Which};

/// Six rounds around one, a few percent apart.
const QUIET: [f64; 6] = [0.98, 1.01, 1.0, 1.02, 0.99, 1.0];
/// Three rounds that say little.
const LOUD: [f64; 3] = [0.5, 1.0, 2.0];
const GBIT: f64 = 1e9;
const MIB: f64 = 1_048_576.0;

fn run(engine: &str, round: usize, factors: &[(Factor, &str)], metrics: &[(&str, f64)]) -> Run {
    let factors: Cell = factors.iter().map(|(factor, level)| (*factor, (*level).to_owned())).collect();
    Run {
        round: round as u32,
        session: None,
        order: 0,
        status: Status::Ok,
        reason: None,
        at_ms: None,
        factors: factors.with(Factor::Engine, engine),
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        conditions: BTreeMap::new(),
        proof: vec![Check { check: "a".into(), expected: "b".into(), seen: "b".into(), holds: true }],
        bottleneck: None,
        cautions: Vec::new(),
        meters: None,
        histograms: BTreeMap::new(),
        series: BTreeMap::new(),
    }
}

/// TCP streams of ours that are `times` as fast as wireguard-go's, by round.
fn streams(stack: &str, settings: &str, times: &[f64]) -> Vec<Run> {
    let factors = [
        (Factor::Test, "tcp-stream"),
        (Factor::Stack, stack),
        (Factor::Settings, settings),
        (Factor::Streams, "8"),
        (Factor::Direction, "forward"),
    ];
    let rate = |value| [("throughput_bits_per_second", value), ("engine_peak_memory_bytes", 10.0 * MIB)];
    let rounds = times.iter().enumerate();
    rounds
        .flat_map(|(round, times)| {
            [run(OURS, round, &factors, &rate(times * GBIT)), run("wireguard-go", round, &factors, &rate(GBIT))]
        })
        .collect()
}

/// One rate of the ladder.
fn step(engine: &str, round: usize, rate: &str, loss: f64) -> Run {
    let factors = [(Factor::Test, "udp-stream"), (Factor::Stack, "unmerged"), (Factor::Rate, rate)];
    let delivered = rate.trim_end_matches("k/s").parse::<f64>().unwrap() * 1e3 * (1.0 - loss);
    run(engine, round, &factors, &[("packets_per_second", delivered), ("loss_ratio", loss)])
}

fn times(factor: f64, rounds: &[f64]) -> Vec<f64> {
    rounds.iter().map(|round| factor * round).collect()
}

fn judge(runs: &[Run], bound: Option<f64>) -> Vec<Judged> {
    let runs: Vec<&Run> = runs.iter().collect();
    let (cells, lacking) = figures::cells(&runs);
    assert_eq!(lacking, Vec::<String>::new());
    bars::judge(&cells, &runs, bound)
}

/// The exit code of a gate over what was measured of these runs.
fn gate(runs: &[Run]) -> u8 {
    let judged = judge(runs, Some(GBIT));
    bars::exit(true, false, judged.iter().any(|judged| !judged.lacking.is_empty()), &judged)
}

fn note(runs: &[Run], bound: Option<f64>) -> String {
    bars::note(&judge(runs, bound), bound)
}

/// The lines about one bar.
fn about(note: &str, name: &str) -> String {
    note.lines().skip_while(|line| !line.starts_with(name)).take(3).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_floor_is_held_where_no_interval_crosses() {
    let runs = streams("merged-all", "gro-off", &times(2.2, &QUIET));
    assert_eq!(gate(&runs), 0);
    let line = about(&note(&runs, None), "TCP 1/4/8, merged-all");
    assert!(line.contains("2.20 x (2.") && line.contains("wireguard-go, merged-all gro-off 8 forward"), "{line}");
    assert!(line.contains("floor HELD in 1 of 1 cells") && line.contains("bar   HELD in 1 of 1 cells"), "{line}");
}

#[test]
fn an_interval_that_crosses_the_floor_decides_nothing() {
    let runs = streams("merged-all", "gro-off", &times(2.2, &LOUD));
    assert_eq!(gate(&runs), 3);
    let line = about(&note(&runs, None), "TCP 1/4/8, merged-all");
    assert!(
        line.contains("floor UNDECIDED; figures past it: 0 of 1, intervals across it: 1; more rounds decide"),
        "{line}"
    );
    assert!(!line.contains("HELD"), "{line}");
}

#[test]
fn one_round_has_no_interval_and_holds_nothing() {
    let runs = streams("merged-all", "gro-off", &[4.0]);
    assert_eq!(gate(&runs), 3);
    assert!(note(&runs, None).contains("4.00 x (one round)"));
}

#[test]
fn every_cell_is_asked_and_not_the_worst_alone() {
    // The worst figure is known well; a better one is not, and its interval reaches below the floor.
    let mut runs = streams("merged-all", "gro-off", &times(1.8, &QUIET));
    runs.extend(streams("merged-all", "gro-on", &times(2.5, &LOUD)));
    assert_eq!(gate(&runs), 3);
    let line = about(&note(&runs, None), "TCP 1/4/8, merged-all");
    assert!(line.contains("1.80 x") && line.contains("gro-off"), "{line}");
    assert!(line.contains("floor UNDECIDED; figures past it: 0 of 2, intervals across it: 1;"), "{line}");
}

#[test]
fn a_figure_below_the_floor_fails_a_gate_whatever_its_interval() {
    assert_eq!(gate(&streams("merged-all", "gro-off", &times(1.4, &LOUD))), 1);
    let runs = streams("merged-all", "gro-off", &times(1.2, &QUIET));
    assert_eq!(gate(&runs), 1);
    let line = about(&note(&runs, None), "TCP 1/4/8, merged-all");
    assert!(line.contains("floor MISSED; figures past it: 1 of 1, intervals across it: 0"), "{line}");
}

#[test]
fn without_gate_a_floor_fails_nothing() {
    let judged = judge(&streams("merged-all", "gro-off", &times(1.2, &QUIET)), None);
    assert_eq!(bars::exit(false, false, true, &judged), 0);
    assert_eq!(bars::exit(false, true, false, &judged), 2);
    assert_eq!(bars::exit(true, false, true, &judged), 2);
}

#[test]
fn the_cells_of_a_claim_about_some_share_its_level() {
    let limit = Limit { limit: 1.0, more: true };
    // By itself this one is below; among many, one such is to be expected.
    let odd = Point { value: 0.9, own: Some((0.82, 0.98)), shared: Some((0.7, 1.15)), at_most: false, at_least: false };
    let good = Point { value: 2.0, own: Some((1.8, 2.2)), shared: Some((0.9, 4.4)), at_most: false, at_least: false };
    let standing = Standing::of(&[good, odd], limit, Which::Every).unwrap();
    assert_eq!((standing.state, standing.crossing, standing.beyond), (State::Undecided, 1, 1));
    assert!(standing.fails());
    // All of them above: each bears it at its own level, however many they are.
    let standing = Standing::of(&[good; 12], limit, Which::Every).unwrap();
    assert_eq!((standing.state, standing.crossing), (State::Held, 0));
    // The best of them above: it was picked.
    assert_eq!(Standing::of(&[good; 12], limit, Which::Some).unwrap().state, State::Undecided);
    assert_eq!(Standing::of(&[odd; 12], limit, Which::Some).unwrap().state, State::Missed);
    assert_eq!(Standing::of(&[], limit, Which::Every), None);
}

#[test]
fn a_round_trip_must_be_below_its_floor() {
    let trips = |ours: f64| -> Vec<Run> {
        let factors = [(Factor::Test, "tcp-rr"), (Factor::Stack, "unmerged"), (Factor::Settings, "gro-off")];
        let trip = |engine, round, time: f64| run(engine, round, &factors, &[("rr_p50_ns", time)]);
        let rounds = QUIET.iter().enumerate();
        rounds
            .flat_map(|(round, noise)| {
                [trip(OURS, round, ours * noise), trip("wireguard-go", round, 1e5), trip("boringtun-cli", round, 1e5)]
            })
            .collect()
    };
    let note = note(&trips(0.55e5), None);
    let line = about(&note, "TCP_RR p50 against wireguard-go");
    assert!(line.contains("floor HELD") && line.contains("bar   MISSED"), "{line}");
    assert!(about(&note, "TCP_RR p50 against boringtun-cli").contains("bar   HELD"));
    assert_eq!((gate(&trips(0.55e5)), gate(&trips(0.7e5))), (0, 1));
}

#[test]
fn a_cell_in_which_one_has_no_figure_was_not_measured() {
    let mut runs = streams("merged-all", "gro-off", &times(2.2, &QUIET));
    let mut other = streams("merged-all", "gro-on", &times(2.2, &QUIET));
    other.retain(|run| run.factors.get(Factor::Engine) != Some(OURS));
    runs.extend(other);
    let judged = judge(&runs, None);
    let lacking: Vec<&String> = judged.iter().flat_map(|judged| &judged.lacking).take(1).collect();
    let told = "TCP 1/4/8, merged-all: 1 of 2 cells have nothing to compare: merged-all gro-on 8 forward";
    assert_eq!(lacking, [told]);
    assert_eq!(gate(&runs), 2);
    // Nothing of the other bars was measured at all, which is told of a record that is not a part.
    assert_eq!(judged.iter().filter_map(Judged::unmeasured).count(), judged.len() - 2);
}

#[test]
fn a_run_without_its_figure_is_told() {
    let mut runs = streams("merged-all", "gro-off", &times(2.2, &QUIET));
    runs[0].metrics.clear();
    let (_, lacking) = figures::cells(&runs.iter().collect::<Vec<_>>());
    assert_eq!(lacking, ["1 runs of tcp-stream by embedded have no throughput_bits_per_second"]);
}

#[test]
fn rounds_in_which_ours_lost_at_every_rate_do_not_vanish() {
    let mut runs = Vec::new();
    for round in 0..6 {
        let ours = if round == 3 { 0.02 } else { 0.0 };
        runs.extend([("20k/s", ours), ("25k/s", ours)].map(|(rate, loss)| step(OURS, round, rate, loss)));
        runs.extend([("20k/s", 0.0), ("25k/s", 0.5)].map(|(rate, loss)| step("gotatun", round, rate, loss)));
    }
    let (cells, lacking) = figures::cells(&runs.iter().collect::<Vec<_>>());
    assert!(lacking.is_empty(), "{lacking:?}");
    assert_eq!(cells[0].engines[OURS][&3], Figure::Below(20_000.0));
    // Five rounds at 1.25, and one that is at most 1.
    let ratio = cells[0].ratio("gotatun").unwrap();
    assert_eq!((ratio.ours_below, ratio.theirs_below), (1, 0));
    assert!((ratio.value - 1.25_f64.powf(5.0 / 6.0)).abs() < 1e-9, "{ratio}");
    assert!(ratio.to_string().ends_with("[ours lost at every rate in 1 of 6 rounds]"), "{ratio}");
    assert_eq!(gate(&runs), 3);

    // However good the other rounds are: what is only known from above holds no floor.
    let bound = Point { value: 3.0, own: Some((2.5, 3.5)), shared: Some((2.5, 3.5)), at_most: true, at_least: false };
    let standing = Standing::of(&[bound], Limit { limit: 1.0, more: true }, Which::Every).unwrap();
    assert_eq!(standing.state, State::Undecided);
}

#[test]
fn where_ours_lost_at_every_rate_in_every_round_the_floor_is_missed() {
    let rounds = 0..6;
    let runs: Vec<Run> = rounds
        .flat_map(|round| {
            [
                step(OURS, round, "20k/s", 0.5),
                step("gotatun", round, "20k/s", 0.5),
                step("gotatun", round, "49k/s", 0.0),
            ]
        })
        .collect();
    assert_eq!(gate(&runs), 1);
    let (cells, _) = figures::cells(&runs.iter().collect::<Vec<_>>());
    let table = figures::table(&cells);
    assert!(table.contains("below 20,000/s") && table.contains("0.41 x"), "{table}");
}

#[test]
fn the_lowest_rate_is_the_records_own() {
    let runs = [step(OURS, 0, "31k/s", 0.5), step("gotatun", 0, "31k/s", 0.5)];
    let (cells, _) = figures::cells(&runs.iter().collect::<Vec<_>>());
    let table = figures::table(&cells);
    assert!(table.contains("below 31,000/s") && !table.contains("20,000"), "{table}");
    assert!(cells[0].ratio("gotatun").is_none(), "neither had a figure");
    assert_eq!(gate(&runs), 2);
}

#[test]
fn rounds_that_agree_to_the_last_digit_are_no_more_exact_than_the_ladder() {
    let rounds = 0..2;
    let runs: Vec<Run> =
        rounds.flat_map(|round| [step(OURS, round, "25k/s", 0.0), step("gotatun", round, "20k/s", 0.0)]).collect();
    let (cells, _) = figures::cells(&runs.iter().collect::<Vec<_>>());
    let (low, high) = cells[0].ratio("gotatun").unwrap().interval(0.95).unwrap();
    assert!(low < 1.0 && high > 1.5, "{low} to {high}");
}

#[test]
fn memory_that_was_not_read_is_no_zero() {
    let mut runs = streams("merged-all", "gro-off", &times(2.2, &QUIET));
    assert!(note(&runs, None).contains("10.0 MiB"));
    for run in &mut runs {
        run.metrics.remove("engine_peak_memory_bytes");
    }
    let text = conditions::text(&runs.iter().collect::<Vec<_>>(), None);
    assert!(text.contains("peak memory not read") && !text.contains("0.0 MiB"), "{text}");
    assert!(about(&note(&runs, None), "peak memory").contains("not measured"));
    assert_eq!(gate(&runs), 2);
}

#[test]
fn a_peak_is_judged_in_every_run() {
    let mut runs = streams("merged-all", "gro-off", &times(2.2, &QUIET));
    runs[4].metrics.insert("engine_peak_memory_bytes".to_owned(), 65.0 * MIB);
    assert_eq!(gate(&runs), 1);
}

#[test]
fn a_share_of_the_cipher_needs_the_bound_of_the_machine_that_measured() {
    let runs = streams("merged-all", "gro-off", &times(4.0, &QUIET));
    let without = note(&runs, None);
    assert!(without.contains("not in this record"), "{without}");
    let lacking: Vec<String> = judge(&runs, None).into_iter().flat_map(|judged| judged.lacking).collect();
    assert!(lacking.len() == 1 && lacking[0].contains("the cipher's bound was not kept"), "{lacking:?}");
    assert!(about(&without, "share of the cipher bound").contains("not measured"), "{without}");
    let with = about(&note(&runs, Some(10.0 * GBIT)), "share of the cipher bound");
    assert!(with.contains("40.0 % (") && with.contains("floor HELD by the best of 1 cells"), "{with}");
}

#[test]
fn the_bound_is_kept_beside_the_record_and_a_bound_that_is_none_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Beside::read(directory.path()).unwrap(), None);
    let beside = fetched("wireguard-go", Some("0.0.20260522-1"));
    beside.write(directory.path()).unwrap();
    assert_eq!(Beside::read(directory.path()).unwrap(), Some(beside));
    for bound in ["0.0", "-1.0"] {
        let text = format!(r#"{{"cipher_bits_per_second": {bound}, "peers": {{}}}}"#);
        fs::write(directory.path().join("peers.json"), text).unwrap();
        assert!(Beside::read(directory.path()).unwrap_err().to_string().contains("is none"));
    }
    fs::write(directory.path().join("peers.json"), "{").unwrap();
    assert!(Beside::read(directory.path()).is_err());
}

#[test]
fn the_ciphers_bound_is_a_rate_or_an_error() {
    let second = Duration::from_secs(1);
    assert!((cipher::rate(1_000_000, second, 2).unwrap() - 22.72e9).abs() < 1.0);
    assert!(cipher::rate(0, second, 2).is_err());
    assert!(cipher::rate(1, Duration::ZERO, 2).is_err());
    let bound = cipher::bound().unwrap();
    assert!(bound.is_finite() && bound > 0.0);
}

#[test]
fn a_packet_that_does_not_come_out_is_no_packet() {
    let mut buffers = [[0; 2048]; 2];
    let mut packet = vec![0; 100];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&100_u16.to_be_bytes());
    let mut ends = cipher::session().unwrap();
    cipher::carry(&mut ends, &packet, &mut buffers).unwrap();
    // A length that is another's, and a session that the other end does not have.
    packet[2..4].copy_from_slice(&60_u16.to_be_bytes());
    assert!(cipher::carry(&mut ends, &packet, &mut buffers).is_err());
    packet[2..4].copy_from_slice(&100_u16.to_be_bytes());
    let mut strangers = (cipher::session().unwrap().0, cipher::session().unwrap().1);
    assert!(cipher::carry(&mut strangers, &packet, &mut buffers).is_err());
}

fn fetched(name: &str, version: Option<&str>) -> Beside {
    let program = Program {
        path: format!("/peers/bin/{name}"),
        sha256: "5b".to_owned(),
        fetched: version.map(str::to_owned),
        not_fetched: version.is_none().then(|| "it came by mail".to_owned()),
    };
    Beside { cipher_bits_per_second: 13e9, peers: BTreeMap::from([(name.to_owned(), program)]) }
}

/// The complaint about a peer that says to be `said`.
fn outdated(name: &str, said: Option<&str>, beside: Option<&Beside>) -> Option<String> {
    let mut run = run(name, 0, &[(Factor::Test, "tcp-rr")], &[]);
    run.conditions.extend(said.map(|said| ("client.engine_version".to_owned(), json!(said))));
    conditions::outdated(&[&run], beside).pop()
}

#[test]
fn peers_must_be_as_new_as_what_is_claimed_of_them() {
    for (name, said) in [
        ("wireguard-go", "wireguard-go v0.0.20260522"),
        ("wireguard-go", "wireguard-go v0.1.0"),
        ("boringtun-cli", "boringtun 0.7.1"),
        ("gotatun", "gotatun-cli 0.10.2"),
    ] {
        assert_eq!(outdated(name, Some(said), None), None, "{said}");
    }
    for (name, said) in [
        ("wireguard-go", "wireguard-go v0.0.20250522"),
        ("boringtun-cli", "boringtun 0.7.0"),
        ("gotatun", "gotatun-cli 0.9.9"),
        ("gotatun", "gotatun-cli"),
    ] {
        assert!(outdated(name, Some(said), None).unwrap().contains("TOO OLD"), "{said}");
    }
    assert!(outdated("gotatun", None, None).unwrap().contains("is not known"));
}

#[test]
fn what_was_fetched_counts_before_what_a_program_says() {
    let said = Some("wireguard-go v0.0.20250522");
    assert_eq!(outdated("wireguard-go", said, Some(&fetched("wireguard-go", Some("0.0.20260522-1")))), None);
    assert!(outdated("wireguard-go", said, Some(&fetched("wireguard-go", Some("0.0.20250522-1")))).is_some());
    let unknown = outdated("wireguard-go", said, Some(&fetched("wireguard-go", None))).unwrap();
    assert!(unknown.contains("it came by mail"), "{unknown}");
}

#[test]
fn a_program_that_took_a_fetched_ones_place_is_not_the_fetched_one() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let program = |directory: &Path| versions::program(directory, "gotatun", &root.join("bin/gotatun")).unwrap();
    let (bin, noted) = (root.join("bin"), root.join("versions"));
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("gotatun"), "one").unwrap();
    assert!(program(root).not_fetched.unwrap().contains("did not fetch it"));
    fs::create_dir(&noted).unwrap();
    fs::write(noted.join("gotatun"), "0.10.2\n").unwrap();
    assert!(program(root).not_fetched.unwrap().contains("without its SHA-256"));
    // printf one | sha256sum
    let sum = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    fs::write(noted.join("gotatun.sha256"), format!("{sum}\n")).unwrap();
    assert_eq!((program(root).fetched.as_deref(), program(&bin).fetched.as_deref()), (Some("0.10.2"), Some("0.10.2")));
    fs::write(bin.join("gotatun"), "two").unwrap();
    assert!(program(root).not_fetched.unwrap().contains("another program"));
}

#[test]
fn conditions_must_be_known_and_equal() {
    let names = ["interface_mtu", "path_mtu", "mss", "congestion_control", "delivery", "settings", "kernel"];
    let under = |engine, test, change: &dyn Fn(&mut BTreeMap<String, Value>)| {
        let mut run = run(engine, 0, &[(Factor::Test, test)], &[]);
        for side in ["client", "server"] {
            run.conditions.extend(names.map(|name| (format!("{side}.{name}"), json!("the same"))));
        }
        change(&mut run.conditions);
        run
    };
    let unequal = |runs: &[Run]| conditions::unequal(&runs.iter().collect::<Vec<_>>());
    let same = |_: &mut BTreeMap<String, Value>| {};
    let of = |engines: [&'static str; 2]| engines.map(|engine| under(engine, "tcp-rr", &same));
    assert!(unequal(&of([OURS, PEERS[0]])).is_empty());

    let smaller = |conditions: &mut BTreeMap<String, Value>| {
        conditions.insert("client.mss".to_owned(), json!(1000));
    };
    let found = unequal(&[under(OURS, "tcp-rr", &smaller), under(PEERS[0], "tcp-rr", &same)]);
    assert_eq!(found, ["client.mss differs: 1000 for embedded; the same for wireguard-go (in 1 cells)"]);

    // Known of nobody is not equal; of datagrams there is nothing to know.
    let unknown = |conditions: &mut BTreeMap<String, Value>| {
        conditions.remove("client.mss");
    };
    assert_eq!(unequal(&[under(OURS, "tcp-rr", &unknown), under(PEERS[0], "tcp-rr", &unknown)]).len(), 1);
    assert!(unequal(&[under(OURS, "udp-stream", &unknown), under(PEERS[0], "udp-stream", &unknown)]).is_empty());
    // The raw underlay is no engine to be equal with.
    assert!(unequal(&[under(OURS, "tcp-rr", &same), under("raw", "tcp-rr", &unknown)]).is_empty());
}

#[test]
fn every_version_that_an_engine_said_is_shown() {
    let mut one = run("gotatun", 0, &[(Factor::Test, "tcp-rr")], &[]);
    one.conditions.insert("client.engine_version".to_owned(), json!("gotatun-cli 0.10.2"));
    one.conditions.insert("server.engine_version".to_owned(), json!("gotatun-cli 0.9.0"));
    let text = conditions::text(&[&one], None);
    assert!(
        text.contains("gotatun-cli 0.10.2 | gotatun-cli 0.9.0 (the record does not say what was fetched)"),
        "{text}"
    );
    let said = BTreeSet::from(["gotatun-cli 0.10.2".to_owned(), "gotatun-cli 0.9.0".to_owned()]);
    assert!(versions::outdated("gotatun", &said, None).is_some(), "one of its ends is too old");
}

#[test]
fn what_an_engine_used_is_told_by_what_it_bought() {
    let lasting = |test, name, rate, cpu: Option<f64>| {
        let mut run = run(OURS, 0, &[(Factor::Test, test)], &[(name, rate)]);
        run.metrics.extend(cpu.map(|cpu| ("engine_cpu_seconds".to_owned(), cpu)));
        let side = || json!({"length_ns": 500_000_000});
        run.meters = Some(Meters { client: side(), server: side() });
        run
    };
    let stream = lasting("tcp-stream", "throughput_bits_per_second", 4.0 * GBIT, Some(1.0));
    let round_trips = lasting("tcp-rr", "rr_per_second", 10_000.0, Some(0.25));
    let both = conditions::text(&[&stream, &round_trips], None);
    let told =
        "its processes used 0.500 CPU seconds per Gbit of the TCP streams and 50 CPU µs per TCP round trip (medians)";
    assert!(both.contains(told), "{both}");
    let one = conditions::text(&[&round_trips], None);
    assert!(one.contains("its processes used 50 CPU µs per TCP round trip (medians)"), "{one}");
    let unread = conditions::text(&[&lasting("tcp-rr", "rr_per_second", 10_000.0, None)], None);
    assert!(unread.contains("its CPU time was not read"), "{unread}");
}

fn record(runs: Vec<Run>, end: Option<EndStatus>) -> Record {
    let header = Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        wglab: "0.1.0".to_owned(),
        started: "2026-08-22T12:00:00Z".to_owned(),
        class: Class::OneMachine,
        command: Vec::new(),
        seed: 7,
        plan_hash: "5b6c".to_owned(),
        compare: None,
        levels: BTreeMap::new(),
        min_effect: None,
        policy: None,
        plan: json!({}),
        nodes: BTreeMap::new(),
        resumes: None,
    };
    let end = end.map(|status| End {
        status,
        reason: (status == EndStatus::Partial).then(|| "interrupted".to_owned()),
        runs: 0,
        duration_ms: 1,
        precision: None,
        awaits_phase: None,
    });
    Record {
        header,
        resumed: Vec::new(),
        runs,
        superseded: Vec::new(),
        end,
        cut: None,
        whole_bytes: 0,
        notes: Vec::new(),
    }
}

#[test]
fn a_part_of_a_record_is_told() {
    assert_eq!(whole::partial(&record(Vec::new(), Some(EndStatus::Complete))), None);
    assert!(whole::partial(&record(Vec::new(), Some(EndStatus::Partial))).unwrap().ends_with("planned: interrupted"));
    assert!(whole::partial(&record(Vec::new(), None)).unwrap().ends_with("planned: it has no end"));
}

#[test]
fn runs_that_count_nowhere_are_told_with_their_reason() {
    let mut runs = streams("merged-all", "gro-off", &times(2.2, &QUIET));
    for run in &mut runs[..3] {
        (run.status, run.reason) = (Status::Failed, Some("the daemon died".to_owned()));
    }
    runs[3].proof.clear();
    let told = whole::unusable(&record(runs, Some(EndStatus::Complete)));
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], "3 runs of embedded, wireguard-go: failed: the daemon died");
    assert!(told[1].contains("no proof"), "{}", told[1]);
}
