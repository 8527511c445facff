//! What the machine holds: a lab must leave it as it was.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::wait::{WaitPidFlag, waitpid};

/// Makes this process inherit what a killed conductor leaves to be reaped: a system's own reaper may take its time.
pub(crate) fn adopt_orphans() -> Result<(), Failed> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Reaps the next orphan that ends, if one does within a second.
pub(crate) fn reap_orphan() {
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline {
        if waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A variable in the environment of this program and all that it starts: other programs' processes and namespaces come
/// and go meanwhile, and are none of its business.
pub(crate) const MARK: &str = "WGLAB_NETNS_TESTS";

/// Links, mounts, sysctls and firewall of the host (the latter where it can be read), and marked processes with their namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holdings {
    things: BTreeSet<String>,
}

impl Holdings {
    pub(crate) fn now() -> Self {
        let mut things = BTreeSet::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let path = process.path();
            let pid = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<u32>().ok());
            let marked = fs::read(path.join("environ")).is_ok_and(|environment| {
                environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(MARK.as_bytes()))
            });
            let Some(pid) = pid.filter(|pid| marked && *pid != std::process::id()) else { continue };
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            things.insert(format!("process {pid} {}", name.trim()));
            for kind in ["user", "mnt", "net", "pid"] {
                if let Ok(namespace) = fs::read_link(path.join("ns").join(kind)) {
                    things.insert(format!("namespace {} of {pid}", namespace.display()));
                }
            }
        }
        for link in fs::read_dir("/sys/class/net").unwrap().flatten() {
            things.insert(format!("link {}", link.file_name().to_string_lossy()));
        }
        for mount in fs::read_to_string("/proc/self/mountinfo").unwrap().lines() {
            things.insert(format!("mount {mount}"));
        }
        if let Ok(nft) = Command::new("nft").args(["list", "ruleset"]).output() {
            things.insert(format!("nft {}", String::from_utf8_lossy(&nft.stdout)));
        }
        for directory in ["/proc/sys/net/ipv4", "/proc/sys/net/ipv6/conf/all", "/proc/sys/net/core"] {
            sysctls(Path::new(directory), &mut things);
        }
        Self { things }
    }

    /// Waits until the host has all that it had, and everything that appeared since is gone again; network namespaces are taken apart in the background
    /// (Linux, net/core/net_namespace.c, cleanup_net).
    ///
    /// Reaps every child that has ended.
    pub(crate) fn restored(&self) -> Result<(), Failed> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let now = Self::now();
            // Orphans fall to this process (see `adopt_orphans`), which has no other children now.
            while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {}
            let left: Vec<_> = now.things.difference(&self.things).collect();
            // Processes end by themselves; the host's own things do not.
            let ends = |thing: &&String| thing.starts_with("process") || thing.starts_with("namespace");
            let lost: Vec<_> = self.things.difference(&now.things).filter(|thing| !ends(thing)).collect();
            if left.is_empty() && lost.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("left over: {left:#?}; lost: {lost:#?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn sysctls(directory: &Path, things: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        // Readings, not settings.
        let volatile = ["fib_trie", "tcp_fastopen_key"].iter().any(|name| path.ends_with(name));
        if let (false, Ok(value)) = (volatile, fs::read_to_string(&path)) {
            things.insert(format!("sysctl {} {}", path.display(), value.trim()));
        }
    }
}
