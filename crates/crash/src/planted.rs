//! Planted bugs: the proof that the explorer can fail.
//!
//! Code asks [`lodestone_pmem::planted::active`] whether a named bug is switched on (feature `planted-bugs`, for tests
//! only). A [`Bug`] says which target must notice; [`Bug::must_be_found`] checks both directions: the clean tree
//! passes, the planted one fails with a shrunk reproducer that replays.

use crate::config::Config;
use crate::report::Violation;
use crate::run::{replay, run_target};
use crate::target::Target;

/// A bug that can be planted.
pub struct Bug {
    /// Name for [`lodestone_pmem::planted::active`].
    pub name: &'static str,
    /// The harm to a user.
    pub harm: &'static str,
    /// The target that must notice.
    pub target: fn() -> Box<dyn Target>,
    /// How it is explored.
    pub config: Config,
}

impl Bug {
    /// A bug that the default configuration finds.
    #[must_use]
    pub fn new(name: &'static str, harm: &'static str, target: fn() -> Box<dyn Target>) -> Self {
        Self { name, harm, target, config: Config::default() }
    }

    /// Asserts that the clean tree passes and that the planted one is caught, with a reproducer that replays.
    ///
    /// # Panics
    /// When either is not so, or when the feature `planted-bugs` is missing.
    #[track_caller]
    pub fn must_be_found(&self) -> Violation {
        let target = (self.target)();
        let clean = run_target(target.as_ref(), &self.config, &mut |_| {});
        assert!(clean.is_clean(), "found in the clean tree: {clean}");
        let config = Config { planted: Some(self.name.to_owned()), ..self.config.clone() };
        let report = run_target(target.as_ref(), &config, &mut |_| {});
        assert!(!report.is_clean(), "planted bug `{}` ({}) was not found: {report}", self.name, self.harm);
        let violation = report.expect_violation();
        let again = replay(&violation.token, &[target]);
        let repeated = again.as_ref().is_ok_and(|again| again.violation.is_some());
        assert!(repeated, "the reproducer of `{}` does not repeat it: {violation}\n{again:?}", self.name);
        violation
    }
}

/// Switches the bug `name` on until the guard is dropped: one bug at a time in a process, and no clean exploration
/// beside it.
pub(crate) struct Scope {
    #[cfg(feature = "planted-bugs")]
    _others: Others,
}

#[cfg(feature = "planted-bugs")]
static TURNS: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// The explorations that a scope excludes. Clean explorations run side by side.
#[cfg(feature = "planted-bugs")]
enum Others {
    None(#[expect(dead_code, reason = "held until the scope ends")] std::sync::RwLockWriteGuard<'static, ()>),
    Clean(#[expect(dead_code, reason = "held until the scope ends")] std::sync::RwLockReadGuard<'static, ()>),
}

#[cfg(feature = "planted-bugs")]
pub(crate) fn scope(name: Option<&str>) -> Scope {
    use std::sync::PoisonError;
    if name.is_none() {
        return Scope { _others: Others::Clean(TURNS.read().unwrap_or_else(PoisonError::into_inner)) };
    }
    let guard = TURNS.write().unwrap_or_else(PoisonError::into_inner);
    lodestone_pmem::planted::plant(name);
    Scope { _others: Others::None(guard) }
}

#[cfg(not(feature = "planted-bugs"))]
pub(crate) fn scope(name: Option<&str>) -> Scope {
    assert!(name.is_none(), "a planted bug needs a build with the feature `planted-bugs`");
    Scope {}
}

#[cfg(feature = "planted-bugs")]
impl Drop for Scope {
    fn drop(&mut self) {
        if matches!(self._others, Others::None(_)) {
            // Before the guard goes: no exploration has begun beside the bug.
            lodestone_pmem::planted::plant(None);
        }
    }
}
