//! The product itself: `wglab run`, `up` and `exec`, as a user starts them.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use wglab::record::{EndStatus, Record, Status};

use crate::interop;
use crate::kernel;
use crate::left_over::{Holdings, adopt_orphans};
use crate::tamper;
use crate::trouble;

pub(crate) const TESTS: &[super::Test] = &[
    ("run_pair_needs_no_tool_at_all", no_tools),
    ("a_byte_pipe_after_a_banner_is_all_an_agent_needs", banner),
    ("a_closed_tun_leaves_raw_cells_and_says_so", closed_tun),
    ("ctrl_c_keeps_what_was_measured", interrupted),
    ("a_dead_agent_is_named_and_nothing_is_lost", dead_agent),
    ("a_hanging_agent_is_named", hanging_agent),
    ("nothing_is_left_whatever_is_killed_and_when", killed_anywhere),
    ("two_runs_wait_for_each_other", two_runs),
    ("what_is_the_users_stays_untouched", users_things),
    ("an_outer_flow_over_another_underlay_is_refused", misrouted),
    ("an_outer_flow_through_a_relay_is_refused", relayed),
    ("a_limit_on_files_is_an_error_and_the_record_stays", file_limit),
    ("hosts_are_reached_by_any_command", reached_hosts),
    ("small_shipped_topologies_run", shipped),
    ("what_one_engine_left_on_its_way_is_not_the_next_ones", left_on_its_way),
];

/// What a test here cannot do without on this machine, and what is missing of it.
pub(crate) fn unmet(name: &str) -> Option<String> {
    let (tools, tun): (&[&str], bool) = match name {
        "a_byte_pipe_after_a_banner_is_all_an_agent_needs" | "hosts_are_reached_by_any_command" => (&["sh"], false),
        "a_closed_tun_leaves_raw_cells_and_says_so" | "a_closed_tun_leaves_raw_and_direct" => {
            (&["unshare", "setpriv", "mount", "mknod"], false)
        }
        "what_is_the_users_stays_untouched" => (&["unshare", "ip", "nft", "cmp"], false),
        "an_outer_flow_over_another_underlay_is_refused" => (&["ip"], true),
        "an_outer_flow_through_a_relay_is_refused"
        | "streams_are_spread_over_several_tunnels"
        | "several_tunnels_of_wireguard_go"
        | "several_tunnels_of_boringtun_cli"
        | "several_tunnels_of_gotatun"
        | "streams_that_take_one_of_two_tunnels_are_refused"
        | "one_of_two_tunnels_through_a_relay_is_refused"
        | "a_second_of_two_tunnels_that_is_not_there_leaves_the_first"
        | "direct_and_embedded_carry_each_other"
        | "interfaces_of_others_are_measured_and_left_as_they_were"
        | "interfaces_that_do_not_join_say_why"
        | "a_topology_written_from_hosts_or_interfaces_runs" => (&[], true),
        "stacks_of_reached_hosts_are_switched_by_a_command"
        | "stacks_of_reached_hosts_are_switched_by_hand"
        | "a_stack_that_cannot_be_switched_leaves_its_cells_invalid" => (&["sh"], false),
        "settings_of_reached_hosts_are_restored" => (&["sh", "ip", "unshare"], false),
        "other_tools_work_in_a_lab_that_is_up" => (&["ping", "iperf3", "wg"], false),
        "a_lab_without_its_tunnels_does_not_come_up"
        | "a_command_does_not_outlive_its_lab"
        | "a_limit_on_files_is_an_error_and_the_record_stays" => (&["sh", "sleep"], false),
        _ if trouble::TESTS.iter().any(|(test, _)| *test == name) => (&["sh"], true),
        _ if kernel::needs_it(name) => (kernel::tools(name), true),
        _ if interop::TESTS.iter().any(|(test, _)| *test == name) => (interop::tools(name), true),
        _ => (&[], false),
    };
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let there = |tool: &&&str| path.split(':').any(|folder| Path::new(folder).join(tool).is_file());
    let missing: Vec<&str> = tools.iter().filter(|tool| !there(tool)).copied().collect();
    if !missing.is_empty() {
        return Some(format!("not installed: {}", missing.join(", ")));
    }
    (tun && !tun_is_open()).then(|| TUN_IS_CLOSED.to_owned())
}

/// The one reason that a pass with the device closed on purpose (`WGLAB_TUN=closed`) may have.
pub(crate) const TUN_IS_CLOSED: &str = "/dev/net/tun cannot be opened";

pub(crate) const WGLAB: &str = env!("CARGO_BIN_EXE_wglab");
/// Enough to measure something, and no more.
const BRIEF: [&str; 4] = ["--rounds", "1", "--duration", "100ms"];

pub(crate) fn wglab(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(WGLAB);
    command.args(arguments).current_dir(directory).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

pub(crate) fn text(output: &Output) -> String {
    format!(
        "exit {:?}\n--- stdout\n{}\n--- stderr\n{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

pub(crate) fn record(directory: &Path) -> Result<Record, Failed> {
    Ok(Record::parse(fs::read(directory.join("runs.jsonl"))?)?)
}

/// Whether this process may open the TUN device: without it tunnels cannot be measured here.
pub(crate) fn tun_is_open() -> bool {
    fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok()
}

/// What a whole run must end with here: everything measured, or everything but the tunnels.
fn check_whole(output: &Output, record: &Record) -> Result<(), Failed> {
    let expected = if tun_is_open() { 0 } else { 2 };
    if output.status.code() != Some(expected) {
        return Err(format!("expected exit {expected}: {}", text(output)).into());
    }
    assert_eq!(record.end.as_ref().map(|end| end.status), Some(EndStatus::Complete));
    for run in &record.runs {
        let raw = run.factors.get(wglab::cell::Factor::Engine) == Some("raw");
        if raw || tun_is_open() {
            assert_eq!(run.status, Status::Ok, "{}: {:?}", run.factors, run.reason);
            assert!(!run.proof.is_empty() && run.proof.iter().all(|check| check.holds), "{:?}", run.proof);
            // Engines stay up while others are measured, and what they use then is not the run's.
            assert_eq!(run.metrics.contains_key("engine_peak_memory_bytes"), !raw, "{}", run.factors);
            assert_eq!(run.metrics.contains_key("engine_cpu_seconds"), !raw, "{}", run.factors);
        } else {
            assert_eq!(run.status, Status::Invalid);
            assert!(run.reason.as_ref().is_some_and(|reason| reason.contains("/dev/net/tun")), "{:?}", run.reason);
        }
    }
    Ok(())
}

fn no_tools() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let output = wglab(directory.path(), &["run", "pair", "--out", "r"]).args(BRIEF).env("PATH", "").output()?;
    check_whole(&output, &record(&directory.path().join("r"))?)?;
    assert!(directory.path().join("r/summary.json").is_file());
    before.restored()
}

/// A topology of the smallest kind, with these lines about its nodes.
fn topology(directory: &Path, nodes: &str, engines: &str, about: &str) -> Result<(), Failed> {
    let text = format!(
        "nodes = [{nodes}]\npairs = [\"a1>a2\"]\nengines = [{engines}]\n{about}\n[underlay]\n\
         public-ipv4 = {{ family = \"ipv4\" }}\nprivate = {{ family = \"ipv4\", mtu = 1450 }}\n\
         [[test]]\nkind = \"tcp-stream\"\nstreams = 1\ncongestion_control = \"cubic\"\n\
         [profile.quick]\nrounds = 1\nduration = \"200ms\"\nwarmup = \"50ms\"\n"
    );
    Ok(fs::write(directory.join("lab.toml"), text)?)
}

fn banner() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let agent = |node: &str| format!("[node.{node}]\nagent = [\"sh\", \"-c\", \"echo banner; exec wglab agent\"]\n");
    topology(directory.path(), "\"a1\", \"a2\"", "\"raw\", \"embedded\"", &(agent("a1") + &agent("a2")))?;
    let folder = Path::new(WGLAB).parent().ok_or("the binary is in a folder")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH")?);
    let output = wglab(directory.path(), &["run", "lab.toml", "--out", "r"]).env("PATH", path).output()?;
    check_whole(&output, &record(&directory.path().join("r"))?)
}

/// Runs `./wglab ARGUMENTS` in `directory` as a user who may not open the TUN device.
pub(crate) fn with_closed_tun(directory: &Path, arguments: &str) -> io::Result<Output> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777))?;
    // What root built may lie where others cannot read: a copy may be read by all.
    let program = directory.join("wglab");
    if !program.exists() {
        fs::copy(WGLAB, program)?;
    }
    let mut command = Command::new("unshare");
    if nix::unistd::geteuid().is_root() {
        // A device of this test's own, which an ordinary user may not open.
        let closed = "mount -t tmpfs tmpfs /dev/net && mknod -m 600 /dev/net/tun c 10 200";
        let as_nobody = format!("exec setpriv --reuid 65534 --regid 65534 --clear-groups ./wglab {arguments}");
        command.args(["--mount", "sh", "-c", &format!("{closed} && {as_nobody}")]);
    } else {
        // An ordinary user cannot close the device, but can hide it.
        let hidden = format!("mount -t tmpfs tmpfs /dev/net && exec ./wglab {arguments}");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &hidden]);
    }
    command.current_dir(directory).output()
}

fn closed_tun() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    for (allowed, code) in [("", 2), ("--allow-partial", 0)] {
        let output =
            with_closed_tun(directory.path(), &format!("run pair --out r{code} {} {allowed}", BRIEF.join(" ")))?;
        if output.status.code() != Some(code) {
            return Err(format!("expected exit {code}: {}", text(&output)).into());
        }
        let record = record(&directory.path().join(format!("r{code}")))?;
        let (ok, invalid): (Vec<_>, Vec<_>) = record.runs.iter().partition(|run| run.status == Status::Ok);
        assert!(!ok.is_empty() && !invalid.is_empty());
        for run in invalid {
            let reason = run.reason.clone().unwrap_or_default();
            let remedy = if nix::unistd::geteuid().is_root() { "chmod" } else { "mknod" };
            assert!(reason.contains("/dev/net/tun") && reason.contains(remedy), "{reason}");
        }
    }
    Ok(())
}

/// A run in the background, and the lines of its progress.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Result<Self, Failed> {
        let child = wglab(directory, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Self { child })
    }

    /// Waits until the record holds a run.
    pub(crate) fn until_measured(&self, record: &Path) -> Result<(), Failed> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while fs::read_to_string(record.join("runs.jsonl")).map_or(0, |text| text.lines().count()) < 2 {
            if Instant::now() > deadline {
                return Err("nothing was measured in 30 s".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn end(self) -> Result<Output, Failed> {
        Ok(self.child.wait_with_output()?)
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) -> Result<(), Failed> {
    Ok(kill(Pid::from_raw(i32::try_from(pid)?), signal)?)
}

/// The children of a process, with their command lines.
pub(crate) fn children(pid: u32) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let pids = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in pids.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            let command = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            found.push((child, String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

/// The lab's init and its agents, in the order in which they were started: the nodes, then the provider.
pub(crate) fn lab_of(conductor: u32) -> Option<(u32, Vec<u32>)> {
    let (init, _) = children(conductor).into_iter().find(|(_, command)| command.contains("lab-init"))?;
    let mut agents: Vec<u32> =
        children(init).into_iter().filter(|(_, command)| command.contains("agent")).map(|(pid, _)| pid).collect();
    agents.sort_unstable();
    Some((init, agents))
}

fn interrupted() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let run = Running::start(directory.path(), &["run", "pair", "--rounds", "50", "--out", "r"])?;
    run.until_measured(&directory.path().join("r"))?;
    signal(run.pid(), Signal::SIGINT)?;
    let begun = Instant::now();
    let output = run.end()?;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(output.status.code(), Some(130), "{}", text(&output));
    let record = record(&directory.path().join("r"))?;
    let end = record.end.ok_or("the record has an end")?;
    assert_eq!(end.status, EndStatus::Partial);
    assert!(end.reason.is_some_and(|reason| reason.contains("SIGINT")));
    assert!(record.runs.iter().all(|run| run.status != Status::Ok || !run.metrics.is_empty()));
    before.restored()
}

fn dead_agent() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let run = Running::start(directory.path(), &["run", "pair", "--rounds", "50", "--out", "r"])?;
    run.until_measured(&directory.path().join("r"))?;
    let (_, agents) = lab_of(run.pid()).ok_or("the lab is there")?;
    signal(agents[1], Signal::SIGKILL)?;
    let output = run.end()?;
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the agent of node a2 was killed by signal 9"), "{said}");
    let record = record(&directory.path().join("r"))?;
    assert!(record.usable().count() > 0 || !tun_is_open());
    assert_eq!(record.end.map(|end| end.status), Some(EndStatus::Partial));
    before.restored()
}

fn hanging_agent() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let run = Running::start(directory.path(), &["run", "pair", "--rounds", "50", "--out", "r"])?;
    run.until_measured(&directory.path().join("r"))?;
    let (_, agents) = lab_of(run.pid()).ok_or("the lab is there")?;
    signal(agents[0], Signal::SIGSTOP)?;
    let output = run.end()?;
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("node a1") && said.contains("did not answer"), "{said}");
    assert!(!record(&directory.path().join("r"))?.runs.is_empty());
    Ok(())
}

/// SIGKILL to each kind of process at eight points of raise, run and teardown; then the host is as before and a run passes.
fn killed_anywhere() -> Result<(), Failed> {
    adopt_orphans()?;
    let before = Holdings::now();
    let mut killed = [0_usize; 4];
    // A run of this length takes about two seconds; the last point falls into its teardown.
    for (point, delay) in [20, 60, 120, 250, 500, 900, 1400, 1900].into_iter().enumerate() {
        for (victim, killed) in killed.iter_mut().enumerate() {
            let directory = tempfile::tempdir()?;
            let run = Running::start(
                directory.path(),
                &["run", "pair", "--out", "r", "--rounds", "1", "--duration", "50ms"],
            )?;
            std::thread::sleep(Duration::from_millis(delay));
            let lab = lab_of(run.pid());
            let target = match (victim, &lab) {
                (0, _) => Some(run.pid()),
                (1, Some((init, _))) => Some(*init),
                (2, Some((_, agents))) => agents.first().copied(),
                (_, Some((_, agents))) => agents.last().copied(),
                (_, None) => None,
            };
            // What is not there yet, or no more, cannot be killed.
            if let Some(target) = target {
                *killed += usize::from(signal(target, Signal::SIGKILL).is_ok());
            }
            let begun = Instant::now();
            let output = run.end()?;
            assert!(begun.elapsed() < Duration::from_secs(10), "point {point}, victim {victim}: {:?}", begun.elapsed());
            assert!(output.status.code() != Some(101), "a panic: {}", text(&output));
            before.restored().map_err(|error| format!("point {point} ({delay} ms), victim {victim}: {error:?}"))?;
        }
    }
    // The first points come before there are agents, and a fast machine is done before the last ones.
    assert!(killed.iter().all(|times| *times >= 3), "killed too seldom to tell anything: {killed:?}");
    no_tools()
}

fn two_runs() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let first = Running::start(directory.path(), &["run", "pair", "--rounds", "2", "--out", "r1"])?;
    first.until_measured(&directory.path().join("r1"))?;
    let second =
        Running::start(directory.path(), &["run", "pair", "--rounds", "1", "--duration", "50ms", "--out", "r2"])?;
    let holder = first.pid();
    let (first, second) = (first.end()?, second.end()?);
    check_whole(&first, &record(&directory.path().join("r1"))?)?;
    check_whole(&second, &record(&directory.path().join("r2"))?)?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&format!("process {holder}")), "{said}");
    Ok(())
}

/// In a host of its own (a user and network namespace), with a stale interface, a `wg0` and a firewall of the user's.
fn users_things() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let script = format!(
        "set -eu; export PATH=/usr/sbin:/sbin:$PATH; ip link set lo up\n\
         ip link add wg0 type veth peer name private; ip addr add 198.18.0.2/30 dev wg0; ip link set wg0 up\n\
         nft 'add table inet wglab; add chain inet wglab in {{ type filter hook input priority 0; policy drop; }}'\n\
         see() {{ ip -o link | sed 's/ state .*//'; ip -o -4 addr; nft list ruleset; cat /proc/sys/net/ipv4/ip_forward; }}\n\
         see >before; {WGLAB} run pair --out r --rounds 1 --duration 50ms --allow-partial >out 2>err; see >after; cmp before after\n"
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", &script])
        .current_dir(directory.path())
        .output()?;
    if !output.status.success() {
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
        return Err(format!("{}\n{}\n{}\n{}", text(&output), read("err"), read("before"), read("after")).into());
    }
    Ok(())
}

/// The runs of a lab in which these nodes have tampered agents, of these kinds.
fn tampered(kinds: &[(&str, &str)]) -> Result<Record, Failed> {
    let directory = tempfile::tempdir()?;
    let this = std::env::current_exe()?.display().to_string();
    let mut about = String::new();
    for (node, kind) in kinds {
        about.push_str(&format!("[node.{node}]\nagent = [{this:?}, {kind:?}, {WGLAB:?}]\n"));
    }
    topology(directory.path(), "\"a1\", \"a2\", \"r1\"", "\"raw\", \"embedded\"", &about)?;
    let file = directory.path().join("lab.toml");
    let text = fs::read_to_string(&file)?.replace("pairs = [\"a1>a2\"]", "pairs = [\"a1>a2\", \"r1>a2\"]");
    fs::write(file, text)?;
    let output = wglab(directory.path(), &["run", "lab.toml", "--out", "r"]).output()?;
    let record = record(&directory.path().join("r")).map_err(|error| format!("{error:?}: {}", self::text(&output)))?;
    Ok(record)
}

/// The tunnel's run is invalid, and for this reason.
fn check_refused(record: &Record, because: &[&str]) -> Result<(), Failed> {
    use wglab::cell::Factor;
    let of = |engine: &str| {
        let cell = [(Factor::Engine, engine), (Factor::Underlay, "public-ipv4"), (Factor::Pair, "a1>a2")];
        record.runs.iter().find(|run| cell.iter().all(|(factor, level)| run.factors.get(*factor) == Some(level)))
    };
    let tunnel = of("embedded").ok_or("the tunnel was measured")?;
    assert_eq!(tunnel.status, Status::Invalid, "{:?}", tunnel.proof);
    let reason = tunnel.reason.clone().unwrap_or_default();
    assert!(reason.contains("not proved"), "{reason}");
    for word in because {
        assert!(reason.contains(word), "{reason}");
    }
    Ok(())
}

fn misrouted() -> Result<(), Failed> {
    let record = tampered(&[("a1", tamper::MISROUTE), ("a2", tamper::UNPIN)])?;
    check_refused(&record, &["bytes received on public-ipv4 of a2"])
}

fn relayed() -> Result<(), Failed> {
    let record = tampered(&[("a1", tamper::DETOUR), ("r1", tamper::RELAY)])?;
    check_refused(&record, &["outer address of"])
}

/// What `ulimit -f` allows is a disk that is full.
fn file_limit() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    // Blocks of 512 bytes: the header, a few runs, and no more.
    let script = format!("ulimit -f 64; exec {WGLAB} run pair --engine raw --out r --rounds 20 --duration 20ms");
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(directory.path()).env("NO_COLOR", "1").output()?;
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot write to r/runs.jsonl: File too large"), "{said}");
    let record = record(&directory.path().join("r"))?;
    assert!(record.usable().count() > 0 && record.cut.is_some(), "{said}");
    before.restored()
}

/// The nodes of a lab that is up, reached as real hosts are: a command whose pipe ends at an agent there.
fn reached_hosts() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let mut up = wglab(directory.path(), &["up", "pair", "--engine", "raw"]).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(up.stdout.take().ok_or("a pipe")?).lines();
    while !lines.next().ok_or("the lab did not come up")??.starts_with("Try:") {}
    let host = |node: &str, address: &str| {
        let reach = format!("echo Welcome; exec {WGLAB} exec --lab {} {node} -- {WGLAB} agent", up.id());
        format!("[node.{node}]\nreach = [\"sh\", \"-c\", {reach:?}]\naddress = {{ private = \"{address}\" }}\n")
    };
    let file = format!(
        "nodes = [\"a1\", \"a2\"]\npairs = [\"a1>a2\"]\nengines = [\"raw\", \"embedded\"]\n{}{}[underlay]\n\
         private = {{ family = \"ipv4\", mtu = 1450 }}\n[[test]]\nkind = \"tcp-stream\"\ncongestion_control = \"cubic\"\n\
         [profile.quick]\nrounds = 1\nduration = \"200ms\"\n",
        host("a1", "10.200.0.1"),
        host("a2", "10.200.0.2"),
    );
    fs::write(directory.path().join("hosts.toml"), file)?;
    let output = wglab(directory.path(), &["run", "hosts.toml", "--out", "r"]).output()?;
    let record = record(&directory.path().join("r")).map_err(|error| format!("{error:?}: {}", text(&output)))?;
    check_whole(&output, &record)?;
    assert_eq!(record.header.class, wglab::record::Class::Hosts);
    // What was made on the hosts is gone again.
    let exec = |command: &[&str]| {
        wglab(directory.path(), &["exec", "--lab", &up.id().to_string(), "a1", "--"]).args(command).output()
    };
    let links = exec(&["cat", "/proc/net/dev"])?;
    assert!(links.status.success() && !text(&links).contains("wg0"), "{}", text(&links));
    signal(up.id(), Signal::SIGINT)?;
    assert!(up.wait()?.success());
    before.restored()
}

/// Streams that end at full speed leave queues full; the next visit, of another engine, begins at once.
fn left_on_its_way() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = format!(
        "nodes = [\"a1\", \"a2\"]\npairs = [\"a1>a2\"]\nengines = [\"embedded\", \"again\"]\n[engine.again]\npath = \"{}\"\n\
         [underlay]\nprivate = {{ family = \"ipv4\", mtu = 1480 }}\n\
         [[test]]\nkind = \"tcp-stream\"\ncongestion_control = \"cubic\"\nprobe = \"off\"\n\
         [profile.quick]\nrounds = 12\nduration = \"200ms\"\nwarmup = \"50ms\"\n",
        env!("CARGO_BIN_EXE_wglab")
    );
    fs::write(directory.path().join("lab.toml"), file)?;
    let output = wglab(directory.path(), &["run", "lab.toml", "--out", "r"]).output()?;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let record = record(&directory.path().join("r"))?;
    assert_eq!(record.runs.len(), 24);
    assert!(record.runs.iter().all(|run| run.status == Status::Ok), "{:?}", record.runs.iter().map(|run| &run.reason));
    Ok(())
}

fn shipped() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    for name in ["four-nodes", "cross-directions"] {
        let narrowed: &[&str] = if name == "four-nodes" { &["--only", "pair=n1>n2"] } else { &[] };
        let output = wglab(directory.path(), &["run", name, "--out", name]).args(BRIEF).args(narrowed).output()?;
        check_whole(&output, &record(&directory.path().join(name))?).map_err(|error| format!("{name}: {error:?}"))?;
    }
    Ok(())
}
