//! Bringing out of a damaged structure every record that is not in a damaged line, and naming the others.
//!
//! No link is needed for that. Leaves, segments, nodes and records are found among the allocated blocks of the heap:
//! 1. Their checksums begin with the place of the structure's anchor ([`IndexMemory::owner`]), or they name it. So each
//!    says of itself that it belongs to this structure.
//! 2. Blocks are allocated and freed in the action that makes them reachable or unreachable. So each
//!    allocated block is part of the structure, and stale content of a free block is never looked at.
//! 3. Links are followed as in any read. They lead to blocks that the heap's damaged tables do not show, and to those
//!    that do not name their structure.
//!
//! Every record that is missing is named: by its key, by the range of keys around the damage, or by the place.
//!
//! One damage can take both the way to a record and the word that says that it counts. Such a record is *doubtful*: it
//! verifies, and it may have been removed or replaced before. It never comes out among the others, and is told with its
//! value as [`LostKeys::Doubtful`]. It can be
//! 1. a record in memory of which the heap's damaged tables say nothing. Every place where a block can begin is tried;
//! 2. a pair in a line of a leaf or segment whose header does not verify;
//! 3. a record of a map whose index and intents do not say whether it counts, or one of several with one key.
//!
//! Invariants:
//! - a record comes out only if all of it verifies. Of two records with one key none comes out, unless an index says
//!   which of them counts;
//! - a record is doubtful only if its key may be missing. A record that an intact leaf does not list was removed.
//!
//! Limit: lines of words are sealed with their place, not with the anchor. They are doubtful only where a link or a
//! header says to which structure they belong.
//!
//! Files: `tree` (FAST & FAIR), `cells` (FPTree and hash), `list` (skip list), `map` (ordered map), `over` (maps over
//! an index), `doubt` (doubtful records).

mod cells;
mod doubt;
mod list;
mod map;
mod over;
mod tree;

use std::collections::HashSet;
use std::ops::ControlFlow;

use lodestone_heap::Heap;
use lodestone_pmem::{PmAddr, WORD_BYTES};
use lodestone_store::{Lost, LostKeys, VisitLost, VisitRecord};

use crate::error::{Error, Result};
use crate::layout::RecordHead;
use crate::medium::IndexMemory;
use crate::traits::IndexKey;

use doubt::{Doubt, Missing};

pub(crate) use map::salvage_map;
pub(crate) use over::{index_kind_of, salvage_over};

/// A structure whose pairs can be brought out without opening it.
pub(crate) trait Salvage: IndexOf {
    /// The readable rest of the structure whose anchor is at `at`.
    fn haul(heap: &Heap, at: PmAddr) -> Haul;
}

/// The keys of a structure.
pub(crate) trait IndexOf {
    /// They.
    type Keys: IndexKey + ?Sized;
}

/// A pair that came out. The key is in bytes that order as keys do.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) key: Vec<u8>,
    pub(crate) word: u64,
}

/// The records that came out of a structure, and those that did not. Keys in `lost` are bytes that order as keys do.
#[derive(Debug, Default)]
pub(crate) struct Haul {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) doubtful: Vec<Doubt>,
    pub(crate) lost: Vec<Lost>,
}

impl Haul {
    pub(crate) fn add(&mut self, key: Vec<u8>, word: u64) {
        self.pairs.push(Pair { key, word });
    }

    /// The record of `key` is lost.
    pub(crate) fn lose_key(&mut self, key: Vec<u8>, at: PmAddr, reason: impl Into<String>) {
        self.lost.push(Lost { keys: LostKeys::Key(key), at: Some(at), is_certain: true, reason: reason.into() });
    }

    /// Records with keys from `from`, before `to`, are lost.
    pub(crate) fn lose_between(
        &mut self,
        (from, to): (Option<Vec<u8>>, Option<Vec<u8>>),
        at: Option<PmAddr>,
        is_certain: bool,
        reason: impl Into<String>,
    ) {
        let keys = LostKeys::Between(from.filter(|from| !from.is_empty()), to);
        self.lost.push(Lost { keys, at, is_certain, reason: reason.into() });
    }

    /// Records at `at` are lost, and nothing says which.
    pub(crate) fn lose_at(&mut self, at: Option<PmAddr>, is_certain: bool, reason: impl Into<String>) {
        self.lost.push(Lost { keys: LostKeys::Unknown, at, is_certain, reason: reason.into() });
    }

    /// Adds those doubtful records whose keys may be missing. Every loss must be known by now.
    fn doubt_missing(&mut self, found: impl IntoIterator<Item = Doubt>) {
        let missing = Missing::of(&self.lost);
        self.doubtful.extend(found.into_iter().filter(|doubt| missing.has(&doubt.key)));
    }

    /// Puts the records in order. Of a key that came out twice with different values nothing says which is right.
    fn settle(mut self) -> Self {
        self.pairs.sort_by(|left, right| left.key.cmp(&right.key));
        let mut settled: Vec<Pair> = Vec::with_capacity(self.pairs.len());
        let mut twice: HashSet<Vec<u8>> = HashSet::new();
        for pair in std::mem::take(&mut self.pairs) {
            match settled.last() {
                Some(last) if last.key == pair.key => {
                    if last.word != pair.word {
                        self.doubtful.push(Doubt {
                            at: None,
                            reason: doubt::TWICE.into(),
                            key: pair.key.clone(),
                            word: pair.word,
                        });
                        twice.insert(pair.key);
                    }
                }
                _ => settled.push(pair),
            }
        }
        let (double, settled): (Vec<_>, Vec<_>) = settled.into_iter().partition(|pair| twice.contains(&pair.key));
        let first = |pair: Pair| Doubt { at: None, reason: doubt::TWICE.into(), key: pair.key, word: pair.word };
        self.doubtful.extend(double.into_iter().map(first));
        self.pairs = settled;
        doubt::settle(&mut self);
        self
    }
}

/// The allocated blocks of the heap with their sizes, by address.
fn blocks_of(heap: &Heap) -> Vec<(PmAddr, u64)> {
    let mut blocks = Vec::new();
    heap.for_each_block(|at, bytes| blocks.push((at, bytes)));
    blocks.sort_unstable();
    blocks
}

/// The blocks that links lead to beside `known`, one after the other: blocks that the heap's damaged tables do not
/// show. `step` notes what is at an address and returns the link of it, or `None` when nothing verifies there.
fn follow(
    medium: IndexMemory<'_>,
    links: impl IntoIterator<Item = PmAddr>,
    known: HashSet<PmAddr>,
    mut step: impl FnMut(PmAddr) -> Option<PmAddr>,
) {
    let mut visited = known;
    for mut link in links {
        while let Ok(at) = medium.link(link, "link", 64) {
            if at.is_null() || !visited.insert(at) {
                break;
            }
            match step(at) {
                Some(next) => link = next,
                None => break,
            }
        }
    }
}

/// The finding of an error, without place and advice.
fn reason_of(error: &Error) -> String {
    match error {
        Error::Damaged { what, finding, .. } => format!("{what}: {finding}"),
        other => other.to_string(),
    }
}

/// A key as a tool shows it, from bytes that order as keys do.
fn shown_key<K: IndexKey + ?Sized>(key: &[u8]) -> Vec<u8> {
    if !K::IS_WORD {
        return key.to_vec();
    }
    // A bound can be shorter than a key: its missing bytes are zero.
    let mut word = [0; 8];
    let len = key.len().min(8);
    word[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(word).to_string().into_bytes()
}

/// The losses, with keys as a tool shows them.
fn shown_lost<K: IndexKey + ?Sized>(lost: Lost) -> Lost {
    let show = |key: Option<Vec<u8>>| key.map(|key| shown_key::<K>(&key));
    let keys = match lost.keys {
        LostKeys::Key(key) => LostKeys::Key(shown_key::<K>(&key)),
        LostKeys::Between(from, to) => LostKeys::Between(show(from), show(to)),
        LostKeys::Unknown => LostKeys::Unknown,
        LostKeys::Doubtful(key, value) => LostKeys::Doubtful(shown_key::<K>(&key), value),
    };
    Lost { keys, ..lost }
}

/// Shows what is left of the index whose anchor is at `at`; the number of pairs shown.
pub(crate) fn salvage_index<I: Salvage>(
    heap: &Heap,
    at: PmAddr,
    visit: &mut VisitRecord<'_>,
    lost: &mut VisitLost<'_>,
) -> u64 {
    let haul = I::haul(heap, at).settle();
    let mut count = 0;
    for pair in &haul.pairs {
        count += 1;
        if visit(&shown_key::<I::Keys>(&pair.key), pair.word.to_string().as_bytes()) == ControlFlow::Break(()) {
            return count;
        }
    }
    haul.lost.into_iter().for_each(|found| lost(shown_lost::<I::Keys>(found)));
    for Doubt { key, word, at, reason } in haul.doubtful {
        lost(Lost::doubtful(shown_key::<I::Keys>(&key), word.to_string().into_bytes(), at, reason));
    }
    count
}

/// A record found among the blocks of the heap: its key verifies.
struct FoundRecord {
    at: PmAddr,
    key: Vec<u8>,
    /// Its value, by its head; why not, when that does not verify.
    head: Result<RecordHead>,
}

/// The record at `at`, if its key verifies.
fn record_at(medium: IndexMemory<'_>, at: PmAddr) -> Option<FoundRecord> {
    if !medium.memory.contains(at, RecordHead::BYTES) || !at.offset().is_multiple_of(WORD_BYTES) {
        return None;
    }
    let mut key = Vec::new();
    let head = medium.key(at, &mut key).ok()?;
    let head = medium.append_value(at, head, &mut Vec::new()).map(|()| head);
    Some(FoundRecord { at, key, head })
}

/// Every record of the owner among `blocks`. Values are verified, not kept: they can be large.
fn records_among(medium: IndexMemory<'_>, blocks: impl IntoIterator<Item = (PmAddr, u64)>) -> Vec<FoundRecord> {
    let mut found = Vec::new();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for (at, bytes) in blocks.into_iter().filter(|(_, bytes)| *bytes >= RecordHead::BYTES) {
        let words = [at, at.plus(WORD_BYTES)].map(|word| medium.memory.load(word));
        if !RecordHead::from_words(words[0], words[1]).fits(bytes) {
            continue;
        }
        let Ok(head) = medium.key(at, &mut key) else { continue };
        value.clear();
        let head = medium.append_value(at, head, &mut value).map(|()| head);
        found.push(FoundRecord { at, key: key.clone(), head });
    }
    found
}
