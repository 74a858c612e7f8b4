//! Commits whose records are in the logs of their tables, or of ranges of their keys (paper 4, section 2.2).
//!
//! 1. The transaction takes a writer for each part of the pool that its tables are in. If one of them has no writer
//!    left, all goes to the first log. So no commit waits for a writer while it has another one.
//! 2. Its changes are divided among the records. Each record begins with the places of all of them, which are known: a
//!    log has one owner, and its next record begins at its end.
//! 3. All records are streamed, then comes **the one fence**: it is of this thread, and so are the streams, wherever
//!    they go. Paper 4 (algorithm 1) has two for each log.
//! 4. *After a crash* a record counts only if each of the others is whole at its place, with the same tick, or is
//!    before the cut of a kept checkpoint (`recover/together.rs`).
//!
//! All marks of a transaction (its epoch, the ends of its records, that they are persistent) are noted for each of its
//! logs. The last ones follow the fence of all records. So a cut that has one of them is published only when all are
//! persistent: a record before such a cut has all of its others.

use lodestone_pmem::planted;
use lodestone_txn::{RowWord, Tick};
use lodestone_wal::{Record, Room};

use super::{Locks, commit_with};
use crate::core::{Core, Lent};
use crate::delta;
use crate::dual::{Base, Plan};
use crate::error::Result;
use crate::rounds;
use crate::state::State;

/// Commits the changes in `state`: see [`super::commit`].
pub fn commit(core: &Core, state: &mut State) -> Result<()> {
    let shelves = shelves(core, state);
    let mut lent = vec![core.lend_committer_of(shelves[0])?];
    for shelf in &shelves[1..] {
        match core.lend_another(*shelf)? {
            Some(another) => lent.push(another),
            None => {
                lent.truncate(1);
                break;
            }
        }
    }
    match &mut lent[..] {
        [only] => commit_with(core, state, only.committer()),
        _ => commit_together(core, state, &shelves, &mut lent),
    }
}

/// The numbers of the logs for the changes, each once.
fn shelves(core: &Core, state: &State) -> Vec<u16> {
    let near = core.near_shelf();
    let mut shelves = Vec::new();
    for (tree, changes) in &state.changes {
        // All rows of a tree without ranges are in one part.
        let count = if core.placements.has_ranges(*tree) { usize::MAX } else { 1 };
        shelves.extend(changes.rows.keys().take(count).map(|key| core.shelf_of(*tree, key).unwrap_or(near)));
    }
    shelves.sort_unstable();
    shelves.dedup();
    shelves
}

fn commit_together(core: &Core, state: &mut State, shelves: &[u16], lent: &mut [Lent<'_>]) -> Result<()> {
    let (mut may_delta, mut whole) = (core.ways.deltas && !core.holds.are_in_use(), Record::new());
    loop {
        // No row is in a cell: such a transaction has one record.
        let bases = delta::encode(core, state, &mut whole, may_delta, &mut Plan::new(core, false, false))?;
        divide(core, &whole, shelves, lent)?;
        let mut rooms = Vec::new();
        for one in lent.iter_mut() {
            let committer = one.committer();
            rooms.push(rounds::reserve(core, &mut committer.log, &mut committer.record)?);
        }
        let locks = Locks::of(core, state)?;
        // As a commit with one record.
        let epoch = core.rounds.cuts.epoch();
        let is_for_feeds = bases.iter().all(|base| *base == Base::Any) || !core.holds.are_in_use();
        if is_for_feeds && locks.have(&bases) {
            return append(core, state, lent, (rooms, epoch), locks, &bases);
        }
        may_delta = false;
    }
}

/// Divides the changes among the records.
fn divide(core: &Core, whole: &Record, shelves: &[u16], lent: &mut [Lent<'_>]) -> Result<()> {
    let place = |one: &mut Lent<'_>| {
        let committer = one.committer();
        (committer.lease.writer(), committer.log.position())
    };
    let places: Vec<_> = lent.iter_mut().map(place).collect();
    for one in lent.iter_mut() {
        let record = &mut one.committer().record;
        record.clear();
        record.together(&places)?;
    }
    let near = core.near_shelf();
    for entry in whole.iter() {
        let shelf = core.shelf_of(entry.tree, entry.key).unwrap_or(near);
        // A table that moved meanwhile: any of the logs does.
        let number = shelves.binary_search(&shelf).unwrap_or(0);
        lent[number].committer().record.push(&entry)?;
    }
    Ok(())
}

/// Appends the records, with all locks held, and makes the changes count.
fn append(
    core: &Core,
    state: &mut State,
    lent: &mut [Lent<'_>],
    (rooms, epoch): (Vec<Room>, u64),
    mut locks: Locks<'_>,
    bases: &[Base],
) -> Result<()> {
    // Ticks rise in each log.
    let last = lent.iter_mut().map(|one| last_tick(core, one)).max().unwrap_or(Tick::NEVER);
    locks.floor = locks.floor.max(last);
    let tick = locks.decide(state, &lent[0].committer().lease)?;
    let writer = lent[0].committer().lease.writer();
    let version = |is_absent| RowWord::new(tick, writer, is_absent);
    locks.is_recorded = true;
    locks.note_whole(bases, epoch);
    let is_half_fenced = planted::active("engine-together-half-fenced");
    for (number, (one, room)) in lent.iter_mut().zip(rooms).enumerate() {
        if is_half_fenced && number == 1 {
            // A bug on request: the fence is for the first record alone.
            core.memory.fence();
        }
        let committer = one.committer();
        let of = committer.lease.writer();
        core.rounds.cuts.begins(of, epoch, committer.log.position());
        core.rounds.cuts.ends(of, committer.log.append(room, &mut committer.record, tick)?);
    }
    if core.ways.is_early {
        locks.install(version);
    }
    if !is_half_fenced {
        // The one fence, for all records: no version may be live, and no caller may be told, before they are
        // persistent. No cut may be published either that has one of them, so no mark below may overtake it.
        core.memory.fence();
    }
    if core.waits {
        core.note_point(writer.index(), tick, core.memory.flushed_here());
    }
    for one in lent.iter_mut() {
        let committer = one.committer();
        core.rounds.cuts.settles(committer.lease.writer(), committer.log.position());
        core.timeline.registry().set_clock(&committer.lease, tick);
    }
    state.know(version(false));
    locks.settle(version, core.ways.is_early);
    Ok(())
}

fn last_tick(core: &Core, one: &mut Lent<'_>) -> Tick {
    let committer = one.committer();
    committer.log.last_tick().max(core.timeline.registry().clock(&committer.lease))
}
