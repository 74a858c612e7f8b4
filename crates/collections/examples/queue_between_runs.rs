//! A queue between two runs of a program: the next run takes out the items that one run put in.
//!
//! `cargo run -p lodestone-collections --example queue_between_runs -- jobs.pool put "print the report"`, then
//! `... -- jobs.pool take`.

use lodestone_collections::{Bytes, PmQueue};
use lodestone_pmem::PoolOptions;
use lodestone_stm::Stm;
use lodestone_store::Store;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (path, command) = match words[..] {
        [path, "put", job] => (path, Some(job)),
        [path, "take"] => (path, None),
        _ => return Err("usage: queue_between_runs POOL put JOB | POOL take".into()),
    };
    let stm = Stm::open(&Store::open_or_create(path, &PoolOptions::default())?)?;
    let jobs = PmQueue::<Bytes>::open(&stm, "jobs")?;
    match command {
        Some(job) => {
            stm.update(|tx| jobs.push(tx, job.as_bytes()))?;
            println!("{} jobs wait", stm.read(|tx| jobs.len(tx))?);
        }
        None => match stm.update(|tx| jobs.pop(tx))? {
            Some(job) => println!("{}", String::from_utf8_lossy(&job)),
            None => println!("nothing to do"),
        },
    }
    Ok(())
}
