//! One run: the job of each end prepared, started, awaited; its numbers read off, its path proved.

use std::time::Duration;

use anyhow::Context;

use super::jobs::{self, GRACE};
use super::metrics::{self, Both};
use super::proof::{self, Evidence};
use super::raise::Lab;
use crate::agent::messages::{Ask, Assignment, Job, JobOutcome, Tell};
use crate::cell::TestKind;
use crate::plan::{Arrangement, Plan, TestPlan};
use crate::reach::{Link, ReachError};
use crate::record::{Bottleneck, Class, Run, Status};
use crate::units::Direction;

/// Beyond a job's own deadline: an agent that is silent longer hangs.
const SILENCE: Duration = Duration::from_secs(5);
/// How long opening a job's sockets may take, a client's connecting included.
const PREPARE: Duration = Duration::from_secs(12);

/// A run's line before anything is known. Records count rounds from 0.
pub(super) fn blank(plan: &Plan, arrangement: &Arrangement, test: &TestPlan, round: u32, order: u32) -> Run {
    Run {
        round,
        session: None,
        order,
        status: Status::Failed,
        reason: None,
        at_ms: None,
        factors: plan.cell(arrangement, test),
        metrics: Default::default(),
        conditions: Default::default(),
        proof: Vec::new(),
        bottleneck: None,
        cautions: Vec::new(),
        meters: None,
        histograms: Default::default(),
        series: Default::default(),
    }
}

/// Measures into `run`. Where the test fails, the run says why; an error is returned only when the lab is lost.
pub(super) async fn measure(
    plan: &Plan,
    arrangement: &Arrangement,
    test: &TestPlan,
    seed: u64,
    lab: &mut Lab,
    run: &mut Run,
) -> anyhow::Result<()> {
    let (client_job, server_job) = jobs::jobs(plan, arrangement, test, seed)?;
    let (client, server, provider) = lab.pair(arrangement)?;
    let outcomes = tokio::select! {
        outcomes = execute(client, server, client_job, server_job) => outcomes?,
        // Without it no packet arrives any more, and both ends would wait for their deadlines.
        gone = ended(provider) => return Err(gone.into()),
    };
    let (client, server) = match outcomes {
        Ok(outcomes) => outcomes,
        Err(why) => {
            run.reason = Some(why);
            return Ok(());
        }
    };
    let direction = test.direction.unwrap_or(Direction::Forward);
    let pinned = |node: &str| lab.pinned(plan, node, &arrangement.underlay);
    let (client_pinned, server_pinned) = (pinned(&arrangement.pair.client), pinned(&arrangement.pair.server));
    let devices: Vec<[&str; 2]> = plan
        .tunnels_of(arrangement)
        .filter_map(|tunnel| tunnel.ends(&arrangement.pair))
        .map(|(client, server)| [client.interface.as_str(), server.interface.as_str()])
        .collect();
    let both = Both {
        client: &client,
        server: &server,
        one_machine: super::class(plan) == Class::OneMachine,
        pinned: match direction {
            Direction::Forward => server_pinned.as_deref(),
            Direction::Reverse => client_pinned.as_deref(),
        },
        direction,
        devices: &devices,
    };
    let lost = |[at_client, at_server]: &[&str; 2]| client.lost.get(*at_client).or_else(|| server.lost.get(*at_server));
    if let Some(why) = both.devices.iter().find_map(lost) {
        run.reason = Some(why.clone());
        return Ok(());
    }
    let measured = metrics::measured(test, both);
    run.metrics = measured.metrics;
    run.histograms = measured.histograms;
    run.series = measured.series;
    run.conditions = measured.conditions;
    run.conditions.extend(lab.conditions(plan, arrangement, &client, &server));
    run.cautions = measured.cautions;
    run.meters = measured.meters;
    run.bottleneck = generator(run, lab, arrangement, test.kind).or_else(|| bottleneck(both, test.kind));
    let evidence = |node, pinned, outcome| Evidence { node, pinned, outcome };
    run.proof = proof::prove(
        plan,
        arrangement,
        lab.keys(),
        evidence(&arrangement.pair.client, client_pinned.as_deref(), &client),
        evidence(&arrangement.pair.server, server_pinned.as_deref(), &server),
    );
    let broken: Vec<String> = run
        .proof
        .iter()
        .filter(|check| !check.holds)
        .map(|check| format!("{}: expected {}, seen {}", check.check, check.expected, check.seen))
        .collect();
    if !broken.is_empty() {
        run.status = Status::Invalid;
        run.reason = Some(format!("the path is not proved: {}", broken.join("; ")));
    } else if run.metrics.is_empty() {
        run.reason = Some("the test ended without a figure".to_owned());
    } else {
        run.status = Status::Ok;
    }
    Ok(())
}

/// Both jobs, server first. The inner error is the run's, the outer the lab's.
async fn execute(
    client: &mut Link,
    server: &mut Link,
    mut client_job: Job,
    server_job: Job,
) -> anyhow::Result<Result<(JobOutcome, JobOutcome), String>> {
    let limit = server_job.deadline + SILENCE;
    let ports = match of_run(prepare(server, server_job).await)? {
        Ok(ports) => ports,
        Err(why) => return Ok(Err(why)),
    };
    if let Some((_, to)) = &mut client_job.peer {
        *to = ports;
    }
    if let Err(why) = of_run(prepare(client, client_job).await)? {
        let _idle = server.ask(&Ask::Stop, PREPARE).await?;
        return Ok(Err(why));
    }
    server.send(&Ask::Start).await?;
    client.send(&Ask::Start).await?;
    // Whoever fails first ends the other's job, so that no run waits for a deadline in vain.
    let (mut at_client, mut at_server) = (None, None);
    let mut stopped = false;
    while at_client.is_none() || at_server.is_none() {
        let (told, other) = tokio::select! {
            told = client.tell(limit), if at_client.is_none() => (at_client.insert(of_run(told)?), &mut *server),
            told = server.tell(limit), if at_server.is_none() => (at_server.insert(of_run(told)?), &mut *client),
        };
        let failed = told.is_err();
        if failed && (at_client.is_none() || at_server.is_none()) {
            other.send(&Ask::Stop).await?;
            stopped = true;
        }
    }
    if stopped {
        // Its job may have been over by itself just then.
        client.in_step(SILENCE).await?;
        server.in_step(SILENCE).await?;
    }
    let outcome = |link: &Link, told: Option<Result<Tell, String>>| {
        let told = match told.context("both ends have told")? {
            Ok(told) => told,
            Err(why) => return Ok(Err(why)),
        };
        let unexpected = link.unexpected(&told);
        let Tell::Outcome(outcome) = told else { return Err(anyhow::Error::from(unexpected)) };
        Ok(Ok(*outcome))
    };
    Ok(match (outcome(client, at_client)?, outcome(server, at_server)?) {
        (Ok(client), Ok(server)) => Ok((client, server)),
        (Err(one), Err(other)) => Err(format!("{one}; {other}")),
        (Err(why), Ok(_)) | (Ok(_), Err(why)) => Err(why),
    })
}

/// Resolves when the provider is gone; never, where there is none.
async fn ended(provider: Option<&mut Link>) -> ReachError {
    match provider {
        Some(link) => link.ended().await,
        None => std::future::pending().await,
    }
}

async fn prepare(link: &mut Link, job: Job) -> Result<Vec<u16>, ReachError> {
    let told = link.ask(&Ask::Prepare(Box::new(Assignment { job })), PREPARE + GRACE).await?;
    let unexpected = link.unexpected(&told);
    let Tell::Ready { ports } = told else { return Err(unexpected) };
    Ok(ports)
}

/// What an agent could not do is the run's failure; an agent that is gone, silent or confused is the lab's.
fn of_run<T>(told: Result<T, ReachError>) -> anyhow::Result<Result<T, String>> {
    match told {
        Ok(told) => Ok(Ok(told)),
        Err(error @ ReachError::Failed { .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// From this part of the generator's own ceiling on, a rate is the generator's and not the path's.
const NEAR_THE_GENERATOR: f64 = 0.9;
/// A machine whose CPUs were at work for more than this part of the time has nothing left to give. Ticks and the readings'
/// own time keep it from being 1.
const CPUS_FULL: f64 = 0.95;
/// A CPU that spends more than this part of the time in softirqs is what receives: one queue is served by one CPU.
const SOFTIRQ_FULL: f64 = 0.85;

/// A rate near what the generator moves over a loopback is the generator's, not the path's. It is calibrated with bulk TCP, which
/// says nothing of datagrams: those cost a call each.
fn generator(run: &Run, lab: &Lab, arrangement: &Arrangement, kind: TestKind) -> Option<Bottleneck> {
    let rate = *run.metrics.get("throughput_bits_per_second").filter(|_| kind == TestKind::TcpStream)?;
    let ends = [&arrangement.pair.client, &arrangement.pair.server];
    let ceiling =
        ends.iter().filter_map(|node| lab.calibrations.get(*node)).map(|it| it.tcp_bits_per_second).min()? as f64;
    (rate >= NEAR_THE_GENERATOR * ceiling).then(|| Bottleneck {
        is: "generator".to_owned(),
        evidence: format!("{:.0} % of what the generator moves over the loopback", rate / ceiling * 100.0),
    })
}

/// What bound the run, where a counter shows it.
fn bottleneck(both: Both<'_>, kind: TestKind) -> Option<Bottleneck> {
    let ends = [("client", both.client), ("server", both.server)];
    let ends = if both.one_machine { &ends[..1] } else { &ends[..] };
    ends.iter().find_map(|(end, outcome)| {
        let of = if both.one_machine { "this machine's".to_owned() } else { format!("the {end}'s") };
        full(outcome, kind, &of)
    })
}

/// What of one machine has nothing left to give. One exchange at a time never fills it: who waits for an answer awake is at
/// work as well, and gives way to everybody.
fn full(outcome: &JobOutcome, kind: TestKind, of: &str) -> Option<Bottleneck> {
    let meters = &outcome.meters;
    let cpus = meters.cpus.as_ref()?.len();
    let all = meters.busy_seconds()? / (meters.length_ns as f64 / 1e9) / cpus as f64;
    let one_at_a_time = matches!(kind, TestKind::TcpRr | TestKind::UdpRr | TestKind::TcpCrr | TestKind::Ping);
    if all > CPUS_FULL && !one_at_a_time {
        // Ticks are counted whole, so the sum may be a little more than there was.
        let evidence = format!("{:.1} of {of} {cpus} CPUs were at work", all.min(1.0) * cpus as f64);
        return Some(Bottleneck { is: "CPU".to_owned(), evidence });
    }
    let (cpu, part) = meters.hottest_softirq().filter(|(_, part)| *part > SOFTIRQ_FULL)?;
    let evidence = format!("CPU {cpu} spent {:.0} % of the time in softirqs", part * 100.0);
    Some(Bottleneck { is: "receive path".to_owned(), evidence })
}

#[cfg(test)]
mod tests;
