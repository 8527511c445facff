//! A child and what it starts: a process group of its own, which ends with it.

use std::io;
use std::process::{Child, ExitStatus};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// Reaps a child that has ended, and kills what is left of its group first: until then its process id is its own.
pub(super) fn reap(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_raw(child.id().cast_signed());
    match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT) {
        Ok(WaitStatus::StillAlive) => Ok(None),
        Ok(_) => {
            kill_group(child);
            child.try_wait()
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Kills a child that is not reaped yet, and all that it started but for what left its group.
pub(super) fn kill_group(child: &Child) {
    let _already_gone = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
}
