//! What can go wrong with a tunnel, whatever runs it.

use std::path::{Path, PathBuf};

use super::engine;
use super::uapi::UapiError;

/// What can go wrong with a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The engine cannot be used here.
    #[error("engine {engine} is not available: {reason}; {remedy}")]
    Unavailable {
        /// As the topology names it.
        engine: String,
        /// Why not.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A name that no interface can have.
    #[error("`{name}` cannot name a tunnel: {reason}")]
    InterfaceName {
        /// The name.
        name: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// Two peers that cannot be told apart, or a peer that is the device itself.
    #[error("peers of {interface}: {reason}")]
    Peers {
        /// The device.
        interface: String,
        /// What is wrong.
        reason: String,
    },
    /// The name is in use.
    #[error("{what} of tunnel {interface} is in use already; end what uses it, or choose another name")]
    InUse {
        /// The device.
        interface: String,
        /// Socket or device.
        what: String,
    },
    /// The program could not be started.
    #[error("cannot start {program}: {source}; {hint}", hint = start_hint(program, source))]
    Start {
        /// Its path.
        program: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The program ended, or never answered.
    #[error("engine {engine} for {interface} {how}; its last lines:\n{log}")]
    Died {
        /// As the topology names it.
        engine: String,
        /// The device.
        interface: String,
        /// How it ended.
        how: String,
        /// The end of its log.
        log: String,
    },
    /// It runs, but did not do what it was asked to.
    #[error("{source}; the last lines of engine {engine}:\n{log}")]
    Unwilling {
        /// As the topology names it.
        engine: String,
        /// What went wrong.
        source: Box<Self>,
        /// The end of its log.
        log: String,
    },
    /// Its socket failed.
    #[error("cannot {action} {interface} through its UAPI socket: {source}")]
    Socket {
        /// What was tried.
        action: &'static str,
        /// The device.
        interface: String,
        /// The reason.
        source: std::io::Error,
    },
    /// It refused, or answered what is no answer.
    #[error("cannot {action} {interface}: {source}")]
    Uapi {
        /// What was tried.
        action: &'static str,
        /// The device.
        interface: String,
        /// The reason.
        source: UapiError,
    },
    /// The kernel's WireGuard did not do it.
    #[error("cannot {action} {interface} through the kernel's WireGuard: {source}{hint}", hint = engine::kernel::hint(.source))]
    Kernel {
        /// What was tried.
        action: &'static str,
        /// The device.
        interface: String,
        /// The reason.
        source: std::io::Error,
    },
    /// A kernel interface failed.
    #[error("cannot {action}: {source}{hint}", hint = if hint.is_empty() { String::new() } else { format!("; {hint}") })]
    System {
        /// What was tried.
        action: String,
        /// The reason.
        source: std::io::Error,
        /// The remedy, if one is known.
        hint: &'static str,
    },
    /// Wrong arguments of the hidden `tunnel` command.
    #[error("tunnel: {0}")]
    Arguments(String),
}

/// The likeliest reason why a program that is there cannot be started.
fn start_hint(program: &Path, error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        // execve(2) says so of the interpreter, too.
        Some(libc::ENOENT) if program.exists() => {
            "it is there, but the interpreter or loader that it names is not: check its first line, or build it for this host"
        }
        Some(libc::ENOEXEC) => "it is no program for this machine: take one that was built for it",
        _ => "check the path and that it may be executed",
    }
}
