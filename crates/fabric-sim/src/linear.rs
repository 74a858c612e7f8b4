//! Whether a history of one file is linearizable: a search with memory, after Wing and Gong.
//!
//! Each operation takes effect at one moment between its begin and its end. The search takes one operation after the
//! other that may be the next: none that is still to come ended before it began. When it is stuck it goes back. It
//! remembers each pair of a set of operations and a value that it has seen, and goes on from none twice. A read of the
//! present value is taken at once.
//!
//! It knows nothing of sequences and terms. So it judges the judge of reads in `oracle.rs`, which uses them.
//!
//! ```text
//! write   begins with the submission, ends with the acknowledgement; each writes a value of its own
//! read    begins with the request, ends with the answer; 0 is the value of a file that was never written
//! ```
//!
//! A write that was neither acknowledged nor read is left out: no caller can tell whether it took effect.

use std::collections::BTreeSet;

use foldhash::HashSet;

/// The action of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It wrote this value.
    Write(u64),
    /// It returned this value.
    Read(u64),
}

/// An operation of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it began.
    pub began: u64,
    /// When it ended; `None`: it did not.
    pub ended: Option<u64>,
    /// Its action.
    pub action: Action,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is an order.
    Order,
    /// There is none.
    None,
    /// So many steps were not enough.
    GaveUp,
}

/// The ends of a list of events.
const HEAD: usize = 0;

/// The events of a history that are not taken yet, in their order. A begin and its end go and come back together.
struct Events {
    /// Operation of each event, and whether it is its end. The first one is for the head.
    events: Vec<(usize, bool)>,
    next: Vec<usize>,
    before: Vec<usize>,
    end_of: Vec<usize>,
}

impl Events {
    fn of(operations: &[Operation]) -> Self {
        // Of one moment, what begins comes before what ends: the operations overlap.
        let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * operations.len());
        for (index, operation) in operations.iter().enumerate() {
            moments.push((operation.began, false, index));
            moments.push((operation.ended.unwrap_or(u64::MAX), true, index));
        }
        moments.sort_unstable();
        let mut events = vec![(usize::MAX, true)];
        events.extend(moments.iter().map(|moment| (moment.2, moment.1)));
        let mut end_of = vec![0; operations.len()];
        for (place, (operation, is_end)) in events.iter().enumerate().skip(1) {
            if *is_end {
                end_of[*operation] = place;
            }
        }
        let count = events.len();
        Self {
            events,
            next: (1..=count).map(|place| place % count).collect(),
            before: (0..count).map(|place| (place + count - 1) % count).collect(),
            end_of,
        }
    }

    fn unlink(&mut self, place: usize) {
        let (before, next) = (self.before[place], self.next[place]);
        (self.next[before], self.before[next]) = (next, before);
    }

    fn link(&mut self, place: usize) {
        let (before, next) = (self.before[place], self.next[place]);
        (self.next[before], self.before[next]) = (place, place);
    }

    /// A read of `value` that may be the next operation.
    fn read_of(&self, value: u64, operations: &[Operation]) -> Option<usize> {
        let mut place = self.next[HEAD];
        while let (operation, false) = self.events[place] {
            if operations[operation].action == Action::Read(value) {
                return Some(place);
            }
            place = self.next[place];
        }
        None
    }

    fn take(&mut self, begin: usize) {
        self.unlink(begin);
        self.unlink(self.end_of[self.events[begin].0]);
    }

    fn give_back(&mut self, begin: usize) {
        self.link(self.end_of[self.events[begin].0]);
        self.link(begin);
    }
}

/// Looks for an order of a history of one file, in so many steps.
#[must_use]
pub fn search(history: &[Operation], steps_max: u64) -> Found {
    let read: BTreeSet<u64> = history
        .iter()
        .filter_map(|operation| match operation.action {
            Action::Read(value) => Some(value),
            Action::Write(_) => None,
        })
        .collect();
    let counts = |operation: &&Operation| match operation.action {
        Action::Write(value) => operation.ended.is_some() || read.contains(&value),
        Action::Read(_) => true,
    };
    let operations: Vec<Operation> = history.iter().filter(counts).copied().collect();
    let mut events = Events::of(&operations);
    let mut seen: HashSet<(Vec<u64>, u64)> = HashSet::default();
    let mut taken = vec![0_u64; operations.len().div_ceil(64)];
    // The operation that was taken, the value before, and whether another choice in its place is worth a try.
    let mut way: Vec<(usize, u64, bool)> = Vec::new();
    let (mut value, mut place) = (0, events.next[HEAD]);
    for _ in 0..steps_max {
        if events.next[HEAD] == HEAD {
            return Found::Order;
        }
        // A read of the present value may as well be the next: it changes nothing for the others.
        if place == events.next[HEAD]
            && let Some(read) = events.read_of(value, &operations)
        {
            let operation = events.events[read].0;
            taken[operation / 64] |= 1 << (operation % 64);
            way.push((read, value, false));
            events.take(read);
            place = events.next[HEAD];
            continue;
        }
        let (operation, is_end) = events.events[place];
        if is_end {
            // It should have been taken by now.
            loop {
                let Some((begin, before, is_choice)) = way.pop() else { return Found::None };
                let operation = events.events[begin].0;
                taken[operation / 64] &= !(1 << (operation % 64));
                events.give_back(begin);
                (value, place) = (before, events.next[begin]);
                if is_choice {
                    break;
                }
            }
            continue;
        }
        let after = match operations[operation].action {
            Action::Write(written) => Some(written),
            Action::Read(returned) => (returned == value).then_some(value),
        };
        if let Some(after) = after {
            taken[operation / 64] |= 1 << (operation % 64);
            if seen.insert((taken.clone(), after)) {
                way.push((place, value, true));
                events.take(place);
                (value, place) = (after, events.next[HEAD]);
                continue;
            }
            taken[operation / 64] &= !(1 << (operation % 64));
        }
        place = events.next[place];
    }
    Found::GaveUp
}

/// The first read that returned an older value than one that was told before it began: of writes in the order of their
/// values, and of reads. It needs no search, because the values are places in one log.
#[must_use]
pub fn first_stale(history: &[Operation]) -> Option<(Operation, u64)> {
    let told = |operation: &Operation| match operation.action {
        Action::Write(value) | Action::Read(value) => operation.ended.map(|ended| (ended, value)),
    };
    let mut moments: Vec<(u64, u64)> = history.iter().filter_map(told).collect();
    moments.sort_unstable();
    let mut newest = 0;
    for moment in &mut moments {
        newest = newest.max(moment.1);
        moment.1 = newest;
    }
    history.iter().find_map(|operation| {
        let Action::Read(value) = operation.action else { return None };
        let before = moments.partition_point(|moment| moment.0 < operation.began);
        let must = before.checked_sub(1).map_or(0, |last| moments[last].1);
        (value < must).then_some((*operation, must))
    })
}

#[cfg(test)]
mod tests {
    use rand::seq::IndexedRandom as _;
    use rand::{Rng as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Tries every order.
    fn by_force(history: &[Operation], order: &mut Vec<usize>, value: u64) -> bool {
        let left = |operation: &Operation| operation.ended.is_some() || matches!(operation.action, Action::Read(_));
        let is_done = (0..history.len()).all(|index| order.contains(&index) || !left(&history[index]));
        if is_done {
            return true;
        }
        for index in (0..history.len()).filter(|index| !order.contains(index)).collect::<Vec<_>>() {
            let is_too_late = (0..history.len()).any(|other| {
                !order.contains(&other) && history[other].ended.is_some_and(|ended| ended < history[index].began)
            });
            let after = match history[index].action {
                Action::Write(written) => written,
                Action::Read(returned) if returned == value => value,
                Action::Read(_) => continue,
            };
            if is_too_late {
                continue;
            }
            order.push(index);
            if by_force(history, order, after) {
                return true;
            }
            order.pop();
        }
        false
    }

    fn drawn(random: &mut ChaCha8Rng) -> Vec<Operation> {
        let writes = random.random_range(0..4_u64);
        let mut began = 0;
        let mut history = Vec::new();
        for value in 1..=writes {
            // As in the log: a later value was submitted later.
            began += random.random_range(0..4_u64);
            let ended = random.random_bool(0.8).then(|| began + random.random_range(0..6));
            history.push(Operation { began, ended, action: Action::Write(value) });
        }
        for _ in 0..random.random_range(0..4_u64) {
            let began = random.random_range(0..12);
            let of = [0, writes, random.random_range(0..=writes)];
            let value = of.choose(random).copied().unwrap_or(0);
            history.push(Operation {
                began,
                ended: Some(began + random.random_range(0..5)),
                action: Action::Read(value),
            });
        }
        history
    }

    #[test]
    fn the_search_agrees_with_all_orders_of_short_histories() {
        let (mut random, mut counts) = (ChaCha8Rng::seed_from_u64(6), [0, 0]);
        for round in 0..20_000 {
            let history = drawn(&mut random);
            let exists = by_force(&history, &mut Vec::new(), 0);
            let expected = if exists { Found::Order } else { Found::None };
            assert_eq!(search(&history, u64::MAX), expected, "round {round}: {history:?}");
            counts[usize::from(exists)] += 1;
        }
        assert!(counts.iter().all(|count| *count > 2_000), "both kinds of histories: {counts:?}");
    }

    /// The judge by the log's order is at least as strict: a history that it passes has an order, if no read returned
    /// a value before its write began.
    #[test]
    fn what_the_order_of_the_log_allows_is_linearizable() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let (mut passed, mut found) = (0, 0);
        for _ in 0..20_000 {
            let history = drawn(&mut random);
            let began =
                |value| history.iter().find(|other| other.action == Action::Write(value)).map_or(0, |w| w.began);
            let is_early = |operation: &Operation| match operation.action {
                Action::Read(value) => operation.ended.is_some_and(|ended| ended < began(value)),
                Action::Write(_) => false,
            };
            let rises = history.windows(2).all(|pair| match (pair[0].action, pair[1].action) {
                (Action::Write(_), Action::Write(_)) => pair[0].ended.is_some_and(|ended| ended < pair[1].began),
                _ => true,
            });
            let is_legal = first_stale(&history).is_none() && !history.iter().any(is_early);
            if is_legal {
                assert_eq!(search(&history, u64::MAX), Found::Order, "{history:?}");
                passed += 1;
            } else if rises {
                // Writes do not overlap, so their order is forced, and both judges say the same.
                assert_eq!(search(&history, u64::MAX), Found::None, "{history:?}");
                found += 1;
            }
        }
        assert!(passed > 1_000 && found > 500, "{passed} and {found}");
    }

    #[test]
    fn a_long_history_takes_few_steps() {
        let write =
            |value: u64| Operation { began: 10 * value, ended: Some(10 * value + 95), action: Action::Write(value) };
        let read = |value: u64| Operation {
            began: 10 * value + 50,
            ended: Some(10 * value + 60),
            action: Action::Read(value),
        };
        let mut history: Vec<Operation> = (1..=2_000).flat_map(|value| [write(value), read(value)]).collect();
        assert_eq!(search(&history, 100_000), Found::Order);
        history.push(Operation { began: 30_000, ended: Some(30_001), action: Action::Read(1) });
        assert_ne!(search(&history, 100_000), Found::Order);
    }
}
