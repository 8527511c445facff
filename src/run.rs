//! The conductor: from a plan to a record.
//!
//! [`run`] is the whole story: open the record, take the machine's lock, raise the lab, visit every arrangement in the plan's
//! order, write each run as it ends, take everything down, close the record.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::plan::{Arrangement, Plan, TestPlan};
use crate::record::{Class, End, EndStatus, Header, Run, Status};

pub mod beacon;
mod found;
mod lock;
mod jobs;
mod metrics;
mod proof;
mod raise;
mod recorder;
mod states;
mod visit;

pub use raise::Lab;
pub use recorder::{RUNS, Recorder};

/// What is to be done.
pub struct Order<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The record's directory.
    pub directory: &'a Path,
    /// Everything of the header that the plan does not say. Its nodes are filled in when they are known.
    pub header: Header,
}

/// Who is told how the run goes. Everything here is for people; the record has it all.
pub trait Watch {
    /// Another run has the machine: its process id.
    fn waits_for(&mut self, pid: i32);
    /// A stage of raising the lab or taking it down.
    fn stage(&mut self, what: &str);
    /// Something that a reader must know: a refusal, a mount that could not be had.
    fn note(&mut self, text: &str);
    /// A run begins.
    fn begins(&mut self, run: Progress<'_>);
    /// A run has ended.
    fn ended(&mut self, run: &Run);
}

/// Where the run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// What is measured.
    pub arrangement: &'a Arrangement,
    /// With which traffic.
    pub test: &'a TestPlan,
    /// The round, from 1.
    pub round: u32,
    /// Runs that are over.
    pub done: u64,
    /// Runs in all.
    pub runs: u64,
    /// From now to the last run's end, by the plan and the pace so far.
    pub left: Duration,
}

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    /// The record's directory.
    pub directory: PathBuf,
    /// Whether everything planned is in the record.
    pub end: End,
    /// The signal that cut it short, if one did.
    pub interrupted: Option<&'static str>,
    /// Why it was cut short otherwise.
    pub failure: Option<anyhow::Error>,
}

/// Carries `order` out. `interrupt` resolves to a signal's name when the user wants it to end.
///
/// # Errors
/// Nothing could be measured: the record cannot be written, or the lab cannot be raised. Once the first run is there, a
/// failure ends the record as partial and is told in [`Finished::failure`].
pub async fn run(
    order: Order<'_>,
    watch: &mut dyn Watch,
    interrupt: impl Future<Output = &'static str>,
) -> anyhow::Result<Finished> {
    let mut recorder = Recorder::create(order.directory)?;
    tokio::pin!(interrupt);

    let raised = tokio::select! {
        raised = raise(order.plan, watch) => raised,
        signal = &mut interrupt => {
            recorder.discard()?;
            let end = End { status: EndStatus::Partial, reason: Some(signal.to_owned()), runs: 0, duration_ms: 0 };
            return Ok(Finished { directory: order.directory.to_owned(), end, interrupted: Some(signal), failure: None });
        }
    };
    let (_lock, mut lab, begun) = match raised {
        Ok(raised) => raised,
        Err(error) => {
            recorder.discard()?;
            return Err(error);
        }
    };
    // The plan's hash is taken: tunnels that were found belong to the hosts, not to the experiment.
    let plan = lab.with_found(order.plan);
    for note in &lab.notes {
        watch.note(note);
    }
    let mut header = order.header;
    header.nodes = lab.describe();
    recorder.header(&header)?;

    let mut interrupted = None;
    let mut failure = None;
    tokio::select! {
        measured = measure(&plan, header.seed, begun, &mut lab, &mut recorder, watch) => failure = measured.err(),
        signal = &mut interrupt => interrupted = Some(signal),
    }
    if let Some(error) = failure.take() {
        failure = Some(lab.explain(error));
    }
    watch.stage("taking the lab down");
    if let Err(error) = lab.down().await {
        failure = Some(match failure {
            Some(first) => first.context(format!("and then: {error:#}")),
            None => error,
        });
    }
    let reason = match (interrupted, &failure) {
        (Some(signal), _) => Some(format!("interrupted by {signal}")),
        (None, Some(error)) => Some(format!("{error:#}")),
        (None, None) => None,
    };
    let end = End {
        status: if reason.is_none() { EndStatus::Complete } else { EndStatus::Partial },
        reason,
        runs: recorder.runs(),
        duration_ms: millis(begun.elapsed()),
    };
    recorder.end(&end)?;
    Ok(Finished { directory: recorder.directory().to_owned(), end, interrupted, failure })
}

async fn raise(plan: &Plan, watch: &mut dyn Watch) -> anyhow::Result<(lock::Lock, Lab, Instant)> {
    let lock = lock::take(|pid| watch.waits_for(pid)).await?;
    let begun = Instant::now();
    let lab = Lab::raise(plan, watch).await?;
    Ok((lock, lab, begun))
}

/// Every visit, in order. A run that cannot be measured is written down with the reason; only a lost lab ends the run.
async fn measure(
    plan: &Plan,
    seed: u64,
    begun: Instant,
    lab: &mut Lab,
    recorder: &mut Recorder,
    watch: &mut dyn Watch,
) -> anyhow::Result<()> {
    let runs = plan.forecast.runs;
    let started = Instant::now();
    let mut order: u32 = 0;
    for planned in &plan.visits {
        let arrangement = &plan.arrangements[planned.arrangement];
        let ready = lab.switch(plan, arrangement).await?;
        for test in planned.tests.iter().map(|index| &plan.tests[*index]) {
            let done = u64::from(order);
            let left = time_left(plan, started.elapsed(), done, runs);
            watch.begins(Progress { arrangement, test, round: planned.round, done, runs, left });
            let at_ms = millis(begun.elapsed());
            let mut run = visit::blank(plan, arrangement, test, planned.round.saturating_sub(1), order);
            run.at_ms = Some(at_ms);
            match &ready {
                Ok(()) => visit::measure(plan, arrangement, test, seed.wrapping_add(done), lab, &mut run).await?,
                Err(why) => {
                    run.status = Status::Invalid;
                    run.reason = Some(why.clone());
                }
            }
            recorder.run(&run)?;
            watch.ended(&run);
            order += 1;
        }
    }
    Ok(())
}

/// The plan's time for what is left, until the pace of this run says better.
fn time_left(plan: &Plan, elapsed: Duration, done: u64, runs: u64) -> Duration {
    let planned = plan.forecast.time.duration();
    if done < 10 || runs == 0 {
        return planned.saturating_sub(elapsed);
    }
    elapsed.mul_f64((runs - done.min(runs)) as f64 / done as f64)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What kind of run a plan makes.
pub fn class(plan: &Plan) -> Class {
    let made = plan.nodes.iter().filter(|node| states::is_made_here(node)).count();
    match made {
        0 => Class::Hosts,
        made if made == plan.nodes.len() => Class::OneMachine,
        _ => Class::Mixed,
    }
}
