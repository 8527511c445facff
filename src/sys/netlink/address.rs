//! Addresses of interfaces.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};

use super::{Netlink, NetlinkError};

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The address with its prefix.
    pub net: IpNet,
    /// Whether the kernel gave it by itself (an IPv6 link-local one).
    pub link_local: bool,
    /// Whether the kernel still looks for duplicates (RFC 4862 section 5.4), and nothing can use it.
    pub tentative: bool,
    /// Whether it found one.
    pub duplicate: bool,
}

impl Address {
    fn read(message: &AddressMessage) -> Option<Self> {
        let mut address = None;
        let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
        for attribute in &message.attributes {
            #[expect(clippy::wildcard_enum_match_arm, reason = "there are many, and new ones in every kernel")]
            match attribute {
                // Where both are given, the local one is this end's (rtnetlink(7)).
                AddressAttribute::Local(local) => address = Some(*local),
                AddressAttribute::Address(other) => address = address.or(Some(*other)),
                AddressAttribute::Flags(all) => flags |= *all,
                _ => {}
            }
        }
        let address = address?;
        Some(Self {
            net: IpNet::new(address, message.header.prefix_len).ok()?,
            link_local: matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()),
            tentative: flags.contains(AddressFlags::Tentative),
            duplicate: flags.contains(AddressFlags::Dadfailed),
        })
    }
}

impl Netlink {
    /// The addresses of link `index`; `name` is for messages.
    pub fn addresses(&self, index: u32, name: &str) -> Result<Vec<Address>, NetlinkError> {
        // Without strict checking the kernel gives those of every link.
        let request = self
            .handle
            .address()
            .get()
            .set_link_index_filter(index)
            .execute()
            .try_filter(|message| std::future::ready(message.header.index == index))
            .map_ok(|message| Address::read(&message))
            .try_collect::<Vec<_>>();
        let addresses = self.wait(|| format!("list the addresses of {name}"), request)?;
        Ok(addresses.into_iter().flatten().collect())
    }

    /// Adds an address, usable at once: no search for duplicates.
    pub fn add_address(&self, index: u32, name: &str, net: IpNet) -> Result<(), NetlinkError> {
        let mut request = self.handle.address().add(index, net.addr(), net.prefix_len());
        if net.addr().is_ipv6() {
            request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        self.wait(|| format!("add {net} to {name}"), request.execute())
    }

    /// Removes an address.
    pub fn delete_address(&self, index: u32, name: &str, net: IpNet) -> Result<(), NetlinkError> {
        let message = self.handle.address().add(index, net.addr(), net.prefix_len()).message_mut().clone();
        self.wait(|| format!("remove {net} from {name}"), self.handle.address().del(message).execute())
    }
}
