//! Pools over several lives: boot numbers, clean marks, roots, parts, growth, read-only opens.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lodestone_pmem::{Domain, DomainChoice, Error, PmAddr, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 1 << 20,
        journal_bytes: 64 << 10,
        ..PoolOptions::default()
    }
}

fn pool_path(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("a.pool")
}

/// Ends a life without closing the pool, as the death of the process would.
fn die(pool: Pool, path: &Path, to: &Path) {
    fs::copy(path, to).expect("copying the open pool");
    drop(pool);
}

#[test]
fn a_pool_keeps_words_and_roots_over_lives() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = pool_path(&folder);
    let pool = Pool::create(&path, &options())?;
    let (start, end) = pool.heap_area(0);
    assert_eq!(end.offset(), (1 << 20) - 4096);
    pool.memory().store(start, 99);
    pool.memory().persist(start, 8);
    for round in 0..5 {
        pool.set_root("counter", 7 + round, start)?;
    }
    assert_eq!(pool.boot(), 1);
    drop(pool);
    let pool = Pool::open(&path, &options())?;
    assert!(pool.was_clean());
    assert_eq!(pool.boot(), 2);
    assert_eq!(pool.root("counter")?, Some((11, start)));
    assert_eq!(pool.root("other")?, None);
    assert_eq!(pool.memory().load(start), 99);
    assert_eq!(fs::read_dir(folder.path())?.count(), 1, "nothing but the pool is left");
    Ok(())
}

#[test]
fn a_life_that_ends_without_a_close_is_told_from_one_that_was_closed() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, dead) = (pool_path(&folder), folder.path().join("dead.pool"));
    die(Pool::create(&path, &options())?, &path, &dead);
    let pool = Pool::open(&dead, &options())?;
    assert!(!pool.was_clean());
    assert_eq!(pool.boot(), 2);
    drop(pool);
    assert!(Pool::open(&dead, &options())?.was_clean());
    Ok(())
}

#[test]
fn all_roots_can_be_taken_and_no_more() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = pool_path(&folder);
    let pool = Pool::create(&path, &options())?;
    for root in 0..32 {
        pool.set_root(&format!("root {root}"), root, PmAddr::new(0, 4096))?;
    }
    assert!(matches!(pool.set_root("one more", 0, PmAddr::NULL), Err(Error::NoSpace { .. })));
    pool.set_root("root 31", 99, PmAddr::NULL)?;
    assert!(matches!(pool.set_root("", 0, PmAddr::NULL), Err(Error::Invalid { .. })));
    assert!(matches!(pool.set_root(&"x".repeat(41), 0, PmAddr::NULL), Err(Error::Invalid { .. })));
    drop(pool);
    let info = Pool::open_read_only(&path, &options())?.info();
    assert_eq!(info.roots.len(), 32);
    assert_eq!((info.roots[31].name.as_str(), info.roots[31].kind), ("root 31", 99));
    Ok(())
}

#[test]
fn growing_keeps_everything_and_gives_zeroed_space() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = pool_path(&folder);
    let pool = Pool::create(&path, &options())?;
    let (start, old_end) = pool.heap_area(0);
    let last = PmAddr::new(0, old_end.offset() - 8);
    pool.memory().store(start, 1);
    pool.memory().store(last, 2);
    assert_eq!(pool.grow(0, (3 << 20) + 1)?, (3 << 20) + 4096);
    let (same_start, new_end) = pool.heap_area(0);
    assert_eq!((same_start, new_end.offset()), (start, 3 << 20));
    assert_eq!((pool.memory().load(start), pool.memory().load(last)), (1, 2));
    for offset in (old_end.offset()..new_end.offset()).step_by(8) {
        assert_eq!(pool.memory().load(PmAddr::new(0, offset)), 0, "at {offset:#x}");
    }
    pool.memory().store(PmAddr::new(0, new_end.offset() - 8), 3);
    assert!(pool.grow(0, 2 << 20).is_err(), "a pool does not shrink");
    assert!(pool.grow(1, 8 << 20).is_err(), "no such part");
    drop(pool);
    let pool = Pool::open(&path, &options())?;
    assert_eq!(pool.heap_area(0).1, new_end);
    assert_eq!(pool.memory().load(PmAddr::new(0, new_end.offset() - 8)), 3);
    Ok(())
}

#[test]
fn what_an_unfinished_growth_left_behind_the_end_is_not_seen_by_the_next() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = pool_path(&folder);
    drop(Pool::create(&path, &options())?);
    let mut image = fs::read(&path)?;
    image.resize(2 << 20, 0xAB);
    fs::write(&path, image)?;
    let pool = Pool::open(&path, &options())?;
    let old_end = pool.heap_area(0).1;
    assert_eq!(old_end.offset(), (1 << 20) - 4096);
    pool.grow(0, 4 << 20)?;
    for offset in (old_end.offset()..pool.heap_area(0).1.offset()).step_by(64) {
        assert_eq!(pool.memory().load(PmAddr::new(0, offset)), 0, "at {offset:#x}");
    }
    Ok(())
}

#[test]
fn a_growth_beyond_the_reservation_is_refused_and_harmless() -> Outcome {
    let folder = tempfile::tempdir()?;
    let small = PoolOptions { reserve_bytes: 1 << 20, ..options() };
    let pool = Pool::create(pool_path(&folder), &small)?;
    let text = pool.grow(0, 1 << 30).expect_err("no address space").to_string();
    assert!(text.contains("reserve_bytes"), "{text}");
    assert_eq!(fs::metadata(pool_path(&folder))?.len(), 1 << 20);
    Ok(())
}

#[test]
fn reading_changes_no_byte() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = pool_path(&folder);
    let pool = Pool::create(&path, &options())?;
    let start = pool.heap_area(0).0;
    pool.memory().store(start, 5);
    let dead = folder.path().join("dead.pool");
    die(pool, &path, &dead);
    for path in [path, dead] {
        let before = (fs::read(&path)?, fs::metadata(&path)?);
        for domain in [DomainChoice::Auto, DomainChoice::Process, DomainChoice::Block] {
            let options = PoolOptions { domain, ..options() };
            let (first, second) = (Pool::open_read_only(&path, &options)?, Pool::open_read_only(&path, &options)?);
            assert_eq!((first.memory().load(start), second.boot()), (5, 1));
            assert!(first.info().read_only && first.info().to_string().contains("read-only"));
            assert!(Pool::open(&path, &options).is_err(), "no writer beside readers");
            assert!(first.grow(0, 8 << 20).is_err());
        }
        let after = (fs::read(&path)?, fs::metadata(&path)?);
        assert!(before.0 == after.0, "a byte changed");
        assert_eq!((before.1.mtime(), before.1.mtime_nsec()), (after.1.mtime(), after.1.mtime_nsec()));
        assert_eq!((before.1.ctime(), before.1.ctime_nsec()), (after.1.ctime(), after.1.ctime_nsec()));
    }
    Ok(())
}

#[test]
#[should_panic(expected = "read-only")]
fn a_store_to_a_read_only_pool_panics() {
    let folder = tempfile::tempdir().expect("folder");
    drop(Pool::create(pool_path(&folder), &options()).expect("pool"));
    let pool = Pool::open_read_only(pool_path(&folder), &options()).expect("read-only");
    pool.memory().store(pool.heap_area(0).0, 1);
}

#[test]
fn a_reader_beside_a_writer_must_be_asked_for_by_name() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = pool_path(&folder);
    let writer = Pool::create(&path, &options())?;
    assert!(matches!(Pool::open_read_only(&path, &options()), Err(Error::InUse { .. })));
    let beside = PoolOptions { allow_concurrent_writer: true, ..options() };
    assert_eq!(Pool::open_read_only(&path, &beside)?.boot(), writer.boot());
    Ok(())
}

#[test]
fn a_moved_pool_opens_and_so_does_a_moved_set() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, moved) = (pool_path(&folder), folder.path().join("elsewhere/b.pool"));
    let parts = PoolOptions { parts: vec![folder.path().join("a.pool.1")], ..options() };
    drop(Pool::create(&path, &parts)?);
    fs::create_dir(folder.path().join("elsewhere"))?;
    fs::rename(&path, &moved)?;
    fs::rename(folder.path().join("a.pool.1"), folder.path().join("elsewhere/b.pool.1"))?;
    let pool = Pool::open(&moved, &options())?;
    assert_eq!((pool.memory().part_count(), pool.boot()), (2, 2));
    assert_eq!(pool.info().parts[1].path, folder.path().join("elsewhere/b.pool.1"));
    Ok(())
}

#[test]
fn every_part_has_a_heap_and_grows_alone() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = pool_path(&folder);
    let parts = vec![folder.path().join("node1/x"), folder.path().join("a.pool.2")];
    fs::create_dir(folder.path().join("node1"))?;
    let pool = Pool::create(&path, &PoolOptions { parts, ..options() })?;
    for part in 0..3 {
        let (start, end) = pool.heap_area(part);
        assert!(start < end && start.part() == part);
        pool.memory().store(start, u64::from(part) + 10);
        pool.memory().persist(start, 8);
    }
    assert!(pool.heap_area(1).0.offset() < pool.heap_area(0).0.offset(), "only part 0 has a journal");
    pool.grow(2, 4 << 20)?;
    drop(pool);
    let pool = Pool::open(&path, &options())?;
    for part in 0..3 {
        assert_eq!(pool.memory().load(pool.heap_area(part).0), u64::from(part) + 10);
    }
    assert_eq!(pool.heap_area(2).1.offset(), (4 << 20) - 4096);
    assert_eq!(pool.heap_area(1).1.offset(), (1 << 20) - 4096);
    Ok(())
}

#[test]
fn the_info_tells_domain_reason_and_warnings() -> Outcome {
    let folder = tempfile::tempdir()?;
    let named = PoolOptions { layout_name: "shop".into(), layout_version: 3, ..options() };
    let pool = Pool::create(pool_path(&folder), &named)?;
    let info = pool.info();
    assert_eq!((info.domain, info.domain_label().as_str()), (Domain::Process, "process"));
    let text = info.to_string();
    for part in ["process", "asked for by name", "shop, version 3", "warning", "UTC", "a.pool", "64.0 KiB at 0x3000"] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    drop(pool);
    let emulated = PoolOptions { domain: DomainChoice::DaxEmulated, ..named };
    let text = Pool::open(pool_path(&folder), &emulated)?.info().to_string();
    assert!(text.contains("dax-emulated: NOT durable"), "{text}");
    Ok(())
}

#[test]
fn the_journal_of_part_0_covers_all_parts() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let block = PoolOptions { domain: DomainChoice::Block, journal_bytes: 256 << 10, ..options() };
    let pool = Pool::create(at("a"), &PoolOptions { parts: vec![at("a.1"), at("a.2")], ..block.clone() })?;
    let places: Vec<PmAddr> = (0..3).map(|part| pool.heap_area(part).0).collect();
    for place in &places {
        pool.memory().store(*place, 70 + u64::from(place.part()));
        pool.memory().persist(*place, 8);
    }
    pool.memory().durable()?;
    pool.grow(2, 2 << 20)?;
    let last = PmAddr::new(2, pool.heap_area(2).1.offset() - 8);
    pool.memory().store(last, 99);
    pool.memory().persist(last, 8);
    pool.memory().durable()?;
    for name in ["a", "a.1", "a.2"] {
        fs::copy(at(name), at(&name.replace('a', "dead")))?;
    }
    drop(pool);
    assert!(Pool::check(at("dead"), &block)?.is_clean());
    let reader = Pool::open_read_only(at("dead"), &block)?;
    assert_eq!(reader.memory().load(last), 99);
    drop(reader);
    let pool = Pool::open(at("dead"), &block)?;
    assert!(!pool.was_clean());
    for place in &places {
        assert_eq!(pool.memory().load(*place), 70 + u64::from(place.part()));
    }
    assert_eq!(pool.memory().load(last), 99);
    Ok(())
}

#[test]
fn an_open_that_dies_between_the_parts_is_no_damage() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    drop(Pool::create(at("a"), &PoolOptions { parts: vec![at("a.1")], ..options() })?);
    // Part 1 has announced life 2, part 0 has not begun it.
    let mut part = fs::read(at("a.1"))?;
    for place in [4096, 4352] {
        part[place + 8..place + 16].copy_from_slice(&2_u64.to_le_bytes());
        part[place + 24..place + 32].copy_from_slice(&2_u64.to_le_bytes());
        let crc = crc32c::crc32c(&part[place..place + 60]);
        part[place + 60..place + 64].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(at("a.1"), part)?;
    assert!(Pool::check(at("a"), &options())?.is_clean());
    assert_eq!(Pool::open(at("a"), &options())?.boot(), 2);
    assert_eq!(Pool::open(at("a"), &options())?.boot(), 3);
    Ok(())
}

/// A file that is replaced, as a backup or a creation over it does: it is locked until the new one has its name.
#[test]
fn an_open_that_waited_for_a_file_that_is_replaced_opens_the_new_one() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, new) = (pool_path(&folder), folder.path().join("b.pool"));
    drop(Pool::create(&path, &options())?);
    let made = Pool::create(&new, &options())?;
    let start = made.heap_area(0).0;
    made.memory().store(start, 7);
    drop(made);
    let old = fs::File::open(&path)?;
    old.lock()?;
    let replaced = fs::metadata(&path)?.ino();
    let opened = path.clone();
    let opener = std::thread::spawn(move || Pool::open(&opened, &options()));
    // The opener has the old file open once this process has two descriptors of it.
    while descriptors_of(replaced) < 2 && !opener.is_finished() {
        std::thread::yield_now();
    }
    fs::rename(&new, &path)?;
    drop(old);
    let pool = opener.join().expect("no panic")?;
    assert_eq!(pool.memory().load(start), 7, "the file that the path leads to");
    assert!(matches!(Pool::open(&path, &options()), Err(Error::InUse { .. })), "one writer");
    Ok(())
}

/// Open descriptors of this process that lead to a file with this inode number.
fn descriptors_of(inode: u64) -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").expect("this process");
    descriptors.flatten().filter(|entry| fs::metadata(entry.path()).is_ok_and(|found| found.ino() == inode)).count()
}

/// The files of a set in the block domain. It died in its third life with lines for part 1 in its journal. `older.N` is
/// part 1 when life N was closed.
fn dead_set(folder: &Path, commits: u64, grow: bool) -> Result<(PathBuf, PathBuf, PmAddr), Box<dyn std::error::Error>> {
    let at = |name: &str| folder.join(name);
    let block = PoolOptions { domain: DomainChoice::Block, journal_bytes: 256 << 10, ..options() };
    drop(Pool::create(at("a"), &PoolOptions { parts: vec![at("a.1")], ..block.clone() })?);
    for life in 1..3 {
        fs::copy(at("a.1"), at(&format!("older.{life}")))?;
        let pool = Pool::open(at("a"), &block)?;
        pool.memory().store(pool.heap_area(1).0, life);
        pool.memory().persist(pool.heap_area(1).0, 8);
    }
    fs::copy(at("a.1"), at("older.3"))?;
    let pool = Pool::open(at("a"), &block)?;
    let place = pool.heap_area(1).0;
    if grow {
        pool.grow(1, 2 << 20)?;
    }
    for number in 0..commits {
        pool.memory().store(pool.heap_area(0).0, number);
        pool.memory().persist(pool.heap_area(0).0, 8);
        pool.memory().durable()?;
    }
    let last = PmAddr::new(1, pool.heap_area(1).1.offset() - 8);
    for at in [place.plus(64), last] {
        pool.memory().store(at, 77);
        pool.memory().persist(at, 8);
    }
    pool.memory().durable()?;
    fs::copy(at("a"), at("dead"))?;
    fs::copy(at("a.1"), at("dead.1"))?;
    drop(pool);
    Ok((at("dead"), at("dead.1"), place))
}

#[test]
fn a_refused_open_writes_nothing_of_the_journal_into_a_part_of_another_life() -> Outcome {
    // With many commits the beginning of the life is in the files, else it is in the journal.
    for (commits, older, is_right) in [(0, 1, false), (0, 2, false), (0, 3, true), (200, 1, false), (200, 2, false)] {
        let folder = tempfile::tempdir()?;
        let (path, part, place) = dead_set(folder.path(), commits, false)?;
        let right = fs::read(&part)?;
        fs::copy(folder.path().join(format!("older.{older}")), &part)?;
        let block = PoolOptions { domain: DomainChoice::Block, ..options() };
        if !is_right {
            let before = (fs::read(&path)?, fs::read(&part)?);
            for _ in 0..2 {
                let error = Pool::open(&path, &block).map(|pool| pool.boot()).expect_err("a part of another life");
                assert!(error.to_string().contains("older copy"), "{error}");
                assert!(Pool::open_read_only(&path, &block).is_err());
                let report = Pool::check(&path, &block)?;
                assert!(!report.is_repairable() && report.to_string().contains("older copy"), "{report}");
                assert!(Pool::repair(&path, &block, true)?.done.is_empty(), "a repair makes no part of one life");
                assert!(before == (fs::read(&path)?, fs::read(&part)?), "a refused open changed a file");
            }
            fs::write(&part, right)?;
        }
        let pool = Pool::open(&path, &block)?;
        assert_eq!((pool.memory().load(place), pool.memory().load(place.plus(64))), (2, 77));
    }
    Ok(())
}

#[test]
fn a_refused_open_does_not_make_a_truncated_part_longer() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, part, _) = dead_set(folder.path(), 0, true)?;
    let file = fs::OpenOptions::new().write(true).open(&part)?;
    file.set_len(1 << 20)?;
    let block = PoolOptions { domain: DomainChoice::Block, ..options() };
    for _ in 0..2 {
        let error = Pool::open(&path, &block).map(|pool| pool.boot()).expect_err("a truncated part");
        assert!(error.to_string().contains("truncated"), "{error}");
        let report = Pool::repair(&path, &block, false)?;
        assert!(!report.after.is_repairable(), "{report}");
        assert_eq!(file.metadata()?.len(), 1 << 20);
    }
    Ok(())
}

#[test]
fn what_a_writer_can_address_ends_where_the_pool_ends() -> Outcome {
    let folder = tempfile::tempdir()?;
    for domain in [DomainChoice::Process, DomainChoice::Block] {
        let path = folder.path().join(format!("{domain:?}"));
        let options = PoolOptions { domain, journal_bytes: 256 << 10, ..options() };
        drop(Pool::create(&path, &options)?);
        // A growth that was killed before its state, then one by less.
        fs::OpenOptions::new().write(true).open(&path)?.set_len(4 << 20)?;
        let pool = Pool::open(&path, &options)?;
        assert_eq!(pool.memory().part_len(0), 1 << 20);
        for grown in [2 << 20, 3 << 20] {
            assert_eq!(pool.grow(0, grown)?, grown);
            assert_eq!((pool.memory().part_len(0), fs::metadata(&path)?.len()), (grown, grown));
            let last = PmAddr::new(0, grown - 4096 - 8);
            pool.memory().store(last, grown);
            pool.memory().persist(last, 8);
            assert!(!pool.memory().contains(PmAddr::new(0, grown), 8), "behind the end of the file");
        }
        pool.memory().durable()?;
    }
    Ok(())
}
