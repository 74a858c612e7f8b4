//! Judges a history of transactions: strict serializability and opacity, from the versions that they read and wrote.
//!
//! The versions of an object are numbers that rise, and a transaction that writes one has read the version before. So
//! the order of versions is known, and with it all dependencies: which transaction read from which, and which
//! overwrote a version that another had read. They are the edges of a graph, together with real time (a transaction
//! that had ended before another began). An absent object has a version too, so insertions, deletions and ranges are
//! reads and writes like others.
//!
//! 1. *Strict serializability*: the committed transactions have no circle.
//! 2. *Opacity*: there is still no circle when any one attempt that did not commit is added with its reads.
//!
//! The time is linear in the history, but for sorting, and once more for each attempt. Real time needs no edge for each
//! pair: ends are a chain in their order, and a transaction begins after the last link before it.

use std::collections::BTreeMap;
use std::ops::Bound;

/// A transaction, or an attempt that did not commit.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Before its first operation, by a clock that all threads share.
    pub begun: u64,
    /// After its commit returned; `u64::MAX` for an attempt.
    pub ended: u64,
    /// Objects and the versions that were read. Version 0 is the one before the history.
    pub reads: Vec<(usize, u64)>,
    /// Objects and the versions that were written.
    pub writes: Vec<(usize, u64)>,
}

/// The transaction that wrote each version.
type Writers = BTreeMap<(usize, u64), usize>;

/// Whether the committed transactions have a serial order, alone and with each one of the attempts.
///
/// # Errors
/// The anomaly in words.
///
/// ```
/// use lodestone_workload::serial_order::{Seen, judge};
///
/// // Each reads both objects and writes one of them: no serial order has that.
/// let first = Seen { begun: 1, ended: 4, reads: vec![(0, 0), (1, 0)], writes: vec![(0, 1)] };
/// let second = Seen { begun: 2, ended: 3, reads: vec![(0, 0), (1, 0)], writes: vec![(1, 1)] };
/// assert!(judge(&[first.clone(), second], &[]).is_err());
/// assert!(judge(&[first], &[]).is_ok());
/// ```
pub fn judge(committed: &[Seen], attempts: &[Seen]) -> Result<(), String> {
    let mut writers = Writers::new();
    for (number, seen) in committed.iter().enumerate() {
        for write in &seen.writes {
            if writers.insert(*write, number).is_some() {
                return Err(format!("two transactions wrote version {} of object {}", write.1, write.0));
            }
        }
    }
    let all: Vec<&Seen> = committed.iter().collect();
    verify(&all, &writers)?;
    for attempt in attempts {
        let mut with = all.clone();
        with.push(attempt);
        verify(&with, &writers)
            .map_err(|anomaly| format!("{anomaly}, with an attempt that read {:?}", attempt.reads))?;
    }
    Ok(())
}

/// Looks for a version from nowhere, and for a circle of write-read, write-write, read-write and real-time edges.
fn verify(all: &[&Seen], writers: &Writers) -> Result<(), String> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); 2 * all.len()];
    for (number, seen) in all.iter().enumerate() {
        for read in &seen.reads {
            let writer = writers.get(read).copied();
            if writer.is_none() && read.1 != 0 {
                return Err(format!(
                    "no transaction committed version {} of object {}, which was read",
                    read.1, read.0
                ));
            }
            edge(&mut next, writer, Some(number));
            edge(&mut next, Some(number), overwriter(writers, *read));
        }
        for write in &seen.writes {
            edge(&mut next, Some(number), overwriter(writers, *write));
        }
    }
    real_time(all, &mut next);
    let left = remove_what_nothing_points_to(&next);
    if left == 0 { Ok(()) } else { Err(format!("no serial order: {left} transactions and ends of such in circles")) }
}

/// The transaction that wrote the version after this one.
fn overwriter(writers: &Writers, (object, version): (usize, u64)) -> Option<usize> {
    let after = (Bound::Excluded((object, version)), Bound::Included((object, u64::MAX)));
    writers.range(after).next().map(|(_, number)| *number)
}

/// Adds the ends as a chain of nodes after those of the transactions.
fn real_time(all: &[&Seen], next: &mut [Vec<usize>]) {
    let mut ends: Vec<usize> = (0..all.len()).collect();
    ends.sort_unstable_by_key(|&number| all[number].ended);
    for (place, &number) in ends.iter().enumerate() {
        next[number].push(all.len() + place);
        if place > 0 {
            next[all.len() + place - 1].push(all.len() + place);
        }
    }
    for (number, seen) in all.iter().enumerate() {
        let before = ends.partition_point(|&other| all[other].ended < seen.begun);
        if before > 0 {
            next[all.len() + before - 1].push(number);
        }
    }
}

/// Removes nodes until each that is left is in a circle or after one. Returns how many are left.
fn remove_what_nothing_points_to(next: &[Vec<usize>]) -> usize {
    let mut pointed = vec![0; next.len()];
    next.iter().flatten().for_each(|&to| pointed[to] += 1);
    let mut free: Vec<usize> = (0..next.len()).filter(|&number| pointed[number] == 0).collect();
    let mut left = next.len();
    while let Some(number) = free.pop() {
        left -= 1;
        for &to in &next[number] {
            pointed[to] -= 1;
            if pointed[to] == 0 {
                free.push(to);
            }
        }
    }
    left
}

fn edge(next: &mut [Vec<usize>], from: Option<usize>, to: Option<usize>) {
    if let (Some(from), Some(to)) = (from, to)
        && from != to
    {
        next[from].push(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(begun: u64, ended: u64, reads: &[(usize, u64)], writes: &[(usize, u64)]) -> Seen {
        Seen { begun, ended, reads: reads.to_vec(), writes: writes.to_vec() }
    }

    #[test]
    fn anomalies_are_found() {
        let skew = [seen(1, 4, &[(0, 0), (1, 0)], &[(0, 1)]), seen(2, 3, &[(0, 0), (1, 0)], &[(1, 1)])];
        assert!(judge(&skew, &[]).is_err(), "write skew");
        let stale = [seen(1, 2, &[(0, 0)], &[(0, 1)]), seen(3, 4, &[(0, 0)], &[])];
        assert!(judge(&stale, &[]).is_err(), "a stale read after the writer had returned");
        let lost = [seen(1, 4, &[(0, 0)], &[(0, 1)]), seen(2, 3, &[(0, 0)], &[(0, 1)])];
        assert!(judge(&lost, &[]).is_err(), "a lost update");
        assert!(judge(&[seen(1, 2, &[(0, 7)], &[])], &[]).is_err(), "a version that was never committed");
        let gap = [
            seen(1, 8, &[(0, 0)], &[(0, 500)]),
            seen(2, 7, &[(0, 0), (1, 1)], &[]),
            seen(3, 6, &[(0, 500)], &[(1, 1)]),
        ];
        assert!(judge(&gap, &[]).is_err(), "the version after 0 is 500");
        let fork = [
            seen(1, 9, &[(0, 0)], &[(0, 1)]),
            seen(1, 9, &[(1, 0)], &[(1, 1)]),
            seen(2, 8, &[(0, 1), (1, 0)], &[]),
            seen(2, 8, &[(0, 0), (1, 1)], &[]),
        ];
        assert!(judge(&fork, &[]).is_err(), "a long fork");
        assert!(judge(&fork[..3], &[]).is_ok());
    }

    #[test]
    fn attempts_must_fit_too() {
        let writer = [seen(1, 4, &[(0, 0), (1, 0)], &[(0, 1), (1, 1)])];
        assert!(judge(&writer, &[seen(2, u64::MAX, &[(0, 1), (1, 0)], &[])]).is_err(), "half a transaction");
        assert!(judge(&writer, &[seen(2, u64::MAX, &[(0, 1), (1, 1)], &[])]).is_ok());
    }

    #[test]
    fn transactions_one_after_the_other_have_their_order() {
        let chain: Vec<Seen> = (0..1000).map(|n| seen(2 * n, 2 * n + 1, &[(0, n)], &[(0, n + 1)])).collect();
        assert_eq!(judge(&chain, &[]), Ok(()));
        let reversed: Vec<Seen> =
            chain.iter().map(|one| Seen { begun: 9999 - one.ended, ended: 9999 - one.begun, ..one.clone() }).collect();
        assert!(judge(&reversed, &[]).is_err(), "each reads a version of its future");
    }
}
