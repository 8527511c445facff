//! How the embedded engine grows with its peers and its MTU: one device with 1 to 1,000 peers, idle, called, calling, trickling, and
//! with one of them busy; and one busy pair over tunnel MTUs from 576 to 8920. Prints medians and ranges over rounds as Markdown.
//!
//! ```text
//! cargo bench --bench growth -- [--peers 1,4,16,64,256,1000] [--mtu 576,1280,1420,4000,8920] [--rounds 4] [--seconds 1]
//!                               [--engine PATH] [--page FILE]
//! ```
//!
//! `--engine PATH` measures a daemon instead (wireguard-go, boringtun-cli, gotatun). `--page FILE` puts the tables between the marks
//! of a page, docs/growth.md for one. `--peers none` and `--mtu none` leave a part out.
//!
//! The device is an engine's process as any lab has it (`wglab tunnel`, configured through its UAPI socket) in a network namespace of
//! its own. The peers are in another one, at the other end of a veth pair: each is the bare protocol with a socket of its own, all in
//! this process; a busy one is a second engine. Everything is in one PID namespace whose init is this program, and ends with it.
//! As root, or wherever a user may make namespaces and open `/dev/net/tun`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use wglab::sys::namespaces::{Namespaces, run_directories};
use wglab::sys::pidfd::ExitStatus;
use wglab::sys::spawn::{Mount, Spawn};
use wglab::tunnel::TunnelEngine;

mod clients;
mod measure;
mod page;
mod world;

/// The first argument of this program where it is the init of its namespaces.
const INSIDE: &str = "inside";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` starts benches, too.
        eprintln!("growth: a measurement, not a test: run it with cargo bench");
        return ExitCode::SUCCESS;
    }
    let done = match arguments.split_first() {
        Some((first, rest)) if first == INSIDE => Options::parse(rest).and_then(|options| bench(&options)),
        _ => Options::parse(&arguments).and_then(|_| enter(&arguments)),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("growth: {error:#}");
            ExitCode::from(2)
        }
    }
}

const OPTIONS: [&str; 6] = ["--peers", "--mtu", "--rounds", "--seconds", "--engine", "--page"];

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) peers: Vec<u32>,
    pub(crate) mtus: Vec<u16>,
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
    pub(crate) engine: TunnelEngine,
    pub(crate) page: Option<PathBuf>,
    /// As typed, but for the page.
    pub(crate) command: String,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            peers: vec![1, 4, 16, 64, 256, 1000],
            mtus: vec![576, 1280, 1420, 4000, 8920],
            rounds: 4,
            seconds: 1.0,
            engine: TunnelEngine::Embedded,
            page: None,
            command: "cargo bench --bench growth".to_owned(),
        };
        let mut told = String::new();
        let mut arguments = arguments.iter().filter(|argument| *argument != "--bench");
        while let Some(argument) = arguments.next() {
            ensure!(
                OPTIONS.contains(&argument.as_str()),
                "there is no option {argument}; the options are {}, each with a value",
                OPTIONS.join(", ")
            );
            let value = arguments.next().with_context(|| format!("{argument} needs a value"))?;
            match argument.as_str() {
                "--peers" => options.peers = list(value)?,
                "--mtu" => options.mtus = list(value)?,
                "--rounds" => options.rounds = value.parse().context("--rounds takes a whole number")?,
                "--seconds" => options.seconds = value.parse().context("--seconds takes a number")?,
                "--engine" => {
                    let path = std::path::absolute(value)?;
                    ensure!(path.is_file(), "there is no program {}", path.display());
                    options.engine = TunnelEngine::Daemon { path };
                }
                _ => options.page = Some(value.into()),
            }
            match argument.as_str() {
                "--page" => {}
                // Where it lies is this machine's affair.
                "--engine" => told += &format!(" --engine {}", value.rsplit('/').next().unwrap_or_default()),
                _ => told += &format!(" {argument} {value}"),
            }
        }
        ensure!(options.rounds > 0 && options.seconds > 0.0, "nothing is measured in no time");
        let most = clients::MOST;
        ensure!(options.peers.iter().all(|peers| (1..=most).contains(peers)), "--peers takes numbers from 1 to {most}");
        ensure!(
            options.mtus.iter().all(|mtu| (576..=65_000).contains(mtu)),
            "--mtu takes the tunnel's MTU, 576 or more: IPv4 promises no less"
        );
        if !told.is_empty() {
            options.command += &format!(" --{told}");
        }
        Ok(options)
    }
}

/// Numbers with commas between, or `none`.
fn list<T: std::str::FromStr>(text: &str) -> Result<Vec<T>> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let number = |one: &str| one.parse().ok().with_context(|| format!("`{one}` in `{text}` is not a number here"));
    text.split(',').map(number).collect()
}

/// Runs this program again as the init of new namespaces: when it ends, or this one does, the kernel ends all in them.
fn enter(arguments: &[String]) -> Result<ExitCode> {
    let mut mounts = vec![(Mount::Private, true), (Mount::Proc, true)];
    // Engines have their sockets there.
    mounts.extend(run_directories().into_iter().map(|directory| (Mount::Tmpfs(directory), true)));
    let own = |name: &str| OsString::from(name);
    let inside = Spawn {
        program: std::env::current_exe()?,
        arguments: [own("growth"), own(INSIDE)].into_iter().chain(arguments.iter().map(OsString::from)).collect(),
        environment: Vec::new(),
        files: vec![
            std::io::stdin().as_fd().try_clone_to_owned()?,
            std::io::stdout().as_fd().try_clone_to_owned()?,
            std::io::stderr().as_fd().try_clone_to_owned()?,
        ],
        namespaces: Namespaces { user: !nix::unistd::geteuid().is_root(), mount: true, pid: true, network: true },
        mounts,
        own_session: false,
        dies_with_thread: true,
    };
    let spawned = inside.start().context("making namespaces (as root, or where users may make them)")?;
    match spawned.handle.reap()? {
        ExitStatus::Exited(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(2))),
        status @ ExitStatus::Signalled(_) => bail!("the measuring process {status}"),
    }
}

fn bench(options: &Options) -> Result<ExitCode> {
    let measured = measure::all(options)?;
    let text = page::tables(options, &measured);
    print!("{text}");
    if let Some(page) = &options.page {
        page::write(page, &text)?;
        eprintln!("{} has these tables now", page.display());
    }
    Ok(ExitCode::SUCCESS)
}
