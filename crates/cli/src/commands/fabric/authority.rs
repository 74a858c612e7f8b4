//! `lodestone fabric authority`.

use std::path::PathBuf;

use anyhow::Result;
use lodestone_registry::control::Authority;
use serde::Serialize;

use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fabric authority ca

The folder has the key that signs all certificates, and the root of the secrets of all
groups. Who has it can become anybody: keep a copy of it in a safe place, and give the
folder to one keeper at most (`lodestone fabric keep --authority`).";

/// Arguments of `lodestone fabric authority`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Serialize)]
struct Made {
    folder: String,
}

/// Makes the authority.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    Authority::create(&args.folder)?;
    output.result(&Made { folder: args.folder.display().to_string() }, |made| {
        let folder = &made.folder;
        format!("{folder}: an authority\nmake certificates with it by `lodestone fabric token {folder} --keeper 1`")
    })
}
