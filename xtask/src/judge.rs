//! Judges from outside: suites and programs of others, on what Lodestone offers to them.
//!
//! `cargo xtask judge fs pjdfstest` builds `lodestone` and runs `tools/judge/fs.sh`, which mounts a volume. The suites
//! are fetched through cargo or are packages of the distribution; nothing of them is in this repository.

use std::path::Path;
use std::process::Command as Process;

use anyhow::{Context, Result, bail};
use clap::Subcommand;

/// The subjects.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// A mounted volume. As root: the suites change owners and make devices.
    Fs(FsOptions),
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

const FS_JUDGES: [&str; 6] = ["pjdfstest", "pjdfstest-sh", "fsx", "fio", "sqlite", "git"];

/// Runs the judges. `false` when one of them found something.
pub(crate) fn run(root: &Path, command: &Command) -> Result<bool> {
    let Command::Fs(options) = command;
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
