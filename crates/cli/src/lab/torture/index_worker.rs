//! `lodestone torture index-worker`: writers and readers on one index until killed.
//!
//! 1. Open the pool, or create a small one, and the index in it.
//! 2. Each writer changes only its own records, so that the order of one record's changes is known: inserts, updates,
//!    upserts, compare-and-swaps and removals. It knows the content of each record and demands the answers that follow
//!    from it. *start* is printed before a change, *ack* when the index reported it durable.
//! 3. Each reader reads records of all writers. Versions of a record only grow, so a reader that sees one decrease ends
//!    the process with an error. Ordered reads must ascend.
//!
//! The value of a record is the version that wrote it: the boot number in the upper half, a count in the lower half.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use lodestone_index::{CacheMode, Durability, Swap};
use lodestone_index_bench::key::{KeyMaker, KeyShape, KeysOf};
use lodestone_index_bench::kinds::{BenchIndex, Competitor, Setup, Visitor, visit, visit_strings};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_store::Store;
use lodestone_workload::kv::WriteKind;
use lodestone_workload::random::Random;

use lodestone_cli::commands::pool::OpenArgs;
use lodestone_cli::output::Output;

use super::report::{Event, Line, say};

/// Name of the index under torture.
pub const ROOT: &str = "torture";
/// Bytes of a pool that does not exist yet: small, so that a life is cheap.
const POOL_BYTES: u64 = 24 << 20;
/// Bytes of its journal: small, so that it wraps.
const JOURNAL_BYTES: u64 = 1 << 20;
/// Operations of a reader between two scans.
const READS_PER_SCAN: u64 = 64;

const AFTER_HELP: &str = "\
Example:
  lodestone torture index-worker a.pool --index fastfair --seed 7";

/// Arguments of `lodestone torture index-worker`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    pub open: OpenArgs,

    #[command(flatten)]
    pub load: LoadArgs,

    /// Changes of each writer; 0: until killed
    #[arg(long, default_value_t = 0)]
    pub ops: u64,
}

/// The arguments that the worker and the loop around it share.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// The index
    #[arg(long, default_value = "fastfair")]
    pub index: Competitor,

    /// Keys: u64, or bytes:N
    #[arg(long, default_value = "u64")]
    pub key: KeyShape,

    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Writing threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub writers: u64,

    /// Reading threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=64))]
    pub readers: u64,

    /// Number of records
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    pub records: u64,
}

impl LoadArgs {
    /// The arguments with which another process does the same, with this seed.
    pub fn to_args(&self, seed: u64) -> Vec<String> {
        let Self { index, key, writers, readers, records, .. } = self;
        let words = ["--index", index.name(), "--key", &key.to_string(), "--seed", &seed.to_string()].map(String::from);
        let counts = [("--writers", writers), ("--readers", readers), ("--records", records)];
        let counts = counts.into_iter().flat_map(|(name, count)| [name.to_owned(), count.to_string()]);
        words.into_iter().chain(counts).collect()
    }

    /// Calls `work` with the type of the index.
    pub fn with_index<W>(&self, work: W) -> Result<()>
    where
        W: Visitor<u64, Out = Result<()>> + Visitor<[u8], Out = Result<()>>,
    {
        // A cache of a tenth, so that hits, misses and evictions all happen.
        let setup = Setup { cache_keys: (self.records as usize / 10).max(1), cache_mode: CacheMode::Serial };
        match self.key {
            KeyShape::Word => visit::<u64, W>(self.index, setup, work)
                .with_context(|| format!("{} takes strings as keys; say --key bytes:12", self.index))?,
            KeyShape::Bytes(_) => visit_strings(self.index, setup, work),
        }
    }
}

/// Works until it is done, or killed.
pub fn run(args: &Args, _output: &Output) -> Result<()> {
    let options = PoolOptions { size_bytes: POOL_BYTES, journal_bytes: JOURNAL_BYTES, ..args.open.options()? };
    let pool = Pool::open_or_create(&args.open.path, &options)?;
    lodestone_cli::emulation::place(&pool);
    let store = Store::over(&pool)?;
    args.load.with_index(Work { args, store: &store })?;
    Ok(())
}

struct Work<'a> {
    args: &'a Args,
    store: &'a Store,
}

impl<K: KeysOf + ?Sized> Visitor<K> for Work<'_> {
    type Out = Result<()>;

    fn visit<I: BenchIndex<Key = K>>(self, options: &I::Options) -> Result<()> {
        let Self { args, store } = self;
        let index = I::open_index(store, ROOT, options, Durability::Sync)?;
        let versions = AtomicU64::new(store.pool().boot() << 32 | 1);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = &args.load;
            let readers: Vec<_> = (0..load.readers)
                .map(|number| {
                    let (index, done) = (&index, &done);
                    scope.spawn(move || Reader::<I>::new(load, number, index).run(done))
                })
                .collect();
            let writers: Vec<_> = (0..load.writers)
                .map(|number| {
                    let (index, versions) = (&index, &versions);
                    scope.spawn(move || Writer::new(load, number, index, versions)?.run(args.ops))
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|_| bail!("a thread panicked"))
            };
            let written = writers.into_iter().map(join).collect::<Result<Vec<()>>>();
            done.store(true, Ordering::Relaxed);
            let read = readers.into_iter().map(join).collect::<Result<Vec<()>>>();
            written.and(read)
        })?;
        Ok(())
    }
}

/// A wrong answer kills the whole process at once, so that the loop notices it.
fn demand(holds: bool, finding: impl FnOnce() -> String) {
    if !holds {
        eprintln_and_end(&finding());
    }
}

#[expect(clippy::print_stderr, reason = "the loop reads it as the reason of the end")]
fn eprintln_and_end(finding: &str) -> ! {
    eprintln!("wrong answer: {finding}");
    std::process::exit(3)
}

struct Writer<'a, I: BenchIndex, M> {
    index: &'a I,
    versions: &'a AtomicU64,
    keys: M,
    random: Random,
    number: u64,
    writers: u64,
    /// The content of each record of this writer.
    held: Vec<Option<u64>>,
}

impl<'a, K: KeysOf + ?Sized, I: BenchIndex<Key = K>> Writer<'a, I, K::Maker> {
    fn new(load: &LoadArgs, number: u64, index: &'a I, versions: &'a AtomicU64) -> Result<Self> {
        let mut keys = K::maker(load.key);
        let held = (number..load.records).step_by(load.writers as usize).map(|record| index.get(keys.key(record)));
        let held = held.collect::<lodestone_index::Result<_>>()?;
        let random = Random::for_stream(load.seed, number);
        Ok(Self { index, versions, keys, random, number, writers: load.writers, held })
    }

    fn run(mut self, ops: u64) -> Result<()> {
        let mut done = 0;
        while ops == 0 || done < ops {
            self.change().context("the writer was not killed, it failed")?;
            done += 1;
        }
        Ok(())
    }

    fn change(&mut self) -> Result<()> {
        let place = self.random.below(self.held.len() as u64);
        let record = place * self.writers + self.number;
        let held = self.held[place as usize];
        let version = self.versions.fetch_add(1, Ordering::Relaxed);
        let choice = self.random.below(8);
        let kind = if held.is_some() && choice < 3 { WriteKind::Remove } else { WriteKind::Put };
        say(&Line { event: Event::Start(kind), record, version }.text())?;
        let (index, key) = (self.index, self.keys.key(record));
        let found = match (kind, held) {
            (WriteKind::Remove, _) => index.remove(key)?,
            (WriteKind::Put, None) if choice < 4 => {
                let is_new = index.insert(key, version)?;
                demand(is_new, || format!("insert of record {record}, which is absent, found a key"));
                None
            }
            (WriteKind::Put, Some(_)) if choice < 5 => index.update(key, version)?,
            (WriteKind::Put, Some(current)) if choice < 6 => match index.compare_and_swap(key, current, version)? {
                Swap::Done => held,
                Swap::Differs(found) => Some(found),
                Swap::Absent => None,
            },
            (WriteKind::Put, _) => index.upsert(key, version)?,
        };
        demand(found == held, || format!("record {record} holds {held:x?}, a {kind:?} found {found:x?}"));
        self.held[place as usize] = (kind == WriteKind::Put).then_some(version);
        say(&Line { event: Event::Ack(kind), record, version }.text())
    }
}

struct Reader<'a, I: BenchIndex> {
    index: &'a I,
    load: &'a LoadArgs,
    random: Random,
    newest: Vec<u64>,
}

impl<'a, K: KeysOf + ?Sized, I: BenchIndex<Key = K>> Reader<'a, I> {
    fn new(load: &'a LoadArgs, number: u64, index: &'a I) -> Self {
        let random = Random::for_stream(load.seed, 1000 + number);
        Self { index, load, random, newest: vec![0; load.records as usize] }
    }

    fn run(mut self, done: &AtomicBool) -> Result<()> {
        let mut keys = K::maker(self.load.key);
        let mut count = 0;
        while !done.load(Ordering::Relaxed) {
            let record = self.random.below(self.load.records);
            if let Some(found) = self.index.get(keys.key(record))? {
                let newest = &mut self.newest[record as usize];
                demand(found >= *newest, || format!("record {record} goes back from {newest:x} to {found:x}"));
                *newest = found;
            }
            count += 1;
            if count % READS_PER_SCAN == 0 {
                self.index.read_range(keys.key(record), 20)?;
            }
        }
        Ok(())
    }
}

/// The content of the index. Each record is read on its own, and all are compared with an ordered read, if there is
/// one.
pub fn read_all<K: KeysOf + ?Sized, I: BenchIndex<Key = K>>(index: &I, load: &LoadArgs) -> Result<Vec<(u64, u64)>> {
    let mut keys = K::maker(load.key);
    let mut all: Vec<(K::Owned, u64, u64)> = Vec::new();
    for record in 0..load.records {
        let key = keys.key(record);
        if let Some(value) = index.get(key)? {
            all.push((key.to_key(), record, value));
        }
    }
    all.sort();
    let known = index.len()?;
    ensure!(known == all.len() as u64, "{} records are read one by one, the index counts {known}", all.len());
    let mut expected = all.iter();
    let mut differs = None;
    index.visit_all(&mut |found, word| match expected.next() {
        Some((key, _, value)) if key.borrow() == found && *value == word => true,
        other => {
            differs =
                Some(format!("an ordered read finds {found:?} with {word:x} where {other:x?} was read by itself"));
            false
        }
    })?;
    ensure!(differs.is_none(), "{}", differs.unwrap_or_default());
    let missing = if I::IS_ORDERED { expected.len() } else { 0 };
    ensure!(missing == 0, "an ordered read misses the last {missing} records");
    Ok(all.into_iter().map(|(_, record, value)| (record, value)).collect())
}
