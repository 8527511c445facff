//! The conductor: from a plan to a record.
//!
//! [`run`] is the whole story: open the record, take the machine's lock, and in each phase see to the stacks, raise the lab,
//! visit every arrangement in the plan's order, write each run as it ends and take everything down; then close the record.
//! Where every visit switches stacks by itself there is one phase.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::plan::{Arrangement, Plan, TestPlan};
use crate::record::{Class, End, Header, Record, Run};
use crate::text::with_causes;
use crate::verdict::Policy;

mod adaptive;
pub mod beacon;
mod found;
mod jobs;
mod lock;
mod metrics;
mod phases;
mod proof;
mod raise;
mod recorder;
mod rest;
mod sitting;
mod states;
mod visit;

pub use raise::{Death, Lab};
pub use recorder::{RUNS, Recorder};

use sitting::{Sitting, Went};

/// What is to be done.
pub struct Order<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The record's directory.
    pub directory: &'a Path,
    /// Everything of the header that the plan does not say. Its nodes are filled in when they are known.
    pub header: Header,
    /// The record to go on with; absent: a new one.
    pub resumed: Option<Resumed<'a>>,
    /// What is judged, which is what a precision is about.
    pub policy: &'a Policy,
}

/// A record that is gone on with.
pub struct Resumed<'a> {
    /// As it was read.
    pub record: &'a Record,
    /// From so many bytes.
    pub bytes: u64,
    /// Facts that may differ from the record's: they were changed on purpose.
    pub changed: &'a [String],
}

/// Who is told how the run goes. Everything here is for people; the record has it all.
pub trait Watch {
    /// Another run has the machine: its process id.
    fn waits_for(&mut self, pid: i32);
    /// A stage of raising the lab or taking it down.
    fn stage(&mut self, what: &str);
    /// A stage that takes long: `what` it is doing, and for how long already. Told every few seconds.
    fn still(&mut self, what: &str, since: Duration);
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
    /// What somebody has to switch by hand before the run can go on.
    pub by_hand: Option<String>,
}

/// Carries `order` out. `interrupt` resolves to a signal's name when the user wants it to end.
///
/// # Errors
/// Nothing could be measured: the record cannot be written, or the lab cannot be raised. Once this sitting has begun to write,
/// a failure ends the record as partial and is told in [`Finished::failure`].
pub async fn run(
    order: Order<'_>,
    watch: &mut dyn Watch,
    interrupt: impl Future<Output = &'static str>,
) -> anyhow::Result<Finished> {
    let recorder = match &order.resumed {
        Some(resumed) => Recorder::reopen(order.directory, resumed.record, resumed.bytes)?,
        None => Recorder::create(order.directory)?,
    };
    let mut sitting = Sitting::new(order, recorder);
    tokio::pin!(interrupt);
    let mut interrupted = None;
    let went = tokio::select! {
        went = sitting.go(watch) => went,
        signal = &mut interrupt => {
            interrupted = Some(signal);
            Ok(Went::Whole)
        }
    };
    let went = sitting.down(went, watch).await;
    let (by_hand, failure) = match went {
        Ok(Went::Whole) => (None, None),
        Ok(Went::ByHand { phase, what }) => (Some((phase, what)), None),
        Err(error) => (None, Some(error)),
    };
    let reason = match (interrupted, &failure, &by_hand) {
        (Some(signal), _, _) => Some(format!("interrupted by {signal}")),
        (None, Some(error), _) => Some(with_causes(error.as_ref())),
        (None, None, Some((_, what))) => Some(what.clone()),
        (None, None, None) => None,
    };
    let awaits_phase = by_hand.as_ref().map(|(phase, _)| *phase);
    let (directory, end) = match sitting.close(reason, awaits_phase)? {
        sitting::Closed::Written(directory, end) => (directory, end),
        // Nothing of this sitting is in the record, so there is nothing to end.
        sitting::Closed::Untouched(directory, end) => match failure {
            Some(error) => return Err(error),
            None => (directory, end),
        },
    };
    Ok(Finished { directory, end, interrupted, failure, by_hand: by_hand.map(|(_, what)| what) })
}

/// The command that goes on with the record in `directory`.
pub fn resume_command(directory: &Path) -> String {
    let words = ["wglab", "run", "--resume"].map(str::to_owned);
    crate::verdict::shell(&[&words[..], &[directory.display().to_string()]].concat())
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
