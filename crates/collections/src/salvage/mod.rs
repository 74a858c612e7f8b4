//! Salvage: reads everything that is readable in a damaged collection, names the rest, and rebuilds a memory from it.
//!
//! 1. A walk from the header brings out all that links lead to. Each object is read in a separate transaction, so an
//!    error of one does not affect the others.
//! 2. Where the walk met damage, all live objects of the memory are looked at. Nodes name their collection ([`mark`]),
//!    so those that no link leads to come out too. A node that was freed is no live object.
//! 3. A collection with a damaged header, or without a root, is opened by what its nodes say.
//!
//! The unit of loss is an object: one checksum covers a whole version, and a broken version may be the newest.
//!
//! No record is doubtful. An object says by itself whether it counts, and a free of it is a version of its own. Header,
//! table of lives and directory of slabs, which lead to the objects, exist twice.
//!
//! | file | idea |
//! | --- | --- |
//! | `loot` | receivers of records and losses |
//! | `members` | collections of any items |
//! | `order` | the order of a list's nodes when some are lost |

mod loot;
mod members;
pub(crate) mod order;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lodestone_stm::{FoundRoot, FoundRoots, PmAddr, Stm, StmOptions, contents_of};
use lodestone_store::{
    Contents, Flaw, KindError, Lost, LostKeys, Member as NamedMember, Object, VisitLost, VisitRecord,
};

use crate::mark::{self, Mark, NodeKind};
use loot::place_of;
pub(crate) use loot::{ItemLoot, Loot, Range};
use members::{Member, Unopened, check_type, open_member};

fn all_lost(reason: String) -> Lost {
    Lost { keys: LostKeys::Unknown, at: None, is_certain: true, reason }
}

/// The collections in a memory.
struct Memory {
    stm: Stm,
    found: FoundRoots,
    owners: OnceCell<BTreeMap<PmAddr, Mark>>,
}

impl Memory {
    fn open(object: Object) -> Result<Self, KindError> {
        let stm = Stm::open_object(object, &StmOptions::default())?;
        let found = stm.roots_found();
        let mut memory = Self { stm, found, owners: OnceCell::new() };
        if memory.found.damage.is_some() {
            let nameless = memory.nameless();
            memory.found.roots.extend(nameless);
        }
        Ok(memory)
    }

    /// The marks of all collections, by address of the header.
    fn owners(&self) -> &BTreeMap<PmAddr, Mark> {
        self.owners.get_or_init(|| mark::owners(&self.stm))
    }

    /// Collections that no root leads to. They get a name from the address of their header.
    fn nameless(&self) -> Vec<FoundRoot> {
        let is_named = |header: PmAddr| self.found.roots.iter().any(|root| root.object == header);
        let without = self.owners().iter().filter(|(header, _)| !is_named(**header));
        let root = |(header, mark): (&PmAddr, &Mark)| {
            let kind = match mark.kind {
                NodeKind::Leaf | NodeKind::Inner => "lodestone.BTreeMap",
                NodeKind::Page => "lodestone.HashMap",
                NodeKind::OfList => "lodestone.List",
                NodeKind::OfQueue => "lodestone.Queue",
            };
            FoundRoot { name: format!("lost-{:x}", header.to_raw()), kind: kind.into(), object: *header }
        };
        without.map(root).collect()
    }

    fn open_member(&self, root: &FoundRoot) -> Result<Box<dyn Member>, Unopened> {
        open_member(&self.stm, root, || self.owners().get(&root.object).copied())
    }

    /// Reports damage of the list of roots.
    fn tell_damage(&self, lost: &mut VisitLost<'_>) {
        if let Some(error) = &self.found.damage {
            let reason =
                format!("the list of roots: {error}; collections without a name are called `lost-` and a number");
            lost(Lost { keys: LostKeys::Unknown, at: place_of(error), is_certain: false, reason });
        }
    }
}

/// Names and types of the collections. Where the list of roots is damaged, of those that can be found.
pub(crate) fn members(object: Object) -> Result<Vec<NamedMember>, KindError> {
    let roots = Memory::open(object)?.found.roots;
    Ok(roots.into_iter().map(|root| NamedMember { name: root.name, what: root.kind }).collect())
}

/// Verifies the memory `object`: every object on its own, and every collection of items that can be shown by a walk
/// over all of it. Only the walk notices an object that was lost with its whole cell.
pub(crate) fn examine(object: Object) -> Result<Contents, KindError> {
    let (name, header) = (object.name(), object.at());
    let memory = Memory::open(object)?;
    let mut contents = contents_of(memory.stm.check_all());
    let mut flaws = Vec::new();
    let mut add = |at: Option<PmAddr>, text: String| {
        flaws.push(Flaw { at: at.unwrap_or(header), text, blocks_are_known: true, is_in_heap: false });
    };
    if let Some(error) = &memory.found.damage {
        add(place_of(error), format!("the list of roots: {error}"));
    }
    for root in &memory.found.roots {
        // The walk does not need the list of types, but a program that opens the collection does.
        if let Err(error) = check_type(&memory.stm, &root.kind) {
            add(place_of(&error), format!("the type of `{name}/{}`: {error}", root.name));
        }
        match memory.open_member(root) {
            Ok(found) => {
                let mut tell = |lost: Lost| add(lost.at, format!("in `{name}/{}`: {lost}", root.name));
                found.salvage(false, &mut |_, _| ControlFlow::Continue(()), &mut tell);
            }
            Err(Unopened::Damaged(why)) => add(None, format!("`{name}/{}`: {why}", root.name)),
            Err(Unopened::Unknown | Unopened::Unsigned) => {}
        }
    }
    contents.flaws.extend(flaws);
    Ok(contents)
}

/// Shows the readable records of the collection `member` in the memory `object`. Returns their number.
pub(crate) fn salvage_member(
    object: Object,
    member: &str,
    visit: &mut VisitRecord<'_>,
    lost: &mut VisitLost<'_>,
) -> Result<u64, KindError> {
    let name = object.name();
    let memory = Memory::open(object)?;
    memory.tell_damage(lost);
    let Some(root) = memory.found.roots.iter().find(|root| root.name == member) else {
        return Err(format!("`{name}` holds nothing called `{member}`").into());
    };
    match memory.open_member(root) {
        Ok(member) => Ok(member.salvage(true, visit, lost)),
        Err(Unopened::Unsigned) => Ok(0),
        Err(Unopened::Damaged(why)) => {
            lost(all_lost(format!("all of `{member}`: {why}")));
            Ok(0)
        }
        Err(Unopened::Unknown) => {
            let what = &root.kind;
            Err(format!("`{member}` is a {what} of items that only the program that made it can show").into())
        }
    }
}

/// Makes the memory `name` from the readable records of the collections in `object`. Returns their number.
pub(crate) fn rebuild(object: Object, name: &str, lost: &mut VisitLost<'_>) -> Result<u64, KindError> {
    let (store, old_name) = (object.store().clone(), object.name());
    let old = Memory::open(object)?;
    if old.found.has_own_types {
        let why = format!("`{old_name}` holds objects of a program's own types, and its list of roots is damaged");
        return Err(why.into());
    }
    old.tell_damage(lost);
    // Before anything is made: a repair must not lose records that no tool can show.
    let mut opened = Vec::new();
    for root in &old.found.roots {
        let member = &root.name;
        match old.open_member(root) {
            Ok(found) => opened.push((member, found)),
            Err(Unopened::Unsigned) => {}
            Err(Unopened::Damaged(why)) => lost(all_lost(format!("all of `{old_name}/{member}`: {why}"))),
            Err(Unopened::Unknown) => {
                let what = &root.kind;
                let why = format!(
                    "`{old_name}` holds `{member}`, a {what} of items that only the program that made it can bring out"
                );
                return Err(why.into());
            }
        }
    }
    let new = Stm::open_named(&store, name, &old.stm.made_with())?;
    let mut count = 0;
    for (member, found) in opened {
        let mut put = found.like_it(&new, member)?;
        let mut failed = None;
        let mut show = |key: &[u8], value: &[u8]| match put(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        let mut tell = |mut what: Lost| {
            what.reason = format!("in `{old_name}/{member}`: {}", what.reason);
            lost(what);
        };
        count += found.salvage(true, &mut show, &mut tell);
        failed.map_or(Ok(()), Err)?;
    }
    Ok(count)
}
