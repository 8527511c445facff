//! `wglab run`: plan, measure, and say what was found.

use std::future::Future;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

use super::Exit;
use super::args::RunArgs;
use super::compare::{answer, policy, write_summary};
use super::files::{self, Named};
use super::output::Output;
use super::plan::plan_of;
use super::watch::Terminal;
use crate::plan::Plan;
use crate::record::{FORMAT, Header, Record, Status, VERSION};
use crate::run::{self, Finished, Order, RUNS, Resumed};
use crate::text::with_causes;
use crate::verdict::shell;

pub(super) fn run(args: &RunArgs, output: &Output) -> anyhow::Result<Exit> {
    let begun = match &args.resume {
        Some(path) => Some(Begun::read(path, &args.changed)?),
        None => None,
    };
    let plan = match &begun {
        Some(begun) => begun.plan()?,
        None => plan_of(&args.selection)?,
    };
    plan.left_out().iter().for_each(|line| output.note(line));
    let started = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
    let (directory, mut header) = match &begun {
        Some(begun) => (begun.directory.clone(), Header { started, ..begun.record.header.clone() }),
        None => {
            let directory = files::new_record(args.out.as_deref(), &args.selection.topology, &started);
            (directory, header(&plan, started)?)
        }
    };
    header.wglab = env!("CARGO_PKG_VERSION").to_owned();
    let policy = policy(&args.judging)?;
    let resumed =
        begun.as_ref().map(|begun| Resumed { record: &begun.record, bytes: begun.bytes, changed: &args.changed });
    let order = Order { plan: &plan, directory: &directory, header, resumed, policy: &policy };
    let finished = block_on(async {
        let mut watch = Terminal::new(output);
        let finished = run::run(order, &mut watch, interrupt()?).await;
        watch.finish();
        finished
    })?;
    if finished.end.runs == 0 {
        let why = finished.end.reason.as_deref().unwrap_or("no run was planned");
        output.reason(&format!("nothing was measured: {why}"));
        return Ok(if finished.interrupted.is_some() { Exit::Interrupted } else { Exit::NotMeasured });
    }
    if let Err(error) = files::remember(&finished.directory, args.resume.is_some()) {
        output.note(&with_causes(error.as_ref()));
    }
    let path = finished.directory.join(RUNS);
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read back {}", path.display()))?;
    let record = Record::parse(bytes)?;
    let named = Named { name: finished.directory.display().to_string(), record };
    // The table is derived: without it the record still has everything.
    if let Err(error) = write_summary(&finished.directory, &named.name, &named.record) {
        output.error(&error);
    }
    // Where a level is still to be measured there is nothing to judge.
    let gate = args.judging.gate && finished.by_hand.is_none();
    let gated = answer(&named, &policy, gate, args.judging.detail, output)?;
    Ok(exit(args, &finished, &named.record, gated, output))
}

/// Worst first: interrupted, then not measured, then what the gate says.
fn exit(args: &RunArgs, finished: &Finished, record: &Record, gated: Exit, output: &Output) -> Exit {
    if let Some(signal) = finished.interrupted {
        let on = run::resume_command(&finished.directory);
        output.reason(&format!(
            "interrupted by {signal}: what was measured is kept, marked partial; `{on}` goes on with it"
        ));
        return Exit::Interrupted;
    }
    if let Some(error) = &finished.failure {
        output.error(error);
        let on = run::resume_command(&finished.directory);
        output.reason(&format!("what was measured is kept, marked partial; `{on}` goes on with it"));
        return Exit::NotMeasured;
    }
    if let Some(what) = &finished.by_hand {
        output.reason(what);
        return Exit::NotMeasured;
    }
    let unmeasured = record.runs.iter().filter(|run| run.status != Status::Ok).count();
    if unmeasured > 0 && !args.allow_partial {
        let total = record.runs.len();
        output.reason(&format!("{unmeasured} of {total} runs could not be measured; --allow-partial accepts that"));
        return Exit::NotMeasured;
    }
    gated
}

fn header(plan: &Plan, started: String) -> anyhow::Result<Header> {
    Ok(Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        wglab: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        class: run::class(plan),
        command: repeatable(std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned())),
        seed: plan.seed,
        plan_hash: plan.hash(),
        compare: plan.compare,
        levels: plan.levels.clone(),
        min_effect: plan.min_effect.map(|effect| effect.fraction()),
        policy: plan.policy.clone(),
        plan: serde_json::to_value(plan)?,
        nodes: std::collections::BTreeMap::new(),
        resumes: None,
    })
}

/// A record that is to be gone on with.
struct Begun {
    directory: PathBuf,
    record: Record,
    bytes: u64,
}

impl Begun {
    /// Reads the record in `directory`, and refuses one that is complete or was written by another wglab.
    fn read(path: &Path, changed: &[String]) -> anyhow::Result<Self> {
        let directory = match path.file_name() {
            Some(name) if name == RUNS => path.parent().unwrap_or_else(|| Path::new("")).to_owned(),
            _ => path.to_owned(),
        };
        let file = directory.join(RUNS);
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read the record {}", file.display()))?;
        let length = u64::try_from(bytes.len())?;
        let record = Record::parse(bytes).with_context(|| format!("{}", file.display()))?;
        let again = shell(&record.header.command);
        if record.is_complete() {
            bail!("{} is complete: nothing is left to measure; `{again}` measures anew", directory.display());
        }
        let (then, now) = (&record.header.wglab, env!("CARGO_PKG_VERSION"));
        if then != now && !changed.iter().any(|name| name == "wglab") {
            bail!(
                "{} was begun by wglab {then}, and this is {now}: go on with that one, or add --changed wglab if it was changed on purpose",
                directory.display()
            );
        }
        Ok(Self { directory, record, bytes: length })
    }

    /// The plan that the record was begun with.
    fn plan(&self) -> anyhow::Result<Plan> {
        let header = &self.record.header;
        let plan: Plan = serde_json::from_value(header.plan.clone())
            .with_context(|| format!("the plan in {} cannot be read", self.directory.display()))?;
        if plan.hash() != header.plan_hash {
            bail!(
                "the plan in {} is not the one that its header names (hash {}): the file was changed, or this wglab reads plans differently",
                self.directory.display(),
                header.plan_hash
            );
        }
        Ok(plan)
    }
}

/// The command that measures the same again. A record is not overwritten, so the directory is left to be chosen.
fn repeatable(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut command = vec!["wglab".to_owned()];
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--out" {
            arguments.next();
        } else if !argument.starts_with("--out=") {
            command.push(argument);
        }
    }
    command
}

/// Resolves when the user, or the system, wants the program to end.
pub(super) fn interrupt() -> anyhow::Result<impl Future<Output = &'static str>> {
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    let mut hup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = int.recv() => "SIGINT",
            _ = term.recv() => "SIGTERM",
            _ = hup.recv() => "SIGHUP",
        }
    })
}

/// Runs the conductor on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

#[cfg(test)]
mod tests {
    use super::repeatable;

    #[test]
    fn a_repeated_run_chooses_its_own_directory() {
        let typed = ["run", "pair", "--out", "r1", "--rounds", "2", "--out=r2"].map(str::to_owned);
        assert_eq!(repeatable(typed.into_iter()), ["wglab", "run", "pair", "--rounds", "2"]);
    }
}
