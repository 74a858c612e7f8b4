//! An open knows pages from the page table, and from the head of a page where the table cannot say it.

use crate::common::{self, Fixture, leaves};
use lodestone_pages::{Error, Pages, Result};
use lodestone_pmem::PmAddr;

/// First possible keys: in the line of the page table, in the first page, in more than one page.
const LOWS: [usize; 6] = [0, 1, 20, 21, 150, 400];
/// Pages of an extent, and bytes before their table.
const EXTENT_PAGES: usize = 4;
const HEAD_BYTES: u64 = 512;
const PAGE_BYTES: u64 = 256;

fn fixture() -> Result<Fixture> {
    let mut fixture = Fixture::new()?;
    let changes: Vec<_> = LOWS.iter().map(|bytes| common::leaf(&vec![b'k'; *bytes], 4, 60)).collect();
    let mut pages = fixture.open()?;
    fixture.batch(&mut pages, &changes, 1, true)?;
    Ok(fixture)
}

/// The summary and the head of each page that is used.
fn places(pages: &Pages) -> Vec<(PmAddr, PmAddr)> {
    let extents = pages.heap_blocks().into_iter().skip(1).map(|(at, _)| at);
    let all = extents.flat_map(|at| {
        // The pages begin at a block of the medium, wherever the extent does.
        let after_table = at.plus(HEAD_BYTES + EXTENT_PAGES as u64 * 64);
        let first = PmAddr::new(at.part(), after_table.offset().next_multiple_of(256));
        (0..EXTENT_PAGES as u64).map(move |page| {
            let entry = at.plus(HEAD_BYTES + page * 64);
            (entry.plus(16), first.plus(page * PAGE_BYTES))
        })
    });
    let stats = pages.stats();
    let all: Vec<_> = all.collect();
    assert_eq!(all.len() as u64, stats.pages);
    all
}

fn flip(fixture: &Fixture, at: PmAddr, bit: u32) {
    let memory = fixture.heap.memory();
    memory.store(at, memory.load(at) ^ (1 << bit));
}

fn is_used(fixture: &Fixture, summary: PmAddr) -> bool {
    let born = PmAddr::new(summary.part(), summary.offset() - 16);
    lodestone_pmem::checked::decode(born, fixture.heap.memory().load(born)).is_some_and(|batch| batch > 0)
}

#[test]
fn a_damaged_summary_is_counted_and_mended_from_the_head() -> Result<()> {
    let fixture = fixture()?;
    let pages = fixture.open()?;
    assert_eq!(leaves(&pages)?.len(), LOWS.len());
    let mut damaged = 0;
    for (summary, _) in places(&pages) {
        for word in 0..6 {
            flip(&fixture, summary.plus(word * 8), 7 * word as u32);
            let opened = fixture.open()?;
            let expected = if is_used(&fixture, summary) { vec![summary] } else { Vec::new() };
            assert_eq!(opened.copies_damaged(), expected, "word {word}");
            assert!(fixture.is_right(&opened)?);
            assert!(fixture.open()?.copies_damaged().is_empty(), "it was mended");
            damaged += expected.len();
        }
    }
    assert!(damaged > 6 * 2 * LOWS.len(), "images of several pages");
    Ok(())
}

#[test]
fn a_damaged_head_is_named_when_it_is_read() -> Result<()> {
    let fixture = fixture()?;
    let pages = fixture.open()?;
    for (summary, head) in places(&pages).into_iter().filter(|(summary, _)| is_used(&fixture, *summary)) {
        flip(&fixture, head.plus(24), 40);
        // The list needs the heads of long keys alone.
        if let Ok(listed) = fixture.open()?.listed() {
            let reader = fixture.open()?.reader();
            let bad: Vec<_> = listed.iter().filter(|listed| reader.read(&listed.image).is_err()).collect();
            assert_eq!(bad.len(), 1, "{bad:?}");
        }
        flip(&fixture, summary.plus(8), 3);
        let error = fixture.open()?.listed().expect_err("neither is right");
        assert!(matches!(&error, Error::Damaged { what: "page", at, .. } if *at == head), "{error}");
        flip(&fixture, summary.plus(8), 3);
        flip(&fixture, head.plus(24), 40);
        assert!(fixture.is_right(&fixture.open()?)?);
    }
    Ok(())
}
