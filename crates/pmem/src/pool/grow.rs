//! Growing: more bytes at the end of a part, online, without moving anything.
//!
//! 1. The file is extended, all its new blocks are allocated, and it is synced. No later step can run out of space.
//!    Every address that the state or the journal may name from here on exists after a crash. Bytes that an earlier,
//!    unfinished growth left after the end are cut off first, so that new space is zeroes.
//! 2. The new space is mapped after the old: no address changes.
//! 3. The copy of the header is stored at the new end and persisted.
//! 4. The state with the new length, and with the old length as `grown_from`, is persisted: the part has grown.
//! 5. The page of the former copy, inside the heap area now, is zeroed and persisted; a state without `grown_from` ends
//!    it. Only then does `heap_area` tell the new end.
//!
//! A crash before 4 leaves the old length and a longer file, which step 1 of the next growth cuts. After 4 the next
//! open does step 5 again. The order holds in every domain, because it is made of fences. In the block domain the lines
//! of 3, 4 and 5 are redo records in groups that land in order. Step 1 went to the file itself and was synced before
//! any of them.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use crate::addr::PmAddr;
use crate::error::{Error, Result};
use crate::events;
use crate::planted;
use crate::pool::layout::{PAGE_BYTES, StateSlot};
use crate::pool::part::{self, PartFile};
use crate::pool::{Pool, open, space, state};
use crate::sync::lock;

impl Pool {
    /// Grows `part` to `part_bytes` (rounded up to whole pages) while the pool is in use. Returns the new length,
    /// durable.
    ///
    /// # Errors
    /// When the length is not larger than the present one, the disk is full, or the part is a device or read-only. Also
    /// when the address space that was reserved at open does not suffice. The part keeps its old length then.
    pub fn grow(&self, part: u16, part_bytes: u64) -> Result<u64> {
        let mut states = self.shared.states();
        let index = usize::from(part);
        let invalid = |finding: String, hint| Err(Error::Invalid { what: "new size", finding, hint });
        let Some(old) = states.get(index).copied() else {
            return invalid(format!("the pool has no part {part}"), "see `lodestone pool info` for its parts");
        };
        let Some(wanted) = part_bytes.checked_next_multiple_of(PAGE_BYTES).filter(|bytes| *bytes > old.part_bytes)
        else {
            let finding = format!("{part_bytes} bytes; the part has {} already", old.part_bytes);
            return invalid(finding, "a pool only grows: ask for more than it has");
        };
        if self.memory.is_read_only() {
            return invalid("the pool is open read-only".into(), "open it for writing");
        }
        self.extend(part, old.part_bytes, wanted)?;
        let header = self.shared.headers[index];
        let copy = part::copy(part, wanted);
        self.memory.put(copy, &header);
        if !planted::active("pool-grow-copy-not-flushed") {
            // The state that makes this the end of the part must not overtake the copy that repair looks for at the
            // end.
            self.memory.persist(copy.addr(), PAGE_BYTES);
        }
        let grown = StateSlot { part_bytes: wanted, grown_from: old.part_bytes, ..old };
        states[index] = state::write(&self.memory, part, grown);
        open::clear_former_copy(&self.memory, part, old.part_bytes);
        states[index] = state::write(&self.memory, part, StateSlot { grown_from: 0, ..states[index] });
        self.memory.durable()?;
        self.shared.part_bytes[index].store(wanted, Ordering::Release);
        drop(states);
        events::grown(self.path(), part, old.part_bytes, wanted);
        Ok(wanted)
    }

    /// Grows `part`, whose end was `seen_end` when it had no room for `bytes` more: by a quarter, by at least twice
    /// `bytes`, and at most to [`PoolOptions::grow_bytes_max`](crate::PoolOptions::grow_bytes_max). Returns whether
    /// another attempt makes sense: the part has grown, here or in another thread.
    ///
    /// The new length is durable when this returns. A thread that grows a part waits for the disk; others go on.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    ///
    /// ```
    /// use lodestone_pmem::{Pool, PoolOptions};
    /// let folder = tempfile::tempdir()?;
    /// let options = PoolOptions { size_bytes: 16 << 20, grow_bytes_max: 32 << 20, ..PoolOptions::default() };
    /// let pool = Pool::create(&folder.path().join("shop.pool"), &options)?;
    /// let (_, end) = pool.heap_area(0);
    /// assert!(pool.grow_when_full(0, 64, end)?);
    /// let (_, grown) = pool.heap_area(0);
    /// assert!(grown > end);
    /// // Another thread that saw the same end tries again; it does not grow the part a second time.
    /// assert!(pool.grow_when_full(0, 64, end)?);
    /// assert_eq!(pool.heap_area(0).1, grown);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grow_when_full(&self, part: u16, bytes: u64, seen_end: PmAddr) -> Result<bool> {
        let _one_at_a_time = lock(&self.shared.growing);
        if self.heap_area(part).1 != seen_end {
            return Ok(true);
        }
        let old = seen_end.offset() + PAGE_BYTES;
        let wanted = old.saturating_add((old / 4).max(bytes.saturating_mul(2))).max(old + PAGE_BYTES);
        let wanted = wanted.min(self.shared.grow_bytes_max / PAGE_BYTES * PAGE_BYTES);
        if wanted <= old || self.memory.is_read_only() {
            return Ok(false);
        }
        self.grow(part, wanted)?;
        Ok(true)
    }

    /// Makes `old..wanted` exist, zeroed, in the file and in memory.
    fn extend(&self, part: u16, old: u64, wanted: u64) -> Result<()> {
        let path = self.shared.parts.get(usize::from(part)).map_or(&self.shared.path, |part| &part.path);
        let Some(mapping) = self.memory.mapping(part) else {
            return Err(Error::Invalid { what: "part", finding: "not mapped".into(), hint: "reopen the pool" });
        };
        if wanted > mapping.reserved_bytes() {
            return Err(Error::Invalid {
                what: "new size",
                finding: format!("{wanted} bytes; address space for {} was reserved at open", mapping.reserved_bytes()),
                hint: "close the pool, open it with a larger reserve_bytes, and grow then",
            });
        }
        let hint = "check free memory and the limit of address space";
        let failed = |source: rustix::io::Errno| Error::io(path, "mapping the new space", hint, source);
        match self.shared.parts.get(usize::from(part)) {
            Some(file) => {
                extend_file(file, old, wanted)?;
                mapping.extend(Some(file.file.as_fd()), wanted).map_err(failed)
            }
            None => {
                let left = mapping.len().min(wanted);
                mapping.extend(None, wanted).map_err(failed)?;
                if left > old {
                    let leftover = PmAddr::new(part, old);
                    self.memory.zero(leftover, left - old);
                    // Bytes of an unfinished growth must be gone before the state makes them heap.
                    self.memory.persist(leftover, left - old);
                }
                Ok(())
            }
        }
    }
}

fn extend_file(part: &PartFile, old: u64, wanted: u64) -> Result<()> {
    if part.is_device() {
        return Err(Error::Invalid {
            what: "new size",
            finding: format!("{} is a device", part.path.display()),
            hint: "a pool on a device has the device's size: copy its data to a larger one",
        });
    }
    part.verify_not_shorter(old)?;
    part.verify_linked()?;
    let failed =
        |action, source| Error::io(&part.path, action, "check the file system; the pool keeps its old length", source);
    let len = part.file.metadata().map_err(|e| failed("reading the length", e))?.len();
    if len > old {
        part.file.set_len(old).map_err(|e| failed("cutting off an unfinished growth", e))?;
    }
    if let Err(error) = space::allocate(&part.path, &part.file, old, wanted - old) {
        // Blocks of a half-made extension would be held for nothing; the file is whole without them.
        let _ = part.file.set_len(old);
        return Err(error);
    }
    part.file.sync_all().map_err(|e| failed("syncing the new length", e))
}
