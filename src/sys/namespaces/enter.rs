//! Entering the namespaces of a running process (setns(2) on a pidfd, Linux 5.8), and running a command there.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::sys::pidfd::{ExitStatus, PidFd};
use crate::sys::program;

/// Why a process's namespaces could not be entered, or a command not run in them.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// There is no such process.
    #[error("there is no process {pid}: the lab that it belonged to is down")]
    Gone {
        /// Its id.
        pid: u32,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The namespaces are somebody else's.
    #[error("the namespaces of process {pid} cannot be entered; run this as the user who started the lab")]
    Refused {
        /// Its id.
        pid: u32,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The command could not be started.
    #[error("cannot run `{command}`")]
    Command {
        /// The program as it was given.
        command: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Signals or the wait failed.
    #[error("cannot follow the command")]
    Follow(#[source] io::Error),
}

impl EnterError {
    /// The exit code by which shells and env(1) say that a command is not there, or cannot be run; none where it is not about the
    /// command.
    #[must_use]
    pub fn shell_code(&self) -> Option<u8> {
        match self {
            Self::Command { source, .. } if source.kind() == io::ErrorKind::NotFound => Some(127),
            Self::Command { .. } => Some(126),
            Self::Gone { .. } | Self::Refused { .. } | Self::Follow(_) => None,
        }
    }
}

/// Moves the calling process into the user, mount and network namespaces of process `pid`, and its later children also
/// into its PID namespace. The caller must have one thread only.
pub fn enter(pid: u32) -> Result<(), EnterError> {
    let handle = PidFd::open(pid).map_err(|source| EnterError::Gone { pid, source })?;
    let directory = std::env::current_dir();
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID;
    // The kernel refuses to enter the user namespace that one is in already (setns(2), EINVAL).
    let user = |who: &str| fs::read_link(format!("/proc/{who}/ns/user"));
    let theirs = user(&pid.to_string()).map_err(|source| refusal(pid, source))?;
    if theirs != user("self").map_err(|source| refusal(pid, source))? {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    setns(&handle, flags).map_err(|errno| refusal(pid, errno.into()))?;
    // A new mount namespace starts at its root; the same directory is there under the same name, if it is there at all.
    if let Ok(directory) = directory
        && let Err(error) = std::env::set_current_dir(&directory)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(EnterError::Follow(error));
    }
    Ok(())
}

fn refusal(pid: u32, source: io::Error) -> EnterError {
    match source.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => EnterError::Gone { pid, source },
        _ => EnterError::Refused { pid, source },
    }
}

/// Signals that are passed on to the command.
const PASSED: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Runs a command with the caller's standard streams and waits for it, passing signals on. Signals that the terminal
/// sends reach the command by themselves, being in the same process group.
pub fn run_command(command: &[OsString]) -> Result<ExitStatus, EnterError> {
    let name = command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let failed = |source| EnterError::Command { command: name.clone(), source };
    let Some((program, arguments)) = command.split_first() else {
        return Err(failed(io::Error::from(io::ErrorKind::InvalidInput)));
    };
    let mut watched = SigSet::from_iter(PASSED);
    watched.add(Signal::SIGCHLD);
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&watched), Some(&mut before)).map_err(follow)?;
    let signals = SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC).map_err(follow)?;
    let mut child = start(program, arguments, before).map_err(failed)?;
    let handle = match PidFd::open(child.id()) {
        Ok(handle) => handle,
        // It is there, not being reaped yet; whatever this is, the command must not run on unwatched.
        Err(error) => {
            child.kill().and_then(|()| child.wait()).map_err(EnterError::Follow)?;
            return Err(EnterError::Follow(error));
        }
    };
    loop {
        if let Some(status) = child.try_wait().map_err(EnterError::Follow)? {
            return Ok(match status.signal() {
                Some(signal) => ExitStatus::Signalled(signal),
                None => ExitStatus::Exited(status.code().unwrap_or_default()),
            });
        }
        let Some(arrived) = signals.read_signal().map_err(follow)? else { continue };
        let from_kernel = arrived.ssi_code == libc::SI_KERNEL;
        let signal = i32::try_from(arrived.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
        if let Some(signal) = signal.filter(|signal| !from_kernel && *signal != Signal::SIGCHLD) {
            handle.signal(signal).map_err(EnterError::Follow)?;
        }
    }
}

fn follow(errno: nix::errno::Errno) -> EnterError {
    EnterError::Follow(errno.into())
}

/// Starts a command with the caller's standard streams; it is killed when the calling thread ends, and begins with `mask`.
#[allow(unsafe_code)]
pub(in crate::sys) fn start(name: &OsString, arguments: &[OsString], mask: SigSet) -> io::Result<Child> {
    let mut command = Command::new(name);
    command.args(arguments);
    // SAFETY: the closure makes two system calls, on a signal set that it owns, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            Ok(pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?)
        })
    };
    command.spawn().map_err(|error| program::why_not(name, error))
}
