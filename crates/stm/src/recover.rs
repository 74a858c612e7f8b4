//! Recovery: the work of an open after a life that did not end in order.
//!
//! 0. The copies of the header, of the clock and of the directory are made equal again where a crash or damage left
//!    them different.
//! 1. Each thread's newest intact record is decided (see [`lodestone_txn::record`]). In the modes address log and scan
//!    a transaction has lost if its record is still there. Its members are made invalid.
//! 2. The decisions become one entry in the table of lives, then a fence, which covers step 1 too. The clock is closed,
//!    then a fence. From here on the old records mean nothing.
//! 3. This life begins at a tick of its own, so that it believes no version word that another life made.
//!
//! No object is visited, except in the mode scan. Losers never count, and their places are reused later. The bound is
//! two records per thread id and the members of the newest.
//!
//! Invariant: before step 2 ends, steps read only what they do not change. So a crash in recovery repeats it with the
//! same outcome.

use lodestone_heap::Heap;
use lodestone_pmem::{Memory, PmAddr, planted};
use lodestone_txn::record::{self, Found, Head, Member, RecordKind};
use lodestone_txn::{Lives, SlotHeader, Tick, Which, Writer};
use lodestone_width::exact_u32;

use crate::error::Result;
use crate::format::{Places, SYSTEM_SHAPE};
use crate::slabs::Slabs;
use crate::versions::{judge, read_slot};
use lodestone_cells::Version;
use lodestone_cells::{CellKind, Shape};

/// The result of recovery.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// // This memory was just made: there was nothing to recover.
/// let report = stm.recovery();
/// assert_eq!((report.committed, report.rolled_back, report.torn_records), (0, 0, 0));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the last life that changed anything ended in order; then there was nothing to do.
    pub was_clean: bool,
    /// Thread ids whose records were of that life.
    pub threads: u32,
    /// Newest transactions that count.
    pub committed: u32,
    /// Newest transactions that a crash cut short. Nothing of them remains.
    pub rolled_back: u32,
    /// Records that were not written whole. Their transactions never took effect.
    pub torn_records: u32,
    /// Slots that were made invalid.
    pub invalidated: u64,
    /// Crashed lives whose losers may still be in slots that no transaction reads.
    pub crashed_lives: u32,
    /// Whether every object was visited to empty the table of lives.
    pub renewed: bool,
    /// Copies of the transaction clock's state that were not whole: torn by a crash while they were written, or
    /// damaged. The other copy was used, and an open for writing has made them whole again.
    pub clock_copies_damaged: u32,
    /// Damaged copies of the header, of entries in the table of crashed lives, and of lines in the directory of slabs.
    /// No crash does that. The other copy was used, and an open for writing has made them whole again.
    pub copies_damaged: u32,
}

struct Recovery<'r> {
    memory: &'r Memory,
    places: &'r Places,
    slabs: &'r Slabs,
    report: RecoveryReport,
    /// Transactions of the published modes that lost.
    undone: Vec<(Writer, Tick)>,
    scratch: Vec<u64>,
}

/// Finishes the last life if it did not end in order.
pub fn recover(heap: &Heap, places: &Places, slabs: &mut Slabs, lives: &mut Lives) -> Result<RecoveryReport> {
    let memory = heap.memory();
    let is_read_only = memory.is_read_only();
    // First of all: the next steps rely on the newest state. One damaged line could still take it back.
    let clock_copies_damaged = if is_read_only {
        let table = lives.table_copies_damaged();
        exact_u32(lives.findings(memory).len()) - table
    } else {
        lives.heal(memory)
    };
    let copies_damaged = if is_read_only {
        exact_u32(places.damaged_lines(memory).len() + slabs.damaged_lines().len()) + lives.table_copies_damaged()
    } else {
        // Persistent when this life begins, below: nothing is written before that.
        places.heal(memory) + slabs.heal(memory) + lives.heal_table(memory)
    };
    let was_clean = !lives.is_open();
    let report = RecoveryReport { was_clean, clock_copies_damaged, copies_damaged, ..RecoveryReport::default() };
    let mut recovery = Recovery { memory, places, slabs, report, undone: Vec::new(), scratch: Vec::new() };
    if lives.is_open() {
        let last = recovery.decide(lives);
        if is_read_only {
            lives.close_crashed_in_memory(last, std::mem::take(&mut recovery.undone));
        } else if lives.close_crashed(memory, last.clone()).is_err() {
            // The table is full. Losers of the lives in it are made invalid. Then this life has room for its losers.
            recovery.renew(lives);
            lives.close_crashed(memory, last)?;
        }
    }
    if !is_read_only {
        if lives.scrub_is_due() {
            recovery.renew(lives);
        }
        lives.begin(memory);
    }
    let mut report = recovery.report;
    report.crashed_lives = exact_u32(lives.crashed().len());
    Ok(report)
}

impl Recovery<'_> {
    fn shape_at(&self, at: PmAddr) -> Option<Shape> {
        if at == self.places.system() { Some(SYSTEM_SHAPE) } else { self.slabs.shape_at(at) }
    }

    /// Decides about every thread. Returns the last tick of each thread that had a record.
    fn decide(&mut self, lives: &Lives) -> Vec<(Writer, Tick)> {
        let life = (lives.base(), lives.limit());
        let mut last = Vec::new();
        let mut scan = false;
        for writer in (0..self.places.threads_max()).filter_map(Writer::new) {
            let buffers = self.places.buffers(writer);
            let found = [0, 1].map(|index| record::read(self.memory, &buffers, index, self.places.slab_bytes()));
            if found == [Found::Empty, Found::Empty] {
                continue;
            }
            let verdict =
                record::decide(found, life, writer, |member, tick, writer| self.holds(lives, member, tick, writer));
            self.report.torn_records += verdict.torn;
            let Some((head, members, committed)) = verdict.newest else { continue };
            self.report.threads += 1;
            if committed {
                self.report.committed += 1
            } else {
                self.report.rolled_back += 1
            }
            last.push((writer, verdict.last));
            if head.kind == RecordKind::OneFence {
                continue;
            }
            self.undone.push((writer, head.tick));
            // Nothing is stored to a pool that is open read-only. There the list names the transactions that do not
            // count.
            if head.kind == RecordKind::AddressLog && !self.memory.is_read_only() {
                self.undo_logged(&head, &members, writer);
            }
            scan |= head.kind == RecordKind::Scan;
        }
        if scan && !self.memory.is_read_only() {
            self.undo_scanned();
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
    fn undo_scanned(&mut self) {
        let lost = std::mem::take(&mut self.undone);
        self.for_each_cell(|recovery, at, shape| {
            for which in [Which::First, Which::Second] {
                recovery.invalidate_if(at, shape, which, |found| lost.contains(&(found.writer, found.tick)));
            }
        });
    }

    fn for_each_cell(&mut self, mut visit: impl FnMut(&mut Self, PmAddr, Shape)) {
        visit(self, self.places.system(), SYSTEM_SHAPE);
        for slab in self.slabs.all().into_iter().filter(|slab| slab.shape.kind != CellKind::Spill) {
            slab.cells().for_each(|at| visit(self, at, slab.shape));
        }
    }

    /// Makes a slot invalid when `fits` accepts its header. It is flushed, not fenced.
    fn invalidate_if(&mut self, cell: PmAddr, shape: Shape, which: Which, fits: impl Fn(SlotHeader) -> bool) {
        let at = shape.slot_at(cell, which);
        let header = SlotHeader::decode(self.memory.load(at), self.memory.load(at.plus(8)));
        if header.tick == Tick::NEVER || !fits(header) {
            return;
        }
        self.memory.store(at, 0);
        // Before the fence in front of the state that ends the life (`close_crashed`), or of the empty table (`renew`).
        // The record that would repeat this must keep its meaning until then.
        self.memory.flush(at, 8);
        self.report.invalidated += 1;
    }

    /// Visits every object. Losers and torn slots are made invalid and old version words cleared. Then the table of
    /// lives is empty again. Needed after thousands of crashes or years of commits.
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
        // With the empty table every version that is still there counts. So it may not overtake the last slot that was
        // made invalid.
        memory.fence();
        lives.renew(memory);
        self.report.renewed = true;
    }
}

#[cfg(test)]
mod tests {
    use lodestone_pmem::{DomainChoice, PmPtr, Pool, PoolOptions};
    use lodestone_store::Store;
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    use super::*;
    use crate::{Mode, PmObject, Stm, StmOptions};

    const VALUES: usize = 3;

    fn options() -> PoolOptions {
        PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() }
    }

    /// One object for each value. Tests read and write their content by address, as two threads would.
    fn values(stm: &Stm) -> Result<Vec<PmPtr<Value>>> {
        (0..VALUES).map(|number| stm.root_named::<Value>(&number.to_string())).collect()
    }

    #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    struct Value {
        value: u64,
    }

    impl PmObject for Value {
        const NAME: &'static str = "Value";
        const VERSION: u32 = 1;
        fn describe(layout: &mut crate::Layout) {
            layout.field::<u64>("value", 0);
        }
        fn visit_field_types(_: &mut crate::TypeVisitor<'_>) {}
        fn checked_by() -> &'static crate::CheckedBy {
            static CHECKED_BY: crate::CheckedBy = crate::CheckedBy::new();
            &CHECKED_BY
        }
    }

    fn set(stm: &Stm, all: &[PmPtr<Value>], value: u64) -> Result<()> {
        stm.update(|tx| all.iter().try_for_each(|&ptr| tx.write(ptr).map(|found| found.value = value)))
    }

    fn get(stm: &Stm, all: &[PmPtr<Value>]) -> Result<Vec<u64>> {
        stm.read(|tx| all.iter().map(|&ptr| tx.read(ptr).map(|found| found.value)).collect())
    }

    #[test]
    fn a_reader_of_a_crashed_pool_sees_no_loser_of_the_published_modes() -> Result<()> {
        for mode in [Mode::OneFence, Mode::AddressLog, Mode::Scan] {
            let folder = tempfile::tempdir().expect("a folder");
            let (path, copy) = (folder.path().join("a.pool"), folder.path().join("copy.pool"));
            let stm =
                Stm::open_with(&Store::create(&path, &options())?, &StmOptions { mode, ..StmOptions::default() })?;
            let all = values(&stm)?;
            set(&stm, &all, 1)?;
            set(&stm, &all, 2)?;
            // The state before the second fence: the record has not ended, and one of the slots is not yet on the
            // medium.
            let core = &*stm.core;
            let cell = core.word(all[0].addr(), <Value as crate::object::Shaped>::SHAPE)?;
            let shape = <Value as crate::object::Shaped>::SHAPE;
            let newest =
                |at: PmPtr<Value>| Ok::<_, crate::Error>(shape.slot_at(at.addr(), core.word(at.addr(), shape)?.slot()));
            let tick = core.memory.load(newest(all[0])?);
            if mode != Mode::OneFence {
                core.memory.store(core.places.buffers(cell.writer()).buffer(0), tick);
            }
            let torn = newest(all[2])?;
            core.memory.store(torn.plus(16), 77);
            std::fs::copy(&path, &copy).expect("a copy");
            for _ in 0..2 {
                let stm = Stm::open(&Store::open_read_only(&copy, &options())?)?;
                assert_eq!(get(&stm, &values(&stm)?)?, [1; VALUES], "{mode:?}, read-only");
                assert_eq!(stm.snapshot(|tx| Ok(tx.read(all[0])?.value))?, 1, "{mode:?}, in a snapshot");
                assert!(stm.check_all().is_intact(), "{mode:?}");
            }
            let stm = Stm::open(&Store::open(&copy, &options())?)?;
            assert_eq!(get(&stm, &values(&stm)?)?, [1; VALUES], "{mode:?}, recovered");
        }
        Ok(())
    }

    #[test]
    fn cells_that_were_never_used_are_free_however_far_the_clock_went() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let mut expected = Vec::new();
        // A life that ends around half of the range of a version word, around all of it, and after it.
        for (round, end) in [0, 1 << 50, (1 << 51) - 2, 1 << 51, 3 << 50, (1 << 52) - 1].into_iter().enumerate() {
            let pool = Pool::open_or_create(&path, &options())?;
            let stm = Stm::open(&Store::over(&pool)?)?;
            let all = values(&stm)?;
            assert_eq!(get(&stm, &all)?, if round == 0 { vec![0; VALUES] } else { vec![round as u64; VALUES] });
            let added =
                stm.update(|tx| (0..3000).map(|n| tx.alloc(Value { value: n })).collect::<crate::TxResult<Vec<_>>>())?;
            expected.extend(added.into_iter().enumerate());
            set(&stm, &all, round as u64 + 1)?;
            for &(value, at) in &expected {
                assert_eq!(stm.read(|tx| Ok(tx.read(at)?.value))?, value as u64, "behind tick {end:x}");
            }
            let places = stm.core.places;
            drop(stm);
            if end > 0 {
                let memory = pool.memory();
                let mut lives = Lives::open(memory, places.lives())?;
                let next = lives.base().next();
                lives.reserve(memory, next)?;
                lives.close(memory, Tick(end));
            }
        }
        Ok(())
    }
}
