//! `lodestone-peers index`: the mixes of `lodestone bench index` on redb and LMDB, with the same lines of results.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use lodestone_index_bench::engines::OnEngine;
use lodestone_index_bench::key::{KeyMaker, KeyShape, StringKeys, WordKeys};
use lodestone_index_bench::result::{Loaded, result};
use lodestone_index_bench::runner::{self, LoadOrder, Spec};
use lodestone_workload::engine::Engine;
use lodestone_workload::keys::Distribution;
use lodestone_workload::mix::{Mix, ScanKeys};
use lodestone_workload::race::{Length, Plan};

use crate::{Durability, lmdb, redb};

/// Most bytes that LMDB may map. The file is only as long as its content.
const MAP_BYTES_MAX: usize = 64 << 30;

/// Runs the mixes of `lodestone bench index` on another engine.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Engines: redb, lmdb.
    #[arg(long, default_value = "redb,lmdb", value_delimiter = ',')]
    engine: Vec<Name>,
    /// A preset or shares, as in `lodestone bench index`; may be given several times.
    #[arg(long, default_value = "search")]
    mix: Vec<Mix>,
    /// Which records are touched; by default as the preset defines.
    #[arg(long)]
    distribution: Option<Distribution>,
    /// Keys: u64, or bytes:N.
    #[arg(long, default_value = "u64")]
    key: KeyShape,
    /// Records that are loaded.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// Scans read 1 to this many keys, or MIN-MAX.
    #[arg(long, value_name = "KEYS", default_value = "100")]
    scan_keys: ScanKeys,
    /// Measured time of each run.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// Threads; several numbers run one after the other.
    #[arg(long, default_value = "1", value_delimiter = ',')]
    threads: Vec<usize>,
    /// The failure that an acknowledged write survives.
    #[arg(long, value_enum, default_value = "process")]
    durability: Durability,
    /// Seed of the random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the engine's files. A fresh folder is made there and removed at the end.
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
    /// One JSON object for each line instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    Redb,
    Lmdb,
}

/// Runs all combinations, each on a fresh engine.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    for &engine in &arguments.engine {
        for mix in &arguments.mix {
            for &threads in &arguments.threads {
                let folder = tempfile::tempdir_in(&arguments.folder)
                    .with_context(|| format!("no folder can be made in {}", arguments.folder.display()))?;
                let spec = spec(arguments, mix, threads)?;
                match engine {
                    Name::Redb => on(arguments, &spec, &redb::Redb::create(folder.path(), arguments.durability)?)?,
                    Name::Lmdb => {
                        let engine = lmdb::Lmdb::create(folder.path(), arguments.durability, MAP_BYTES_MAX, false)?;
                        on(arguments, &spec, &engine)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn spec(arguments: &Arguments, mix: &Mix, threads: usize) -> Result<Spec> {
    let seconds = |value| Duration::try_from_secs_f64(value).context("seconds are positive numbers");
    Ok(Spec {
        records: arguments.records,
        first_new_record: arguments.records,
        mix: mix.clone(),
        distribution: arguments.distribution.unwrap_or_else(|| mix.distribution()),
        seed: arguments.seed,
        scan_keys: arguments.scan_keys.0.clone(),
        plan: Plan {
            warm_up: seconds(arguments.warm_up)?,
            time_one_of: 16,
            ..Plan::new(threads, Length::Time(seconds(arguments.seconds)?))
        },
    })
}

fn on<E: Engine>(arguments: &Arguments, spec: &Spec, engine: &E) -> Result<()> {
    match arguments.key {
        KeyShape::Word => measure(arguments, spec, engine, WordKeys::default()),
        KeyShape::Bytes(bytes) => measure(arguments, spec, engine, StringKeys::new(bytes)),
    }
}

fn measure<E: Engine, M: KeyMaker>(arguments: &Arguments, spec: &Spec, engine: &E, keys: M) -> Result<()> {
    let target = OnEngine::<M::Key, E>::new(engine);
    let time = runner::load(&target, &keys, spec.records, 1, LoadOrder::Random)?;
    let pm_bytes = engine.footprint().pm_bytes;
    let loaded = Loaded { keys: spec.records, pm_bytes, dram_bytes: None, seconds: time.as_secs_f64() };
    let outcome = runner::run(&target, &keys, spec, &mut || {})?;
    let result = result(&target, spec, arguments.key, &loaded, &outcome, None);
    if arguments.json {
        println!("{}", result.to_json_line());
    } else {
        println!(
            "{:6} {:16} {:>3} threads {:>12.0} operations/s",
            result.engine,
            result.workload,
            result.threads,
            result.ops_per_s.unwrap_or(f64::NAN)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn both_engines_run_a_mix() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display().to_string();
        let words = ["index", "--mix", "read=40,insert=20,update=20,remove=10,scan=10", "--records", "500"];
        let more = ["--seconds", "0.05", "--warm-up", "0.01", "--threads", "1,2", "--folder", &place];
        run(&Line::parse_from(words.into_iter().chain(more)).arguments).unwrap();
    }
}
