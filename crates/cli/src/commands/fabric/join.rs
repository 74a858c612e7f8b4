//! `lodestone fabric join`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, bail};
use lodestone_registry::control::{Invitation, join};
use serde::Serialize;

use super::has_credentials;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fabric join 10.0.0.1:7411 --dir n7 --token ...

The keeper at the address must have the authority (`lodestone fabric keep --authority`).
The key of the certificate is made here, and never leaves this machine.";

/// Arguments of `lodestone fabric join`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Address of a keeper that has the authority
    #[arg(value_name = "ADDRESS")]
    keeper: SocketAddr,

    /// Folder for the credentials
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// The token that `lodestone fabric token` printed
    #[arg(long, value_name = "TOKEN")]
    token: String,

    /// Replace credentials that are in the folder
    #[arg(long)]
    overwrite: bool,
}

#[derive(Serialize)]
struct Joined {
    name: String,
    folder: String,
}

/// Joins.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    if has_credentials(&args.dir) && !args.overwrite {
        bail!("{}: has credentials already; give another folder, or --overwrite", args.dir.display());
    }
    let credentials = join(args.keeper, &Invitation::parse(&args.token)?, &args.dir)?;
    let joined = Joined { name: credentials.name().to_string(), folder: args.dir.display().to_string() };
    output.result(&joined, |joined| format!("{}: credentials of {}", joined.folder, joined.name))
}
