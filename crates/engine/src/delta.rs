//! Deltas: a record has the bytes of a row that changed, in place of the row.
//!
//! ```text
//! value of an entry of kind "delta": base tick 8, then ranges: offset 2, bytes 2, the bytes
//! ```
//!
//! Ranges rise, and do not overlap. One may go beyond the end of the row before. An empty one is the last, and says
//! that the row ends at its offset.
//!
//! **The rule.** A commit writes a delta if the row has a version of *this life*, which its base tick names, and if the
//! delta is shorter. So the first record of a row in a life has all of it. Recovery sorts the records of a row by their
//! ticks. It takes the newest whole version, from an image or a record, and applies the later deltas to it. Each must
//! build on exactly the version that is there. Anything else is damage.
//!
//! **Why the base is always found.** Let `C` be a checkpoint that recovery may use, `e` the last epoch below its cut,
//! and `v1 < v2 < ..` the versions of a row.
//!
//! 1. A commit reads its epoch while it has the row locked. So the epochs of `v1, v2, ..` never fall. (All of this life
//!    are above the cut of a checkpoint of an earlier life.)
//! 2. The image of `C` has some `vi`, and all commits of epochs up to `e` are in it (`rounds.rs`). So each version
//!    after `vi` has an epoch above `e`. It may have been written while commits went on: `vi` may itself be above the
//!    cut.
//! 3. The records of epochs above `e` are not below the cut (`cuts.rs`). So every record after `vi` is in the log, and
//!    it is the record of `v(i+1)` that builds on `vi`, and so on to the newest one.
//! 4. If `vi` is a deletion, the image says nothing about the row, and deltas before `vi` may be in the log without
//!    their bases. Then the record of `vi` is there as well: the records below a cut are closed under dependency, and
//!    an image has settled versions only. So these deltas are earlier than the newest whole version, and are not looked
//!    at.
//! 5. A delta is appended after its base is settled: no row is locked while it is pending, and then its record is
//!    persistent. In group commit both are in one record, or the base is in an earlier one.
//! 6. The damaged newer one of two checkpoints takes its images and its cut with it. The log is kept from the cut of
//!    the older one, and these points hold for that.
//!
//! The tick of `vi` must be the one that the delta names. An open gives all rows the first tick of its life, and a
//! later image of an unchanged row has that tick, while the image that recovery finds may have the one before. So
//! versions of an earlier life are no base. The cost is one whole row for each row that a life changes.
//!
//! **Rows that are written in place** (`rounds.rs`). A crash may tear the row of an image, and then no `vi` is left. So
//! a round writes a version in place only if a record above the newest cut has all of the row.
//!
//! 7. Each slot has the epoch of the last record with all of the row, noted when the commit can fail no more, before
//!    its version is visible. The round reads the epoch, and then the version: so this is that of the record, or a
//!    later one. If the epoch is above `e`, the record is in the log, and with it all records after it (3).
//! 8. The epoch of the newest checkpoint itself is not enough: its record may be below the cut.
//! 9. A row that this life has not changed has no such epoch. So a round never relies on the records of another life.
//!
//! A row whose records above the cut are deltas takes a new image of its leaf. So that this is seldom, the first record
//! of a row in an epoch has all of it where few lines of a page change in an epoch. Where most of them do, a new image
//! is due in any case, and deltas are cheaper. Rounds note that for each page, and for each tree, whose pages may not
//! have been looked at. A tree of which nothing is noted has few changes in a page if it is large beside the log
//! ([`Ground::many_leaves`](crate::tree::Ground::many_leaves)). All this is only a hint.

use lodestone_pmem::planted;
use lodestone_txn::{RowState, RowWord, Tick};
use lodestone_wal::{Entry, EntryKind, Record};
use lodestone_width::exact_u16;

use crate::core::Core;
use crate::dual::{Base, Plan, is_dual};
use crate::error::Result;
use crate::state::State;
use crate::tree::Tree;

/// Bytes of a base tick.
const BASE_BYTES: usize = 8;
/// Bytes of a range before its content. Equal bytes that are not more are part of a range.
const RANGE_HEAD_BYTES: usize = 4;
/// Longest row that a delta can be about: its offsets have 2 bytes.
const ROW_BYTES_MAX: usize = 65_535;

/// Encodes the changes of a transaction. Returns for each row the version that its entry builds on: a delta, or a
/// version in a cell, which is also added to `plan`.
///
/// No lock is held. So the commit must find these very versions when it has locked the rows.
///
/// # Errors
/// [`Error::Conflict`](crate::Error::Conflict); a full pool; an entry that is too large.
pub fn encode(
    core: &Core,
    state: &State,
    record: &mut Record,
    may_delta: bool,
    plan: &mut Plan<'_>,
) -> Result<Vec<Base>> {
    record.clear();
    plan.refuse_too_large(state)?;
    let mut bases = Vec::new();
    let mut delta = Vec::new();
    for (number, changes) in &state.changes {
        let is_in_cells = is_dual(*number) && !core.ways.durability.is_none();
        for (key, payload) in &changes.rows {
            if is_in_cells {
                bases.push(plan.add(&changes.tree, (bases.len(), key), payload.as_ref(), record)?);
                continue;
            }
            let mut base = None;
            match payload {
                None => record.delete(*number, key)?,
                Some(payload) => {
                    base = if may_delta { find(core, &changes.tree, key, payload, &mut delta) } else { None };
                    match base {
                        Some(_) => {
                            plan.has_deltas = true;
                            record.push(&Entry { tree: *number, kind: EntryKind::Delta, key, value: &delta })?;
                        }
                        None => record.put(*number, key, payload)?,
                    }
                }
            }
            bases.push(base.map_or(Base::Any, Base::Version));
        }
    }
    plan.note_changes(bases.len());
    Ok(bases)
}

/// Writes the delta to `payload` of the row with `key`, and returns the version that it builds on. `None` if there is
/// no base, or no gain.
fn find(core: &Core, tree: &Tree, key: &[u8], payload: &[u8], delta: &mut Vec<u8>) -> Option<RowWord> {
    // Not worth a look.
    if payload.len() < BASE_BYTES + RANGE_HEAD_BYTES + 8 {
        return None;
    }
    let Ok(Some((slot, changes_little))) = tree.find_with_page(key) else { return None };
    if slot.word().state() == RowState::Locked {
        return None;
    }
    let is_whole_due = core.ways.in_place && changes_little && slot.whole() != core.rounds.cuts.epoch() + 1;
    if is_whole_due && !planted::active("engine-lines-without-whole") {
        return None;
    }
    let (word, old) = slot.read()?;
    let (base, tick) = (core.timeline.base(), word.version().tick(core.timeline.base()));
    let is_base = !word.is_absent() && (tick > base || planted::active("engine-delta-without-full"));
    (is_base && write(tick, &old, payload, delta)).then_some(word)
}

/// Writes the delta from `old`, of tick `base`, to `new`. Returns whether an entry is shorter for it.
fn write(base: Tick, old: &[u8], new: &[u8], delta: &mut Vec<u8>) -> bool {
    if old.len().max(new.len()) > ROW_BYTES_MAX {
        return false;
    }
    delta.clear();
    delta.extend(base.0.to_le_bytes());
    let mut range: Option<(usize, usize)> = None;
    let mut at = 0;
    while let Some(from) = next_difference(old, new, at) {
        let to = next_equal(old, new, from);
        range = match range {
            Some((first, end)) if from - end <= RANGE_HEAD_BYTES => Some((first, to)),
            Some((first, end)) => {
                push_range(delta, first, &new[first..end]);
                Some((from, to))
            }
            None => Some((from, to)),
        };
        if delta.len() + (to - from) >= new.len() {
            return false;
        }
        at = to;
    }
    if let Some((first, end)) = range {
        push_range(delta, first, &new[first..end]);
    }
    if new.len() < old.len() {
        push_range(delta, new.len(), &[]);
    }
    delta.len() < new.len()
}

fn push_range(delta: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    delta.extend(exact_u16(offset).to_le_bytes());
    delta.extend(exact_u16(bytes.len()).to_le_bytes());
    delta.extend(bytes);
}

/// The first offset from `at` on where `new` is not as `old`.
fn next_difference(old: &[u8], new: &[u8], mut at: usize) -> Option<usize> {
    const STEP: usize = 16;
    while let (Some(old), Some(new)) = (old.get(at..at + STEP), new.get(at..at + STEP)) {
        if old != new {
            break;
        }
        at += STEP;
    }
    (at..new.len()).find(|at| old.get(*at) != new.get(*at))
}

/// The first offset after `from` where `new` is as `old` again, or its end.
fn next_equal(old: &[u8], new: &[u8], from: usize) -> usize {
    let both = old.len().min(new.len());
    (from..both).find(|at| old[*at] == new[*at]).unwrap_or(new.len())
}

/// The base tick of a delta, and its ranges.
pub fn split(delta: &[u8]) -> Option<(Tick, &[u8])> {
    let (base, ranges) = delta.split_first_chunk()?;
    Some((Tick(u64::from_le_bytes(*base)), ranges))
}

/// Applies ranges to a row. `None` if they do not fit; then the row is of no use.
fn apply(row: &mut Vec<u8>, mut ranges: &[u8]) -> Option<()> {
    let mut end_before = 0;
    while !ranges.is_empty() {
        let (head, rest) = ranges.split_first_chunk::<RANGE_HEAD_BYTES>()?;
        let [o0, o1, b0, b1] = *head;
        let (offset, bytes) = (usize::from(u16::from_le_bytes([o0, o1])), usize::from(u16::from_le_bytes([b0, b1])));
        let (content, rest) = rest.split_at_checked(bytes)?;
        let end = offset + bytes;
        if offset < end_before || offset > row.len() || end > ROW_BYTES_MAX {
            return None;
        }
        if bytes == 0 {
            row.truncate(offset);
            return rest.is_empty().then_some(());
        }
        row.resize(row.len().max(end), 0);
        row[offset..end].copy_from_slice(content);
        (ranges, end_before) = (rest, end);
    }
    Some(())
}

/// A delta that recovery has read.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'r> {
    pub tick: Tick,
    pub value: &'r [u8],
}

/// Applies the deltas of a row, in any order, to its newest whole version. The caller knows its tick and whether it is
/// a row, not a deletion, and has put it into `row`. Returns the tick of the version that is there then.
///
/// # Errors
/// The finding: a base is missing, or ranges do not fit.
pub fn redo(
    (mut newest, is_row): (Tick, bool),
    deltas: &mut [Delta<'_>],
    row: &mut Vec<u8>,
) -> std::result::Result<Tick, String> {
    deltas.sort_unstable_by_key(|delta| delta.tick);
    if planted::active("engine-delta-wrong-base") {
        deltas.reverse();
    }
    for &mut Delta { tick, value } in deltas {
        if tick <= newest {
            continue;
        }
        let (base, ranges) = split(value).ok_or_else(|| format!("the change of tick {} names no base", tick.0))?;
        if !is_row || (base != newest && !planted::active("engine-delta-wrong-base")) {
            let found = if is_row { "the newest before it" } else { "the last deletion" };
            return Err(format!(
                "the change of tick {} builds on the version of tick {}, and {found} has tick {}",
                tick.0, base.0, newest.0
            ));
        }
        apply(row, ranges).ok_or_else(|| format!("the change of tick {} does not fit the row", tick.0))?;
        newest = tick;
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A row and one that has some bytes changed, and another length.
    fn rows() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
        (prop::collection::vec(0..4_u8, 0..120), changes, prop::collection::vec(any::<u8>(), 0..9), 0..9_usize)
            .prop_map(|(old, changes, more, fewer)| {
                let mut new = old.clone();
                for (at, byte) in changes.iter().filter(|_| !old.is_empty()) {
                    new[at.index(old.len())] = *byte;
                }
                new.truncate(old.len() - fewer.min(old.len()));
                new.extend(more);
                (old, new)
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_delta_makes_the_new_row_of_the_old_one((old, new) in rows()) {
            let mut delta = Vec::new();
            if write(Tick(7), &old, &new, &mut delta) {
                prop_assert!(delta.len() < new.len());
                let (base, ranges) = split(&delta).expect("a tick");
                let mut row = old;
                prop_assert_eq!((base, apply(&mut row, ranges)), (Tick(7), Some(())));
                prop_assert_eq!(row, new);
            }
        }

        #[test]
        fn any_bytes_are_applied_without_a_panic(mut row in prop::collection::vec(any::<u8>(), 0..40),
                                                 ranges in prop::collection::vec(0..40_u8, 0..40)) {
            if apply(&mut row, &ranges).is_some() {
                prop_assert!(row.len() <= ROW_BYTES_MAX);
            }
        }

        /// Versions of a row: whole, a delta, or a deletion. An image has one of them, and the log all later ones and
        /// some before, in any order: the newest comes back. Without a record that is needed, that is an error.
        #[test]
        fn the_newest_version_comes_back(
            versions in prop::collection::vec((0..5_u8, 0..3_usize, any::<u8>()), 1..8),
            image in any::<prop::sample::Index>(),
            below in any::<prop::sample::Index>(),
            order in any::<u64>(),
            missing in any::<prop::sample::Index>(),
        ) {
            let mut rows = vec![Some(vec![0_u8; 24])];
            for (kind, place, byte) in &versions {
                let mut row = rows.last().cloned().flatten().unwrap_or_else(|| vec![0; 24]);
                row[place * 9] = *byte;
                rows.push((*kind != DELETION).then_some(row));
            }
            let (image, last) = (image.index(rows.len()), versions.len());
            // The image is at the cut or above it.
            let below = below.index(image + 1);
            let (mut values, mut whole) = (vec![Vec::new(); rows.len()], vec![true; rows.len()]);
            for version in 1..rows.len() {
                whole[version] = !is_delta(&rows, version, versions[version - 1].0, &mut values[version]);
            }
            let run = |left_out: Option<usize>| {
                // An image says nothing about a row that is deleted.
                let of_image = rows[image].as_ref().map(|row| (tick(image), Some(row.clone())));
                let mut newest = of_image.unwrap_or((Tick::NEVER, None));
                let mut deltas = Vec::new();
                for version in (below + 1..=last).filter(|version| Some(*version) != left_out) {
                    if !whole[version] {
                        deltas.push(Delta { tick: tick(version), value: &values[version] });
                    } else if tick(version) > newest.0 {
                        newest = (tick(version), rows[version].clone());
                    }
                }
                let turns = order as usize % (deltas.len() + 1);
                deltas.rotate_left(turns);
                if order & 1 << 40 != 0 {
                    deltas.reverse();
                }
                let (is_row, mut row) = (newest.1.is_some(), newest.1.unwrap_or_default());
                redo((newest.0, is_row), &mut deltas, &mut row).map(|_| is_row.then_some(row))
            };
            let found = run(None);
            prop_assert_eq!(found, Ok(rows[last].clone()));
            let left_out = 1 + missing.index(last);
            let newest_whole = (1..=last).rev().find(|version| whole[*version]).unwrap_or(0).max(image);
            if rows[image].is_some() && left_out > image {
                let is_needed = left_out >= newest_whole && left_out < last;
                prop_assert_eq!(run(Some(left_out)).is_err(), is_needed);
            }
        }
    }

    const DELETION: u8 = 4;

    fn tick(version: usize) -> Tick {
        Tick(version as u64 * 10 + 1)
    }

    /// Whether the record of a version is a delta, which is written to `value`.
    fn is_delta(rows: &[Option<Vec<u8>>], version: usize, kind: u8, value: &mut Vec<u8>) -> bool {
        let (Some(old), Some(new)) = (&rows[version - 1], &rows[version]) else { return false };
        kind > 0 && write(tick(version - 1), old, new, value)
    }

    #[test]
    fn ranges_that_do_not_fit_are_refused() {
        let range = |offset: u16, bytes: &[u8]| {
            [&offset.to_le_bytes()[..], &(bytes.len() as u16).to_le_bytes(), bytes].concat()
        };
        let apply = |row: &[u8], ranges: &[u8]| {
            let mut row = row.to_vec();
            apply(&mut row, ranges).map(|()| row)
        };
        assert_eq!(apply(b"abcd", &range(1, b"X")).as_deref(), Some(&b"aXcd"[..]));
        assert_eq!(apply(b"abcd", &range(4, b"e")).as_deref(), Some(&b"abcde"[..]));
        assert_eq!(apply(b"abcd", &range(2, b"")).as_deref(), Some(&b"ab"[..]));
        assert_eq!(apply(b"abcd", &range(5, b"e")), None, "a gap");
        assert_eq!(apply(b"abcd", &[range(2, b"x"), range(1, b"y")].concat()), None, "not rising");
        assert_eq!(apply(b"abcd", &[range(2, b""), range(3, b"y")].concat()), None, "after the end");
        assert_eq!(apply(b"abcd", &range(1, b"X")[..4]), None, "cut short");
        assert_eq!(apply(b"abcd", &range(65_535, b"X")), None, "too long");
    }
}
