//! Small structures for the tests of the explorer: one correct, with a switch for each class of mistake.

use lodestone_crash::{Failure, Outcome, Redundant, Structure};
use lodestone_pmem::{PmAddr, Pool};

/// A class of mistake that the explorer must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each test binary uses its share")]
pub enum Mistake {
    /// The structure is right.
    None,
    /// The log record is not flushed.
    LogNotFlushed,
    /// No fence between the log record and the stores in place.
    NoFenceAfterLog,
    /// One of the two lines in place is not flushed.
    OneLineNotFlushed,
    /// The flush names the neighbour of the line that was stored.
    WrongLineFlushed,
    /// The record is removed before the stores in place are persistent.
    RecordDroppedEarly,
    /// The valid word of the record is stored before its payload.
    ValidBeforePayload,
    /// The operation returns before its record is persistent.
    AcknowledgedEarly,
    /// No log at all.
    InPlace,
    /// The record is streamed: words of one line persist in any order.
    StreamedRecord,
    /// Recovery removes the record before its stores are persistent: only a crash in recovery shows it.
    RecoveryDropsEarly,
    /// Recovery adds instead of setting: a second crash in it applies the record twice.
    RecoveryNotIdempotent,
    /// Recovery panics when it finds a record.
    RecoveryPanics,
    /// Recovery never ends when it finds a record.
    RecoveryEndless,
    /// Recovery leaves a mark of a former life that stops the next operation. The view is right, but the structure does
    /// not keep working.
    StuckAfterCrash,
    /// Each operation takes a block, and recovery forgets to free that of an undone one.
    Leak,
    /// An unneeded flush and fence: not a mistake, but the audit must report them.
    Needless,
    /// The same, with the excuse for it.
    Excused,
    /// The excuse without the calls that it excuses.
    StaleExcuse,
}

/// Two words on two lines that always grow together, through a redo record. Lines from the start of the heap area: 0
/// record {first, second, valid}, 1 first, 2 second, 3 in-use flag, 4 blocks taken.
pub struct Pair(pub Mistake);

pub struct Handle {
    pool: Pool,
    at: PmAddr,
}

impl Handle {
    fn line(&self, index: u64) -> PmAddr {
        self.at.plus(index * 64)
    }
}

impl Pair {
    fn is(&self, mistake: Mistake) -> bool {
        self.0 == mistake
    }

    fn write_record(&self, handle: &Handle, first: u64, second: u64) {
        let (memory, record) = (handle.pool.memory(), handle.line(0));
        if self.is(Mistake::StreamedRecord) {
            let words = [first, second, 1].map(u64::to_le_bytes).concat();
            memory.stream(record, &words);
            memory.fence();
            return;
        }
        if self.is(Mistake::ValidBeforePayload) {
            memory.store(record.plus(16), 1);
        }
        memory.store(record, first);
        memory.store(record.plus(8), second);
        memory.store(record.plus(16), 1);
        if !self.is(Mistake::LogNotFlushed) {
            memory.flush(record, 24);
        }
        if !self.is(Mistake::NoFenceAfterLog) {
            // The stores in place may not overtake the record that repairs them.
            memory.fence();
        }
    }

    fn in_place(&self, handle: &Handle, first: u64, second: u64) {
        let memory = handle.pool.memory();
        memory.store(handle.line(1), first);
        memory.store(handle.line(2), second);
        memory.flush(handle.line(1), 8);
        match self.0 {
            Mistake::OneLineNotFlushed => {}
            Mistake::WrongLineFlushed => memory.flush(handle.line(3), 8),
            _ => memory.flush(handle.line(2), 8),
        }
    }

    fn drop_record(&self, handle: &Handle) {
        let memory = handle.pool.memory();
        // Neither flush nor fence: the next record's payload is in the same line, after this store.
        memory.store(handle.line(0).plus(16), 0);
        if self.is(Mistake::Needless) || self.is(Mistake::Excused) {
            memory.persist(handle.line(0), 24);
        }
    }

    fn recover(&self, handle: &Handle) -> Outcome {
        let memory = handle.pool.memory();
        if memory.load(handle.line(0).plus(16)) == 0 {
            return Ok(());
        }
        assert!(!self.is(Mistake::RecoveryPanics), "a record, what now?");
        while self.is(Mistake::RecoveryEndless) {
            let _ = memory.load(handle.line(0));
        }
        let (mut first, mut second) = (memory.load(handle.line(0)), memory.load(handle.line(0).plus(8)));
        if self.is(Mistake::RecoveryNotIdempotent) {
            first = memory.load(handle.line(1)) + u64::from(memory.load(handle.line(1)) < memory.load(handle.line(2)));
            second =
                memory.load(handle.line(2)) + u64::from(memory.load(handle.line(1)) == memory.load(handle.line(2)));
        }
        self.in_place(handle, first, second);
        if !self.is(Mistake::RecoveryDropsEarly) {
            // The record may not be removed before the data that it repaired is persistent.
            memory.fence();
        }
        self.drop_record(handle);
        Ok(())
    }
}

impl Structure for Pair {
    type Op = ();
    type Handle = Handle;
    type View = (u64, u64);

    fn name(&self) -> String {
        format!("pair-{:?}", self.0)
    }

    fn script(&self) -> Vec<()> {
        vec![(); 3]
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        let handle = Handle { pool: pool.clone(), at: pool.heap_area(0).0 };
        self.recover(&handle)?;
        if self.is(Mistake::Leak) {
            return Ok(handle);
        }
        let memory = handle.pool.memory();
        if memory.load(handle.line(4)) != memory.load(handle.line(1)) {
            // Every life counts from the start, so the count needs no flush.
            memory.store(handle.line(4), memory.load(handle.line(1)));
        }
        Ok(handle)
    }

    fn apply(&self, handle: &Handle, (): &()) -> Outcome {
        let memory = handle.pool.memory();
        if self.is(Mistake::StuckAfterCrash) {
            Failure::unless(memory.load(handle.line(3)) == 0, || "locked by a thread that is dead".into())?;
            memory.store(handle.line(3), 1);
            memory.persist(handle.line(3), 8);
        }
        let (first, second) = (memory.load(handle.line(1)) + 1, memory.load(handle.line(2)) + 1);
        let taken = memory.load(handle.line(4)) + 1;
        memory.store(handle.line(4), taken);
        if self.is(Mistake::InPlace) {
            self.in_place(handle, first, second);
            memory.fence();
            return Ok(());
        }
        self.write_record(handle, first, second);
        if self.is(Mistake::AcknowledgedEarly) {
            memory.store(handle.line(0).plus(16), 0);
            memory.store(handle.line(1), first);
            memory.store(handle.line(2), second);
            return Ok(());
        }
        self.in_place(handle, first, second);
        if !self.is(Mistake::RecordDroppedEarly) {
            // The record may not be removed before the stores in place are persistent.
            memory.fence();
        }
        self.drop_record(handle);
        if self.is(Mistake::StuckAfterCrash) {
            memory.store(handle.line(3), 0);
            memory.persist(handle.line(3), 8);
        }
        Ok(())
    }

    fn view(&self, handle: &Handle) -> Outcome<(u64, u64)> {
        Ok((handle.pool.memory().load(handle.line(1)), handle.pool.memory().load(handle.line(2))))
    }

    fn model(&self, ops: &[()]) -> (u64, u64) {
        (ops.len() as u64, ops.len() as u64)
    }

    fn audit(&self, handle: &Handle) -> Outcome {
        let memory = handle.pool.memory();
        let (taken, used) = (memory.load(handle.line(4)), memory.load(handle.line(1)));
        Failure::unless(taken == used, || format!("{taken} blocks are taken, {used} are in use"))
    }

    fn redundant(&self) -> Vec<Redundant> {
        match self.0 {
            Mistake::Excused | Mistake::StaleExcuse => {
                vec![Redundant::new("crash/tests/it/common/mod.rs", 5, "to test an excuse")]
            }
            _ => Vec::new(),
        }
    }

    fn recovery_accesses_max(&self) -> u64 {
        2_000
    }
}
