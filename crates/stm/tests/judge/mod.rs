//! The judge of histories: opacity and strict serializability, from the reads and writes of transactions.
//!
//! Every version of an object has a number, and a transaction that writes version n + 1 has read version n. So the
//! order of versions is known, and with it all dependencies: which transaction read from which, and which overwrote a
//! version that another had read. They are the edges of a graph, together with real time (a transaction that had ended
//! before another began).
//!
//! 1. *Strict serializability*: the committed transactions, snapshots among them, have no circle.
//! 2. *Opacity*: there is still no circle when any one attempt that did not commit is added with its reads.

use std::collections::BTreeMap;

/// A transaction, or an attempt that did not commit.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub begun: u64,
    pub ended: u64,
    /// Object and version.
    pub reads: Vec<(usize, u64)>,
    pub writes: Vec<(usize, u64)>,
}

/// Whether the committed transactions have a serial order, alone and with each one of the attempts.
pub fn judge(committed: &[Seen], attempts: &[Seen]) -> Result<(), String> {
    let mut writers: BTreeMap<(usize, u64), usize> = BTreeMap::new();
    for (number, seen) in committed.iter().enumerate() {
        for write in &seen.writes {
            if writers.insert(*write, number).is_some() {
                return Err(format!("two transactions wrote version {} of object {}", write.1, write.0));
            }
        }
    }
    let all: Vec<&Seen> = committed.iter().collect();
    circle(&all, &writers)?;
    for attempt in attempts {
        let mut with: Vec<&Seen> = committed.iter().collect();
        with.push(attempt);
        circle(&with, &writers).map_err(|circle| format!("{circle}, with an attempt that read {:?}", attempt.reads))?;
    }
    Ok(())
}

/// Looks for a circle of write-read, write-write, read-write and real-time edges.
fn circle(all: &[&Seen], writers: &BTreeMap<(usize, u64), usize>) -> Result<(), String> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (number, seen) in all.iter().enumerate() {
        for &(object, version) in &seen.reads {
            next_edge(&mut next, writers.get(&(object, version)).copied(), Some(number));
            next_edge(&mut next, Some(number), writers.get(&(object, version + 1)).copied());
        }
        for &(object, version) in &seen.writes {
            next_edge(&mut next, Some(number), writers.get(&(object, version + 1)).copied());
        }
        for (other, before) in all.iter().enumerate() {
            if before.ended < seen.begun {
                next[other].push(number);
            }
        }
    }
    // Remove what nothing points to until nothing is left, or only circles.
    let mut pointed = vec![0; all.len()];
    next.iter().flatten().for_each(|&to| pointed[to] += 1);
    let mut free: Vec<usize> = (0..all.len()).filter(|&number| pointed[number] == 0).collect();
    let mut removed = 0;
    while let Some(number) = free.pop() {
        removed += 1;
        for &to in &next[number] {
            pointed[to] -= 1;
            if pointed[to] == 0 {
                free.push(to);
            }
        }
    }
    if removed == all.len() { Ok(()) } else { Err(format!("no serial order: {} in circles", all.len() - removed)) }
}

fn next_edge(next: &mut [Vec<usize>], from: Option<usize>, to: Option<usize>) {
    if let (Some(from), Some(to)) = (from, to)
        && from != to
    {
        next[from].push(to);
    }
}
