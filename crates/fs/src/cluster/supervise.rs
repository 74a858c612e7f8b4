//! The thread that sees to it that a node leads, and that nodes which join get an image.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_fabric::{GroupId, LEASE_NS, NodeId, OPERATIONS, Role, Sequence, Term, VolumeState};
use lodestone_pmem::CopyOptions;
use lodestone_pmem::sync::lock;

use super::follow::Follower;
use super::lead::{Leading, TakeOver};
use super::link::End;
use super::node::Node;
use super::plan::{group_of, meta_of};
use super::{CACHE_LIFETIME, CACHE_MARGIN, Shared, State};
use crate::error::{Error, Result};
use crate::volume::Volume;

/// How often it looks.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// How long a sender elsewhere is silent before the keepers are asked for it.
const SILENT_NS: u64 = LEASE_NS / 4;

/// Attempts to give a node that joins an image: some seconds.
const HELP_FAILURES_MAX: u32 = 500;

/// Starts the thread.
pub(super) fn start(shared: &Arc<Shared>) -> Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let failed = |error| Error::Options(format!("no thread for the nodes could be started: {error}"));
    let work = move || {
        while !shared.stop.load(Ordering::Acquire) {
            shared.look();
            std::thread::sleep(LOOK);
        }
    };
    std::thread::Builder::new().name("fs-nodes".into()).spawn(work).map_err(failed)
}

impl Shared {
    /// One look at everything.
    fn look(&self) {
        let ended = self.state().leading.as_ref().and_then(|leading| leading.link.ended());
        if let Some(end) = ended {
            self.stepped_down(end);
        }
        if self.state().leading.is_none() {
            if let Some(node) = self.candidate()
                && let Err(error) = self.lead(node)
            {
                tracing::warn!("{node} could not take over: {error}");
                self.follow_again(node);
            }
            return;
        }
        self.look_at_description();
        self.look_at_mounts();
        let outcome = self.help_joiners();
        let mut state = self.state();
        state.help_failures = if outcome.is_ok() { 0 } else { state.help_failures + 1 };
        if let Err(error) = outcome
            && state.help_failures == HELP_FAILURES_MAX
        {
            Self::give_up_joiner(&mut state, &error);
        }
    }

    /// Frees files without a name that no mount elsewhere has open.
    fn look_at_mounts(&self) {
        let Some(machine) = &self.machine else { return };
        let (volume, term, frees) = {
            let mut state = self.state();
            let Some(leading) = &mut state.leading else { return };
            (leading.volume.clone(), leading.link.term(), leading.orphans_are_due())
        };
        lock(&machine.mounts).in_term(term).forget_silent(&volume, machine.mount_lease);
        if frees && let Err(error) = volume.inner.free_orphans() {
            tracing::warn!("files without a name are not freed: {error}");
        }
    }

    /// A node that cannot get an image may not join: its log would fill up, and everybody would wait for it.
    fn give_up_joiner(state: &mut State, error: &Error) {
        state.help_failures = 0;
        let Some(leading) = &state.leading else { return };
        let joiner = {
            let sending = leading.link.sending();
            let view = sending.leader.volume().operations().view();
            view.members.iter().find(|member| member.role == Role::Joining).map(|member| member.node)
        };
        let Some(joiner) = joiner else { return };
        tracing::error!("{joiner} cannot join, it gets no image: {error}");
        leading.link.want(OPERATIONS, joiner, false);
        if let Some(place) = state.places.get_mut(&joiner) {
            place.error = Some(format!("it gets no image: {error}; stop it and start it again"));
        }
    }

    /// The node that led does not any more: it follows.
    fn stepped_down(&self, end: End) {
        let (node, leading) = {
            let mut state = self.state();
            (state.leader, state.take_leading())
        };
        tracing::warn!("{node} does not lead any more: {end:?}");
        if let Some(mut leading) = leading {
            leading.end(end);
        }
        self.follow_again(node);
    }

    /// Has the metadata node take over anew: its transports then know the present nodes. Programs see a delay.
    pub(super) fn restart_sender(&self) {
        if let Some(leading) = &self.state().leading {
            leading.link.end(End::Stopped);
        }
    }

    /// Gives a node that led, or tried to, a state of its image.
    fn follow_again(&self, node: NodeId) {
        let state = self.state();
        let Some(place) = state.places.get(&node) else { return };
        let (Some(running), Some(parts)) = (&place.node, &place.parts) else { return };
        let follower = Follower::open(parts, &self.options.volume);
        let sent = follower.and_then(|follower| running.follow(follower));
        if let Err(error) = sent {
            tracing::error!("{node} cannot follow: {error}");
        }
    }

    /// The node that should take over now: one that counts, and has not heard a sender for a lease. The one that sent
    /// last does not wait, and others wait in turn.
    fn candidate(&self) -> Option<NodeId> {
        if self.registry.is_elsewhere() && !self.may_be_needed() {
            return None;
        }
        let registry = self.ask_registry()?;
        if self.waits_for_first_starts(&registry) {
            return None;
        }
        let view = registry.view(OPERATIONS)?.clone();
        let metas = self.metas();
        let first = metas.first().copied().unwrap_or_default();
        let former = if registry.sender == NodeId(0) { first } else { meta_of(registry.sender) };
        let state = self.state();
        let may = |node: &NodeId| {
            let place = state.places.get(node).filter(|place| place.is_wanted && place.parts.is_some())?;
            let seen = &place.node.as_ref().filter(|node| !node.seen.has_ended())?.seen;
            let patience = match self.own_leaves() {
                // It hands over: as long as others can take over, they do.
                true => 3 * LEASE_NS,
                false => patience_of(*node, former, &metas),
            };
            let is_able = view.role(*node) == Some(Role::Active)
                && seen.is_active()
                && !seen.lacks_image.load(Ordering::Acquire)
                && seen.misses_sender(self.clock, patience);
            is_able.then_some(*node)
        };
        metas.iter().find_map(may)
    }

    /// Whether the volume has not begun, and some machine never ran. It begins when all of them have: from then on one
    /// that counts and has no pools has lost what it acknowledged.
    fn waits_for_first_starts(&self, registry: &VolumeState) -> bool {
        let Some(machine) = &self.machine else { return false };
        let runs = |other: &u16| *other == machine.number || self.has_answered(*other);
        let waits = registry.term == Term(0) && !machine.site().machines.keys().all(runs);
        machine.waits_for_first_starts.store(waits, Ordering::Release);
        waits
    }

    /// The present state of the volume at the registry; `None` if that does not answer.
    fn ask_registry(&self) -> Option<VolumeState> {
        let state = lock(&self.registry.shared).state();
        if let Some(machine) = &self.machine {
            *lock(&machine.keepers_down) = state.as_ref().err().map(ToString::to_string);
        }
        state.map_err(|error| tracing::warn!("{error}")).ok()
    }

    /// Whether a node of this process has heard no sender for a while: only then the keepers are asked.
    fn may_be_needed(&self) -> bool {
        let state = self.state();
        let nodes = state.places.values().filter(|place| place.is_wanted && place.parts.is_some());
        let seen = nodes.filter_map(|place| place.node.as_ref()).map(|node| &node.seen);
        let mut able = seen.filter(|seen| !seen.has_ended() && seen.is_active());
        able.any(|seen| seen.silent_ns(self.clock) >= SILENT_NS)
    }

    fn wanted(&self, state: &State) -> BTreeMap<GroupId, BTreeSet<NodeId>> {
        let mut wanted: BTreeMap<GroupId, BTreeSet<NodeId>> = BTreeMap::new();
        for (node, place) in state.places.iter().filter(|(_, place)| place.is_wanted && place.node.is_some()) {
            _ = place;
            wanted.entry(group_of(*node)).or_default().insert(*node);
        }
        let is_wanted = |node: NodeId| !self.leaves(super::machine::site::machine_of(node));
        for found in self.nodes_elsewhere().into_iter().filter(|found| found.runs && is_wanted(found.node)) {
            wanted.entry(group_of(found.node)).or_default().insert(found.node);
        }
        wanted
    }

    /// Has `node` take over.
    fn lead(&self, node: NodeId) -> Result<()> {
        let former = self.state().former.clone();
        let (running, outcome) = self.take_over(node, former.as_ref())?;
        if outcome.is_ok() {
            let last = former.as_ref().map(|former| former.inner.core().log.last());
            if last > Some(Sequence(self.kept.load(Ordering::Acquire))) {
                self.wait_for_caches();
            }
        }
        let mut state = self.state();
        let place = state.places.entry(node).or_default();
        if !place.is_wanted {
            drop(state);
            return self.stopped_meanwhile(node, running, outcome);
        }
        (place.is_taking_over, place.node) = (false, Some(running));
        let leading = outcome?;
        let kept = Sequence(self.kept.swap(u64::MAX, Ordering::AcqRel));
        if let Some(former) = &former {
            leading.volume.inner.go_on_from(&former.inner, kept);
        }
        tracing::info!("{node} leads");
        // Nodes may have been stopped and started since the takeover began.
        for (other, place) in &state.places {
            if place.is_wanted && place.node.is_some() {
                leading.link.want(group_of(*other), *other, true);
            } else {
                leading.link.unwant(group_of(*other), *other, true);
            }
        }
        state.leader = node;
        state.takeovers += 1;
        let before = (state.leading.replace(leading), state.former.take());
        drop(state);
        self.changed.notify_all();
        drop(before);
        Ok(())
    }

    /// The node was stopped while it took over: it does not lead.
    fn stopped_meanwhile(&self, node: NodeId, running: Node, outcome: Result<Leading>) -> Result<()> {
        if let Ok(mut leading) = outcome {
            leading.end(End::Stopped);
        }
        // Its pool is closed before it may start again.
        drop(running);
        self.state().places.entry(node).or_default().is_taking_over = false;
        self.changed.notify_all();
        Err(Error::Gone)
    }

    /// Operations are lost. Names that users have kept of them expire before this volume answers.
    fn wait_for_caches(&self) {
        let Some(ended) = self.state().former_ended else { return };
        let until = ended + CACHE_LIFETIME + CACHE_MARGIN;
        while Instant::now() < until && !self.stop.load(Ordering::Acquire) {
            std::thread::sleep(LOOK);
        }
    }

    /// One attempt to take over. The node, too, which is taken out of its place meanwhile.
    fn take_over(&self, node: NodeId, former: Option<&Volume>) -> Result<(Node, Result<Leading>)> {
        let (parts, pool, running, wanted, pins) = {
            let mut state = self.state();
            let pins = former.map(|volume| volume.inner.core().pins.clone()).unwrap_or_default();
            let wanted = self.wanted(&state);
            let place = state.places.get_mut(&node).ok_or(Error::Gone)?;
            let parts = place.parts.clone().ok_or(Error::Gone)?;
            let pool = place.pool.clone().ok_or(Error::Gone)?;
            let running = place.node.take().ok_or(Error::Gone)?;
            place.is_taking_over = true;
            (parts, pool, running, wanted, pins)
        };
        let outcome = self.network.sender(node).and_then(|ports| {
            let registry = self.registry.asking()?;
            Leading::begin(TakeOver {
                meta: node,
                parts: &parts,
                pool: &pool,
                node: &running,
                ports,
                registry,
                clock: self.clock,
                options: &self.options.volume,
                pins,
                wanted,
                replicas_min: self.options.replicas_min,
                kept: &self.kept,
                keeps_orphans: self.machine.is_some(),
            })
        });
        Ok((running, outcome))
    }

    /// Gives nodes with metadata that join an image, and lets them count when they have it. One that counts and lacks
    /// it gets it as well.
    fn help_joiners(&self) -> Result<()> {
        let (joiner, lacks, is_ready, volume, link) = {
            let state = self.state();
            let Some(leading) = &state.leading else { return Ok(()) };
            let joiner = {
                let sending = leading.link.sending();
                let view = sending.leader.volume().operations().view();
                view.members.iter().find(|member| member.role == Role::Joining).map(|member| member.node)
            };
            if let Some(is_ready) = joiner.and_then(|joiner| self.is_ready_elsewhere(joiner)) {
                // It gets an image by itself.
                leading.link.sending().leader.hold_promotion((!is_ready).then_some(OPERATIONS));
                return Ok(());
            }
            let joiner = joiner.or_else(|| state.counts_without_image());
            let Some(place) = joiner.and_then(|joiner| state.places.get(&joiner)) else {
                leading.link.sending().leader.hold_promotion(Some(OPERATIONS));
                return Ok(());
            };
            let Some(running) = &place.node else { return Ok(()) };
            let lacks = running.seen.lacks_image.load(Ordering::Acquire);
            let is_ready = running.seen.is_ready.load(Ordering::Acquire);
            (joiner.unwrap_or_default(), lacks, is_ready, leading.volume.clone(), Arc::clone(&leading.link))
        };
        link.sending().leader.hold_promotion((!is_ready).then_some(OPERATIONS));
        if !lacks {
            return Ok(());
        }
        // The image has everything up to the record where the node begins.
        volume.write_image()?;
        let target = self.places.image(joiner);
        if let Some(place) = self.state().places.get_mut(&joiner) {
            place.parts = None;
        }
        let options = CopyOptions { overwrite: true, ..CopyOptions::default() };
        volume.store().pool().backup(&target, &options)?;
        let parts = self.parts(joiner)?;
        let follower = Follower::open(&parts, &self.options.volume)?;
        let mut state = self.state();
        let Some(place) = state.places.get_mut(&joiner) else { return Ok(()) };
        place.parts = Some(parts);
        match &place.node {
            Some(running) => running.follow(follower),
            None => Ok(()),
        }
    }
}

/// How long a node waits for the sender before it takes over. The one that sent last does not wait. Of the others the
/// first waits for a lease: the former one is over then. More of them wait longer, so that not all claim a term: a
/// second takeover may lose what the first one has answered.
fn patience_of(node: NodeId, former: NodeId, metas: &[NodeId]) -> u64 {
    if node == former {
        return 0;
    }
    let before = metas.iter().take_while(|other| **other != node).filter(|other| **other != former).count();
    LEASE_NS + lodestone_width::to_u64(before) * LEASE_NS / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_node_beside_the_former_one_waits_for_one_lease() {
        let metas = [NodeId(1), NodeId(2), NodeId(3)];
        let patience = |node, former| patience_of(NodeId(node), NodeId(former), &metas);
        assert_eq!([1, 2, 3].map(|node| patience(node, 1)), [0, LEASE_NS, LEASE_NS + LEASE_NS / 2]);
        assert_eq!([1, 2, 3].map(|node| patience(node, 2)), [LEASE_NS, 0, LEASE_NS + LEASE_NS / 2]);
        assert_eq!([1, 2, 3].map(|node| patience(node, 3)), [LEASE_NS, LEASE_NS + LEASE_NS / 2, 0]);
    }
}
