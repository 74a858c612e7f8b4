//! Tests of load and run on the map in DRAM, on an engine that fails, and on one that answers wrongly.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::engine::Result as EngineResult;
use crate::memory::{MemoryEngine, MemorySession};

fn spec(workload: Workload, threads: usize) -> Spec {
    Spec { records: 2_000, operations: 6_000, threads, ..Spec::new(workload) }
}

#[test]
fn every_workload_runs_whole_and_misses_nothing() {
    for workload in Workload::ALL {
        for threads in [1, 3] {
            let engine = MemoryEngine::new();
            let spec = spec(workload, threads);
            let loaded = Runner::new(&engine, &spec).load().unwrap();
            assert_eq!((loaded.result.operations, engine.len()), (2_000, 2_000));
            assert_eq!(loaded.result.workload, "load");
            let outcome = Runner::new(&engine, &spec).verify_reads(true).run().unwrap();
            assert_eq!(outcome.result.operations, 6_000);
            assert_eq!(outcome.missing, 0, "{workload} with {threads} threads");
            assert_eq!(outcome.run.latency.len(), 6_000);
            let by_kind: u64 = outcome.run.latency_by_class.iter().map(|(_, histogram)| histogram.len()).sum();
            assert_eq!(by_kind, 6_000);
            let inserts = outcome.run.latency_by_class.iter().find(|(kind, _)| *kind == "insert");
            assert_eq!(engine.len() as u64, 2_000 + inserts.map_or(0, |(_, histogram)| histogram.len()));
            let result = outcome.result;
            assert!(result.latency_ns_p50 <= result.latency_ns_p99 && result.latency_ns_p99 <= result.latency_ns_max);
            assert!(result.ops_per_s.unwrap() > 0.0);
            assert_eq!(result.fences_per_op, None);
        }
    }
}

#[test]
fn the_result_of_one_thread_is_the_same_each_time() {
    let final_map = || {
        let engine = MemoryEngine::new();
        let spec = spec(Workload::F, 1);
        Runner::new(&engine, &spec).load().unwrap();
        Runner::new(&engine, &spec).run().unwrap();
        let codec = spec.codec().unwrap();
        let mut session = engine.session().unwrap();
        let mut value = Vec::new();
        let read = |record| {
            assert!(session.read(&codec.encode(record), &mut value).unwrap());
            value.clone()
        };
        (0..spec.records).map(read).collect::<Vec<_>>()
    };
    assert_eq!(final_map(), final_map());
}

#[test]
fn a_time_limit_of_nothing_ends_at_once_and_progress_is_told() {
    let engine = MemoryEngine::new();
    let spec = spec(Workload::A, 2);
    let mut told = Vec::new();
    Runner::new(&engine, &spec).on_progress(|progress| told.push(progress)).load().unwrap();
    let last = told.last().unwrap();
    assert_eq!((last.phase, last.done, last.total), ("load", 2_000, 2_000));
    let outcome = Runner::new(&engine, &spec).time_limit(Duration::ZERO).run().unwrap();
    assert_eq!(outcome.result.operations, 0);
    assert_eq!((outcome.result.ops_per_s, outcome.result.latency_ns_p99), (None, None));
}

/// An engine whose calls fail in a chosen way after some time.
struct Faulty {
    inner: MemoryEngine,
    calls_left: AtomicU64,
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Fail,
    Panic,
    WrongValue,
    NoSession,
    PanicInSession,
}

impl Faulty {
    fn loaded(fault: Fault, spec: &Spec) -> Self {
        let inner = MemoryEngine::new();
        Runner::new(&inner, spec).load().unwrap();
        Self { inner, calls_left: AtomicU64::new(1_000), fault }
    }
}

impl Engine for Faulty {
    type Session<'a> = FaultySession<'a>;

    fn name(&self) -> &str {
        "faulty"
    }

    fn session(&self) -> EngineResult<FaultySession<'_>> {
        match self.fault {
            Fault::NoSession => Err(EngineError::new("no session left")),
            Fault::PanicInSession => panic!("planted panic"),
            _ => Ok(FaultySession { engine: self, inner: self.inner.session()? }),
        }
    }

    fn counters(&self) -> EngineCounters {
        EngineCounters { syncs: Some(5_000 - self.calls_left.load(Ordering::Relaxed)), ..EngineCounters::default() }
    }
}

struct FaultySession<'a> {
    engine: &'a Faulty,
    inner: MemorySession<'a>,
}

impl Session for FaultySession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> EngineResult<bool> {
        let found = self.inner.read(key, value);
        let left = &self.engine.calls_left;
        let expired = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err();
        match self.engine.fault {
            Fault::Fail if expired => Err(EngineError::new("planted failure")),
            Fault::Panic if expired => panic!("planted panic"),
            Fault::WrongValue if expired => {
                value[50] ^= 4;
                Ok(true)
            }
            _ => found,
        }
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> EngineResult<()> {
        self.inner.insert(key, value)
    }

    fn update(&mut self, key: &[u8], value: &[u8]) -> EngineResult<bool> {
        self.inner.update(key, value)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> EngineResult<usize> {
        self.inner.scan(start, count)
    }

    fn remove(&mut self, key: &[u8]) -> EngineResult<bool> {
        self.inner.remove(key)
    }
}

#[test]
fn the_first_error_stops_the_run_and_says_what_failed() {
    let spec = spec(Workload::C, 2);
    let engine = Faulty::loaded(Fault::Fail, &spec);
    let error = Runner::new(&engine, &spec).run().unwrap_err().to_string();
    assert!(error.contains("faulty: read of record") && error.contains("planted failure"), "{error}");

    let engine = Faulty::loaded(Fault::NoSession, &spec);
    let error = Runner::new(&engine, &spec).run().unwrap_err().to_string();
    assert!(error.contains("opening a session"), "{error}");
}

#[test]
fn a_wrong_value_is_found_only_when_asked_to_verify() {
    let spec = spec(Workload::C, 2);
    let engine = Faulty::loaded(Fault::WrongValue, &spec);
    let error = Runner::new(&engine, &spec).verify_reads(true).run().unwrap_err().to_string();
    assert!(error.contains("holds a wrong value"), "{error}");
    assert!(Runner::new(&engine, &spec).run().is_ok());
}

#[test]
fn a_panic_is_an_error_and_no_thread_waits_for_ever() {
    let spec = spec(Workload::C, 2);
    for fault in [Fault::Panic, Fault::PanicInSession] {
        let error = Runner::new(&Faulty::loaded(fault, &spec), &spec).run().unwrap_err().to_string();
        assert!(error.contains("panicked"), "{error}");
    }
}

#[test]
fn counters_become_figures_for_each_operation() {
    let spec = Spec { operations: 500, ..spec(Workload::C, 1) };
    let engine = Faulty::loaded(Fault::Fail, &spec);
    let result = Runner::new(&engine, &spec).run().unwrap().result;
    assert_eq!(result.syncs_per_op, Some(1.0));
    assert_eq!(result.flushes_per_op, None);
}
