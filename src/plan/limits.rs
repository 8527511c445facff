//! What does not fit into the networks and tunnels that were chosen, and is refused.

use super::error::PlanError;
use super::schedule::Schedule;
use super::tunnels::LEAST_INNER_MTU;
use super::{TunnelPlan, UnderlayPlan};
use crate::cell::TestKind;
use crate::topology::EngineSpec;
use crate::units::{Family, Mtu};

/// Refuses an MTU of settings that the underlays cannot have. A frame that is larger than the network carries is lost
/// without a word.
pub(super) fn check_settings(schedule: &Schedule, underlays: &[UnderlayPlan]) -> Result<(), PlanError> {
    /// RFC 8200 section 5; below it the kernel turns IPv6 off and drops the addresses.
    const LEAST_IPV6: u16 = 1280;
    for (settings, mtu) in schedule.settings.iter().filter_map(|settings| Some((&settings.name, settings.mtu?))) {
        for underlay in underlays {
            let why = if mtu > underlay.mtu {
                format!(
                    "which carries {}; give the underlay an `mtu` of {mtu}, and smaller ones to settings",
                    underlay.mtu
                )
            } else if underlay.family == Family::Ipv6 && mtu.get() < LEAST_IPV6 {
                format!("and IPv6 needs {LEAST_IPV6}; leave this underlay out, or take a larger one")
            } else if mtu.get() < LEAST_INNER_MTU + underlay.family.tunnel_overhead() {
                "and no tunnel fits into that; take a larger one".to_owned()
            } else {
                continue;
            };
            return Err(PlanError::SettingsMtu {
                settings: settings.clone(),
                mtu,
                underlay: underlay.name.clone(),
                why,
            });
        }
    }
    Ok(())
}

/// Datagrams must cross every arrangement's path in one piece: fragments measure something else.
pub(super) fn check_payloads(
    schedule: &Schedule,
    underlays: &[UnderlayPlan],
    tunnels: &[TunnelPlan],
) -> Result<(), PlanError> {
    const UDP_OR_ICMP: u64 = 8;
    let largest = schedule
        .carried
        .tests
        .iter()
        .filter(|test| {
            matches!(test.kind, TestKind::UdpStream | TestKind::UdpSearch | TestKind::UdpRr | TestKind::Ping)
        })
        .filter_map(|test| Some((test.payload?.get(), test.name.as_str())))
        .max_by_key(|(payload, _)| *payload);
    let Some((payload, test)) = largest else { return Ok(()) };
    // What settings take from an underlay, they take from the tunnels over it.
    let taken = |name: &str| {
        let whole = underlays.iter().find(|underlay| underlay.name == name)?.mtu;
        let least = schedule.settings.iter().filter_map(|settings| settings.mtu).min()?;
        Some(whole.get().saturating_sub(least.get()))
    };
    let left = |mtu: Mtu, underlay: &str| mtu.get().saturating_sub(taken(underlay).unwrap_or(0));
    let inside = tunnels.iter().map(|tunnel| {
        let place = format!("in tunnel `{}` over `{}`", tunnel.engine, tunnel.underlay);
        (place, left(tunnel.mtu, &tunnel.underlay), Family::Ipv4)
    });
    let raw = schedule.carried.engines.iter().any(|engine| engine.spec == EngineSpec::Raw);
    let outside = underlays.iter().filter(|_| raw).map(|underlay| {
        (format!("on underlay `{}`", underlay.name), left(underlay.mtu, &underlay.name), underlay.family)
    });
    for (place, mtu, family) in inside.chain(outside) {
        let header = match family {
            Family::Ipv4 => 20,
            Family::Ipv6 => 40,
        };
        let most = u64::from(mtu).saturating_sub(header + UDP_OR_ICMP);
        if payload > most {
            return Err(PlanError::Payload { test: test.to_owned(), payload, place, mtu, most });
        }
    }
    Ok(())
}
