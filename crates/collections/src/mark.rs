//! The mark of a node: which collection it is in, and the types of its items.
//!
//! Links lead to nodes, and a mark leads back. A salvage finds the nodes of a collection by their marks, whatever
//! became of the links. Directories of a hash map hold no entries and have no mark.
//!
//! - Leaves, inner nodes and pages have a *head* and an *owner* in front of their entries (`node`).
//! - Nodes of lists and queues have both in one word, because a cell's address leaves six bits free.
//!
//! No byte string is taken for a node. A short one is in a box, which begins with a length below 512: its bits 16 to
//! 31 are zero, so it is no head, and no link either. A box of a long one begins with an address. Other byte strings
//! are in cells of another kind. A program's own object of a node's size could hold the same words as a node, if the
//! program lets others choose all of its bytes.

use std::any::TypeId;
use std::collections::{BTreeMap, HashSet};

use lodestone_stm::{PmAddr, Stm, Survivor};
use lodestone_width::to_u64;

use crate::btree::{INNER_WORDS, LEAF_WORDS};
use crate::bytes::Bytes;
use crate::hash_map::PAGE_WORDS;
use crate::words::SIZES;

/// The use of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Leaf,
    Inner,
    Page,
    OfList,
    OfQueue,
}

/// Set in a head, clear in an address.
const IS_HEAD: u64 = 1 << 63;
const KIND_SHIFT: u32 = 24;
const KIND_MASK: u64 = 0xFF;
const KEY_SHIFT: u32 = 32;
const VALUE_SHIFT: u32 = 36;
const FORM_MASK: u64 = 7;
/// In a link: bits 0 to 2 for the kind, 3 to 5 for the items.
const LINK_FORM_SHIFT: u32 = 3;
const LINK_BITS: u64 = 63;
/// Boxes begin with a length below this.
const BOX_LENGTHS: u64 = 512;

/// A number for the types that tools can show. 0: another one.
fn form<T: 'static>() -> u64 {
    let id = TypeId::of::<T>();
    let known = [TypeId::of::<Bytes>(), TypeId::of::<u64>(), TypeId::of::<i64>(), TypeId::of::<u32>()];
    known.iter().position(|known| *known == id).map_or(0, |position| to_u64(position) + 1)
}

/// The types of a collection's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    key: u64,
    value: u64,
}

impl Forms {
    /// Of a map.
    pub fn of_pairs<K: 'static, V: 'static>() -> Self {
        Self { key: form::<K>(), value: form::<V>() }
    }

    /// Of a list or queue.
    pub fn of_items<T: 'static>() -> Self {
        Self { key: 0, value: form::<T>() }
    }
}

/// Head and owner of a node with entries.
pub fn head(kind: NodeKind, forms: Forms, owner: PmAddr) -> [u64; 2] {
    let kind = match kind {
        NodeKind::Leaf => 1,
        NodeKind::Inner => 2,
        NodeKind::Page => 3,
        NodeKind::OfList | NodeKind::OfQueue => unreachable!("a list has no nodes with entries"),
    };
    [IS_HEAD | kind << KIND_SHIFT | forms.key << KEY_SHIFT | forms.value << VALUE_SHIFT, owner.to_raw()]
}

/// Mark of a node of a list or queue.
pub fn link(kind: NodeKind, forms: Forms, owner: PmAddr) -> u64 {
    let kind = if kind == NodeKind::OfQueue { 2 } else { 1 };
    owner.to_raw() | kind | forms.value << LINK_FORM_SHIFT
}

/// The content of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub kind: NodeKind,
    pub forms: Forms,
    pub owner: PmAddr,
}

impl Mark {
    /// The mark in the words of an object, if it is a node.
    pub fn of(words: &[u64]) -> Option<Self> {
        let (&first, &second) = (words.first()?, words.get(1)?);
        if first & IS_HEAD == 0 {
            let kind = match first & FORM_MASK {
                1 => NodeKind::OfList,
                2 => NodeKind::OfQueue,
                _ => return None,
            };
            let owner = first & !LINK_BITS;
            let forms = Forms { key: 0, value: first >> LINK_FORM_SHIFT & FORM_MASK };
            // A header of a hash map may begin like a mark, and a directory. Neither has such a size.
            let is_node = SIZES.contains(&words.len()) && owner & u64::from(u32::MAX) >= BOX_LENGTHS;
            return is_node.then_some(Self { kind, forms, owner: PmAddr::from_raw(owner) });
        }
        let kind = match (first >> KIND_SHIFT & KIND_MASK, words.len()) {
            (1, LEAF_WORDS) => NodeKind::Leaf,
            (2, INNER_WORDS) => NodeKind::Inner,
            (3, PAGE_WORDS) => NodeKind::Page,
            _ => return None,
        };
        let forms = Forms { key: first >> KEY_SHIFT & FORM_MASK, value: first >> VALUE_SHIFT & FORM_MASK };
        (second & LINK_BITS == 0 && second != 0).then_some(Self { kind, forms, owner: PmAddr::from_raw(second) })
    }

    fn of_survivor(object: &Survivor<'_>) -> Option<Self> {
        if object.is_bytes { None } else { Self::of(object.words) }
    }
}

/// The nodes of the collection with its header at `owner`, by address, as far as they verify.
pub fn nodes_of(stm: &Stm, owner: PmAddr, kind: NodeKind) -> Vec<PmAddr> {
    let mut nodes = Vec::new();
    stm.survey(&mut |object| {
        if Mark::of_survivor(&object).is_some_and(|mark| mark.owner == owner && mark.kind == kind) {
            nodes.push(object.at);
        }
    });
    nodes
}

/// The marks of the collections that have a node which verifies, one for each header, by address of the header.
pub fn owners(stm: &Stm) -> BTreeMap<PmAddr, Mark> {
    let (mut owners, mut contradicted) = (BTreeMap::new(), HashSet::new());
    stm.survey(&mut |object| {
        let Some(mut mark) = Mark::of_survivor(&object) else { return };
        if mark.kind == NodeKind::Inner {
            mark.kind = NodeKind::Leaf;
        }
        if *owners.entry(mark.owner).or_insert(mark) != mark {
            contradicted.insert(mark.owner);
        }
    });
    owners.retain(|owner, _| !contradicted.contains(owner));
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_and_boxes_have_none() {
        let owner = PmAddr::new(3, 0x12_3440);
        let of = |first: u64, second: u64, words: usize| {
            let mut object = vec![0; words];
            (object[0], object[1]) = (first, second);
            Mark::of(&object)
        };
        let forms = Forms::of_pairs::<Bytes, u32>();
        for (kind, words) in [(NodeKind::Leaf, 61), (NodeKind::Inner, 125), (NodeKind::Page, 29)] {
            let [head, second] = head(kind, forms, owner);
            assert_eq!(of(head | 17, second, words), Some(Mark { kind, forms, owner }));
            assert_eq!(of(head | 17, second, 64), None);
        }
        let forms = Forms::of_items::<i64>();
        for kind in [NodeKind::OfList, NodeKind::OfQueue] {
            assert_eq!(of(link(kind, forms, owner), 0, 13), Some(Mark { kind, forms, owner }));
            // The header of a hash map, whose root is a directory.
            assert_eq!(of(owner.to_raw() | 1, 0, 4), None);
        }
        // Any box: its length, then any bytes.
        for len in 0..BOX_LENGTHS {
            for bytes in [0, 1, u64::from(u32::MAX)] {
                for words in SIZES {
                    assert_eq!(of(len | bytes << 32, owner.to_raw(), words), None, "{len}");
                }
            }
        }
        assert_eq!(of(owner.to_raw(), owner.to_raw(), 5), None, "the box of a long value");
    }
}
