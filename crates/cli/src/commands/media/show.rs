//! `lodestone media show`.

use anyhow::Result;
use lodestone_media::MediaProfile;

use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone media show optane
  lodestone media show optane > my.toml
  lodestone media show my.toml

A built-in profile is printed with the comments that say where each figure comes from. What is printed can be edited and
used with --profile FILE.";

/// Arguments of `lodestone media show`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// A built-in profile or a TOML file
    #[arg(value_name = "NAME|FILE")]
    profile: String,
}

/// Prints the profile.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let profile = MediaProfile::resolve(&args.profile)?;
    let text = match MediaProfile::builtin_text(&args.profile) {
        Some(text) => text.to_owned(),
        None => profile.to_toml(),
    };
    output.result(&serde_json::json!({ "profile": profile.name, "toml": text }), |_| text.trim_end().to_owned())
}
