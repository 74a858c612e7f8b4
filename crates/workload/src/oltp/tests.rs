//! Workers that go on before their transactions are acknowledged.

use std::time::Duration;

use super::memory::{MemoryTables, MemoryWorker};
use super::smallbank::SmallBank;
use super::*;

/// Acknowledges nothing before it must.
struct Late {
    tables: MemoryTables,
    unacknowledged_max: usize,
    /// Time that the acknowledgement of all takes, at the end.
    last_takes: Duration,
}

struct LateWorker<'e> {
    worker: MemoryWorker<'e>,
    unacknowledged: usize,
    unacknowledged_max: usize,
    last_takes: Duration,
}

impl OltpEngine for Late {
    type Worker<'e> = LateWorker<'e>;

    fn name(&self) -> String {
        "late".into()
    }

    fn worker(&self) -> Result<LateWorker<'_>> {
        let (unacknowledged_max, last_takes) = (self.unacknowledged_max, self.last_takes);
        Ok(LateWorker { worker: self.tables.worker()?, unacknowledged: 0, unacknowledged_max, last_takes })
    }

    fn unacknowledged_max(&self) -> usize {
        self.unacknowledged_max
    }

    fn environment(&self) -> Environment {
        self.tables.environment()
    }
}

impl Worker for LateWorker<'_> {
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<T::Out>> {
        self.unacknowledged += 1;
        self.worker.run(transaction)
    }

    fn acknowledge(&mut self, count_max: usize) -> Result<usize> {
        assert!(self.unacknowledged <= self.unacknowledged_max + 1 || count_max == 0, "a worker ran ahead");
        if count_max == 0 && self.unacknowledged > 0 {
            std::thread::sleep(self.last_takes);
        }
        self.unacknowledged = self.unacknowledged.min(count_max);
        Ok(self.unacknowledged)
    }

    fn attempts(&self) -> u64 {
        self.worker.attempts()
    }
}

/// Each transaction has one latency, which ends when its acknowledgement is reported, and none is left at the end.
#[test]
fn a_latency_ends_with_the_acknowledgement() -> Result<()> {
    let bank = SmallBank::new(100);
    for unacknowledged_max in [1, 7, 1_000_000] {
        let engine =
            Late { tables: MemoryTables::new(SmallBank::TABLES), unacknowledged_max, last_takes: Duration::ZERO };
        load(&engine.tables, &bank, 1, 1)?;
        let plan = Plan { time_one_of: 1, ..Plan::new(2, Length::Operations(5_000)) };
        let Outcome { run, tally } = run(&engine, &bank, &plan, 3)?;
        assert_eq!((run.operations, run.latency.len()), (5_000, 5_000));
        for (class, histogram) in &run.latency_by_class {
            let place = SmallBank::CLASSES.iter().position(|name| name == class).expect("a class");
            let ClassTally { committed, cancelled, .. } = tally.classes[place];
            assert_eq!(histogram.len(), committed + cancelled, "{class}");
        }
        assert_eq!(verify(&engine.tables, &bank, tally.effect)?, []);
    }
    // All are acknowledged at the end, and that takes its time: so much is in the latency of each.
    let last_takes = Duration::from_millis(20);
    let engine = Late { tables: MemoryTables::new(SmallBank::TABLES), unacknowledged_max: 1_000_000, last_takes };
    load(&engine.tables, &bank, 1, 1)?;
    let outcome = run(&engine, &bank, &Plan::new(1, Length::Operations(2_000)), 3)?.run;
    assert_eq!(outcome.latency.len(), 2_000);
    assert!(outcome.latency.min() >= 19_000_000, "{} ns", outcome.latency.min());
    Ok(())
}
