//! Parts of a batch by threads side by side: one batch, and a fence of each thread.

use std::thread;

use crate::common::{Fixture, WRITERS};
use lodestone_pages::{Error, Image, PageRow, Pages, Patch, Result, RowWrite, Shares};
use lodestone_pmem::thread_counters;
use lodestone_txn::{Tick, Writer};

fn row(tick: u64, payload: &[u8]) -> PageRow<'_> {
    PageRow { key: b"k", tick: Tick(tick), writer: Writer::default(), payload }
}

fn keys(pages: &Pages) -> Result<Vec<(u32, Vec<u8>)>> {
    let mut found = Vec::new();
    pages.images::<Error>(&mut |image| {
        found.extend(image.rows().map(|row| (image.tree, row.payload.to_vec())));
        Ok(())
    })?;
    Ok(found)
}

/// Writes an image for each of the trees by a thread of its own. Returns the images, and the fences of each thread.
fn write(shares: &Shares<'_>, trees: &[u32], tick: u64) -> Result<Vec<(Image, u64)>> {
    let work = |tree: u32| {
        move || {
            let before = thread_counters().fences;
            let mut share = shares.share(None);
            let image = share.write(tree, b"", std::iter::once(row(tick, &tick.to_le_bytes())))?;
            share.finish()?;
            Ok((image, thread_counters().fences - before))
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = trees.iter().map(|tree| scope.spawn(work(*tree))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn shares_count_with_their_batch_and_fence_for_themselves() -> Result<()> {
    let fixture = Fixture::new()?;
    let mut pages = fixture.open()?;
    let from = || vec![0; usize::from(WRITERS)];
    // Room for all of them.
    pages.batch().side_by_side(|shares| write(shares, &[1, 2, 3, 4], 1))?;
    let mut batch = pages.batch();
    let first = batch.side_by_side(|shares| write(shares, &[1, 2, 3], 1))?;
    assert!(first.iter().all(|(_, fences)| *fences == 1), "{first:?}");
    let before = thread_counters().fences;
    batch.publish(from())?;
    assert_eq!(thread_counters().fences - before, 2);
    let value = |tick: u64| tick.to_le_bytes().to_vec();
    assert_eq!(keys(&pages)?, [(1, value(1)), (2, value(1)), (3, value(1))]);
    // One image ends and one is changed in place, both in shares. The thread that publishes has one of them.
    let mut batch = pages.batch();
    batch.side_by_side(|shares| -> Result<()> {
        let mut own = shares.share(None);
        let patch =
            own.patch(&first[0].0, (1, b""), std::iter::once((row(2, &value(2)), RowWrite::Allowed)), Tick::NEVER)?;
        assert!(matches!(patch, Patch::Done(_) | Patch::MostLines), "{patch:?}");
        own.end(first[1].0.clone());
        own.finish_later();
        write(shares, &[9], 2).map(drop)
    })?;
    batch.publish(from())?;
    let found = keys(&fixture.open()?)?;
    assert_eq!(found.iter().map(|(tree, _)| *tree).collect::<Vec<_>>(), [1, 3, 9]);
    Ok(())
}

#[test]
fn a_share_that_is_given_up_loses_no_page() -> Result<()> {
    let fixture = Fixture::new()?;
    let mut pages = fixture.open()?;
    let mut free = Vec::new();
    for _ in 0..3 {
        let mut batch = pages.batch();
        batch.side_by_side(|shares| -> Result<()> {
            write(shares, &[1, 2], 1)?;
            // Neither finished nor published.
            shares.share(None).write(3, b"", std::iter::once(row(1, &[0; 900]))).map(drop)
        })?;
        drop(batch);
        free.push((pages.stats().pages_free, pages.stats().pages));
    }
    assert!(free.iter().all(|(free, all)| free == all), "{free:?}");
    assert_eq!(free[1], free[2]);
    Ok(())
}
