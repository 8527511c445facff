//! What a node is and can do, as far as it matters to a measurement. What cannot be found out is absent.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

use crate::sys::cgroup;
use crate::sys::netlink::{LinkKind, Netlink, NetlinkError};
use crate::sys::sysctl;
use crate::units::Bytes;

mod machine;
mod tun;

pub use tun::TunRefusal;

/// A node's facts, of the process that asks and its network namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The kernel's release: `6.18.44`.
    pub kernel: String,
    /// The instruction set: `x86_64`.
    pub architecture: String,
    /// The CPU's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// CPUs that this process may run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// The CPU time that the cgroup grants, in CPUs; absent where nothing limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<f64>,
    /// Main memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// What the machine runs on, where it shows that it is not bare: `hypervisor: KVM`, `WSL2`, `container: docker`.
    pub virtualisation: Vec<String>,
    /// Whether this process is root in its user namespace.
    pub root: bool,
    /// Whether its user namespace is not the machine's own; absent where the system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_namespace: Option<bool>,
    /// Whether TUN devices can be made, found out by making one.
    pub tun: Result<(), TunRefusal>,
    /// The interfaces by name; absent where the system does not list them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<BTreeMap<String, InterfaceFacts>>,
    /// TCP's congestion controls.
    pub congestion_controls: CongestionControls,
    /// The most that a socket's receive buffer may be set to (`net.core.rmem_max`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmem_max: Option<Bytes>,
    /// The same for send buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wmem_max: Option<Bytes>,
    /// The most files that a process may have open, now and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<OpenFiles>,
    /// Kernel settings that people tune and that do not exist here, as in a network namespace.
    pub missing_settings: Vec<String>,
    /// Those that exist and cannot be changed from here.
    pub fixed_settings: Vec<String>,
}

/// An interface as found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceFacts {
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether it passes packets.
    pub running: bool,
    /// Its addresses with their prefixes.
    pub addresses: Vec<IpNet>,
    /// What it is, by the kernel's name: `veth`, `tun`, `wireguard`; absent for a plain device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether a userspace WireGuard offers its UAPI socket for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uapi_socket: bool,
}

impl InterfaceFacts {
    /// Whether it is a WireGuard device, as far as can be seen. Such a device can be read.
    pub fn is_wireguard(&self) -> bool {
        self.uapi_socket || self.kind.as_deref() == Some("wireguard")
    }
}

/// TCP's congestion controls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CongestionControls {
    /// What a socket gets that does not ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// What the kernel has loaded; absent where it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<Vec<String>>,
    /// What may be asked for without privilege; absent where it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
}

/// Limits on open files. The soft one can be raised to the hard one by anyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFiles {
    /// In force.
    pub soft: u64,
    /// The most that it can be raised to.
    pub hard: u64,
}

/// Where userspace implementations of WireGuard listen (wireguard.com/xplatform).
const UAPI_SOCKETS: &str = "/var/run/wireguard";

/// What the references and their readers tune.
const TUNED: [&str; 10] = [
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.netfilter.nf_conntrack_max",
];

/// Finds them out.
pub fn facts() -> Facts {
    let read = |path: &str| fs::read_to_string(path).ok();
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let (kernel, architecture) = machine::kernel();
    let words = |name: &str| {
        sysctl::read(name).ok().map(|text| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let bytes = |name: &str| sysctl::read(name).ok().and_then(|text| text.parse().ok()).map(Bytes::new);
    // One that cannot be looked at is neither missing nor fixed.
    let is_there = |there: bool| move |name: &&str| setting(name).try_exists().is_ok_and(|exists| exists == there);
    let missing = TUNED.into_iter().filter(is_there(false));
    let fixed = TUNED.into_iter().filter(is_there(true)).filter(|name| {
        matches!(access(&setting(name), AccessFlags::W_OK), Err(Errno::EACCES | Errno::EPERM | Errno::EROFS))
    });
    Facts {
        virtualisation: machine::virtualisation(&kernel, &cpuinfo, read),
        kernel,
        architecture,
        cpu_model: machine::cpu_model(&cpuinfo),
        cpus: std::thread::available_parallelism().ok().and_then(|cpus| u32::try_from(cpus.get()).ok()),
        cpu_quota: cgroup::quota(
            &read("/proc/self/cgroup").unwrap_or_default(),
            &read("/proc/self/mountinfo").unwrap_or_default(),
            |path| fs::read_to_string(path).ok(),
        ),
        memory: machine::memory(&read("/proc/meminfo").unwrap_or_default()),
        root: nix::unistd::geteuid().is_root(),
        user_namespace: read("/proc/self/uid_map").map(|map| !machine::is_machines_own(&map)),
        tun: tun::probe(),
        interfaces: interfaces().ok(),
        congestion_controls: CongestionControls {
            default: sysctl::read("net.ipv4.tcp_congestion_control").ok(),
            available: words("net.ipv4.tcp_available_congestion_control"),
            allowed: words("net.ipv4.tcp_allowed_congestion_control"),
        },
        rmem_max: bytes("net.core.rmem_max"),
        wmem_max: bytes("net.core.wmem_max"),
        open_files: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, hard)| OpenFiles { soft, hard }),
        missing_settings: missing.map(str::to_owned).collect(),
        fixed_settings: fixed.map(str::to_owned).collect(),
    }
}

impl Facts {
    /// The interface that has `address`.
    pub fn interface_of(&self, address: IpAddr) -> Option<String> {
        let interfaces = self.interfaces.as_ref()?;
        let has = |facts: &InterfaceFacts| facts.addresses.iter().any(|net| net.addr() == address);
        interfaces.iter().find(|(_, facts)| has(facts)).map(|(name, _)| name.clone())
    }
}

fn interfaces() -> Result<BTreeMap<String, InterfaceFacts>, NetlinkError> {
    let netlink = Netlink::open()?;
    let mut interfaces = BTreeMap::new();
    for link in netlink.links()? {
        let addresses = netlink.addresses(link.index, &link.name)?.into_iter().map(|address| address.net).collect();
        let kind = match link.kind {
            LinkKind::Veth => Some("veth".to_owned()),
            LinkKind::Bridge => Some("bridge".to_owned()),
            LinkKind::Other(kind) => kind,
        };
        let uapi_socket = Path::new(UAPI_SOCKETS).join(format!("{}.sock", link.name)).exists();
        let facts = InterfaceFacts { mtu: link.mtu, running: link.running, addresses, kind, uapi_socket };
        interfaces.insert(link.name, facts);
    }
    Ok(interfaces)
}

fn setting(name: &str) -> std::path::PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_facts() {
        let facts = facts();
        assert!(facts.kernel.starts_with(|first: char| first.is_ascii_digit()));
        assert!(facts.cpus.is_some_and(|cpus| cpus > 0));
        assert!(facts.memory.is_some_and(|memory| memory.get() > 1 << 20));
        assert!(facts.open_files.is_some_and(|files| files.hard >= files.soft));
        assert!(facts.congestion_controls.available.as_ref().unwrap().contains(&"reno".to_owned()));
        let loopback = facts.interface_of([127, 0, 0, 1].into());
        assert_eq!(loopback.as_deref(), Some("lo"));
        let json = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<Facts>(&json).unwrap(), facts);
    }
}
