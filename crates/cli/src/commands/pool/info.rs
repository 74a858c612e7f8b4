//! `lodestone pool info`.

use anyhow::Result;
use lodestone_heap::Usage;
use lodestone_pmem::{Pool, PoolInfo, PoolOptions};
use lodestone_store::Store;
use serde::Serialize;

use crate::output::{Output, properties};
use crate::size;

use super::{OpenArgs, is_untouched};

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

    /// For symmetry with the other commands that read: this one never changes a byte
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
    objects: Vec<ObjectLine>,
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
struct ObjectLine {
    name: String,
    kind: String,
    /// The kind of the object.
    what: String,
    /// The named members of the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<MemberLine>,
}

#[derive(Serialize)]
struct MemberLine {
    name: String,
    what: String,
}

impl InfoLine {
    fn new(info: &PoolInfo, objects: Vec<ObjectLine>, usage: Option<Usage>) -> Self {
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
            objects,
            warnings: info.warnings.clone(),
            usage,
        }
    }
}

/// Prints the facts about the pool.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let options = PoolOptions { allow_concurrent_writer: true, ..args.open.options()? };
    let pool = args.open.wait.retry(|| Ok(Pool::open_read_only(&args.open.path, &options)?))?;
    let info = pool.info();
    // A pool that a crash left, or that a writer is changing, may not allow a look inside. Its header is still shown.
    let store = Store::over(&pool);
    let objects = store.as_ref().map(objects_of).unwrap_or_default();
    let usage = match &store {
        Ok(store) if args.usage => Some(store.heap().usage()),
        _ => None,
    };
    if output.is_json() {
        output.json(&InfoLine::new(&info, objects, usage))?;
        return Ok(());
    }
    output.line(info.to_string().trim_end())?;
    if is_untouched(&pool) {
        output.line("objects        none: nothing was ever stored in this pool")?;
    } else if let Err(error) = &store {
        output.line(&format!("objects        not shown: {error}"))?;
    }
    for object in &objects {
        output.line(&format!("object         {}: {}", object.name, object.what))?;
        for member in &object.members {
            output.line(&format!("  inside       {}/{}: {}", object.name, member.name, member.what))?;
        }
    }
    if let Some(usage) = usage {
        output.line(&usage_text(&usage))?;
    }
    Ok(())
}

fn objects_of(store: &Store) -> Vec<ObjectLine> {
    let look_inside = |name: &str, kind| {
        let kind = store.find_kind(kind)?;
        let object = store.open_object(name).ok()?;
        let what = kind.describe(&object);
        let members = kind.members(object).unwrap_or_default();
        let members = members.into_iter().map(|member| MemberLine { name: member.name, what: member.what });
        Some((what, members.collect::<Vec<_>>()))
    };
    let line = |named: lodestone_store::Named| {
        let unknown = || format!("of a kind that this program does not know ({})", named.kind);
        // The check describes a damaged object.
        let closed = || (named.title.map_or_else(unknown, str::to_owned), Vec::new());
        let (what, members) = look_inside(&named.name, named.kind).unwrap_or_else(closed);
        ObjectLine { kind: named.kind.to_string(), what, members, name: named.name }
    };
    store.names().into_iter().map(line).collect()
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
