//! The table itself.

use super::Better::{Higher, Lower, Neither};
use super::Quantity::{BitRate as Bits, Bytes, Count, CpuPerGigabit, CpuTime, Frequency, Ratio, Time};
use super::{Better, Metric, Quantity};

/// Every metric, in the order in which a report shows them.
pub const METRICS: &[Metric] = &[
    line("throughput_bits_per_second", "throughput", Bits, Higher, 1e6, true),
    line("sent_bits_per_second", "sent", Bits, Neither, 1e6, false),
    line("packets_per_second", "packets delivered", Frequency, Higher, 100.0, false),
    line("loss_ratio", "loss", Ratio, Lower, 0.001, false),
    line("jitter_ns", "jitter", Time, Lower, 20_000.0, false),
    line("reordered_ratio", "reordered", Ratio, Lower, 0.001, false),
    line("retransmit_ratio", "retransmitted", Ratio, Lower, 0.001, false),
    line("rr_p50_ns", "round trip p50", Time, Lower, 2_000.0, true),
    line("rr_p90_ns", "round trip p90", Time, Lower, 5_000.0, false),
    line("rr_p99_ns", "round trip p99", Time, Lower, 5_000.0, false),
    line("rr_per_second", "transactions", Frequency, Higher, 10.0, false),
    line("crr_per_second", "new connections", Frequency, Higher, 10.0, true),
    line("crr_p50_ns", "connect and ask p50", Time, Lower, 5_000.0, false),
    line("crr_p99_ns", "connect and ask p99", Time, Lower, 10_000.0, false),
    line("probe_p50_ns", "latency under load p50", Time, Lower, 20_000.0, false),
    line("probe_p90_ns", "latency under load p90", Time, Lower, 50_000.0, false),
    line("probe_p99_ns", "latency under load p99", Time, Lower, 50_000.0, true),
    line("probe_loss_ratio", "probes lost under load", Ratio, Lower, 0.005, false),
    line("ping_p50_ns", "ping p50", Time, Lower, 5_000.0, false),
    line("ping_p90_ns", "ping p90", Time, Lower, 10_000.0, false),
    line("ping_p99_ns", "ping p99", Time, Lower, 10_000.0, false),
    line("ping_loss_ratio", "pings lost", Ratio, Lower, 0.005, false),
    line("handshakes_per_second", "handshakes", Frequency, Higher, 10.0, false),
    line("handshake_p50_ns", "handshake p50", Time, Lower, 50_000.0, false),
    line("handshake_p99_ns", "handshake p99", Time, Lower, 100_000.0, false),
    line("connections", "open connections", Count, Higher, 100.0, false),
    line("mtu_bytes", "largest packet", Bytes, Higher, 1.0, false),
    line("cpu_seconds_per_gigabit", "CPU per Gbit", CpuPerGigabit, Lower, 0.01, true),
    line("client_cpu_ratio", "client CPU", Ratio, Neither, 0.01, false),
    line("server_cpu_ratio", "server CPU", Ratio, Neither, 0.01, false),
    line("busiest_cpu_ratio", "busiest CPU", Ratio, Neither, 0.01, false),
    line("softirq_ratio", "softirq", Ratio, Neither, 0.01, false),
    line("bytes_per_packet", "bytes per received packet", Bytes, Neither, 1.0, false),
    line("engine_cpu_seconds", "engine CPU time", CpuTime, Neither, 0.01, false),
    line("engine_peak_memory_bytes", "engine peak memory", Bytes, Lower, 1_048_576.0, false),
];

const fn line(
    name: &'static str,
    title: &'static str,
    quantity: Quantity,
    better: Better,
    floor: f64,
    gated: bool,
) -> Metric {
    Metric { name, title, quantity, better, floor, gated }
}
