//! The tables, and the page that they go into.

use std::path::Path;

use anyhow::{Context, Result};
use wglab::host::facts;
use wglab::stats::summary::median;

use crate::Options;
use crate::measure::{KEEPALIVE, Measured, Metric, Rows, TRICKLE};

const BEGIN: &str = "<!-- growth: begin -->";
const END: &str = "<!-- growth: end -->";

/// A column: its heading and how a value is written.
type Column = (Metric, &'static str, fn(f64) -> String);

const REST: [Column; 5] = [
    (Metric::Configured, "configured after, ms", |ms| format!("{ms:.0}")),
    (Metric::Memory, "memory, MiB", mebibytes),
    (Metric::PeakMemory, "peak, MiB", mebibytes),
    (Metric::Idle, "idle, ‰ of a core", per_mille),
    (Metric::IdleKeepalive, "with keepalives, ‰", per_mille),
];
const HANDSHAKES: [Column; 4] = [
    (Metric::AllUpCalled, "called: all up after, ms", |ms| format!("{ms:.0}")),
    (Metric::Answered, "answered, /s/core", |rate| format!("{rate:.0}")),
    (Metric::AllUpCalling, "calling: all up after, ms", |ms| format!("{ms:.0}")),
    (Metric::Begun, "begun, /s/core", |rate| format!("{rate:.0}")),
];
const WORK: [Column; 4] = [
    (Metric::TricklePacket, "trickle, µs of CPU a packet", |ns| format!("{:.2}", ns / 1e3)),
    (Metric::TrickleReturned, "of it returned, %", |share| format!("{:.1}", share * 1e2)),
    (Metric::BusyIn, "from a busy one, Gbit/s", gigabits),
    (Metric::BusyOut, "to a busy one, Gbit/s", gigabits),
];
const MTU: [Column; 4] = [
    (Metric::BusyIn, "received, Gbit/s", gigabits),
    (Metric::CostIn, "s of CPU a Gbit", |cost| format!("{cost:.2}")),
    (Metric::BusyOut, "sent, Gbit/s", gigabits),
    (Metric::CostOut, "s of CPU a Gbit", |cost| format!("{cost:.2}")),
];

fn mebibytes(bytes: f64) -> String {
    format!("{:.1}", bytes / f64::from(1 << 20))
}

fn per_mille(share: f64) -> String {
    format!("{:.2}", share * 1e3)
}

fn gigabits(bits: f64) -> String {
    format!("{:.2}", bits / 1e9)
}

/// Everything that was measured, with what it was measured on and how to repeat it.
pub(crate) fn tables(options: &Options, measured: &Measured) -> String {
    let facts = facts();
    let mut text = format!("    {}\n\n", options.command);
    let machine = [
        facts.cpus.map(|cpus| format!("{cpus} processors")),
        facts.cpu_model,
        facts.memory.map(|memory| format!("{:.0} GiB of memory", memory.get() as f64 / f64::from(1 << 30))),
        Some(format!("Linux {} ({})", facts.kernel, facts.architecture)),
        (!facts.virtualisation.is_empty()).then(|| facts.virtualisation.join(", ")),
    ];
    let engine = measured.version.as_deref().map_or_else(String::new, |version| format!(" {version}"));
    let name = options.engine.to_string();
    let name = name.rsplit('/').next().unwrap_or_default();
    text += &format!(
        "Engine: {name}{engine}. Machine: {}. {}. Medians over {} rounds with least and most; windows of {} s; taken in {:.0} s.\n",
        machine.into_iter().flatten().collect::<Vec<_>>().join(", "),
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        options.rounds,
        options.seconds,
        measured.took.as_secs_f64(),
    );
    if !measured.by_peers.is_empty() {
        let every = KEEPALIVE.as_secs();
        text += &format!("\n#### At rest, by peers (keepalives: every {every} s to each)\n\n");
        text += &table("peers", &REST, &measured.by_peers);
        text += "\n#### Handshakes, by peers that come up at once\n\n";
        text += &table("peers", &HANDSHAKES, &measured.by_peers);
        text += &format!(
            "\n#### At work, by peers ({TRICKLE} packets/s from all together, or four TCP streams of one)\n\n"
        );
        text += &table("peers", &WORK, &measured.by_peers);
    }
    if !measured.by_mtu.is_empty() {
        text += "\n#### One busy peer, by the tunnel's MTU (four TCP streams)\n\n";
        text += &table("MTU", &MTU, &measured.by_mtu);
    }
    text
}

fn table(key: &str, columns: &[Column], rows: &Rows) -> String {
    let headings: Vec<&str> = columns.iter().map(|(_, heading, _)| *heading).collect();
    let mut text = format!("| {key} | {} |\n|{}\n", headings.join(" | "), "---|".repeat(columns.len() + 1));
    for (key, metrics) in rows {
        let cells: Vec<String> = columns
            .iter()
            .map(|(metric, _, write)| metrics.get(metric).map_or_else(|| "-".to_owned(), |values| cell(values, *write)))
            .collect();
        text += &format!("| {key} | {} |\n", cells.join(" | "));
    }
    text
}

/// `median (least to most)`, or the one value.
fn cell(values: &[f64], write: fn(f64) -> String) -> String {
    let Some(middle) = median(values) else { return "-".to_owned() };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match (write(least), write(most)) {
        (least, most) if least == most => write(middle),
        (least, most) => format!("{} ({least} to {most})", write(middle)),
    }
}

/// Puts the tables between the marks of a page.
pub(crate) fn write(path: &Path, tables: &str) -> Result<()> {
    let page = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let marked = || -> Option<String> {
        let (before, rest) = page.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        Some(format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))
    };
    let text = marked().with_context(|| format!("{} has no lines {BEGIN} and {END}", path.display()))?;
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
