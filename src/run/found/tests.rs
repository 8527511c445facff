use super::*;
use crate::agent::messages::PublicKey;
use crate::host::facts::InterfaceFacts;
use crate::plan::{Request, plan};
use crate::topology::Topology;

const TOPOLOGY: &str = "pairs = \"mesh\"\nengines = [\"raw\", \"wg0\"]\n\
    [node.fra]\nreach = \"ssh:fra\"\naddress = { private = \"10.0.0.2\", public = \"192.0.2.2\" }\n\
    [node.hel]\nreach = \"ssh:hel\"\naddress = { private = \"10.0.0.3\", public = \"192.0.2.3\" }\n\
    [engine.wg0]\ninterface = \"wg0\"\n\
    [underlay]\nprivate = { family = \"ipv4\" }\npublic = { family = \"ipv4\" }\n[[test]]\nkind = \"tcp-stream\"\n";

fn key(byte: u8) -> PublicKey {
    PublicKey::from_bytes([byte; 32]).unwrap()
}

struct Hosts {
    plan: Plan,
    facts: BTreeMap<String, Facts>,
    keys: Keys,
    statuses: Statuses,
}

impl Hosts {
    /// Two hosts whose wg0 call each other over the private network.
    fn new() -> Self {
        let plan = plan(&Topology::parse("t.toml", TOPOLOGY).unwrap(), &Request::default()).unwrap();
        let mut hosts = Self { plan, facts: BTreeMap::new(), keys: Keys::new(), statuses: Statuses::new() };
        let mut template = crate::host::facts();
        for (index, (node, other, inner)) in
            [("fra", "10.0.0.3:51820", "10.8.0.1/24"), ("hel", "10.0.0.2:51820", "10.8.0.2/24")].into_iter().enumerate()
        {
            let mut interfaces = BTreeMap::new();
            let addresses = vec!["fe80::1/64".parse().unwrap(), inner.parse().unwrap(), "fd00::1/64".parse().unwrap()];
            let wg0 =
                InterfaceFacts { mtu: 1420 - index as u32, running: true, addresses, kind: None, uapi_socket: true };
            interfaces.insert("wg0".to_owned(), wg0);
            template.interfaces = Some(interfaces);
            hosts.facts.insert(node.to_owned(), template.clone());
            let place = (node.to_owned(), "wg0".to_owned());
            hosts.keys.insert(place.clone(), key(index as u8 + 1));
            let peer = serde_json::json!({
                "public_key": key(2 - index as u8), "endpoint": other, "allowed_ips": ["10.8.0.0/24"], "rx_bytes": 0,
                "tx_bytes": 0, "last_handshake_age_ns": null, "keepalive_s": null, "handshakes": null,
            });
            let status = serde_json::json!({
                "version": null, "listen_port": 51820, "fwmark": null, "peers": [peer], "counters_mean": "unknown",
                "process": null, "engine": null,
            });
            hosts.statuses.insert(place, serde_json::from_value(status).unwrap());
        }
        hosts
    }

    fn status(&mut self, node: &str) -> &mut Status {
        self.statuses.get_mut(&(node.to_owned(), "wg0".to_owned())).unwrap()
    }

    fn found(&self) -> Found {
        found(&self.plan, &self.facts, &self.keys, &self.statuses)
    }

    /// Why the pair has no tunnel over the private network.
    fn missing(&self) -> String {
        let found = self.found();
        assert!(found.tunnels.is_empty(), "{:?}", found.tunnels);
        let missing = found.missing.iter().find(|((_, underlay, _), _)| underlay == "private");
        missing.map(|(_, why)| why.clone()).unwrap()
    }
}

#[test]
fn a_tunnel_is_read_off_both_ends_and_only_over_its_own_underlay() {
    let found = Hosts::new().found();
    let [tunnel] = &found.tunnels[..] else { panic!("one tunnel: {:?}", found.tunnels) };
    assert_eq!((tunnel.engine.as_str(), tunnel.underlay.as_str(), tunnel.mtu.get()), ("wg0", "private", 1419));
    let (client, server) = tunnel.ends(&Pair { client: "fra".to_owned(), server: "hel".to_owned() }).unwrap();
    assert_eq!(
        (client.inner.to_string(), server.inner.to_string()),
        ("10.8.0.1/24".to_owned(), "10.8.0.2/24".to_owned())
    );
    assert_eq!((client.listen_port, client.peers[0].endpoint.to_string()), (51820, "10.0.0.3:51820".to_owned()));
    let [((_, underlay, _), why)] = &found.missing.into_iter().collect::<Vec<_>>()[..] else {
        panic!("one is missing")
    };
    assert!(underlay == "public" && why.contains("its address on private"), "{why}");
}

#[test]
fn what_does_not_join_says_why() {
    let mut hosts = Hosts::new();
    hosts.status("hel").peers.clear();
    assert!(hosts.missing().contains("wg0 of hel has no peer with the key of wg0 of fra"));

    let mut hosts = Hosts::new();
    hosts.status("fra").peers[0].allowed_ips = vec!["10.9.0.0/24".parse().unwrap()];
    assert!(hosts.missing().contains("AllowedIPs"));

    let mut hosts = Hosts::new();
    hosts.status("hel").listen_port = None;
    assert!(hosts.missing().contains("no outer port"));

    let mut hosts = Hosts::new();
    hosts.status("fra").peers[0].endpoint = "203.0.113.9:51820".parse().ok();
    assert!(hosts.missing().contains("none of the addresses"), "a relay");

    let mut hosts = Hosts::new();
    for node in ["fra", "hel"] {
        hosts.status(node).peers[0].endpoint = None;
    }
    assert!(hosts.missing().contains("nobody can call"));
    // One who can call is enough, as for hosts behind NAT.
    hosts.status("fra").peers[0].endpoint = "10.0.0.3:51820".parse().ok();
    assert_eq!(hosts.found().tunnels.iter().filter(|tunnel| tunnel.underlay == "private").count(), 1);

    let mut hosts = Hosts::new();
    hosts.statuses.clear();
    assert!(hosts.missing().contains("could not be read"));
}

#[test]
fn an_interface_that_a_node_does_not_have_is_named_with_those_that_it_has() {
    let hosts = Hosts::new();
    assert_eq!(absent(&hosts.plan, &hosts.facts), Vec::<String>::new());

    let mut hosts = Hosts::new();
    let interfaces = hosts.facts.get_mut("hel").unwrap().interfaces.as_mut().unwrap();
    let wg0 = interfaces.remove("wg0").unwrap();
    assert_eq!(
        absent(&hosts.plan, &hosts.facts),
        ["node hel has no interface wg0, which engine wg0 names (it has no WireGuard interface)"]
    );
    let interfaces = hosts.facts.get_mut("hel").unwrap().interfaces.as_mut().unwrap();
    interfaces.insert("eth0".to_owned(), InterfaceFacts { uapi_socket: false, ..wg0.clone() });
    interfaces.insert(
        "wg1".to_owned(),
        InterfaceFacts { uapi_socket: false, kind: Some("wireguard".to_owned()), ..wg0.clone() },
    );
    interfaces.insert("wgo".to_owned(), wg0);
    let told = absent(&hosts.plan, &hosts.facts);
    assert!(told[0].ends_with("(its WireGuard interfaces: wg1, wgo)"), "{told:?}");

    // Nobody knows what such a node has: its agent will say why it cannot be read.
    hosts.facts.get_mut("hel").unwrap().interfaces = None;
    assert_eq!(absent(&hosts.plan, &hosts.facts), Vec::<String>::new());
}

#[test]
fn ipv6_is_taken_where_ipv4_is_not_let_through() {
    let mut hosts = Hosts::new();
    for (node, address) in [("fra", "fd00::a/64"), ("hel", "fd00::b/64")] {
        hosts.status(node).peers[0].allowed_ips = vec!["fd00::/64".parse().unwrap()];
        let wg0 = hosts.facts.get_mut(node).unwrap().interfaces.as_mut().unwrap().get_mut("wg0").unwrap();
        wg0.addresses.push(address.parse().unwrap());
        wg0.addresses.remove(2);
    }
    let found = hosts.found();
    assert_eq!(found.tunnels[0].ends[0].inner.to_string(), "fd00::a/64");
}

#[test]
fn only_the_nodes_of_such_levels_are_looked_at() {
    let hosts = Hosts::new();
    let states = states(&hosts.plan, "fra", hosts.facts.get("fra"));
    assert_eq!(states.len(), 1);
    assert_eq!((states[0].spec.interface.as_str(), states[0].spec.mtu.get()), ("wg0", 1420));
    assert!(states[0].addresses.is_empty() && states[0].spec.peers.is_empty());
    assert_eq!(refused(&hosts.plan, "fra", "wg0").len(), 2);
    assert!(refused(&hosts.plan, "fra", "wg1").is_empty());
}
