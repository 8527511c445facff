//! What the kernel granted an engine's process.

use super::Granted;
use crate::sys::descriptors::held;
use crate::sys::ethtool::Ethtool;

/// The features of a TUN device that decide in which form packets reach its reader (Linux, drivers/net/tun.c, `set_offload`).
const TELLING: [&str; 4] =
    ["tx-checksum-ip-generic", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation"];

impl Granted {
    /// Reads it off the process `pid`, which runs the device `interface` behind the UDP port `port`. `None` where the process may not
    /// be looked into.
    pub(in crate::tunnel) fn to(pid: u32, interface: &str, port: Option<u16>) -> Option<Self> {
        let (sockets, tuns) = held(pid).ok()?;
        let outer = || sockets.iter().filter(|socket| Some(socket.port) == port);
        let features = Ethtool::open().and_then(|ethtool| ethtool.features(interface)).unwrap_or_default();
        Some(Self {
            tun_vnet_hdr: tuns.iter().find(|tun| tun.interface == interface).map(|tun| tun.vnet_hdr),
            tun_features: TELLING
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), features.get(*name)?.active)))
                .collect(),
            udp_receive_buffer: outer().map(|socket| socket.receive_buffer).min(),
            udp_send_buffer: outer().map(|socket| socket.send_buffer).min(),
            udp_gro: outer().map(|socket| socket.gro).reduce(|all, gro| all && gro),
        })
    }
}
