//! A sorted list: one chain from the head, keys ascending.

use std::mem::offset_of;

use lodestone_stm::Part;
use lodestone_workload::engine::EngineError;

use super::{Entries, Head, Map, Node, find_head, make_head};
use crate::tm::{Reading, Ref, TransactionalMemory, Writing};

/// The sorted list.
#[derive(Debug, Clone, Copy, Default)]
pub struct SortedList;

/// The node before the place of `key` (null: the head) and the one there or after it (null: the end).
struct Place {
    before: Ref<Node>,
    here: Ref<Node>,
    node: Option<Node>,
}

/// The words that a step over a node needs.
const KEY_AND_NEXT: Part<Node, [u64; 2]> = Part::at(offset_of!(Node, key));
const _: () = assert!(offset_of!(Node, next) == offset_of!(Node, key) + 8, "the next node's word follows the key");

/// Finds the place of `key`. In a `LONG` chain most nodes are stepped over, and their values are not read.
#[inline]
fn find<X: Reading, const LONG: bool>(head: Ref<Head>, tx: &mut X, key: u64) -> Result<Place, X::Abort> {
    let mut place = Place { before: Ref::NULL, here: Ref::from_raw(tx.read(head)?.first), node: None };
    while !place.here.is_null() {
        if LONG {
            let [found, next] = tx.read_part(place.here, KEY_AND_NEXT)?;
            if found < key {
                place.before = place.here;
                place.here = Ref::from_raw(next);
                continue;
            }
        }
        let node = tx.read(place.here)?;
        if node.key >= key {
            place.node = Some(node);
            break;
        }
        place.before = place.here;
        place.here = Ref::from_raw(node.next);
    }
    Ok(place)
}

/// Makes the predecessor of a place point to `next`.
#[inline]
fn link<X: Writing>(head: Ref<Head>, tx: &mut X, before: Ref<Node>, next: u64) -> Result<(), X::Abort> {
    if before.is_null() { tx.write(head, |head| head.first = next) } else { tx.write(before, |node| node.next = next) }
}

/// Looks a key up in the chain of `head`.
#[inline]
pub(super) fn get<const LONG: bool, X: Reading>(
    head: Ref<Head>,
    tx: &mut X,
    key: u64,
) -> Result<Option<u64>, X::Abort> {
    let place = find::<X, LONG>(head, tx, key)?;
    Ok(place.node.filter(|node| node.key == key).map(|node| node.value))
}

/// Inserts into the chain of `head`.
#[inline]
pub(super) fn insert<const LONG: bool, X: Writing>(
    head: Ref<Head>,
    tx: &mut X,
    key: u64,
    value: u64,
) -> Result<bool, X::Abort> {
    let place = find::<X, LONG>(head, tx, key)?;
    if place.node.is_some_and(|node| node.key == key) {
        return Ok(false);
    }
    let made = tx.alloc(Node { key, value, next: place.here.to_raw() })?;
    link(head, tx, place.before, made.to_raw())?;
    Ok(true)
}

/// Removes from the chain of `head`.
#[inline]
pub(super) fn remove<const LONG: bool, X: Writing>(head: Ref<Head>, tx: &mut X, key: u64) -> Result<bool, X::Abort> {
    let place = find::<X, LONG>(head, tx, key)?;
    let Some(node) = place.node.filter(|node| node.key == key) else { return Ok(false) };
    link(head, tx, place.before, node.next)?;
    tx.free(place.here)?;
    Ok(true)
}

/// Adds the entries of the chain of `head` to `all`.
pub(super) fn collect<X: Reading>(head: Ref<Head>, tx: &mut X, all: &mut Entries) -> Result<(), X::Abort> {
    let mut at = Ref::<Node>::from_raw(tx.read(head)?.first);
    let mut last = None;
    all.objects += 1;
    while !at.is_null() {
        let node = tx.read(at)?;
        if last.is_some_and(|last| last >= node.key) {
            all.fault = Some(format!("key {} comes after {last:?}", node.key));
            break;
        }
        last = Some(node.key);
        all.pairs.push((node.key, node.value));
        all.objects += 1;
        at = Ref::from_raw(node.next);
    }
    Ok(())
}

impl Map for SortedList {
    type Handle = Ref<Head>;

    fn name(&self) -> &'static str {
        "list"
    }

    fn create<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Ref<Head>, EngineError> {
        make_head(memory, slot)
    }

    fn open<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Ref<Head>, EngineError> {
        find_head(memory, slot)
    }

    #[inline]
    fn get<X: Reading>(map: &Ref<Head>, tx: &mut X, key: u64) -> Result<Option<u64>, X::Abort> {
        get::<true, X>(*map, tx, key)
    }

    #[inline]
    fn insert<X: Writing>(map: &Ref<Head>, tx: &mut X, key: u64, value: u64) -> Result<bool, X::Abort> {
        insert::<true, X>(*map, tx, key, value)
    }

    #[inline]
    fn remove<X: Writing>(map: &Ref<Head>, tx: &mut X, key: u64) -> Result<bool, X::Abort> {
        remove::<true, X>(*map, tx, key)
    }

    fn entries<X: Reading>(map: &Ref<Head>, tx: &mut X) -> Result<Entries, X::Abort> {
        let mut all = Entries::default();
        collect(*map, tx, &mut all)?;
        Ok(all)
    }
}
