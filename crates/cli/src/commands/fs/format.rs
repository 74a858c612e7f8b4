//! `lodestone fs format`.

use std::net::{SocketAddr, SocketAddrV4};

use anyhow::{Context, Result, bail};
use lodestone_fs::cluster::{Carrier, Site, register};
use lodestone_fs::{FormatOptions, Volume};
use lodestone_pmem::PoolOptions;
use lodestone_registry::KeeperId;
use serde::Serialize;

use super::{VolumeArgs, machines};
use crate::output::Output;
use crate::size;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs format notes.vol
  lodestone fs format big.vol --size 4GiB

  lodestone fs format notes.vol --size 10GiB --credentials op \\
    --machines 1=10.0.0.1:7000,2=10.0.0.2:7000,3=10.0.0.3:7000 \\
    --keepers 1=10.0.0.1:7411,2=10.0.0.2:7411,3=10.0.0.3:7411

The file takes its whole size on the disk at once. The root folder
belongs to the user who formats.

With --machines the volume is on several machines, and the file says only where they are: a
copy of it goes to each machine, and to who mounts the volume. The keepers get to know the
volume (`lodestone fabric keep`), for which you need the credentials of an operator. Start each
machine by `lodestone fs serve notes.vol --new`. See docs/fs.md.";

/// Bytes of the journal, by the size of the volume.
const JOURNAL_BYTES: (u64, u64) = (8 << 20, 64 << 20);

/// Arguments of `lodestone fs format`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,

    /// Size of the volume
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size::parse)]
    size: u64,

    /// Size of the log of operations [default: a thirty-second part of the volume, at most 64 MiB]
    #[arg(long, value_name = "SIZE", default_value = "0", hide_default_value = true, value_parser = size::parse)]
    log_bytes: u64,

    /// Replace an existing file
    #[arg(long, conflicts_with = "machines")]
    overwrite: bool,

    /// Keep the volume on these machines: each takes the port and the two after it
    #[arg(long, value_name = "NUMBER=ADDRESS", value_delimiter = ',', value_parser = machines::machine, requires = "keepers")]
    machines: Vec<(u16, SocketAddrV4)>,

    /// The keepers of the registry
    #[arg(long, value_name = "ID=ADDRESS", value_delimiter = ',', value_parser = machines::keeper, requires = "machines")]
    keepers: Vec<(KeeperId, SocketAddr)>,

    /// How packets travel between machines: udp (multicast) or unicast
    #[arg(long, value_name = "CARRIER", default_value = "unicast")]
    carrier: Carrier,

    /// Largest packet of the network between machines, in bytes [default: 1500, or 8336 on one host]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=9000))]
    mtu: Option<u32>,
}

/// Bytes of a packet beside its payload: IP and UDP 28, head 64, seal 16.
const HEAD_BYTES: u32 = 108;

#[derive(Serialize)]
struct Formatted {
    path: String,
    domain: String,
    promise: String,
    size_bytes: u64,
    room_bytes: u64,
}

/// Makes the volume.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    if !args.machines.is_empty() {
        return run_on_machines(args, output);
    }
    let pool = PoolOptions {
        size_bytes: args.size,
        journal_bytes: (args.size / 16).clamp(JOURNAL_BYTES.0, JOURNAL_BYTES.1),
        domain: args.volume.domain,
        overwrite: args.overwrite,
        ..PoolOptions::default()
    };
    let mut options = FormatOptions::default();
    options.log_bytes = args.log_bytes;
    (options.uid, options.gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let path = &args.volume.path;
    let made = Volume::format_with(path, &pool, &options);
    let volume = made.with_context(|| format!("{}: formatting failed", path.display()))?;
    let (room, info) = (volume.room(), volume.store().pool().info());
    let formatted = Formatted {
        path: path.display().to_string(),
        domain: info.domain_label(),
        promise: info.promise,
        size_bytes: args.size,
        room_bytes: room.available * room.page_bytes,
    };
    output.result(&formatted, |formatted| {
        format!(
            "{}: a volume with {} for files, in the {} domain: {}\nmount it by `lodestone fs mount {} FOLDER`",
            formatted.path,
            size::human(formatted.room_bytes),
            formatted.domain,
            formatted.promise,
            formatted.path
        )
    })
}

#[derive(Serialize)]
struct Described {
    path: String,
    volume: String,
    machines: usize,
    keepers: usize,
    size_bytes: u64,
    network: &'static str,
}

/// Makes a volume on machines: the keepers get to know it, and a file describes it.
fn run_on_machines(args: &Args, output: &Output) -> Result<()> {
    let path = &args.volume.path;
    if path.try_exists().with_context(|| path.display().to_string())? {
        bail!("{}: the file is there already; give another name", path.display());
    }
    let (machines, keepers) =
        (machines::each_once(&args.machines, "machine")?, machines::each_once(&args.keepers, "keeper")?);
    let mut site = Site::new(machines, keepers)?.with_size(args.size);
    site.owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    site.carrier = args.carrier;
    site.is_sealed = !args.volume.plain_network;
    if let Some(mtu) = args.mtu {
        site.payload_bytes = mtu - HEAD_BYTES;
    }
    let security = args.volume.security(&site)?;
    let made = register(&site, &security).context("the keepers do not take the volume")?;
    if !made {
        bail!("the keepers have volume {:016x} already; try again", site.volume);
    }
    site.write_new(path)?;
    let described = Described {
        path: path.display().to_string(),
        volume: format!("{:016x}", site.volume),
        machines: site.machines.len(),
        keepers: site.keepers.len(),
        size_bytes: args.size,
        network: if site.is_sealed { "sealed" } else { "plain" },
    };
    output.result(&described, |described| {
        let (path, volume) = (&described.path, &described.volume);
        format!(
            "{path}: volume {volume} on {} machines, {} on each; the network is {}\ncopy the file to each machine, and \
             start there `lodestone fs serve {path} --dir FOLDER --new`",
            described.machines,
            size::human(described.size_bytes),
            described.network
        )
    })
}
