//! Measures how long a large pool with many objects takes to open after its process was killed.
//!
//! `cargo run --release -p lodestone-collections --example open_after_kill -- FOLDER [GIBIBYTES] [OBJECTS]`
//!
//! A child process fills a sparse pool and goes on writing until it is killed. Then the pool is opened here, and the
//! first transaction is timed too.

use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use lodestone_collections::PmHashMap;
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_stm::Stm;
use lodestone_store::Store;

fn options(gibibytes: u64) -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: gibibytes << 30, ..PoolOptions::default() }
}

/// One object for each entry: the value's box.
type Map = PmHashMap<u64, lodestone_collections::Bytes>;

fn fill(path: &Path, gibibytes: u64, objects: u64) -> Result<(), Box<dyn std::error::Error>> {
    let stm = Stm::open(&Store::create(path, &options(gibibytes))?)?;
    let map = Map::open(&stm, "map")?;
    for first in (0..objects).step_by(100) {
        stm.update(|tx| (first..first + 100).try_for_each(|key| map.insert(tx, &key, &[7; 30]).map(|_| ())))?;
    }
    println!("filled");
    // Until killed.
    for key in (0..objects).cycle() {
        stm.update(|tx| map.insert(tx, &key, &[8; 30]).map(|_| ()))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = arguments.first().ok_or("usage: open_after_kill FOLDER [GIBIBYTES] [OBJECTS]")?;
    let gibibytes = arguments.get(1).map_or(Ok(16), |text| text.parse())?;
    let objects = arguments.get(2).map_or(Ok(1_000_000), |text| text.parse())?;
    let path = Path::new(folder).join("open_after_kill.pool");
    if arguments.get(3).is_some_and(|word| word == "fill") {
        return fill(&path, gibibytes, objects);
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args([folder, &gibibytes.to_string(), &objects.to_string(), "fill"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    if line.trim() != "filled" {
        return Err("the child failed".into());
    }
    let began = Instant::now();
    let pool = Pool::open(&path, &options(gibibytes))?;
    let pool_ms = began.elapsed().as_secs_f64() * 1e3;
    let stm = Stm::open(&Store::over(&pool)?)?;
    let opened_ms = began.elapsed().as_secs_f64() * 1e3;
    let map = Map::open(&stm, "map")?;
    stm.update(|tx| map.insert(tx, &1, b"first").map(|_| ()))?;
    let first_ms = began.elapsed().as_secs_f64() * 1e3;
    println!(
        "{gibibytes} GiB, {objects} entries, killed: pool open after {pool_ms:.2} ms, memory after {opened_ms:.2} ms, \
         first transaction done after {first_ms:.2} ms; {:?}",
        stm.recovery()
    );
    assert!(!stm.recovery().was_clean, "the child was killed in the middle");
    drop((map, stm, pool));
    std::fs::remove_file(&path)?;
    Ok(())
}
