//! Kills of processes with replicated volumes: the tests of `fs_nodes`, with as many rounds as wanted. `judge fs-kills`
//! has programs on a mount, under which parts of a volume die.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// How much is killed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: in each a replica, the metadata node or everything is killed.
    #[arg(long, default_value_t = 100)]
    rounds: u64,

    /// How packets travel: unicast or udp.
    #[arg(long, default_value = "unicast")]
    carrier: String,
}

/// Runs the rounds. `false` when something was lost.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let arguments =
        ["test", "-p", "lodestone-cli", "--test", "it", "fs_nodes", "--", "--include-ignored", "--nocapture"];
    let status = Command::new("cargo")
        .args(arguments)
        .env("LODESTONE_FS_ROUNDS", options.rounds.to_string())
        .env("LODESTONE_FS_CARRIER", &options.carrier)
        .current_dir(root)
        .status()
        .context("could not run cargo")?;
    Ok(status.success())
}
