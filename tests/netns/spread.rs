//! Streams that are spread over several tunnels of a pair, in a whole lab.

use std::fs;
use std::path::Path;

use libtest_mimic::Failed;
use serde_json::json;
use wglab::cell::Factor;
use wglab::record::{Record, Run, Status};

use crate::interop;
use crate::left_over::Holdings;
use crate::product::{WGLAB, record, text, wglab};
use crate::tamper;

pub(crate) const TESTS: &[super::Test] = &[
    ("streams_are_spread_over_several_tunnels", || several(None)),
    ("several_tunnels_of_wireguard_go", || several(Some(&interop::peer("wireguard-go").ok_or("checked")?))),
    ("several_tunnels_of_boringtun_cli", || several(Some(&interop::peer("boringtun-cli").ok_or("checked")?))),
    ("several_tunnels_of_gotatun", || several(Some(&interop::peer("gotatun").ok_or("checked")?))),
    ("streams_that_take_one_of_two_tunnels_are_refused", one_of_two),
    ("one_of_two_tunnels_through_a_relay_is_refused", relayed),
    ("a_second_of_two_tunnels_that_is_not_there_leaves_the_first", not_there),
];

/// A pair whose streams are spread over one tunnel and over two; `theirs` is a daemon to take instead of our own engine.
fn topology(directory: &Path, nodes: &str, theirs: Option<&Path>, about: &str) -> Result<(), Failed> {
    let engine = match theirs {
        Some(path) => format!("path = {path:?}"),
        None => "kind = \"embedded\"".to_owned(),
    };
    let file = format!(
        "nodes = [{nodes}]\npairs = [\"a1>a2\"]\ncompare = \"tunnels\"\nengines = [\"raw\", \"one\"]\ntunnels = [1, 2]\n\
         [engine.one]\n{engine}\n{about}\n[underlay]\npublic-ipv4 = {{ family = \"ipv4\" }}\n\
         [[test]]\nkind = \"tcp-stream\"\nstreams = [1, 4]\ndirection = \"both\"\ncongestion_control = \"cubic\"\n\
         [[test]]\nkind = \"udp-stream\"\nstreams = 3\nrate = \"6k/s\"\npayload = \"1200B\"\n\
         [[test]]\nkind = \"tcp-rr\"\ncongestion_control = \"cubic\"\n\
         [profile.quick]\nrounds = 2\nduration = \"200ms\"\nwarmup = \"50ms\"\n"
    );
    Ok(fs::write(directory.join("lab.toml"), file)?)
}

/// The level of tunnels of a run; absent for raw.
fn tunnels(run: &Run) -> Option<&str> {
    run.factors.get(Factor::Tunnels)
}

fn several(theirs: Option<&Path>) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    topology(directory.path(), "\"a1\", \"a2\"", theirs, "")?;
    let output = wglab(directory.path(), &["run", "lab.toml", "--out", "r"]).output()?;
    let record = record(&directory.path().join("r")).map_err(|error| format!("{error:?}: {}", text(&output)))?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    // Two rounds of six tests over the raw underlay and over one tunnel, and of the three that two tunnels take.
    assert_eq!(record.runs.len(), 2 * (6 + 6 + 3));
    for run in &record.runs {
        check(run)?;
    }
    // Another cell for another number of tunnels, each with its level.
    let compared = wglab(directory.path(), &["compare", "r", "--by", "tunnels"]).output()?;
    let said = text(&compared);
    assert_eq!(compared.status.code(), Some(0), "{said}");
    for words in ["1 tunnel", "2 tunnels", "tcp-stream, 4 streams"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("tcp-rr:"), "a test of one flow has no second level: {said}");
    before.restored()
}

/// A run is proved, over each of its tunnels, and says how many they were.
fn check(run: &Run) -> Result<(), Failed> {
    assert_eq!(run.status, Status::Ok, "{}: {:?}", run.factors, run.reason);
    assert!(!run.proof.is_empty() && run.proof.iter().all(|check| check.holds), "{:?}", run.proof);
    assert_eq!(run.conditions.get("tunnels"), tunnels(run).map(|level| json!(level.parse::<u32>().unwrap())).as_ref());
    let named = |start: &str| run.proof.iter().filter(|check| check.check.starts_with(start)).count();
    let several: usize = tunnels(run).map_or(Ok(0), str::parse)?;
    // From both ends.
    assert_eq!(named("bytes received through"), 2 * several, "{:?}", run.proof);
    assert_eq!(named("outer address of"), 2 * several, "{:?}", run.proof);
    if several == 0 {
        return Ok(());
    }
    let server = run.meters.as_ref().map(|meters| &meters.server).ok_or("a run has meters")?;
    let moved = |interface: &str| server["interfaces"][interface]["rx_bytes"].as_u64().unwrap_or(0);
    let bulk = run.factors.get(Factor::Streams).is_some_and(|streams| streams != "1");
    if bulk && several == 2 {
        // Both carried the streams that are theirs; in reverse, their acknowledgements.
        assert!(moved("wg0") > 1_000 && moved("wg1") > 1_000, "{} and {}", moved("wg0"), moved("wg1"));
    } else {
        assert!(moved("wg1") < 1_000, "{}", moved("wg1"));
    }
    Ok(())
}

/// The runs of a lab in which these nodes have tampered agents, of these kinds.
fn tampered(kinds: &[(&str, &str)]) -> Result<Record, Failed> {
    let directory = tempfile::tempdir()?;
    let this = std::env::current_exe()?.display().to_string();
    let agent = |(node, kind): &(&str, &str)| format!("[node.{node}]\nagent = [{this:?}, {kind:?}, {WGLAB:?}]\n");
    let about: String = kinds.iter().map(agent).collect();
    topology(directory.path(), "\"a1\", \"a2\", \"r1\"", None, &about)?;
    let file = directory.path().join("lab.toml");
    let all = fs::read_to_string(&file)?.replace("pairs = [\"a1>a2\"]", "pairs = [\"a1>a2\", \"r1>a2\"]");
    fs::write(file, all)?;
    let arguments = ["run", "lab.toml", "--out", "r", "--rounds", "1", "--only", "test=tcp-stream"];
    let output = wglab(directory.path(), &arguments).output()?;
    record(&directory.path().join("r")).map_err(|error| format!("{error:?}: {}", text(&output)).into())
}

/// Runs over two tunnels are refused for this reason, and those over one are not.
fn check_refused(record: &Record, because: &str) -> Result<(), Failed> {
    let runs = record.runs.iter().filter(|run| run.factors.get(Factor::Pair) == Some("a1>a2"));
    let (two, fewer): (Vec<_>, Vec<_>) = runs.partition(|run| tunnels(run) == Some("2"));
    assert_eq!((two.len(), fewer.len()), (2, 8), "four streams both ways; one and four, both ways, raw and over one");
    for run in fewer {
        assert_eq!(run.status, Status::Ok, "{}: {:?}", run.factors, run.reason);
    }
    for run in two {
        assert_eq!(run.status, Status::Invalid, "{}: {:?}", run.factors, run.proof);
        let reason = run.reason.clone().unwrap_or_default();
        assert!(reason.contains("not proved") && reason.contains(because), "{reason}");
    }
    Ok(())
}

fn one_of_two() -> Result<(), Failed> {
    let record = tampered(&[("a1", tamper::ONE_TUNNEL), ("a2", tamper::ONE_TUNNEL)])?;
    check_refused(&record, "bytes received through wg1 of")
}

fn relayed() -> Result<(), Failed> {
    let record = tampered(&[("a1", tamper::DETOUR_SECOND), ("r1", tamper::RELAY_SECOND)])?;
    check_refused(&record, "outer address of a2, seen by a1 through wg1")
}

fn not_there() -> Result<(), Failed> {
    let record = tampered(&[("a1", tamper::HOLD_SECOND)])?;
    for run in record.runs.iter().filter(|run| run.factors.get(Factor::Pair) == Some("a1>a2")) {
        let reason = run.reason.clone().unwrap_or_default();
        if tunnels(run) == Some("2") {
            assert_eq!(run.status, Status::Invalid, "{}", run.factors);
            assert!(reason.contains("wg1 on node a1"), "{reason}");
        } else {
            assert_eq!(run.status, Status::Ok, "{}: {reason}", run.factors);
        }
    }
    Ok(())
}
