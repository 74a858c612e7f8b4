//! `cargo xtask judge sql random`: random statements on Lodestone and on `PostgreSQL`, beside each other.
//!
//! The judge is `tools/sql_random.py`. This chore passes it its places, and one seed after another until one shows a
//! difference. Both servers run already: the chore starts and stops nothing.

use std::path::Path;
use std::process::Command as Process;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

/// A language with a judge.
#[derive(Subcommand)]
pub enum Command {
    /// SQL, whose reference is `PostgreSQL` 15.
    #[command(subcommand)]
    Sql(Sql),
}

/// A judge of SQL.
#[derive(Subcommand)]
pub enum Sql {
    /// Random statements: rows, tags and codes of errors are compared.
    Random(Random),
}

/// Where the servers are, and how much is compared.
#[derive(Args)]
pub struct Random {
    /// `PostgreSQL` 15, as HOST:PORT. A folder is a unix socket.
    #[arg(long)]
    postgres: String,
    /// `lodestone serve`, as HOST:PORT.
    #[arg(long)]
    lodestone: String,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Statements of each seed.
    #[arg(long, default_value_t = 1000)]
    statements: u64,
    /// More options of the script.
    #[arg(last = true)]
    more: Vec<String>,
}

/// Runs a judge. Returns whether there was no difference.
pub fn run(root: &Path, command: &Command) -> Result<bool> {
    let Command::Sql(Sql::Random(options)) = command;
    for seed in options.seed..options.seed.saturating_add(options.seeds) {
        let script = root.join("tools/sql_random.py");
        let status = Process::new("python3")
            .arg(&script)
            .args(["--seed", &seed.to_string(), "--statements", &options.statements.to_string()])
            .args(["--postgres", &options.postgres, "--lodestone", &options.lodestone])
            .args(&options.more)
            .status()
            .with_context(|| format!("cannot run python3 {}", script.display()))?;
        match status.code() {
            Some(0) => {}
            Some(1) => return Ok(false),
            _ => bail!("{} ended with {status}", script.display()),
        }
    }
    Ok(true)
}
