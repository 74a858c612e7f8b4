//! Two equal copies of a record that never changes, such as the header line of an object.
//!
//! The reader of a header knows what both copies should be from the one that verifies. Until a damaged copy is made
//! whole again, damage to the other one would lose the object.

use lodestone_pmem::{Memory, PmAddr, PmPtr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The record of which `copies` are equal copies. A damaged one does not count.
///
/// # Errors
/// The finding, when no copy verifies, or when both do and differ. No crash and no flipped bit does that: which of them
/// is right cannot be known, and mending would destroy the other one.
pub fn read<T>(memory: &Memory, copies: [PmAddr; 2], verifies: impl Fn(&T) -> bool) -> Result<T, &'static str>
where
    T: FromBytes + IntoBytes + Immutable + PartialEq,
{
    match copies.map(|copy| Some(memory.get::<T>(PmPtr::new(copy))).filter(&verifies)) {
        [None, None] => Err("both copies have a wrong magic or checksum"),
        [Some(first), Some(second)] if first != second => Err("both copies verify, and they differ"),
        [Some(record), _] | [None, Some(record)] => Ok(record),
    }
}

/// Those of `copies` that differ from `record`.
#[must_use]
pub fn damaged<T>(memory: &Memory, copies: [PmAddr; 2], record: &T) -> Vec<PmAddr>
where
    T: FromBytes + IntoBytes + Immutable + PartialEq,
{
    copies.into_iter().filter(|copy| memory.get::<T>(PmPtr::new(*copy)) != *record).collect()
}

/// Makes those of `copies` that differ from `record` whole again, and flushes them. The caller fences. Returns how many
/// there were.
pub fn heal<T>(memory: &Memory, copies: [PmAddr; 2], record: &T) -> usize
where
    T: FromBytes + IntoBytes + Immutable + PartialEq,
{
    let damaged = damaged(memory, copies, record);
    for &copy in &damaged {
        memory.put(PmPtr::new(copy), record);
        // The other copy may be damaged next.
        memory.flush(copy, lodestone_width::to_u64(size_of::<T>()));
    }
    damaged.len()
}
