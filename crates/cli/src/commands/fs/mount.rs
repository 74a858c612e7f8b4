//! `lodestone fs mount`.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lodestone_fs::cluster::{Carrier, ClusterOptions, Site};
use lodestone_fs_fuse::{Consistency, Error, MountOptions, Mounted, OnLoss, Source};
use serde::Serialize;

use super::control::{self, Control};
use super::serve::need_plain;
use super::{Opened, VolumeArgs};
use crate::interrupt;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs mount notes.vol /mnt/notes
  lodestone fs mount notes.vol /mnt/notes --read-only
  lodestone fs mount notes.vol /mnt/notes --try 3
  lodestone fs mount notes.vol /mnt/notes --on-loss error --timeout 10

The command runs until Ctrl-C, SIGTERM or `umount FOLDER`. SIGKILL and a power cut lose
nothing that fsync acknowledged; the next mount takes the dead one away and goes on from
there. docs/posix.md says how the mount differs from POSIX.

--try 3 makes three replicas and a standby for the volume, all in this process, with pools in the
folder VOLUME.nodes: they take four times the space of the volume. From then on it is always
mounted so. An fsync waits for two of three replicas and for the standby. Stop a node by
`lodestone fs stop VOLUME 101` and look at `lodestone fs status VOLUME`.

While too few nodes of a volume with replicas answer, programs wait and see no
error. They go on when nodes are started again, and can be killed. The log says
who is missing after 5 s. With --on-loss error they get EIO after --timeout.

--nodes 10.0.0.2:7000,10.0.0.3:7000,10.0.0.4:7000 --plain-network keeps the pages at processes
of `lodestone fs serve` instead, for a volume without content. The metadata stays here.";

/// How often the mount is looked at.
const WATCH: Duration = Duration::from_millis(200);
/// Looks while files are open, before the mount is hidden: five seconds.
const BUSY_LOOKS: u32 = 25;

/// Arguments of `lodestone fs mount`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,

    /// The folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Threads that answer the kernel
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    threads: usize,

    /// Let other users use it, with their permissions [default: when root mounts]
    #[arg(long)]
    allow_other: bool,

    /// Refuse all changes
    #[arg(long)]
    read_only: bool,

    /// Keep so many replicas of each page, and a standby, in this process [default: as the volume has]
    #[arg(long = "try", value_name = "REPLICAS", value_parser = clap::value_parser!(u16).range(1..=7))]
    replicas: Option<u16>,

    /// Keep the pages at these nodes (see `lodestone fs serve`) [default: as the volume has]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', conflicts_with = "replicas")]
    nodes: Vec<SocketAddrV4>,

    /// How packets travel to them: udp (multicast) or unicast; kept from then on
    #[arg(long, value_name = "CARRIER", default_value = "unicast")]
    carrier: Carrier,

    /// The address of this machine, for them
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: Ipv4Addr,

    /// Changes of other mounts of a volume on machines: strong (each call sees those before it; names and attributes
    /// are kept until another mount changes them, content is not) or close-to-open (seen within a second, and by each
    /// open)
    #[arg(long, value_name = "CONSISTENCY", default_value = "close-to-open")]
    consistency: Consistency,

    /// The way of programs while too few nodes of a volume with replicas answer: wait (a delay, until the nodes are
    /// back or the program is killed) or error (EIO after --timeout)
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = Loss::Wait)]
    on_loss: Loss,

    /// Seconds until EIO, with --on-loss error [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: Option<u64>,

    /// Leave access times alone
    #[arg(long)]
    no_atime: bool,
}

/// The way of programs while the volume cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Loss {
    Wait,
    Error,
}

/// Time until an error, unless the arguments say another one.
const TIMEOUT_SECONDS: u64 = 30;

#[derive(Serialize)]
struct Serving {
    volume: String,
    folder: PathBuf,
    domain: String,
    promise: String,
    replayed: u64,
    dropped: u64,
    orphans: u64,
    replicas: usize,
}

/// Opens the volume: with the nodes that the arguments say, or those that it has.
fn open(args: &Args) -> Result<Opened> {
    let mut options = ClusterOptions::default();
    let is_elsewhere = !args.nodes.is_empty() || control::folder(&args.volume.path).join("addresses").exists();
    options.replicas = match args.replicas {
        Some(replicas) => replicas,
        None if !is_elsewhere => return args.volume.open(),
        None => 0,
    };
    if args.replicas.is_none() {
        need_plain(args.volume.plain_network)?;
        (options.carrier, options.listen) = (args.carrier, args.listen);
        options.nodes.clone_from(&args.nodes);
    }
    Ok(Opened::Many(args.volume.cluster_with(&options).with_context(|| args.volume.failed())?))
}

/// Mounts, and serves until a signal or an unmount.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    if let Some(site) = args.volume.site()? {
        return run_remote(args, &site, output);
    }
    let options = mount_options(args)?;
    let opened = open(args)?;
    let volume = opened.volume()?;
    let (info, recovery) = (volume.store().pool().info(), volume.recovery());
    let (stop, stopped) = mpsc::channel();
    interrupt::on_signal(move || {
        // The receiver is gone only when the command has ended.
        let _ = stop.send(());
    });
    drop(volume);
    let opened = Arc::new(opened);
    let source = match &*opened {
        Opened::One(volume) => Source::from(volume.clone()),
        Opened::Many(cluster) => Source::from(cluster.source()),
    };
    let mounted = lodestone_fs_fuse::mount(source, &args.folder, &options)?;
    let _control = Control::serve(&opened)?;
    let serving = Serving {
        volume: args.volume.path.display().to_string(),
        folder: mounted.point().to_owned(),
        domain: info.domain_label(),
        promise: info.promise,
        replayed: recovery.replayed,
        dropped: recovery.dropped,
        orphans: recovery.orphans,
        replicas: if let Opened::Many(cluster) = &*opened { cluster.nodes().1.len() } else { 0 },
    };
    output.result(&serving, |serving| {
        let recovered = match (serving.replayed, serving.dropped) {
            (0, 0) => String::new(),
            (replayed, dropped) => format!("; {replayed} operations replayed, {dropped} unsynced ones dropped"),
        };
        let (volume, folder) = (&serving.volume, serving.folder.display());
        let promise = match serving.replicas {
            0 => serving.promise.clone(),
            count => format!("fsync waits for a majority of {count} replicas and of the metadata"),
        };
        format!("{volume} is mounted at {folder} ({}: {promise}){recovered}", serving.domain)
    })?;
    while !mounted.has_ended() && stopped.recv_timeout(WATCH) == Err(mpsc::RecvTimeoutError::Timeout) {}
    end(&mounted, output)?;
    mounted.wait()?;
    let volume = opened.volume()?;
    volume.sync().context("the last sync failed")?;
    volume.write_image().context("the last batch failed")?;
    output.note("unmounted; everything is durable");
    Ok(())
}

fn mount_options(args: &Args) -> Result<MountOptions> {
    let mut options = MountOptions::default();
    options.threads = args.threads.clamp(1, 64);
    options.allow_other |= args.allow_other;
    options.read_only = args.read_only;
    options.atime = !args.no_atime;
    options.consistency = args.consistency;
    options.on_loss = match (args.on_loss, args.timeout) {
        (Loss::Wait, None) => OnLoss::Wait,
        (Loss::Wait, Some(_)) => bail!("--timeout is the time until an error: say --on-loss error, or leave it out"),
        (Loss::Error, seconds) => OnLoss::Error(Duration::from_secs(seconds.unwrap_or(TIMEOUT_SECONDS))),
    };
    Ok(options)
}

#[derive(Serialize)]
struct ServingRemote {
    volume: String,
    folder: PathBuf,
    machine: u16,
    term: u32,
    network: &'static str,
}

/// Mounts a volume on several machines, and serves until a signal or an unmount.
fn run_remote(args: &Args, site: &Site, output: &Output) -> Result<()> {
    if args.replicas.is_some() || !args.nodes.is_empty() {
        bail!("{}: the volume is on several machines; leave --try and --nodes out", args.volume.path.display());
    }
    let (stop, stopped) = mpsc::channel();
    interrupt::on_signal(move || {
        // The receiver is gone only when the command has ended.
        let _ = stop.send(());
    });
    let options = mount_options(args)?;
    let volume = args.volume.remote_keeping(site, args.consistency == Consistency::Strong)?;
    let mounted = lodestone_fs_fuse::mount(Source::from(volume.clone()), &args.folder, &options)?;
    let (machine, term, _) = volume.leader();
    let serving = ServingRemote {
        volume: args.volume.path.display().to_string(),
        folder: mounted.point().to_owned(),
        machine,
        term,
        network: if site.is_sealed { "sealed" } else { "plain" },
    };
    output.result(&serving, |serving| {
        format!(
            "{} is mounted at {} (machine {} leads in term {}; the network is {}): fsync waits for a majority of the \
             replicas and of the metadata",
            serving.volume,
            serving.folder.display(),
            serving.machine,
            serving.term,
            serving.network
        )
    })?;
    while !mounted.has_ended() && stopped.recv_timeout(WATCH) == Err(mpsc::RecvTimeoutError::Timeout) {}
    end(&mounted, output)?;
    mounted.wait()?;
    volume.sync().context("the last sync failed")?;
    output.note("unmounted; everything is durable");
    Ok(())
}

/// Unmounts. While files are open it waits some seconds, then it hides the mount, which ends with the last of them.
fn end(mounted: &Mounted, output: &Output) -> Result<()> {
    for look in 0..BUSY_LOOKS {
        match mounted.unmount() {
            Err(error @ Error::Busy { .. }) => {
                if look == 0 {
                    output.note(&format!("{error}; waiting"));
                }
                std::thread::sleep(WATCH);
            }
            outcome => return outcome.map_err(anyhow::Error::from),
        }
    }
    output.note("the mount is hidden now and ends with the last open file; a second signal ends it at once");
    Ok(mounted.detach()?)
}
