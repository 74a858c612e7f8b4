//! The root directory: up to 32 named roots, each in two mirrored lines (see `mirror`).
//!
//! A change is atomic: after a crash it is the old root or the new one. A removed root is a record without a name. When
//! both lines of a root are damaged its name is unknown. A lookup that finds its name nowhere else says so instead of
//! "no such root".

use std::path::Path;

use lodestone_width::{exact_u16, to_u64};
use zerocopy::FromZeros;

use crate::addr::{PmAddr, PmPtr};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::planted;
use crate::pool::layout::{ROOTS_MAX, ROOTS_MIRROR_BYTES, ROOTS_OFFSET, RootLine};
use crate::pool::mirror::{self, Line, Mirror};

/// Addresses of the two lines of root number `root`.
pub(crate) fn places(root: u64) -> [PmPtr<RootLine>; 2] {
    [0, ROOTS_MIRROR_BYTES].map(|half| PmPtr::new(PmAddr::new(0, ROOTS_OFFSET + half + root * 64)))
}

/// Both lines of every root, by number.
pub(crate) fn read_all(memory: &Memory) -> Vec<Mirror<RootLine>> {
    (0..ROOTS_MAX).map(|root| Mirror::read(memory, places(root))).collect()
}

/// The bytes of the name of `found`.
pub(crate) fn name_of(found: &RootLine) -> &[u8] {
    &found.name[..usize::from(found.name_bytes).min(found.name.len())]
}

fn lost(path: &Path, root: u64, name: &str) -> Error {
    Error::Format {
        path: path.to_owned(),
        offset: places(root)[0].addr().offset(),
        finding: format!("both copies of root number {root} are damaged, and it may be the root `{name}`"),
        expected: "at least one copy with a valid CRC-32C".into(),
        hint: "run `lodestone pool check` to see all damage, and restore a backup".into(),
    }
}

/// Kind and address of the root `name`.
pub(crate) fn get(path: &Path, memory: &Memory, name: &str) -> Result<Option<(u32, PmAddr)>> {
    let all = read_all(memory);
    let found = all.iter().filter_map(Mirror::newest).find(|(found, _)| name_of(found) == name.as_bytes());
    match (found, all.iter().position(Mirror::is_lost)) {
        (Some((found, _)), _) => Ok(Some((found.kind, PmAddr::from_raw(found.addr)))),
        (None, Some(root)) => Err(lost(path, to_u64(root), name)),
        (None, None) => Ok(None),
    }
}

/// Sets the root `name`; persistent on return. The caller serialises calls.
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
    next.name_bytes = exact_u16(bytes.len());
    let all = read_all(memory);
    let same = all.iter().position(|old| old.newest().is_some_and(|(found, _)| name_of(&found) == bytes));
    let is_free =
        |old: &Mirror<RootLine>| !old.is_lost() && old.newest().is_none_or(|(found, _)| found.name_bytes == 0);
    let root = match (same, all.iter().position(Mirror::is_lost)) {
        (Some(root), _) => root,
        // A second root of the same name would shadow the damaged one for good.
        (None, Some(root)) => return Err(lost(path, to_u64(root), name)),
        (None, None) => all.iter().position(is_free).ok_or_else(|| Error::NoSpace {
            path: path.to_owned(),
            what: "another named root",
            wanted_bytes: 128,
        })?,
    };
    if planted::active("pool-root-in-place") {
        let sequence = all[root].newest().map_or(0, |(old, _)| old.sequence());
        next.seal(mirror::next_sequence::<RootLine>(sequence));
        for place in places(to_u64(root)) {
            memory.put(place, &next);
            // Wrong on purpose: the second line may overtake the first.
            memory.flush(place.addr(), 64);
        }
        // The caller's next stores must not overtake the root.
        memory.fence();
        return Ok(());
    }
    mirror::write(memory, places(to_u64(root)), next);
    Ok(())
}

/// Makes both lines of every root equal again after a crash or after damage to one of them; tells how many it wrote.
pub(crate) fn heal(memory: &Memory) -> u64 {
    let mut healed = 0;
    for (root, mirror) in (0..ROOTS_MAX).zip(read_all(memory)) {
        match mirror.newest() {
            Some((newest, _)) if !mirror.is_at_rest() => {
                mirror::write(memory, places(root), newest);
                healed += 1;
            }
            None if mirror.is_torn_first_write() => {
                for place in places(root) {
                    memory.zero(place.addr(), 64);
                    // The next first write of this root relies on empty lines: its stores may not overtake the zeroes.
                    memory.persist(place.addr(), 64);
                }
                healed += 1;
            }
            _ => {}
        }
    }
    healed
}
