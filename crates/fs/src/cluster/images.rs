//! The check of standbys' images, each in the process that has it.
//!
//! 1. *Hold*: the standby goes on to execute operations, and writes no batch meanwhile. It would wait only if its log
//!    were full.
//! 2. *Compare* all rules inside the image, as in the volume itself (`check`).
//! 3. *Checksums*: the standby has a table of its own, by which it would judge pages after a takeover. A page of a file
//!    must have the checksum there that the metadata node has. Both go on meanwhile, so a difference counts only if it
//!    is there in each of several looks. A machine that follows does not know those of the metadata node, and leaves
//!    this out.
//!
//! A standby that takes over meanwhile is left out of the report: it is the volume then.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use lodestone_fabric::{NodeId, OPERATIONS};
use lodestone_pmem::sync::lock;

use super::Shared;
use super::follow::Parts;
use super::plan::group_of;
use crate::check::{CheckFinding, CheckReport, CheckedImage, ImageReport, check_image};
use crate::error::Result;
use crate::inode::Content;
use crate::volume::Volume;

/// Looks at a checksum that differs. Between two of them the image of the standby has time for a batch.
const LOOKS: u32 = 4;

/// The images of the standbys of this process. It does not keep the volume open.
#[derive(Clone, Debug)]
pub struct Images(pub(super) Weak<Shared>);

/// The node that leads, and how often one took over: as long as both stay, who follows does so.
type Moment = (NodeId, u64);

impl Images {
    /// Compares them, and adds what it finds to the report. `volume`: the volume itself, if it is in this process.
    /// `reads_checksums`: the checksums of pages, too.
    ///
    /// # Errors
    /// A device that failed. Damage is a finding.
    pub fn check(&self, volume: Option<&Volume>, reads_checksums: bool, report: &mut CheckReport) -> Result<()> {
        let Some(shared) = self.0.upgrade() else { return Ok(()) };
        let (standbys, interval) = (shared.standbys(), shared.options.volume.batch_interval);
        // It may take long: the nodes may end meanwhile.
        drop(shared);
        let pause = interval + interval / 5;
        for (node, parts) in standbys {
            let moment = self.moment();
            let found = match &parts {
                Err(error) => (None, vec![finding(node, 0, format!("its image cannot be used: {error}"))]),
                Ok(parts) => compare(node, parts, volume.filter(|_| reads_checksums), pause)?,
            };
            if moment.is_some() && self.moment() == moment {
                report.images.extend(found.0);
                report.findings.extend(found.1);
            }
        }
        Ok(())
    }

    fn moment(&self) -> Option<Moment> {
        let shared = self.0.upgrade()?;
        let state = shared.state();
        Some((state.leader, state.takeovers))
    }
}

impl Shared {
    /// Nodes with metadata that follow here, and their parts, or why they have none.
    fn standbys(&self) -> Vec<(NodeId, std::result::Result<Parts, String>)> {
        let state = self.state();
        let leader = state.leading.as_ref().map(|_| state.leader);
        let follows = |node: NodeId| group_of(node) == OPERATIONS && Some(node) != leader;
        let standbys = state.places.iter().filter(|(node, place)| follows(**node) && place.is_wanted);
        let of = standbys.filter_map(|(node, place)| {
            let error = place.error.clone().or_else(|| place.node.as_ref()?.seen.error());
            // Without parts and without an error it gets a copy of an image now.
            let parts = error.map_or_else(|| place.parts.clone().map(Ok), |error| Some(Err(error)));
            Some((*node, parts?))
        });
        of.collect()
    }
}

fn finding(node: NodeId, ino: u64, finding: String) -> CheckFinding {
    CheckFinding { ino, path: String::new(), finding, node: node.0 }
}

fn compare(
    node: NodeId,
    parts: &Parts,
    volume: Option<&Volume>,
    pause: Duration,
) -> Result<(Option<CheckedImage>, Vec<CheckFinding>)> {
    let held = lock(&parts.hold);
    let ImageReport { report: found, owners, paths } = check_image(node.0, &parts.image, &parts.layout);
    let operation = parts.image.head().map_or(0, |head| head.applied);
    drop(held);
    let mut findings = found.findings;
    if let Some(volume) = volume {
        for (ino, offset) in other_checksums(parts, volume, owners, pause)? {
            let text = format!(
                "its checksum of the page at offset {offset} is not that of the metadata node: the page could not be \
                 read after a takeover; write the page again"
            );
            let path = paths.get(&ino).cloned().unwrap_or_default();
            findings.push(CheckFinding { path, ..finding(node, ino, text) });
        }
    }
    Ok((Some(CheckedImage { node: node.0, files: found.files, operation }), findings))
}

/// Pages, by file and offset, of which the standby has another checksum than the metadata node in each of several
/// looks.
fn other_checksums(
    parts: &Parts,
    volume: &Volume,
    owners: BTreeMap<u64, (u64, u64)>,
    pause: Duration,
) -> Result<Vec<(u64, u64)>> {
    let differs = |page: u64| {
        let right = volume.inner.crc_of(&volume.inner.core(), page);
        // A page that was freed meanwhile has none.
        right.is_some() && parts.data.checksum(page) != right
    };
    let mut others: Vec<(u64, (u64, u64))> = owners.into_iter().filter(|(page, _)| differs(*page)).collect();
    for _ in 1..LOOKS {
        if others.is_empty() {
            break;
        }
        std::thread::sleep(pause);
        let _held = lock(&parts.hold);
        let mut left = Vec::new();
        for (page, (ino, offset)) in others {
            let inode = parts.image.load(ino).ok().flatten();
            let at = offset / parts.layout.page_bytes;
            let has_it = inode.is_some_and(|inode| match &inode.content {
                Content::File(extents) => extents.page_of(at) == Some(page),
                _ => false,
            });
            if has_it && differs(page) {
                left.push((page, (ino, offset)));
            }
        }
        others = left;
    }
    Ok(others.into_iter().map(|(_, place)| place).collect())
}
