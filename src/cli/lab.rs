//! `wglab up` and `wglab exec`: a lab kept up in the foreground, and commands on its nodes.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt as _;

use anyhow::{Context, bail};

use super::args::{ExecArgs, Selection, UpArgs};
use super::measure::{block_on, interrupt};
use super::output::Output;
use super::watch::Terminal;
use super::{Exit, plan::plan_of};
use crate::cell::did_you_mean;
use crate::plan::Plan;
use crate::run::Lab;
use crate::run::beacon::{self, Beacon};
use crate::sys::namespaces::{enter, run_command};
use crate::sys::pidfd::ExitStatus;

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
    block_on(async {
        let mut watch = Terminal::new(output);
        let interrupt = interrupt()?;
        tokio::pin!(interrupt);
        let mut lab = tokio::select! {
            lab = Lab::raise(&plan, &mut watch) => lab?,
            _signal = &mut interrupt => return Ok(Exit::Interrupted),
        };
        watch.finish();
        for note in lab.notes.iter().cloned().chain(lab.unavailable()) {
            output.note(&note);
        }
        let beacon = Beacon::light(&plan.name, &lab.host_pids)?;
        output.data(&describe(&plan))?;
        let ended = tokio::select! {
            exit = serve(&args.command) => exit,
            error = lab.watch_agents() => Err(error),
            served = beacon.serve() => served.map(|()| Exit::Done),
            _signal = &mut interrupt => Ok(if args.command.is_empty() { Exit::Done } else { Exit::Interrupted }),
        };
        drop(beacon);
        lab.down().await?;
        ended
    })
}

/// Waits for the command, or for ever.
async fn serve(command: &[OsString]) -> anyhow::Result<Exit> {
    let Some((program, arguments)) = command.split_first() else {
        return std::future::pending().await;
    };
    let status = tokio::process::Command::new(program)
        .args(arguments)
        .env("WGLAB", std::process::id().to_string())
        .kill_on_drop(true)
        .status()
        .await
        .with_context(|| format!("cannot run `{}`", program.to_string_lossy()))?;
    // As shells tell it, and as `wglab exec` does.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(Exit::Of(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255)))
}

/// Every node, with its addresses outside and inside, and how to get there.
fn describe(plan: &Plan) -> String {
    let mut text = format!("{} is up: {} nodes; Ctrl-C takes it down\n\n", plan.name, plan.nodes.len());
    for node in &plan.nodes {
        // Writing into a string does not fail.
        let _infallible = writeln!(text, "{}", node.name);
        for attachment in &node.attachments {
            let _infallible = writeln!(text, "  {:<15} {}", attachment.underlay, attachment.address);
        }
        for (tunnel, end) in plan.tunnels.iter().flat_map(|tunnel| tunnel.ends.iter().map(move |end| (tunnel, end))) {
            if end.node == node.name {
                let inner = end.inner.addr();
                let _infallible =
                    writeln!(text, "  {:<15} {inner}  {} over {}", end.interface, tunnel.engine, tunnel.underlay);
            }
        }
    }
    if let Some(pair) = plan.pairs.first() {
        let to = plan.tunnels.first().and_then(|tunnel| tunnel.ends(pair)).map(|(_, server)| server.inner.addr());
        let to = to.or_else(|| plan.node(&pair.server)?.attachments.first().map(|attachment| attachment.address));
        if let Some(to) = to {
            let _infallible = write!(text, "\nTry: wglab exec {} -- ping -c 3 {to}\n", pair.client);
        }
    }
    text
}

pub(super) fn exec(args: &ExecArgs) -> anyhow::Result<Exit> {
    let asked = args.lab.or_else(|| std::env::var("WGLAB").ok().and_then(|pid| pid.parse().ok()));
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
    Ok(match run_command(&args.command)? {
        ExitStatus::Exited(code) => Exit::Of(u8::try_from(code).unwrap_or(255)),
        // As shells tell it.
        ExitStatus::Signalled(signal) => Exit::Of(u8::try_from(128 + signal).unwrap_or(255)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_a_signal_ends_is_told_as_shells_tell_it() {
        let of = |script: &str| block_on(serve(&["sh", "-c", script].map(OsString::from))).unwrap();
        assert_eq!(of("kill -TERM $$"), Exit::Of(128 + 15));
        assert_eq!(of("exit 7"), Exit::Of(7));
    }
}
