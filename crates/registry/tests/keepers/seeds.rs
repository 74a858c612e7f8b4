//! Keepers under seeded faults: each answer is that of one table, and leases of two terms never overlap.

use lodestone_fabric::{GroupId, Member, NodeId, Role, View, ViewNumber, VolumeState};
use lodestone_fabric_sim::{KeeperFaults, KeeperWorld};
use lodestone_registry::{Answer, KeeperId, Request, Token, VolumeId};

use crate::histories::{Call, History};

pub const VOLUME: VolumeId = VolumeId(7);
pub const GROUP: GroupId = GroupId(1);
/// Longest time that a client waits for an answer.
const PATIENCE_NS: u64 = 400_000_000;

/// Numbers that repeat.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

pub fn first_view() -> View {
    View::of(&[NodeId(1), NodeId(2)])
}

/// One request after the other, to the keeper that leads as far as the client knows.
struct Client {
    node: NodeId,
    keeper: KeeperId,
    /// The newest state that it saw.
    seen: VolumeState,
    /// The call under way.
    call: Option<(usize, Token)>,
}

impl Client {
    fn next(&self, draw: &mut Draw) -> Request {
        let state = &self.seen;
        match draw.below(10) {
            0..=1 => Request::State,
            2..=4 => Request::Claim(self.node, state.term),
            5..=6 => {
                let number = ViewNumber(u32::try_from(draw.below(1000)).unwrap() + 2);
                let members = vec![Member { node: self.node, role: Role::Active, since: number }];
                Request::Change(state.term, state.change, GROUP, View { number, members })
            }
            _ => Request::Renew(state.term),
        }
    }

    fn learns(&mut self, answer: &Answer) {
        match answer {
            Answer::State(state) | Answer::Done(state) | Answer::Differs(state) => self.seen = state.clone(),
            Answer::Lost(term) => self.seen.term = *term,
            _ => {}
        }
    }
}

/// A run and its history.
pub struct Run {
    pub world: KeeperWorld,
    pub history: History,
    clients: Vec<Client>,
    draw: Draw,
    tokens: u64,
}

impl Run {
    /// Keepers that have the volume.
    pub fn new(keepers: u64, seed: u64) -> Self {
        let world = KeeperWorld::new(keepers, seed, KeeperFaults { delay_ns: 200_000, ..KeeperFaults::default() });
        let mut run = Self {
            world: world.expect("new keepers"),
            history: History::default(),
            clients: Vec::new(),
            draw: Draw(seed),
            tokens: 0,
        };
        let groups = vec![(GROUP, first_view())];
        let made = run.ask(&Request::Create(groups.clone())).expect("keepers without faults answer");
        run.history.before = VolumeState { groups, ..VolumeState::default() };
        assert_eq!(made, Answer::Done(run.history.before.clone()));
        for number in 0..3_u16 {
            let keeper = KeeperId(1 + u64::from(number) % keepers);
            let seen = run.history.before.clone();
            run.clients.push(Client { node: NodeId(10 + number), keeper, seen, call: None });
        }
        run
    }

    pub fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// Asks one keeper after the other, until one decides or ten seconds are over.
    pub fn ask(&mut self, request: &Request) -> Option<Answer> {
        let (all, end) = (self.world.ids(), self.world.now() + 10_000_000_000);
        let mut keepers = all.iter().cycle();
        while self.world.now() < end {
            let token = self.token();
            self.world.request(*keepers.next()?, token, VOLUME, request);
            let patience = self.world.now() + PATIENCE_NS;
            while self.world.now() < patience {
                self.world.step().expect("keepers open");
                let answers = self.world.take_answers();
                match answers.into_iter().find(|answer| answer.0 == token).map(|answer| answer.1) {
                    None => {}
                    Some(Answer::NotLeader(_) | Answer::Unknown | Answer::Refused(_)) => break,
                    Some(answer) => return Some(answer),
                }
            }
        }
        None
    }

    /// So many requests of all clients, while `fault` does what it wants now and then.
    pub fn requests(&mut self, count: usize, fault: &mut dyn FnMut(&mut KeeperWorld, &mut Draw)) {
        let mut next_fault = 0;
        while self.history.calls.len() < count || self.clients.iter().any(|client| client.call.is_some()) {
            let now = self.world.now();
            if now >= next_fault && self.history.calls.len() < count {
                fault(&mut self.world, &mut self.draw);
                next_fault = now + 1_000_000 + self.draw.below(300_000_000);
            }
            for index in 0..self.clients.len() {
                self.serve(index, count);
            }
            self.world.run_until(now + 1_000_000).expect("keepers open");
            self.take_answers();
        }
    }

    fn serve(&mut self, index: usize, count: usize) {
        let now = self.world.now();
        let client = &mut self.clients[index];
        if let Some((call, _)) = client.call {
            if now > self.history.calls[call].began + PATIENCE_NS {
                // It may have happened. The client goes on, with another keeper.
                client.call = None;
                client.keeper = KeeperId(1 + client.keeper.0 % self.world.ids().len() as u64);
            }
        } else if self.history.calls.len() < count && self.draw.below(20) == 0 {
            let request = client.next(&mut self.draw);
            self.tokens += 1;
            let token = Token(self.tokens);
            client.call = Some((self.history.calls.len(), token));
            self.world.request(client.keeper, token, VOLUME, &request);
            self.history.calls.push(Call { began: now, ended: None, request, answer: None });
        }
    }

    fn take_answers(&mut self) {
        let now = self.world.now();
        for (token, answer) in self.world.take_answers() {
            let waits = |client: &&mut Client| client.call.is_some_and(|call| call.1 == token);
            let Some(client) = self.clients.iter_mut().find(waits) else { continue };
            let Some((call, _)) = client.call.take() else { continue };
            client.learns(&answer);
            match answer {
                Answer::NotLeader(leader) => {
                    let others = self.world.ids().len() as u64;
                    client.keeper = if leader > 0 { KeeperId(leader.into()) } else { KeeperId(1 + token.0 % others) };
                    // Nothing happened: as if it had never been asked.
                    self.history.calls[call].request = Request::State;
                }
                Answer::Refused(_) => self.history.calls[call].request = Request::State,
                Answer::Unknown => {}
                answer => {
                    self.history.calls[call].ended = Some(now);
                    self.history.calls[call].answer = Some(answer);
                }
            }
        }
    }

    /// Ends the faults, and judges.
    pub fn judge(&mut self, seed: u64) -> Result<(), String> {
        self.world.heal().map_err(|error| format!("seed {seed}: {error}"))?;
        let began = self.world.now();
        let answer = self.ask(&Request::State).ok_or_else(|| format!("seed {seed}: no keeper answers in the end"))?;
        let ended = Some(self.world.now());
        self.history.calls.push(Call { began, ended, request: Request::State, answer: Some(answer) });
        // All of them have everything in the end.
        let end = self.world.now() + 2_000_000_000;
        self.world.run_until(end).map_err(|error| format!("seed {seed}: {error}"))?;
        if let Some(violation) = self.world.violation() {
            return Err(format!("seed {seed}: {violation}"));
        }
        let newest = self.world.newest_table().cloned();
        if self.world.ids().iter().any(|id| self.world.keeper(*id).map(|keeper| keeper.table()) != newest.as_ref()) {
            return Err(format!("seed {seed}: a keeper lacks something in the end"));
        }
        if !self.history.is_linearizable() {
            return Err(format!("seed {seed}: no order explains {:#?}", self.history));
        }
        match self.history.overlapping_leases() {
            Some((one, other)) => Err(format!("seed {seed}: {one} and {other} held the lease at once")),
            None => Ok(()),
        }
    }
}

/// Everything that may go wrong.
pub fn faults() -> KeeperFaults {
    KeeperFaults {
        lose: 20_000,
        damage: 5_000,
        // A client sends a swap once: a second one finds the state that the first one made.
        repeat: 0,
        lose_client: 50_000,
        delay_ns: 2_000_000,
        straggle: 20_000,
        straggle_ns: 600_000_000,
    }
}

fn trouble(world: &mut KeeperWorld, draw: &mut Draw) {
    let ids = world.ids();
    let some = ids[usize::try_from(draw.below(ids.len() as u64)).unwrap()];
    match draw.below(6) {
        0 => world.crash(some, 300_000_000),
        1 => world.arm(some),
        2 => world.cut(&[some]),
        3 if ids.len() > 1 => world.cut(&ids[..ids.len() / 2]),
        _ => world.cut(&[]),
    }
}

/// One seed: so many keepers, requests and faults.
pub fn run_seed(seed: u64, requests: usize) -> Result<Run, String> {
    let keepers = [1, 3, 3, 5][usize::try_from(seed % 4).unwrap()];
    let mut run = Run::new(keepers, seed);
    run.world.faults = faults();
    run.requests(requests, &mut trouble);
    run.judge(seed)?;
    Ok(run)
}
