//! The extent of an exploration: profile, mode, bounds, seed.

use std::fmt;
use std::str::FromStr;

use crate::target::{Failure, Target};

/// The state that the platform keeps when power fails.
///
/// ```
/// use lodestone_crash::Profile;
///
/// assert_eq!("block".parse::<Profile>()?, Profile::Block);
/// assert_eq!(Profile::ALL.len(), 3);
/// # Ok::<(), lodestone_crash::Failure>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Data that was flushed and fenced. Caches are lost, or were evicted at any moment.
    Adr,
    /// Everything stored, in order: caches survive.
    Eadr,
    /// A prefix of the flushed lines, at least up to the last wait for durability.
    Block,
}

/// How crash states are chosen.
///
/// ```
/// use lodestone_crash::{Config, Mode};
///
/// assert_eq!(Config::default().mode, Mode::Reading);
/// assert_eq!("exhaustive".parse::<Mode>()?, Mode::Exhaustive);
/// # Ok::<(), lodestone_crash::Failure>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every combination of every line's possible contents.
    Exhaustive,
    /// Every combination of the lines that recovery and the checks read. As complete, because the other lines have no
    /// effect.
    Reading,
    /// A sample: none, all, each line alone, each missing, prefix cuts, pairs, seeded random. The crash points of the
    /// run share the bound, so that each of them has some states. The other modes go on from the first point to where
    /// the bound ends.
    Representative,
}

macro_rules! names {
    ($type:ident, $what:literal, $($variant:ident = $name:literal),+) => {
        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name on the command line and in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $type {
            type Err = Failure;

            fn from_str(text: &str) -> Result<Self, Failure> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(Failure::new(format!(concat!("no ", $what, " `{}`; there are: ", $($name, " "),+), text))),
                }
            }
        }
    };
}

names!(Profile, "profile", Adr = "adr", Eadr = "eadr", Block = "block");
names!(Mode, "mode", Exhaustive = "exhaustive", Reading = "reading", Representative = "representative");

/// Configuration of an exploration.
///
/// ```
/// use lodestone_crash::{Config, Profile, pool_targets, run_target};
///
/// let config = Config { profile: Profile::Eadr, states_max: 100, nested_depth: 0, ..Config::default() };
/// let report = run_target(pool_targets()[0].as_ref(), &config, &mut |_states| {});
/// assert!(report.is_clean(), "{report}");
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Profile of the platform.
    pub profile: Profile,
    /// Choice of states.
    pub mode: Mode,
    /// Most crash states to judge. If it is reached, the report says "not exhausted". A target may have a smaller bound
    /// (see [`states_max_wins`](Self::states_max_wins)).
    pub states_max: u64,
    /// Whether `states_max` overrides a target's own smaller bound, because the user asked for this number.
    pub states_max_wins: bool,
    /// How often recovery itself is crashed again: 0 never, 1 once (default). A target may have a smaller limit.
    pub nested_depth: u32,
    /// Whether `nested_depth` overrides a target's own smaller limit.
    pub nested_depth_wins: bool,
    /// Seed of the random part of the representative mode and of schedules.
    pub seed: u64,
    /// Stop after this many violations.
    pub violations_max: usize,
    /// Whether to shrink a violation to the shortest sequence of operations and the fewest lost lines.
    pub shrink: bool,
    /// Planted bug to switch on while exploring, by name (needs the feature `planted-bugs`); part of the reproducer.
    pub planted: Option<String>,
}

impl Config {
    /// Most crash states of `target` under this configuration.
    pub(crate) fn states_max_of(&self, target: &dyn Target) -> u64 {
        if self.states_max_wins { self.states_max } else { self.states_max.min(target.states_max()) }
    }

    /// Crashes inside recovery, one in the other, of `target` under this configuration.
    pub(crate) fn nested_depth_of(&self, target: &dyn Target) -> u32 {
        if self.nested_depth_wins { self.nested_depth } else { self.nested_depth.min(target.nested_depth_max()) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::Adr,
            mode: Mode::Reading,
            states_max: 200_000,
            states_max_wins: false,
            nested_depth: 1,
            nested_depth_wins: false,
            seed: 1,
            violations_max: 1,
            shrink: true,
            planted: None,
        }
    }
}
