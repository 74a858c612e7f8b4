//! Judges from outside: suites and programs of others, on what Lodestone offers to them.
//!
//! `cargo xtask judge fs pjdfstest` builds `lodestone` and runs `tools/judge/fs.sh`, which mounts a volume. The suites
//! are fetched through cargo or are packages of the distribution; nothing of them is in this repository.
//!
//! `cargo xtask judge sql random` runs `tools/sql_random.py`: random statements on Lodestone and on `PostgreSQL`,
//! beside each other, with one seed after another until one shows a difference. Both servers run already: the chore
//! starts and stops nothing.

use std::path::Path;
use std::process::Command as Process;

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use crate::clients::{self, Clients, Kills};

/// The subjects.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// A mounted volume. As root: the suites change owners and make devices.
    Fs(FsOptions),
    /// SQL, whose reference is `PostgreSQL` 15.
    #[command(subcommand)]
    Sql(Sql),
}

#[derive(clap::Args)]
pub(crate) struct FsOptions {
    /// The judge.
    #[arg(value_parser = ["pjdfstest", "pjdfstest-sh", "fsx", "fio", "sqlite", "git", "all"])]
    judge: String,

    /// Persistence domain of the volume.
    #[arg(long, default_value = "block")]
    domain: String,
}

/// A judge of SQL.
#[derive(Subcommand)]
pub(crate) enum Sql {
    /// Random statements: rows, tags and codes of errors are compared.
    Random(Random),
    /// Clients of `PostgreSQL`, unchanged: each script of `tools/clients` on a server of its own.
    Clients(Clients),
    /// A server that is killed under load, again and again.
    Kills(Kills),
}

/// Where the servers are, and how much is compared.
#[derive(clap::Args)]
pub(crate) struct Random {
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

const FS_JUDGES: [&str; 6] = ["pjdfstest", "pjdfstest-sh", "fsx", "fio", "sqlite", "git"];

/// Runs the judges. `false` when one of them found something.
pub(crate) fn run(root: &Path, command: &Command) -> Result<bool> {
    match command {
        Command::Fs(options) => run_fs(root, options),
        Command::Sql(Sql::Random(options)) => run_random(root, options),
        Command::Sql(Sql::Clients(options)) => clients::run_clients(root, options),
        Command::Sql(Sql::Kills(options)) => clients::run_kills(root, options),
    }
}

fn run_fs(root: &Path, options: &FsOptions) -> Result<bool> {
    let build = ["build", "-p", "lodestone-cli", "--bin", "lodestone"];
    if !Process::new("cargo").args(build).current_dir(root).status().context("could not run cargo")?.success() {
        bail!("the build of `lodestone` failed");
    }
    let chosen = FS_JUDGES.iter().filter(|judge| options.judge == "all" || options.judge == **judge);
    let mut passed = true;
    for judge in chosen {
        let script = root.join("tools/judge/fs.sh");
        let status = Process::new(&script).arg(judge).arg(&options.domain).current_dir(root).status();
        match status.with_context(|| format!("could not run {}", script.display()))?.code() {
            Some(0) => {}
            Some(1) => passed = false,
            _ => bail!("the judge {judge} could not be run; its last line says what to do"),
        }
    }
    Ok(passed)
}

fn run_random(root: &Path, options: &Random) -> Result<bool> {
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
