//! The search for `lodestone-lab`, and how this program becomes it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Result, anyhow};
use lodestone_cli::output::{Output, exit};

const NAME: &str = "lodestone-lab";

/// The path: beside this program, else in the search path.
fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(NAME)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = std::env::split_paths(&path).map(|folder| folder.join(NAME)).collect();
    beside.into_iter().chain(in_path).find(|candidate| candidate.is_file())
}

/// Whether it is installed.
pub fn is_here() -> bool {
    find().is_some()
}

/// Becomes `lodestone-lab` with the arguments of this process. Returns only on failure.
///
/// # Errors
/// When it is not installed, or cannot be executed.
pub fn become_it() -> Result<ExitCode> {
    let Some(program) = find() else {
        return Err(anyhow!(
            "`{NAME}` is not installed, and holds this command; build it with `cargo build --release --package \
             lodestone-cli` and put it beside `lodestone` or in the path"
        ));
    };
    // Help and errors call the program what the user typed.
    let failed = Command::new(&program).arg0("lodestone").args(std::env::args_os().skip(1)).exec();
    Err(anyhow!(failed).context(format!("{}: it cannot be executed; install it again", program.display())))
}

/// Runs [`become_it`] and prints its error.
pub fn run() -> ExitCode {
    become_it().unwrap_or_else(|error| {
        let has = |option: &str| std::env::args_os().any(|word| word == option);
        Output::new(has("--json"), has("--quiet")).error(&error);
        exit::failure()
    })
}
