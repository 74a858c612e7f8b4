//! `lodestone crash`: the crash explorer from the shell.

mod fuzz;
mod list;
mod mutants;
mod replay;
mod run;
mod select;

pub use select::{Floor, floors};

const AFTER_HELP: &str = "\
Examples:
  lodestone crash list
  lodestone crash run --all
  lodestone crash run pool-create --profile adr,eadr,block --depth 2
  lodestone crash fuzz --kind fastfair --seconds 60
  lodestone crash mutants --all --json
  lodestone crash replay 'pool-roots~adr~0.2~-~-~k41.1080=0'";

lodestone_cli::subcommands! {
    /// The commands of `lodestone crash`.
    #[command(after_help = AFTER_HELP)]
    pub enum CrashCommand {
        /// List the targets that can be explored
        List(list::Args) => list::run,
        /// Explore: crash at every point, recover, judge
        Run(run::Args) => run::run,
        /// Explore random programs: histories that no target foresees
        Fuzz(fuzz::Args) => fuzz::run,
        /// Audit: remove or move every flush and fence, one at a time, and see whether a check notices
        Mutants(mutants::Args) => mutants::run,
        /// Show one violation again, line by line
        Replay(replay::Args) => replay::run,
    }
}
