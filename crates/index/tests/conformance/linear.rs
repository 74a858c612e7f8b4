//! A checker of linearizability, key by key: a history of an index is linearizable exactly when the history of each key
//! is, because an operation is about one key.
//!
//! A key's history is right when its operations have an order that respects real time (what ended before another began
//! comes before it) and explains every answer. All orders are searched: a state is how far each thread is and the
//! value; no state is visited twice, so the search ends after at most (operations per thread + 1) ^ threads x values
//! states.

use std::collections::{BTreeMap, HashSet};

use lodestone_index::Swap;

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Get,
    Insert(u64),
    Update(u64),
    Upsert(u64),
    Remove,
    Swap(u64, u64),
}

/// The answer of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Value(Option<u64>),
    Inserted(bool),
    Swapped(Swap),
}

/// One operation of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub thread: usize,
    pub key: u64,
    pub op: Op,
    pub answer: Answer,
    /// When it began and ended, by a clock that all threads share.
    pub begun: u64,
    pub ended: u64,
}

/// The answer of `op`, and the state after it, when the key has the value `state`.
pub fn apply(op: Op, state: Option<u64>) -> (Answer, Option<u64>) {
    match op {
        Op::Get => (Answer::Value(state), state),
        Op::Insert(value) => (Answer::Inserted(state.is_none()), state.or(Some(value))),
        Op::Update(value) => (Answer::Value(state), state.map(|_| value)),
        Op::Upsert(value) => (Answer::Value(state), Some(value)),
        Op::Remove => (Answer::Value(state), None),
        Op::Swap(current, new) => match state {
            None => (Answer::Swapped(Swap::Absent), None),
            Some(found) if found == current => (Answer::Swapped(Swap::Done), Some(new)),
            Some(found) => (Answer::Swapped(Swap::Differs(found)), state),
        },
    }
}

/// Whether one key's operations have an order that explains every answer, from the value `before` on.
fn explains(threads: &[Vec<Event>], before: Option<u64>) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(vec![0_usize; threads.len()], before)];
    while let Some((places, state)) = open.pop() {
        if places.iter().zip(threads).all(|(place, events)| *place == events.len()) {
            return true;
        }
        if !seen.insert((places.clone(), state)) {
            continue;
        }
        // The next operation is one that began before any operation that is still to come has ended.
        let next = |thread: usize| threads[thread].get(places[thread]);
        let first_end = (0..threads.len()).filter_map(next).map(|event| event.ended).min().unwrap_or(0);
        for thread in 0..threads.len() {
            let Some(event) = next(thread).filter(|event| event.begun <= first_end) else { continue };
            let (answer, after) = apply(event.op, state);
            if answer == event.answer {
                let mut places = places.clone();
                places[thread] += 1;
                open.push((places, after));
            }
        }
    }
    false
}

/// The events of a key whose history no order explains, if there is one. `before` returns each key's first value.
pub fn find_violation(events: &[Event], before: impl Fn(u64) -> Option<u64>) -> Option<Vec<Event>> {
    let mut by_key: BTreeMap<u64, BTreeMap<usize, Vec<Event>>> = BTreeMap::new();
    for event in events {
        by_key.entry(event.key).or_default().entry(event.thread).or_default().push(*event);
    }
    by_key.into_iter().find_map(|(key, threads)| {
        let mut threads: Vec<Vec<Event>> = threads.into_values().collect();
        threads.iter_mut().for_each(|events| events.sort_by_key(|event| event.begun));
        (!explains(&threads, before(key))).then(|| threads.concat())
    })
}

/// The checker can fail.
pub fn self_test() {
    let event = |thread, op, answer, begun, ended| Event { thread, key: 1, op, answer, begun, ended };
    let nothing = |_| None;
    let inserted = event(0, Op::Insert(7), Answer::Inserted(true), 0, 1);
    let stale = [inserted, event(1, Op::Get, Answer::Value(None), 2, 3)];
    assert!(find_violation(&stale, nothing).is_some(), "a read after an insert misses it");
    let overlapping =
        [event(0, Op::Insert(7), Answer::Inserted(true), 0, 3), event(1, Op::Get, Answer::Value(None), 1, 2)];
    assert!(find_violation(&overlapping, nothing).is_none());
    let removed = |thread| event(thread, Op::Remove, Answer::Value(Some(5)), 0, 3);
    assert!(find_violation(&[removed(0), removed(1)], |_| Some(5)).is_some(), "two threads remove one record");
    let back = [
        inserted,
        event(0, Op::Upsert(8), Answer::Value(Some(7)), 2, 9),
        event(1, Op::Get, Answer::Value(Some(8)), 3, 4),
        event(1, Op::Get, Answer::Value(Some(7)), 5, 6),
    ];
    assert!(find_violation(&back, nothing).is_some(), "new, then old");
}
