//! One part of a pool in memory: a reserved stretch of address space with the part mapped at its start.
//!
//! The reservation is larger than the part. Growing maps more of the file after the mapped bytes, and no address ever
//! moves.
//!
//! Growing puts a mapping over reserved pages (`MAP_FIXED`). Kernels before 6.12 take the old pages away first. A later
//! refusal then leaves a hole, which any other mapping of the process may fill. So:
//! 1. the kernel is asked for a first mapping elsewhere, which tells whether it grants this file these flags;
//! 2. when the mapping over reserved pages is refused all the same (memory, mostly), the owner of the range is unknown.
//!    The range is given up for good: it is neither mapped again nor unmapped. That costs address space alone.
//!
//! Invariants:
//! - bytes `0..len()` are mapped readable and writable until the value is dropped; `len()` only grows;
//! - a page is unmapped, or mapped over, only while it is certainly ours;
//! - no Rust reference to mapped bytes is formed, except to whole aligned words as atomics (see [`crate::Memory`]).
#![expect(unsafe_code, reason = "mmap and pointer arithmetic inside one mapping")]

use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_width::{to_u64, to_usize};
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

/// How bytes of a file are read: see [`Mapping::advise_reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Here and there: the kernel reads no others with them.
    AtRandom,
    /// All of them, soon: the kernel reads them together, and the caller does not wait.
    Soon,
}

/// A mapped part.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    reserved: usize,
    len: AtomicU64,
    backing: Backing,
    /// A mapping of the backing file starts and ends at multiples of so many bytes.
    granule: usize,
    /// Bytes from `len` on that were given up; nothing can be mapped after them.
    given_up: Mutex<usize>,
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
        Self::reserve_aligned(reserve, to_u64(HUGE), backing)
    }

    /// As [`reserve`](Self::reserve), aligned to at least `align` bytes, a power of two (devices ask for their own).
    pub(crate) fn reserve_aligned(reserve: u64, align: u64, backing: Backing) -> rustix::io::Result<Self> {
        let too_large = rustix::io::Errno::NOMEM;
        let granule = usize::try_from(align.max(PAGE)).map_err(|_| too_large)?;
        let align = granule.checked_next_power_of_two().ok_or(too_large)?.max(HUGE);
        let reserved = reserve.checked_next_multiple_of(PAGE).and_then(|bytes| usize::try_from(bytes).ok());
        let reserved = reserved.and_then(|bytes| bytes.checked_add(align)).ok_or(too_large)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        }?;
        let skip = start.align_offset(align);
        // SAFETY: `skip < align`, so the pointer stays inside the reservation. The tail stays reserved and is unmapped
        // with the rest on drop. The head is unmapped here.
        let base = unsafe { start.cast::<u8>().add(skip) };
        if skip > 0 {
            // SAFETY: these pages are ours and were never handed out.
            unsafe { munmap(start, skip) }?;
        }
        let (len, given_up) = (AtomicU64::new(0), Mutex::new(0));
        Ok(Self { base, reserved: reserved - skip, len, backing, granule, given_up })
    }

    /// Maps bytes up to `len` (whole pages) of `file`, or zeroed memory, after the mapped bytes.
    ///
    /// # Errors
    /// The kernel's error. The mapped bytes stay. After some refusals nothing more can be mapped after them.
    pub(crate) fn extend(&self, file: Option<BorrowedFd<'_>>, len: u64) -> rustix::io::Result<()> {
        let mut given_up = self.given_up.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let old = self.len.load(Ordering::Relaxed);
        if len <= old {
            return Ok(());
        }
        // Devdax maps whole huge pages; everything else whole pages. The caller passes lengths that fit the backing.
        let start = usize::try_from(old).map_err(|_| rustix::io::Errno::NOMEM)?;
        let bytes = usize::try_from(len - old).map_err(|_| rustix::io::Errno::NOMEM)?;
        if start + bytes > self.reserved || !old.is_multiple_of(PAGE) || *given_up > 0 {
            return Err(rustix::io::Errno::NOMEM);
        }
        if let Some(file) = file {
            self.probe(file, old)?;
        }
        if let Err(error) = self.map_over(file, start, bytes) {
            // The reserved pages may be gone from this range, and another mapping may be in it.
            *given_up = bytes;
            return Err(error);
        }
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Flags and protection of the backing.
    fn kind(&self) -> (MapFlags, ProtFlags) {
        let flags = match self.backing {
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
        (flags, protection)
    }

    /// Asks for a mapping of `file` at `offset` like the later one, but at an address of the kernel's choice.
    fn probe(&self, file: BorrowedFd<'_>, offset: u64) -> rustix::io::Result<()> {
        let (flags, protection) = self.kind();
        // SAFETY: a mapping at an address of the kernel's choice overlaps nothing. No code reads it, and only this
        // mapping is unmapped. A failure to unmap costs address space alone.
        unsafe {
            let place = mmap(std::ptr::null_mut(), self.granule, protection, flags, file, offset)?;
            let _ = munmap(place, self.granule);
        }
        Ok(())
    }

    /// Maps `bytes` bytes of `file`, or zeroed memory, over the reserved pages from `start` on. After an error the
    /// range may no longer be used.
    fn map_over(&self, file: Option<BorrowedFd<'_>>, start: usize, bytes: usize) -> rustix::io::Result<()> {
        let (flags, protection) = self.kind();
        let flags = flags | MapFlags::FIXED;
        #[cfg(test)]
        tests::refuse_if_told(self.base.wrapping_add(start), bytes)?;
        // SAFETY: the caller found the range inside the reservation, after `len` and not given up. It holds only
        // reserved pages of ours that were never handed out.
        unsafe {
            let at = self.base.add(start).cast();
            match file {
                Some(file) => mmap(at, bytes, protection, flags, file, to_u64(start))?,
                None => mmap_anonymous(at, bytes, protection, flags)?,
            }
        };
        Ok(())
    }

    /// Gives the private copies of the whole pages in a range back: from then on these show the file. For a range whose
    /// bytes the file has, and of which no word is stored meanwhile. Does nothing to other mappings than private ones.
    pub(crate) fn drop_private(&self, offset: u64, len: u64) {
        let (start, end) = (offset.next_multiple_of(PAGE), (offset + len) / PAGE * PAGE);
        if self.backing == Backing::Private && start < end {
            // SAFETY: `at` finds the range mapped. It stays so: the pages are read from the file again when they are
            // touched. All access to them is by word atomics.
            // The advice is refused for locked pages alone, and then the copies stay, which are equal.
            let _ =
                unsafe { madvise(self.at(start, end - start).cast(), to_usize(end - start), Advice::LinuxDontNeed) };
        }
    }

    /// Of a mapping over the page cache of a file: tells the kernel how the pages with the bytes of a range are read.
    /// Content does not change.
    pub(crate) fn advise_reads(&self, offset: u64, len: u64, advice: Reads) {
        let (start, end) = (offset / PAGE * PAGE, (offset + len).next_multiple_of(PAGE).min(self.len()));
        if !matches!(self.backing, Backing::Private | Backing::Shared) || start >= end {
            return;
        }
        let advice = match advice {
            Reads::AtRandom => Advice::Random,
            Reads::Soon => Advice::WillNeed,
        };
        // SAFETY: `at` finds the range mapped, and the two advices change when its pages are read from the file, not
        // their content. A kernel that refuses reads them as before.
        let _ = unsafe { madvise(self.at(start, end - start).cast(), to_usize(end - start), advice) };
    }

    /// Whether the pages are private copies over a file.
    pub(crate) fn is_private(&self) -> bool {
        self.backing == Backing::Private
    }

    /// Bytes of address space that growing can use.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        to_u64(self.reserved)
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
        unsafe { self.base.add(to_usize(offset)) }
    }
}

impl Mapping {
    /// As [`at`](Self::at), `None` when the range is not mapped.
    #[inline(always)]
    pub(crate) fn checked_at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: as in `at`.
        (end <= self.len.load(Ordering::Acquire)).then(|| unsafe { self.base.add(to_usize(offset)) })
    }
}

/// Asks the kernel to back `place`, memory of this process, with huge pages where they fit. One entry of the
/// translation cache then covers 2 MiB. For large tables in DRAM that are searched at random; call it before they are
/// first written. It is a hint: contents do not change, and nothing happens where the kernel has no such pages.
pub fn advise_huge_pages<T>(place: &[T]) {
    advise(place, Advice::LinuxHugepage);
}

/// Takes [`advise_huge_pages`] back, before an allocator has the memory again: it would keep a huge page for a few
/// bytes.
pub fn advise_small_pages<T>(place: &[T]) {
    advise(place, Advice::LinuxNoHugepage);
}

fn advise<T>(place: &[T], advice: Advice) {
    let (start, bytes) = (place.as_ptr().cast::<u8>(), size_of_val(place));
    let skip = start.align_offset(to_usize(PAGE));
    let whole = bytes.saturating_sub(skip) / to_usize(PAGE) * to_usize(PAGE);
    if whole < HUGE {
        return;
    }
    // SAFETY: the range is inside `place`, which is borrowed. Such an advice changes how its pages are backed, not
    // their content.
    let _ = unsafe { madvise(start.wrapping_add(skip).cast_mut().cast(), whole, advice) };
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let given_up = *self.given_up.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        // It was mapped, so it fits.
        let mapped = to_usize(*self.len.get_mut());
        let ours = if given_up == 0 {
            [(0, self.reserved), (0, 0)]
        } else {
            [(0, mapped), (mapped + given_up, self.reserved)]
        };
        for (start, end) in ours.into_iter().filter(|(start, end)| start < end) {
            // SAFETY: the range is in this value's reservation and has no page that was given up. No handle outlives
            // the owning `Memory`. A failure would only waste address space.
            let _ = unsafe { munmap(self.base.wrapping_add(start).cast(), end - start) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

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

    thread_local! {
        static REFUSE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    /// Acts as a kernel before 6.12 that refuses: takes the pages away, then returns the error.
    pub(super) fn refuse_if_told(at: *mut u8, bytes: usize) -> rustix::io::Result<()> {
        if !REFUSE.get() {
            return Ok(());
        }
        // SAFETY: as in `map_over`: reserved pages that no code uses.
        unsafe { munmap(at.cast(), bytes) }?;
        Err(rustix::io::Errno::NOMEM)
    }

    #[test]
    fn a_hole_that_a_refusal_left_is_never_touched_again() {
        // Another test's thread may fill the hole first.
        let filled = (0..1000).find_map(|_| mapping_with_a_filled_hole());
        let (mapping, other) = filled.expect("a hole");
        let bytes = 2 * PAGE as usize;
        // SAFETY: the page was just mapped.
        unsafe { other.cast::<u64>().write(42) };
        assert!(mapping.extend(None, 4 * PAGE).is_err(), "nothing is mapped over what may be another's");
        // SAFETY: as above.
        assert_eq!(unsafe { other.cast::<u64>().read() }, 42, "growing again destroyed another's page");
        assert_eq!(mapping.len(), 2 * PAGE, "what was mapped stays");
        drop(mapping);
        // SAFETY: the advice changes nothing; where nothing is mapped the kernel says so.
        assert!(unsafe { madvise(other, bytes, Advice::Normal) }.is_ok(), "dropping unmapped another's page");
        // SAFETY: as above; where a drop took the page away this would be a SIGSEGV.
        assert_eq!(unsafe { other.cast::<u64>().read() }, 42);
        // SAFETY: it was mapped by this test.
        unsafe { munmap(other, bytes) }.expect("our own page");
    }

    /// Two pages mapped, and another mapping in the hole that a refusal left after them.
    fn mapping_with_a_filled_hole() -> Option<(Mapping, *mut std::ffi::c_void)> {
        let mapping = Mapping::reserve(1 << 20, Backing::Anonymous).expect("address space");
        mapping.extend(None, 2 * PAGE).expect("two pages");
        REFUSE.set(true);
        assert!(mapping.extend(None, 4 * PAGE).is_err());
        REFUSE.set(false);
        let bytes = 2 * PAGE as usize;
        // SAFETY: the two pages after the mapping were taken away; any code may map there.
        let hole = unsafe { mapping.base.add(bytes) }.cast();
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the kernel refuses where anything is mapped already.
        let other = unsafe { mmap_anonymous(hole, bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        Some((mapping, other.ok()?))
    }

    #[test]
    fn a_mapping_that_the_kernel_refuses_leaves_the_reservation_whole() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        std::fs::write(&path, vec![1; 4 * PAGE as usize]).expect("file");
        let reader = std::fs::File::open(&path).expect("read-only");
        let mapping = Mapping::reserve(1 << 20, Backing::Shared).expect("address space");
        let refused = mapping.extend(Some(reader.as_fd()), 4 * PAGE);
        assert_eq!(refused, Err(rustix::io::Errno::ACCESS), "no permission to write");
        let writer = std::fs::File::options().read(true).write(true).open(&path).expect("for writing");
        mapping.extend(Some(writer.as_fd()), 4 * PAGE).expect("nothing was given up");
        assert_eq!(mapping.len(), 4 * PAGE);
    }

    #[test]
    fn reservations_that_no_machine_has_are_refused() {
        for reserve in [u64::MAX, u64::MAX - PAGE + 2, 1 << 63] {
            assert!(Mapping::reserve(reserve, Backing::Anonymous).is_err(), "{reserve:#x}");
        }
        assert!(Mapping::reserve_aligned(PAGE, u64::MAX, Backing::Anonymous).is_err());
    }

    #[test]
    #[should_panic(expected = "outside the part")]
    fn access_behind_the_end_panics() {
        let mapping = Mapping::reserve(1 << 20, Backing::Anonymous).expect("address space");
        mapping.extend(None, PAGE).expect("first page");
        mapping.at(PAGE - 4, 8);
    }
}
