//! The child's side, from the clone to the exec.
//!
//! INVARIANT: nothing that [`Plan::run`] reaches allocates, frees, locks, panics or touches thread-local state other
//! than `errno`. Everything it needs is made in [`Plan::new`].
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use super::mount::{RawMount, errno};
use super::{Spawn, SpawnError, c_string, environment};

const STEP_PARENT: u32 = 1;
const STEP_SESSION: u32 = 2;
const STEP_FILES: u32 = 3;
const STEP_EXEC: u32 = 4;
const STEP_RUNNING: u32 = 5;
/// Mount `n` reports as this plus `n`.
const STEP_MOUNT: u32 = 0x100;
const RECORD_BYTES: usize = 8;

/// What the child said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// Everything before the exec is done.
    Running,
    /// Mount number `index` failed.
    Mount { index: usize, errno: i32 },
    /// The exec failed.
    Exec { errno: i32 },
    /// Something else failed.
    Step { step: &'static str, errno: i32 },
}

/// Reads the report pipe's content.
pub(super) fn records(said: &[u8]) -> impl Iterator<Item = Record> {
    said.chunks_exact(RECORD_BYTES).filter_map(|chunk| {
        let step = u32::from_ne_bytes(chunk.get(..4)?.try_into().ok()?);
        let errno = i32::from_ne_bytes(chunk.get(4..)?.try_into().ok()?);
        Some(match step {
            STEP_RUNNING => Record::Running,
            STEP_EXEC => Record::Exec { errno },
            STEP_PARENT => Record::Step { step: "follow its parent's end", errno },
            STEP_SESSION => Record::Step { step: "start a session of its own", errno },
            STEP_FILES => Record::Step { step: "arrange its descriptors", errno },
            mount => Record::Mount { index: mount.checked_sub(STEP_MOUNT)? as usize, errno },
        })
    })
}

/// All that the child needs, made before there is a child.
pub(super) struct Plan {
    program: CString,
    /// What the pointers in `argv` and `envp` point into.
    _strings: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    mounts: Vec<(RawMount, bool)>,
    files: Vec<RawFd>,
    report: RawFd,
    go_read: RawFd,
    go_write: RawFd,
    own_session: bool,
    dies_with_thread: bool,
}

impl Plan {
    pub(super) fn new(spawn: &Spawn, report: RawFd, go_read: RawFd, go_write: RawFd) -> Result<Self, SpawnError> {
        let arguments =
            spawn.arguments.iter().map(|text| c_string(text.as_bytes())).collect::<Result<Vec<_>, SpawnError>>()?;
        let variables = environment(&spawn.environment)?;
        let pointers =
            |strings: &[CString]| strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>();
        let (argv, envp) = (pointers(&arguments), pointers(&variables));
        let mounts = spawn
            .mounts
            .iter()
            .map(|(mount, required)| Ok((mount.prepare()?, *required)))
            .collect::<Result<Vec<_>, SpawnError>>()?;
        Ok(Self {
            program: c_string(spawn.program.as_os_str().as_bytes())?,
            // Moving a CString moves the handle, not the bytes: the pointers stay true.
            _strings: arguments.into_iter().chain(variables).collect(),
            argv,
            envp,
            mounts,
            files: spawn.files.iter().map(AsRawFd::as_raw_fd).collect(),
            report,
            go_read,
            go_write,
            own_session: spawn.own_session,
            dies_with_thread: spawn.dies_with_thread,
        })
    }

    /// Does it all and ends in the program, or in `_exit`.
    pub(super) fn run(&mut self) -> ! {
        if let Err((step, errno)) = self.try_run() {
            self.say(step, errno);
        }
        // SAFETY: _exit ends the process without running anything of the parent's.
        unsafe { libc::_exit(127) }
    }

    fn try_run(&mut self) -> Result<(), (u32, i32)> {
        default_signals();
        if self.dies_with_thread {
            // SAFETY: PR_SET_PDEATHSIG takes one integer.
            let done = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            check(done).map_err(|errno| (STEP_PARENT, errno))?;
        }
        // This copy of the write end would keep the pipe open after the parent's death.
        close(self.go_write);
        if !wait_for_go(self.go_read) {
            // SAFETY: as above.
            unsafe { libc::_exit(127) }
        }
        if self.own_session {
            // SAFETY: setsid takes nothing.
            check(unsafe { libc::setsid() }).map_err(|errno| (STEP_SESSION, errno))?;
        }
        for (index, (mount, required)) in self.mounts.iter().enumerate() {
            if let Err(errno) = mount.make() {
                let step = STEP_MOUNT + index as u32;
                if *required {
                    return Err((step, errno));
                }
                self.say(step, errno);
            }
        }
        self.place_files().map_err(|errno| (STEP_FILES, errno))?;
        self.say(STEP_RUNNING, 0);
        // SAFETY: `program` is a C string, `argv` and `envp` are null-terminated arrays of pointers to C strings,
        // and all of them live in `self`.
        unsafe { libc::execve(self.program.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
        Err((STEP_EXEC, errno()))
    }

    /// Puts `files` at 0.., the report pipe behind them (closed by the exec), and closes everything else.
    fn place_files(&mut self) -> Result<(), i32> {
        let count = self.files.len() as RawFd;
        // First all out of the way, so that no dup2 overwrites one that is still needed.
        for fd in &mut self.files {
            *fd = duplicate_above(*fd, count + 1)?;
        }
        let report = duplicate_above(self.report, count + 1)?;
        for (to, from) in self.files.iter().enumerate() {
            // SAFETY: both are integers; the target is ours to overwrite.
            check(unsafe { libc::dup2(*from, to as RawFd) })?;
        }
        // SAFETY: as above.
        check(unsafe { libc::dup3(report, count, libc::O_CLOEXEC) })?;
        self.report = count;
        // SAFETY: close_range takes integers; nothing above `count` is used again.
        let done = unsafe { libc::syscall(libc::SYS_close_range, count + 1, libc::c_uint::MAX, 0) };
        check(done as i32)
    }

    /// Writes one record. The parent may be gone; then there is nobody to tell.
    fn say(&self, step: u32, errno: i32) {
        let mut record = [0_u8; RECORD_BYTES];
        for (to, from) in record.iter_mut().zip(step.to_ne_bytes().iter().chain(&errno.to_ne_bytes())) {
            *to = *from;
        }
        // SAFETY: the record is RECORD_BYTES long; a pipe takes so few bytes whole or not at all.
        unsafe { libc::write(self.report, record.as_ptr().cast(), RECORD_BYTES) };
    }
}

fn check(result: libc::c_int) -> Result<(), i32> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}

fn close(fd: RawFd) {
    // SAFETY: the descriptor is this process's copy and is not used again.
    unsafe { libc::close(fd) };
}

fn duplicate_above(fd: RawFd, least: RawFd) -> Result<RawFd, i32> {
    // SAFETY: fcntl with F_DUPFD_CLOEXEC takes integers.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) };
    check(copy).map(|()| copy)
}

/// Whether the parent said to go on; `false` when it died or gave up.
fn wait_for_go(fd: RawFd) -> bool {
    let mut byte = 0_u8;
    loop {
        // SAFETY: one byte is read into one byte.
        let count = unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
        if count >= 0 || errno() != libc::EINTR {
            return count == 1;
        }
    }
}

/// Every signal back to its default, and none blocked.
fn default_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL is a valid disposition; signals that take none refuse it, which changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set it is given.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set is initialised; the old one is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()) };
}
