//! The node's side of its links and tunnels: addresses, routes, MTU, receive queues.
//!
//! Declarative: [`Interfaces::apply`] makes what is listed, takes back what it made before and is not listed any more,
//! and leaves everything else alone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::queues::{self, QueuesError, ReceiveCpus};
use crate::sys::ethtool::{Ethtool, EthtoolError, Features};
pub use crate::sys::netlink::Counters;
use crate::sys::netlink::{Link, Netlink, NetlinkError, Route};
use crate::sys::sysctl::{self, SysctlError};
use crate::units::Mtu;

/// How long an interface may take until it passes packets, and its next hop until it answers. Over veth both take
/// milliseconds; the kernel may hold a link's change of state back for a second (Linux, net/core/link_watch.c).
const READY_LIMIT: Duration = Duration::from_secs(3);

/// Why an interface is not as asked.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// It is not there.
    #[error("there is no interface {name} on this node")]
    Missing {
        /// Its name.
        name: String,
    },
    /// Named twice.
    #[error("interface {name} is listed twice")]
    Duplicate {
        /// Its name.
        name: String,
    },
    /// A link, address or route.
    #[error("this node's network cannot be set up")]
    Netlink(#[from] NetlinkError),
    /// IPv6 is switched off.
    #[error("interface {name} is to have {net}, and IPv6 is off on this kernel (ipv6.disable=1)")]
    NoIpv6 {
        /// The interface.
        name: String,
        /// The address.
        net: IpNet,
    },
    /// A kernel setting of the interface.
    #[error("interface {name} cannot be prepared")]
    Sysctl {
        /// The interface.
        name: String,
        /// Which setting, and why not.
        #[source]
        source: SysctlError,
    },
    /// The kernel took another MTU.
    #[error("the MTU of interface {name} was set to {asked} and is {is}")]
    Mtu {
        /// The interface.
        name: String,
        /// What was asked.
        asked: Mtu,
        /// What it is, in bytes.
        is: u32,
    },
    /// It did not become usable in time.
    #[error("interface {name} is not ready after {:.1} s: {what}", READY_LIMIT.as_secs_f64())]
    NotReady {
        /// The interface.
        name: String,
        /// What is missing.
        what: String,
    },
    /// Receive queues.
    #[error("the receive queues of interface {name} cannot be set")]
    ReceiveQueues {
        /// The interface.
        name: String,
        /// Why not.
        #[source]
        source: QueuesError,
    },
    /// Features.
    #[error(transparent)]
    Features(#[from] EthtoolError),
}

/// What an interface that is there is to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceState {
    /// Its name.
    pub name: String,
    /// Its addresses with their prefixes.
    pub addresses: Vec<IpNet>,
    /// The next hop of `routes` of its family; it must answer before the interface counts as ready.
    pub gateway: Option<IpAddr>,
    /// What is reached over it beside its own prefixes.
    pub routes: Vec<IpNet>,
    /// Its MTU; absent: as it is.
    pub mtu: Option<Mtu>,
    /// The CPUs that take its packets; absent: as it is.
    pub receive_cpus: Option<Vec<u32>>,
}

/// An interface, read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReading {
    /// Its name.
    pub name: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Its addresses, those that the kernel gave it too.
    pub addresses: Vec<IpNet>,
    /// The CPUs that take the packets of each of its queues, if that was asked.
    pub receive_cpus: Option<ReceiveCpus>,
    /// What it was done without, and why. Empty nearly always.
    pub notes: Vec<String>,
}

/// What was done to an interface, to be taken back.
#[derive(Debug, Default)]
struct Done {
    index: u32,
    addresses: Vec<IpNet>,
    routes: Vec<Route>,
    /// The MTU that it had.
    mtu: Option<Mtu>,
    /// The CPUs that took its packets.
    receive_cpus: Option<ReceiveCpus>,
    /// Whether it was down.
    set_up: bool,
    /// What was done without.
    notes: Vec<String>,
}

/// A node's interfaces: sockets in its network namespace, and what was done by them.
#[derive(Debug)]
pub struct Interfaces {
    netlink: Netlink,
    ethtool: Ethtool,
    done: BTreeMap<String, Done>,
}

impl Interfaces {
    /// Those of the calling thread's network namespace.
    pub fn open() -> Result<Self, InterfaceError> {
        Ok(Self { netlink: Netlink::open()?, ethtool: Ethtool::open()?, done: BTreeMap::new() })
    }

    /// Makes the interfaces as listed, loopback up among them, and returns when they are usable.
    ///
    /// # Errors
    /// What was done until then stays noted, so that another `apply` changes or takes back all of it.
    pub fn apply(&mut self, states: &[InterfaceState]) -> Result<Vec<InterfaceReading>, InterfaceError> {
        for (index, state) in states.iter().enumerate() {
            if states.iter().take(index).any(|other| other.name == state.name) {
                return Err(InterfaceError::Duplicate { name: state.name.clone() });
            }
        }
        let gone: Vec<String> =
            self.done.keys().filter(|name| !states.iter().any(|state| state.name == **name)).cloned().collect();
        for name in gone {
            self.take_back(&name)?;
        }
        if states.is_empty() {
            return Ok(Vec::new());
        }
        self.set_up("lo")?;
        for state in states {
            self.prepare(state)?;
        }
        let deadline = Instant::now() + READY_LIMIT;
        for state in states {
            self.wait_ready(state, deadline)?;
        }
        states.iter().map(|state| self.read(state)).collect()
    }

    /// What has crossed each interface of the node.
    pub fn counters(&self) -> Result<BTreeMap<String, Counters>, InterfaceError> {
        let links = self.netlink.links()?;
        Ok(links.into_iter().filter_map(|link| Some((link.name, link.counters?))).collect())
    }

    /// The MTU of an interface, in bytes.
    pub fn mtu(&self, name: &str) -> Result<u32, InterfaceError> {
        self.link(name).map(|link| link.mtu)
    }

    /// The offload features of an interface.
    pub fn features(&self, name: &str) -> Result<Features, InterfaceError> {
        Ok(self.ethtool.features(name)?)
    }

    /// Waits until `address` answers on the interface; `false` when `limit` passed first.
    pub fn wait_neighbour(&self, name: &str, address: IpAddr, limit: Duration) -> Result<bool, InterfaceError> {
        let link = self.link(name)?;
        Ok(self.netlink.wait_neighbour(link.index, name, address, limit)?)
    }

    fn link(&self, name: &str) -> Result<Link, InterfaceError> {
        self.netlink.link(name)?.ok_or_else(|| InterfaceError::Missing { name: name.to_owned() })
    }

    fn set_up(&self, name: &str) -> Result<Link, InterfaceError> {
        let link = self.link(name)?;
        if !link.up {
            self.netlink.set_up(link.index, name)?;
        }
        Ok(link)
    }

    fn prepare(&mut self, state: &InterfaceState) -> Result<(), InterfaceError> {
        let name = &state.name;
        let link = self.link(name)?;
        // A link of that name that is another link has none of what was done to the former one.
        if self.done.get(name).is_some_and(|done| done.index != link.index) {
            self.done.remove(name);
        }
        let mut done = self.done.remove(name).unwrap_or_else(|| Done { index: link.index, ..Done::default() });
        let result = self.prepare_link(state, &link, &mut done);
        self.done.insert(name.clone(), done);
        result
    }

    fn prepare_link(&self, state: &InterfaceState, link: &Link, done: &mut Done) -> Result<(), InterfaceError> {
        let name = &state.name;
        if let Some(mtu) = state.mtu
            && link.mtu != u32::from(mtu.get())
        {
            self.netlink.set_mtu(link.index, name, u32::from(mtu.get()))?;
            done.mtu = done.mtu.or_else(|| Mtu::new(u64::from(link.mtu)).ok());
        }
        if !link.up {
            done.notes = quiet_ipv6(state)?;
            self.netlink.set_up(link.index, name)?;
            done.set_up = true;
        }
        self.set_addresses(state, link, done)?;
        self.set_routes(state, link, done)?;
        if let Some(cpus) = &state.receive_cpus {
            let refused = |source| InterfaceError::ReceiveQueues { name: name.clone(), source };
            let before = queues::spread(name, cpus).map_err(refused)?;
            done.receive_cpus.get_or_insert(before);
        }
        Ok(())
    }

    fn set_addresses(&self, state: &InterfaceState, link: &Link, done: &mut Done) -> Result<(), InterfaceError> {
        let name = &state.name;
        let there = self.netlink.addresses(link.index, name)?;
        let surplus: Vec<IpNet> = done.addresses.iter().copied().filter(|net| !state.addresses.contains(net)).collect();
        for net in surplus {
            if there.iter().any(|address| address.net == net) {
                self.netlink.delete_address(link.index, name, net)?;
            }
            done.addresses.retain(|other| *other != net);
        }
        for net in &state.addresses {
            if there.iter().any(|address| address.net == *net) {
                continue;
            }
            self.netlink.add_address(link.index, name, *net).map_err(|error| match error.errno() {
                Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP) if net.addr().is_ipv6() => {
                    InterfaceError::NoIpv6 { name: name.clone(), net: *net }
                }
                _ => InterfaceError::Netlink(error),
            })?;
            done.addresses.push(*net);
        }
        Ok(())
    }

    fn set_routes(&self, state: &InterfaceState, link: &Link, done: &mut Done) -> Result<(), InterfaceError> {
        let name = &state.name;
        let wanted: Vec<Route> = state
            .routes
            .iter()
            .map(|to| {
                let via = state.gateway.filter(|gateway| gateway.is_ipv4() == to.addr().is_ipv4());
                Route { to: to.trunc(), via, metric: None, index: link.index, by_kernel: false }
            })
            .collect();
        let there = self.netlink.routes(link.index, name)?;
        let same = |one: &Route, other: &Route| (one.to, one.via) == (other.to, other.via);
        for route in std::mem::take(&mut done.routes) {
            if wanted.iter().any(|wanted| same(wanted, &route)) {
                done.routes.push(route);
            } else if there.iter().any(|there| same(there, &route)) {
                self.netlink.delete_route(name, &route)?;
            }
        }
        for route in wanted {
            if !there.iter().any(|there| same(there, &route)) {
                self.netlink.add_route(name, &route)?;
                done.routes.push(route);
            }
        }
        Ok(())
    }

    fn wait_ready(&self, state: &InterfaceState, deadline: Instant) -> Result<(), InterfaceError> {
        let name = &state.name;
        let late = |what: String| Err(InterfaceError::NotReady { name: name.clone(), what });
        loop {
            let link = self.link(name)?;
            let addresses = self.netlink.addresses(link.index, name)?;
            if let Some(address) = addresses.iter().find(|address| address.duplicate) {
                return late(format!("{} is in use by another host", address.net.addr()));
            }
            // The kernel's own link-local address is what neighbour discovery asks from.
            let unfinished = addresses.iter().find(|address| address.tentative);
            if link.running && unfinished.is_none() {
                break;
            }
            if Instant::now() > deadline {
                return late(unfinished.map_or_else(
                    || "the other end of the link is down".to_owned(),
                    |address| format!("the kernel still looks for another {}", address.net.addr()),
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(gateway) = state.gateway {
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.wait_neighbour(name, gateway, left)? {
                return late(format!("its next hop {gateway} does not answer"));
            }
        }
        Ok(())
    }

    fn read(&self, state: &InterfaceState) -> Result<InterfaceReading, InterfaceError> {
        let name = &state.name;
        let link = self.link(name)?;
        if let Some(asked) = state.mtu.filter(|asked| u32::from(asked.get()) != link.mtu) {
            return Err(InterfaceError::Mtu { name: name.clone(), asked, is: link.mtu });
        }
        let addresses = self.netlink.addresses(link.index, name)?.into_iter().map(|address| address.net).collect();
        let receive_cpus = match &state.receive_cpus {
            None => None,
            Some(_) => {
                let refused = |source| InterfaceError::ReceiveQueues { name: name.clone(), source };
                Some(queues::receive_cpus(name).map_err(refused)?)
            }
        };
        let notes = self.done.get(name).map(|done| done.notes.clone()).unwrap_or_default();
        Ok(InterfaceReading { name: name.clone(), mtu: link.mtu, addresses, receive_cpus, notes })
    }

    /// Takes back what was done to an interface. One that is gone took it along.
    fn take_back(&mut self, name: &str) -> Result<(), InterfaceError> {
        let Some(done) = self.done.get_mut(name) else { return Ok(()) };
        let link = self.netlink.link(name)?.filter(|link| link.index == done.index);
        let Some(link) = link else {
            self.done.remove(name);
            return Ok(());
        };
        if let Some(cpus) = done.receive_cpus.take() {
            let refused = |source| InterfaceError::ReceiveQueues { name: name.to_owned(), source };
            queues::set_receive_cpus(name, &cpus).map_err(refused)?;
        }
        let there = self.netlink.routes(link.index, name)?;
        while let Some(route) = done.routes.pop() {
            if there.iter().any(|there| (there.to, there.via) == (route.to, route.via)) {
                self.netlink.delete_route(name, &route)?;
            }
        }
        let there = self.netlink.addresses(link.index, name)?;
        while let Some(net) = done.addresses.pop() {
            if there.iter().any(|address| address.net == net) {
                self.netlink.delete_address(link.index, name, net)?;
            }
        }
        if let Some(mtu) = done.mtu.take() {
            self.netlink.set_mtu(link.index, name, u32::from(mtu.get()))?;
        }
        if std::mem::take(&mut done.set_up) {
            self.netlink.set_down(link.index, name)?;
        }
        self.done.remove(name);
        Ok(())
    }
}

/// Before an interface comes up: its link-local address is not to be searched for duplicates, which takes a second, and
/// it is not to ask for routers, of which there are none. What could not be done is returned.
fn quiet_ipv6(state: &InterfaceState) -> Result<Vec<String>, InterfaceError> {
    let mut notes = Vec::new();
    for setting in ["accept_dad", "accept_ra"] {
        match sysctl::write(&format!("net/ipv6/conf/{}/{setting}", state.name), "0") {
            // A kernel without IPv6 has none of them.
            Ok(_) | Err(SysctlError::Missing { .. }) => {}
            // Then the interface is ready a second later.
            Err(error) => notes.push(error.to_string()),
        }
    }
    if state.addresses.iter().any(|net| net.addr().is_ipv6()) {
        match sysctl::write(&format!("net/ipv6/conf/{}/disable_ipv6", state.name), "0") {
            Ok(_) | Err(SysctlError::Missing { .. }) => {}
            Err(source) => return Err(InterfaceError::Sysctl { name: state.name.clone(), source }),
        }
    }
    Ok(notes)
}
