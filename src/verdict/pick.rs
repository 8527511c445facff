//! Which underlay a pair should use, and what that can safely carry.
//!
//! A pick goes by the weaker direction of multi-stream TCP. Two underlays whose order is not decided are a tie, and are
//! never sorted by their rates. What a pick needs and the record lacks is named, with the run that supplies it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Evidence, Policy, Source, adjust, cells, command, decide, measure};
use super::{Measured, PairRuns, Visit};
use crate::cell::{Better, Cell, Factor, metric};
use crate::record::Run;
use crate::stats::Summary;
use crate::units::BitRate;

const RATE: &str = "throughput_bits_per_second";
const LOADED: &str = "probe_p99_ns";
const UDP_LOSS: &str = "loss_ratio";
/// Loss without a UDP test: what the probes lost beside a full TCP stream, or pings.
const OTHER_LOSS: [&str; 2] = ["probe_loss_ratio", "ping_loss_ratio"];
/// The share of multi-stream TCP that R3 takes as safe.
pub const SAFE_TCP: f64 = 0.70;
/// The share of the loss-free UDP rate that is taken as safe. Ours: R3 says 60 % of nominal, which nobody measured.
pub const SAFE_UDP: f64 = 0.60;
/// Datagrams lost at most at a rate that counts as loss-free.
const LOSS_FREE: f64 = 0.001;
/// An underlay that loses more than this is not picked while another is there.
const UNFIT_LOSS: f64 = 0.01;

/// What to measure a pick by.
#[derive(Debug, Clone, PartialEq)]
pub struct PickOptions {
    /// The rate that must fit into what is safe.
    pub need: Option<BitRate>,
    /// The safe share of multi-stream TCP.
    pub safe_tcp: f64,
    /// The safe share of the loss-free UDP rate.
    pub safe_udp: f64,
}

impl Default for PickOptions {
    fn default() -> Self {
        Self { need: None, safe_tcp: SAFE_TCP, safe_udp: SAFE_UDP }
    }
}

/// The picks of a record: one for each pair and engine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Picks {
    /// In the order of pairs.
    pub picks: Vec<Pick>,
    /// The rate that was asked for, in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub need_bits_per_second: Option<u64>,
}

/// What came of picking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PickResult {
    /// Every pair has an underlay.
    Picked,
    /// Some pair's record lacks what a pick needs, or there is no pair.
    Incomplete,
    /// All was measured, and some pair has no underlay of which it is known that it carries what is needed: where several are a tie,
    /// all must, since any may be taken.
    NoneFits,
}

impl Picks {
    /// What came of it; what is missing goes before what does not fit, since a measurement may change that.
    pub fn result(&self) -> PickResult {
        if self.picks.is_empty() || self.picks.iter().any(|pick| !pick.missing.is_empty()) {
            return PickResult::Incomplete;
        }
        let carries =
            |candidate: &Candidate| self.need_bits_per_second.is_none() || candidate.streams_for_need.is_some();
        let fits = |pick: &Pick| pick.tiers.first().is_some_and(|first| first.iter().all(carries));
        if self.picks.iter().all(fits) { PickResult::Picked } else { PickResult::NoneFits }
    }
}

/// The underlays of one pair, in tiers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pick {
    /// The pair, engine, stack and settings.
    pub cell: Cell,
    /// The underlays that may be used. The first tier are those that none decidedly beats; a later one's are each beaten by one
    /// of an earlier tier ([`Candidate::behind`]). Within a tier the order is the topology's, never the rates'.
    pub tiers: Vec<Vec<Candidate>>,
    /// Underlays that should not be used, and why.
    pub unfit: Vec<(Candidate, String)>,
    /// How the first tier stands to every other candidate, and its members to each other.
    pub orders: Vec<Order>,
    /// What a pick needs and the record lacks; empty where it is complete.
    pub missing: Vec<String>,
    /// The run that supplies it, or that would break the first tier's tie; absent where neither is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// One underlay with what it carries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The underlay.
    pub underlay: String,
    /// The weaker direction; absent where only one was measured, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weaker: Option<String>,
    /// Streams with which the weaker direction carries most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<String>,
    /// What the weaker direction carries with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Summary>,
    /// What it can safely carry over TCP, in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_tcp: Option<f64>,
    /// What it can safely carry over UDP, in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_udp: Option<f64>,
    /// The p99 under load of the worse direction, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded_p99_ns: Option<f64>,
    /// The share that is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_ratio: Option<f64>,
    /// The MTUs that its runs found, in bytes.
    pub mtu_bytes: Vec<u64>,
    /// The underlays that decidedly carry more, best tier first: why it stands where it stands. Of the others nothing is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<String>,
    /// The fewest streams that safely carry the need; absent where none do, or nothing is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams_for_need: Option<String>,
}

/// How two underlays stand to each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Order {
    /// The one.
    pub of: String,
    /// The other.
    pub to: String,
    /// What the one carries more than the other, as a fraction.
    pub change: f64,
    /// The 95 % interval of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// Whether it is decided: beyond the minimum effect and chance.
    pub decided: bool,
    /// Rounds in all that would decide, where more rounds would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<u32>,
}

/// Picks an underlay for every pair and engine of a record; for raw only where there is nothing else.
pub fn pick(source: &Source<'_>, options: &PickOptions, policy: &Policy) -> Picks {
    let mut groups: BTreeMap<Cell, BTreeMap<String, Vec<&Run>>> = BTreeMap::new();
    let tunnelled = source.record.runs.iter().any(|run| run.factors.get(Factor::Engine).is_some_and(|e| e != "raw"));
    for run in &source.record.runs {
        let Some(underlay) = run.factors.get(Factor::Underlay) else { continue };
        if tunnelled && run.factors.get(Factor::Engine) == Some("raw") {
            continue;
        }
        let arranged = run.factors.iter().filter(|(factor, _)| factor.is_arranged() && *factor != Factor::Underlay);
        let cell = arranged.map(|(factor, level)| (factor, level.to_owned())).collect();
        groups.entry(cell).or_default().entry(underlay.to_owned()).or_default().push(run);
    }
    let picks =
        groups.into_iter().map(|(cell, underlays)| of_group(source, cell, &underlays, options, policy)).collect();
    Picks { picks, need_bits_per_second: options.need.map(BitRate::bits_per_second) }
}

/// A candidate with the runs of its weaker direction, by which it is ranked.
struct Ranked {
    candidate: Candidate,
    visits: Vec<Visit>,
    missing: Vec<String>,
    unfit: Option<String>,
}

fn of_group(
    source: &Source<'_>,
    cell: Cell,
    underlays: &BTreeMap<String, Vec<&Run>>,
    options: &PickOptions,
    policy: &Policy,
) -> Pick {
    let known = source.record.header.levels.get(&Factor::Underlay);
    let place = |name: &String| known.and_then(|levels| levels.iter().position(|l| l == name)).unwrap_or(usize::MAX);
    let mut names: Vec<&String> = underlays.keys().collect();
    names.sort_by_key(|name| place(name));
    let all: Vec<Ranked> = names.iter().map(|name| ranked(name, &underlays[*name], options)).collect();
    let missing = lacking(&all);
    let (fit, unfit): (Vec<Ranked>, Vec<Ranked>) = all.into_iter().partition(|ranked| ranked.unfit.is_none());
    let orders = orders(source, &fit, policy);
    let beaten_by = |loser: &str, winner: &str| {
        orders.iter().any(|order| {
            order.decided
                && ((order.of == loser && order.to == winner && order.change < 0.0)
                    || (order.of == winner && order.to == loser && order.change > 0.0))
        })
    };
    let mut left: Vec<&Ranked> = fit.iter().collect();
    let mut tiers: Vec<Vec<Candidate>> = Vec::new();
    while !left.is_empty() {
        let beaten = |one: &Ranked| left.iter().any(|o| beaten_by(&one.candidate.underlay, &o.candidate.underlay));
        let (lower, mut top): (Vec<&Ranked>, Vec<&Ranked>) = left.iter().partition(|ranked| beaten(ranked));
        // A circle of decided orders cannot be sorted: then all that is left is one tier.
        let lower = if top.is_empty() {
            top = lower;
            Vec::new()
        } else {
            lower
        };
        let above: Vec<String> = tiers.iter().flatten().map(|above: &Candidate| above.underlay.clone()).collect();
        let placed = |ranked: &Ranked| {
            let behind = above.iter().filter(|winner| beaten_by(&ranked.candidate.underlay, winner)).cloned().collect();
            Candidate { behind, ..ranked.candidate.clone() }
        };
        tiers.push(top.into_iter().map(placed).collect());
        left = lower;
    }
    let command = what_next(source, &cell, tiers.first(), &orders, &missing);
    Pick {
        cell,
        tiers,
        unfit: unfit.into_iter().map(|ranked| (ranked.candidate, ranked.unfit.unwrap_or_default())).collect(),
        orders,
        missing,
        command,
    }
}

/// What is missing, each thing once, with its underlays unless all of them lack it.
fn lacking(all: &[Ranked]) -> Vec<String> {
    let mut things: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ranked in all {
        for thing in &ranked.missing {
            things.entry(thing).or_default().push(&ranked.candidate.underlay);
        }
    }
    let name = |(thing, underlays): (&str, Vec<&str>)| {
        if underlays.len() == all.len() { thing.to_owned() } else { format!("{thing} over {}", underlays.join(", ")) }
    };
    things.into_iter().map(name).collect()
}

/// The run that supplies what is missing, else the one that would break a tie.
fn what_next(
    source: &Source<'_>,
    cell: &Cell,
    first: Option<&Vec<Candidate>>,
    orders: &[Order],
    missing: &[String],
) -> Option<String> {
    let with = |options: &[(&str, String)]| Some(command::with_options(&source.record.header, cell, options));
    if !missing.is_empty() {
        // What the standard profile is for: both directions, several streams, windows in which a probe sees the loaded latency. Where
        // the record is of a longer profile than the quick one already, only another topology supplies it.
        let profile = source.record.header.plan.get("profile").and_then(|profile| profile.as_str());
        let is_quick = profile.is_none_or(|profile| profile == "quick");
        return if is_quick { with(&[("--profile", "standard".to_owned())]) } else { None };
    }
    let first = first.filter(|tier| tier.len() > 1)?;
    let within = |name: &str| first.iter().any(|candidate| candidate.underlay == name);
    let rounds =
        orders.iter().filter(|order| within(&order.of) && within(&order.to)).filter_map(|o| o.rounds_needed).max()?;
    let rounds = (rounds <= command::MOST_ROUNDS).then_some(rounds)?;
    let names: Vec<&str> = first.iter().map(|candidate| candidate.underlay.as_str()).collect();
    with(&[("--only", format!("underlay={}", names.join(","))), ("--rounds", rounds.to_string())])
}

fn ranked(underlay: &str, runs: &[&Run], options: &PickOptions) -> Ranked {
    let usable: Vec<&Run> = runs.iter().copied().filter(|run| run.usable()).collect();
    let mut missing = Vec::new();
    // By test, streams and direction, so that both directions of the same test stand against each other.
    let mut tests: BTreeMap<Cell, BTreeMap<&str, Vec<Visit>>> = BTreeMap::new();
    for run in &usable {
        let (Some(direction), Some(value)) = (run.factors.get(Factor::Direction), run.metrics.get(RATE)) else {
            continue;
        };
        // Streams are TCP's; a UDP rate is what was offered, and judged by its loss.
        if run.factors.get(Factor::Streams).is_none() || run.metrics.contains_key(UDP_LOSS) {
            continue;
        }
        let test = run.factors.iter().filter(|(factor, _)| !factor.is_arranged() && *factor != Factor::Direction);
        let test: Cell = test.map(|(factor, level)| (factor, level.to_owned())).collect();
        let visit = Visit { record: 0, round: run.round, order: run.order, value: *value };
        tests.entry(test).or_default().entry(direction).or_default().push(visit);
    }
    let both: Vec<(&Cell, &str, Vec<Visit>)> = tests
        .iter()
        .filter(|(_, directions)| directions.len() > 1)
        .filter_map(|(test, directions)| {
            let weaker = directions.iter().min_by(|a, b| median(a.1).total_cmp(&median(b.1)))?;
            Some((test, *weaker.0, weaker.1.clone()))
        })
        .collect();
    let best = both.iter().max_by(|a, b| median(&a.2).total_cmp(&median(&b.2)));
    if tests.is_empty() {
        missing.push("TCP throughput".to_owned());
    } else if both.is_empty() {
        let direction = tests.values().flat_map(|directions| directions.keys()).next().copied().unwrap_or("forward");
        missing.push(format!("the direction opposite to {direction}"));
    }
    let medians = |name: &str| -> Vec<f64> {
        cells_of(&usable, name).into_values().filter_map(|v| Some(Summary::of(&v)?.median)).collect()
    };
    // The lowest loss of any offered rate: what a rate beyond the capacity loses is not the underlay's.
    let least = |name: &str| medians(name).into_iter().reduce(f64::min);
    let loss =
        least(UDP_LOSS).or_else(|| OTHER_LOSS.iter().find_map(|name| medians(name).into_iter().reduce(f64::max)));
    let loaded = medians(LOADED).into_iter().reduce(f64::max);
    let mtus = mtus(&usable);
    for (absent, what) in
        [(loss.is_none(), "loss"), (loaded.is_none(), "latency under load"), (mtus.is_empty(), "the MTU")]
    {
        if absent {
            missing.push(what.to_owned());
        }
    }
    let rate = best.and_then(|(_, _, visits)| Summary::of(&values(visits)));
    let safe = |visits: &[Visit]| median(visits) * options.safe_tcp;
    let streams_of = |test: &Cell| test.get(Factor::Streams).map(str::to_owned);
    let enough = options.need.and_then(|need| {
        let mut carrying: Vec<&(&Cell, &str, Vec<Visit>)> =
            both.iter().filter(|(_, _, visits)| safe(visits) >= need.bits_per_second() as f64).collect();
        carrying.sort_by_key(|(test, _, _)| streams_of(test).and_then(|streams| streams.parse::<u32>().ok()));
        carrying.first().and_then(|(test, _, _)| streams_of(test))
    });
    let unfit = if usable.is_empty() {
        let reason = runs.iter().find_map(|run| run.reason.clone()).unwrap_or_else(|| "no usable run".to_owned());
        Some(reason)
    } else {
        loss.filter(|loss| *loss > UNFIT_LOSS).map(|loss| format!("it loses {:.1} %", loss * 100.0))
    };
    Ranked {
        candidate: Candidate {
            underlay: underlay.to_owned(),
            weaker: best.map(|(_, direction, _)| (*direction).to_owned()),
            streams: best.and_then(|(test, _, _)| streams_of(test)),
            safe_tcp: best.map(|(_, _, visits)| safe(visits)),
            safe_udp: loss_free(&usable).map(|rate| rate * options.safe_udp),
            rate,
            loaded_p99_ns: loaded,
            loss_ratio: loss,
            mtu_bytes: mtus,
            behind: Vec::new(),
            streams_for_need: enough,
        },
        visits: best.map_or_else(Vec::new, |(_, _, visits)| visits.clone()),
        missing: if usable.is_empty() { Vec::new() } else { missing },
        unfit,
    }
}

/// A metric's values by the cell's test and direction.
fn cells_of<'a>(runs: &[&'a Run], name: &str) -> BTreeMap<&'a Cell, Vec<f64>> {
    let mut cells: BTreeMap<&Cell, Vec<f64>> = BTreeMap::new();
    for run in runs {
        if let Some(value) = run.metrics.get(name) {
            cells.entry(&run.factors).or_default().push(*value);
        }
    }
    cells
}

/// The highest UDP rate that arrived with hardly a loss, in the weaker direction where both were measured.
fn loss_free(runs: &[&Run]) -> Option<f64> {
    let (losses, rates) = (cells_of(runs, UDP_LOSS), cells_of(runs, RATE));
    let mut by_direction: BTreeMap<&str, f64> = BTreeMap::new();
    for (cell, losses) in losses {
        let loss = Summary::of(&losses)?.median;
        let Some(rate) = rates.get(cell).and_then(|rates| Summary::of(rates)) else { continue };
        if loss <= LOSS_FREE {
            let best = by_direction.entry(cell.get(Factor::Direction).unwrap_or("")).or_insert(0.0);
            *best = best.max(rate.median);
        }
    }
    by_direction.into_values().reduce(f64::min)
}

/// Every MTU that the runs' conditions or metrics name.
fn mtus(runs: &[&Run]) -> Vec<u64> {
    let named = runs.iter().flat_map(|run| &run.conditions).filter(|(name, _)| {
        let name = name.rsplit('.').next().unwrap_or(name);
        matches!(name, "tunnel_mtu" | "interface_mtu" | "mtu" | "mtu_bytes")
    });
    let measured = runs.iter().filter_map(|run| run.metrics.get("mtu_bytes")).map(|mtu| *mtu as u64);
    let all: BTreeSet<u64> = named.filter_map(|(_, value)| value.as_u64()).chain(measured).collect();
    all.into_iter().collect()
}

fn values(visits: &[Visit]) -> Vec<f64> {
    visits.iter().map(|visit| visit.value).collect()
}

fn median(visits: &[Visit]) -> f64 {
    Summary::of(&values(visits)).map_or(0.0, |summary| summary.median)
}

/// Every two candidates against each other, adjusted together.
fn orders(source: &Source<'_>, fit: &[Ranked], policy: &Policy) -> Vec<Order> {
    let header = &source.record.header;
    let mut compared: Vec<(&Ranked, &Ranked, Measured)> = Vec::new();
    for (place, of) in fit.iter().enumerate() {
        for to in &fit[place + 1..] {
            let runs = PairRuns { base: to.visits.clone(), new: of.visits.clone(), ..PairRuns::default() };
            compared.extend(measure(&[runs], false, header.seed).map(|measured| (of, to, measured)));
        }
    }
    let tests = compared.iter().filter(|(_, _, measured)| measured.estimate.is_some()).count();
    let min_effect = policy.min_effect_of(RATE, header);
    let ran = cells::rounds(source);
    let evidence = |p_adjusted: Option<f64>| Evidence {
        p_adjusted,
        tests,
        better: Better::Higher,
        min_effect,
        floor: metric(RATE).map_or(0.0, |line| line.floor),
        alpha: Policy::ALPHA,
        worse_share: 0.5,
    };
    let shared: Vec<(&Measured, Evidence)> =
        compared.iter().map(|(_, _, measured)| (measured, evidence(None))).collect();
    let adjusted = adjust(&shared);
    compared
        .into_iter()
        .zip(adjusted)
        .map(|((of, to, measured), p_adjusted)| {
            let decision = decide(&measured, &evidence(p_adjusted));
            let change = |difference: f64| measured.scale.change(difference);
            let ends = measured.estimate.map(|estimate| estimate.interval(crate::stats::CONFIDENCE));
            Order {
                of: of.candidate.underlay.clone(),
                to: to.candidate.underlay.clone(),
                change: change(measured.mean().unwrap_or(0.0)),
                interval: ends.map(|(low, high)| (change(low), change(high))),
                decided: matches!(decision.verdict, super::Verdict::Better | super::Verdict::Worse),
                rounds_needed: decision.rounds.and_then(|needed| decide::rounds_in_all(needed, measured.rounds, ran)),
            }
        })
        .collect()
}
