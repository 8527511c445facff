//! The CPU time that a cgroup grants and withholds (cgroups(7)): `cpu.max` of version 2, `cpu.cfs_*` of version 1, `cpu.stat`.

use super::proc::{Throttling, parse_throttling};

/// The quota in CPUs: the smallest of the process's group and all groups above it that this mount shows. Absent where
/// none is set.
///
/// `groups` is `/proc/self/cgroup`, `mounts` is `/proc/self/mountinfo`, `read` reads a file.
pub fn quota(groups: &str, mounts: &str, read: impl Fn(&str) -> Option<String>) -> Option<f64> {
    let quotas = cpu_groups(groups, mounts).into_iter().filter_map(|group| {
        if group.version_2 {
            version_2_quota(&group.directory, &read)
        } else {
            version_1_quota(&group.directory, &read)
        }
    });
    quotas.min_by(f64::total_cmp)
}

/// How often the process's group was held back. Absent where nothing limits it, and where the mount does not show it.
/// The arguments are those of [`quota`].
pub fn throttling(groups: &str, mounts: &str, read: impl Fn(&str) -> Option<String>) -> Option<Throttling> {
    // The nearest first: a group without a limit of its own counts nothing.
    cpu_groups(groups, mounts)
        .into_iter()
        .find_map(|group| parse_throttling(&read(&format!("{}/cpu.stat", group.directory))?))
}

/// A group that may limit CPU time, as this process sees it mounted.
struct CpuGroup {
    version_2: bool,
    directory: String,
}

/// The process's group and those above it, from the nearest on.
fn cpu_groups(groups: &str, mounts: &str) -> Vec<CpuGroup> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let version_2 = controllers.is_empty();
        if !version_2 && !controllers.split(',').any(|name| name == "cpu") {
            return None;
        }
        let directories = mounts.lines().find_map(|mount| directories(mount, version_2, path))?;
        Some(directories.into_iter().map(move |directory| CpuGroup { version_2, directory }))
    };
    groups.lines().filter_map(of_line).flatten().collect()
}

/// The directories of the group `path` and the groups above it, if `mount` (a line of mountinfo) shows them.
fn directories(mount: &str, version_2: bool, path: &str) -> Option<Vec<String>> {
    let (fields, kind) = mount.split_once(" - ")?;
    let mut fields = fields.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut kind = kind.split(' ');
    let (kind, options) = (kind.next()?, kind.nth(1)?);
    let fits = if version_2 {
        kind == "cgroup2"
    } else {
        kind == "cgroup" && options.split(',').any(|option| option == "cpu")
    };
    if !fits {
        return None;
    }
    // In a container without a cgroup namespace, the mount shows only a part of the tree.
    let below = if root == "/" { path } else { path.strip_prefix(root)? };
    let mut directory = format!("{point}{}", below.trim_end_matches('/'));
    let mut directories = vec![directory.clone()];
    while directory.len() > point.len() {
        directory.truncate(directory.rfind('/')?);
        directories.push(directory.clone());
    }
    Some(directories)
}

/// `cpu.max`: quota and period in microseconds, or `max`.
fn version_2_quota(directory: &str, read: impl Fn(&str) -> Option<String>) -> Option<f64> {
    let text = read(&format!("{directory}/cpu.max"))?;
    let mut words = text.split_ascii_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0).then_some(quota / period)
}

/// `cpu.cfs_quota_us` is -1 without a limit.
fn version_1_quota(directory: &str, read: impl Fn(&str) -> Option<String>) -> Option<f64> {
    let number = |name: &str| read(&format!("{directory}/{name}"))?.trim().parse::<f64>().ok();
    let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS_2: &str = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const MOUNTS_1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";

    fn files(files: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
        |path| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
    }

    #[test]
    fn version_2_takes_the_tightest_group_above() {
        let read = files(&[
            ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/cpu.max", "300000 100000\n"),
        ]);
        assert_eq!(quota("0::/a/b\n", MOUNTS_2, read), Some(1.5));
        assert_eq!(quota("0::/\n", MOUNTS_2, files(&[])), None);
    }

    #[test]
    fn version_1_knows_a_quota_by_its_sign() {
        let read = files(&[
            ("/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "50000\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n"),
        ]);
        let groups = "9:name=systemd:/\n4:memory:/x\n1:cpu,cpuacct:/pod\n0::/\n";
        assert_eq!(quota(groups, MOUNTS_1, read), Some(0.5));
        let read = files(&[
            ("/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(quota(groups, MOUNTS_1, read), None);
    }

    #[test]
    fn a_container_sees_its_own_part_of_the_tree() {
        let mounts = "35 24 0:30 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        let read = files(&[("/sys/fs/cgroup/cpu.max", "200000 100000")]);
        assert_eq!(quota("0::/docker/abc\n", mounts, read), Some(2.0));
        let read =
            files(&[("/sys/fs/cgroup/cpu.stat", "usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 40\n")]);
        assert_eq!(throttling("0::/docker/abc\n", mounts, read).map(|seen| seen.throttled_periods), Some(3));
    }
}
