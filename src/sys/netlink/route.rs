//! Routes of the main table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};

use super::{Netlink, NetlinkError};

/// A unicast route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub to: IpNet,
    /// The next hop; absent: the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// Lower is preferred; absent: the kernel's own choice.
    pub metric: Option<u32>,
    /// The link.
    pub index: u32,
    /// Whether the kernel made it, by an address or by itself.
    pub by_kernel: bool,
}

impl Route {
    fn read(message: &RouteMessage) -> Option<Self> {
        let any = if message.header.address_family == AddressFamily::Inet6 {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        };
        let (mut to, mut via, mut metric, mut index) = (any, None, None, None);
        let mut table = u32::from(message.header.table);
        for attribute in &message.attributes {
            #[expect(clippy::wildcard_enum_match_arm, reason = "there are many, and new ones in every kernel")]
            match attribute {
                RouteAttribute::Destination(address) => to = ip(address)?,
                RouteAttribute::Gateway(address) => via = Some(ip(address)?),
                RouteAttribute::Priority(value) => metric = Some(*value),
                RouteAttribute::Oif(value) => index = Some(*value),
                RouteAttribute::Table(value) => table = *value,
                _ => {}
            }
        }
        let unicast = message.header.kind == RouteType::Unicast && table == u32::from(RouteHeader::RT_TABLE_MAIN);
        let to = IpNet::new(to, message.header.destination_prefix_length).ok()?;
        let by_kernel = message.header.protocol == RouteProtocol::Kernel;
        unicast.then_some(Self { to, via, metric, index: index?, by_kernel })
    }

    fn message(&self) -> RouteMessage {
        let scope =
            if self.via.is_some() || self.to.addr().is_ipv6() { RouteScope::Universe } else { RouteScope::Link };
        let prefix = self.to.prefix_len();
        let mut message = match (self.to.addr(), self.via) {
            (IpAddr::V4(to), via) => {
                let route = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(to, prefix);
                match via {
                    Some(IpAddr::V4(via)) => route.gateway(via),
                    Some(IpAddr::V6(via)) => route.via(via),
                    None => route,
                }
                .output_interface(self.index)
                .scope(scope)
                .build()
            }
            (IpAddr::V6(to), via) => {
                let route = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(to, prefix);
                match via {
                    Some(IpAddr::V6(via)) => route.gateway(via),
                    // The kernel refuses it with a reason; an IPv6 route cannot even express it.
                    Some(IpAddr::V4(via)) => route.gateway(via.to_ipv6_mapped()),
                    None => route,
                }
                .output_interface(self.index)
                .scope(scope)
                .build()
            }
        };
        message.attributes.extend(self.metric.map(RouteAttribute::Priority));
        message
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.to)?;
        self.via.map_or(Ok(()), |via| write!(f, " via {via}"))
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "other families are not routes of ours")]
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

impl Netlink {
    /// The unicast routes of the main table over link `index`, of both families.
    pub fn routes(&self, index: u32, name: &str) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = Vec::new();
        for filter in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
            let request = self.handle.route().get(filter).execute().map_ok(|message| Route::read(&message));
            let all = self.wait(|| format!("list the routes over {name}"), request.try_collect::<Vec<_>>())?;
            routes.extend(all.into_iter().flatten().filter(|route| route.index == index));
        }
        Ok(routes)
    }

    /// Adds a route.
    pub fn add_route(&self, name: &str, route: &Route) -> Result<(), NetlinkError> {
        let request = self.handle.route().add(route.message()).execute();
        self.wait(|| format!("add the route {route} over {name}"), request)
    }

    /// Removes a route.
    pub fn delete_route(&self, name: &str, route: &Route) -> Result<(), NetlinkError> {
        let request = self.handle.route().del(route.message()).execute();
        self.wait(|| format!("remove the route {route} over {name}"), request)
    }
}
