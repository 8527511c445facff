//! The kernel's own WireGuard: as an engine, at the other end of ours, and as a device that `ip` and `wg` made.
//!
//! Many kernels have none. Then the tests that need it are listed as ignored, with the reason; with `WGLAB_REQUIRE_KERNEL=1` that
//! is a failure. `tests/in-a-vm` runs them on a kernel that has it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ipnet::IpNet;
use libtest_mimic::Failed;
use nix::sys::signal::Signal;
use wglab::cell::Factor;
use wglab::record::{Record, Status};
use wglab::sys::genetlink::Family;
use wglab::tunnel::{PeerSpec, PresharedKey, PrivateKey, PublicKey, TunnelEngine, TunnelSpec, up};
use wglab::units::Mtu;

use crate::engines::{check_ok, of, topology};
use crate::found::Hosts;
use crate::interop;
use crate::left_over::{Holdings, adopt_orphans};
use crate::product::{WGLAB, record, text, wglab};

/// The first says what is missing where there is none; the others need it.
const SAYS_WHAT_IS_MISSING: &str = "the_kernels_own_runs_or_says_what_is_missing";

pub(crate) const TESTS: &[super::Test] = &[
    (SAYS_WHAT_IS_MISSING, alone),
    ("kernel_and_embedded_carry_each_other", mixed),
    ("kernel_and_embedded_lose_no_byte", || interop::whole("ours>theirs", Some("kind = \"kernel\""), EMULATED)),
    ("kernel_devices_of_others_are_measured_and_left_as_they_were", others),
    ("kernel_devices_with_many_peers_are_set_and_read_whole", many),
    ("kernel_devices_go_with_a_lab_that_is_killed", killed),
];

/// The kernel may be one in an emulated machine, which is ten to twenty times slower.
const EMULATED: interop::Effort = interop::Effort { time: Duration::from_millis(2500), bytes: 100_000 };

/// Whether its lack is a failure.
fn is_required() -> bool {
    std::env::var_os("WGLAB_REQUIRE_KERNEL").is_some_and(|value| value == "1")
}

/// Whether a test is one of these, and must be done here.
pub(crate) fn requires(test: &str) -> bool {
    is_required() && TESTS.iter().any(|(name, _)| *name == test)
}

/// Whether a test is one of these that cannot be done without the kernel's WireGuard: all but the one that says what is missing.
pub(crate) fn needs_it(test: &str) -> bool {
    test != SAYS_WHAT_IS_MISSING && TESTS.iter().any(|(name, _)| *name == test)
}

/// Whether a test here cannot be done for want of it, and whether that is a failure.
pub(crate) fn unmet(test: &str) -> Option<(String, bool)> {
    (needs_it(test) && Family::open("wireguard").is_err())
        .then(|| ("this kernel has no WireGuard".to_owned(), is_required()))
}

/// The other tools of a test here.
pub(crate) fn tools(test: &str) -> &'static [&'static str] {
    match test {
        _ if test.contains("_many_peers_") => &["ip", "wg", "unshare"],
        _ if test.contains("_of_others_") || test.contains("_byte") => &["ip", "wg", "sh"],
        _ => &[],
    }
}

fn run(directory: &Path, arguments: &[&str]) -> Result<(String, Record), Failed> {
    let output = wglab(directory, &[&["run", "lab.toml", "--out", "r"], arguments].concat()).output()?;
    let record = record(&directory.join("r")).map_err(|error| format!("{error:?}: {}", text(&output)))?;
    Ok((text(&output), record))
}

fn alone() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    topology(directory.path(), "\"raw\", \"kernel\"", "")?;
    let (said, record) = run(directory.path(), &[])?;
    of(&record, "raw").into_iter().for_each(check_ok);
    let runs = of(&record, "kernel");
    assert_eq!(runs.len(), 2 * 6, "underlays x tests");
    if !is_required() && runs.iter().all(|run| run.status == Status::Invalid) {
        assert!(said.starts_with("exit Some(2)"), "{said}");
        for run in runs {
            let reason = run.reason.clone().unwrap_or_default();
            assert!(
                reason.contains("this kernel has no WireGuard") && reason.contains("modprobe wireguard"),
                "{reason}"
            );
        }
        eprintln!("this kernel has no WireGuard: it was named, and not tried");
    } else {
        assert!(said.starts_with("exit Some(0)"), "{said}");
        for run in runs {
            check_ok(run);
            let peers = run.proof.iter().filter(|check| check.check.starts_with("outer address of"));
            assert_eq!(peers.count(), 2, "from both ends: {:?}", run.proof);
            assert!(!run.metrics.contains_key("engine_cpu_seconds"), "what the kernel uses is no process's");
        }
    }
    before.restored()
}

/// Either calls the other, over one and two tunnels; streams, transactions and datagrams go both ways.
fn mixed() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    interop::topology(directory.path(), &["ours>theirs", "theirs>ours"], Some("kind = \"kernel\""))?;
    let file = directory.path().join("lab.toml");
    fs::write(&file, format!("tunnels = [1, 2]\n{}", fs::read_to_string(&file)?))?;
    let (said, record) = run(directory.path(), &["--duration", "600ms", "--only", "underlay=public-ipv6"])?;
    assert!(said.starts_with("exit Some(0)"), "{said}");
    let several = |run: &&wglab::record::Run| run.factors.get(Factor::Tunnels) == Some("2");
    for level in ["ours>theirs", "theirs>ours"] {
        let runs = of(&record, level);
        assert_eq!(runs.iter().filter(|run| several(run)).count(), 2, "directions of tcp-stream: {said}");
        assert_eq!(runs.iter().filter(|run| !several(run)).count(), 5, "tests: {said}");
        let (ours, other) = if level == "ours>theirs" { ("client", "server") } else { ("server", "client") };
        for run in runs {
            check_ok(run);
            let condition = |side: &str| run.conditions.get(&format!("{side}.engine_offloads"));
            assert!(condition(ours).is_some() && condition(other).is_none(), "{:?}", run.conditions);
            let addresses = run.proof.iter().filter(|check| check.check.starts_with("outer address of"));
            assert_eq!(addresses.count(), if several(&run) { 4 } else { 2 }, "{:?}", run.proof);
        }
    }
    before.restored()
}

/// wg7 of two hosts, made by `ip` and `wg` with all that `wg` can set, is measured beside devices of our own on the same hosts. It
/// is read as it is and stays so; of ours nothing stays.
fn others() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let hosts = Hosts::up(directory.path(), "raw")?;
    let exec = |node: &str, script: &str| -> Result<String, Failed> {
        let output = hosts.exec(directory.path(), node, &["sh", "-e", "-c", script])?;
        assert!(output.status.success(), "{script}: {}", text(&output));
        Ok(String::from_utf8(output.stdout)?)
    };
    let ends = [("a1", "a2", 1, 2), ("a2", "a1", 2, 1)];
    for (node, _, _, _) in ends {
        exec(node, &format!("umask 77; wg genkey > {node}.key; wg pubkey < {node}.key > {node}.pub; wg genpsk > psk"))?;
    }
    for (node, peer, own, other) in ends {
        exec(
            node,
            &format!(
                "ip link add wg7 mtu 1390 type wireguard
                 wg set wg7 private-key {node}.key listen-port 51877 fwmark 0x77 peer $(cat {peer}.pub) preshared-key psk \
                    persistent-keepalive 25 endpoint 10.200.0.{other}:51877 allowed-ips 10.77.0.{other}/32,fd77::{other}/128
                 ip address add 10.77.0.{own}/24 dev wg7
                 ip link set wg7 up"
            ),
        )?;
    }
    let state = |node: &str| exec(node, "wg showconf wg7; ip address show wg7; ip -o link show type wireguard");
    let as_found = (state("a1")?, state("a2")?);
    assert!(as_found.0.contains("FwMark = 0x77"), "{}", as_found.0);

    let host = |node: &str, last: u8| {
        format!("[node.{node}]\nreach = {:?}\naddress = {{ private = \"10.200.0.{last}\" }}\n", hosts.reach(node))
    };
    let file = format!(
        "pairs = [\"a1>a2\"]\nengines = [\"raw\", \"theirs\", \"kernel\", \"kernel>embedded\"]\n{}{}[underlay]\n\
         private = {{ family = \"ipv4\", mtu = 1450 }}\n[engine.theirs]\ninterface = \"wg7\"\n\
         [[test]]\nkind = \"tcp-stream\"\ncongestion_control = \"cubic\"\n[[test]]\nkind = \"tcp-rr\"\n\
         [profile.quick]\nrounds = 1\nduration = \"300ms\"\n",
        host("a1", 1),
        host("a2", 2),
    );
    fs::write(directory.path().join("lab.toml"), file)?;
    let (said, record) = run(directory.path(), &[])?;
    assert!(said.starts_with("exit Some(0)"), "{said}");
    record.runs.iter().for_each(check_ok);
    let theirs = of(&record, "theirs");
    assert_eq!((theirs.len(), record.runs.len()), (2, 4 * 2), "{said}");
    for run in theirs {
        let checks: Vec<&str> = run.proof.iter().map(|check| check.check.as_str()).collect();
        for check in
            ["outer address of a2, seen by a1", "outer address of a1, seen by a2", "bytes received through wg7 of a2"]
        {
            assert!(checks.contains(&check), "{checks:?}");
        }
    }
    assert_eq!(
        (state("a1")?, state("a2")?),
        as_found,
        "what others manage is left as it was, and of ours nothing is left"
    );

    // A topology is written from it: from a host that is asked, and from the node's own side.
    let words = |node: &str| format!("{node}={}", hosts.reach(node).join(" "));
    let output = wglab(directory.path(), &["init", &words("a1"), &words("a2")]).output()?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let written = String::from_utf8(output.stdout)?;
    assert!(written.contains("engines = [\"raw\", \"embedded\", \"wg7\"]"), "{written}");
    let output = hosts.exec(directory.path(), "a1", &[WGLAB, "init", "wg7"])?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let written = String::from_utf8(output.stdout)?;
    assert!(written.contains("address = { private = \"10.200.0.2\" }"), "{written}");
    assert!(written.contains("MTU 1390, port 51877"), "{written}");
    for key in ["a1.key", "a2.key", "psk"] {
        assert!(!written.contains(fs::read_to_string(directory.path().join(key))?.trim()), "{key} was copied");
    }
    hosts.down()?;
    before.restored()
}

/// What the test `many` does in a network namespace of its own.
pub(crate) const MANY_COMMAND: &str = "kernel-with-many-peers";
/// Each has some 200 bytes of attributes: many messages, both ways.
const MANY: u16 = 400;
/// What one of them has beside; they do not fit into one attribute.
const PREFIXES: u16 = 3000;

fn many() -> Result<(), Failed> {
    let mut alone = Command::new("unshare");
    alone.arg("--net");
    if !nix::unistd::geteuid().is_root() {
        alone.args(["--user", "--map-root-user"]);
    }
    let output = alone.arg(std::env::current_exe()?).arg(MANY_COMMAND).output()?;
    if output.status.success() { Ok(()) } else { Err(text(&output).into()) }
}

/// Sets a device with many peers through ours, and compares what `wg` and we read of it with what was asked; then `wg` changes it.
pub(crate) fn set_and_read_many() {
    let spec = TunnelSpec {
        interface: "wg7".to_owned(),
        mtu: Mtu::new(1420).unwrap(),
        listen_port: 51877,
        engine: TunnelEngine::Kernel,
        pin: None,
        fwmark: Some(0x77),
        peers: (0..MANY).map(peer).collect(),
    };
    let mut tunnel = up(&spec, &PrivateKey::generate()).unwrap();
    let status = tunnel.status().unwrap();
    assert_eq!((status.listen_port, status.fwmark), (Some(51877), Some(0x77)));
    let keepalive = |interval: Option<Duration>| interval.map_or(0, |interval| interval.as_secs());
    let asked: Told = spec
        .peers
        .iter()
        .map(|peer| {
            (peer.public_key.to_string(), (peer.endpoint, keepalive(peer.keepalive), sorted(&peer.allowed_ips)))
        })
        .collect();
    let ours = |peers: &[wglab::tunnel::PeerStatus]| -> Told {
        peers
            .iter()
            .map(|peer| {
                (peer.public_key.to_string(), (peer.endpoint, keepalive(peer.keepalive), sorted(&peer.allowed_ips)))
            })
            .collect()
    };
    assert_eq!(status.peers.len(), usize::from(MANY), "each once");
    same(&ours(&status.peers), &asked);
    same(&by_wg(), &asked);
    let read = wglab::tunnel::read_interface("wg7").unwrap();
    assert_eq!((read.peers.len(), read.listen_port), (usize::from(MANY), Some(51877)));

    // Another set replaces all of them, and what `wg` adds is read as well.
    let fewer: Vec<PeerSpec> = (MANY / 2..MANY).map(peer).collect();
    tunnel.set_peers(&fewer).unwrap();
    let key = PublicKey::from_bytes([0xee; 32]).unwrap();
    let more = ["set", "wg7", "peer", &key.to_string(), "allowed-ips", "10.255.0.0/16"];
    assert!(Command::new("wg").args(more).status().unwrap().success());
    let told = ours(&tunnel.status().unwrap().peers);
    assert_eq!(told.len(), usize::from(MANY / 2) + 1);
    assert_eq!(told[&key.to_string()], (None, 0, vec!["10.255.0.0/16".parse().unwrap()]));
    same(&by_wg(), &told);

    tunnel.down();
    assert!(!Path::new("/proc/sys/net/ipv4/conf/wg7").exists(), "the device is still there");
}

/// Of every peer: endpoint, keepalive in seconds, prefixes in order.
type Told = BTreeMap<String, (Option<SocketAddr>, u64, Vec<IpNet>)>;

/// Without printing thousands of lines.
fn same(told: &Told, asked: &Told) {
    assert_eq!(told.len(), asked.len());
    for (key, peer) in asked {
        assert_eq!(told.get(key), Some(peer), "{key}");
    }
}

fn peer(number: u16) -> PeerSpec {
    let [high, low] = number.to_be_bytes();
    let mut key = [7; 32];
    key[..2].copy_from_slice(&[high + 1, low]);
    let mut allowed_ips = vec![
        IpNet::new(Ipv4Addr::new(10, high, low, 0).into(), 24).unwrap(),
        IpNet::new(Ipv6Addr::new(0xfd77, 0, 0, number, 0, 0, 0, 0).into(), 64).unwrap(),
    ];
    if number == MANY - 1 {
        let prefix = |count: u16| Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, count);
        allowed_ips.extend((0..PREFIXES).map(|count| IpNet::new(prefix(count).into(), 128).unwrap()));
    }
    let endpoint = match number % 3 {
        0 => None,
        1 => Some(SocketAddr::from((Ipv4Addr::new(192, 0, 2, low), 1000 + number))),
        _ => Some(SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number), 1000 + number))),
    };
    PeerSpec {
        public_key: PublicKey::from_bytes(key).unwrap(),
        preshared_key: number.is_multiple_of(2).then(|| PresharedKey::from_bytes(key)).flatten(),
        endpoint,
        allowed_ips,
        keepalive: (number % 5 == 1).then_some(Duration::from_secs(25)),
    }
}

fn sorted(nets: &[IpNet]) -> Vec<IpNet> {
    let mut nets = nets.to_vec();
    nets.sort_unstable();
    nets
}

/// What `wg show wg7 dump` says: key, preshared key, endpoint, prefixes, last handshake, received, sent, keepalive.
fn by_wg() -> Told {
    let output = Command::new("wg").args(["show", "wg7", "dump"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let dump = String::from_utf8(output.stdout).unwrap();
    let peers = dump.lines().skip(1).map(|line| {
        let words: Vec<&str> = line.split('\t').collect();
        let nets: Vec<IpNet> = words[3].split(',').filter_map(|net| net.parse().ok()).collect();
        (words[0].to_owned(), (words[2].parse().ok(), words[7].parse().unwrap_or(0), sorted(&nets)))
    });
    peers.collect()
}

fn killed() -> Result<(), Failed> {
    adopt_orphans()?;
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let hosts = Hosts::up(directory.path(), "kernel")?;
    let links = hosts.exec(directory.path(), "a1", &["cat", "/proc/net/dev"])?;
    assert!(text(&links).contains("wg0"), "{}", text(&links));
    hosts.kill(Signal::SIGKILL)?;
    before.restored()
}
