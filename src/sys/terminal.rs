//! Terminals: how wide one is (ioctl_tty(2), `TIOCGWINSZ`).
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

mod raw {
    nix::ioctl_read_bad!(window_size, libc::TIOCGWINSZ, libc::winsize);
}

/// The columns of the terminal behind `file`; `None` where it is no terminal or does not say.
pub fn columns(file: impl AsFd) -> Option<usize> {
    // SAFETY: winsize is plain integers, for which zero is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open while `file` is borrowed, and the kernel writes one winsize.
    unsafe { raw::window_size(file.as_fd().as_raw_fd(), &raw mut size) }.ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::*;

    nix::ioctl_write_ptr_bad!(set_window_size, libc::TIOCSWINSZ, libc::winsize);

    #[test]
    fn a_file_has_no_columns_and_a_terminal_says_them() {
        assert_eq!(columns(File::open("/dev/null").unwrap()), None);
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
        assert_eq!(columns(&terminal), None, "nobody has said");
        let size = libc::winsize { ws_row: 24, ws_col: 61, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the descriptor is open, and the kernel reads one winsize.
        unsafe { set_window_size(terminal.as_raw_fd(), &raw const size) }.unwrap();
        assert_eq!(columns(&terminal), Some(61));
    }
}
