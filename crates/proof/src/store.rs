//! The store's targets for the crash explorer: objects of a plain kind are created, renamed and dropped.
//!
//! After a crash, recovery, and a crash inside recovery, each target judges:
//! - the names are those of the acknowledged operations, and of each begun one whole or not at all;
//! - every object has the blocks that it was made with;
//! - the check is clean and finds no leak and no second owner;
//! - the store keeps working.

use std::collections::BTreeMap;

use lodestone_crash::planted::Bug;
use lodestone_crash::{Failure, Outcome, SiteKey, Structure, Target};
use lodestone_heap::{Action, Heap, HeapOptions};
use lodestone_pmem::{PmAddr, Pool, PoolOptions};
use lodestone_store::{
    Acknowledge, Contents, Error, Flaw, Force, Kind, KindCode, KindError, Lost, LostKeys, Object, REPAIR_NAME, Records,
    Store, StoreOptions, VisitLost,
};

/// A kind for tests: an object of some blocks, each stamped with its number.
#[derive(Debug)]
pub struct Shelf;

/// The kind [`Shelf`].
pub static SHELF: Shelf = Shelf;

const SHELF_MAGIC: u64 = u64::from_le_bytes(*b"LDSTSHLF");

/// The name in views of an object whose name was lost.
const LOST: &str = "lost";

/// The number that a damaged block adds to the records of a shelf in a view.
const DAMAGED: u64 = 1000;

/// The content of block `number` of a shelf of `blocks` blocks. It differs between the shelves of a script.
const fn stamp(blocks: u64, number: u64) -> u64 {
    blocks << 8 | (number + 1)
}

impl Kind for Shelf {
    fn code(&self) -> KindCode {
        KindCode(*b"SHLF")
    }

    fn title(&self) -> &'static str {
        "a shelf"
    }

    fn examine(&self, object: Object) -> Result<Contents, KindError> {
        let (memory, at) = (object.memory(), object.at());
        if memory.load(at) != SHELF_MAGIC {
            return Err("no magic of a shelf".into());
        }
        let mut contents = Contents { blocks: vec![(at, 16 + 8 * memory.load(at.plus(8)))], ..Contents::default() };
        for number in 0..memory.load(at.plus(8)) {
            let block = PmAddr::from_raw(memory.load(at.plus(16 + 8 * number)));
            if memory.contains(block, 64) && memory.load(block) == stamp(memory.load(at.plus(8)), number) {
                contents.records += 1;
                contents.blocks.push((block, 64));
            } else {
                let text = format!("block {number} has another content");
                contents.flaws.push(Flaw { at: block, text, blocks_are_known: false, is_in_heap: false });
            }
        }
        Ok(contents)
    }

    fn records(&self, _: Object, _: Option<&str>, _: Acknowledge) -> Result<Box<dyn Records>, KindError> {
        Err("a shelf has no records".into())
    }

    fn begins_at(&self, heap: &Heap, at: PmAddr) -> bool {
        heap.block_bytes(at).is_some_and(|bytes| bytes >= 16) && heap.memory().load(at) == SHELF_MAGIC
    }

    /// Makes a shelf with as many blocks as verify in the old one.
    fn rebuild(&self, object: Object, name: &str, lost: &mut VisitLost<'_>) -> Result<u64, KindError> {
        let store = object.store().clone();
        let contents = self.examine(object)?;
        drop(Self::open(&store, name, contents.records, 64)?);
        for flaw in contents.flaws {
            lost(Lost { keys: LostKeys::Unknown, at: Some(flaw.at), is_certain: true, reason: flaw.text });
        }
        Ok(contents.records)
    }
}

impl Shelf {
    /// Opens or creates a shelf of `blocks` blocks of `bytes` bytes.
    ///
    /// # Errors
    /// As [`Store::open_or_make`].
    pub fn open(store: &Store, name: &str, blocks: u64, bytes: u64) -> lodestone_store::Result<Object> {
        store.open_or_make(name, &SHELF, |action| Self::make(store, action, blocks, bytes))
    }

    fn make(store: &Store, action: &mut Action<'_>, blocks: u64, bytes: u64) -> Result<PmAddr, Error> {
        let at = action.alloc(16 + 8 * blocks)?;
        let mut words = vec![SHELF_MAGIC, blocks];
        for number in 0..blocks {
            let block = action.alloc(bytes)?;
            store.memory().write_back(block, &stamp(blocks, number).to_le_bytes());
            words.push(block.to_raw());
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        store.memory().write_back(at, &bytes);
        Ok(at)
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOp {
    /// Creates a shelf of so many blocks.
    Create(&'static str, u64),
    /// Renames an object.
    Rename(&'static str, &'static str),
    /// Drops an object.
    Drop(&'static str),
    /// Damages the first block of an object. Only before a script.
    Damage(&'static str),
    /// Damages both copies of an object's entry. Only before a script.
    LoseName(&'static str),
    /// Repairs, and accepts loss.
    Repair,
}

/// A script on a store with the content that `before` left.
pub struct StoreTarget {
    name: &'static str,
    before: Option<Vec<StoreOp>>,
    script: Vec<StoreOp>,
}

impl StoreTarget {
    fn change(store: &Store, op: &StoreOp) -> Outcome {
        match *op {
            StoreOp::Create(name, blocks) => drop(Shelf::open(store, name, blocks, 64)?),
            StoreOp::Rename(name, new_name) => store.rename(name, new_name)?,
            StoreOp::Drop(name) => store.drop_object(name, Force::No)?,
            StoreOp::Damage(name) => {
                let shelf = store.open_object(name)?;
                let block = PmAddr::from_raw(store.memory().load(shelf.at().plus(16)));
                store.memory().store(block, 0);
                // No later operation of the script may overtake the damage: it is there from the beginning.
                store.memory().persist(block, 8);
            }
            StoreOp::LoseName(name) => Self::lose_name(store, name)?,
            StoreOp::Repair => {
                let report = store.repair_accepting_loss(&mut |_| {})?;
                Failure::unless(report.left.is_empty(), || format!("{:?} stay as they are", report.left))?;
            }
        }
        Ok(())
    }

    fn lose_name(store: &Store, name: &str) -> Outcome {
        let memory = store.memory();
        let copies = || [0, 128].map(|copy| store.own_blocks().into_iter().map(move |block| block.plus(copy)));
        let mut hit = 0;
        for at in copies().into_iter().flatten().filter(|at| memory.contains(*at, 128)) {
            let mut found = vec![0; name.len()];
            memory.read(at.plus(64), &mut found);
            if memory.load(at).to_le_bytes() == *b"LDSTNAME" && found == name.as_bytes() {
                memory.store(at, 0);
                // No later operation of the script may overtake the damage: it is there from the beginning.
                memory.persist(at, 8);
                hit += 1;
            }
        }
        Failure::unless(hit == 2, || format!("{hit} copies of the entry of `{name}`"))
    }

    /// Whether an object has lost its name before the script.
    fn loses_name(&self) -> bool {
        self.before.iter().flatten().any(|op| matches!(op, StoreOp::LoseName(_)))
    }

    /// Makes the slabs that a first object needs. The heap's targets explore how a heap grows.
    fn touch_heap(store: &Store) -> Outcome {
        let mut action = store.heap().action();
        let blocks = [512, 256, 128, 64, 32].map(|bytes| action.alloc(bytes));
        action.commit()?;
        let mut action = store.heap().action();
        for block in blocks {
            action.free(block?)?;
        }
        Ok(action.commit()?)
    }

    fn open_store(pool: &Pool) -> Outcome<Store> {
        let store = Store::over_with(pool, &StoreOptions::with_heap(HeapOptions::small()))?;
        store.add_kind(&SHELF);
        Ok(store)
    }
}

impl Structure for StoreTarget {
    type Op = StoreOp;
    type Handle = Store;
    type View = BTreeMap<String, u64>;

    fn name(&self) -> String {
        self.name.into()
    }

    fn options(&self) -> PoolOptions {
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() }
    }

    fn script(&self) -> Vec<StoreOp> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let store = Self::open_store(pool)?;
        let Some(before) = &self.before else { return Self::touch_heap(&store) };
        before.iter().try_for_each(|op| Self::change(&store, op))
    }

    fn open(&self, pool: &Pool) -> Outcome<Store> {
        Self::open_store(pool)
    }

    fn apply(&self, store: &Store, op: &StoreOp) -> Outcome {
        Self::change(store, op)
    }

    fn view(&self, store: &Store) -> Outcome<Self::View> {
        let mut view = BTreeMap::new();
        for named in store.names() {
            if named.name == REPAIR_NAME {
                // A half-made object of a repair has no owner.
                continue;
            }
            let contents =
                SHELF.examine(store.open_object(&named.name)?).map_err(|why| Failure::new(why.to_string()))?;
            // The address in such a name is the heap's choice.
            let name = if named.name.starts_with("lost-") { LOST.to_owned() } else { named.name };
            view.insert(name, contents.records + DAMAGED * contents.flaws.len() as u64);
        }
        Ok(view)
    }

    fn model(&self, ops: &[StoreOp]) -> Self::View {
        let (mut view, mut nameless) = (BTreeMap::new(), None);
        for op in self.before.iter().flatten().chain(ops) {
            match *op {
                StoreOp::Create(name, blocks) => {
                    view.entry(name.to_owned()).or_insert(blocks);
                }
                StoreOp::Rename(name, new_name) => {
                    if let Some(blocks) = view.remove(name) {
                        view.insert(new_name.to_owned(), blocks);
                    }
                }
                StoreOp::Drop(name) => drop(view.remove(name)),
                StoreOp::Damage(name) => {
                    view.entry(name.to_owned()).and_modify(|blocks| *blocks += DAMAGED - 1);
                }
                StoreOp::LoseName(name) => nameless = view.remove(name),
                StoreOp::Repair => {
                    view.extend(nameless.take().map(|blocks| (LOST.to_owned(), blocks)));
                    view.values_mut().for_each(|blocks| *blocks %= DAMAGED);
                }
            }
        }
        view
    }

    fn audit(&self, store: &Store) -> Outcome {
        if self.loses_name() {
            // The next repair goes on where a crash cut one short. The object must not have become a leak.
            store.repair_accepting_loss(&mut |_| {})?;
            let view = self.view(store)?;
            Failure::unless(view.contains_key(LOST), || format!("no repair finds the object again: {view:?}"))?;
        } else if self.script.contains(&StoreOp::Repair) {
            // A repair that was cut short leaves what the next one removes.
            store.forget_repair()?;
            let report = store.check(&mut |_| {});
            store.repair(&report)?;
            if report.objects.iter().any(|object| !object.is_intact) {
                // Damaged as before: the view judges that.
                return Ok(());
            }
        }
        let report = store.check(&mut |_| {});
        let whole = report.findings.is_empty() && report.ownership_checked;
        Failure::unless(whole, || {
            let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
            format!("ownership checked: {}; {}", report.ownership_checked, findings.join("; "))
        })
    }

    fn more(&self) -> Vec<StoreOp> {
        if self.loses_name() {
            // The audit has repaired, and the view is another one.
            return Vec::new();
        }
        vec![StoreOp::Create("later", 2), StoreOp::Rename("later", "last"), StoreOp::Drop("last")]
    }

    fn audits(&self, site: &SiteKey) -> bool {
        // An object that a repair makes counts only when it has the name. The other targets audit how a shelf is
        // written.
        let is_shelf = site.file.ends_with("explore.rs") && self.script.contains(&StoreOp::Repair);
        site.file.contains("store/src/") && !is_shelf
    }
}

/// Every target of the store.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    use StoreOp::{Create, Damage, Drop, LoseName, Rename, Repair};
    let target = |name, before: Option<Vec<StoreOp>>, script: Vec<StoreOp>| -> Box<dyn Target> {
        Box::new(StoreTarget { name, before, script })
    };
    // A slot and blocks that were used before, so that their content can be mistaken for something.
    let used = vec![Create("old", 3), Drop("old")];
    vec![
        target("store-format", None, vec![Create("one", 1)]),
        target("store-create", Some(used), vec![Create("one", 2), Create("two", 0)]),
        target("store-rename", Some(vec![Create("one", 2)]), vec![Rename("one", "two"), Rename("two", "one")]),
        // More blocks than one action of the small heap frees.
        target("store-drop", Some(vec![Create("one", 9), Create("two", 1)]), vec![Drop("one"), Create("one", 1)]),
        target(
            "store-mixed",
            Some(Vec::new()),
            vec![Create("a", 1), Rename("a", "b"), Create("a", 2), Drop("b"), Drop("a")],
        ),
        target("store-repair", Some(vec![Create("one", 2), Damage("one")]), vec![Repair]),
        target("store-adopt", Some(vec![Create("one", 2), Create("two", 1), LoseName("one")]), vec![Repair]),
    ]
}

fn target(name: &str) -> Box<dyn Target> {
    let found = targets().into_iter().find(|target| target.name() == name);
    found.expect("a bug names a target that is there")
}

/// Bugs that can be planted in the store, each with the target that must find it.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    vec![
        Bug::new("store-entry-not-flushed", "an acknowledged object has no name", || target("store-create")),
        Bug::new("store-create-in-two-steps", "a crash between them leaks the object", || target("store-create")),
        Bug::new("store-rename-in-two-steps", "a crash between them loses the object", || target("store-rename")),
        Bug::new("store-drop-frees-first", "a crash leaves a name whose blocks are given to others", || {
            target("store-drop")
        }),
        Bug::new("store-list-moves-on-first", "a crash leaks the blocks of a list", || target("store-drop")),
        Bug::new("store-repair-in-two-steps", "a crash between them loses the object with what could be kept", || {
            target("store-repair")
        }),
        Bug::new("store-forgets-damage-first", "a crash turns an object without a name into a leak", || {
            target("store-adopt")
        }),
        Bug::new("store-no-recovery", "a drop that a crash cut short keeps its blocks for ever", || {
            target("store-drop")
        }),
    ]
}
