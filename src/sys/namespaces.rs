//! Namespaces (namespaces(7)): which ones a process gets, and how another process enters.

use std::fmt;
use std::path::PathBuf;

mod enter;

pub(in crate::sys) use enter::start;
pub use enter::{EnterError, enter, run_command};

/// Which namespaces are new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// User and group ids, and what privilege means.
    pub user: bool,
    /// The tree of mounts.
    pub mount: bool,
    /// Process ids. Its first process is its init: when it ends, the kernel kills all others.
    pub pid: bool,
    /// Interfaces, addresses, routes, sockets.
    pub network: bool,
}

impl Namespaces {
    fn list(self) -> impl Iterator<Item = (&'static str, libc::c_int)> {
        [
            (self.user, "user", libc::CLONE_NEWUSER),
            (self.mount, "mount", libc::CLONE_NEWNS),
            (self.pid, "pid", libc::CLONE_NEWPID),
            (self.network, "net", libc::CLONE_NEWNET),
        ]
        .into_iter()
        .filter(|(wanted, _, _)| *wanted)
        .map(|(_, name, flag)| (name, flag))
    }

    pub(super) fn clone_flags(self) -> u64 {
        self.list().map(|(_, flag)| flag as u64).sum()
    }
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, _)) in self.list().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// Where the programs of this system keep run-time files that a lab must have for itself: `/run`, and `/var/run`
/// where it is a directory of its own.
pub fn run_directories() -> Vec<PathBuf> {
    let canonical = |path: &str| std::fs::canonicalize(path).ok();
    let mut directories: Vec<PathBuf> = canonical("/run").into_iter().collect();
    if let Some(var_run) = canonical("/var/run")
        && !directories.contains(&var_run)
    {
        directories.push(var_run);
    }
    directories
}
