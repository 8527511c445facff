//! Counters that the kernel tells as text: `/proc/stat`, `/proc/softirqs`, `/proc/net/*`, `/proc/<pid>/*`, cgroup files.
//!
//! Parsers are pure and take the text. What a file does not hold is absent.
#![allow(unsafe_code)]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How one CPU spent its time since the machine's start, as `/proc/stat` has it (proc_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTimes {
    /// Programs, niced ones included.
    pub user_ns: u64,
    /// The kernel on behalf of programs.
    pub system_ns: u64,
    /// Interrupts.
    pub irq_ns: u64,
    /// Deferred interrupt work: most of receiving.
    pub softirq_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
    /// Nothing to do, waiting for disks included.
    pub idle_ns: u64,
}

impl CpuTimes {
    /// Time at work: everything but idle and stolen time.
    pub const fn busy_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.irq_ns + self.softirq_ns
    }

    /// All time, stolen time included.
    pub const fn total_ns(&self) -> u64 {
        self.busy_ns() + self.steal_ns + self.idle_ns
    }

    /// The time spent since `before`. The kernel lets idle time step back by a tick at times (proc_stat(5)): that is none.
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
            irq_ns: self.irq_ns.saturating_sub(before.irq_ns),
            softirq_ns: self.softirq_ns.saturating_sub(before.softirq_ns),
            steal_ns: self.steal_ns.saturating_sub(before.steal_ns),
            idle_ns: self.idle_ns.saturating_sub(before.idle_ns),
        }
    }
}

/// One CPU's line of `/proc/net/softnet_stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Softnet {
    /// Packets taken from devices.
    pub processed: u64,
    /// Packets dropped since the CPU's backlog was full.
    pub dropped: u64,
    /// Times that the receive softirq ended with work left.
    pub squeezed: u64,
    /// Times that another CPU handed packets over (RPS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_rps: Option<u64>,
}

/// One CPU's network softirqs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetSoftirqs {
    /// `NET_RX`.
    pub receive: u64,
    /// `NET_TX`.
    pub transmit: u64,
}

/// One interface's counters (`/proc/net/dev`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// Bytes received, link headers included.
    pub rx_bytes: u64,
    /// Packets received; merged ones count once.
    pub rx_packets: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Packets dropped in receiving.
    pub rx_dropped: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent; super-packets count once.
    pub tx_packets: u64,
    /// Send errors.
    pub tx_errors: u64,
    /// Packets dropped in sending.
    pub tx_dropped: u64,
}

/// What a process has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Time in the program, in clock ticks' precision.
    pub user_ns: u64,
    /// Time in the kernel on its behalf, in clock ticks' precision.
    pub system_ns: u64,
    /// Both together, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// The most memory it ever had resident (`VmHWM`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Its threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
}

/// What a CPU quota did (cgroup `cpu.stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Throttling {
    /// Periods with a quota.
    pub periods: u64,
    /// Periods in which the quota ran out.
    pub throttled_periods: u64,
    /// Time that threads had to wait for the next period.
    pub throttled_ns: u64,
}

/// The length of a clock tick of `/proc` (`USER_HZ`; 10 ms on all known kernels, and asked for all the same).
pub fn tick_ns() -> u64 {
    // SAFETY: sysconf has no preconditions: an unknown name gives -1.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(per_second).ok().filter(|per_second| *per_second > 0).map_or(10_000_000, |hz| 1_000_000_000 / hz)
}

/// `/proc/stat`: the CPUs by number.
pub fn parse_stat(text: &str, tick_ns: u64) -> Option<BTreeMap<u32, CpuTimes>> {
    let cpus: BTreeMap<u32, CpuTimes> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
            // The first line, "cpu  ...", is the sum of all.
            let cpu = line.as_bytes().get(3)?.is_ascii_digit().then(|| words.next()?.parse().ok())??;
            let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let at = |index: usize| ticks.get(index).map(|ticks| ticks * tick_ns);
            Some((
                cpu,
                CpuTimes {
                    user_ns: at(0)? + at(1)?,
                    system_ns: at(2)?,
                    idle_ns: at(3)? + at(4).unwrap_or(0),
                    irq_ns: at(5)?,
                    softirq_ns: at(6)?,
                    steal_ns: at(7)?,
                },
            ))
        })
        .collect();
    (!cpus.is_empty()).then_some(cpus)
}

/// `/proc/softirqs`: the network's two rows, by CPU number.
pub fn parse_softirqs(text: &str) -> Option<BTreeMap<u32, NetSoftirqs>> {
    let mut lines = text.lines();
    let cpus: Vec<u32> =
        lines.next()?.split_ascii_whitespace().filter_map(|cpu| cpu.strip_prefix("CPU")?.parse().ok()).collect();
    let row = |name: &str| -> Option<Vec<u64>> {
        let counts = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
        counts.split_ascii_whitespace().map(|count| count.parse().ok()).collect()
    };
    let (receive, transmit) = (row("NET_RX")?, row("NET_TX")?);
    if cpus.is_empty() || receive.len() != cpus.len() || transmit.len() != cpus.len() {
        return None;
    }
    let counts = receive.into_iter().zip(transmit).map(|(receive, transmit)| NetSoftirqs { receive, transmit });
    Some(cpus.into_iter().zip(counts).collect())
}

/// `/proc/net/softnet_stat`: hexadecimal columns (net/core/net-procfs.c). The thirteenth is the CPU's number, since Linux
/// 5.10; before that the n-th line is the n-th CPU that is on line.
pub fn parse_softnet(text: &str) -> Option<BTreeMap<u32, Softnet>> {
    let lines: Option<BTreeMap<u32, Softnet>> = (0..)
        .zip(text.lines())
        .map(|(line_number, line)| {
            let columns: Option<Vec<u64>> =
                line.split_ascii_whitespace().map(|column| u64::from_str_radix(column, 16).ok()).collect();
            let columns = columns?;
            let cpu = columns.get(12).map_or(Some(line_number), |cpu| u32::try_from(*cpu).ok())?;
            let counts = Softnet {
                processed: *columns.first()?,
                dropped: *columns.get(1)?,
                squeezed: *columns.get(2)?,
                received_rps: columns.get(9).copied(),
            };
            Some((cpu, counts))
        })
        .collect();
    lines.filter(|lines| !lines.is_empty())
}

/// `/proc/net/dev`: one interface.
pub fn parse_interface(text: &str, interface: &str) -> Option<InterfaceCounters> {
    let counts = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let counts: Vec<u64> = counts.split_ascii_whitespace().map_while(|count| count.parse().ok()).collect();
    let at = |index: usize| counts.get(index).copied();
    Some(InterfaceCounters {
        rx_bytes: at(0)?,
        rx_packets: at(1)?,
        rx_errors: at(2)?,
        rx_dropped: at(3)?,
        tx_bytes: at(8)?,
        tx_packets: at(9)?,
        tx_errors: at(10)?,
        tx_dropped: at(11)?,
    })
}

/// `/proc/net/snmp` and `/proc/net/netstat`: pairs of lines, names and values, as `"Udp.RcvbufErrors"`.
pub fn parse_snmp(text: &str) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((same_group, values))) = (names.split_once(':'), values.split_once(':')) else {
            continue;
        };
        if group != same_group {
            continue;
        }
        for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
            // Tcp.MaxConn is -1: not a counter.
            if let Ok(value) = value.parse() {
                counters.insert(format!("{group}.{name}"), value);
            }
        }
    }
    counters
}

/// `/proc/net/snmp6`: a name and a value a line, as `"Udp6.RcvbufErrors"`.
pub fn parse_snmp6(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            let group = ["Ip6", "Udp6"].into_iter().find(|group| name.starts_with(group))?;
            Some((format!("{group}.{}", &name[group.len()..]), value.trim().parse().ok()?))
        })
        .collect()
}

/// `/proc/net/udp` and `udp6`: bytes that wait to be read, by local port; sockets in which nothing waits are left out
/// (net/ipv4/udp.c, `udp4_format_sock`).
pub fn parse_udp_waiting(text: &str) -> Option<BTreeMap<u16, u64>> {
    let mut waiting = BTreeMap::new();
    for line in text.lines().skip(1) {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let (local, queues) = (columns.next()?, columns.nth(2)?);
        let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        let bytes = u64::from_str_radix(queues.split_once(':')?.1, 16).ok()?;
        if bytes > 0 {
            *waiting.entry(port).or_default() += bytes;
        }
    }
    Some(waiting)
}

/// `/proc/<pid>/stat` and `/proc/<pid>/status`.
pub fn parse_process(stat: &str, status: Option<&str>, tick_ns: u64) -> Option<ProcessUse> {
    // The name in parentheses may itself hold parentheses and spaces: fields count from the last one (proc_pid_stat(5)).
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // The first field here is the third of the file.
    let at = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let peak = status.and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Some(ProcessUse {
        user_ns: at(14)? * tick_ns,
        system_ns: at(15)? * tick_ns,
        cpu_ns: None,
        peak_memory_bytes: peak.map(|kib| kib * 1024),
        threads: at(20),
    })
}

/// A cgroup's `cpu.stat`, of version 2 (`throttled_usec`) or 1 (`throttled_time`, in nanoseconds). `None` without a quota.
pub fn parse_throttling(text: &str) -> Option<Throttling> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(' ')?;
            (key == name).then(|| value.trim().parse::<u64>().ok()).flatten()
        })
    };
    Some(Throttling {
        periods: value("nr_periods")?,
        throttled_periods: value("nr_throttled")?,
        throttled_ns: value("throttled_usec").map(|us| us * 1000).or_else(|| value("throttled_time"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lines_are_read_by_number_and_the_sum_is_left_out() {
        let text = "cpu  30 0 0 400 0 0 0 0 0 0\ncpu0 10 1 5 100 2 3 4 6 0 0\ncpu3 20 0 0 300 0 0 96 0\nintr 5 0\n";
        let cpus = parse_stat(text, 10).unwrap();
        assert_eq!(cpus.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let expected =
            CpuTimes { user_ns: 110, system_ns: 50, irq_ns: 30, softirq_ns: 40, steal_ns: 60, idle_ns: 1020 };
        assert_eq!(cpus[&0], expected);
        assert_eq!((cpus[&0].busy_ns(), cpus[&0].total_ns()), (230, 1310));
        assert_eq!(parse_stat("intr 5\n", 10), None);
    }

    #[test]
    fn idle_time_that_steps_back_is_none() {
        let before = CpuTimes { idle_ns: 50, user_ns: 10, ..CpuTimes::default() };
        let after = CpuTimes { idle_ns: 40, user_ns: 30, ..CpuTimes::default() };
        assert_eq!(after.since(&before), CpuTimes { user_ns: 20, ..CpuTimes::default() });
    }

    #[test]
    fn what_waits_in_sockets_is_summed_by_port() {
        let text = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  \
                    12: 0200000A:5540 00000000:0000 07 00000000:00001500 00:00000000 00000000     0        0 99 2 0000000000000000 7\n  \
                    13: 00000000000000000000000001000000:5540 00000000000000000000000000000000:0000 07 00000200:00000100 00:00000000\n  \
                    14: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 98 2 0000000000000000 0\n";
        assert_eq!(parse_udp_waiting(text), Some(BTreeMap::from([(0x5540, 0x1600)])));
        assert_eq!(parse_udp_waiting("sl local_address\n 1: 0200000A\n"), None);
    }

    #[test]
    fn softirqs_of_offline_cpus_are_not_mixed_up() {
        let text = "                    CPU0       CPU2       \n          HI:          1          2\n      NET_TX:         30         40\n      NET_RX:        500        600\n";
        let softirqs = parse_softirqs(text).unwrap();
        assert_eq!(softirqs[&2], NetSoftirqs { receive: 600, transmit: 40 });
        assert_eq!(softirqs.len(), 2);
        assert_eq!(parse_softirqs(&text.replace("NET_TX", "NET_XX")), None);
    }

    #[test]
    fn softnet_columns_are_hexadecimal_and_old_kernels_have_fewer() {
        let new = "0000ff00 0000000a 0000001f 00000000 00000000 00000000 00000000 00000000 00000000 00000007 00000000 00000000 00000003 00000000 00000000\n";
        let expected = Softnet { processed: 0xff00, dropped: 10, squeezed: 31, received_rps: Some(7) };
        assert_eq!(parse_softnet(new).unwrap(), BTreeMap::from([(3, expected)]));
        let old = "00000001 00000002 00000003\n00000004 00000005 00000006\n";
        assert_eq!(parse_softnet(old).unwrap()[&1].squeezed, 6);
        assert_eq!(parse_softnet("not hexadecimal\n"), None);
        assert_eq!(parse_softnet(""), None);
    }

    #[test]
    fn an_interface_is_found_by_its_whole_name() {
        let text = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n   wg0: 11 22 33 44 0 0 0 0 55 66 77 88 0 0 0 0\n    wg:1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n";
        assert_eq!(parse_interface(text, "wg").unwrap().tx_dropped, 8);
        let wg0 = parse_interface(text, "wg0").unwrap();
        assert_eq!((wg0.rx_bytes, wg0.rx_packets, wg0.tx_bytes, wg0.tx_errors), (11, 22, 55, 77));
        assert_eq!(parse_interface(text, "wg1"), None);
    }

    #[test]
    fn protocol_counters_carry_their_group() {
        let text = "Tcp: MaxConn RetransSegs\nTcp: -1 12\nUdp: InDatagrams RcvbufErrors\nUdp: 7 3\n";
        let counters = parse_snmp(text);
        assert_eq!(counters.get("Udp.RcvbufErrors"), Some(&3));
        assert_eq!(counters.get("Tcp.RetransSegs"), Some(&12));
        assert_eq!(counters.get("Tcp.MaxConn"), None);
        let text = "Ip6InDiscards                   \t4\nUdp6RcvbufErrors                \t9\nIcmp6InMsgs 5\n";
        let counters = parse_snmp6(text);
        assert_eq!(counters, BTreeMap::from([("Ip6.InDiscards".to_owned(), 4), ("Udp6.RcvbufErrors".to_owned(), 9)]));
    }

    #[test]
    fn a_process_name_may_hold_anything() {
        let stat = "42 (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 9 0 100 0 0";
        let status = "Name:\ta\nVmPeak:\t 900 kB\nVmHWM:\t  128 kB\n";
        let process = parse_process(stat, Some(status), 10).unwrap();
        assert_eq!((process.user_ns, process.system_ns, process.threads), (2500, 500, Some(9)));
        assert_eq!(process.peak_memory_bytes, Some(131_072));
        assert_eq!(parse_process(stat, None, 10).unwrap().peak_memory_bytes, None);
        assert_eq!(parse_process("42 (a", None, 10), None);
    }

    #[test]
    fn throttling_of_both_cgroup_versions() {
        let v2 = "usage_usec 1\nnr_periods 10\nnr_throttled 3\nthrottled_usec 5000\n";
        let v1 = "nr_periods 10\nnr_throttled 3\nthrottled_time 5000000\n";
        let expected = Throttling { periods: 10, throttled_periods: 3, throttled_ns: 5_000_000 };
        assert_eq!(parse_throttling(v2), Some(expected));
        assert_eq!(parse_throttling(v1), Some(expected));
        assert_eq!(parse_throttling("usage_usec 1\nuser_usec 1\n"), None);
    }
}
