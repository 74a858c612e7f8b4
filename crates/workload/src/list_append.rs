//! Judges a history of transactions that append to lists and read whole lists: Adya's anomalies, by name.
//!
//! Each value is appended once. So a list tells which transactions wrote it, and in which order. An append is blind:
//! that it reads the list first is no business of the history. That makes three kinds of edges:
//!
//! | edge | from | to |
//! | --- | --- | --- |
//! | write-write | the transaction that appended a value | the one that appended the next |
//! | write-read | the one that appended the last value of a read | the reader |
//! | read-write | the reader | the one that appended the next value |
//!
//! 1. The order of a list is the longest read of it. Each other read is a beginning of it, or a value was lost.
//! 2. A read of a value that no transaction committed is G1a. One that ends within the appends of another transaction
//!    is G1b.
//! 3. Circles are told apart by their read-write edges: see [`Anomaly`].
//!
//! The history ends with a read of each list by a transaction that began after all others, so that every value has its
//! place. Real time is [`serial_order`](crate::serial_order)'s.

use std::collections::{BTreeMap, BTreeSet};

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Appended a value that no other append has.
    Append {
        /// The list.
        list: u64,
        /// The value.
        value: u64,
    },
    /// Read a list.
    Read {
        /// The list.
        list: u64,
        /// All its values.
        found: Vec<u64>,
    },
}

/// A transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// In their order.
    pub operations: Vec<Operation>,
    /// Its commit succeeded. Otherwise it had no effect.
    pub is_committed: bool,
}

/// A sign of transactions that have no serial order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    /// A committed value is in no later read, or two reads disagree about the order.
    LostUpdate,
    /// A read does not show what its own transaction appended before.
    Internal,
    /// A circle of write-write edges.
    G0,
    /// A committed transaction read a value that was not committed.
    G1a,
    /// It read a list in the middle of another transaction.
    G1b,
    /// A circle of write-write and write-read edges.
    G1c,
    /// A circle with one read-write edge: read skew.
    GSingle,
    /// A circle with several read-write edges, none of which follows another one: a long fork.
    GNonadjacent,
    /// A circle with several read-write edges, of which some follow each other: write skew.
    G2,
}

/// Edges that are allowed in a circle: each kind is a bit.
const WRITE_WRITE: u8 = 1;
const WRITE_READ: u8 = 2;
const READ_WRITE: u8 = 4;

/// For each transaction the ones that follow it, and the kind of the edge.
type Edges = Vec<BTreeSet<(usize, u8)>>;

/// All kinds of anomalies in the history.
///
/// ```
/// use lodestone_workload::list_append::{Anomaly, Operation, Transaction, anomalies};
///
/// let read = |list, found: &[u64]| Operation::Read { list, found: found.to_vec() };
/// let transaction = |operations| Transaction { operations, is_committed: true };
/// // Each reads both lists and appends to one of them.
/// let history = [
///     transaction(vec![read(0, &[]), read(1, &[]), Operation::Append { list: 0, value: 1 }]),
///     transaction(vec![read(0, &[]), read(1, &[]), Operation::Append { list: 1, value: 2 }]),
///     transaction(vec![read(0, &[1]), read(1, &[2])]),
/// ];
/// assert_eq!(anomalies(&history).into_iter().collect::<Vec<_>>(), [Anomaly::G2]);
/// ```
#[must_use]
pub fn anomalies(history: &[Transaction]) -> BTreeSet<Anomaly> {
    let committed: Vec<&Transaction> = history.iter().filter(|one| one.is_committed).collect();
    let mut found = BTreeSet::new();
    let reads: Vec<(usize, u64, Vec<u64>)> = committed
        .iter()
        .enumerate()
        .flat_map(|(number, one)| foreign_reads(one, &mut found).into_iter().map(move |read| (number, read.0, read.1)))
        .collect();
    let mut writers = BTreeMap::new();
    let mut lasts = BTreeSet::new();
    for (number, one) in committed.iter().enumerate() {
        let mut last = BTreeMap::new();
        for operation in &one.operations {
            if let Operation::Append { list, value } = operation {
                writers.insert((*list, *value), number);
                last.insert(*list, *value);
            }
        }
        lasts.extend(last);
    }
    let mut lists: BTreeMap<u64, &[u64]> = BTreeMap::new();
    for (_, list, values) in &reads {
        let longest = lists.entry(*list).or_default();
        if values.len() > longest.len() {
            *longest = values;
        }
    }
    let is_lost = |(list, value): &(u64, u64)| !lists.get(list).is_some_and(|values| values.contains(value));
    if writers.keys().any(is_lost) || reads.iter().any(|(_, list, values)| !lists[list].starts_with(values)) {
        found.insert(Anomaly::LostUpdate);
    }
    let mut edges: Edges = vec![BTreeSet::new(); committed.len()];
    let mut edge = |from: Option<&usize>, to: Option<&usize>, kind| {
        if let (Some(from), Some(to)) = (from, to)
            && from != to
        {
            edges[*from].insert((*to, kind));
        }
    };
    for (list, values) in &lists {
        let writer = |value: &u64| writers.get(&(*list, *value));
        values.windows(2).for_each(|pair| edge(writer(&pair[0]), writer(&pair[1]), WRITE_WRITE));
    }
    for (reader, list, values) in &reads {
        let writer = |value: &u64| writers.get(&(*list, *value));
        if values.iter().any(|value| writer(value).is_none()) {
            found.insert(Anomaly::G1a);
        }
        let is_within =
            |value: &u64| writer(value).is_some_and(|one| one != reader) && !lasts.contains(&(*list, *value));
        if values.last().is_some_and(is_within) {
            found.insert(Anomaly::G1b);
        }
        edge(values.last().and_then(writer), Some(reader), WRITE_READ);
        // Its own appends may come next, and then those of another transaction: the edge of order is enough then.
        edge(Some(reader), lists[list].get(values.len()).and_then(writer), READ_WRITE);
    }
    found.extend(circles(&edges));
    found
}

/// The reads of what others wrote: without the values that the transaction appended itself.
fn foreign_reads(one: &Transaction, found: &mut BTreeSet<Anomaly>) -> Vec<(u64, Vec<u64>)> {
    let mut own: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut reads = Vec::new();
    for operation in &one.operations {
        match operation {
            Operation::Append { list, value } => own.entry(*list).or_default().push(*value),
            Operation::Read { list, found: values } => match values.strip_suffix(&own.entry(*list).or_default()[..]) {
                Some(others) => reads.push((*list, others.to_vec())),
                None => _ = found.insert(Anomaly::Internal),
            },
        }
    }
    reads
}

/// The kinds of circles in the graph.
fn circles(edges: &Edges) -> BTreeSet<Anomaly> {
    let mut found = BTreeSet::new();
    for (from, followers) in edges.iter().enumerate() {
        for &(to, kind) in followers {
            let returns = |kinds, is_apart| is_reached(edges, to, from, kinds, is_apart);
            match kind {
                WRITE_WRITE if returns(WRITE_WRITE, false) => _ = found.insert(Anomaly::G0),
                WRITE_READ if returns(WRITE_WRITE | WRITE_READ, false) => _ = found.insert(Anomaly::G1c),
                READ_WRITE => {
                    let ways = [
                        (Anomaly::GSingle, WRITE_WRITE | WRITE_READ, false),
                        (Anomaly::GNonadjacent, WRITE_WRITE | WRITE_READ | READ_WRITE, true),
                        (Anomaly::G2, WRITE_WRITE | WRITE_READ | READ_WRITE, false),
                    ];
                    let way = ways.into_iter().find(|(_, kinds, is_apart)| returns(*kinds, *is_apart));
                    found.extend(way.map(|(anomaly, ..)| anomaly));
                }
                _ => {}
            }
        }
    }
    found
}

/// Whether edges of these kinds lead from `from` to `to`. `is_apart`: a read-write edge was taken before and follows,
/// and no two of them may follow each other.
fn is_reached(edges: &Edges, from: usize, to: usize, kinds: u8, is_apart: bool) -> bool {
    // A transaction, and whether a read-write edge led to it.
    let mut seen = BTreeSet::from([(from, is_apart)]);
    let mut open = vec![(from, is_apart)];
    while let Some((at, after)) = open.pop() {
        if at == to && !after {
            return true;
        }
        for &(next, kind) in &edges[at] {
            let is_read_write = kind == READ_WRITE;
            let state = (next, is_apart && is_read_write);
            if kind & kinds != 0 && !(after && is_read_write) && seen.insert(state) {
                open.push(state);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::Anomaly::{G0, G1a, G1b, G1c, G2, GNonadjacent, GSingle, Internal, LostUpdate};
    use super::*;

    fn append(list: u64, value: u64) -> Operation {
        Operation::Append { list, value }
    }

    fn read(list: u64, found: &[u64]) -> Operation {
        Operation::Read { list, found: found.to_vec() }
    }

    /// The anomalies of committed transactions, and of others.
    fn of(committed: &[&[Operation]], others: &[&[Operation]]) -> Vec<Anomaly> {
        let with = |is_committed| move |one: &&[Operation]| Transaction { operations: one.to_vec(), is_committed };
        let history: Vec<_> = committed.iter().map(with(true)).chain(others.iter().map(with(false))).collect();
        anomalies(&history).into_iter().collect()
    }

    #[test]
    fn a_serial_history_has_none() {
        let serial = [&[append(0, 1), append(0, 2)][..], &[read(0, &[1, 2]), append(0, 3)], &[read(0, &[1, 2, 3])]];
        assert_eq!(of(&serial, &[]), []);
        let own = [append(0, 1), read(0, &[1]), append(0, 2), read(0, &[1, 2])];
        assert_eq!(of(&[&own, &[read(0, &[1, 2])]], &[&[append(0, 9)]]), []);
        assert_eq!(of(&[&[read(0, &[])]], &[]), []);
    }

    #[test]
    fn each_anomaly_has_its_name() {
        let both = [append(0, 1), append(1, 1)];
        let others = [append(0, 2), append(1, 2)];
        assert_eq!(of(&[&both, &others, &[read(0, &[1, 2]), read(1, &[2, 1])]], &[]), [G0]);
        assert_eq!(of(&[&[read(0, &[7])]], &[&[append(0, 7)]]), [G1a]);
        assert_eq!(
            of(
                &[&[append(0, 1), append(0, 2)], &[read(0, &[1]), append(1, 1)], &[read(0, &[1, 2]), read(1, &[1])]],
                &[]
            ),
            [G1b, GSingle]
        );
        assert_eq!(
            of(&[&[append(0, 1), read(1, &[2])], &[append(1, 2), read(0, &[1])]], &[]),
            [G1c],
            "each read from the other one"
        );
        let skewed = [read(0, &[1]), read(1, &[])];
        assert_eq!(of(&[&both, &skewed, &[read(0, &[1]), read(1, &[1])]], &[]), [GSingle]);
        let left = [read(0, &[]), read(1, &[]), append(0, 1)];
        let right = [read(0, &[]), read(1, &[]), append(1, 1)];
        assert_eq!(of(&[&left, &right, &[read(0, &[1]), read(1, &[1])]], &[]), [G2]);
        let fork =
            [&[append(0, 1)][..], &[append(1, 1)], &[read(0, &[1]), read(1, &[])], &[read(0, &[]), read(1, &[1])]];
        assert_eq!(of(&fork, &[]), [GNonadjacent]);
        assert_eq!(of(&[fork[0], fork[1], fork[2], &[read(0, &[1]), read(1, &[1])]], &[]), []);
        assert_eq!(of(&[&[append(0, 1)], &[append(0, 2)], &[read(0, &[2])]], &[]), [LostUpdate]);
        assert_eq!(
            of(&[&[append(0, 1)], &[append(0, 2)], &[read(0, &[1, 2])], &[read(0, &[2])]], &[]),
            [LostUpdate, GSingle]
        );
        assert_eq!(of(&[&[append(0, 1), read(0, &[])], &[read(0, &[1])]], &[]), [Internal], "its own append");
    }
}
