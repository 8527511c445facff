//! Memory that begins at a page, for what is copied into and out of the kernel in bulk.
//!
//! The kernel copies with `rep movsb` (arch/x86/lib/copy_user_64.S), which on many CPUs is several times slower where source
//! and destination are not aligned alike; its own pages are aligned, an allocator's large blocks begin 16 bytes later.

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
