//! Planted bugs: the proof that the explorer can fail.
//!
//! Code asks [`lodestone_pmem::planted::active`] whether a named bug is switched on (feature `planted-bugs`, for tests
//! only). A [`Bug`] says which target must notice; [`Bug::must_be_found`] checks both directions: the clean tree
//! passes, the planted one fails with a shrunk reproducer that replays.
//!
//! A bug that only leaves out a flush or a fence needs no line in the code: [`Bug::without`] names the call by the
//! comment above it, and the recorder drops it, as a mutation does.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::event::SiteKey;
use crate::mutation::{Change, Mutation};
use crate::report::Violation;
use crate::run::{describe, explore_ops, replay, run_target};
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
    /// A file, and words of the comment above the call that is left out; `None`: the code asks for the name.
    pub left_out: Option<(&'static str, &'static str)>,
}

impl Bug {
    /// A bug that the default configuration finds.
    #[must_use]
    pub fn new(name: &'static str, harm: &'static str, target: fn() -> Box<dyn Target>) -> Self {
        Self { name, harm, target, config: Config::default(), left_out: None }
    }

    /// A bug that leaves out one flush or fence: in `file`, the one below a comment that has the words `reason`.
    ///
    /// ```
    /// use lodestone_crash::planted::Bug;
    /// use lodestone_crash::pool_targets;
    ///
    /// let target = || pool_targets().remove(0);
    /// let bug = Bug::without("half-a-header", "a torn header counts", target, "pool/header.rs", "before the copy");
    /// assert_eq!(bug.left_out, Some(("pool/header.rs", "before the copy")));
    /// ```
    #[must_use]
    pub fn without(
        name: &'static str,
        harm: &'static str,
        target: fn() -> Box<dyn Target>,
        file: &'static str,
        reason: &'static str,
    ) -> Self {
        Self { left_out: Some((file, reason)), ..Self::new(name, harm, target) }
    }

    /// Asserts that the clean tree passes and that the planted one is caught, with a reproducer that replays.
    ///
    /// # Panics
    /// When either is not so, or when the feature `planted-bugs` is missing.
    #[track_caller]
    pub fn must_be_found(&self) -> Violation {
        self.must_be_found_after(&mut BTreeMap::new())
    }

    /// As [`must_be_found`](Self::must_be_found). `clean` has the explorations that passed in the clean tree, and how
    /// many states each had: they are not repeated for another bug. The clean tree passes as many states as it took to
    /// find the bug.
    ///
    /// # Panics
    /// As `must_be_found`.
    #[track_caller]
    pub fn must_be_found_after(&self, clean: &mut BTreeMap<String, u64>) -> Violation {
        let target = (self.target)();
        if let Some((file, reason)) = self.left_out {
            let violation = self.must_notice(target.as_ref(), file, reason);
            return self.must_repeat(target, violation);
        }
        let config = Config { planted: Some(self.name.to_owned()), ..self.config.clone() };
        let report = run_target(target.as_ref(), &config, &mut |_| {});
        assert!(!report.is_clean(), "planted bug `{}` ({}) was not found: {report}", self.name, self.harm);
        let passed = clean.entry(format!("{} {:?}", target.name(), self.config)).or_insert(0);
        if *passed < report.states {
            let config = Config { states_max: report.states, ..self.config.clone() };
            let report = run_target(target.as_ref(), &config, &mut |_| {});
            assert!(report.is_clean(), "found in the clean tree: {report}");
            *passed = config.states_max;
        }
        self.must_repeat(target, report.expect_violation())
    }

    /// Asserts that `target` is clean, and notices when the call below the comment is left out.
    #[track_caller]
    fn must_notice(&self, target: &dyn Target, file: &str, reason: &str) -> Violation {
        let ops: Vec<usize> = (0..target.script_len()).collect();
        let _no_other_bug = scope(None);
        let clean = explore_ops(target, &self.config, None, &ops, &mut |_| {});
        assert!(clean.found.is_empty(), "found in the clean tree: {:?}", clean.found);
        let is_named = |site: &SiteKey| site.file.ends_with(file) && has_reason(site, reason);
        let mut calls = clean.sites.into_iter().filter(|(_, site)| is_named(site));
        let (call, site) = calls.next().unwrap_or_else(|| {
            panic!("`{}`: {} executes no flush or fence of {file} below \"{reason}\"", self.name, target.name())
        });
        assert!(calls.next().is_none(), "`{}`: \"{reason}\" is above several calls", self.name);
        let mutation = Mutation { call, site, change: Change::Drop };
        let covered = explore_ops(target, &self.config, Some(&mutation), &ops, &mut |_| {});
        let found = covered.found.first();
        let found = found.unwrap_or_else(|| panic!("planted bug `{}` ({}) was not found", self.name, self.harm));
        describe(target, &self.config, Some(&mutation), found)
    }

    #[track_caller]
    fn must_repeat(&self, target: Box<dyn Target>, violation: Violation) -> Violation {
        let again = replay(&violation.token, &[target]);
        let repeated = again.as_ref().is_ok_and(|again| again.violation.is_some());
        assert!(repeated, "the reproducer of `{}` does not repeat it: {violation}\n{again:?}", self.name);
        violation
    }
}

/// Whether the comment above the call at `site` has the words `reason`, line breaks apart.
fn has_reason(site: &SiteKey, reason: &str) -> bool {
    let text = source(&site.file).unwrap_or_else(|| panic!("{} cannot be read; run this in the repository", site.file));
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let call = lines.len().min(site.line.saturating_sub(1) as usize);
    let above = lines[..call].iter().rev().map_while(|line| line.strip_prefix("//"));
    let mut comment: Vec<&str> = above.map(str::trim).collect();
    comment.reverse();
    comment.join(" ").contains(reason)
}

/// The text of a source file, whose path begins at a folder above the current one.
fn source(file: &str) -> Option<String> {
    let here = std::env::current_dir().ok()?;
    let places: Vec<PathBuf> = here.ancestors().map(|folder: &Path| folder.join(file)).collect();
    places.iter().find_map(|place| fs::read_to_string(place).ok())
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
