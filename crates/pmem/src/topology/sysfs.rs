//! Nodes as sysfs describes them: `devices/system/node` and `devices/system/cpu` under a root that tests can choose.
//!
//! Missing or unparsable files are left out, never guessed. A node without a readable `cpulist` is no node. A table of
//! distances of the wrong length is ignored.

use std::fs;
use std::path::Path;

use rustix::thread::CpuSet;

use super::Node;

/// The nodes under `sysfs`, by ascending number; empty where it does not describe any.
pub(super) fn read_nodes(sysfs: &Path) -> Vec<Node> {
    let folder = sysfs.join("devices/system/node");
    let online = online_cpus(sysfs);
    let ids = read_list(&folder.join("online"));
    ids.iter().filter_map(|id| read_node(&folder, u32::try_from(*id).ok()?, &online)).collect()
}

/// The processors that are switched on; empty where sysfs does not tell.
pub(super) fn online_cpus(sysfs: &Path) -> Vec<usize> {
    read_list(&sysfs.join("devices/system/cpu/online"))
}

fn read_node(folder: &Path, id: u32, online: &[usize]) -> Option<Node> {
    let folder = folder.join(format!("node{id}"));
    let mut cpus = parse_list(&fs::read_to_string(folder.join("cpulist")).ok()?);
    // The kernel leaves out what is switched off; a copied tree, or a processor that went off meanwhile, may not.
    cpus.retain(|cpu| online.is_empty() || online.contains(cpu));
    let distances = fs::read_to_string(folder.join("distance")).unwrap_or_default();
    let memory = fs::read_to_string(folder.join("meminfo")).unwrap_or_default();
    Some(Node {
        id,
        usable_cpus: cpus.clone(),
        cpus,
        memory_bytes: parse_meminfo(&memory),
        distances: distances.split_whitespace().filter_map(|distance| distance.parse().ok()).collect(),
    })
}

fn read_list(path: &Path) -> Vec<usize> {
    fs::read_to_string(path).map(|text| parse_list(&text)).unwrap_or_default()
}

/// Parses the kernel's list format: "0-3,8,10-11". Parts that do not parse are left out.
fn parse_list(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            found.extend(first..=last.min(first + CpuSet::MAX_CPU));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Bytes of the line "Node 0 MemTotal: 12345 kB".
fn parse_meminfo(text: &str) -> u64 {
    let line = text.lines().find(|line| line.contains("MemTotal:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().rev().nth(1)?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}
