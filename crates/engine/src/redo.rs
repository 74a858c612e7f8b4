//! The newest version of each row, from images and logs, on several threads.
//!
//! 1. *Parts*: a part of a tree for each image. Where the logs have many rows after the last image, or without one,
//!    parts are made for them, by a sample of their keys.
//! 2. *Changes*: the entries of all records, divided evenly among the threads, which sort them by part. An entry is
//!    not copied: it stays where the log was read to.
//! 3. *Merge*: for each part that has changes, the rows of its image and the changes, by key. The largest tick wins,
//!    then the deltas are applied (`delta.rs`). One part is small: all of this is in the caches of a processor. The
//!    image of a part without changes is not read here (`cold.rs`).
//!
//! No step depends on the order in which the others ran, so neither does the outcome.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::ops::Range;

use lodestone_pages::{Found, Listed, PageRow};
use lodestone_pmem::{Pool, planted, work};
use lodestone_txn::Tick;
use lodestone_wal::{Entries, Entry, EntryKind, Kept};
use lodestone_width::to_usize;

use crate::cold::Source;
use crate::delta::{self, Delta};
use crate::dual::{MemberEntry, is_dual};
use crate::error::Error;
use crate::leaf::Span;
use crate::tree::{Bytes, Loaded, TreePart};

/// Bytes of the first part of a key.
const PREFIX_BYTES: usize = 16;
/// One of so many changes is in the sample.
const SAMPLE_STEP: usize = 64;
/// Sampled keys between the first keys of two parts that are made for changes.
const SAMPLES_PER_PART: usize = 16;

/// A key of a row. Its order is that of its bytes.
#[derive(Clone, Copy, Debug)]
struct Key<'r> {
    /// The first bytes as a number in their order, with zeroes after the end. Most comparisons end with it, without a
    /// look at the bytes.
    prefix: u128,
    bytes: &'r [u8],
}

impl<'r> Key<'r> {
    fn new(bytes: &'r [u8]) -> Self {
        let mut first = [0; PREFIX_BYTES];
        let count = bytes.len().min(PREFIX_BYTES);
        first[..count].copy_from_slice(&bytes[..count]);
        Self { prefix: u128::from_be_bytes(first), bytes }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| {
            match (self.bytes.get(PREFIX_BYTES..), other.bytes.get(PREFIX_BYTES..)) {
                (Some(rest), Some(other)) => rest.cmp(other),
                // The shorter one is a beginning of the other.
                _ => self.bytes.len().cmp(&other.bytes.len()),
            }
        })
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

/// A version of a row.
#[derive(Clone, Copy, Debug)]
struct Version<'r> {
    key: Key<'r>,
    tick: Tick,
    kind: EntryKind,
    value: &'r [u8],
}

/// Versions that parts have not in their own images, by part.
#[derive(Debug)]
struct Changes<'r> {
    versions: Vec<Version<'r>>,
    /// The end of those of each part.
    ends: Vec<usize>,
}

impl<'r> Changes<'r> {
    /// `changes`: with the number of the part of each.
    fn new(changes: &[(usize, Version<'r>)], parts: usize) -> Self {
        // Where those of each part begin, then where the next one goes, and so in the end where they end.
        let mut ends = vec![0; parts];
        changes.iter().for_each(|(part, _)| ends[*part] += 1);
        let mut begin = 0;
        for end in &mut ends {
            (*end, begin) = (begin, begin + *end);
        }
        let mut versions = match changes.first() {
            Some((_, any)) => vec![*any; changes.len()],
            None => Vec::new(),
        };
        for (part, version) in changes {
            versions[ends[*part]] = *version;
            ends[*part] += 1;
        }
        Self { versions, ends }
    }

    fn of_part(&self, part: usize) -> &[Version<'r>] {
        let begin = part.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.versions[begin..self.ends[part]]
    }
}

/// Why the rows could not be made.
#[derive(Debug)]
pub enum Trouble {
    /// One could not, with its tree and key.
    Row { tree: u32, key: Vec<u8>, finding: String },
    /// An image could not be read.
    Image(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Image(error)
    }
}

/// A part of the keys of a tree.
#[derive(Debug)]
struct Part<'r> {
    tree: u32,
    low: Key<'r>,
    image: Option<&'r Listed>,
}

impl Part<'_> {
    fn low(&self) -> Bytes {
        self.image.map_or_else(|| self.low.bytes.into(), |listed| listed.low.clone().into())
    }
}

/// The trees that records name, and a sample of the keys of each.
#[derive(Debug, Default)]
pub struct Sample {
    keys: BTreeMap<u32, Vec<Box<[u8]>>>,
    changes: usize,
    last_tree: Option<u32>,
}

impl Sample {
    fn add(&mut self, entry: &Entry<'_>) {
        let is_taken = self.changes.is_multiple_of(SAMPLE_STEP);
        if is_taken || self.last_tree != Some(entry.tree) {
            let keys = self.keys.entry(entry.tree).or_default();
            keys.extend(is_taken.then(|| entry.key.into()));
            self.last_tree = Some(entry.tree);
        }
        self.changes += 1;
    }

    /// Adds another one.
    pub fn extend(&mut self, other: Self) {
        for (tree, keys) in other.keys {
            self.keys.entry(tree).or_default().extend(keys);
        }
    }

    /// The trees that records name.
    pub fn trees(&self) -> impl Iterator<Item = u32> {
        self.keys.keys().copied()
    }

    /// Sorts the keys. Then they can be parts.
    pub fn finish(&mut self) {
        for keys in self.keys.values_mut() {
            keys.sort_unstable();
            keys.dedup();
        }
    }
}

/// Images and records, by key.
#[derive(Debug)]
pub struct Redo<'r> {
    /// By tree and first key.
    parts: Vec<Part<'r>>,
    /// The first bytes of each first key as a number: a search in them stays in the processor's caches.
    prefixes: Vec<u128>,
    /// The parts of each tree.
    trees: HashMap<u32, Range<usize>>,
    source: &'r Source,
    pool: &'r Pool,
    threads: usize,
    /// Whether a life that was killed may have written rows of images in place: of those that have records.
    is_suspect: bool,
}

impl<'r> Redo<'r> {
    /// `images`: by tree and first key, no two with the same ones. `sample`: of all records, finished. `is_suspect`:
    /// the images may have rows that were stored in place and not flushed.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub fn new(
        images: &'r [Listed],
        sample: &'r Sample,
        source: &'r Source,
        (pool, threads): (&'r Pool, usize),
        is_suspect: bool,
    ) -> Result<Self, Error> {
        let part = |tree, low, image: Option<&'r Listed>| Part { tree, low: Key::new(low), image };
        let mut parts: Vec<Part<'r>> =
            images.iter().map(|image| part(image.tree, &image.low[..], Some(image))).collect();
        let of_images = images.chunk_by(|one, next| one.tree == next.tree).map(|images| images[0].tree);
        parts.extend(sample.keys.keys().copied().chain(of_images).map(|tree| part(tree, &[], None)));
        for (&tree, keys) in &sample.keys {
            let last = images[..images.partition_point(|image| image.tree <= tree)].last();
            let after = match last.filter(|last| last.tree == tree) {
                Some(last) => last_key(source, last)?,
                None => Vec::new(),
            };
            let keys = keys.iter().filter(|key| ***key > *after).step_by(SAMPLES_PER_PART).skip(1);
            parts.extend(keys.map(|key| part(tree, &key[..], None)));
        }
        // Stable: of two with the same key the one with an image is kept.
        parts.sort_by_key(|part| (part.tree, part.low));
        parts.dedup_by_key(|part| (part.tree, part.low));
        let prefixes = parts.iter().map(|part| part.low.prefix).collect();
        let (mut trees, mut begin) = (HashMap::new(), 0);
        for parts in parts.chunk_by(|one, next| one.tree == next.tree) {
            trees.insert(parts[0].tree, begin..begin + parts.len());
            begin += parts.len();
        }
        Ok(Self { parts, prefixes, trees, source, pool, threads, is_suspect })
    }

    /// The number of the part, of those of a tree, that may have the row.
    fn part_of(&self, of_tree: Range<usize>, key: Key<'_>) -> usize {
        // Parts whose first keys begin as the key does are compared whole. All others are before it or after it.
        let from = of_tree.start + self.prefixes[of_tree.clone()].partition_point(|low| *low < key.prefix);
        let alike = self.prefixes[from..of_tree.end].iter().take_while(|low| **low == key.prefix).count();
        // The first part of a tree begins with the empty key.
        from + self.parts[from..from + alike].partition_point(|part| part.low <= key) - 1
    }

    /// The keys of a part.
    fn span(&self, number: usize) -> Span {
        let part = &self.parts[number];
        let next = self.parts.get(number + 1).filter(|next| next.tree == part.tree);
        Span { low: part.low(), high: next.map(Part::low) }
    }

    /// The number of parts.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// The rows of all trees, by tree and part. Calls `done` for each part.
    ///
    /// # Errors
    /// A delta that does not fit; an image that cannot be read.
    pub fn rows(&self, records: &'r [Kept], done: &(dyn Fn() + Sync)) -> Result<Vec<(u32, TreePart)>, Trouble> {
        let changes = self.changes(records);
        let node_of = |number: usize| {
            let part = self.parts[number].image?.image.parts().next()?;
            self.pool.part_nodes().get(usize::from(part))?.index
        };
        work::each_near(self.pool.topology(), self.threads, self.parts.len(), &node_of, |number| {
            let part = self.part(number, &changes)?;
            done();
            Ok((self.parts[number].tree, part))
        })
    }

    fn part(&self, number: usize, changes: &[Changes<'r>]) -> Result<TreePart, Trouble> {
        let part = &self.parts[number];
        let span = self.span(number);
        let loaded = |span, rows, home, is_dirty| {
            TreePart::Loaded(Box::new(Loaded { span, rows, home, is_dirty, is_suspect: self.is_suspect }))
        };
        match part.image {
            Some(listed) if changes.iter().all(|list| list.of_part(number).is_empty()) => {
                Ok(TreePart::cold(span, listed.image.clone(), to_usize(listed.rows)))
            }
            Some(listed) => {
                let (low, high) = (&span.low, span.high.as_deref());
                let found = self.source.read_with_torn(&listed.image, part.tree, low, high)?;
                // The records have these rows: a part without changes has none. The next round has the number of the
                // one that was cut off.
                let is_due = found.has_unpublished() && !planted::active("engine-added-not-ended");
                if is_due && !self.pool.memory().is_read_only() {
                    self.source.end_unpublished(&listed.image)?;
                }
                let (rows, is_dirty) = self.merge(number, Some(&found), changes)?;
                Ok(loaded(span, rows, Some(listed.image.clone()), is_dirty))
            }
            None => {
                let (rows, _) = self.merge(number, None, changes)?;
                Ok(loaded(span, rows, None, true))
            }
        }
    }

    /// The changes of all records.
    fn changes(&self, records: &'r [Kept]) -> Vec<Changes<'r>> {
        let count: usize = records.iter().map(Kept::len).sum();
        let share = |number: usize| {
            let mut rest = number * count / self.threads..(number + 1) * count / self.threads;
            let (mut changes, mut tree_before) = (Vec::new(), None);
            for log in records {
                let of_log = rest.start.min(log.len())..rest.end.min(log.len());
                for (tick, entries) in log.records(of_log) {
                    for_each_change(tick, entries, &mut |tick, Entry { tree, kind, key, value }| {
                        let version = Version { key: Key::new(key), tick, kind, value };
                        let of_tree = match &tree_before {
                            Some((before, parts)) if *before == tree => Range::clone(parts),
                            _ => self.trees[&tree].clone(),
                        };
                        changes.push((self.part_of(of_tree.clone(), version.key), version));
                        tree_before = Some((tree, of_tree));
                    });
                }
                rest = rest.start.saturating_sub(log.len())..rest.end.saturating_sub(log.len());
            }
            Ok::<_, Infallible>(Changes::new(&changes, self.parts.len()))
        };
        let Ok(changes) = work::each(self.threads, self.threads, share);
        changes
    }

    /// The rows of a part with this image, by key, and whether these are others than those of the image.
    ///
    /// A row of the image that a crash has torn is as good as none: the records have all of its version.
    fn merge<'f>(
        &self,
        number: usize,
        image: Option<&'f Found>,
        changes: &[Changes<'f>],
    ) -> Result<(Vec<(Bytes, Bytes)>, bool), Trouble> {
        let mut found: Vec<_> = image.into_iter().flat_map(versions_of).map(|row| (true, row)).collect();
        for list in changes {
            found.extend(list.of_part(number).iter().map(|version| (false, *version)));
        }
        // The row of the image comes first.
        found.sort_unstable_by_key(|(is_of_image, version)| (version.key, !is_of_image, version.tick));
        let (mut rows, mut is_dirty, mut deltas, mut row) = (Vec::new(), false, Vec::new(), Vec::new());
        let mut torn = image.into_iter().flat_map(Found::torn).peekable();
        for versions in found.chunk_by(|one, next| one.1.key == next.1.key) {
            let key = versions[0].1.key.bytes;
            if torn.peek().is_some_and(|torn| *torn < key) {
                break;
            }
            let is_torn = torn.next_if_eq(&key).is_some();
            let trouble = |finding| Trouble::Row { tree: self.parts[number].tree, key: key.to_vec(), finding };
            let newest = newest(versions, &mut deltas, &mut row).map_err(|finding| match image {
                Some(image) if is_torn => self.source.torn(&image.image, key).into(),
                _ => trouble(finding),
            })?;
            is_dirty |= newest.is_new;
            if newest.is_row {
                let tree = self.parts[number].tree;
                let payload = if is_dual(tree) { self.source.row_in_cell(tree, key, &row)?.1 } else { row[..].into() };
                rows.push((key.into(), payload));
            }
        }
        if let (Some(image), Some(key)) = (image, torn.next()) {
            return Err(self.source.torn(&image.image, key).into());
        }
        Ok((rows, is_dirty))
    }
}

/// The outcome of the versions of a row.
struct Newest {
    is_row: bool,
    /// Whether the image has another version, or none.
    is_new: bool,
}

/// Puts the newest of the versions of a row into `row`. With each it is said whether it is of the part's image.
fn newest<'r>(
    versions: &[(bool, Version<'r>)],
    deltas: &mut Vec<Delta<'r>>,
    row: &mut Vec<u8>,
) -> Result<Newest, String> {
    deltas.clear();
    let (mut tick, mut payload, mut is_new) = (Tick::NEVER, None, !versions[0].0);
    for (is_of_image, version) in versions {
        if version.kind == EntryKind::Delta {
            deltas.push(Delta { tick: version.tick, value: version.value });
        } else if version.tick > tick && !(tick > Tick::NEVER && planted::active("engine-oldest-wins")) {
            tick = version.tick;
            payload = (version.kind == EntryKind::Put).then_some(version.value);
            is_new |= !is_of_image;
        }
    }
    row.clear();
    row.extend_from_slice(payload.unwrap_or_default());
    let is_row = payload.is_some();
    is_new |= delta::redo((tick, is_row), deltas, row)? > tick;
    Ok(Newest { is_row, is_new })
}

fn versions_of(image: &Found) -> impl Iterator<Item = Version<'_>> {
    let kind = EntryKind::Put;
    image.rows().map(move |PageRow { key, tick, payload, .. }| Version {
        key: Key::new(key),
        tick,
        kind,
        value: payload,
    })
}

/// The largest key of the last image of a tree, or its first possible one.
fn last_key(source: &Source, listed: &Listed) -> Result<Vec<u8>, Error> {
    let found = source.read_with_torn(&listed.image, listed.tree, &listed.low, None)?;
    Ok(found.keys().last().unwrap_or(&found.low).to_vec())
}

/// Calls `visit` for each change of a record that [is right](check), with its tick.
fn for_each_change<'r>(mut tick: Tick, entries: Entries<'r>, visit: &mut impl FnMut(Tick, Entry<'r>)) {
    for entry in entries {
        match entry.kind {
            EntryKind::Commit => tick = named_tick(&entry).unwrap_or(tick),
            EntryKind::Together => {}
            EntryKind::Member => {
                if let Some(change) = MemberEntry::read(entry.value).and_then(|member| member.change(entry)) {
                    visit(tick, change);
                }
            }
            _ => visit(tick, entry),
        }
    }
}

fn named_tick(entry: &Entry<'_>) -> Option<Tick> {
    entry.value.try_into().map(u64::from_le_bytes).map(Tick).ok()
}

/// Whether this version can have written the record. Adds it to the sample.
///
/// # Errors
/// The finding.
pub fn check(found: &lodestone_wal::Found<'_>, limit: Tick, sample: &mut Sample) -> Result<(), &'static str> {
    if found.tick > limit {
        return Err("its tick was never reserved");
    }
    for entry in found.entries() {
        match entry.kind {
            EntryKind::Commit if named_tick(&entry).is_none_or(|tick| tick > found.tick) => {
                return Err("the tick of a transaction makes no sense");
            }
            EntryKind::Together
                if entry.places().is_none_or(|places| !places.contains(&(found.writer, found.position))) =>
            {
                return Err("the places of a transaction's records make no sense");
            }
            EntryKind::Commit | EntryKind::Together => {}
            EntryKind::Put | EntryKind::Delta if is_dual(entry.tree) => {
                return Err("it has a row of a table whose rows are in cells");
            }
            EntryKind::Put | EntryKind::Delete | EntryKind::Delta => sample.add(&entry),
            EntryKind::Member => match MemberEntry::read(entry.value).filter(|_| is_dual(entry.tree)) {
                Some(member) if member.is_change() => sample.add(&entry),
                Some(_) => {}
                None => return Err("an entry about a cell makes no sense"),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_have_the_order_of_their_bytes(one in prop::collection::vec(0..2_u8, 0..20),
                                              other in prop::collection::vec(0..2_u8, 0..20)) {
            prop_assert_eq!(Key::new(&one).cmp(&Key::new(&other)), one.cmp(&other));
        }
    }
}
