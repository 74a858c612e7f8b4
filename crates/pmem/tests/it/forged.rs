//! Records whose checksums fit and that no pool wrote. Each was found by `hostile`: a pool was opened, acknowledged
//! writes, and could not be opened again.

use std::fs;
use std::path::Path;

use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const JOURNAL_AT: usize = 12288;
const RING_AT: usize = JOURNAL_AT + 8192;

fn options(domain: DomainChoice) -> PoolOptions {
    PoolOptions { domain, size_bytes: 256 << 10, journal_bytes: 128 << 10, ..PoolOptions::default() }
}

fn set(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Makes the checksum in the last four bytes of a record fit.
fn seal(image: &mut [u8], at: usize, bytes: usize) {
    let crc = crc32c::crc32c(&image[at..at + bytes - 4]);
    set(image, at + bytes - 4, &crc.to_le_bytes());
}

/// A pool of the block domain as a process leaves it that dies, with `7` acknowledged at the start of its heap.
fn died(path: &Path) -> Result<(Vec<u8>, PmAddr), Box<dyn std::error::Error>> {
    let pool = Pool::create(path, &options(DomainChoice::Block))?;
    let start = pool.heap_area(0).0;
    pool.memory().store(start, 7);
    pool.memory().persist(start, 8);
    pool.memory().durable()?;
    let image = fs::read(path)?;
    drop(pool);
    Ok((image, start))
}

/// The pool at `path` is refused for writing, nothing in it changes, and it can be read.
fn is_read_only(path: &Path, options: &PoolOptions, text: &str) -> Outcome {
    let before = fs::read(path)?;
    let error = Pool::open(path, options).map(drop).err().ok_or("opened for writing")?.to_string();
    assert!(error.contains(text), "{error}");
    assert!(fs::read(path)? == before, "a refused open changed the file");
    drop(Pool::open_read_only(path, options)?);
    Ok(())
}

/// Harm: the last life that the number allows was lived, and then no open knew its number any more.
#[test]
fn a_pool_at_the_end_of_its_boot_numbers_is_refused_for_writing_and_can_be_read() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    let options = options(DomainChoice::Process);
    drop(Pool::create(&path, &options)?);
    let good = fs::read(&path)?;
    let forge = |boot: u64| {
        let mut image = good.clone();
        for copy in [4096, 4352] {
            set(&mut image, copy + 8, &boot.to_le_bytes());
            seal(&mut image, copy, 64);
        }
        fs::write(&path, image)
    };
    forge((1 << 62) - 1)?;
    drop(Pool::open(&path, &options)?);
    is_read_only(&path, &options, "boot number")?;
    for boot in [(1 << 62) + 1, u64::MAX - 1, u64::MAX] {
        forge(boot)?;
        assert!(Pool::open(&path, &options).is_err() && Pool::open_read_only(&path, &options).is_err(), "{boot}");
    }
    Ok(())
}

/// Harm: replay wrote the line over the magic, and the file was no pool any more.
#[test]
fn a_record_that_names_a_line_of_a_header_is_refused() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    let (good, start) = died(&path)?;
    let is_record = |at: &usize| &good[*at..*at + 8] == b"LODEJREC" && good[*at + 32] > 0;
    let record = (RING_AT..JOURNAL_AT + (128 << 10)).step_by(4096).find(is_record).ok_or("a record")?;
    for line in [0_u64, 64, 4032] {
        let mut image = good.clone();
        set(&mut image, record + 64, &line.to_le_bytes());
        seal(&mut image, record, 512);
        fs::write(&path, &image)?;
        let error = Pool::open(&path, &options(DomainChoice::Block)).map(drop).err().ok_or("applied")?.to_string();
        assert!(error.contains("in the header of a part"), "{error}");
        assert!(fs::read(&path)? == image, "a refused open changed the file");
    }
    fs::write(&path, &good)?;
    assert_eq!(Pool::open(&path, &options(DomainChoice::Block))?.memory().load(start), 7);
    Ok(())
}

/// Harm: the next header had a number that no reader believes, in both pages: the journal and what it held was lost.
#[test]
fn a_journal_at_the_end_of_its_numbers_begins_them_again() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    let (mut image, _) = died(&path)?;
    for page in [JOURNAL_AT, JOURNAL_AT + 4096] {
        set(&mut image, page + 8, &(1_u64 << 62).to_le_bytes());
        seal(&mut image, page, 64);
    }
    fs::write(&path, &image)?;
    let pool = Pool::open_read_only(&path, &options(DomainChoice::Block))?;
    assert_eq!(pool.memory().load(pool.heap_area(0).0), 7, "what was acknowledged is there");
    drop(pool);
    let pool = Pool::open(&path, &options(DomainChoice::Block))?;
    assert_eq!(pool.memory().load(pool.heap_area(0).0), 7, "what was acknowledged is there");
    pool.close()?;
    let after = fs::read(&path)?;
    for page in [JOURNAL_AT, JOURNAL_AT + 4096] {
        let sequence = u64::from_le_bytes(after[page + 8..page + 16].try_into()?);
        assert!((1..100).contains(&sequence), "sequence {sequence} in the page at {page:#x}");
    }
    Ok(())
}
