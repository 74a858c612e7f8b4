//! Backups and copies: consistent under load, in every domain that an ordinary file can have; what they keep and
//! change.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lodestone_pmem::{CopyOptions, DomainChoice, Error, Memory, PmAddr, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const DOMAINS: [DomainChoice; 3] = [DomainChoice::Process, DomainChoice::Block, DomainChoice::DaxEmulated];

fn options(domain: DomainChoice) -> PoolOptions {
    PoolOptions { domain, size_bytes: 4 << 20, journal_bytes: 1 << 20, ..PoolOptions::default() }
}

/// Places of thread `index`: the first line is always written and fenced before the second. The second comes much later
/// in the address space, or much earlier, so that a copy without order would meet them in the wrong one.
fn places(pool: &Pool, index: u64) -> (PmAddr, PmAddr) {
    let (start, end) = pool.heap_area(0);
    let (low, high) = (start.plus(index * 64), PmAddr::new(0, end.offset() - (index + 1) * 64));
    if index.is_multiple_of(2) { (low, high) } else { (high, low) }
}

/// Counts in both lines until told to stop: eight equal words each.
fn count(memory: &Memory, (first, second): (PmAddr, PmAddr), stop: &AtomicBool) -> u64 {
    let mut number = memory.load(first);
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        for place in [first, second] {
            for word in 0..8 {
                memory.store(place.plus(word * 8), number);
            }
            // The second line may not overtake the first, nor the next number this one.
            memory.persist(place, 64);
        }
        if number.is_multiple_of(512) {
            memory.durable().expect("durable");
        }
    }
    number
}

/// Checks the rule that holds after a crash at any moment: words of a line fall by at most one step, and the second
/// line follows the first.
fn verify(pool: &Pool, index: u64) -> u64 {
    let memory = pool.memory();
    let (first, second) = places(pool, index);
    let line = |place: PmAddr| -> Vec<u64> { (0..8).map(|word| memory.load(place.plus(word * 8))).collect() };
    for place in [first, second] {
        let words = line(place);
        assert!(words.is_sorted_by(|a, b| a >= b) && words[0] - words[7] <= 1, "thread {index}: no prefix: {words:?}");
    }
    let (ahead, behind) = (line(first), line(second));
    assert!(ahead[7] >= behind[0], "thread {index}: the second line {behind:?} overtook the first {ahead:?}");
    assert!(ahead[0] <= behind[7] + 1, "thread {index}: the first line {ahead:?} ran away from {behind:?}");
    behind[7]
}

/// Stops the writers however the test ends: a failed assertion must not wait for them for ever.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn backups_under_load(domain: DomainChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let options = options(domain);
    let pool = Pool::create(folder.path().join("a.pool"), &options)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Outcome {
        for index in 0..4 {
            let (pool, stop) = (&pool, &stop);
            scope.spawn(move || count(pool.memory(), places(pool, index), stop));
        }
        let _stop = Stop(&stop);
        let mut last = [0; 4];
        for round in 0..8 {
            let target = folder.path().join("b.pool");
            let known: Vec<u64> = (0..4).map(|index| pool.memory().load(places(&pool, index).1.plus(56))).collect();
            let report = if round % 2 == 0 {
                pool.backup(&target, &CopyOptions { overwrite: true, ..CopyOptions::default() })
            } else {
                pool.copy(&target, &CopyOptions { overwrite: true, ..CopyOptions::default() })
            };
            let report = report?;
            assert_eq!(report.set_uuid == pool.info().set_uuid, round % 2 == 0);
            let copy = Pool::open(&target, &options)?;
            for index in 0..4_u64 {
                let found = verify(&copy, index);
                // All but the newest number were fenced before the call.
                assert!(found + 1 >= known[index as usize], "{found} after {}", known[index as usize]);
                assert!(found >= last[index as usize], "the copy went back in time");
                last[index as usize] = found;
            }
            // Lines that the copy brings along are heap of a pool that works.
            copy.grow(0, 8 << 20)?;
        }
        assert!(last.iter().all(|found| *found > 0), "every thread made progress: {last:?}");
        Ok(())
    })
}

#[test]
fn backups_are_consistent_while_threads_write_in_the_process_domain() -> Outcome {
    backups_under_load(DOMAINS[0])
}

#[test]
fn backups_are_consistent_while_threads_write_in_the_block_domain() -> Outcome {
    backups_under_load(DOMAINS[1])
}

#[test]
fn backups_are_consistent_while_threads_write_with_the_instructions_of_dax() -> Outcome {
    backups_under_load(DOMAINS[2])
}

/// Pages that [`scatter`] writes.
const SCATTERED: u64 = 700;

/// The page that change `number` is about.
fn page_of(pool: &Pool, number: u64) -> PmAddr {
    pool.heap_area(0).0.plus((1 + number * 257 % SCATTERED) * 4096)
}

/// Numbers all over the pool, and after each in the first page. Each way to write has its turn.
fn scatter(pool: &Pool, stop: &AtomicBool) -> Result<(), Error> {
    let (memory, head) = (pool.memory(), pool.heap_area(0).0);
    for number in 1_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (page, words) = (page_of(pool, number), [number; 80]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        match number % 4 {
            0 => memory.write_and_flush(page, &words),
            1 => memory.stream(page, &bytes),
            2 => memory.append(page, &bytes),
            _ => {
                memory.write(page, &bytes);
                memory.flush(page, 640);
            }
        }
        // The number in the first page may not overtake it.
        memory.fence();
        memory.store(head, number);
        memory.persist(head, 8);
    }
    Ok(())
}

/// Grows the pool and fills what is new, a page after the other. How many there are is in the first page.
fn extend(pool: &Pool, first: PmAddr, stop: &AtomicBool) -> Result<(), Error> {
    let (memory, count) = (pool.memory(), pool.heap_area(0).0.plus(64));
    for number in 0.. {
        let page = first.plus(number * 4096);
        if stop.load(Ordering::Relaxed) || page.offset() > 40 << 20 {
            break;
        }
        if !memory.contains(page, 8192) {
            pool.grow(0, page.offset() + (256 << 10))?;
        }
        memory.store(page.plus(1024), number + 1);
        // As above.
        memory.persist(page.plus(1024), 8);
        memory.store(count, number + 1);
        memory.persist(count, 8);
    }
    Ok(())
}

#[test]
fn backups_of_a_pool_that_grows_have_every_page_that_was_flushed() -> Outcome {
    for domain in DOMAINS {
        let folder = tempfile::tempdir()?;
        let (pool, stop) = (Pool::create(folder.path().join("a.pool"), &options(domain))?, AtomicBool::new(false));
        let first = pool.heap_area(0).1;
        let (mut again, mut grown) = (0, 0);
        thread::scope(|scope| -> Outcome {
            let others = [scope.spawn(|| scatter(&pool, &stop)), scope.spawn(|| extend(&pool, first, &stop))];
            let judged = (|| -> Outcome {
                let _stop = Stop(&stop);
                for _ in 0..10 {
                    let (target, bytes) = (folder.path().join("b.pool"), pool.heap_area(0).1.offset());
                    let report = pool.backup(&target, &CopyOptions { overwrite: true, ..CopyOptions::default() })?;
                    again += report.rewritten_bytes;
                    let copy = Pool::open(&target, &options(domain))?;
                    grown += copy.heap_area(0).1.offset() - bytes;
                    let (memory, head) = (copy.memory(), copy.heap_area(0).0);
                    let (last, count) = (memory.load(head), memory.load(head.plus(64)));
                    for number in last.saturating_sub(SCATTERED - 1).max(1)..=last {
                        let words: [u64; 80] = memory.load_words(page_of(&copy, number));
                        // The change after the last one may be there in part.
                        let is_whole = words.iter().all(|word| *word == number);
                        assert!(is_whole || page_of(&copy, number) == page_of(&copy, last + 1), "{number}: {words:?}");
                    }
                    for number in 0..count {
                        assert_eq!(memory.load(first.plus(number * 4096 + 1024)), number + 1, "of {count}");
                    }
                }
                Ok(())
            })();
            for other in others {
                other.join().expect("no panic")?;
            }
            judged
        })?;
        assert!(again > 0 && grown > 0, "{again} bytes again, {grown} more: nothing happened meanwhile");
    }
    Ok(())
}

#[test]
fn a_pool_grows_while_threads_write() -> Outcome {
    for domain in DOMAINS {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.pool");
        let pool = Pool::create(&path, &options(domain))?;
        let places: Vec<_> = (0..2).map(|index| places(&pool, index)).collect();
        let stop = AtomicBool::new(false);
        let counted = thread::scope(|scope| -> Result<Vec<u64>, Error> {
            let writers: Vec<_> = places
                .iter()
                .map(|place| {
                    let (pool, stop) = (&pool, &stop);
                    scope.spawn(move || count(pool.memory(), *place, stop))
                })
                .collect();
            let grown = (5..10_u64).try_for_each(|megabytes| pool.grow(0, megabytes << 20).map(|_| ()));
            stop.store(true, Ordering::Relaxed);
            let counted = writers.into_iter().map(|writer| writer.join().expect("writer")).collect();
            grown.map(|()| counted)
        })?;
        let end = pool.heap_area(0).1;
        assert_eq!(end.offset(), (9 << 20) - 4096);
        let last = PmAddr::new(0, end.offset() - 8);
        pool.memory().store(last, 77);
        pool.memory().persist(last, 8);
        drop(pool);
        let pool = Pool::open(&path, &options(domain))?;
        assert_eq!(pool.memory().load(last), 77);
        for (place, counted) in places.iter().zip(counted) {
            assert_eq!((pool.memory().load(place.0), pool.memory().load(place.1)), (counted, counted));
        }
    }
    Ok(())
}

#[test]
fn an_offline_copy_is_a_pool_of_its_own_and_a_set_finds_its_own_parts() -> Outcome {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let parts = vec![at("far")];
    let two = PoolOptions { parts, ..options(DomainChoice::Process) };
    let pool = Pool::create(at("a.pool"), &two)?;
    let places: Vec<PmAddr> = (0..2).map(|part| pool.heap_area(part).0).collect();
    for (number, place) in (1..).zip(&places) {
        pool.memory().store(*place, number);
    }
    pool.set_root("here", 1, places[1])?;
    drop(pool);
    let before = fs::read(at("a.pool"))?;
    let source = Pool::open_read_only(at("a.pool"), &options(DomainChoice::Process))?;
    let report = source.copy(at("b.pool"), &CopyOptions::default())?;
    assert_eq!(report.paths, [at("b.pool"), at("b.pool.1")]);
    assert!(matches!(source.copy(at("b.pool"), &CopyOptions::default()), Err(Error::Exists { .. })));
    let uuids = |pool: &Pool| (pool.info().set_uuid, pool.info().parts[0].uuid, pool.info().parts[1].uuid);
    let original = uuids(&source);
    drop(source);
    assert!(before == fs::read(at("a.pool"))?, "copying changed the source");
    let copy = Pool::open(at("b.pool"), &options(DomainChoice::Process))?;
    assert!(copy.was_clean());
    assert_eq!(copy.root("here")?, Some((1, places[1])));
    assert_eq!((copy.memory().load(places[0]), copy.memory().load(places[1])), (1, 2));
    assert_eq!(copy.info().parts[1].path, at("b.pool.1"));
    let copied = uuids(&copy);
    assert!(copied.0 != original.0 && copied.1 != original.1 && copied.2 != original.2);
    Ok(())
}

#[test]
fn what_the_journal_holds_is_in_every_copy_and_in_a_read_only_view() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, dead, copied) = (folder.path().join("a"), folder.path().join("dead"), folder.path().join("copied"));
    let options = options(DomainChoice::Block);
    let pool = Pool::create(&path, &options)?;
    let place = pool.heap_area(0).0;
    pool.memory().store(place, 4711);
    pool.memory().persist(place, 8);
    pool.memory().durable()?;
    fs::copy(&path, &dead)?;
    drop(pool);
    let word_in = |path: &Path| -> std::io::Result<u64> {
        let bytes = fs::read(path)?;
        let start = place.offset() as usize;
        Ok(u64::from_le_bytes(bytes[start..start + 8].try_into().expect("eight bytes")))
    };
    assert_eq!(word_in(&dead)?, 0, "the line is in the journal only");
    let before = fs::read(&dead)?;
    let view = Pool::open_read_only(&dead, &options)?;
    assert_eq!((view.memory().load(place), view.boot(), view.was_clean()), (4711, 1, false));
    view.copy(&copied, &CopyOptions::default())?;
    drop(view);
    assert!(before == fs::read(&dead)?, "reading changed the file");
    assert_eq!(word_in(&copied)?, 4711);
    for (path, domain) in [(&copied, DomainChoice::Block), (&dead, DomainChoice::Process)] {
        let pool = Pool::open(path, &PoolOptions { domain, ..options.clone() })?;
        assert_eq!((pool.memory().load(place), pool.boot()), (4711, 2));
    }
    Ok(())
}
