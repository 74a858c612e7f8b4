//! Memory for a page that is read.

use std::ops::{Deref, DerefMut};

use lodestone_pmem::FILE_BLOCK_BYTES;
use lodestone_width::const_usize;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes that can become more.
pub trait Buffer: DerefMut<Target = [u8]> {
    /// Makes them so many at least.
    fn lengthen(&mut self, length: usize);
}

impl Buffer for Vec<u8> {
    fn lengthen(&mut self, length: usize) {
        if self.len() < length {
            self.resize(length, 0);
        }
    }
}

/// Bytes that begin where a file can be read around the page cache of the system.
#[derive(Debug)]
pub struct PageBuffer(Vec<Aligned>);

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Aligned([u8; 4096]);

const _: () = assert!(align_of::<Aligned>() == const_usize(FILE_BLOCK_BYTES));

impl PageBuffer {
    /// No bytes.
    pub const fn new() -> Self {
        Self(Vec::new())
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

impl Buffer for PageBuffer {
    fn lengthen(&mut self, length: usize) {
        let blocks = length.div_ceil(size_of::<Aligned>());
        if self.0.len() < blocks {
            self.0.resize_with(blocks, Aligned::new_zeroed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_where_a_file_can_be_read_around_the_cache() {
        let mut bytes = PageBuffer::new();
        for length in [1, 4096, 4097, 65_536] {
            bytes.lengthen(length);
            assert!(bytes.len() >= length && bytes.as_ptr().addr().is_multiple_of(const_usize(FILE_BLOCK_BYTES)));
        }
        let before = bytes.len();
        bytes[5] = 5;
        bytes.lengthen(10);
        assert_eq!((bytes.len(), bytes[5]), (before, 5), "it never loses bytes");
    }
}
