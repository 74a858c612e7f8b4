//! One part of a pool in memory: a reserved stretch of address space with the part mapped at its start.
//!
//! The reservation is larger than the part, so that growing maps more of the file behind what is mapped already and no
//! address that was handed out ever moves.
//!
//! Invariants:
//! - bytes `0..len()` are mapped readable and writable until the value is dropped; `len()` only grows;
//! - nobody forms a Rust reference to mapped bytes, except to whole aligned words as atomics (see [`crate::Memory`]).
#![expect(unsafe_code, reason = "mmap and pointer arithmetic inside one mapping")]

use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// How a part is backed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Zeroed memory of this process.
    Anonymous,
    /// Private pages over a file: the file changes only by explicit writes.
    Private,
    /// The page cache of a file.
    Shared,
    /// The medium itself: `MAP_SHARED_VALIDATE | MAP_SYNC`, refused by the kernel unless the file is on DAX.
    SharedSync,
    /// A shared mapping that cannot be written: a device that was opened read-only.
    SharedReadOnly,
    /// As `SharedSync`, without write permission: asks whether the kernel would grant it.
    SyncProbe,
}

/// A mapped part.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    reserved: usize,
    len: AtomicU64,
    backing: Backing,
    extend: Mutex<()>,
}

// SAFETY: the mapping is plain memory; `base` and `reserved` never change, and all access is by atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

const PAGE: u64 = 4096;
const HUGE: usize = 2 << 20;

impl Mapping {
    /// Reserves `reserve` bytes of address space, aligned to 2 MiB so that huge pages are possible, and maps nothing.
    pub(crate) fn reserve(reserve: u64, backing: Backing) -> rustix::io::Result<Self> {
        Self::reserve_aligned(reserve, HUGE as u64, backing)
    }

    /// As [`reserve`](Self::reserve), aligned to at least `align` bytes, a power of two (devices ask for their own).
    pub(crate) fn reserve_aligned(reserve: u64, align: u64, backing: Backing) -> rustix::io::Result<Self> {
        let too_large = |_| rustix::io::Errno::NOMEM;
        let align = usize::try_from(align).map_err(too_large)?.next_power_of_two().max(HUGE);
        let reserved = usize::try_from(reserve.next_multiple_of(PAGE)).map_err(too_large)?;
        let reserved = reserved.checked_add(align).ok_or(rustix::io::Errno::NOMEM)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        }?;
        let skip = start.align_offset(align);
        // SAFETY: `skip < align`, so the pointer stays inside the reservation. The head and tail stay reserved: the tail
        // is unmapped together with the rest on drop, the head is given back here.
        let base = unsafe { start.cast::<u8>().add(skip) };
        if skip > 0 {
            // SAFETY: these pages are ours and were never handed out.
            unsafe { munmap(start, skip) }?;
        }
        Ok(Self { base, reserved: reserved - skip, len: AtomicU64::new(0), backing, extend: Mutex::new(()) })
    }

    /// Maps bytes up to `len` (whole pages) of `file`, or zeroed memory, behind what is mapped.
    pub(crate) fn extend(&self, file: Option<BorrowedFd<'_>>, len: u64) -> rustix::io::Result<()> {
        let _guard = self.extend.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let old = self.len.load(Ordering::Relaxed);
        if len <= old {
            return Ok(());
        }
        // Devdax maps whole huge pages; everything else whole pages. The caller passes lengths that fit the backing.
        let start = usize::try_from(old).map_err(|_| rustix::io::Errno::NOMEM)?;
        let bytes = usize::try_from(len - old).map_err(|_| rustix::io::Errno::NOMEM)?;
        if start + bytes > self.reserved || !old.is_multiple_of(PAGE) {
            return Err(rustix::io::Errno::NOMEM);
        }
        let flags = MapFlags::FIXED
            | match self.backing {
                Backing::Anonymous => MapFlags::PRIVATE,
                // Most pages of a pool are never stored to in one life: without this flag the kernel would refuse every
                // pool that is larger than memory.
                Backing::Private => MapFlags::PRIVATE | MapFlags::NORESERVE,
                Backing::Shared | Backing::SharedReadOnly => MapFlags::SHARED,
                Backing::SharedSync | Backing::SyncProbe => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            };
        let protection = match self.backing {
            Backing::SharedReadOnly | Backing::SyncProbe => ProtFlags::READ,
            _ => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: the target range lies in our reservation and behind `len`, where nothing is mapped or handed out.
        unsafe {
            let at = self.base.add(start).cast();
            match file {
                Some(file) => mmap(at, bytes, protection, flags, file, old)?,
                None => mmap_anonymous(at, bytes, protection, flags)?,
            }
        };
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Bytes of address space that growing can use.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved as u64
    }

    /// Bytes mapped.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Pointer to the byte at `offset`.
    ///
    /// # Panics
    /// When `offset..offset + len` is not mapped.
    #[inline]
    #[track_caller]
    pub(crate) fn at(&self, offset: u64, len: u64) -> *mut u8 {
        let end = offset.wrapping_add(len);
        assert!(end >= offset && end <= self.len.load(Ordering::Acquire), "address outside the part");
        // SAFETY: the assertion puts the range inside the mapping, which fits in usize because it was mapped.
        unsafe { self.base.add(offset as usize) }
    }
}

impl Mapping {
    /// As [`at`](Self::at), `None` when the range is not mapped.
    #[inline(always)]
    pub(crate) fn checked_at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: as in `at`.
        (end <= self.len.load(Ordering::Acquire)).then(|| unsafe { self.base.add(offset as usize) })
    }
}

/// Asks the kernel to back `place`, memory of this process, with huge pages where they fit: one entry of the translation cache covers
/// 2 MiB then. For large tables in DRAM that are searched at random, before they are first written. A hint: contents do not
/// change, and nothing happens where the kernel has no such pages to give.
pub fn advise_huge_pages<T>(place: &[T]) {
    let (start, bytes) = (place.as_ptr().cast::<u8>(), size_of_val(place));
    let skip = start.align_offset(PAGE as usize);
    let whole = bytes.saturating_sub(skip) / PAGE as usize * PAGE as usize;
    if whole < HUGE {
        return;
    }
    // SAFETY: the range lies inside `place`, which is borrowed; the advice changes how its pages are backed, not what they hold.
    let _ = unsafe { madvise(start.wrapping_add(skip).cast_mut().cast(), whole, Advice::LinuxHugepage) };
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what this value reserved, and no handle outlives the owning `Memory`. Failure
        // would leave address space behind, which harms nobody.
        let _ = unsafe { munmap(self.base.cast(), self.reserved) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extending_keeps_addresses_and_contents() {
        let mapping = Mapping::reserve(1 << 20, Backing::Anonymous).expect("address space");
        mapping.extend(None, PAGE).expect("first page");
        let first = mapping.at(8, 8);
        // SAFETY: the word is mapped and only this thread uses it.
        unsafe { first.cast::<u64>().write(42) };
        mapping.extend(None, 16 * PAGE).expect("more pages");
        assert_eq!(first, mapping.at(8, 8));
        // SAFETY: as above.
        assert_eq!(unsafe { first.cast::<u64>().read() }, 42);
        assert_eq!(mapping.len(), 16 * PAGE);
        assert!(mapping.extend(None, 4 << 20).is_err(), "beyond the reservation");
    }

    #[test]
    #[should_panic(expected = "outside the part")]
    fn access_behind_the_end_panics() {
        let mapping = Mapping::reserve(1 << 20, Backing::Anonymous).expect("address space");
        mapping.extend(None, PAGE).expect("first page");
        mapping.at(PAGE - 4, 8);
    }
}
