//! Pools on real persistent memory: tests that need a DAX mount or a devdax device.
//!
//! The place comes from the environment, so that the same program runs everywhere. `LODESTONE_PM_DIR` is a folder on a
//! file system mounted with `-o dax`, or `LODESTONE_PM_DEVICE` a devdax device. `LODESTONE_EXPECT_DOMAIN` is the domain
//! that a pool must get there, `LODESTONE_EXPECT_NODE` (optional) the NUMA node. Without a place every test says that
//! it was skipped. `cargo xtask vm pmem` runs this program in a guest that has all of them. Files of earlier runs are
//! overwritten.

use std::env;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lodestone_pmem::{CounterScope, Domain, DomainChoice, Error, FlushInstruction, PmAddr, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A device holds one pool, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

struct Place {
    /// Where this test's pool is.
    path: PathBuf,
    is_device: bool,
    domain: String,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    /// The place from the environment; `None`, and a line that says so, when there is none.
    fn for_test(name: &str) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let device = env::var_os("LODESTONE_PM_DEVICE");
        let is_device = device.is_some();
        let folder = env::var_os("LODESTONE_PM_DIR").map(|folder| PathBuf::from(folder).join(format!("{name}.pool")));
        let Some(path) = device.map(PathBuf::from).or(folder) else {
            println!("{name}: skipped: neither LODESTONE_PM_DIR nor LODESTONE_PM_DEVICE is set (see vm/README.md)");
            return None;
        };
        let domain = env::var("LODESTONE_EXPECT_DOMAIN").expect("LODESTONE_EXPECT_DOMAIN says what the place offers");
        Some(Self { path, is_device, domain, _turn: turn })
    }

    fn options(&self) -> PoolOptions {
        PoolOptions {
            domain: DomainChoice::Auto,
            size_bytes: 8 << 20,
            journal_bytes: 1 << 20,
            reserve_bytes: 1 << 30,
            overwrite: true,
            ..PoolOptions::default()
        }
    }

    fn create(&self) -> Result<Pool, Error> {
        Pool::create(&self.path, &self.options())
    }

    fn open(&self) -> Result<Pool, Error> {
        Pool::open(&self.path, &self.options())
    }
}

#[test]
fn auto_chooses_the_domain_of_the_platform_and_says_why() -> Outcome {
    let Some(place) = Place::for_test("auto") else { return Ok(()) };
    let created = place.create()?;
    assert_eq!(created.memory().domain().to_string(), place.domain);
    drop(created);
    let info = place.open()?.info();
    assert_eq!(info.domain.to_string(), place.domain);
    let medium = if place.is_device { "devdax" } else { "MAP_SYNC" };
    assert!(info.domain_reason.contains(medium), "{}", info.domain_reason);
    if let Ok(node) = env::var("LODESTONE_EXPECT_NODE") {
        assert_eq!(info.parts[0].numa_node.map(|node| node.to_string()), Some(node));
    }
    Ok(())
}

#[test]
fn a_domain_that_the_place_does_not_offer_is_refused_not_replaced() -> Outcome {
    let Some(place) = Place::for_test("refused") else { return Ok(()) };
    drop(place.create()?);
    let open = |domain| Pool::open(&place.path, &PoolOptions { domain, ..place.options() });
    if place.domain == "dax" {
        let refused = open(DomainChoice::Eadr).expect_err("caches are not persistent here");
        assert!(matches!(refused, Error::Unavailable { domain: Domain::Eadr, .. }), "{refused}");
    }
    if place.is_device {
        let refused = open(DomainChoice::Block).expect_err("a device has no fsync");
        assert!(matches!(refused, Error::Unavailable { domain: Domain::Block, .. }), "{refused}");
    }
    assert_eq!(open(DomainChoice::Dax)?.memory().domain(), Domain::Dax);
    Ok(())
}

#[test]
fn every_way_of_writing_is_there_after_reopening() -> Outcome {
    let Some(place) = Place::for_test("writing") else { return Ok(()) };
    let pool = place.create()?;
    let (start, _) = pool.heap_area(0);
    // Lengths and offsets around words, lines, media blocks and pages; each range has 128 KiB of its own.
    let lengths = [1, 8, 63, 64, 65, 255, 256, 1000, 4096, 10_000, 70_000];
    let ranges: Vec<(PmAddr, Vec<u8>)> = lengths
        .into_iter()
        .flat_map(|len| [0, 8, 56].map(|shift| (len, shift)))
        .enumerate()
        .map(|(range, (len, shift))| {
            let bytes = (0..len).map(|byte| (byte as u8).wrapping_mul(31) ^ (range as u8)).collect();
            (start.plus(((range as u64) << 17) + shift), bytes)
        })
        .collect();
    let memory = pool.memory();
    for (range, (at, bytes)) in ranges.iter().enumerate() {
        // Every way meets every offset.
        match (range + range / 3) % 3 {
            0 => memory.stream(*at, bytes),
            1 => memory.write_back(*at, bytes),
            _ => {
                memory.write(*at, bytes);
                memory.flush(*at, bytes.len() as u64);
            }
        }
    }
    memory.fence();
    memory.durable()?;
    drop(pool);
    let pool = place.open()?;
    for (at, bytes) in &ranges {
        let mut found = vec![0; bytes.len()];
        pool.memory().read(*at, &mut found);
        assert!(found == *bytes, "{} bytes at {at}", bytes.len());
    }
    Ok(())
}

#[test]
fn a_persisted_word_costs_one_flush_and_one_fence_and_no_sync() -> Outcome {
    let Some(place) = Place::for_test("cost") else { return Ok(()) };
    let pool = place.create()?;
    let (memory, (at, _)) = (pool.memory(), pool.heap_area(0));
    let scope = CounterScope::start();
    memory.store(at, 1);
    memory.persist(at, 8);
    memory.durable()?;
    let spent = scope.delta();
    assert_eq!((spent.flushes, spent.fences, spent.syncs, spent.journal_bytes), (1, 1, 0, 0));
    // The guest's processor has clwb; the host's processor must not decide.
    let (flush, _) = memory.instructions();
    assert!(flush == FlushInstruction::Clwb || !std::arch::is_x86_feature_detected!("avx512f"), "{flush:?}");
    Ok(())
}

#[test]
fn one_writer_at_a_time() -> Outcome {
    let Some(place) = Place::for_test("lock") else { return Ok(()) };
    let pool = place.create()?;
    assert!(matches!(place.open(), Err(Error::InUse { .. })));
    let overwritten = place.create().expect_err("an open pool is never overwritten");
    assert!(matches!(overwritten, Error::InUse { .. }), "{overwritten}");
    drop(pool);
    assert!(place.open()?.was_clean());
    Ok(())
}

#[test]
fn reading_leaves_the_boot_number_alone() -> Outcome {
    let Some(place) = Place::for_test("reading") else { return Ok(()) };
    let pool = place.create()?;
    let (at, _) = pool.heap_area(0);
    pool.memory().store(at, 77);
    pool.memory().persist(at, 8);
    let boot = pool.boot();
    drop(pool);
    for _ in 0..2 {
        let reader = Pool::open_read_only(&place.path, &place.options())?;
        assert_eq!((reader.memory().load(at), reader.boot()), (77, boot));
    }
    assert_eq!(place.open()?.boot(), boot + 1);
    Ok(())
}

#[test]
fn a_file_grows_in_use_and_a_device_says_that_it_cannot() -> Outcome {
    let Some(place) = Place::for_test("grow") else { return Ok(()) };
    let pool = place.create()?;
    let (_, old_end) = pool.heap_area(0);
    if place.is_device {
        assert!(pool.grow(0, pool.memory().part_len(0) + (16 << 20)).is_err());
        return Ok(());
    }
    let last_old = PmAddr::new(0, old_end.offset() - 8);
    pool.memory().store(last_old, 5);
    pool.grow(0, 32 << 20)?;
    let last_new = PmAddr::new(0, pool.heap_area(0).1.offset() - 8);
    pool.memory().store(last_new, 6);
    pool.memory().flush(last_old, 8);
    pool.memory().persist(last_new, 8);
    drop(pool);
    let pool = place.open()?;
    assert_eq!(pool.memory().domain().to_string(), place.domain);
    assert_eq!((pool.memory().load(last_old), pool.memory().load(last_new)), (5, 6));
    Ok(())
}
