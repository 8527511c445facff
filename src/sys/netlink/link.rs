//! Links: what they are, and making, changing and deleting them.

use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State, Stats64,
};
use rtnetlink::{LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, LinkWireguard};
use serde::{Deserialize, Serialize};

use super::{Netlink, NetlinkError};
use crate::units::Mtu;

/// What a link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    /// One end of a veth pair.
    Veth,
    /// A bridge.
    Bridge,
    /// Anything else, by the kernel's name; a plain device has none.
    Other(Option<String>),
}

/// A link as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number in this namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: LinkKind,
    /// Its MTU. Not [`Mtu`]: loopback has more, and some devices none.
    pub mtu: u32,
    /// Whether it is set up.
    pub up: bool,
    /// Whether it passes packets.
    pub running: bool,
    /// The bridge that it is a port of.
    pub controller: Option<u32>,
    /// What has crossed it.
    pub counters: Option<Counters>,
}

/// What has crossed an interface since it was made (Linux, `struct rtnl_link_stats64`). Bytes include Ethernet headers;
/// a packet is what the driver handed over, so a super-packet counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Received and not passed on.
    pub rx_dropped: u64,
    /// Received broken.
    pub rx_errors: u64,
    /// Received for nobody here (`rx_nohandler`).
    pub rx_unclaimed: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// To be sent, and dropped.
    pub tx_dropped: u64,
    /// To be sent, and failed.
    pub tx_errors: u64,
    /// Multicast packets received.
    pub multicast: u64,
}

impl From<&Stats64> for Counters {
    fn from(stats: &Stats64) -> Self {
        Self {
            rx_bytes: stats.rx_bytes,
            rx_packets: stats.rx_packets,
            rx_dropped: stats.rx_dropped,
            rx_errors: stats.rx_errors,
            rx_unclaimed: stats.rx_nohandler,
            tx_bytes: stats.tx_bytes,
            tx_packets: stats.tx_packets,
            tx_dropped: stats.tx_dropped,
            tx_errors: stats.tx_errors,
            multicast: stats.multicast,
        }
    }
}

impl Link {
    fn read(message: &LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            kind: LinkKind::Other(None),
            mtu: 0,
            up: message.header.flags.contains(LinkFlags::Up),
            running: false,
            controller: None,
            counters: None,
        };
        let lower_up = message.header.flags.contains(LinkFlags::LowerUp);
        for attribute in &message.attributes {
            #[expect(clippy::wildcard_enum_match_arm, reason = "there are dozens, and new ones in every kernel")]
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Controller(index) => link.controller = Some(*index),
                // Loopback's state is unknown, always (Linux, Documentation/networking/operstates.rst).
                LinkAttribute::OperState(state) => {
                    link.running = matches!(state, State::Up | State::Unknown) && lower_up
                }
                LinkAttribute::Stats64(stats) => link.counters = Some(stats.into()),
                LinkAttribute::LinkInfo(infos) => {
                    for info in infos {
                        if let LinkInfo::Kind(kind) = info {
                            link.kind = match kind {
                                InfoKind::Veth => LinkKind::Veth,
                                InfoKind::Bridge => LinkKind::Bridge,
                                other => LinkKind::Other(Some(other.to_string())),
                            };
                        }
                    }
                }
                _ => {}
            }
        }
        link
    }
}

impl Netlink {
    /// Every link of the namespace.
    pub fn links(&self) -> Result<Vec<Link>, NetlinkError> {
        let request = self.handle.link().get().execute().map_ok(|message| Link::read(&message)).try_collect();
        self.wait(|| "list the interfaces".to_owned(), request)
    }

    /// The link of that name; `None` when there is none.
    pub fn link(&self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let mut request = self.handle.link().get().match_name(name.to_owned()).execute();
        match self.wait(|| format!("look at interface {name}"), request.try_next()) {
            Ok(message) => Ok(message.map(|message| Link::read(&message))),
            Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a veth pair: `name` here, and `peer_name` in the network namespace of process `peer_pid`, each with one
    /// queue per direction.
    pub fn add_veth(&self, name: &str, mtu: Mtu, peer_name: &str, peer_pid: u32) -> Result<(), NetlinkError> {
        let one_queue = [LinkAttribute::NumTxQueues(1), LinkAttribute::NumRxQueues(1)];
        let peer = LinkMessageBuilder::<LinkUnspec>::new().name(peer_name).mtu(u32::from(mtu.get()));
        let mut peer = peer.setns_by_pid(peer_pid).build();
        peer.attributes.extend(one_queue.clone());
        let pair = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(name)
            .mtu(u32::from(mtu.get()))
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)));
        let mut pair = pair.build();
        pair.attributes.extend(one_queue);
        let request = self.handle.link().add(pair).execute();
        self.wait(|| format!("make the link {name} to {peer_name} of process {peer_pid}"), request)
    }

    /// Makes a bridge that forwards everything, at once: no spanning tree, no snooping.
    pub fn add_bridge(&self, name: &str, mtu: Mtu) -> Result<(), NetlinkError> {
        let bridge = LinkBridge::new(name).mtu(u32::from(mtu.get())).mcast_snooping(false).forward_delay(0).build();
        self.wait(|| format!("make the bridge {name}"), self.handle.link().add(bridge).execute())
    }

    /// Makes a device of the kernel's WireGuard, which has no key, port or peer yet.
    pub fn add_wireguard(&self, name: &str, mtu: Mtu) -> Result<(), NetlinkError> {
        let device = LinkWireguard::new(name).mtu(u32::from(mtu.get())).build();
        let request = self.handle.link().add(device).execute();
        self.wait(|| format!("make the WireGuard device {name}"), request)
    }

    /// Deletes a link; `name` is for messages.
    pub fn delete_link(&self, index: u32, name: &str) -> Result<(), NetlinkError> {
        self.wait(|| format!("delete interface {name}"), self.handle.link().del(index).execute())
    }

    /// Sets a link up.
    pub fn set_up(&self, index: u32, name: &str) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).up().build();
        self.wait(|| format!("set interface {name} up"), self.handle.link().set(message).execute())
    }

    /// Sets a link down.
    pub fn set_down(&self, index: u32, name: &str) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).down().build();
        self.wait(|| format!("set interface {name} down"), self.handle.link().set(message).execute())
    }

    /// Sets a link's MTU, in bytes. Not [`Mtu`]: a loopback's is larger, and may have to be given back.
    pub fn set_mtu(&self, index: u32, name: &str, mtu: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).mtu(mtu).build();
        self.wait(|| format!("set the MTU of interface {name} to {mtu}"), self.handle.link().set(message).execute())
    }

    /// Sets the length of a link's transmit queue, in packets.
    pub fn set_queue_length(&self, index: u32, name: &str, packets: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).txqueuelen(packets).build();
        let request = self.handle.link().set(message).execute();
        self.wait(|| format!("set the queue length of interface {name} to {packets}"), request)
    }

    /// Makes a link a port of a bridge.
    pub fn set_controller(&self, index: u32, name: &str, bridge: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_index(index).controller(bridge).build();
        self.wait(|| format!("join interface {name} to its bridge"), self.handle.link().set(message).execute())
    }
}
