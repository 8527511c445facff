//! From what both ends saw to the metrics of a run. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::agent::messages::{self, JobOutcome, Latency, Outcome};
use crate::cell::TestKind;
use crate::plan::TestPlan;
use crate::record::{Caution, Histogram, Meters, Series};
use crate::units::Direction;

/// The two ends of a finished run.
#[derive(Clone, Copy)]
pub(super) struct Both<'a> {
    pub(super) client: &'a JobOutcome,
    pub(super) server: &'a JobOutcome,
    /// Whether both share one machine's CPUs, so that each end's meters show the same ones.
    pub(super) one_machine: bool,
    /// The pinned underlay's interface at the receiver of bulk data.
    pub(super) pinned: Option<&'a str>,
    pub(super) direction: Direction,
    /// The devices of the tunnels that carried the run, each at the client and at the server; empty where none did.
    pub(super) devices: &'a [[&'a str; 2]],
}

impl<'a> Both<'a> {
    /// The end whose count is the result.
    fn receiver(&self) -> &'a JobOutcome {
        match self.direction {
            Direction::Forward => self.server,
            Direction::Reverse => self.client,
        }
    }

    fn sender(&self) -> &'a JobOutcome {
        match self.direction {
            Direction::Forward => self.client,
            Direction::Reverse => self.server,
        }
    }
}

/// Everything in a run's line that comes from its numbers.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) metrics: BTreeMap<String, f64>,
    pub(super) histograms: BTreeMap<String, Histogram>,
    pub(super) series: BTreeMap<String, Series>,
    pub(super) conditions: BTreeMap<String, Value>,
    pub(super) cautions: Vec<Caution>,
    pub(super) meters: Option<Meters>,
}

impl Measured {
    /// Adds a metric that was measured; absent stays absent.
    fn put(&mut self, name: &str, value: Option<f64>) {
        debug_assert!(crate::cell::metric(name).is_some(), "`{name}` is not in the table of metrics");
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.metrics.insert(name.to_owned(), value);
        }
    }

    /// Those percentiles that the table of metrics has, where there are samples enough; the distribution has them all. Who
    /// was not answered waited longer than anybody: else a path that loses its slowest packets would look faster.
    fn latency(&mut self, prefix: &str, latency: &Latency) {
        for (percentile, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let name = format!("{prefix}_{percentile}_ns");
            if crate::cell::metric(&name).is_none() {
                continue;
            }
            self.put(&name, latency.quantile_with_unanswered_ns(quantile).map(|ns| ns as f64));
        }
        self.conditions.insert(format!("client.{prefix}_sampling"), json!(latency.sampling));
        let counts = latency.histogram.buckets.clone();
        self.histograms.insert(format!("{prefix}_ns"), Histogram { unit: "ns".to_owned(), counts });
    }
}

/// Reads a run's metrics, distributions, conditions and cautions off its two outcomes.
pub(super) fn measured(test: &TestPlan, both: Both<'_>) -> Measured {
    let mut out = Measured::default();
    match test.kind {
        TestKind::TcpStream => stream(&mut out, both),
        TestKind::UdpStream => {
            stream(&mut out, both);
            datagrams(&mut out, both);
        }
        TestKind::TcpRr | TestKind::UdpRr => requests(&mut out, both, "rr"),
        TestKind::TcpCrr => requests(&mut out, both, "crr"),
        TestKind::Ping => pings(&mut out, both),
        TestKind::Handshake => {
            if let Some(latency) = &both.client.traffic.latency {
                out.latency("handshake", latency);
            }
            out.put("handshakes_per_second", both.client.traffic.transactions_per_second());
        }
        TestKind::UdpSearch | TestKind::Connections | TestKind::Mtu => {}
    }
    cpu(&mut out, both);
    engine(&mut out, both);
    conditions(&mut out, both);
    for (end, outcome) in [("client", both.client), ("server", both.server)] {
        out.cautions.extend(outcome.traffic.cautions.iter().map(|caution| self::caution(end, caution)));
    }
    for (end, outcome) in [("client", both.client), ("server", both.server)] {
        offload_fallback(&mut out, end, outcome);
    }
    out.meters = Some(Meters { client: meters(both.client), server: meters(both.server) });
    out
}

/// One end's meters: the host's, and what the generator's sockets and the tunnels counted beside the result.
fn meters(outcome: &JobOutcome) -> Value {
    let traffic = &outcome.traffic;
    let mut all = json!(outcome.meters);
    let Some(fields) = all.as_object_mut() else { return all };
    let mut sockets = json!({ "counts": traffic.counts });
    if let Some(told) = sockets.as_object_mut() {
        // At the window's end, one for each stream.
        let tcp: Vec<Value> = traffic.tcp.iter().map(|tcp| json!(tcp.end)).collect();
        told.extend((!tcp.is_empty()).then(|| ("tcp_info".to_owned(), json!(tcp))));
        told.extend((!traffic.streams.is_empty()).then(|| ("streams".to_owned(), json!(traffic.streams))));
    }
    fields.insert("sockets".to_owned(), sockets);
    let tunnels: BTreeMap<&String, Value> = outcome
        .tunnels
        .iter()
        .map(|(interface, around)| {
            let engine = around.after.engine.as_ref().map(|after| {
                let before = around.before.engine.as_ref();
                let was = |name: &String| before.and_then(|engine| engine.counters.get(name)).copied().unwrap_or(0);
                // A counter that is not there has not counted yet.
                let rose = after.counters.iter().map(|(name, now)| (name, now.saturating_sub(was(name))));
                rose.filter(|(_, by)| *by > 0).collect::<BTreeMap<_, _>>()
            });
            (interface, json!({ "peers": around.after.peers.len(), "events": engine }))
        })
        .collect();
    if !tunnels.is_empty() {
        fields.insert("tunnels".to_owned(), json!(tunnels));
    }
    all
}

/// An offload that the engine has turned off since the kernel refused it at work changes what is measured.
fn offload_fallback(out: &mut Measured, end: &str, outcome: &JobOutcome) {
    for (interface, around) in &outcome.tunnels {
        let notes = |status: &messages::Status| status.engine.as_ref().map(|engine| engine.offload_notes.clone());
        let before = notes(&around.before).unwrap_or_default();
        for note in notes(&around.after).unwrap_or_default().iter().filter(|note| !before.contains(note)) {
            let text = format!("{interface} of the {end} fell back during the run: {note}");
            out.cautions.push(Caution { kind: "offload-fallback".to_owned(), text });
        }
    }
}

fn stream(out: &mut Measured, both: Both<'_>) {
    let (receiver, sender) = (&both.receiver().traffic, &both.sender().traffic);
    out.put("throughput_bits_per_second", receiver.received_rate().map(|rate| rate.bits_per_second() as f64));
    let seconds = sender.window.map(|window| window.length_ns as f64 / 1e9).filter(|seconds| *seconds > 0.0);
    let sent = sender.counts.sent_bytes.zip(seconds);
    out.put("sent_bits_per_second", sent.map(|(bytes, seconds)| bytes as f64 * 8.0 / seconds));
    out.put("retransmit_ratio", retransmit_ratio(sender));
    out.put(
        "bytes_per_packet",
        both.pinned.and_then(|interface| both.receiver().meters.bytes_per_received_packet(interface)),
    );
    if let Some(probe) = &both.client.traffic.probe {
        out.latency("probe", &probe.latency);
        let lost = probe.sent.saturating_sub(probe.latency.histogram.count());
        out.put("probe_loss_ratio", (probe.sent > 0).then(|| lost as f64 / probe.sent as f64));
    }
    if let Some(series) = &receiver.series {
        let whole = series.bytes.len().saturating_sub(usize::from(series.last_interval_ns != series.interval_ns));
        let seconds = series.interval_ns as f64 / 1e9;
        let values = series.bytes.iter().take(whole).map(|bytes| Some(*bytes as f64 * 8.0 / seconds)).collect();
        let step_ms = series.interval_ns / 1_000_000;
        out.series.insert("throughput".to_owned(), Series { unit: "bits_per_second".to_owned(), step_ms, values });
    }
    for gap in &receiver.gaps {
        let (length, at) = (gap.length_ns as f64 / 1e6, gap.at_ns as f64 / 1e6);
        let text = format!("no byte arrived for {length:.0} ms, {at:.0} ms into the window");
        out.cautions.push(Caution { kind: "gap".to_owned(), text });
    }
}

fn retransmit_ratio(sender: &Outcome) -> Option<f64> {
    let mut resent = 0.0;
    let mut sent = 0.0;
    for tcp in &sender.tcp {
        let before = tcp.start.as_ref();
        let segments = |pick: fn(&messages::TcpInfo) -> Option<u32>| {
            Some(f64::from(pick(&tcp.end)?) - before.and_then(pick).map_or(0.0, f64::from))
        };
        resent += segments(|info| Some(info.total_retrans))?;
        sent += segments(|info| info.data_segs_out)?;
    }
    (sent > 0.0).then_some(resent / sent)
}

fn datagrams(out: &mut Measured, both: Both<'_>) {
    let receiver = &both.receiver().traffic;
    let counts = &receiver.counts;
    let seconds = receiver.window.map(|window| window.length_ns as f64 / 1e9).filter(|seconds| *seconds > 0.0);
    let delivered = counts.received_packets.map(|packets| packets as f64);
    out.put("packets_per_second", delivered.zip(seconds).map(|(packets, seconds)| packets / seconds));
    out.put("loss_ratio", receiver.loss_fraction());
    out.put("jitter_ns", counts.jitter_ns.map(|ns| ns as f64));
    let reordered = counts.reordered_packets.map(|packets| packets as f64);
    out.put("reordered_ratio", reordered.zip(delivered).filter(|(_, all)| *all > 0.0).map(|(late, all)| late / all));
}

fn requests(out: &mut Measured, both: Both<'_>, prefix: &str) {
    let client = &both.client.traffic;
    if let Some(latency) = &client.latency {
        out.latency(prefix, latency);
    }
    out.put(&format!("{prefix}_per_second"), client.transactions_per_second());
}

fn pings(out: &mut Measured, both: Both<'_>) {
    let client = &both.client.traffic;
    if let Some(latency) = &client.latency {
        out.latency("ping", latency);
    }
    let lost = client.counts.lost_packets.zip(client.counts.sent_packets).filter(|(_, sent)| *sent > 0);
    out.put("ping_loss_ratio", lost.map(|(lost, sent)| lost as f64 / sent as f64));
}

fn cpu(out: &mut Measured, both: Both<'_>) {
    let ends: &[&JobOutcome] = if both.one_machine { &[both.client] } else { &[both.client, both.server] };
    let busy = |outcome: &JobOutcome| {
        let meters = &outcome.meters;
        Some(meters.busy_seconds()? / (meters.length_ns as f64 / 1e9))
    };
    let cpus_busy: Option<f64> = ends.iter().map(|outcome| busy(outcome)).sum();
    let gigabits = out.metrics.get("throughput_bits_per_second").map(|rate| rate / 1e9).filter(|rate| *rate > 0.0);
    out.put("cpu_seconds_per_gigabit", cpus_busy.zip(gigabits).map(|(cpus, rate)| cpus / rate));
    let hottest = ends.iter().filter_map(|outcome| outcome.meters.hottest_busy()).map(|(_, part)| part);
    out.put("busiest_cpu_ratio", hottest.reduce(f64::max));
    let softirq = ends.iter().filter_map(|outcome| outcome.meters.hottest_softirq()).map(|(_, part)| part);
    out.put("softirq_ratio", softirq.reduce(f64::max));
    for (end, outcome) in [("client", both.client), ("server", both.server)] {
        if let Some(stolen) = outcome.meters.steal_fraction().filter(|part| *part > 0.02) {
            let text = format!("the hypervisor took {:.1} % of the {end}'s CPU time", stolen * 100.0);
            out.cautions.push(Caution { kind: "steal".to_owned(), text });
        }
    }
}

/// Of the engines that carried the run, and no others: a node runs every engine of the plan at the same time. Where several
/// tunnels carried it, an end's engines are all of theirs together.
fn engine(out: &mut Measured, both: Both<'_>) {
    let ends: Option<Vec<(f64, Option<u64>)>> = [(0, both.client), (1, both.server)]
        .into_iter()
        .map(|(side, outcome)| engines_of(outcome, both.devices.iter().map(|device| device[side])))
        .collect();
    // One end without figures would make the sum of both look small.
    let Some(ends) = ends else { return };
    out.put("engine_cpu_seconds", Some(ends.iter().map(|(cpu, _)| cpu).sum()));
    let memory = ends.iter().filter_map(|(_, memory)| *memory).max();
    out.put("engine_peak_memory_bytes", memory.map(|bytes| bytes as f64));
}

/// CPU seconds and peak memory of the processes behind these devices of one end; absent unless all of them were metered.
fn engines_of<'d>(outcome: &JobOutcome, devices: impl Iterator<Item = &'d str>) -> Option<(f64, Option<u64>)> {
    let pid = |device: &str| i32::try_from(outcome.tunnels.get(device)?.after.process.as_ref()?.pid).ok();
    // One process may serve several devices.
    let pids: BTreeSet<i32> = devices.map(pid).collect::<Option<_>>()?;
    if pids.is_empty() {
        return None;
    }
    let (mut cpu_ns, mut memory) = (0, Some(0));
    for pid in pids {
        let used = outcome.meters.processes.get(&pid)?;
        cpu_ns += used.cpu_ns.unwrap_or(used.user_ns + used.system_ns);
        memory = memory.zip(used.peak_memory_bytes).map(|(sum, bytes)| sum + bytes);
    }
    Some((cpu_ns as f64 / 1e9, memory))
}

/// What a socket says of itself that is a condition: where it is bound is the proof's matter, and its port is chance.
fn conditions(out: &mut Measured, both: Both<'_>) {
    const PLACE: [&str; 4] = ["local", "peer", "bound_interface", "interface"];
    for (end, outcome) in [("client", both.client), ("server", both.server)] {
        let Value::Object(fields) = json!(outcome.traffic.conditions) else { continue };
        // A buffer that nobody asked for is the kernel's tuning: an outcome.
        let tuned = |value: &Value| value.get("granted").is_some() && value.get("asked").is_none();
        let told = fields
            .into_iter()
            .filter(|(name, value)| !value.is_null() && !PLACE.contains(&name.as_str()) && !tuned(value));
        out.conditions.extend(told.map(|(name, value)| (format!("{end}.{name}"), value)));
    }
}

fn caution(end: &str, caution: &messages::TrafficCaution) -> Caution {
    let value = json!(caution);
    let kind = value.get("caution").and_then(Value::as_str).unwrap_or("traffic").to_owned();
    Caution { text: format!("at the {end}: {caution}"), kind }
}

#[cfg(test)]
mod tests;
