//! The provider's network: links, routes, bridges, delivery.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use libtest_mimic::Failed;
use serde_json::Value;
use wglab::host::interfaces::{Counters, InterfaceReading, InterfaceState};
use wglab::host::settings::{SettingsReading, SettingsState};
use wglab::lab::provider::{Delivery, Port, ProviderState, ProviderUnderlay};
use wglab::reach::local::{LocalAgent, LocalLab, Privilege, raise};
use wglab::units::Mtu;

use crate::agent::{Ask, ask};
use crate::lab::spec;
use crate::left_over::Holdings;

pub(crate) const TESTS: &[super::Test] = &[
    ("library::underlays_carry_packets_between_nodes", underlays_carry),
    ("library::forty_nodes_are_no_matter", many_nodes),
    ("library::delivery_is_what_the_stack_says", delivery),
    ("library::a_switch_of_delivery_is_quick", quick_switch),
    ("library::what_is_not_wanted_any_more_goes", shrink),
    ("library::settings_come_and_go", settings),
    ("library::receive_queues_are_set_or_refused_with_a_reason", receive_queues),
    ("library::a_link_that_cannot_work_says_why", not_ready),
];

/// A provider and two nodes on three underlays.
pub(crate) struct World {
    pub(crate) lab: LocalLab,
    pub(crate) state: ProviderState,
    pub(crate) interfaces: Vec<Vec<InterfaceState>>,
}

fn mtu(bytes: u64) -> Mtu {
    Mtu::new(bytes).unwrap()
}

impl World {
    pub(crate) fn new() -> Result<Self, Failed> {
        Self::of(&["a1", "b1"])
    }

    fn of(nodes: &[&str]) -> Result<Self, Failed> {
        let lab = raise(&spec(&[&["provider"], nodes].concat()))?;
        let underlay = |name: &str, bytes, bridge: Option<&str>| ProviderUnderlay {
            name: name.to_owned(),
            mtu: mtu(bytes),
            bridge: bridge.map(str::to_owned),
            ports: Vec::new(),
        };
        let mut underlays = [
            underlay("public-ipv4", 1500, None),
            underlay("public-ipv6", 1500, None),
            underlay("private", 1450, Some("b2")),
        ];
        let mut interfaces = vec![Vec::new(); nodes.len()];
        for (node, agent) in lab.agents.iter().skip(1).enumerate() {
            let far = [
                (format!("198.18.{node}.1/30"), format!("198.18.{node}.2/30"), Some("198.18.0.0/16")),
                (format!("2001:db8:1:{node}::1/64"), format!("2001:db8:1:{node}::2/64"), Some("2001:db8:1::/48")),
                (String::new(), format!("10.200.0.{}/16", node + 1), None),
            ];
            for (index, (gateway, address, network)) in far.into_iter().enumerate() {
                let gateway: Option<ipnet::IpNet> = gateway.parse().ok();
                underlays[index].ports.push(Port {
                    node: agent.name.clone(),
                    node_pid: agent.lab_pid,
                    node_interface: underlays[index].name.clone(),
                    provider_interface: format!("p{node}u{index}"),
                    address: gateway,
                    delivery: Delivery::MergedTcp,
                });
                interfaces[node].push(InterfaceState {
                    name: underlays[index].name.clone(),
                    addresses: vec![address.parse()?],
                    gateway: gateway.map(|net| net.addr()),
                    routes: network.into_iter().map(|net| net.parse()).collect::<Result<_, _>>()?,
                    mtu: None,
                    receive_cpus: None,
                });
            }
        }
        Ok(Self { lab, state: ProviderState { underlays: underlays.to_vec() }, interfaces })
    }

    pub(crate) fn up(&self) -> Result<(), Failed> {
        self.provide(&self.state)?;
        for (agent, states) in self.nodes().iter().zip(&self.interfaces) {
            ask(agent, &Ask::Interfaces(states.clone()))?;
        }
        Ok(())
    }

    fn nodes(&self) -> &[LocalAgent] {
        &self.lab.agents[1..]
    }

    fn provide(&self, state: &ProviderState) -> Result<Value, Failed> {
        Ok(ask(&self.lab.agents[0], &Ask::Provide(state.clone()))?)
    }

    fn deliver(&mut self, delivery: Delivery) -> Result<u64, Failed> {
        for port in self.state.underlays.iter_mut().flat_map(|underlay| &mut underlay.ports) {
            port.delivery = delivery;
        }
        Ok(self.provide(&self.state)?["micros"].as_u64().ok_or("it has a time")?)
    }

    fn address(&self, node: usize, underlay: usize) -> IpAddr {
        self.interfaces[node][underlay].addresses[0].addr()
    }

    /// What crosses b1's interface while `traffic` runs.
    fn received(&self, underlay: usize, traffic: impl FnOnce() -> Result<(), Failed>) -> Result<Counters, Failed> {
        let name = &self.interfaces[1][underlay].name;
        let read = || -> Result<Counters, Failed> {
            let all: BTreeMap<String, Counters> = serde_json::from_value(ask(&self.nodes()[1], &Ask::Counters)?)?;
            Ok(*all.get(name).ok_or("the interface counts")?)
        };
        let before = read()?;
        traffic()?;
        let after = read()?;
        Ok(Counters {
            rx_bytes: after.rx_bytes - before.rx_bytes,
            rx_packets: after.rx_packets - before.rx_packets,
            ..Counters::default()
        })
    }

    /// A TCP transfer from a1 to b1.
    fn tcp(&self, underlay: usize, bytes: usize) -> Result<(), Failed> {
        let to = SocketAddr::new(self.address(1, underlay), 5001);
        ask(&self.nodes()[1], &Ask::Accept(to))?;
        ask(&self.nodes()[0], &Ask::Send(self.address(0, underlay), to, bytes))?;
        Ok(())
    }

    /// The lengths of the packets that b1 sees of such a transfer.
    fn tcp_lengths(&self, underlay: usize, bytes: usize) -> Result<BTreeMap<usize, u32>, Failed> {
        ask(&self.nodes()[1], &Ask::Watch)?;
        self.tcp(underlay, bytes)?;
        Ok(serde_json::from_value(ask(&self.nodes()[1], &Ask::Watched)?)?)
    }
}

fn underlays_carry() -> Result<(), Failed> {
    let before = Holdings::now();
    let world = World::new()?;
    let start = Instant::now();
    world.up()?;
    eprintln!("provider and interfaces: {:?}", start.elapsed());
    for underlay in 0..3 {
        world.tcp(underlay, 100_000)?;
    }
    // Declarative: the same again changes nothing, and is quick.
    let start = Instant::now();
    world.up()?;
    eprintln!("the same again: {:?}", start.elapsed());
    world.tcp(1, 100_000)?;
    world.lab.down()?;
    before.restored()
}

fn many_nodes() -> Result<(), Failed> {
    let names: Vec<String> = (0..40).map(|node| format!("n{node}")).collect();
    let start = Instant::now();
    let mut world = World::of(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
    let raised = start.elapsed();
    world.up()?;
    let up = start.elapsed();
    let switch = world.deliver(Delivery::Unmerged)?;
    eprintln!("40 nodes: raised after {raised:?}, 120 links up after {up:?}, a switch of all takes {switch} us");
    for underlay in 0..3 {
        let to = SocketAddr::new(world.address(39, underlay), 5001);
        ask(&world.nodes()[39], &Ask::Accept(to))?;
        ask(&world.nodes()[0], &Ask::Send(world.address(0, underlay), to, 10_000))?;
    }
    Ok(world.lab.down()?)
}

fn delivery() -> Result<(), Failed> {
    const BYTES: usize = 400_000;
    let mut world = World::new()?;
    world.up()?;
    for (delivery, merged_tcp, merged_udp) in
        [(Delivery::Unmerged, false, false), (Delivery::MergedTcp, true, false), (Delivery::MergedAll, true, true)]
    {
        world.deliver(delivery)?;
        // A full packet is the MTU and 14 bytes.
        for (underlay, frame) in [(0, 1514), (1, 1514), (2, 1464)] {
            let lengths = world.tcp_lengths(underlay, BYTES)?;
            let (longest, _) = lengths.last_key_value().ok_or("something was seen")?;
            let what = format!("{delivery:?} underlay {underlay}: {lengths:?}");
            if merged_tcp {
                assert!(*longest > 4000, "{what}");
            } else {
                assert_eq!(*longest, frame, "{what}");
                assert!(lengths[&frame] as usize > BYTES / 1500 / 2, "{what}");
            }

            let to = SocketAddr::new(world.address(1, underlay), 5002);
            ask(&world.nodes()[1], &Ask::Receive(to))?;
            let from = world.address(0, underlay);
            let udp = world.received(underlay, || {
                ask(&world.nodes()[0], &Ask::SendSegmented(from, to, 20, 10, 1000))?;
                Ok(())
            })?;
            let expected = if merged_udp { 20 } else { 200 };
            // Neighbour discovery and the like may add a few.
            assert!((expected..expected + 10).contains(&udp.rx_packets), "{delivery:?} underlay {underlay}: {udp:?}");
        }
    }
    // A stack may differ per end: only the port towards b1 counts for what b1 receives.
    for (b1, longest_allowed) in [(Delivery::Unmerged, 1514), (Delivery::MergedTcp, 70_000)] {
        world.deliver(if b1 == Delivery::Unmerged { Delivery::MergedTcp } else { Delivery::Unmerged })?;
        for port in world.state.underlays.iter_mut().flat_map(|underlay| &mut underlay.ports) {
            if port.node == "b1" {
                port.delivery = b1;
            }
        }
        world.provide(&world.state)?;
        let lengths = world.tcp_lengths(0, BYTES)?;
        let (longest, _) = lengths.last_key_value().ok_or("something was seen")?;
        assert_eq!(*longest > 1514, longest_allowed > 1514, "{b1:?}: {lengths:?}");
    }
    Ok(world.lab.down()?)
}

fn quick_switch() -> Result<(), Failed> {
    let mut world = World::new()?;
    world.up()?;
    let mut micros = Vec::new();
    for round in 0..21 {
        let delivery = if round % 2 == 0 { Delivery::Unmerged } else { Delivery::MergedTcp };
        micros.push(world.deliver(delivery)?);
    }
    micros.sort_unstable();
    let median = micros[10];
    eprintln!("switch of 6 ports: median {median} us, slowest {} us", micros[20]);
    // A visit has 0.1 s for its switch, all of it. The median: this may be a busy machine.
    assert!(median < 20_000, "{micros:?}");
    Ok(world.lab.down()?)
}

fn shrink() -> Result<(), Failed> {
    let world = World::new()?;
    world.up()?;
    let provider = &world.lab.agents[0];
    let links = |agent: &LocalAgent| ask(agent, &Ask::List("/sys/class/net".to_owned())).map(|list| list.to_string());

    let mut smaller = world.state.clone();
    smaller.underlays.remove(2);
    for underlay in &mut smaller.underlays {
        underlay.mtu = mtu(1400);
    }
    world.provide(&smaller)?;
    let there = links(provider)?;
    assert!(there.contains("p0u0") && !there.contains("p0u2") && !there.contains("b2"), "{there}");
    let read = ask(provider, &Ask::Read("/sys/class/net/p1u1/mtu".to_owned()))?;
    assert_eq!(read, "1400\n");
    world.tcp(0, 10_000)?;
    assert!(!links(&world.nodes()[0])?.contains("private"));

    // A node's side: an MTU of its own, an address less.
    let mut states = world.interfaces[0][..2].to_vec();
    states[0].mtu = Some(mtu(1300));
    states[1].routes.clear();
    let readings: Vec<InterfaceReading> =
        serde_json::from_value(ask(&world.nodes()[0], &Ask::Interfaces(states.clone()))?)?;
    assert_eq!(readings[0].mtu, 1300);
    world.tcp(0, 10_000)?;
    assert!(world.tcp(1, 10).is_err(), "without the route there is no way");
    states.truncate(1);
    states[0].mtu = None;
    ask(&world.nodes()[0], &Ask::Interfaces(states))?;
    world.tcp(0, 10_000)?;
    ask(&world.nodes()[0], &Ask::Interfaces(Vec::new()))?;
    assert!(world.tcp(0, 10).is_err());

    world.provide(&ProviderState::default())?;
    let there = links(provider)?;
    assert_eq!(there, "[\"lo\"]");
    // And all of it again.
    world.up()?;
    world.tcp(2, 10_000)?;
    Ok(world.lab.down()?)
}

fn settings() -> Result<(), Failed> {
    let world = World::new()?;
    world.up()?;
    let node = &world.nodes()[1];
    let file = "/proc/sys/net/ipv4/tcp_slow_start_after_idle".to_owned();
    let before = ask(node, &Ask::Read(file.clone()))?;
    let state = SettingsState {
        sysctl: [("net.ipv4.tcp_slow_start_after_idle", "0"), ("net.core.netdev_max_backlog", "5000")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        features: [("gro".to_owned(), true)].into(),
        receive_cpus: None,
        interfaces: vec!["public-ipv4".to_owned()],
        mtus: [("public-ipv4".to_owned(), Mtu::new(1400)?)].into(),
    };
    let mtu_file = "/sys/class/net/public-ipv4/mtu".to_owned();
    let mtu = ask(node, &Ask::Read(mtu_file.clone()))?;
    let reading: SettingsReading = serde_json::from_value(ask(node, &Ask::Settings(state))?)?;
    assert_eq!(ask(node, &Ask::Read(file.clone()))?, "0\n");
    let granted: Vec<_> = reading.granted.iter().map(|granted| granted.setting.as_str()).collect();
    assert!(granted.contains(&"public-ipv4 rx-gro"), "{reading:?}");
    assert!(granted.contains(&"public-ipv4 mtu"), "{reading:?}");
    assert_eq!(ask(node, &Ask::Read(mtu_file.clone()))?, "1400\n");
    // It is the machine's, and a network namespace does not have it.
    let refused: Vec<_> = reading.refused.iter().map(|refused| refused.setting.as_str()).collect();
    assert_eq!(refused, ["net.core.netdev_max_backlog"], "{reading:?}");

    let reading = ask(node, &Ask::Settings(SettingsState::default()))?;
    assert_eq!(reading["refused"], serde_json::json!([]));
    assert_eq!(ask(node, &Ask::Read(file))?, before);
    assert_eq!(ask(node, &Ask::Read(mtu_file))?, mtu);
    Ok(world.lab.down()?)
}

fn receive_queues() -> Result<(), Failed> {
    let world = World::new()?;
    world.up()?;
    let mut states = world.interfaces[1].clone();
    states[0].receive_cpus = Some(vec![0]);
    let answer = ask(&world.nodes()[1], &Ask::Interfaces(states));
    if world.lab.privilege == Privilege::Root {
        let readings: Vec<InterfaceReading> = serde_json::from_value(answer?)?;
        let expected = BTreeMap::from([("rx-0".to_owned(), vec![0])]);
        assert_eq!(readings[0].receive_cpus.as_ref(), Some(&expected), "one queue, one CPU");
        world.tcp(0, 100_000)?;
    } else {
        let reason = answer.err().ok_or("a user may not")?;
        assert!(reason.contains("run this as root"), "{reason}");
    }
    Ok(world.lab.down()?)
}

fn not_ready() -> Result<(), Failed> {
    let world = World::new()?;
    world.provide(&world.state)?;
    let mut states = world.interfaces[0][..1].to_vec();
    states[0].gateway = Some("198.18.0.3".parse()?);
    let reason = ask(&world.nodes()[0], &Ask::Interfaces(states)).err().ok_or("nobody answers there")?;
    assert!(reason.contains("public-ipv4") && reason.contains("198.18.0.3"), "{reason}");
    let mut states = world.interfaces[0][..1].to_vec();
    states[0].name = "public-ipv5".to_owned();
    let reason = ask(&world.nodes()[0], &Ask::Interfaces(states)).err().ok_or("there is no such interface")?;
    assert!(reason.contains("public-ipv5"), "{reason}");
    Ok(world.lab.down()?)
}
