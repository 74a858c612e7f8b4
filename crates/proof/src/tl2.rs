//! The baselines under the crash explorer: each log with each kind of change.
//!
//! A target runs a few inserts and removes on a structure. Its view is the structure's entries, and its model is a
//! sorted map. Its audit requires that exactly the blocks of the structure are taken: nothing leaks, nothing is owned
//! twice.

use std::collections::BTreeMap;

use lodestone_baselines::tl2::blocks::TAKEN;
use lodestone_baselines::tl2::{LogKind, Tl2, Tl2Options};
use lodestone_crash::{Failure, Outcome, Redundant, SiteKey, Structure, Target};
use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_stm_bench::mix::value_of;
use lodestone_stm_bench::structures::{Entries, Insert, Map, ReadAll, Remove, SearchTree, SortedList};
use lodestone_stm_bench::tm::{TransactionalMemory, Worker};

/// One change of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Insert this key.
    Insert(u64),
    /// Remove this key.
    Remove(u64),
}

/// A structure on a TL2 with one of the logs.
struct Explored<S> {
    log: LogKind,
    map: S,
    script: Vec<Step>,
}

/// An opened structure.
struct Handle<S: Map> {
    tm: Tl2,
    map: S::Handle,
}

/// Leaves block headers that say "taken" in the space of the future area, as earlier use of the heap can.
fn fill_with_lies(pool: &Pool) -> Outcome {
    let heap = Heap::open(pool, &HeapOptions::small())?;
    let bytes = heap.block_bytes_max().min(4096);
    let mut action = heap.action();
    let at = action.alloc(bytes)?;
    for offset in (0..bytes).step_by(8) {
        heap.memory().store(at.plus(offset), TAKEN);
    }
    // The commit fences first, so the false headers are persistent.
    heap.memory().flush(at, bytes);
    action.set(heap.root_word(1), at.to_raw());
    action.commit()?;
    let mut action = heap.action();
    action.set(heap.root_word(1), 0);
    action.free(at)?;
    action.commit()?;
    Ok(())
}

/// All targets of the baselines.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    let mut all: Vec<Box<dyn Target>> = Vec::new();
    for log in [LogKind::Redo, LogKind::Undo] {
        let chain = vec![Step::Insert(5), Step::Insert(3), Step::Remove(5)];
        all.push(Box::new(Explored { log, map: SortedList, script: chain }));
        // The last step moves the successor's entry up: three objects in one transaction.
        let tree = [5, 2, 9, 7].map(Step::Insert).into_iter().chain([Step::Remove(5)]).collect();
        all.push(Box::new(Explored { log, map: SearchTree, script: tree }));
    }
    all
}

impl<S: Map> Structure for Explored<S> {
    type Op = Step;
    type Handle = Handle<S>;
    type View = Vec<(u64, u64)>;

    fn name(&self) -> String {
        let log = match self.log {
            LogKind::Undo => "undo",
            LogKind::Redo => "redo",
        };
        format!("tl2-{log}-{}", self.map.name())
    }

    fn options(&self) -> PoolOptions {
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() }
    }

    fn script(&self) -> Vec<Step> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        fill_with_lies(pool)?;
        let tm = Tl2::open(pool, &HeapOptions::small(), &Tl2Options::small(self.log))?;
        self.map.create(&tm, 0)?;
        Ok(())
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle<S>> {
        let tm = Tl2::open(pool, &HeapOptions::small(), &Tl2Options::small(self.log))?;
        let map = self.map.open(&tm, 0)?;
        Ok(Handle { tm, map })
    }

    fn apply(&self, handle: &Handle<S>, step: &Step) -> Outcome {
        let mut worker = handle.tm.worker()?;
        let map = &handle.map;
        match *step {
            Step::Insert(key) => worker.update(&mut Insert::<S> { map, key, value: value_of(key) })?,
            Step::Remove(key) => worker.update(&mut Remove::<S> { map, key })?,
        };
        Ok(())
    }

    fn view(&self, handle: &Handle<S>) -> Outcome<Vec<(u64, u64)>> {
        let mut pairs = all_of::<S>(handle)?.pairs;
        pairs.sort_unstable();
        Ok(pairs)
    }

    fn model(&self, steps: &[Step]) -> Vec<(u64, u64)> {
        let mut model = BTreeMap::new();
        for step in steps {
            match *step {
                Step::Insert(key) => {
                    model.entry(key).or_insert(value_of(key));
                }
                Step::Remove(key) => {
                    model.remove(&key);
                }
            }
        }
        model.into_iter().collect()
    }

    fn audit(&self, handle: &Handle<S>) -> Outcome {
        let all = all_of::<S>(handle)?;
        if let Some(fault) = all.fault {
            return Err(Failure::new(fault));
        }
        let taken = handle.tm.blocks_taken();
        Failure::unless(taken == all.objects, || format!("{} objects, but {taken} blocks are taken", all.objects))
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.contains("baselines/src/tl2/")
    }

    /// Orders whose violation needs a second thread, or a second crash of a later life, to show. Neither is explored
    /// here.
    fn redundant(&self) -> Vec<Redundant> {
        let mut all = vec![
            Redundant::new(
                "at crates/baselines/src/tl2/recover.rs",
                5,
                "a later life's transaction through another log would be rolled back by the next recovery",
            ),
            Redundant::new("at crates/baselines/src/tl2/blocks.rs", 4, "another thread takes blocks of the new page"),
        ];
        all.push(match self.log {
            LogKind::Redo => Redundant::new(
                "late fence at crates/baselines/src/tl2/transaction.rs",
                1,
                "another thread changes the same objects when the locks are released",
            ),
            LogKind::Undo => Redundant::new(
                "at crates/baselines/src/tl2/transaction.rs",
                5,
                "the first store in place is to an object that an earlier fence covers; entries of an earlier life that \
                 follow a torn one count only in a third life",
            ),
        });
        all
    }
}

fn all_of<S: Map>(handle: &Handle<S>) -> Outcome<Entries> {
    Ok(handle.tm.worker()?.read(&mut ReadAll::<S> { map: &handle.map })?)
}
