//! The boot number and the orderly close: a sequence of lives, each of which uses its number.
//!
//! Each operation is a life of the pool. It opens the pool, writes the boot number into the heap area as a transaction
//! would stamp its timestamps, and closes. After any crash the next boot number must be larger than every stamp found,
//! and all acknowledged stamps must be there.

use lodestone_pmem::{PmAddr, Pool, WORD_BYTES};

use crate::event::SiteKey;
use crate::history::History;
use crate::medium::CrashMedium;
use crate::target::{Failure, Outcome, Recovered, Target};

/// Lives of a pool: opened, stamped, closed.
pub struct PoolBoot;

const LIVES: usize = 3;

fn stamp_addr(pool: &Pool) -> PmAddr {
    pool.heap_area(0).0
}

/// The clean mark says that the previous life ended in order: then its stamp must be there.
fn verify_clean_mark(pool: &Pool) -> Outcome {
    let stamp = pool.memory().load(stamp_addr(pool));
    Failure::unless(!pool.was_clean() || stamp + 1 == pool.boot(), || {
        format!("life {} is called closed in order, but the newest stamp is of life {stamp}", pool.boot() - 1)
    })
}

fn live(medium: &CrashMedium) -> Outcome {
    let pool = medium.open_pool()?;
    let (memory, stamp) = (pool.memory(), stamp_addr(&pool));
    let (used, boot) = (memory.load(stamp), pool.boot());
    Failure::unless(boot > used, || {
        format!("boot number {boot} was used before: a stamp of life {used} is on the medium")
    })?;
    verify_clean_mark(&pool)?;
    memory.store(stamp, boot);
    // The stamp may be told to the outside, so it is persistent before the operation is acknowledged.
    memory.persist(stamp, WORD_BYTES);
    Ok(())
}

impl Target for PoolBoot {
    fn name(&self) -> String {
        "pool-boot".into()
    }

    fn audits(&self, site: &SiteKey) -> bool {
        ["pool/boot.rs", "pool/mirror.rs"].iter().any(|file| site.file.ends_with(file))
            || site.file.ends_with("pool/open.rs")
    }

    fn script_len(&self) -> usize {
        LIVES
    }

    fn op_text(&self, op: usize) -> String {
        format!("life {op}: open, stamp, close")
    }

    fn prepare(&self, medium: &CrashMedium) -> Outcome {
        let pool = medium.create_pool()?;
        pool.memory().store(stamp_addr(&pool), pool.boot());
        Ok(())
    }

    fn run(&self, medium: &CrashMedium, ops: &[usize]) -> Outcome {
        for &op in ops {
            medium.begin(op);
            live(medium)?;
            medium.ack(op)?;
        }
        Ok(())
    }

    fn recover(&self, medium: &CrashMedium) -> Outcome<Box<dyn Recovered + '_>> {
        Ok(Box::new(Life { pool: medium.open_pool()? }))
    }
}

struct Life {
    pool: Pool,
}

impl Recovered for Life {
    fn judge(&mut self, history: &History) -> Outcome {
        let (used, boot) = (self.pool.memory().load(stamp_addr(&self.pool)), self.pool.boot());
        Failure::unless(boot > used, || {
            format!("boot number {boot} was used before: a stamp of life {used} is on the medium")
        })?;
        verify_clean_mark(&self.pool)?;
        // The life that prepared the pool left a stamp too.
        let lives = history.acked().len() as u64 + 1;
        Failure::unless(used >= lives, || format!("{lives} lives were acknowledged, the newest stamp is {used}"))
    }
}
