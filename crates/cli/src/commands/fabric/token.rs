//! `lodestone fabric token`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use lodestone_registry::control::Authority;
use serde::Serialize;

use super::NameArgs;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fabric token ca --node 7
  lodestone fabric token ca --keeper 2 --hours 1
  lodestone fabric token ca --keeper 1 --dir k1

A token works once. Give it to the machine that joins, over a channel that you trust. With
--dir there is no token: the certificate is made at once in that folder, on this machine.";

/// Arguments of `lodestone fabric token`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Folder of the authority
    #[arg(value_name = "AUTHORITY")]
    authority: PathBuf,

    #[command(flatten)]
    name: NameArgs,

    /// Hours within which the token works
    #[arg(long, value_name = "COUNT", default_value_t = 24)]
    hours: u32,

    /// Make the certificate in this folder, without a token
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Serialize)]
struct Made {
    name: String,
    token: Option<String>,
    folder: Option<String>,
}

/// Makes a token or a certificate.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let (authority, name) = (Authority::open(&args.authority)?, args.name.name());
    let mut made = Made { name: name.to_string(), token: None, folder: None };
    if let Some(folder) = &args.dir {
        authority.issue(name, folder)?;
        made.folder = Some(folder.display().to_string());
    } else {
        let valid = Duration::from_secs(3600 * u64::from(args.hours));
        made.token = Some(authority.invite(name, valid)?.digits());
    }
    output.result(&made, |made| match (&made.token, &made.folder) {
        (Some(token), _) => token.clone(),
        (None, folder) => format!("{}: credentials of {}", folder.as_deref().unwrap_or_default(), made.name),
    })
}
