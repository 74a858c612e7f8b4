//! Rows that are added to an image in place: what they cost, when they count, and what becomes of them.

use crate::common::{self, Fixture, Rows, leaves};
use lodestone_heap::{Heap, HeapOptions};
use lodestone_pages::{Error, PageOptions, PageRow, Pages, Patch, Patched, Result, RowWrite};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions, checked};
use lodestone_txn::{Tick, Writer};

const LEAF: (u32, &[u8]) = (1, b"b");

fn row(key: &[u8]) -> PageRow<'_> {
    PageRow { key, tick: Tick(1), writer: Writer::default(), payload: &[7; 500] }
}

fn key() -> (u32, Vec<u8>) {
    (LEAF.0, LEAF.1.to_vec())
}

/// A store with a leaf of three rows, and the rows with one more.
fn fixture() -> Result<(Fixture, Pages, Rows)> {
    let mut fixture = Fixture::with_pages_of(1024)?;
    let mut pages = fixture.open()?;
    fixture.batch(&mut pages, &[common::leaf(LEAF.1, 3, 99)], 1, true)?;
    let mut rows = fixture.newest.leaves[&key()].clone();
    // Between the others.
    rows.insert(b"b\0\0\0\0\0\0\0\0a".to_vec(), (9, b"added".to_vec()));
    Ok((fixture, pages, rows))
}

/// Rows are gone that a batch has added which is not published, also if a later batch has its number. Rows that it has
/// changed stay so.
#[test]
fn added_rows_count_with_their_batch() -> Result<()> {
    let (mut fixture, mut pages, rows) = fixture()?;
    assert!(fixture.patch(&mut pages, &key(), &rows, false)?);
    assert!(fixture.is_right(&pages)?);
    fixture.batch(&mut pages, &[common::leaf(b"c", 1, 9)], 1, true)?;
    assert!(fixture.is_right(&pages)?, "the next batch has the same number");
    assert!(fixture.patch(&mut pages, &key(), &rows, true)?);
    assert_eq!(leaves(&pages)?[&key()], rows);
    // The older checkpoint goes on without the row, and so do the batches after it.
    fixture.spoil(pages);
    let mut pages = fixture.open()?;
    assert_eq!(leaves(&pages)?[&key()].len(), 3);
    fixture.batch(&mut pages, &[common::leaf(b"c", 2, 9)], 1, true)?;
    assert!(fixture.is_right(&pages)?, "the next batch has the number of the one that is damaged");
    Ok(())
}

/// A row that was added changes in place as the others do, and is read alone.
#[test]
fn an_added_row_is_a_row() -> Result<()> {
    let (mut fixture, mut pages, mut rows) = fixture()?;
    assert!(fixture.patch(&mut pages, &key(), &rows, true)?);
    let added = b"b\0\0\0\0\0\0\0\0a";
    rows.insert(added.to_vec(), (10, b"other".to_vec()));
    assert!(fixture.patch(&mut pages, &key(), &rows, true)?);
    assert!(fixture.is_right(&pages)?);
    let pages = fixture.open()?;
    let (image, reader) = (pages.listed()?[0].image.clone(), pages.reader());
    let row =
        |key: &[u8]| reader.read_row(&image, LEAF, key, None).map(|(tick, _, payload)| (tick.0, payload.to_vec()));
    assert_eq!(row(added), Some((10, b"other".to_vec())));
    assert_eq!(row(&[LEAF.1, &1_u64.to_be_bytes()].concat()).expect("a row").0, 2);
    assert_eq!(row(b"bz"), None);
    // A row that goes takes a new image.
    rows.remove(&added[..]);
    let mut pages = fixture.open()?;
    assert!(!fixture.patch(&mut pages, &key(), &rows, true)?);
    Ok(())
}

/// A page of 8 KiB with seven rows of 500 bytes: another one takes its own lines, two words and a look at the page.
#[test]
fn a_row_that_is_added_takes_its_own_lines() -> Result<()> {
    let fixture = Fixture::new()?;
    let mut action = fixture.heap.action();
    let at = Pages::make(&fixture.heap, &mut action, &PageOptions { writers: 1, ..PageOptions::default() })?;
    action.commit()?;
    let mut pages = Pages::open(&fixture.heap, at)?;
    let keys: Vec<_> = (0..9_u64).map(|key| (key * 7 % 9).to_be_bytes()).collect();
    let rows = |count: usize| {
        let mut keys = keys[..count].to_vec();
        keys.sort_unstable();
        keys
    };
    let mut batch = pages.batch();
    let first = rows(7);
    let image = batch.write(1, b"", first.iter().map(|key| row(key)))?;
    batch.publish(vec![0])?;
    for count in 8..=9 {
        let rows = rows(count);
        let mut batch = pages.batch();
        let patch = batch.patch(&image, (1, b""), rows.iter().map(|key| (row(key), RowWrite::Allowed)), Tick::NEVER)?;
        let Patch::Done(Patched { rows: 1, added: 1, lines: 9..=10, .. }) = patch else {
            panic!("{patch:?}");
        };
        batch.publish(vec![0])?;
        let found = pages.reader().read(&image)?;
        assert!(found.keys().eq(rows.iter().map(|key| &key[..])), "{count} rows");
    }
    // One that a record does not have all of must not be added.
    let mut batch = pages.batch();
    let other = 99_u64.to_be_bytes();
    let mut rows: Vec<_> = rows(9).iter().map(|key| (*key, RowWrite::Allowed)).collect();
    rows.push((other, RowWrite::Refused));
    let with = rows.iter().map(|(key, write)| (row(key), *write));
    assert_eq!(batch.patch(&image, (1, b""), with, Tick::NEVER)?, Patch::Refused);
    Ok(())
}

/// The word before that in which the row ends that [`fixture`] adds.
fn added_row(fixture: &Fixture, pages: &Pages) -> PmAddr {
    let memory = fixture.heap.memory();
    let extents = pages.heap_blocks().into_iter().skip(1);
    let mut words = extents.flat_map(|(at, bytes)| (0..bytes / 8).map(move |word| at.plus(word * 8)));
    let has_it = |at: &PmAddr| {
        let mut bytes = [0; 16];
        memory.contains(*at, 16) && {
            memory.read(*at, &mut bytes);
            // The payload of the row ends the tail.
            bytes.windows(5).any(|window| window == b"added")
        }
    };
    words.find(has_it).expect("the row")
}

/// Each word of a tail and each byte of its rows is verified.
#[test]
fn a_damaged_tail_is_named() -> Result<()> {
    let (mut fixture, mut pages, rows) = fixture()?;
    assert!(fixture.patch(&mut pages, &key(), &rows, true)?);
    let (memory, place) = (fixture.heap.memory(), added_row(&fixture, &pages).plus(8));
    let (mut named, mut same) = (0, 0);
    // The words, then the row: 16 bytes, its head 16, its key 10, its cell 23.
    for word in 0..12_u64 {
        let at = PmAddr::new(place.part(), place.offset() - word * 8);
        for bit in [0, 13, 37, 62] {
            memory.store(at, memory.load(at) ^ (1 << bit));
            match fixture.open().and_then(|pages| leaves(&pages)) {
                Ok(found) => {
                    assert_eq!(found, fixture.newest.leaves, "word {word}, bit {bit}");
                    same += 1;
                }
                Err(Error::Damaged { .. }) => named += 1,
                Err(error) => panic!("{error}"),
            }
            memory.store(at, memory.load(at) ^ (1 << bit));
        }
    }
    assert!(named > 30 && same < 15, "{named} are named, {same} do not matter");
    Ok(())
}

/// Sets the version of the format, as another version of this crate would have written it.
fn set_version(fixture: &Fixture, version: u32) {
    let memory = fixture.heap.memory();
    for line in [fixture.at, fixture.at.plus(256)] {
        let mut bytes = [0; 64];
        memory.read(line, &mut bytes);
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        memory.write(line, &bytes);
    }
}

#[test]
fn pages_of_the_version_before_have_no_tails() -> Result<()> {
    let (mut fixture, pages, rows) = fixture()?;
    drop(pages);
    set_version(&fixture, 5);
    let mut pages = fixture.open()?;
    fixture.batch(&mut pages, &[common::leaf(LEAF.1, 3, 98)], 1, true)?;
    assert!(!fixture.patch(&mut pages, &key(), &rows, true)?, "the new image has no tail");
    assert!(fixture.is_right(&pages)?);
    let mut changed = fixture.newest.leaves[&key()].clone();
    changed.values_mut().next().expect("a row").1 = vec![1; 50];
    changed.values_mut().next().expect("a row").0 = 77;
    assert!(fixture.patch(&mut pages, &key(), &changed, true)?, "its rows change in place");
    assert!(fixture.is_right(&fixture.open()?)?);
    drop(pages);
    set_version(&fixture, 7);
    let error = fixture.open().map(drop).expect_err("a later version");
    assert!(error.to_string().contains("version"), "{error}");
    Ok(())
}

/// A writer in another process goes on. The rows of the checkpoint that this opening has read are there after one
/// batch, and said to be gone after two.
#[test]
fn an_older_opening_says_so() -> Result<()> {
    let (mut fixture, first, mut rows) = fixture()?;
    let mut second = fixture.open()?;
    let (image, reader) = (first.listed()?[0].image.clone(), first.reader());
    let before = reader.read(&image)?.keys().count();
    assert!(fixture.patch(&mut second, &key(), &rows, true)?);
    assert_eq!(reader.read(&image)?.keys().count(), before);
    rows.insert(b"bz".to_vec(), (10, b"more".to_vec()));
    assert!(fixture.patch(&mut second, &key(), &rows, true)?);
    let error = reader.read(&image).expect_err("an older state than the page has");
    assert!(error.to_string().contains("later batches"), "{error}");
    assert_eq!(second.reader().read(&image)?.keys().count(), before + 2);
    Ok(())
}

/// A process is killed while it adds a row, and its pool is opened on a device, where pages are written directly.
#[test]
fn a_pool_that_moves_to_a_device_loses_the_row_of_a_batch_that_was_cut_off() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let pool = |domain| PoolOptions { domain, size_bytes: 4 << 20, journal_bytes: 256 << 10, ..PoolOptions::default() };
    let heap = |domain| -> Result<Heap> {
        Heap::open(&Pool::open(&path, &pool(domain))?, &HeapOptions::default()).map_err(Into::into)
    };
    drop(Pool::create(&path, &pool(DomainChoice::DaxEmulated))?);
    let on_memory = heap(DomainChoice::DaxEmulated)?;
    let mut action = on_memory.action();
    let at = Pages::make(&on_memory, &mut action, &PageOptions { writers: 1, ..PageOptions::default() })?;
    action.set(on_memory.root_word(0), at.to_raw());
    action.commit()?;
    let mut pages = Pages::open(&on_memory, at)?;
    let keys: Vec<_> = (0..9_u64).map(|key| key.to_be_bytes()).collect();
    let mut batch = pages.batch();
    let image = batch.write(1, b"", keys[..8].iter().map(|key| row(key)))?;
    batch.publish(vec![0])?;
    let mut batch = pages.batch();
    let patch = batch.patch(&image, (1, b""), keys.iter().map(|key| (row(key), RowWrite::Allowed)), Tick::NEVER)?;
    assert!(matches!(patch, Patch::Done(_)), "{patch:?}");
    // As a killed process leaves it.
    let left = folder.path().join("left.pool");
    std::fs::copy(&path, &left).expect("a copy");
    drop(batch);
    drop((pages, on_memory));
    std::fs::rename(left, &path).expect("the pool");
    for domain in [DomainChoice::Block, DomainChoice::DaxEmulated] {
        let heap = heap(domain)?;
        let mut pages = Pages::open(&heap, at)?;
        let (image, reader) = (pages.listed()?[0].image.clone(), pages.reader());
        assert_eq!(reader.read(&image)?.keys().count(), 8);
        assert_eq!(reader.end_unpublished(&image)?, domain == DomainChoice::Block, "{domain:?}");
        pages.batch().publish(vec![0])?;
        assert_eq!(pages.reader().read(&image)?.keys().count(), 8, "{domain:?}");
        drop((reader, pages));
    }
    Ok(())
}

/// Words that verify may say anything, and so may the rows. A read ends with rows that were there, or with an error.
#[test]
fn a_tail_that_lies_is_an_error_or_changes_nothing() -> Result<()> {
    let (mut fixture, mut pages, rows) = fixture()?;
    let before = fixture.newest.leaves[&key()].clone();
    assert!(fixture.patch(&mut pages, &key(), &rows, true)?);
    let (memory, place) = (fixture.heap.memory(), added_row(&fixture, &pages));
    // The row begins 40 bytes before that, and the words are before it.
    let first = PmAddr::new(place.part(), place.offset() - 40 - 16);
    let words = [first, first.plus(8)];
    let sound: Vec<u64> = (0..9).map(|word| memory.load(first.plus(word * 8))).collect();
    let (mut random, mut fates) = (1_u64, [0; 3]);
    for _ in 0..3_000 {
        let mut below = |limit: u64| {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (random >> 33) % limit
        };
        for word in words.into_iter().take(1 + below(2) as usize) {
            let ends = [0, 7, 8, 1, 14, below(100), 0xFFFF];
            let content = ends[below(7) as usize] << 32 | [below(6), 0xFFFF_FFFF][usize::from(below(8) == 0)];
            memory.store(word, checked::encode(word, content));
        }
        if below(3) == 0 {
            let at = first.plus(16 + below(7) * 8);
            memory.store(at, memory.load(at) ^ (1 << below(64)));
        }
        let pages = Pages::open(&fixture.heap, fixture.at)?;
        match leaves(&pages) {
            Ok(found) if found[&key()] == rows => fates[0] += 1,
            Ok(found) => {
                assert_eq!(found[&key()], before);
                fates[1] += 1;
            }
            Err(Error::Damaged { .. }) => fates[2] += 1,
            Err(error) => panic!("{error}"),
        }
        (0..).zip(&sound).for_each(|(word, value)| memory.store(first.plus(word * 8), *value));
    }
    assert!(fates.iter().all(|count| *count > 100), "{fates:?}");
    Ok(())
}
