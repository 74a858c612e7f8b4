//! Bugs of the batches that only damage after them shows. One test: a bug is planted for the whole process.

mod common;

use common::{Fixture, leaf, leaves};
use lodestone_pages::Result;
use lodestone_pmem::planted;

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

#[test]
fn pages_of_the_older_checkpoint_that_are_used_again_are_found() -> Result<()> {
    assert!(!older_checkpoint_has_lost_pages()?);
    planted::plant(Some("pages-old-freed-early"));
    let is_lost = older_checkpoint_has_lost_pages();
    planted::plant(None);
    assert!(is_lost?, "the bug is not found");
    Ok(())
}
