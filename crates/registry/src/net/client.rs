//! A client of keepers: a [`Registry`] over connections.
//!
//! It asks the keeper that led last, and another one if that does not answer. A swap is sent a second time only if it
//! certainly did not happen. Otherwise the error says that it may have: the caller asks for the state.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestone_fabric::{
    Error as FabricError, GroupId, Lease, Moment, NodeId, Registry, Swap, Term, View, VolumeState,
};

use super::CONNECT_PATIENCE;
use super::line::{Line, Purpose, Security};
use crate::keepers::KeeperId;
use crate::table::{Answer, Request, TABLE_BYTES_MAX, VolumeId};
use crate::wire::Writer;

/// Pause before keepers without a leader are asked again.
const NO_LEADER_PAUSE: Duration = Duration::from_millis(50);

/// How keepers are asked.
#[derive(Clone, Debug)]
pub struct KeeperClientOptions {
    /// The keepers.
    pub keepers: BTreeMap<KeeperId, SocketAddr>,
    /// How connections are secured.
    pub security: Security,
    /// This node, for the hello.
    pub node: NodeId,
    /// How long a call may take.
    pub patience: Duration,
}

/// The registry of a volume, kept by keepers.
#[derive(Debug)]
pub struct KeeperClient {
    options: KeeperClientOptions,
    volume: VolumeId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The keeper that is asked next.
    keeper: KeeperId,
    line: Option<Line>,
}

/// How one attempt ended.
enum Attempt {
    Answered(Vec<u8>),
    /// Nothing was sent.
    NotSent(String),
    /// It was sent, and no answer came.
    Unanswered(String),
}

impl KeeperClient {
    /// A client for `volume`. Connections are made when they are needed.
    #[must_use]
    pub fn new(options: KeeperClientOptions, volume: VolumeId) -> Self {
        let keeper = options.keepers.keys().next().copied().unwrap_or_default();
        Self { options, volume, state: Mutex::new(State { keeper, line: None }) }
    }

    /// How long a call may take from now on.
    pub const fn set_patience(&mut self, patience: Duration) {
        self.options.patience = patience;
    }

    /// How connections are secured: `tls` or `plain-network`.
    #[must_use]
    pub const fn security_name(&self) -> &'static str {
        self.options.security.name()
    }

    /// The volume.
    #[must_use]
    pub const fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Makes the volume with these members. `false`: it exists already.
    ///
    /// # Errors
    /// Keepers that do not answer, or refuse.
    pub fn create(&self, groups: Vec<(GroupId, View)>) -> lodestone_fabric::Result<bool> {
        match self.ask(&Request::Create(groups))? {
            Answer::Done(_) => Ok(true),
            Answer::Differs(_) => Ok(false),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks until some keeper decides.
    fn ask(&self, request: &Request) -> lodestone_fabric::Result<Answer> {
        let mut bytes = Writer::default();
        request.write(self.volume, &mut bytes);
        // A second swap would not find the state that it expects. The others may be asked again.
        let is_repeatable = matches!(request, Request::State | Request::Renew(_) | Request::Create(_));
        let decode = |bytes: &[u8]| {
            let answer = Answer::from_bytes(bytes);
            answer.unwrap_or_else(|| Answer::Refused("an answer that is none".to_owned()))
        };
        match self.ask_bytes(&bytes.0, is_repeatable, &decode)? {
            Answer::Refused(reason) => Err(FabricError::Registry(reason)),
            answer => Ok(answer),
        }
    }

    /// Sends a request until a keeper that leads answers.
    pub(crate) fn ask_bytes(
        &self,
        bytes: &[u8],
        is_repeatable: bool,
        decode: &dyn Fn(&[u8]) -> Answer,
    ) -> lodestone_fabric::Result<Answer> {
        let end = Instant::now() + self.options.patience;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = "no keeper leads".to_owned();
        while Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            match self.attempt(&mut state, bytes, left) {
                Attempt::Answered(reply) => match decode(&reply) {
                    Answer::NotLeader(0) => {
                        std::thread::sleep(NO_LEADER_PAUSE.min(left));
                        self.next(&mut state);
                    }
                    Answer::NotLeader(leader) => self.turn(&mut state, KeeperId(leader.into())),
                    Answer::Unknown if is_repeatable => "a keeper stopped leading".clone_into(&mut last),
                    Answer::Unknown => return Err(may_have_happened("the keeper stopped leading meanwhile")),
                    answer => return Ok(answer),
                },
                Attempt::Unanswered(reason) if !is_repeatable => return Err(may_have_happened(&reason)),
                Attempt::NotSent(reason) | Attempt::Unanswered(reason) => {
                    last = reason;
                    self.next(&mut state);
                    // All of them may be gone: no loop without a pause.
                    std::thread::sleep(Duration::from_millis(5).min(left));
                }
            }
        }
        let patience = self.options.patience.as_millis();
        Err(FabricError::Registry(format!("no keeper decided within {patience} ms: {last}")))
    }

    fn turn(&self, state: &mut State, keeper: KeeperId) {
        if state.keeper == keeper {
            return;
        }
        state.line = None;
        state.keeper = keeper;
    }

    /// The keeper after the present one.
    fn next(&self, state: &mut State) {
        let after = self.options.keepers.range((std::ops::Bound::Excluded(state.keeper), std::ops::Bound::Unbounded));
        let next = after.map(|found| *found.0).next().or_else(|| self.options.keepers.keys().next().copied());
        state.line = None;
        state.keeper = next.unwrap_or_default();
    }

    fn attempt(&self, state: &mut State, bytes: &[u8], left: Duration) -> Attempt {
        let keeper = state.keeper;
        let Some(address) = self.options.keepers.get(&keeper).copied() else {
            return Attempt::NotSent(format!("{keeper} has no address here"));
        };
        if state.line.is_none() {
            let line = self.options.security.connect(keeper, address, CONNECT_PATIENCE.min(left));
            let greeted = line.and_then(|mut line| {
                line.greet(Purpose::Requests, self.options.node.0.into())?;
                Ok(line)
            });
            match greeted {
                Ok(line) => state.line = Some(line),
                Err(error) => return Attempt::NotSent(format!("{keeper} at {address}: {error}")),
            }
        }
        let Some(line) = &mut state.line else { return Attempt::NotSent(String::new()) };
        line.within(Some(left));
        let reply = line.send(bytes).and_then(|()| line.receive(2 * TABLE_BYTES_MAX));
        match reply {
            Ok(reply) => Attempt::Answered(reply),
            Err(error) => {
                state.line = None;
                Attempt::Unanswered(format!("{keeper} at {address}: {error}"))
            }
        }
    }
}

fn may_have_happened(reason: &str) -> FabricError {
    FabricError::RegistryUnanswered(reason.to_owned())
}

fn unexpected(answer: &Answer) -> FabricError {
    FabricError::Registry(format!("an answer that does not fit the request: {answer:?}"))
}

fn swap(answer: Answer) -> lodestone_fabric::Result<Swap> {
    match answer {
        Answer::Done(state) => Ok(Swap::Done(state)),
        Answer::Differs(state) => Ok(Swap::Differs(state)),
        other => Err(unexpected(&other)),
    }
}

impl Registry for KeeperClient {
    fn state(&self) -> lodestone_fabric::Result<VolumeState> {
        match self.ask(&Request::State)? {
            Answer::State(state) => Ok(state),
            other => Err(unexpected(&other)),
        }
    }

    fn claim(&mut self, node: NodeId, seen: Term) -> lodestone_fabric::Result<Swap> {
        swap(self.ask(&Request::Claim(node, seen))?)
    }

    fn change(&mut self, term: Term, change: u64, group: GroupId, view: &View) -> lodestone_fabric::Result<Swap> {
        swap(self.ask(&Request::Change(term, change, group, view.clone()))?)
    }

    /// `now` is not used: keepers count by their own clocks.
    fn renew(&mut self, _: Moment, term: Term) -> lodestone_fabric::Result<Lease> {
        match self.ask(&Request::Renew(term))? {
            Answer::Held(ns) => Ok(Lease::Held(ns)),
            Answer::Wait(ns) => Ok(Lease::Wait(ns)),
            Answer::Lost(term) => Ok(Lease::Lost(term)),
            other => Err(unexpected(&other)),
        }
    }
}
