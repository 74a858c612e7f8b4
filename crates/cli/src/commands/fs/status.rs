//! `lodestone fs status`.

use std::time::Duration;

use anyhow::{Result, bail};
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use lodestone_fs::MetadataUsage;
use lodestone_fs::cluster::{ClusterStatus, CopyProgress, NodeStatus};
use serde::Serialize;

use super::{Opened, VolumeArgs, control, machines};
use crate::output::Output;
use crate::size;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs status notes.vol
  lodestone fs status notes.vol --json
  lodestone fs status notes.vol --watch

`used` is what pages of files take. The line `metadata` says what everything else takes: the log,
checksums of pages, and the image with files and folders. It is that of the last batch of the image.

Of a mounted volume with replicas it shows the nodes: who leads, the term, and how many
records each has not reported as durable, and of one that joins how much of the pages or of the
metadata it has copied, how fast, and the time that is left. Another mounted volume is in use; `df FOLDER`
shows its room.";

/// Pause between two looks.
const WATCH: Duration = Duration::from_secs(1);

/// Arguments of `lodestone fs status`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,

    /// Show the nodes of a mounted volume again every second, until Ctrl-C or the end of the mount
    #[arg(long)]
    watch: bool,
}

#[derive(Serialize)]
struct Status {
    volume: String,
    id: String,
    domain: String,
    promise: String,
    files: u64,
    size_bytes: u64,
    used_bytes: u64,
    available_bytes: u64,
    metadata: MetadataUsage,
    replayed: u64,
    dropped: u64,
    /// Copies of data, and of metadata.
    copies: (usize, usize),
    nodes: Option<ClusterStatus>,
}

/// Shows the state of the volume.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    if args.watch {
        return watch(args, output);
    }
    if let Some(site) = args.volume.site()? {
        return output.result(&machines::status(&args.volume, &site)?, text_of_nodes);
    }
    if let Some(nodes) = control::status(&args.volume.path)? {
        return output.result(&nodes, text_of_nodes);
    }
    let opened = args.volume.open()?;
    let volume = opened.volume()?;
    let mut nodes = if let Opened::Many(cluster) = &opened { Some(cluster.status()) } else { None };
    // It is told once, above the nodes.
    let metadata = nodes.as_mut().and_then(|nodes| nodes.metadata.take());
    let (room, recovery, info) = (volume.room(), volume.recovery(), volume.store().pool().info());
    let copies_of = |group: usize| nodes.as_ref().and_then(|nodes| nodes.groups.get(group)).map_or(1, |g| g.copies);
    let status = Status {
        volume: args.volume.path.display().to_string(),
        id: format!("{:016x}", volume.id()),
        domain: info.domain_label(),
        promise: info.promise,
        files: room.files,
        size_bytes: room.pages * room.page_bytes,
        used_bytes: (room.pages - room.free) * room.page_bytes,
        available_bytes: room.available * room.page_bytes,
        metadata: metadata.map_or_else(|| volume.metadata(), Ok)?,
        replayed: recovery.replayed,
        dropped: recovery.dropped,
        copies: (copies_of(1), copies_of(0)),
        nodes,
    };
    output.result(&status, |status| {
        let nodes = status.nodes.as_ref().map(|nodes| format!("\n{}", text_of_nodes(nodes))).unwrap_or_default();
        format!(
            "volume     {} ({})\ndomain     {}: {}\nfiles      {}\nused       {} of {}, {} available\n\
             metadata   {}\nrecovery   {} operations replayed, {} unsynced ones dropped\n\
             copies     {} of data, {} of metadata{nodes}",
            status.volume,
            status.id,
            status.domain,
            status.promise,
            status.files,
            size::human(status.used_bytes),
            size::human(status.size_bytes),
            size::human(status.available_bytes),
            metadata_of(&status.metadata),
            status.replayed,
            status.dropped,
            status.copies.0,
            status.copies.1,
        )
    })
}

/// Shows the nodes until their process ends. The volume is never opened here: its next mount would be refused.
fn watch(args: &Args, output: &Output) -> Result<()> {
    let path = args.volume.path.display();
    if let Some(site) = args.volume.site()? {
        loop {
            output.result(&machines::status(&args.volume, &site)?, text_of_nodes)?;
            std::thread::sleep(WATCH);
        }
    }
    let mut has_seen = false;
    while let Some(nodes) = control::status(&args.volume.path)? {
        has_seen = true;
        output.result(&nodes, text_of_nodes)?;
        std::thread::sleep(WATCH);
    }
    if !has_seen {
        bail!(
            "{path}: no process has it with replicas, so there is nothing to watch; leave --watch out to look at it once"
        );
    }
    output.note(&format!("{path}: the process that had the volume has ended"));
    Ok(())
}

/// Fewer files say nothing of the bytes for each: an empty image takes about a megabyte.
const FILES_MIN: u64 = 1000;

/// The use of a pool by metadata:
/// `3 MiB, of that 1.5 MiB for 2000 files and folders, 786 B each; 12 MiB of the pool free`.
fn metadata_of(usage: &MetadataUsage) -> String {
    let each = match usage.files {
        FILES_MIN.. => format!(", {} each", size::human(usage.bytes_per_file)),
        _ => String::new(),
    };
    let nodes = match usage.node_bytes {
        0 => String::new(),
        bytes => format!("; {} beside it for rings and logs of its nodes", size::human(bytes)),
    };
    format!(
        "{}, of that {} for {} files and folders{each}; {} of the pool free{nodes}",
        size::human(usage.used_bytes),
        size::human(usage.image_bytes),
        usage.files,
        size::human(usage.free_bytes)
    )
}

/// How far a copy is: `3 MiB of 12 MiB, 25 %, 1.5 MiB/s, 6 s left`.
fn copied_of(copied: &CopyProgress) -> String {
    let percent = copied.done_bytes.saturating_mul(100) / copied.all_bytes.max(1);
    let left = copied.left_seconds.map_or_else(String::new, |seconds| format!(", {} left", time(seconds)));
    format!(
        "{} of {}, {percent} %, {}/s{left}",
        size::human(copied.done_bytes),
        size::human(copied.all_bytes),
        size::human(copied.bytes_per_second)
    )
}

/// A time that is left: `6 s`, `2 min 5 s`, `3 h 20 min`.
fn time(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Nodes that copy what they lack, a line for each.
pub fn copies_of(status: &ClusterStatus) -> Vec<String> {
    let line = |node: &NodeStatus| {
        let copied = node.copied.filter(|copied| copied.done_bytes < copied.all_bytes)?;
        Some(format!("node {} has copied {}", node.node, copied_of(&copied)))
    };
    status.nodes.iter().filter_map(line).collect()
}

fn text_of_nodes(status: &ClusterStatus) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(["node", "keeps", "state", "records behind", "copied", "silent"]);
    for node in &status.nodes {
        let number = |value: Option<u64>, unit: &str| value.map_or_else(String::new, |value| format!("{value}{unit}"));
        table.add_row([
            node.node.to_string(),
            node.keeps.clone(),
            node.state.clone(),
            number(node.behind, ""),
            node.copied.map_or_else(String::new, |copied| copied_of(&copied)),
            number(node.silent_ms, " ms"),
        ]);
    }
    let group = |group: &lodestone_fs::cluster::GroupStatus| {
        let name = if group.group == 0 { "metadata".to_owned() } else { format!("unit {}", group.group) };
        format!(
            "{name}: {} copies in view {}, of which {} make a record count; {} records, {} acknowledged, {} at all\n",
            group.copies, group.view, group.quorum, group.last, group.acknowledged, group.stable
        )
    };
    let groups: String = status.groups.iter().map(group).collect();
    let warnings: String = status.warnings.iter().map(|warning| format!("\nwarning: {warning}")).collect();
    let machine = |machine: &lodestone_fs::cluster::MachineStatus| {
        format!("machine {} at {}: {}\n", machine.machine, machine.address, machine.state)
    };
    let machines: String = status.machines.iter().map(machine).collect();
    let leads = if status.term == 0 {
        "no node leads".to_owned()
    } else {
        let mounts = if status.mounts > 0 { format!(", {} mounts", status.mounts) } else { String::new() };
        format!(
            "node {} leads in term {}, over `{}`; {} takeovers since the start of its process{mounts}",
            status.leader, status.term, status.transport, status.takeovers
        )
    };
    let metadata =
        status.metadata.as_ref().map_or_else(String::new, |usage| format!("metadata takes {}\n", metadata_of(usage)));
    format!("{leads}\n{metadata}{groups}{machines}{table}{warnings}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_joins_says_how_far_its_copy_is() {
        let mut status = ClusterStatus::default();
        status.nodes.push(NodeStatus {
            node: 104,
            keeps: "pages".into(),
            state: "joins".into(),
            behind: Some(7),
            executed: None,
            lacks_image: false,
            copied: Some(CopyProgress {
                done_bytes: 3 << 20,
                all_bytes: 12 << 20,
                bytes_per_second: 64 << 10,
                left_seconds: Some(144),
            }),
            silent_ms: None,
        });
        let text = text_of_nodes(&status);
        assert!(text.contains("copied") && text.contains("of 12") && text.contains("25 %"), "{text}");
        assert!(text.contains("64 KiB/s, 2 min 24 s left"), "{text}");
        assert_eq!(copies_of(&status), ["node 104 has copied 3 MiB of 12 MiB, 25 %, 64 KiB/s, 2 min 24 s left"]);
        let json = serde_json::to_value(&status).expect("JSON");
        assert_eq!(json["nodes"][0]["copied"]["done_bytes"], 3 << 20, "{json}");
        // A program of before told no rate.
        let mut former = json.clone();
        former.as_object_mut().expect("a status").remove("metadata");
        let copied = former["nodes"][0]["copied"].as_object_mut().expect("a copy");
        copied.remove("bytes_per_second");
        copied.remove("left_seconds");
        let former: ClusterStatus = serde_json::from_value(former).expect("a status");
        assert_eq!(copies_of(&former), ["node 104 has copied 3 MiB of 12 MiB, 25 %, 0 B/s"]);
        assert_eq!([time(7), time(60), time(12_000)], ["7 s", "1 min 0 s", "3 h 20 min"]);
        // Nor the use by metadata.
        assert_eq!(former.metadata, None);
        // Of a machine with a former program there is none.
        let mut json = json;
        json["nodes"][0].as_object_mut().expect("a node").remove("copied");
        let status: ClusterStatus = serde_json::from_value(json).expect("a status");
        assert_eq!(status.nodes[0].copied, None);
    }

    #[test]
    fn the_bytes_of_a_file_are_told_if_there_are_enough_files() {
        let usage = |files, image_bytes: u64| MetadataUsage {
            files,
            used_bytes: 3 << 20,
            image_bytes,
            bytes_per_file: image_bytes / files,
            free_bytes: 12 << 20,
            node_bytes: 0,
        };
        let few = metadata_of(&usage(2, 1 << 20));
        assert_eq!(few, "3 MiB, of that 1 MiB for 2 files and folders; 12 MiB of the pool free");
        let many = metadata_of(&usage(2048, 3 << 19));
        assert_eq!(many, "3 MiB, of that 1.5 MiB for 2048 files and folders, 768 B each; 12 MiB of the pool free");
        let beside = metadata_of(&MetadataUsage { node_bytes: 5 << 20, ..usage(2, 1 << 20) });
        assert_eq!(beside, format!("{few}; 5 MiB beside it for rings and logs of its nodes"));
        let mut status = ClusterStatus::default();
        status.metadata = Some(usage(2, 1 << 20));
        assert!(text_of_nodes(&status).contains(&format!("metadata takes {few}")), "{}", text_of_nodes(&status));
    }
}
