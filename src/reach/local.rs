//! Nodes made here, out of namespaces.
//!
//! ```text
//! conductor -- thread "lab" -- clone3 --> init (pid 1 of the lab) --> one agent per node, each with its own
//!                 ^                        |                          network, mounts and /run
//!                 +------- channel --------+
//! ```
//!
//! Everything that a lab is, is held by the processes of one PID namespace. Its init dies with the thread that made it
//! (and when the channel closes, should that ever fail), and with it, by the kernel's hand, everything else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::lab::init::INIT_COMMAND;
use crate::lab::init::messages::{self, FromInit, ToInit};
use crate::sys::channel::Channel;
use crate::sys::namespaces::{Namespaces, run_directories};
use crate::sys::pidfd::{ExitStatus, PidFd};
use crate::sys::spawn::{Mount, Spawn, SpawnError, Spawned};

mod refusal;

pub use refusal::Circumstances;

/// How long a lab may take to be gone after its init was killed. Thousands of processes fit; what does not end in
/// this time is stuck in the kernel.
const DOWN_LIMIT: Duration = Duration::from_secs(5);

/// What a lab is to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabSpec {
    /// One agent per node, the provider's among them.
    pub agents: Vec<AgentSpec>,
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSpec {
    /// The node's name, unique in the lab.
    pub name: String,
    /// The command that becomes the agent; absent: this program.
    pub argv: Option<Vec<String>>,
}

/// With which rights a lab was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// As root, in the user namespace of the caller.
    Root,
    /// In a user namespace of its own, where the caller's user is root.
    UserNamespace,
}

/// Why there is no lab, or why it is not gone.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// Two agents of one name.
    #[error("two agents are named `{name}`")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The system refuses what a lab is made of.
    #[error("this system does not let a lab be made: {remedy}")]
    Refused {
        /// What to do, the most likely cause first.
        remedy: String,
        /// What was refused.
        #[source]
        source: SpawnError,
    },
    /// Sockets, pipes or threads.
    #[error("cannot prepare the lab: {what}")]
    Prepare {
        /// What was wanted.
        what: &'static str,
        /// Why it was not had.
        #[source]
        source: io::Error,
    },
    /// The lab's init could not start an agent.
    #[error("node {name} cannot be made: {reason}")]
    Agent {
        /// The node.
        name: String,
        /// What was refused, and what to do.
        reason: String,
    },
    /// The lab's init is gone.
    #[error("the lab's init ended while the lab was being made: it {status}")]
    Init {
        /// How it ended.
        status: ExitStatus,
    },
    /// The lab does not go down.
    #[error("the lab was told to go {limit:?} ago, and its init (process {pid:?}) is still there; {why}")]
    Stuck {
        /// Its process id, where it is known.
        pid: Option<u32>,
        /// How long it was waited for.
        limit: Duration,
        /// What it waits for, where that shows.
        why: String,
    },
}

/// A process of the lab ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The node whose agent it was; the lab's init where absent, and then everything is gone.
    pub agent: Option<String>,
    /// How.
    pub status: ExitStatus,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.agent {
            Some(name) => write!(f, "the agent of node {name} {}", self.status),
            None => write!(f, "the lab's init {}", self.status),
        }
    }
}

/// A running agent.
#[derive(Debug)]
pub struct LocalAgent {
    /// The node's name.
    pub name: String,
    /// Its standard input and output.
    pub pipe: UnixStream,
    /// Its standard error.
    pub stderr: File,
    /// Its process id here; absent where `/proc` does not show it.
    pub pid: Option<u32>,
    /// Its process id inside the lab, by which the provider finds its network.
    pub lab_pid: u32,
    /// A handle on the process.
    pub handle: PidFd,
    /// What its environment could not be given, and why. Empty nearly always.
    pub notes: Vec<String>,
}

/// A lab that is up. Dropping it takes it down.
#[derive(Debug)]
pub struct LocalLab {
    /// The agents, as ordered. They may be taken out.
    pub agents: Vec<LocalAgent>,
    /// With which rights it was made.
    pub privilege: Privilege,
    /// What the lab as a whole could not be given, and why.
    pub notes: Vec<String>,
    exits: Receiver<Exit>,
    init: PidFd,
    keeper: Option<JoinHandle<()>>,
}

/// Makes a lab and starts its agents. Callable from any thread: the lab hangs on one of its own.
pub fn raise(spec: &LabSpec) -> Result<LocalLab, LocalError> {
    let (raised_to, raised) = channel();
    let (exits_to, exits) = channel();
    let spec = spec.clone();
    let keeper = std::thread::Builder::new()
        .name("lab".to_owned())
        .spawn(move || keep(&spec, &raised_to, &exits_to))
        .map_err(|source| LocalError::Prepare { what: "a thread", source })?;
    match raised.recv() {
        Ok(Ok(Raised { agents, privilege, notes, init })) => {
            Ok(LocalLab { agents, privilege, notes, exits, init, keeper: Some(keeper) })
        }
        Ok(Err(error)) => {
            // It has said its last word and is only returning.
            let _ = keeper.join();
            Err(error)
        }
        Err(_) => {
            let source = io::Error::other("the thread that keeps the lab panicked");
            Err(LocalError::Prepare { what: "a thread", source })
        }
    }
}

impl LocalLab {
    /// Ends of processes, as they happen.
    pub fn exits(&self) -> &Receiver<Exit> {
        &self.exits
    }

    /// The lab's init.
    pub fn init(&self) -> &PidFd {
        &self.init
    }

    /// Kills everything and returns when it is gone.
    pub fn down(mut self) -> Result<(), LocalError> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), LocalError> {
        let Some(keeper) = self.keeper.take() else { return Ok(()) };
        self.init
            .signal(Signal::SIGKILL)
            .map_err(|source| LocalError::Prepare { what: "its end: the init cannot be killed", source })?;
        // The keeper holds the sending end until the init is reaped.
        let deadline = std::time::Instant::now() + DOWN_LIMIT;
        loop {
            match self.exits.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let pid = self.init.pid().ok().flatten();
                    let why = refusal::what_holds(pid);
                    return Err(LocalError::Stuck { pid, limit: DOWN_LIMIT, why });
                }
            }
        }
        keeper.join().map_err(|_| {
            let source = io::Error::other("the thread that keeps the lab panicked");
            LocalError::Prepare { what: "its end", source }
        })
    }
}

impl Drop for LocalLab {
    fn drop(&mut self) {
        // Who wants to know calls `down`. The kill itself does not fail on a process of one's own.
        let _ = self.take_down();
    }
}

struct Raised {
    agents: Vec<LocalAgent>,
    privilege: Privilege,
    notes: Vec<String>,
    init: PidFd,
}

/// The thread that the lab hangs on: it makes the init, and ends after it.
fn keep(spec: &LabSpec, raised_to: &Sender<Result<Raised, LocalError>>, exits_to: &Sender<Exit>) {
    let (lab, init) = match Keeper::raise(spec) {
        Ok(done) => done,
        Err(error) => {
            // The receiver waits for exactly this message.
            let _ = raised_to.send(Err(error));
            return;
        }
    };
    let Keeper { channel, handle } = lab;
    if raised_to.send(Ok(init)).is_err() {
        let _ = handle.signal(Signal::SIGKILL);
    }
    while let Ok(Some(message)) = channel.receive() {
        if let Ok(FromInit::Ended { name, status }) = serde_json::from_slice(&message.bytes) {
            // Nobody need be listening.
            let _ = exits_to.send(Exit { agent: Some(name), status });
        }
    }
    // The channel is closed or broken, so the init is on its way out; make sure, and see it off.
    let _ = handle.signal(Signal::SIGKILL);
    if let Ok(status) = handle.reap() {
        let _ = exits_to.send(Exit { agent: None, status });
    }
}

struct Keeper {
    channel: Channel,
    handle: PidFd,
}

/// A node's descriptors: what the conductor keeps.
struct Pipes {
    pipe: UnixStream,
    stderr: File,
}

impl Keeper {
    fn raise(spec: &LabSpec) -> Result<(Self, Raised), LocalError> {
        let mut pipes = BTreeMap::new();
        let mut orders = Vec::new();
        for agent in &spec.agents {
            let (pipe, far_pipe) = UnixStream::pair().map_err(|source| prepare("a socket pair", source))?;
            let (stderr, far_stderr) = io::pipe().map_err(|source| prepare("a pipe", source))?;
            let files = (OwnedFd::from(far_pipe), OwnedFd::from(far_stderr));
            orders.push((ToInit::Start { name: agent.name.clone(), argv: agent.argv.clone() }, files));
            let kept = Pipes { pipe, stderr: File::from(OwnedFd::from(stderr)) };
            if pipes.insert(agent.name.clone(), kept).is_some() {
                return Err(LocalError::Duplicate { name: agent.name.clone() });
            }
        }

        let (channel, far_channel) = Channel::pair().map_err(|source| prepare("a socket pair", source))?;
        let (init, privilege) = start_init(far_channel)?;
        let notes = init.refused.iter().map(messages::refused_mount).collect();
        let keeper = Self { channel, handle: init.handle };
        let second = keeper.handle.as_fd().try_clone_to_owned().map_err(|source| prepare("a descriptor", source));
        match second.and_then(|second| Ok((second, keeper.start_agents(orders, pipes)?))) {
            Ok((second, agents)) => {
                let init = PidFd::from_owned(second);
                Ok((keeper, Raised { agents, privilege, notes, init }))
            }
            Err(error) => {
                // Neither can matter more than the error at hand.
                let _ = keeper.handle.signal(Signal::SIGKILL);
                let _ = keeper.handle.reap();
                Err(error)
            }
        }
    }

    fn start_agents(
        &self,
        orders: Vec<(ToInit, (OwnedFd, OwnedFd))>,
        mut pipes: BTreeMap<String, Pipes>,
    ) -> Result<Vec<LocalAgent>, LocalError> {
        let mut agents = Vec::new();
        for (order, (pipe, stderr)) in orders {
            let bytes = serde_json::to_vec(&order).map_err(|error| prepare("an order", error.into()))?;
            if let Err(error) = self.channel.send(&bytes, &[pipe.as_fd(), stderr.as_fd()]) {
                return Err(self.lost(error));
            }
            drop((pipe, stderr));
            agents.push(self.started(&mut pipes)?);
        }
        Ok(agents)
    }

    /// Waits for the answer to one order.
    fn started(&self, pipes: &mut BTreeMap<String, Pipes>) -> Result<LocalAgent, LocalError> {
        loop {
            let message = match self.channel.receive() {
                Ok(Some(message)) => message,
                Ok(None) => return Err(self.lost(io::Error::from_raw_os_error(libc::EPIPE))),
                Err(error) => return Err(self.lost(error)),
            };
            let said = serde_json::from_slice(&message.bytes).map_err(|error| prepare("an answer", error.into()))?;
            match said {
                FromInit::Started { name, pid: lab_pid, notes } => {
                    let handle = message.files.into_iter().next().map(PidFd::from_owned);
                    let (Some(handle), Some(Pipes { pipe, stderr })) = (handle, pipes.remove(&name)) else {
                        let source = io::Error::from(io::ErrorKind::InvalidData);
                        return Err(prepare("an answer that fits its order", source));
                    };
                    let pid = handle.pid().map_err(|source| prepare("the agent's process id", source))?;
                    return Ok(LocalAgent { name, pipe, stderr, pid, lab_pid, handle, notes });
                }
                FromInit::NotStarted { name, reason, errno } => {
                    let remedy = errno.and_then(|errno| refusal::agent_remedy(errno, &Circumstances::read()));
                    let reason = remedy.map_or_else(|| reason.clone(), |remedy| format!("{reason}; {remedy}"));
                    return Err(LocalError::Agent { name, reason });
                }
                // An agent that ends at once shows as the end of its pipe as well, which its reader handles.
                FromInit::Ended { .. } => {}
            }
        }
    }

    /// The init went away in the middle.
    fn lost(&self, error: io::Error) -> LocalError {
        match self.handle.wait_end(DOWN_LIMIT).and_then(|ended| if ended { self.handle.reap() } else { Err(error) }) {
            Ok(status) => LocalError::Init { status },
            Err(source) => prepare("a channel to its init", source),
        }
    }
}

fn prepare(what: &'static str, source: io::Error) -> LocalError {
    LocalError::Prepare { what, source }
}

/// Starts the init: as root directly, else (or where root is not enough, as in a container) in a user namespace.
fn start_init(channel: Channel) -> Result<(Spawned, Privilege), LocalError> {
    let channel = channel.into_owned();
    let attempts: &[Privilege] = if nix::unistd::geteuid().is_root() {
        &[Privilege::Root, Privilege::UserNamespace]
    } else {
        &[Privilege::UserNamespace]
    };
    let mut last = None;
    for privilege in attempts {
        let channel = channel.try_clone().map_err(|source| prepare("a descriptor", source))?;
        match init_spawn(channel, *privilege)?.start() {
            Ok(spawned) => return Ok((spawned, *privilege)),
            Err(error) => {
                let permission = matches!(error.errno(), Some(libc::EPERM | libc::EACCES));
                last = Some(error);
                if !permission {
                    break;
                }
            }
        }
    }
    let source = last.unwrap_or(SpawnError::Died);
    Err(LocalError::Refused { remedy: refusal::remedy(&source, &Circumstances::read()), source })
}

fn init_spawn(channel: OwnedFd, privilege: Privilege) -> Result<Spawn, LocalError> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(|source| prepare("/dev/null", source))?;
    let null_out = null.try_clone().map_err(|source| prepare("a descriptor", source))?;
    // A panic of the init is the one thing that its channel cannot carry.
    let stderr = io::stderr().as_fd().try_clone_to_owned().or_else(|_| null.try_clone().map(OwnedFd::from));
    let stderr = stderr.map_err(|source| prepare("a descriptor", source))?;
    let mut mounts = vec![(Mount::Private, true)];
    mounts.extend(run_directories().into_iter().map(|at| (Mount::Tmpfs(at), true)));
    mounts.push((Mount::Proc, false));
    Ok(Spawn {
        program: PathBuf::from("/proc/self/exe"),
        arguments: [OsString::from("wglab"), OsString::from(INIT_COMMAND)].to_vec(),
        environment: Vec::new(),
        files: vec![null.into(), null_out.into(), stderr, channel],
        namespaces: Namespaces { user: privilege == Privilege::UserNamespace, mount: true, pid: true, network: false },
        mounts,
        own_session: true,
        dies_with_thread: true,
    })
}
