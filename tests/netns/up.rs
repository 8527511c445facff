//! `wglab up` and `exec`: a lab that is kept up, as a user keeps it.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::Signal;

use crate::left_over::{Holdings, adopt_orphans};
use crate::product::{WGLAB, signal, text, tun_is_open, wglab};

pub(crate) const TESTS: &[super::Test] = &[
    ("other_tools_work_in_a_lab_that_is_up", other_tools),
    ("a_lab_without_its_tunnels_does_not_come_up", missing_engine),
    ("a_command_does_not_outlive_its_lab", command_of_up),
    ("an_engine_that_dies_in_a_lab_that_is_up_is_told", dying_engine),
    ("standard_output_is_the_commands", command_output),
];

fn other_tools() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let mut arguments = vec!["up", "pair"];
    arguments.extend((!tun_is_open()).then_some("--allow-partial"));
    let mut lab = wglab(directory.path(), &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(lab.stdout.take().ok_or("a pipe")?).lines();
    let mut shown = Vec::new();
    // The last line says what to try: then everything is up.
    loop {
        let Some(line) = lines.next() else {
            return Err(format!("the lab did not come up: {}", text(&lab.wait_with_output()?)).into());
        };
        shown.push(line?);
        if shown.last().is_some_and(|line| line.starts_with("Try:")) {
            break;
        }
    }
    let pid = lab.id().to_string();
    let exec = |node: &str, command: &[&str]| -> Result<Output, Failed> {
        Ok(wglab(directory.path(), &["exec", "--lab", &pid, node, "--"]).args(command).output()?)
    };
    let address = |interface: &str| -> Result<String, Failed> {
        let line = shown.iter().rev().find(|line| line.trim_start().starts_with(interface));
        Ok(line.and_then(|line| line.split_whitespace().nth(1)).ok_or("an address")?.to_owned())
    };
    let mut targets = vec![address("private")?];
    if tun_is_open() {
        targets.push(address("wg0")?);
        let wg = exec("a1", &["wg", "show"])?;
        let said = text(&wg);
        assert!(wg.status.success() && said.contains("interface: wg0") && said.contains("latest handshake"), "{said}");
        assert!(said.contains("(hidden)"), "{said}");
    }
    for target in targets {
        let ping = exec("a1", &["ping", "-c", "2", "-i", "0.2", &target])?;
        assert!(ping.status.success(), "{}", text(&ping));
        let mut server = wglab(directory.path(), &["exec", "--lab", &pid, "a2", "--", "iperf3", "-s", "-1"])
            .stdout(Stdio::null())
            .spawn()?;
        let mut iperf = exec("a1", &["iperf3", "-c", &target, "-t", "1"])?;
        for _ in 0..20 {
            if iperf.status.success() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            iperf = exec("a1", &["iperf3", "-c", &target, "-t", "1"])?;
        }
        assert!(iperf.status.success(), "{}", text(&iperf));
        server.wait()?;
    }
    let wrong = exec("a3", &["true"])?;
    assert!(text(&wrong).contains("a1, a2"), "{}", text(&wrong));
    assert_eq!(exec("a1", &["sh", "-c", "exit 7"])?.status.code(), Some(7));
    // As shells and env(1) say it.
    fs::write(directory.path().join("plain"), "")?;
    let closed = directory.path().join("closed");
    fs::create_dir(&closed)?;
    fs::set_permissions(&closed, Permissions::from_mode(0o000))?;
    let mut path = closed.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").ok_or("a PATH")?);
    for (command, code) in [("no-such-command", 127), ("./plain", 126), ("/", 126)] {
        let output =
            wglab(directory.path(), &["exec", "--lab", &pid, "a1", "--", command]).env("PATH", &path).output()?;
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        assert!(text(&output).contains(&format!("cannot run `{command}`")), "{}", text(&output));
    }
    signal(lab.id(), Signal::SIGINT)?;
    assert!(lab.wait()?.success());
    before.restored()
}

/// An engine that is not there: exit 2 with the reason, or the rest of the lab where that is accepted.
fn missing_engine() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let dying = directory.path().join("dying");
    fs::write(&dying, "#!/bin/sh\nexit 3\n")?;
    fs::set_permissions(&dying, Permissions::from_mode(0o755))?;
    let up = |more: &[&str]| {
        let mut up = wglab(directory.path(), &["up", "pair", "--engine", "x=./dying"]);
        up.args(more).args(["--", "sh", "-c", "exit 9"]).output()
    };
    let refused = up(&[])?;
    let said = text(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("x over private is not there") && said.contains("--allow-partial"), "{said}");
    assert!(!said.contains("is up"), "{said}");
    assert!(said.contains("never had a UAPI socket (is it a WireGuard daemon"), "{said}");
    let accepted = up(&["--allow-partial"])?;
    assert_eq!(accepted.status.code(), Some(9), "{}", text(&accepted));
    before.restored()
}

/// Whatever ends `wglab up`, its command and what that started end with it.
fn command_of_up() -> Result<(), Failed> {
    adopt_orphans()?;
    let before = Holdings::now();
    let directory = tempfile::tempdir()?;
    let up =
        |script: &str| wglab(directory.path(), &["up", "pair", "--engine", "raw", "--", "sh", "-c", script]).output();
    assert_eq!(up("exit 7")?.status.code(), Some(7));
    assert_eq!(up("kill -TERM $$")?.status.code(), Some(128 + 15));
    assert_eq!(up(&format!("{WGLAB} exec a1 -- sh -c 'exit 5'"))?.status.code(), Some(5));
    let output = wglab(directory.path(), &["up", "pair", "--engine", "raw", "--", "/nonexistent"]).output()?;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("cannot run `/nonexistent`"), "{}", text(&output));
    for end in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT] {
        // A shell that starts others, one of which cares for no signal but the last.
        let script = "trap '' TERM INT HUP; sleep 1000 & (sleep 1001 & sleep 1002) & touch ready; wait; sleep 1003";
        let ready = directory.path().join("ready");
        let mut lab = wglab(directory.path(), &["up", "pair", "--engine", "raw", "--", "sh", "-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !ready.exists() {
            assert!(Instant::now() < deadline, "the command did not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(lab.id(), end)?;
        let status = lab.wait()?;
        assert_eq!(status.code(), (end != Signal::SIGKILL).then_some(130), "{end}");
        before.restored().map_err(|error| format!("{end}: {error:?}"))?;
        fs::remove_file(&ready)?;
    }
    Ok(())
}

/// What the death of an engine makes of a lab: told at once with its last lines, and the exit code of a lab that broke.
fn dying_engine() -> Result<(), Failed> {
    if !tun_is_open() {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let before = Holdings::now();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo mortal 1.0\n\
         {WGLAB} tunnel \"$2\" --mtu 1420 & engine=$!\n\
         while [ ! -e die ]; do sleep 0.05; done\necho my last words; kill $engine; wait; exit 9\n"
    );
    let mortal = directory.path().join("mortal");
    fs::write(&mortal, script)?;
    fs::set_permissions(&mortal, Permissions::from_mode(0o755))?;
    let up = |command: &str| {
        let _absent = fs::remove_file(directory.path().join("die"));
        wglab(directory.path(), &["up", "pair", "--engine", "x=./mortal", "--", "sh", "-c", command]).output()
    };
    let is_told = |said: &str| {
        assert!(said.contains("an engine died on node a1: x over private: "), "{said}");
        assert!(said.contains("ended (exit status: 9)") && said.contains("my last words"), "{said}");
        // One on each node, once.
        assert_eq!(said.matches("an engine died").count(), 2, "{said}");
    };
    let well = up("true")?;
    assert_eq!(well.status.code(), Some(0), "{}", text(&well));
    // Between two looks, and over several.
    for command in ["touch die; sleep 0.5; exit 5", "touch die; sleep 3; exit 5"] {
        let output = up(command)?;
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        is_told(&said);
        assert!(said.contains("the command's own exit code was 5"), "{said}");
    }
    // Without a command the lab stays up, and what it was is told in the end.
    fs::remove_file(directory.path().join("die"))?;
    let mut lab = wglab(directory.path(), &["up", "pair", "--engine", "x=./mortal"])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(lab.stdout.take().ok_or("a pipe")?).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.starts_with("Try:")) {}
    fs::write(directory.path().join("die"), "")?;
    let mut errors = BufReader::new(lab.stderr.take().ok_or("a pipe")?).lines();
    let mut said = String::new();
    while said.matches("my last words").count() < 2 {
        let Some(line) = errors.next().transpose()? else { return Err(said.into()) };
        said += &line;
    }
    is_told(&said);
    assert_eq!(lab.try_wait()?, None);
    signal(lab.id(), Signal::SIGINT)?;
    assert_eq!(lab.wait()?.code(), Some(2));
    before.restored()
}

/// What the lab says of itself does not stand in the output of the command that runs in it.
fn command_output() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let up = |more: &[&str], command: &[&str]| {
        let mut up = wglab(directory.path(), &["up", "pair", "--engine", "raw"]);
        up.args(more).arg("--").args(command).output()
    };
    let plain = up(&[], &["echo", "{}"])?;
    assert_eq!(String::from_utf8_lossy(&plain.stdout), "{}\n");
    assert!(String::from_utf8_lossy(&plain.stderr).contains("pair is up"), "{}", text(&plain));
    let quiet = up(&["-q"], &["echo", "{}"])?;
    assert_eq!(String::from_utf8_lossy(&quiet.stdout), "{}\n");
    assert_eq!(String::from_utf8_lossy(&quiet.stderr), "");
    // What the documentation shows by name is there by name.
    let help = wglab(directory.path(), &["tunnel", "--help"]).output()?;
    assert!(help.status.success() && text(&help).contains("Usage: wglab tunnel INTERFACE --mtu N"), "{}", text(&help));
    fs::write(directory.path().join("plain"), "")?;
    let closed = directory.path().join("closed");
    fs::create_dir(&closed)?;
    fs::set_permissions(&closed, Permissions::from_mode(0o000))?;
    let mut path = closed.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").ok_or("a PATH")?);
    for (command, why) in [("no-such-command", "No such file"), ("./plain", "Permission denied")] {
        let output = up(&[], &[command])?;
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        let said = text(&output);
        assert!(said.contains(&format!("cannot run `{command}`")) && said.contains(why), "{said}");
        assert!(!said.contains("is up"), "{said}");
    }
    Ok(())
}
