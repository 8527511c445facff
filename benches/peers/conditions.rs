//! Under which conditions the engines worked: read back, printed, and required to be equal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;
use wglab::cell::{Cell, Factor};
use wglab::record::Run;
use wglab::stats::summary;

use crate::beside::Beside;
use crate::figures::{OURS, PEERS};
use crate::versions;

/// What must be the same for every engine of a cell. The rest (buffers, offloads) is each engine's own best.
const EQUAL: [&str; 7] = ["interface_mtu", "path_mtu", "mss", "congestion_control", "delivery", "settings", "kernel"];

/// One paragraph per engine: version, buffers, offloads, memory.
pub(crate) fn text(runs: &[&Run], beside: Option<&Beside>) -> String {
    let mut text = String::new();
    let engines = [OURS].into_iter().chain(PEERS);
    for engine in engines {
        let of_engine: Vec<&&Run> = runs.iter().filter(|run| run.factors.get(Factor::Engine) == Some(engine)).collect();
        if of_engine.is_empty() {
            continue;
        }
        let read = |name: &str| {
            let values = seen(&of_engine, name);
            if values.is_empty() { "not read".to_owned() } else { values.into_iter().collect::<Vec<_>>().join(" | ") }
        };
        let fetched = if engine == OURS { String::new() } else { versions::told(engine, beside) };
        let peak = of_engine.iter().filter_map(|run| run.metrics.get("engine_peak_memory_bytes")).copied();
        let peak = peak.reduce(f64::max).map_or_else(
            || "peak memory not read".to_owned(),
            |peak| format!("peak memory {:.1} MiB", peak / f64::from(1 << 20)),
        );
        let _infallible = writeln!(text, "{engine}: version {}{fetched}", read("engine_version"));
        let _infallible = writeln!(text, "  granted: {}", read("engine_granted"));
        if engine == OURS {
            let _infallible = writeln!(text, "  offloads: {}", read("engine_offloads"));
        }
        let _infallible = writeln!(text, "  {peak}; {}", cost(&of_engine));
    }
    text + "\n"
}

/// What the engines of both ends said in all these runs.
fn seen(runs: &[&&Run], name: &str) -> BTreeSet<String> {
    let fields = ["client", "server"].map(|side| format!("{side}.{name}"));
    runs.iter().flat_map(|run| fields.iter().filter_map(|field| run.conditions.get(field))).map(short).collect()
}

/// Peers that are not as new as they must be, or of which nobody can tell.
pub(crate) fn outdated(runs: &[&Run], beside: Option<&Beside>) -> Vec<String> {
    let of_engine =
        |engine| -> Vec<&&Run> { runs.iter().filter(|run| run.factors.get(Factor::Engine) == Some(engine)).collect() };
    let took_part = PEERS.into_iter().map(|peer| (peer, of_engine(peer))).filter(|(_, runs)| !runs.is_empty());
    took_part.filter_map(|(peer, runs)| versions::outdated(peer, &seen(&runs, "engine_version"), beside)).collect()
}

/// What the engine's own CPU time bought: a gigabit, over all its stream runs, and a round trip, over all its transactions. An
/// engine that is quick to answer may pay for it here.
fn cost(runs: &[&&Run]) -> String {
    let gigabit = cost_of(runs, "tcp-stream", "throughput_bits_per_second", 1e9);
    let round_trip = cost_of(runs, "tcp-rr", "rr_per_second", 1.0);
    let told = [
        gigabit.map(|seconds| format!("{seconds:.3} CPU seconds per Gbit of the TCP streams")),
        round_trip.map(|seconds| format!("{:.0} CPU µs per TCP round trip", seconds * 1e6)),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    if told.is_empty() {
        return "its CPU time was not read".to_owned();
    }
    format!("its processes used {} (medians)", told.join(" and "))
}

/// CPU seconds for `unit` of what `metric` says was done in a second: the median over the runs of `test`.
fn cost_of(runs: &[&&Run], test: &str, metric: &str, unit: f64) -> Option<f64> {
    let costs: Vec<f64> = runs
        .iter()
        .filter(|run| run.factors.get(Factor::Test) == Some(test))
        .filter_map(|run| Some((run.metrics.get("engine_cpu_seconds")?, run.metrics.get(metric)?, seconds(run)?)))
        .filter(|(_, rate, _)| **rate > 0.0)
        .map(|(cpu, rate, seconds)| cpu / (rate / unit * seconds))
        .collect();
    summary::median(&costs)
}

/// The time that the run's meters covered.
fn seconds(run: &Run) -> Option<f64> {
    let length = run.meters.as_ref()?.client.get("length_ns")?.as_f64()?;
    (length > 0.0).then_some(length / 1e9)
}

/// A condition without its quotes and braces.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let all: Vec<String> = fields.iter().map(|(name, value)| format!("{name} {}", short(value))).collect();
            all.join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
    }
}

/// Where two engines of one cell worked under different conditions, or a condition that must be known is not.
pub(crate) fn unequal(runs: &[&Run]) -> Vec<String> {
    let mut cells: BTreeMap<Cell, BTreeMap<String, BTreeMap<String, BTreeSet<String>>>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.factors.get(Factor::Engine) != Some("raw")) {
        let cell = run.factors.clone().without(Factor::Engine);
        let engine = run.factors.get(Factor::Engine).unwrap_or_default();
        for side in ["client", "server"] {
            for name in EQUAL {
                let field = format!("{side}.{name}");
                let value = run.conditions.get(&field).map_or_else(|| "not known".to_owned(), short);
                let values = cells.entry(cell.clone()).or_default().entry(field).or_default();
                values.entry(value).or_default().insert(engine.to_owned());
            }
        }
    }
    let mut found = BTreeMap::<String, usize>::new();
    let unknown = |cell: &Cell, field: &str, values: &BTreeMap<String, BTreeSet<String>>| {
        // Datagrams have neither; every other condition must be known.
        let of_tcp = field.ends_with(".mss") || field.ends_with(".congestion_control");
        let must = !of_tcp || cell.get(Factor::Test).is_some_and(|test| test.starts_with("tcp"));
        must && values.contains_key("not known")
    };
    let all = cells
        .into_iter()
        .flat_map(|(cell, fields)| fields.into_iter().map(move |(name, seen)| (cell.clone(), name, seen)));
    for (_, field, values) in all.filter(|(cell, field, values)| values.len() > 1 || unknown(cell, field, values)) {
        let sides: Vec<String> = values
            .into_iter()
            .map(|(value, engines)| format!("{value} for {}", engines.into_iter().collect::<Vec<_>>().join(", ")))
            .collect();
        *found.entry(format!("{field} differs: {}", sides.join("; "))).or_default() += 1;
    }
    found.into_iter().map(|(text, cells)| format!("{text} (in {cells} cells)")).collect()
}
