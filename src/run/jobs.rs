//! From a test in an arrangement to the job of each end. Pure.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::agent::messages::{Buffers, Job, JobKind, Path, ProbeSpec, Role};
use crate::cell::TestKind;
use crate::plan::{Arrangement, Attachment, Plan, Rate, TestPlan};
use crate::units::{BitRate, Direction, PacketRate};

/// What a job may take beyond its warm-up and window: connecting and the last words.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// One end's place: the address that it uses, and the interface that this address is on, where that is known beforehand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: IpAddr,
    pub(super) interface: Option<String>,
}

/// Where client and server are in `arrangement`: on the underlay itself, or inside its tunnels, in their order.
pub(super) fn places(plan: &Plan, arrangement: &Arrangement) -> anyhow::Result<Vec<(Place, Place)>> {
    let mut inside = Vec::new();
    for tunnel in plan.tunnels_of(arrangement) {
        let (client, server) = tunnel.ends(&arrangement.pair).context("the plan's tunnel does not join the pair")?;
        let place =
            |end: &crate::plan::TunnelEnd| Place { address: end.inner.addr(), interface: Some(end.interface.clone()) };
        inside.push((place(client), place(server)));
    }
    if let Some(asked) = arrangement.tunnels {
        let there = inside.len();
        ensure!(there == asked as usize, "the plan has {there} of the {asked} tunnels between {}", arrangement.pair);
    }
    if !inside.is_empty() {
        return Ok(inside);
    }
    let place = |node: &str| {
        let attachment = attachment(plan, node, &arrangement.underlay)?;
        anyhow::Ok(Place {
            address: attachment.address,
            interface: attachment.link.as_ref().map(|link| link.interface.clone()),
        })
    };
    Ok(vec![(place(&arrangement.pair.client)?, place(&arrangement.pair.server)?)])
}

/// The node's place on the underlay itself.
pub(super) fn attachment<'a>(plan: &'a Plan, node: &str, underlay: &str) -> anyhow::Result<&'a Attachment> {
    plan.node(node)
        .and_then(|node| node.attachment(underlay))
        .with_context(|| format!("node {node} is not attached to underlay {underlay}"))
}

/// The client's and the server's job. The server's ports are added to the client's when they are known.
pub(super) fn jobs(plan: &Plan, arrangement: &Arrangement, test: &TestPlan, seed: u64) -> anyhow::Result<(Job, Job)> {
    let places = places(plan, arrangement)?;
    let ((client, server), more) = places.split_first().context("the arrangement has no path")?;
    let kind = kind(test)?;
    let path = |here: &Place, there: &Place| Path {
        local: here.address,
        local_interface: here.interface.clone(),
        peer: there.address,
    };
    let from_client = || more.iter().map(|(client, server)| path(client, server)).collect();
    let from_server = || more.iter().map(|(client, server)| path(server, client)).collect();
    let job = |role, here: &Place, there: &Place, more_paths| Job {
        role,
        direction: test.direction.unwrap_or(Direction::Forward),
        kind: kind.clone(),
        local: here.address,
        local_interface: here.interface.clone(),
        peer: Some((there.address, Vec::new())),
        more_paths,
        congestion_control: test.congestion_control.clone(),
        warmup: test.warmup.duration(),
        duration: test.duration.duration(),
        deadline: test.warmup.duration() + test.duration.duration() + GRACE,
        probe: test.probe.map(|rate| ProbeSpec { rate, ..ProbeSpec::default() }),
        seed,
    };
    Ok((job(Role::Client, client, server, from_client()), job(Role::Server, server, client, from_server())))
}

fn kind(test: &TestPlan) -> anyhow::Result<JobKind> {
    let streams = || u16::try_from(test.streams.unwrap_or(1)).context("more streams than a job can hold");
    let payload = || test.payload.with_context(|| format!("test {} names no payload", test.name));
    Ok(match test.kind {
        TestKind::TcpStream => JobKind::TcpStream { streams: streams()?, buffers: Buffers::default() },
        TestKind::UdpStream => {
            let payload = payload()?;
            let rate = match test.rate {
                Some(Rate::Bits(rate)) => Some(rate),
                Some(Rate::Packets(rate)) => Some(BitRate::from_bits_per_second(rate.per_second() * payload.get() * 8)),
                Some(Rate::Max) => None,
                None => bail!("test {} names no rate", test.name),
            };
            JobKind::UdpStream { rate, payload, flows: streams()?, buffers: Buffers::default() }
        }
        TestKind::TcpRr => JobKind::TcpRr { request: payload()?, response: payload()? },
        TestKind::UdpRr => JobKind::UdpRr { request: payload()?, response: payload()? },
        TestKind::TcpCrr => JobKind::TcpCrr { request: payload()?, response: payload()? },
        TestKind::Ping => JobKind::Ping {
            rate: match test.rate {
                Some(Rate::Packets(rate)) => rate,
                None => PacketRate::from_per_second(100),
                Some(Rate::Bits(_) | Rate::Max) => {
                    bail!("test {}: a ping's rate is in packets per second, like 100/s", test.name)
                }
            },
            payload: payload()?,
        },
        TestKind::Handshake => JobKind::Handshake,
        TestKind::UdpSearch | TestKind::Connections | TestKind::Mtu => {
            bail!("test {}: {} is not measured by this version", test.name, test.kind)
        }
    })
}

#[cfg(test)]
mod tests;
