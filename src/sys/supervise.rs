//! A command that does not outlive whoever asked for it, and neither does what it starts.
//!
//! ```text
//! asker -- supervisor -- command -- whatever it starts
//! ```
//!
//! The supervisor is told to end by SIGTERM: from its asker, or from the kernel when the asker is gone (prctl(2),
//! `PR_SET_PDEATHSIG`). Orphans among its descendants fall to it (`PR_SET_CHILD_SUBREAPER`), so it can end all of them. Should it
//! be killed itself, the kernel kills the command with it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getppid};

use super::namespaces::{EnterError, start};
use super::pidfd::ExitStatus;

/// How long a command that was told to end may take before it is killed.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long what a command left behind may take to be gone once it is killed: what lasts longer is stuck in the kernel, or
/// somebody else's by now (a program that changes its user).
const KILLED: Duration = Duration::from_secs(2);

/// Runs `command` with the caller's standard streams and waits for it. It ends with process `asker`, the caller's parent, and
/// when the caller is told to by SIGTERM. The caller must have one thread, and no other children.
///
/// What a command that ends by itself leaves running goes on, as after a shell.
///
/// # Errors
/// The command cannot be started or followed.
pub fn run(command: &[OsString], asker: u32) -> Result<ExitStatus, EnterError> {
    let name = command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let failed = |source| EnterError::Command { command: name.clone(), source };
    let Some((program, arguments)) = command.split_first() else {
        return Err(failed(io::Error::from(io::ErrorKind::InvalidInput)));
    };
    // The terminal's signals reach the command by themselves, being in the same process group; the supervisor stays for its end.
    let watched =
        SigSet::from_iter([Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP]);
    let mut before = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&watched), Some(&mut before)).map_err(follow)?;
    let signals = SignalFd::with_flags(&watched, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(follow)?;
    set_child_subreaper(true).map_err(follow)?;
    set_pdeathsig(Signal::SIGTERM).map_err(follow)?;
    let is_alone = || getppid().as_raw() != asker.cast_signed();
    let child = start(program, arguments, before).map_err(failed)?;
    let command = Pid::from_raw(child.id().cast_signed());
    // It may have gone before the kernel was asked to tell.
    let mut told = is_alone().then(Instant::now);
    if told.is_some() {
        end(command, Signal::SIGTERM)?;
    }
    loop {
        if let Some(status) = reap(command)? {
            if told.is_some() {
                kill_descendants()?;
            }
            return Ok(status);
        }
        let left = told.map(|told: Instant| LAST_WORDS.saturating_sub(told.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            end(command, Signal::SIGKILL)?;
        }
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left.max(Duration::from_millis(20))).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut [PollFd::new(std::os::fd::AsFd::as_fd(&signals), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(follow(errno)),
        }
        while let Some(arrived) = signals.read_signal().map_err(follow)? {
            if arrived.ssi_signo.cast_signed() == Signal::SIGTERM as i32 && told.is_none() {
                told = Some(Instant::now());
                end(command, Signal::SIGTERM)?;
            }
        }
    }
}

fn follow(errno: Errno) -> EnterError {
    EnterError::Follow(errno.into())
}

/// Sends `signal` to a child that is not reaped yet. One that has changed its user cannot be reached, and dies with the caller.
fn end(child: Pid, signal: Signal) -> Result<(), EnterError> {
    match kill(child, signal) {
        Ok(()) | Err(Errno::ESRCH | Errno::EPERM) => Ok(()),
        Err(errno) => Err(follow(errno)),
    }
}

/// Reaps whatever has ended; how `command` did, if it is among that.
fn reap(command: Pid) -> Result<Option<ExitStatus>, EnterError> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(status) if status.pid() == Some(command) => {
                if let Some(status) = ExitStatus::from_wait(status) {
                    return Ok(Some(status));
                }
            }
            Ok(status) if status.pid().is_some() => {}
            Ok(_) | Err(Errno::ECHILD) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(follow(errno)),
        }
    }
}

/// Kills every descendant: the children, then those that fall to the caller by that, until there is none.
fn kill_descendants() -> Result<(), EnterError> {
    let deadline = Instant::now() + KILLED;
    loop {
        for child in children() {
            end(child, Signal::SIGKILL)?;
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return Ok(()),
            Ok(status) if status.pid().is_some() => continue,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(follow(errno)),
        }
        if Instant::now() >= deadline {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The caller's children, as `/proc` shows them (proc_pid_stat(5): the parent is the second field behind the name's bracket).
fn children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let parent = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, behind) = stat.rsplit_once(')')?;
        behind.split_ascii_whitespace().nth(1).map(str::to_owned)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| {
            let name = entry.file_name();
            let pid: i32 = name.to_str()?.parse().ok()?;
            (parent(name.to_str()?)? == own).then(|| Pid::from_raw(pid))
        })
        .collect()
}
