//! Readers of a leaf beside threads that add rows and replace it, under the deterministic scheduler, and each rule
//! broken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arc_swap::ArcSwap;
use lodestone_pmem::planted;
use lodestone_txn::{RowWord, Tick, Writer};

use super::*;
use crate::branch::Branch;

/// The rule that a run breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The new leaves are shown before the old one ends.
    ShownBeforeEnd,
    /// A row is added to a leaf that has ended.
    AddedAfterEnd,
    /// The count after a change is that before it.
    Uncounted,
}

const LATE: u8 = 5;

struct Model {
    root: ArcSwap<Branch>,
    /// Whether the row `LATE` was added, and its thread said so.
    is_added: AtomicBool,
    broken: Broken,
}

fn slot(key: u8) -> Arc<Slot> {
    Slot::new([key].into(), RowWord::new(Tick(1), Writer::default(), false), Bytes::default())
}

fn leaf(rows_max: usize, low: &[u8], high: Option<&[u8]>, slots: Vec<Arc<Slot>>) -> Arc<Leaf> {
    let span = Span { low: low.into(), high: high.map(Bytes::from) };
    Leaf::new(rows_max, span, slots, Purged::default(), Page::new(None, true))
}

impl Model {
    /// Rows 2, 4, 6 in a leaf with room for one more.
    fn new(broken: Broken) -> Self {
        let first = leaf(4, &[], None, [2, 4, 6].map(slot).into());
        Self { root: ArcSwap::new(Branch::root(vec![first])), is_added: AtomicBool::new(false), broken }
    }

    /// Two leaves take the place of the first one.
    fn split(&self) {
        let root = self.root.load_full();
        let old = root.leaf_of(&[]);
        let mut old = old.lock().expect("only this thread splits");
        let mut lower = old.slots();
        let upper = lower.split_off(1);
        let middle = upper[0].key().clone();
        let new = vec![leaf(4, &[], Some(&middle), lower), leaf(4, &middle, None, upper)];
        let new = root.replace(new);
        if self.broken == Broken::ShownBeforeEnd {
            self.root.store(new);
            lodestone_pmem::sync::interleave();
            old.end();
        } else {
            old.end();
            lodestone_pmem::sync::interleave();
            self.root.store(new);
        }
    }

    fn add(&self) {
        loop {
            let root = self.root.load_full();
            let leaf = root.leaf_of(&[LATE]);
            let locked = match leaf.lock() {
                None if self.broken == Broken::AddedAfterEnd => {
                    Some(LockedLeaf { leaf: &leaf, _lock: lock(&leaf.early) })
                }
                locked => locked,
            };
            if let Some(mut leaf) = locked {
                let number = leaf.search(&[LATE]).expect_err("added once");
                leaf.insert(number, slot(LATE));
                self.is_added.store(true, Ordering::SeqCst);
                return;
            }
            spin(0);
        }
    }

    /// Looks at the leaf of `LATE`.
    fn look(&self) {
        loop {
            let root = self.root.load_full();
            let leaf = root.leaf_of(&[LATE]);
            let all = |changes| {
                let keys = (0..leaf.len()).map(|number| Some(leaf.slot(number)?.key()[0]));
                Some((changes, leaf.search(&[4])?, keys.collect::<Option<Vec<_>>>()?))
            };
            if let Some((changes, four, keys)) = leaf.read(all) {
                assert!(keys.is_sorted() && keys.contains(&4) && keys.contains(&6), "{keys:?}");
                assert_eq!(keys[four.expect("it is there at every moment")], 4);
                // As a commit does that has read the absence of the row.
                let is_added = self.is_added.load(Ordering::SeqCst);
                let is_current = leaf.changes() == changes;
                assert!(!is_added || !is_current || keys.contains(&LATE), "{keys:?} counts as current");
                return;
            }
            spin(0);
        }
    }
}

fn readers_and_writers(broken: Broken) {
    planted::plant((broken == Broken::Uncounted).then_some("engine-no-leaf-version"));
    let model = Arc::new(Model::new(broken));
    let works: [fn(&Model); 3] = [Model::split, Model::add, Model::look];
    let threads = works.map(|work| {
        let model = model.clone();
        shuttle::thread::spawn(move || work(&model))
    });
    model.look();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    model.look();
    let found = model.root.load_full().leaf_of(&[LATE]).search(&[LATE]);
    assert!(matches!(found, Some(Ok(_))), "the row is lost");
}

fn explore(broken: Broken, schedules: usize) {
    shuttle::check_random(move || readers_and_writers(broken), schedules);
    shuttle::check_pct(move || readers_and_writers(broken), schedules, 4);
}

#[test]
fn a_look_is_of_one_moment_and_counts_until_a_row_is_added_and_each_broken_rule_is_found() {
    explore(Broken::Nothing, 20_000);
    // In the same test, since one of them is planted in the whole process.
    for broken in [Broken::ShownBeforeEnd, Broken::AddedAfterEnd, Broken::Uncounted] {
        let outcome = catch_unwind(AssertUnwindSafe(|| explore(broken, 20_000)));
        assert!(outcome.is_err(), "{broken:?} is not found");
    }
}
