//! Judges from outside: suites and programs of others, on what Lodestone offers to them.
//!
//! `cargo xtask judge fs pjdfstest` builds `lodestone` and runs `tools/judge/fs.sh`, which mounts a volume. The suites
//! are fetched through cargo or are packages of the distribution; nothing of them is in this repository.
//!
//! `cargo xtask judge fs-kills` and `fs-takeover` are in [`kills`].
//!
//! `cargo xtask judge fs-gluster` runs `tools/judge/fs_gluster.py`: a
//! volume and `GlusterFS` take turns, with three replicas each.
//!
//! `cargo xtask judge sql logic|regress|isolation|hermitage --corpus DIR` runs a suite of others on Lodestone and on
//! `PostgreSQL` 15 beside it. The scripts in `tools/judge` start both servers, and compare what they answer.
//!
//! `cargo xtask judge sql random` runs `tools/sql_random.py`: random statements on Lodestone and on `PostgreSQL`,
//! beside each other, with one seed after another until one shows a difference. Both servers run already: the chore
//! starts and stops nothing.
//!
//! `cargo xtask judge sql sqlsmith --seed 101` runs `tools/judge/sql_smith.py`: statements of `SQLsmith` on Lodestone.

use std::path::Path;
use std::process::Command as Process;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use clap::builder::PossibleValuesParser;

use crate::clients::{self, Clients, Kills};
use crate::kills;

/// The subjects.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// A mounted volume. As root: the suites change owners and make devices.
    Fs(FsOptions),
    /// A mounted volume with replicas, of which in each round something dies under a program. As root.
    FsKills(kills::Options),
    /// The wait of a program when the node or the machine with the metadata dies. As root.
    FsTakeover(kills::takeover::Options),
    /// A mounted volume and `GlusterFS`, with three replicas each, beside each other. As root.
    FsGluster(Gluster),
    /// SQL, whose reference is `PostgreSQL` 15.
    #[command(subcommand)]
    Sql(Sql),
}

#[derive(clap::Args)]
pub(crate) struct FsOptions {
    /// The judge.
    #[arg(value_parser = PossibleValuesParser::new(FS_JUDGES.into_iter().chain(["all"])))]
    judge: String,

    /// Persistence domain of the volume.
    #[arg(long, default_value = "block")]
    domain: String,
}

/// A measurement beside `GlusterFS`.
#[derive(clap::Args)]
pub(crate) struct Gluster {
    /// `lodestone` [default: it is built].
    #[arg(long)]
    program: Option<std::path::PathBuf>,
    /// Options of the script, after `--`; `-- --help` lists them.
    #[arg(last = true)]
    more: Vec<String>,
}

/// A judge of SQL.
#[derive(Subcommand)]
pub(crate) enum Sql {
    /// SQLite's sqllogictest corpus, on both servers.
    Logic(Corpus),
    /// `PostgreSQL`'s regression files, statement by statement, on both servers.
    Regress(Corpus),
    /// `PostgreSQL`'s isolation specs by its own program, on both servers.
    Isolation(Corpus),
    /// The anomalies of Hermitage, on both servers.
    Hermitage(Corpus),
    /// Random statements: rows, tags and codes of errors are compared.
    Random(Random),
    /// Statements of `SQLsmith`: crashes, XX000, time limits and refused forms are counted.
    Sqlsmith(Sqlsmith),
    /// Clients of `PostgreSQL`, unchanged: each script of `tools/clients` on a server of its own.
    Clients(Clients),
    /// A server that is killed under load, again and again.
    Kills(Kills),
}

/// A corpus of others, and options of the script that runs it.
#[derive(clap::Args)]
pub(crate) struct Corpus {
    /// The folder of the corpus. The script says which one is meant, and where it comes from.
    #[arg(long)]
    corpus: Option<std::path::PathBuf>,
    /// `lodestone` [default: it is built].
    #[arg(long)]
    program: Option<std::path::PathBuf>,
    /// Options of the script, after `--`; `-- --help` lists them.
    #[arg(last = true)]
    more: Vec<String>,
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

/// Which statements of `SQLsmith` run.
#[derive(clap::Args)]
pub(crate) struct Sqlsmith {
    /// The first seed.
    #[arg(long, default_value_t = 101)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Statements of each seed.
    #[arg(long, default_value_t = 500)]
    statements: u64,
    /// `lodestone` [default: it is built].
    #[arg(long)]
    program: Option<std::path::PathBuf>,
    /// Options of the script, after `--`; `-- --help` lists them.
    #[arg(last = true)]
    more: Vec<String>,
}

const FS_JUDGES: [&str; 9] = ["pjdfstest", "pjdfstest-sh", "fsx", "fsx-two", "fio", "sqlite", "git", "redis", "cargo"];

/// Runs the judges. `false` when one of them found something.
pub(crate) fn run(root: &Path, command: &Command) -> Result<bool> {
    match command {
        Command::Fs(options) => run_fs(root, options),
        Command::FsKills(options) => kills::run(root, options),
        Command::FsTakeover(options) => kills::takeover::run(root, options),
        Command::FsGluster(options) => run_gluster(root, options),
        Command::Sql(Sql::Random(options)) => run_random(root, options),
        Command::Sql(Sql::Logic(options)) => run_corpus(root, "sql_logic.py", None, options),
        Command::Sql(Sql::Regress(options)) => run_corpus(root, "sql_regress.py", None, options),
        Command::Sql(Sql::Isolation(options)) => run_corpus(root, "sql_isolation.py", Some("specs"), options),
        Command::Sql(Sql::Hermitage(options)) => run_corpus(root, "sql_isolation.py", Some("hermitage"), options),
        Command::Sql(Sql::Sqlsmith(options)) => run_sqlsmith(root, options),
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

/// The program that was named, or one that is built.
fn program(root: &Path, named: Option<&std::path::PathBuf>) -> Result<std::path::PathBuf> {
    if let Some(program) = named {
        return Ok(program.clone());
    }
    let build = ["build", "--release", "-p", "lodestone-cli", "--bin", "lodestone"];
    if !Process::new("cargo").args(build).current_dir(root).status().context("could not run cargo")?.success() {
        bail!("the build of `lodestone` failed");
    }
    Ok(root.join("target/release/lodestone"))
}

fn run_gluster(root: &Path, options: &Gluster) -> Result<bool> {
    let script = root.join("tools/judge/fs_gluster.py");
    let mut command = Process::new("python3");
    command.arg(&script).arg("--program").arg(program(root, options.program.as_ref())?).args(&options.more);
    end_of(command, &script)
}

/// Runs a script, whose exit code 1 says that it found something.
fn end_of(mut command: Process, script: &Path) -> Result<bool> {
    match command.status().with_context(|| format!("cannot run python3 {}", script.display()))?.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("{} could not be run; its last line says what to do", script.display()),
    }
}

/// Runs a script on a corpus, with a program that is built if none is named.
fn run_corpus(root: &Path, script: &str, first: Option<&str>, options: &Corpus) -> Result<bool> {
    let program = program(root, options.program.as_ref())?;
    let script = root.join("tools/judge").join(script);
    let mut command = Process::new("python3");
    command.arg(&script).args(first).arg("--program").arg(program);
    if let Some(corpus) = &options.corpus {
        command.arg("--corpus").arg(corpus);
    }
    command.args(&options.more);
    end_of(command, &script)
}

fn run_sqlsmith(root: &Path, options: &Sqlsmith) -> Result<bool> {
    let script = root.join("tools/judge/sql_smith.py");
    let mut command = Process::new("python3");
    command.arg(&script).arg("--program").arg(program(root, options.program.as_ref())?);
    for (name, value) in [("--seed", options.seed), ("--seeds", options.seeds), ("--statements", options.statements)] {
        command.arg(name).arg(value.to_string());
    }
    command.args(&options.more);
    end_of(command, &script)
}

fn run_random(root: &Path, options: &Random) -> Result<bool> {
    if options.seeds == 0 || options.statements == 0 {
        bail!("nothing would be compared: name at least one seed and one statement");
    }
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
