//! The pools of members and senders, made when they are not there.
//!
//! A pool of a member has its log and its pages, that of a sender its ring. The root is set last: a pool without it was
//! not finished, and is made anew.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use lodestone_fabric::{ApplyLog, PageArea, Receiver, ReceiverOptions, Ring};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};

use crate::content::{LIVE, PAGE_BYTES, PAGES, page, page_of, ring_bytes};
use crate::network::{GROUP, SALT};

const ROOT: &str = "fabric.node";
/// Entries of twice the records that can be not stable, and marks.
const LOG_BYTES: u64 = 1 << 20;

/// The bytes of a ring: everything that is not stable, and an eighth for first records of terms.
const RING_BYTES: u64 = (ring_bytes(LIVE) + (1 << 20)).next_multiple_of(64);

const fn options(heap_bytes: u64, domain: DomainChoice) -> (u64, u64, DomainChoice) {
    let journal_bytes = 4 << 20;
    ((heap_bytes + journal_bytes + (1 << 20)).next_multiple_of(1 << 20), journal_bytes, domain)
}

/// Opens a pool, or makes it; also whether it is new.
fn open(path: &Path, heap_bytes: u64, domain: DomainChoice) -> Result<(Pool, bool)> {
    let (size_bytes, journal_bytes, domain) = options(heap_bytes, domain);
    let options = PoolOptions { size_bytes, journal_bytes, domain, ..PoolOptions::default() };
    let pool = Pool::open_or_create(path, &options).with_context(|| format!("opening {}", path.display()))?;
    let (begin, end) = pool.heap_area(0);
    ensure!(end.offset() - begin.offset() >= heap_bytes, "{} is too small; remove it", path.display());
    let is_new = pool.root(ROOT)?.is_none();
    Ok((pool, is_new))
}

fn finish(pool: &Pool) -> Result<()> {
    pool.set_root(ROOT, 1, pool.heap_area(0).0)?;
    pool.memory().durable()?;
    Ok(())
}

/// The member in a pool. The pool must live as long as it is used.
pub fn receiver(path: &Path, domain: DomainChoice, options: ReceiverOptions) -> Result<(Pool, Receiver)> {
    let area_bytes = PageArea::bytes_for(PAGE_BYTES, PAGES);
    let (pool, is_new) = open(path, LOG_BYTES + area_bytes + 4096, domain)?;
    let at = pool.heap_area(0).0;
    let mut area = PageArea::open(pool.memory(), at.plus(LOG_BYTES), area_bytes, PAGE_BYTES, PAGES)?;
    let log = if is_new {
        let log = ApplyLog::create(pool.memory(), at, LOG_BYTES, SALT)?;
        finish(&pool)?;
        log
    } else {
        ApplyLog::open(pool.memory(), at, LOG_BYTES, SALT, &mut area)?
    };
    let options = ReceiverOptions { group: GROUP, salt: SALT, ..options };
    Ok((pool, Receiver::new(options, log, area)))
}

/// The ring in a pool. The pool must live as long as it is used.
pub fn ring(path: &Path, domain: DomainChoice) -> Result<(Pool, Ring)> {
    let (pool, is_new) = open(path, RING_BYTES + 4096, domain)?;
    let at = pool.heap_area(0).0;
    let ring = if is_new {
        let ring = Ring::create(pool.memory(), at, RING_BYTES, SALT)?;
        finish(&pool)?;
        ring
    } else {
        Ring::open(pool.memory(), at, RING_BYTES, SALT)?
    };
    Ok((pool, ring))
}

/// Overwrites the pages of the newest records in the pool of a member. A judge must find that.
pub fn spoil(path: &Path, domain: DomainChoice, sequence: u64) -> Result<()> {
    let (pool, _) = open(path, 0, domain)?;
    let at = pool.heap_area(0).0.plus(LOG_BYTES);
    let bytes = PageArea::bytes_for(PAGE_BYTES, PAGES);
    let mut area = PageArea::open(pool.memory(), at, bytes, PAGE_BYTES, PAGES)?;
    for sequence in sequence.saturating_sub(20)..=sequence {
        area.write(page_of(sequence), &page(0, sequence))?;
    }
    area.settle()?;
    // Before the judge opens the pool again.
    pool.memory().fence();
    pool.memory().durable()?;
    Ok(())
}
