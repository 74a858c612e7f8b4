//! The judge of histories: whether some order of the requests explains all answers (linearizability), and whether two
//! terms ever held the lease at once.
//!
//! The search tries every request that began before the first open one ended, and remembers which sets of requests
//! lead nowhere. A request without an answer may have happened at any time after it began, or never.

use std::collections::BTreeSet;

use lodestone_fabric::{LEASE_NS, Term, VolumeState};
use lodestone_registry::{Answer, Request};

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Call {
    pub began: u64,
    /// `None`: it never ended for its client.
    pub ended: Option<u64>,
    pub request: Request,
    /// `None`: it may have happened.
    pub answer: Option<Answer>,
}

/// Requests of one volume, and the state before them.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub before: VolumeState,
    pub calls: Vec<Call>,
}

/// The states that a request can lead to, if it gets this answer. `None`: any answer.
fn after(state: &VolumeState, call: &Call) -> Option<VolumeState> {
    let swapped = match &call.request {
        Request::Claim(node, seen) => state.claimed(*node, *seen).ok()?,
        Request::Change(term, change, group, view) => state.changed(*term, *change, *group, view).ok()?,
        Request::State => return fits(call, &Answer::State(state.clone())).then(|| state.clone()),
        Request::Renew(term) => {
            let is_right = match &call.answer {
                Some(Answer::Lost(newest)) => *newest == state.term && term != newest,
                Some(_) => *term == state.term,
                None => true,
            };
            return is_right.then(|| state.clone());
        }
        Request::Create(_) => return None,
    };
    match swapped {
        Some(next) => fits(call, &Answer::Done(next.clone())).then_some(next),
        None => fits(call, &Answer::Differs(state.clone())).then(|| state.clone()),
    }
}

fn fits(call: &Call, expected: &Answer) -> bool {
    call.answer.as_ref().is_none_or(|answer| answer == expected)
}

impl History {
    /// Whether some order explains all answers.
    pub fn is_linearizable(&self) -> bool {
        assert!(self.calls.len() <= 128, "a history of so many requests");
        let mut dead = BTreeSet::new();
        self.search(0, &self.before, &mut dead)
    }

    fn search(&self, done: u128, state: &VolumeState, dead: &mut BTreeSet<(u128, Vec<u8>)>) -> bool {
        let open = || (0..self.calls.len()).filter(|index| done >> index & 1 == 0);
        // Those that never ended need not happen.
        let Some(first_end) = open().filter_map(|index| self.calls[index].ended).min() else { return true };
        let key = (done, state.to_bytes());
        if dead.contains(&key) {
            return false;
        }
        for index in open().filter(|index| self.calls[*index].began <= first_end) {
            // A request without an answer that changes nothing explains nothing.
            let is_needed = |next: &VolumeState| self.calls[index].answer.is_some() || next != state;
            if let Some(next) = after(state, &self.calls[index]).filter(is_needed)
                && self.search(done | 1 << index, &next, dead)
            {
                return true;
            }
        }
        dead.insert(key);
        false
    }

    /// Two terms that held the lease at once, as their holders count: from before they asked, and a tenth less.
    pub fn overlapping_leases(&self) -> Option<(Term, Term)> {
        let held = |call: &Call| match (&call.request, &call.answer) {
            (Request::Renew(term), Some(Answer::Held(ns))) => {
                assert_eq!(*ns, LEASE_NS);
                // By a clock that is a twentieth slow, nine tenths are longer.
                Some((*term, call.ended?, call.began + (ns - ns / 10) * 20 / 19))
            }
            _ => None,
        };
        let all: Vec<(Term, u64, u64)> = self.calls.iter().filter_map(held).collect();
        let pair = |(index, one): (usize, &(Term, u64, u64))| {
            let other = all[..index].iter().find(|other| one.0 != other.0 && one.1 < other.2 && other.1 < one.2);
            other.map(|other| (other.0, one.0))
        };
        all.iter().enumerate().find_map(pair)
    }
}

#[cfg(test)]
mod tests {
    use lodestone_fabric::NodeId;

    use super::*;

    fn call(began: u64, ended: u64, request: Request, answer: Answer) -> Call {
        Call { began, ended: Some(ended), request, answer: Some(answer) }
    }

    fn state(term: u32, node: u16) -> VolumeState {
        VolumeState { term: Term(term), sender: NodeId(node), ..VolumeState::default() }
    }

    #[test]
    fn a_judge_that_sees_what_is_wrong() {
        let claim = |node| Request::Claim(NodeId(node), Term(0));
        let calls = vec![
            call(0, 9, claim(1), Answer::Done(state(1, 1))),
            call(1, 8, claim(2), Answer::Differs(state(1, 1))),
            call(2, 3, Request::State, Answer::State(state(0, 0))),
        ];
        let mut history = History { calls, ..History::default() };
        assert!(history.is_linearizable());
        history.calls.push(call(4, 5, Request::State, Answer::State(state(1, 1))));
        history.calls.push(call(6, 7, Request::State, Answer::State(state(0, 0))));
        assert!(!history.is_linearizable(), "a read goes back");
        history.calls.truncate(1);
        history.calls.push(call(1, 8, claim(2), Answer::Done(state(1, 2))));
        assert!(!history.is_linearizable(), "a term is handed out twice");
        // A claim without an answer explains a state, and need not have happened.
        history.calls = vec![Call { ended: None, answer: None, ..call(0, 0, claim(1), Answer::Unknown) }];
        assert!(history.is_linearizable());
        history.calls.push(call(3, 4, Request::State, Answer::State(state(1, 1))));
        assert!(history.is_linearizable());
    }

    #[test]
    fn leases_that_overlap_are_found() {
        let renew = |began, term| call(began, began + 1, Request::Renew(Term(term)), Answer::Held(LEASE_NS));
        let history = |second| History { calls: vec![renew(0, 1), renew(second, 2)], ..History::default() };
        assert_eq!(history(LEASE_NS / 2).overlapping_leases(), Some((Term(1), Term(2))));
        assert_eq!(history(LEASE_NS).overlapping_leases(), None);
    }
}
