//! `Pool::check` against crashes: it calls no crash state of the pool layer lost, and finds no damage after recovery.

use std::fs;
use std::path::PathBuf;

use lodestone_crash::{
    Config, CrashMedium, Failure, History, Mode, Outcome, PoolGrow, PoolRoots, Profile, Recovered, Target, run_target,
};
use lodestone_pmem::{Memory, Pool, PoolOptions};
use tempfile::TempDir;

/// Another target, with the pool's check run on each image before recovery and after it.
struct Checked<T> {
    inner: T,
    folder: TempDir,
}

impl<T> Checked<T> {
    fn new(inner: T) -> Self {
        Self { inner, folder: tempfile::tempdir().expect("temporary folder") }
    }

    /// The image as a file, written without the explorer noticing: lines that are not read stay undecided.
    fn image(&self, memory: &Memory) -> Outcome<PathBuf> {
        let traced = memory.as_traced().ok_or_else(|| Failure::new("no traced memory"))?;
        let lines = (0..memory.part_len(0)).step_by(64);
        let words = lines.flat_map(|offset| traced.peek(lodestone_pmem::PmAddr::new(0, offset).line()));
        let path = self.folder.path().join("image.pool");
        fs::write(&path, words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())?;
        Ok(path)
    }
}

impl<T: Target> Target for Checked<T> {
    fn name(&self) -> String {
        format!("checked-{}", self.inner.name())
    }
    fn options(&self) -> PoolOptions {
        self.inner.options()
    }
    fn script_len(&self) -> usize {
        self.inner.script_len()
    }
    fn op_text(&self, op: usize) -> String {
        self.inner.op_text(op)
    }
    fn prepare(&self, medium: &CrashMedium) -> Outcome {
        self.inner.prepare(medium)
    }
    fn run(&self, medium: &CrashMedium, ops: &[usize]) -> Outcome {
        self.inner.run(medium, ops)
    }
    fn recover(&self, medium: &CrashMedium) -> Outcome<Box<dyn Recovered + '_>> {
        let report = Pool::check(self.image(&medium.memory())?, &self.options())?;
        Failure::unless(report.is_repairable(), || format!("check calls a crash state lost: {report}"))?;
        let inner = self.inner.recover(medium)?;
        let report = Pool::check(self.image(&medium.memory())?, &self.options())?;
        Failure::unless(report.is_clean(), || format!("check finds damage after recovery: {report}"))?;
        Ok(Box::new(Judge(inner)))
    }
}

struct Judge<'a>(Box<dyn Recovered + 'a>);

impl Recovered for Judge<'_> {
    fn judge(&mut self, history: &History) -> Outcome {
        self.0.judge(history)
    }
}

#[test]
fn check_takes_no_crash_for_a_loss_and_finds_nothing_after_recovery() {
    for profile in [Profile::Adr, Profile::Block] {
        let config = Config { profile, mode: Mode::Exhaustive, ..Config::default() };
        run_target(&Checked::new(PoolRoots), &config, &mut |_| {}).expect_exhausted();
        let config = Config { mode: Mode::Representative, nested_depth: 0, ..config };
        let report = run_target(&Checked::new(PoolGrow), &config, &mut |_| {}).expect_clean();
        println!("{report}");
        assert!(report.states > 40, "{report}");
    }
}
