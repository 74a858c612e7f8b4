//! Exploring with closures: a test of a structure without a type for it.

use lodestone_pmem::{Pool, PoolOptions};

use crate::config::{Config, Mode, Profile};
use crate::history::History;
use crate::medium::CrashMedium;
use crate::report::{AuditReport, Report};
use crate::run::run_target;
use crate::target::{Outcome, Recovered, Target, tiny_pool};

type Step = Box<dyn Fn(&Pool) -> Outcome + Send + Sync>;
type Check = Box<dyn Fn(&Pool, &History) -> Outcome + Send + Sync>;

/// A target made of closures. For more (a model, threads, redundant calls) implement [`Structure`](crate::Structure).
///
/// ```
/// use lodestone_crash::{Explore, Failure};
///
/// let report = Explore::new("two-words")
///     .op("both", |pool| {
///         let (at, memory) = (pool.heap_area(0).0, pool.memory());
///         memory.store(at, 1);
///         memory.store(at.plus(8), 1);
///         memory.persist(at, 16);
///         Ok(())
///     })
///     // One line persists in order, so the second word is never there without the first.
///     .check(|pool, history| {
///         let (at, memory) = (pool.heap_area(0).0, pool.memory());
///         let (first, second) = (memory.load(at), memory.load(at.plus(8)));
///         Failure::unless(second <= first, || "the second word is there without the first".into())?;
///         Failure::unless(second >= history.acked().len() as u64, || "an acknowledged write is lost".into())
///     })
///     .run();
/// report.expect_clean();
/// ```
#[must_use]
pub struct Explore {
    name: String,
    options: PoolOptions,
    config: Config,
    setup: Step,
    ops: Vec<(String, Step)>,
    recover: Step,
    check: Check,
}

impl Explore {
    /// An exploration without operations and checks.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            options: tiny_pool(),
            config: Config::default(),
            setup: Box::new(|_| Ok(())),
            ops: Vec::new(),
            recover: Box::new(|_| Ok(())),
            check: Box::new(|_, _| Ok(())),
        }
    }

    /// Options of the pool.
    pub fn options(mut self, options: PoolOptions) -> Self {
        self.options = options;
        self
    }

    /// Makes the initial content of the fresh pool. Not crashed.
    pub fn setup(mut self, setup: impl Fn(&Pool) -> Outcome + Send + Sync + 'static) -> Self {
        self.setup = Box::new(setup);
        self
    }

    /// Adds an operation. When it returns, the explorer waits for durability and acknowledges it.
    pub fn op(mut self, text: impl Into<String>, op: impl Fn(&Pool) -> Outcome + Send + Sync + 'static) -> Self {
        self.ops.push((text.into(), Box::new(op)));
        self
    }

    /// The recovery, which is crashed as well.
    pub fn recover(mut self, recover: impl Fn(&Pool) -> Outcome + Send + Sync + 'static) -> Self {
        self.recover = Box::new(recover);
        self
    }

    /// The condition that must hold after recovery, given the operations (by index) that began and were acknowledged.
    pub fn check(mut self, check: impl Fn(&Pool, &History) -> Outcome + Send + Sync + 'static) -> Self {
        self.check = Box::new(check);
        self
    }

    /// Platform whose crashes are explored.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.config.profile = profile;
        self
    }

    /// How states are chosen.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.config.mode = mode;
        self
    }

    /// The whole configuration.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Explores.
    pub fn run(&self) -> Report {
        run_target(self, &self.config, &mut |_| {})
    }

    /// Audits the flushes and fences of the closures and of the code they call, except the pool layer.
    ///
    /// # Errors
    /// If the structure is not clean without a mutation.
    pub fn audit(&self) -> Outcome<AuditReport> {
        crate::audit_target(self, &self.config, &mut |_, _| {})
    }
}

impl Target for Explore {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn options(&self) -> PoolOptions {
        self.options.clone()
    }

    fn script_len(&self) -> usize {
        self.ops.len()
    }

    fn op_text(&self, op: usize) -> String {
        self.ops.get(op).map_or_else(|| "?".into(), |(text, _)| text.clone())
    }

    fn prepare(&self, medium: &CrashMedium) -> Outcome {
        (self.setup)(&medium.create_pool()?)
    }

    fn run(&self, medium: &CrashMedium, ops: &[usize]) -> Outcome {
        let pool = medium.open_pool()?;
        (self.recover)(&pool)?;
        for &op in ops {
            medium.begin(op);
            (self.ops[op].1)(&pool)?;
            medium.ack(op)?;
        }
        Ok(())
    }

    fn recover(&self, medium: &CrashMedium) -> Outcome<Box<dyn Recovered + '_>> {
        let pool = medium.open_pool()?;
        (self.recover)(&pool)?;
        Ok(Box::new(Checked { explore: self, pool }))
    }
}

struct Checked<'a> {
    explore: &'a Explore,
    pool: Pool,
}

impl Recovered for Checked<'_> {
    fn judge(&mut self, history: &History) -> Outcome {
        (self.explore.check)(&self.pool, history)
    }
}
