//! The root directory: up to 32 named roots, each a pair of lines written in turn.
//!
//! A root changes by writing the older line of its pair with the next sequence number, checksummed, flushed and fenced:
//! after a crash it is the old root or the new one. A removed root is a line without a name.

use std::path::Path;

use zerocopy::FromZeros;

use crate::addr::{PmAddr, PmPtr};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::pool::layout::{ROOTS_MAX, ROOTS_OFFSET, RootLine, crc_of};

fn line(root: u64, index: u64) -> PmPtr<RootLine> {
    PmPtr::new(PmAddr::new(0, ROOTS_OFFSET + root * 128 + index * 64))
}

/// The newest intact line of root `root` and its index in the pair.
fn newest(memory: &Memory, root: u64) -> Option<(RootLine, u64)> {
    (0..2)
        .map(|index| (memory.get(line(root, index)), index))
        .filter(|(found, _)| found.sequence > 0 && found.crc == crc_of(found))
        .max_by_key(|(found, _)| found.sequence)
}

fn name_of(found: &RootLine) -> &[u8] {
    &found.name[..usize::from(found.name_bytes).min(found.name.len())]
}

pub(crate) fn get(_path: &Path, memory: &Memory, name: &str) -> Result<Option<(u32, PmAddr)>> {
    Ok((0..ROOTS_MAX)
        .filter_map(|root| newest(memory, root))
        .find(|(found, _)| name_of(found) == name.as_bytes())
        .map(|(found, _)| (found.kind, PmAddr::from_raw(found.addr))))
}

pub(crate) fn set(path: &Path, memory: &Memory, name: &str, kind: u32, addr: PmAddr) -> Result<()> {
    let bytes = name.as_bytes();
    let mut next = RootLine { addr: addr.to_raw(), kind, ..RootLine::new_zeroed() };
    if bytes.is_empty() || bytes.len() > next.name.len() {
        return Err(Error::Invalid {
            what: "root name",
            finding: format!("`{name}` has {} bytes", bytes.len()),
            hint: "use 1 to 40 bytes",
        });
    }
    next.name[..bytes.len()].copy_from_slice(bytes);
    next.name_bytes = bytes.len() as u16;
    let all: Vec<_> = (0..ROOTS_MAX).map(|root| newest(memory, root)).collect();
    let same = all.iter().position(|old| old.is_some_and(|(found, _)| name_of(&found) == bytes));
    let free = || all.iter().position(|old| old.is_none_or(|(found, _)| found.name_bytes == 0));
    let Some(root) = same.or_else(free) else {
        return Err(Error::NoSpace { path: path.to_owned(), what: "another named root", wanted_bytes: 128 });
    };
    let (sequence, index) = all[root].map_or((0, 1), |(found, index)| (found.sequence, index));
    next.sequence = sequence + 1;
    next.crc = crc_of(&next);
    let target = line(root as u64, 1 - index);
    memory.put(target, &next);
    // The caller goes on as if the root were set: nothing it stores later may overtake it.
    memory.persist(target.addr(), 64);
    Ok(())
}
