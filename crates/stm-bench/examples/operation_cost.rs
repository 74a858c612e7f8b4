//! The cost of one operation of a structure, on one thread: for a profiler or a counter of instructions.
//!
//! ```text
//! cargo build --release -p lodestone-stm-bench --example operation_cost
//! valgrind --tool=callgrind --toggle-collect='*measured*' target/release/examples/operation_cost hash stm 20 100000
//! ```
//!
//! Arguments: structure (hash, tree, list, btree), engine (stm, dram, dram-lock, tl2-redo), updates in a hundred,
//! number of operations. The pool is in `/dev/shm` and executes the flush instructions of the processor.

use lodestone_baselines::tl2::{ClockKind, LogKind, Tl2, Tl2Options};
use lodestone_heap::HeapOptions;
use lodestone_pmem::{CounterScope, DomainChoice, Pool, PoolOptions};
use lodestone_stm::{ClockKind as StmClock, Mode};
use lodestone_stm_bench::dram::{Dram, DramLock};
use lodestone_stm_bench::driver::{Driver, MapOn, Session};
use lodestone_stm_bench::lodestone::Lodestone;
use lodestone_stm_bench::mix::Stream;
use lodestone_stm_bench::runner::{self, Spec};
use lodestone_stm_bench::structures::{BTree, HashTable, Map, SearchTree, SortedList};
use lodestone_stm_bench::tm::TransactionalMemory;
use lodestone_workload::engine::EngineError;
use lodestone_workload::race::{Length, Plan, thread_cpu_ns};
use std::error::Error;

type Outcome = Result<(), Box<dyn Error>>;

struct Request {
    structure: String,
    engine: String,
    spec: Spec,
    operations: u64,
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [structure, engine, updates, operations] = arguments.as_slice() else {
        return Err("usage: operation_cost STRUCTURE ENGINE UPDATES-PERCENT OPERATIONS".into());
    };
    let keys = if structure == "list" { 256 } else { 10_000 };
    let operations: u64 = operations.parse()?;
    let plan = Plan::new(1, Length::Operations(operations));
    let spec = Spec { keys, updates_percent: updates.parse()?, seed: 1, plan };
    let request = Request { structure: structure.clone(), engine: engine.clone(), spec, operations };
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let options = PoolOptions { domain: DomainChoice::DaxEmulated, size_bytes: 256 << 20, ..PoolOptions::default() };
    let pool = Pool::create(folder.path().join("cost.pool"), &options)?;
    match engine.as_str() {
        "stm" => on(&Lodestone::open(&pool, Mode::OneFence, StmClock::Thread)?, &request),
        "dram" => on(&Dram::new(64 << 20, DramLock::None), &request),
        "dram-lock" => on(&Dram::new(64 << 20, DramLock::ReaderWriter), &request),
        "tl2-redo" => {
            let options = Tl2Options { object_bytes: 128 << 20, ..Tl2Options::new(LogKind::Redo, ClockKind::Add) };
            on(&Tl2::open(&pool, &HeapOptions::default(), &options)?, &request)
        }
        other => Err(format!("`{other}` is no engine; use stm, dram, dram-lock or tl2-redo").into()),
    }
}

fn on<M: TransactionalMemory>(memory: &M, request: &Request) -> Outcome {
    match request.structure.as_str() {
        "hash" => with(memory, HashTable { buckets: 10_000 }, request),
        "tree" => with(memory, SearchTree, request),
        "list" => with(memory, SortedList, request),
        "btree" => with(memory, BTree, request),
        other => Err(format!("`{other}` is no structure; use hash, tree, list or btree").into()),
    }
}

fn with<M: TransactionalMemory, S: Map>(memory: &M, map: S, request: &Request) -> Outcome {
    let driver = MapOn::create(memory, map)?;
    runner::load(&driver, &request.spec)?;
    let spec = &request.spec;
    let mut session = driver.session()?;
    let mut stream = Stream::new(spec.seed, 0, spec.updates_percent, spec.keys);
    let (scope, start) = (CounterScope::start(), cpu_ns()?);
    let changes = measured(&mut session, &mut stream, request.operations)?;
    let (cpu_ns, counters) = (cpu_ns()? - start, scope.delta());
    let per = |count: u64| count as f64 / request.operations as f64;
    println!(
        "{} {} {} %: {:.1} ns of processor time per operation; {:.3} changes, {:.3} lines, {:.3} fences",
        request.structure,
        request.engine,
        spec.updates_percent,
        per(cpu_ns),
        per(changes),
        per(counters.flushes),
        per(counters.fences)
    );
    Ok(())
}

fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    thread_cpu_ns().ok_or_else(|| "the system does not report processor time".into())
}

#[inline(never)]
fn measured<S: Session>(session: &mut S, stream: &mut Stream, operations: u64) -> Result<u64, EngineError> {
    let mut changes = 0;
    for _ in 0..operations {
        let (kind, key) = stream.next_operation();
        changes += u64::from(session.apply(kind, key)?);
    }
    Ok(changes)
}
