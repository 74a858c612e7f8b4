//! `lodestone completions`: completion scripts for shells.

use anyhow::Result;
use clap::ValueEnum;
use clap_complete::generate;

use crate::output::stdout_error;

const AFTER_HELP: &str = "\
Examples:
  lodestone completions bash \\
    > ~/.local/share/bash-completion/completions/lodestone
  lodestone completions zsh > \"${fpath[1]}/_lodestone\"
  lodestone completions fish > ~/.config/fish/completions/lodestone.fish";

/// Shells with a completion script.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Arguments of `lodestone completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script for `program`.
pub fn run(args: &Args, mut program: clap::Command) -> Result<()> {
    let mut script = Vec::new();
    match args.shell {
        Shell::Bash => generate(clap_complete::Shell::Bash, &mut program, "lodestone", &mut script),
        Shell::Zsh => generate(clap_complete::Shell::Zsh, &mut program, "lodestone", &mut script),
        Shell::Fish => generate(clap_complete::Shell::Fish, &mut program, "lodestone", &mut script),
    }
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script).map_err(stdout_error)?;
    Ok(())
}
