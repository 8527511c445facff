//! What the machine holds: a lab must leave it as it was.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

/// Namespaces, links, mounts and sysctls of the host, and this program's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holdings {
    things: BTreeSet<String>,
}

impl Holdings {
    pub(crate) fn now() -> Self {
        let mut things = BTreeSet::new();
        let this = fs::metadata("/proc/self/exe").ok();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let path = process.path();
            let Some(pid) = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            for kind in ["user", "mnt", "net", "pid"] {
                if let Ok(namespace) = fs::read_link(path.join("ns").join(kind)) {
                    things.insert(format!("namespace {}", namespace.display()));
                }
            }
            let same = |other: &fs::Metadata| {
                use std::os::unix::fs::MetadataExt;
                this.as_ref().is_some_and(|this| (this.dev(), this.ino()) == (other.dev(), other.ino()))
            };
            if fs::metadata(path.join("exe")).is_ok_and(|exe| same(&exe)) && pid != std::process::id() {
                things.insert(format!("process {pid}"));
            }
        }
        for link in fs::read_dir("/sys/class/net").unwrap().flatten() {
            things.insert(format!("link {}", link.file_name().to_string_lossy()));
        }
        for mount in fs::read_to_string("/proc/self/mountinfo").unwrap().lines() {
            things.insert(format!("mount {mount}"));
        }
        for directory in ["/proc/sys/net/ipv4", "/proc/sys/net/ipv6/conf/all", "/proc/sys/net/core"] {
            sysctls(Path::new(directory), &mut things);
        }
        Self { things }
    }

    /// Waits until everything that appeared since is gone again; network namespaces are taken apart in the background
    /// (Linux, net/core/net_namespace.c, cleanup_net).
    pub(crate) fn restored(&self) -> Result<(), Failed> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let now = Self::now();
            // Other programs come and go meanwhile: theirs are namespaces that vanish, not ones that stay.
            let left: Vec<_> = now.things.difference(&self.things).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("left over: {left:#?}").into());
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
