//! `lodestone torture index`: an index whose process is killed at random moments, reopened and judged, again and again
//! on one pool.
//!
//! After each kill:
//! 1. every acknowledged change is present, and every value comes from a change that was acknowledged or under way;
//! 2. an ordered read finds the same records as point reads, and the index's count agrees;
//! 3. the index verifies its own structure, and the heap finds no block without an owner.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lodestone_index::Durability;
use lodestone_index_bench::key::KeysOf;
use lodestone_index_bench::kinds::{BenchIndex, Visitor};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_store::Store;
use lodestone_workload::kv::{History, Verdict};
use lodestone_workload::random::Random;
use lodestone_workload::value::{self, VALUE_BYTES_MIN};
use serde::Serialize;

use lodestone_cli::commands::pool::domain;
use lodestone_cli::interrupt::TempFolder;
use lodestone_cli::output::{Output, ProgressUnit};

use super::index_worker::{LoadArgs, ROOT, read_all};
use super::kill::{milliseconds, moment};
use super::life;
use super::report::{self, Line};
use super::verdict::Tally;

const AFTER_HELP: &str = "\
Examples:
  lodestone torture index --index fastfair --kills 50 --domain process
  lodestone torture index --index hash --key bytes:12 --kills 1000 \\
    --seconds 60 --domain block --json

Exit code 0 only when no acknowledged change was lost, nothing else was found, and nothing leaked.";

/// Arguments of `lodestone torture index`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    load: LoadArgs,

    /// Number of kills
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,

    /// End after this time even if kills are left, but make at least one
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,

    /// Persistence domain
    #[arg(long, default_value = "block", value_parser = ["block", "process", "auto", "dax", "eadr", "dax-emulated"])]
    domain: String,

    /// Longest time of load before a kill, in milliseconds
    #[arg(long, default_value_t = 40, value_name = "MS")]
    load_ms_max: u64,

    /// The pool, which must not exist [default: a temporary one]
    #[arg(long)]
    pool: Option<PathBuf>,
}

/// The result of the loop.
#[derive(Default, Serialize)]
struct Killed {
    index: String,
    key: String,
    kills: u64,
    kills_during_open: u64,
    acked: u64,
    #[serde(flatten)]
    tally: Tally,
    uncertain_applied: u64,
    /// Findings of the structure's and the heap's checks, leaks among them.
    wrong: Vec<String>,
    reopen_ms_max: f64,
    records_at_end: u64,
    writers: u64,
    readers: u64,
    domain: String,
    promise: String,
    seed: u64,
    seconds: f64,
}

impl Killed {
    fn new(args: &Args) -> Self {
        let Args { load, domain, .. } = args;
        Self {
            index: load.index.to_string(),
            key: load.key.to_string(),
            writers: load.writers,
            readers: load.readers,
            domain: domain.clone(),
            seed: load.seed,
            ..Self::default()
        }
    }

    fn holds(&self) -> bool {
        self.tally.is_clean() && self.wrong.is_empty()
    }
}

/// Kills and judges.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let folder = TempFolder::new()?;
    let path = args.pool.clone().unwrap_or_else(|| folder.path().join("torture.pool"));
    ensure!(!path.exists(), "{}: exists; the kill test needs a pool of its own", path.display());
    let bar = output.progress(Some(args.kills), ProgressUnit::Steps).with_prefix("kill");
    let killed = rounds(args, &path, output, &mut || bar.inc(1))?;
    bar.finish_and_clear();
    output.result(&killed, |killed| {
        let Killed { tally, .. } = killed;
        format!(
            "{} with keys {}: {} kills ({} during open), {} acknowledged changes: {} lost, {} torn, {} otherwise wrong, {} \
             findings of the checks; slowest reopening {} ms; {} domain ({}), seed {}, {:.1} s",
            killed.index,
            killed.key,
            killed.kills,
            killed.kills_during_open,
            killed.acked,
            tally.lost,
            tally.torn,
            tally.other,
            killed.wrong.len(),
            killed.reopen_ms_max,
            killed.domain,
            killed.promise,
            killed.seed,
            killed.seconds
        )
    })?;
    Ok(killed.holds())
}

fn rounds(args: &Args, path: &Path, output: &Output, each: &mut dyn FnMut()) -> Result<Killed> {
    let (started, load) = (Instant::now(), &args.load);
    let limit =
        args.seconds.map(Duration::try_from_secs_f64).transpose().context("--seconds needs a positive number")?;
    ensure!(limit != Some(Duration::ZERO), "--seconds needs a positive number: a test without a kill says nothing");
    let mut history = History::new(report::codec()?);
    let mut random = Random::for_stream(load.seed, u64::MAX);
    let mut killed = Killed::new(args);
    // At least once, because the result "nothing was lost" is about kills that happened.
    let goes_on = |kills| kills == 0 || limit.is_none_or(|limit| started.elapsed() < limit);
    while killed.kills < args.kills && killed.holds() && goes_on(killed.kills) {
        let mut command = life::own_binary()?;
        command.args(["torture", "index-worker", "--domain", &args.domain]);
        command.args(load.to_args(load.seed.wrapping_add(killed.kills))).arg(path);
        let context = || format!("kill {} of seed {}", killed.kills + 1, load.seed);
        let lines: Vec<Line> =
            life::one_life(&mut command, moment(&mut random, args.load_ms_max)).with_context(context)?;
        killed.kills += 1;
        killed.kills_during_open += u64::from(lines.is_empty());
        lines.into_iter().for_each(|line| line.tell(&mut history));
        judge(args, path, &mut history, &mut killed)?;
        killed.wrong.iter().for_each(|finding| output.note(finding));
        each();
    }
    killed.acked = history.acknowledgements();
    killed.seconds = started.elapsed().as_secs_f64();
    Ok(killed)
}

/// Opens the pool and judges its content.
fn judge(args: &Args, path: &Path, history: &mut History, killed: &mut Killed) -> Result<()> {
    if !path.exists() {
        // Killed before the pool was created: nothing was acknowledged.
        return Ok(());
    }
    let born = Instant::now();
    let choice = domain(&args.domain).map_err(anyhow::Error::msg)?;
    let pool = Pool::open(path, &PoolOptions { domain: choice, ..PoolOptions::default() })?;
    let info = pool.info();
    (killed.domain, killed.promise) = (info.domain_label(), info.promise);
    let store = Store::over(&pool)?;
    args.load.with_index(Judge { load: &args.load, store: &store, born, history, killed })
}

struct Judge<'a> {
    load: &'a LoadArgs,
    store: &'a Store,
    born: Instant,
    history: &'a mut History,
    killed: &'a mut Killed,
}

impl Judge<'_> {
    fn wrong(&mut self, finding: impl std::fmt::Display) {
        self.killed.wrong.push(format!("after kill {} of seed {}: {finding}", self.killed.kills, self.killed.seed));
    }
}

impl<K: KeysOf + ?Sized> Visitor<K> for Judge<'_> {
    type Out = Result<()>;

    fn visit<I: BenchIndex<Key = K>>(mut self, options: &I::Options) -> Result<()> {
        let index = I::open_index(self.store, ROOT, options, Durability::Sync)?;
        self.killed.reopen_ms_max = self.killed.reopen_ms_max.max(milliseconds(self.born));
        match read_all(&index, self.load) {
            Ok(found) => {
                self.killed.records_at_end = found.len() as u64;
                let verdict = self.compare(&found)?;
                self.history.adopt(&verdict);
            }
            Err(error) => self.wrong(error),
        }
        let report = index.check();
        report.findings.iter().for_each(|finding| self.wrong(finding));
        let owned = self.store.heap().check(Some(&mut report.blocks.iter().copied().chain(self.store.own_blocks())));
        owned.findings.iter().for_each(|finding| self.wrong(finding));
        Ok(())
    }
}

impl Judge<'_> {
    /// The records in the history's form: a self-describing value, made from the version that was found.
    fn compare(&mut self, found: &[(u64, u64)]) -> Result<Verdict> {
        let codec = report::codec()?;
        let mut view: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(found.len());
        for &(record, version) in found {
            let key = codec.encode(record);
            let value = value::make(&key, version, VALUE_BYTES_MIN);
            view.push((key, value));
        }
        view.sort();
        let verdict = self.history.judge(view);
        verdict.violations.iter().for_each(|violation| self.wrong(violation));
        self.killed.tally.add(&verdict.violations);
        self.killed.uncertain_applied += verdict.uncertain_applied;
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Borrow;

    use clap::Parser;
    use lodestone_index_bench::key::KeyMaker;
    use lodestone_workload::kv::WriteKind;

    use super::super::report::Event;
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    /// A fault of an index.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Harm {
        None,
        LosesAKey,
        ForgetsAnUpdate,
        ForgetsARemoval,
        /// A value of which one half is old and the other new.
        TearsAValue,
        /// A key of the workload that was never written.
        InventsAKey,
        /// A key that the workload does not have.
        InventsAStranger,
    }

    /// Records that are written. The workload has more.
    const WRITTEN: u64 = 100;
    /// Versions of this and of the next life.
    const BOOTS: [u64; 2] = [1 << 32, 2 << 32];

    /// Changes records and reports it, and does harm without a report.
    struct Life<'a> {
        load: &'a LoadArgs,
        store: &'a Store,
        history: &'a mut History,
        harm: Harm,
    }

    impl<K: KeysOf + ?Sized> Visitor<K> for Life<'_> {
        type Out = Result<()>;

        fn visit<I: BenchIndex<Key = K>>(self, options: &I::Options) -> Result<()> {
            let Self { load, store, history, harm } = self;
            let index = I::open_index(store, ROOT, options, Durability::Sync)?;
            let mut maker = K::maker(load.key);
            let mut key = |record| maker.key(record).to_key();
            let mut tell = |record, version, kind| {
                for event in [Event::Start(kind), Event::Ack(kind)] {
                    Line { event, record, version }.tell(history);
                }
            };
            for record in 0..WRITTEN {
                ensure!(index.insert(key(record).borrow(), BOOTS[0] + record)?);
                tell(record, BOOTS[0] + record, WriteKind::Put);
            }
            for record in 10..20 {
                ensure!(index.update(key(record).borrow(), BOOTS[1] + 300 + record)?.is_some());
                tell(record, BOOTS[1] + 300 + record, WriteKind::Put);
                ensure!(index.remove(key(record + 10).borrow())?.is_some());
                tell(record + 10, BOOTS[1] + 400 + record, WriteKind::Remove);
            }
            let mut put = |record, version| index.upsert(key(record).borrow(), version).map(drop);
            match harm {
                Harm::None => {}
                Harm::LosesAKey => drop(index.remove(key(50).borrow())?),
                Harm::ForgetsAnUpdate => put(10, BOOTS[0] + 10)?,
                Harm::ForgetsARemoval => put(20, BOOTS[0] + 20)?,
                Harm::TearsAValue => put(10, BOOTS[1] + 10)?,
                Harm::InventsAKey => put(WRITTEN, BOOTS[0])?,
                Harm::InventsAStranger => put(load.records, BOOTS[0])?,
            }
            Ok(())
        }
    }

    fn judged(index: &str, key: &str, harm: Harm) -> Killed {
        let words = ["index", "--index", index, "--key", key, "--domain", "process", "--records", "200"];
        let args = Command::try_parse_from(words).expect("arguments").args;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("judged.pool");
        let mut history = History::new(report::codec().expect("a codec"));
        {
            let domain = domain("process").expect("a domain");
            let options = PoolOptions { domain, size_bytes: 32 << 20, ..PoolOptions::default() };
            let pool = Pool::create(&path, &options).expect("a pool");
            let store = Store::over(&pool).expect("a heap");
            let life = Life { load: &args.load, store: &store, history: &mut history, harm };
            args.load.with_index(life).expect("a life");
        }
        let mut killed = Killed::new(&args);
        judge(&args, &path, &mut history, &mut killed).expect("a judgement");
        killed
    }

    #[test]
    fn an_index_that_breaks_its_promises_is_told() {
        for (index, key) in [("fastfair", "u64"), ("hash", "u64"), ("hybrid-plus", "u64"), ("fptree", "bytes:12")] {
            let clean = judged(index, key, Harm::None);
            assert!(clean.holds() && clean.records_at_end == WRITTEN - 10, "{index}: {:?}", clean.wrong);
            let counts = [
                (Harm::LosesAKey, (1, 0)),
                (Harm::ForgetsAnUpdate, (1, 0)),
                (Harm::ForgetsARemoval, (1, 0)),
                // Half of the acknowledged changes have an older version than that.
                (Harm::TearsAValue, (1, 0)),
                (Harm::InventsAKey, (0, 1)),
                (Harm::InventsAStranger, (0, 0)),
            ];
            for (harm, expected) in counts {
                let Killed { tally, wrong, .. } = &judged(index, key, harm);
                assert_eq!((tally.lost, tally.other), expected, "{index} {harm:?}: {wrong:?}");
                assert!(!wrong.is_empty(), "{index} {harm:?} is told");
            }
        }
    }
}
