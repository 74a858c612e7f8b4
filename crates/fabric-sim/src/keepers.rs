//! Simulated keepers of a registry: their cores on virtual time, connections that break, pools that crash.
//!
//! **Fault model.** A keeper stops at any store, flush or fence, and restarts on any memory that the persistence
//! contract allows. Connections between keepers deliver in order; they break, and lose what was under way. Requests and
//! answers of clients are lost, delayed and repeated. Keepers can be cut off. Clocks run up to a twentieth too fast or
//! too slow. Not modelled: keepers or devices that lie.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use lodestone_crash::OnlineMedium;
use lodestone_fabric::Moment;
use lodestone_pmem::{Memory, Pool, PoolOptions};
use lodestone_registry::{
    Answer, Keeper, KeeperId, KeeperOptions, KeeperOutbound, Request, Result, Table, Token, VolumeId,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::plan::Ppm;

/// The number of the registry.
const REGISTRY: u64 = 0x5EED_0123;
const POOL_BYTES: u64 = 128 << 10;

/// Faults of keepers and their connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeeperFaults {
    /// A message breaks its connection: it is lost.
    pub lose: Ppm,
    /// A message or a request is damaged.
    pub damage: Ppm,
    /// A request is repeated.
    pub repeat: Ppm,
    /// A request or an answer of a client is lost.
    pub lose_client: Ppm,
    /// Longest usual delay of a message.
    pub delay_ns: u64,
    /// Share of messages that are late, and how much at most.
    pub straggle: Ppm,
    /// See there.
    pub straggle_ns: u64,
}

/// An event at a keeper.
enum Event {
    Message(KeeperId, Vec<u8>),
    Request(KeeperId, Token, VolumeId, Request),
    Answer(Token, Answer),
    Wake(KeeperId, u32),
    Crash(KeeperId, u32),
    Restart(KeeperId),
}

struct Scheduled(u64, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

struct Node {
    keeper: Option<Keeper>,
    pool: Option<Pool>,
    memory: Memory,
    medium: Arc<OnlineMedium>,
    /// Rises with every restart.
    life: u32,
    /// Speed of its clock: millionths of the right one.
    clock_ppm: u64,
}

impl Node {
    fn local(&self, id: KeeperId, time: u64) -> Moment {
        // The clocks begin far apart, too.
        Moment(time / 1000 * self.clock_ppm / 1000 + id.0 * 1_000_000_007)
    }

    fn global(&self, id: KeeperId, local: Moment) -> u64 {
        let since = u128::from(local.0.saturating_sub(id.0 * 1_000_000_007));
        let time = (since * 1_000_000).div_ceil(u128::from(self.clock_ppm));
        u64::try_from(time).unwrap_or(u64::MAX - 2_000) + 2_000
    }
}

/// The keepers of one registry.
pub struct KeeperWorld {
    now: u64,
    made: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    nodes: BTreeMap<KeeperId, Node>,
    random: ChaCha8Rng,
    /// The faults.
    pub faults: KeeperFaults,
    /// Keepers on the smaller side of a cut.
    cut: BTreeSet<KeeperId>,
    is_cut_from_clients: bool,
    /// When the last message of a connection arrives: none overtakes another.
    last: BTreeMap<(KeeperId, KeeperId), u64>,
    answers: Vec<(Token, Answer)>,
    crashes: u64,
    /// The entry that is committed in each place, as the keepers applied it: they must agree.
    applied: BTreeMap<u64, Vec<u8>>,
    violation: Option<String>,
}

fn options(id: KeeperId, seed: u64) -> KeeperOptions {
    KeeperOptions { id, registry: REGISTRY, seed }
}

fn pool_options() -> PoolOptions {
    PoolOptions { size_bytes: POOL_BYTES, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() }
}

fn happens(random: &mut ChaCha8Rng, ppm: Ppm) -> bool {
    ppm > 0 && random.random_range(0..1_000_000) < ppm
}

impl KeeperWorld {
    /// So many new keepers.
    ///
    /// # Errors
    /// Never with one to nine keepers.
    pub fn new(count: u64, seed: u64, faults: KeeperFaults) -> Result<Self> {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x6B65_6570);
        let all: Vec<KeeperId> = (1..=count).map(KeeperId).collect();
        let mut nodes = BTreeMap::new();
        for id in &all {
            let medium = Arc::new(OnlineMedium::new());
            let pool = pool_options();
            let image = vec![0; usize::try_from(pool.size_bytes).unwrap_or(0)];
            let memory = Memory::traced(&[image], pool.reserve_bytes, medium.clone())?;
            let pool = Pool::create_on(memory.clone(), &pool)?;
            let (at, bytes) = place(&pool);
            let keeper = Keeper::create(options(*id, random.random()), &memory, at, bytes, &all)?;
            let clock_ppm = random.random_range(952_000..=1_048_000);
            nodes.insert(*id, Node { keeper: Some(keeper), pool: Some(pool), memory, medium, life: 0, clock_ppm });
        }
        let mut world = Self {
            now: 0,
            made: 0,
            queue: BinaryHeap::new(),
            nodes,
            random,
            faults,
            cut: BTreeSet::new(),
            is_cut_from_clients: true,
            last: BTreeMap::new(),
            answers: Vec::new(),
            crashes: 0,
            applied: BTreeMap::new(),
            violation: None,
        };
        for id in all {
            world.after(1_000, Event::Wake(id, 0));
        }
        Ok(world)
    }

    /// The keepers.
    #[must_use]
    pub fn ids(&self) -> Vec<KeeperId> {
        self.nodes.keys().copied().collect()
    }

    /// Virtual time.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Crashes so far.
    #[must_use]
    pub const fn crashes(&self) -> u64 {
        self.crashes
    }

    /// A keeper, if it is up.
    #[must_use]
    pub fn keeper(&self, id: KeeperId) -> Option<&Keeper> {
        self.nodes.get(&id)?.keeper.as_ref()
    }

    /// The table of the keeper that has applied most.
    #[must_use]
    pub fn newest_table(&self) -> Option<&Table> {
        let up = self.nodes.values().filter_map(|node| node.keeper.as_ref());
        up.max_by_key(|keeper| keeper.applied()).map(Keeper::table)
    }

    /// The first thing that keepers must never do: two of them applied different entries in one place.
    #[must_use]
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// The time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse(Scheduled(at, _, _))| *at)
    }

    /// Answers that arrived since the last call.
    pub fn take_answers(&mut self) -> Vec<(Token, Answer)> {
        std::mem::take(&mut self.answers)
    }

    fn after(&mut self, ns: u64, event: Event) {
        self.made += 1;
        self.queue.push(Reverse(Scheduled(self.now + ns, self.made, event)));
    }

    /// How long something is under way.
    fn delay(&mut self) -> u64 {
        let usual = 500 + self.random.random_range(0..=self.faults.delay_ns);
        let is_late = happens(&mut self.random, self.faults.straggle);
        usual + if is_late { self.random.random_range(0..=self.faults.straggle_ns) } else { 0 }
    }

    /// A client sends a request to a keeper.
    pub fn request(&mut self, to: KeeperId, token: Token, volume: VolumeId, request: &Request) {
        let copies = if happens(&mut self.random, self.faults.lose_client) {
            0
        } else {
            1 + u64::from(happens(&mut self.random, self.faults.repeat))
        };
        for _ in 0..copies {
            let ns = self.delay();
            self.after(ns, Event::Request(to, token, volume, request.clone()));
        }
    }

    /// Everything up to `time` happens.
    ///
    /// # Errors
    /// A keeper that does not open after a crash, or fails otherwise.
    pub fn run_until(&mut self, time: u64) -> Result<()> {
        while self.next_at().is_some_and(|at| at <= time) {
            self.step()?;
        }
        self.now = self.now.max(time);
        Ok(())
    }

    /// The next event happens.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub fn step(&mut self) -> Result<()> {
        let Some(Reverse(Scheduled(at, _, event))) = self.queue.pop() else {
            // No keeper runs. Time passes all the same.
            self.now += 1_000_000;
            return Ok(());
        };
        self.now = self.now.max(at);
        match event {
            Event::Message(id, bytes) => self.act(id, |keeper, now, out| keeper.message(now, &bytes, out)),
            Event::Request(id, token, volume, request) => {
                if self.is_cut_from_clients && self.cut.contains(&id) {
                    return Ok(());
                }
                self.act(id, |keeper, now, out| keeper.request(now, token, volume, request, out))
            }
            Event::Answer(token, answer) => {
                self.answers.push((token, answer));
                Ok(())
            }
            Event::Wake(id, life) if self.nodes.get(&id).is_some_and(|node| node.life == life) => {
                self.act(id, Keeper::tick)?;
                self.schedule_wake(id);
                Ok(())
            }
            Event::Crash(id, life) if self.nodes.get(&id).is_some_and(|node| node.life == life) => {
                self.crash(id, 1_000_000);
                Ok(())
            }
            Event::Wake(..) | Event::Crash(..) => Ok(()),
            Event::Restart(id) => self.restart(id),
        }
    }

    fn schedule_wake(&mut self, id: KeeperId) {
        let Some(node) = self.nodes.get(&id) else { return };
        let Some(at) = node.keeper.as_ref().and_then(Keeper::wake_at) else { return };
        let (at, life) = (node.global(id, at).max(self.now + 1_000), node.life);
        let ns = at - self.now;
        self.after(ns, Event::Wake(id, life));
    }

    fn act(
        &mut self,
        id: KeeperId,
        action: impl FnOnce(&mut Keeper, Moment, &mut KeeperOutbound) -> Result<()>,
    ) -> Result<()> {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        let local = node.local(id, now);
        let Some(keeper) = &mut node.keeper else { return Ok(()) };
        let mut out = KeeperOutbound::default();
        action(keeper, local, &mut out)?;
        if node.medium.has_blown() {
            // It stopped in the middle: nothing of this left the keeper.
            self.crash(id, 1_000_000);
            return Ok(());
        }
        self.judge(id);
        for (to, bytes) in out.messages {
            self.send(id, to, bytes);
        }
        for (token, answer) in out.answers {
            let is_cut = self.is_cut_from_clients && self.cut.contains(&id);
            if !is_cut && !happens(&mut self.random, self.faults.lose_client) {
                let ns = self.delay();
                self.after(ns, Event::Answer(token, answer));
            }
        }
        Ok(())
    }

    /// Keepers that applied as many entries have the same table.
    fn judge(&mut self, id: KeeperId) {
        let Some(keeper) = self.nodes.get(&id).and_then(|node| node.keeper.as_ref()) else { return };
        let (applied, table) = (keeper.applied(), keeper.table().to_bytes());
        let known = self.applied.entry(applied).or_insert_with(|| table.clone());
        if *known != table && self.violation.is_none() {
            self.violation = Some(format!("{id} has another table than others after {applied} entries"));
        }
    }

    fn send(&mut self, from: KeeperId, to: KeeperId, mut bytes: Vec<u8>) {
        if self.cut.contains(&from) != self.cut.contains(&to) || happens(&mut self.random, self.faults.lose) {
            return;
        }
        if happens(&mut self.random, self.faults.damage) {
            let bit = self.random.random_range(0..bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let at = self.now + self.delay();
        let last = self.last.entry((from, to)).or_insert(0);
        *last = at.max(*last);
        let ns = *last - self.now;
        self.after(ns, Event::Message(to, bytes));
    }

    /// Cuts these keepers off the others, and off clients.
    pub fn cut(&mut self, keepers: &[KeeperId]) {
        self.cut = keepers.iter().copied().collect();
        self.is_cut_from_clients = true;
    }

    /// Cuts these keepers off the others alone: clients reach them.
    pub fn cut_from_keepers(&mut self, keepers: &[KeeperId]) {
        self.cut(keepers);
        self.is_cut_from_clients = false;
    }

    /// Stops a keeper, which starts again after some time; 0: not by itself. Messages under way to it are lost.
    pub fn crash(&mut self, id: KeeperId, outage_ns: u64) {
        let seed = self.random.random();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.keeper.is_some()) else { return };
        (node.keeper, node.pool) = (None, None);
        node.medium.crash(&node.memory, seed);
        node.life += 1;
        self.crashes += 1;
        if outage_ns > 0 {
            let ns = self.random.random_range(1..=2 * outage_ns);
            self.after(ns, Event::Restart(id));
        }
    }

    /// Stops a keeper at one of its next stores.
    pub fn arm(&mut self, id: KeeperId) {
        let (events, seed) = (self.random.random_range(0..60), self.random.random());
        if let Some(node) = self.nodes.get(&id).filter(|node| node.keeper.is_some()) {
            node.medium.arm(events, seed);
            let life = node.life;
            self.after(200_000_000, Event::Crash(id, life));
        }
    }

    /// Starts a keeper again.
    ///
    /// # Errors
    /// A pool or keeper that does not open: a crash must not do that.
    pub fn restart(&mut self, id: KeeperId) -> Result<()> {
        let seed = self.random.random();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.keeper.is_none()) else { return Ok(()) };
        node.medium.disarm();
        let pool = Pool::open_on(node.memory.clone(), &pool_options())?;
        let (at, bytes) = place(&pool);
        node.keeper = Some(Keeper::open(options(id, seed), &node.memory, at, bytes)?);
        node.pool = Some(pool);
        let life = node.life;
        self.after(1_000, Event::Wake(id, life));
        Ok(())
    }

    /// The faults end, and every keeper runs again.
    ///
    /// # Errors
    /// As [`restart`](Self::restart).
    pub fn heal(&mut self) -> Result<()> {
        self.faults = KeeperFaults { delay_ns: 10_000, ..KeeperFaults::default() };
        self.cut.clear();
        for id in self.ids() {
            if let Some(node) = self.nodes.get(&id) {
                node.medium.disarm();
            }
            self.restart(id)?;
        }
        Ok(())
    }
}

fn place(pool: &Pool) -> (lodestone_pmem::PmAddr, u64) {
    let (start, end) = pool.heap_area(0);
    (start, (end.offset() - start.offset()) / 64 * 64)
}
