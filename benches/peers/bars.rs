//! What must hold: a floor below which the engine may never fall, and the bar that it must get to.

use wglab::cell::Factor;
use wglab::record::Run;

use crate::OURS;
use crate::figures::{Figures, What};

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

/// How a bar was met, by the worst cell that it is about.
pub(crate) struct Judged {
    name: &'static str,
    floor: String,
    bar: String,
    /// The worst figure and where; absent where nothing was measured that it is about.
    worst: Option<String>,
    holds: bool,
    reached: bool,
    /// Whether the worst ratio's interval reaches to the other side of the floor.
    close: bool,
}

impl Judged {
    /// A complaint where nothing was measured that this is about.
    pub(crate) fn unmeasured(&self) -> Option<String> {
        self.worst.is_none().then(|| format!("{}: nothing was measured that it is about", self.name))
    }

    /// Whether nothing that was measured is below the floor.
    pub(crate) const fn holds(&self) -> bool {
        self.worst.is_none() || self.holds
    }
}

pub(crate) fn judge(cells: &[Figures], runs: &[&Run], bound: f64) -> Vec<Judged> {
    let mut judged: Vec<Judged> = BARS.iter().map(|bar| ratio(bar, cells)).collect();
    judged.push(memory(runs));
    judged.push(share(cells, bound));
    judged
}

fn ratio(bar: &Bar, cells: &[Figures]) -> Judged {
    // Where GRO could not be set, nodes are as they were made: veth has it off (Linux, drivers/net/veth.c).
    let gro = |cell: &&Figures| bar.gro.is_none_or(|gro| gro == (cell.level(Factor::Settings) == "gro-on"));
    let about = cells.iter().filter(|cell| cell.what == bar.what && bar.stacks.contains(&cell.level(Factor::Stack)));
    let compared: Vec<(&Figures, &str)> = about
        .filter(gro)
        .filter_map(|cell| Some((cell, bar.against.or_else(|| cell.fastest())?)))
        .filter(|(cell, peer)| cell.engines.contains_key(*peer))
        .collect();
    // A peer has a figure here and ours has none: that is no reason to look elsewhere.
    let without = compared.iter().filter(|(cell, _)| !cell.engines.contains_key(OURS)).count();
    let ratios = compared.iter().filter_map(|(cell, peer)| Some((cell.ratio(peer)?, *cell, *peer)));
    let more = bar.what.more();
    let worst = ratios.min_by(
        |(one, ..), (other, ..)| {
            if more { one.value.total_cmp(&other.value) } else { other.value.total_cmp(&one.value) }
        },
    );
    let meets = |value: f64, limit: f64| if more { value >= limit } else { value <= limit };
    let mark = if more { "at least" } else { "at most" };
    Judged {
        name: bar.name,
        floor: format!("{mark} {} x", bar.floor),
        bar: format!("{} x", bar.bar),
        holds: without == 0 && worst.as_ref().is_some_and(|(ratio, ..)| meets(ratio.value, bar.floor)),
        reached: without == 0 && worst.as_ref().is_some_and(|(ratio, ..)| meets(ratio.value, bar.bar)),
        close: worst
            .as_ref()
            .and_then(|(ratio, ..)| ratio.interval)
            .is_some_and(|(low, high)| meets(low, bar.floor) != meets(high, bar.floor)),
        worst: worst.map(|(ratio, cell, peer)| {
            let place: Vec<&str> = [Factor::Stack, Factor::Settings, Factor::Streams, Factor::Direction]
                .into_iter()
                .filter_map(|factor| cell.cell.get(factor))
                .collect();
            let none = if without == 0 { String::new() } else { format!("; {without} cells without a figure of ours") };
            format!("{ratio} {peer}, {}{none}", place.join(" "))
        }),
    }
}

fn memory(runs: &[&Run]) -> Judged {
    let peak = runs
        .iter()
        .filter(|run| run.factors.get(Factor::Engine) == Some(OURS) && run.factors.get(Factor::Streams) == Some("8"))
        .filter_map(|run| run.metrics.get("engine_peak_memory_bytes"))
        .copied()
        .reduce(f64::max);
    Judged {
        name: "peak memory under 8 streams",
        floor: format!("at most {:.0} MiB", MEMORY.0 / MIB),
        bar: format!("{:.0} MiB", MEMORY.1 / MIB),
        holds: peak.is_some_and(|peak| peak <= MEMORY.0),
        reached: peak.is_some_and(|peak| peak <= MEMORY.1),
        close: false,
        worst: peak.map(|peak| format!("{:.1} MiB", peak / MIB)),
    }
}

fn share(cells: &[Figures], bound: f64) -> Judged {
    let best = cells
        .iter()
        .filter(|cell| cell.what == What::Throughput)
        .filter_map(|cell| cell.median(OURS))
        .reduce(f64::max)
        .map(|rate| rate / bound);
    Judged {
        name: "share of the cipher bound, best cell",
        floor: format!("at least {:.0} %", CIPHER.0 * 100.0),
        bar: format!("{:.0} %", CIPHER.1 * 100.0),
        holds: best.is_some_and(|share| share >= CIPHER.0),
        reached: best.is_some_and(|share| share >= CIPHER.1),
        close: false,
        worst: best.map(|share| format!("{:.1} %", share * 100.0)),
    }
}

/// Every bar with the worst figure that it is about.
pub(crate) fn note(judged: &[Judged], bound: f64) -> String {
    let mut text = format!(
        "\nthe cipher alone, on every processor, both ways: {:.1} Gbit/s\n\n{:<36} {:<15} {:<8} worst of its cells\n",
        bound / 1e9,
        "what must hold",
        "floor",
        "bar"
    );
    for one in judged {
        let found = match &one.worst {
            None => "not measured".to_owned(),
            Some(worst) => {
                let state = match (one.holds, one.reached) {
                    (false, _) => "BELOW THE FLOOR",
                    (true, false) => "floor holds, bar not reached",
                    (true, true) => "bar reached",
                };
                let close = if one.close { "; its interval crosses the floor" } else { "" };
                format!("{worst}: {state}{close}")
            }
        };
        text += &format!("{:<36} {:<15} {:<8} {found}\n", one.name, one.floor, one.bar);
    }
    text
}
