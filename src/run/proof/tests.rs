use super::*;
use crate::plan::{Request, plan};
use crate::topology::Topology;

const LAB: &str = "nodes = [\"a\", \"b\"]\npairs = [\"a>b\"]\nengines = [\"raw\", \"embedded\"]\ntunnels = [1, 2]\n\
    [underlay]\nprivate = { family = \"ipv4\" }\npublic-ipv6 = { family = \"ipv6\" }\n\
    [[test]]\nkind = \"tcp-stream\"\nstreams = 3\n";

/// A run of three streams, of 400 kB, 300 kB and 200 kB, from `a` to `b`.
const STREAMS: [u64; 3] = [400_000, 300_000, 200_000];

/// What both ends saw of a run in which all is right, for tests to change.
struct Seen {
    plan: Plan,
    arrangement: Arrangement,
    keys: Keys,
    client: JobOutcome,
    server: JobOutcome,
}

fn key(byte: u8) -> PublicKey {
    PublicKey::from_bytes([byte; 32]).unwrap()
}

impl Seen {
    fn over(tunnels: Option<u32>) -> Self {
        let plan = plan(&Topology::parse("t.toml", LAB).unwrap(), &Request::default()).unwrap();
        let of = |arrangement: &&Arrangement| arrangement.tunnels == tunnels && arrangement.underlay == "private";
        let arrangement = plan.arrangements.iter().find(of).unwrap().clone();
        let mut keys = Keys::new();
        for (byte, end) in (1..).zip(plan.tunnels.iter().flat_map(|tunnel| &tunnel.ends)) {
            keys.insert((end.node.clone(), end.interface.clone()), key(byte));
        }
        let several = plan.tunnels_of(&arrangement).count();
        let carried: BTreeMap<&str, u64> = plan
            .tunnels_of(&arrangement)
            .map(|tunnel| {
                let bytes: u64 = STREAMS.iter().skip(tunnel.number as usize).step_by(several).sum();
                (tunnel.ends[0].interface.as_str(), bytes * 11 / 10)
            })
            .collect();
        let outcome = |node: &str| {
            let receives = node == "b";
            let mut outcome: JobOutcome = serde_json::from_value(serde_json::json!({
                "traffic": {
                    "role": if receives { "server" } else { "client" }, "kind": "tcp-stream", "direction": "forward",
                    "counts": if receives {
                        serde_json::json!({"received_bytes": STREAMS.iter().sum::<u64>()})
                    } else {
                        serde_json::json!({"sent_bytes": STREAMS.iter().sum::<u64>()})
                    },
                    "streams": STREAMS.map(|bytes| serde_json::json!({"bytes": bytes})),
                    "conditions": {},
                },
                "meters": {}, "tunnels": {},
            }))
            .unwrap();
            let mut count = |interface: &str, bytes: u64| {
                let counters = outcome.meters.interfaces.entry(interface.to_owned()).or_default();
                counters.rx_bytes = if receives { bytes } else { bytes / 50 };
                counters.tx_bytes = if receives { bytes / 50 } else { bytes };
            };
            count("private", STREAMS.iter().sum::<u64>() * 12 / 10);
            count("public-ipv6", 0);
            for (interface, bytes) in &carried {
                count(interface, *bytes);
            }
            for (end, other) in plan.tunnels.iter().filter_map(|tunnel| {
                let end = tunnel.ends.iter().find(|end| end.node == node)?;
                Some((end, tunnel.ends.iter().find(|end| end.node != node)?))
            }) {
                let moved = carried.get(end.interface.as_str()).copied().unwrap_or(0);
                let (rx, tx) = if receives { (moved, moved / 50) } else { (moved / 50, moved) };
                let status = |rx: u64, tx: u64| -> Status {
                    let peer = serde_json::json!({
                        "public_key": keys[&(other.node.clone(), other.interface.clone())],
                        "endpoint": SocketAddr::new(other.outer, other.listen_port), "allowed_ips": [],
                        "rx_bytes": rx, "tx_bytes": tx, "last_handshake_age_ns": 1, "keepalive_s": null,
                        "handshakes": null,
                    });
                    serde_json::from_value(serde_json::json!({
                        "version": null, "listen_port": end.listen_port, "fwmark": null, "peers": [peer],
                        "counters_mean": "udp-payload", "process": null, "engine": null,
                    }))
                    .unwrap()
                };
                let around = Around { before: status(1_000, 1_000), after: status(1_000 + rx, 1_000 + tx) };
                outcome.tunnels.insert(end.interface.clone(), around);
            }
            outcome
        };
        let (client, server) = (outcome("a"), outcome("b"));
        Self { plan, arrangement, keys, client, server }
    }

    fn checks(&self) -> Vec<Check> {
        let evidence = |node, outcome| Evidence { node, pinned: Some("private"), outcome };
        let (client, server) = (evidence("a", &self.client), evidence("b", &self.server));
        prove(&self.plan, &self.arrangement, &self.keys, client, server)
    }

    /// The checks that do not hold.
    fn broken(&self) -> Vec<String> {
        self.checks().into_iter().filter(|check| !check.holds).map(|check| check.check).collect()
    }

    /// The device of tunnel number `number`.
    fn device(&self, number: usize) -> String {
        self.plan.tunnels_of(&self.arrangement).nth(number).unwrap().ends[0].interface.clone()
    }
}

#[test]
fn what_is_right_is_proved_over_each_number_of_tunnels() {
    for tunnels in [None, Some(1), Some(2)] {
        let seen = Seen::over(tunnels);
        assert_eq!(seen.broken(), [] as [&str; 0], "{tunnels:?}");
    }
    let named: Vec<String> = Seen::over(Some(2)).checks().into_iter().map(|check| check.check).collect();
    let (first, second) = (Seen::over(Some(2)).device(0), Seen::over(Some(2)).device(1));
    for device in [first, second] {
        for check in
            [format!("outer address of b, seen by a through {device}"), format!("bytes received through {device} of b")]
        {
            assert!(named.contains(&check), "{check}: {named:?}");
        }
    }
}

#[test]
fn streams_that_took_another_ones_tunnel_are_refused() {
    let mut seen = Seen::over(Some(2));
    let (first, second) = (seen.device(0), seen.device(1));
    // All bytes are there, and the first tunnel had them all.
    let all = seen.server.meters.interfaces[&second].rx_bytes;
    for (device, add) in [(&first, true), (&second, false)] {
        let counters = seen.server.meters.interfaces.get_mut(device).unwrap();
        counters.rx_bytes = if add { counters.rx_bytes + all } else { 0 };
        let peer = &mut seen.server.tunnels.get_mut(device).unwrap().after.peers[0];
        peer.rx_bytes = if add { peer.rx_bytes + all } else { 1_000 };
    }
    assert_eq!(seen.broken(), [format!("bytes received through {second} of b")]);
}

#[test]
fn a_tunnel_without_a_byte_is_none() {
    let mut seen = Seen::over(Some(2));
    let second = seen.device(1);
    seen.server.traffic.streams[1].bytes = 0;
    seen.server.meters.interfaces.get_mut(&second).unwrap().rx_bytes = 0;
    seen.server.tunnels.get_mut(&second).unwrap().after.peers[0].rx_bytes = 1_000;
    assert_eq!(seen.broken(), [format!("bytes received through {second} of b")]);
    let mut untold = Seen::over(Some(2));
    untold.server.traffic.streams.clear();
    let broken = [untold.device(0), untold.device(1)].map(|device| format!("bytes received through {device} of b"));
    assert_eq!(untold.broken(), broken);
}

#[test]
fn the_far_end_of_each_tunnel_counts() {
    for number in [0, 1] {
        let mut seen = Seen::over(Some(2));
        let device = seen.device(number);
        // The right host, and the port of the other tunnel.
        let peer = &mut seen.client.tunnels.get_mut(&device).unwrap().after.peers[0];
        let endpoint = peer.endpoint.unwrap();
        peer.endpoint = Some(SocketAddr::new(endpoint.ip(), endpoint.port() ^ 1));
        assert_eq!(seen.broken(), [format!("outer address of b, seen by a through {device}")]);
    }
}

#[test]
fn a_second_tunnel_that_was_not_asked_for_must_rest() {
    let mut seen = Seen::over(Some(1));
    let other = seen.plan.tunnels.iter().find(|tunnel| tunnel.underlay == "private" && tunnel.number == 1).unwrap();
    let device = other.ends[0].interface.clone();
    seen.server.tunnels.get_mut(&device).unwrap().after.peers[0].rx_bytes += 100_000;
    assert_eq!(seen.broken(), ["bytes through the other tunnels of b"]);
}

#[test]
fn all_tunnels_together_crossed_the_pinned_interface() {
    let mut seen = Seen::over(Some(2));
    // Enough for either of them, too little for both.
    seen.server.meters.interfaces.get_mut("private").unwrap().rx_bytes = 700_000;
    assert_eq!(seen.broken(), ["bytes received on private of b"]);
}
