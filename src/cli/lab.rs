//! `wglab up` and `wglab exec`: a lab kept up in the foreground, and commands on its nodes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::args::{ExecArgs, Selection, UpArgs};
use super::measure::{block_on, interrupt};
use super::output::Output;
use super::watch::Terminal;
use super::{Exit, plan::plan_of};
use crate::cell::did_you_mean;
use crate::plan::{EngineSpec, Plan, TunnelEnd};
use crate::run::beacon::{self, Beacon};
use crate::run::{Death, Lab};
use crate::sys::namespaces::{enter, run_command};
use crate::sys::program;

pub(super) fn up(args: &UpArgs, output: &Output) -> anyhow::Result<Exit> {
    let selection = Selection {
        topology: args.topology.clone(),
        engine: args.engine.clone(),
        only: Vec::new(),
        rounds: None,
        precision: None,
        duration: None,
        profile: None,
        seed: None,
    };
    let plan = plan_of(&selection)?;
    if let Some(name) = args.command.first() {
        // Nobody should wait for a lab to learn of a slip of the pen.
        program::find(name, env::var_os("PATH").as_deref())
            .with_context(|| format!("cannot run `{}`", name.display()))?;
    }
    block_on(async {
        let mut watch = Terminal::new(output);
        let interrupt = interrupt()?;
        tokio::pin!(interrupt);
        let mut lab = tokio::select! {
            lab = Lab::raise(&plan, &mut watch) => lab?,
            _signal = &mut interrupt => return Ok(Exit::Interrupted),
        };
        watch.finish();
        lab.notes.iter().for_each(|note| output.note(note));
        let missing = lab.unavailable();
        if !missing.is_empty() && !args.allow_partial {
            lab.down().await?;
            bail!("{}\n  = help: --allow-partial keeps the rest up", missing.join("\n"));
        }
        missing.iter().for_each(|missing| output.note(missing));
        let beacon = Beacon::light(&plan.name, &lab.host_pids)?;
        let listing = describe(&plan, &lab);
        // Standard output is the command's where there is one.
        if args.command.is_empty() {
            output.data(&listing)?
        } else {
            output.aside(&listing)
        }
        let dead = Dead { plan: &plan, output, told: RefCell::default() };
        let mut command = Supervised::start(&args.command)?;
        let (ended, of_itself) = tokio::select! {
            exit = command.ended() => (exit, true),
            error = lab.watch(|death| dead.tell(death)) => (Err(error), false),
            served = beacon.serve() => (served.map(|()| Exit::Done), false),
            _signal = &mut interrupt => (Ok(if args.command.is_empty() { Exit::Done } else { Exit::Interrupted }), false),
        };
        drop(beacon);
        command.end().await;
        // One that died since the last look spoilt the command's end all the same.
        let late = if of_itself { lab.deaths().await } else { Ok(Vec::new()) };
        lab.down().await?;
        late?.into_iter().for_each(|death| dead.tell(death));
        ended.map(|exit| dead.instead_of(exit))
    })
}

/// Engines that died while the lab was up.
struct Dead<'a> {
    plan: &'a Plan,
    output: &'a Output,
    /// By node and interface.
    told: RefCell<BTreeSet<(String, String)>>,
}

impl Dead<'_> {
    /// Says it, once.
    fn tell(&self, Death { node, interface, why }: Death) {
        let is_it = |end: &TunnelEnd| end.node == node && end.interface == interface;
        let tunnel = self.plan.tunnels.iter().find(|tunnel| tunnel.ends.iter().any(is_it));
        let of = tunnel.map_or_else(String::new, |tunnel| format!("{} over {}: ", tunnel.engine, tunnel.underlay));
        let died = anyhow!("an engine died on node {node}: {of}{why}");
        if self.told.borrow_mut().insert((node, interface)) {
            self.output.error(&died);
        }
    }

    /// The exit code of a lab that broke, in place of what the command said in it.
    fn instead_of(&self, exit: Exit) -> Exit {
        if self.told.borrow().is_empty() || exit == Exit::Interrupted {
            return exit;
        }
        if let Exit::Of(code) = exit {
            self.output.reason(&format!("the command's own exit code was {code}, in a lab without all of its engines"));
        }
        Exit::NotMeasured
    }
}

/// The hidden command that runs the command of `wglab up`, so that nothing of it outlives the lab.
pub(super) const SUPERVISE: &str = "lab-command";

/// How long a supervisor may take to end what it supervises.
const LAST_WORDS: Duration = Duration::from_secs(4);

/// The command of `wglab up`, under a supervisor that ends it with this process, however that ends.
struct Supervised {
    child: Option<Child>,
}

impl Supervised {
    /// Starts the command, if there is one.
    fn start(command: &[OsString]) -> anyhow::Result<Self> {
        if command.is_empty() {
            return Ok(Self { child: None });
        }
        let own = std::process::id().to_string();
        let child = Command::new("/proc/self/exe")
            .arg0("wglab")
            .args([SUPERVISE, &own])
            .args(command)
            .env("WGLAB", &own)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the supervisor of the command")?;
        Ok(Self { child: Some(child) })
    }

    /// Resolves when the command has ended; never, where there is none.
    async fn ended(&mut self) -> anyhow::Result<Exit> {
        let Some(child) = &mut self.child else { return std::future::pending().await };
        let status = child.wait().await.context("cannot wait for the command")?;
        // As shells tell it, and as `wglab exec` does.
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        Ok(Exit::Of(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255)))
    }

    /// Ends the command and what it started, if that has not happened.
    async fn end(self) {
        let Some(mut child) = self.child else { return };
        let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) else { return };
        // One that has just ended needs no telling; one that does not listen is killed when it is dropped.
        let _told = kill(Pid::from_raw(pid), Signal::SIGTERM);
        let _late = timeout(LAST_WORDS, child.wait()).await;
    }
}

/// The process that supervises: its arguments are the process that asks and the command.
pub(super) fn supervise(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let (asker, command) = arguments.split_first().context("this command is what `wglab up` starts for itself")?;
    let asker =
        asker.to_str().and_then(|pid| pid.parse().ok()).context("this command is what `wglab up` starts for itself")?;
    Ok(ExitCode::from(crate::sys::supervise::run(command, asker)?.shell_code()))
}

/// Every node, with its addresses outside and inside, and how to get there.
fn describe(plan: &Plan, lab: &Lab) -> String {
    let mut text = format!("{} is up: {} nodes; Ctrl-C takes it down\n\n", plan.name, plan.nodes.len());
    let there = || plan.tunnels.iter().filter(|tunnel| lab.has(tunnel));
    for node in &plan.nodes {
        // Writing into a string does not fail.
        let _infallible = writeln!(text, "{}", node.name);
        for attachment in &node.attachments {
            let _infallible = writeln!(text, "  {:<15} {}", attachment.underlay, attachment.address);
        }
        for (tunnel, end) in there().flat_map(|tunnel| tunnel.ends.iter().map(move |end| (tunnel, end))) {
            if end.node == node.name {
                let inner = end.inner.addr();
                let which = if tunnel.number == 0 { String::new() } else { format!(", tunnel {}", tunnel.number + 1) };
                let only = if is_direct(plan, end) { ", for wglab's own tests only" } else { "" };
                let (name, engine, underlay) = (&end.interface, &tunnel.engine, &tunnel.underlay);
                let _infallible = writeln!(text, "  {name:<15} {inner}  {engine} over {underlay}{which}{only}");
            }
        }
    }
    if let Some(pair) = plan.pairs.first() {
        let ends = there().filter_map(|tunnel| tunnel.ends(pair));
        let mut pingable = ends.filter(|(client, server)| !is_direct(plan, client) && !is_direct(plan, server));
        let to = pingable.next().map(|(_, server)| server.inner.addr());
        let to = to.or_else(|| plan.node(&pair.server)?.attachments.first().map(|attachment| attachment.address));
        if let Some(to) = to {
            let _infallible = write!(text, "\nTry: wglab exec {} -- ping -c 3 {to}\n", pair.client);
        }
    }
    text
}

/// Whether a tunnel's end has no interface that other programs could use.
fn is_direct(plan: &Plan, end: &TunnelEnd) -> bool {
    plan.engine(&end.engine).is_some_and(|engine| engine.spec == EngineSpec::Direct)
}

pub(super) fn exec(args: &ExecArgs, output: &Output) -> anyhow::Result<Exit> {
    let asked = args.lab.or_else(|| env::var("WGLAB").ok().and_then(|pid| pid.parse().ok()));
    let labs = beacon::find(asked)?;
    let lab = match labs.as_slice() {
        [lab] => lab,
        [] => match asked {
            Some(pid) => bail!("process {pid} keeps no lab up; `wglab up` does"),
            None => bail!("no lab is up; `wglab up pair` raises one"),
        },
        several => {
            let list =
                several.iter().map(|lab| format!("{} (process {})", lab.name, lab.pid)).collect::<Vec<_>>().join(", ");
            bail!("several labs are up: {list}; choose one with --lab PID")
        }
    };
    let Some(pid) = lab.nodes.get(&args.node) else {
        let names: Vec<&str> = lab.nodes.keys().map(String::as_str).collect();
        bail!(
            "lab {} has no node `{}` that can be entered; {}its nodes are {}",
            lab.name,
            args.node,
            did_you_mean(&args.node, names.iter().copied()),
            names.join(", ")
        )
    };
    enter(*pid)?;
    match run_command(&args.command) {
        Ok(status) => Ok(Exit::Of(status.shell_code())),
        Err(error) => match error.shell_code() {
            Some(code) => {
                output.error(&error.into());
                Ok(Exit::Of(code))
            }
            None => Err(error.into()),
        },
    }
}
