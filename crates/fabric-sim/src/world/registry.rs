//! The registry of the world: one process, or keepers with faults of their own.

use std::collections::BTreeMap;

use lodestone_fabric::{
    Error, GroupId, LocalRegistry, Moment, NodeId, Registry, RegistryAnswer, RegistryCall, Result, Swap, View,
    VolumeState,
};
use lodestone_registry::{Answer, KeeperId, Request, Token, VolumeId};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::{Event, World};
use crate::keepers::{KeeperFaults, KeeperWorld};
use crate::plan::Plan;

const VOLUME: VolumeId = VolumeId(1);
/// A keeper that has not answered for so long is not asked next.
const PATIENCE_NS: u64 = 120_000_000;
/// Time in which keepers without faults make the volume.
const SETUP_NS: u64 = 10_000_000_000;

/// The registry.
pub(super) enum WorldRegistry {
    Local(LocalRegistry),
    Keepers(Box<Keepers>),
}

/// Keepers, and the calls of nodes that they have not answered.
pub(super) struct Keepers {
    world: KeeperWorld,
    /// Their time at the beginning of the world.
    began: u64,
    tokens: u64,
    calls: BTreeMap<Token, Waiting>,
    /// The keeper that each node asks next.
    asked: BTreeMap<NodeId, KeeperId>,
    /// The time for which they are scheduled.
    due: u64,
}

struct Waiting {
    node: NodeId,
    life: u32,
    call: RegistryCall,
    asked: u64,
    at: u64,
}

fn request_of(call: &RegistryCall) -> Request {
    match call {
        RegistryCall::State => Request::State,
        RegistryCall::Claim(node, seen) => Request::Claim(*node, *seen),
        RegistryCall::Change(term, change, group, view) => Request::Change(*term, *change, *group, view.clone()),
        RegistryCall::Renew(term) => Request::Renew(*term),
    }
}

impl WorldRegistry {
    pub(super) fn new(plan: &Plan, views: Vec<(GroupId, View)>, local: LocalRegistry, seed: u64) -> Result<Self> {
        if plan.keepers == 0 {
            return Ok(Self::Local(local));
        }
        let failed = |error: lodestone_registry::Error| Error::Registry(error.to_string());
        let calm = KeeperFaults { delay_ns: 10_000, ..KeeperFaults::default() };
        let mut world = KeeperWorld::new(plan.keepers, seed, calm).map_err(failed)?;
        let request = Request::Create(views);
        let mut tokens = 0;
        while world.newest_table().is_none_or(|table| table.state(VOLUME).is_none()) {
            for id in world.ids() {
                tokens += 1;
                world.request(id, Token(tokens), VOLUME, &request);
            }
            world.run_until(world.now() + 100_000_000).map_err(failed)?;
            if world.now() > SETUP_NS {
                return Err(Error::Registry("the keepers do not begin".to_owned()));
            }
        }
        world.take_answers();
        world.faults = plan.keeper_faults;
        let began = world.now();
        let (calls, asked) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self::Keepers(Box::new(Keepers { world, began, tokens, calls, asked, due: u64::MAX })))
    }

    /// Whether it is keepers of which none runs.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self, Self::Keepers(keepers) if keepers.world.newest_table().is_none())
    }

    /// The newest state.
    pub(super) fn state(&self) -> VolumeState {
        match self {
            Self::Local(registry) => registry.state().unwrap_or_default(),
            Self::Keepers(keepers) => {
                keepers.world.newest_table().and_then(|table| table.state(VOLUME)).cloned().unwrap_or_default()
            }
        }
    }
}

impl Keepers {
    /// Sends a call to the keeper that a node asks now.
    fn ask(&mut self, waiting: Waiting) {
        let all = self.world.ids();
        let keeper = *self.asked.entry(waiting.node).or_insert(KeeperId(1 + waiting.node.0 as u64 % all.len() as u64));
        self.tokens += 1;
        self.world.request(keeper, Token(self.tokens), VOLUME, &request_of(&waiting.call));
        self.calls.insert(Token(self.tokens), waiting);
    }

    /// A node whose calls are not answered turns to another keeper.
    fn give_up(&mut self, node: NodeId, now: u64) {
        let all = self.world.ids();
        let is_late = |waiting: &Waiting| waiting.node == node && now > waiting.at + PATIENCE_NS;
        let before = self.calls.len();
        self.calls.retain(|_, waiting| !is_late(waiting));
        if self.calls.len() < before {
            let asked = self.asked.entry(node).or_default();
            *asked = KeeperId(1 + asked.0 % all.len() as u64);
        }
    }
}

impl World {
    /// A node calls its keepers. `false`: the registry is that of one process.
    pub(super) fn call_keepers(&mut self, node: NodeId, life: u32, call: &RegistryCall, asked: u64) -> bool {
        let now = self.now;
        let WorldRegistry::Keepers(keepers) = &mut self.registry else { return false };
        keepers.give_up(node, now);
        keepers.ask(Waiting { node, life, call: call.clone(), asked, at: now });
        self.schedule_keepers();
        true
    }

    pub(super) fn schedule_keepers(&mut self) {
        let now = self.now;
        let WorldRegistry::Keepers(keepers) = &mut self.registry else { return };
        let Some(at) = keepers.world.next_at() else { return };
        let at = at.saturating_sub(keepers.began).max(now);
        if at < keepers.due {
            keepers.due = at;
            self.after(at - now, Event::Keepers);
        }
    }

    /// Everything that is due at the keepers happens.
    pub(super) fn run_keepers(&mut self) -> Result<()> {
        let now = self.now;
        let WorldRegistry::Keepers(keepers) = &mut self.registry else { return Ok(()) };
        if now >= keepers.due {
            keepers.due = u64::MAX;
        }
        let failed = |error: lodestone_registry::Error| Error::Registry(error.to_string());
        keepers.world.run_until(keepers.began + now).map_err(failed)?;
        let violation = keepers.world.violation().map(str::to_owned);
        let mut answered = Vec::new();
        for (token, answer) in keepers.world.take_answers() {
            let Some(waiting) = keepers.calls.remove(&token) else { continue };
            let answer = match answer {
                Answer::NotLeader(leader) => {
                    if leader > 0 {
                        keepers.asked.insert(waiting.node, KeeperId(leader.into()));
                        keepers.ask(waiting);
                    } else {
                        keepers.give_up(waiting.node, u64::MAX - PATIENCE_NS - 1);
                    }
                    continue;
                }
                // The node asks again by itself.
                Answer::Unknown | Answer::Refused(_) => continue,
                Answer::State(state) => RegistryAnswer::State(state),
                Answer::Done(state) => RegistryAnswer::Swap(Swap::Done(state)),
                Answer::Differs(state) => RegistryAnswer::Swap(Swap::Differs(state)),
                Answer::Held(ns) => RegistryAnswer::Lease(lodestone_fabric::Lease::Held(ns), Moment(waiting.asked)),
                Answer::Wait(ns) => RegistryAnswer::Lease(lodestone_fabric::Lease::Wait(ns), Moment(waiting.asked)),
                Answer::Lost(term) => RegistryAnswer::Lease(lodestone_fabric::Lease::Lost(term), Moment(waiting.asked)),
            };
            answered.push((waiting.node, waiting.life, answer));
        }
        if let Some(violation) = violation {
            self.oracle.fail(|| violation);
        }
        for (node, life, answer) in answered {
            self.say(|| format!("{node} is told {answer:?}"));
            self.answer(node, life, answer)?;
        }
        self.schedule_keepers();
        Ok(())
    }

    /// A keeper stops, now or at one of its next stores; or a majority; or some are cut off.
    pub(super) fn keeper_fault(&mut self) {
        let (kind, outage) = (self.random.random_range(0..6), self.plan.outage_ns + 1);
        let WorldRegistry::Keepers(keepers) = &mut self.registry else { return };
        let all = keepers.world.ids();
        let Some(some) = all.choose(&mut self.random).copied() else { return };
        match kind {
            0 | 1 => keepers.world.crash(some, outage * 20),
            2 | 3 => keepers.world.arm(some),
            4 => {
                for id in &all[..all.len() / 2 + 1] {
                    keepers.world.crash(*id, outage * 10);
                }
            }
            _ => keepers.world.cut(&[some]),
        }
        if kind < 5 {
            keepers.world.cut(&[]);
        }
        self.schedule_keepers();
    }

    /// All keepers stop, until the faults end.
    pub(super) fn stop_keepers(&mut self) {
        if let WorldRegistry::Keepers(keepers) = &mut self.registry {
            for id in keepers.world.ids() {
                keepers.world.crash(id, 0);
            }
        }
    }

    /// The faults of keepers end.
    pub(super) fn heal_keepers(&mut self) -> Result<()> {
        if let WorldRegistry::Keepers(keepers) = &mut self.registry {
            keepers.world.heal().map_err(|error| Error::Registry(error.to_string()))?;
        }
        self.schedule_keepers();
        Ok(())
    }

    /// Crashes of keepers.
    pub(super) fn keeper_crashes(&self) -> u64 {
        match &self.registry {
            WorldRegistry::Local(_) => 0,
            WorldRegistry::Keepers(keepers) => keepers.world.crashes(),
        }
    }
}
