//! `lodestone fs scrub`.

use anyhow::{Context, Result, bail};
use lodestone_fs::cluster::ScrubReport;

use super::control::{Request, ask, scrub};
use super::{Opened, VolumeArgs, machines};
use crate::output::{Output, ProgressUnit};

const AFTER_HELP: &str = "\
Examples:
  lodestone fs scrub notes.vol
  lodestone fs scrub notes.vol --rate 1000 --dry-run

Every page of every replica is read and compared with the checksum that the metadata has.
A damaged one is written again, from a replica that has it right. The volume may be mounted.
Exit code 1 when a page is damaged at all replicas, or with --dry-run at one: it is named by
file and offset. Reading it fails; overwriting it heals it.";

/// Arguments of `lodestone fs scrub`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,

    /// Pages of each replica in a second [default: no limit]
    #[arg(long, value_name = "PAGES", default_value_t = 0, hide_default_value = true)]
    rate: u64,

    /// Repair nothing
    #[arg(long)]
    dry_run: bool,
}

/// Scrubs the volume, in the process that has it or in this one.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let bar = output.progress(Some(0), ProgressUnit::Steps).with_prefix("pages");
    let show = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let (rate, repairs) = (args.rate, !args.dry_run);
    let request = Request::Scrub { pages_per_second: rate, repairs };
    let report = if let Some(site) = args.volume.site()? {
        machines::ask::<ScrubReport>(&args.volume, &site, &request, &mut |done, all| show(done, all))?
    } else {
        of_this_machine(args, &request, &show)?
    };
    bar.finish_and_clear();
    output.result(&report, text)?;
    Ok(report.lost.is_empty() && report.unread == 0 && (repairs || report.damaged == 0))
}

/// Scrubs a volume of this machine.
fn of_this_machine(args: &Args, request: &Request, show: &(dyn Fn(u64, u64) + Send + Sync)) -> Result<ScrubReport> {
    let (rate, repairs) = (args.rate, !args.dry_run);
    Ok(match ask::<ScrubReport>(&args.volume.path, request, &mut |done, all| show(done, all))? {
        Some(report) => report,
        None => match args.volume.open()? {
            Opened::Many(cluster) => scrub(&cluster.volume()?, rate, repairs, show).context("the scrub failed")?,
            Opened::One(_) => bail!(
                "{}: the volume has one copy, so nothing can be repaired from others; `lodestone fs fsck` reads it",
                args.volume.path.display()
            ),
        },
    })
}

fn text(report: &ScrubReport) -> String {
    let page = |page: &lodestone_fs::cluster::LostPage| {
        format!("file {}: the page at offset {} is damaged at every replica\n", page.ino, page.offset)
    };
    let lost: String = report.lost.iter().map(page).collect();
    let unread = match report.unread {
        0 => String::new(),
        count => format!(", {count} not answered"),
    };
    format!(
        "{lost}{} pages, {} copies read{unread}: {} damaged, {} repaired, {} lost",
        report.pages,
        report.copies_read,
        report.damaged,
        report.repaired,
        report.lost.len()
    )
}
