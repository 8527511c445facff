//! Two network namespaces and a veth pair between them: the hub's, with the device that is measured, and the peers'.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use wglab::sys::clock::process_cpu_ns;
use wglab::sys::netlink::Netlink;
use wglab::traffic::{self, Buffers, Job, JobKind, Role};
use wglab::tunnel::{PeerSpec, PrivateKey, Tunnel, TunnelEngine, TunnelSpec, up_with};
use wglab::units::{Direction, Mtu};

/// Outer addresses.
pub(crate) const PEERS_OUTER: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 1);
pub(crate) const HUB_OUTER: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 2);
pub(crate) const HUB_PORT: u16 = 51_820;
const BUSY_PORT: u16 = 51_821;
/// Inner addresses: the hub's, the busy peer's, and, from 10.203.0.1 on, those of the others.
pub(crate) const HUB_INNER: Ipv4Addr = Ipv4Addr::new(10, 202, 0, 1);
const BUSY_INNER: Ipv4Addr = Ipv4Addr::new(10, 202, 0, 2);
const INNER_PREFIX: u8 = 15;

const LINK: &str = "outer";
/// What a tunnel's packet has more outside: IPv4 (20), UDP (8) and WireGuard's own (32).
const OVERHEAD: u16 = 60;
const USUAL_MTU: u16 = 1_420;
const WARMUP: Duration = Duration::from_millis(300);
const STREAMS: u16 = 4;

type Task = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own, which does what is to be done there.
pub(crate) struct Place {
    tasks: Sender<Task>,
    thread: u32,
}

impl Place {
    fn new(name: &str) -> Result<Self> {
        let (tasks, queue) = channel::<Task>();
        let (ready, made) = channel();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let made = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
            if ready.send(made.map(|()| nix::unistd::gettid())).is_ok() {
                queue.iter().for_each(|task| task());
            }
        })?;
        let thread = made.recv()?.context("making a network namespace")?;
        Ok(Self { tasks, thread: u32::try_from(thread.as_raw())? })
    }

    /// Does it there, and waits for the answer.
    pub(crate) fn run<T: Send + 'static>(&self, task: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (answer, answers) = channel();
        // Who asked waits for exactly this answer.
        let task = Box::new(move || drop(answer.send(task())));
        self.tasks.send(task).ok().context("the thread of a namespace is gone")?;
        answers.recv().context("a task panicked")?
    }
}

/// Both namespaces.
pub(crate) struct World {
    pub(crate) hub: Place,
    pub(crate) peers: Place,
    pub(crate) hub_key: PrivateKey,
    busy_key: PrivateKey,
    engine: TunnelEngine,
}

/// A device that is up, with its process. It ends when this is dropped.
pub(crate) struct Device {
    pub(crate) tunnel: Tunnel,
    pid: i32,
}

impl World {
    pub(crate) fn new(engine: &TunnelEngine) -> Result<Self> {
        let (hub, peers) = (Place::new("hub")?, Place::new("peers")?);
        let thread = hub.thread;
        peers.run(move || {
            Netlink::open()?.add_veth(LINK, Mtu::new(u64::from(USUAL_MTU + OVERHEAD))?, LINK, thread)?;
            address(LINK, PEERS_OUTER, 24)
        })?;
        hub.run(|| address(LINK, HUB_OUTER, 24))?;
        let (hub_key, busy_key) = (PrivateKey::generate(), PrivateKey::generate());
        Ok(Self { hub, peers, hub_key, busy_key, engine: engine.clone() })
    }

    /// The hub's device with these peers, its inner addresses set.
    pub(crate) fn hub(&self, mtu: u16, peers: Vec<PeerSpec>) -> Result<Device> {
        let spec = self.spec("hub0", mtu, HUB_PORT, peers)?;
        self.up(&self.hub, spec, &self.hub_key, HUB_INNER)
    }

    /// The busy peer's device.
    pub(crate) fn busy(&self, mtu: u16) -> Result<Device> {
        let hub = PeerSpec {
            endpoint: Some(SocketAddr::from((HUB_OUTER, HUB_PORT))),
            allowed_ips: vec![IpNet::from(IpAddr::V4(HUB_INNER))],
            ..peer(self.hub_key.public())
        };
        let spec = self.spec("busy0", mtu, BUSY_PORT, vec![hub])?;
        self.up(&self.peers, spec, &self.busy_key, BUSY_INNER)
    }

    /// The busy peer, for the hub.
    pub(crate) fn busy_peer(&self) -> PeerSpec {
        PeerSpec { allowed_ips: vec![IpNet::from(IpAddr::V4(BUSY_INNER))], ..peer(self.busy_key.public()) }
    }

    fn spec(&self, interface: &str, mtu: u16, listen_port: u16, peers: Vec<PeerSpec>) -> Result<TunnelSpec> {
        let (interface, engine) = (interface.to_owned(), self.engine.clone());
        Ok(TunnelSpec {
            interface,
            mtu: Mtu::new(u64::from(mtu))?,
            listen_port,
            engine,
            pin: None,
            fwmark: None,
            peers,
        })
    }

    fn up(&self, place: &Place, spec: TunnelSpec, key: &PrivateKey, inner: Ipv4Addr) -> Result<Device> {
        let key = key.clone();
        place.run(move || {
            let mut tunnel = up_with(&spec, &key, Path::new(env!("CARGO_BIN_EXE_wglab")))?;
            address(&spec.interface, inner, INNER_PREFIX)?;
            let process = tunnel.status()?.process.context("an engine is a process")?;
            Ok(Device { tunnel, pid: i32::try_from(process.pid)? })
        })
    }

    /// Makes the link between the namespaces carry the packets of a tunnel with this MTU whole, and no more.
    pub(crate) fn fit_link(&self, mtu: u16) -> Result<()> {
        for place in [&self.hub, &self.peers] {
            place.run(move || {
                let netlink = Netlink::open()?;
                let link = netlink.link(LINK)?.context(LINK)?;
                Ok(netlink.set_mtu(link.index, LINK, u32::from(mtu + OVERHEAD))?)
            })?;
        }
        Ok(())
    }

    /// Bits per second that the hub received from the busy peer, or the busy peer from the hub.
    pub(crate) fn stream(&self, to_hub: bool, seconds: f64) -> Result<f64> {
        let job = |role, local: Ipv4Addr, peer: Ipv4Addr, ports| Job {
            role,
            direction: if to_hub { Direction::Forward } else { Direction::Reverse },
            kind: JobKind::TcpStream { streams: STREAMS, buffers: Buffers::default() },
            local: local.into(),
            local_interface: None,
            peer: Some((peer.into(), ports)),
            more_paths: Vec::new(),
            congestion_control: Some("cubic".to_owned()),
            warmup: WARMUP,
            duration: Duration::from_secs_f64(seconds),
            deadline: Duration::from_secs_f64(seconds) + Duration::from_secs(10),
            probe: None,
            seed: 42,
        };
        let server = job(Role::Server, HUB_INNER, BUSY_INNER, Vec::new());
        let server = self.hub.run(move || Ok(traffic::prepare(&server)?))?;
        let client = job(Role::Client, BUSY_INNER, HUB_INNER, server.ports());
        let client = self.peers.run(move || Ok(traffic::prepare(&client)?))?;
        let (server, client) = (server.start(), client.start());
        let (client, server) = (client.wait()?, server.wait()?);
        let rate = if to_hub { server } else { client }.received_rate().context("a rate")?;
        ensure!(rate.bits_per_second() > 0, "nothing was received");
        Ok(rate.bits_per_second() as f64)
    }
}

impl Device {
    /// CPU time that the engine used so far, nanoseconds.
    pub(crate) fn cpu_ns(&self) -> Result<f64> {
        Ok(process_cpu_ns(self.pid).context("the engine is gone")? as f64)
    }

    /// Bytes resident now, and at most so far.
    pub(crate) fn memory(&self) -> Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let field = |name: &str| -> Result<f64> {
            let value = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| name.to_owned())?;
            Ok(value.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }
}

/// A peer of which only the key is known.
pub(crate) fn peer(public_key: wglab::tunnel::PublicKey) -> PeerSpec {
    PeerSpec { public_key, preshared_key: None, endpoint: None, allowed_ips: Vec::new(), keepalive: None }
}

/// Gives a link of this namespace its address, and sets it up.
fn address(link: &str, address: Ipv4Addr, prefix: u8) -> Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.link(link)?.with_context(|| format!("{link} is not there"))?.index;
    netlink.add_address(index, link, IpNet::new(address.into(), prefix)?)?;
    Ok(netlink.set_up(index, link)?)
}
