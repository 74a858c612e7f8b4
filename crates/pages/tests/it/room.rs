//! Room for images before they are written, and batches beside a checkpoint.

use crate::common::{self, Fixture};
use lodestone_pages::{Error, PageRow, Result};
use lodestone_txn::{Tick, Writer};

#[test]
fn an_image_takes_the_pages_that_were_foretold() -> Result<()> {
    let fixture = Fixture::new()?;
    let mut pages = fixture.open()?;
    // 192 bytes of an image in a page.
    for (low, rows, payload) in [(0, 1, 0), (8, 1, 160), (8, 1, 161), (8, 5, 18), (100, 3, 300), (0, 0, 0)] {
        let (low, payload) = (vec![b'l'; low], vec![b'p'; payload]);
        let rows =
            || (0..rows).map(|_| PageRow { key: b"", tick: Tick(1), writer: Writer::default(), payload: &payload });
        let foretold = pages.image_pages(&low, rows());
        let mut batch = pages.batch();
        assert_eq!(batch.write(1, &low, rows())?.page_count(), foretold, "{} bytes, {}", low.len(), payload.len());
    }
    Ok(())
}

#[test]
fn a_search_for_room_takes_none() -> Result<()> {
    let fixture = Fixture::new()?;
    let mut pages = fixture.open()?;
    let before = (pages.stats(), fixture.heap.usage().bytes_used);
    pages.find_room(100, None, (2, 4096))?;
    let error = pages.find_room(100_000, None, (0, 0)).expect_err("the pool has 4 MiB");
    assert!(matches!(error, Error::Heap(error) if error.is_full()));
    assert!(pages.find_room(100, None, (2, 4 << 20)).is_err(), "no room for the spare blocks");
    pages.find_room(0, None, (2, 4 << 20))?;
    assert_eq!((pages.stats(), fixture.heap.usage().bytes_used), before);
    Ok(())
}

#[test]
fn a_batch_beside_a_checkpoint_keeps_its_positions() -> Result<()> {
    let fixture = Fixture::new()?;
    let mut pages = fixture.open()?;
    let writer = Writer::new(0).expect("a small number");
    for from in [100, 200] {
        pages.batch().publish(vec![from; usize::from(common::WRITERS)])?;
    }
    assert_eq!(pages.from(writer), 100);
    let mut batch = pages.batch();
    batch.write(
        1,
        b"",
        [PageRow { key: b"k", tick: Tick(1), writer: Writer::default(), payload: b"v" }].into_iter(),
    )?;
    batch.publish_beside()?;
    assert_eq!(pages.from(writer), 200, "both checkpoints have it");
    let reopened = fixture.open()?;
    let mut images = 0;
    reopened.images::<Error>(&mut |_| {
        images += 1;
        Ok(())
    })?;
    assert_eq!((reopened.from(writer), images), (200, 1));
    Ok(())
}
