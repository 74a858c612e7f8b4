//! `lodestone sim`: the behaviour of machines that are absent, by models that state their assumptions.

mod fabric;
mod htm;
mod nodes;
mod stm;

const AFTER_HELP: &str = "\
Examples:
  lodestone sim stm --structure hash --updates 80 --path /dev/shm \\
    --domain dax-emulated
  lodestone sim stm --engine tl2-redo --structure tree --updates 50 --json
  lodestone sim fabric --seeds 0-100
  lodestone sim htm --sizes 16KiB,32KiB,64KiB
  lodestone sim nodes --loads select,update

A model's figures are not measurements: its assumptions, and its error where it can be measured, are printed with them.";

lodestone_cli::subcommands! {
    /// The commands of `lodestone sim`.
    #[command(after_help = AFTER_HELP)]
    pub enum SimCommand {
        /// Play recorded transactions on 1 to 64 simulated threads of a machine with two nodes
        Stm(stm::Args) => stm::run,
        /// Run replicated groups under seeded faults, and judge what they promise
        Fabric(fabric::Args) => fabric::run,
        /// Count the hardware transactions that a processor would abort, by size, medium, time and instruction
        Htm(htm::Args) => htm::run,
        /// Run the database on several nodes: the cases and placements of paper 4, in virtual time
        Nodes(nodes::Args) => nodes::run_all,
    }
}
