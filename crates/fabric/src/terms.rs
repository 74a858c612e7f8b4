//! Which term made which record: runs of sequences, enough to compare two logs.
//!
//! Invariant: two logs that hold a record of the same term at one sequence are equal up to there. A term has one
//! sender, and a member exposes in order what that sender's log has. So the longest common prefix of two logs ends at
//! the last sequence at which their terms agree.

use lodestone_pmem::planted;

use crate::ids::{Sequence, Term};

/// Most runs that are kept and sent. Older ones are given up: what is so old is stable everywhere.
pub const RUNS_MAX: usize = 64;

/// The terms of a log from `base` on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    base: Sequence,
    base_term: Term,
    /// Last sequence of each run, in order.
    runs: Vec<(Term, Sequence)>,
}

impl Terms {
    /// A log that begins after `base`, whose term is known.
    #[must_use]
    pub const fn starting(base: Sequence, base_term: Term) -> Self {
        Self { base, base_term, runs: Vec::new() }
    }

    /// From its parts, as they came over the network. `None` unless the runs rise.
    #[must_use]
    pub fn from_parts(base: Sequence, base_term: Term, runs: Vec<(Term, Sequence)>) -> Option<Self> {
        let mut last = (base_term, base);
        for run in &runs {
            if run.0 < last.0 || run.1 <= last.1 {
                return None;
            }
            last = *run;
        }
        (runs.len() <= RUNS_MAX && last.1 < Sequence::MAX).then_some(Self { base, base_term, runs })
    }

    /// The sequence after which the log is known, and its term.
    #[must_use]
    pub const fn base(&self) -> (Sequence, Term) {
        (self.base, self.base_term)
    }

    /// The runs.
    #[must_use]
    pub fn runs(&self) -> &[(Term, Sequence)] {
        &self.runs
    }

    /// The last record and its term.
    #[must_use]
    pub fn last(&self) -> (Term, Sequence) {
        self.runs.last().copied().unwrap_or((self.base_term, self.base))
    }

    /// The order of logs: a later term is better, then a longer log. Longer alone is not: records of a sender that was
    /// replaced may have reached many members, and a later one may have acknowledged others in their places.
    #[must_use]
    pub fn rank(&self) -> (Term, Sequence) {
        let (term, last) = self.last();
        if planted::active("fabric-longest-log-wins") { (Term(0), last) } else { (term, last) }
    }

    /// The term of `sequence`, if it is known.
    #[must_use]
    pub fn term_of(&self, sequence: Sequence) -> Option<Term> {
        if sequence == self.base {
            return Some(self.base_term);
        }
        let index = self.runs.partition_point(|run| run.1 < sequence);
        self.runs.get(index).filter(|_| sequence > self.base).map(|run| run.0)
    }

    /// Adds the next record.
    pub fn push(&mut self, term: Term) {
        let next = self.last().1.next();
        match self.runs.last_mut() {
            Some(run) if run.0 == term => run.1 = next,
            _ => self.runs.push((term, next)),
        }
        if self.runs.len() > RUNS_MAX {
            let (term, last) = self.runs.remove(0);
            (self.base, self.base_term) = (last, term);
        }
    }

    /// Takes away what comes after `last`.
    pub fn cut(&mut self, last: Sequence) {
        let keep = self.runs.partition_point(|run| run.1 < last);
        self.runs.truncate(keep + 1);
        if let Some(run) = self.runs.get_mut(keep) {
            run.1 = run.1.min(last);
        }
        if last <= self.base {
            self.runs.clear();
        }
    }

    /// Forgets what comes before `base`, of which all but the term at `base` is not needed any more.
    pub fn forget_below(&mut self, base: Sequence) {
        if let Some(term) = self.term_of(base).filter(|_| base > self.base) {
            let done = self.runs.partition_point(|run| run.1 <= base);
            self.runs.drain(..done);
            (self.base, self.base_term) = (base, term);
        }
    }

    /// The last sequence up to which both logs are equal. `None` if they have no known sequence in common: then one of
    /// them lacks records that the other has given up, or has others in their places.
    #[must_use]
    pub fn common(&self, other: &Self) -> Option<Sequence> {
        let from = self.base.max(other.base);
        let mut at = self.last().1.min(other.last().1);
        if at < from {
            return None;
        }
        // Steps over runs, not over sequences: the term changes at the ends of runs alone.
        loop {
            let (mine, theirs) = (self.term_of(at)?, other.term_of(at)?);
            if mine == theirs {
                return Some(at);
            }
            if at == from {
                return None;
            }
            let larger = if mine > theirs { self } else { other };
            at = larger.start_of_run(at).before().max(from);
        }
    }

    fn start_of_run(&self, sequence: Sequence) -> Sequence {
        let index = self.runs.partition_point(|run| run.1 < sequence);
        if sequence <= self.base {
            return self.base;
        }
        index.checked_sub(1).and_then(|before| self.runs.get(before)).map_or(self.base, |run| run.1).next()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(terms: &[u32]) -> Terms {
        let mut all = Terms::default();
        terms.iter().for_each(|term| all.push(Term(*term)));
        all
    }

    #[test]
    fn a_log_knows_its_terms() {
        let mut log = of(&[1, 1, 2, 2, 4]);
        assert_eq!(log.last(), (Term(4), Sequence(5)));
        assert_eq!(log.term_of(Sequence(2)), Some(Term(1)));
        assert_eq!(log.term_of(Sequence(6)), None);
        log.cut(Sequence(3));
        assert_eq!(log.last(), (Term(2), Sequence(3)));
        log.forget_below(Sequence(2));
        assert_eq!((log.base(), log.last()), ((Sequence(2), Term(1)), (Term(2), Sequence(3))));
        log.cut(Sequence(2));
        assert_eq!(log.last(), (Term(1), Sequence(2)));
    }

    #[test]
    fn logs_that_differ_below_a_base_have_nothing_in_common() {
        let mut newer = of(&[1, 1, 3, 3, 3]);
        newer.forget_below(Sequence(4));
        let older = of(&[1, 1, 2, 2, 2, 2]);
        assert_eq!(older.common(&newer), None);
        assert_eq!(newer.common(&of(&[1, 1, 3, 3])), Some(Sequence(4)));
        assert_eq!(newer.common(&of(&[1, 1, 3])), None, "it ends before the base");
    }

    proptest! {
        /// Logs that share a prefix and then have terms of their own: the common prefix is that one.
        #[test]
        fn the_common_prefix_is_found(
            shared in prop::collection::vec(1_u32..4, 0..8),
            mine in prop::collection::vec(0_u32..3, 0..6),
            theirs in prop::collection::vec(0_u32..3, 0..6),
        ) {
            let mut shared = shared;
            shared.sort_unstable();
            let rise = |own: &[u32], parity: u32| {
                let mut all = shared.clone();
                let mut term = 10 + parity;
                for step in own { term += 2 * step; all.push(term); }
                all
            };
            let (one, other) = (of(&rise(&mine, 0)), of(&rise(&theirs, 1)));
            prop_assert_eq!(one.common(&other), Some(Sequence(shared.len() as u64)));
            prop_assert_eq!(other.common(&one), Some(Sequence(shared.len() as u64)));
        }
    }
}
