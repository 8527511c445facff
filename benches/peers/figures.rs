//! From runs to figures: one number per engine, cell and round; ratios within rounds.

use std::collections::BTreeMap;

use wglab::cell::{Cell, Factor, metric};
use wglab::record::Run;
use wglab::stats::{CONFIDENCE, paired, summary};
use wglab::units::PacketRate;

/// The engines of the lab: ours, and the peers by the names of their programs.
pub(crate) const OURS: &str = "embedded";
pub(crate) const PEERS: [&str; 3] = ["wireguard-go", "boringtun-cli", "gotatun"];

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
/// The ladder's steps: a figure is known to one of them, so two rounds that agree to the last digit still do not say more.
const STEP: f64 = 1.25;

/// What a round says of an engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Figure {
    Is(f64),
    /// Even the lowest rate that was tried lost too much: the figure lies below this.
    Below(f64),
}

impl Figure {
    const fn value(self) -> f64 {
        match self {
            Self::Is(value) | Self::Below(value) => value,
        }
    }
}

/// The figures of one cell: by engine, by round.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) what: What,
    pub(crate) cell: Cell,
    pub(crate) engines: BTreeMap<String, BTreeMap<u32, Figure>>,
}

/// A figure over rounds, or ours over another's within them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    /// The geometric mean over rounds.
    pub(crate) value: f64,
    estimate: Option<paired::Estimate>,
    /// Rounds in which ours is below its figure here, so that the ratio is at most this.
    pub(crate) ours_below: usize,
    /// Rounds in which the peer's is, so that the ratio is at least this.
    pub(crate) theirs_below: usize,
    rounds: usize,
}

/// The figures of every cell, and what runs should have had and did not.
pub(crate) fn cells(runs: &[&Run]) -> (Vec<Figures>, Vec<String>) {
    let mut all = Vec::new();
    let mut lacking = BTreeMap::<String, usize>::new();
    for what in What::ALL {
        let mut cells: BTreeMap<Cell, BTreeMap<String, BTreeMap<u32, Figure>>> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.factors.get(Factor::Test) == Some(what.test())) {
            let Some(engine) = run.factors.get(Factor::Engine) else { continue };
            let figure = match figure(what, run) {
                Ok(figure) => figure,
                // The raw underlay is shown, and judged nowhere.
                Err(_) if engine == "raw" => continue,
                Err(name) => {
                    *lacking.entry(format!("runs of {} by {engine} have no {name}", what.test())).or_default() += 1;
                    continue;
                }
            };
            let mut cell = run.factors.clone().without(Factor::Engine);
            if what == What::Datagrams {
                cell = cell.without(Factor::Rate);
            }
            let rounds = cells.entry(cell).or_default().entry(engine.to_owned()).or_default();
            rounds.entry(run.round).and_modify(|before| *before = higher(*before, figure)).or_insert(figure);
        }
        all.extend(cells.into_iter().map(|(cell, engines)| Figures { what, cell, engines }));
    }
    (all, lacking.into_iter().map(|(what, runs)| format!("{runs} {what}")).collect())
}

/// What one run says; or the name of what it lacks.
fn figure(what: What, run: &Run) -> Result<Figure, &'static str> {
    let metric = |name| run.metrics.get(name).copied().ok_or(name);
    if what != What::Datagrams || metric("loss_ratio")? <= LOSS {
        return Ok(Figure::Is(metric(what.metric())?));
    }
    let offered = run.factors.get(Factor::Rate).and_then(|rate| rate.parse::<PacketRate>().ok());
    Ok(Figure::Below(offered.ok_or("rate that was offered")?.per_second() as f64))
}

/// Of the rates without loss the highest counts; without any, the figure is below the lowest.
fn higher(one: Figure, other: Figure) -> Figure {
    match (one, other) {
        (Figure::Is(one), Figure::Is(other)) => Figure::Is(one.max(other)),
        (Figure::Below(one), Figure::Below(other)) => Figure::Below(one.min(other)),
        (is @ Figure::Is(_), Figure::Below(_)) | (Figure::Below(_), is @ Figure::Is(_)) => is,
    }
}

impl Figures {
    pub(crate) fn level(&self, factor: Factor) -> &str {
        self.cell.get(factor).unwrap_or("-")
    }

    /// Where it is, in words.
    pub(crate) fn place(&self) -> String {
        let factors: &[Factor] = match self.what {
            What::Throughput => &[Factor::Stack, Factor::Settings, Factor::Streams, Factor::Direction],
            What::Datagrams => &[Factor::Stack, Factor::Settings, Factor::Direction],
            What::RoundTrip => &[Factor::Stack, Factor::Settings],
        };
        factors.iter().filter_map(|factor| self.cell.get(*factor)).collect::<Vec<_>>().join(" ")
    }

    /// An engine's median over rounds; a bound where most rounds say no more.
    pub(crate) fn median(&self, engine: &str) -> Option<Figure> {
        let rounds = self.engines.get(engine)?;
        let value = summary::median(&rounds.values().map(|figure| figure.value()).collect::<Vec<_>>())?;
        let below = rounds.values().filter(|figure| matches!(figure, Figure::Below(_))).count();
        Some(if below * 2 > rounds.len() { Figure::Below(value) } else { Figure::Is(value) })
    }

    /// The peer with the best median here.
    pub(crate) fn fastest(&self) -> Option<&str> {
        let peers = self.engines.keys().filter(|engine| ![OURS, "raw"].contains(&engine.as_str()));
        let rated = peers.filter_map(|engine| Some((engine.as_str(), self.median(engine)?.value())));
        let better =
            |one: f64, other: f64| if self.what.more() { one.total_cmp(&other) } else { other.total_cmp(&one) };
        rated.max_by(|(_, one), (_, other)| better(*one, *other)).map(|(engine, _)| engine)
    }

    /// Ours over `peer`'s, over the rounds that have both. A round in which one had no step without loss counts with the bound;
    /// one in which neither had says nothing.
    pub(crate) fn ratio(&self, peer: &str) -> Option<Ratio> {
        let (ours, theirs) = (self.engines.get(OURS)?, self.engines.get(peer)?);
        let both: Vec<(Figure, Figure)> = ours
            .iter()
            .filter_map(|(round, figure)| Some((*figure, *theirs.get(round)?)))
            .filter(|both| !matches!(both, (Figure::Below(_), Figure::Below(_))))
            .collect();
        let logs: Vec<f64> = both.iter().map(|(ours, theirs)| (ours.value() / theirs.value()).ln()).collect();
        let ratio = Ratio::of(&logs)?;
        let estimate = if self.what == What::Datagrams {
            // Two figures, each anywhere within a step: the variance of a uniform distribution is a twelfth of its width's square.
            let least = STEP.ln() / (6.0 * logs.len() as f64).sqrt();
            ratio.estimate.map(|estimate| estimate.with_error_of_at_least(least))
        } else {
            ratio.estimate
        };
        Some(Ratio {
            estimate,
            ours_below: both.iter().filter(|(ours, _)| matches!(ours, Figure::Below(_))).count(),
            theirs_below: both.iter().filter(|(_, theirs)| matches!(theirs, Figure::Below(_))).count(),
            ..ratio
        })
    }

    /// Ours as a part of `whole`.
    pub(crate) fn share(&self, whole: f64) -> Option<Ratio> {
        let rounds = self.engines.get(OURS)?.values();
        Ratio::of(&rounds.map(|figure| (figure.value() / whole).ln()).collect::<Vec<_>>())
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

impl Ratio {
    /// Of one logarithm per round.
    fn of(logs: &[f64]) -> Option<Self> {
        let value = wglab::stats::mean(logs)?.exp();
        let estimate = paired::within_blocks(&[logs.to_vec()]);
        Some(Self { value, estimate, ours_below: 0, theirs_below: 0, rounds: logs.len() })
    }

    /// The interval at `confidence`; absent with fewer than two rounds, and where one of the figures was zero.
    pub(crate) fn interval(&self, confidence: f64) -> Option<(f64, f64)> {
        let (low, high) = self.estimate?.interval(confidence);
        (low.is_finite() && high.is_finite()).then(|| (low.exp(), high.exp()))
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.interval(CONFIDENCE) {
            Some((low, high)) => write!(f, "{:.2} x ({low:.2} to {high:.2})", self.value)?,
            None if self.rounds == 1 => write!(f, "{:.2} x (one round)", self.value)?,
            None => write!(f, "{:.2} x (no interval)", self.value)?,
        }
        let rounds = self.rounds;
        for (whose, below) in [("ours", self.ours_below), ("theirs", self.theirs_below)] {
            if below > 0 {
                write!(f, " [{whose} lost at every rate in {below} of {rounds} rounds]")?;
            }
        }
        Ok(())
    }
}

/// Every cell: the medians of all engines, and ours against the fastest peer.
pub(crate) fn table(cells: &[Figures]) -> String {
    let mut engines: Vec<&str> = vec!["raw", OURS];
    engines.extend(PEERS);
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
                (Some(Figure::Is(value)), Some(metric)) => metric.format(value),
                // Of a rate ladder: even its lowest step lost more than one datagram in a thousand.
                (Some(Figure::Below(value)), Some(metric)) => format!("below {}", metric.format(value)),
                (None, _) | (_, None) => "-".to_owned(),
            };
            text += &format!(" {shown:>14}");
        }
        let against = figures.fastest().and_then(|peer| Some((figures.ratio(peer)?, peer)));
        let against = against.map_or_else(|| "-".to_owned(), |(ratio, peer)| format!("{ratio} {peer}"));
        text += &format!("   {against}\n");
    }
    text
}
