//! `lodestone media profiles`.

use anyhow::Result;
use lodestone_media::MediaProfile;
use serde::Serialize;

use crate::output::{Output, table};

const AFTER_HELP: &str = "\
Examples:
  lodestone media profiles
  lodestone media profiles --json";

/// Arguments of `lodestone media profiles`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {}

#[derive(Serialize)]
struct ProfileLine {
    name: String,
    description: String,
    source: String,
    read_64_ns: f64,
    write_64_ns: f64,
    read_bytes_per_second: f64,
    write_bytes_per_second: f64,
    block_bytes: u64,
}

impl ProfileLine {
    fn new(profile: MediaProfile) -> Self {
        Self {
            read_64_ns: profile.read.random_latency_ns.at(64),
            write_64_ns: profile.write.random_latency_ns.at(64),
            read_bytes_per_second: profile.read.bandwidth_bytes_per_second,
            write_bytes_per_second: profile.write.bandwidth_bytes_per_second,
            block_bytes: profile.device.block_bytes,
            name: profile.name,
            description: profile.description,
            source: profile.source,
        }
    }
}

/// Lists the profiles.
pub fn run(_args: &Args, output: &Output) -> Result<()> {
    let profiles = MediaProfile::names().into_iter().filter_map(MediaProfile::builtin).map(ProfileLine::new);
    if output.is_json() {
        for line in profiles {
            output.json(&line)?;
        }
        return Ok(());
    }
    let mut rows = table(&["name", "medium", "read 64 B", "write 64 B", "read", "write", "block"]);
    let mut sources = String::new();
    for line in profiles {
        sources.push_str(&format!("\n{}: {}", line.name, line.source));
        rows.add_row([
            line.name,
            line.description,
            format!("{} ns", line.read_64_ns),
            format!("{} ns", line.write_64_ns),
            format!("{} GB/s", line.read_bytes_per_second / 1e9),
            format!("{} GB/s", line.write_bytes_per_second / 1e9),
            format!("{} B", line.block_bytes),
        ]);
    }
    output.line(&format!("{rows}{sources}"))
}
