//! Records in several sittings, and stacks that are switched between phases.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use wglab::cell::Factor;
use wglab::record::{EndStatus, Record, Status};

use crate::left_over::Holdings;
use crate::product::{record, text, wglab};

pub(crate) const TESTS: &[super::Test] = &[
    ("a_run_that_was_killed_goes_on_wherever_that_was", killed),
    ("what_has_changed_since_is_named_and_may_be_excused", changed),
    ("a_precision_ends_the_run_or_is_said_not_to_be_reached", precision),
    ("stacks_of_reached_hosts_are_switched_by_a_command", switched),
    ("stacks_of_reached_hosts_are_switched_by_hand", by_hand),
    ("a_stack_that_cannot_be_switched_leaves_its_cells_invalid", not_switched),
];

const WGLAB: &str = env!("CARGO_BIN_EXE_wglab");
/// Two levels that need no TUN device: raw beside raw.
const PAIR: &str = "nodes = [\"a1\", \"a2\"]\npairs = [\"a1>a2\"]\nengines = [\"raw\", \"again\"]\ncompare = \"engine\"\n\
    [engine.again]\nkind = \"raw\"\n[underlay]\nprivate = { family = \"ipv4\", mtu = 1450 }\n\
    [[test]]\nkind = \"tcp-rr\"\n[[test]]\nkind = \"tcp-crr\"\n[profile.quick]\nrounds = 4\nduration = \"100ms\"\n";

fn run(directory: &Path, arguments: &[&str], code: i32) -> Result<String, Failed> {
    let output = wglab(directory, &[&["run"], arguments].concat()).output()?;
    ended(&output, code)
}

fn ended(output: &Output, code: i32) -> Result<String, Failed> {
    let said = text(output);
    if output.status.code() == Some(code) { Ok(said) } else { Err(format!("expected exit {code}: {said}").into()) }
}

/// Every cell of every round is there once, and was measured.
fn check_whole(record: &Record, runs: usize) {
    assert!(record.is_complete(), "{:?}", record.end);
    let mut cells: BTreeMap<_, u32> = BTreeMap::new();
    for run in &record.runs {
        assert_eq!(run.status, Status::Ok, "{}: {:?}", run.factors, run.reason);
        *cells.entry((run.round, run.factors.to_string())).or_default() += 1;
    }
    assert!(cells.len() == runs && cells.values().all(|times| *times == 1), "{cells:?}");
}

/// SIGKILL after some runs, again and again; what is whole is kept, and in the end everything is there.
fn killed() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    fs::write(directory.path().join("lab.toml"), PAIR)?;
    let runs = directory.path().join("r/runs.jsonl");
    let mut start: &[&str] = &["run", "lab.toml", "--out", "r"];
    // A header and three runs: one visit at least is whole.
    for more in [4, 3, 4] {
        let lines = || fs::read_to_string(&runs).map_or(0, |text| text.lines().count());
        let enough = lines() + more;
        let mut child = wglab(directory.path(), start).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while lines() < enough && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill()?;
        child.wait()?;
        assert!(record(&directory.path().join("r"))?.end.is_none(), "it was killed in the middle");
        start = &["run", "--resume", "r"];
    }
    let kept = record(&directory.path().join("r"))?.runs;
    run(directory.path(), &["--resume", "r"], 0)?;
    let whole = record(&directory.path().join("r"))?;
    check_whole(&whole, 2 * 2 * 4);
    assert_eq!(whole.resumed.len(), 3);
    let sessions: Vec<u32> = whole.runs.iter().map(|run| run.session.unwrap_or(0)).collect();
    assert!(sessions.is_sorted() && sessions.contains(&0) && sessions.contains(&3), "{sessions:?}");
    // What was whole was not measured again, and what was cut was, as a whole.
    let again: Vec<u32> = whole.superseded.iter().map(|run| run.order).collect();
    assert!(kept.iter().all(|run| whole.runs.contains(run) || again.contains(&run.order)));
    assert!(directory.path().join("r/summary.json").is_file());
    let said = run(directory.path(), &["--resume", "r"], 2)?;
    assert!(said.contains("r is complete: nothing is left to measure; `wglab run lab.toml` measures anew"), "{said}");
    before.restored()
}

/// A partial record: its file without the last lines.
fn partial(directory: &Path) -> Result<String, Failed> {
    fs::write(directory.join("lab.toml"), PAIR)?;
    run(directory, &["lab.toml", "--out", "r", "--rounds", "1"], 0)?;
    let text = fs::read_to_string(directory.join("r/runs.jsonl"))?;
    let kept: Vec<&str> = text.lines().take(3).collect();
    Ok(kept.join("\n") + "\n")
}

fn changed() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let begun = partial(directory.path())?;
    let runs = directory.path().join("r/runs.jsonl");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let other = begun.replace(&format!("\"kernel\":\"{}\"", kernel.trim()), "\"kernel\":\"2.4.20\"");
    assert_ne!(begun, other);
    fs::write(&runs, &other)?;
    let said = run(directory.path(), &["--resume", "r"], 2)?;
    assert!(said.contains("node a1 kernel") && said.contains("\"2.4.20\""), "{said}");
    assert!(said.contains("`wglab run --resume r --changed kernel`"), "{said}");
    assert_eq!(fs::read_to_string(&runs)?, other, "nothing is written");
    run(directory.path(), &["--resume", "r/runs.jsonl", "--changed", "kernel"], 0)?;
    let record = record(&directory.path().join("r"))?;
    check_whole(&record, 4);
    let resumes = record.resumed[0].resumes.as_ref().ok_or("it says what it goes on with")?;
    assert_eq!(resumes.changed, ["kernel"]);
    // Another plan is another experiment, and another wglab measures otherwise.
    fs::write(&runs, begun.replacen("\"seed\":1", "\"seed\":2", 1).replace("\"rounds\":1", "\"rounds\":2"))?;
    let said = run(directory.path(), &["--resume", "r"], 2)?;
    assert!(said.contains("is not the one that its header names"), "{said}");
    fs::write(&runs, begun.replace(&format!("\"wglab\":\"{}\"", env!("CARGO_PKG_VERSION")), "\"wglab\":\"0.0.1\""))?;
    let said = run(directory.path(), &["--resume", "r"], 2)?;
    assert!(said.contains("was begun by wglab 0.0.1") && said.contains("--changed wglab"), "{said}");
    run(directory.path(), &["--resume", "r", "--rounds", "5"], 2)?;
    Ok(())
}

fn precision() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("lab.toml"), PAIR)?;
    // So wide that any interval will do, soon even on a machine that does something else, and so narrow that none does.
    let wide = ["lab.toml", "--out", "wide", "--rounds", "60", "--precision", "95%", "--only", "test=tcp-rr"];
    run(directory.path(), &wide, 0)?;
    let wide = record(&directory.path().join("wide"))?;
    let end = wide.end.as_ref().ok_or("it has an end")?;
    let precision = end.precision.as_ref().ok_or("it had a precision")?;
    assert_eq!(end.status, EndStatus::Complete);
    assert!(precision.reached && precision.half_width.is_some_and(|width| width < 0.95), "{precision:?}");
    assert!(precision.rounds % 2 == 0 && precision.rounds < 60, "{precision:?}");
    assert_eq!(wide.runs.len(), 2 * precision.rounds as usize);
    let narrow = ["lab.toml", "--out", "narrow", "--rounds", "4", "--precision", "0.001%", "--only", "test=tcp-rr"];
    let said = run(directory.path(), &narrow, 0)?;
    assert!(said.contains("arget precision of 0.001 % not reached after 4 rounds"), "{said}");
    Ok(())
}

/// The hosts of a lab that is up, reached by commands.
struct Hosts {
    up: Child,
    directory: tempfile::TempDir,
}

impl Hosts {
    /// Two pairs on the stacks `standard` and `ebpf`, with these lines about them.
    fn up(stacks: &str) -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        let mut up =
            wglab(directory.path(), &["up", "two-stacks", "--engine", "raw"]).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(up.stdout.take().ok_or("a pipe")?).lines();
        while !lines.next().ok_or("the lab did not come up")??.starts_with("Try:") {}
        let mut file = "pairs = [\"a1>a2\", \"b1>b2\"]\ncompare = \"stack\"\nengines = [\"raw\"]\n".to_owned();
        for (index, node) in ["a1", "a2", "b1", "b2"].iter().enumerate() {
            let reach = format!("exec {WGLAB} exec --lab {} {node} -- {WGLAB} agent", up.id());
            let address = format!("10.200.0.{}", index + 1);
            write!(
                file,
                "[node.{node}]\nreach = [\"sh\", \"-c\", {reach:?}]\naddress = {{ private = \"{address}\" }}\n"
            )?;
        }
        write!(
            file,
            "{stacks}[underlay]\nprivate = {{ family = \"ipv4\", mtu = 1450 }}\n[[test]]\nkind = \"tcp-rr\"\n\
             [profile.quick]\nrounds = 3\nduration = \"100ms\"\n"
        )?;
        fs::write(directory.path().join("hosts.toml"), file)?;
        Ok(Self { up, directory })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn script(&self, name: &str, text: &str) -> Result<(), Failed> {
        let path = self.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n"))?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    }

    /// Writes what stack nodes are on, as a person would who switches them.
    fn put(&self, stacks: &[(&str, &str)]) -> Result<(), Failed> {
        stacks.iter().try_for_each(|(node, stack)| Ok(fs::write(self.path().join(format!("{node}.now")), stack)?))
    }

    fn down(mut self) -> Result<(), Failed> {
        kill(Pid::from_raw(i32::try_from(self.up.id())?), Signal::SIGINT)?;
        assert!(self.up.wait()?.success());
        Ok(())
    }
}

/// A lab that is up outlives a failed test otherwise.
impl Drop for Hosts {
    fn drop(&mut self) {
        let _ended = self.up.kill();
        let _reaped = self.up.wait();
    }
}

/// The stacks of each pair, with the rounds on each.
fn rounds_on(record: &Record) -> BTreeMap<(String, String), usize> {
    let mut rounds = BTreeMap::new();
    for run in record.usable() {
        let level = |factor| run.factors.get(factor).unwrap_or_default().to_owned();
        *rounds.entry((level(Factor::Pair), level(Factor::Stack))).or_default() += 1;
    }
    rounds
}

const BOTH: [(&str, &str); 4] = [("a1>a2", "ebpf"), ("a1>a2", "standard"), ("b1>b2", "ebpf"), ("b1>b2", "standard")];

fn everywhere(rounds: usize) -> BTreeMap<(String, String), usize> {
    BOTH.iter().map(|(pair, stack)| (((*pair).to_owned(), (*stack).to_owned()), rounds)).collect()
}

const IS_ON: &str = "test \"$(cat $WGLAB_NODE.now)\" = $WGLAB_STACK";

fn switched() -> Result<(), Failed> {
    let before = Holdings::now();
    let commands = "switch = [\"./switch\"]\nverify = [\"./is-on\"]\n";
    let hosts = Hosts::up(&format!("[stack.standard]\n{commands}[stack.ebpf]\n{commands}"))?;
    hosts.script("switch", "echo $WGLAB_NODE $WGLAB_STACK >>switches; printf $WGLAB_STACK >$WGLAB_NODE.now")?;
    hosts.script("is-on", IS_ON)?;
    // One node is there already and is not switched.
    hosts.put(&[("a1", "standard")])?;
    let said = run(hosts.path(), &["hosts.toml", "--out", "r"], 0)?;
    assert!(said.contains("easured in 2 phases"), "{said}");
    let record = record(&hosts.path().join("r"))?;
    assert!(record.is_complete() && record.resumed.is_empty());
    assert_eq!(rounds_on(&record), everywhere(3));
    assert!(record.runs.iter().all(|run| run.cautions.iter().all(|caution| caution.kind != "stack-unverified")));
    // Half of the pairs started on the other stack, and each phase was one stretch of time.
    let first: Vec<String> =
        record.runs.iter().take(6).map(|run| run.factors.get(Factor::Stack).unwrap_or_default().to_owned()).collect();
    assert!(first.iter().any(|stack| stack == "ebpf") && first.iter().any(|stack| stack == "standard"), "{first:?}");
    let switches = fs::read_to_string(hosts.path().join("switches"))?;
    let switches: Vec<&str> = switches.lines().collect();
    assert_eq!(switches, ["a2 standard", "b1 ebpf", "b2 ebpf", "a1 ebpf", "a2 ebpf", "b1 standard", "b2 standard"]);
    hosts.down()?;
    before.restored()
}

fn by_hand() -> Result<(), Failed> {
    let hosts = Hosts::up("[stack.standard]\n[stack.ebpf]\n")?;
    let said = run(hosts.path(), &["hosts.toml", "--out", "r"], 2)?;
    let wanted =
        "phase 2 needs other stacks: put a1, a2 on ebpf and b1, b2 on standard, then go on with `wglab run --resume r`";
    assert!(said.contains(wanted), "{said}");
    let begun = record(&hosts.path().join("r"))?;
    assert_eq!(begun.end.as_ref().map(|end| (end.status, end.awaits_phase)), Some((EndStatus::Partial, Some(1))));
    assert_eq!(rounds_on(&begun).len(), 2);
    run(hosts.path(), &["--resume", "r"], 0)?;
    let whole = record(&hosts.path().join("r"))?;
    assert!(whole.is_complete());
    assert_eq!(rounds_on(&whole), everywhere(3));
    assert!(whole.runs.iter().all(|run| run.cautions.iter().any(|caution| caution.kind == "stack-unverified")));

    // Where a command verifies, coming back too early is noticed.
    let verify = "verify = [\"./is-on\"]\n";
    let file = fs::read_to_string(hosts.path().join("hosts.toml"))?;
    let file =
        file.replace("[stack.standard]\n[stack.ebpf]\n", &format!("[stack.standard]\n{verify}[stack.ebpf]\n{verify}"));
    fs::write(hosts.path().join("hosts.toml"), file)?;
    hosts.script("is-on", &format!("echo it is on $(cat $WGLAB_NODE.now); {IS_ON}"))?;
    hosts.put(&[("a1", "standard"), ("a2", "standard"), ("b1", "standard"), ("b2", "ebpf")])?;
    let said = run(hosts.path(), &["hosts.toml", "--out", "v"], 2)?;
    assert!(said.contains("nothing is measured yet") && said.contains("put b1 on ebpf"), "{said}");
    assert!(said.contains("it is on standard") && !hosts.path().join("v").exists(), "{said}");
    hosts.put(&[("b1", "ebpf")])?;
    run(hosts.path(), &["hosts.toml", "--out", "v"], 2)?;
    hosts.put(&[("a1", "ebpf"), ("b1", "standard"), ("b2", "standard")])?;
    let said = run(hosts.path(), &["--resume", "v"], 2)?;
    assert!(said.contains("put a2 on ebpf, then go on with `wglab run --resume v`"), "{said}");
    hosts.put(&[("a2", "ebpf")])?;
    run(hosts.path(), &["--resume", "v"], 0)?;
    let verified = record(&hosts.path().join("v"))?;
    assert_eq!(rounds_on(&verified), everywhere(3));
    assert!(
        verified.is_complete()
            && verified.runs.iter().all(|run| run.cautions.iter().all(|c| c.kind != "stack-unverified"))
    );
    hosts.down()
}

fn not_switched() -> Result<(), Failed> {
    let hosts = Hosts::up("[stack.standard]\nswitch = [\"./switch\"]\n[stack.ebpf]\nswitch = [\"./switch\"]\n")?;
    hosts.script("switch", "test $WGLAB_NODE$WGLAB_STACK != b2ebpf || { echo the provider says no; exit 4; }")?;
    run(hosts.path(), &["hosts.toml", "--out", "r"], 2)?;
    let record = record(&hosts.path().join("r"))?;
    assert!(record.is_complete());
    let mut expected = everywhere(3);
    expected.remove(&("b1>b2".to_owned(), "ebpf".to_owned()));
    assert_eq!(rounds_on(&record), expected);
    let invalid: Vec<_> = record.runs.iter().filter(|run| run.status == Status::Invalid).collect();
    assert_eq!(invalid.len(), 3);
    let reason = invalid[0].reason.clone().unwrap_or_default();
    assert!(reason.starts_with("node b2 cannot be switched to ebpf: `./switch` ended with exit status: 4"), "{reason}");
    assert!(reason.contains("the provider says no"), "{reason}");
    hosts.down()
}
