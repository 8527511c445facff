//! A child process born into its own namespaces: `clone3(2)`, mounts, descriptors, `execve(2)`.
//!
//! Between the clone and the exec the child is a copy of one thread of a process that may have many, so it does nothing
//! but system calls on memory that was prepared before (signal-safety(7)). What it did, or could not do, it says
//! through a pipe that the exec closes.
//!
//! ```text
//! parent  prepare -> block signals -> clone3 -> write uid_map, gid_map -> "go" ---------> read reports until EOF
//! child                                  pdeathsig, wait for "go" -> setsid -> mounts -> descriptors -> exec
//! ```
#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

use crate::sys::namespaces::Namespaces;
use crate::sys::pidfd::PidFd;

mod child;
mod mount;

pub use mount::Mount;

/// Why there is no child.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// An argument, path or variable with a zero byte in it.
    #[error("`{text}` holds a zero byte and cannot be passed to a program")]
    ZeroByte {
        /// The text, lossily.
        text: String,
    },
    /// No pipe.
    #[error("cannot make a pipe to the new process")]
    Pipe(#[source] io::Error),
    /// The kernel refused the process or its namespaces.
    #[error("the kernel refused a process in new namespaces ({namespaces})")]
    Clone {
        /// What was asked for.
        namespaces: Namespaces,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The user namespace could not be given its user and group.
    #[error("cannot write {file} of a new user namespace")]
    Map {
        /// `uid_map`, `gid_map` or `setgroups`.
        file: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A step in the child failed.
    #[error("the new process could not {step}")]
    Step {
        /// What it was doing.
        step: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The program could not be started.
    #[error("cannot execute {program}")]
    Exec {
        /// Its path.
        program: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The child was gone before it said anything.
    #[error("the new process died before it ran its program")]
    Died,
}

impl SpawnError {
    /// The system's reason, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::ZeroByte { .. } | Self::Died => None,
            Self::Pipe(source)
            | Self::Clone { source, .. }
            | Self::Map { source, .. }
            | Self::Step { source, .. }
            | Self::Exec { source, .. } => source.raw_os_error(),
        }
    }
}

/// A mount that the child could do without, and did.
#[derive(Debug)]
pub struct RefusedMount {
    /// What was to be mounted.
    pub mount: Mount,
    /// Why it was not.
    pub error: io::Error,
}

/// A child that runs its program.
#[derive(Debug)]
pub struct Spawned {
    /// Its id in the caller's PID namespace.
    pub pid: u32,
    /// A handle on it.
    pub handle: PidFd,
    /// Mounts that were not required and were refused.
    pub refused: Vec<RefusedMount>,
}

/// What to start, and where.
#[derive(Debug)]
pub struct Spawn {
    /// Path of the program; no search.
    pub program: PathBuf,
    /// Arguments, the name first.
    pub arguments: Vec<OsString>,
    /// Variables set beside the inherited ones.
    pub environment: Vec<(OsString, OsString)>,
    /// The n-th becomes the child's descriptor n; all others are closed. The first three are its standard ones.
    pub files: Vec<OwnedFd>,
    /// New namespaces. With a user namespace, the caller's user and group become root there.
    pub namespaces: Namespaces,
    /// Mounts to make in order, each with whether the child must not run without it.
    pub mounts: Vec<(Mount, bool)>,
    /// A session of its own, so that the terminal's signals do not reach it.
    pub own_session: bool,
    /// Killed when the *thread* that spawned it ends (prctl(2), `PR_SET_PDEATHSIG`).
    pub dies_with_thread: bool,
}

impl Spawn {
    /// Starts it, and returns when the program runs.
    pub fn start(self) -> Result<Spawned, SpawnError> {
        let (mut report, report_write) = io::pipe().map_err(SpawnError::Pipe)?;
        let (go_read, mut go) = io::pipe().map_err(SpawnError::Pipe)?;
        let mut plan = child::Plan::new(&self, report_write.as_raw_fd(), go_read.as_raw_fd(), go.as_raw_fd())?;

        let (pid, handle) = self.clone_child(&mut plan)?;
        drop(report_write);
        drop(go_read);
        let mapped = if self.namespaces.user { write_maps(pid) } else { Ok(()) };
        if let Err(error) = mapped {
            drop(go); // End of file instead of "go": the child exits.
            return Err(reaped(&handle, error));
        }
        // A child that is gone already says so by the end of its report.
        if let Err(error) = go.write_all(&[1])
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(reaped(&handle, SpawnError::Pipe(error)));
        }
        drop(go);

        let mut said = Vec::new();
        report.read_to_end(&mut said).map_err(SpawnError::Pipe)?;
        let mut refused = Vec::new();
        let mut running = false;
        for record in child::records(&said) {
            match record {
                child::Record::Running => running = true,
                child::Record::Mount { index, errno } => {
                    let Some((mount, required)) = self.mounts.get(index) else { continue };
                    let error = io::Error::from_raw_os_error(errno);
                    if *required {
                        let step = SpawnError::Step { step: mount.to_string(), source: error };
                        return Err(reaped(&handle, step));
                    }
                    refused.push(RefusedMount { mount: mount.clone(), error });
                }
                child::Record::Exec { errno } => {
                    let source = io::Error::from_raw_os_error(errno);
                    return Err(reaped(&handle, SpawnError::Exec { program: self.program, source }));
                }
                child::Record::Step { step, errno } => {
                    let source = io::Error::from_raw_os_error(errno);
                    return Err(reaped(&handle, SpawnError::Step { step: step.to_owned(), source }));
                }
            }
        }
        if !running {
            return Err(reaped(&handle, SpawnError::Died));
        }
        Ok(Spawned { pid, handle, refused })
    }

    fn clone_child(&self, plan: &mut child::Plan) -> Result<(u32, PidFd), SpawnError> {
        let refused = |source| SpawnError::Clone { namespaces: self.namespaces, source };
        let mut pidfd: RawFd = -1;
        let pidfd_address = &raw mut pidfd as u64;
        // SAFETY: clone_args is plain integers; all-zero means "nothing asked for".
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.flags = self.namespaces.clone_flags() | libc::CLONE_PIDFD as u64;
        arguments.pidfd = pidfd_address;
        arguments.exit_signal = libc::SIGCHLD as u64;

        // The child would run this process's handlers, on descriptors that both share: nothing may be delivered
        // before it has put the defaults back.
        let mut before = SigSet::empty();
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut before))
            .map_err(|errno| refused(errno.into()))?;
        // SAFETY:
        // - the arguments live until the call returns, and their size is the size of that very struct;
        // - without CLONE_VM the child gets a copy of the memory and goes on with this thread's stack, as after fork;
        // - the child calls only `Plan::run`, which makes system calls on prepared memory and never returns.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
        if pid == 0 {
            plan.run();
        }
        let failed = io::Error::last_os_error();
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(|errno| refused(errno.into()))?;
        let pid = u32::try_from(pid).map_err(|_| refused(failed))?;
        // SAFETY: clone3 succeeded and CLONE_PIDFD made it store a fresh descriptor there; it is taken once.
        let handle = PidFd::from_owned(unsafe { OwnedFd::from_raw_fd(pidfd) });
        Ok((pid, handle))
    }
}

/// Makes the caller's user and group root in the child's user namespace (user_namespaces(7)): one line each, which
/// needs no privilege once `setgroups` is denied.
fn write_maps(pid: u32) -> Result<(), SpawnError> {
    let write = |file: &'static str, text: String| {
        fs::write(format!("/proc/{pid}/{file}"), text).map_err(|source| SpawnError::Map { file, source })
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {} 1", nix::unistd::geteuid()))?;
    write("gid_map", format!("0 {} 1", nix::unistd::getegid()))
}

/// Ends and reaps a child that did not get to its program, and hands the reason on.
fn reaped(handle: &PidFd, error: SpawnError) -> SpawnError {
    // Neither can fail in a way that would matter more than `error`: the child is ours, and it is on its way out.
    let _ = handle.signal(Signal::SIGKILL);
    let _ = handle.reap();
    error
}

/// Text for the kernel.
fn c_string(text: impl Into<Vec<u8>>) -> Result<CString, SpawnError> {
    CString::new(text)
        .map_err(|error| SpawnError::ZeroByte { text: String::from_utf8_lossy(&error.into_vec()).into_owned() })
}

/// The environment as `execve` takes it: the inherited one, with `extra` in place of equal names.
fn environment(extra: &[(OsString, OsString)]) -> Result<Vec<CString>, SpawnError> {
    let inherited = std::env::vars_os().filter(|(name, _)| !extra.iter().any(|(other, _)| other == name));
    inherited
        .chain(extra.iter().cloned())
        .map(|(name, value)| c_string([name.as_bytes(), b"=", &value.into_vec()].concat()))
        .collect()
}

#[cfg(test)]
mod tests;
