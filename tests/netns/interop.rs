//! The embedded engine with other implementations at the other end, in a whole lab; and every byte of it, hash-checked.
//!
//! `WGLAB_PEERS` names the directory that `benches/fetch-peers` filled. What is not there is listed as ignored, with the reason;
//! with `WGLAB_REQUIRE_PEERS=1`, or a list of names, that is a failure.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::signal::Signal;
use wglab::cell::Factor;
use wglab::record::Status;

use crate::bytes::{GIVE_COMMAND, TAKE_COMMAND, Verdict};
use crate::left_over::Holdings;
use crate::product::{WGLAB, record, signal, text, wglab};

pub(crate) const TESTS: &[super::Test] = &[
    ("embedded_and_wireguard_go_carry_each_other", || carry("wireguard-go")),
    ("embedded_and_boringtun_cli_carry_each_other", || carry("boringtun-cli")),
    ("embedded_and_gotatun_carry_each_other", || carry("gotatun")),
    ("embedded_and_wireguard_go_lose_no_byte", || whole("ours>theirs", Some(&daemon("wireguard-go")?), FULL)),
    ("embedded_and_boringtun_cli_lose_no_byte", || whole("theirs>ours", Some(&daemon("boringtun-cli")?), FULL)),
    ("embedded_and_gotatun_lose_no_byte", || whole("ours>theirs", Some(&daemon("gotatun")?), FULL)),
    ("embedded_loses_no_byte_where_offload_is_refused_midway", || whole("ours", None, FULL)),
    ("embedded_with_three_lanes_loses_no_byte", lanes),
    ("the_command_of_a_gate_with_mixed_ends", mixed_gate),
];

const PEERS: [&str; 3] = ["wireguard-go", "boringtun-cli", "gotatun"];

/// The program, where there is one.
pub(crate) fn peer(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(std::env::var_os("WGLAB_PEERS")?);
    [root.join(name), root.join("bin").join(name)].into_iter().find(|path| path.is_file())
}

/// The peer as an engine of a topology.
fn daemon(name: &str) -> Result<String, Failed> {
    Ok(format!("path = {:?}", peer(name).ok_or("checked")?))
}

/// What a test here cannot do without, and whether its lack is a failure.
pub(crate) fn unmet(test: &str) -> Option<(String, bool)> {
    let name = match test {
        "the_command_of_a_gate_with_mixed_ends" => "wireguard-go",
        _ => PEERS.into_iter().find(|name| test.contains(&name.replace('-', "_")))?,
    };
    if peer(name).is_some() {
        return None;
    }
    let required = std::env::var("WGLAB_REQUIRE_PEERS").unwrap_or_default();
    let required = required == "1" || required.split(',').any(|one| one == name);
    let why = match std::env::var("WGLAB_PEERS") {
        Ok(root) => format!("no {name} in WGLAB_PEERS={root}"),
        Err(_) => "WGLAB_PEERS names no directory of peers".to_owned(),
    };
    Some((why, required))
}

/// The other tools of a test here.
pub(crate) fn tools(test: &str) -> &'static [&'static str] {
    match test {
        _ if test.contains("_byte") => &["ip", "wg", "sh"],
        _ => &[],
    }
}

/// A pair with these engine levels, over IPv4 and IPv6; `theirs` says what the engine of that name is.
pub(crate) fn topology(directory: &Path, levels: &[&str], theirs: Option<&str>) -> Result<(), Failed> {
    let levels = levels.iter().map(|level| format!("{level:?}")).collect::<Vec<_>>().join(", ");
    let theirs = theirs.map(|theirs| format!("[engine.theirs]\n{theirs}\n")).unwrap_or_default();
    let ours = if levels.contains("ours") { "[engine.ours]\nkind = \"embedded\"\n" } else { "" };
    let file = format!(
        "nodes = [\"a1\", \"a2\"]\npairs = [\"a1>a2\"]\nengines = [{levels}]\n{ours}{theirs}\
         [underlay]\nprivate = {{ family = \"ipv4\", mtu = 1450 }}\npublic-ipv6 = {{ family = \"ipv6\" }}\n\
         [[test]]\nkind = \"tcp-stream\"\nstreams = 4\ndirection = \"both\"\ncongestion_control = \"cubic\"\n\
         [[test]]\nkind = \"tcp-rr\"\ncongestion_control = \"cubic\"\n\
         [[test]]\nkind = \"udp-stream\"\nrate = \"5k/s\"\npayload = \"1200B\"\ndirection = \"both\"\n\
         [profile.quick]\nrounds = 1\nduration = \"200ms\"\nwarmup = \"50ms\"\n"
    );
    Ok(fs::write(directory.join("lab.toml"), file)?)
}

/// Each side calls the other, over both families; bulk data, transactions and datagrams go both ways, and the path is proved.
fn carry(theirs: &str) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    topology(directory.path(), &["ours>theirs", "theirs>ours"], Some(&daemon(theirs)?))?;
    let output = wglab(directory.path(), &["run", "lab.toml", "--out", "r"]).output()?;
    let record = record(&directory.path().join("r")).map_err(|error| format!("{error:?}: {}", text(&output)))?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(record.runs.len(), 2 * 2 * 5, "levels x underlays x tests");
    for run in &record.runs {
        assert_eq!(run.status, Status::Ok, "{}: {:?}", run.factors, run.reason);
        assert!(!run.proof.is_empty() && run.proof.iter().all(|check| check.holds), "{:?}", run.proof);
        let (ours, other) = if run.factors.get(Factor::Engine) == Some("ours>theirs") {
            ("client", "server")
        } else {
            ("server", "client")
        };
        let condition = |side: &str, name: &str| run.conditions.get(&format!("{side}.{name}"));
        assert!(condition(ours, "engine_offloads").is_some(), "{:?}", run.conditions);
        assert!(condition(other, "engine_offloads").is_none(), "{:?}", run.conditions);
        // Both were read in the same way.
        for side in [ours, other] {
            let granted = condition(side, "engine_granted").ok_or("the kernel says what it granted")?;
            assert!(granted["udp_receive_buffer"].as_u64().is_some_and(|bytes| bytes > 0), "{granted}");
            assert!(granted["tun_vnet_hdr"].is_boolean(), "{granted}");
        }
    }
    before.restored()
}

/// A lab that is up.
pub(crate) struct Up {
    child: Child,
    shown: Vec<String>,
    directory: tempfile::TempDir,
}

impl Up {
    pub(crate) fn start(levels: &[&str], theirs: Option<&str>) -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        topology(directory.path(), levels, theirs)?;
        let mut child = wglab(directory.path(), &["up", "lab.toml"]).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("a pipe")?).lines();
        let mut shown = Vec::new();
        // The last line says what to try: then everything is up.
        while !shown.last().is_some_and(|line: &String| line.starts_with("Try:")) {
            shown.push(lines.next().ok_or("the lab did not come up")??);
        }
        Ok(Self { child, shown, directory })
    }

    pub(crate) fn command(&self, node: &str, command: &[&str]) -> Command {
        let pid = self.child.id().to_string();
        let mut exec = wglab(self.directory.path(), &["exec", "--lab", &pid, node, "--"]);
        exec.args(command);
        exec
    }

    pub(crate) fn exec(&self, node: &str, command: &[&str]) -> Result<String, Failed> {
        let output = self.command(node, command).output()?;
        if !output.status.success() {
            return Err(format!("{command:?} on {node}: {}", text(&output)).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The node's tunnel over an underlay: interface and inner address.
    pub(crate) fn tunnel(&self, node: &str, underlay: &str) -> Result<(String, String), Failed> {
        let of_node = self.shown.iter().skip_while(|line| line.as_str() != node).skip(1);
        let line =
            of_node.take_while(|line| line.starts_with(' ')).find(|line| line.ends_with(&format!(" over {underlay}")));
        let words: Vec<&str> = line.ok_or("the tunnel is shown")?.split_whitespace().collect();
        Ok((words[0].to_owned(), words[1].to_owned()))
    }

    /// Sends mixed flows from `a1` to `a2`'s `address`, doing something else midway.
    pub(crate) fn give(
        &self,
        address: &str,
        flows: usize,
        time: Duration,
        midway: impl FnOnce() -> Result<(), Failed>,
    ) -> Result<Verdict, Failed> {
        let this = std::env::current_exe()?.display().to_string();
        let (flows, time) = (flows.to_string(), time.as_millis().to_string());
        let mut taker = self.command("a2", &[&this, TAKE_COMMAND, address, &flows]).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(taker.stdout.take().ok_or("a pipe")?).lines();
        assert_eq!(lines.next().ok_or("the taker began")??, "ready");
        let giver = self
            .command("a1", &[&this, GIVE_COMMAND, address, &flows, &time])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(500));
        midway()?;
        let output: Output = giver.wait_with_output()?;
        assert!(output.status.success(), "{}", text(&output));
        let verdict = lines.next().ok_or("the taker has a verdict")??;
        assert!(taker.wait()?.success());
        Ok(serde_json::from_str(&verdict)?)
    }

    pub(crate) fn end(mut self) -> Result<(), Failed> {
        signal(self.child.id(), Signal::SIGINT)?;
        assert!(self.child.wait()?.success());
        Ok(())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // After `end` it is waited for already, and this does nothing.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// How long bytes are sent, and how many must arrive at least.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) time: Duration,
    pub(crate) bytes: u64,
}

/// On a machine that is not emulated.
pub(crate) const FULL: Effort = Effort { time: Duration::from_millis(1500), bytes: 1_000_000 };

/// Mixed flows, IPv4 and IPv6 inside, with and without timestamps, ECN and PSH, fragments, datagrams without checksum, even and
/// uneven tails. The tunnel is asked and changed by `wg` before. Alone, the engine loses its outer offload midway.
pub(crate) fn whole(level: &str, theirs: Option<&str>, effort: Effort) -> Result<(), Failed> {
    let before = Holdings::now();
    let lab = Up::start(&[level], theirs)?;
    let (near, _) = lab.tunnel("a1", "private")?;
    let (far, address) = lab.tunnel("a2", "private")?;
    let wg = |node: &str, arguments: &[&str]| lab.exec(node, &[&["wg"], arguments].concat());
    // boringtun tells the age of its last handshake where a time is due, so ours is asked.
    let (own, interface) = if level.starts_with("ours") { ("a1", &near) } else { ("a2", &far) };
    assert!(wg(own, &["show", interface])?.contains("latest handshake"));
    // A preshared key and an IPv6 prefix for both, over `wg set`; then a new handshake has to use them.
    // Each is asked for the other's key: boringtun does not tell its own in the way that `wg` reads.
    let far_key = wg("a1", &["show", &near, "peers"])?.trim().to_owned();
    let near_key = wg("a2", &["show", &far, "peers"])?.trim().to_owned();
    fs::write(lab.directory.path().join("psk"), "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=\n")?;
    let psk = lab.directory.path().join("psk").display().to_string();
    let near_address = lab.tunnel("a1", "private")?.1;
    for (node, interface, own, peer, allowed) in [
        ("a1", &near, "fd77::1", &far_key, format!("{address}/32,fd77::2/128")),
        ("a2", &far, "fd77::2", &near_key, format!("{near_address}/32,fd77::1/128")),
    ] {
        let endpoints = wg(node, &["show", interface, "endpoints"])?;
        let endpoint = endpoints.split_whitespace().nth(1).ok_or("an endpoint")?.to_owned();
        wg(node, &["set", interface, "peer", peer, "remove"])?;
        let peer =
            ["set", interface, "peer", peer, "preshared-key", &psk, "endpoint", &endpoint, "allowed-ips", &allowed];
        wg(node, &peer)?;
        lab.exec(node, &["ip", "-6", "address", "add", &format!("{own}/64"), "nodad", "dev", interface])?;
        let shown = wg(node, &["show", interface, "allowed-ips"])?;
        assert!(shown.contains("fd77::") && shown.lines().count() == 1, "{shown}");
        lab.exec(node, &["sh", "-c", "echo 1 > /proc/sys/net/ipv4/tcp_ecn"])?;
    }
    for (target, timestamps) in [(address.as_str(), "1"), ("fd77::2", "0")] {
        for node in ["a1", "a2"] {
            lab.exec(node, &["sh", "-c", &format!("echo {timestamps} > /proc/sys/net/ipv4/tcp_timestamps")])?;
        }
        let mtu = |interface: &str, mtu: &str| lab.exec("a1", &["ip", "link", "set", interface, "mtu", mtu]);
        let alone = theirs.is_none();
        if alone && timestamps == "0" {
            mtu("private", "1450")?;
            mtu(&near, "1300")?;
        }
        let midway = || {
            match (alone, timestamps) {
                // Datagrams of the tunnel's MTU no longer fit, so the kernel refuses to segment into them; alone they go
                // in fragments.
                (true, "1") => drop(mtu("private", "1300")?),
                // The tunnel's own MTU grows: nothing may be cut to the old one.
                (true, _) => drop(mtu(&near, "1390")?),
                (false, _) => {}
            }
            Ok(())
        };
        let verdict = lab.give(target, 4, effort.time, midway)?;
        assert_eq!(verdict.flows, 4, "{verdict:?}");
        assert!(verdict.bytes > effort.bytes, "{verdict:?}");
        assert_eq!(verdict.broken, 0, "{verdict:?}");
        assert!(verdict.sent > 500, "{verdict:?}");
        // Datagrams may be lost under load, as they may without a tunnel; no flow of bytes may.
        assert!(verdict.datagrams * 10 >= verdict.sent * 9, "{verdict:?}");
    }
    if theirs.is_none() {
        let this = std::env::current_exe()?.display().to_string();
        let status = lab.exec("a1", &[&this, STATUS_COMMAND, &near])?;
        assert!(status.contains("\"udp_gso\":false"), "nothing was refused: {status}");
        assert!(status.contains("offload.refused"), "{status}");
    }
    lab.end()?;
    before.restored()
}

/// As on a machine with more processors: flows are spread over the device's queues, and peers over the port's sockets.
fn lanes() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("three-lanes");
    let script = format!("#!/bin/sh\n[ \"$1\" = tunnel ] && set -- \"$@\" --queues 3\nexec '{WGLAB}' \"$@\"\n");
    fs::write(&program, script)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let engine = format!("path = {program:?}");
    for level in ["theirs", "ours>theirs"] {
        let lab = Up::start(&[level], Some(&engine))?;
        let (interface, _) = lab.tunnel("a2", "private")?;
        let this = std::env::current_exe()?.display().to_string();
        let status = lab.exec("a2", &[&this, STATUS_COMMAND, &interface])?;
        assert!(status.contains("\"lanes\":3"), "{status}");
        lab.end()?;
        whole(level, Some(&engine), FULL)?;
    }
    Ok(())
}

/// `status INTERFACE`: what the embedded engine tells beyond the UAPI.
pub(crate) const STATUS_COMMAND: &str = "engine-status";

pub(crate) fn print_status(interface: &str) {
    use std::io::{Read, Write};
    let mut socket = std::os::unix::net::UnixStream::connect(format!("/var/run/wireguard/{interface}.sock")).unwrap();
    socket.write_all(b"status=1\n\n").unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    println!("{answer}");
}

/// What a team would type to let an upgrade through: the old program, the new one, and the two together in either role.
fn mixed_gate() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let old = format!("old={}", peer("wireguard-go").ok_or("checked")?.display());
    let arguments = ["run", "pair", "--engine", &old, "--engine", "new=embedded"];
    let only = ["--only", "engine=old,new,old>new,new>old", "--only", "test=tcp-stream,tcp-rr"];
    let brief = ["--rounds", "2", "--duration", "100ms", "--out", "r", "--gate"];
    let output = wglab(directory.path(), &arguments).args(only).args(brief).output()?;
    let record = record(&directory.path().join("r")).map_err(|error| format!("{error:?}: {}", text(&output)))?;
    // Two rounds of a tenth of a second decide nothing; what matters here is that everything was measured.
    assert!([0, 1, 3].contains(&output.status.code().unwrap_or(-1)), "{}", text(&output));
    for level in ["old", "new", "old>new", "new>old"] {
        let mut runs = record.runs.iter().filter(|run| run.factors.get(Factor::Engine) == Some(level)).peekable();
        assert!(runs.peek().is_some(), "{level} was not measured: {}", text(&output));
        assert!(runs.all(|run| run.usable()), "{level}: {}", text(&output));
    }
    Ok(())
}
