//! The state that all clones and threads of a memory share.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64 as PlainU64;
use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;
use lodestone_heap::Heap;
use lodestone_pmem::sync::atomic::{AtomicUsize, Ordering};
use lodestone_pmem::sync::{Condvar, Mutex, lock};
use lodestone_pmem::{Domain, Memory, PmAddr, WORD_BYTES, planted};
use lodestone_store::Object;
use lodestone_txn::{Lives, SLOT_HEADER_BYTES, SlotHeader, State, Timeline, VersionWord};

use crate::context::Kept;
use crate::error::{Error, Result};
use crate::format::{Places, SYSTEM_SHAPE};
use crate::object::TypeInfo;
use crate::options::{Mode, StmOptions};
use crate::side::Side;
use crate::slabs::Slabs;
use crate::stats::Stats;
use crate::versions::judge;
use lodestone_cells::Shape;

/// The shared state.
#[derive(Debug)]
pub struct Core {
    /// Itself.
    pub this: Weak<Core>,
    /// Types that were compared with the pool, by name.
    pub checked: Mutex<BTreeMap<&'static str, TypeInfo>>,
    /// A number that no other memory of this process has.
    pub id: u64,
    pub memory: Memory,
    pub heap: Heap,
    pub places: Places,
    pub mode: Mode,
    persistent_words: bool,
    pub slabs: Slabs,
    /// Lives, clock, thread ids and epochs.
    pub timeline: Timeline,
    /// Versions that were overwritten and that active snapshots still see.
    pub side: Side,
    pub stats: Stats,
    /// Whether an answer must wait until the values it saw are durable.
    pub waits: bool,
    /// The state that is handed on with each thread id.
    pub kept: Box<[Mutex<Kept>]>,
    /// Transactions that wait for a change, and how they are woken.
    pub waiting: CachePadded<AtomicUsize>,
    pub changed: (Mutex<()>, Condvar),
    /// By thread id: commits begun and ended. Odd while locks are held. Only the thread with the id writes it.
    pub commits: Box<[CachePadded<PlainU64>]>,
    /// Held while a thread examines a lock that may have no owner.
    healing: Mutex<()>,
    /// The claim on the memory. Released last.
    pub object: Object,
}

static NEXT_ID: PlainU64 = PlainU64::new(1);

impl Core {
    pub fn new(
        heap: Heap,
        places: Places,
        options: &StmOptions,
        lives: Lives,
        slabs: Slabs,
        object: Object,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            checked: Mutex::new(BTreeMap::new()),
            id: NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            memory: heap.memory().clone(),
            timeline: Timeline::new(heap.memory(), lives, options.clock, places.threads_max()),
            waits: heap.memory().domain() == Domain::Block,
            heap,
            mode: options.mode,
            persistent_words: options.persistent_words,
            side: Side::new(options.side_bytes_max),
            stats: Stats::new(places.threads_max()),
            kept: (0..places.threads_max()).map(|_| Mutex::default()).collect(),
            waiting: CachePadded::new(AtomicUsize::new(0)),
            changed: (Mutex::new(()), Condvar::new()),
            commits: (0..places.threads_max()).map(|_| CachePadded::default()).collect(),
            healing: Mutex::new(()),
            places,
            slabs,
            object,
        })
    }

    /// Whether the version with this header counts as far as earlier lives go.
    pub fn lives_count(&self, header: &SlotHeader) -> bool {
        self.timeline.lives().counts_version(header)
    }

    pub fn damaged(&self, what: &'static str, at: PmAddr, finding: impl Into<String>) -> Error {
        Error::Damaged { path: self.heap.pool().path().to_owned(), what, at, finding: finding.into() }
    }

    /// The shape of the cell at `at`.
    pub fn shape_at(&self, at: PmAddr) -> Option<Shape> {
        if at == self.places.system() { Some(SYSTEM_SHAPE) } else { self.slabs.shape_at(at) }
    }

    /// The version word of the cell at `at`. A word of an earlier life is rebuilt from the slots.
    ///
    /// # Errors
    /// [`Error::BadPointer`] when no cell of `shape` starts at `at`. Each call checks that there is room for a cell;
    /// the first touch of an object in a life checks the rest. [`Error::Damaged`] when the newest version is damaged.
    pub fn word(&self, at: PmAddr, shape: Shape) -> Result<VersionWord> {
        let bad = |finding| Error::BadPointer { at, finding };
        if at.is_null() {
            return Err(bad("it is the null pointer"));
        }
        if !at.offset().is_multiple_of(64) || !self.memory.contains(at, u64::from(shape.cell_bytes)) {
            return Err(bad("it is no address of a cell in this pool"));
        }
        let mut scratch = Vec::new();
        loop {
            let found = VersionWord::from_raw(self.memory.load(at));
            // Words of other lives are rebuilt from the slots, which have a checksum. On a read-only pool no word is of
            // this life.
            if !self.memory.is_read_only() && self.timeline.is_of_this_life(found) {
                return Ok(found);
            }
            match self.shape_at(at) {
                Some(there) if there == shape => {}
                Some(_) => return Err(bad("the object there is of another size")),
                None => return Err(bad("no cell starts there")),
            }
            let judged = judge(&self.memory, self.timeline.lives(), shape, at, &mut scratch);
            if judged.damaged.is_some() && self.memory.load(at) != found.to_raw() {
                // Another thread was first, and commits to the slots that this one was reading.
                continue;
            }
            if let Some(which) = judged.damaged {
                let finding = "its checksum fails, and no crash explains that";
                return Err(self.damaged("version of an object", shape.slot_at(at, which), finding));
            }
            let word = judged.word(self.timeline.base());
            if self.memory.is_read_only() {
                return Ok(word);
            }
            // Not flushed: after a crash the next life rebuilds it.
            if self.memory.compare_exchange(at, found.to_raw(), word.to_raw()).is_ok() {
                self.persist_word(at);
                return Ok(word);
            }
        }
    }

    /// Examines `word`, the word of the cell at `at`, which has been "committing" for a long time. When no thread is
    /// committing at all, the word is damage, and the next look rebuilds it from the slots. Returns whether another
    /// look makes sense.
    ///
    /// Each committing thread adds one to its count in [`commits`](Self::commits) before its first lock and after its
    /// last release. Suppose that all counts are even, and the same before and after a look that finds `word`. Then no
    /// thread held the lock at that moment, because the count of the thread that locked it is visible with the lock.
    /// From then on the word does not change until it is rebuilt, which only this function does, one thread at a time.
    #[cold]
    pub fn heal_lock(&self, at: PmAddr, word: VersionWord) -> bool {
        use std::sync::atomic::Ordering::Acquire;
        // S11 leaves locks without an owner. A test wants to see their effect.
        if planted::active("stm-s11") {
            return false;
        }
        let _one = lock(&self.healing);
        let counts = || self.commits.iter().map(|count| count.load(Acquire));
        let before: Vec<u64> = counts().collect();
        if self.memory.load(at) != word.to_raw() {
            return true;
        }
        if before.iter().any(|count| count % 2 == 1) || !counts().eq(before) {
            return false;
        }
        // Zero is of no life.
        self.memory.compare_exchange(at, word.to_raw(), 0).is_ok()
    }

    /// Reads the version in the slot at `slot` into `out`. Returns whether it has `words` words. The result is valid if
    /// the object's word is the same afterwards.
    #[inline]
    pub fn read_version(&self, slot: PmAddr, words: u32, out: &mut [u8]) -> bool {
        // The header is in the same line as the first bytes of the payload. It also detects an object of another type.
        let header = SlotHeader::decode(0, self.memory.load(slot.plus(WORD_BYTES)));
        self.memory.read(slot.plus(SLOT_HEADER_BYTES), out);
        header.words == words
    }

    /// Makes a version word persistent where an option asks for it.
    #[inline]
    pub fn persist_word(&self, at: PmAddr) {
        if self.persistent_words {
            // No store depends on this order.
            self.memory.persist(at, 8);
        }
    }

    /// Whether the cell at `at` of `shape` is free. A damaged one is not.
    pub fn is_free(&self, at: PmAddr, shape: Shape) -> bool {
        self.word(at, shape).is_ok_and(|word| word.state() == State::Free)
    }

    /// Wakes transactions that wait for a change.
    #[inline]
    pub fn wake(&self) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            let _guard = lock(&self.changed.0);
            self.changed.1.notify_all();
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.timeline.close();
    }
}
