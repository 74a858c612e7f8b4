//! `lodestone fs fsck`.

use anyhow::{Context, Result};
use lodestone_fs::CheckReport;
use serde::Serialize;

use super::control::{self, Request};
use super::{Opened, VolumeArgs, machines};
use crate::output::{Output, ProgressUnit};

const AFTER_HELP: &str = "\
Examples:
  lodestone fs fsck notes.vol
  lodestone fs fsck notes.vol --quick

  lodestone fs fsck notes.vol --credentials op

Exit code 1 when something does not verify: each finding names the file. An open of the
volume finishes what a crash left, so this command may write. A volume with replicas that is
mounted, or is on several machines, is checked by the process that leads, while programs go
on: names and links are those of one moment. The images of standbys are compared, too, each by
the process that has it; a finding names the node. `lodestone fs scrub` reads every copy of a
page.";

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

/// Checks the volume, in the process that has it or in this one.
fn check(args: &Args, output: &Output, show: &(dyn Fn(u64, u64) + Send + Sync)) -> Result<CheckReport> {
    let request = Request::Check { reads_pages: !args.quick };
    if let Some(site) = args.volume.site()? {
        let mut report: CheckReport = machines::ask(&args.volume, &site, &request, &mut |done, all| show(done, all))?;
        for missing in machines::check_images(&args.volume, &site, &mut report)? {
            output.note(&format!("{missing}: its image is not compared"));
        }
        return Ok(report);
    }
    if let Some(report) = control::ask(&args.volume.path, &request, &mut |done, all| show(done, all))? {
        return Ok(report);
    }
    let opened = args.volume.open()?;
    let volume = opened.volume()?;
    let failed = || format!("{}: the check could not be done", args.volume.path.display());
    let images = if let Opened::Many(cluster) = &opened { Some(cluster.images()) } else { None };
    control::check(&volume, images.as_ref(), !args.quick, show).with_context(failed)
}

/// Checks the volume.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let bar = output.progress(Some(0), ProgressUnit::Steps).with_prefix("pages");
    let path = args.volume.path.display().to_string();
    let report = check(args, output, &|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    output.result(&Checked { volume: path.clone(), report: &report }, |checked| {
        let finding = |finding: &lodestone_fs::CheckFinding| {
            let name = match (finding.path.as_str(), finding.ino) {
                ("", 0) => "the volume".to_owned(),
                ("", ino) => format!("file {ino}"),
                (path, _) => path.to_owned(),
            };
            let node = if finding.node == 0 { String::new() } else { format!("image of node {}: ", finding.node) };
            format!("{path}: {node}{name}: {}\n", finding.finding)
        };
        let images = match checked.report.images.len() {
            0 => String::new(),
            1 => ", image of 1 standby".to_owned(),
            count => format!(", images of {count} standbys"),
        };
        let text: String = checked.report.findings.iter().map(finding).collect();
        let (files, folders, pages) = (checked.report.files, checked.report.folders, checked.report.pages);
        let verdict = if checked.report.is_clean() { "everything verifies" } else { "damaged" };
        format!("{text}{path}: {files} files, {folders} of them folders, {pages} pages{images}: {verdict}")
    })?;
    Ok(report.is_clean())
}
