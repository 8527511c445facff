//! Meters around a run: what the machine, its CPUs, interfaces, protocols and the engine's process did meanwhile.
//!
//! A [`Snapshot`] is read before and after; their [`Delta`] belongs to the run. CPU, softirq and softnet counters are
//! the machine's, whatever the namespace; interfaces and protocols are the calling thread's network namespace's.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::sys::proc::{
    self, CpuTimes, InterfaceCounters, NetSoftirqs, ProcessUse, Softnet, Throttling, parse_interface, parse_process,
    parse_snmp, parse_snmp6, parse_softirqs, parse_softnet, parse_stat,
};
use crate::sys::{cgroup, clock};

/// The protocol counters that explain a figure, as `group.name` of `/proc/net/snmp`, `snmp6` and `netstat`.
const PROTOCOL_COUNTERS: [&str; 56] = [
    "Ip.InDiscards",
    "Ip.OutDiscards",
    "Ip.ReasmReqds",
    "Ip.ReasmOKs",
    "Ip.ReasmFails",
    "Ip.FragOKs",
    "Ip.FragFails",
    "Ip.FragCreates",
    "Tcp.InSegs",
    "Tcp.OutSegs",
    "Tcp.RetransSegs",
    "Tcp.InErrs",
    "Tcp.OutRsts",
    "Tcp.AttemptFails",
    "Udp.InDatagrams",
    "Udp.OutDatagrams",
    "Udp.NoPorts",
    "Udp.InErrors",
    "Udp.RcvbufErrors",
    "Udp.SndbufErrors",
    "Udp.InCsumErrors",
    "Udp.MemErrors",
    "Ip6.InDiscards",
    "Ip6.OutDiscards",
    "Ip6.InTooBigErrors",
    "Ip6.ReasmReqds",
    "Ip6.ReasmOKs",
    "Ip6.ReasmFails",
    "Ip6.FragOKs",
    "Ip6.FragFails",
    "Ip6.FragCreates",
    "Udp6.InDatagrams",
    "Udp6.OutDatagrams",
    "Udp6.NoPorts",
    "Udp6.InErrors",
    "Udp6.RcvbufErrors",
    "Udp6.SndbufErrors",
    "Udp6.InCsumErrors",
    "TcpExt.TCPLostRetransmit",
    "TcpExt.TCPFastRetrans",
    "TcpExt.TCPSlowStartRetrans",
    "TcpExt.TCPSynRetrans",
    "TcpExt.TCPTimeouts",
    "TcpExt.TCPLossProbes",
    "TcpExt.TCPSpuriousRTOs",
    "TcpExt.TCPDSACKRecv",
    "TcpExt.TCPDSACKOldSent",
    "TcpExt.TCPSACKReorder",
    "TcpExt.TCPTSReorder",
    "TcpExt.TCPOFOQueue",
    "TcpExt.TCPBacklogDrop",
    "TcpExt.TCPRcvQDrop",
    "TcpExt.TCPRcvCollapsed",
    "TcpExt.PruneCalled",
    "TcpExt.ListenOverflows",
    "TcpExt.ListenDrops",
];

/// Reads the meters.
pub struct Meters;

impl Meters {
    /// One reading: `interfaces` by name, `processes` by their ids in this process's namespace. What cannot be read is
    /// absent, and named in [`Snapshot::unreadable`]. Takes well under 3 ms.
    pub fn read(interfaces: &[impl AsRef<str>], processes: &[i32]) -> Snapshot {
        let tick_ns = proc::tick_ns();
        let mut reader = Reader { unreadable: Vec::new() };
        let cpus = reader.file("/proc/stat", |text| parse_stat(text, tick_ns));
        let softirqs = reader.file("/proc/softirqs", parse_softirqs);
        // The thread's own network namespace, not the process's first thread's.
        let softnet = reader.file("/proc/thread-self/net/softnet_stat", parse_softnet);
        let devices = reader.file("/proc/thread-self/net/dev", |text| Some(text.to_owned())).unwrap_or_default();
        let mut by_name = BTreeMap::new();
        for name in interfaces.iter().map(AsRef::as_ref) {
            match parse_interface(&devices, name) {
                Some(counters) => {
                    by_name.insert(name.to_owned(), counters);
                }
                None => reader.unreadable.push(format!("interface {name}")),
            }
        }
        let mut protocols = BTreeMap::new();
        let whole = |parse: fn(&str) -> BTreeMap<String, u64>| move |text: &str| Some(parse(text));
        for (path, parse) in [("snmp", parse_snmp as fn(&str) -> _), ("snmp6", parse_snmp6), ("netstat", parse_snmp)] {
            let read = reader.file(&format!("/proc/thread-self/net/{path}"), whole(parse));
            protocols.extend(read.unwrap_or_default());
        }
        protocols.retain(|name, _| PROTOCOL_COUNTERS.contains(&name.as_str()));
        let mut by_pid = BTreeMap::new();
        for pid in processes {
            let status = reader.file(&format!("/proc/{pid}/status"), |text| Some(text.to_owned()));
            let read =
                reader.file(&format!("/proc/{pid}/stat"), |text| parse_process(text, status.as_deref(), tick_ns));
            if let Some(used) = read {
                by_pid.insert(*pid, ProcessUse { cpu_ns: clock::process_cpu_ns(*pid), ..used });
            }
        }
        Snapshot {
            at_ns: clock::now_ns(),
            cpus,
            softirqs,
            softnet,
            interfaces: by_name,
            protocols,
            processes: by_pid,
            throttling: throttling(),
            unreadable: reader.unreadable,
        }
    }
}

struct Reader {
    unreadable: Vec<String>,
}

impl Reader {
    fn file<T>(&mut self, path: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let parsed = parse(&text);
                if parsed.is_none() {
                    self.unreadable.push(format!("{path}: not in the known form"));
                }
                parsed
            }
            Err(error) => {
                self.unreadable.push(format!("{path}: {error}"));
                None
            }
        }
    }
}

/// How often this process's cgroup was held back.
fn throttling() -> Option<Throttling> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    cgroup::throttling(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?, read)
}

/// One reading of all meters: counters since the machine, interface or process began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// When, by the monotonic clock.
    pub at_ns: u64,
    /// CPU time by CPU number.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "numbered_if_any")]
    pub cpus: Option<BTreeMap<u32, CpuTimes>>,
    /// Network softirqs by CPU number.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "numbered_if_any")]
    pub softirqs: Option<BTreeMap<u32, NetSoftirqs>>,
    /// Packets through the CPUs' backlogs.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "numbered_if_any")]
    pub softnet: Option<BTreeMap<u32, Softnet>>,
    /// Interface counters by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<String, InterfaceCounters>,
    /// Protocol counters, as `"Udp.RcvbufErrors"` (IPv4 and, of TCP, both) and `"Udp6.RcvbufErrors"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub protocols: BTreeMap<String, u64>,
    /// Processes by id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "numbered")]
    pub processes: BTreeMap<i32, ProcessUse>,
    /// The CPU quota's effect; absent without a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Throttling>,
    /// What could not be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// What happened between two snapshots. In the same shape, but that counters are differences. A counter that went back
/// (an interface or process made anew) is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Delta {
    /// The time between them.
    pub length_ns: u64,
    /// CPU time by CPU number.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "numbered_if_any")]
    pub cpus: Option<BTreeMap<u32, CpuTimes>>,
    /// Network softirqs by CPU number.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "numbered_if_any")]
    pub softirqs: Option<BTreeMap<u32, NetSoftirqs>>,
    /// Packets through the CPUs' backlogs.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "numbered_if_any")]
    pub softnet: Option<BTreeMap<u32, Softnet>>,
    /// Interface counters by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<String, InterfaceCounters>,
    /// Protocol counters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub protocols: BTreeMap<String, u64>,
    /// Processes: CPU time spent in between; peak memory and threads as in the later snapshot.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "numbered")]
    pub processes: BTreeMap<i32, ProcessUse>,
    /// The CPU quota's effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Throttling>,
    /// What could not be read in either, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

impl Snapshot {
    /// What happened from this snapshot to `later`.
    pub fn delta(&self, later: &Self) -> Delta {
        let mut unreadable = self.unreadable.clone();
        unreadable.extend(later.unreadable.iter().filter(|reason| !self.unreadable.contains(reason)).cloned());
        Delta {
            length_ns: later.at_ns.saturating_sub(self.at_ns),
            cpus: optional(self.cpus.as_ref(), later.cpus.as_ref(), |a, b| Some(b.since(a))),
            softirqs: optional(self.softirqs.as_ref(), later.softirqs.as_ref(), |a, b| {
                Some(NetSoftirqs {
                    receive: b.receive.checked_sub(a.receive)?,
                    transmit: b.transmit.checked_sub(a.transmit)?,
                })
            }),
            softnet: optional(self.softnet.as_ref(), later.softnet.as_ref(), |a, b| {
                Some(Softnet {
                    processed: wrapping32(a.processed, b.processed),
                    dropped: wrapping32(a.dropped, b.dropped),
                    squeezed: wrapping32(a.squeezed, b.squeezed),
                    received_rps: a.received_rps.zip(b.received_rps).map(|(a, b)| wrapping32(a, b)),
                })
            }),
            interfaces: differences(&self.interfaces, &later.interfaces, interface_since),
            protocols: differences(&self.protocols, &later.protocols, |a, b| b.checked_sub(*a)),
            processes: differences(&self.processes, &later.processes, process_since),
            throttling: self.throttling.zip(later.throttling).and_then(|(a, b)| {
                Some(Throttling {
                    periods: b.periods.checked_sub(a.periods)?,
                    throttled_periods: b.throttled_periods.checked_sub(a.throttled_periods)?,
                    throttled_ns: b.throttled_ns.checked_sub(a.throttled_ns)?,
                })
            }),
            unreadable,
        }
    }
}

impl Delta {
    /// CPU seconds at work, of all CPUs together.
    pub fn busy_seconds(&self) -> Option<f64> {
        let cpus = self.cpus.as_ref()?;
        Some(cpus.values().map(CpuTimes::busy_ns).sum::<u64>() as f64 / 1e9)
    }

    /// CPU seconds of the whole machine for every Gbit of `payload_bytes`.
    pub fn cpu_seconds_per_gbit(&self, payload_bytes: u64) -> Option<f64> {
        (payload_bytes > 0).then(|| Some(self.busy_seconds()? / (payload_bytes as f64 * 8.0 / 1e9)))?
    }

    /// The part of one CPU's time that went into softirqs, and the CPU where that was largest.
    pub fn hottest_softirq(&self) -> Option<(u32, f64)> {
        self.hottest(|times| times.softirq_ns)
    }

    /// The part of one CPU's time that it was at work, and the CPU where that was largest.
    pub fn hottest_busy(&self) -> Option<(u32, f64)> {
        self.hottest(CpuTimes::busy_ns)
    }

    fn hottest(&self, part: impl Fn(&CpuTimes) -> u64) -> Option<(u32, f64)> {
        let shares = self.cpus.as_ref()?.iter().filter(|(_, times)| times.total_ns() > 0);
        shares
            .map(|(cpu, times)| (*cpu, part(times) as f64 / times.total_ns() as f64))
            .max_by(|left, right| left.1.total_cmp(&right.1))
    }

    /// The part of all CPU time that the hypervisor took.
    pub fn steal_fraction(&self) -> Option<f64> {
        let cpus = self.cpus.as_ref()?;
        let total = cpus.values().map(CpuTimes::total_ns).sum::<u64>();
        (total > 0).then(|| cpus.values().map(|times| times.steal_ns).sum::<u64>() as f64 / total as f64)
    }

    /// Bytes per packet that an interface received: whether the host underneath merges (its delivery). Absent
    /// without a packet.
    pub fn bytes_per_received_packet(&self, interface: &str) -> Option<f64> {
        let counters = self.interfaces.get(interface)?;
        (counters.rx_packets > 0).then(|| counters.rx_bytes as f64 / counters.rx_packets as f64)
    }
}

/// Reads a map with numbers for keys. JSON's keys are text, and serde turns them into numbers by itself only where nothing
/// buffers them, as internally tagged enums do.
fn numbered<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: FromStr + Ord,
    V: Deserialize<'de>,
{
    let map = BTreeMap::<String, V>::deserialize(deserializer)?;
    map.into_iter()
        .map(|(key, value)| match key.parse() {
            Ok(number) => Ok((number, value)),
            Err(_) => Err(de::Error::custom(format!("`{key}` is not a number"))),
        })
        .collect()
}

/// As [`numbered`]; called only where the key is there.
fn numbered_if_any<'de, D, K, V>(deserializer: D) -> Result<Option<BTreeMap<K, V>>, D::Error>
where
    D: Deserializer<'de>,
    K: FromStr + Ord,
    V: Deserialize<'de>,
{
    numbered(deserializer).map(Some)
}

fn optional<K: Ord + Copy, V>(
    before: Option<&BTreeMap<K, V>>,
    after: Option<&BTreeMap<K, V>>,
    since: impl Fn(&V, &V) -> Option<V>,
) -> Option<BTreeMap<K, V>> {
    Some(differences(before?, after?, since))
}

/// The differences of what both hold.
fn differences<K: Ord + Clone, V>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    since: impl Fn(&V, &V) -> Option<V>,
) -> BTreeMap<K, V> {
    before.iter().filter_map(|(key, before)| Some((key.clone(), since(before, after.get(key)?)?))).collect()
}

/// softnet counters are 32 bits wide and go round.
fn wrapping32(before: u64, after: u64) -> u64 {
    u64::from((after as u32).wrapping_sub(before as u32))
}

fn interface_since(before: &InterfaceCounters, after: &InterfaceCounters) -> Option<InterfaceCounters> {
    Some(InterfaceCounters {
        rx_bytes: after.rx_bytes.checked_sub(before.rx_bytes)?,
        rx_packets: after.rx_packets.checked_sub(before.rx_packets)?,
        rx_errors: after.rx_errors.checked_sub(before.rx_errors)?,
        rx_dropped: after.rx_dropped.checked_sub(before.rx_dropped)?,
        tx_bytes: after.tx_bytes.checked_sub(before.tx_bytes)?,
        tx_packets: after.tx_packets.checked_sub(before.tx_packets)?,
        tx_errors: after.tx_errors.checked_sub(before.tx_errors)?,
        tx_dropped: after.tx_dropped.checked_sub(before.tx_dropped)?,
    })
}

fn process_since(before: &ProcessUse, after: &ProcessUse) -> Option<ProcessUse> {
    Some(ProcessUse {
        user_ns: after.user_ns.checked_sub(before.user_ns)?,
        system_ns: after.system_ns.checked_sub(before.system_ns)?,
        cpu_ns: before.cpu_ns.zip(after.cpu_ns).and_then(|(before, after)| after.checked_sub(before)),
        peak_memory_bytes: after.peak_memory_bytes,
        threads: after.threads,
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn the_live_machine_is_read_whole_and_fast() {
        let own = std::process::id() as i32;
        let before = Meters::read(&["lo"], &[own]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..50 {
            socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        }
        let begin_ns = clock::thread_cpu_ns();
        let after = Meters::read(&["lo"], &[own]);
        let took_ns = clock::thread_cpu_ns() - begin_ns;
        let delta = before.delta(&after);
        assert!(delta.interfaces["lo"].rx_bytes >= 50_000);
        assert!(delta.protocols["Udp.OutDatagrams"] >= 50);
        assert!(delta.processes[&own].cpu_ns.unwrap() > 0);
        assert!(delta.processes[&own].peak_memory_bytes.unwrap() > 100_000);
        assert!(delta.cpus.is_some() && delta.softirqs.is_some() && delta.softnet.is_some());
        assert!(delta.bytes_per_received_packet("lo").is_some());
        assert_eq!(delta.unreadable, [""; 0]);
        // 3 ms are the bound of an optimised build on an idle machine.
        assert!(took_ns < 60_000_000, "{took_ns}");
        let json = serde_json::to_string(&delta).unwrap();
        assert_eq!(serde_json::from_str::<Delta>(&json).unwrap(), delta);
    }

    #[test]
    fn a_delta_survives_a_tagged_message() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "tell")]
        enum Tell {
            Meters { delta: Delta },
        }
        let own = std::process::id() as i32;
        let snapshot = Meters::read(&["lo"], &[own]);
        let tell = Tell::Meters { delta: snapshot.delta(&snapshot) };
        let json = serde_json::to_string(&tell).unwrap();
        assert_eq!(serde_json::from_str::<Tell>(&json).unwrap(), tell);
    }

    #[test]
    fn what_is_not_there_is_absent_and_named() {
        let snapshot = Meters::read(&["nosuch0"], &[i32::MAX - 1]);
        assert!(snapshot.interfaces.is_empty() && snapshot.processes.is_empty());
        assert!(snapshot.unreadable.iter().any(|reason| reason.contains("nosuch0")), "{:?}", snapshot.unreadable);
        assert!(snapshot.delta(&snapshot).bytes_per_received_packet("nosuch0").is_none());
    }

    #[test]
    fn one_hot_core_is_found_whatever_the_mean_says() {
        let cpu = |softirq_ns, idle_ns| CpuTimes { softirq_ns, idle_ns, ..CpuTimes::default() };
        let cpus = BTreeMap::from([(0, cpu(2, 98)), (1, cpu(3, 97)), (2, cpu(100, 0)), (3, cpu(1, 99))]);
        let delta = Delta { cpus: Some(cpus), ..Delta::default() };
        assert_eq!(delta.hottest_softirq(), Some((2, 1.0)));
    }

    #[test]
    fn a_counter_that_went_back_is_absent_and_a_narrow_one_goes_round() {
        let counters = |rx_bytes| InterfaceCounters { rx_bytes, ..InterfaceCounters::default() };
        let softnet = |processed| Some(BTreeMap::from([(0, Softnet { processed, ..Softnet::default() })]));
        let before = Snapshot {
            interfaces: BTreeMap::from([("wg0".to_owned(), counters(500))]),
            softnet: softnet(0xffff_fff0),
            ..Snapshot::default()
        };
        let after = Snapshot {
            interfaces: BTreeMap::from([("wg0".to_owned(), counters(20))]),
            softnet: softnet(0x10),
            ..Snapshot::default()
        };
        let delta = before.delta(&after);
        assert!(delta.interfaces.is_empty());
        assert_eq!(delta.softnet.as_ref().unwrap()[&0].processed, 0x20);
        assert_eq!((delta.cpus.as_ref(), delta.busy_seconds(), delta.cpu_seconds_per_gbit(1)), (None, None, None));
    }

    #[test]
    fn cost_is_per_gigabit_of_payload() {
        let busy = CpuTimes { user_ns: 1_500_000_000, softirq_ns: 500_000_000, idle_ns: 9, ..CpuTimes::default() };
        let delta = Delta { cpus: Some(BTreeMap::from([(0, busy)])), ..Delta::default() };
        assert_eq!(delta.cpu_seconds_per_gbit(500_000_000), Some(0.5));
        assert_eq!(delta.cpu_seconds_per_gbit(0), None);
    }
}
