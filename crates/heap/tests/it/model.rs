//! Random actions against a plain map: blocks never overlap, keep their content, and are the same after a reopen. Also
//! the limits: full heap, odd frees, large actions.

use std::collections::BTreeMap;
use std::path::Path;

use lodestone_heap::{Error, Heap, HeapOptions};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};
use proptest::prelude::*;

fn options(size_bytes: u64) -> PoolOptions {
    let domain = DomainChoice::Process;
    PoolOptions { domain, size_bytes, journal_bytes: 0, reserve_bytes: 1 << 30, ..PoolOptions::default() }
}

fn create(folder: &Path, size_bytes: u64, heap: &HeapOptions) -> Heap {
    let pool = Pool::create(folder.join("heap.pool"), &options(size_bytes)).expect("a fresh pool");
    Heap::open(&pool, heap).expect("a fresh heap")
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(u64),
    Free(usize),
    Realloc(usize, u64),
    Replace(usize, u64),
    Abort(usize, u64),
    Reopen,
}

fn step(bytes_max: u64) -> impl Strategy<Value = Step> {
    let bytes = move || prop_oneof![3 => 0..bytes_max / 16, 1 => 0..bytes_max];
    prop_oneof![
        6 => bytes().prop_map(Step::Alloc),
        3 => any::<usize>().prop_map(Step::Free),
        2 => (any::<usize>(), bytes()).prop_map(|(which, bytes)| Step::Realloc(which, bytes)),
        2 => (any::<usize>(), bytes()).prop_map(|(which, bytes)| Step::Replace(which, bytes)),
        1 => (any::<usize>(), bytes()).prop_map(|(which, bytes)| Step::Abort(which, bytes)),
        1 => Just(Step::Reopen),
    ]
}

struct Model {
    folder: tempfile::TempDir,
    heap: Option<Heap>,
    options: HeapOptions,
    /// Address, requested bytes and fill byte of every block.
    blocks: BTreeMap<PmAddr, (u64, u8)>,
    fill: u8,
}

impl Model {
    fn heap(&self) -> &Heap {
        self.heap.as_ref().expect("open between steps")
    }

    fn write(&mut self, at: PmAddr, bytes: u64) {
        self.fill = self.fill.wrapping_add(1);
        self.heap().memory().write_back(at, &vec![self.fill; bytes as usize]);
        self.blocks.insert(at, (bytes, self.fill));
    }

    fn pick(&self, which: usize) -> Option<PmAddr> {
        self.blocks.keys().nth(which % self.blocks.len().max(1)).copied()
    }

    fn apply(&mut self, step: &Step) -> Result<(), Error> {
        let heap = self.heap().clone();
        let mut action = heap.action();
        match *step {
            Step::Alloc(bytes) => {
                let at = action.alloc(bytes)?;
                self.write(at, bytes);
                action.commit()?;
            }
            Step::Free(which) => {
                let Some(at) = self.pick(which) else { return Ok(()) };
                action.free(at)?;
                assert!(matches!(action.free(at), Err(Error::NotAllocated { .. })), "second free of {at}");
                action.commit()?;
                self.blocks.remove(&at);
            }
            Step::Realloc(which, bytes) => {
                let Some(at) = self.pick(which) else { return Ok(()) };
                let new = action.realloc(at, bytes)?;
                action.commit()?;
                let (old_bytes, fill) = self.blocks.remove(&at).expect("picked");
                let mut content = vec![0; bytes.min(old_bytes) as usize];
                heap.memory().read(new, &mut content);
                assert!(content.iter().all(|&byte| byte == fill), "realloc keeps the content");
                self.write(new, bytes);
            }
            Step::Replace(which, bytes) => {
                let Some(old) = self.pick(which) else { return Ok(()) };
                let new = action.alloc(bytes)?;
                action.free(old)?;
                self.write(new, bytes);
                action.commit()?;
                self.blocks.remove(&old);
            }
            Step::Abort(which, bytes) => {
                let reserved = action.alloc(bytes)?;
                assert_eq!(heap.block_bytes(reserved), None, "a reserved block is not allocated");
                if let Some(old) = self.pick(which) {
                    action.free(old)?;
                }
                action.free(reserved)?;
            }
            Step::Reopen => {
                drop(action);
                drop(heap);
                self.heap = None;
                let pool = Pool::open(self.folder.path().join("heap.pool"), &options(0)).expect("reopen");
                self.heap = Some(Heap::open(&pool, &self.options).expect("reopen"));
            }
        }
        Ok(())
    }

    fn verify(&self) {
        let heap = self.heap();
        let mut found = Vec::new();
        heap.for_each_block(|at, bytes| found.push((at, bytes)));
        assert_eq!(found.len(), self.blocks.len());
        for (&(at, usable), (&expected, &(bytes, fill))) in found.iter().zip(&self.blocks) {
            assert_eq!(at, expected);
            assert_eq!(heap.block_bytes(at), Some(usable));
            assert!(usable >= bytes && at.offset() % 16 == 0 && (bytes < 64 || at.offset() % 64 == 0));
            let mut content = vec![0; bytes as usize];
            heap.memory().read(at, &mut content);
            assert!(content.iter().all(|&byte| byte == fill), "content of {at}");
        }
        for pair in found.windows(2) {
            assert!(pair[0].0.offset() + pair[0].1 <= pair[1].0.offset(), "blocks overlap: {pair:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_heap_is_a_map_of_disjoint_blocks(steps in prop::collection::vec(step(6000), 1..120), lane_rotation: bool) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = HeapOptions::small();
        options.lane_rotation = lane_rotation;
        let heap = create(folder.path(), 128 << 10, &options);
        let mut model = Model { folder, heap: Some(heap), options, blocks: BTreeMap::new(), fill: 0 };
        for step in &steps {
            match model.apply(step) {
                Ok(()) | Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(TestCaseError::fail(format!("{step:?}: {error}"))),
            }
            model.verify();
        }
    }
}

#[test]
fn a_full_heap_says_so_and_serves_again_after_frees() {
    let folder = tempfile::tempdir().expect("a folder");
    let heap = create(folder.path(), 128 << 10, &HeapOptions::small());
    for bytes in [16, 64, 200, 448, 1024, 3000] {
        let mut blocks = Vec::new();
        loop {
            let mut action = heap.action();
            match action.alloc(bytes) {
                Ok(at) => blocks.push(at),
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
            action.commit().expect("commit");
        }
        let filled = blocks.len() as u64 * bytes;
        assert!(filled > 50 << 10, "{filled} bytes in blocks of {bytes} filled a heap of about 100 KiB");
        for at in blocks {
            let mut action = heap.action();
            action.free(at).expect("free");
            action.commit().expect("commit");
        }
    }
}

#[test]
fn wrong_frees_sizes_and_words_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let heap = create(folder.path(), 128 << 10, &HeapOptions::small());
    let mut action = heap.action();
    let at = action.alloc(100).expect("alloc");
    action.commit().expect("commit");
    let mut action = heap.action();
    for wrong in [at.plus(64), at.plus(8), PmAddr::NULL, PmAddr::new(0, 1 << 40), PmAddr::new(9, 4096)] {
        assert!(matches!(action.free(wrong), Err(Error::NotAllocated { .. })), "{wrong}");
    }
    assert!(matches!(action.alloc(1 << 30), Err(Error::TooLarge { .. })));
    assert!(matches!(action.alloc_in(3, 64), Err(Error::Invalid { .. })));
    action.set(at.plus(4), 1);
    assert!(matches!(action.commit(), Err(Error::BadWord { .. })));
    let mut action = heap.action();
    for index in 0..=heap.action_words_max() as u64 {
        action.set(at, index);
    }
    assert!(matches!(action.commit(), Err(Error::ActionTooLarge { .. })));
    assert_eq!(heap.block_bytes(at), Some(128));
}

#[test]
fn realloc_of_a_free_block_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let heap = create(folder.path(), 128 << 10, &HeapOptions::small());
    for (bytes, other_bytes) in [(128, 16), (5000, 16)] {
        let mut action = heap.action();
        let at = action.alloc(bytes).expect("alloc");
        assert_eq!(action.realloc(at, bytes).expect("its own reservation"), at);
        action.commit().expect("commit");
        let mut action = heap.action();
        action.free(at).expect("free");
        for wanted in [bytes, other_bytes] {
            let outcome = action.realloc(at, wanted);
            assert!(matches!(outcome, Err(Error::NotAllocated { .. })), "being freed: {outcome:?}");
        }
        action.commit().expect("commit");
        let mut action = heap.action();
        for wanted in [bytes, other_bytes] {
            let outcome = action.realloc(at, wanted);
            assert!(matches!(outcome, Err(Error::NotAllocated { .. })), "free: {outcome:?}");
        }
        action.commit().expect("commit");
    }
    heap.for_each_block(|at, bytes| panic!("{bytes} bytes at {at} are left"));
}

#[test]
fn freed_blocks_wait_for_readers() {
    let folder = tempfile::tempdir().expect("a folder");
    let heap = create(folder.path(), 128 << 10, &HeapOptions::small());
    let mut action = heap.action();
    let at = action.alloc(448).expect("alloc");
    action.commit().expect("commit");
    let mut action = heap.action();
    action.free(at).expect("free");
    let (freed, outcome) = action.commit_keeping();
    outcome.expect("commit");
    let mut seen = Vec::new();
    let mut action = heap.action();
    while let Ok(other) = action.alloc(448) {
        seen.push(other);
    }
    assert!(!seen.is_empty() && !seen.contains(&at), "the block is kept while someone may read it");
    drop(freed);
    assert_eq!(action.alloc(448).expect("available again"), at);
}
