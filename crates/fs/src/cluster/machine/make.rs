//! The pools of a machine, made at its first start.
//!
//! 1. The keepers say whether the machine may be new: nothing was ever sent in the volume, or its nodes do not count.
//!    The first sender waits until all machines run, so one that counts and has no pools has lost what it acknowledged.
//! 2. The folder gets an empty volume, which is the same on all machines, and the pools of the two nodes.
//! 3. The file `volume` comes last: with it the machine is made.

use lodestone_fabric::{NodeId, OPERATIONS, Registry, Role, VolumeState};
use lodestone_pmem::PoolOptions;
use lodestone_registry::KeeperClient;

use super::site::{Site, replica_of};
use super::{MachineOptions, failed, owner_text};
use crate::cluster::link::UNIT;
use crate::cluster::make::{mark, sync_folder_of, write_owner};
use crate::cluster::plan::{Places, Plan};
use crate::cluster::pool::{NodePool, heads};
use crate::error::{Error, Result};
use crate::volume::{FormatOptions, Volume, VolumeOptions};

/// Bytes of the journal, by the size of the volume.
const JOURNAL_BYTES: (u64, u64) = (8 << 20, 64 << 20);

/// Makes the pools if that is asked for, or sees to it that they are this machine's.
pub(super) fn see_made(site: &Site, options: &MachineOptions, places: &Places, keepers: &KeeperClient) -> Result<()> {
    let own = owner_text(site, options.machine);
    let folder = options.folder.display();
    match (std::fs::read_to_string(places.owner()), options.makes) {
        (Ok(found), false) if found == own => Ok(()),
        (Ok(found), true) if found == own => {
            let text = "the machine was made before; start it without --new";
            Err(Error::Options(format!("{folder}: {text}")))
        }
        (Ok(found), _) => {
            let (found, own) = (found.trim(), own.trim());
            let text = format!("the folder is of volume {found}, not of {own}; give the folder of this machine");
            Err(Error::Options(format!("{folder}: {text}")))
        }
        (Err(error), true) if error.kind() == std::io::ErrorKind::NotFound => make(site, options, places, keepers),
        (Err(error), false) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = "the pools of the machine are not there. If it never ran, make them by --new. If it ran, start \
                        it with its former folder";
            Err(Error::Options(format!("{folder}: {text}")))
        }
        (Err(error), _) => Err(failed("reading it", &places.owner(), &error)),
    }
}

/// Refuses a machine that counts: its pools have what it acknowledged.
fn check_new(site: &Site, machine: u16, state: &VolumeState) -> Result<()> {
    let counts = |node: NodeId| {
        let mut views = state.groups.iter().map(|(_, view)| view.role(node));
        views.any(|role| role == Some(Role::Active))
    };
    let counting = [NodeId(machine), replica_of(machine)].into_iter().find(|node| counts(*node));
    match counting.filter(|_| state.term.0 > 0) {
        None => Ok(()),
        Some(node) => Err(Error::Options(format!(
            "{node} counts in volume {:016x}, so machine {machine} has run before. Start it with its former folder. If \
             that is lost, wait until the others have removed it, a second after they noticed, and make it anew then",
            site.volume
        ))),
    }
}

fn make(site: &Site, options: &MachineOptions, places: &Places, keepers: &KeeperClient) -> Result<()> {
    let machine = options.machine;
    check_new(site, machine, &keepers.state()?)?;
    let folder = &options.folder;
    std::fs::create_dir_all(folder).map_err(|error| failed("making the folder", folder, &error))?;
    let (meta, replica) = (NodeId(machine), replica_of(machine));
    for path in [places.image(meta), places.node(meta), places.node(replica)] {
        // Without the file `volume` they are what a kill has left.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("removing what is left", &path, &error));
            }
            _ => {}
        }
    }
    let pool = PoolOptions {
        size_bytes: site.size_bytes,
        journal_bytes: (site.size_bytes / 16).clamp(JOURNAL_BYTES.0, JOURNAL_BYTES.1),
        domain: options.domain,
        ..PoolOptions::default()
    };
    let format = FormatOptions {
        uid: site.owner.0,
        gid: site.owner.1,
        salt: site.volume,
        created: Some(site.created),
        ..FormatOptions::default()
    };
    let volume = Volume::format_with(places.image(meta), &pool, &format)?;
    volume.write_image()?;
    let layout = volume.inner.layout;
    drop(volume);
    mark(&places.image(meta), &pool, &VolumeOptions::default(), Plan::elsewhere())?;
    let head = heads(layout.volume_id, layout.salt, layout.page_bytes, layout.pages, 1).with_rings(site.rings);
    NodePool::create(&places.node(meta), options.domain, head.meta(meta), &mut |_| Ok(()))?;
    NodePool::create(&places.node(replica), options.domain, head.data(replica, UNIT), &mut |_| Ok(()))?;
    debug_assert!(head.meta(meta).group == OPERATIONS, "a node with metadata is of group 0");
    sync_folder_of(&places.owner())?;
    let own = owner_text(site, machine);
    write_owner(places, &own).map_err(|error| failed("writing the name of the volume", &places.owner(), &error))?;
    sync_folder_of(&places.owner())
}
