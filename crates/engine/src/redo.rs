//! The newest version of each row, from images and logs, on several threads.
//!
//! 1. *Parts*: a part of a tree for each image. Where the logs have many rows after the last image, or without one,
//!    parts are made for them, by a sample of their keys.
//! 2. *Strays*: a row of an image that is not in its part. The leaf was split while the image was written. It is a
//!    change of the part where its key is now.
//! 3. *Changes*: the entries of all records, divided evenly among the threads, which sort them by part. An entry is
//!    not copied: it stays where the log was read to.
//! 4. *Merge*: for each part the rows of its image, the strays and the changes, by key. The largest tick wins, then the
//!    deltas are applied (`delta.rs`). One part is small: all of this is in the caches of a processor.
//!
//! No step depends on the order in which the others ran, so neither does the outcome.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::ops::Range;

use lodestone_pages::{Found, PageRow};
use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::{AtomicBool, Ordering};
use lodestone_txn::Tick;
use lodestone_wal::{Entries, Entry, EntryKind, Kept};

use crate::delta::{self, Delta};
use crate::tree::{Bytes, TreePart};
use crate::work;

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

/// A row that could not be made, with its tree and key.
#[derive(Debug)]
pub struct Trouble {
    pub tree: u32,
    pub key: Vec<u8>,
    pub finding: String,
}

/// A part of the keys of a tree.
#[derive(Debug)]
struct Part<'r> {
    tree: u32,
    low: Key<'r>,
    image: Option<&'r Found>,
    /// Whether its rows are known to be others than those of its image.
    is_dirty: AtomicBool,
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
    threads: usize,
}

impl<'r> Redo<'r> {
    /// `images`: by tree and first key, no two with the same ones. `sample`: of all records, finished.
    pub fn new(images: &'r [Found], sample: &'r Sample, threads: usize) -> Self {
        let part = |tree, low, image: Option<&'r Found>| {
            let is_dirty = AtomicBool::new(image.is_none());
            Part { tree, low: Key::new(low), image, is_dirty }
        };
        let mut parts: Vec<Part<'r>> =
            images.iter().map(|image| part(image.tree, &image.low[..], Some(image))).collect();
        let trees = sample.keys.keys().copied().chain(images.iter().map(|image| image.tree));
        parts.extend(trees.map(|tree| part(tree, &[], None)));
        for (&tree, keys) in &sample.keys {
            let last = images[..images.partition_point(|image| image.tree <= tree)].last();
            let after = last.filter(|last| last.tree == tree).map_or(&[][..], last_key);
            let keys = keys.iter().filter(|key| ***key > *after).step_by(SAMPLES_PER_PART).skip(1);
            parts.extend(keys.map(|key| part(tree, &key[..], None)));
        }
        // Stable: of two with the same key the one with an image is kept.
        parts.sort_by_key(|part| (part.tree, part.low));
        parts.dedup_by_key(|part| (part.tree, part.low));
        let prefixes = parts.iter().map(|part| part.low.prefix).collect();
        let mut trees: HashMap<u32, Range<usize>> = HashMap::new();
        for (number, part) in parts.iter().enumerate() {
            trees.entry(part.tree).or_insert(number..number).end = number + 1;
        }
        Self { parts, prefixes, trees, threads }
    }

    /// The number of the part, of those of a tree, that may have the row.
    fn part_of(&self, of_tree: Range<usize>, key: Key<'_>) -> usize {
        // Parts whose first keys begin as the key does are compared whole. All others are before it or after it.
        let from = of_tree.start + self.prefixes[of_tree.clone()].partition_point(|low| *low < key.prefix);
        let alike = self.prefixes[from..of_tree.end].iter().take_while(|low| **low == key.prefix).count();
        // The first part of a tree begins with the empty key.
        from + self.parts[from..from + alike].partition_point(|part| part.low <= key) - 1
    }

    /// Whether the part may have `key`.
    fn has(&self, number: usize, key: Key<'_>) -> bool {
        let part = &self.parts[number];
        let next = self.parts.get(number + 1).filter(|next| next.tree == part.tree);
        part.low <= key && next.is_none_or(|next| key < next.low)
    }

    fn soil(&self, number: usize) {
        self.parts[number].is_dirty.store(true, Ordering::Relaxed);
    }

    /// The number of parts.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// The rows of all trees, by tree and part. Calls `done` for each part.
    ///
    /// # Errors
    /// A delta that does not fit.
    pub fn rows(&self, records: &'r [Kept], done: &(dyn Fn() + Sync)) -> Result<Vec<(u32, TreePart)>, Trouble> {
        let mut changes = vec![self.strays()];
        changes.extend(self.changes(records));
        work::each(self.threads, self.parts.len(), |number| {
            let (part, mut rows) = (&self.parts[number], Vec::new());
            self.merge(number, &changes, &mut rows)?;
            done();
            let is_dirty = part.is_dirty.load(Ordering::Relaxed);
            let home = part.image.map(|found| found.image.clone());
            Ok((part.tree, TreePart { low: part.low.bytes.to_vec(), rows, home, is_dirty }))
        })
    }

    /// Rows of images that are not in their parts, by part.
    fn strays(&self) -> Changes<'r> {
        let Ok(strays) = work::each(self.threads, self.parts.len(), |number| {
            let mut strays = Vec::new();
            for version in self.parts[number].image.iter().flat_map(|image| versions_of(image)) {
                if !self.has(number, version.key) {
                    let part = self.part_of(self.trees[&self.parts[number].tree].clone(), version.key);
                    self.soil(number);
                    self.soil(part);
                    strays.push((part, version));
                }
            }
            Ok::<_, Infallible>(strays)
        });
        let strays: Vec<_> = strays.into_iter().flatten().collect();
        Changes::new(&strays, self.parts.len())
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

    /// The rows of a part. Notes whether its image has others.
    fn merge(&self, number: usize, changes: &[Changes<'r>], rows: &mut Vec<(Bytes, Bytes)>) -> Result<(), Trouble> {
        let part = &self.parts[number];
        let of_image = part.image.iter().flat_map(|image| versions_of(image));
        let mut found: Vec<_> = of_image.filter(|row| self.has(number, row.key)).map(|row| (true, row)).collect();
        let image_rows = found.len();
        for list in changes {
            found.extend(list.of_part(number).iter().map(|version| (false, *version)));
        }
        if found.len() > image_rows || !found.is_sorted_by(|one, next| one.1.key < next.1.key) {
            // The row of the image comes first.
            found.sort_unstable_by_key(|(is_of_image, version)| (version.key, !is_of_image, version.tick));
        }
        let (mut deltas, mut row) = (Vec::new(), Vec::new());
        for versions in found.chunk_by(|one, next| one.1.key == next.1.key) {
            let key = versions[0].1.key.bytes;
            let trouble = |finding| Trouble { tree: part.tree, key: key.to_vec(), finding };
            let newest = newest(versions, &mut deltas, &mut row).map_err(trouble)?;
            if newest.is_new {
                self.soil(number);
            }
            if newest.is_row {
                rows.push((key.into(), row[..].into()));
            }
        }
        Ok(())
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
    image.rows().map(move |PageRow { key, tick, payload }| Version { key: Key::new(key), tick, kind, value: payload })
}

/// The largest key of an image, or its first possible one.
fn last_key(image: &Found) -> &[u8] {
    image.rows().map(|row| row.key).max().unwrap_or(&[]).max(&image.low)
}

/// Calls `visit` for each change of a record that [is right](check), with its tick.
fn for_each_change<'r>(mut tick: Tick, entries: Entries<'r>, visit: &mut impl FnMut(Tick, Entry<'r>)) {
    for entry in entries {
        match entry.kind {
            EntryKind::Commit => tick = named_tick(&entry).unwrap_or(tick),
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
            EntryKind::Commit => {}
            EntryKind::Put | EntryKind::Delete | EntryKind::Delta => sample.add(&entry),
            EntryKind::Member => return Err("it has an entry of a kind that this version never writes"),
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
