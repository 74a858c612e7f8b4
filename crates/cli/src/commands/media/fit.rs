//! `lodestone media fit`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use lodestone_media::MediaProfile;
use lodestone_media::fit::fit;
use lodestone_media::probe::ProbeResult;

use crate::new_file::NewFile;
use crate::output::{Output, spare};

const AFTER_HELP: &str = "\
Examples:
  lodestone media probe /mnt/pmem --json > probe.json
  lodestone media fit probe.json -o mine.toml
  lodestone media fit probe.json -o mine.toml --base optane --name server-7

What the probe does not tell is taken from the base profile and listed.";

/// Arguments of `lodestone media fit`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Output of `lodestone media probe --json`
    #[arg(value_name = "PROBE.json")]
    probe: PathBuf,

    /// The profile to write; must not exist unless --overwrite
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Name of the profile [default: name of the file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Profile for the parameters that the probe does not measure
    #[arg(long, value_name = "NAME|FILE", default_value = "dram")]
    base: String,

    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
}

/// Largest result that is read.
const PROBE_BYTES_MAX: u64 = 64 << 20;

/// Reads, fits, writes.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let result = read(&args.probe)?;
    let base = MediaProfile::resolve(&args.base)?;
    let stem = args.output.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = args.name.clone().or(stem).unwrap_or_else(|| "fitted".into());
    let fitted = fit(&result, &base, &name).with_context(|| format!("{}: fitting failed", args.probe.display()))?;
    spare(&args.output, &[&args.probe])?;
    let target = args.output.display();
    let mut file = NewFile::create(&args.output, args.overwrite)?;
    file.write_all(fitted.profile.to_toml().as_bytes())
        .with_context(|| format!("{target}: writing the profile failed; choose a writable place"))?;
    file.publish()?;
    let summary = serde_json::json!({
        "profile": fitted.profile.name, "path": target.to_string(), "emulated": result.target.emulated, "notes": fitted.notes,
    });
    output.result(&summary, |_| {
        let notes: String = fitted.notes.iter().map(|note| format!("\n  {note}")).collect();
        format!(
            "{target}: profile {}, {}; not told by the probe:{notes}",
            fitted.profile.name, fitted.profile.description
        )
    })
}

/// The probe's record: the line with its format name, because a report may print other objects beside it.
fn read(path: &Path) -> Result<ProbeResult> {
    let failed =
        || format!("{}: reading failed; give a file that `lodestone media probe --json` wrote", path.display());
    let bytes = path.metadata().with_context(failed)?.len();
    ensure!(bytes <= PROBE_BYTES_MAX, "{}: {bytes} bytes are no result of a probe", path.display());
    let text = std::fs::read_to_string(path).with_context(failed)?;
    let line = text.lines().find(|line| line.contains("\"format\":\"lodestone-probe\"")).unwrap_or(text.trim());
    ProbeResult::from_json(line).with_context(|| path.display().to_string())
}
