//! `lodestone crash replay`.

use anyhow::{Result, anyhow};

use lodestone_cli::output::Output;

use super::select::targets;

const AFTER_HELP: &str = "\
Example:
  lodestone crash replay 'pool-roots~adr~0.2~-~-~k41.1080=0'

A target of your own is replayed by its own test, which knows it: the violation prints the command,
LODESTONE_REPLAY='TOKEN' cargo test ...

Exit code 1 when the violation is there, 0 when it is gone.";

/// Arguments of `lodestone crash replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The token of a reported violation
    token: String,
}

/// Replays the violation of the token.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let mut targets = targets();
    // The name of a random program is enough to make it again.
    targets.extend(args.token.split('~').next().and_then(lodestone_proof::index::program));
    let report = lodestone_crash::replay(&args.token, &targets).map_err(|failure| anyhow!("{failure}"))?;
    output.result(&report, ToString::to_string)?;
    Ok(report.violation.is_none())
}
