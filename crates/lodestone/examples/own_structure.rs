//! A durable structure of your own, and the test that crashes it at every point: a doubly linked list, sorted by key.
//!
//! ```text
//! cargo run -p lodestone --example own_structure
//! ```
//!
//! Linking a node in changes up to four objects (the node, its two neighbours, the list). As one transaction they
//! change together, so the structure needs no recovery code. `crates/lodestone/tests/it/own_structure.rs` includes this
//! file and runs the explorer. It also shows that the explorer notices when the same change is cut into two
//! transactions.

use lodestone::crash::{Config, Failure, Mode, Outcome, Report, Structure, run_target};
use lodestone::stm::{Result, Tx, TxResult, pm_object};
use lodestone::{HeapOptions, PmPtr, Pool, PoolOptions, Stm, StmOptions};
use lodestone::{Store, StoreOptions};

/// The two ends of the list.
#[pm_object]
pub struct Ends {
    first: PmPtr<Node>,
    last: PmPtr<Node>,
    len: u64,
}

/// A key with its neighbours.
#[pm_object]
pub struct Node {
    key: u64,
    before: PmPtr<Node>,
    after: PmPtr<Node>,
}

/// A set of keys as a doubly linked list, ascending from `first`, descending from `last`.
pub struct SortedList {
    ends: PmPtr<Ends>,
}

impl SortedList {
    /// Opens the list under the root of the memory, or creates an empty one.
    ///
    /// # Errors
    /// When the memory holds a root of another type.
    pub fn open(stm: &Stm) -> Result<Self> {
        Ok(Self { ends: stm.root::<Ends>()? })
    }

    /// The last node with a key below `key`, and the node after it.
    fn around(&self, tx: &mut Tx<'_>, key: u64) -> TxResult<(PmPtr<Node>, PmPtr<Node>)> {
        let (mut before, mut at) = (PmPtr::NULL, tx.read(self.ends)?.first);
        while !at.is_null() {
            let node = tx.read(at)?;
            if node.key >= key {
                break;
            }
            (before, at) = (at, node.after);
        }
        Ok((before, at))
    }

    /// Makes `left` and `right` neighbours. A null pointer means the end of the list.
    fn join(&self, tx: &mut Tx<'_>, left: PmPtr<Node>, right: PmPtr<Node>) -> TxResult<()> {
        if left.is_null() {
            tx.write(self.ends)?.first = right;
        } else {
            tx.write(left)?.after = right;
        }
        if right.is_null() {
            tx.write(self.ends)?.last = left;
        } else {
            tx.write(right)?.before = left;
        }
        Ok(())
    }

    /// Adds `key`. Returns whether it was missing.
    ///
    /// # Errors
    /// Return them with `?`.
    pub fn insert(&self, tx: &mut Tx<'_>, key: u64) -> TxResult<bool> {
        let (before, after) = self.around(tx, key)?;
        if !after.is_null() && tx.read(after)?.key == key {
            return Ok(false);
        }
        let node = tx.alloc(Node { key, before: PmPtr::NULL, after: PmPtr::NULL })?;
        self.join(tx, before, node)?;
        self.join(tx, node, after)?;
        tx.write(self.ends)?.len += 1;
        Ok(true)
    }

    /// Removes `key`. Returns whether it was there. The node's place is used again.
    ///
    /// # Errors
    /// Return them with `?`.
    pub fn remove(&self, tx: &mut Tx<'_>, key: u64) -> TxResult<bool> {
        let (before, at) = self.around(tx, key)?;
        if at.is_null() {
            return Ok(false);
        }
        let node = tx.read(at)?;
        if node.key != key {
            return Ok(false);
        }
        self.join(tx, before, node.after)?;
        tx.free(at)?;
        tx.write(self.ends)?.len -= 1;
        Ok(true)
    }

    /// All keys, ascending. Fails when the two directions or the count disagree.
    ///
    /// # Errors
    /// Return them with `?`.
    pub fn keys(&self, tx: &mut Tx<'_>) -> TxResult<Vec<u64>> {
        let ends = tx.read(self.ends)?;
        let (mut ascending, mut at) = (Vec::new(), ends.first);
        while !at.is_null() {
            let node = tx.read(at)?;
            ascending.push(node.key);
            at = node.after;
        }
        let (mut descending, mut at) = (Vec::new(), ends.last);
        while !at.is_null() {
            let node = tx.read(at)?;
            descending.push(node.key);
            at = node.before;
        }
        descending.reverse();
        if ascending != descending || ends.len != ascending.len() as u64 {
            return tx.cancel(format!("forward {ascending:?}, backward {descending:?}, count {}", ends.len));
        }
        Ok(ascending)
    }
}

/// The explorer's operations on the list.
#[derive(Clone, Debug)]
pub enum Op {
    /// Adds a key.
    Insert(u64),
    /// Removes a key.
    Remove(u64),
}

/// The list as the explorer sees it.
pub struct Crashed {
    /// Counts in a separate transaction: the mistake that the explorer must find.
    pub torn: bool,
}

impl Structure for Crashed {
    type Op = Op;
    type Handle = (Stm, SortedList);
    type View = Vec<u64>;

    fn name(&self) -> String {
        "sorted-list".into()
    }

    fn options(&self) -> PoolOptions {
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() }
    }

    fn script(&self) -> Vec<Op> {
        vec![Op::Insert(5), Op::Insert(3), Op::Remove(5)]
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        self.open(pool).map(|_| ())
    }

    fn open(&self, pool: &Pool) -> Outcome<Self::Handle> {
        // Small buffers and slabs make rare paths run soon. Persistent words avoid crash states that differ in nothing
        // that counts.
        let options = StmOptions { persistent_words: true, ..StmOptions::small() };
        let stm = Stm::open_with(&Store::over_with(pool, &StoreOptions::with_heap(HeapOptions::small()))?, &options)?;
        let list = SortedList::open(&stm)?;
        Ok((stm, list))
    }

    fn apply(&self, (stm, list): &Self::Handle, op: &Op) -> Outcome {
        if self.torn {
            stm.update(|tx| {
                tx.write(list.ends)?.len += 1;
                Ok(())
            })?;
        }
        stm.update(|tx| {
            if self.torn {
                tx.write(list.ends)?.len -= 1;
            }
            match *op {
                Op::Insert(key) => list.insert(tx, key),
                Op::Remove(key) => list.remove(tx, key),
            }
        })?;
        Ok(())
    }

    fn view(&self, (stm, list): &Self::Handle) -> Outcome<Vec<u64>> {
        Ok(stm.read(|tx| list.keys(tx))?)
    }

    fn model(&self, ops: &[Op]) -> Vec<u64> {
        let mut keys = std::collections::BTreeSet::new();
        for op in ops {
            match *op {
                Op::Insert(key) => keys.insert(key),
                Op::Remove(key) => keys.remove(&key),
            };
        }
        keys.into_iter().collect()
    }

    fn audit(&self, (stm, _): &Self::Handle) -> Outcome {
        let report = stm.check_all();
        Failure::unless(report.is_intact(), || format!("{:?}", report.findings))
    }
}

/// Every crash state of the run, and a sample of those in which the recovery crashes as well. All of them take minutes.
#[must_use]
pub fn crash_everywhere(torn: bool) -> [Report; 2] {
    let all = Config { nested_depth: 0, ..Config::default() };
    let sample = Config { mode: Mode::Representative, states_max: 20_000, ..Config::default() };
    [all, sample].map(|config| run_target(&Crashed { torn }, &config, &mut |_| {}))
}

#[allow(dead_code, reason = "the test includes this file for the structure alone")]
fn main() -> lodestone::Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sorted.pool");
    let stm = Stm::open(&Store::create(&path, &PoolOptions::default())?)?;
    let list = SortedList::open(&stm)?;
    for key in [30, 10, 20] {
        stm.update(|tx| list.insert(tx, key))?;
    }
    drop((list, stm)); // or pull the plug
    let stm = Stm::open(&Store::open(&path, &PoolOptions::default())?)?;
    let list = SortedList::open(&stm)?;
    println!("after opening again: {:?}", stm.read(|tx| list.keys(tx))?);

    println!("\nThe structure, crashed at every point:");
    for report in crash_everywhere(false) {
        println!("{}", report.expect_clean());
    }
    println!("\nThe same with its count in a transaction of its own:");
    println!("{}", crash_everywhere(true)[0]);
    Ok(())
}
