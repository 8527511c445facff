//! Signals whose default would end the program without a word.
#![allow(unsafe_code)]

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Makes a write beyond the limit on a file's size (setrlimit(2), `RLIMIT_FSIZE`) fail with `EFBIG`, as one to a full disk
/// fails, instead of killing the program. A handler, not `SIG_IGN`: programs that are started from here do not inherit it.
///
/// # Errors
/// The system refuses; then the signal kills as before.
pub fn survive_file_size_limit() -> io::Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing, so it is safe in every context that a signal may interrupt (signal-safety(7)).
    unsafe { sigaction(Signal::SIGXFSZ, &action) }?;
    Ok(())
}
