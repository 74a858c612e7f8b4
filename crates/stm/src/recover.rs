//! Recovery: what an open does after a life that did not end in order.
//!
//! 1. Each thread's newest intact record is decided (see [`lodestone_txn::record`]). The members of a transaction in the
//!    modes address log and scan, which lost if its record is still there, are made invalid.
//! 2. The decisions become one entry in the table of lives, fence (which covers step 1 as well), and the clock is closed,
//!    fence. From here on the old records mean nothing.
//!
//! No object is visited (the mode scan apart): losers never count, and lose their places later. The bound is two records
//! per thread id and the members of the newest.
//!
//! Invariant: steps read only what they do not change before step 2 ends, so a crash in recovery repeats it with the same
//! outcome.

use lodestone_heap::Heap;
use lodestone_pmem::{Memory, PmAddr, planted};
use lodestone_txn::record::{self, Found, Head, Kind as RecordKind, Member};
use lodestone_txn::{Lives, SlotHeader, Tick, Which, Writer};

use crate::error::Result;
use crate::format::{Places, SYSTEM_SHAPE};
use crate::shape::{Kind, Shape};
use crate::slabs::Slabs;
use crate::versions::{Version, judge, read_slot};

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the last life that changed anything ended in order; then there was nothing to do.
    pub was_clean: bool,
    /// Thread ids whose records were of that life.
    pub threads: u32,
    /// Newest transactions that count.
    pub committed: u32,
    /// Newest transactions that a crash cut short: nothing of them remains.
    pub rolled_back: u32,
    /// Records that were not written whole: their transactions never were.
    pub torn_records: u32,
    /// Slots that were made invalid.
    pub invalidated: u64,
    /// Crashed lives whose losers may still stand in slots that nobody reads.
    pub crashed_lives: u32,
    /// Whether every object was visited to empty the table of lives.
    pub renewed: bool,
}

struct Recovery<'r> {
    memory: &'r Memory,
    places: &'r Places,
    slabs: &'r Slabs,
    report: RecoveryReport,
    scratch: Vec<u64>,
}

/// Finishes the last life if it did not end in order.
pub fn recover(heap: &Heap, places: &Places, slabs: &Slabs, lives: &mut Lives) -> Result<RecoveryReport> {
    let memory = heap.memory();
    let report = RecoveryReport { was_clean: !lives.is_open(), ..RecoveryReport::default() };
    let mut recovery = Recovery { memory, places, slabs, report, scratch: Vec::new() };
    if lives.is_open() {
        let last = recovery.decide(lives);
        if memory.is_read_only() {
            lives.close_crashed_in_memory(last);
        } else if lives.close_crashed(memory, last.clone()).is_err() {
            // The table is full: losers of the lives in it are made invalid, then those of this life have room.
            recovery.renew(lives);
            let _ = lives.close_crashed(memory, last);
        }
    }
    if lives.scrub_is_due() && !memory.is_read_only() {
        recovery.renew(lives);
    }
    recovery.report.crashed_lives = lives.crashed().len() as u32;
    Ok(recovery.report)
}

impl Recovery<'_> {
    fn shape_at(&self, at: PmAddr) -> Option<Shape> {
        if at == self.places.system() { Some(SYSTEM_SHAPE) } else { self.slabs.shape_at(at) }
    }

    /// Decides about every thread; gives the last tick of each that had a record.
    fn decide(&mut self, lives: &Lives) -> Vec<(Writer, Tick)> {
        let base = lives.base();
        let mut last = Vec::new();
        let mut scans = Vec::new();
        for writer in (0..self.places.threads_max()).filter_map(Writer::new) {
            let buffers = self.places.buffers(writer);
            let found = [0, 1].map(|index| record::read(self.memory, &buffers, index, self.places.slab_bytes()));
            if found == [Found::Empty, Found::Empty] {
                continue;
            }
            let verdict =
                record::decide(found, base, writer, |member, tick, writer| self.holds(lives, member, tick, writer));
            self.report.torn_records += verdict.torn;
            let Some((head, members, committed)) = verdict.newest else { continue };
            self.report.threads += 1;
            if committed {
                self.report.committed += 1
            } else {
                self.report.rolled_back += 1
            }
            last.push((writer, verdict.last));
            match head.kind {
                RecordKind::OneFence => {}
                RecordKind::AddressLog => self.undo_logged(&head, &members, writer),
                RecordKind::Scan => scans.push((head.tick, writer)),
            }
        }
        if !scans.is_empty() {
            self.undo_scanned(&scans);
        }
        last
    }

    /// Whether the member's slot holds the version of `tick`, or its object a later one.
    fn holds(&mut self, lives: &Lives, member: Member, tick: Tick, writer: Writer) -> bool {
        let Some(shape) = self.shape_at(member.object()) else { return false };
        let mut version = |which| match read_slot(self.memory, lives, shape, member.object(), which, &mut self.scratch)
        {
            Version::Counts(header) | Version::Lost(header) => Some(header),
            Version::Absent | Version::Broken(_) => None,
        };
        let own = version(member.slot());
        let own_holds = own.is_some_and(|header| header.tick == tick && header.writer == writer);
        if own_holds || planted::active("stm-evidence-ignored") {
            return own_holds;
        }
        own.into_iter().chain(version(member.slot().other())).any(|header| header.tick > tick)
    }

    /// Makes the slots of a logged transaction that lost invalid.
    fn undo_logged(&mut self, head: &Head, members: &[Member], writer: Writer) {
        for member in members {
            if let Some(shape) = self.shape_at(member.object()) {
                self.invalidate_if(member.object(), shape, member.slot(), |found| {
                    found.tick == head.tick && found.writer == writer
                });
            }
        }
    }

    /// Looks at every object for slots of transactions that lost (paper 1, section 4.3: global scan).
    fn undo_scanned(&mut self, lost: &[(Tick, Writer)]) {
        self.for_each_cell(|recovery, at, shape| {
            for which in [Which::First, Which::Second] {
                recovery.invalidate_if(at, shape, which, |found| lost.contains(&(found.tick, found.writer)));
            }
        });
    }

    fn for_each_cell(&mut self, mut visit: impl FnMut(&mut Self, PmAddr, Shape)) {
        visit(self, self.places.system(), SYSTEM_SHAPE);
        for slab in self.slabs.all().into_iter().filter(|slab| slab.shape.kind != Kind::Spill) {
            slab.cells().for_each(|at| visit(self, at, slab.shape));
        }
    }

    /// Makes a slot invalid whose header fits; flushed, not fenced.
    fn invalidate_if(&mut self, cell: PmAddr, shape: Shape, which: Which, fits: impl Fn(SlotHeader) -> bool) {
        let at = shape.slot_at(cell, which);
        let header = SlotHeader::decode(self.memory.load(at), self.memory.load(at.plus(8)));
        if header.tick == Tick::NEVER || !fits(header) {
            return;
        }
        if !self.memory.is_read_only() {
            self.memory.store(at, 0);
            // Before the fence in front of the state that ends the life (`close_crashed`), or of the empty table (`renew`):
            // the record that would repeat it may not lose its meaning before.
            self.memory.flush(at, 8);
        }
        self.report.invalidated += 1;
    }

    /// Visits every object: losers and torn slots are made invalid, old version words cleared; then the table of lives is
    /// empty again. Necessary after thousands of crashes or years of commits.
    fn renew(&mut self, lives: &mut Lives) {
        let memory = self.memory;
        let known = lives.clone();
        self.for_each_cell(|recovery, cell, shape| {
            let damaged = judge(memory, &known, shape, cell, &mut recovery.scratch).damaged;
            for which in [Which::First, Which::Second] {
                let version = read_slot(memory, &known, shape, cell, which, &mut recovery.scratch);
                if matches!(version, Version::Lost(_) | Version::Broken(_)) && damaged != Some(which) {
                    recovery.invalidate_if(cell, shape, which, |_| true);
                }
            }
            memory.store(cell, 0);
            // Before the fence below.
            memory.flush(cell, 8);
        });
        // The empty table makes every version count that is still there: it may not overtake the last that was made invalid.
        memory.fence();
        lives.renew(memory);
        self.report.renewed = true;
    }
}
