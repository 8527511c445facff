//! Process 1 of a lab: starts agents when told, reaps whatever ends, and ends with its conductor.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, waitpid};

use crate::sys::channel::Channel;
use crate::sys::inherit;
use crate::sys::namespaces::{Namespaces, run_directories};
use crate::sys::pidfd::ExitStatus;
use crate::sys::spawn::{Mount, Spawn, SpawnError, Spawned};
use crate::text::with_causes;

pub mod messages;

use messages::{FromInit, ToInit, refused_mount};

/// The hidden command that makes this program a lab's init.
pub const INIT_COMMAND: &str = "lab-init";
/// The command that makes this program an agent.
pub const AGENT_COMMAND: &str = "agent";

/// The channel's descriptor: the first one after the standard streams.
const CHANNEL: u8 = 3;

/// Why a lab's init cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// Started by hand.
    #[error("this command is what a lab starts for itself; it does nothing else (no channel on descriptor {CHANNEL})")]
    NoChannel(#[source] io::Error),
    /// The system refused something that an init needs.
    #[error("the lab's init cannot go on")]
    System(#[from] io::Error),
    /// A message that makes no sense.
    #[error("the lab's init does not understand its conductor")]
    Message(#[from] serde_json::Error),
}

impl From<Errno> for InitError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Runs until the conductor is gone. Its end is the end of every process in the lab.
pub fn run() -> Result<(), InitError> {
    // Where the name cannot be set, `ps` shows another one; nothing depends on it.
    let _ = nix::sys::prctl::set_name(c"wglab-init");
    let channel = Channel::from_owned(inherit::take(CHANNEL).map_err(InitError::NoChannel)?);
    let mut ended = SigSet::empty();
    ended.add(Signal::SIGCHLD);
    ended.thread_block()?;
    let signals = SignalFd::with_flags(&ended, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut agents = BTreeMap::new();
    loop {
        let mut ready =
            [PollFd::new(channel.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [from_conductor, child_ended] = ready.map(|fd| fd.any().unwrap_or(true));
        if child_ended {
            while signals.read_signal()?.is_some() {}
            for (name, status) in reap(&mut agents)? {
                say(&channel, &FromInit::Ended { name, status }, None)?;
            }
        }
        if from_conductor {
            let Some(message) = channel.receive()? else { return Ok(()) };
            let ToInit::Start { name, argv } = serde_json::from_slice(&message.bytes)?;
            let Ok([pipe, stderr]) = <[OwnedFd; 2]>::try_from(message.files) else {
                return Err(io::Error::from(io::ErrorKind::InvalidData).into());
            };
            match start(argv.as_deref(), pipe, stderr) {
                Ok(spawned) => {
                    agents.insert(spawned.pid, name.clone());
                    let notes = spawned.refused.iter().map(refused_mount).collect();
                    let said = FromInit::Started { name, pid: spawned.pid, notes };
                    say(&channel, &said, Some(spawned.handle.as_fd()))?;
                }
                Err(error) => {
                    let reason = with_causes(&error);
                    say(&channel, &FromInit::NotStarted { name, reason, errno: error.errno() }, None)?;
                }
            }
        }
    }
}

fn say(channel: &Channel, message: &FromInit, file: Option<BorrowedFd<'_>>) -> Result<(), InitError> {
    Ok(channel.send(&serde_json::to_vec(message)?, file.as_slice())?)
}

/// Reaps all that has ended; the agents among them, by name. Others are orphans that an agent left behind.
fn reap(agents: &mut BTreeMap<u32, String>) -> Result<Vec<(String, ExitStatus)>, InitError> {
    let mut ended = Vec::new();
    loop {
        let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(status) => status,
            Err(Errno::ECHILD) => return Ok(ended),
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let Some(pid) = status.pid() else { return Ok(ended) };
        let name = u32::try_from(pid.as_raw()).ok().and_then(|pid| agents.remove(&pid));
        if let (Some(name), Some(status)) = (name, ExitStatus::from_wait(status)) {
            ended.push((name, status));
        }
    }
}

fn start(argv: Option<&[String]>, pipe: OwnedFd, stderr: OwnedFd) -> Result<Spawned, SpawnError> {
    let (program, arguments) = match argv.and_then(|argv| argv.split_first().map(|(first, _)| (first, argv))) {
        Some((program, argv)) => (find(program)?, argv.iter().map(OsString::from).collect()),
        None => (PathBuf::from("/proc/self/exe"), ["wglab", AGENT_COMMAND].map(OsString::from).to_vec()),
    };
    let pipe_out = pipe.try_clone().map_err(SpawnError::Pipe)?;
    let mut mounts: Vec<_> = run_directories().into_iter().map(|at| (Mount::Tmpfs(at), true)).collect();
    mounts.push((Mount::Sysfs, false));
    Spawn {
        program,
        arguments,
        environment: Vec::new(),
        files: vec![pipe, pipe_out, stderr],
        namespaces: Namespaces { mount: true, network: true, ..Namespaces::default() },
        mounts,
        own_session: false,
        dies_with_thread: false,
    }
    .start()
}

/// Where `PATH` is not set: what the C library uses (confstr(3), `_CS_PATH`), and where people install programs.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Finds a program as a shell would.
fn find(program: &str) -> Result<PathBuf, SpawnError> {
    if program.contains('/') {
        return Ok(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from(DEFAULT_PATH));
    let executable = |file: &Path| {
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| executable(file)).ok_or_else(
        || SpawnError::Exec { program: PathBuf::from(program), source: io::Error::from_raw_os_error(libc::ENOENT) },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path_or_where_they_say() {
        assert_eq!(find("/bin/sh").unwrap(), Path::new("/bin/sh"));
        assert!(find("sh").unwrap().ends_with("sh"));
        let error = find("no-such-program-anywhere").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT));
    }

    #[test]
    fn started_by_hand_it_says_what_it_is() {
        // Descriptor 60 is what stands for "not inherited" here: the real number may be open in a test.
        assert!(inherit::take(60).is_err());
        assert!(inherit::take(1).is_err());
        let error = InitError::NoChannel(io::Error::from_raw_os_error(libc::EBADF));
        assert!(error.to_string().contains("a lab starts for itself"));
    }
}
