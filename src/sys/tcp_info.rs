//! `TCP_INFO`: what the kernel's TCP says of one connection.
//!
//! The kernel returns as much of `struct tcp_info` as it knows (`include/uapi/linux/tcp.h`, which only ever grows at its
//! end), so every field beyond the oldest part is optional.

use std::io;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::socket;

/// A snapshot of one connection. Times in microseconds and rates in bytes per second, as the kernel keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpInfo {
    /// Maximum segment size for sending, bytes.
    pub snd_mss: u32,
    /// Segment size seen in receiving, bytes.
    pub rcv_mss: u32,
    /// The path MTU that TCP works with, bytes.
    pub pmtu: u32,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// Its mean deviation.
    pub rttvar_us: u32,
    /// Retransmission time-out.
    pub rto_us: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// Slow-start threshold, segments.
    pub snd_ssthresh: u32,
    /// The reordering that the sender allows for, segments.
    pub reordering: u32,
    /// The receiver's estimate of the round-trip time.
    pub rcv_rtt_us: u32,
    /// The receiver's buffer target, bytes.
    pub rcv_space: u32,
    /// Segments sent again, since the connection began.
    pub total_retrans: u32,
    /// Pacing rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_rate: Option<u64>,
    /// Bytes acknowledged by the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_acked: Option<u64>,
    /// Bytes received in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_received: Option<u64>,
    /// Bytes in the sending buffer that were not sent yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notsent_bytes: Option<u32>,
    /// The smallest round-trip time of the last minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt_us: Option<u32>,
    /// Segments with data received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_segs_in: Option<u32>,
    /// Segments with data sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_segs_out: Option<u32>,
    /// The last delivery rate sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_rate: Option<u64>,
    /// Time with data in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_time_us: Option<u64>,
    /// Part of it in which the receiver's window held the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rwnd_limited_us: Option<u64>,
    /// Part of it in which the sending buffer held the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sndbuf_limited_us: Option<u64>,
    /// Bytes sent, again ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_sent: Option<u64>,
    /// Bytes sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_retrans: Option<u64>,
    /// Duplicates that the receiver reported by D-SACK: needless retransmissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dsack_dups: Option<u32>,
    /// Times that reordering was seen by the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reord_seen: Option<u32>,
    /// Segments that the receiver got out of order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rcv_ooopack: Option<u32>,
    /// The peer's window, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snd_wnd: Option<u32>,
}

impl TcpInfo {
    /// Asks the kernel about a TCP socket.
    ///
    /// # Errors
    /// The error of `getsockopt`, or `InvalidData` for an answer shorter than Linux 2.6's.
    pub fn read(socket: &impl AsFd) -> io::Result<Self> {
        let mut bytes = [0u8; 512];
        let filled = socket::get_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Self::parse(filled)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel's tcp_info is too short"))
    }

    /// Reads the kernel's bytes, by the offsets of `struct tcp_info` in Linux 6.12. `None` if shorter than its oldest part.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let u32_at = |offset: usize| Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?));
        let u64_at = |offset: usize| Some(u64::from_ne_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?));
        Some(Self {
            rto_us: u32_at(8)?,
            snd_mss: u32_at(16)?,
            rcv_mss: u32_at(20)?,
            pmtu: u32_at(60)?,
            rtt_us: u32_at(68)?,
            rttvar_us: u32_at(72)?,
            snd_ssthresh: u32_at(76)?,
            snd_cwnd: u32_at(80)?,
            reordering: u32_at(88)?,
            rcv_rtt_us: u32_at(92)?,
            rcv_space: u32_at(96)?,
            total_retrans: u32_at(100)?,
            pacing_rate: u64_at(104),
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            notsent_bytes: u32_at(144),
            min_rtt_us: u32_at(148),
            data_segs_in: u32_at(152),
            data_segs_out: u32_at(156),
            delivery_rate: u64_at(160),
            busy_time_us: u64_at(168),
            rwnd_limited_us: u64_at(176),
            sndbuf_limited_us: u64_at(184),
            bytes_sent: u64_at(200),
            bytes_retrans: u64_at(208),
            dsack_dups: u32_at(216),
            reord_seen: u32_at(220),
            rcv_ooopack: u32_at(224),
            snd_wnd: u32_at(228),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_live_kernel_counts_what_was_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 5000]).unwrap();
        let mut received = [0; 5000];
        server.read_exact(&mut received).unwrap();

        let sender = TcpInfo::read(&client).unwrap();
        let receiver = TcpInfo::read(&server).unwrap();
        assert_eq!(receiver.bytes_received, Some(5000));
        assert_eq!(sender.bytes_sent, Some(5000));
        assert!(sender.snd_mss > 500 && sender.snd_cwnd > 0, "{sender:?}");
        assert_eq!(sender.bytes_retrans, Some(0));
    }

    #[test]
    fn an_older_kernels_shorter_answer_leaves_fields_absent() {
        let mut bytes = vec![0u8; 104];
        bytes[68..72].copy_from_slice(&1234u32.to_ne_bytes());
        let info = TcpInfo::parse(&bytes).unwrap();
        assert_eq!(info.rtt_us, 1234);
        assert_eq!((info.pacing_rate, info.busy_time_us, info.reord_seen), (None, None, None));
        assert_eq!(TcpInfo::parse(&bytes[..100]), None);
    }
}
