//! `lodestone crash list`.

use anyhow::Result;
use serde::Serialize;

use lodestone_cli::output::{Output, table};

use super::select::targets;

const AFTER_HELP: &str = "\
Examples:
  lodestone crash list
  lodestone crash list --json";

/// Arguments of `lodestone crash list`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {}

#[derive(Serialize)]
struct Listed {
    target: String,
    operations: usize,
    script: Vec<String>,
}

/// Prints the targets and their scripts.
pub fn run(_args: &Args, output: &Output) -> Result<()> {
    let mut rows = table(&["target", "operations", "script"]);
    for target in targets() {
        let script: Vec<_> = (0..target.script_len()).map(|op| target.op_text(op)).collect();
        let listed = Listed { target: target.name(), operations: script.len(), script };
        if output.is_json() {
            output.json(&listed)?;
        } else {
            rows.add_row([listed.target, listed.operations.to_string(), summary(&listed.script)]);
        }
    }
    if !output.is_json() {
        output.line(&rows.to_string())?;
    }
    Ok(())
}

/// The first operations of a script.
fn summary(script: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = script.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if script.len() > SHOWN {
        text.push_str(", ...");
    }
    text
}
