//! A binary search tree without rebalancing: random keys keep it within a small factor of the least height.
//!
//! A node with two children is removed by moving its successor's entry into it and unlinking the successor.

use std::mem::offset_of;

use lodestone_stm::{Part, PmObject};
use lodestone_workload::engine::EngineError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Entries, Head, Map, find_head, make_head};
use crate::tm::{Object, Reading, Ref, TransactionalMemory, Writing};

/// The binary search tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct SearchTree;

/// A node: one entry and two subtrees.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[pm(name = "bench.Branch")]
struct Branch {
    key: u64,
    left: u64,
    right: u64,
    value: u64,
}

/// The words that a step down needs: key, left and right subtree.
const STEP: Part<Branch, [u64; 3]> = Part::at(offset_of!(Branch, key));
const _: () = assert!(offset_of!(Branch, left) == offset_of!(Branch, key) + 8, "in this order, side by side");
const _: () = assert!(offset_of!(Branch, right) == offset_of!(Branch, key) + 16, "in this order, side by side");

impl Object for Branch {}

/// The word that refers to a subtree.
#[derive(Clone, Copy)]
enum Link {
    Top,
    Left(Ref<Branch>),
    Right(Ref<Branch>),
}

impl Link {
    fn set<X: Writing>(self, head: Ref<Head>, tx: &mut X, to: u64) -> Result<(), X::Abort> {
        match self {
            Self::Top => tx.write(head, |head| head.first = to),
            Self::Left(parent) => tx.write(parent, |parent| parent.left = to),
            Self::Right(parent) => tx.write(parent, |parent| parent.right = to),
        }
    }
}

/// Where a key is or belongs: the link, and the node it refers to.
type Place = (Link, Option<(Ref<Branch>, Branch)>);

/// The link at which `key` is or belongs, and the node there.
#[inline]
fn find<X: Reading>(head: Ref<Head>, tx: &mut X, key: u64) -> Result<Place, X::Abort> {
    let mut link = Link::Top;
    let mut at = Ref::from_raw(tx.read(head)?.first);
    while !at.is_null() {
        let [found, left, right] = tx.read_part(at, STEP)?;
        if found == key {
            return Ok((link, Some((at, tx.read(at)?))));
        }
        let next = if key < found {
            link = Link::Left(at);
            left
        } else {
            link = Link::Right(at);
            right
        };
        at = Ref::from_raw(next);
    }
    Ok((link, None))
}

impl Map for SearchTree {
    type Handle = Ref<Head>;

    fn name(&self) -> &'static str {
        "tree"
    }

    fn create<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Ref<Head>, EngineError> {
        make_head(memory, slot)
    }

    fn open<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Ref<Head>, EngineError> {
        find_head(memory, slot)
    }

    #[inline]
    fn get<X: Reading>(map: &Ref<Head>, tx: &mut X, key: u64) -> Result<Option<u64>, X::Abort> {
        Ok(find(*map, tx, key)?.1.map(|(_, node)| node.value))
    }

    fn insert<X: Writing>(map: &Ref<Head>, tx: &mut X, key: u64, value: u64) -> Result<bool, X::Abort> {
        let (link, found) = find(*map, tx, key)?;
        if found.is_some() {
            return Ok(false);
        }
        let made = tx.alloc(Branch { key, value, left: 0, right: 0 })?;
        link.set(*map, tx, made.to_raw())?;
        Ok(true)
    }

    fn remove<X: Writing>(map: &Ref<Head>, tx: &mut X, key: u64) -> Result<bool, X::Abort> {
        let (link, Some((at, node))) = find(*map, tx, key)? else { return Ok(false) };
        if node.left == 0 || node.right == 0 {
            // At most one child: it takes the node's place.
            link.set(*map, tx, node.left | node.right)?;
            tx.free(at)?;
            return Ok(true);
        }
        let mut successor_link = Link::Right(at);
        let mut successor_at = Ref::from_raw(node.right);
        let mut successor: Branch = tx.read(successor_at)?;
        while successor.left != 0 {
            successor_link = Link::Left(successor_at);
            successor_at = Ref::from_raw(successor.left);
            successor = tx.read(successor_at)?;
        }
        tx.write(at, |node: &mut Branch| {
            node.key = successor.key;
            node.value = successor.value;
        })?;
        successor_link.set(*map, tx, successor.right)?;
        tx.free(successor_at)?;
        Ok(true)
    }

    fn entries<X: Reading>(map: &Ref<Head>, tx: &mut X) -> Result<Entries, X::Abort> {
        let mut all = Entries { objects: 1, ..Entries::default() };
        let mut above: Vec<Branch> = Vec::new();
        let mut at = tx.read(*map)?.first;
        while at != 0 || !above.is_empty() {
            while at != 0 {
                let node: Branch = tx.read(Ref::from_raw(at))?;
                all.objects += 1;
                above.push(node);
                at = node.left;
            }
            let Some(node) = above.pop() else { break };
            if all.pairs.last().is_some_and(|(last, _)| *last >= node.key) {
                all.fault = Some(format!("key {} is out of order", node.key));
                break;
            }
            all.pairs.push((node.key, node.value));
            at = node.right;
        }
        Ok(all)
    }
}
