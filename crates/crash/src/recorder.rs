//! The tracer of the explorer: records events, decides undecided lines at first touch, and applies a mutation.
//!
//! It is in one of three phases:
//! 1. *off*: nothing is recorded (setting up, judging, closing);
//! 2. *recording*: events are appended;
//! 3. either of the two with *undecided lines*. The first touch of such a line takes the next decision from the plan,
//!    or option 0 after the end of the plan. The option is written to memory before the access continues. The list of
//!    decisions taken is the path that the explorer backtracks over.
//!
//! Invariants:
//! - one thread runs at a time (the contract of traced memory), so the lock is never contended;
//! - no lock is held while a panic leaves this file;
//! - a limit on accesses ends endless recoveries with a panic that names the limit.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::{HashMap, HashSet};
use lodestone_pmem::{LineAddr, Memory, PmAddr, Site, TracedMemory, Tracer};

use crate::event::{CallKind, Content, Event, EventKind, SiteKey, ThreadId};
use crate::mutation::{Change, Mutation};
use crate::options::Options;

/// A decision about an undecided line: which option it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The line.
    pub line: LineAddr,
    /// Index of the option taken.
    pub taken: usize,
    /// Number of options there were.
    pub options: usize,
}

#[derive(Default)]
struct State {
    recording: bool,
    events: Vec<Event>,
    undecided: HashMap<LineAddr, Options>,
    plan: Vec<usize>,
    decisions: Vec<Decision>,
    dirty: Vec<LineAddr>,
    accesses: u64,
    accesses_max: u64,
    mutation: Option<Mutation>,
    late_flushes: Vec<(ThreadId, LineAddr, Site)>,
    late_fences: Vec<(ThreadId, Site)>,
    sites: BTreeSet<(CallKind, SiteKey)>,
    sites_known: HashSet<(CallKind, usize)>,
    threads: Vec<u64>,
    part_bytes: Vec<u64>,
    varying: HashMap<LineAddr, u64>,
    run: u64,
    noting: bool,
    reads: Vec<(LineAddr, Content)>,
}

/// Records the events of traced memory. See the module text.
pub struct Recorder {
    state: Mutex<State>,
}

impl Recorder {
    /// A recorder that is off.
    #[must_use]
    pub fn new(mutation: Option<Mutation>) -> Self {
        Self { state: Mutex::new(State { mutation, accesses_max: u64::MAX, ..State::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts recording with an empty trace, and with lines that are decided at first touch along `plan`.
    pub fn start(&self, part_bytes: &[u64], undecided: HashMap<LineAddr, Options>, plan: &[usize], accesses_max: u64) {
        let mut state = self.lock();
        state.part_bytes = part_bytes.to_vec();
        state.recording = true;
        state.events.clear();
        state.late_flushes.clear();
        state.late_fences.clear();
        state.undecided = undecided;
        state.plan.clear();
        state.plan.extend_from_slice(plan);
        state.decisions.clear();
        state.accesses = 0;
        state.accesses_max = accesses_max;
        state.reads.clear();
        state.run += 1;
        state.noting = true;
    }

    /// From the next start on, notes the first touches of these lines.
    pub fn watch(&self, lines: &HashSet<LineAddr>) {
        self.lock().varying = lines.iter().map(|line| (*line, 0)).collect();
    }

    /// The watched lines that were touched since the start, in order of first touch, with their contents.
    pub fn take_reads(&self) -> Vec<(LineAddr, Content)> {
        std::mem::take(&mut self.lock().reads)
    }

    /// Stops recording and returns the trace. Undecided lines are still decided at first touch.
    pub fn stop(&self) -> Vec<Event> {
        let mut state = self.lock();
        state.recording = false;
        state.accesses_max = u64::MAX;
        // A call that was to come late but found no neighbour never came.
        state.late_flushes.clear();
        state.late_fences.clear();
        std::mem::take(&mut state.events)
    }

    /// Ends the decisions too, and returns them in the order in which they were taken.
    pub fn end(&self) -> Vec<Decision> {
        let mut state = self.lock();
        state.recording = false;
        state.accesses_max = u64::MAX;
        state.undecided.clear();
        // Closing the structure is not part of the run.
        state.noting = false;
        std::mem::take(&mut state.decisions)
    }

    /// Number of decisions taken so far.
    pub fn decided(&self) -> usize {
        self.lock().decisions.len()
    }

    /// Number of watched lines touched so far.
    pub fn reads(&self) -> usize {
        self.lock().reads.len()
    }

    /// Accesses (loads, stores, flushes, fences) since the start.
    pub fn accesses(&self) -> u64 {
        self.lock().accesses
    }

    /// Lines whose content in memory may differ from the content laid out. Clears the list.
    pub fn take_dirty(&self) -> Vec<LineAddr> {
        std::mem::take(&mut self.lock().dirty)
    }

    pub(crate) fn note_dirty(&self, lines: impl Iterator<Item = LineAddr>) {
        self.lock().dirty.extend(lines);
    }

    /// Every site that executed a flush, fence or streaming store while recording.
    pub fn sites(&self) -> BTreeSet<(CallKind, SiteKey)> {
        self.lock().sites.clone()
    }

    /// Writes a mark of the application into the trace.
    pub fn mark(&self, kind: EventKind) {
        let mut state = self.lock();
        if state.recording {
            let thread = state.thread();
            state.push(kind, thread, None);
        }
    }

    fn access(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.accesses += 1;
        if state.accesses > state.accesses_max {
            let limit = state.accesses_max;
            state.accesses_max = u64::MAX;
            state.recording = false;
            drop(state);
            panic!("recovery made more than {limit} accesses to the medium: it is not bounded");
        }
        state
    }

    fn stored(&self, at: PmAddr, words: &[u64], streamed: bool, site: Site) {
        let mut state = self.access();
        for line in lodestone_pmem::lines_of(at, words.len() as u64 * 8) {
            state.dirty.push(line);
        }
        if !state.recording {
            return;
        }
        let thread = state.thread();
        let mut streamed = streamed;
        if streamed {
            state.know_site(CallKind::Stream, site);
            streamed = state.change_at(CallKind::Stream, site) != Some(Change::Drop);
        }
        for (index, &value) in words.iter().enumerate() {
            let at = at.plus(index as u64 * 8);
            let kind = if streamed { EventKind::Stream { at, value } } else { EventKind::Store { at, value } };
            state.push(kind, thread, Some(site));
        }
        state.release_late_fences(thread);
    }
}

impl State {
    fn push(&mut self, kind: EventKind, thread: ThreadId, site: Option<Site>) {
        self.events.push(Event { kind, thread, site });
    }

    fn note_read(&mut self, memory: &TracedMemory<'_>, line: LineAddr) {
        let run = self.run;
        if let Some(seen) = self.varying.get_mut(&line)
            && *seen != run
        {
            *seen = run;
            self.reads.push((line, memory.peek(line)));
        }
    }

    fn note_length(&mut self, part: u16, memory: &Memory) {
        let bytes = memory.part_len(part);
        if self.part_bytes.get(usize::from(part)).is_some_and(|known| *known != bytes) {
            self.part_bytes[usize::from(part)] = bytes;
            let thread = self.thread();
            self.push(EventKind::Grow { part, bytes }, thread, None);
        }
    }

    fn know_site(&mut self, call: CallKind, site: Site) {
        // The address of a location is stable, but the key costs an allocation, so it is built once per location.
        if self.sites_known.insert((call, std::ptr::from_ref(site) as usize)) {
            self.sites.insert((call, SiteKey::of(site)));
        }
    }

    fn change_at(&self, call: CallKind, site: Site) -> Option<Change> {
        let mutation = self.mutation.as_ref()?;
        (mutation.call == call && mutation.site.is(site)).then_some(mutation.change)
    }

    fn thread(&mut self) -> ThreadId {
        let raw = current_thread();
        let known = self.threads.iter().position(|&known| known == raw);
        known.unwrap_or_else(|| {
            self.threads.push(raw);
            self.threads.len() - 1
        }) as ThreadId
    }

    fn release_late_fences(&mut self, thread: ThreadId) {
        if self.late_fences.is_empty() {
            return;
        }
        let late = std::mem::take(&mut self.late_fences);
        for (owner, site) in late {
            if owner == thread {
                self.push_fence(thread, site);
            } else {
                self.late_fences.push((owner, site));
            }
        }
    }

    /// Position of the thread's last flush or streamed word since its last fence. An early fence would come before it.
    fn last_write_back(&self, thread: ThreadId) -> Option<usize> {
        let back = self.events.iter().enumerate().rev().filter(|(_, event)| event.thread == thread);
        let mut back = back.take_while(|(_, event)| event.kind != EventKind::Fence);
        back.find(|(_, event)| matches!(event.kind, EventKind::Flush { .. } | EventKind::Stream { .. }))
            .map(|(place, _)| place)
    }

    fn push_fence(&mut self, thread: ThreadId, site: Site) {
        self.push(EventKind::Fence, thread, Some(site));
        let late = std::mem::take(&mut self.late_flushes);
        for (owner, line, site) in late {
            if owner == thread {
                self.push(EventKind::Flush { line }, thread, Some(site));
            } else {
                self.late_flushes.push((owner, line, site));
            }
        }
    }
}

impl Tracer for Recorder {
    fn touch(&self, memory: &TracedMemory<'_>, line: LineAddr) {
        let mut state = self.access();
        if state.recording {
            state.note_length(line.start().part(), memory.memory());
        }
        if !state.undecided.is_empty()
            && let Some(options) = state.undecided.remove(&line)
        {
            let taken = state.plan.get(state.decisions.len()).copied().unwrap_or(0).min(options.count() - 1);
            state.decisions.push(Decision { line, taken, options: options.count() });
            state.dirty.push(line);
            memory.poke(line, options.at(taken));
        }
        if state.noting {
            state.note_read(memory, line);
        }
    }

    fn store(&self, at: PmAddr, words: &[u64], site: Site) {
        self.stored(at, words, false, site);
    }

    fn stream(&self, at: PmAddr, words: &[u64], site: Site) {
        self.stored(at, words, true, site);
    }

    fn flush(&self, line: LineAddr, site: Site) {
        let mut state = self.access();
        if !state.recording {
            return;
        }
        let thread = state.thread();
        state.know_site(CallKind::Flush, site);
        match state.change_at(CallKind::Flush, site) {
            Some(Change::Drop) => {}
            Some(_) => state.late_flushes.push((thread, line, site)),
            None => state.push(EventKind::Flush { line }, thread, Some(site)),
        }
    }

    fn fence(&self, site: Site) {
        let mut state = self.access();
        if !state.recording {
            return;
        }
        let thread = state.thread();
        state.know_site(CallKind::Fence, site);
        match state.change_at(CallKind::Fence, site) {
            Some(Change::Drop) => {}
            Some(Change::Late) => state.late_fences.push((thread, site)),
            Some(Change::Early) => match state.last_write_back(thread) {
                Some(place) => {
                    state.events.insert(place, Event { kind: EventKind::Fence, thread, site: Some(site) });
                }
                None => state.push_fence(thread, site),
            },
            None => state.push_fence(thread, site),
        }
    }

    fn durable(&self, site: Site) {
        let mut state = self.access();
        if state.recording {
            let thread = state.thread();
            state.push(EventKind::Durable, thread, Some(site));
        }
    }
}

/// A number for the running thread: from the deterministic scheduler if there is one, else from the process.
fn current_thread() -> u64 {
    #[cfg(feature = "shuttle")]
    {
        usize::from(lodestone_pmem::sync::thread::current().id()) as u64
    }
    #[cfg(not(feature = "shuttle"))]
    {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        thread_local! { static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed); }
        MINE.with(|mine| *mine)
    }
}
