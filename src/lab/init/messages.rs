//! What a conductor and its lab's init say to each other, one JSON document per message.

use serde::{Deserialize, Serialize};

use crate::sys::pidfd::ExitStatus;
use crate::sys::spawn::RefusedMount;

/// From the conductor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToInit {
    /// Start an agent. Two descriptors come along: its standard input and output, and its standard error.
    Start {
        /// The node's name.
        name: String,
        /// The command; absent: this program's agent.
        argv: Option<Vec<String>>,
    },
}

/// From the init.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromInit {
    /// An agent runs. Its pidfd comes along.
    Started {
        /// The node's name.
        name: String,
        /// Its process id in the lab.
        pid: u32,
        /// What it could not be given.
        notes: Vec<String>,
    },
    /// An agent does not run.
    NotStarted {
        /// The node's name.
        name: String,
        /// Why.
        reason: String,
        /// The system's reason.
        errno: Option<i32>,
    },
    /// An agent ended.
    Ended {
        /// The node's name.
        name: String,
        /// How.
        status: ExitStatus,
    },
}

/// A mount that was done without, in words.
pub fn refused_mount(refused: &RefusedMount) -> String {
    format!("could not {}: {}", refused.mount, refused.error)
}
