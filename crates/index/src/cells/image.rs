//! A table in DRAM: how new tables are built, and old ones copied.

use lodestone_pmem::WORD_BYTES;
use lodestone_width::{exact_u32, to_u64, to_usize};

use super::key::KeyKind;
use super::line::{CHECKED_SLOTS, Meta};
use super::probe;
use super::table::{Level, TableAt};
use crate::error::Result;
use crate::medium::IndexMemory;

const LINE_WORDS: usize = 8;

/// A pair with the hash of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: u64,
    pub(crate) value: u64,
    pub(crate) hash: u64,
}

/// The present or future content of a table's place.
#[derive(Debug)]
pub(crate) struct Image {
    at: TableAt,
    metas: Vec<Meta>,
    words: Vec<[u64; LINE_WORDS]>,
    added: Vec<(u32, u64, u64)>,
}

/// All pairs of the table at `at`, with their hashes.
///
/// # Errors
/// When a line or the key of a pair is damaged.
pub(crate) fn pairs_of(at: TableAt, medium: IndexMemory<'_>, kind: KeyKind, seed: u64) -> Result<Vec<Pair>> {
    let mut pairs = Vec::with_capacity(at.shape.pairs_max());
    for line in at.lines() {
        let meta = probe::header(medium, line)?;
        for slot in meta.used() {
            let (key, value) = probe::pair(medium, line, meta, slot)?;
            pairs.push(Pair { key, value, hash: kind.hash(medium, key, seed)? });
        }
    }
    Ok(pairs)
}

impl Image {
    /// A table without pairs that will be at `at`.
    pub(crate) fn empty(at: TableAt) -> Self {
        let lines = to_usize(at.shape.all_lines());
        Self { at, metas: vec![Meta::default(); lines], words: vec![[0; LINE_WORDS]; lines], added: Vec::new() }
    }

    /// A table of `pairs` that will be at `at`, or `None` when they do not fit.
    pub(crate) fn of(at: TableAt, pairs: impl IntoIterator<Item = Pair>) -> Option<Self> {
        let mut image = Self::empty(at);
        pairs.into_iter().all(|pair| image.insert(pair)).then_some(image)
    }

    /// The content of the table at `at`, without the pairs for which `leaves` holds. No key's level is higher than it
    /// must be.
    ///
    /// # Errors
    /// When a line or the key of a pair is damaged.
    pub(crate) fn without(
        at: TableAt,
        medium: IndexMemory<'_>,
        hash: impl Fn(u64) -> Result<u64>,
        leaves: impl Fn(u64) -> bool,
    ) -> Result<Self> {
        let mut image = Self::empty(at);
        for (number, line) in at.lines().enumerate() {
            let found = probe::header(medium, line)?;
            let mut meta = found.with_level(Level::HOME);
            for slot in found.used() {
                let (key, value) = probe::pair(medium, line, found, slot)?;
                image.words[number][1 + slot] = key;
                image.words[number][1 + CHECKED_SLOTS + found.cell(slot)] = value;
                if leaves(key) {
                    meta = meta.without(slot);
                }
            }
            image.metas[number] = meta;
        }
        // Levels last: they are in the home lines.
        for number in 0..image.metas.len() {
            for slot in image.metas[number].used() {
                image.raise(hash(image.words[number][1 + slot])?, exact_u32(number));
            }
        }
        Ok(image)
    }

    /// Raises the level of a key's home so that it leads to line `line`.
    fn raise(&mut self, hash: u64, line: u32) {
        let home = self.at.shape.home(hash);
        let mut candidates = self.at.shape.candidates(home, Level::STASH);
        let level = candidates.find(|&(candidate, _)| candidate == line).map_or(Level::STASH, |(_, level)| level);
        let meta = &mut self.metas[to_usize(home.line)];
        *meta = meta.with_level(meta.level().max(level));
    }

    /// Adds a pair whose key is not there; `false` when it has no room.
    pub(crate) fn insert(&mut self, pair: Pair) -> bool {
        let home = self.at.shape.home(pair.hash);
        let place = self
            .at
            .shape
            .candidates(home, Level::STASH)
            .find_map(|(line, level)| Some((line, level, self.metas[to_usize(line)].free_slot()?)));
        let Some((number, level, slot)) = place else { return false };
        let (line, meta) = (self.at.line(number), &mut self.metas[to_usize(number)]);
        let cell = meta.free_cell();
        *meta = meta.with(slot, cell, line.pair_check(pair.key, pair.value));
        self.words[to_usize(number)][1 + slot] = pair.key;
        self.words[to_usize(number)][1 + CHECKED_SLOTS + cell] = pair.value;
        let offset = |word: usize| to_u64(word) * WORD_BYTES;
        self.added.push((number, offset(1 + slot), pair.key));
        self.added.push((number, offset(1 + CHECKED_SLOTS + cell), pair.value));
        let home = &mut self.metas[to_usize(home.line)];
        *home = home.with_level(home.level().max(level));
        true
    }

    /// The words of the pairs that were added: number of the line, offset in it, and the word.
    pub(crate) fn added(&self) -> &[(u32, u64, u64)] {
        &self.added
    }

    /// Its present or future place.
    pub(crate) fn at(&self) -> TableAt {
        self.at
    }

    /// The header word of each line.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.metas.iter().enumerate().map(|(number, meta)| {
            let number = exact_u32(number);
            (number, self.at.line(number).encode(*meta))
        })
    }

    /// The bytes of the table.
    pub(crate) fn append_bytes(&self, out: &mut Vec<u8>) {
        out.reserve(self.words.len() * LINE_WORDS * to_usize(WORD_BYTES));
        for (number, header) in self.headers() {
            out.extend_from_slice(&header.to_le_bytes());
            for word in &self.words[to_usize(number)][1..] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
    }
}
