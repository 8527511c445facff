//! The embedded engine against the other userspace ones, in one lab, interleaved over rounds: every delivery, both directions,
//! with the guest's GRO off and on. Prints medians, ratios against the fastest peer with their 95 % intervals, and how each
//! stands against what must hold (`bars`).
//!
//! ```text
//! benches/fetch-peers DIRECTORY
//! cargo bench --bench peers -- --peers DIRECTORY [--gate] [--rounds 6] [--seconds 1] [--only FACTOR=LEVEL[,LEVEL]]... [--out RECORD]
//! cargo bench --bench peers -- --record RECORD [--gate]         judges a record that is there
//! ```
//!
//! The measuring is `wglab run` of `topology.toml`, which lies beside this file, so the record is one like any other. Exit codes: 0 done; 1 a floor
//! was missed under `--gate`; 2 not everything could be measured, or the engines did not work under equal conditions.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use wglab::cell::Factor;
use wglab::record::{Record, Run};

mod bars;
mod cipher;
mod conditions;
mod figures;

/// The engines of the lab: ours, and the peers by the names of their programs.
pub(crate) const OURS: &str = "embedded";
pub(crate) const PEERS: [&str; 3] = ["wireguard-go", "boringtun-cli", "gotatun"];

const TOPOLOGY: &str = include_str!("topology.toml");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` starts benches, too.
        eprintln!("peers: a measurement, not a test: run it with cargo bench");
        return ExitCode::SUCCESS;
    }
    match Options::parse(arguments).and_then(|options| bench(&options)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("peers: {error:#}");
            ExitCode::from(2)
        }
    }
}

#[derive(Debug, Default)]
struct Options {
    peers: Option<PathBuf>,
    rounds: Option<u32>,
    seconds: Option<f64>,
    only: Vec<String>,
    out: Option<PathBuf>,
    record: Option<PathBuf>,
    gate: bool,
}

impl Options {
    fn parse(arguments: Vec<String>) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--bench" => {}
                "--gate" => options.gate = true,
                "--peers" => options.peers = Some(value()?.into()),
                "--rounds" => options.rounds = Some(value()?.parse().context("--rounds takes a whole number")?),
                "--seconds" => options.seconds = Some(value()?.parse().context("--seconds takes a number")?),
                "--only" => options.only.push(value()?),
                "--out" => options.out = Some(value()?.into()),
                "--record" => options.record = Some(value()?.into()),
                _ => bail!(
                    "there is no option {argument}; the options are --peers DIRECTORY, --rounds N, --seconds N, --only FACTOR=LEVEL, --out \
                     RECORD, --record RECORD, --gate"
                ),
            }
        }
        options.peers = options.peers.or_else(|| std::env::var_os("WGLAB_PEERS").map(PathBuf::from));
        Ok(options)
    }

    /// The peers that take part: all, unless `--only engine=` names some.
    fn wanted(&self) -> Vec<&'static str> {
        let named: Vec<&str> = self.only.iter().filter_map(|only| only.strip_prefix("engine=")).collect();
        let asked = |name: &&str| named.is_empty() || named.iter().any(|list| list.split(',').any(|one| one == *name));
        PEERS.into_iter().filter(asked).collect()
    }
}

fn bench(options: &Options) -> Result<ExitCode> {
    let mut problems = Vec::new();
    let directory = match &options.record {
        Some(record) => record.clone(),
        None => measure(options, &mut problems)?,
    };
    let path = directory.join("runs.jsonl");
    let record = Record::parse(std::fs::read(&path).with_context(|| path.display().to_string())?)?;
    problems.extend(unusable(&record));
    let runs: Vec<&Run> = record.usable().collect();
    ensure!(!runs.is_empty(), "nothing was measured: {}", problems.join("; "));

    let mut text = conditions::text(&runs, options.peers.as_deref());
    problems.extend(conditions::unequal(&runs));
    let cells = figures::cells(&runs);
    let bound = cipher::bound();
    let judged = bars::judge(&cells, &runs, bound);
    if options.gate && options.only.is_empty() {
        problems.extend(judged.iter().filter_map(bars::Judged::unmeasured));
    }
    if options.gate && !cells.iter().any(|cell| cell.fastest().is_some_and(|peer| cell.ratio(peer).is_some())) {
        problems.push("nothing was compared with a peer: a gate has nothing to judge".to_owned());
    }
    text += &figures::table(&cells);
    text += &bars::note(&judged, bound);
    for problem in &problems {
        text += &format!("not as it should be: {problem}\n");
    }
    print!("{text}");
    println!("record: {}", directory.display());
    if options.record.is_none() {
        std::fs::write(directory.join("peers.txt"), &text)?;
    }
    Ok(if !problems.is_empty() {
        ExitCode::from(2)
    } else if options.gate && judged.iter().any(|judged| !judged.holds()) {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// Runs the lab; returns the record's directory.
fn measure(options: &Options, problems: &mut Vec<String>) -> Result<PathBuf> {
    let wanted = options.wanted();
    let mut engines = vec![format!("{OURS}=embedded")];
    for name in &wanted {
        engines.push(format!("{name}={}", find(options.peers.as_deref(), name)?.display()));
    }
    let scratch = tempfile::tempdir()?;
    let topology = scratch.path().join("peers.toml");
    std::fs::write(&topology, TOPOLOGY)?;
    if let Some(why) = refused(&topology, &engines, &options.only)? {
        // Without settings there is one level of them fewer, and the table says which.
        problems.push(format!("the guest's GRO was left as it is, neither off nor on: {why}"));
        std::fs::write(&topology, without_settings(TOPOLOGY))?;
    }
    let out = match &options.out {
        Some(out) => out.clone(),
        None => {
            let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
            PathBuf::from(format!("wglab-records/peers-{time}"))
        }
    };
    ensure!(!out.join("runs.jsonl").exists(), "{} is a record already: choose another --out", out.display());
    let mut run = wglab();
    run.arg("run").arg(&topology).arg("--out").arg(&out).args(engines.iter().flat_map(|engine| ["--engine", engine]));
    run.args(options.only.iter().flat_map(|only| ["--only", only]));
    if let Some(rounds) = options.rounds {
        run.args(["--rounds", &rounds.to_string()]);
    }
    if let Some(seconds) = options.seconds {
        run.args(["--duration", &format!("{}ms", (seconds * 1000.0).round())]);
    }
    // The report of the run itself compares every engine with the first: what is printed here says that and more.
    let status = run.stdout(Stdio::null()).status().context("wglab run")?;
    match status.code() {
        // What a run could not measure is in its record.
        Some(0 | 2) if out.join("runs.jsonl").is_file() => Ok(out),
        _ => bail!("wglab run ended with {status}"),
    }
}

fn wglab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wglab"));
    command.stdin(Stdio::null());
    command
}

/// Why the topology cannot be planned here, if it is its settings that cannot.
fn refused(topology: &Path, engines: &[String], only: &[String]) -> Result<Option<String>> {
    let mut plan = wglab();
    plan.arg("plan").arg(topology).args(engines.iter().flat_map(|engine| ["--engine", engine]));
    let output = plan.args(only.iter().flat_map(|only| ["--only", only])).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok((!output.status.success() && said.contains("cannot apply settings")).then(|| said.trim().to_owned()))
}

/// The topology without its `[settings]` tables.
fn without_settings(topology: &str) -> String {
    let mut inside = false;
    let outside = |line: &&str| {
        if line.starts_with('[') {
            inside = line.starts_with("[settings");
        }
        !inside
    };
    topology.lines().filter(outside).map(|line| format!("{line}\n")).collect()
}

/// The peer's program, whole path.
fn find(directory: Option<&Path>, name: &str) -> Result<PathBuf> {
    let directory = directory.with_context(|| {
        "where are the peers? benches/fetch-peers DIRECTORY fetches them; then say --peers DIRECTORY".to_owned()
    })?;
    let places = [directory.join(name), directory.join("bin").join(name)];
    let found = places.iter().find(|path| path.is_file());
    let found = found.with_context(|| {
        format!("{} has no {name}: benches/fetch-peers {} {name}", directory.display(), directory.display())
    })?;
    Ok(found.canonicalize()?)
}

/// What was not measured, with the reasons, one for each.
fn unusable(record: &Record) -> Vec<String> {
    let mut reasons: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for run in record.runs.iter().filter(|run| !run.usable()) {
        let reason = run.reason.clone().unwrap_or_else(|| run.status.text().to_owned());
        *counts.entry(reason.clone()).or_default() += 1;
        reasons.entry(reason).or_default().extend(run.factors.get(Factor::Engine));
    }
    let line = |(reason, engines): (String, BTreeSet<&str>)| {
        let engines: Vec<&str> = engines.into_iter().collect();
        format!("{} runs of {}: {reason}", counts.get(&reason).copied().unwrap_or(0), engines.join(", "))
    };
    reasons.into_iter().map(line).collect()
}
