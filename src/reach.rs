//! Gives a byte pipe to an agent: a child in fresh namespaces, or a command (ssh, kubectl, any).
//!
//! Whatever is behind it, the conversation over the pipe is the same, so every local run tests what real hosts use.

use std::process::Stdio;

use tokio::process::Command;

use crate::agent::frame::FrameError;
use crate::sys::program;

mod link;
pub mod local;
mod tail;

pub use link::Link;
pub use local::{LocalError, LocalLab};

use link::Channel;
use local::{AgentSpec, LabSpec};
use tail::Tail;

/// Why there is no conversation with an agent, or why it broke off.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The lab could not be made.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The command did not start.
    #[error("node {node}: cannot start `{command}`: {source}; check that the program is there")]
    Command {
        /// The node.
        node: String,
        /// The command.
        command: String,
        /// The reason.
        source: std::io::Error,
    },
    /// A descriptor could not be used.
    #[error("node {node}: its pipe cannot be used: {source}")]
    Pipe {
        /// The node.
        node: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The pipe carries something else.
    #[error("node {node}: {source}")]
    Frame {
        /// The node.
        node: String,
        /// What.
        source: FrameError,
    },
    /// Another build.
    #[error(
        "node {node} runs wglab {version} (protocol {protocol}), and this one speaks protocol {ours}: install this version there"
    )]
    OtherVersion {
        /// The node.
        node: String,
        /// Its version.
        version: String,
        /// The protocol that it speaks.
        protocol: u32,
        /// Ours.
        ours: u32,
    },
    /// The agent could not do what it was asked.
    #[error("node {node}: {what}")]
    Failed {
        /// The node.
        node: String,
        /// Why.
        what: String,
    },
    /// The agent did not answer in time.
    #[error("the agent of node {node} did not answer within {seconds} s; it said last: {said}")]
    Silent {
        /// The node.
        node: String,
        /// How long it had.
        seconds: f64,
        /// Its last lines.
        said: String,
    },
    /// The pipe ended.
    #[error("the agent of node {node} is gone; it said last: {said}")]
    Gone {
        /// The node.
        node: String,
        /// Its last lines.
        said: String,
    },
    /// An answer to another question.
    #[error("the agent of node {node} answered `{told}`, which was not asked")]
    Unexpected {
        /// The node.
        node: String,
        /// What it told.
        told: &'static str,
    },
}

/// A lab, and the ways to its agents.
pub struct Made {
    /// What holds it.
    pub lab: LocalLab,
    /// Its agents, as ordered.
    pub agents: Vec<MadeAgent>,
}

/// An agent of a lab.
pub struct MadeAgent {
    /// The node's name.
    pub name: String,
    /// Its process id here; absent where it cannot be seen.
    pub pid: Option<u32>,
    /// What its surroundings could not be given, and why.
    pub notes: Vec<String>,
    /// The pipe to it.
    pub channel: Channel,
}

/// Makes a lab with an agent for each name, started by the command beside it or else by this program.
///
/// # Errors
/// The system refuses namespaces, or an agent's process.
pub fn make(agents: Vec<(String, Option<Vec<String>>)>) -> Result<Made, ReachError> {
    let agents = agents.into_iter().map(|(name, argv)| AgentSpec { name, argv }).collect();
    let mut lab = local::raise(&LabSpec { agents })?;
    let agents = std::mem::take(&mut lab.agents)
        .into_iter()
        .map(|agent| {
            let broken = |source| ReachError::Pipe { node: agent.name.clone(), source };
            agent.pipe.set_nonblocking(true).map_err(broken)?;
            let (reader, writer) = tokio::net::UnixStream::from_std(agent.pipe).map_err(broken)?.into_split();
            let stderr = Tail::follow(tokio::net::unix::pipe::Receiver::from_file(agent.stderr).map_err(broken)?);
            let channel = Channel::new(&agent.name, Box::new(reader), Box::new(writer), stderr);
            Ok(MadeAgent { name: agent.name, pid: agent.pid, notes: agent.notes, channel })
        })
        .collect::<Result<_, ReachError>>()?;
    Ok(Made { lab, agents })
}

/// Starts `argv`, whose standard input and output become the pipe to an agent. The command ends with the pipe.
///
/// # Errors
/// The program does not start.
pub fn command(node: &str, argv: &[String]) -> Result<Channel, ReachError> {
    let failed = |source| ReachError::Command { node: node.to_owned(), command: argv.join(" "), source };
    let missing = || std::io::Error::from(std::io::ErrorKind::InvalidInput);
    let (name, arguments) = argv.split_first().ok_or_else(|| failed(missing()))?;
    let mut child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(program::why_not(name.as_ref(), error)))?;
    let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed(missing()));
    };
    let channel = Channel::new(node, Box::new(output), Box::new(input), Tail::follow(errors));
    Ok(channel.of_command(child))
}
