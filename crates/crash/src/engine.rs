//! The engine: runs a target once, then visits the crash states of its trace and judges each.
//!
//! 1. Prepare and take the baseline; run the operations and record the trace.
//! 2. Between two boundaries the set of possible images only grows, and no event loosens the verdict. So it is enough
//!    to visit the end of each segment. In the ADR profile, boundaries are a fence that makes something certain, the
//!    beginning of an operation, and the end. In the eADR profile they are every store, and in the block profile every
//!    wait for durability.
//! 3. At a visit, choose states by the mode ([`crate::choose`]). Lay each out, recover it under the recorder, and judge
//!    it.
//! 4. Crash the recovery the same way, to the configured depth, with the same history: recovery may crash inside
//!    itself.
//!
//! Images that were judged before under the same history at the same or a lesser depth are skipped. So are visits with
//! the same open choices. The reading-driven mode also skips runs that would read the same as an earlier one
//! ([`crate::memo`]).
//!
//! Invariant: `states` counts recoveries that really ran and were judged.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use lodestone_pmem::LineAddr;

use crate::choose;
use crate::config::{Config, Mode, Profile};
use crate::event::{CallKind, Event, EventKind, SiteKey};
use crate::history::History;
use crate::medium::CrashMedium;
use crate::memo::{Known, Memo};
use crate::mixer::Mixer;
use crate::mutation::Mutation;
use crate::options::{Contents, Options};
use crate::persist::{Baseline, Persist};
use crate::quiet::catch;
use crate::recorder::Decision;
use crate::target::{Outcome, Target};
use crate::token::{Crash, Kept};

/// This many states that need no run count as one against the bound.
const SAME_PER_STATE: u64 = 32;

/// A violation before shrinking.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) ops: Vec<usize>,
    pub(crate) crashes: Vec<Crash>,
    pub(crate) message: String,
}

/// One recovery that ran.
pub(crate) struct Recovery {
    pub(crate) trace: Rc<Vec<Event>>,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) decided_in_recovery: usize,
    pub(crate) read_in_recovery: usize,
    pub(crate) verdict: Outcome,
}

/// A point at which states are chosen: the event that follows, and the facts known there.
struct Visit<'a> {
    at: usize,
    history: &'a History,
    path: &'a [Crash],
    part_bytes: &'a [u64],
}

/// The findings and the coverage of one exploration.
#[derive(Default)]
pub(crate) struct Covered {
    pub(crate) states: u64,
    pub(crate) states_nested: u64,
    pub(crate) states_same: u64,
    pub(crate) unsteady: u64,
    pub(crate) points: u64,
    pub(crate) events: usize,
    pub(crate) recovery_accesses: u64,
    pub(crate) exhausted: bool,
    pub(crate) found: Vec<Found>,
    pub(crate) sites: BTreeSet<(CallKind, SiteKey)>,
}

pub(crate) struct Engine<'a> {
    target: &'a dyn Target,
    config: &'a Config,
    medium: Arc<CrashMedium>,
    baseline: Arc<Baseline>,
    seen: HashMap<u128, u32>,
    memo: Memo,
    covered: Covered,
    ops: Vec<usize>,
    stopped: bool,
    /// In the representative mode: the number of states at which the present crash point of the run has had its share.
    share_end: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> Engine<'a> {
    /// Prepares the target's medium.
    pub(crate) fn new(
        target: &'a dyn Target,
        config: &'a Config,
        mutation: Option<&Mutation>,
        progress: &'a mut dyn FnMut(u64),
    ) -> Outcome<Self> {
        let medium = Arc::new(CrashMedium::new(target.options(), mutation.cloned())?);
        catch(|| target.prepare(&medium))?;
        let baseline = Arc::new(medium.baseline());
        let covered = Covered { exhausted: true, ..Covered::default() };
        let (seen, ops) = (HashMap::new(), Vec::new());
        let memo = Memo::default();
        Ok(Self {
            target,
            config,
            medium,
            baseline,
            seen,
            memo,
            covered,
            ops,
            stopped: false,
            share_end: u64::MAX,
            progress,
        })
    }

    /// Runs the operations without a crash and returns the trace. A failure is itself a violation.
    pub(crate) fn record(&mut self, ops: &[usize]) -> (Vec<Event>, Outcome) {
        self.ops = ops.to_vec();
        let target = self.target;
        self.record_run(|medium| target.run(medium, ops))
    }

    /// Records the effects of `run` on the medium.
    pub(crate) fn record_run(&mut self, run: impl FnOnce(&Arc<CrashMedium>) -> Outcome) -> (Vec<Event>, Outcome) {
        self.medium.recorder().start(&self.baseline.part_bytes(), HashMap::new(), &[], u64::MAX);
        let outcome = catch(|| run(&self.medium));
        let trace = self.medium.recorder().stop();
        self.covered.events = trace.len();
        (trace, outcome)
    }

    /// Explores the run of `ops`.
    pub(crate) fn explore(mut self, ops: &[usize]) -> Covered {
        let (trace, outcome) = self.record(ops);
        self.explore_run(&trace, outcome);
        self.covered
    }

    /// Explores the run that produced `trace` and `outcome`.
    pub(crate) fn explore_run(&mut self, trace: &[Event], outcome: Outcome) {
        match outcome {
            Err(why) => {
                let message = why.to_string();
                self.covered.found.push(Found { ops: self.ops.clone(), crashes: Vec::new(), message });
                self.covered.exhausted = false;
            }
            Ok(()) => {
                self.memo.note_stores(trace);
                self.medium.recorder().watch(self.memo.varying());
                self.explore_trace(Persist::new(self.baseline.clone()), trace, History::default(), &[]);
            }
        }
        self.covered.sites = self.medium.recorder().sites();
    }

    #[cfg(feature = "shuttle")]
    pub(crate) fn covered(&self) -> &Covered {
        &self.covered
    }

    fn explore_trace(&mut self, mut persist: Persist, trace: &[Event], mut history: History, path: &[Crash]) {
        if !path.is_empty()
            && !trace.iter().any(|event| matches!(event.kind, EventKind::Store { .. } | EventKind::Stream { .. }))
        {
            return;
        }
        let mut shares = self.points_that_share(trace, path);
        for (at, event) in trace.iter().enumerate() {
            // The other points of a run have shares of their own.
            if self.stopped || (self.is_over() && !path.is_empty()) {
                return;
            }
            if self.is_boundary(&persist, event) {
                self.begin_share(&mut shares);
                self.visit_at(&mut persist, at, &history, path);
            }
            persist.apply(event);
            history.apply(event);
        }
        self.begin_share(&mut shares);
        if !self.is_over() {
            self.visit_at(&mut persist, trace.len(), &history, path);
        }
        self.covered.exhausted &= !persist.cut;
    }

    /// The crash points of the run that share the bound, so that a sample has states of each of them. 0: they do not.
    /// The modes that judge every state go on from the first point to where the bound ends.
    fn points_that_share(&self, trace: &[Event], path: &[Crash]) -> u64 {
        if self.config.mode != Mode::Representative || !path.is_empty() {
            return 0;
        }
        let mut persist = Persist::new(self.baseline.clone());
        let is_point = |event: &&Event| {
            let is_point = self.is_boundary(&persist, event);
            persist.apply(event);
            is_point
        };
        // And the end.
        trace.iter().filter(is_point).count() as u64 + 1
    }

    /// Gives the next of `points` crash points its share of the states that are left.
    fn begin_share(&mut self, points: &mut u64) {
        if *points > 0 {
            let left = self.config.states_max_of(self.target).saturating_sub(self.covered.states);
            self.share_end = self.covered.states.saturating_add(left.div_ceil(*points).max(1));
            *points -= 1;
        }
    }

    /// Whether the exploration, or that of the present crash point of the run, ends here.
    fn is_over(&self) -> bool {
        self.stopped || self.covered.states >= self.share_end
    }

    fn is_boundary(&self, persist: &Persist, event: &Event) -> bool {
        match (self.config.profile, event.kind) {
            (_, EventKind::Begin { .. }) => true,
            (Profile::Adr, EventKind::Fence) => persist.fence_matters(event.thread),
            (Profile::Eadr, EventKind::Store { .. } | EventKind::Stream { .. }) => true,
            (Profile::Block, EventKind::Durable) => true,
            _ => false,
        }
    }

    fn visit_at(&mut self, persist: &mut Persist, at: usize, history: &History, path: &[Crash]) {
        let part_bytes = persist.part_bytes.clone();
        let visit = &Visit { at, history, path, part_bytes: &part_bytes };
        self.covered.points += 1;
        match self.config.profile {
            Profile::Adr => self.visit_adr(persist, visit),
            Profile::Eadr => {
                self.judge(persist.everything(), visit, Crash { at: visit.at, kept: Kept::Everything });
            }
            Profile::Block => {
                for count in persist.flushed_durable..=persist.flushed.len() {
                    let crash = Crash { at: visit.at, kept: Kept::Flushes(count) };
                    self.judge(persist.after_flushes(count), visit, crash);
                    if self.is_over() {
                        return;
                    }
                }
            }
        }
    }

    fn visit_adr(&mut self, persist: &mut Persist, visit: &Visit<'_>) {
        let options = persist.options();
        if self.seen_before(&options, visit, true) {
            return;
        }
        match self.config.mode {
            Mode::Exhaustive => self.exhaust(&options, visit),
            Mode::Reading => self.read_driven(&options, visit),
            Mode::Representative => {
                let seed = self.config.seed ^ (visit.at as u64) << 8 ^ visit.path.len() as u64;
                for choice in choose::representative(&options, seed) {
                    self.judge_choice(&options, &choice, visit);
                    if self.is_over() {
                        return;
                    }
                }
            }
        }
    }

    /// Every combination of options, as an odometer over the undecided lines.
    fn exhaust(&mut self, options: &Contents, visit: &Visit<'_>) {
        let open: Vec<(LineAddr, usize)> =
            options.iter().filter(|(_, all)| all.is_open()).map(|(&line, all)| (line, all.count())).collect();
        let mut wheel = vec![0; open.len()];
        loop {
            let choice = open.iter().zip(&wheel).map(|((line, _), &taken)| (*line, taken)).collect();
            self.judge_choice(options, &choice, visit);
            if self.stopped {
                return;
            }
            let Some(turn) = (0..wheel.len()).find(|&index| wheel[index] + 1 < open[index].1) else { return };
            wheel[turn] += 1;
            wheel[..turn].fill(0);
        }
    }

    fn judge_choice(&mut self, options: &Contents, choice: &BTreeMap<LineAddr, usize>, visit: &Visit<'_>) {
        let contents = choose::decide(options, choice);
        self.judge(contents, visit, Crash { at: visit.at, kept: choose::kept(options, choice) });
    }

    /// Judges a state whose lines are all decided, then crashes its recovery.
    fn judge(&mut self, contents: Contents, visit: &Visit<'_>, crash: Crash) {
        if self.seen_before(&contents, visit, false) || !self.take_state(visit.path) {
            return;
        }
        let recovery = self.recover(&contents, visit.part_bytes, &[], visit.history);
        self.after(&recovery, contents, visit, crash);
    }

    /// Runs recovery over and over, each time along the next path of decisions about the lines that it reads. Paths
    /// that an earlier run read the same way are walked without running.
    fn read_driven(&mut self, options: &Contents, visit: &Visit<'_>) {
        let mut plan: Vec<usize> = Vec::new();
        loop {
            if !self.take_state(visit.path) {
                return;
            }
            let recovery = self.recover_unless_known(options, &plan, visit);
            let contents = Memo::decide(options, &recovery.decisions[..recovery.decided_in_recovery]);
            let choice = recovery.decisions.iter().map(|decision| (decision.line, decision.taken)).collect();
            self.after(&recovery, contents, visit, Crash { at: visit.at, kept: choose::kept(options, &choice) });
            let mut decisions = recovery.decisions;
            while decisions.last().is_some_and(|last| last.taken + 1 == last.options) {
                decisions.pop();
            }
            let Some(last) = decisions.last_mut() else { return };
            last.taken += 1;
            if self.stopped {
                return;
            }
            plan = decisions.iter().map(|decision| decision.taken).collect();
        }
    }

    fn recover_unless_known(&mut self, options: &Contents, plan: &[usize], visit: &Visit<'_>) -> Recovery {
        let mut hasher = DefaultHasher::new();
        (visit.history, visit.part_bytes).hash(&mut hasher);
        let root = hasher.finish();
        let wants_trace = (visit.path.len() as u32) < self.nested_depth();
        if let Some(Known { trace, decisions, decided_in_recovery }) =
            self.memo.find(root, options, &self.baseline, plan, wants_trace)
        {
            self.forget_state(visit.path);
            return Recovery { trace, decisions, decided_in_recovery, read_in_recovery: 0, verdict: Ok(()) };
        }
        let recovery = self.recover(options, visit.part_bytes, plan, visit.history);
        if self.memo.note_stores(&recovery.trace) {
            self.medium.recorder().watch(self.memo.varying());
        } else if recovery.verdict.is_ok() {
            let reads = self.medium.recorder().take_reads();
            let known =
                self.memo.add(root, &reads, wants_trace.then(|| recovery.trace.clone()), recovery.read_in_recovery);
            self.covered.unsteady += u64::from(!known);
        }
        recovery
    }

    fn after(&mut self, recovery: &Recovery, contents: Contents, visit: &Visit<'_>, crash: Crash) {
        let mut crashes = visit.path.to_vec();
        crashes.push(crash);
        if let Err(why) = &recovery.verdict {
            self.covered.found.push(Found { ops: self.ops.clone(), crashes, message: why.to_string() });
            if self.covered.found.len() >= self.config.violations_max {
                self.stopped = true;
                self.covered.exhausted = false;
            }
        } else if (visit.path.len() as u32) < self.nested_depth() {
            let persist = Persist::crashed(self.baseline.clone(), contents, visit.part_bytes.to_vec());
            self.explore_trace(persist, &recovery.trace, visit.history.clone(), &crashes);
        }
    }

    /// Lays out a state, recovers and judges it.
    pub(crate) fn recover(
        &mut self,
        contents: &Contents,
        part_bytes: &[u64],
        plan: &[usize],
        history: &History,
    ) -> Recovery {
        let laid_out = self.medium.lay_out(&self.baseline, contents, part_bytes);
        let open = contents.iter().filter(|(_, options)| options.is_open());
        let undecided = open.map(|(&line, options)| (line, options.clone())).collect();
        let recorder = self.medium.recorder();
        recorder.start(part_bytes, undecided, plan, self.target.recovery_accesses_max());
        let recovered = laid_out.and_then(|()| catch(|| self.target.recover(&self.medium)));
        self.covered.recovery_accesses = self.covered.recovery_accesses.max(recorder.accesses());
        let trace = Rc::new(recorder.stop());
        let decided_in_recovery = recorder.decided();
        let read_in_recovery = recorder.reads();
        let (verdict, recovered) = match recovered {
            Err(why) => (Err(why), None),
            Ok(mut recovered) => (catch(|| recovered.judge(history)), Some(recovered)),
        };
        let decisions = recorder.end();
        // Closing is not part of the state that was judged, and a panic in it would hide the verdict.
        let closed = catch(|| {
            drop(recovered);
            Ok(())
        });
        Recovery { trace, decisions, decided_in_recovery, read_in_recovery, verdict: verdict.and(closed) }
    }

    pub(crate) fn baseline(&self) -> &Arc<Baseline> {
        &self.baseline
    }

    /// Uncounts a state that needed no run.
    fn forget_state(&mut self, path: &[Crash]) {
        self.covered.states -= 1;
        self.covered.states_nested -= u64::from(!path.is_empty());
        self.covered.states_same += 1;
    }

    /// Depth to which crashes inside recovery are explored.
    fn nested_depth(&self) -> u32 {
        self.config.nested_depth_of(self.target)
    }

    fn take_state(&mut self, path: &[Crash]) -> bool {
        // A state that needs no run costs little, but not nothing.
        let states_max = self.config.states_max_of(self.target);
        self.stopped |= self.covered.states + self.covered.states_same / SAME_PER_STATE >= states_max;
        if self.is_over() {
            self.covered.exhausted = false;
            return false;
        }
        self.covered.states += 1;
        self.covered.states_nested += u64::from(!path.is_empty());
        if self.covered.states.is_multiple_of(256) {
            (self.progress)(self.covered.states);
        }
        true
    }

    /// Whether these contents were explored under this history at this depth or a lesser one. Remembers them.
    fn seen_before(&mut self, contents: &Contents, visit: &Visit<'_>, open: bool) -> bool {
        let depth = visit.path.len() as u32;
        let mut hasher = Mixer::new();
        (open, visit.history, visit.part_bytes).hash(&mut hasher);
        // Lines with the content of the baseline make the same state as lines that are not named.
        let differ =
            |(line, options): &(&LineAddr, &Options)| options.is_open() || options.at(0) != self.baseline.line(**line);
        for (line, options) in contents.iter().filter(differ) {
            (line, options).hash(&mut hasher);
        }
        let key = hasher.wide();
        match self.seen.entry(key) {
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                let seen = *entry.get() <= depth;
                if !seen {
                    entry.insert(depth);
                }
                seen
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(depth);
                false
            }
        }
    }
}
