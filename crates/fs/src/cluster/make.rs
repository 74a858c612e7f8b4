//! A volume in one file becomes one with replicas: the pools of its nodes are made beside it.
//!
//! 1. Everything goes to a new folder, which names the volume first: pools of replicas with the pages that the volume
//!    has, copies of the volume for standbys, the registry.
//! 2. The volume gets its mark, in one transaction. From now on it has replicas. Before, the files are garbage, which
//!    the next attempt replaces. A folder that does not name the volume is someone else's, and is left alone.

use std::path::Path;

use lodestone_fabric::{LocalRegistry, NodeId, PageArea};
use lodestone_pmem::{CopyOptions, DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;
use lodestone_width::to_usize;

use super::link::UNIT;
use super::peers::Addresses;
use super::plan::{Places, Plan};
use super::pool::{NodeHead, NodePool, heads};
use crate::error::{Error, Result};
use crate::extents::Run;
use crate::image::Image;
use crate::volume::{Volume, VolumeOptions, pool_options};

/// Name of the layout of the registry's pool.
const REGISTRY_LAYOUT_NAME: &str = "lodestone.fs.registry";

fn failed(doing: &str, path: &Path, source: &std::io::Error) -> Error {
    Error::Options(format!("{}: {doing} failed: {source}", path.display()))
}

/// Options of the registry's pool.
fn registry_options(domain: DomainChoice) -> PoolOptions {
    PoolOptions {
        size_bytes: 4 << 20,
        journal_bytes: 2 << 20,
        layout_name: REGISTRY_LAYOUT_NAME.into(),
        layout_version: 1,
        domain,
        ..PoolOptions::default()
    }
}

/// Opens the registry of a volume.
pub(crate) fn open_registry(places: &Places, domain: DomainChoice) -> Result<(Pool, LocalRegistry)> {
    let pool = Pool::open(places.registry(), &registry_options(domain))?;
    let registry = LocalRegistry::open(pool.memory(), pool.heap_area(0).0)?;
    Ok((pool, registry))
}

/// The plan of the volume at `path`, if it has replicas.
pub(crate) fn plan_of(path: &Path, pool: &PoolOptions, options: &VolumeOptions) -> Result<Option<Plan>> {
    let pool = Pool::open(path, &pool_options(pool))?;
    let image = Image::open(&Store::over(&pool)?, &options.image)?;
    Plan::of_mark(image.mark()?, path)
}

/// Gives the volume at `path`, which no process uses, the nodes of `plan`, or those at addresses.
pub(crate) fn make(
    path: &Path,
    pool: &PoolOptions,
    options: &VolumeOptions,
    plan: Plan,
    elsewhere: Option<&Addresses>,
) -> Result<()> {
    let places = Places::of(path);
    let mut quiet = options.clone();
    quiet.background = false;
    let volume = Volume::open_with(path, pool, &quiet)?;
    volume.write_image()?;
    let layout = volume.inner.layout;
    if elsewhere.is_some() && volume.inner.core().state.space.used() > 0 {
        let text = format!(
            "{}: files with content cannot be moved to nodes elsewhere yet; format a volume for them, and copy files",
            path.display()
        );
        return Err(Error::Options(text));
    }
    make_folder(&places, layout.volume_id)?;
    let head = heads(layout.volume_id, layout.salt, layout.page_bytes, layout.pages, 1);
    for node in plan.datas() {
        NodePool::create(&places.node(node), pool.domain, head.data(node, UNIT), &mut |area| fill(&volume, area))?;
    }
    for node in plan.metas() {
        NodePool::create(&places.node(node), pool.domain, head.meta(node), &mut |_| Ok(()))?;
    }
    drop(volume);
    for node in plan.metas().into_iter().filter(|node| *node != NodeId(1)) {
        let image = places.image(node);
        Pool::open_read_only(path, &pool_options(pool))?.copy(&image, &CopyOptions::default())?;
        mark(&image, pool, options, plan)?;
    }
    let registry = Pool::create(places.registry(), &registry_options(pool.domain))?;
    let nodes: Vec<NodeId> = elsewhere.iter().flat_map(|addresses| addresses.nodes.keys().copied()).collect();
    LocalRegistry::create(registry.memory(), registry.heap_area(0).0, plan.views(&nodes))?;
    drop(registry);
    elsewhere.map_or(Ok(()), |addresses| addresses.write(&places.addresses()))?;
    // Names in the folder, before the volume refers to them. Its own name is durable since it was made.
    sync_folder_of(&places.registry())?;
    mark(path, pool, options, plan)
}

/// Makes the folder of the nodes, or takes one that an attempt with the same volume has left: without its files.
fn make_folder(places: &Places, volume_id: u64) -> Result<()> {
    let folder = &places.folder;
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(failed("making a folder", folder, &error));
        }
        _ => {}
    }
    let own = format!("{volume_id:016x}\n");
    let names_volume = std::fs::read_to_string(places.owner()).is_ok_and(|found| found == own);
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    for entry in entries.map_err(|error| failed("reading the folder", folder, &error))? {
        let (name, path) = (entry.file_name(), entry.path());
        // A kill comes before the folder names the volume: then it has at most the new name.
        if !names_volume && path != places.owner().with_extension("new") {
            return Err(Error::Options(format!(
                "{}: the folder of the volume's nodes would be here, and is not one of this volume: it has {}; move it \
                 away",
                folder.display(),
                name.display()
            )));
        }
        if Places::is_of_node(&name.to_string_lossy()) {
            std::fs::remove_file(&path).map_err(|error| failed("removing what is left", &path, &error))?;
        }
    }
    if !names_volume {
        write_owner(places, &own).map_err(|error| failed("writing the name of the volume", folder, &error))?;
        sync_folder_of(&places.owner())?;
    }
    sync_folder_of(folder)
}

pub(crate) fn write_owner(places: &Places, text: &str) -> std::io::Result<()> {
    let new = places.owner().with_extension("new");
    let file = std::fs::File::create(&new)?;
    std::io::Write::write_all(&mut &file, text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, places.owner())
}

/// Makes the name of a file, or of a folder, durable.
pub(crate) fn sync_folder_of(path: &Path) -> Result<()> {
    lodestone_pmem::sync_folder_of(path).map_err(|error| failed("syncing the folder of it", path, &error))
}

pub(crate) fn mark(path: &Path, pool: &PoolOptions, options: &VolumeOptions, plan: Plan) -> Result<()> {
    let pool = Pool::open(path, &pool_options(pool))?;
    Image::open(&Store::over(&pool)?, &options.image)?.set_mark(&plan.to_mark())
}

/// Writes the pages that the volume has into the area of a replica, with the checksums that they should have.
fn fill(volume: &Volume, area: &mut PageArea) -> Result<()> {
    let inner = &volume.inner;
    let mut bytes = vec![0; to_usize(inner.page_bytes())];
    let pages = inner.layout.pages;
    for page in 1..pages {
        if !inner.core().state.space.is_taken(page) {
            continue;
        }
        let Some(crc) = inner.data.checksum(page) else { continue };
        inner.data.read(Run { page, count: 1 }, &mut bytes)?;
        area.write(page, &bytes)?;
        area.save(std::iter::once((page, crc)));
    }
    Ok(())
}

/// Whether the head of a node is that of the volume's node. Nodes that may send have rings of one size: a takeover into
/// a smaller one than that of the sender before might wait for all members.
pub(crate) fn fits(found: &NodeHead, expected: &NodeHead) -> Result<()> {
    let node = expected.node;
    if (found.volume_id, found.node, found.group) != (expected.volume_id, node, expected.group) {
        let text = "is one of another volume or node; restore the folder of the nodes";
        return Err(Error::Options(format!("the pool of {node} {text}")));
    }
    let rings = |head: &NodeHead| (head.ring_bytes, head.unit_ring_bytes, head.pages);
    if rings(found) != rings(expected) {
        let (found, expected) = (rings(found), rings(expected));
        return Err(Error::Options(format!(
            "the pool of {node} has rings of {} and {} bytes for {} pages, the volume has rings of {} and {} for {}: all \
             nodes need the same ones; remove the node, and make it anew",
            found.0, found.1, found.2, expected.0, expected.1, expected.2
        )));
    }
    Ok(())
}
