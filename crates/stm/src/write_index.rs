//! Finds objects in the write set: by a look at each entry while there are few, by an open-addressing table when there
//! are many.

use lodestone_pmem::PmAddr;
use lodestone_width::to_usize;

use crate::context::WriteEntry;

/// Up to this many entries are searched one by one.
const FEW: usize = 8;
const EMPTY: u32 = u32::MAX;

/// See the module.
#[derive(Debug, Default)]
pub struct WriteIndex {
    /// Numbers of entries. A power of two long, at most half full, empty while there are few.
    table: Vec<u32>,
}

fn home(at: PmAddr, mask: usize) -> usize {
    to_usize((at.to_raw() >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) & mask
}

impl WriteIndex {
    /// Number of the entry for `at`.
    #[inline]
    pub fn find(&self, at: PmAddr, writes: &[WriteEntry]) -> Option<usize> {
        if self.table.is_empty() {
            return writes.iter().position(|entry| entry.at == at);
        }
        self.find_hashed(at, writes)
    }

    fn find_hashed(&self, at: PmAddr, writes: &[WriteEntry]) -> Option<usize> {
        let mask = self.table.len() - 1;
        let mut place = home(at, mask);
        loop {
            match self.table[place] {
                EMPTY => return None,
                number if writes[to_usize(number)].at == at => return Some(to_usize(number)),
                _ => place = (place + 1) & mask,
            }
        }
    }

    /// Notes entry `number`, the newest of `writes`.
    #[inline]
    pub fn insert(&mut self, at: PmAddr, number: usize, writes: &[WriteEntry]) {
        if writes.len() <= FEW {
            return;
        }
        if writes.len() * 2 > self.table.len() {
            let len = (writes.len() * 4).next_power_of_two();
            self.table.clear();
            self.table.resize(len, EMPTY);
            for (number, entry) in writes.iter().enumerate() {
                self.place(entry.at, number);
            }
        } else {
            self.place(at, number);
        }
    }

    fn place(&mut self, at: PmAddr, number: usize) {
        let mask = self.table.len() - 1;
        let mut place = home(at, mask);
        while self.table[place] != EMPTY {
            place = (place + 1) & mask;
        }
        self.table[place] = u32::try_from(number).expect("a transaction has less than 2^32 objects");
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.table.clear();
    }
}
