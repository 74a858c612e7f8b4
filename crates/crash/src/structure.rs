//! The typed way to describe a structure: operations, a handle, a view, and a model that computes the correct view.
//!
//! [`Structure`] becomes a [`Target`] by itself. Its oracle, in order:
//! 1. recovery (`open`) succeeds, within its bound, without a panic;
//! 2. `view` equals `model` after some sequence that the [`History`] allows. Acknowledged operations are there, and
//!    each operation is there whole or not at all, in an order that agrees with all that was observed;
//! 3. `audit` finds the structure sound (nothing leaked, nothing owned twice);
//! 4. it keeps working: the operations `more` run, the view follows the model again, and `audit` passes again.

use std::fmt::Debug;

use lodestone_pmem::{Pool, PoolOptions};

use crate::event::SiteKey;
use crate::history::History;
use crate::medium::CrashMedium;
use crate::target::{Failure, Outcome, Recovered, Redundant, Target, in_pool_layer, tiny_pool};

/// A durable structure in a pool.
///
/// ```
/// use lodestone_crash::{Outcome, Structure, explore};
/// use lodestone_pmem::{PmAddr, Pool};
///
/// /// A counter in one word: adding one is a single store, so it is atomic.
/// struct Counter;
///
/// impl Structure for Counter {
///     type Op = ();
///     type Handle = (Pool, PmAddr);
///     type View = u64;
///
///     fn name(&self) -> String { "counter".into() }
///     fn script(&self) -> Vec<()> { vec![(); 3] }
///     fn open(&self, pool: &Pool) -> Outcome<Self::Handle> { Ok((pool.clone(), pool.heap_area(0).0)) }
///     fn apply(&self, (pool, at): &Self::Handle, _: &()) -> Outcome {
///         let memory = pool.memory();
///         memory.store(*at, memory.load(*at) + 1);
///         memory.persist(*at, 8);
///         Ok(())
///     }
///     fn view(&self, (pool, at): &Self::Handle) -> Outcome<u64> { Ok(pool.memory().load(*at)) }
///     fn model(&self, ops: &[()]) -> u64 { ops.len() as u64 }
/// }
///
/// explore(Counter).expect_clean();
/// ```
pub trait Structure: Send + Sync {
    /// One operation.
    type Op: Clone + Debug + Send + Sync;
    /// The opened structure. Operations take it by shared reference, so that threads can share it.
    type Handle: Send + Sync + 'static;
    /// The content that a reader can see.
    type View: PartialEq + Debug;

    /// Name for the command line, of letters, digits and `-`.
    fn name(&self) -> String;

    /// Options of the pool: small, and without a journal.
    fn options(&self) -> PoolOptions {
        tiny_pool()
    }

    /// The operations of the run, in order. Short: a handful covers each kind of change.
    fn script(&self) -> Vec<Self::Op>;

    /// Makes the content of the fresh pool before the run. Not recorded.
    ///
    /// # Errors
    /// If it cannot be made.
    fn setup(&self, pool: &Pool) -> Outcome {
        let _ = pool;
        Ok(())
    }

    /// Opens the structure. After a crash this is its recovery, and it is crashed again.
    ///
    /// # Errors
    /// If the structure cannot be opened: a violation.
    fn open(&self, pool: &Pool) -> Outcome<Self::Handle>;

    /// Runs an operation. On return it is fenced. The explorer then waits for durability and acknowledges it.
    ///
    /// # Errors
    /// If it fails: a violation.
    fn apply(&self, handle: &Self::Handle, op: &Self::Op) -> Outcome;

    /// Everything a reader can see.
    ///
    /// # Errors
    /// If the structure cannot be read: a violation.
    fn view(&self, handle: &Self::Handle) -> Outcome<Self::View>;

    /// The value that [`view`](Self::view) must return after the setup and exactly these operations.
    fn model(&self, ops: &[Self::Op]) -> Self::View;

    /// Checks the inside of the structure: nothing leaked, nothing owned twice, every invariant.
    ///
    /// # Errors
    /// The fault.
    fn audit(&self, handle: &Self::Handle) -> Outcome {
        let _ = handle;
        Ok(())
    }

    /// Operations that must work after recovery. By default, the first one of the script.
    fn more(&self) -> Vec<Self::Op> {
        self.script().into_iter().take(1).collect()
    }

    /// Operations of each thread when schedules are explored. Empty: the structure is for one thread.
    fn threads(&self) -> Vec<Vec<Self::Op>> {
        Vec::new()
    }

    /// Judges a recovered view. The default requires an allowed sequence whose model equals the view.
    ///
    /// # Errors
    /// The fault.
    fn judge(&self, view: &Self::View, history: &History, ops: &[Self::Op]) -> Outcome {
        let pick = |sequence: &[usize]| sequence.iter().map(|&op| ops[op].clone()).collect::<Vec<_>>();
        let fits = history.any_sequence(|sequence| self.model(&pick(sequence)) == *view);
        Failure::unless(fits, || {
            let acked = pick(&history.acked());
            format!(
                "recovered {view:?}; acknowledged {acked:?} should give {:?}, begun {:?} at most {:?}",
                self.model(&acked),
                pick(&history.begun()),
                self.model(&pick(&history.begun())),
            )
        })
    }

    /// Whether the mutation audit of this structure covers the calls at `site`: see [`Target::audits`].
    fn audits(&self, site: &SiteKey) -> bool {
        !in_pool_layer(site)
    }

    /// Mutations that survive for a reason.
    fn redundant(&self) -> Vec<Redundant> {
        Vec::new()
    }

    /// Deepest crash in recovery that is explored: see [`Target::nested_depth_max`].
    fn nested_depth_max(&self) -> u32 {
        u32::MAX
    }

    /// Most crash states that are explored: see [`Target::states_max`].
    fn states_max(&self) -> u64 {
        u64::MAX
    }

    /// Most accesses to the medium that opening may make.
    fn recovery_accesses_max(&self) -> u64 {
        100_000
    }
}

/// A structure that was opened after a crash.
struct Opened<'a, S: Structure + ?Sized> {
    structure: &'a S,
    handle: S::Handle,
    _pool: Pool,
}

impl<S: Structure + ?Sized> Opened<'_, S> {
    fn keeps_working(&self, history: &History, script: &[S::Op], before: &S::View) -> Outcome {
        let more = self.structure.more();
        if more.is_empty() {
            return Ok(());
        }
        for op in &more {
            let outcome = self.structure.apply(&self.handle, op);
            outcome.map_err(|why| Failure::new(format!("after recovery, {op:?} failed: {why}")))?;
        }
        let view = self.structure.view(&self.handle)?;
        let fits = history.any_sequence(|sequence| {
            let mut ops: Vec<_> = sequence.iter().map(|&op| script[op].clone()).collect();
            let matched = self.structure.model(&ops) == *before;
            ops.extend(more.iter().cloned());
            matched && self.structure.model(&ops) == view
        });
        // A structure's own judge may accept views that no sequence produces. Then there is nothing to compare with.
        let judged_by_model = history.any_sequence(|sequence| {
            self.structure.model(&sequence.iter().map(|&op| script[op].clone()).collect::<Vec<_>>()) == *before
        });
        Failure::unless(fits || !judged_by_model, || {
            format!("recovered {before:?} is right, but after {more:?} it shows {view:?}")
        })?;
        self.structure.audit(&self.handle).map_err(|why| Failure::new(format!("after recovery and {more:?}: {why}")))
    }
}

impl<S: Structure + ?Sized> Recovered for Opened<'_, S> {
    fn judge(&mut self, history: &History) -> Outcome {
        let view = self.structure.view(&self.handle)?;
        let script = self.structure.script();
        self.structure.judge(&view, history, &script)?;
        self.structure.audit(&self.handle)?;
        self.keeps_working(history, &script, &view)
    }
}

impl<S: Structure + ?Sized> Target for S {
    fn name(&self) -> String {
        Structure::name(self)
    }

    fn options(&self) -> PoolOptions {
        Structure::options(self)
    }

    fn script_len(&self) -> usize {
        self.script().len()
    }

    fn op_text(&self, op: usize) -> String {
        self.script().get(op).map_or_else(|| "?".into(), |op| format!("{op:?}"))
    }

    fn prepare(&self, medium: &CrashMedium) -> Outcome {
        let pool = medium.create_pool()?;
        self.setup(&pool)
    }

    fn run(&self, medium: &CrashMedium, ops: &[usize]) -> Outcome {
        let pool = medium.open_pool()?;
        let handle = self.open(&pool)?;
        let script = self.script();
        for &op in ops {
            medium.begin(op);
            let outcome = self.apply(&handle, &script[op]);
            outcome.map_err(|why| Failure::new(format!("{:?} failed without a crash: {why}", script[op])))?;
            medium.ack(op)?;
        }
        Ok(())
    }

    fn recover(&self, medium: &CrashMedium) -> Outcome<Box<dyn Recovered + '_>> {
        let pool = medium.open_pool()?;
        let handle = self.open(&pool)?;
        Ok(Box::new(Opened { structure: self, handle, _pool: pool }))
    }

    fn audits(&self, site: &SiteKey) -> bool {
        Structure::audits(self, site)
    }

    fn redundant(&self) -> Vec<Redundant> {
        Structure::redundant(self)
    }

    fn recovery_accesses_max(&self) -> u64 {
        Structure::recovery_accesses_max(self)
    }

    fn nested_depth_max(&self) -> u32 {
        Structure::nested_depth_max(self)
    }

    fn states_max(&self) -> u64 {
        Structure::states_max(self)
    }
}
