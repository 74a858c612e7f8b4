//! The possible contents of the medium at a point of a trace: the fault model as code.
//!
//! 1. Each stored word joins the pending list of its line. Ordinary stores persist in order (a prefix), streamed words
//!    in any subset.
//! 2. A flush by thread T marks, for T, the ordinary stores that the line has at that moment. T's next fence makes
//!    marked stores and T's own streamed words certain: they move from the pending list to the base.
//! 3. The options of a line are its distinct possible contents. Each is the base, plus a prefix of the ordinary pending
//!    stores, plus a subset of the streamed ones.
//!
//! For the eADR profile only the live contents count. For the block profile the log of flushed line contents counts.
//!
//! Invariant: a line that is not in the map has the content of the baseline.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use foldhash::{HashMap, HashMapExt};
use lodestone_pmem::{LineAddr, Site};

use crate::event::{Content, Event, EventKind, ThreadId};
use crate::options::{Contents, Options};

/// Streamed words of one line that are enumerated as subsets. More words are cut into prefixes and reported as not
/// exhausted.
pub const STREAMED_SUBSET_MAX: usize = 8;

/// A stored word that may or may not have reached the medium.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Index of the word in its line.
    pub word: usize,
    /// The word.
    pub value: u64,
    /// Whether it was a streaming store.
    pub streamed: bool,
    /// The thread that stored it.
    pub thread: ThreadId,
    /// Its source position.
    pub site: Option<Site>,
    /// Number of the store among all stores to this line.
    pub number: u64,
}

/// One line.
#[derive(Clone, Debug)]
pub struct LineState {
    /// The possible contents of the line without any pending store. Open only for a line that an earlier crash left
    /// undecided and that no code has touched since.
    pub base: Options,
    /// Stores that may be lost.
    pub pending: Vec<Pending>,
    /// The content that running code sees.
    pub live: Content,
    stores: u64,
}

/// The medium at a point of a trace.
#[derive(Clone, Debug)]
pub struct Persist {
    /// The content of the medium when recording began, by part and line.
    pub baseline: Arc<Baseline>,
    /// Lines that differ from the baseline, or may differ.
    pub lines: BTreeMap<LineAddr, LineState>,
    /// Flushed line contents in order (block profile).
    pub flushed: Vec<(LineAddr, Content)>,
    /// How many of them are certain.
    pub flushed_durable: usize,
    /// Bytes of each part.
    pub part_bytes: Vec<u64>,
    marked: HashMap<(ThreadId, LineAddr), u64>,
    streamed_lines: HashMap<ThreadId, Vec<LineAddr>>,
    origin: Contents,
    /// Whether some line had more streamed words than are enumerated.
    pub cut: bool,
}

/// Contents of all lines at the start.
#[derive(Debug, Default)]
pub struct Baseline {
    /// Lines of each part.
    pub parts: Vec<Vec<Content>>,
    images: OnceLock<Vec<Vec<u8>>>,
}

impl Baseline {
    /// Contents of all lines of each part.
    #[must_use]
    pub fn new(parts: Vec<Vec<Content>>) -> Self {
        Self { parts, images: OnceLock::new() }
    }

    /// The bytes of each part.
    #[must_use]
    pub fn images(&self) -> &[Vec<u8>] {
        let bytes = |lines: &Vec<Content>| lines.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        self.images.get_or_init(|| self.parts.iter().map(bytes).collect())
    }

    /// Bytes of each part.
    #[must_use]
    pub fn part_bytes(&self) -> Vec<u64> {
        self.parts.iter().map(|lines| lines.len() as u64 * 64).collect()
    }

    /// Content of `line`; zeroes after the end of the part.
    #[must_use]
    pub fn line(&self, line: LineAddr) -> Content {
        let at = line.start();
        let part = self.parts.get(usize::from(at.part()));
        part.and_then(|lines| lines.get((at.offset() / 64) as usize)).copied().unwrap_or_default()
    }
}

impl Persist {
    /// The medium with the content of `baseline`, nothing pending.
    #[must_use]
    pub fn new(baseline: Arc<Baseline>) -> Self {
        Self {
            part_bytes: baseline.part_bytes(),
            baseline,
            lines: BTreeMap::new(),
            flushed: Vec::new(),
            flushed_durable: 0,
            marked: HashMap::new(),
            streamed_lines: HashMap::new(),
            origin: BTreeMap::new(),
            cut: false,
        }
    }

    /// The medium after a crash: lines with one content are as given, lines with several are undecided.
    #[must_use]
    pub fn crashed(baseline: Arc<Baseline>, contents: Contents, part_bytes: Vec<u64>) -> Self {
        let mut medium = Self::new(baseline);
        medium.part_bytes = part_bytes;
        medium.origin.clone_from(&contents);
        for (line, base) in contents {
            let live = base.at(0);
            medium.lines.insert(line, LineState { base, pending: Vec::new(), live, stores: 0 });
        }
        medium
    }

    fn line_mut(&mut self, line: LineAddr) -> &mut LineState {
        let baseline = &self.baseline;
        self.lines.entry(line).or_insert_with(|| {
            let content = baseline.line(line);
            LineState { base: Options::One(content), pending: Vec::new(), live: content, stores: 0 }
        })
    }

    /// The content of `line` that running code sees.
    #[must_use]
    pub fn live(&self, line: LineAddr) -> Content {
        self.lines.get(&line).map_or_else(|| self.baseline.line(line), |state| state.live)
    }

    /// Applies `event`.
    pub fn apply(&mut self, event: &Event) {
        match event.kind {
            EventKind::Store { at, value } => self.store(at, value, false, event),
            EventKind::Stream { at, value } => {
                self.store(at, value, true, event);
                // In the block domain a streamed line joins the commit group at once, with its content at that time.
                let line = at.line();
                let live = self.live(line);
                self.flushed.push((line, live));
            }
            EventKind::Flush { line } => {
                let stores = self.lines.get(&line).map_or(0, |state| state.stores);
                self.marked.insert((event.thread, line), stores);
                let live = self.live(line);
                self.flushed.push((line, live));
            }
            EventKind::Fence => self.fence(event.thread),
            EventKind::Durable => self.flushed_durable = self.flushed.len(),
            EventKind::Grow { part, bytes } => self.part_bytes[usize::from(part)] = bytes,
            EventKind::Begin { .. } | EventKind::Ack { .. } => {}
        }
    }

    fn store(&mut self, at: lodestone_pmem::PmAddr, value: u64, streamed: bool, event: &Event) {
        let word = (at.offset() % 64 / 8) as usize;
        let line = at.line();
        let state = self.line_mut(line);
        assert!(!state.base.is_open(), "a line is decided before it is stored to");
        state.live[word] = value;
        state.stores += 1;
        let number = state.stores;
        state.pending.push(Pending { word, value, streamed, thread: event.thread, site: event.site, number });
        if streamed {
            let lines = self.streamed_lines.entry(event.thread).or_default();
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
    }

    fn fence(&mut self, thread: ThreadId) {
        let marked: Vec<_> = self.marked.extract_if(|(owner, _), _| *owner == thread).collect();
        for ((_, line), number) in marked {
            self.settle(line, |store| !store.streamed && store.number <= number);
        }
        for line in self.streamed_lines.remove(&thread).unwrap_or_default() {
            self.settle(line, |store| store.streamed && store.thread == thread);
        }
    }

    /// Makes the pending stores of `line` that `certain` names part of the base.
    fn settle(&mut self, line: LineAddr, certain: impl Fn(&Pending) -> bool) {
        let Some(state) = self.lines.get_mut(&line) else { return };
        // Ordinary stores settle as a prefix: stores before a certain ordinary store in the line are certain too.
        let mut base = state.base.at(0);
        let mut settled_word = [0_u64; 8];
        for store in state.pending.iter().filter(|store| certain(store)) {
            base[store.word] = store.value;
            settled_word[store.word] = store.number;
        }
        if !state.base.is_open() {
            state.base = Options::One(base);
        }
        // An older store to a word cannot overwrite a newer one that is already in the base.
        state.pending.retain(|store| !certain(store) && store.number > settled_word[store.word]);
    }

    /// Whether a fence by `thread` would make anything certain.
    #[must_use]
    pub fn fence_matters(&self, thread: ThreadId) -> bool {
        self.streamed_lines.contains_key(&thread) || self.marked.keys().any(|(owner, _)| *owner == thread)
    }

    /// Lines with their possible contents (ADR): the first option has lost everything, the last one nothing.
    pub fn options(&mut self) -> Contents {
        let mut cut = false;
        let all = self.lines.iter().map(|(&line, state)| (line, state.contents(&mut cut)));
        let all = self.without_baseline(all);
        self.cut |= cut;
        all
    }

    /// The contents with the first `count` flushed lines and no other stores (block).
    #[must_use]
    pub fn after_flushes(&self, count: usize) -> Contents {
        let mut contents = self.origin.clone();
        contents.extend(self.flushed[..count].iter().map(|(line, content)| (*line, Options::One(*content))));
        self.without_baseline(contents.into_iter())
    }

    /// The contents with all stores (eADR).
    #[must_use]
    pub fn everything(&self) -> Contents {
        self.without_baseline(self.lines.iter().map(|(&line, state)| (line, Options::One(state.live))))
    }

    /// Leaves out the lines that certainly have the content of the baseline.
    fn without_baseline(&self, contents: impl Iterator<Item = (LineAddr, Options)>) -> Contents {
        contents.filter(|(line, options)| options.is_open() || options.at(0) != self.baseline.line(*line)).collect()
    }
}

impl LineState {
    /// The distinct contents that this line may have, nothing kept first, everything kept last.
    fn contents(&self, cut: &mut bool) -> Options {
        if self.pending.is_empty() {
            return self.base.clone();
        }
        let streamed: Vec<usize> = (0..self.pending.len()).filter(|&index| self.pending[index].streamed).collect();
        let ordinary = self.pending.len() - streamed.len();
        let free = streamed.len().min(STREAMED_SUBSET_MAX);
        *cut |= streamed.len() > free;
        let mut found: Vec<Content> = Vec::new();
        for prefix in 0..=ordinary {
            for mask in 0..1_u64 << free {
                let content = self.content(prefix, |rank| rank >= free || mask >> rank & 1 == 1);
                if !found.contains(&content) {
                    found.push(content);
                }
            }
        }
        if let Some(place) = found.iter().position(|content| *content == self.live) {
            found.remove(place);
        }
        found.push(self.live);
        Options::from_list(&found)
    }

    /// The pending stores that a content has kept: the first combination, in the order of enumeration, that produces
    /// it.
    #[must_use]
    pub fn kept(&self, content: &Content) -> Vec<bool> {
        let streamed = self.pending.iter().filter(|store| store.streamed).count();
        let (ordinary, free) = (self.pending.len() - streamed, streamed.min(STREAMED_SUBSET_MAX));
        let mut all = (0..=ordinary).flat_map(|prefix| (0..1_u64 << free).map(move |mask| (prefix, mask)));
        let by_mask = |mask: u64, rank: usize| rank >= free || mask >> rank & 1 == 1;
        let found = all.find(|(prefix, mask)| self.content(*prefix, |rank| by_mask(*mask, rank)) == *content);
        let (prefix, mask) = found.unwrap_or((0, 0));
        let (mut ordinary, mut streamed) = (0, 0);
        let keep = |store: &Pending| {
            if store.streamed {
                streamed += 1;
                by_mask(mask, streamed - 1)
            } else {
                ordinary += 1;
                ordinary <= prefix
            }
        };
        self.pending.iter().map(keep).collect()
    }

    /// The base with the first `prefix` ordinary stores and those streamed words whose rank `kept` accepts.
    fn content(&self, prefix: usize, kept: impl Fn(usize) -> bool) -> Content {
        let mut content = self.base.at(0);
        let (mut ordinary, mut streamed) = (0, 0);
        for store in &self.pending {
            let keep = if store.streamed {
                streamed += 1;
                kept(streamed - 1)
            } else {
                ordinary += 1;
                ordinary <= prefix
            };
            if keep {
                content[store.word] = store.value;
            }
        }
        content
    }
}
