//! The generator where the system's defaults do not hide a fault.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, ExitCode};
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sched::{CloneFlags, unshare};
use wglab::sys::netlink::Netlink;
use wglab::traffic::{self, Job, JobKind, Role};
use wglab::units::{Bytes, Direction};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[("traffic::ports_are_free_again_at_once", ports_are_free_again_at_once)];

/// The command of this program that makes connections with few ports.
pub(crate) const FEW_PORTS_COMMAND: &str = "few-ports";

/// Thousands of connections within a second, with 64 ports to choose from: whoever closes first holds its port for a
/// minute (TIME_WAIT), and that must not be the client.
fn ports_are_free_again_at_once() -> Result<(), Failed> {
    let output = Command::new(std::env::current_exe()?).arg(FEW_PORTS_COMMAND).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}

pub(crate) fn few_ports() -> ExitCode {
    match try_few_ports() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn try_few_ports() -> Result<(), String> {
    let mut flags = CloneFlags::CLONE_NEWNET;
    if !nix::unistd::geteuid().is_root() {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).map_err(|errno| format!("making a network namespace: {errno}"))?;
    let netlink = Netlink::open().map_err(|error| error.to_string())?;
    let loopback = netlink.link("lo").map_err(|error| error.to_string())?.ok_or("no loopback")?;
    netlink.set_up(loopback.index, "lo").map_err(|error| error.to_string())?;
    for (setting, value) in [("ip_local_port_range", "40000 40063"), ("tcp_tw_reuse", "0")] {
        let path = format!("/proc/sys/net/ipv4/{setting}");
        fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
    }
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let server = Job {
        role: Role::Server,
        direction: Direction::Forward,
        kind: JobKind::TcpCrr { request: Bytes::new(1), response: Bytes::new(1) },
        local: here,
        local_interface: None,
        peer: None,
        more_paths: Vec::new(),
        congestion_control: None,
        warmup: Duration::from_millis(100),
        duration: Duration::from_secs(1),
        deadline: Duration::from_secs(10),
        probe: None,
        seed: 5,
    };
    let far = traffic::prepare(&server).map_err(|error| error.to_string())?;
    let client = Job { role: Role::Client, peer: Some((here, far.ports())), ..server };
    let near = traffic::prepare(&client).map_err(|error| error.to_string())?;
    let (near, far) = (near.start(), far.start());
    let counts = near.wait().map_err(|error| error.to_string())?.counts;
    far.wait().map_err(|error| error.to_string())?;
    let transactions = counts.transactions.unwrap_or(0);
    if transactions < 200 || !counts.errors.is_empty() || counts.timeouts != Some(0) {
        return Err(format!("{counts:?}"));
    }
    Ok(())
}
