//! The newest version of each row, from images and logs, on several threads.
//!
//! 1. *Parts*: a part of a tree for each image. Where the logs have many rows after the last image, or without one,
//!    parts are made for them, by a sample of their keys.
//! 2. *Strays*: a row of an image that is not in its part. The leaf was split while the image was written. It is a
//!    change of the part where its key is now.
//! 3. *Changes*: the entries of all records, divided evenly among the threads, and sorted by part. An entry is not
//!    copied: it stays where the log was read to.
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

/// One of so many changes is in the sample.
const SAMPLE_STEP: usize = 64;
/// Sampled keys between the first keys of two parts that are made for changes.
const SAMPLES_PER_PART: usize = 16;

/// A version of a row.
#[derive(Clone, Copy, Debug)]
struct Version<'r> {
    key: &'r [u8],
    tick: Tick,
    kind: EntryKind,
    value: &'r [u8],
}

/// A version that belongs to a part, which has it not in its own image.
#[derive(Clone, Copy, Debug)]
struct Change<'r> {
    part: usize,
    version: Version<'r>,
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
    low: &'r [u8],
    image: Option<&'r Found>,
    /// Whether its rows are known to be others than those of its image.
    is_dirty: AtomicBool,
}

/// The trees that records name, and a sample of the keys of each.
#[derive(Debug, Default)]
pub struct Sample {
    keys: BTreeMap<u32, Vec<Box<[u8]>>>,
    changes: usize,
}

impl Sample {
    fn add(&mut self, entry: &Entry<'_>) {
        let keys = self.keys.entry(entry.tree).or_default();
        if self.changes.is_multiple_of(SAMPLE_STEP) {
            keys.push(entry.key.into());
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
    prefixes: Vec<u64>,
    /// The parts of each tree.
    trees: HashMap<u32, Range<usize>>,
    threads: usize,
}

impl<'r> Redo<'r> {
    /// `images`: by tree and first key, no two with the same ones. `sample`: of all records, finished.
    pub fn new(images: &'r [Found], sample: &'r Sample, threads: usize) -> Self {
        let part =
            |tree, low, image: Option<&'r Found>| Part { tree, low, image, is_dirty: AtomicBool::new(image.is_none()) };
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
        let prefixes = parts.iter().map(|part| prefix(part.low)).collect();
        let mut trees: HashMap<u32, Range<usize>> = HashMap::new();
        for (number, part) in parts.iter().enumerate() {
            trees.entry(part.tree).or_insert(number..number).end = number + 1;
        }
        Self { parts, prefixes, trees, threads }
    }

    /// The number of the part that may have `key`.
    fn part_of(&self, tree: u32, key: &[u8]) -> usize {
        let (of_tree, of_key) = (self.trees[&tree].clone(), prefix(key));
        // Parts whose first keys begin as the key does are compared whole. All others are before it or after it.
        let from = of_tree.start + self.prefixes[of_tree.clone()].partition_point(|low| *low < of_key);
        let alike = self.prefixes[from..of_tree.end].iter().take_while(|low| **low == of_key).count();
        // The first part of a tree begins with the empty key.
        from + self.parts[from..from + alike].partition_point(|part| part.low <= key) - 1
    }

    /// Whether the part may have `key`.
    fn has(&self, number: usize, key: &[u8]) -> bool {
        let part = &self.parts[number];
        let next = self.parts.get(number + 1).filter(|next| next.tree == part.tree);
        part.low <= key && next.is_none_or(|next| key < next.low)
    }

    fn soil(&self, number: usize) {
        self.parts[number].is_dirty.store(true, Ordering::Relaxed);
    }

    /// The rows of all trees, by tree and part.
    ///
    /// # Errors
    /// A delta that does not fit.
    pub fn rows(&self, records: &'r [Kept]) -> Result<Vec<(u32, TreePart)>, Trouble> {
        let mut changes = vec![self.strays()];
        changes.extend(self.changes(records));
        work::each(self.threads, self.parts.len(), |number| {
            let (part, mut rows) = (&self.parts[number], Vec::new());
            self.merge(number, &changes, &mut rows)?;
            let is_dirty = part.is_dirty.load(Ordering::Relaxed);
            let home = part.image.map(|found| found.image.clone());
            Ok((part.tree, TreePart { low: part.low.to_vec(), rows, home, is_dirty }))
        })
    }

    /// Rows of images that are not in their parts, by part.
    fn strays(&self) -> Vec<Change<'r>> {
        let Ok(strays) = work::each(self.threads, self.parts.len(), |number| {
            let mut strays = Vec::new();
            for version in self.parts[number].image.iter().flat_map(|image| versions_of(image)) {
                if !self.has(number, version.key) {
                    let part = self.part_of(self.parts[number].tree, version.key);
                    self.soil(number);
                    self.soil(part);
                    strays.push(Change { part, version });
                }
            }
            Ok::<_, Infallible>(strays)
        });
        let mut strays: Vec<_> = strays.into_iter().flatten().collect();
        strays.sort_by_key(|stray| stray.part);
        strays
    }

    /// The changes of all records. Each list is sorted by part.
    fn changes(&self, records: &'r [Kept]) -> Vec<Vec<Change<'r>>> {
        let count: usize = records.iter().map(Kept::len).sum();
        let share = |number: usize| {
            let mut rest = number * count / self.threads..(number + 1) * count / self.threads;
            let mut changes = Vec::new();
            for log in records {
                let of_log = rest.start.min(log.len())..rest.end.min(log.len());
                for (tick, entries) in log.records(of_log) {
                    for_each_change(tick, entries, &mut |tick, Entry { tree, kind, key, value }| {
                        let version = Version { key, tick, kind, value };
                        changes.push(Change { part: self.part_of(tree, key), version });
                    });
                }
                rest = rest.start.saturating_sub(log.len())..rest.end.saturating_sub(log.len());
            }
            changes.sort_by_key(|change| change.part);
            Ok::<_, Infallible>(changes)
        };
        let Ok(changes) = work::each(self.threads, self.threads, share);
        changes
    }

    /// The rows of a part. Notes whether its image has others.
    fn merge(&self, number: usize, changes: &[Vec<Change<'r>>], rows: &mut Vec<(Bytes, Bytes)>) -> Result<(), Trouble> {
        let part = &self.parts[number];
        let of_image = part.image.iter().flat_map(|image| versions_of(image));
        let mut found: Vec<_> = of_image.filter(|row| self.has(number, row.key)).map(|row| (true, row)).collect();
        let image_rows = found.len();
        for list in changes {
            let begin = list.partition_point(|change| change.part < number);
            let of_part = list[begin..].iter().take_while(|change| change.part == number);
            found.extend(of_part.map(|change| (false, change.version)));
        }
        if found.len() > image_rows || !found.is_sorted_by(|one, next| one.1.key < next.1.key) {
            // Stable: the row of the image comes first.
            found.sort_by(|(_, one), (_, other)| one.key.cmp(other.key));
        }
        let (mut deltas, mut row) = (Vec::new(), Vec::new());
        for versions in found.chunk_by(|one, next| one.1.key == next.1.key) {
            let key = versions[0].1.key;
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
        } else if version.tick > tick || planted::active("engine-last-read-wins") {
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
    image.rows().map(|PageRow { key, tick, payload }| Version { key, tick, kind: EntryKind::Put, value: payload })
}

/// The largest key of an image, or its first possible one.
fn last_key(image: &Found) -> &[u8] {
    image.rows().map(|row| row.key).max().unwrap_or(&[]).max(&image.low)
}

/// The first eight bytes of a key, as a number in their order.
fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let count = key.len().min(8);
    bytes[..count].copy_from_slice(&key[..count]);
    u64::from_be_bytes(bytes)
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
