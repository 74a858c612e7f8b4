//! Loads an index and does all requested runs on it.

use anyhow::{Context, Result};
use lodestone_index::IndexKey;
use lodestone_index_bench::dram::{CrossbeamList, LockedTree};
use lodestone_index_bench::key::{KeyMaker, KeyShape, StringKeys, WordKeys};
use lodestone_index_bench::kinds::{BenchIndex, Competitor, Visitor, visit, visit_strings};
use lodestone_index_bench::lodestone::{IndexTarget, heap_bytes};
use lodestone_index_bench::result::{Loaded, MediaBlocks, result};
use lodestone_index_bench::runner::{self, Spec};
use lodestone_index_bench::target::Target;
use lodestone_pmem::Domain;
use lodestone_report::provenance::Provenance;
use lodestone_store::Store;
use lodestone_workload::result::BenchResult;

use super::IndexName;
use super::request::{Request, load_average};
use crate::allocator::bytes_in_use;
use crate::bench::place::Durability;
use lodestone_cli::emulation;
use lodestone_cli::output::{Output, ProgressUnit};

/// The receiver of results.
type Tell<'t> = &'t mut dyn FnMut(BenchResult) -> Result<()>;

/// Does all runs of `request`.
pub fn measure(request: &Request, output: &Output, tell: Tell<'_>) -> Result<()> {
    match request.key {
        KeyShape::Word => {
            let series = Series { request, output, keys: WordKeys::default() };
            match request.index {
                IndexName::Persistent(kind) => visit(kind, request.setup, Persistent { kind, series, tell })
                    .with_context(|| format!("{kind} takes strings as keys; say --key bytes:8"))?,
                IndexName::LockedTree => series.in_dram::<LockedTree<u64>>(tell),
                IndexName::CrossbeamList => series.in_dram::<CrossbeamList<u64>>(tell),
            }
        }
        KeyShape::Bytes(bytes) => {
            let series = Series { request, output, keys: StringKeys::new(bytes) };
            match request.index {
                IndexName::Persistent(kind) => visit_strings(kind, request.setup, Persistent { kind, series, tell }),
                IndexName::LockedTree => series.in_dram::<LockedTree<[u8]>>(tell),
                IndexName::CrossbeamList => series.in_dram::<CrossbeamList<[u8]>>(tell),
            }
        }
    }
}

/// The runs of one index with one kind of key.
struct Series<'a, M> {
    request: &'a Request,
    output: &'a Output,
    keys: M,
}

impl<M: KeyMaker> Series<'_, M> {
    /// Does all runs. `make` loads an index, again for each run after one that changed the keys.
    fn run<T: Target<Key = M::Key>>(&self, make: &dyn Fn() -> Result<(T, Loaded)>, tell: Tell<'_>) -> Result<()> {
        let mut ready: Option<(T, Loaded)> = None;
        for spec in &self.request.runs {
            let (target, loaded) = match ready.take() {
                Some(ready) => ready,
                None => make()?,
            };
            tell(self.one(&target, &loaded, spec)?)?;
            if spec.mix.keeps_keys() {
                ready = Some((target, loaded));
            }
        }
        Ok(())
    }

    fn one<T: Target<Key = M::Key>>(&self, target: &T, loaded: &Loaded, spec: &Spec) -> Result<BenchResult> {
        let bar = self.output.progress(None, ProgressUnit::Steps);
        let bar = bar.with_prefix(format!("{} {} x{}", target.name(), spec.mix, spec.plan.threads));
        let mut blocks = Vec::new();
        let load_average = load_average();
        let outcome = runner::run(target, &self.keys, spec, &mut || {
            blocks.push(emulation::counts().map(|counts| (counts.blocks_read, counts.blocks_written)));
        });
        bar.finish_and_clear();
        let media = match blocks[..] {
            [Some(before), Some(after)] => Some(MediaBlocks { read: after.0 - before.0, written: after.1 - before.1 }),
            _ => None,
        };
        let mut result = result(target, spec, self.request.key, loaded, &outcome?, media);
        let machine = Provenance::of_this_machine();
        for (name, fact) in machine.facts().iter().filter(|(name, _)| name == "machine" || name == "kernel") {
            result.set_extra(name, fact.clone());
        }
        result.set_extra("load_average", load_average);
        result.set_extra("cache_keys", self.request.setup.cache_keys);
        Ok(result)
    }

    /// Loads `target`, which was opened when `dram_before` bytes were in use.
    fn load<T: Target<Key = M::Key>>(&self, target: &T, dram_before: u64) -> Result<Loaded> {
        let &Request { load, load_threads, records, .. } = self.request;
        let bar = self.output.progress(None, ProgressUnit::Steps).with_prefix(format!("{} load", target.name()));
        let time = runner::load(target, &self.keys, records, load_threads, load);
        bar.finish_and_clear();
        let seconds = time?.as_secs_f64();
        // A model's caches are in DRAM too and cannot be told from the index.
        let is_known = emulation::counts().is_none();
        let dram_bytes = is_known.then(|| bytes_in_use().saturating_sub(dram_before));
        Ok(Loaded { keys: records, pm_bytes: None, dram_bytes, seconds })
    }

    fn in_dram<T: Target<Key = M::Key> + Default>(&self, tell: Tell<'_>) -> Result<()> {
        let make = || {
            let dram_before = bytes_in_use();
            let target = T::default();
            let loaded = self.load(&target, dram_before)?;
            Ok((target, loaded))
        };
        self.run(&make, tell)
    }
}

/// A series on an index in a pool.
struct Persistent<'a, 't, M> {
    kind: Competitor,
    series: Series<'a, M>,
    tell: Tell<'t>,
}

impl<K: IndexKey + ?Sized, M: KeyMaker<Key = K>> Visitor<K> for Persistent<'_, '_, M> {
    type Out = Result<()>;

    fn visit<I: BenchIndex<Key = K>>(self, options: &I::Options) -> Result<()> {
        let Self { kind, series, tell } = self;
        series.run(&|| make::<I, M>(kind, &series, options), tell)
    }
}

/// A loaded index in a new pool. Where an acknowledgement waits for a device, the load does not wait for each record.
fn make<I, M>(kind: Competitor, series: &Series<'_, M>, options: &I::Options) -> Result<(IndexTarget<I>, Loaded)>
where
    I: BenchIndex,
    M: KeyMaker<Key = I::Key>,
{
    let Request { place, pool_bytes, journal_bytes, .. } = series.request;
    let pool = place.create(*pool_bytes, *journal_bytes)?;
    let store = Store::over(&pool)?;
    let wanted = match place.durability {
        Durability::Sync | Durability::Process => lodestone_index::Durability::Sync,
        Durability::Relaxed => lodestone_index::Durability::Relaxed,
    };
    let for_load = match pool.memory().domain() {
        Domain::Block => lodestone_index::Durability::Relaxed,
        _ => wanted,
    };
    let open = |mode| IndexTarget::open(&store, kind.name(), options, mode, &place.durability.to_string());
    let dram_before = bytes_in_use();
    let mut target = open(for_load)?;
    let mut loaded = series.load(&target, dram_before)?;
    loaded.pm_bytes = Some(heap_bytes(store.heap()));
    if for_load != wanted {
        drop(target);
        target = open(wanted)?;
    }
    Ok((target, loaded))
}
