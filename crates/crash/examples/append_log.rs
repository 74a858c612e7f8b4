//! An append-only log as a type ([`Structure`]), once with the length word published too early and once right.
//!
//! `cargo run -p lodestone-crash --example append_log` explores both in every profile and audits the flushes and fences
//! of the right one. In your own test: `explore(Log { published_early: false }).expect_clean()`.

use lodestone_crash::{Config, Failure, Outcome, Profile, Structure, audit_target, explore, run_target};
use lodestone_pmem::{PmAddr, Pool};

/// Records of two words after a length word. Each record and the length have their own line.
struct Log {
    published_early: bool,
}

/// An opened log.
struct Handle {
    pool: Pool,
    at: PmAddr,
}

impl Handle {
    fn record(&self, index: u64) -> PmAddr {
        self.at.plus(64 + index * 64)
    }
}

impl Structure for Log {
    /// Appends this value. Its record holds it twice, so that a torn record shows.
    type Op = u64;
    type Handle = Handle;
    type View = Vec<u64>;

    fn name(&self) -> String {
        if self.published_early { "log-wrong".into() } else { "log".into() }
    }

    fn script(&self) -> Vec<u64> {
        vec![11, 22, 33]
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        Ok(Handle { pool: pool.clone(), at: pool.heap_area(0).0 })
    }

    fn apply(&self, log: &Handle, value: &u64) -> Outcome {
        let memory = log.pool.memory();
        let len = memory.load(log.at);
        let record = log.record(len);
        memory.store(record, *value);
        memory.store(record.plus(8), *value);
        memory.flush(record, 16);
        if !self.published_early {
            // The length may not overtake the record that it publishes.
            memory.fence();
        }
        memory.store(log.at, len + 1);
        // The caller is told on return, so the length must be persistent.
        memory.persist(log.at, 8);
        Ok(())
    }

    fn view(&self, log: &Handle) -> Outcome<Vec<u64>> {
        let memory = log.pool.memory();
        let read = |index| {
            let (first, second) = (memory.load(log.record(index)), memory.load(log.record(index).plus(8)));
            Failure::unless(first == second, || format!("record {index} is torn: {first} and {second}"))?;
            Ok(first)
        };
        (0..memory.load(log.at)).map(read).collect()
    }

    fn model(&self, appended: &[u64]) -> Vec<u64> {
        appended.to_vec()
    }
}

fn main() -> Outcome {
    println!("{}\n", explore(Log { published_early: true }));
    for &profile in Profile::ALL {
        let config = Config { profile, ..Config::default() };
        println!("{}", run_target(&Log { published_early: false }, &config, &mut |_| {}).expect_exhausted());
    }
    println!("{}", audit_target(&Log { published_early: false }, &Config::default(), &mut |_, _| {})?.expect_clean());
    Ok(())
}
