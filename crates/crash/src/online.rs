//! The crash model while a program runs: which stores of a traced memory are not safe yet, and a crash at any moment.
//!
//! The explorer enumerates the crash states of one short run. A simulated cluster crashes whole nodes thousands of
//! times in long runs, and goes on with one possible content each time. So this tracer keeps only the lines whose
//! stores may be lost, by the rules of the `adr` profile (see the crate's head), and draws a content by a seed.
//!
//! 1. A store joins the pending list of its line; the list remembers the content below it.
//! 2. A flush marks the stores that the line has. The next fence makes them safe, and all streamed words.
//! 3. A crash keeps of each line a prefix of its ordinary stores and any subset of its streamed words, and lays that
//!    out in the memory. The program then opens it as after a power cut.
//!
//! *A crash in the middle of an operation*: [`OnlineMedium::arm`] sets a fuse. When so many events have happened, the
//! contents are drawn; whatever the operation stores after that moment is undone by [`OnlineMedium::crash`].
//!
//! One thread at a time, as for all traced memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use lodestone_pmem::{LineAddr, Memory, PmAddr, Site, TracedMemory, Tracer};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::event::Content;

#[derive(Clone, Copy, Debug)]
struct Pending {
    word: usize,
    value: u64,
    streamed: bool,
    number: u64,
}

/// A line of which stores may be lost.
#[derive(Clone, Debug)]
struct OpenLine {
    base: Content,
    pending: Vec<Pending>,
    stores: u64,
    /// Stores up to this one are safe at the next fence.
    marked: u64,
}

/// Lines that were touched and not stored to since are remembered up to so many: more than any store has.
const TOUCHED_MAX: usize = 1 << 14;

#[derive(Default)]
struct State {
    open: HashMap<LineAddr, OpenLine, FixedState>,
    /// Lists of lines that are closed, to be used again.
    spare: Vec<Vec<Pending>>,
    /// Contents of lines that were touched since the last store, the newest last: the running store finds its lines at
    /// the end.
    touched: Vec<(LineAddr, Content)>,
    /// Lines with something to settle at the next fence.
    unsettled: Vec<LineAddr>,
    fuse: Option<(u64, u64)>,
    /// Contents after the crash, once the fuse has blown.
    image: Option<BTreeMap<LineAddr, Content>>,
    lost: u64,
}

/// The tracer of a node that can crash.
#[derive(Default)]
pub struct OnlineMedium {
    state: Mutex<State>,
}

impl OnlineMedium {
    /// A medium of which nothing is pending.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the contents after `events` further stores, flushes and fences, by `seed`.
    pub fn arm(&self, events: u64, seed: u64) {
        self.lock().fuse = Some((events, seed));
    }

    /// Takes the fuse out, if it has not blown.
    pub fn disarm(&self) {
        self.lock().fuse = None;
    }

    /// Whether the fuse has blown. [`crash`](Self::crash) undoes all stores after that.
    #[must_use]
    pub fn has_blown(&self) -> bool {
        self.lock().image.is_some()
    }

    /// Makes `memory`, whose tracer this is, hold a content that a power cut may leave: of this moment, or of the
    /// moment at which the fuse blew. Returns how many stored words were lost.
    ///
    /// # Panics
    /// If `memory` is not traced.
    pub fn crash(&self, memory: &Memory, seed: u64) -> u64 {
        let mut state = self.lock();
        if state.image.is_none() {
            state.draw(seed);
        }
        let image = state.image.take().unwrap_or_default();
        let traced = memory.as_traced().expect("the memory of a node is traced");
        image.into_iter().for_each(|(line, content)| traced.poke(line, content));
        let lost = state.lost;
        *state = State::default();
        lost
    }
}

impl State {
    /// Decides which pending stores are kept.
    fn draw(&mut self, seed: u64) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // All lost and all kept are as likely as a mixture: both ends find bugs of their own.
        let bias = random.random_range(0..4_u8);
        let mut image = BTreeMap::new();
        // The order of the lines decides what is drawn for each.
        let mut lines: Vec<(&LineAddr, &OpenLine)> = self.open.iter().collect();
        lines.sort_unstable_by_key(|(line, _)| **line);
        for (line, open) in lines {
            let ordinary = open.pending.iter().filter(|store| !store.streamed).count();
            let kept = match bias {
                0 => 0,
                1 => ordinary,
                _ => random.random_range(0..=ordinary),
            };
            let mut content = open.base;
            let mut seen = 0;
            for store in &open.pending {
                let keep = if store.streamed {
                    bias == 1 || (bias != 0 && random.random::<bool>())
                } else {
                    seen += 1;
                    seen <= kept
                };
                if keep {
                    content[store.word] = store.value;
                } else {
                    self.lost += 1;
                }
            }
            image.insert(*line, content);
        }
        // Lines that the running store has touched and not reached yet.
        self.touched.iter().for_each(|(line, content)| {
            image.entry(*line).or_insert(*content);
        });
        self.image = Some(image);
    }

    fn count_event(&mut self) {
        let Some((left, seed)) = self.fuse else { return };
        if left > 0 {
            self.fuse = Some((left - 1, seed));
        } else {
            self.fuse = None;
            self.draw(seed);
        }
    }

    fn store(&mut self, at: PmAddr, words: &[u64], streamed: bool) {
        // Where the touched lines of this store begin.
        let mut touched = self.touched.iter().rposition(|(line, _)| *line == at.line()).unwrap_or(0);
        let (mut at, mut left) = (at, words);
        while !left.is_empty() {
            let first = word_of(at);
            // With a fuse in, it may blow before any word.
            let most = if self.fuse.is_some() { 1 } else { 8 - first };
            let (now, later) = left.split_at(most.min(left.len()));
            self.count_event();
            let line = at.line();
            let open = self.open.entry(line).or_insert_with(|| {
                let found = self.touched[touched..].iter().position(|(touched, _)| *touched == line);
                touched += found.expect("a line is touched before it is stored to");
                let pending = self.spare.pop().unwrap_or_default();
                OpenLine { base: self.touched[touched].1, pending, stores: 0, marked: 0 }
            });
            for (word, value) in (first..).zip(now) {
                open.stores += 1;
                open.pending.push(Pending { word, value: *value, streamed, number: open.stores });
            }
            if streamed && self.unsettled.last() != Some(&line) {
                self.unsettled.push(line);
            }
            at = at.plus(8 * now.len() as u64);
            left = later;
        }
        self.touched.clear();
    }

    fn fence(&mut self) {
        let mut unsettled = std::mem::take(&mut self.unsettled);
        for line in unsettled.drain(..) {
            let Some(open) = self.open.get_mut(&line) else { continue };
            let marked = open.marked;
            let is_safe = |store: &Pending| store.streamed || store.number <= marked;
            if !open.pending.iter().all(is_safe) {
                let mut newest = [0_u64; 8];
                for store in open.pending.iter().filter(|store| is_safe(store)) {
                    open.base[store.word] = store.value;
                    newest[store.word] = store.number;
                }
                // An older store to a word cannot overwrite a newer one that is safe.
                open.pending.retain(|store| !is_safe(store) && store.number > newest[store.word]);
                if !open.pending.is_empty() {
                    continue;
                }
            }
            if let Some(mut closed) = self.open.remove(&line) {
                closed.pending.clear();
                self.spare.push(closed.pending);
            }
        }
        self.unsettled = unsettled;
    }
}

/// The place of a word in its line.
fn word_of(at: PmAddr) -> usize {
    (at.offset() % 64 / 8) as usize
}

impl Tracer for OnlineMedium {
    fn touch(&self, memory: &TracedMemory<'_>, line: LineAddr) {
        let mut state = self.lock();
        let is_known = state.open.contains_key(&line) || state.touched.last().is_some_and(|last| last.0 == line);
        if is_known && state.image.is_none() {
            return;
        }
        let content = memory.peek(line);
        if let Some(image) = &mut state.image {
            // Nothing was pending in it at the crash.
            image.entry(line).or_insert(content);
        }
        if is_known {
            return;
        }
        if state.touched.len() == TOUCHED_MAX {
            state.touched.drain(..TOUCHED_MAX / 2);
        }
        state.touched.push((line, content));
    }

    fn store(&self, at: PmAddr, words: &[u64], _site: Site) {
        self.lock().store(at, words, false);
    }

    fn stream(&self, at: PmAddr, words: &[u64], _site: Site) {
        self.lock().store(at, words, true);
    }

    fn flush(&self, line: LineAddr, _site: Site) {
        let mut state = self.lock();
        state.count_event();
        if let Some(open) = state.open.get_mut(&line) {
            open.marked = open.stores;
            state.unsettled.push(line);
        }
    }

    fn fence(&self, _site: Site) {
        let mut state = self.lock();
        state.count_event();
        // The model of the fence: it makes safe what was flushed before.
        state.fence();
    }

    fn durable(&self, _site: Site) {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    fn medium() -> (Arc<OnlineMedium>, Memory) {
        let online = Arc::new(OnlineMedium::new());
        let memory = Memory::traced(&[vec![0; 4096]], 4096, online.clone()).expect("memory for a test");
        (online, memory)
    }

    #[test]
    fn fenced_stores_survive_and_others_are_a_prefix() {
        let mut found = BTreeSet::new();
        for seed in 0..64 {
            let (online, memory) = medium();
            let at = PmAddr::new(0, 64);
            memory.store(at, 1);
            memory.persist(at, 8);
            memory.store(at, 2);
            memory.store(at.plus(8), 3);
            online.crash(&memory, seed);
            found.insert((memory.load(at), memory.load(at.plus(8))));
        }
        assert_eq!(found, BTreeSet::from([(1, 0), (2, 0), (2, 3)]));
    }

    #[test]
    fn a_fuse_blows_between_two_words_of_a_store() {
        for events in 0..16 {
            let (online, memory) = medium();
            online.arm(events, events);
            memory.write(PmAddr::new(0, 64), &[7; 128]);
            online.crash(&memory, events);
            let is_there = |word: &u64| memory.load(PmAddr::new(0, 64 + 8 * word)) != 0;
            assert!((0..16).filter(is_there).count() as u64 <= events);
        }
    }

    #[test]
    fn a_fuse_crashes_in_the_middle_of_an_operation() {
        let mut found = BTreeSet::new();
        for events in 0..6 {
            for seed in 0..16 {
                let (online, memory) = medium();
                online.arm(events, seed);
                for line in 1..=2 {
                    memory.store(PmAddr::new(0, 64 * line), line);
                    memory.persist(PmAddr::new(0, 64 * line), 8);
                }
                assert!(online.has_blown(), "three events a line");
                online.crash(&memory, seed);
                found.insert((memory.load(PmAddr::new(0, 64)), memory.load(PmAddr::new(0, 128))));
            }
        }
        assert_eq!(found, BTreeSet::from([(0, 0), (1, 0), (1, 2)]), "the second never without the first");
    }
}
