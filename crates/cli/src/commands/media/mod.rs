//! `lodestone media`: the cost of memories.

mod fit;
mod probe;
mod profiles;
mod show;
mod verify;

const AFTER_HELP: &str = "\
Examples:
  lodestone media probe . --quick --json > probe.json
  lodestone media fit probe.json -o mine.toml
  lodestone media profiles
  lodestone media show optane > my.toml
  lodestone media verify --profile optane
  lodestone kv put a.pool key value --domain dax-emulated --profile my.toml \\
    --virtual-time";

crate::subcommands! {
    /// The commands of `lodestone media`.
    #[command(after_help = AFTER_HELP)]
    pub enum MediaCommand {
        /// Measure a pool, a device, a file, DRAM or a profile, and say how to use it
        Probe(probe::Args) => probe::run,
        /// Make a profile from the measurements of a probe
        Fit(fit::Args) => fit::run,
        /// List the built-in profiles
        Profiles(profiles::Args) => profiles::run,
        /// Print a profile as TOML, to edit and use
        Show(show::Args) => show::run,
        /// Compare a profile with the papers' figures, cell by cell
        Verify(verify::Args) => verify::run,
    }
}
