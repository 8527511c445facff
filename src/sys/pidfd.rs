//! Processes by file descriptor (`pidfd_open(2)`, Linux 5.3): a handle that never comes to mean another process.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It called `exit` with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Signalled(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(name) => write!(f, "was killed by signal {signal} ({name})"),
                Err(_) => write!(f, "was killed by signal {signal}"),
            },
        }
    }
}

impl ExitStatus {
    /// As shells tell it: the status, or 128 and the signal's number.
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Exited(status) => status as u8,
            Self::Signalled(signal) => (128 + signal) as u8,
        }
    }

    /// From what `wait` said; `None` while the process has not ended.
    pub fn from_wait(status: WaitStatus) -> Option<Self> {
        match status {
            WaitStatus::Exited(_, code) => Some(Self::Exited(code)),
            WaitStatus::Signaled(_, signal, _) => Some(Self::Signalled(signal as i32)),
            WaitStatus::Stopped(..)
            | WaitStatus::PtraceEvent(..)
            | WaitStatus::PtraceSyscall(_)
            | WaitStatus::Continued(_)
            | WaitStatus::StillAlive => None,
        }
    }
}

/// A process, held by a descriptor that is closed on exec.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// The process with this id in the caller's PID namespace.
    ///
    /// # Errors
    /// `ESRCH` when there is none.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// From a descriptor that came out of `clone3` or over a socket.
    pub fn from_owned(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Sends `signal`. A process that has ended already is not an error: the wish is fulfilled.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> io::Result<()> {
        // SAFETY: the descriptor is open as long as self lives; a null siginfo asks for what kill(2) sends.
        let done = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal as i32,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
    }

    /// Waits until the process has ended, not reaping it. `false` when `limit` passed first.
    pub fn wait_end(&self, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) if left.is_zero() => return Ok(false),
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Reaps the process, which must be a child of the caller, and says how it ended; blocks until then.
    pub fn reap(&self) -> io::Result<ExitStatus> {
        loop {
            match waitid(Id::PIDFd(self.0.as_fd()), WaitPidFlag::WEXITED) {
                Ok(status) => {
                    if let Some(status) = ExitStatus::from_wait(status) {
                        return Ok(status);
                    }
                }
                Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// A descriptor of our own for what the process has open as `number` (`pidfd_getfd(2)`, Linux 5.6).
    ///
    /// # Errors
    /// `EPERM` where the process may not be traced, `EBADF` where it has nothing open there.
    pub fn descriptor(&self, number: i32) -> io::Result<OwnedFd> {
        // SAFETY: pidfd_getfd takes three integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), number, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// The process id as `/proc` shows it here (proc(5), `fdinfo`); `None` once it is reaped or out of sight.
    pub fn pid(&self) -> io::Result<Option<u32>> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()))?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")).map(str::trim);
        Ok(pid.and_then(|pid| pid.parse().ok()).filter(|pid| *pid > 0))
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_seen_signalled_and_reaped() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let handle = PidFd::open(child.id()).unwrap();
        assert_eq!(handle.pid().unwrap(), Some(child.id()));
        assert!(!handle.wait_end(Duration::from_millis(5)).unwrap());
        handle.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
        assert!(handle.wait_end(Duration::from_secs(5)).unwrap());
        let status = handle.reap().unwrap();
        assert!(child.wait().is_err(), "reaped already");
        assert_eq!(status, ExitStatus::Signalled(9));
        assert_eq!(status.to_string(), "was killed by signal 9 (SIGKILL)");
        assert_eq!(handle.pid().unwrap(), None);
        handle.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert_eq!(PidFd::open(u32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
