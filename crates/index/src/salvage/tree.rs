//! Salvage of a FAST & FAIR tree: its nodes name the tree's anchor, blocks of keys are sealed with it.
//!
//! Leaves tell their bounds, so together they say which keys no leaf covers: those of a leaf whose header is damaged.
//! Its entry lines are not believed without the header: lines that it does not list can hold what was removed later.
//! Where a link leads to such a leaf, the entries of its lines are doubtful. Strings need no leaf: blocks of keys come
//! out by themselves.

use std::collections::{HashMap, HashSet};

use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, PmAddr, checked};

use crate::anchor::AnchorAt;
use crate::error::Result;
use crate::fastfair::node::{DEAD, Entry, EntryList, Header, LINES_MAX, Line, NodeAt};
use crate::fastfair::{FastFair, keys};
use crate::medium::IndexMemory;
use crate::traits::IndexKey;

use super::doubt::{Doubt, HEADLESS, UNLISTED, Unlisted, unknown_block, unknown_places};
use super::{Haul, IndexOf, Salvage, blocks_of, reason_of};

impl<K: IndexKey + ?Sized> IndexOf for FastFair<K> {
    type Keys = K;
}

impl<K: IndexKey + ?Sized> Salvage for FastFair<K> {
    fn haul(heap: &Heap, at: PmAddr) -> Haul {
        let medium = IndexMemory::of(heap, at);
        let blocks = blocks_of(heap);
        let nodes = nodes_among(medium, at, &blocks);
        let of_leaves = nodes.values().filter(|header| header.level == 0);
        let mut leaves: Vec<Leaf> = of_leaves.map(|header| Leaf::read::<K>(medium, *header)).collect();
        leaves.sort_by(|left, right| left.position().cmp(right.position()));
        let mut haul = Haul::default();
        name_gaps::<K>(medium, &leaves, &mut haul);
        let mut seen = HashSet::new();
        for leaf in &leaves {
            add_leaf::<K>(medium, leaf, &mut seen, &mut haul);
        }
        if !K::IS_WORD && !haul.lost.is_empty() {
            add_orphans(medium, &blocks, &seen, &mut haul);
        }
        if !haul.lost.is_empty() {
            let found = if K::IS_WORD { doubtful_words(heap, medium, &nodes, &blocks) } else { unlisted(heap, medium) };
            haul.doubt_missing(found);
        }
        haul
    }
}

/// The pairs of key blocks in memory of which the heap says nothing.
fn unlisted(heap: &Heap, medium: IndexMemory<'_>) -> Vec<Doubt> {
    let mut found = Vec::new();
    for (at, bytes) in unknown_places(heap, LINE_BYTES, LINE_BYTES) {
        if let Ok((key, Ok(Some(value)))) = keys::read_block(medium, at)
            && keys::block_bytes(key.len()) <= bytes
        {
            found.push(Doubt::new(key, value, at, UNLISTED));
        }
    }
    found
}

/// The entries of leaves that may not count: those without a header that a link leads to, and those in memory of which
/// the heap says nothing.
fn doubtful_words(
    heap: &Heap,
    medium: IndexMemory<'_>,
    nodes: &HashMap<PmAddr, Header>,
    blocks: &[(PmAddr, u64)],
) -> Vec<Doubt> {
    let unlisted = unlisted_nodes(heap, medium, nodes);
    let mut lines: Vec<(Line, &str)> = Vec::new();
    for header in unlisted.values().filter(|header| header.level == 0) {
        lines.extend((0..header.order.count()).map(|position| (header.load_line(medium, position), UNLISTED)));
    }
    for at in headless_leaves(medium, nodes, &unlisted) {
        let listed = blocks.iter().find(|(block, _)| *block == at).map(|(_, bytes)| Unlisted::Sized(*bytes));
        let Some(Unlisted::Sized(bytes) | Unlisted::AtMost(bytes)) = listed.or_else(|| unknown_block(heap, at)) else {
            continue;
        };
        let count = nodes.values().chain(unlisted.values()).next().map_or(LINES_MAX, |header| header.lines);
        let numbers = (0..count).filter(|number| NodeAt::bytes(number + 1) <= bytes);
        lines.extend(numbers.map(|number| (Line::load(medium, NodeAt(at).line(number)), HEADLESS)));
    }
    // The check does not cover the value of a pending slot.
    lines.retain(|(line, _)| line.verify(medium).is_ok() && line.pending().is_none());
    let doubts = |(line, reason): &(Line, &str)| {
        let doubt = |(key, value): Entry| Doubt::new(key.to_be_bytes().to_vec(), value, line.at, reason);
        line.entries().map(doubt).collect::<Vec<_>>()
    };
    lines.iter().flat_map(doubts).collect()
}

/// The nodes of the tree in memory of which the heap says nothing, beside those that links lead to.
fn unlisted_nodes(heap: &Heap, medium: IndexMemory<'_>, nodes: &HashMap<PmAddr, Header>) -> HashMap<PmAddr, Header> {
    let places = unknown_places(heap, LINE_BYTES, NodeAt::bytes(1));
    let own = places.filter(|(at, _)| !nodes.contains_key(at) && owner_of(medium, *at) == Some(medium.owner));
    let headers = own.filter_map(|(at, bytes)| Some((at, bytes, Header::load(medium, at).ok()?)));
    let live = headers.filter(|(_, bytes, header)| header.stamp != DEAD && NodeAt::bytes(header.lines) <= *bytes);
    live.map(|(at, _, header)| (at, header)).collect()
}

/// The leaves that links of the tree lead to and whose headers do not verify.
fn headless_leaves(
    medium: IndexMemory<'_>,
    nodes: &HashMap<PmAddr, Header>,
    unlisted: &HashMap<PmAddr, Header>,
) -> HashSet<PmAddr> {
    let mut targets = HashSet::new();
    for header in nodes.values().chain(unlisted.values()) {
        match header.level {
            0 => drop(targets.insert(header.next)),
            1 => {
                let lines = (0..header.order.count()).map(|position| header.load_line(medium, position));
                for line in lines.filter(|line| line.verify(medium).is_ok()) {
                    targets.extend(line.entries().map(|entry| PmAddr::from_raw(entry.1)));
                }
            }
            _ => {}
        }
    }
    if nodes.is_empty() && unlisted.is_empty() {
        // Another node would say of itself that it belongs to the tree. So the root is the only one, a leaf.
        targets.extend(medium.link(AnchorAt(medium.owner).head(), "link to the root of a tree", NodeAt::bytes(1)));
    }
    let is_known = |at: &PmAddr| nodes.contains_key(at) || unlisted.contains_key(at);
    targets.retain(|at| !at.is_null() && !is_known(at) && is_place(medium, *at));
    targets
}

/// The anchor that the node at `at` names.
fn owner_of(medium: IndexMemory<'_>, at: PmAddr) -> Option<PmAddr> {
    let word = NodeAt(at).owner();
    checked::decode_addr(word, medium.memory.load(word))
}

/// Whether a node can begin at `at`.
fn is_place(medium: IndexMemory<'_>, at: PmAddr) -> bool {
    at.offset().is_multiple_of(LINE_BYTES) && medium.memory.contains(at, NodeAt::bytes(1))
}

/// A leaf with what verifies of its lines.
struct Leaf {
    header: Header,
    /// Its lower bound; `None` when the block that holds it is damaged.
    low: Option<Vec<u8>>,
    entries: EntryList,
    /// The lines that do not verify, each with the number of entries before it, and why.
    damaged: Vec<(PmAddr, usize, String)>,
    /// The first key that verifies, for a leaf whose bound does not.
    first: Vec<u8>,
}

impl Leaf {
    fn read<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, header: Header) -> Self {
        let (mut entries, mut damaged) = (EntryList::new(), Vec::new());
        for position in 0..header.order.count() {
            let line = header.load_line(medium, position);
            match line.verify(medium) {
                Ok(()) => {
                    FastFair::<K>::drop_copies(&line, &mut entries);
                    line.entries().for_each(|entry| entries.push(entry));
                }
                Err(error) => damaged.push((line.at, entries.len(), reason_of(&error))),
            }
        }
        let low = bound::<K>(medium, header.low).ok();
        let first = entries.iter().find_map(|entry| key_of::<K>(medium, *entry).ok()).unwrap_or_default();
        Self { header, low, entries, damaged, first }
    }

    fn position(&self) -> &[u8] {
        self.low.as_ref().unwrap_or(&self.first)
    }
}

/// The bytes of a bound word.
fn bound<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, bound: u64) -> Result<Vec<u8>> {
    if bound == 0 {
        return Ok(Vec::new());
    }
    if K::IS_WORD {
        return Ok(bound.to_be_bytes().to_vec());
    }
    let mut key = Vec::new();
    keys::block_key(medium, PmAddr::from_raw(bound), &mut key)?;
    Ok(key)
}

/// The bytes of an entry's key.
fn key_of<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, entry: Entry) -> Result<Vec<u8>> {
    if K::IS_WORD { Ok(entry.0.to_be_bytes().to_vec()) } else { bound::<K>(medium, entry.1) }
}

/// The nodes of the tree whose anchor is at `anchor`: those that say so, and those that verify and that links of nodes
/// lead to.
fn nodes_among(medium: IndexMemory<'_>, anchor: PmAddr, blocks: &[(PmAddr, u64)]) -> HashMap<PmAddr, Header> {
    let of_blocks = blocks.iter().filter(|(_, bytes)| *bytes >= NodeAt::bytes(1)).map(|(at, _)| *at);
    let mut open: Vec<PmAddr> =
        of_blocks.filter(|at| is_place(medium, *at) && owner_of(medium, *at) == Some(anchor)).collect();
    open.extend(medium.link(AnchorAt(anchor).head(), "link to the root of a tree", NodeAt::bytes(1)));
    let mut nodes = HashMap::new();
    let mut visited = HashSet::new();
    while let Some(at) = open.pop() {
        // A node whose word for the owner is damaged counts as long as a link of the tree leads to it.
        let is_new = !at.is_null() && visited.insert(at) && is_place(medium, at);
        if !is_new || owner_of(medium, at).is_some_and(|owner| owner != anchor) {
            continue;
        }
        let Ok(header) = Header::load(medium, at) else { continue };
        if header.stamp == DEAD {
            continue;
        }
        open.push(header.next);
        if header.level > 0 {
            for position in 0..header.order.count() {
                if let Ok(line) = header.verified_line(medium, position) {
                    open.extend(line.entries().map(|entry| PmAddr::from_raw(entry.1)));
                }
            }
        }
        nodes.insert(at, header);
    }
    nodes
}

/// Names the keys that no leaf covers.
fn name_gaps<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, leaves: &[Leaf], haul: &mut Haul) {
    const WHY: &str = "leaf of a tree: its header does not verify";
    let Some(first) = leaves.first() else {
        return haul.lose_between((None, None), None, true, "no leaf of the tree verifies");
    };
    if first.header.low != 0 {
        haul.lose_between((None, Some(first.position().to_vec())), None, true, WHY);
    }
    for (number, leaf) in leaves.iter().enumerate() {
        let (header, next) = (&leaf.header, leaves.get(number + 1));
        let is_covered = match next {
            Some(next) => !header.next.is_null() && header.high == next.header.low,
            None => header.next.is_null(),
        };
        if !is_covered {
            let high = if header.next.is_null() { None } else { bound::<K>(medium, header.high).ok() };
            let from = high.or_else(|| Some(leaf.position().to_vec()));
            let at = (!header.next.is_null()).then_some(header.next);
            haul.lose_between((from, next.map(|next| next.position().to_vec())), at, true, WHY);
        }
    }
}

/// Adds the pairs of a leaf, and names those of its damaged lines and blocks.
fn add_leaf<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, leaf: &Leaf, seen: &mut HashSet<PmAddr>, haul: &mut Haul) {
    let header = &leaf.header;
    let high = || if header.next.is_null() { None } else { bound::<K>(medium, header.high).ok() };
    let keys: Vec<Option<Vec<u8>>> = leaf.entries.iter().map(|entry| key_of::<K>(medium, *entry).ok()).collect();
    let around = |before: usize, behind: usize| {
        let from = keys[..before].iter().rev().find_map(Clone::clone).or_else(|| leaf.low.clone());
        (from, keys[behind..].iter().find_map(Clone::clone).or_else(high))
    };
    for (at, before, why) in &leaf.damaged {
        // Strings are in blocks of their own and come out by themselves.
        haul.lose_between(around(*before, *before), Some(*at), K::IS_WORD, why.clone());
    }
    for (number, entry) in leaf.entries.iter().enumerate() {
        if K::IS_WORD {
            haul.add(entry.0.to_be_bytes().to_vec(), entry.1);
            continue;
        }
        let block = PmAddr::from_raw(entry.1);
        seen.insert(block);
        match keys::read_block(medium, block) {
            Ok((key, Ok(Some(value)))) => haul.add(key, value),
            Ok((key, Ok(None))) => haul.lose_key(key, block, "key block: is a lower bound"),
            Ok((key, Err(error))) => haul.lose_key(key, block, reason_of(&error)),
            Err(error) => haul.lose_between(around(number, number + 1), Some(block), true, reason_of(&error)),
        }
    }
}

/// Adds the pairs of key blocks that no leaf names any more.
fn add_orphans(medium: IndexMemory<'_>, blocks: &[(PmAddr, u64)], seen: &HashSet<PmAddr>, haul: &mut Haul) {
    for &(at, bytes) in blocks.iter().filter(|(at, bytes)| *bytes >= LINE_BYTES && !seen.contains(at)) {
        let Ok((key, value)) = keys::read_block(medium, at) else { continue };
        if keys::block_bytes(key.len()) > bytes {
            continue;
        }
        match value {
            Ok(Some(value)) => haul.add(key, value),
            Ok(None) => {}
            Err(error) => haul.lose_key(key, at, reason_of(&error)),
        }
    }
}
