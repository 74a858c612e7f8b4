//! The targets to explore and the way to do it: the arguments that the explorer's commands share.

use anyhow::{Result, bail};
use lodestone_crash::{Config, Failure, Mode, Profile, Target};

/// A floor by its name, with its targets.
pub type Floor = (&'static str, Vec<Box<dyn Target>>);

/// The floors of this build with their targets, from the ground up. The name of a floor means all its targets.
pub fn floors() -> Vec<Floor> {
    lodestone_proof::floors().into_iter().map(|floor| (floor.name, (floor.targets)())).collect()
}

/// Every target of this build, from the ground up.
pub fn targets() -> Vec<Box<dyn Target>> {
    floors().into_iter().flat_map(|(_, targets)| targets).collect()
}

/// Names of the targets of `floor`. Empty when there is no such floor.
fn targets_of_floor(floor: &str) -> Vec<String> {
    let found = floors().into_iter().find(|(name, _)| *name == floor);
    found.map_or_else(Vec::new, |(_, targets)| targets.iter().map(|target| target.name()).collect())
}

/// Targets by name.
#[derive(Debug, clap::Args)]
pub struct TargetArgs {
    /// Names of targets, beginnings of names, or floors: pool, heap, wal, store, index, stm, tl2, collections, engine
    /// (see `lodestone crash list`)
    #[arg(value_name = "TARGET")]
    names: Vec<String>,

    /// As TARGET; may be given several times, or separated by commas
    #[arg(long = "target", value_name = "TARGET", value_delimiter = ',')]
    more_names: Vec<String>,

    /// All targets
    #[arg(long, conflicts_with_all = ["names", "more_names"])]
    all: bool,
}

impl TargetArgs {
    /// Whether all targets are meant.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// The selected targets.
    pub fn select(&self) -> Result<Vec<Box<dyn Target>>> {
        let mut left = targets();
        if self.all {
            return Ok(left);
        }
        let names: Vec<_> = self.names.iter().chain(&self.more_names).collect();
        if names.is_empty() {
            bail!("which target? Name one (`lodestone crash list` shows them), or say --all");
        }
        let mut chosen: Vec<Box<dyn Target>> = Vec::new();
        for name in names {
            let floor = targets_of_floor(name);
            let exact = left.iter().any(|target| target.name() == *name);
            let fits = |target: &dyn Target| match target.name() {
                found if !floor.is_empty() => floor.contains(&found),
                found if exact => found == *name,
                found => found.starts_with(name.as_str()),
            };
            let (found, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|target| fits(target.as_ref()));
            if found.is_empty() && !chosen.iter().any(|target| fits(target.as_ref())) {
                bail!("no target is called `{name}`; `lodestone crash list` shows them all");
            }
            chosen.extend(found);
            left = rest;
        }
        Ok(chosen)
    }
}

fn profile(text: &str) -> Result<Profile, String> {
    text.parse().map_err(|error: Failure| error.to_string())
}

fn mode(text: &str) -> Result<Mode, String> {
    text.parse().map_err(|error: Failure| error.to_string())
}

/// How to explore.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// Memory that survives a power failure: adr, eadr, block (several: separated by commas)
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', default_value = "adr", value_parser = profile)]
    profile: Vec<Profile>,

    /// Choice of crash states: exhaustive, reading (as complete, without lines that nothing reads), representative
    #[arg(long, value_name = "MODE", default_value = "reading", value_parser = mode)]
    mode: Mode,

    /// Most crash states per target, which overrides the target's bound; the report says whether that was enough
    /// [default: 200000, or the bound of a large target]
    #[arg(long, value_name = "STATES", value_parser = clap::value_parser!(u64).range(1..))]
    bound: Option<u64>,

    /// How often recovery itself is crashed again, which overrides the target's depth [default: 1, or the depth of a
    /// large target]
    #[arg(long, value_name = "COUNT")]
    depth: Option<u32>,

    /// Seed of the representative mode
    #[arg(long, default_value_t = Config::default().seed)]
    seed: u64,

    /// Planted bug to switch on (needs a build with the feature `planted-bugs`)
    #[arg(long, value_name = "NAME", hide = true)]
    planted: Option<String>,
}

impl ConfigArgs {
    /// Whether only a sample of the states is judged.
    pub fn is_sample(&self) -> bool {
        self.mode == Mode::Representative
    }

    /// One configuration for each profile, in the given order.
    pub fn configs(&self) -> Result<Vec<Config>> {
        if self.planted.is_some() && !cfg!(feature = "planted-bugs") {
            bail!(
                "--planted needs a build with the feature: cargo run -p lodestone-cli --bin lodestone-lab --features planted-bugs -- ..."
            );
        }
        let defaults = Config::default();
        let config = |profile: &Profile| Config {
            profile: *profile,
            mode: self.mode,
            states_max: self.bound.unwrap_or(defaults.states_max),
            states_max_wins: self.bound.is_some(),
            nested_depth: self.depth.unwrap_or(defaults.nested_depth),
            nested_depth_wins: self.depth.is_some(),
            seed: self.seed,
            planted: self.planted.clone(),
            ..defaults.clone()
        };
        Ok(self.profile.iter().map(config).collect())
    }
}

#[cfg(test)]
mod tests {
    use lodestone_crash::calls_without_audit;

    use super::*;

    /// Each floor audits the calls of its own files and leaves those of the floors below. No call may be left out.
    #[test]
    fn every_flush_and_fence_that_any_target_executes_is_audited_by_one() {
        let config =
            Config { mode: Mode::Representative, states_max: 60, nested_depth: 0, shrink: false, ..Config::default() };
        assert_eq!(calls_without_audit(&targets(), &config), Vec::<String>::new());
    }
}
