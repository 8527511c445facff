//! What must hold: a floor below which the engine may never fall, and the bar that it must get to. Every cell is judged, by its
//! interval.

use std::collections::BTreeMap;

use wglab::cell::{Cell, Factor};
use wglab::record::Run;
use wglab::stats::CONFIDENCE;

use crate::figures::{Figures, OURS, Ratio, What};
use crate::limits::{Limit, Point, Standing, State, Which};

const MIB: f64 = 1_048_576.0;

/// A line of the table of bars.
struct Bar {
    name: &'static str,
    what: What,
    stacks: &'static [&'static str],
    /// The guest's GRO, where the bar is about one of the two alone.
    gro: Option<bool>,
    /// One peer, or the fastest.
    against: Option<&'static str>,
    floor: f64,
    bar: f64,
}

const ALL: &[&str] = &["merged-all", "merged-tcp", "unmerged"];

const BARS: &[Bar] = &[
    Bar {
        name: "TCP 1/4/8, merged-all",
        what: What::Throughput,
        stacks: &["merged-all"],
        gro: None,
        against: None,
        floor: 1.5,
        bar: 2.0,
    },
    Bar {
        name: "TCP 1/4/8, merged-tcp",
        what: What::Throughput,
        stacks: &["merged-tcp"],
        gro: None,
        against: None,
        floor: 1.2,
        bar: 1.5,
    },
    Bar {
        name: "TCP 1/4/8, unmerged",
        what: What::Throughput,
        stacks: &["unmerged"],
        gro: Some(false),
        against: None,
        floor: 1.2,
        bar: 1.5,
    },
    Bar {
        name: "TCP 1/4/8, unmerged, guest GRO on",
        what: What::Throughput,
        stacks: &["unmerged"],
        gro: Some(true),
        against: None,
        floor: 1.5,
        bar: 1.75,
    },
    Bar {
        name: "UDP 1,372 B, loss under 0.1 %",
        what: What::Datagrams,
        stacks: ALL,
        gro: None,
        against: None,
        floor: 1.0,
        bar: 1.5,
    },
    Bar {
        name: "TCP_RR p50 against wireguard-go",
        what: What::RoundTrip,
        stacks: ALL,
        gro: None,
        against: Some("wireguard-go"),
        floor: 0.6,
        bar: 0.5,
    },
    Bar {
        name: "TCP_RR p50 against boringtun-cli",
        what: What::RoundTrip,
        stacks: ALL,
        gro: None,
        against: Some("boringtun-cli"),
        floor: 1.0,
        bar: 0.8,
    },
];

const MEMORY: (f64, f64) = (64.0 * MIB, 32.0 * MIB);
const CIPHER: (f64, f64) = (0.25, 0.35);

/// How a floor and its bar stand.
pub(crate) struct Judged {
    name: &'static str,
    floor: String,
    bar: String,
    /// The worst figure, with its interval, and where; absent where nothing was measured that it is about.
    worst: Option<String>,
    stands: Option<(Standing, Standing)>,
    /// What it is about and was not measured.
    pub(crate) lacking: Vec<String>,
}

impl Judged {
    /// How the floor stands; absent where nothing was measured that it is about.
    pub(crate) const fn floor(&self) -> Option<&Standing> {
        match &self.stands {
            Some((floor, _)) => Some(floor),
            None => None,
        }
    }

    /// A complaint where nothing was measured that this is about.
    pub(crate) fn unmeasured(&self) -> Option<String> {
        self.stands.is_none().then(|| format!("{}: nothing was measured that it is about", self.name))
    }
}

pub(crate) fn judge(cells: &[Figures], runs: &[&Run], bound: Option<f64>) -> Vec<Judged> {
    let mut judged: Vec<Judged> = BARS.iter().map(|bar| ratio(bar, cells)).collect();
    judged.push(memory(runs));
    judged.push(share(cells, bound));
    judged
}

/// The exit code: what was not measured comes before what was missed, since a gate that saw a part has judged a part.
pub(crate) fn exit(gate: bool, invalid: bool, lacking: bool, judged: &[Judged]) -> u8 {
    let floors = || judged.iter().filter_map(Judged::floor);
    if invalid || (gate && lacking) {
        2
    } else if gate && floors().any(Standing::fails) {
        1
    } else if gate && floors().any(|floor| floor.state == State::Undecided) {
        3
    } else {
        0
    }
}

fn ratio(bar: &Bar, cells: &[Figures]) -> Judged {
    // Where GRO could not be set, nodes are as they were made: veth has it off (Linux, drivers/net/veth.c).
    let gro = |cell: &&Figures| bar.gro.is_none_or(|gro| gro == (cell.level(Factor::Settings) == "gro-on"));
    let about = cells.iter().filter(|cell| cell.what == bar.what && bar.stacks.contains(&cell.level(Factor::Stack)));
    let about: Vec<&Figures> = about.filter(gro).collect();
    let there = about.iter().any(|cell| match bar.against {
        Some(peer) => cell.engines.contains_key(peer),
        None => cell.fastest().is_some(),
    });
    // A cell in which ours or the peer has no figure is no reason to look elsewhere.
    let (mut compared, mut without): (Vec<(&Figures, &str, Ratio)>, Vec<String>) = (Vec::new(), Vec::new());
    for cell in about {
        let peer = bar.against.or_else(|| cell.fastest());
        match peer.and_then(|peer| Some((peer, cell.ratio(peer)?))) {
            Some((peer, ratio)) => compared.push((cell, peer, ratio)),
            None => without.push(cell.place()),
        }
    }
    let points: Vec<Point> = compared.iter().map(|(.., ratio)| point(ratio, compared.len())).collect();
    let more = bar.what.more();
    let worst = compared.iter().max_by(|(.., one), (.., other)| {
        if more { other.value.total_cmp(&one.value) } else { one.value.total_cmp(&other.value) }
    });
    let stands = |limit| Standing::of(&points, Limit { limit, more }, Which::Every);
    let mark = if more { "at least" } else { "at most" };
    let cells = compared.len() + without.len();
    let lacking = (there && !without.is_empty()).then(|| {
        format!("{}: {} of {cells} cells have nothing to compare: {}", bar.name, without.len(), without.join(", "))
    });
    Judged {
        name: bar.name,
        floor: format!("{mark} {} x", bar.floor),
        bar: format!("{} x", bar.bar),
        worst: worst.map(|(cell, peer, ratio)| format!("{ratio} {peer}, {}", cell.place())),
        stands: stands(bar.floor).zip(stands(bar.bar)),
        lacking: lacking.into_iter().collect(),
    }
}

/// A cell among `cells`, with the interval that holds for it, and the one that holds for all of them at once (Bonferroni).
fn point(ratio: &Ratio, cells: usize) -> Point {
    Point {
        value: ratio.value,
        own: ratio.interval(CONFIDENCE),
        shared: ratio.interval(1.0 - (1.0 - CONFIDENCE) / cells as f64),
        at_most: ratio.ours_below > 0,
        at_least: ratio.theirs_below > 0,
    }
}

/// Peaks are what they were: they have no interval.
fn memory(runs: &[&Run]) -> Judged {
    let name = "peak memory under 8 streams";
    let ours = |run: &&&Run| run.factors.get(Factor::Engine) == Some(OURS);
    let about = runs.iter().filter(ours).filter(|run| run.factors.get(Factor::Streams) == Some("8"));
    let (mut peaks, mut unread) = (BTreeMap::<Cell, f64>::new(), 0);
    for run in about {
        match run.metrics.get("engine_peak_memory_bytes") {
            Some(peak) => {
                peaks.entry(run.factors.clone()).and_modify(|before| *before = before.max(*peak)).or_insert(*peak);
            }
            None => unread += 1,
        }
    }
    let points: Vec<Point> = peaks.into_values().map(Point::exact).collect();
    let peak = points.iter().map(|point| point.value).reduce(f64::max);
    let stands = |limit| Standing::of(&points, Limit { limit, more: false }, Which::Every);
    Judged {
        name,
        floor: format!("at most {:.0} MiB", MEMORY.0 / MIB),
        bar: format!("{:.0} MiB", MEMORY.1 / MIB),
        worst: peak.map(|peak| format!("{:.1} MiB", peak / MIB)),
        stands: stands(MEMORY.0).zip(stands(MEMORY.1)),
        lacking: (unread > 0).then(|| format!("{name}: it was not read in {unread} runs")).into_iter().collect(),
    }
}

/// The best cell's, so that one is enough.
fn share(cells: &[Figures], bound: Option<f64>) -> Judged {
    let about = cells.iter().filter(|cell| cell.what == What::Throughput);
    let shares: Vec<(&Figures, Ratio)> = about.filter_map(|cell| Some((cell, cell.share(bound?)?))).collect();
    let points: Vec<Point> = shares.iter().map(|(_, share)| point(share, shares.len())).collect();
    let best = shares.iter().max_by(|(_, one), (_, other)| one.value.total_cmp(&other.value));
    let bound_is_needed = bound.is_none() && cells.iter().any(|cell| cell.what == What::Throughput);
    let stands = |limit| Standing::of(&points, Limit { limit, more: true }, Which::Some);
    Judged {
        name: "share of the cipher bound, best cell",
        floor: format!("at least {:.0} %", CIPHER.0 * 100.0),
        bar: format!("{:.0} %", CIPHER.1 * 100.0),
        worst: best.map(|(cell, share)| {
            let interval = share.interval(CONFIDENCE).map_or_else(
                || "one round".to_owned(),
                |(low, high)| format!("{:.1} to {:.1}", low * 100.0, high * 100.0),
            );
            format!("{:.1} % ({interval}) {}", share.value * 100.0, cell.place())
        }),
        stands: stands(CIPHER.0).zip(stands(CIPHER.1)),
        lacking: bound_is_needed
            .then(|| {
                "the cipher's bound was not kept with this record: only the machine that measured could tell it"
                    .to_owned()
            })
            .into_iter()
            .collect(),
    }
}

/// Every bar with the worst figure that it is about, and how its floor and it stand.
pub(crate) fn note(judged: &[Judged], bound: Option<f64>) -> String {
    let bound = bound.map_or_else(
        || "not in this record, so no share of it can be told".to_owned(),
        |bound| format!("{:.1} Gbit/s", bound / 1e9),
    );
    let mut text = format!(
        "\nthe cipher alone, on every processor, both ways: {bound}\n\n{:<36} {:<15} {:<8} worst of its cells (95 % interval)\n",
        "what must hold", "floor", "bar"
    );
    for one in judged {
        let worst = one.worst.as_deref().unwrap_or("not measured");
        text += &format!("{:<36} {:<15} {:<8} {worst}\n", one.name, one.floor, one.bar);
        if let Some((floor, bar)) = &one.stands {
            text += &format!("{0:<36} floor {floor}\n{0:<36} bar   {bar}\n", "");
        }
    }
    text
}
