//! Check and repair: each flipped byte of the metadata is found, mirrored metadata is restored, and nothing else is
//! touched.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions, Severity};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const POOL_BYTES: usize = 256 << 10;
const ROOTS: usize = 8192;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: POOL_BYTES as u64,
        journal_bytes: 128 << 10,
        reserve_bytes: 1 << 30,
        ..PoolOptions::default()
    }
}

/// A pool with two roots and a word in its heap, closed in order; its path and its bytes.
fn sample(folder: &Path) -> (PathBuf, Vec<u8>) {
    let path = folder.join("x.pool");
    let pool = Pool::create(&path, &options()).expect("a fresh pool");
    let start = pool.heap_area(0).0;
    pool.memory().store(start, 99);
    pool.set_root("first", 1, start).expect("a root");
    pool.set_root("second", 2, start.plus(64)).expect("a root");
    drop(pool);
    let image = fs::read(&path).expect("reading");
    (path, image)
}

/// Opens the repaired pool: everything of the sample is there.
fn verify_sample(path: &Path) {
    let pool = Pool::open(path, &options()).expect("the repaired pool opens");
    let start = pool.heap_area(0).0;
    assert!(pool.boot() >= 2);
    assert_eq!(pool.memory().load(start), 99);
    assert_eq!(pool.root("first").expect("roots"), Some((1, start)));
    assert_eq!(pool.root("second").expect("roots"), Some((2, start.plus(64))));
}

#[test]
fn a_healthy_pool_has_no_findings_and_checking_changes_no_byte() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, image) = sample(folder.path());
    let report = Pool::check(&path, &options())?;
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!(report.probed_bytes, POOL_BYTES as u64);
    let report = Pool::repair(&path, &options(), false)?;
    assert!(report.done.is_empty() && report.after.findings.is_empty(), "{report}");
    assert!(fs::read(&path)? == image, "a byte changed");
    Ok(())
}

#[test]
fn each_flipped_byte_of_header_state_roots_and_copy_is_found_and_repaired() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, image) = sample(folder.path());
    let file = fs::OpenOptions::new().write(true).open(&path)?;
    for byte in (0..12288).chain(POOL_BYTES - 4096..POOL_BYTES) {
        file.write_all_at(&[image[byte] ^ 0x08], byte as u64)?;
        let report = Pool::check(&path, &options())?;
        assert!(!report.is_clean(), "byte {byte} was not found: {report}");
        assert!(report.is_repairable(), "byte {byte}: {report}");
        let near = |offset: u64| offset / 4096 == byte as u64 / 4096;
        assert!(report.findings.iter().any(|finding| near(finding.offset)), "byte {byte}: {report}");
        if byte % 41 == 0 {
            let report = Pool::repair(&path, &options(), false)?;
            assert!(!report.done.is_empty() && report.after.is_clean(), "byte {byte}: {report}");
            verify_sample(&path);
            file.write_all_at(&image, 0)?;
        }
        file.write_all_at(&image[byte..=byte], byte as u64)?;
    }
    Ok(())
}

#[test]
fn an_open_heals_one_damaged_line_of_state_or_root() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, image) = sample(folder.path());
    for byte in [4096 + 8, 4096 + 256 + 8, ROOTS + 8, ROOTS + 64 + 8, ROOTS + 2048 + 8, ROOTS + 2048 + 64 + 8] {
        let mut image = image.clone();
        image[byte] ^= 0x08;
        fs::write(&path, &image)?;
        verify_sample(&path);
        assert!(Pool::check(&path, &options())?.findings.is_empty(), "byte {byte}");
    }
    Ok(())
}

#[test]
fn a_root_that_is_lost_is_never_mistaken_for_one_that_was_never_set() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, mut image) = sample(folder.path());
    image[ROOTS + 8] ^= 1;
    image[ROOTS + 2048 + 8] ^= 1;
    fs::write(&path, &image)?;
    let report = Pool::repair(&path, &options(), false)?;
    assert!(!report.after.is_repairable(), "{report}");
    let pool = Pool::open(&path, &options())?;
    assert_eq!(pool.root("second")?.map(|root| root.0), Some(2));
    for name in ["first", "never set"] {
        let text = pool.root(name).expect_err("may be the damaged one").to_string();
        assert!(text.contains("both copies of root number 0"), "{text}");
        assert!(pool.set_root(name, 1, PmAddr::NULL).is_err());
    }
    pool.set_root("second", 3, PmAddr::NULL)?;
    Ok(())
}

#[test]
fn a_lost_state_is_made_anew_without_repeating_a_boot_number() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, mut image) = sample(folder.path());
    for slot in [4096, 4096 + 256] {
        image[slot + 3] ^= 0x80;
    }
    fs::write(&path, &image)?;
    let text = Pool::open(&path, &options()).expect_err("no state").to_string();
    assert!(text.contains("both copies of the state are damaged") && text.contains("--repair"), "{text}");
    let report = Pool::repair(&path, &options(), false)?;
    assert!(report.after.is_clean() && report.to_string().contains("boot number"), "{report}");
    let pool = Pool::open(&path, &options())?;
    assert!(pool.boot() > 1_000_000_000 && !pool.was_clean());
    drop(pool);
    verify_sample(&path);
    Ok(())
}

/// Any part, or all: a part of another life than part 0 would be refused.
#[test]
fn a_set_whose_state_was_repaired_opens() -> Outcome {
    for lost in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
        let folder = tempfile::tempdir()?;
        let paths = ["a", "a.1", "a.2"].map(|name| folder.path().join(name));
        let options = PoolOptions { parts: paths[1..].to_vec(), ..options() };
        drop(Pool::create(&paths[0], &options)?);
        let boot = Pool::open(&paths[0], &options)?.boot();
        for part in lost {
            let file = fs::OpenOptions::new().write(true).open(&paths[*part])?;
            file.write_all_at(&[0xFF; 64], 4096)?;
            file.write_all_at(&[0xFF; 64], 4096 + 256)?;
        }
        let report = Pool::repair(&paths[0], &options, false)?;
        assert!(report.after.is_clean(), "{lost:?}: {report}");
        let after = Pool::open(&paths[0], &options).map(|pool| pool.boot());
        let is_next =
            if lost.len() < paths.len() { |after, boot| after == boot + 1 } else { |after, boot| after > boot };
        assert!(after.as_ref().is_ok_and(|after| is_next(*after, boot)), "{lost:?}: {after:?} after {boot}");
    }
    Ok(())
}

#[test]
fn header_and_everything_else_may_be_damaged_at_once() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, mut image) = sample(folder.path());
    image[..4096].fill(0xEE);
    image[4096 + 100] = 1;
    image[4096 + 8] ^= 1;
    image[ROOTS + 70] ^= 1;
    fs::write(&path, &image)?;
    let report = Pool::check(&path, &options())?;
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    assert_eq!((count(Severity::Repairable), count(Severity::Lost)), (4, 0), "{report}");
    let report = Pool::repair(&path, &options(), false)?;
    assert!(report.done.len() >= 4 && report.after.is_clean(), "{report}");
    verify_sample(&path);
    image[POOL_BYTES - 4096..].fill(0);
    fs::write(&path, &image)?;
    let report = Pool::repair(&path, &options(), false)?;
    assert!(report.done.is_empty() && !report.after.is_repairable(), "header and copy are gone: {report}");
    assert!(fs::read(&path)? == image, "what cannot be repaired is not touched");
    Ok(())
}

#[test]
fn every_part_of_a_set_is_checked_and_repaired() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, second) = (folder.path().join("a"), folder.path().join("a.1"));
    drop(Pool::create(&path, &PoolOptions { parts: vec![second.clone()], ..options() })?);
    let image = fs::read(&second)?;
    for byte in (0..12288).step_by(61).chain(POOL_BYTES - 4096..POOL_BYTES - 4000) {
        let mut image = image.clone();
        image[byte] ^= 0x10;
        fs::write(&second, &image)?;
        let report = Pool::check(&path, &options())?;
        assert!(!report.is_clean() && report.findings[0].path == second, "byte {byte}: {report}");
        let report = Pool::repair(&path, &options(), false)?;
        assert!(report.after.is_clean(), "byte {byte}: {report}");
    }
    assert_eq!(Pool::open(&path, &options())?.boot(), 2);
    fs::remove_file(&second)?;
    let report = Pool::check(&path, &options())?;
    assert!(!report.is_repairable() && report.to_string().contains("missing"), "{report}");
    Ok(())
}

#[test]
fn a_damaged_journal_is_dropped_only_by_name() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, dead) = (folder.path().join("x"), folder.path().join("dead"));
    let block = PoolOptions { domain: DomainChoice::Block, size_bytes: 1 << 20, ..options() };
    let pool = Pool::create(&path, &block)?;
    let start = pool.heap_area(0).0;
    pool.memory().store(start, 1);
    pool.memory().persist(start, 8);
    pool.memory().durable()?;
    fs::copy(&path, &dead)?;
    drop(pool);
    let mut image = fs::read(&dead)?;
    // Both header pages of the journal.
    for page in [12288, 12288 + 4096] {
        image[page..page + 64].fill(0x55);
    }
    fs::write(&dead, &image)?;
    let text = Pool::open(&dead, &block).expect_err("a damaged journal").to_string();
    let whole = fs::read(&path)?;
    for page in [12288, 12288 + 4096] {
        // One damaged page of the two is found, and costs nothing.
        let mut image = whole.clone();
        image[page + 40] ^= 0x55;
        fs::write(folder.path().join("half"), &image)?;
        let report = Pool::check(folder.path().join("half"), &block)?;
        assert!(!report.is_clean(), "{report}");
        if report.is_repairable() {
            let report = Pool::repair(folder.path().join("half"), &block, false)?;
            assert!(report.after.is_clean(), "{report}");
            assert_eq!(Pool::open(folder.path().join("half"), &block)?.memory().load(start), 1);
        }
    }
    assert!(text.contains("journal"), "{text}");
    let report = Pool::check(&dead, &block)?;
    assert!(!report.is_repairable() && report.to_string().contains("--accept-journal-loss"), "{report}");
    let report = Pool::repair(&dead, &block, false)?;
    assert!(!report.after.is_clean(), "{report}");
    let report = Pool::repair(&dead, &block, true)?;
    assert!(report.after.is_clean() && report.to_string().contains("LOST"), "{report}");
    assert_eq!(Pool::open(&dead, &block)?.memory().load(start), 0);
    Ok(())
}

#[test]
fn every_part_of_another_life_is_named_even_beside_a_damaged_state() -> Outcome {
    let folder = tempfile::tempdir()?;
    let paths = ["a", "a.1", "a.2", "a.3"].map(|name| folder.path().join(name));
    drop(Pool::create(&paths[0], &PoolOptions { parts: paths[1..].to_vec(), ..options() })?);
    let older = [fs::read(&paths[1])?, fs::read(&paths[2])?];
    let pool = Pool::open(&paths[0], &options())?;
    pool.grow(0, 512 << 10)?;
    pool.set_root("far", 1, PmAddr::new(0, 300 << 10))?;
    drop(pool);
    fs::write(&paths[1], &older[0])?;
    fs::write(&paths[2], &older[1])?;
    let damaged = fs::OpenOptions::new().write(true).open(&paths[3])?;
    for is_damaged in [false, true] {
        if is_damaged {
            damaged.write_all_at(&[0xFF; 64], 4096)?;
            damaged.write_all_at(&[0xFF; 64], 4096 + 256)?;
        }
        let report = Pool::check(&paths[0], &options())?;
        let lost = report.findings.iter().filter(|found| found.severity == Severity::Lost);
        let named: Vec<_> = lost.clone().map(|found| found.path.clone()).collect();
        assert_eq!(named, paths[1..3], "{report}");
        assert!(lost.clone().all(|found| found.finding.contains("last open in life 1")), "{report}");
    }
    // The end of a part without a state is not taken from another one.
    let main = fs::OpenOptions::new().write(true).open(&paths[0])?;
    main.write_all_at(&[0xFF; 64], 4096)?;
    main.write_all_at(&[0xFF; 64], 4096 + 256)?;
    let report = Pool::check(&paths[0], &options())?;
    assert!(!report.to_string().contains("points to"), "{report}");
    Ok(())
}

#[test]
fn a_repair_applies_no_journal_to_a_part_that_was_truncated() -> Outcome {
    let folder = tempfile::tempdir()?;
    let [path, part, dead, dead_part] = ["a", "a.1", "dead", "dead.1"].map(|name| folder.path().join(name));
    let block = PoolOptions { domain: DomainChoice::Block, size_bytes: 1 << 20, journal_bytes: 256 << 10, ..options() };
    let pool = Pool::create(&path, &PoolOptions { parts: vec![part.clone()], ..block.clone() })?;
    pool.grow(1, 2 << 20)?;
    drop(pool);
    let pool = Pool::open(&path, &block)?;
    let place = pool.heap_area(1).0;
    pool.memory().store(place, 77);
    pool.memory().persist(place, 8);
    pool.memory().durable()?;
    fs::copy(&path, &dead)?;
    fs::copy(&part, &dead_part)?;
    drop(pool);
    let whole = fs::read(&dead_part)?;
    // Longer than when it was created, with room for every line of the journal.
    fs::OpenOptions::new().write(true).open(&dead_part)?.set_len(3 << 19)?;
    let before = (fs::read(&dead)?, fs::read(&dead_part)?);
    for accept_journal_loss in [false, true] {
        let report = Pool::repair(&dead, &block, accept_journal_loss)?;
        assert!(report.done.is_empty() && report.after.to_string().contains("truncated"), "{report}");
        assert!((fs::read(&dead)?, fs::read(&dead_part)?) == before, "a truncated pool is left as it is");
    }
    // A copy that was cut short is made again.
    fs::write(&dead_part, whole)?;
    assert_eq!(Pool::open(&dead, &block)?.memory().load(place), 77);
    Ok(())
}

#[test]
fn a_set_whose_damaged_journal_was_being_dropped_is_repaired_all_the_same() -> Outcome {
    let folder = tempfile::tempdir()?;
    let [path, part, dead, dead_part] = ["a", "a.1", "dead", "dead.1"].map(|name| folder.path().join(name));
    let block = PoolOptions { domain: DomainChoice::Block, size_bytes: 1 << 20, journal_bytes: 256 << 10, ..options() };
    drop(Pool::create(&path, &PoolOptions { parts: vec![part.clone()], ..block.clone() })?);
    let pool = Pool::open(&path, &block)?;
    let place = pool.heap_area(1).0;
    for number in 1..5 {
        pool.memory().store(place, number);
        pool.memory().persist(place, 8);
        pool.memory().durable()?;
    }
    let [mut image, image_part] = [fs::read(&path)?, fs::read(&part)?];
    drop(pool);
    let position =
        |image: &[u8], unit: &usize| u64::from_le_bytes(image[unit + 16..][..8].try_into().expect("8 bytes"));
    let mut records: Vec<usize> =
        (3 * 4096..256 << 10).step_by(4096).filter(|unit| image[*unit..].starts_with(b"LODEJREC")).collect();
    records.sort_by_key(|unit| position(&image, unit));
    image[records[records.len() - 2] + 100] ^= 1;
    let write_dead = |image: &[u8]| fs::write(&dead, image).and_then(|()| fs::write(&dead_part, &image_part));
    write_dead(&image)?;
    assert!(Pool::repair(&dead, &block, true)?.after.is_clean());
    let repaired = fs::read(&dead)?;
    assert!(repaired[4096..8192] != image[4096..8192], "the life began in the journal");
    // Killed when the lines of part 0 were applied, and those of part 1 were not.
    image[4096..8192].copy_from_slice(&repaired[4096..8192]);
    write_dead(&image)?;
    let report = Pool::repair(&dead, &block, true)?;
    assert!(report.after.is_clean(), "{report}");
    assert_eq!(Pool::open(&dead, &block)?.memory().load(place), 2);
    Ok(())
}
