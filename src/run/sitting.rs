//! One sitting: from taking the machine to the last run that it measures. A record has one, or several if it was resumed.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::phases::{self, Entered};
use super::rest::{self, Rest};
use super::{Order, Progress, Recorder, Watch, adaptive, lock, millis, raise::Lab, visit};
use crate::plan::{Plan, Visit};
use crate::record::{Caution, End, EndStatus, Precision, Resumes, Run, Status};
use crate::text::with_causes;
use crate::verdict;

/// How long hosts may take to be reached again after their stacks were switched: a server that boots is the slowest of it.
const RETURN: Duration = Duration::from_secs(180);
/// How long to wait before the next try.
const AGAIN: Duration = Duration::from_secs(2);

/// A sitting at work.
pub(super) struct Sitting<'a> {
    order: Order<'a>,
    /// The order's plan, and in it the tunnels that were found. They belong to the hosts, not to the experiment.
    found: Rc<Plan>,
    recorder: Recorder,
    /// Held to the end.
    _lock: Option<lock::Lock>,
    lab: Option<Lab>,
    begun: Instant,
    rest: Rest,
    /// Whether this sitting's header is written.
    open: bool,
    /// Its number; absent for the first.
    session: Option<u32>,
    /// What a precision is computed from: the record so far.
    runs: Vec<Run>,
    precision: Option<Precision>,
}

/// How a sitting went.
pub(super) enum Went {
    /// All that was planned is measured, or as much as the precision asks for.
    Whole,
    /// Somebody has to switch stacks first.
    ByHand {
        /// For which phase.
        phase: usize,
        /// What, and how it goes on.
        what: String,
    },
}

/// What the record holds of a sitting.
pub(super) enum Closed {
    /// Lines, the last of which is this end.
    Written(PathBuf, End),
    /// Nothing: this end is not in it.
    Untouched(PathBuf, End),
}

impl<'a> Sitting<'a> {
    pub(super) fn new(order: Order<'a>, recorder: Recorder) -> Self {
        let resumed = order.resumed.as_ref().map(|resumed| resumed.record);
        let rest = resumed.map(|record| rest::rest(order.plan, record)).unwrap_or_default();
        let session = resumed.and_then(|record| u32::try_from(record.resumed.len() + 1).ok());
        let again = |run: &&Run| !rest.superseded.contains(&run.order);
        let runs = match (resumed, order.plan.precision) {
            (Some(record), Some(_)) => record.runs.iter().filter(again).map(adaptive::slim).collect(),
            _ => Vec::new(),
        };
        let (lab, begun) = (None, Instant::now());
        let found = Rc::new(order.plan.clone());
        Self { order, found, recorder, _lock: None, lab, begun, rest, open: false, session, runs, precision: None }
    }

    /// Every phase, in order. A run that cannot be measured is written down with the reason; only a lost lab ends the sitting.
    pub(super) async fn go(&mut self, watch: &mut dyn Watch) -> anyhow::Result<Went> {
        let plan = self.order.plan;
        self._lock = Some(lock::take(|pid| watch.waits_for(pid)).await?);
        self.begun = Instant::now();
        for phase in 0..plan.phases.len().max(1) {
            let pending = |(index, visit): (usize, &Visit)| visit.phase == phase && !self.rest.whole.contains(&index);
            if !plan.visits.iter().enumerate().any(pending) {
                continue;
            }
            self.take_down(watch).await?;
            let entered = phases::enter(plan, phase, self.was_told(phase), watch).await;
            if !entered.by_hand.is_empty() {
                return self.leave_to_a_person(phase, &entered);
            }
            self.raise(phase, entered.switched, watch).await?;
            self.write_header(phase)?;
            self.measure(phase, &entered, watch).await?;
        }
        Ok(Went::Whole)
    }

    /// Whether a person was asked to switch to `phase`, or has done so already.
    fn was_told(&self, phase: usize) -> bool {
        let Some(resumed) = &self.order.resumed else { return false };
        let asked = resumed.record.end.as_ref().and_then(|end| end.awaits_phase) == Some(phase);
        let begun = |(index, visit): (usize, &Visit)| visit.phase == phase && self.rest.whole.contains(&index);
        // Only the phase with which the sitting begins: by the next one, somebody has to switch again.
        !self.open && (asked || self.order.plan.visits.iter().enumerate().any(begun))
    }

    fn leave_to_a_person(&self, phase: usize, entered: &Entered) -> anyhow::Result<Went> {
        let wanted = phases::wanted(&entered.by_hand);
        let doubts: Vec<String> = entered
            .by_hand
            .iter()
            .filter_map(|(node, _, doubt)| Some(format!("{node}: {}", doubt.as_ref()?)))
            .collect();
        let doubts = if doubts.is_empty() { String::new() } else { format!(" ({})", doubts.join("; ")) };
        let nothing_yet = !self.open && self.order.resumed.is_none();
        if nothing_yet {
            bail!(
                "nothing is measured yet, since the stacks are not as phase 1 needs them{doubts}: put {wanted}, and run again"
            );
        }
        let what = format!(
            "phase {} needs other stacks{doubts}: put {wanted}, then go on with `{}`",
            phase + 1,
            super::resume_command(self.recorder.directory())
        );
        Ok(Went::ByHand { phase, what })
    }

    /// Raises the lab. Hosts whose stack was switched may be away for a while.
    async fn raise(&mut self, phase: usize, switched: bool, watch: &mut dyn Watch) -> anyhow::Result<()> {
        let plan = self.order.plan;
        let deadline = Instant::now() + if switched { RETURN } else { Duration::ZERO };
        let lab = loop {
            match Lab::raise_on(plan, plan.phases.get(phase), watch).await {
                Ok(lab) => break lab,
                Err(error) if Instant::now() + AGAIN < deadline => {
                    watch.stage(&format!("waiting for the nodes to come back: {}", with_causes(error.as_ref())));
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        };
        for note in &lab.notes {
            watch.note(note);
        }
        self.found = Rc::new(lab.with_found(plan));
        self.lab = Some(lab);
        Ok(())
    }

    /// Verifies that the nodes are what they were when the record was begun; then this sitting's header, if it is not there.
    fn write_header(&mut self, phase: usize) -> anyhow::Result<()> {
        let now = self.lab.as_ref().context("the lab is up")?.describe();
        let (then, changed) = match &self.order.resumed {
            Some(resumed) => (&resumed.record.header.nodes, resumed.changed),
            None if self.open => (&self.order.header.nodes, &[][..]),
            None => (&now, &[][..]),
        };
        verdict::check_changed_facts(then, &now, changed).context("--changed")?;
        let differences = verdict::changed_facts(then, &now, changed);
        // Of facts that nobody could read there is nothing to be said, now as then.
        let differences: Vec<_> = differences.iter().filter(|difference| difference.base != difference.new).collect();
        if !differences.is_empty() {
            let listed: Vec<String> = differences.iter().map(ToString::to_string).collect();
            let mut names: Vec<&str> = differences.iter().map(|difference| difference.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            let phase = phase + 1;
            bail!(
                "in phase {phase} the nodes are not what they were when the record was begun: {}; put that back, or go on with `{} --changed {}` if it was changed on purpose",
                listed.join("; "),
                super::resume_command(self.recorder.directory()),
                names.join(",")
            );
        }
        if self.open {
            return Ok(());
        }
        let mut header = self.order.header.clone();
        header.nodes = now;
        header.resumes = self.order.resumed.as_ref().map(|resumed| Resumes {
            ended: resumed
                .record
                .end
                .as_ref()
                .and_then(|end| end.reason.clone())
                .unwrap_or_else(|| "it did not end by itself: no end line was written".to_owned()),
            superseded: self.rest.superseded.clone(),
            changed: resumed.changed.to_vec(),
        });
        self.recorder.header(&header)?;
        self.order.header.nodes = header.nodes;
        self.open = true;
        Ok(())
    }

    /// The visits of `phase` that are not in the record, in order.
    async fn measure(&mut self, phase: usize, entered: &Entered, watch: &mut dyn Watch) -> anyhow::Result<()> {
        let plan = self.order.plan;
        let started = Instant::now();
        // Counted over the whole plan, so that a run has the same seed in whichever sitting it is measured.
        let (mut place, mut measured): (u64, u64) = (0, 0);
        let mut visits = plan.visits.iter().enumerate().peekable();
        while let Some((index, planned)) = visits.next() {
            if planned.phase == phase && !self.rest.whole.contains(&index) {
                let left = plan.forecast.runs.saturating_sub(place);
                let left = time_left(plan, started.elapsed(), measured, left);
                self.visit(planned, place, left, entered, watch).await?;
                measured += planned.tests.len() as u64;
            }
            place += planned.tests.len() as u64;
            let round_is_over = visits.peek().is_none_or(|(_, next)| next.round != planned.round);
            if planned.phase == phase && round_is_over && self.is_known(planned.round) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// All runs of a visit, each into the record. `place` is the first one's in the whole plan.
    async fn visit(
        &mut self,
        planned: &Visit,
        place: u64,
        left: Duration,
        entered: &Entered,
        watch: &mut dyn Watch,
    ) -> anyhow::Result<()> {
        let found = Rc::clone(&self.found);
        let plan = &*found;
        let arrangement = &plan.arrangements[planned.arrangement];
        let lab = self.lab.as_mut().context("the lab is up")?;
        let ends = [&arrangement.pair.client, &arrangement.pair.server];
        let not_switched = ends.iter().find_map(|node| Some(format!("node {node} {}", entered.failed.get(*node)?)));
        let ready = match not_switched {
            Some(why) => Err(why),
            None => lab.switch(plan, arrangement).await?,
        };
        for (done, test) in (place..).zip(planned.tests.iter().map(|index| &plan.tests[*index])) {
            watch.begins(Progress { arrangement, test, round: planned.round, done, runs: plan.forecast.runs, left });
            let mut run = visit::blank(plan, arrangement, test, planned.round.saturating_sub(1), self.rest.next);
            run.session = self.session;
            run.at_ms = Some(millis(self.begun.elapsed()));
            match &ready {
                Ok(()) => {
                    let seed = self.order.header.seed.wrapping_add(done);
                    visit::measure(plan, arrangement, test, seed, lab, &mut run).await?;
                }
                Err(why) => {
                    run.status = Status::Invalid;
                    run.reason = Some(why.clone());
                }
            }
            run.cautions.extend(unverified(&ends, entered));
            self.recorder.run(&run)?;
            self.rest.next += 1;
            watch.ended(&run);
            if plan.precision.is_some() {
                self.runs.push(adaptive::slim(&run));
            }
        }
        Ok(())
    }

    /// After `round` (from 1): whether the judged changes are known as well as was asked.
    fn is_known(&mut self, round: u32) -> bool {
        let plan = self.order.plan;
        let Some(asked) = plan.precision.filter(|_| plan.may_end_after(round) || round == plan.rounds) else {
            return false;
        };
        let (header, policy) = (&self.order.header, self.order.policy);
        let precision = adaptive::precision(header, &self.runs, round, asked.fraction(), policy);
        self.precision.insert(precision).reached
    }

    /// Takes down what a phase has raised.
    async fn take_down(&mut self, watch: &mut dyn Watch) -> anyhow::Result<()> {
        let Some(lab) = self.lab.take() else { return Ok(()) };
        watch.stage("taking the lab down");
        lab.down().await
    }

    /// Takes everything down, however it went.
    pub(super) async fn down(&mut self, went: anyhow::Result<Went>, watch: &mut dyn Watch) -> anyhow::Result<Went> {
        let went = match (went, &mut self.lab) {
            (Err(error), Some(lab)) => Err(lab.explain(error)),
            (went, _) => went,
        };
        match (went, self.take_down(watch).await) {
            (went, Ok(())) => went,
            (Err(first), Err(error)) => Err(first.context(format!("and then: {}", with_causes(error.as_ref())))),
            (Ok(_), Err(error)) => Err(error),
        }
    }

    /// Ends the record. `reason` says why it is partial, if it is.
    pub(super) fn close(mut self, reason: Option<String>, awaits_phase: Option<usize>) -> anyhow::Result<Closed> {
        let end = End {
            status: if reason.is_none() { EndStatus::Complete } else { EndStatus::Partial },
            reason,
            runs: self.recorder.runs(),
            duration_ms: millis(self.begun.elapsed()),
            precision: self.precision.take(),
            awaits_phase,
        };
        let directory = self.recorder.directory().to_owned();
        if self.open || awaits_phase.is_some() {
            self.recorder.end(&end)?;
            return Ok(Closed::Written(directory, end));
        }
        if self.order.resumed.is_none() {
            self.recorder.discard()?;
        }
        Ok(Closed::Untouched(directory, end))
    }
}

/// What a reader must know of a run whose nodes are on the stacks that somebody says.
fn unverified(ends: &[&String], entered: &Entered) -> Option<Caution> {
    let nodes: Vec<&str> =
        ends.iter().filter(|node| entered.unverified.contains(**node)).map(|node| node.as_str()).collect();
    (!nodes.is_empty()).then(|| Caution {
        kind: "stack-unverified".to_owned(),
        text: format!("the stack under {} is what the topology says: nothing verified it", nodes.join(" and ")),
    })
}

/// The plan's time for the `left` runs, until the pace of this sitting says better.
fn time_left(plan: &Plan, elapsed: Duration, measured: u64, left: u64) -> Duration {
    if measured < 10 {
        let part = left as f64 / plan.forecast.runs.max(1) as f64;
        return plan.forecast.time.duration().mul_f64(part.min(1.0));
    }
    elapsed.mul_f64(left as f64 / measured as f64)
}
