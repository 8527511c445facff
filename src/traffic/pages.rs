//! Memory that begins at a page, for what is copied into and out of the kernel in bulk.
//!
//! The kernel copies with `rep movsb` where the CPU is said to be fast at it (arch/x86/lib/copy_user_64.S). Some are many times
//! slower wherever the destination lies 1 to 31 bytes behind the source, modulo a page (seen: AMD EPYC with FSRM). The kernel's
//! fragments begin at pages and an allocator's large blocks 16 bytes later: with a plain `Vec` in this place one stream falls
//! to 0.6 of iperf3 (`cargo bench --bench generator -- --only tcp-1`).

use std::ops::{Deref, DerefMut};

const PAGE: usize = 4096;

/// So many bytes from the begin of a page on.
pub(super) struct Pages {
    storage: Vec<u8>,
    begin: usize,
    length: usize,
}

impl Pages {
    /// Zeros.
    pub(super) fn zeroed(length: usize) -> Self {
        let storage = vec![0; length + PAGE];
        let begin = storage.as_ptr().align_offset(PAGE).min(PAGE);
        Self { storage, begin, length }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.begin..self.begin + self.length]
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.begin..self.begin + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_page_and_holds_what_was_asked() {
        for length in [1, 4096, 100_000] {
            let pages = Pages::zeroed(length);
            assert_eq!((pages.len(), pages.as_ptr().addr() % PAGE), (length, 0));
        }
    }
}
