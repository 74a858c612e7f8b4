//! Judges of the SQL server that are clients: those of PostgreSQL, unchanged, and a load under which it is killed.
//!
//! `cargo xtask judge sql clients [NAME ..]` builds `lodestone` and runs `tools/clients/run.py`.
//! `cargo xtask judge sql kills` runs the long test of `crates/serve/tests/kill`.

use std::path::Path;
use std::process::Command as Process;

use anyhow::{Context, Result, bail};

/// The clients.
#[derive(clap::Args)]
pub(crate) struct Clients {
    /// Clients, such as `psycopg`; all without a name.
    names: Vec<String>,
    /// More options of the script.
    #[arg(last = true)]
    more: Vec<String>,
}

/// How often the server is killed.
#[derive(clap::Args)]
pub(crate) struct Kills {
    /// Kills in each domain.
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// `block` or `process`; both without a name.
    #[arg(long, value_parser = ["block", "process"])]
    domain: Option<String>,
    /// The seed of the transactions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run_clients(root: &Path, options: &Clients) -> Result<bool> {
    let build = ["build", "-p", "lodestone-cli", "--bin", "lodestone"];
    if !Process::new("cargo").args(build).current_dir(root).status().context("could not run cargo")?.success() {
        bail!("the build of `lodestone` failed");
    }
    let script = root.join("tools/clients/run.py");
    let status = Process::new("python3").arg(&script).args(&options.names).args(&options.more).status();
    match status.with_context(|| format!("cannot run python3 {}", script.display()))?.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("a client could not be run; its line says what to do"),
    }
}

pub(crate) fn run_kills(root: &Path, options: &Kills) -> Result<bool> {
    let mut cargo = Process::new("cargo");
    cargo.args(["test", "--profile", "prove", "-p", "lodestone-serve", "--test", "kill"]);
    cargo.args(["--", "--ignored", "--nocapture", "a_killed_server_loses_nothing_in_many_rounds"]);
    cargo.env("LODESTONE_KILL_ROUNDS", options.rounds.to_string());
    cargo.env("LODESTONE_KILL_SEED", options.seed.to_string());
    if let Some(domain) = &options.domain {
        cargo.env("LODESTONE_KILL_DOMAIN", domain);
    }
    Ok(cargo.current_dir(root).status().context("could not run cargo")?.success())
}
