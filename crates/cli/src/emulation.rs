//! `--profile`: a pool whose memory behaves like another medium.
//!
//! 1. The profile is read when the arguments are parsed, so that a wrong name or file is a usage error.
//! 2. The first pool that is opened makes the model. A process has one model, for all its pools.
//! 3. At the end of the command the model is named with its charges and counts: a note for people, one more JSON object
//!    with `--json`. Emulated figures are never printed without that name.

use std::sync::{Arc, OnceLock};

use anyhow::Result;
use lodestone_media::{MediaCounts, MediaProfile, Model, TimeMode};
use lodestone_pmem::{Medium, Pool, PoolOptions, Topology};
use lodestone_width::nearest_f64;
use serde::Serialize;

use crate::output::Output;

static MODEL: OnceLock<Arc<Model>> = OnceLock::new();

/// A profile from the command line, and its text there.
#[derive(Clone, Debug)]
pub struct Profile {
    profile: Arc<MediaProfile>,
    text: String,
}

/// Parses `--profile`.
pub fn profile(text: &str) -> Result<Profile, String> {
    let found = MediaProfile::resolve(text).map_err(|error| error.to_string())?;
    Ok(Profile { profile: Arc::new(found), text: text.to_owned() })
}

/// Arguments of commands that can emulate a medium and need no wall clock.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct EmulationArgs {
    /// Emulate a medium: dram, optane, cxl, or a TOML file (see `lodestone media`)
    #[arg(long, value_name = "NAME|FILE", value_parser = profile)]
    pub profile: Option<Profile>,

    /// Add the medium's time up instead of spinning for it
    #[arg(long, requires = "profile")]
    pub virtual_time: bool,
}

impl EmulationArgs {
    /// The arguments with which a child process emulates the same medium.
    pub fn to_args(&self) -> Vec<String> {
        let Some(profile) = &self.profile else { return Vec::new() };
        let mut args = vec!["--profile".to_owned(), profile.text.clone()];
        args.extend(self.virtual_time.then(|| "--virtual-time".to_owned()));
        args
    }

    /// `options` with the requested medium, if any.
    pub fn apply(&self, options: PoolOptions) -> Result<PoolOptions> {
        let mode = if self.virtual_time { TimeMode::Virtual } else { TimeMode::Spinning };
        apply(self.profile.as_ref(), mode, options)
    }
}

/// `options` with a model of `profile`, if there is one.
pub fn apply(profile: Option<&Profile>, mode: TimeMode, options: PoolOptions) -> Result<PoolOptions> {
    let Some(Profile { profile, .. }) = profile else { return Ok(options) };
    let topology = Topology::for_pool(&options.sysfs_root, options.virtual_nodes)?;
    let model =
        MODEL.get_or_init(|| Model::new(MediaProfile::clone(profile), mode, &topology, &guess(&options, &topology)));
    let medium: Arc<dyn Medium> = model.clone();
    Ok(PoolOptions { medium: Some(medium), ..options })
}

/// Nodes of the parts as far as the options tell, before the pool is open.
fn guess(options: &PoolOptions, topology: &Topology) -> Vec<usize> {
    if options.part_nodes.is_empty() {
        // Virtual nodes take the parts in turn. Without them there is one guess.
        (0..options.virtual_nodes.max(1)).collect()
    } else {
        options.part_nodes.iter().map(|id| topology.index_of(*id).unwrap_or(0)).collect()
    }
}

/// Tells the model the places of the parts of `pool`, now that it is open.
pub fn place(pool: &Pool) {
    if let Some(model) = MODEL.get() {
        let nodes: Vec<usize> = pool.part_nodes().iter().map(|node| node.index.unwrap_or(0)).collect();
        model.place_parts(&nodes);
    }
}

/// The model's counts so far. `None` when there is no model.
pub fn counts() -> Option<MediaCounts> {
    MODEL.get().map(|model| model.counts())
}

#[derive(Serialize)]
struct Charged {
    medium: String,
    emulated: bool,
    charged_ns: u64,
    read_amplification: f64,
    write_amplification: f64,
    counts: MediaCounts,
}

/// Names the model and its charges. Prints nothing when there was none.
pub fn report(output: &Output) -> Result<()> {
    let Some(model) = MODEL.get() else { return Ok(()) };
    // The command is over: lines that wait in the medium's buffer are counted as written.
    model.drain();
    let (counts, block_bytes) = (model.counts(), model.profile().device.block_bytes);
    let charged = Charged {
        medium: model.label(),
        emulated: true,
        charged_ns: counts.charged_ns,
        read_amplification: counts.read_amplification(block_bytes),
        write_amplification: counts.write_amplification(block_bytes),
        counts,
    };
    if output.is_json() {
        return output.json(&charged);
    }
    output.note(&format!(
        "emulated medium: {}; {:.3} ms charged; {} blocks of {block_bytes} B read (amplification {:.2}), {} written ({:.2})",
        charged.medium,
        nearest_f64(charged.charged_ns) / 1e6,
        counts.blocks_read,
        charged.read_amplification,
        counts.blocks_written,
        charged.write_amplification,
    ));
    Ok(())
}
