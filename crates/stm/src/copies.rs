//! The parts that lead to the objects are there twice: header line, clock, table of lives, directory of slabs. One
//! damaged line or one damaged copy hides nothing, and an open for writing makes it whole again.

use std::fs;
use std::ops::Range;
use std::path::Path;

use lodestone_pmem::{LINE_BYTES, PmAddr, Pool};
use lodestone_store::Store;

use crate::error::Result;
use crate::flips::options;
use crate::recover::RecoveryReport;
use crate::{Stm, StmOptions, pm_object};

/// So many objects that the directory of slabs has three blocks in each chain.
const OBJECTS: u64 = 200;

#[pm_object]
struct Value {
    value: u64,
    next: crate::PmPtr<Value>,
}

fn fill(stm: &Stm) -> Result<()> {
    let root = stm.root::<Value>()?;
    for value in 1..OBJECTS {
        stm.update(|tx| {
            let next = tx.read(root)?.next;
            let new = tx.alloc(Value { value, next })?;
            tx.write(root)?.next = new;
            Ok(())
        })?;
    }
    Ok(())
}

fn values(stm: &Stm) -> Result<Vec<u64>> {
    let root = stm.root::<Value>()?;
    stm.read(|tx| {
        let (mut all, mut at) = (Vec::new(), root);
        while !at.is_null() {
            let found = tx.read(at)?;
            all.push(found.value);
            at = found.next;
        }
        Ok(all)
    })
}

/// Opens the pool at `path`, and demands every value. Returns the report of the open.
fn read_all(path: &Path, read_only: bool) -> Result<RecoveryReport> {
    let pool = if read_only { Pool::open_read_only(path, &options())? } else { Pool::open(path, &options())? };
    let stm = Stm::open(&Store::over(&pool)?)?;
    let expected: Vec<u64> = std::iter::once(0).chain((1..OBJECTS).rev()).collect();
    assert_eq!(values(&stm)?, expected);
    assert!(stm.check_all().is_intact());
    let named = stm.check_all().findings.iter().filter(|found| found.what.contains("the other copy is used")).count();
    assert_eq!(named > 0, read_only && damaged(stm.recovery()) > 0, "the check names what an open has not mended");
    Ok(stm.recovery().clone())
}

fn damaged(report: &RecoveryReport) -> u32 {
    report.clock_copies_damaged + report.copies_damaged
}

/// A pool whose memory crashed twice, and the two copies of everything that leads to the objects, as ranges of the
/// file.
fn make(path: &Path) -> Result<Vec<[Range<usize>; 2]>> {
    let mut ranges = Vec::new();
    for life in 0..3 {
        let store = Store::open_or_create(path, &options())?;
        let stm = Stm::open_with(&store, &StmOptions::small())?;
        if life == 0 {
            fill(&stm)?;
        } else {
            let root = stm.root::<Value>()?;
            stm.update(|tx| tx.write(root).map(|found| found.value = 0))?;
        }
        let core = &*stm.core;
        let blocks = [core.places.directory().to_vec(), core.slabs.directory_blocks()].concat();
        assert!(blocks.len() >= 6, "{} directory blocks", blocks.len());
        let (lives, header) = (core.places.lives(), core.places.halves());
        let table_bytes =
            core.timeline.lives().crashed().iter().map(|life| lodestone_txn::Lives::entry_bytes(life.last.len()));
        let table_bytes = table_bytes.sum::<u64>();
        let range = |at: PmAddr, bytes: u64| at.offset() as usize..(at.offset() + bytes) as usize;
        let both = |places: [PmAddr; 2], bytes: u64| places.map(|at| range(at, bytes));
        ranges = vec![both(header, LINE_BYTES), both(lives.state, LINE_BYTES), both(lives.table, table_bytes)];
        let directory_bytes = core.places.directory_bytes();
        ranges.extend(blocks.chunks_exact(2).map(|pair| both([pair[0], pair[1]], directory_bytes)));
        let crashed = fs::read(path).expect("the file of the pool");
        drop((stm, store));
        if life < 2 {
            fs::write(path, crashed).expect("the file of the pool");
        }
    }
    assert!(ranges.iter().flatten().all(|range| !range.is_empty()), "{ranges:?}");
    Ok(ranges)
}

/// Damages the bytes of `range`: zeroes, or others.
fn spoil(image: &mut [u8], range: Range<usize>, kind: usize) {
    for (number, byte) in image[range].iter_mut().enumerate() {
        *byte = if kind == 0 { 0 } else { (number * 167 + 13) as u8 };
    }
}

#[test]
fn a_damaged_copy_of_what_leads_to_the_objects_hides_nothing_and_is_mended() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let ranges = make(&path)?;
    let image = fs::read(&path).expect("the file of the pool");
    assert_eq!(damaged(&read_all(&path, true)?), 0, "the pool without damage");
    for (pair, copy, kind) in
        ranges.iter().flat_map(|pair| (0..2).flat_map(move |copy| [0, 1].map(|kind| (pair, copy, kind))))
    {
        let what = format!("{:x?}, kind {kind}", pair[copy]);
        // Line by line, and the whole of it.
        let lines = pair[copy].clone().step_by(64).map(|start| start..(start + 64).min(pair[copy].end));
        for range in lines.chain([pair[copy].clone()]) {
            let mut spoilt = image.clone();
            spoil(&mut spoilt, range.clone(), kind);
            fs::write(&path, &spoilt).expect("the file of the pool");
            assert!(damaged(&read_all(&path, true)?) > 0, "{what}: told, read-only");
            assert!(damaged(&read_all(&path, false)?) > 0, "{what}: told");
            assert_eq!(damaged(&read_all(&path, false)?), 0, "{what}: mended");
            // The copy that was mended is enough.
            let mut spoilt = fs::read(&path).expect("the file of the pool");
            spoil(&mut spoilt, pair[1 - copy].clone(), kind);
            fs::write(&path, &spoilt).expect("the file of the pool");
            assert!(damaged(&read_all(&path, false)?) > 0, "{what}: the other copy");
        }
    }
    Ok(())
}

#[test]
fn two_right_copies_that_differ_are_an_error() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    make(&path)?;
    let pool = Pool::open(&path, &options())?;
    let stm = Stm::open(&Store::over(&pool)?)?;
    let (memory, [_, second]) = (stm.core.memory.clone(), stm.core.places.directory());
    let headers = stm.core.places.halves();
    drop(stm);
    // The link to the next block of the same chain, which says now that there is none; and the first entry.
    for (at, word) in [(second, PmAddr::NULL), (second.plus(16), second)] {
        let kept = memory.load(at);
        memory.store(at, lodestone_pmem::checked::encode_addr(at, word));
        let outcome = Stm::open(&Store::over(&pool)?);
        assert!(matches!(outcome, Err(crate::Error::Damaged { what: "directory of slabs", .. })), "{outcome:?}");
        memory.store(at, kept);
    }
    // A header line that leads to other records, sealed again. Mending would spread it.
    for header in headers {
        let mut line = [0; 64];
        memory.read(header, &mut line);
        let kept = line;
        line[32] ^= 64;
        let crc = crc32c::crc32c(&line[..60]);
        line[60..].copy_from_slice(&crc.to_le_bytes());
        memory.write(header, &line);
        let outcome = Stm::open(&Store::over(&pool)?).map_err(|error| error.to_string());
        assert!(matches!(&outcome, Err(text) if text.contains("they differ")), "{outcome:?}");
        memory.write(header, &kept);
    }
    assert!(Stm::open(&Store::over(&pool)?).is_ok());
    Ok(())
}
