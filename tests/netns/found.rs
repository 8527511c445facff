//! Tunnels that something else manages, and topologies written from what there is.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use libtest_mimic::Failed;
use nix::sys::signal::Signal;
use wglab::record::{Record, Run, Status};

use crate::left_over::Holdings;
use crate::product::{WGLAB, record, signal, text, wglab};

pub(crate) const TESTS: &[super::Test] = &[
    ("interfaces_of_others_are_measured_and_left_as_they_were", measured),
    ("interfaces_that_do_not_join_say_why", not_joined),
    ("a_topology_written_from_hosts_or_interfaces_runs", written),
];

/// A lab whose tunnels are somebody else's to the run that is tested.
pub(crate) struct Hosts {
    up: Child,
}

impl Hosts {
    pub(crate) fn up(directory: &Path, engine: &str) -> Result<Self, Failed> {
        let mut up = wglab(directory, &["up", "two-stacks", "--engine", engine]).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(up.stdout.take().ok_or("a pipe")?).lines();
        while !lines.next().ok_or("the lab did not come up")??.starts_with("Try:") {}
        Ok(Self { up })
    }

    /// The command that gives a byte pipe to an agent on `node`.
    pub(crate) fn reach(&self, node: &str) -> Vec<String> {
        let words = [WGLAB, "exec", "--lab", &self.up.id().to_string(), node, "--", WGLAB, "agent"];
        words.map(str::to_owned).to_vec()
    }

    pub(crate) fn exec(&self, directory: &Path, node: &str, command: &[&str]) -> Result<Output, Failed> {
        Ok(wglab(directory, &["exec", "--lab", &self.up.id().to_string(), node, "--"]).args(command).output()?)
    }

    pub(crate) fn down(mut self) -> Result<(), Failed> {
        signal(self.up.id(), Signal::SIGINT)?;
        assert!(self.up.wait()?.success());
        Ok(())
    }

    /// Ends the lab by a signal that it cannot answer.
    pub(crate) fn kill(mut self, with: Signal) -> Result<(), Failed> {
        signal(self.up.id(), with)?;
        assert!(!self.up.wait()?.success());
        Ok(())
    }

    fn topology(&self, engines: &str) -> String {
        let host = |node: &str, last: u8| {
            let reach = self.reach(node);
            format!(
                "[node.{node}]\nreach = {reach:?}\naddress = {{ private = \"10.200.0.{last}\", public-ipv4 = \"198.18.0.{}\" }}\n",
                last * 4 + 2
            )
        };
        let named = |(name, interface): &(&str, &str)| {
            let is_named = engines.contains(&format!("\"{name}")) || engines.contains(&format!("{name}>"));
            is_named.then(|| format!("[engine.{name}]\ninterface = \"{interface}\"\n"))
        };
        let tables: String =
            [("theirs", "wg2"), ("other", "wg0"), ("none", "nebula1")].iter().filter_map(named).collect();
        format!(
            "pairs = [\"a1>a2\"]\nengines = [\"raw\", {engines}]\n{}{}[underlay]\n\
             private = {{ family = \"ipv4\", mtu = 1450 }}\npublic-ipv4 = {{ family = \"ipv4\" }}\n\
             {tables}[[test]]\nkind = \"tcp-stream\"\ncongestion_control = \"cubic\"\n[[test]]\nkind = \"tcp-rr\"\n\
             [profile.quick]\nrounds = 1\nduration = \"200ms\"\n",
            host("a1", 1),
            host("a2", 2),
        )
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // A test that failed leaves no lab.
        if matches!(self.up.try_wait(), Ok(None)) {
            let _gone = self.up.kill();
            let _ended = self.up.wait();
        }
    }
}

fn run(directory: &Path, arguments: &[&str]) -> Result<(Output, Record), Failed> {
    let output = wglab(directory, &[&["run", "hosts.toml", "--out", "r"], arguments].concat()).output()?;
    let record = record(&directory.join("r")).map_err(|error| format!("{error:?}: {}", text(&output)))?;
    Ok((output, record))
}

fn of<'a>(record: &'a Record, engine: &str, underlay: &str) -> Vec<&'a Run> {
    let is = |run: &&Run| {
        run.factors.get(wglab::cell::Factor::Engine) == Some(engine)
            && run.factors.get(wglab::cell::Factor::Underlay) == Some(underlay)
    };
    record.runs.iter().filter(is).collect()
}

/// wg2 of the lab runs over its private network, wg0 over public IPv4.
fn measured() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let hosts = Hosts::up(directory.path(), "embedded")?;
    let state = |node: &str| -> Result<String, Failed> {
        let links = hosts.exec(directory.path(), node, &["cat", "/proc/net/fib_trie", "/sys/class/net/wg2/mtu"])?;
        assert!(links.status.success(), "{}", text(&links));
        Ok(String::from_utf8_lossy(&links.stdout).into_owned())
    };
    let as_found = (state("a1")?, state("a2")?);
    fs::write(directory.path().join("hosts.toml"), hosts.topology("\"theirs\""))?;
    let (output, record) = run(directory.path(), &["--only", "underlay=private"])?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let runs = of(&record, "theirs", "private");
    assert_eq!(runs.len(), 2, "{}", text(&output));
    for run in record.runs.iter() {
        assert_eq!(run.status, Status::Ok, "{}: {:?}", run.factors, run.reason);
        assert!(!run.proof.is_empty() && run.proof.iter().all(|check| check.holds), "{:?}", run.proof);
    }
    for run in runs {
        let checks: Vec<&str> = run.proof.iter().map(|check| check.check.as_str()).collect();
        assert!(checks.contains(&"outer address of a2, seen by a1"), "{checks:?}");
        assert!(checks.contains(&"bytes received through wg2 of a2"), "{checks:?}");
        // 1450 less 60.
        let mtu = run.conditions.iter().find(|(name, _)| name.ends_with("interface_mtu"));
        assert!(mtu.is_none_or(|(_, mtu)| mtu == 1390), "{:?}", run.conditions);
    }
    assert_eq!((state("a1")?, state("a2")?), as_found, "what others manage is left as it was");
    hosts.down()?;
    before.restored()
}

fn not_joined() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let hosts = Hosts::up(directory.path(), "embedded")?;
    fs::write(directory.path().join("hosts.toml"), hosts.topology("\"theirs\", \"none\""))?;
    let output = wglab(directory.path(), &["run", "hosts.toml", "--out", "none"]).output()?;
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for words in
        ["node a1 has no interface nebula1", "node a2 has no interface nebula1", "engine none", "wg0", "--only engine="]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(record(&directory.path().join("none")).map_or(true, |record| record.runs.is_empty()), "{said}");
    fs::write(directory.path().join("hosts.toml"), hosts.topology("\"theirs\", \"other\""))?;
    let (output, record) = run(directory.path(), &["--only", "test=tcp-rr"])?;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    for (engine, underlay, why) in [
        ("theirs", "private", None),
        ("theirs", "public-ipv4", Some("its address on private")),
        ("other", "public-ipv4", None),
        ("other", "private", Some("its address on public-ipv4")),
    ] {
        for run in of(&record, engine, underlay) {
            let reason = run.reason.clone().unwrap_or_default();
            match why {
                None => assert_eq!(run.status, Status::Ok, "{engine} over {underlay}: {reason}"),
                Some(why) => {
                    assert_eq!(run.status, Status::Invalid, "{engine} over {underlay}: {reason}");
                    assert!(reason.contains(why), "{engine} over {underlay}: {reason}");
                }
            }
        }
    }
    fs::write(directory.path().join("hosts.toml"), hosts.topology("\"theirs>embedded\""))?;
    let output = wglab(directory.path(), &["plan", "hosts.toml"]).output()?;
    assert!(text(&output).contains("on one end only"), "{}", text(&output));
    hosts.down()
}

fn written() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let hosts = Hosts::up(directory.path(), "embedded")?;
    let words = |node: &str| format!("{node}={}", hosts.reach(node).join(" "));
    let output = wglab(directory.path(), &["init", &words("a1"), &words("a2")]).output()?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let file = String::from_utf8(output.stdout)?;
    for line in [
        "pairs   = \"mesh\"",
        "engines = [\"raw\", \"embedded\", \"wg0\"]",
        "private = { family = \"ipv4\", mtu = 1450 }",
    ] {
        assert!(file.contains(line), "{line}\n{file}");
    }
    fs::write(directory.path().join("hosts.toml"), &file)?;
    // The lab's own devices have the ports that a run's would have.
    let only = ["--only", "underlay=public-ipv4", "--only", "test=tcp-rr", "--only", "engine=raw,wg0"];
    let arguments = [&only[..], &["--rounds", "1", "--duration", "100ms"]].concat();
    let (output, record) = run(directory.path(), &arguments)?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(record.runs.len(), 2, "{}", text(&output));

    // From a node's own interface: its peer is where that calls it.
    let output = hosts.exec(directory.path(), "a1", &[WGLAB, "init", "wg2"])?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let file = String::from_utf8(output.stdout)?;
    assert!(
        file.contains("address = { private = \"10.200.0.2\" }") && file.contains("reach = [\"wglab\", \"agent\"]"),
        "{file}"
    );
    fs::write(directory.path().join("one.toml"), &file)?;
    assert!(wglab(directory.path(), &["plan", "one.toml"]).output()?.status.success());

    // A host that does not answer is told, and its place is left open.
    let output = wglab(directory.path(), &["init", &words("a1"), "a9=false now"]).output()?;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("# [node.a9]") && text(&output).contains("node a9"), "{}", text(&output));
    hosts.down()
}
