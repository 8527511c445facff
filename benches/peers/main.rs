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
//! The measuring is `wglab run` of `topology.toml`, which lies beside this file, so the record is one like any other, with `peers.json`
//! beside it (`beside`). Exit codes: 0 done; 1 under `--gate`, a floor was missed, or a figure is below it; 2 not everything could be
//! measured, or the engines did not work under equal conditions, or under `--gate` a peer is too old; 3 under `--gate`, figures
//! hold the floors but intervals cross them; 130 interrupted.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};
use wglab::record::{Record, Run};

use crate::beside::Beside;
use crate::figures::{OURS, PEERS};

mod bars;
mod beside;
mod cipher;
mod conditions;
mod figures;
mod limits;
mod versions;
mod whole;

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
        let measures = [&options.peers, &options.out].iter().any(|option| option.is_some())
            || options.rounds.is_some()
            || options.seconds.is_some()
            || !options.only.is_empty();
        ensure!(
            options.record.is_none() || !measures,
            "--record judges what is there, all of it: --peers, --rounds, --seconds, --only and --out are for measuring"
        );
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
    let mut invalid = Vec::new();
    let directory = match &options.record {
        Some(record) => record.clone(),
        None => match measure(options, &mut invalid)? {
            Measured::Whole(directory) => directory,
            Measured::Interrupted => return Ok(ExitCode::from(130)),
        },
    };
    let path = directory.join("runs.jsonl");
    let record = Record::parse(std::fs::read(&path).with_context(|| path.display().to_string())?)?;
    let beside = Beside::read(&directory)?;
    invalid.extend(whole::partial(&record));
    invalid.extend(whole::unusable(&record));
    let runs: Vec<&Run> = record.usable().collect();
    ensure!(!runs.is_empty(), "nothing was measured: {}", invalid.join("; "));

    let mut text = conditions::text(&runs, beside.as_ref());
    invalid.extend(conditions::unequal(&runs));
    let (cells, mut lacking) = figures::cells(&runs);
    let bound = beside.as_ref().map(|beside| beside.cipher_bits_per_second);
    let judged = bars::judge(&cells, &runs, bound);
    lacking.extend(conditions::outdated(&runs, beside.as_ref()));
    lacking.extend(judged.iter().flat_map(|judged| judged.lacking.clone()));
    // Whoever measured a part asked for a part to be judged.
    if !record.header.command.iter().any(|argument| argument == "--only") {
        lacking.extend(judged.iter().filter_map(bars::Judged::unmeasured));
    }
    if !cells.iter().any(|cell| cell.fastest().is_some_and(|peer| cell.ratio(peer).is_some())) {
        lacking.push("nothing was compared with a peer: a gate has nothing to judge".to_owned());
    }
    text += &figures::table(&cells);
    text += &bars::note(&judged, bound);
    for problem in invalid.iter().chain(&lacking) {
        text += &format!("not as it should be: {problem}\n");
    }
    print!("{text}");
    println!("record: {}", directory.display());
    if options.record.is_none() {
        std::fs::write(directory.join("peers.txt"), &text)?;
    }
    Ok(ExitCode::from(bars::exit(options.gate, !invalid.is_empty(), !lacking.is_empty(), &judged)))
}

/// How the measuring ended.
enum Measured {
    Whole(PathBuf),
    Interrupted,
}

/// Runs the lab into the record's directory.
fn measure(options: &Options, invalid: &mut Vec<String>) -> Result<Measured> {
    let mut engines = vec![format!("{OURS}=embedded")];
    let mut peers = BTreeMap::new();
    for name in options.wanted() {
        let (directory, path) = find(options.peers.as_deref(), name)?;
        engines.push(format!("{name}={}", path.display()));
        peers.insert(name.to_owned(), versions::program(directory, name, &path)?);
    }
    let scratch = tempfile::tempdir()?;
    let topology = scratch.path().join("peers.toml");
    std::fs::write(&topology, TOPOLOGY)?;
    if let Some(why) = refused(&topology, &engines, &options.only)? {
        // Without settings there is one level of them fewer, and the table says which.
        invalid.push(format!("the guest's GRO was left as it is, neither off nor on: {why}"));
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
    // Before the lab: while nothing else runs, and so that an interrupted record has it, too.
    Beside { cipher_bits_per_second: cipher::bound()?, peers }.write(&out)?;
    let mut run = wglab();
    run.arg("run").arg(&topology).arg("--out").arg(&out).args(engines.iter().flat_map(|engine| ["--engine", engine]));
    run.args(options.only.iter().flat_map(|only| ["--only", only]));
    if let Some(rounds) = options.rounds {
        run.args(["--rounds", &rounds.to_string()]);
    }
    if let Some(seconds) = options.seconds {
        run.args(["--duration", &format!("{}ms", (seconds * 1000.0).round())]);
    }
    // An interrupt reaches the lab as well, which keeps what was measured: this bench lives on to say where.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _interrupts = runtime.block_on(async { signal(SignalKind::interrupt()) })?;
    // The report of the run itself compares every engine with the first: what is printed here says that and more.
    let status = run.stdout(Stdio::null()).status().context("wglab run")?;
    let there = out.join("runs.jsonl").is_file();
    match status.code() {
        // What a run could not measure is in its record.
        Some(0 | 2) if there => Ok(Measured::Whole(out)),
        _ if there => {
            eprintln!(
                "peers: wglab run ended with {status}. What was measured is in {0}; go on with\n  {1} run --resume {0}\nand judge it with\n  \
                 cargo bench --bench peers -- --record {0}",
                out.display(),
                env!("CARGO_BIN_EXE_wglab")
            );
            if status.code() == Some(130) { Ok(Measured::Interrupted) } else { bail!("wglab run ended with {status}") }
        }
        _ => bail!("wglab run ended with {status}, and nothing was measured"),
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

/// The directory of the peers, and in it the program of one, whole path.
fn find<'a>(directory: Option<&'a Path>, name: &str) -> Result<(&'a Path, PathBuf)> {
    let directory = directory.with_context(|| {
        "where are the peers? benches/fetch-peers DIRECTORY fetches them; then say --peers DIRECTORY".to_owned()
    })?;
    let places = [directory.join(name), directory.join("bin").join(name)];
    let found = places.iter().find(|path| path.is_file());
    let found = found.with_context(|| {
        format!("{} has no {name}: benches/fetch-peers {} {name}", directory.display(), directory.display())
    })?;
    Ok((directory, found.canonicalize()?))
}
