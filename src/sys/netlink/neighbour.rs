//! Neighbours: whether an address on a link answers (ARP, RFC 826; neighbour discovery, RFC 4861).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourState};

use super::{Netlink, NetlinkError};

/// How often the table is looked at. An answer over a veth takes well under a millisecond.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How often an unanswered question is asked again: the kernel itself waits a second.
const ASK_EVERY: Duration = Duration::from_millis(50);

impl Netlink {
    /// Asks the link for `address` until it answers. `false` when `limit` passed first.
    pub fn wait_neighbour(
        &self,
        index: u32,
        name: &str,
        address: IpAddr,
        limit: Duration,
    ) -> Result<bool, NetlinkError> {
        let deadline = Instant::now() + limit;
        let mut asked: Option<Instant> = None;
        loop {
            let state = self.neighbour(index, name, address)?;
            let known = [NeighbourState::Reachable, NeighbourState::Permanent, NeighbourState::Noarp];
            if state.is_some_and(|state| known.contains(&state)) {
                return Ok(true);
            }
            let now = Instant::now();
            if now > deadline {
                return Ok(false);
            }
            if asked.is_none_or(|asked| now - asked > ASK_EVERY) {
                // "Use" makes the kernel resolve the entry as if a packet were waiting (Linux, NTF_USE).
                let request = self.handle.neighbours().add(index, address).replace();
                let request = request.state(NeighbourState::None).flags(NeighbourFlags::Use);
                self.wait(|| format!("ask {name} for {address}"), request.execute())?;
                asked = Some(now);
            } else {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    fn neighbour(&self, index: u32, name: &str, address: IpAddr) -> Result<Option<NeighbourState>, NetlinkError> {
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let wanted = match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        };
        let request = self.handle.neighbours().get().set_address_family(family).execute().try_collect::<Vec<_>>();
        let all = self.wait(|| format!("list the neighbours on {name}"), request)?;
        let of_address = |attribute: &NeighbourAttribute| *attribute == NeighbourAttribute::Destination(wanted.clone());
        Ok(all
            .into_iter()
            .find(|entry| entry.header.ifindex == index && entry.attributes.iter().any(of_address))
            .map(|entry| entry.header.state))
    }
}
