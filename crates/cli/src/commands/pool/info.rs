//! `lodestone pool info`.

use std::process::ExitCode;

use anyhow::Result;
use lodestone_heap::{Heap, HeapOptions, Usage};
use lodestone_index::{KIND_LIVE, KIND_RECORDS, index_of_map, index_root_of};
use lodestone_pmem::{Pool, PoolInfo, PoolOptions, RootInfo};
use serde::Serialize;

use crate::output::{Output, exit, properties};
use crate::size;

use super::OpenArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone pool info orders.pool
  lodestone pool info orders.pool --usage
  lodestone pool info orders.pool --json

Changes no byte, and works while a writer has the pool open (what it shows may then be a moment old). The domain shown is
the one that a writer would get.";

/// Arguments of `lodestone pool info`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    open: OpenArgs,

    /// Accepted as by the other commands that read; this one never changes a byte
    #[arg(long)]
    read_only: bool,

    /// Show how full the heap is
    #[arg(long)]
    usage: bool,
}

#[derive(Serialize)]
struct InfoLine {
    path: String,
    domain: String,
    promise: String,
    medium: Option<String>,
    domain_reason: String,
    uuid: String,
    format_version: u32,
    features: [u64; 3],
    layout: String,
    layout_version: u32,
    created_unix_ns: u64,
    boot: u64,
    was_clean: bool,
    journal_bytes: u64,
    pool_bytes: u64,
    heap_bytes: u64,
    parts: Vec<PartLine>,
    roots: Vec<RootLine>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct PartLine {
    path: String,
    uuid: String,
    part_bytes: u64,
    heap_bytes: u64,
    file_system: String,
    huge_pages: bool,
    numa_node: Option<u32>,
    node: Option<u32>,
    node_origin: String,
}

#[derive(Serialize)]
struct RootLine {
    name: String,
    kind: u32,
    /// What the root is, when it is a map of this program.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<String>,
    addr: String,
}

impl InfoLine {
    fn new(pool: &Pool, info: &PoolInfo, usage: Option<Usage>) -> Self {
        let parts: Vec<_> = info
            .parts
            .iter()
            .map(|part| PartLine {
                path: part.path.display().to_string(),
                uuid: part.uuid.to_string(),
                part_bytes: part.part_bytes,
                heap_bytes: part.heap_bytes,
                file_system: part.file_system.clone(),
                huge_pages: part.huge_pages,
                numa_node: part.numa_node,
                node: part.node.id,
                node_origin: part.node.origin.to_string(),
            })
            .collect();
        let root = |root: &RootInfo| RootLine {
            name: root.name.clone(),
            kind: root.kind,
            holds: holds(pool, root),
            addr: root.addr.to_string(),
        };
        Self {
            path: parts.first().map(|part| part.path.clone()).unwrap_or_default(),
            domain: info.domain_label(),
            promise: info.promise.clone(),
            medium: info.medium.clone(),
            domain_reason: info.domain_reason.clone(),
            uuid: info.set_uuid.to_string(),
            format_version: info.format_version,
            features: info.features,
            layout: info.layout_name.clone(),
            layout_version: info.layout_version,
            created_unix_ns: info.created_unix_ns,
            boot: info.boot,
            was_clean: info.was_clean,
            journal_bytes: info.journal_bytes,
            pool_bytes: info.parts.iter().map(|part| part.part_bytes).sum(),
            heap_bytes: info.parts.iter().map(|part| part.heap_bytes).sum(),
            parts,
            roots: info.roots.iter().map(root).collect(),
            warnings: info.warnings.clone(),
            usage,
        }
    }
}

/// Prints what the pool is.
pub fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let options = PoolOptions { allow_concurrent_writer: true, ..args.open.options()? };
    let pool = args.open.wait.retry(|| Ok(Pool::open_read_only(&args.open.path, &options)?))?;
    let usage = if args.usage { Some(Heap::open(&pool, &HeapOptions::default())?.usage()) } else { None };
    let info = pool.info();
    if output.is_json() {
        output.json(&InfoLine::new(&pool, &info, usage))?;
        return Ok(exit::ok());
    }
    output.line(info.to_string().trim_end())?;
    for root in &info.roots {
        if let Some(holds) = holds(&pool, root) {
            output.line(&format!("map            {}: {holds}", root.name))?;
        }
    }
    if let Some(usage) = usage {
        output.line(&usage_text(&usage))?;
    }
    Ok(exit::ok())
}

/// What a map is made of; `None` for other roots.
fn holds(pool: &Pool, root: &RootInfo) -> Option<String> {
    match root.kind {
        KIND_LIVE => Some("ordered-map".into()),
        KIND_RECORDS => {
            // A damaged anchor is what the check is for.
            let index = index_of_map(pool, &root.name).ok()??;
            Some(format!("records over {index}, whose root is {}", index_root_of(&root.name)))
        }
        _ => None,
    }
}

fn usage_text(usage: &Usage) -> String {
    let chunks = |count: u64| size::human(count * usage.chunk_bytes);
    properties([
        ("heap used", size::human(usage.bytes_used)),
        ("heap free", chunks(usage.chunks_free)),
        ("longest free", chunks(usage.chunks_free_run_max)),
        ("fragmentation", format!("{:.0} %", usage.fragmentation * 100.0)),
        ("damaged", chunks(usage.chunks_damaged)),
        ("extents", format!("{} ({})", usage.extents, chunks(usage.extent_chunks))),
    ])
    .lines()
    .map(str::to_owned)
    .chain(usage.parts.iter().filter(|_| usage.parts.len() > 1).map(|part| {
        let node = part.node.map_or_else(|| "unknown".into(), |node| node.to_string());
        let (used, free) = (size::human(part.bytes_used), chunks(part.chunks_free));
        format!("part {:<8}  {used} used, {free} free, node {node}", part.part)
    }))
    .collect::<Vec<_>>()
    .join("\n")
}
