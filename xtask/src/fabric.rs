//! `cargo xtask fabric`: processes of the fabric that are killed, and networks that lose packets.
//!
//! It builds `fabric-node` (`crates/fabric-node`) and runs one of its harnesses, with the options that are given here.
//! `cargo xtask fabric kills --help` and `cargo xtask fabric namespaces --help` show them.

use std::path::Path;
use std::process::Command as Process;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

/// The harnesses.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Kill members and senders under load: nothing acknowledged may be lost, and the service must be back in time.
    #[command(disable_help_flag = true)]
    Kills(Options),
    /// A group over network namespaces, with loss, repeats, another order, delay and cuts; throughput beside TCP.
    #[command(disable_help_flag = true)]
    Namespaces(Options),
}

#[derive(Args)]
pub(crate) struct Options {
    /// Options of the harness; `--release` in the first place builds it for speed.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    more: Vec<String>,
}

/// Runs a harness. `false`: something was lost, or came back too late.
pub(crate) fn run(root: &Path, command: &Command) -> Result<bool> {
    let (name, options) = match command {
        Command::Kills(options) => ("kills", options),
        Command::Namespaces(options) => ("namespaces", options),
    };
    let is_release = options.more.first().is_some_and(|first| first == "--release");
    let (folder, profile): (&str, &[&str]) = if is_release { ("release", &["--release"]) } else { ("debug", &[]) };
    let build = ["build", "--quiet", "--package", "lodestone-fabric-node"];
    let built = crate::cargo().args(build).args(profile).current_dir(root).status().context("could not run cargo")?;
    if !built.success() {
        bail!("the build of `fabric-node` failed");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let program = target.join(folder).join("fabric-node");
    let status = Process::new(&program).arg(name).args(options.more.iter().skip(usize::from(is_release))).status();
    match status.with_context(|| format!("could not run {}", program.display()))?.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        code => bail!("the harness could not do its work (exit code {code:?}); its last line says why"),
    }
}
