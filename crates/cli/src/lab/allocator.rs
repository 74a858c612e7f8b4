//! The allocator of the command: mimalloc, as in `lodestone`, with a count of the bytes that are in use. `bench index`
//! needs it to report an index's share of DRAM.
//!
//! Each thread counts in one of [`CELLS`] cells. Counting costs an addition on a line that no other thread writes at
//! the time, unless there are more threads than cells. Bytes that one thread allocates and another frees make cells
//! negative; only the sum of the cells means anything. The overhead that mimalloc adds to each block is not
//! counted.

#![expect(unsafe_code, reason = "an allocator is an unsafe trait; every call goes to mimalloc unchanged")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use mimalloc::MiMalloc;

/// Cells that the threads share.
const CELLS: usize = 64;

static IN_USE: [CachePadded<AtomicI64>; CELLS] = [const { CachePadded::new(AtomicI64::new(0)) }; CELLS];
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's cell. It has no destructor and a constant start, so that the allocator may read it at any time.
    static CELL: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Mimalloc, counted.
pub struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Bytes that the process has allocated and not freed.
pub fn bytes_in_use() -> u64 {
    let sum: i64 = IN_USE.iter().map(|cell| cell.load(Ordering::Relaxed)).sum();
    u64::try_from(sum).unwrap_or(0)
}

#[inline]
fn count(bytes: i64) {
    let mut cell = CELL.get();
    if cell == usize::MAX {
        cell = THREADS.fetch_add(1, Ordering::Relaxed) % CELLS;
        CELL.set(cell);
    }
    IN_USE[cell].fetch_add(bytes, Ordering::Relaxed);
}

/// A size as a signed number: no block is larger than half the address space.
#[inline]
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

// SAFETY: every method passes its arguments to mimalloc unchanged and returns its result. Counting
// neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's obligations are those of mimalloc.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as in `alloc`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: as in `alloc`. The block came from mimalloc.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(signed(bytes) - signed(layout.size()));
        // SAFETY: as in `dealloc`.
        unsafe { MiMalloc.realloc(block, layout, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_what_is_freed_is_not() {
        const BYTES: usize = 64 << 20;
        let before = bytes_in_use();
        let held = vec![1_u8; BYTES];
        assert!(bytes_in_use() >= before + BYTES as u64 / 2, "other tests free less than half of this");
        std::thread::spawn(move || drop(held)).join().expect("thread");
        assert!(bytes_in_use() < before + BYTES as u64 / 2);
    }
}
