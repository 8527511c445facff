//! What one end of a test saw. Absent is absent: no field stands for "not measured" with a zero.
//!
//! Both ends have an outcome. A rate is computed from the *receiver's*: unique bytes in its window; the sender's
//! counts are shown beside it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::histogram::{self, Histogram};
use super::job::{Job, Role};
use crate::units::{BitRate, Bytes, Direction, Span};

/// What one end of a test saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which end.
    pub role: Role,
    /// The kind of the job, as topologies spell it.
    pub kind: String,
    /// Which way the bulk data went.
    pub direction: Direction,
    /// The window that the counts belong to; absent at an end that only answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Totals within the window.
    pub counts: Counts,
    /// The parts of the totals, in the order of the connections or flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamCounts>,
    /// Unique bytes received (by a sender: sent) over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// Times within the window when no stream moved a byte, [`Gap::THRESHOLD_NS`] or longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// Round trips of requests, connections or pings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Round trips under load, at the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// How late a paced sender's bursts were: its own part in the shape of the traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Histogram>,
    /// What held, read back from the live sockets.
    pub conditions: Conditions,
    /// TCP's own account, per stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<TcpSummary>,
    /// What a reader must know before trusting the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<Caution>,
}

impl Outcome {
    /// An outcome of `job` that tells nothing yet.
    pub(super) fn new(job: &Job) -> Self {
        Self {
            role: job.role,
            kind: job.kind.name().to_owned(),
            direction: job.direction,
            window: None,
            counts: Counts::default(),
            streams: Vec::new(),
            series: None,
            gaps: Vec::new(),
            latency: None,
            probe: None,
            lateness: None,
            conditions: Conditions::default(),
            tcp: Vec::new(),
            cautions: Vec::new(),
        }
    }

    /// Unique bytes received over the window: the result of a stream, at its receiver.
    pub fn received_rate(&self) -> Option<BitRate> {
        BitRate::mean(Bytes::new(self.counts.received_bytes?), Duration::from_nanos(self.window?.length_ns))
    }

    /// Transactions per second in the window: the result of a request test, at its client.
    pub fn transactions_per_second(&self) -> Option<f64> {
        let window = self.window?;
        (window.length_ns > 0)
            .then(|| self.counts.transactions.map(|count| count as f64 * 1e9 / window.length_ns as f64))
            .flatten()
    }

    /// Lost datagrams over sent ones, both of the measured part: at the receiver if the sender's count reached it.
    pub fn loss_fraction(&self) -> Option<f64> {
        let sent = self.counts.peer_sent_packets?;
        (sent > 0).then(|| self.counts.lost_packets.map(|lost| lost as f64 / sent as f64)).flatten()
    }
}

/// The measured window, by this end's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// From the job's start to the first byte (a sender's: to its first send).
    pub first_byte_after_ns: u64,
    /// From the first byte to the window's begin: the warm-up that was left out.
    pub warmup_ns: u64,
    /// The window's length: what counts are divided by.
    pub length_ns: u64,
}

/// Totals of one end within the window.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Payload bytes that the kernel took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Payload bytes that arrived, each once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Datagrams that the schedule called for (unpaced: that were tried).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_packets: Option<u64>,
    /// Datagrams or echo requests that the kernel took, in the measured part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_packets: Option<u64>,
    /// The sender's count of its measured datagrams, as told to the receiver by the sender at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_sent_packets: Option<u64>,
    /// Datagrams that arrived within the window, each once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_packets: Option<u64>,
    /// Measured datagrams (or pings) that never arrived; of the sender's count where that reached the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_packets: Option<u64>,
    /// Datagrams that arrived after one that was sent later (RFC 4737 section 3.3: sequence number below the next
    /// expected one). Reordered is not lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reordered_packets: Option<u64>,
    /// Second and further copies of a datagram or an answer. Not in `received_packets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_packets: Option<u64>,
    /// Datagrams that came so late that it is no longer known whether they were copies. Not in `received_packets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_packets: Option<u64>,
    /// Datagrams that the receiving socket's full buffer dropped (`SO_MEMINFO`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_drops: Option<u64>,
    /// Requests answered in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<u64>,
    /// Requests (or connections) given up after the time-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<u64>,
    /// The mean variation of the transit time from one datagram to the next, smoothed as in RFC 3550 section 6.4.1, at the
    /// window's end. Arrival is when the receiver's kernel got a datagram; those of one burst were sent together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<u64>,
    /// TCP segments sent again (`TCP_INFO`, this end's sending).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// Failed calls by the errno's name (`"ENOBUFS"`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
}

impl Counts {
    /// Counts a failed call under its errno's name.
    pub(super) fn add_error(&mut self, error: &io::Error) {
        let name = match error.raw_os_error() {
            Some(errno) => format!("{:?}", nix::errno::Errno::from_raw(errno)),
            None => format!("{:?}", error.kind()),
        };
        *self.errors.entry(name).or_default() += 1;
    }

    /// Adds another flow's counts to these. The jitter becomes the larger one.
    pub(super) fn add(&mut self, other: &Self) {
        let sum = |one: &mut Option<u64>, other: Option<u64>| {
            *one = one.zip(other).map(|(one, other)| one + other).or(*one).or(other);
        };
        sum(&mut self.sent_bytes, other.sent_bytes);
        sum(&mut self.received_bytes, other.received_bytes);
        sum(&mut self.offered_packets, other.offered_packets);
        sum(&mut self.sent_packets, other.sent_packets);
        sum(&mut self.peer_sent_packets, other.peer_sent_packets);
        sum(&mut self.received_packets, other.received_packets);
        sum(&mut self.lost_packets, other.lost_packets);
        sum(&mut self.reordered_packets, other.reordered_packets);
        sum(&mut self.duplicate_packets, other.duplicate_packets);
        sum(&mut self.stale_packets, other.stale_packets);
        sum(&mut self.socket_drops, other.socket_drops);
        sum(&mut self.transactions, other.transactions);
        sum(&mut self.timeouts, other.timeouts);
        sum(&mut self.retransmitted_segments, other.retransmitted_segments);
        self.jitter_ns = self.jitter_ns.max(other.jitter_ns);
        for (name, count) in &other.errors {
            *self.errors.entry(name.clone()).or_default() += count;
        }
    }
}

/// The part of one stream or flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCounts {
    /// Bytes of this stream in the window, in the direction of the bulk data.
    pub bytes: u64,
    /// Datagrams, for flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// The drops of this flow's receiving socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_drops: Option<u64>,
    /// CPU time that this stream's thread used in the window, the kernel's work on its behalf included. A thread that used
    /// all of the window's time was what bound its stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
}

/// Bytes over time. The last interval may be shorter than the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// The length of an interval.
    pub interval_ns: u64,
    /// The length of the last interval.
    pub last_interval_ns: u64,
    /// Bytes per interval, from the window's begin.
    pub bytes: Vec<u64>,
}

impl Series {
    /// The length of an interval in every series.
    pub const INTERVAL_NS: u64 = 100_000_000;
}

/// A time without a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// From the window's begin.
    pub at_ns: u64,
    /// Its length.
    pub length_ns: u64,
}

impl Gap {
    /// Shorter silences are not reported.
    pub const THRESHOLD_NS: u64 = 50_000_000;
}

/// How latencies were sampled: it decides what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampling {
    /// The next request waits for the last answer: a stall is one sample, however long.
    ClosedLoop,
    /// Sent on a schedule and counted from the *intended* time: a stall delays every sample that falls into it
    /// (corrected for coordinated omission).
    Paced,
}

/// A distribution of round trips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How they were sampled.
    pub sampling: Sampling,
    /// The samples of the window.
    pub histogram: Histogram,
    /// Requests of the window without an answer: lost, or given up. They have no latency, and are not in the histogram.
    pub unanswered: u64,
}

impl Latency {
    /// A percentile in which the unanswered count as slower than any answer; absent where it falls among them, or where
    /// fewer than ten samples lie beyond it.
    pub fn quantile_with_unanswered_ns(&self, quantile: f64) -> Option<u64> {
        let answered = self.histogram.count();
        let all = answered + self.unanswered;
        let rank = (quantile.clamp(0.0, 1.0) * all as f64).ceil().max(1.0) as u64;
        (all >= rank + histogram::SAMPLES_BEYOND).then(|| self.histogram.value_at_rank_ns(rank)).flatten()
    }
}

/// Round trips of small datagrams beside a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Probes whose intended time lies in the window; the answered ones are in the histogram, the others lost.
    pub sent: u64,
    /// From the intended time of sending to the answer.
    pub latency: Latency,
    /// How late the probes were sent: this end's own part in the latency.
    pub lateness: Histogram,
}

/// What held while the test ran, read back from the live sockets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// This end of the first connection or flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// The other end of the first connection or flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// The interface that the socket is bound to (`SO_BINDTODEVICE`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_interface: Option<String>,
    /// The interface that holds the local address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// That interface's MTU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_mtu: Option<u32>,
    /// The path MTU that the kernel holds for the connection (`IP_MTU`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u32>,
    /// TCP's maximum segment size at the window's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// The congestion control of the live socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// The sending buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<Granted>,
    /// The receiving buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<Granted>,
    /// How pings were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_socket: Option<IcmpSocket>,
}

impl Conditions {
    /// These, and where they are silent, those that were read `earlier`: a connection that its other end has reset no
    /// longer tells all.
    pub(super) fn or(self, earlier: Self) -> Self {
        Self {
            local: self.local.or(earlier.local),
            peer: self.peer.or(earlier.peer),
            bound_interface: self.bound_interface.or(earlier.bound_interface),
            interface: self.interface.or(earlier.interface),
            interface_mtu: self.interface_mtu.or(earlier.interface_mtu),
            path_mtu: self.path_mtu.or(earlier.path_mtu),
            mss: self.mss.or(earlier.mss),
            congestion_control: self.congestion_control.or(earlier.congestion_control),
            send_buffer: self.send_buffer.or(earlier.send_buffer),
            receive_buffer: self.receive_buffer.or(earlier.receive_buffer),
            icmp_socket: self.icmp_socket.or(earlier.icmp_socket),
        }
    }
}

/// A buffer asked for and granted, in bytes as the kernel counts them (`getsockopt`: with its own overhead, so twice the
/// payload that was asked for).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// As asked for; absent where the system's default or tuning holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// As the socket has it at the end of the test.
    pub granted: u64,
}

/// How pings were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IcmpSocket {
    /// An ICMP datagram socket, which needs no privilege but `net.ipv4.ping_group_range`.
    Datagram,
    /// A raw socket.
    Raw,
}

/// TCP's own account of one connection: at the window's begin and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSummary {
    /// At the window's begin; absent where the connection did not live through the warm-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<crate::sys::tcp_info::TcpInfo>,
    /// At the window's end.
    pub end: crate::sys::tcp_info::TcpInfo,
}

/// What a reader must know before trusting the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "caution", rename_all = "kebab-case")]
pub enum Caution {
    /// The rate rose or fell by more than half from the window's first half to its second: slow start, or the gift of a token
    /// bucket, and no steady rate.
    NotSteady {
        /// Bits per second in the first half.
        first_half: u64,
        /// Bits per second in the second half.
        second_half: u64,
    },
    /// A stream was connected but moved nothing in the window.
    SilentStream {
        /// Its index, from 0.
        stream: u16,
    },
    /// The sender was not told to end: it stopped by its own clock.
    SenderEndedAlone,
    /// The other end closed before the window was over; the counts belong to the shorter window.
    WindowCutShort {
        /// What was to be.
        planned_ns: u64,
        /// What was measured.
        measured_ns: u64,
    },
    /// The job was stopped from outside.
    Stopped,
    /// The sender's own count of its datagrams did not arrive: loss is what the sequence numbers show.
    SenderCountMissing,
    /// The sender could not keep its schedule.
    BehindSchedule {
        /// Datagrams that the schedule called for.
        offered_packets: u64,
        /// Datagrams that were sent.
        sent_packets: u64,
    },
    /// The paced sender was late: its bursts, not the path, shape the traffic.
    LateSender {
        /// The lateness that one send call in a hundred exceeded.
        p99_ns: u64,
    },
    /// A buffer smaller than asked for.
    BufferNotGranted {
        /// Which.
        buffer: String,
        /// As asked for.
        asked: u64,
        /// As granted.
        granted: u64,
    },
    /// Connections or packets that did not belong to this job were refused.
    Strangers {
        /// How many.
        count: u64,
    },
    /// No probe was answered: there is no latency under load.
    ProbesUnanswered,
    /// The ends of a stream's conditions differ between its connections.
    ConditionsDiffer {
        /// Which condition.
        what: String,
    },
}

/// A sentence for a report, with the figures.
impl fmt::Display for Caution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: u64| Span::new(Duration::from_nanos(ns));
        match self {
            Self::NotSteady { first_half, second_half } => {
                let (first, second) =
                    (BitRate::from_bits_per_second(*first_half), BitRate::from_bits_per_second(*second_half));
                write!(f, "no steady rate: {first} in the window's first half, {second} in its second")
            }
            Self::SilentStream { stream } => write!(f, "stream {stream} moved nothing in the window"),
            Self::SenderEndedAlone => f.write_str("the sender was not told to end and stopped by its own clock"),
            Self::WindowCutShort { planned_ns, measured_ns } => {
                write!(f, "the window was cut short: {} of {}", time(*measured_ns), time(*planned_ns))
            }
            Self::Stopped => f.write_str("the test was stopped from outside"),
            Self::SenderCountMissing => {
                f.write_str("the sender's own count did not arrive; loss is by sequence numbers")
            }
            Self::BehindSchedule { offered_packets, sent_packets } => {
                write!(f, "the sender was behind its schedule: {sent_packets} of {offered_packets} datagrams sent")
            }
            Self::LateSender { p99_ns } => write!(f, "one send in a hundred was more than {} late", time(*p99_ns)),
            Self::BufferNotGranted { buffer, asked, granted } => {
                write!(f, "the {buffer} buffer is {granted} bytes, {asked} were asked for")
            }
            Self::Strangers { count } => {
                write!(f, "{count} packets or connections that were not the test's were refused")
            }
            Self::ProbesUnanswered => f.write_str("no probe was answered: there is no latency under load"),
            Self::ConditionsDiffer { what } => write!(f, "its connections differ in {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caution_is_a_sentence_with_its_figures() {
        let caution = Caution::NotSteady { first_half: 2_778_726_400, second_half: 1_499_463_680 };
        assert_eq!(
            caution.to_string(),
            "no steady rate: 2.78 Gbit/s in the window's first half, 1.5 Gbit/s in its second"
        );
        let caution = Caution::WindowCutShort { planned_ns: 500_000_000, measured_ns: 120_000_000 };
        assert_eq!(caution.to_string(), "the window was cut short: 120 ms of 500 ms");
    }
}
