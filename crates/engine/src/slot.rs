//! A row in DRAM: its key, its version word and its payload.

use std::sync::Arc;

use lodestone_pages::row_bytes;
use lodestone_pmem::count_shared_rmws;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock, spin};
use lodestone_txn::{RowState, RowWord};

pub use crate::bytes::Bytes;

/// How often a thread looks at a locked slot before it gives up.
const LOOKS_MAX: u32 = if cfg!(feature = "shuttle") { 8 } else { 4096 };

/// More uses of a row, or of a leaf, are not counted.
pub const USES_MAX: u8 = 3;

/// A row. It is the same slot as long as the row is in its tree.
#[derive(Debug)]
pub struct Slot {
    key: Bytes,
    word: AtomicU64,
    /// The epoch of the last record that has all of the row, and one more; 0: none of this stay in DRAM.
    whole: std::sync::atomic::AtomicU32,
    /// How often it was used since the hand of the cache passed, up to [`USES_MAX`].
    uses: std::sync::atomic::AtomicU8,
    payload: Mutex<Bytes>,
}

impl Slot {
    pub fn new(key: Bytes, word: RowWord, payload: Bytes) -> Arc<Self> {
        let (word, whole, uses) = (AtomicU64::new(word.to_raw()), Default::default(), Default::default());
        Arc::new(Self { key, word, whole, uses, payload: Mutex::new(payload) })
    }

    pub fn key(&self) -> &Bytes {
        &self.key
    }

    /// About how many bytes of DRAM it holds, with key and payload.
    pub fn bytes(&self) -> usize {
        // With two counts of references before it.
        let own = (size_of::<Self>() + 16).next_multiple_of(16);
        own + self.key.taken() + lock(&self.payload).taken()
    }

    /// Whether its bytes are in memory of a cache that is to go back to the allocator.
    pub fn is_evacuating(&self) -> bool {
        self.key.is_evacuating() || lock(&self.payload).is_evacuating()
    }

    /// Bytes that it takes in an image.
    pub fn image_bytes(&self) -> usize {
        row_bytes(&self.key, &lock(&self.payload))
    }

    /// Counts a use.
    #[inline]
    pub fn note_use(&self) {
        // Mostly the count is at its end, and then its line stays shared. A lost one does no harm.
        let uses = self.uses();
        if uses < USES_MAX {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// Uses that are counted.
    pub fn uses(&self) -> u8 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Takes one from the count of uses. Returns whether there was one.
    pub fn take_use(&self) -> bool {
        let uses = self.uses();
        if uses > 0 {
            self.uses.store(uses - 1, Ordering::Relaxed);
        }
        uses > 0
    }

    /// The address of the version word.
    pub fn address(&self) -> usize {
        std::ptr::from_ref(&self.word).addr()
    }

    /// The version word.
    pub fn word(&self) -> RowWord {
        RowWord::from_raw(self.word.load(Ordering::Acquire))
    }

    /// A version: its word and payload. `None` if the slot stays locked.
    pub fn read(&self) -> Option<(RowWord, Bytes)> {
        for turn in 0..LOOKS_MAX {
            let word = self.word();
            if word.state() != RowState::Locked {
                let payload = lock(&self.payload).clone();
                // A commit locks before it changes the payload. So an equal word means that the payload is its own.
                let now = self.word();
                if now.same_version(word) && now.state() != RowState::Locked {
                    return Some((now, payload));
                }
            }
            spin(turn);
        }
        None
    }

    /// Locks the version `seen`. Returns whether that succeeded.
    pub fn try_lock(&self, seen: RowWord) -> bool {
        count_shared_rmws(1);
        let (from, to) = (seen.to_raw(), seen.locked().to_raw());
        self.word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Stores another word. The caller holds the lock, or the version is its own.
    pub fn set_word(&self, word: RowWord) {
        // Release: a thread that sees the word sees the payload.
        self.word.store(word.to_raw(), Ordering::Release);
    }

    /// Notes that a record of `epoch` has all of the row. The caller holds the lock, and the commit cannot fail.
    pub fn note_whole(&self, epoch: u64) {
        // An epoch beyond the range is as good as none. Release: a thread that sees it sees the lock, or a later word.
        self.whole.store(u32::try_from(epoch + 1).unwrap_or(0), Ordering::Release);
    }

    /// One more than the epoch of the last record that has all of the row. 0: there is none since the row is in DRAM.
    ///
    /// A thread that reads this and then a version: the version is that of the record, or a later one.
    pub fn whole(&self) -> u64 {
        u64::from(self.whole.load(Ordering::Acquire))
    }

    /// The payload. The caller holds the lock.
    pub fn payload(&self) -> Bytes {
        lock(&self.payload).clone()
    }

    /// Stores another payload. The caller holds the lock.
    pub fn set_payload(&self, payload: Bytes) {
        *lock(&self.payload) = payload;
    }
}
