//! `lodestone-peers stm`: the structures of `lodestone bench stm` on libpmemobj, with the same lines of results.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use lodestone_stm_bench::runner::{self, Spec};
use lodestone_workload::race::{Length, Plan};
use lodestone_workload::result::BenchResult;

use crate::pmemobj::{BTree, Hash, List, PmemObj, PmemObjMap, Structure, Tree};

/// Bytes of a pool. The structures take a few megabytes of it.
const POOL_BYTES: u64 = 192 << 20;
const KEYS_LIST: u64 = 256;
const KEYS_OTHER: u64 = 10_000;

/// Runs a structure on libpmemobj under a reader-writer lock, as `lodestone bench stm` runs it on its engines.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Structures: hash, tree, list, btree.
    #[arg(long, default_value = "hash", value_delimiter = ',')]
    structure: Vec<Name>,
    /// Updates in a hundred operations.
    #[arg(long, default_value = "20", value_delimiter = ',')]
    updates: Vec<u64>,
    /// Threads; several numbers run one after the other.
    #[arg(long, default_value = "1", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Keys that are loaded; 256 for the list and 10,000 for the others unless given.
    #[arg(long)]
    keys: Option<u64>,
    /// Buckets of the hash table.
    #[arg(long, default_value_t = 10_000)]
    buckets: u64,
    /// Measured time of each run.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.2)]
    warm_up: f64,
    /// Seed of the random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the pool. A fresh folder is made there and removed at the end.
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
    /// One JSON object for each line instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    Hash,
    Tree,
    List,
    Btree,
}

/// Runs all combinations.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    crate::pmemobj::force_flushes()?;
    for &structure in &arguments.structure {
        for &updates_percent in &arguments.updates {
            for &threads in &arguments.threads {
                let spec = spec(arguments, structure, updates_percent, threads)?;
                let result = match structure {
                    Name::Hash => measure::<Hash>(arguments, &spec),
                    Name::Tree => measure::<Tree>(arguments, &spec),
                    Name::List => measure::<List>(arguments, &spec),
                    Name::Btree => measure::<BTree>(arguments, &spec),
                }?;
                print(arguments, &result);
            }
        }
    }
    Ok(())
}

fn spec(arguments: &Arguments, structure: Name, updates_percent: u64, threads: usize) -> Result<Spec> {
    let keys = arguments.keys.unwrap_or(if structure == Name::List { KEYS_LIST } else { KEYS_OTHER });
    let seconds = |value| Duration::try_from_secs_f64(value).context("seconds are positive numbers");
    let length = Length::Time(seconds(arguments.seconds)?);
    let plan = Plan { warm_up: seconds(arguments.warm_up)?, ..Plan::new(threads, length) };
    Ok(Spec { keys, updates_percent, seed: arguments.seed, plan })
}

fn measure<S: Structure>(arguments: &Arguments, spec: &Spec) -> Result<BenchResult> {
    let folder = tempfile::tempdir_in(&arguments.folder)
        .with_context(|| format!("no folder can be made in {}", arguments.folder.display()))?;
    let driver = PmemObjMap::<S>::new(PmemObj::create(folder.path(), POOL_BYTES, arguments.buckets)?);
    runner::load(&driver, spec)?;
    Ok(runner::run(&driver, spec)?.result(&driver, spec))
}

fn print(arguments: &Arguments, result: &BenchResult) {
    if arguments.json {
        println!("{}", result.to_json_line());
        return;
    }
    println!(
        "{:8} {:>4} % updates {:>3} threads {:>14.0} operations/s",
        result.workload,
        result.extra.get("updates_percent").map_or_else(String::new, ToString::to_string),
        result.threads,
        result.ops_per_s.unwrap_or(f64::NAN)
    );
}

#[cfg(test)]
mod tests {
    use lodestone_stm_bench::driver::Driver;

    use super::*;

    fn checked<S: Structure>() {
        let folder = tempfile::tempdir().unwrap();
        let driver = PmemObjMap::<S>::new(PmemObj::create(folder.path(), 64 << 20, 8).unwrap());
        let plan = Plan::new(2, Length::Operations(6_000));
        let spec = Spec { keys: 60, updates_percent: 80, seed: 9, plan };
        runner::load(&driver, &spec).unwrap();
        assert_eq!(driver.entries().unwrap().pairs.len(), 60);
        let outcome = runner::run(&driver, &spec).unwrap();
        assert!(outcome.tally.changes > 1_000, "{outcome:?}");
    }

    #[test]
    fn every_structure_stands_two_threads() {
        checked::<Hash>();
        checked::<Tree>();
        checked::<List>();
        checked::<BTree>();
    }
}
