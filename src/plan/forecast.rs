//! What a plan will take, and what it can see; and the refusals that follow from it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::error::PlanError;
use super::{Arrangement, Forecast, Plan, Rate, Reach, Request, TestPlan, UnderlayPlan};
use crate::cell::{Cell, Factor, METRICS, TestKind};
use crate::stats::power::detectable;
use crate::topology::{EngineSpec, Topology};
use crate::units::{BitRate, Bytes, Ratio, Span};

/// Switching to an arrangement.
const SWITCH: Duration = Duration::from_millis(100);
/// Meters and proof of one visit.
const METERS: Duration = Duration::from_millis(100);
/// Starting agents, and the last words.
const RAISE: Duration = Duration::from_secs(2);
/// One device with its handshakes.
const RAISE_DEVICE: Duration = Duration::from_millis(50);

/// What bulk TCP is assumed to carry where the file names no nominal rate.
const ASSUMED: BitRate = BitRate::from_bits_per_second(10_000_000_000);
/// Transactions a second that a closed loop is assumed to make.
const ASSUMED_TRANSACTIONS: f64 = 20_000.0;
/// Headers of one small packet on the wire with a tunnel around it.
const HEADERS: f64 = 150.0;

/// Memory: an agent, an idle device's process, what one grows by while it carries traffic (`benches/peers` bounds it),
/// one peer's state, and one stream's socket buffers on both ends at their default ceilings (tcp_rmem and tcp_wmem).
const AGENT: u64 = 24 << 20;
const IDLE_DEVICE: u64 = 20 << 20;
const BUSY_DEVICE: u64 = 64 << 20;
const PEER: u64 = 16 << 10;
const STREAM: u64 = (6 + 4) << 20;

/// The noise of one run that is assumed before anything was measured: the relative standard deviation of a short run on a
/// quiet machine.
const ASSUMED_NOISE: f64 = 0.05;
const ALPHA: f64 = 0.05;
const POWER: f64 = 0.8;

/// The forecast of `plan`.
pub(super) fn forecast(plan: &Plan, topology: &Topology, request: &Request) -> Result<Forecast, PlanError> {
    let devices: usize = plan.tunnels.iter().map(|tunnel| tunnel.ends.len()).sum();
    // Between phases the lab goes down. How long a switch of stacks takes, nobody knows beforehand.
    let raises = u32::try_from(plan.phases.len().max(1)).unwrap_or(u32::MAX);
    let mut time = (RAISE + RAISE_DEVICE * u32::try_from(devices).unwrap_or(u32::MAX)) * raises;
    let mut runs = 0;
    let mut bytes: BTreeMap<String, f64> = BTreeMap::new();
    for visit in &plan.visits {
        time += SWITCH + METERS;
        runs += visit.tests.len() as u64;
        let underlay = &plan.arrangements[visit.arrangement].underlay;
        let rate = plan.underlay(underlay).and_then(|underlay| underlay.nominal).unwrap_or(ASSUMED);
        let sum = bytes.entry(underlay.clone()).or_default();
        for test in visit.tests.iter().map(|test| &plan.tests[*test]) {
            time += test.warmup.duration() + test.duration.duration();
            *sum += test_bytes(test, rate);
        }
    }
    let bytes: BTreeMap<String, Bytes> =
        bytes.into_iter().map(|(underlay, bytes)| (underlay, Bytes::new(bytes.ceil() as u64))).collect();
    for underlay in &plan.underlays {
        check_budget(underlay, bytes.get(&underlay.name).copied().unwrap_or_default())?;
    }
    let (memory, parts) = memory(plan);
    if let Some(available) = request.memory.filter(|available| topology.is_local() && memory > *available) {
        return Err(PlanError::Memory { needed: memory, parts, available });
    }
    Ok(Forecast { runs, time: Span::new(time), bytes, memory, visible_effect: visible_effect(plan) })
}

/// The bytes that one run of `test` puts on the wire, where bulk TCP fills `rate`.
fn test_bytes(test: &TestPlan, rate: BitRate) -> f64 {
    let seconds = (test.warmup.duration() + test.duration.duration()).as_secs_f64();
    let payload = test.payload.map_or(0.0, |payload| payload.get() as f64);
    let line = rate.bits_per_second() as f64 / 8.0;
    let per_second = match test.kind {
        TestKind::TcpStream => line,
        TestKind::UdpStream | TestKind::UdpSearch | TestKind::Ping => {
            let offered = match test.rate {
                Some(Rate::Bits(rate)) => rate.bits_per_second() as f64 / 8.0 * (1.0 + HEADERS / payload.max(1.0)),
                Some(Rate::Packets(rate)) => rate.per_second() as f64 * (payload + HEADERS),
                Some(Rate::Max) | None => line,
            };
            if test.kind == TestKind::Ping { 2.0 * offered } else { offered }
        }
        TestKind::TcpRr | TestKind::UdpRr => ASSUMED_TRANSACTIONS * 2.0 * (payload + HEADERS),
        // A connection is about ten packets.
        TestKind::TcpCrr => ASSUMED_TRANSACTIONS / 4.0 * (2.0 * payload + 10.0 * HEADERS),
        TestKind::Handshake | TestKind::Connections | TestKind::Mtu => ASSUMED_TRANSACTIONS / 4.0 * HEADERS,
    };
    let probe = test.probe.map_or(0.0, |probe| probe.per_second() as f64 * 2.0 * HEADERS);
    seconds * (per_second + probe)
}

fn check_budget(underlay: &UnderlayPlan, forecast: Bytes) -> Result<(), PlanError> {
    let Some(budget) = underlay.budget.filter(|budget| forecast > *budget) else { return Ok(()) };
    let at = match underlay.nominal {
        Some(nominal) => format!("at its nominal {nominal}"),
        None => format!("at an assumed {ASSUMED} (write `nominal` if it is slower)"),
    };
    Err(PlanError::Budget { underlay: underlay.name.clone(), forecast, at, budget })
}

/// The memory of the fullest host, and what makes it up. Nodes made here share one.
fn memory(plan: &Plan) -> (Bytes, String) {
    let streams = u64::from(plan.tests.iter().filter_map(|test| test.streams).max().unwrap_or(1));
    let tunnels = u64::from(plan.arrangements.iter().filter_map(|arrangement| arrangement.tunnels).max().unwrap_or(1));
    let of_host = |here: &dyn Fn(&str) -> bool, agents: u64, busy: u64| {
        let ends = plan.tunnels.iter().flat_map(|tunnel| &tunnel.ends).filter(|end| here(&end.node));
        let (devices, peers) = ends.fold((0, 0), |(devices, peers), end| (devices + 1, peers + end.peers.len() as u64));
        let busy = busy.min(devices);
        let bytes = agents * AGENT + devices * IDLE_DEVICE + busy * BUSY_DEVICE + peers * PEER + streams * STREAM;
        let parts = format!("{agents} agents, {devices} tunnel devices with {peers} peers, {streams} streams");
        (Bytes::new(bytes), parts)
    };
    if plan.nodes.iter().any(|node| matches!(node.reach, Reach::Local { .. })) {
        // One agent more than there are nodes: the provider's.
        return of_host(&|_| true, plan.nodes.len() as u64 + 1, 2 * tunnels);
    }
    let hosts = plan.nodes.iter().map(|node| of_host(&|name| name == node.name, 1, tunnels));
    hosts.max().unwrap_or_default()
}

/// The smallest change in one cell that the run is likely to see, if the noise of a run is what is assumed of it; `None`
/// where nothing is compared, and where only the absurd would be seen.
fn visible_effect(plan: &Plan) -> Option<Ratio> {
    let compare = plan.compare?;
    if compare == Factor::Pair {
        return None;
    }
    // What the compared factor does not apply to is not compared: the raw underlay has no tunnels.
    let applies = |cell: &Cell| !compare.is_arranged() || cell.get(compare).is_some();
    let common: BTreeSet<_> = plan
        .arrangements
        .iter()
        .map(Arrangement::cell)
        .filter(applies)
        .map(|cell| cell.without(Factor::Pair).without(compare))
        .collect();
    let tunnels: BTreeSet<u32> = plan.arrangements.iter().filter_map(|arrangement| arrangement.tunnels).collect();
    let second = tunnels.into_iter().nth(1).unwrap_or(1);
    let at_several = |test: &&TestPlan| compare != Factor::Tunnels || test.flows() >= second;
    let judged: usize = plan.tests.iter().filter(at_several).map(gated_metrics).sum();
    let levels = plan.compared().len().saturating_sub(1).max(1);
    let within = if compare.is_arranged() { 1 } else { levels + 1 };
    let verdicts = (common.len() * judged * levels / within).max(1);
    let change = detectable(ASSUMED_NOISE, plan.pairs.len(), plan.rounds, verdicts, ALPHA, POWER)?;
    // A forecast has no more digits than this, and a change of ten times needs no statistics.
    let effect = (change.exp_m1() * 1000.0).round() / 1000.0;
    (effect < 10.0).then(|| Ratio::from_fraction(effect))
}

/// Metrics of a test that a gate judges. A percentile needs ten samples beyond it: a probe that sends
/// too few has no p99.
fn gated_metrics(test: &TestPlan) -> usize {
    let prefixes: &[&str] = match test.kind {
        TestKind::TcpStream | TestKind::UdpStream | TestKind::UdpSearch => &["throughput_", "probe_p99", "cpu_"],
        TestKind::TcpRr | TestKind::UdpRr => &["rr_"],
        TestKind::TcpCrr => &["crr_"],
        TestKind::Ping => &["ping_"],
        TestKind::Handshake => &["handshake_"],
        TestKind::Connections => &["connections"],
        TestKind::Mtu => &["mtu_"],
    };
    let probes = test.probe.map_or(0.0, |probe| probe.per_second() as f64) * test.duration.duration().as_secs_f64();
    let of_test = |name: &str| {
        prefixes.iter().any(|prefix| name.starts_with(prefix)) && (probes >= 1_000.0 || !name.starts_with("probe_"))
    };
    METRICS.iter().filter(|metric| metric.gated && of_test(metric.name)).count()
}

impl Plan {
    /// Whether some engine is a tunnel that this program or a daemon of its makes.
    pub fn has_tunnels(&self) -> bool {
        self.engines.iter().any(|engine| engine.spec != EngineSpec::Raw)
    }

    /// The rate at which [`Forecast::bytes`] assumes `underlay` to be filled.
    pub fn assumed_rate(&self, underlay: &UnderlayPlan) -> BitRate {
        underlay.nominal.unwrap_or(ASSUMED)
    }
}
