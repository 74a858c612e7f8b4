//! A volume in one file becomes one with replicas: the pools of its nodes are made beside it.
//!
//! 1. Everything goes to a new folder: pools of replicas with the pages that the volume has, copies of the volume for
//!    standbys, the registry.
//! 2. The volume gets its mark, in one transaction. From now on it has replicas. Before, the folder is garbage, which
//!    the next attempt removes.

use std::path::Path;

use lodestone_fabric::{LocalRegistry, NodeId, OPERATIONS, PageArea};
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
    if places.folder.exists() {
        std::fs::remove_dir_all(&places.folder).map_err(|e| failed("removing what is left", &places.folder, &e))?;
    }
    std::fs::create_dir(&places.folder).map_err(|e| failed("making a folder", &places.folder, &e))?;
    let layout = volume.inner.layout;
    if elsewhere.is_some() && volume.inner.core().state.space.used() > 0 {
        let text = format!(
            "{}: files with content cannot be moved to nodes elsewhere yet; format a volume for them, and copy files",
            path.display()
        );
        return Err(Error::Options(text));
    }
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
    mark(path, pool, options, plan)
}

fn mark(path: &Path, pool: &PoolOptions, options: &VolumeOptions, plan: Plan) -> Result<()> {
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

/// Whether the head of a node fits the volume.
pub(crate) fn fits(head: &NodeHead, volume_id: u64, node: NodeId) -> Result<()> {
    let group = if super::plan::group_of(node) == OPERATIONS { OPERATIONS } else { UNIT };
    if (head.volume_id, head.node, head.group) == (volume_id, node, group) {
        return Ok(());
    }
    Err(Error::Options(format!("the pool of {node} is one of another volume or node; restore the folder of the nodes")))
}
