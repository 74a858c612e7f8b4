//! Machines that are added, drained and removed while the volume is used.
//!
//! 1. The machine that leads changes the *description* of the volume. The new text is an operation: an attribute of the
//!    root folder that no user sees. It counts when it is synced. So a change is there once and in order with others,
//!    and the next machine that leads finds it in its state.
//! 2. Each machine compares the revision of the others' descriptions with its own, many times a second, and gets a
//!    newer one. It keeps it in its folder. Transports and threads take the new addresses while they run. Mounts do the
//!    same.
//! 3. The machine that leads takes in the nodes of machines that run, and has those of a machine that *leaves* removed:
//!    the others have everything first. If it leaves itself, it lets another one take over before.
//!
//! A machine may leave when it is dead: its nodes are removed all the same.
//!
//! Several operators may change the machines at the same time: each change begins with the newest description, under
//! the lock of the volume. One that is said again finds that it is done, and waits until that is acknowledged.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lodestone_fabric::{NodeId, OPERATIONS, Role, Sequence};
use lodestone_pmem::sync::lock;

use super::site::{Site, replica_of};
use super::{Compared, MachineHandle, MachineOptions, Shared};
use crate::cluster::link::{End, Link, UNIT};
use crate::cluster::net::Network;
use crate::cluster::remote::newest_site;
use crate::cluster::status::{ClusterStatus, MachineStatus};
use crate::core::Core;
use crate::error::{Error, Result, damaged};
use crate::inode::ROOT;
use crate::lease::table::Keys;
use crate::op::{Action, Op};
use crate::volume::Volume;

/// The attribute of the root folder that has the description.
const ATTRIBUTE: &[u8] = b"lodestone.machines";

/// Whether an attribute is not one of users.
pub(crate) fn is_own(name: &[u8]) -> bool {
    name.starts_with(b"lodestone.")
}

/// Where a machine keeps the description.
pub(super) fn place(folder: &Path) -> PathBuf {
    folder.join("description")
}

/// The newest description of those in the given file and in the machine's folder. If neither has the machine, the
/// other machines are asked.
pub(super) fn newest_at_start(given: &Site, options: &MachineOptions) -> Result<Site> {
    let kept = place(&options.folder);
    let kept = if kept.exists() { Some(Site::read(&kept)?) } else { None };
    let newest = kept.filter(|kept| kept.volume == given.volume && kept.revision > given.revision);
    let newest = newest.unwrap_or_else(|| given.clone());
    if newest.machines.contains_key(&options.machine) {
        return Ok(newest);
    }
    // It was added after the file was copied.
    Ok(newest_site(&newest, &options.security))
}

impl Volume {
    /// The description in the volume, if it was ever changed.
    fn description(&self) -> Result<Option<Site>> {
        description(&mut self.inner.core())
    }

    /// Changes the description, of which `known` is a copy, unless it is as it is to be. Returns it, and the operation
    /// that has to be acknowledged before it counts: perhaps one of an earlier change, which did not wait for that.
    fn change_description(
        &self,
        known: &Site,
        change: &mut dyn FnMut(&mut Site) -> Result<()>,
    ) -> Result<(Site, Sequence)> {
        let unchanged = std::cell::RefCell::new(None);
        let plan = |core: &mut Core, at| {
            let before = description(core)?.filter(|found| found.revision > known.revision);
            let before = before.unwrap_or_else(|| known.clone());
            let mut site = before.clone();
            change(&mut site)?;
            if site == before {
                unchanged.replace(Some((site, core.log.last())));
                return Ok(None);
            }
            site.revision += 1;
            site.check()?;
            let (name, value) = (ATTRIBUTE.to_vec(), Some(site.to_text().into_bytes()));
            Ok(Some((Op { ino: ROOT, at, action: Action::Extra { name, value } }, site)))
        };
        let done = |core: &mut Core, site| Ok((site, core.log.last()));
        self.inner.commit_or_not(&[], plan, done, || unchanged.take().ok_or(Error::Gone))
    }
}

fn description(core: &mut Core) -> Result<Option<Site>> {
    let Some(bytes) = core.file(ROOT)?.extra.get(ATTRIBUTE) else { return Ok(None) };
    let wrong = || damaged("namespace", "the description of the machines makes no sense");
    std::str::from_utf8(bytes).ok().and_then(Site::parse).map(Some).ok_or_else(wrong)
}

impl Shared {
    /// The newest description that is known here, of a machine.
    pub(crate) fn site(&self) -> Option<Arc<Site>> {
        self.machine.as_ref().map(super::Machinery::site)
    }

    /// Whether the nodes of a machine are not to count.
    pub(crate) fn leaves(&self, machine: u16) -> bool {
        self.site().is_some_and(|site| site.leaving.contains(&machine) || !site.machines.contains_key(&machine))
    }

    /// Whether this machine leaves.
    pub(crate) fn own_leaves(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| self.leaves(machine.number))
    }

    /// Why this machine has to end: the volume does not have it any more.
    pub(super) fn removal(&self) -> Option<String> {
        let (machine, site) = (self.machine.as_ref()?, self.site()?);
        (!site.machines.contains_key(&machine.number)).then(|| {
            format!(
                "machine {} was removed from volume {:016x}; its folder is not used any more",
                machine.number, site.volume
            )
        })
    }

    /// Takes a newer description.
    pub(crate) fn take_site(&self, new: Site) -> Result<()> {
        let (Some(machine), Network::Machines(directory, _)) = (&self.machine, &self.network) else { return Ok(()) };
        let mut site = lock(&machine.site);
        if new.volume != site.volume || new.revision <= site.revision {
            return Ok(());
        }
        // Also after a restart it is known where the others are.
        new.replace(&machine.description)?;
        directory.replace(new.map());
        tracing::info!("the volume has other machines: revision {}", new.revision);
        *site = Arc::new(new);
        Ok(())
    }

    /// The machine that leads: takes the description that its state has, and hands over when it leaves.
    ///
    /// A description counts when it is acknowledged. Before that the next metadata node may cut its operation, and give
    /// another one the same revision.
    pub(crate) fn look_at_description(&self) {
        let Some(machine) = &self.machine else { return };
        let Ok((volume, link)) = self.leading_here() else { return };
        let is_due = {
            let mut compared = lock(&machine.compared);
            if compared.term != link.term() {
                // The adopted log may have a change whose machine ended before it was acknowledged.
                *compared = Compared { term: link.term(), after: Some(volume.inner.core().log.last()) };
            }
            compared.after.take_if(|after| link.has_acknowledged(*after)).is_some()
        };
        if is_due {
            let taken = volume.description().and_then(|found| found.map_or(Ok(()), |found| self.take_site(found)));
            if let Err(error) = taken {
                tracing::error!("the description of the volume's machines is not taken: {error}");
            }
        }
        if self.own_leaves() && self.another_can_lead(&link) {
            tracing::info!("machine {} leaves: another one takes over", machine.number);
            link.end(End::Stopped);
        }
    }

    /// Whether another machine that stays counts, and runs.
    fn another_can_lead(&self, link: &Link) -> bool {
        let elsewhere = self.nodes_elsewhere();
        let sending = link.sending();
        let view = sending.leader.volume().operations().view();
        let able = |node: NodeId| {
            let found = elsewhere.iter().find(|found| found.node == node);
            found.is_some_and(|found| found.runs && !found.lacks_image) && !self.leaves(node.0)
        };
        sending.leader.volume().is_sending() && view.active().any(able)
    }

    /// How each machine stands.
    pub(crate) fn status_of_site(&self, status: &mut ClusterStatus, link: Option<&Link>) {
        let Some(site) = self.site() else { return };
        status.revision = site.revision;
        for (machine, address) in &site.machines {
            let roles = link.map(|link| roles(link, *machine));
            let state = match (roles, site.leaving.contains(machine)) {
                (None, _) => "unknown",
                (Some([None, None]), true) => "drained",
                (Some(_), true) => "leaves",
                (Some([Some(Role::Active), Some(Role::Active)]), false) => "counts",
                (Some([None, None]), false) => "away",
                (Some(_), false) => "joins",
            };
            let (address, state) = (address.to_string(), state.to_owned());
            status.machines.push(MachineStatus { machine: *machine, address, state });
        }
    }
}

/// How the two nodes of a machine count.
fn roles(link: &Link, machine: u16) -> [Option<Role>; 2] {
    let sending = link.sending();
    let role = |group, node| sending.leader.volume().group(group).and_then(|sender| sender.view().role(node));
    [role(OPERATIONS, NodeId(machine)), role(UNIT, replica_of(machine))]
}

fn add(site: &mut Site, machine: u16, address: SocketAddrV4) -> Result<()> {
    let wrong = |text: String| Err(Error::Options(text));
    match site.machines.insert(machine, address) {
        Some(at) if at != address => {
            wrong(format!("machine {machine} of the volume is at {at}; remove it first, or take another number"))
        }
        _ if site.leaving.contains(&machine) => {
            wrong(format!("machine {machine} is being drained; remove it first, then add it"))
        }
        // Or it was done before, and the answer was lost.
        _ => Ok(()),
    }
}

impl MachineHandle {
    /// Adds a machine that will listen at `address`. Its nodes join when it runs. One that is there already, at this
    /// address, stays.
    ///
    /// # Errors
    /// [`Error::Gone`]: this machine does not lead. A number or ports that another machine has; one that is drained; no
    /// quorum: the change counts when there is one; a caller who is no operator.
    pub fn add_machine(&self, machine: u16, address: SocketAddrV4) -> Result<Site> {
        self.change(&mut |site| add(site, machine, address))
    }

    /// Drains a machine: its nodes are removed when the others have everything. They do not count when the status says
    /// so. A machine that is dead may be drained, too.
    ///
    /// # Errors
    /// [`Error::Gone`]: this machine does not lead. No such machine; too few others that count; a caller who is no
    /// operator.
    pub fn drain_machine(&self, machine: u16) -> Result<Site> {
        let (_, link) = self.shared.leading_here()?;
        let least = link.members_min.get(&UNIT).copied().unwrap_or(1);
        self.change(&mut |site| {
            site.address(machine)?;
            if site.leaving.contains(&machine) {
                // It was done before, and the answer was lost.
                return Ok(());
            }
            let stays = |other: &&u16| **other != machine && !site.leaving.contains(other);
            let whole = |other: &&u16| roles(&link, **other) == [Some(Role::Active); 2];
            let others = site.machines.keys().filter(stays).filter(whole).count();
            if others < least.max(1) {
                return Err(Error::Options(format!(
                    "of the other machines {others} have everything, and {least} are to (--min-copies); add \
                     one first, and wait until it counts"
                )));
            }
            site.leaving.insert(machine);
            Ok(())
        })
    }

    /// Takes a machine that is drained out of the volume. Its process ends by itself.
    ///
    /// # Errors
    /// [`Error::Gone`]: this machine does not lead. No such machine; one that is not drained yet; a caller who is no
    /// operator.
    pub fn remove_machine(&self, machine: u16) -> Result<Site> {
        let (_, link) = self.shared.leading_here()?;
        self.change(&mut |site| {
            site.address(machine)?;
            if !site.leaving.contains(&machine) || roles(&link, machine) != [None; 2] {
                return Err(Error::Options(format!("machine {machine} still counts; drain it first")));
            }
            site.machines.remove(&machine);
            site.leaving.remove(&machine);
            Ok(())
        })
    }

    fn change(&self, change: &mut dyn FnMut(&mut Site) -> Result<()>) -> Result<Site> {
        if !self.may_change {
            let text = "the machines of a volume are changed with the certificate of an operator (`lodestone fabric token \
                        --operator`)";
            return Err(Error::Options(text.into()));
        }
        let (changed, number, link) = self.submit(change)?;
        match link.wait_acknowledged(number) {
            Ok(()) => {}
            Err(Error::Gone) => return Err(Error::Gone),
            Err(error) => {
                return Err(Error::Options(format!(
                    "{error}; the change is not undone and counts when they answer; say it again to wait for that"
                )));
            }
        }
        self.shared.take_site(changed.clone())?;
        Ok(changed)
    }

    /// Makes the change an operation. It counts when the operation is acknowledged, also if no caller waits for that.
    fn submit(&self, change: &mut dyn FnMut(&mut Site) -> Result<()>) -> Result<(Site, Sequence, Arc<Link>)> {
        let (Some(known), Some(machine)) = (self.shared.site(), &self.shared.machine) else { return Err(Error::Gone) };
        let (volume, link) = self.shared.leading_here()?;
        let leases = machine.leases(link.term()).ok_or(Error::Gone)?;
        // The description is an attribute of the root folder, whose time of change is what mounts may keep.
        let _recalled = leases.recall(&link, || Keys { others: vec![ROOT], ..Keys::default() })?;
        let (changed, number) = volume.change_description(&known, change)?;
        let mut compared = lock(&machine.compared);
        if compared.term == link.term() {
            compared.after = compared.after.max(Some(number));
        }
        drop(compared);
        Ok((changed, number, link))
    }

    /// As [`add_machine`](Self::add_machine), and ends before the change is acknowledged.
    ///
    /// # Errors
    /// As [`add_machine`](Self::add_machine).
    #[cfg(feature = "oracle")]
    pub fn add_machine_and_end(&self, machine: u16, address: SocketAddrV4) -> Result<()> {
        self.submit(&mut |site| add(site, machine, address)).map(drop)
    }
}
