//! Finding: from the root to a leaf, and within a node.
//!
//! 1. At each node, between two looks at its version: read the header; if the key is not below the high bound, go
//!    right; else take the last child whose lower bound is not above the key.
//! 2. In the leaf the same, down to the line, and in the line the entry. The search verifies the data that its answer
//!    depends on: the leaf's bounds and the entry's line. For "absent" it verifies the following line as well, because
//!    only both prove that nothing is between.
//! 3. A node that was merged away, or whose lower bound is above the key, sends the search back to the root. That can
//!    happen while the structure changes; when it goes on for ever, an inner node is damaged, and the search says so.

use std::cmp::Ordering;

use lodestone_pmem::{LINE_BYTES, PmAddr, WORD_BYTES};
use lodestone_width::{low_u32, to_u64, to_usize};

use crate::circle::Walk;
use crate::error::Result;
use crate::fastfair::FastFair;
use crate::fastfair::keys;
use crate::fastfair::node::{DEAD, Entry, Header, LEVEL_MAX, Line, Lines, NodeAt};
use crate::guide::Guide;
use crate::traits::IndexKey;

/// Nodes that a search visits before it takes the tree for damaged: far more than any depth, and than the number of
/// structure changes that can come in its way.
const VISITS_MAX: usize = 100_000;
/// Times that a search starts again before it takes the tree for damaged.
const RESTARTS_MAX: usize = 2_000;

/// The target of a search.
#[derive(Debug)]
pub(super) enum Target<'k, K: ?Sized> {
    /// The leaf that covers the key.
    At(&'k K),
    /// The leaf that covers the keys just before the key.
    Below(&'k K),
    First,
    Last,
}

impl<K: ?Sized> Clone for Target<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized> Copy for Target<'_, K> {}

/// Where a search goes from a node.
#[derive(Debug)]
pub(super) enum Step<T> {
    Go(PmAddr),
    Restart,
    Here(T),
}

/// An entry of a leaf, or where it would be.
pub(super) struct Place {
    /// The last position whose first key is not above the key, with its line; `None` when all are above it.
    pub(super) line: Option<(usize, Line)>,
    /// Entries of the line that are below the key.
    pub(super) rank: usize,
    /// Whether the next entry is the key's.
    pub(super) found: bool,
}

/// The last position that `is_left` says yes to for its first entry, or one whose last entry it says no to (then
/// the answer is in that line). `guess` is probed first; `both`: it wants both words. `copies`: a line may hold copies
/// of the next one's entries, so the last of them says nothing. Of the lines that were probed only the one that comes
/// out is to be verified: the others could send the search elsewhere, and then the neighbours that prove an absence
/// would not verify, or not agree.
#[inline]
pub(super) fn last_position(
    lines: Lines<'_>,
    count: usize,
    guess: usize,
    (both, copies): (bool, bool),
    mut is_left: impl FnMut(Entry) -> Result<bool>,
) -> Result<Option<usize>> {
    let (mut low, mut high) = (0, count);
    let mut best = None;
    let (mut middle, mut probes) = (guess, 0);
    while low < high {
        // The guess, then its neighbour, then halves.
        middle = if probes < 2 { middle.clamp(low, high - 1) } else { low.midpoint(high) };
        probes += 1;
        let mut position = middle;
        let mut first = lines.first(position, both);
        // Removals leave empty lines: they say nothing, their left neighbours do.
        while first.is_none() && position > low {
            position -= 1;
            first = lines.first(position, both);
        }
        let goes_right = match first {
            Some(entry) => is_left(entry)?,
            None => true,
        };
        if goes_right {
            if first.is_some() {
                // Between the first and the last entry of one line: no look at the next one, which would be another
                // cache miss.
                if !copies && !is_left(lines.last(position, both))? {
                    return Ok(Some(position));
                }
                best = Some(position);
            }
            low = middle + 1;
            middle += 1;
        } else {
            high = position;
            middle = position.saturating_sub(1);
        }
    }
    Ok(best)
}

impl<K: IndexKey + ?Sized> FastFair<K> {
    /// The position where `key` would be if the keys of the node were spread evenly.
    #[inline]
    pub(super) fn guess(header: &Header, key: &K) -> usize {
        let count = header.order.count();
        if K::IS_WORD && !header.next.is_null() && header.high > header.low {
            let (width, inside) = (header.high - header.low, key.order_word().saturating_sub(header.low));
            // Sixteen bits are plenty for a guess, and cannot overflow.
            let part = if width < 1 << 48 { (inside << 16) / width } else { inside / (width >> 16) };
            return to_usize(part).saturating_mul(count) >> 16;
        }
        count / 2
    }

    /// Whether the node covers the target, or where to go instead.
    #[inline]
    pub(super) fn covers(&self, header: &Header, target: Target<'_, K>) -> Result<Step<()>> {
        let medium = self.medium();
        if header.stamp == DEAD {
            return Ok(Step::Restart);
        }
        self.verify_size(header)?;
        let has_next = !header.next.is_null();
        let (right, left) = match target {
            Target::At(key) => {
                let right = has_next && keys::compare_bound(medium, key, header.high)? != Ordering::Less;
                (right, !right && keys::compare_bound(medium, key, header.low)? == Ordering::Less)
            }
            Target::Below(key) => {
                let right = has_next && keys::compare_bound(medium, key, header.high)? == Ordering::Greater;
                let left =
                    !right && header.low != 0 && keys::compare_bound(medium, key, header.low)? != Ordering::Greater;
                (right, left)
            }
            Target::First => (false, header.low != 0),
            Target::Last => (has_next, false),
        };
        Ok(match (right, left) {
            (true, _) => Step::Go(header.follow(medium)?),
            (_, true) => Step::Restart,
            _ => Step::Here(()),
        })
    }

    /// Whether the node has as many lines as every node of the tree, and a level that a tree can have.
    #[inline]
    pub(super) fn verify_size(&self, header: &Header) -> Result<()> {
        if header.lines == self.lines && header.level <= LEVEL_MAX {
            return Ok(());
        }
        Err(self.medium().damaged(header.at.0, "shape of a tree node", "is none of this tree"))
    }

    /// The child of an inner node that leads to the target.
    pub(super) fn child(&self, header: &Header, target: Target<'_, K>) -> Result<Option<PmAddr>> {
        let medium = self.medium();
        let is_left = |entry| match target {
            Target::At(key) => Ok(keys::compare(medium, key, header.level, entry)? != Ordering::Less),
            Target::Below(key) => Ok(keys::compare(medium, key, header.level, entry)? == Ordering::Greater),
            Target::First => Ok(false),
            Target::Last => Ok(true),
        };
        let guess = match target {
            Target::At(key) | Target::Below(key) => Self::guess(header, key),
            Target::First => 0,
            Target::Last => header.order.count(),
        };
        let Some(lines) = header.lines(medium) else { return Err(header.nowhere(medium)) };
        if let Some(position) = last_position(lines, header.order.count(), guess, (!K::IS_WORD, false), is_left)? {
            let line = lines.line(position);
            // The way of the search may be wrong, and the leaf's bounds tell. The address that it follows was
            // written here.
            line.verify(medium)?;
            let mut child = line.entry(0).1;
            for index in 1..line.count() {
                if !is_left(line.entry(index))? {
                    break;
                }
                child = line.entry(index).1;
            }
            return Ok(Some(PmAddr::from_raw(child)));
        }
        // Nothing is left of the target: the first child, which begins where the node does.
        for position in 0..header.order.count() {
            let line = header.verified_line(medium, position)?;
            if line.count() > 0 {
                return Ok(Some(PmAddr::from_raw(line.entry(0).1)));
            }
        }
        Ok(None)
    }

    /// Goes to the leaf that covers the target and returns what `at_leaf` finds there, read at one moment. Only while
    /// pinned.
    #[inline]
    pub(super) fn at_leaf<T>(&self, target: Target<'_, K>, at_leaf: impl FnMut(&Header) -> Result<T>) -> Result<T> {
        self.at_hinted_leaf(self.hint(target), target, at_leaf)
    }

    /// As [`at_leaf`](Self::at_leaf), with what the guide said.
    #[inline]
    pub(super) fn at_hinted_leaf<T>(
        &self,
        hint: Option<PmAddr>,
        target: Target<'_, K>,
        mut at_leaf: impl FnMut(&Header) -> Result<T>,
    ) -> Result<T> {
        if let Some(leaf) = hint {
            let found = self.stripes.read(leaf, || {
                let header = Header::load_leaf(self.medium(), leaf)?;
                match self.covers(&header, target)? {
                    Step::Here(()) => at_leaf(&header).map(Some),
                    Step::Go(_) | Step::Restart => Ok(None),
                }
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.at_leaf_from_root(target, at_leaf)
    }

    /// The leaf that the guide names for the target. Only while pinned.
    #[inline]
    pub(super) fn hint(&self, target: Target<'_, K>) -> Option<PmAddr> {
        // Strings that share eight bytes share their leaves' numbers, too.
        if !K::IS_WORD {
            return None;
        }
        let leaf = PmAddr::from_raw(self.guide.floor(Self::word_of(target))?.1);
        // The header names the wanted line: all lines together arrive as fast as it alone.
        self.heap.memory().prefetch(leaf, NodeAt::bytes(self.lines));
        Some(leaf)
    }

    /// A word that the wanted leaf covers, or one before it.
    #[inline]
    pub(super) fn word_of(target: Target<'_, K>) -> u64 {
        match target {
            Target::At(key) => key.order_word(),
            Target::Below(key) => key.order_word().saturating_sub(1),
            Target::First => 0,
            Target::Last => u64::MAX,
        }
    }

    /// The guide to the nodes of a level, if there is one.
    fn guide_to(&self, level: u8) -> Option<&Guide> {
        match level {
            _ if !K::IS_WORD => None,
            0 => Some(&self.guide),
            1 => Some(&self.parents),
            _ => None,
        }
    }

    /// Lets a guide name a leaf or its parent, unless that died meanwhile. Only while pinned.
    #[cold]
    pub(super) fn note(&self, level: u8, low: u64, at: PmAddr) {
        if let Some(guide) = self.guide_to(level) {
            let memory = self.heap.memory();
            guide.insert_if(low, at.to_raw(), || memory.load(NodeAt(at).stamp()) != DEAD);
        }
    }

    /// Takes a node that was marked dead out of its guide.
    pub(super) fn forget(&self, level: u8, low: u64, at: PmAddr) {
        if let Some(guide) = self.guide_to(level) {
            guide.remove(low, at.to_raw());
        }
    }

    /// As [`note`](Self::note), of the node that leads to a leaf; its words are verified first.
    #[cold]
    fn note_parent(&self, at: PmAddr) {
        let found = self.stripes.read(at, || Header::load(self.medium(), at));
        // Damage shows in the operation that needs the data.
        if let Ok(header) = found {
            self.note(header.level, header.low, at);
        }
    }

    /// As [`at_leaf`](Self::at_leaf), by way of the inner nodes; the guide learns of the leaf.
    #[cold]
    fn at_leaf_from_root<T>(&self, target: Target<'_, K>, mut at_leaf: impl FnMut(&Header) -> Result<T>) -> Result<T> {
        let medium = self.medium();
        let (mut at, mut restarts, mut parent, mut walk) = (self.root(), 0, None, Walk::new());
        for _ in 0..VISITS_MAX {
            if !walk.goes_on(at) {
                break;
            }
            let step = self.stripes.read(at, || {
                let mut header = Header::peek(medium, at)?;
                if header.level == 0 {
                    header = Header::load_leaf(medium, at)?;
                }
                match self.covers(&header, target)? {
                    Step::Go(next) => return Ok(Step::Go(next)),
                    Step::Restart => return Ok(Step::Restart),
                    Step::Here(()) => {}
                }
                if header.level == 0 {
                    return at_leaf(&header).map(|found| Step::Here((found, header.low)));
                }
                if header.level == 1 {
                    parent = Some(at);
                }
                Ok(self.child(&header, target)?.map_or(Step::Restart, Step::Go))
            })?;
            match step {
                Step::Go(next) => at = next,
                Step::Here((found, low)) => {
                    self.note(0, low, at);
                    if let (true, Some(parent)) = (K::IS_WORD, parent) {
                        self.note_parent(parent);
                    }
                    return Ok(found);
                }
                Step::Restart if restarts < RESTARTS_MAX => {
                    restarts += 1;
                    super::locks::pause(&mut low_u32(to_u64(restarts)));
                    (at, walk) = (self.root(), Walk::new());
                }
                Step::Restart => break,
            }
        }
        Err(medium.damaged(self.root(), "inner node of a tree", "leads to leaves that do not cover the key"))
    }

    /// Where `key` is in the leaf, every line that says so verified.
    #[inline]
    pub(super) fn locate(&self, header: &Header, key: &K) -> Result<Place> {
        let medium = self.medium();
        let is_left = |entry| Ok(keys::compare(medium, key, 0, entry)? != Ordering::Less);
        // Only a leaf that was not written since the open can hold leftovers of a crash.
        let copies = header.stamp != self.boot;
        let Some(lines) = header.lines(medium) else { return Err(header.nowhere(medium)) };
        let (count, guess) = (header.order.count(), Self::guess(header, key));
        let position = last_position(lines, count, guess, (!K::IS_WORD, copies), is_left)?;
        let line = position.map(|position| (position, lines.line(position)));
        let (mut rank, mut found) = (0, false);
        if let Some((_, line)) = &line {
            line.verify(medium)?;
            for entry in line.entries() {
                match keys::compare(medium, key, 0, entry)? {
                    Ordering::Greater => rank += 1,
                    Ordering::Equal => found = true,
                    Ordering::Less => break,
                }
            }
        }
        let is_within = line.as_ref().is_some_and(|(_, line)| rank < line.count());
        if !found && !is_within {
            // After all of its line: the next key must be above this one. Only lines that verify say so.
            let from = line.as_ref().map_or(0, |(position, _)| position + 1);
            for position in from..header.order.count() {
                if header.verified_line(medium, position)?.count() > 0 {
                    break;
                }
            }
        }
        Ok(Place { line, rank, found })
    }

    /// The value of a key that is a word, with what the answer rests on: as [`locate`](Self::locate), without the place
    /// of an absent key.
    #[inline]
    fn lookup_word(&self, header: &Header, key: &K) -> Result<(Option<u64>, PmAddr, u64, u64)> {
        let (medium, word) = (self.medium(), key.order_word());
        let Some(lines) = header.lines(medium) else { return Err(header.nowhere(medium)) };
        let count = header.order.count();
        let copies = header.stamp != self.boot;
        let guess = Self::guess(header, key);
        let position = last_position(lines, count, guess, (false, copies), |entry| Ok(entry.0 <= word))?;
        let mut from = 0;
        if let Some(position) = position {
            let line = lines.line(position);
            line.verify(medium)?;
            for index in 0..line.count() {
                let entry = line.entry(index);
                if entry.0 == word {
                    return Ok((Some(entry.1), line.at, LINE_BYTES, 0));
                }
            }
            // After all of its line: only lines that verify say that the next key is above this one.
            from = if line.last().0 > word { count } else { position + 1 };
        }
        for position in from..count {
            if header.verified_line(medium, position)?.count() > 0 {
                break;
            }
        }
        Ok((None, header.at.0, NodeAt::bytes(header.lines), 0))
    }

    /// The value of `key`.
    #[inline]
    pub(super) fn lookup(&self, key: &K) -> Result<Option<u64>> {
        let medium = self.medium();
        let _pin = self.readers.pin();
        let (leaf, (value, at, bytes, block)) = self.at_leaf(Target::At(key), |header| {
            if K::IS_WORD {
                return Ok((header.at.0, self.lookup_word(header, key)?));
            }
            let place = self.locate(header, key)?;
            let found = match &place.line {
                Some((_, line)) if place.found => {
                    let entry = line.entry(place.rank);
                    (Some(keys::value_of::<K>(medium, entry)?), line.at, LINE_BYTES, entry.1)
                }
                _ => (None, header.at.0, NodeAt::bytes(header.lines), 0),
            };
            Ok((header.at.0, found))
        })?;
        self.settle(at, bytes)?;
        if value.is_some() {
            // The order word that names the line: a new line's may be in a later commit group than the line itself.
            self.settle(leaf, LINE_BYTES)?;
        }
        if !K::IS_WORD && block != 0 {
            self.settle(PmAddr::from_raw(block), 3 * WORD_BYTES)?;
        }
        Ok(value)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::task::{Context, Waker};

    use lodestone_pmem::{DomainChoice, Pool, PoolOptions, checked};
    use lodestone_store::Store;

    use super::*;
    use crate::fastfair::FastFairOptions;
    use crate::fastfair::node::order_payload;
    use crate::map::Durability;
    use crate::traits::PointIndex;

    /// The state while a writer waits for its commit group, of which the one before took the new line, but not the word
    /// that links it.
    #[test]
    fn a_key_is_told_when_the_word_that_links_its_line_is_durable()
    -> std::result::Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Block, ..PoolOptions::default() };
        let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
        let tree = FastFair::<u64>::open(&store, "tree", &FastFairOptions::default(), Durability::Sync)?;
        for key in [10, 20, 30] {
            tree.insert(&key, 10 * key)?;
        }
        let memory = store.memory();
        let header = Header::load(tree.medium(), tree.root())?;
        let free = header.order.free_line(header.lines).ok_or("a free line")?;
        memory.write_and_flush(header.at.line(free), &Line::new(header.at.line(free), &[(40, 400)]).words);
        // Somebody else closes the group.
        memory.durable()?;
        let order = header.order.with(1, free);
        memory.store(header.at.order(), checked::encode(header.at.order(), order_payload(order)));
        memory.persist(header.at.order(), WORD_BYTES);
        let link = memory.flushed_at(header.at.order(), WORD_BYTES);
        assert_eq!(tree.get(&40)?, Some(400));
        let mut task = Context::from_waker(Waker::noop());
        assert!(memory.poll_durable(link, &mut task).is_ready(), "a power failure would take the key back");
        Ok(())
    }
}
