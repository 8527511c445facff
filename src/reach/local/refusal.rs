//! Why a system refuses namespaces, and what to do about it.

use std::fs;

use crate::sys::spawn::SpawnError;

/// What the system says about itself, where it matters here. Absent: it does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the caller is root.
    pub root: bool,
    /// `kernel.unprivileged_userns_clone` (Debian's kernels).
    pub userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu 23.10 and newer).
    pub apparmor: Option<u64>,
    /// The limits `user.max_*_namespaces` by kind.
    pub limits: Vec<(&'static str, u64)>,
    /// Whether a seccomp filter is on this process (proc(5), `Seccomp: 2`), as in a container.
    pub seccomp: bool,
}

impl Circumstances {
    /// Those of this process.
    pub fn read() -> Self {
        let number = |path: String| fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
        let kinds = ["user", "mnt", "pid", "net"];
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            root: nix::unistd::geteuid().is_root(),
            userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone".to_owned()),
            apparmor: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns".to_owned()),
            limits: kinds
                .into_iter()
                .filter_map(|kind| Some((kind, number(format!("/proc/sys/user/max_{kind}_namespaces"))?)))
                .collect(),
            seccomp: status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")),
        }
    }

    /// The limit that is too low, most likely: the lowest.
    fn limit(&self) -> Option<(&'static str, u64)> {
        self.limits.iter().copied().min_by_key(|(_, limit)| *limit)
    }
}

const AS_ROOT: &str = "or run this as root";
const CONTAINER: &str = "the container that this runs in forbids namespaces: start it with `--privileged`, or with `--cap-add \
     SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined`";

/// What to do when the init could not be started.
pub(super) fn remedy(error: &SpawnError, now: &Circumstances) -> String {
    let in_clone = matches!(error, SpawnError::Clone { .. });
    match error.errno() {
        Some(libc::ENOSPC | libc::EUSERS) => limit_remedy(now),
        Some(libc::EPERM | libc::EACCES) if in_clone && now.userns_clone == Some(0) => {
            format!("user namespaces are off for users: run `sysctl -w kernel.unprivileged_userns_clone=1`, {AS_ROOT}")
        }
        Some(libc::EPERM | libc::EACCES) if now.apparmor == Some(1) && !now.root => format!(
            "AppArmor restricts user namespaces: run `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, {AS_ROOT}"
        ),
        // A container's filter answers clone3 with "no such call", so that C libraries fall back to an older one.
        Some(libc::ENOSYS) if now.seccomp => CONTAINER.to_owned(),
        Some(libc::EPERM | libc::EACCES) if now.seccomp || now.root => CONTAINER.to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            format!("user namespaces are forbidden here (a chroot or a security policy does that): leave it, {AS_ROOT}")
        }
        Some(libc::EINVAL | libc::ENOSYS) if !now.root => {
            "this kernel has no user namespaces (CONFIG_USER_NS): run this as root".to_owned()
        }
        Some(libc::EINVAL | libc::ENOSYS) => {
            "this kernel is too old or lacks namespaces (CONFIG_PID_NS, CONFIG_NET_NS; Linux 5.9 or newer is needed)"
                .to_owned()
        }
        Some(libc::ENOMEM) => "there is not enough memory, or a PID limit is reached".to_owned(),
        Some(libc::EAGAIN) => {
            "the limit on processes is reached: raise `ulimit -u` or the cgroup's pids.max".to_owned()
        }
        _ => "see the reason below".to_owned(),
    }
}

/// What to do when an agent's network namespace could not be made.
pub(super) fn agent_remedy(errno: i32, now: &Circumstances) -> Option<String> {
    match errno {
        libc::ENOSPC | libc::EUSERS => Some(limit_remedy(now)),
        libc::EINVAL | libc::ENOSYS => Some("this kernel lacks network namespaces (CONFIG_NET_NS)".to_owned()),
        libc::EAGAIN => {
            Some("the limit on processes is reached: raise `ulimit -u` or the cgroup's pids.max".to_owned())
        }
        _ => None,
    }
}

/// Why a PID namespace does not end whose init was killed: the kernel waits until every process in it is reaped
/// (pid_namespaces(7)), and one that was started from outside has a parent outside.
pub(super) fn what_holds(init: Option<u32>) -> String {
    let unknown = "a process of it is stuck in the kernel".to_owned();
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid"));
    let Some(lab) = init.and_then(|init| namespace(&init.to_string()).ok()) else { return unknown };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let holds = processes.filter_map(|name| {
        let pid = name.to_str().filter(|name| init.is_some_and(|init| *name != init.to_string()))?;
        if namespace(pid).ok()? != lab {
            return None;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().to_owned();
        let name = fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
        Some(format!(
            "process {pid} has ended, and its parent, process {parent} ({}), does not take note of it",
            name.trim()
        ))
    });
    let holds: Vec<String> = holds.collect();
    if holds.is_empty() { unknown } else { holds.join("; ") }
}

fn limit_remedy(now: &Circumstances) -> String {
    match now.limit() {
        Some((kind, limit)) => format!(
            "the limit on {kind} namespaces is {limit}: run `sysctl -w user.max_{kind}_namespaces=15000`{}",
            if now.root { "" } else { ", or run this as root" }
        ),
        None => {
            "the limit on namespaces is reached (sysctl user.max_*_namespaces), or they are nested too deep".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::sys::namespaces::Namespaces;

    fn clone(errno: i32) -> SpawnError {
        SpawnError::Clone { namespaces: Namespaces::default(), source: io::Error::from_raw_os_error(errno) }
    }

    fn map(errno: i32) -> SpawnError {
        SpawnError::Map { file: "uid_map", source: io::Error::from_raw_os_error(errno) }
    }

    #[test]
    fn every_refusal_has_its_own_remedy() {
        let plain = Circumstances::default();
        let debian = Circumstances { userns_clone: Some(0), ..plain.clone() };
        assert!(remedy(&clone(libc::EPERM), &debian).contains("kernel.unprivileged_userns_clone=1"));
        let ubuntu = Circumstances { apparmor: Some(1), userns_clone: Some(1), ..plain.clone() };
        assert!(remedy(&map(libc::EPERM), &ubuntu).contains("apparmor_restrict_unprivileged_userns=0"));
        let none = Circumstances { limits: vec![("user", 0), ("net", 9000)], ..plain };
        assert!(remedy(&clone(libc::ENOSPC), &none).contains("user.max_user_namespaces=15000"));
        let docker = Circumstances { seccomp: true, root: true, ..Circumstances::default() };
        assert!(remedy(&clone(libc::EPERM), &docker).contains("--privileged"));
        assert!(remedy(&clone(libc::ENOSYS), &docker).contains("--privileged"));
        assert!(remedy(&clone(libc::EINVAL), &plain).contains("CONFIG_USER_NS"));
        assert!(remedy(&clone(libc::EPERM), &plain).contains("root"));
        let few = Circumstances { limits: vec![("user", 9000), ("net", 1)], root: true, ..plain };
        assert!(agent_remedy(libc::ENOSPC, &few).unwrap().contains("user.max_net_namespaces"));
        assert!(agent_remedy(libc::EIO, &few).is_none());
    }

    #[test]
    fn this_system_can_be_read() {
        assert!(Circumstances::read().limits.iter().any(|(kind, _)| *kind == "user"));
    }
}
