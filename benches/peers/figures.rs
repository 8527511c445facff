//! From runs to figures: one number per engine, cell and round; ratios within rounds.

use std::collections::BTreeMap;

use wglab::cell::{Cell, Factor, metric};
use wglab::record::Run;
use wglab::stats::{paired, summary};

use crate::OURS;

/// What is compared in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Throughput,
    RoundTrip,
    /// Datagrams per second that arrived at the highest rate at which at most one in a thousand was lost.
    Datagrams,
}

impl What {
    const ALL: [Self; 3] = [Self::Throughput, Self::RoundTrip, Self::Datagrams];

    const fn metric(self) -> &'static str {
        match self {
            Self::Throughput => "throughput_bits_per_second",
            Self::RoundTrip => "rr_p50_ns",
            Self::Datagrams => "packets_per_second",
        }
    }

    const fn test(self) -> &'static str {
        match self {
            Self::Throughput => "tcp-stream",
            Self::RoundTrip => "tcp-rr",
            Self::Datagrams => "udp-stream",
        }
    }

    /// Whether more is better.
    pub(crate) const fn more(self) -> bool {
        !matches!(self, Self::RoundTrip)
    }
}

/// Loss up to which a rate counts as carried.
const LOSS: f64 = 0.001;

/// The figures of one cell: by engine, by round.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) what: What,
    pub(crate) cell: Cell,
    pub(crate) engines: BTreeMap<String, BTreeMap<u32, f64>>,
}

/// Ours over another's, within rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    /// The 95 % interval; absent with fewer than two rounds.
    pub(crate) interval: Option<(f64, f64)>,
}

pub(crate) fn cells(runs: &[&Run]) -> Vec<Figures> {
    let mut all = Vec::new();
    for what in What::ALL {
        let mut cells: BTreeMap<Cell, BTreeMap<String, BTreeMap<u32, f64>>> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.factors.get(Factor::Test) == Some(what.test())) {
            let (Some(engine), Some(value)) = (run.factors.get(Factor::Engine), run.metrics.get(what.metric())) else {
                continue;
            };
            let mut cell = run.factors.clone().without(Factor::Engine);
            if what == What::Datagrams {
                cell = cell.without(Factor::Rate);
                if run.metrics.get("loss_ratio").is_none_or(|loss| *loss > LOSS) {
                    continue;
                }
            }
            let rounds = cells.entry(cell).or_default().entry(engine.to_owned()).or_default();
            let best = rounds.entry(run.round).or_insert(*value);
            // Of the rates without loss the highest counts; of everything else there is one figure per round.
            *best = best.max(*value);
        }
        all.extend(cells.into_iter().map(|(cell, engines)| Figures { what, cell, engines }));
    }
    all
}

impl Figures {
    pub(crate) fn level(&self, factor: Factor) -> &str {
        self.cell.get(factor).unwrap_or("-")
    }

    /// An engine's median over rounds.
    pub(crate) fn median(&self, engine: &str) -> Option<f64> {
        summary::median(&self.engines.get(engine)?.values().copied().collect::<Vec<_>>())
    }

    /// The peer with the best median here.
    pub(crate) fn fastest(&self) -> Option<&str> {
        let peers = self.engines.keys().filter(|engine| ![OURS, "raw"].contains(&engine.as_str()));
        let rated = peers.filter_map(|engine| Some((engine.as_str(), self.median(engine)?)));
        let better =
            |one: f64, other: f64| if self.what.more() { one.total_cmp(&other) } else { other.total_cmp(&one) };
        rated.max_by(|(_, one), (_, other)| better(*one, *other)).map(|(engine, _)| engine)
    }

    /// Ours over `peer`'s, over the rounds that have both.
    pub(crate) fn ratio(&self, peer: &str) -> Option<Ratio> {
        let (ours, theirs) = (self.engines.get(OURS)?, self.engines.get(peer)?);
        let differences: Vec<f64> =
            ours.iter().filter_map(|(round, value)| Some((value / theirs.get(round)?).ln())).collect();
        if let Some(estimate) = paired::within_blocks(std::slice::from_ref(&differences)) {
            let (low, high) = estimate.interval(0.95);
            return Some(Ratio { value: estimate.mean.exp(), interval: Some((low.exp(), high.exp())) });
        }
        let [one] = differences[..] else { return None };
        Some(Ratio { value: one.exp(), interval: None })
    }

    fn name(&self) -> String {
        let streams =
            if self.what == What::Throughput { format!(" {}", self.level(Factor::Streams)) } else { String::new() };
        let direction = if self.what == What::RoundTrip { "" } else { self.level(Factor::Direction) };
        format!(
            "{:<11} {:<8} {:<13} {direction:<8}",
            self.level(Factor::Stack),
            self.level(Factor::Settings),
            format!("{}{streams}", self.what.test()),
        )
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.interval {
            Some((low, high)) => write!(f, "{:.2} x ({low:.2} to {high:.2})", self.value),
            None => write!(f, "{:.2} x (one round)", self.value),
        }
    }
}

/// Every cell: the medians of all engines, and ours against the fastest peer.
pub(crate) fn table(cells: &[Figures]) -> String {
    let mut engines: Vec<&str> = vec!["raw", OURS];
    engines.extend(crate::PEERS);
    engines.retain(|engine| cells.iter().any(|cell| cell.engines.contains_key(*engine)));
    let mut text = format!("{:<11} {:<8} {:<13} {:<8}", "stack", "settings", "test", "");
    for engine in &engines {
        text += &format!(" {engine:>14}");
    }
    text += "   embedded / fastest peer (95 % interval)\n";
    for figures in cells {
        text += &figures.name();
        for engine in &engines {
            let shown = match (figures.median(engine), metric(figures.what.metric())) {
                (Some(value), Some(metric)) => metric.format(value),
                // Of a rate ladder: even its lowest step lost more than one datagram in a thousand.
                (None, _) if figures.what == What::Datagrams => "below 20,000/s".to_owned(),
                _ => "-".to_owned(),
            };
            text += &format!(" {shown:>14}");
        }
        let against = figures.fastest().and_then(|peer| Some((figures.ratio(peer)?, peer)));
        let against = against.map_or_else(|| "-".to_owned(), |(ratio, peer)| format!("{ratio} {peer}"));
        text += &format!("   {against}\n");
    }
    text
}
