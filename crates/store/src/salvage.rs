//! Repair that accepts loss: a damaged object is rebuilt from its readable records.
//!
//! 1. Remains of an earlier repair lose their name ([`REPAIR_NAME`]). Objects whose names are lost get one (`adopt`).
//! 2. For each damaged object, its kind makes a new object of the salvaged records, under that name.
//! 3. One action of the heap moves the name of the old object to the new one. The old one has none from then on.
//! 4. When all objects are whole, the heap's tables are repaired from the blocks that they own. Blocks that nothing
//!    reaches, those of the old objects among them, are freed.
//!
//! Invariant: at every moment the name leads to the old object or to the whole new one. A crash before step 3 leaves
//! the unfinished new object under the repair's name. A crash after it leaves blocks without an owner. The next repair
//! removes both.
//!
//! Doubtful records stay out of the new object: it must not bring back what was removed. They are named, and
//! [`Store::foresee_loss`] counts them before, so that an export can keep them.
//!
//! Why the old object's blocks are not freed by a list as in a drop: a damaged object's list of its blocks cannot be
//! trusted. A block that no whole object owns is free.

use std::ops::ControlFlow;

use lodestone_pmem::planted;
use lodestone_pmem::sync::lock;
use serde::Serialize;

use crate::adopt::{Adopted, Adoption};
use crate::catalog::Slot;
use crate::discard::Examine;
use crate::error::{Error, Result, committed};
use crate::kind::{Contents, Kind, KindCode, Lost};
use crate::layout::Entry;
use crate::store::Store;

/// The name of an object during its repair. No other object can have it.
pub const REPAIR_NAME: &str = "lodestone.repair";

/// A rebuilt object.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// // A sound pool needs none.
/// let report = store.repair_accepting_loss(&mut |step| println!("{step}"))?;
/// for object in &report.rebuilt {
///     println!("{}: {} records kept, {} lost", object.name, object.records, object.lost.len());
/// }
/// assert!(report.rebuilt.is_empty());
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Rebuilt {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Records in it now.
    pub records: u64,
    /// Its losses.
    pub lost: Vec<Lost>,
    /// Its doubtful records, by key. They are gone too, unless an export kept them before ([`Store::foresee_loss`]).
    pub doubtful: Vec<Lost>,
}

/// The losses that a repair would accept for an object, or for a member of one ([`Store::foresee_loss`]).
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// // Before a repair that accepts loss: nothing would be lost here.
/// for object in store.foresee_loss(&mut |step| println!("{step}")) {
///     println!("{}: keeps {}, loses {}", object.name, object.records, object.lost);
/// }
/// assert!(store.foresee_loss(&mut |_| ()).is_empty());
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Foreseen {
    /// The object, or `OBJECT/NAME` for a member of it. Exports know it by this name.
    pub name: String,
    /// Records that would be kept.
    pub records: u64,
    /// Losses, which a range of keys can make many records.
    pub lost: u64,
    /// Doubtful records, which would go.
    pub doubtful: u64,
}

/// A damaged object that stays as it is.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// let report = store.repair_accepting_loss(&mut |step| println!("{step}"))?;
/// for object in &report.left {
///     println!("{}: {}", object.name, object.why);
/// }
/// assert!(report.left.is_empty());
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Unrepaired {
    /// Its name.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// The result of [`Store::repair_accepting_loss`].
///
/// ```
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
/// # use lodestone_store::{Acknowledge, Contents, Kind, KindCode, KindError, Object, Records};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # #[derive(Debug)]
/// # struct Log;
/// # impl Kind for Log {
/// #     fn code(&self) -> KindCode { KindCode(*b"MLOG") }
/// #     fn title(&self) -> &'static str { "a log" }
/// #     fn examine(&self, log: Object) -> Result<Contents, KindError> {
/// #         Ok(Contents { records: 1, blocks: vec![(log.at(), 100)], ..Contents::default() })
/// #     }
/// #     fn records(&self, _: Object, _: Option<&str>, _: Acknowledge) -> Result<Box<dyn Records>, KindError> {
/// #         Err("none".into())
/// #     }
/// # }
/// # static LOG: Log = Log;
/// let store = Store::create(&path, &options)?;
/// let make = |name: &str| store.open_or_make::<lodestone_store::Error>(name, &LOG, |action| Ok(action.alloc(100)?));
/// make("log")?;
/// let report = store.repair_accepting_loss(&mut |name| println!("examining {name}"))?;
/// assert!(report.rebuilt.is_empty() && report.left.is_empty(), "nothing was damaged");
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LossReport {
    /// Objects whose names were lost.
    pub adopted: Vec<Adopted>,
    /// Rebuilt objects.
    pub rebuilt: Vec<Rebuilt>,
    /// Damaged objects that stay as they are.
    pub left: Vec<Unrepaired>,
    /// Repairs of the heap, in words.
    pub repaired: Vec<String>,
}

impl Store {
    /// Rebuilds every damaged object from its readable records, then repairs the heap, and reports the losses. Whole
    /// objects are not touched. No object may be open. Durable on return. A crash leaves each object as it was, or
    /// rebuilt. `tell` receives the name of the object that is examined next.
    ///
    /// An object stays as it is and is named when its kind cannot do that, or when there is no room for its second
    /// copy. So does one whose name was lost until now and that has doubtful records: no export could keep them before.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]. Any error when the pool fails.
    pub fn repair_accepting_loss(&self, tell: &mut dyn FnMut(&str)) -> Result<LossReport> {
        let mut report = LossReport::default();
        self.forget_repair()?;
        // Salvage looks for records in allocated blocks, so as many of the heap's tables as possible are repaired
        // first.
        let before = self.check(&mut |_| {});
        report.repaired.extend(self.repair(&before)?);
        match self.adopt()? {
            Adoption::Whole(adopted) => report.adopted = adopted,
            Adoption::Partial(adopted, why) => {
                report.adopted = adopted;
                report.left.push(Unrepaired { name: "the catalog".to_owned(), why });
            }
        }
        for named in self.names() {
            tell(&named.name);
            self.rebuild_if_damaged((&named.name, named.kind), Contents::is_whole, &mut report)?;
        }
        let after = self.check(&mut |_| {});
        report.repaired.extend(self.repair(&after)?);
        if self.check(&mut |_| {}).is_clean() {
            return Ok(report);
        }
        // Where nothing says what the heap's tables said, whole objects move out of the places in question.
        for named in self.names() {
            self.rebuild_if_damaged((&named.name, named.kind), |contents| contents.flaws.is_empty(), &mut report)?;
        }
        let after = self.check(&mut |_| {});
        report.repaired.extend(self.repair(&after)?);
        Ok(report)
    }

    /// The losses that [`repair_accepting_loss`](Self::repair_accepting_loss) would accept: for each damaged object, or
    /// for each of its members, how much of it verifies. Changes nothing. No object may be open. `tell` receives the
    /// name of the object that is examined next. Objects whose names are lost are missing.
    pub fn foresee_loss(&self, tell: &mut dyn FnMut(&str)) -> Vec<Foreseen> {
        let mut all = Vec::new();
        for named in self.names().into_iter().filter(|named| named.name != REPAIR_NAME) {
            tell(&named.name);
            let Some(kind) = self.find_kind(named.kind) else { continue };
            let is_whole = |object| self.examine_claimed(object).is_ok_and(|contents| contents.is_whole());
            if self.open_object(&named.name).is_ok_and(is_whole) {
                continue;
            }
            all.extend(self.foresee_object(&named.name, kind));
        }
        all
    }

    /// Doubtful records of the object `name` and its members.
    fn doubtful_in(&self, name: &str, kind: &dyn Kind) -> u64 {
        self.foresee_object(name, kind).iter().map(|foreseen| foreseen.doubtful).sum()
    }

    /// The losses of an object, or of each of its members.
    fn foresee_object(&self, name: &str, kind: &dyn Kind) -> Vec<Foreseen> {
        let members = self.open_object(name).ok().and_then(|object| kind.members(object).ok());
        let members: Vec<Option<String>> = match members {
            Some(members) if !members.is_empty() => members.into_iter().map(|member| Some(member.name)).collect(),
            _ => vec![None],
        };
        members.into_iter().filter_map(|member| self.foresee(name, kind, member)).collect()
    }

    /// The losses of one object or member. `None` when nothing of it can be read, or nothing is missing.
    fn foresee(&self, name: &str, kind: &dyn Kind, member: Option<String>) -> Option<Foreseen> {
        let (mut lost, mut doubtful) = (0, 0);
        let mut count = |found: Lost| *(if found.is_doubtful() { &mut doubtful } else { &mut lost }) += 1;
        let object = self.open_object(name).ok()?;
        let mut skip = |_: &[u8], _: &[u8]| ControlFlow::Continue(());
        let records = kind.salvage(object, member.as_deref(), &mut skip, &mut count).ok()?;
        let name = member.map_or_else(|| name.to_owned(), |member| format!("{name}/{member}"));
        (lost + doubtful > 0).then_some(Foreseen { name, records, lost, doubtful })
    }

    /// Removes the name of an unfinished object of an earlier repair. [`repair`](Self::repair) frees its blocks.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]. Any error when the pool fails.
    pub fn forget_repair(&self) -> Result<()> {
        if self.memory().is_read_only() {
            return Err(self.read_only("a repair"));
        }
        let mut catalog = lock(&self.inner.catalog);
        let Some(&slot) = catalog.names.get(REPAIR_NAME) else { return Ok(()) };
        let Some(entry) = catalog.slots[slot].entry.clone() else { return Ok(()) };
        let mut action = self.heap().action();
        catalog.place(slot).point_to(&mut action, lodestone_pmem::PmAddr::NULL);
        action.free(entry.at)?;
        let (took_effect, outcome) = committed(action.commit());
        if took_effect {
            catalog.names.remove(REPAIR_NAME);
            catalog.slots[slot] = Slot::default();
        }
        outcome?;
        drop(catalog);
        Ok(self.memory().durable()?)
    }

    fn rebuild_if_damaged(
        &self,
        (name, code): (&str, KindCode),
        is_fine: impl Fn(&Contents) -> bool,
        report: &mut LossReport,
    ) -> Result<()> {
        // Once is enough: what stays as it is will not be better the second time.
        if report.left.iter().any(|left| left.name == name) {
            return Ok(());
        }
        let left = |why: String| Unrepaired { name: name.to_owned(), why };
        let object = match self.open_object(name) {
            Ok(object) => object,
            Err(error) => {
                report.left.push(left(error.to_string()));
                return Ok(());
            }
        };
        match self.examine_claimed(object) {
            Ok(contents) if is_fine(&contents) => return Ok(()),
            Ok(_) | Err(Examine::Failed(_)) => {}
            Err(Examine::Unknown(error)) => {
                report.left.push(left(error.to_string()));
                return Ok(());
            }
        }
        let Some(kind) = self.find_kind(code) else { return Ok(()) };
        // No export could name it before this repair.
        let is_new = report.adopted.iter().any(|adopted| adopted.name == name);
        let doubtful = if is_new { self.doubtful_in(name, kind) } else { 0 };
        if doubtful > 0 {
            report.left.push(left(format!(
                "its name was lost until now, and {doubtful} records of it are doubtful; keep them with \
                 `lodestone kv export --map {name} --skip-damaged --doubtful FILE`, then repair again"
            )));
            return Ok(());
        }
        let object = self.open_object(name)?;
        let (mut lost, mut doubtful) = (Vec::new(), Vec::new());
        let mut note = |mut found: Lost| match found.take_record() {
            Some(_) => doubtful.push(found),
            None => lost.push(found),
        };
        lock(&self.inner.catalog).is_repairing = true;
        let outcome = kind.rebuild(object, REPAIR_NAME, &mut note);
        lock(&self.inner.catalog).is_repairing = false;
        match outcome {
            Ok(records) => {
                self.replace_by_repair(name)?;
                let (name, kind) = (name.to_owned(), kind.title().to_owned());
                report.rebuilt.push(Rebuilt { name, kind, records, lost, doubtful });
            }
            Err(error) => {
                self.forget_repair()?;
                report.left.push(left(error.to_string()));
            }
        }
        Ok(())
    }

    /// Moves the name `name` from the object that has it to the repaired object. Durable on return.
    fn replace_by_repair(&self, name: &str) -> Result<()> {
        // The new object must be whole on the medium before a name leads to it.
        self.memory().durable()?;
        let mut catalog = lock(&self.inner.catalog);
        let found = |name: &str| catalog.names.get(name).copied().ok_or_else(|| self.not_found(name));
        let (old_slot, new_slot) = (found(name)?, found(REPAIR_NAME)?);
        let entry = |slot: usize, name: &str| catalog.slots[slot].entry.clone().ok_or_else(|| self.not_found(name));
        let (old, new) = (entry(old_slot, name)?, entry(new_slot, REPAIR_NAME)?);
        let mut action = self.heap().action();
        let entry = Entry { at: action.alloc(Entry::bytes(name.len()))?, name: name.to_owned(), ..new.clone() };
        entry.write(self.memory());
        catalog.place(old_slot).point_to(&mut action, entry.at);
        if planted::active("store-repair-in-two-steps") {
            // Planted: the old name goes first.
            let mut first = self.heap().action();
            catalog.place(old_slot).point_to(&mut first, lodestone_pmem::PmAddr::NULL);
            committed(first.commit()).1?;
            catalog.place(new_slot).point_to(&mut action, lodestone_pmem::PmAddr::NULL);
            action.free(old.at)?;
            action.free(new.at)?;
        } else {
            catalog.place(new_slot).point_to(&mut action, lodestone_pmem::PmAddr::NULL);
            action.free(old.at)?;
            action.free(new.at)?;
        }
        let (took_effect, outcome) = committed(action.commit());
        if took_effect {
            catalog.names.remove(REPAIR_NAME);
            catalog.slots[old_slot].entry = Some(entry);
            catalog.slots[new_slot] = Slot::default();
        }
        outcome?;
        drop(catalog);
        Ok(self.memory().durable()?)
    }
}

/// The error for a name that is kept for repairs.
pub(crate) fn reserved(name: &str) -> Error {
    Error::InvalidName { name: name.to_owned(), finding: "repairs use it" }
}
