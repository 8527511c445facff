//! A lab comes up, holds together, and goes down without a trace.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::Signal;
use wglab::host::facts::Facts;
use wglab::reach::local::{AgentSpec, LabSpec, LocalAgent, LocalError, LocalLab, Privilege, raise};
use wglab::sys::namespaces::{self, Namespaces};
use wglab::sys::pidfd::{ExitStatus, PidFd};
use wglab::sys::spawn::Spawn;

use crate::agent::{Ask, ask};
use crate::left_over::{Holdings, adopt_orphans, reap_orphan};

pub(crate) const TESTS: &[super::Test] = &[
    ("library::a_lab_goes_up_and_down_a_hundred_times", a_hundred_labs),
    ("library::each_agent_has_its_own_world", own_worlds),
    ("library::a_killed_agent_is_named", killed_agent),
    ("an_agent_may_be_any_command", any_command),
    ("library::an_agent_that_cannot_start_says_why", no_such_command),
    ("library::two_agents_of_one_name_are_refused", same_name),
    ("library::nothing_is_left_after_a_kill", nothing_left),
    ("library::a_lab_that_does_not_go_names_what_holds_it", held_up),
    ("library::a_command_runs_inside_a_node", command_inside),
    ("library::signals_reach_a_command_inside", signals_inside),
    ("library::a_node_has_facts", node_facts),
    ("library::a_system_that_refuses_gets_a_remedy", refused),
    ("an_ordinary_user_with_nothing_on_the_path_has_all_this_too", ordinary_user),
];

pub(crate) fn spec(names: &[&str]) -> LabSpec {
    LabSpec { agents: names.iter().map(|name| AgentSpec { name: (*name).to_owned(), argv: None }).collect() }
}

fn a_hundred_labs() -> Result<(), Failed> {
    let before = Holdings::now();
    let start = Instant::now();
    for _ in 0..100 {
        let lab = raise(&spec(&["provider", "a1", "b1"]))?;
        ask(&lab.agents[2], &Ask::Read("/proc/net/dev".to_owned()))?;
        lab.down()?;
    }
    eprintln!("100 labs of 3 agents: {:?}", start.elapsed());
    before.restored()
}

fn own_worlds() -> Result<(), Failed> {
    let lab = raise(&spec(&["a1", "b1"]))?;
    if !lab.notes.is_empty() || lab.agents.iter().any(|agent| !agent.notes.is_empty()) {
        eprintln!("done without: {:?} {:?}", lab.notes, lab.agents);
    }
    let host = std::fs::read_link("/proc/self/ns/net")?;
    for agent in &lab.agents {
        let pid = agent.pid.ok_or("the process id is known")?;
        assert_ne!(std::fs::read_link(format!("/proc/{pid}/ns/net"))?, host);
        assert_eq!(ask(agent, &Ask::List("/run".to_owned()))?, serde_json::json!([]), "/run is private and empty");
        let links = ask(agent, &Ask::List("/sys/class/net".to_owned()))?;
        assert!(links.as_array().is_some_and(|links| links.contains(&"lo".into())), "{links}");
    }
    ask(&lab.agents[0], &Ask::Write("/run/mine".to_owned(), "mine".to_owned()))?;
    assert!(ask(&lab.agents[1], &Ask::Read("/run/mine".to_owned())).is_err());
    assert!(!std::path::Path::new("/run/mine").exists());
    let status = ask(&lab.agents[0], &Ask::Read("/proc/1/comm".to_owned()))?;
    assert_eq!(status, "wglab-init\n");
    Ok(lab.down()?)
}

fn killed_agent() -> Result<(), Failed> {
    let lab = raise(&spec(&["a1", "b1"]))?;
    lab.agents[1].handle.signal(Signal::SIGKILL)?;
    let exit = lab.exits().recv_timeout(Duration::from_secs(5))?;
    assert_eq!(exit.to_string(), "the agent of node b1 was killed by signal 9 (SIGKILL)");
    let mut rest = Vec::new();
    (&lab.agents[1].pipe).read_to_end(&mut rest)?;
    ask(&lab.agents[0], &Ask::List("/".to_owned()))?;

    lab.init().signal(Signal::SIGKILL)?;
    let mut exits = Vec::new();
    while let Ok(exit) = lab.exits().recv_timeout(Duration::from_secs(5)) {
        exits.push(exit);
    }
    let last = exits.pop().ok_or("the init's end is told")?;
    assert_eq!((last.agent, last.status), (None, ExitStatus::Signalled(9)));
    Ok(lab.down()?)
}

fn any_command() -> Result<(), Failed> {
    let script = "echo banner; echo complaint >&2; exec \"$0\" agent";
    let this = std::env::current_exe()?;
    let argv = ["sh", "-c", script, &this.to_string_lossy()].map(str::to_owned).to_vec();
    let mut lab = raise(&LabSpec { agents: vec![AgentSpec { name: "a1".to_owned(), argv: Some(argv) }] })?;
    let mut agent = lab.agents.remove(0);
    let mut banner = [0; 7];
    agent.pipe.read_exact(&mut banner)?;
    assert_eq!(&banner, b"banner\n");
    ask(&agent, &Ask::List("/".to_owned()))?;
    let mut complaint = String::new();
    BufReader::new(&mut agent.stderr).read_line(&mut complaint)?;
    assert_eq!(complaint, "complaint\n");
    Ok(lab.down()?)
}

fn no_such_command() -> Result<(), Failed> {
    let before = Holdings::now();
    let argv = Some(vec!["no-such-program-anywhere".to_owned()]);
    let error = raise(&LabSpec { agents: vec![AgentSpec { name: "a1".to_owned(), argv }] }).err();
    let text = error.ok_or("it cannot start")?.to_string();
    assert!(text.contains("node a1") && text.contains("no-such-program-anywhere"), "{text}");
    before.restored()
}

fn same_name() -> Result<(), Failed> {
    let error = raise(&spec(&["a1", "a1"])).err();
    assert!(matches!(error, Some(LocalError::Duplicate { .. })), "{error:?}");
    Ok(())
}

/// The hidden command of [`hold`].
pub(crate) const HOLD_COMMAND: &str = "hold-a-lab";

/// A conductor for tests: raises a lab, prints the ids of its init and agents, and waits for the end of its input.
pub(crate) fn hold() -> ExitCode {
    let lab: LocalLab = match raise(&spec(&["provider", "a1"])) {
        Ok(lab) => lab,
        Err(error) => {
            println!("refused {error}");
            return ExitCode::FAILURE;
        }
    };
    let agents = lab.agents.iter().map(|agent| agent.pid.unwrap_or_default().to_string()).collect::<Vec<_>>();
    let world = ask(&lab.agents[1], &Ask::List("/run".to_owned())).unwrap_or_default();
    println!(
        "{} {} {:?} {world}",
        lab.init().pid().ok().flatten().unwrap_or_default(),
        agents.join(" "),
        lab.privilege
    );
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
    ExitCode::SUCCESS
}

fn nothing_left() -> Result<(), Failed> {
    adopt_orphans()?;
    let before = Holdings::now();
    // The conductor, the init, the provider's agent, a node's agent; and the conductor while the lab is being made.
    for victim in 0..24 {
        let mut conductor = Command::new(std::env::current_exe()?)
            .arg(HOLD_COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = conductor.stdout.take().ok_or("piped")?;
        if victim >= 4 {
            // From before the first clone to after the last.
            std::thread::sleep(Duration::from_micros(500 * (victim - 4)));
            conductor.kill()?;
        } else {
            BufReader::new(output).read_line(&mut line)?;
            let mut pids = vec![conductor.id()];
            pids.extend(line.split(' ').take(3).map_while(|pid| pid.parse::<u32>().ok()));
            assert_eq!(pids.len(), 4, "{line}");
            PidFd::open(pids[victim as usize])?.signal(Signal::SIGKILL)?;
            if victim > 0 {
                drop(conductor.stdin.take());
            }
        }
        conductor.wait()?;
        before.restored().map_err(|failed| format!("victim {victim}: {failed:?}"))?;
    }
    Ok(())
}

/// The hidden command of [`enter`].
pub(crate) const ENTER_COMMAND: &str = "enter-a-node";

/// Runs a command in the namespaces of a process: its id, then the command.
pub(crate) fn enter() -> ExitCode {
    let mut arguments = std::env::args_os().skip(2);
    let pid = arguments.next().and_then(|pid| pid.to_str()?.parse().ok()).unwrap_or_default();
    let command: Vec<OsString> = arguments.collect();
    match namespaces::enter(pid).and_then(|()| namespaces::run_command(&command)) {
        Ok(status) => ExitCode::from(status.shell_code()),
        Err(error) => {
            println!("{error}");
            ExitCode::from(125)
        }
    }
}

fn inside(agent: &LocalAgent, command: &[&str]) -> Result<Command, Failed> {
    let mut enter = Command::new(std::env::current_exe()?);
    enter.arg(ENTER_COMMAND).arg(agent.pid.ok_or("the process id is known")?.to_string()).args(command);
    Ok(enter)
}

fn command_inside() -> Result<(), Failed> {
    let lab = raise(&spec(&["a1", "b1"]))?;
    ask(&lab.agents[0], &Ask::Write("/run/mark".to_owned(), "a1".to_owned()))?;
    let output = inside(&lab.agents[0], &["/bin/cat", "/run/mark", "/proc/1/comm"])?.output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a1wglab-init\n", "{output:?}");
    let network = inside(&lab.agents[1], &["/bin/readlink", "/proc/self/ns/net"])?.output()?;
    let theirs = std::fs::read_link(format!("/proc/{}/ns/net", lab.agents[1].pid.unwrap_or_default()))?;
    assert_eq!(String::from_utf8_lossy(&network.stdout).trim(), theirs.to_string_lossy());

    let status = inside(&lab.agents[0], &["/bin/sh", "-c", "exit 7"])?.status()?;
    assert_eq!(status.code(), Some(7));
    let output = inside(&lab.agents[0], &["/no/such/command"])?.output()?;
    assert!(String::from_utf8_lossy(&output.stdout).contains("/no/such/command"), "{output:?}");

    let gone = inside(&lab.agents[0], &["/bin/true"])?;
    lab.down()?;
    let output = { gone }.output()?;
    assert!(String::from_utf8_lossy(&output.stdout).contains("is down"), "{output:?}");
    Ok(())
}

fn signals_inside() -> Result<(), Failed> {
    adopt_orphans()?;
    let before = Holdings::now();
    let lab = raise(&spec(&["a1"]))?;
    let script = "trap 'echo got it; exit 3' TERM; echo ready; while :; do /bin/sleep 0.01; done";
    let start = |command: &[&str]| -> Result<_, Failed> {
        let mut child = inside(&lab.agents[0], command)?.stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("piped")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        assert_eq!(line, "ready\n");
        Ok((child, output))
    };
    let (mut child, mut output) = start(&["/bin/sh", "-c", script])?;
    PidFd::open(child.id())?.signal(Signal::SIGTERM)?;
    let mut rest = String::new();
    output.read_to_string(&mut rest)?;
    assert_eq!(rest, "got it\n");
    assert_eq!(child.wait()?.code(), Some(3));

    // A command that a signal ends says so as a shell would.
    let (mut child, _output) = start(&["/bin/sh", "-c", "echo ready; kill -KILL $$"])?;
    assert_eq!(child.wait()?.code(), Some(128 + 9));

    // Whoever is killed leaves nothing running, in a lab that goes on. A PID namespace ends when its last process is
    // reaped (pid_namespaces(7)), and this one has lost its parent.
    let (mut child, mut output) = start(&["/bin/sh", "-c", "echo ready; exec /bin/sleep 60"])?;
    child.kill()?;
    child.wait()?;
    output.read_to_string(&mut rest)?;
    reap_orphan();
    lab.down()?;
    before.restored()
}

fn held_up() -> Result<(), Failed> {
    adopt_orphans()?;
    let lab = raise(&spec(&["a1"]))?;
    // The parent of the command is a process that is stopped, and reaps nothing.
    let mut enter = inside(&lab.agents[0], &["/bin/sh", "-c", "echo $$; exec /bin/sleep 60"])?;
    let mut child = enter.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("piped")?).read_line(&mut line)?;
    let handle = PidFd::open(child.id())?;
    handle.signal(Signal::SIGSTOP)?;
    let error = lab.down().err().ok_or("it cannot go")?.to_string();
    handle.signal(Signal::SIGKILL)?;
    child.wait()?;
    reap_orphan();
    assert!(error.contains(&format!("process {}", child.id())), "{error}");
    Ok(())
}

/// The hidden command of [`refuse`].
pub(crate) const REFUSE_COMMAND: &str = "be-refused-a-lab";

/// Started in a user namespace of its own: lowers a limit of that, and asks for a lab.
pub(crate) fn refuse() -> ExitCode {
    let kind = std::env::args().nth(2).unwrap_or_default();
    if let Err(error) = std::fs::write(format!("/proc/sys/user/max_{kind}_namespaces"), "0") {
        println!("cannot lower the limit: {error}");
        return ExitCode::FAILURE;
    }
    match raise(&spec(&["a1"])).and_then(|lab| lab.down()) {
        Ok(()) => println!("it was not refused"),
        Err(error) => println!("{error}"),
    }
    ExitCode::SUCCESS
}

fn refused() -> Result<(), Failed> {
    let before = Holdings::now();
    // The init needs the one, an agent the other.
    for (kind, named) in [("pid", "this system does not let a lab be made"), ("net", "node a1 cannot be made")] {
        let (mut output, output_write) = std::io::pipe()?;
        let null = std::fs::File::open("/dev/null")?;
        let child = Spawn {
            program: std::env::current_exe()?,
            arguments: ["test", REFUSE_COMMAND, kind].map(OsString::from).to_vec(),
            environment: Vec::new(),
            files: vec![null.try_clone()?.into(), output_write.into(), null.into()],
            namespaces: Namespaces { user: true, mount: true, ..Namespaces::default() },
            mounts: Vec::new(),
            own_session: false,
            dies_with_thread: true,
        };
        let child = child.start()?;
        let mut text = String::new();
        output.read_to_string(&mut text)?;
        assert_eq!(child.handle.reap()?, ExitStatus::Exited(0), "{text}");
        let remedy = format!("sysctl -w user.max_{kind}_namespaces=");
        assert!(text.contains(named) && text.contains(&remedy), "{text}");
    }
    before.restored()
}

fn node_facts() -> Result<(), Failed> {
    let lab = raise(&spec(&["a1"]))?;
    let facts: Facts = serde_json::from_value(ask(&lab.agents[0], &Ask::Facts)?)?;
    assert!(facts.root, "root in the lab");
    assert_eq!(facts.user_namespace, Some(lab.privilege == Privilege::UserNamespace));
    // They are the machine's (design 5).
    for name in ["net.core.netdev_max_backlog", "net.core.default_qdisc", "net.core.rps_sock_flow_entries"] {
        assert!(facts.missing_settings.contains(&name.to_owned()), "{facts:?}");
    }
    let opens = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok();
    assert_eq!(facts.tun.is_ok(), opens, "{facts:?}");
    if opens {
        assert_eq!(ask(&lab.agents[0], &Ask::Tun("wg0".to_owned()))?, "777\n");
    }
    Ok(lab.down()?)
}

/// The user that owns nothing (`nobody`).
const NOBODY: u32 = 65_534;

/// All other tests once more, by this program, as such a user, with an empty `PATH`.
fn ordinary_user() -> Result<(), Failed> {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let before = Holdings::now();
    // Where the program lies, only its owner may be able to go.
    let directory = tempfile::tempdir()?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
    let program = directory.path().join("wglab-test");
    std::fs::copy(std::env::current_exe()?, &program)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let mut command = Command::new(&program);
    command.arg("library::").current_dir("/").env("PATH", "").env("WGLAB_REQUIRE_NETNS", "1");
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("library::a_lab_goes_up") && text.contains("library::underlays_carry"), "{text}");
    before.restored()
}
