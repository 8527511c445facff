//! What is measured, in which order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::Options;
use crate::clients::Clients;
use crate::world::{Device, World};

/// The device's MTU while peers are counted.
const MTU: u16 = 1_420;
/// Packets a second from all peers together, while they trickle.
pub(crate) const TRICKLE: u32 = 20_000;
/// Every second: 25 times as often as usual, so that a short look sees enough of them.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(1);
/// An engine that has just been busy comes to rest.
const SETTLE: Duration = Duration::from_millis(300);

/// What a figure is of; the order of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Milliseconds from the start of the process to a device that knows its peers.
    Configured,
    /// Bytes resident when all sessions are there, before any traffic.
    Memory,
    /// The most bytes that were resident, traffic and all.
    PeakMemory,
    /// CPU time at rest over time, with sessions and without keepalives.
    Idle,
    /// The same with [`KEEPALIVE`].
    IdleKeepalive,
    /// Milliseconds from the first call of the peers to the last session.
    AllUpCalled,
    /// Milliseconds from the setting of a keepalive, for which the device calls all peers, to the last session.
    AllUpCalling,
    /// Handshakes that a second of one core's time answers.
    Answered,
    /// Handshakes that a second of one core's time begins and ends.
    Begun,
    /// CPU time for a packet that trickles, there or back, nanoseconds.
    TricklePacket,
    /// Share of the packets that came back.
    TrickleReturned,
    /// Bits per second from one busy peer.
    BusyIn,
    /// Bits per second to one busy peer.
    BusyOut,
    /// CPU seconds of the device's engine per gigabit, from the busy peer.
    CostIn,
    /// The same to the busy peer.
    CostOut,
}

/// The values of all rounds, by row and metric.
pub(crate) type Rows = BTreeMap<u32, BTreeMap<Metric, Vec<f64>>>;

#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) by_peers: Rows,
    pub(crate) by_mtu: Rows,
    /// What the engine says it is.
    pub(crate) version: Option<String>,
    pub(crate) took: Duration,
}

/// Every round in turn.
pub(crate) fn all(options: &Options) -> Result<Measured> {
    let world = World::new(&options.engine)?;
    let mut clients = Clients::new(&world, options.peers.iter().copied().max().unwrap_or(0))?;
    let version = world.hub(MTU, Vec::new())?.tunnel.status()?.version;
    let mut measured = Measured { version, ..Measured::default() };
    let begin = Instant::now();
    for round in 1..=options.rounds {
        for peers in &options.peers {
            eprintln!("round {round} of {}: {peers} peers", options.rounds);
            let mut row = Row { rows: &mut measured.by_peers, key: *peers };
            with_peers(&world, &mut clients, *peers, options.seconds, &mut row)
                .with_context(|| format!("{peers} peers"))?;
        }
        for mtu in &options.mtus {
            eprintln!("round {round} of {}: MTU {mtu}", options.rounds);
            let mut row = Row { rows: &mut measured.by_mtu, key: u32::from(*mtu) };
            world.fit_link(*mtu)?;
            let hub = world.hub(*mtu, vec![world.busy_peer()])?;
            let busy = world.busy(*mtu)?;
            streams(&world, &hub, options.seconds, &mut row).with_context(|| format!("MTU {mtu}"))?;
            drop(busy);
        }
        world.fit_link(MTU)?;
    }
    measured.took = begin.elapsed();
    Ok(measured)
}

/// Where the values of one row go.
struct Row<'a> {
    rows: &'a mut Rows,
    key: u32,
}

impl Row<'_> {
    fn put(&mut self, metric: Metric, value: f64) {
        self.rows.entry(self.key).or_default().entry(metric).or_default().push(value);
    }
}

fn with_peers(world: &World, clients: &mut Clients, peers: u32, seconds: f64, row: &mut Row<'_>) -> Result<()> {
    called(world, clients, peers, seconds, row)?;
    calling(world, clients, peers, seconds, row)
}

/// A device that is called: sessions, rest, what trickles, one that is busy.
fn called(world: &World, clients: &mut Clients, peers: u32, seconds: f64, row: &mut Row<'_>) -> Result<()> {
    clients.reset()?;
    let begin = Instant::now();
    let mut hub = world.hub(MTU, clients.specs(peers, false, None))?;
    row.put(Metric::Configured, milliseconds(begin.elapsed()));
    std::thread::sleep(SETTLE);

    let before = hub.cpu_ns()?;
    row.put(Metric::AllUpCalled, milliseconds(clients.call(peers)?));
    // The confirmations of the last ones.
    std::thread::sleep(SETTLE);
    row.put(Metric::Answered, f64::from(peers) * 1e9 / (hub.cpu_ns()? - before));
    all_have_sessions(&mut hub, peers)?;
    std::thread::sleep(SETTLE);

    row.put(Metric::Memory, hub.memory()?.0);
    row.put(Metric::Idle, idle(&hub, seconds)?);

    let before = hub.cpu_ns()?;
    let trickle = clients.trickle(&world.hub, peers, TRICKLE, Duration::from_secs_f64(seconds))?;
    let packets = trickle.sent + trickle.returned;
    row.put(Metric::TricklePacket, (hub.cpu_ns()? - before) / packets as f64);
    row.put(Metric::TrickleReturned, trickle.returned as f64 / trickle.sent as f64);

    // One of them is another one now, and busy.
    let mut specs = clients.specs(peers - 1, false, None);
    specs.push(world.busy_peer());
    hub.tunnel.set_peers(&specs)?;
    let busy = world.busy(MTU)?;
    streams(world, &hub, seconds, row)?;
    row.put(Metric::PeakMemory, hub.memory()?.1);
    drop(busy);
    Ok(())
}

/// A device that calls, and keeps its peers alive.
fn calling(world: &World, clients: &mut Clients, peers: u32, seconds: f64, row: &mut Row<'_>) -> Result<()> {
    clients.reset()?;
    // It knows them, and has no reason to call.
    let mut hub = world.hub(MTU, clients.specs(peers, true, None))?;
    std::thread::sleep(SETTLE);

    let (begin, before) = (Instant::now(), hub.cpu_ns()?);
    hub.tunnel.set_peers(&clients.specs(peers, true, Some(KEEPALIVE)))?;
    row.put(Metric::AllUpCalling, milliseconds(clients.answer(peers, begin)?));
    row.put(Metric::Begun, f64::from(peers) * 1e9 / (hub.cpu_ns()? - before));
    std::thread::sleep(SETTLE);
    all_have_sessions(&mut hub, peers)?;
    std::thread::sleep(SETTLE);
    row.put(Metric::IdleKeepalive, idle(&hub, seconds)?);
    Ok(())
}

/// Both directions between the busy peer and the hub.
fn streams(world: &World, hub: &Device, seconds: f64, row: &mut Row<'_>) -> Result<()> {
    for (to_hub, rate, cost) in [(true, Metric::BusyIn, Metric::CostIn), (false, Metric::BusyOut, Metric::CostOut)] {
        let (begin, before) = (Instant::now(), hub.cpu_ns()?);
        let bits = world.stream(to_hub, seconds)?;
        // The warm-up used CPU time, too, at the same rate.
        let busy = begin.elapsed().as_secs_f64();
        row.put(rate, bits);
        row.put(cost, (hub.cpu_ns()? - before) / (bits * busy));
    }
    Ok(())
}

/// CPU time over time while nobody does anything. Longer than other windows: an engine at rest wakes up a few times a second.
fn idle(hub: &Device, seconds: f64) -> Result<f64> {
    let (begin, before) = (Instant::now(), hub.cpu_ns()?);
    std::thread::sleep(Duration::from_secs_f64(2.0 * seconds));
    Ok((hub.cpu_ns()? - before) / begin.elapsed().as_nanos() as f64)
}

/// The peers found their sessions; the device must have found the same.
fn all_have_sessions(hub: &mut Device, peers: u32) -> Result<()> {
    let status = hub.tunnel.status()?;
    let there = status.peers.iter().filter(|peer| peer.last_handshake.is_some()).count();
    ensure!(there == peers as usize, "the device has {there} sessions, and not {peers}");
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
