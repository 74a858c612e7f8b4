//! `cargo xtask fuzz`: builds the fuzzers optimised, with overflow checks, and runs one.
//!
//! They are a program of their own, so that building the chores does not build what they run.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Arguments of the program, as they are: `--help` shows them.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// The target and its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs the fuzzers. Whether no input failed.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--quiet", "--profile", "prove", "--package", "lodestone-fuzz", "--"]);
    let status = cargo.args(&options.arguments).current_dir(root).status().context("starting cargo")?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        code => bail!("the fuzzers ended with exit code {code:?}"),
    }
}
