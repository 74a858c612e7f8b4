//! The crash explorer's targets for collections. Several collections change in one transaction. Pages and nodes are so
//! small that a few operations split and merge them.
//!
//! After a crash, recovery and a crash inside recovery, each target judges:
//! - all collections open;
//! - *together* they show exactly the acknowledged transactions, and each begun one whole or not at all;
//! - each is sound, and the objects that they own are exactly those that are allocated;
//! - they keep working.
//!
//! Each script runs in the three commit modes: `collections-split`, `collections-split-address-log`,
//! `collections-split-scan`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use lodestone_collections::{PmBTreeMap, PmHashMap, PmQueue};
use lodestone_crash::planted::Bug;
use lodestone_crash::{Failure, Outcome, Profile, SiteKey, Structure, Target};
use lodestone_heap::HeapOptions;
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_stm::{Mode, Result, Stm, StmOptions, TxResult};
use lodestone_store::{Store, StoreOptions};

/// A transaction of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sets a key in the hash map and in the tree.
    Insert(u64, u64),
    /// Removes a key from both and appends it to the queue.
    Remove(u64),
    /// Appends to the queue.
    Push(u64),
    /// Takes from the queue and sets that key in both maps.
    Pop,
}

/// A reader's view: hash map, tree, queue.
pub type View = (BTreeMap<u64, u64>, BTreeMap<u64, u64>, Vec<u64>);

struct Explored {
    name: String,
    mode: Mode,
    before: Vec<Step>,
    script: Vec<Step>,
}

/// The opened collections.
struct Handle {
    stm: Stm,
    hash: PmHashMap<u64, u64>,
    tree: PmBTreeMap<u64, u64>,
    queue: PmQueue<u64>,
}

/// Objects beside those that the collections own. Each of three roots has an entry, a name and a type's name. Each of
/// four types has an entry, a name and a layout.
const FIXED_OBJECTS: u64 = 3 * 3 + 4 * 3;

impl Handle {
    fn open(pool: &Pool, mode: Mode) -> Result<Self> {
        let store = Store::over_with(pool, &StoreOptions::with_heap(HeapOptions::small()))?;
        let options = StmOptions { mode, persistent_words: true, ..StmOptions::small() };
        let stm = Stm::open_with(&store, &options)?;
        let hash = PmHashMap::open(&stm, "hash")?;
        let tree = PmBTreeMap::open(&stm, "tree")?;
        let queue = PmQueue::open(&stm, "queue")?;
        Ok(Self { stm, hash, tree, queue })
    }

    fn apply(&self, step: &Step) -> Result<()> {
        self.stm.update(|tx| {
            match *step {
                Step::Insert(key, value) => {
                    self.hash.insert(tx, &key, &value)?;
                    self.tree.insert(tx, &key, &value)?;
                }
                Step::Remove(key) => {
                    self.hash.remove(tx, &key)?;
                    self.tree.remove(tx, &key)?;
                    self.queue.push(tx, &key)?;
                }
                Step::Push(item) => self.queue.push(tx, &item)?,
                Step::Pop => {
                    if let Some(item) = self.queue.pop(tx)? {
                        self.hash.insert(tx, &item, &item)?;
                        self.tree.insert(tx, &item, &item)?;
                    }
                }
            }
            Ok(())
        })
    }
}

impl Structure for Explored {
    type Op = Step;
    type Handle = Handle;
    type View = View;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn options(&self) -> PoolOptions {
        PoolOptions { size_bytes: 128 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() }
    }

    fn script(&self) -> Vec<Step> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let handle = Handle::open(pool, self.mode)?;
        handle.stm.update(|tx| {
            handle.hash.limit_entries(tx, 1)?;
            handle.tree.limit_entries(tx, 2)
        })?;
        self.before.iter().try_for_each(|step| Ok(handle.apply(step)?))
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        Ok(Handle::open(pool, self.mode)?)
    }

    fn apply(&self, handle: &Handle, step: &Step) -> Outcome {
        Ok(handle.apply(step)?)
    }

    fn view(&self, handle: &Handle) -> Outcome<View> {
        Ok(handle.stm.read(|tx| {
            let mut hashed = BTreeMap::new();
            handle.hash.for_each(tx, |key, value| {
                hashed.insert(key, value);
                Ok(ControlFlow::Continue(()))
            })?;
            let ordered = handle.tree.iter(tx)?.collect::<TxResult<_>>()?;
            Ok((hashed, ordered, handle.queue.to_vec(tx)?))
        })?)
    }

    fn model(&self, steps: &[Step]) -> View {
        let (mut map, mut queue) = (BTreeMap::new(), VecDeque::new());
        for step in self.before.iter().chain(steps) {
            match *step {
                Step::Insert(key, value) => {
                    map.insert(key, value);
                }
                Step::Remove(key) => {
                    map.remove(&key);
                    queue.push_back(key);
                }
                Step::Push(item) => queue.push_back(item),
                Step::Pop => {
                    if let Some(item) = queue.pop_front() {
                        map.insert(item, item);
                    }
                }
            }
        }
        (map.clone(), map, queue.into())
    }

    fn audit(&self, handle: &Handle) -> Outcome {
        let owned = handle
            .stm
            .read(|tx| Ok(handle.hash.check(tx)? + handle.tree.check(tx)? + handle.queue.check(tx)? + FIXED_OBJECTS))?;
        let report = handle.stm.check_all();
        Failure::unless(report.is_intact(), || format!("{:?}", report.findings))?;
        Failure::unless(report.objects == owned, || format!("{owned} objects are owned, {} allocated", report.objects))
    }

    fn more(&self) -> Vec<Step> {
        vec![Step::Insert(90, 1), Step::Remove(90)]
    }

    fn states_max(&self) -> u64 {
        // The bound that a run of everything has time for. Under ADR even the states without crashes of the recovery
        // exceed 200,000.
        3000
    }

    fn audits(&self, site: &SiteKey) -> bool {
        // The collections flush and fence nothing themselves. The targets of the memory cover its calls.
        site.file.contains("collections/src/")
    }
}

/// A script before the run and one that is crashed, under a name.
type Script = (&'static str, &'static [Step], &'static [Step]);

const SCRIPTS: [Script; 4] = {
    use Step::{Insert, Pop, Push, Remove};
    [
        ("collections-insert", &[Insert(1, 1)], &[Insert(2, 1), Insert(1, 2)]),
        ("collections-split", &[Insert(1, 1), Insert(2, 1)], &[Insert(3, 1)]),
        ("collections-merge", &[Insert(1, 1), Insert(2, 1), Insert(3, 1)], &[Remove(3), Remove(1)]),
        ("collections-queue", &[Insert(1, 1), Push(7)], &[Push(8), Pop, Pop]),
    ]
};

fn all() -> Vec<Explored> {
    let modes = [(Mode::OneFence, ""), (Mode::AddressLog, "-address-log"), (Mode::Scan, "-scan")];
    let explored = |(mode, suffix): (Mode, &str), (name, before, script): Script| Explored {
        name: format!("{name}{suffix}"),
        mode,
        before: before.to_vec(),
        script: script.to_vec(),
    };
    modes.into_iter().flat_map(|mode| SCRIPTS.map(|script| explored(mode, script))).collect()
}

/// The targets of the collections.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    all().into_iter().map(|target| Box::new(target) as Box<dyn Target>).collect()
}

fn target(name: &str) -> Box<dyn Target> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.expect("a bug names a target that is there")
}

/// Bugs that can be planted in the collections, each with the target that must find it.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    let mut all = vec![
        Bug::new("collections-split-loses-half", "half a leaf is lost", || target("collections-split")),
        Bug::new("collections-directory-forgets", "entries that a split moved are not found", || {
            target("collections-split")
        }),
        Bug::new("collections-pop-leaks", "nodes that were taken from a queue stay for ever", || {
            target("collections-queue")
        }),
    ];
    // Each mistake is in the content that is written, not in its order. It shows where caches survive. A target's bound
    // exhausts those states.
    for bug in &mut all {
        bug.config.profile = Profile::Eadr;
        bug.config.nested_depth = 0;
    }
    all
}
