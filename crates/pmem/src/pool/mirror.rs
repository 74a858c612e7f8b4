//! Mirrored lines: one small record in two places, such that neither a crash nor one damaged line loses it.
//!
//! This is the one scheme for state that must not go back: states of parts, roots, clocks of transactions, and the
//! header of the journal. That header is written as a file, page by page. So it takes the rules from here
//! (`Mirror::next`, [`Mirror::newest`]) and does its own writes and syncs.
//!
//! 1. *Write*: the new record gets the next sequence number and a CRC-32C. It goes to the line that is not the newest
//!    intact one (either, when they are equal). Flush and fence. Then the same bytes go to the other line. Flush and
//!    fence.
//! 2. *Read*: of the intact lines the one with the newer sequence number counts. Numbers are on a circle: after the
//!    largest comes 1, and of two numbers the newer one is less than half a circle ahead of the other. So no record
//!    wears out, and none can be made that the next write would destroy.
//!
//! Invariants:
//! - the only intact newest line is never the one being written, so a crash leaves the old record or the new one;
//! - at rest both lines are equal, so damage to one of them is found (its CRC) and harmless (the other has it all);
//! - two intact lines are at most one write apart, far from half a circle;
//! - a line that is damaged beside an empty one is a first write that a crash tore: it was not acknowledged.
//!
//! Other metadata verifies itself in another way, where these two lines do not fit:
//! - the header of a part never changes, so its copy needs no sequence number;
//! - a checked word ([`checked`](crate::checked)) changes by one atomic store of eight bytes, thousands of them in a
//!   chunk: a second place and two persists for each change would cost more than they protect;
//! - records of the journal and of actions are written once and void in another life: generation and salt say so.
//!
//! An owner that finds the lines different at open ([`Mirror::is_at_rest`]) writes the newest record again before it
//! relies on it: until then one damaged line could still bring the old record back.

use lodestone_width::{exact_u32, u32_to_u64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::addr::PmPtr;
use crate::memory::Memory;
use crate::planted;
use crate::pool::layout::{RootLine, StateSlot, crc_of};

/// A record of one line with sequence number and checksum.
///
/// The checksum is the CRC-32C of all but the last four bytes, which hold it.
pub trait Line: FromBytes + IntoBytes + Immutable + Copy + PartialEq {
    /// The largest number; 1 follows.
    const SEQUENCE_MAX: u64;
    /// Its sequence number; a record that was written has at least 1.
    fn sequence(&self) -> u64;
    /// The checksum that it holds.
    fn crc(&self) -> u32;
    /// Sets the sequence number, then the checksum.
    fn seal(&mut self, sequence: u64);
    /// Whether a writer can have written these values; a record of others is damaged although its checksum fits.
    fn is_plausible(&self) -> bool {
        true
    }
}

impl Line for StateSlot {
    const SEQUENCE_MAX: u64 = u64::MAX;
    fn sequence(&self) -> u64 {
        self.sequence
    }
    fn crc(&self) -> u32 {
        self.crc
    }
    fn seal(&mut self, sequence: u64) {
        self.sequence = sequence;
        self.crc = crc_of(self);
    }
}

impl Line for RootLine {
    const SEQUENCE_MAX: u64 = u32_to_u64(u32::MAX);
    fn sequence(&self) -> u64 {
        u64::from(self.sequence)
    }
    fn crc(&self) -> u32 {
        self.crc
    }
    fn seal(&mut self, sequence: u64) {
        self.sequence = exact_u32(sequence);
        self.crc = crc_of(self);
    }
}

/// The content of one of the two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot<L> {
    /// Zeroes: never written.
    Empty,
    /// A record whose checksum is right.
    Intact(L),
    /// Bytes that are no record: torn by a crash, or damaged.
    Damaged,
}

/// The two lines of a record, as they were read.
#[derive(Clone, Copy, Debug)]
pub struct Mirror<L> {
    /// The content of each line.
    pub slots: [Slot<L>; 2],
}

impl<L: Line> Mirror<L> {
    /// Reads both lines.
    #[must_use]
    pub fn read(memory: &Memory, at: [PmPtr<L>; 2]) -> Self {
        Self::of(at.map(|place| memory.get(place)))
    }

    /// The lines as they were read.
    pub(crate) fn of(lines: [L; 2]) -> Self {
        Self { slots: lines.map(slot_of) }
    }

    /// `line` as the record after the newest one, and the order in which to write it to the two places: each of them
    /// durably before the next.
    pub(crate) fn next(&self, mut line: L) -> (L, [usize; 2]) {
        // At rest the other line holds the old record too, so any order is right. Else the newest intact one is spared.
        let (sequence, newest) = self.newest().map_or((0, 1), |(old, index)| (old.sequence(), index));
        line.seal(next_sequence::<L>(sequence));
        (line, [1 - newest, newest])
    }

    /// The record that counts, and which line holds it.
    #[must_use]
    pub fn newest(&self) -> Option<(L, usize)> {
        (0..2)
            .filter_map(|index| match self.slots[index] {
                Slot::Intact(line) => Some((line, index)),
                _ => None,
            })
            // The earlier of two equal ones, so that "first line" is the answer at rest.
            .rev()
            .reduce(|one, other| if is_newer::<L>(one.0.sequence(), other.0.sequence()) { one } else { other })
    }

    /// Whether both lines are intact and equal, or both empty.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.slots[0] == self.slots[1] && self.slots[0] != Slot::Damaged
    }

    /// Whether both lines are damaged. No crash does that: the second line is written when the first is persistent.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.slots == [Slot::Damaged, Slot::Damaged]
    }

    /// Whether the first write ever was torn by a crash: one line damaged, the other still empty.
    #[must_use]
    pub fn is_torn_first_write(&self) -> bool {
        self.newest().is_none() && self.slots.contains(&Slot::Damaged) && self.slots.contains(&Slot::Empty)
    }
}

fn slot_of<L: Line>(line: L) -> Slot<L> {
    if line.as_bytes().iter().all(|byte| *byte == 0) {
        Slot::Empty
    } else if line.sequence() != 0 && line.crc() == crc_of(&line) && line.is_plausible() {
        Slot::Intact(line)
    } else {
        Slot::Damaged
    }
}

/// The sequence number that follows `sequence`; the first one follows 0.
pub(crate) fn next_sequence<L: Line>(sequence: u64) -> u64 {
    if sequence >= L::SEQUENCE_MAX { 1 } else { sequence + 1 }
}

/// Whether `sequence` was written after `other`: less than half a circle ahead.
fn is_newer<L: Line>(sequence: u64, other: u64) -> bool {
    // There are as many numbers as the largest one says, because 0 is none.
    let ahead = if sequence >= other { sequence - other } else { L::SEQUENCE_MAX - (other - sequence) };
    ahead > 0 && ahead < L::SEQUENCE_MAX / 2
}

/// Writes `line` as the newest record of the pair `at`: persistent on return, old or new after a crash at any moment.
/// Returns what it wrote, with its sequence number. One thread at a time.
pub fn write<L: Line>(memory: &Memory, at: [PmPtr<L>; 2], line: L) -> L {
    let (line, [first, second]) = Mirror::read(memory, at).next(line);
    memory.put(at[first], &line);
    if planted::active("pool-mirror-both-at-once") {
        memory.flush(at[first].addr(), 64);
    } else {
        // The store to the other line destroys the old record: it must not overtake the new one.
        memory.persist(at[first].addr(), 64);
    }
    memory.put(at[second], &line);
    if planted::active("pool-mirror-wrong-line-flushed") {
        memory.persist(at[first].addr(), 64);
        return line;
    }
    // The next write of this record starts with the line that it takes for the spare one: this copy must be persistent
    // before. And the caller's next stores rely on the record.
    memory.persist(at[second].addr(), 64);
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    use crate::addr::PmAddr;
    use crate::error::Result;

    fn places() -> [PmPtr<StateSlot>; 2] {
        [PmPtr::new(PmAddr::new(0, 0)), PmPtr::new(PmAddr::new(0, 256))]
    }

    #[test]
    fn each_torn_or_damaged_line_leaves_the_old_or_the_new_record() -> Result<()> {
        let record = |boot| StateSlot { boot, ..StateSlot::default() };
        for prefix_words in 0..=8_u64 {
            for second_done in [false, true] {
                let memory = Memory::anonymous(4096)?;
                write(&memory, places(), record(1));
                let old = write(&memory, places(), record(2));
                // A third write by hand: first line, then a prefix of the words of the line that is being torn.
                let mut new = record(3);
                new.seal(old.sequence + 1);
                let (whole, torn) = if second_done { (Some(0), 1) } else { (None, 0) };
                if let Some(whole) = whole {
                    memory.put(places()[whole], &new);
                }
                memory.write(places()[torn].addr(), &new.as_bytes()[..prefix_words as usize * 8]);
                let found = Mirror::read(&memory, places()).newest().expect("one is intact").0;
                assert!(found == old || found == new, "neither old nor new after {prefix_words} words");
                let next = write(&memory, places(), record(4));
                assert!(next.sequence > found.sequence);
                assert!(Mirror::read(&memory, places()).is_at_rest());
            }
        }
        Ok(())
    }

    /// A hundred records around the largest sequence number, each of them through every torn state of its write.
    fn runs_over_the_largest_number<L: Line + std::fmt::Debug>(make: impl Fn(u64) -> L) -> Result<()> {
        let at = [PmPtr::<L>::new(PmAddr::new(0, 0)), PmPtr::new(PmAddr::new(0, 256))];
        let memory = Memory::anonymous(4096)?;
        let mut old = make(0);
        old.seal(L::SEQUENCE_MAX - 50);
        at.iter().for_each(|place| memory.put(*place, &old));
        for number in 1..=100 {
            let mut new = make(number);
            new.seal(next_sequence::<L>(old.sequence()));
            for (lines, expected) in [([old, old], old), ([new, old], new), ([old, new], new), ([new, new], new)] {
                (0..2).for_each(|index| memory.put(at[index], &lines[index]));
                assert_eq!(Mirror::read(&memory, at).newest().map(|(line, _)| line), Some(expected), "record {number}");
            }
            at.iter().for_each(|place| memory.put(*place, &old));
            let written = write(&memory, at, make(number));
            assert_eq!((written, Mirror::read(&memory, at).slots), (new, [Slot::Intact(new); 2]), "record {number}");
            old = written;
        }
        assert!(old.sequence() < 100, "the numbers began again");
        Ok(())
    }

    #[test]
    fn no_record_is_lost_when_the_numbers_begin_again() -> Result<()> {
        runs_over_the_largest_number(|boot| StateSlot { boot, ..StateSlot::default() })?;
        runs_over_the_largest_number(|addr| RootLine { addr, ..RootLine::new_zeroed() })
    }

    #[test]
    fn one_flipped_byte_is_found_and_costs_nothing() -> Result<()> {
        let memory = Memory::anonymous(4096)?;
        let written = write(&memory, places(), StateSlot { boot: 7, ..StateSlot::default() });
        for index in 0..2 {
            for byte in 0..64 {
                let word = places()[index].addr().plus(byte / 8 * 8);
                let before = memory.load(word);
                memory.store(word, before ^ (0x10 << (byte % 8 * 8)));
                let mirror = Mirror::read(&memory, places());
                assert_eq!(mirror.slots[index], Slot::Damaged, "line {index} byte {byte}");
                assert_eq!(mirror.newest(), Some((written, 1 - index)));
                assert!(!mirror.is_at_rest() && !mirror.is_lost());
                memory.store(word, before);
            }
        }
        Ok(())
    }
}
