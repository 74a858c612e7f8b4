//! The kernel is told that extents are read here and there: else it would read 128 KiB and more around each entry of
//! the page table, and push out what a process with little memory has.

use std::ops::Range;
use std::path::Path;

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pages::{Pages, Result};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};

use crate::common::{self, Fixture};

/// Extents that are not further apart are one range.
const GAP_MAX: u64 = 64 << 10;

/// Ranges of a file whose mapped pages the kernel reads alone, as it says itself.
fn read_alone(file: &Path) -> Vec<Range<u64>> {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the memory map");
    let (mut present, mut alone) = (None, Vec::new());
    for line in maps.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        if let [addresses, _, offset, _, _, path] = words[..]
            && let Some((start, end)) = addresses.split_once('-')
        {
            let number = |word| u64::from_str_radix(word, 16).expect("a hexadecimal number");
            let offset = number(offset);
            present = (Path::new(path) == file).then(|| offset..offset + number(end) - number(start));
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && let Some(range) = present.take()
            && flags.split_ascii_whitespace().any(|flag| flag == "rr")
        {
            alone.push(range);
        }
    }
    alone
}

/// Extents of the pages, without the directory before them.
fn extents(pages: &Pages) -> Vec<Range<u64>> {
    let blocks = pages.heap_blocks().into_iter().skip(1);
    blocks.map(|(at, bytes)| at.offset()..at.offset() + bytes).collect()
}

#[test]
fn extents_that_are_made_and_those_that_are_opened_are_read_at_random() -> Result<()> {
    let mut fixture = Fixture::with_pages_of(16 << 10)?;
    let file = fixture.heap.pool().path().canonicalize().expect("its path");
    let (mut pages, mut known) = (fixture.open()?, 0);
    for turn in 1..4 {
        let leaf = |number| common::leaf(&[b'k', turn, number], 4, 60);
        fixture.batch(&mut pages, &(0..6).map(leaf).collect::<Vec<_>>(), turn.into(), true)?;
        assert!(extents(&pages).len() > known, "the batch takes another extent");
        known = extents(&pages).len();
        all_are_known(&pages, &file);
    }
    // A mapping that was told nothing before.
    let copy = file.with_file_name("copy.pool");
    std::fs::copy(&file, &copy).expect("a copy");
    let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let heap = Heap::open(&Pool::open(&copy, &options)?, &HeapOptions::default())?;
    assert_eq!(read_alone(&copy), []);
    let pages = Pages::open(&heap, fixture.at)?;
    assert_eq!(extents(&pages).len(), known);
    all_are_known(&pages, &copy);
    Ok(())
}

/// All extents are, and those beside each other are one range: the kernel has room for some ten thousand of them.
fn all_are_known(pages: &Pages, file: &Path) {
    let (extents, alone) = (extents(pages), read_alone(file));
    for extent in &extents {
        let is_inside = |range: &Range<u64>| range.start <= extent.start && extent.end <= range.end;
        assert!(alone.iter().any(is_inside), "{extent:?} of {extents:?} in {alone:?}");
    }
    let gaps = extents
        .windows(2)
        .filter(|pair| pair[0].start > pair[1].end + GAP_MAX || pair[1].start > pair[0].end + GAP_MAX);
    assert!(alone.len() <= 1 + gaps.count(), "{extents:?} in {alone:?}");
}
