//! Bugs of the batches that only damage after them, or a device, shows. One test: a bug is planted for the whole
//! process.

mod common;

use std::sync::Arc;

use common::{Fixture, leaf, leaves};
use lodestone_heap::{Heap, HeapOptions};
use lodestone_pages::{PageOptions, PageRow, Pages, Result};
use lodestone_pmem::storage::SimulatedDisk;
use lodestone_pmem::{DomainChoice, Pool, PoolOptions, planted};
use lodestone_txn::{Tick, Writer};

/// Bytes of an object that has the size of an extent.
const BLOCK_BYTES: usize = 80 << 10;

/// A batch that was never published writes over pages of the older checkpoint. Then the newest one is damaged.
fn older_checkpoint_has_lost_pages() -> Result<bool> {
    let mut fixture = Fixture::new()?;
    let mut pages = fixture.open()?;
    fixture.batch(&mut pages, &[leaf(b"a", 4, 40)], 1, true)?;
    fixture.batch(&mut pages, &[leaf(b"a", 4, 41)], 2, true)?;
    fixture.batch(&mut pages, &[leaf(b"b", 4, 42)], 3, false)?;
    fixture.spoil(pages);
    let pages = fixture.open()?;
    Ok(leaves(&pages).ok() != Some(fixture.newest.leaves))
}

/// The block domain: another object's block is freed, a batch takes it for its pages, and the power fails before the
/// free is durable. Whether the object is there with other bytes.
fn destroys_a_block_that_lives() -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut options = PoolOptions { domain: DomainChoice::Block, ..PoolOptions::default() };
    (options.size_bytes, options.journal_bytes) = (2 << 20, 1 << 20);
    drop(Pool::create(&path, &options)?);
    let disk = Arc::new(SimulatedDisk::new(std::fs::read(&path).expect("the pool")));
    let open = |disk: &Arc<SimulatedDisk>| {
        let pool = Pool::open_on_device(|| disk.clone(), options.size_bytes, &options)?;
        Heap::open(&pool, &HeapOptions::default())
    };
    let heap = open(&disk)?;
    let mut action = heap.action();
    let at = Pages::make(&heap, &mut action, &PageOptions { page_bytes: 8192, extent_pages: 8, writers: 1 })?;
    action.commit()?;
    // The only block with room for pages.
    let mut blocks = Vec::new();
    for bytes in [BLOCK_BYTES as u64, 32 << 10, 8 << 10] {
        loop {
            let mut action = heap.action();
            let Ok(block) = action.alloc(bytes) else { break };
            action.commit()?;
            blocks.push(block);
        }
    }
    let (memory, live) = (heap.memory(), blocks[0]);
    let mut action = heap.action();
    action.set(heap.root_word(0), live.to_raw());
    action.commit()?;
    memory.write(live, &[7; BLOCK_BYTES]);
    memory.persist(live, BLOCK_BYTES as u64);
    memory.durable()?;
    let mut action = heap.action();
    action.set(heap.root_word(0), 0);
    action.free(live)?;
    action.commit()?;
    let mut pages = Pages::open(&heap, at)?;
    let row = PageRow { key: b"key", tick: Tick(1), writer: Writer::default(), payload: &[9; 40] };
    pages.batch().write(1, b"", std::iter::once(row))?;
    let disk = Arc::new(SimulatedDisk::new(disk.power_cut(|_| true)));
    let heap = open(&disk)?;
    let mut bytes = [0; BLOCK_BYTES];
    heap.memory().read(live, &mut bytes);
    let is_alive = heap.memory().load(heap.root_word(0)) == live.to_raw();
    Ok(is_alive && bytes != [7; BLOCK_BYTES])
}

#[test]
fn every_planted_bug_is_found() -> Result<()> {
    assert!(!older_checkpoint_has_lost_pages()? && !destroys_a_block_that_lives()?);
    planted::plant(Some("pages-old-freed-early"));
    let is_lost = older_checkpoint_has_lost_pages();
    planted::plant(Some("pages-grow-over-live"));
    // The checkpoint thread may make the end durable in between. Then the bug does no harm.
    let mut attempts = std::iter::repeat_with(destroys_a_block_that_lives).take(20);
    let is_destroyed = attempts.find(|outcome| !matches!(outcome, Ok(false)));
    planted::plant(None);
    assert!(is_lost?, "pages of the older checkpoint that are used again are not found");
    assert!(is_destroyed.expect("a block that was taken before its end was durable is not found")?);
    Ok(())
}
