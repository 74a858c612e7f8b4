//! Bytes that no pool ever wrote, with checksums that fit: opened, checked and repaired without a panic, and never with
//! an access outside the file. And creations that are killed at any moment.

use std::env;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn options(domain: DomainChoice) -> PoolOptions {
    PoolOptions {
        domain,
        size_bytes: 256 << 10,
        journal_bytes: 128 << 10,
        reserve_bytes: 16 << 20,
        ..PoolOptions::default()
    }
}

/// Numbers from a seed: the sequence is the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A number that is likely to upset arithmetic.
    fn nasty(&mut self) -> u64 {
        const EDGES: [u64; 10] = [0, 1, 63, 4095, 4096, 12288, 1 << 18, u64::MAX, i64::MAX as u64, u64::MAX - 4095];
        match self.below(3) {
            0 => self.next(),
            1 => self.next() >> self.below(64),
            _ => EDGES[self.below(EDGES.len() as u64) as usize],
        }
    }
}

/// Overwrites a field of one of the checksummed records and makes its checksum fit again.
fn upset(image: &mut [u8], numbers: &mut Numbers) {
    const HEADER_FIELDS: [(usize, usize); 14] = [
        (12, 4),
        (16, 8),
        (24, 8),
        (32, 8),
        (40, 8),
        (56, 8),
        (72, 2),
        (74, 2),
        (152, 8),
        (160, 8),
        (168, 8),
        (176, 8),
        (184, 8),
        (456, 8),
    ];
    let (record, len) = match numbers.below(4) {
        0 | 1 => (0, 4096),
        2 => ([4096, 4352][numbers.below(2) as usize], 64),
        _ => (8192 + numbers.below(64) as usize * 64, 64),
    };
    let (field, bytes) = if len == 4096 {
        HEADER_FIELDS[numbers.below(HEADER_FIELDS.len() as u64) as usize]
    } else {
        (numbers.below(7) as usize * 8, 8)
    };
    let value = numbers.nasty().to_le_bytes();
    image[record + field..record + field + bytes].copy_from_slice(&value[..bytes]);
    let crc = crc32c::crc32c(&image[record..record + len - 4]);
    image[record + len - 4..record + len].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn no_bytes_make_open_check_or_repair_panic() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    for domain in [DomainChoice::Process, DomainChoice::Block] {
        let options = options(domain);
        let _ = fs::remove_file(&path);
        let pool = Pool::create(&path, &options)?;
        pool.set_root("root", 1, pool.heap_area(0).0)?;
        drop(pool);
        let image = fs::read(&path)?;
        let mut numbers = Numbers(0x5EED_0001);
        let (mut opened, mut refused) = (0, 0);
        for round in 0..250 {
            let mut bad = image.clone();
            for _ in 0..=numbers.below(4) {
                upset(&mut bad, &mut numbers);
            }
            fs::write(&path, &bad)?;
            let calm = catch_unwind(AssertUnwindSafe(|| {
                if let Ok(pool) = Pool::open_read_only(&path, &options) {
                    let (start, end) = pool.heap_area(0);
                    assert!(start < end && pool.memory().contains(PmAddr::new(0, end.offset()), 4096));
                    let _ = (pool.info().to_string(), pool.root("root").is_ok(), pool.memory().load(start));
                }
                let _ = Pool::check(&path, &options).map(|report| report.to_string());
                let is_open = Pool::open(&path, &options).map(|pool| pool.set_root("new", 1, PmAddr::NULL)).is_ok();
                let _ = Pool::repair(&path, &options, round % 2 == 0).map(|report| report.to_string());
                is_open
            }));
            match calm {
                Ok(true) => opened += 1,
                Ok(false) => refused += 1,
                Err(_) => {
                    let changed: Vec<usize> = (0..bad.len()).filter(|byte| bad[*byte] != image[*byte]).collect();
                    panic!("round {round} in {domain:?} panicked; changed bytes: {changed:?}");
                }
            }
        }
        assert!(opened > 20 && refused > 20, "the test must reach both sides: {opened} opened, {refused} refused");
    }
    Ok(())
}

#[test]
fn a_creation_that_is_killed_leaves_nothing_or_a_whole_pool() -> Outcome {
    if let Some(path) = env::var_os("LODESTONE_TEST_CHILD").map(PathBuf::from) {
        let overwrite = PoolOptions { overwrite: true, ..options(DomainChoice::Block) };
        loop {
            print!("\u{1}");
            std::io::stdout().flush()?;
            drop(Pool::create(&path, &overwrite)?);
            fs::remove_file(&path)?;
        }
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x.pool");
    let (mut whole, mut nothing, mut numbers) = (0, 0, Numbers(0x5EED_0002));
    for round in 0..60_u64 {
        let mut creator = Command::new(env::current_exe()?)
            .args(["--exact", "a_creation_that_is_killed_leaves_nothing_or_a_whole_pool", "--nocapture"])
            .env("LODESTONE_TEST_CHILD", &path)
            .stdout(Stdio::piped())
            .spawn()?;
        let marks = BufReader::new(creator.stdout.take().ok_or("no output")?).bytes();
        // One to three creations begin; then some more turns, so that the kill comes at another moment of the last.
        let mut begun = marks.map_while(Result::ok).filter(|byte| *byte == 1);
        for _ in 0..=round % 3 {
            begun.next().ok_or("the child ended")?;
        }
        for _ in 0..numbers.below(400_000) {
            std::hint::spin_loop();
        }
        creator.kill()?;
        creator.wait()?;
        if path.exists() {
            let pool = Pool::open(&path, &options(DomainChoice::Block))?;
            assert!(pool.boot() <= 2, "a pool of lives that were never lived");
            drop(pool);
            whole += 1;
        } else {
            nothing += 1;
        }
        let _ = fs::remove_file(&path);
    }
    println!("{whole} whole pools, {nothing} times nothing");
    drop(Pool::create(&path, &options(DomainChoice::Block))?);
    assert_eq!(fs::read_dir(folder.path())?.count(), 1, "what killed creations left is cleaned up");
    Ok(())
}

/// A root's two lines with the largest sequence numbers, as a pool of a billion changes has them.
#[test]
fn a_root_that_was_changed_as_often_as_its_number_can_say_is_changed_again() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("x");
    let options = options(DomainChoice::Process);
    let places: Vec<PmAddr> = {
        let pool = Pool::create(&path, &options)?;
        let start = pool.heap_area(0).0;
        pool.set_root("counter", 7, start)?;
        (0..8).map(|number| start.plus(64 * number)).collect()
    };
    let mut image = fs::read(&path)?;
    for line in [8192, 8192 + 2048] {
        image[line..line + 4].copy_from_slice(&(u32::MAX - 3).to_le_bytes());
        let crc = crc32c::crc32c(&image[line..line + 60]);
        image[line + 60..line + 64].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(&path, image)?;
    for place in places {
        let pool = Pool::open(&path, &options)?;
        pool.set_root("counter", 7, place)?;
        assert_eq!(pool.root("counter")?, Some((7, place)));
        drop(pool);
        assert!(Pool::check(&path, &options)?.is_clean());
    }
    Ok(())
}
