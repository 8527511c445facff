//! The proof of the path: an unproved number is not published. Pure.
//!
//! Three counts must agree: what the generator moved, what the tunnel moved, and what the pinned underlay's interface moved;
//! and the tunnel's far end must be at the address that the plan gave it, seen from both ends. Counters alone would pass a
//! relay on the same underlay, addresses alone a route over another one. Where the streams are spread over several tunnels,
//! each of them is proved by itself, with the bytes of its own streams: else all of them could have taken one.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::found;
use super::states::{self, Keys};
use crate::agent::messages::{Around, JobOutcome, PublicKey, Status};
use crate::cell::TestKind;
use crate::plan::{Arrangement, Plan, TunnelEnd};
use crate::record::Check;

/// Bytes that may cross an underlay beside a test: neighbour discovery, keepalives, handshakes of tunnels at rest.
const SIDE_TRAFFIC: u64 = 64 << 10;
/// What a tunnel at rest may move per peer while a raw run lasts: two handshakes of 148 + 92 bytes and four keepalives of 32
/// (WireGuard paper section 5.4), counted as UDP payload.
const REST_PER_PEER: u64 = 2 * (148 + 92) + 4 * 32;

/// What one end offers as evidence.
#[derive(Clone, Copy)]
pub(super) struct Evidence<'a> {
    pub(super) node: &'a str,
    /// The interface of the arrangement's underlay on this node, where it is known.
    pub(super) pinned: Option<&'a str>,
    pub(super) outcome: &'a JobOutcome,
}

impl Evidence<'_> {
    /// Bytes that this end's generator received at least: payload, or where only packets are counted (an echo), their
    /// headers. Who only sends counts nothing of it. A window's count is below what crossed in all.
    fn received(&self) -> u64 {
        /// An IPv4 and an ICMP header.
        const LEAST_PACKET: u64 = 20 + 8;
        /// A handshake's response (WireGuard paper section 5.4.3).
        const RESPONSE: u64 = 92;
        let counts = &self.outcome.traffic.counts;
        if self.of_handshakes() {
            return counts.transactions.unwrap_or(0) * RESPONSE;
        }
        let packets = counts.received_packets.map(|packets| packets * LEAST_PACKET);
        counts.received_bytes.or(counts.transactions).or(packets).unwrap_or(0)
    }

    /// The part of these bytes that belongs in tunnel number `number` of `several`, by its streams. A tunnel that carried
    /// nothing was none, so that is a byte at least where bulk data arrives. Absent where the streams were not told.
    fn received_through(&self, number: usize, several: usize) -> Option<u64> {
        let traffic = &self.outcome.traffic;
        if several < 2 {
            return Some(self.received());
        }
        if traffic.counts.received_bytes.is_none() {
            return Some(0);
        }
        let its_own: Vec<u64> =
            traffic.streams.iter().skip(number).step_by(several).map(|stream| stream.bytes).collect();
        (!its_own.is_empty()).then(|| its_own.iter().sum::<u64>().max(1))
    }

    /// Handshakes are the engine's own: none of them crosses its device.
    fn of_handshakes(&self) -> bool {
        self.outcome.traffic.kind == TestKind::Handshake.name()
    }

    fn rx_bytes(&self, interface: &str) -> Option<u64> {
        self.outcome.meters.interfaces.get(interface).map(|counters| counters.rx_bytes)
    }

    fn tx_bytes(&self, interface: &str) -> Option<u64> {
        self.outcome.meters.interfaces.get(interface).map(|counters| counters.tx_bytes)
    }
}

/// Every check of one run, from both ends.
pub(super) fn prove(
    plan: &Plan,
    arrangement: &Arrangement,
    keys: &Keys,
    client: Evidence<'_>,
    server: Evidence<'_>,
) -> Vec<Check> {
    let ends: Vec<_> = plan.tunnels_of(arrangement).filter_map(|tunnel| tunnel.ends(&arrangement.pair)).collect();
    let swapped = ends.iter().map(|(client, server)| (*server, *client)).collect();
    let mut checks = Vec::new();
    let (at_client, at_server) = (client.node, server.node);
    for (evidence, other, ends) in [(client, at_server, ends), (server, at_client, swapped)] {
        let mut carried = if ends.is_empty() { evidence.received() } else { 0 };
        for (number, (here, there)) in ends.iter().enumerate() {
            let through = if ends.len() > 1 { Some(here.interface.as_str()) } else { None };
            checks.push(far_end(plan, keys, evidence, here, there, through));
            checks.push(tunnel_carried(plan, evidence, here, evidence.received_through(number, ends.len())));
            carried += evidence.outcome.tunnels.get(&here.interface).map_or(0, |tunnel| moved(tunnel).0);
        }
        checks.push(underlay_carried(evidence, &arrangement.underlay, carried));
        let busy: Vec<&str> = ends.iter().map(|(here, _)| here.interface.as_str()).collect();
        checks.extend(others_rested(plan, evidence, &busy));
        checks.extend(found_ones_rested(plan, keys, evidence, other, &busy, carried));
        checks.extend(other_underlays_rested(plan, arrangement, evidence, carried));
    }
    checks
}

/// The tunnel's peer is where the plan put it: a relay on the same underlay has another address. `through` names the device
/// where there are several.
fn far_end(
    plan: &Plan,
    keys: &Keys,
    evidence: Evidence<'_>,
    here: &TunnelEnd,
    there: &TunnelEnd,
    through: Option<&str>,
) -> Check {
    // The underlay's own address of the other node is what counts, not what the tunnel was told to call.
    let underlay = plan.tunnels.iter().find(|tunnel| tunnel.ends.contains(here)).map(|tunnel| tunnel.underlay.as_str());
    let expected = underlay
        .and_then(|underlay| plan.node(&there.node)?.attachment(underlay))
        .map(|attachment| SocketAddr::new(attachment.address, there.listen_port));
    let key = keys.get(&(there.node.clone(), there.interface.clone()));
    let seen: Vec<Option<SocketAddr>> = evidence
        .outcome
        .tunnels
        .get(&here.interface)
        .into_iter()
        .flat_map(|around| [&around.before, &around.after])
        .map(|status| status.peers.iter().find(|peer| Some(&peer.public_key) == key).and_then(|peer| peer.endpoint))
        .collect();
    let text =
        |address: &Option<SocketAddr>| address.map_or_else(|| "nothing".to_owned(), |address| address.to_string());
    let mut said: Vec<String> = seen.iter().map(text).collect();
    said.dedup();
    Check {
        check: match through {
            Some(device) => format!("outer address of {}, seen by {} through {device}", there.node, evidence.node),
            None => format!("outer address of {}, seen by {}", there.node, evidence.node),
        },
        expected: text(&expected),
        seen: if said.is_empty() { "nothing".to_owned() } else { said.join(", then ") },
        holds: expected.is_some() && !seen.is_empty() && seen.iter().all(|address| *address == expected),
    }
}

/// The tunnel delivered at least what the generator received by it, where that is known.
fn tunnel_carried(plan: &Plan, evidence: Evidence<'_>, here: &TunnelEnd, least: Option<u64>) -> Check {
    let engine = evidence.outcome.tunnels.get(&here.interface).map(|around| moved(around).0);
    let why = match (states::has_interface(plan, here), evidence.of_handshakes()) {
        (false, _) => Some("it has no device"),
        (true, true) => Some("handshakes do not cross its device"),
        (true, false) => None,
    };
    let interface = evidence.rx_bytes(&here.interface);
    let (counts, seen) = match why {
        Some(why) => (vec![engine], format!("{} by its engine ({why})", or_nothing(engine))),
        None => (
            vec![interface, engine],
            format!("{} by its device, {} by its engine", or_nothing(interface), or_nothing(engine)),
        ),
    };
    Check {
        check: format!("bytes received through {} of {}", here.interface, evidence.node),
        expected: match least {
            Some(least) => format!("{least} at least"),
            None => "the bytes of its streams, of which none was counted".to_owned(),
        },
        seen,
        holds: least.is_some_and(|least| counts.iter().all(|seen| seen.is_some_and(|seen| seen >= least))),
    }
}

/// The pinned interface carried at least what went through it.
fn underlay_carried(evidence: Evidence<'_>, underlay: &str, least: u64) -> Check {
    let seen = evidence.pinned.and_then(|interface| evidence.rx_bytes(interface));
    Check {
        check: format!("bytes received on {underlay} of {}", evidence.node),
        expected: format!("{least} at least"),
        seen: or_nothing(seen),
        holds: seen.is_some_and(|bytes| bytes >= least),
    }
}

/// Tunnels that were not measured moved no more than handshakes and keepalives.
fn others_rested(plan: &Plan, evidence: Evidence<'_>, busy: &[&str]) -> Option<Check> {
    let others = || {
        let tunnels = evidence.outcome.tunnels.iter();
        tunnels.filter(|(name, _)| !busy.contains(&name.as_str()) && !is_found(plan, evidence.node, name))
    };
    let most = others().map(|(_, around)| around.after.peers.len() as u64 * REST_PER_PEER).sum::<u64>();
    let seen = others().map(|(_, around)| moved(around)).map(|(received, sent)| received.max(sent)).sum::<u64>();
    (others().next().is_some()).then(|| Check {
        check: format!("bytes through the other tunnels of {}", evidence.node),
        expected: format!("{most} at most (handshakes and keepalives)"),
        seen: seen.to_string(),
        holds: seen <= most,
    })
}

/// Interfaces that something else manages carry its traffic too. What counts is what they carried between these two nodes.
fn found_ones_rested(
    plan: &Plan,
    keys: &Keys,
    evidence: Evidence<'_>,
    other: &str,
    busy: &[&str],
    carried: u64,
) -> Option<Check> {
    let theirs: Vec<_> = keys.iter().filter(|((node, _), _)| node == other).map(|(_, key)| *key).collect();
    let tunnels = evidence.outcome.tunnels.iter();
    let seen: Vec<u64> = tunnels
        .filter(|(name, _)| !busy.contains(&name.as_str()) && is_found(plan, evidence.node, name))
        .map(|(_, around)| moved_with(around, |key| theirs.contains(key)))
        .map(|(received, sent)| received.max(sent))
        .collect();
    let (seen, most) = ((!seen.is_empty()).then(|| seen.iter().sum::<u64>())?, SIDE_TRAFFIC.max(carried / 50));
    Some(Check {
        check: format!("bytes to and from {other} through tunnels of {} that others use too", evidence.node),
        expected: format!("{most} at most"),
        seen: seen.to_string(),
        holds: seen <= most,
    })
}

/// Whether something else manages the tunnel.
fn is_found(plan: &Plan, node: &str, interface: &str) -> bool {
    let ends = plan.tunnels.iter().flat_map(|tunnel| &tunnel.ends);
    ends.filter(|end| end.node == node && end.interface == interface).any(|end| found::is_found(plan, end))
}

/// The other underlays' interfaces carried nothing that could be a part of the test.
fn other_underlays_rested(
    plan: &Plan,
    arrangement: &Arrangement,
    evidence: Evidence<'_>,
    carried: u64,
) -> Option<Check> {
    let node = plan.node(evidence.node)?;
    let others: Vec<&str> = node
        .attachments
        .iter()
        .filter(|attachment| attachment.underlay != arrangement.underlay)
        .filter_map(|attachment| attachment.link.as_ref())
        .map(|link| link.interface.as_str())
        .filter(|interface| Some(*interface) != evidence.pinned)
        .collect();
    let most = SIDE_TRAFFIC.max(carried / 50);
    let bytes = |interface: &str| Some(evidence.rx_bytes(interface)?.max(evidence.tx_bytes(interface)?));
    let seen: Option<Vec<u64>> = others.iter().map(|interface| bytes(interface)).collect();
    (!others.is_empty()).then(|| Check {
        check: format!("bytes on the other underlays of {}", evidence.node),
        expected: format!("{most} at most"),
        seen: or_nothing(seen.as_ref().map(|bytes| bytes.iter().sum())),
        holds: seen.is_some_and(|bytes| bytes.iter().sum::<u64>() <= most),
    })
}

/// Bytes received and sent by a tunnel's peers between two readings.
fn moved(around: &Around<Status>) -> (u64, u64) {
    moved_with(around, |_| true)
}

/// The same, by those peers that `counts` says.
fn moved_with(around: &Around<Status>, counts: impl Fn(&PublicKey) -> bool) -> (u64, u64) {
    let before: BTreeMap<_, _> = around.before.peers.iter().map(|peer| (peer.public_key, peer)).collect();
    around.after.peers.iter().filter(|peer| counts(&peer.public_key)).fold((0, 0), |(received, sent), peer| {
        let (rx, tx) = before.get(&peer.public_key).map_or((0, 0), |peer| (peer.rx_bytes, peer.tx_bytes));
        (received + peer.rx_bytes.saturating_sub(rx), sent + peer.tx_bytes.saturating_sub(tx))
    })
}

fn or_nothing(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "nothing (not counted)".to_owned(), |bytes| bytes.to_string())
}

#[cfg(test)]
mod tests;
