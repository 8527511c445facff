//! Descriptors that a parent left behind under known numbers.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors that have been taken, one bit each.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Takes descriptor `number`, which this process has from its parent, and closes it on exec.
///
/// # Errors
/// `EBADF` when it is not open, is a standard stream, or was taken before.
pub fn take(number: u8) -> io::Result<OwnedFd> {
    let not_there = || io::Error::from_raw_os_error(libc::EBADF);
    let bit = 1_u64.checked_shl(u32::from(number)).ok_or_else(not_there)?;
    let number = RawFd::from(number);
    if number <= libc::STDERR_FILENO {
        return Err(not_there());
    }
    // SAFETY: fcntl with F_SETFD takes integers; on a number that is not open it only fails.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if TAKEN.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return Err(not_there());
    }
    // SAFETY: the descriptor is open, and `TAKEN` sees to it that it gets one owner. The caller is a process that was
    // started with it, and asks before it opens others.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
