//! Mounts that a child makes in its new mount namespace (mount_namespaces(7)).
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

use super::SpawnError;

/// One mount in a new mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// Nothing that is mounted here reaches the namespace that this one was copied from.
    Private,
    /// An empty file system in memory.
    Tmpfs(PathBuf),
    /// `/proc` of the new PID namespace.
    Proc,
    /// `/sys` of the new network namespace; the cgroup tree below it stays.
    Sysfs,
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private => f.write_str("make its mounts private"),
            Self::Tmpfs(at) => write!(f, "mount a private {}", at.display()),
            Self::Proc => f.write_str("mount /proc of its own processes"),
            Self::Sysfs => f.write_str("mount /sys of its own network"),
        }
    }
}

impl Mount {
    pub(super) fn prepare(&self) -> Result<RawMount, SpawnError> {
        let fixed = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        Ok(match self {
            Self::Private => RawMount::new(None, c"/".to_owned(), libc::MS_REC | libc::MS_PRIVATE, None),
            Self::Tmpfs(at) => {
                let at = CString::new(at.as_os_str().as_bytes())
                    .map_err(|_| SpawnError::ZeroByte { text: at.display().to_string() })?;
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                RawMount::new(Some(c"tmpfs".to_owned()), at, flags, Some(c"mode=0755,size=64m".to_owned()))
            }
            Self::Proc => RawMount::new(Some(c"proc".to_owned()), c"/proc".to_owned(), fixed, None),
            Self::Sysfs => {
                let mut mount = RawMount::new(Some(c"sysfs".to_owned()), c"/sys".to_owned(), fixed, None);
                mount.keep = Some(c"/sys/fs/cgroup".to_owned());
                mount
            }
        })
    }
}

/// A mount with its text ready for the kernel, so that making it needs no memory.
pub(super) struct RawMount {
    /// The file system's type, which also serves as the source; none for a change of propagation.
    kind: Option<CString>,
    target: CString,
    flags: libc::c_ulong,
    data: Option<CString>,
    /// A tree below the target that must still be there afterwards.
    keep: Option<CString>,
}

impl RawMount {
    fn new(kind: Option<CString>, target: CString, flags: libc::c_ulong, data: Option<CString>) -> Self {
        Self { kind, target, flags, data, keep: None }
    }

    /// Makes it; the errno where it is refused. Makes system calls only.
    pub(super) fn make(&self) -> Result<(), i32> {
        let kept = self.keep.as_ref().and_then(|path| open_tree(path).ok());
        let kind = self.kind.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let data = self.data.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        // SAFETY: every pointer is null where mount(2) allows it, or to a C string in `self`.
        let done = unsafe { libc::mount(kind, self.target.as_ptr(), kind, self.flags, data.cast()) };
        let result = if done < 0 { Err(errno()) } else { Ok(()) };
        if let (Some(tree), Some(path)) = (kept, &self.keep) {
            if result.is_ok() {
                // Where it cannot come back, its files are missing, and their readers say so.
                move_tree(tree, path);
            }
            // SAFETY: the descriptor came from open_tree and is not used again.
            unsafe { libc::close(tree) };
        }
        result
    }
}

// Linux, include/uapi/linux/mount.h.
const OPEN_TREE_CLONE: libc::c_int = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_int = 4;

/// A detached copy of the mounts at `path`: open_tree(2), Linux 5.2.
fn open_tree(path: &CString) -> Result<libc::c_int, i32> {
    let flags = OPEN_TREE_CLONE | libc::AT_RECURSIVE | libc::O_CLOEXEC;
    // SAFETY: the path is a C string, the rest are integers.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    if fd < 0 { Err(errno()) } else { Ok(fd as libc::c_int) }
}

/// Attaches a detached tree at `path`: move_mount(2), Linux 5.2.
fn move_tree(tree: libc::c_int, path: &CString) {
    // SAFETY: both paths are C strings, the rest are integers.
    unsafe {
        libc::syscall(libc::SYS_move_mount, tree, c"".as_ptr(), libc::AT_FDCWD, path.as_ptr(), MOVE_MOUNT_F_EMPTY_PATH)
    };
}

/// `errno` after a failed call.
pub(super) fn errno() -> i32 {
    // SAFETY: the location is this thread's, always valid.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *location }
}
