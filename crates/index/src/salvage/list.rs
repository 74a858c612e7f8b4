//! Salvage of a skip list: every node holds its key and value, and says whose it is.
//!
//! A node that no link leads to is doubtful where the heap does not say whether it is allocated, unless its mark says
//! that it was removed.

use std::collections::HashSet;

use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, PmAddr};

use crate::anchor::AnchorAt;
use crate::fastfair::keys;
use crate::medium::IndexMemory;
use crate::skiplist::{NodeAt, REMOVED, SkipList};
use crate::traits::IndexKey;

use super::doubt::{Doubt, UNLISTED, unknown_places};
use super::{Haul, IndexOf, Salvage, blocks_of, follow, reason_of};

impl<K: IndexKey + ?Sized> IndexOf for SkipList<K> {
    type Keys = K;
}

impl<K: IndexKey + ?Sized> Salvage for SkipList<K> {
    fn haul(heap: &Heap, at: PmAddr) -> Haul {
        let medium = IndexMemory::of(heap, at);
        let mut haul = Haul::default();
        let mut nodes: Vec<(Vec<u8>, NodeAt)> = Vec::new();
        for (block, bytes) in blocks_of(heap) {
            let (at, node) = (block, NodeAt(block));
            if bytes < NodeAt::bytes(0) || !at.offset().is_multiple_of(LINE_BYTES) {
                continue;
            }
            let Ok((key, value)) = keys::read_block(medium, node.block()) else { continue };
            if NodeAt::bytes(key.len()) > bytes || medium.memory.load(node.mark()) == REMOVED {
                continue;
            }
            match value {
                Ok(Some(value)) => haul.add(key.clone(), value),
                Ok(None) => continue,
                Err(error) => haul.lose_key(key.clone(), at, reason_of(&error)),
            }
            nodes.push((key, node));
        }
        let head = AnchorAt(at).head();
        let links: Vec<PmAddr> = std::iter::once(head).chain(nodes.iter().map(|(_, node)| node.spot().link)).collect();
        follow(medium, links, nodes.iter().map(|(_, node)| node.0).collect(), |at| {
            let node = NodeAt(at);
            let (key, value) = keys::read_block(medium, node.block()).ok()?;
            match value {
                Ok(value) => haul.add(key.clone(), value?),
                Err(error) => haul.lose_key(key.clone(), at, reason_of(&error)),
            }
            nodes.push((key, node));
            Some(node.spot().link)
        });
        nodes.sort_by(|left, right| left.0.cmp(&right.0));
        name_lost(medium, at, &nodes, &mut haul);
        if !haul.lost.is_empty() {
            haul.doubt_missing(unlisted(heap, medium));
        }
        haul
    }
}

/// The nodes in memory of which the heap says nothing.
fn unlisted(heap: &Heap, medium: IndexMemory<'_>) -> Vec<Doubt> {
    let mut found = Vec::new();
    for (at, bytes) in unknown_places(heap, LINE_BYTES, NodeAt::bytes(0)) {
        let node = NodeAt(at);
        if let Ok((key, Ok(Some(value)))) = keys::read_block(medium, node.block())
            && NodeAt::bytes(key.len()) <= bytes
            && medium.memory.load(node.mark()) != REMOVED
        {
            found.push(Doubt::new(key, value, at, UNLISTED));
        }
    }
    found
}

/// Names the keys between two nodes of which the first does not lead to the second.
fn name_lost(medium: IndexMemory<'_>, anchor: PmAddr, nodes: &[(Vec<u8>, NodeAt)], haul: &mut Haul) {
    let known: HashSet<PmAddr> = nodes.iter().map(|(_, node)| node.0).collect();
    let links = std::iter::once((None, AnchorAt(anchor).head()))
        .chain(nodes.iter().map(|(key, node)| (Some(key.clone()), node.spot().link)));
    for (number, (from, link)) in links.enumerate() {
        let to = nodes.get(number).map(|(key, _)| key.clone());
        let expected = nodes.get(number).map_or(PmAddr::NULL, |(_, node)| node.0);
        match medium.link(link, "link of a list", NodeAt::bytes(0)) {
            Ok(next) if next == expected => {}
            Ok(next) if next.is_null() || known.contains(&next) => {
                haul.lose_between((from, to), Some(link), false, "a link leads past the next node");
            }
            Ok(next) => {
                let why = keys::read_block(medium, NodeAt(next).block()).err();
                let why = why.map_or_else(|| "is no node of this list".to_owned(), |error| reason_of(&error));
                haul.lose_between((from, to), Some(next), true, format!("node of a list: {why}"));
            }
            Err(error) => haul.lose_between((from, to), Some(link), false, reason_of(&error)),
        }
    }
}
