//! The counted block.

#![expect(unsafe_code, reason = "bytes after a count of owners, in memory that is chosen when they are made")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::arena::{Arena, Shard};

/// The head of a block, before its bytes.
#[repr(C)]
struct Head {
    owners: AtomicUsize,
    bytes: usize,
    /// Where the memory goes back to. `None`: to the allocator of the program.
    shard: Option<Arc<Shard>>,
}

/// More owners are a mistake: the count would come round, and the block would be free while it is in use.
const OWNERS_MAX: usize = usize::MAX / 2;

/// Bytes that do not change, with any number of owners.
///
/// It is one word. The bytes are after a count of owners, in memory of the allocator or of an [`Arena`](crate::Arena).
/// A block of no bytes takes no memory.
///
/// Threads may share it and send it, as an `Arc<[u8]>`.
///
/// ```
/// use lodestone_blocks::Block;
///
/// let block = Block::new(b"ash, beech");
/// let other = block.clone();
/// drop(block);
/// assert_eq!(&other[..3], b"ash");
/// ```
pub struct Block(Option<NonNull<Head>>);

// SAFETY: the bytes are written before the first owner has the block, and never after. The count is atomic, and the
// shard has a lock. So owners on several threads do not meet.
unsafe impl Send for Block {}
// SAFETY: as above. A shared reference reads the bytes, or makes another owner.
unsafe impl Sync for Block {}

/// Memory for a block, and who gave it.
pub(crate) struct Memory {
    /// As large and aligned as [`layout`] of its bytes says. It has no other owner.
    pub at: NonNull<u8>,
    pub shard: Option<Arc<Shard>>,
}

impl Memory {
    /// Memory of the allocator. Without any, the program ends as the standard library has it.
    pub fn of_allocator(layout: Layout) -> Self {
        // SAFETY: a block has a head, so the layout has bytes.
        let at = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self { at, shard: None }
    }
}

/// The layout of a block with so many bytes.
///
/// # Panics
/// If no memory is so large.
fn layout(bytes: usize) -> Layout {
    let bytes = Layout::array::<u8>(bytes);
    bytes.and_then(|bytes| Layout::new::<Head>().extend(bytes)).expect("memory is not so large").0
}

impl Block {
    /// A copy of `bytes`, in memory of the allocator.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self::of_parts(bytes.len(), [bytes])
    }

    /// Copies of `parts` one after the other, in memory of the allocator. They have `bytes` bytes.
    ///
    /// # Panics
    /// If the parts have another number of bytes.
    #[must_use]
    pub fn of_parts<'p>(bytes: usize, parts: impl IntoIterator<Item = &'p [u8]>) -> Self {
        Self::fill(bytes, parts, Memory::of_allocator)
    }

    /// As [`of_parts`](Self::of_parts), in memory of `arena` if there is one.
    ///
    /// # Panics
    /// As [`of_parts`](Self::of_parts).
    #[must_use]
    pub fn of_parts_in<'p>(arena: Option<&Arena>, bytes: usize, parts: impl IntoIterator<Item = &'p [u8]>) -> Self {
        match arena {
            Some(arena) => arena.of_parts(bytes, parts),
            None => Self::of_parts(bytes, parts),
        }
    }

    /// A block in memory that `take` gets for it.
    pub(crate) fn fill<'p>(
        bytes: usize,
        parts: impl IntoIterator<Item = &'p [u8]>,
        take: impl FnOnce(Layout) -> Memory,
    ) -> Self {
        let mut parts = parts.into_iter();
        if bytes == 0 {
            assert!(parts.all(<[u8]>::is_empty), "the parts have more bytes than none");
            return Self(None);
        }
        let Memory { at, shard } = take(layout(bytes));
        let head = at.cast::<Head>();
        // SAFETY: `take` returns memory for such a head, which is aligned, and has no other owner.
        unsafe { head.write(Head { owners: AtomicUsize::new(1), bytes, shard }) };
        // A panic below drops it: that frees the memory, and looks at no byte that is not there yet.
        let block = Self(Some(head));
        let mut filled = 0;
        for part in parts {
            assert!(part.len() <= bytes - filled, "the parts have more than {bytes} bytes");
            // SAFETY: after the head is room for `bytes` bytes, and the part ends in it. The memory is new, so the
            // part is not in it.
            unsafe { content(head).add(filled).copy_from_nonoverlapping(NonNull::from(part).cast(), part.len()) };
            filled += part.len();
        }
        assert!(filled == bytes, "the parts have {filled} bytes, not {bytes}");
        block
    }

    /// Bytes of memory that it takes, with what is before them, and what rounding adds.
    #[must_use]
    pub fn taken(&self) -> usize {
        // SAFETY: as in `deref`.
        let head = self.0.map(|head| unsafe { head.as_ref() });
        head.map_or(0, |head| match head.shard {
            Some(_) => Shard::taken(layout(head.bytes).size()),
            // Allocators have steps of 16 bytes at least.
            None => layout(head.bytes).size().next_multiple_of(16),
        })
    }

    /// Whether it is in memory of an arena that can go back to the allocator when this block and others are gone: see
    /// [`Arena::evacuate`].
    #[must_use]
    pub fn is_evacuating(&self) -> bool {
        // SAFETY: as in `deref`.
        let shard = self.0.and_then(|head| unsafe { head.as_ref() }.shard.as_ref());
        shard.is_some_and(|shard| shard.is_evacuating())
    }

    /// How many blocks have the same memory, this one included; 1 for one without bytes. Others may change it at any
    /// moment.
    #[must_use]
    pub fn owners(&self) -> usize {
        // SAFETY: as in `deref`.
        self.0.map_or(1, |head| unsafe { head.as_ref() }.owners.load(Ordering::Relaxed))
    }
}

/// Where the bytes are.
///
/// # Safety
/// The head is in memory of the [`layout`] of a block.
unsafe fn content(head: NonNull<Head>) -> NonNull<u8> {
    // SAFETY: the bytes begin where the head ends, as `layout` has them: bytes need no alignment.
    unsafe { head.add(1) }.cast()
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let Some(head) = self.0 else { return &[] };
        // SAFETY: the head and the bytes are there as long as an owner is. Only the count changes.
        unsafe { NonNull::slice_from_raw_parts(content(head), head.as_ref().bytes).as_ref() }
    }
}

impl Clone for Block {
    #[inline]
    fn clone(&self) -> Self {
        if let Some(head) = self.0 {
            // SAFETY: as in `deref`.
            // Relaxed: the thread has an owner, and so sees the bytes. The other owner goes with what this thread saw.
            let before = unsafe { head.as_ref() }.owners.fetch_add(1, Ordering::Relaxed);
            if before > OWNERS_MAX {
                // As for `Arc`: owners were forgotten without a drop.
                std::process::abort();
            }
        }
        Self(self.0)
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let Some(head) = self.0 else { return };
        // SAFETY: as in `deref`.
        // Release: what this owner read is read before another one frees the memory.
        if unsafe { head.as_ref() }.owners.fetch_sub(1, Ordering::Release) == 1 {
            // Acquire: after what all owners did before they dropped it.
            fence(Ordering::Acquire);
            // SAFETY: the last owner is gone.
            unsafe { free(head) };
        }
    }
}

/// Gives the memory of a block back.
///
/// # Safety
/// It has no owner, and this is called once.
unsafe fn free(head: NonNull<Head>) {
    // SAFETY: no reference to the head is left, and it is read for the last time.
    let Head { bytes, shard, .. } = unsafe { head.read() };
    match shard {
        // SAFETY: the shard allocated it: `fill` noted which.
        Some(shard) => unsafe { shard.free(head.cast(), layout(bytes)) },
        // SAFETY: the allocator has given it, with this layout.
        None => unsafe { dealloc(head.cast().as_ptr(), layout(bytes)) },
    }
}

impl Default for Block {
    /// A block of no bytes.
    fn default() -> Self {
        Self(None)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use super::*;
    use crate::Arena;

    #[test]
    fn a_block_is_a_copy_of_its_parts() {
        let parts: [&[u8]; 4] = [b"ash", b"", b"beech", b"fir"];
        for block in [Block::of_parts(11, parts), Arena::new(1 << 16, [256, 4096]).of_parts(11, parts)] {
            assert_eq!(*block, *b"ashbeechfir");
            assert_eq!(block.clone().as_ptr(), block.as_ptr(), "owners share the bytes");
            assert_eq!((block.owners(), block.clone().owners()), (1, 2));
            assert!(block.taken() >= 11 + size_of::<Head>());
        }
        assert_eq!(size_of::<Option<Block>>(), 2 * size_of::<usize>());
        assert_eq!((size_of::<Block>(), format!("{:?}", Block::new(b"a\n"))), (8, r#"b"a\n""#.to_owned()));
    }

    #[test]
    fn a_block_of_no_bytes_takes_no_memory() {
        let arena = Arena::new(1 << 16, [256, 4096]);
        for block in [Block::new(b""), Block::default(), arena.of_parts(0, []), arena.of_parts(0, [&b""[..]])] {
            assert_eq!((&*block, block.taken(), block.clone().owners()), (&b""[..], 0, 1));
        }
        assert_eq!(arena.taken(), 0);
    }

    #[test]
    fn parts_of_another_length_are_refused_and_their_memory_is_free() {
        let arena = Arena::new(1 << 16, [256, 4096]);
        for (bytes, finding) in [(4, "have 5 bytes"), (0, "more bytes than none"), (6, "5 bytes, not 6")] {
            for arena in [Some(&arena), None] {
                let parts: [&[u8]; 2] = [b"ash", b"fi"];
                let make = || arena.map_or_else(|| Block::of_parts(bytes, parts), |arena| arena.of_parts(bytes, parts));
                let panic = catch_unwind(AssertUnwindSafe(make)).expect_err("it is refused");
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let _ = finding;
                assert!(text.is_some_and(|text| text.contains("bytes")));
            }
        }
        assert_eq!(arena.used(), 0);
    }

    #[test]
    fn threads_make_and_drop_owners() {
        let arena = Arena::new(1 << 16, [256, 4096]);
        for block in [Block::new(&[7; 500]), arena.of_parts(500, [&[7; 500][..]])] {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            let other = block.clone();
                            assert!(other.clone().iter().all(|byte| *byte == 7));
                        }
                    });
                }
            });
            assert_eq!(block.owners(), 1);
        }
        assert_eq!(arena.used(), 0);
    }
}
