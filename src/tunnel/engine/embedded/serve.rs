//! The body of the hidden `wglab tunnel` command: one device, run in the foreground.

use std::io;
use std::net::IpAddr;
use std::num::NonZero;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::Engine;
use super::control::Control;
use super::handicap::{SlowSockets, SlowTun};
use super::io::{KernelSockets, KernelTun, SocketFactory, TunDevice, Wake};
use crate::sys::tun::{Tun, TunOffloads, set_mtu, set_queue_length};
use crate::tunnel::{TunnelError, check_interface_name};
use crate::units::{Mtu, Ratio};

/// Packets that wait for the engine in the device's ring. TUN's default of 500 is short for packets that arrive singly.
const TUN_QUEUE: u16 = 1000;
/// More queues than this help no machine that this engine has met.
const MAX_QUEUES: usize = 8;

/// Arguments of the `tunnel` command.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeOptions {
    /// The device to make.
    pub interface: String,
    /// Its MTU.
    pub mtu: Mtu,
    /// The local address of the outer socket; `None`: any, of both families.
    pub bind: Option<IpAddr>,
    /// The interface of the outer socket; `None`: any.
    pub bind_device: Option<String>,
    /// End when standard input ends.
    pub lifeline: bool,
    /// Queues of the device, with two threads each; `None`: one for every two processors.
    pub queues: Option<usize>,
    /// Processor time that its reading threads waste, as a share of what they use: to see that a gate fails.
    pub handicap: Option<Ratio>,
}

impl ServeOptions {
    /// Reads `INTERFACE --mtu N [--bind ADDR] [--bind-device IF] [--queues N] [--lifeline] [--handicap SHARE]`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self, TunnelError> {
        let wrong = |text: String| TunnelError::Arguments(text);
        let (mut interface, mut mtu, mut bind, mut bind_device, mut lifeline, mut queues, mut handicap) =
            (None, None, None, None, false, None, None);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| wrong(format!("{arg} wants a value")));
            match arg.as_str() {
                "--mtu" => {
                    let text = value()?;
                    let bytes = text.parse().map_err(|_| wrong(format!("`{text}` is not an MTU")))?;
                    mtu = Some(Mtu::new(bytes).map_err(|error| wrong(error.to_string()))?);
                }
                "--bind" => {
                    let text = value()?;
                    bind = Some(text.parse().map_err(|_| wrong(format!("`{text}` is not an address")))?);
                }
                "--bind-device" => {
                    let text = value()?;
                    check_interface_name(&text).map_err(|reason| wrong(format!("`{text}`: {reason}")))?;
                    bind_device = Some(text);
                }
                "--queues" => {
                    let text = value()?;
                    let count = text.parse().ok().filter(|count| (1..=MAX_QUEUES).contains(count));
                    queues = Some(count.ok_or_else(|| wrong(format!("`{text}` is not 1 to {MAX_QUEUES} queues")))?);
                }
                "--lifeline" => lifeline = true,
                "--handicap" => {
                    let share: Ratio = value()?.parse().map_err(|error| wrong(format!("--handicap: {error}")))?;
                    if !(0.0..=1.0).contains(&share.fraction()) {
                        return Err(wrong(format!("a handicap of {share} is not between 0 % and 100 %")));
                    }
                    handicap = Some(share);
                }
                _ if arg.starts_with('-') || interface.is_some() => {
                    return Err(wrong(format!("unknown argument {arg}")));
                }
                _ => {
                    check_interface_name(&arg).map_err(|reason| wrong(format!("`{arg}`: {reason}")))?;
                    interface = Some(arg);
                }
            }
        }
        Ok(Self {
            interface: interface.ok_or_else(|| wrong("no interface named".to_owned()))?,
            mtu: mtu.ok_or_else(|| wrong("--mtu is missing".to_owned()))?,
            bind,
            bind_device,
            lifeline,
            queues,
            handicap,
        })
    }
}

/// Runs the embedded engine until SIGTERM, SIGINT, or the end of its lifeline.
///
/// # Errors
/// The device or the socket could not be had, or a thread ended.
pub fn serve(options: &ServeOptions) -> Result<(), TunnelError> {
    // Blocked before any thread starts, so that every thread inherits it and the descriptor below gets the signals.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    let failed =
        |action: &str, error: io::Error| TunnelError::System { action: action.to_owned(), source: error, hint: "" };
    signals.thread_block().map_err(|errno| failed("block signals", errno.into()))?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(|errno| failed("receive signals", errno.into()))?;

    let (mut tuns, notes) = open_tun(options)?;
    let sockets = KernelSockets { address: options.bind, device: options.bind_device.clone() };
    let sockets: Box<dyn SocketFactory> = match options.handicap {
        None => Box::new(sockets),
        Some(share) => {
            let slow = |tun| Arc::new(SlowTun::new(tun, share)) as Arc<dyn TunDevice>;
            tuns = tuns.into_iter().map(slow).collect();
            Box::new(SlowSockets(sockets, share))
        }
    };
    let ended = Arc::new(Wake::new().map_err(|error| failed("make an event", error))?);
    let on_end = {
        let ended = Arc::clone(&ended);
        Arc::new(move || ended.signal())
    };
    let engine =
        Engine::start(tuns, sockets, notes, on_end).map_err(|error| failed("start the engine's threads", error))?;
    let control = Control::start(&options.interface, Arc::clone(engine.device())).map_err(|source| {
        if source.kind() == io::ErrorKind::AddrInUse {
            TunnelError::InUse { interface: options.interface.clone(), what: "the UAPI socket".to_owned() }
        } else {
            TunnelError::Socket { action: "open", interface: options.interface.clone(), source }
        }
    })?;

    let result = wait_for_end(options, &signals, &ended, &engine);
    drop(control);
    engine.stop();
    result
}

/// Waits for a signal, the end of the lifeline, or the end of a thread.
fn wait_for_end(options: &ServeOptions, signals: &SignalFd, ended: &Wake, engine: &Engine) -> Result<(), TunnelError> {
    let stdin = io::stdin();
    loop {
        let mut fds =
            vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        if options.lifeline {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => {
                return Err(TunnelError::System { action: "wait".to_owned(), source: errno.into(), hint: "" });
            }
        }
        let ready = |index: usize| fds.get(index).is_some_and(|fd: &PollFd<'_>| fd.any().unwrap_or(false));
        if ready(0) || ready(2) {
            // Nothing is ever written to the lifeline: that it is readable means that its other end is gone.
            return Ok(());
        }
        if let Some(end) = engine.ended() {
            let source = end.error.unwrap_or_else(|| io::Error::other("without a reason"));
            // What the driver says of a queue whose device is gone (Linux, drivers/net/tun.c).
            let gone = matches!(source.raw_os_error(), Some(libc::EBADFD | libc::ENODEV));
            return Err(TunnelError::System {
                action: format!("go on: thread {} ended", end.thread),
                source,
                hint: if gone { "something deleted the interface" } else { "" },
            });
        }
    }
}

/// The queues of a device.
type Queues = Vec<Arc<dyn TunDevice>>;

/// Opens the device with as much offload as this kernel gives, and says what it did not give.
fn open_tun(options: &ServeOptions) -> Result<(Queues, Vec<String>), TunnelError> {
    let name = options.interface.as_str();
    let mut notes = Vec::new();
    let queues = options.queues.unwrap_or_else(|| {
        // A lane keeps two processors busy.
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        (processors / 2).clamp(1, MAX_QUEUES)
    });
    let (tuns, vnet_hdr) = match Tun::open_queues(name, true, queues) {
        Ok(tuns) => (tuns, true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            notes.push(format!("the TUN device takes no virtio-net header: {error}"));
            (Tun::open_queues(name, false, queues).map_err(|error| tun_error(name, error))?, false)
        }
        Err(error) => return Err(tun_error(name, error)),
    };
    let mut offloads = TunOffloads::default();
    if vnet_hdr {
        let wanted = TunOffloads { tso: true, uso: true };
        // Offloads are the device's, not the queue's.
        match tuns[0].set_offloads(wanted) {
            Ok(granted) => {
                offloads = granted;
                if !granted.tso {
                    notes.push("the TUN device hands over no TCP super-packets".to_owned());
                }
                if !granted.uso {
                    notes.push("the TUN device hands over no UDP super-packets (Linux 6.2 does)".to_owned());
                }
            }
            Err(error) => notes.push(format!("the TUN device grants no offload: {error}")),
        }
    }
    let failed = |action: String| move |source| TunnelError::System { action, source, hint: "" };
    set_mtu(name, options.mtu.get()).map_err(failed(format!("set the MTU of {name} to {}", options.mtu)))?;
    set_queue_length(name, TUN_QUEUE).map_err(failed(format!("set the queue length of {name}")))?;
    let wrap = |tun| Arc::new(KernelTun::new(tun, vnet_hdr, offloads)) as Arc<dyn TunDevice>;
    Ok((tuns.into_iter().map(wrap).collect(), notes))
}

/// One line for each way in which a device cannot be had, with the remedy.
fn tun_error(name: &str, source: io::Error) -> TunnelError {
    let hint = match source.raw_os_error() {
        Some(libc::ENOENT) => "create it: mkdir -p /dev/net && mknod /dev/net/tun c 10 200",
        Some(libc::ENODEV | libc::ENXIO) => {
            "the kernel has no TUN driver: load the module `tun`, or use the raw engine"
        }
        Some(libc::EACCES) => "open it to this user: chmod 0666 /dev/net/tun, or run as root",
        Some(libc::EPERM) => {
            "making a device needs CAP_NET_ADMIN in its network namespace: run as root, or in a user namespace"
        }
        Some(libc::EBUSY) => "another process holds a device of this name: end it, or choose another name",
        _ => "",
    };
    TunnelError::System { action: format!("make the TUN device {name} through /dev/net/tun"), source, hint }
}
