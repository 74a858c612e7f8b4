//! `lodestone fs fsck`.

use anyhow::{Context, Result};
use lodestone_fs::CheckReport;
use serde::Serialize;

use super::VolumeArgs;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs fsck notes.vol
  lodestone fs fsck notes.vol --quick

Exit code 1 when something does not verify: each finding names the file. An open of the
volume finishes what a crash left, so this command may write.";

/// Arguments of `lodestone fs fsck`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,

    /// Compare metadata only: read no pages
    #[arg(long)]
    quick: bool,
}

#[derive(Serialize)]
struct Checked<'r> {
    volume: String,
    #[serde(flatten)]
    report: &'r CheckReport,
}

/// Checks the volume.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let opened = args.volume.open()?;
    let volume = opened.volume()?;
    let busy = output.busy("checking");
    let path = args.volume.path.display().to_string();
    let report = volume.check(!args.quick).with_context(|| format!("{path}: the check could not be done"))?;
    drop(busy);
    output.result(&Checked { volume: path.clone(), report: &report }, |checked| {
        let finding = |finding: &lodestone_fs::CheckFinding| {
            let name = if finding.path.is_empty() { format!("file {}", finding.ino) } else { finding.path.clone() };
            format!("{path}: {name}: {}\n", finding.finding)
        };
        let text: String = checked.report.findings.iter().map(finding).collect();
        let (files, folders, pages) = (checked.report.files, checked.report.folders, checked.report.pages);
        let verdict = if checked.report.is_clean() { "everything verifies" } else { "damaged" };
        format!("{text}{path}: {files} files, {folders} of them folders, {pages} pages: {verdict}")
    })?;
    Ok(report.is_clean())
}
