//! Logs through the public API, beside a plain list of records: lives that end and begin, truncation, pieces, full
//! logs, torn ends, damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};
use lodestone_txn::{Tick, Writer};
use lodestone_wal::{Error, LogAlign, LogOptions, LogStore, Record, Wal};
use proptest::prelude::*;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
/// Tick, key and value of each record of a writer.
type Logs = BTreeMap<u16, Vec<(u64, Vec<u8>, Vec<u8>)>>;

const SEGMENT_BYTES: u64 = 2048;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 4 << 20,
        journal_bytes: 128 << 10,
        ..PoolOptions::default()
    }
}

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new(log: &LogOptions) -> Outcome<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.pool");
        let pool = Pool::create(&path, &options())?;
        let heap = Heap::open(&pool, &HeapOptions::default())?;
        let mut action = heap.action();
        let at = Wal::make(&heap, &mut action, log)?;
        action.set(heap.root_word(0), at.to_raw());
        action.commit()?;
        Ok(Self { _folder: folder, path })
    }
}

/// An open log with its pool.
struct Open {
    heap: Heap,
    wal: Wal,
    found: Logs,
}

fn open_from(path: &Path, read_only: bool, from: &BTreeMap<u16, u64>) -> Outcome<Open> {
    let pool = if read_only { Pool::open_read_only(path, &options())? } else { Pool::open(path, &options())? };
    let heap = Heap::open(&pool, &HeapOptions::default())?;
    let at = PmAddr::from_raw(heap.memory().load(heap.root_word(0)));
    let mut found = Logs::new();
    let mut start = |writer: Writer| from.get(&writer.number()).copied().unwrap_or(0);
    let wal = Wal::open_with(&heap, at, LogStore::Flush, &mut start, &mut |record| {
        for entry in record.entries() {
            let row = (record.tick.0, entry.key.to_vec(), entry.value.to_vec());
            found.entry(record.writer.number()).or_default().push(row);
        }
        Ok(())
    })?;
    Ok(Open { heap, wal, found })
}

fn open(path: &Path) -> Outcome<Open> {
    open_from(path, false, &BTreeMap::new())
}

fn id(number: u16) -> Writer {
    Writer::new(number).expect("small")
}

fn small() -> LogOptions {
    LogOptions { log_bytes: 16 * SEGMENT_BYTES, segment_bytes: SEGMENT_BYTES, salt: Some(7), ..LogOptions::default() }
}

fn append(open: &Open, writer: u16, tick: u64, key: &[u8], value: &[u8]) -> Outcome<u64> {
    let mut log = open.wal.writer(id(writer))?;
    let mut record = Record::new();
    record.put(1, key, value)?;
    let room = log.reserve(&mut record)?;
    let end = log.append(room, &mut record, Tick(tick))?;
    open.heap.memory().fence();
    Ok(end)
}

#[test]
fn records_come_back_in_order_over_segments_lives_and_alignments() -> Outcome {
    for align in [LogAlign::None, LogAlign::Line, LogAlign::Block] {
        let place = Place::new(&LogOptions { align, log_bytes: 64 * SEGMENT_BYTES, ..small() })?;
        let mut model = Logs::new();
        let mut tick = 0;
        for life in 0..4_u8 {
            let open = open(&place.path)?;
            assert_eq!(open.found, model, "{align:?}");
            for number in 0..9_u8 {
                for writer in [0, 3] {
                    tick += 1;
                    // The longest takes more than two segments.
                    let bytes = if number == 5 && life == 1 { 4000 } else { usize::from(number) * 40 };
                    let row = (tick, vec![number, life], vec![number; bytes]);
                    append(&open, writer, row.0, &row.1, &row.2)?;
                    model.entry(writer).or_default().push(row);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_truncated_log_is_read_from_its_new_beginning_and_its_segments_serve_again() -> Outcome {
    let place = Place::new(&small())?;
    let mut from = BTreeMap::new();
    for round in 1..200_u64 {
        let open = open_from(&place.path, false, &from)?;
        let first = round * 10;
        let before = append(&open, 0, first, b"before", &[1; 300])?;
        append(&open, 0, first + 1, b"after", &[2; 300])?;
        append(&open, 1, first + 2, b"other", &[3; 30])?;
        // The owner of the log has made the position persistent.
        open.wal.truncate(id(0), before);
        from.insert(0, before);
        from.insert(1, open.wal.writer(id(1))?.position());
        let stats = open.wal.stats();
        assert!(stats.segments <= 4, "{stats:?}");
        drop(open);
        let open = open_from(&place.path, true, &from)?;
        assert_eq!(open.found, BTreeMap::from([(0, vec![(first + 1, b"after".to_vec(), vec![2; 300])])]));
    }
    Ok(())
}

#[test]
fn a_full_log_refuses_and_truncation_makes_room() -> Outcome {
    let place = Place::new(&LogOptions { log_bytes: 4 * SEGMENT_BYTES, ..small() })?;
    let open = open(&place.path)?;
    let mut last = 0;
    let error = (1..).find_map(|tick| match append(&open, 0, tick, b"key", &[0; 500]) {
        Ok(end) => {
            last = end;
            None
        }
        Err(error) => Some(error),
    });
    let error = error.expect("it is full at some time").to_string();
    assert!(error.contains("the log is full") && error.contains("truncate"), "{error}");
    open.wal.truncate(id(0), last);
    append(&open, 0, 1000, b"key", &[0; 500])?;
    let mut record = Record::new();
    record.put(1, b"key", &vec![0; 4 * SEGMENT_BYTES as usize])?;
    let refused = open.wal.writer(id(1))?.reserve(&mut record);
    assert!(matches!(refused, Err(Error::TransactionTooLarge { .. })));
    let owner = open.wal.writer(id(2))?;
    assert!(matches!(open.wal.writer(id(2)), Err(Error::WriterTaken { writer: 2 })));
    drop(owner);
    open.wal.writer(id(2))?;
    Ok(())
}

#[test]
fn room_that_is_not_used_leaves_the_log_as_it_was() -> Outcome {
    let place = Place::new(&small())?;
    let open_first = open(&place.path)?;
    append(&open_first, 0, 1, b"one", &[1; 1400])?;
    let mut log = open_first.wal.writer(id(0))?;
    for bytes in [700, 1300, 3500, 10] {
        let mut record = Record::new();
        record.put(1, b"dropped", &vec![9; bytes])?;
        let _room = log.reserve(&mut record)?;
    }
    drop(log);
    append(&open_first, 0, 2, b"two", &[2; 3500])?;
    append(&open_first, 0, 3, b"three", &[3; 20])?;
    drop(open_first);
    let ticks: Vec<u64> = open(&place.path)?.found[&0].iter().map(|row| row.0).collect();
    assert_eq!(ticks, [1, 2, 3]);
    Ok(())
}

/// Segments come back from truncation in another order. So an empty segment that a dropped transaction left may be
/// named before or after those of the record that follows.
#[test]
fn room_that_is_not_used_is_no_gap_whatever_segment_it_took() -> Outcome {
    let place = Place::new(&small())?;
    let mut from = BTreeMap::new();
    for round in 1..60_u64 {
        let open_first = open_from(&place.path, false, &from)?;
        let start = open_first.wal.writer(id(0))?.position();
        let mut expected = Vec::new();
        for (number, bytes) in [(1, 900), (2, 3500), (3, 20)] {
            let mut record = Record::new();
            record.put(1, b"dropped", &vec![9; 1300])?;
            let _room = open_first.wal.writer(id(0))?.reserve(&mut record)?;
            let tick = round * 10 + number;
            append(&open_first, 0, tick, b"key", &vec![0; bytes])?;
            expected.push(tick);
        }
        drop(open_first);
        from.insert(0, start);
        let found = open_from(&place.path, true, &from)?.found;
        assert_eq!(found[&0].iter().map(|row| row.0).collect::<Vec<_>>(), expected, "round {round}");
    }
    Ok(())
}

/// A crash tears a record: one of its lines is missing. The next life runs the same transaction again with a later
/// tick, and a crash leaves only the line that the first record lacked. The first record must not come to life.
#[test]
fn a_torn_record_never_becomes_whole() -> Outcome {
    let place = Place::new(&small())?;
    let open_first = open(&place.path)?;
    let start = append(&open_first, 0, 1, b"before", b"")?;
    append(&open_first, 0, 2, b"torn", &[5; 100])?;
    drop(open_first);
    let whole = std::fs::read(&place.path)?;
    let at = segment_of(&whole) + 512 + usize::try_from(start)?;
    let mut torn = whole.clone();
    torn[at + 64..at + 128].fill(0);
    std::fs::write(&place.path, &torn)?;
    let second = open(&place.path)?;
    assert_eq!(second.found[&0].len(), 1, "the torn record does not count");
    drop(second);
    let mut late = std::fs::read(&place.path)?;
    late[at + 64..at + 128].copy_from_slice(&whole[at + 64..at + 128]);
    std::fs::write(&place.path, &late)?;
    assert_eq!(open(&place.path)?.found[&0].len(), 1, "a record of an earlier life came back");
    Ok(())
}

/// Offset of the first segment in the file.
fn segment_of(image: &[u8]) -> usize {
    image.windows(8).position(|bytes| bytes == b"LDSTSEG\0").expect("a segment")
}

/// A crash comes between the two lines of a segment's head. Later one of them is damaged: the other must not bring back
/// the former use of the segment, and with it lose what was acknowledged since.
#[test]
fn a_head_that_a_crash_left_in_one_line_is_in_both_before_a_record_follows() -> Outcome {
    let place = Place::new(&small())?;
    append(&open(&place.path)?, 0, 1, b"one", &[1; 100])?;
    let mut image = std::fs::read(&place.path)?;
    let segment = segment_of(&image);
    // The head of a segment that no writer has, as before the hand-out.
    let mut former = image[segment..segment + 64].to_vec();
    former[8..16].copy_from_slice(&1_u64.to_le_bytes());
    former[24..28].fill(0xFF);
    let crc = crc32c::crc32c(&former[..60]);
    former[60..].copy_from_slice(&crc.to_le_bytes());
    for line in [segment, segment + 256] {
        let whole = image.clone();
        image[line..line + 64].copy_from_slice(&former);
        std::fs::write(&place.path, &image)?;
        let opened = open(&place.path)?;
        let tick = 2 + line as u64;
        append(&opened, 0, tick, b"two", &[2; 100])?;
        drop(opened);
        let mut damaged = std::fs::read(&place.path)?;
        let other = 2 * segment + 256 - line;
        damaged[other + 20] ^= 1;
        std::fs::write(&place.path, &damaged)?;
        let found = open(&place.path)?.found;
        assert_eq!(found.get(&0).map(|rows| rows.last().map(|row| row.0)), Some(Some(tick)), "line at {line:#x}");
        image = whole;
        std::fs::write(&place.path, &image)?;
    }
    Ok(())
}

#[test]
fn a_damaged_record_before_a_whole_one_is_named_and_one_at_the_end_is_a_torn_one() -> Outcome {
    let place = Place::new(&small())?;
    let open_first = open(&place.path)?;
    let mut starts = vec![0];
    for tick in 1..30 {
        starts.push(append(&open_first, 0, tick, b"key", &[tick as u8; 150])?);
    }
    let blocks = open_first.wal.blocks();
    drop(open_first);
    let image = std::fs::read(&place.path)?;
    let mut reported = 0;
    for (block, bytes) in blocks {
        for offset in (block.offset()..block.offset() + bytes).step_by(24) {
            let mut damaged = image.clone();
            damaged[usize::try_from(offset)? + 3] ^= 0x10;
            std::fs::write(&place.path, &damaged)?;
            match open(&place.path) {
                Ok(found) => {
                    let rows = found.found.get(&0).map_or(0, Vec::len);
                    assert!(rows >= 28, "{rows} records are left: offset {offset:#x}");
                    for (number, row) in found.found[&0].iter().enumerate() {
                        assert_eq!((row.0, &row.2), (number as u64 + 1, &vec![row.0 as u8; 150]));
                    }
                }
                Err(error) => {
                    assert!(error.to_string().contains("damaged"), "{error}");
                    reported += 1;
                }
            }
        }
    }
    assert!(reported > 130, "{reported}");
    Ok(())
}

/// All parts but the records are there twice. One damaged copy is mended before the other one can be damaged.
#[test]
fn each_damaged_copy_is_named_and_mended() -> Outcome {
    let place = Place::new(&small())?;
    let first = open(&place.path)?;
    append(&first, 0, 1, b"key", &[1; 100])?;
    let blocks = first.wal.blocks();
    drop(first);
    let mut places: Vec<u64> = (0..512 + 2 * 256).step_by(8).map(|offset| blocks[0].0.offset() + offset).collect();
    places.extend((0..512).step_by(8).map(|offset| blocks[1].0.offset() + offset));
    assert_eq!(blocks[0].1, 512 + 2 * 256);
    let mut mended = 0;
    for at in places {
        let image = std::fs::read(&place.path)?;
        let mut damaged = image.clone();
        damaged[usize::try_from(at)? + 2] ^= 0x40;
        std::fs::write(&place.path, &damaged)?;
        let found = open_from(&place.path, true, &BTreeMap::new())?;
        assert_eq!(found.found[&0].len(), 1, "{at:#x}");
        let named = found.wal.copies_damaged().to_vec();
        drop(found);
        assert_eq!(open(&place.path)?.wal.copies_damaged(), named, "{at:#x}");
        let found = open(&place.path)?;
        assert!(found.wal.copies_damaged().is_empty() && found.found[&0].len() == 1, "{at:#x}");
        mended += named.len();
    }
    // The lines of the header, of the head, and both lists of 16 addresses.
    assert_eq!(mended, 2 * 8 + 2 * 8 + 2 * 16);
    Ok(())
}

/// Damage to the last record looks like a crash in the middle of it, unless a mark follows.
#[test]
fn damage_to_the_last_record_is_named_when_a_mark_follows() -> Outcome {
    for align in [LogAlign::None, LogAlign::Line, LogAlign::Block] {
        for is_marked in [false, true] {
            let place = Place::new(&LogOptions { align, ..small() })?;
            let first = open(&place.path)?;
            let begin = usize::try_from(append(&first, 0, 1, b"key", &[1; 100])?)?;
            let end = begin + 24 + 16 + 100;
            append(&first, 0, 2, b"key", &[2; 100])?;
            if is_marked {
                assert_eq!(first.wal.mark_ends(&mut |_| false)?, 0, "no tick");
                assert_eq!(first.wal.mark_ends(&mut |_| true)?, 1);
                assert_eq!(first.wal.mark_ends(&mut |_| true)?, 0, "there is one");
            }
            drop(first);
            let image = std::fs::read(&place.path)?;
            let at = segment_of(&image) + 512;
            let mut damaged = image.clone();
            for offset in begin..end {
                damaged[at + offset] ^= 0x20;
                std::fs::write(&place.path, &damaged)?;
                match open_from(&place.path, true, &BTreeMap::new()) {
                    Ok(found) => assert!(!is_marked && found.found[&0].len() == 1, "{align:?}, byte {offset}"),
                    Err(error) => assert!(is_marked && error.to_string().contains("a whole one follows"), "{error}"),
                }
                damaged[at + offset] ^= 0x20;
            }
            std::fs::write(&place.path, &image)?;
            let second = open(&place.path)?;
            assert_eq!(second.found[&0].iter().map(|row| row.0).collect::<Vec<_>>(), [1, 2]);
            assert_eq!(second.wal.mark_ends(&mut |_| true)?, usize::from(!is_marked), "an open knows the mark");
            append(&second, 0, 9, b"key", b"")?;
            drop(second);
            assert_eq!(open(&place.path)?.found[&0].len(), 3);
        }
    }
    Ok(())
}

#[test]
fn a_log_without_room_or_with_an_owner_gets_no_mark() -> Outcome {
    let place = Place::new(&LogOptions { log_bytes: 4 * SEGMENT_BYTES, ..small() })?;
    let first = open(&place.path)?;
    let owner = first.wal.writer(id(1))?;
    assert_eq!(first.wal.mark_ends(&mut |_| true)?, 0, "nothing to protect");
    drop(owner);
    // 24 records of 64 bytes fill a segment to its last byte.
    let last = (1..).find(|tick| append(&first, 0, *tick, b"key", &[0; 20]).is_err());
    assert_eq!(last, Some(4 * 24 + 1));
    assert_eq!(first.wal.mark_ends(&mut |_| true)?, 0, "no room");
    drop(first);
    assert_eq!(open(&place.path)?.found[&0].len(), 4 * 24);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Damage with a right checksum: an error that names it, or records; never a panic.
    #[test]
    fn resealed_damage_is_an_error_or_a_record(changes in prop::collection::vec((0..2000_usize, any::<u8>()), 1..6)) {
        let place = Place::new(&small()).expect("a log");
        let first = open(&place.path).expect("it opens");
        for tick in 1..6 {
            append(&first, 0, tick, b"key", &[1; 300]).expect("room");
        }
        drop(first);
        let mut image = std::fs::read(&place.path).expect("the file");
        let segment = segment_of(&image);
        for (offset, byte) in changes {
            image[segment + offset] ^= byte;
        }
        for line in [segment, segment + 256] {
            let crc = crc32c::crc32c(&image[line..line + 60]);
            image[line + 60..line + 64].copy_from_slice(&crc.to_le_bytes());
        }
        reseal_records(&mut image, segment);
        std::fs::write(&place.path, &image).expect("the file");
        if let Ok(opened) = open(&place.path) {
            let _ = append(&opened, 0, 1 << 40, b"more", b"");
        }
    }
}

/// Writes a right checksum into each record of the first segment, as far as its lengths lead.
fn reseal_records(image: &mut [u8], segment: usize) {
    let word = |image: &[u8], at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("eight bytes"));
    let generation = word(image, segment + 8);
    let writer = word(image, segment + 24) & 0xFFFF_FFFF;
    let first = word(image, segment + 16);
    let mut offset = 512;
    while offset + 24 <= SEGMENT_BYTES as usize {
        let at = segment + offset;
        let bytes = (word(image, at + 8) & 0xFFFF_FFFF) as usize;
        if offset + 24 + bytes > SEGMENT_BYTES as usize {
            return;
        }
        let position = first.wrapping_add(offset as u64 - 512);
        let seed: Vec<u8> = [7, generation, position, writer].iter().flat_map(|word| word.to_le_bytes()).collect();
        let body = crc32c::crc32c_append(crc32c::crc32c(&seed), &image[at + 24..at + 24 + bytes]);
        let crc = crc32c::crc32c_append(body, &image[at..at + 20]);
        image[at + 20..at + 24].copy_from_slice(&crc.to_le_bytes());
        offset += (24 + bytes).next_multiple_of(64).max(64);
    }
}
