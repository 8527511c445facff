//! From the plan to what each agent is to be. Pure.

use std::collections::BTreeMap;

use crate::agent::messages::{
    self, InterfaceState, NodeState, PeerSpec, Pin, Port, ProviderState, ProviderUnderlay, PublicKey, QueueState,
    SettingsState, TunnelEngine, TunnelSpec, TunnelState,
};
use crate::plan::{Arrangement, Delivery, EngineSpec, NodePlan, Plan, Reach, TunnelEnd, TunnelPlan};
use crate::units::Mtu;

/// Public keys by node and interface, as the agents told them.
pub(super) type Keys = BTreeMap<(String, String), PublicKey>;

/// The name of the provider among the lab's agents. No node can have it: names hold no parentheses.
pub(super) const PROVIDER: &str = "(provider)";

/// The stack under each node: its name.
pub(super) type Stacks = BTreeMap<String, String>;

/// Whether the lab makes the node.
pub(super) fn is_made_here(node: &NodePlan) -> bool {
    matches!(node.reach, Reach::Local { .. })
}

/// What the provider is to be, with `stacks` under the nodes.
pub(super) fn provider(plan: &Plan, pids: &BTreeMap<String, u32>, stacks: &Stacks) -> ProviderState {
    let underlays = plan.underlays.iter().filter_map(|underlay| {
        let ports: Vec<Port> = plan
            .nodes
            .iter()
            .filter(|node| is_made_here(node))
            .filter_map(|node| {
                let link = node.attachment(&underlay.name)?.link.as_ref()?;
                let stack = stacks.get(&node.name).and_then(|stack| plan.stack(stack));
                Some(Port {
                    node: node.name.clone(),
                    node_pid: *pids.get(&node.name)?,
                    node_interface: link.interface.clone(),
                    provider_interface: link.provider_interface.clone(),
                    address: link.provider_address,
                    // A stack that says nothing leaves the veth as the kernel made it.
                    delivery: delivery(stack.and_then(|stack| stack.delivery).unwrap_or(Delivery::MergedAll)),
                })
            })
            .collect();
        (!ports.is_empty()).then(|| ProviderUnderlay {
            name: underlay.name.clone(),
            mtu: underlay.mtu,
            bridge: underlay.bridge.clone(),
            ports,
        })
    });
    ProviderState { underlays: underlays.collect() }
}

/// What `node` is to be, but for its tunnels. Nodes take their packets on different CPUs, of which there are `cpus`.
pub(super) fn node(plan: &Plan, node: &NodePlan, stacks: &Stacks, cpus: u32) -> NodeState {
    let links = || node.attachments.iter().filter_map(|attachment| Some((attachment, attachment.link.as_ref()?)));
    let interfaces = links().map(|(attachment, link)| InterfaceState {
        name: link.interface.clone(),
        addresses: vec![link.address],
        gateway: link.gateway,
        routes: link.gateway.and_then(|_| plan.underlay(&attachment.underlay)?.network).into_iter().collect(),
        mtu: Some(link.mtu),
        receive_cpus: None,
    });
    let order = plan.nodes.iter().position(|other| other.name == node.name).and_then(|order| u32::try_from(order).ok());
    let limit = stacks.get(&node.name).and_then(|stack| plan.stack(stack)).and_then(|stack| stack.receive_queues);
    let limited =
        limit.map(|queues| (0..queues.min(cpus)).map(|queue| (order.unwrap_or(0) + queue) % cpus.max(1)).collect());
    let any = plan.stacks.iter().any(|stack| stack.receive_queues.is_some());
    let queues = links()
        .filter(|_| any)
        .map(|(_, link)| QueueState { interface: link.interface.clone(), cpus: limited.clone() });
    NodeState { interfaces: interfaces.collect(), queues: queues.collect(), ..NodeState::default() }
}

/// What `arrangement` changes inside `node`, whose interface on the underlay is `pinned`. A stack's receive queues and
/// receive packet steering are one mechanism here, so steering takes the place of the queues.
pub(super) fn settings(plan: &Plan, arrangement: &Arrangement, node: &str, pinned: Option<&str>) -> SettingsState {
    let level =
        arrangement.settings().map(|(client, server)| if node == arrangement.pair.client { client } else { server });
    let Some(named) = level.and_then(|level| plan.settings.iter().find(|named| named.name == level)) else {
        return SettingsState::default();
    };
    let interfaces: Vec<String> = pinned.into_iter().map(str::to_owned).collect();
    let mut mtus = BTreeMap::new();
    if let (Some(mtu), Some(underlay)) = (named.mtu, plan.underlay(&arrangement.underlay)) {
        mtus.extend(interfaces.iter().map(|interface| (interface.clone(), mtu)));
        for tunnel in plan.tunnels_of(arrangement) {
            let of_node = |end: &&TunnelEnd| end.node == node && has_interface(plan, end);
            let Some(end) = tunnel.ends.iter().find(of_node) else { continue };
            let overhead = u64::from(underlay.mtu.get().saturating_sub(tunnel.mtu.get()));
            if let Ok(inner) = Mtu::new(u64::from(mtu.get()).saturating_sub(overhead)) {
                mtus.insert(end.interface.clone(), inner);
            }
        }
    }
    SettingsState {
        sysctl: named.sysctl.clone(),
        features: named.features.clone(),
        receive_cpus: named.rps_cpus.clone(),
        interfaces,
        mtus,
    }
}

/// The devices of `node`, with those peers whose keys are known. `pinned` tells the node's interface on an underlay.
pub(super) fn tunnels(
    plan: &Plan,
    node: &NodePlan,
    keys: &Keys,
    pinned: impl Fn(&str) -> Option<String>,
) -> Vec<TunnelState> {
    let ends = plan.tunnels.iter().flat_map(|tunnel| tunnel.ends.iter().map(move |end| (tunnel, end)));
    ends.filter(|(_, end)| end.node == node.name)
        .filter_map(|(tunnel, end)| {
            let engine = engine(&plan.engine(&end.engine)?.spec)?;
            Some(TunnelState {
                spec: spec(tunnel, end, engine, keys, pinned(&tunnel.underlay)),
                addresses: vec![end.inner],
                routes: end.routes.clone(),
            })
        })
        .collect()
}

fn spec(tunnel: &TunnelPlan, end: &TunnelEnd, engine: TunnelEngine, keys: &Keys, pinned: Option<String>) -> TunnelSpec {
    let peers = end.peers.iter().filter_map(|peer| {
        Some(PeerSpec {
            public_key: *keys.get(&(peer.node.clone(), peer.interface.clone()))?,
            preshared_key: None,
            endpoint: Some(peer.endpoint),
            allowed_ips: vec![peer.inner.into()],
            keepalive: None,
        })
    });
    TunnelSpec {
        interface: end.interface.clone(),
        mtu: tunnel.mtu,
        listen_port: end.listen_port,
        engine,
        pin: pinned.map(|interface| Pin { address: end.outer, interface }),
        fwmark: None,
        peers: peers.collect(),
    }
}

/// Whether an engine makes its device through `/dev/net/tun`.
pub(super) const fn needs_tun(engine: &TunnelEngine) -> bool {
    matches!(engine, TunnelEngine::Embedded | TunnelEngine::Daemon { .. })
}

/// Whether the engine of a tunnel's end does.
pub(super) fn end_needs_tun(plan: &Plan, end: &TunnelEnd) -> bool {
    plan.engine(&end.engine).and_then(|planned| engine(&planned.spec)).is_some_and(|engine| needs_tun(&engine))
}

/// Whether a tunnel's end has an interface: what has none has no counters of the kernel, and nothing to set.
pub(super) fn has_interface(plan: &Plan, end: &TunnelEnd) -> bool {
    plan.engine(&end.engine).is_none_or(|engine| engine.spec != EngineSpec::Direct)
}

/// What runs a tunnel of the engine; `None` for the raw underlay, which has none.
fn engine(spec: &EngineSpec) -> Option<TunnelEngine> {
    Some(match spec {
        EngineSpec::Raw => return None,
        EngineSpec::Embedded => TunnelEngine::Embedded,
        EngineSpec::Direct => TunnelEngine::Direct,
        EngineSpec::Kernel => TunnelEngine::Kernel,
        EngineSpec::Interface(name) => TunnelEngine::Interface { name: name.clone() },
        EngineSpec::Daemon(path) => TunnelEngine::Daemon { path: path.into() },
    })
}

const fn delivery(delivery: Delivery) -> messages::Delivery {
    match delivery {
        Delivery::MergedTcp => messages::Delivery::MergedTcp,
        Delivery::Unmerged => messages::Delivery::Unmerged,
        Delivery::MergedAll => messages::Delivery::MergedAll,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Request, plan};
    use crate::topology::Topology;

    #[test]
    fn settings_shrink_every_tunnel_of_the_arrangement_and_no_other() {
        let text = "nodes = [\"a\", \"b\"]\npairs = [\"a>b\"]\nengines = [\"raw\", \"embedded\"]\ntunnels = [1, 2, 3]\n\
            [underlay]\nprivate = { family = \"ipv4\", mtu = 1500 }\n[settings.small]\nmtu = 1400\n\
            [[test]]\nkind = \"tcp-stream\"\nstreams = 3\n";
        let plan = plan(&Topology::parse("t.toml", text).unwrap(), &Request::default()).unwrap();
        let of = |tunnels: Option<u32>| -> Vec<(String, u16)> {
            let arrangement = plan.arrangements.iter().find(|arrangement| arrangement.tunnels == tunnels).unwrap();
            let state = settings(&plan, arrangement, "b", Some("private"));
            state.mtus.into_iter().map(|(interface, mtu)| (interface, mtu.get())).collect()
        };
        let named =
            |mtus: &[(&str, u16)]| mtus.iter().map(|(name, mtu)| ((*name).to_owned(), *mtu)).collect::<Vec<_>>();
        assert_eq!(of(None), named(&[("private", 1400)]));
        assert_eq!(of(Some(1)), named(&[("private", 1400), ("wg0", 1340)]));
        assert_eq!(of(Some(2)), named(&[("private", 1400), ("wg0", 1340), ("wg1", 1340)]));
    }
}
