//! A node of the cluster: a pool on memory that can crash, and the cores that run on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use lodestone_crash::OnlineMedium;
use lodestone_fabric::{
    ApplyLog, GroupId, Leader, NodeId, OPERATIONS, PageArea, Receiver, ReceiverOptions, Result, Ring, Sender,
    SenderOptions, Term, VolumeSender,
};
use lodestone_pmem::{Memory, PmAddr, Pool, PoolOptions};

use crate::oracle::Known;
use crate::plan::Plan;

/// The group of a scenario with one group.
pub const GROUP: GroupId = GroupId(1);
/// Numbers of members of the group of operations begin here.
const FIRST_STANDBY: u16 = 80;
/// Numbers of a unit's nodes begin at so many times the unit before.
const UNIT_STRIDE: u16 = 20;
/// The salt of its records.
pub const SALT: u64 = 0x5EED_0FAB;
/// Numbers of senders begin here.
pub const FIRST_SENDER: u16 = 100;

/// The groups of a scenario, each with its first members and its spare nodes.
pub fn groups_of(plan: &Plan) -> Vec<(GroupId, Vec<NodeId>, Vec<NodeId>)> {
    let nodes = |first: u16, count: u16| (first..first + count).map(NodeId).collect::<Vec<_>>();
    if plan.units == 0 {
        return vec![(GROUP, nodes(1, plan.members), nodes(1 + plan.members, plan.spares))];
    }
    let mut all = vec![(OPERATIONS, nodes(FIRST_STANDBY, plan.standbys), Vec::new())];
    for unit in 1..=plan.units {
        let first = 1 + (unit - 1) * UNIT_STRIDE;
        let group = GroupId(u32::from(unit));
        all.push((group, nodes(first, plan.members), nodes(first + plan.members, plan.spares)));
    }
    all
}

/// The group of a node with data.
pub fn group_of(plan: &Plan, node: NodeId) -> GroupId {
    match node.0 {
        _ if plan.units == 0 => GROUP,
        FIRST_STANDBY.. => OPERATIONS,
        id => GroupId(u32::from(1 + (id - 1) / UNIT_STRIDE)),
    }
}

/// The core that runs on a node.
pub enum Core {
    /// A member, or a spare one.
    Member(Box<Receiver>),
    /// A node that may send.
    Sender(Box<Leader>),
    /// It has crashed.
    Down,
}

/// A node.
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// Its core.
    pub core: Core,
    /// Rises with every restart.
    pub life: u32,
    /// Its tracer.
    pub medium: Arc<OnlineMedium>,
    memory: Memory,
    pool: Option<Pool>,
    range: (PmAddr, u64),
    /// Speed of its clock: millionths of the right one.
    clock_ppm: u64,
    /// When it is woken next, and whether a batch is open.
    pub wake_at: u64,
    /// Whether the end of a batch is scheduled.
    pub in_batch: bool,
    /// The newest report of its member: term and tail.
    pub told_tail: (Term, u64),
    /// The newest promise that was told.
    pub told_promise: Term,
    /// How far its pages were judged.
    pub judged: (Term, u64),
    /// Its files, as far as they were judged.
    pub known: Known,
    /// Pages of which a bit has flipped, and that may be written anew since.
    pub flipped: BTreeSet<u64>,
    /// It is gone for good, with everything that it had.
    pub is_lost: bool,
}

fn pool_options(plan: &Plan) -> PoolOptions {
    let rings = plan.ring_bytes * u64::from(1 + plan.units);
    let bytes = rings.max(plan.log_bytes + PageArea::bytes_for(plan.page_bytes, plan.pages)) + 4096;
    let size_bytes = (bytes + (24 << 10)).next_multiple_of(4096);
    PoolOptions { size_bytes, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() }
}

impl Node {
    /// A new node with an empty pool.
    ///
    /// # Errors
    /// If the plan's sizes are too small.
    pub fn new(id: NodeId, plan: &Plan, clock_ppm: u64) -> Result<Self> {
        let medium = Arc::new(OnlineMedium::new());
        let options = pool_options(plan);
        let image = vec![0; usize::try_from(options.size_bytes).unwrap_or(0)];
        let memory = Memory::traced(&[image], options.reserve_bytes, medium.clone())?;
        let pool = Pool::create_on(memory.clone(), &options)?;
        let (start, end) = pool.heap_area(0);
        let range = (start, (end.offset() - start.offset()) / 64 * 64);
        let mut node = Self {
            id,
            core: Core::Down,
            life: 0,
            medium,
            memory,
            pool: Some(pool),
            range,
            clock_ppm,
            wake_at: u64::MAX,
            in_batch: false,
            told_tail: (Term(0), 0),
            told_promise: Term(0),
            judged: (Term(0), 0),
            known: Known::default(),
            flipped: BTreeSet::new(),
            is_lost: false,
        };
        node.core = node.make(plan, true)?;
        Ok(node)
    }

    /// The time on its clock.
    #[must_use]
    pub fn local(&self, time: u64) -> u64 {
        // The clocks begin far apart, too.
        time / 1000 * self.clock_ppm / 1000 + u64::from(self.id.0) * 1_000_000_007
    }

    /// The time of the world at a moment of its clock, or a little later.
    #[must_use]
    pub fn global(&self, local: u64) -> u64 {
        let since = u128::from(local.saturating_sub(u64::from(self.id.0) * 1_000_000_007));
        let time = (since * 1_000_000).div_ceil(u128::from(self.clock_ppm));
        u64::try_from(time).unwrap_or(u64::MAX - 2_000) + 2_000
    }

    fn make(&self, plan: &Plan, is_new: bool) -> Result<Core> {
        let (memory, (at, bytes)) = (&self.memory, self.range);
        if self.id.0 >= FIRST_SENDER {
            return self.make_sender(plan, is_new);
        }
        let area = (at.plus(plan.log_bytes), bytes - plan.log_bytes);
        let mut pages = PageArea::open(memory, area.0, area.1, plan.page_bytes, plan.pages)?;
        let log = if is_new {
            ApplyLog::create(memory, at, plan.log_bytes, SALT)?
        } else {
            ApplyLog::open(memory, at, plan.log_bytes, SALT, &mut pages)?
        };
        let options = ReceiverOptions {
            node: self.id,
            group: group_of(plan, self.id),
            salt: SALT,
            credit_bytes: plan.credit_bytes,
            payload_bytes_max: plan.payload_bytes,
            ..ReceiverOptions::default()
        };
        Ok(Core::Member(Box::new(Receiver::new(options, log, pages))))
    }

    /// The rings of all groups, one after the other.
    fn make_sender(&self, plan: &Plan, is_new: bool) -> Result<Core> {
        let mut senders = Vec::new();
        for (index, (group, _, _)) in (0..).zip(groups_of(plan)) {
            let at = self.range.0.plus(index * plan.ring_bytes);
            let ring = if is_new {
                Ring::create(&self.memory, at, plan.ring_bytes, SALT)?
            } else {
                Ring::open(&self.memory, at, plan.ring_bytes, SALT)?
            };
            let options = SenderOptions {
                node: self.id,
                group,
                salt: SALT,
                payload_bytes_max: plan.payload_bytes,
                credit_bytes: plan.credit_bytes,
                ..SenderOptions::default()
            };
            senders.push(Sender::new(options, ring));
        }
        let first = senders.remove(0);
        let leader = if plan.units == 0 {
            Leader::new(self.id, GROUP, first)
        } else {
            Leader::of_volume(self.id, VolumeSender::new(first, senders)?)
        };
        Ok(Core::Sender(Box::new(leader)))
    }

    /// Flips a bit of a page, as a medium may that holds it for long.
    pub fn flip(&mut self, page: u64, bit: u64) {
        let Some(at) = self.member().map(|member| member.pages().address(page).plus(bit / 512 * 64)) else { return };
        let Some(traced) = self.memory.as_traced() else { return };
        let mut words = traced.peek(at.line());
        words[(bit % 512 / 64) as usize] ^= 1 << (bit % 64);
        traced.poke(at.line(), words);
        self.flipped.insert(page);
    }

    /// Stops it: its memory is as a power cut leaves it.
    pub fn crash(&mut self, seed: u64) {
        self.core = Core::Down;
        self.pool = None;
        self.medium.crash(&self.memory, seed);
        self.in_batch = false;
        self.wake_at = u64::MAX;
    }

    /// Starts it again.
    ///
    /// # Errors
    /// A pool or log that does not open: a crash must not do that.
    pub fn restart(&mut self, plan: &Plan) -> Result<()> {
        self.life += 1;
        self.pool = Some(Pool::open_on(self.memory.clone(), &pool_options(plan))?);
        self.core = self.make(plan, false)?;
        self.judged = (Term(0), 0);
        self.known = Known::default();
        Ok(())
    }

    /// Whether it runs.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        !matches!(self.core, Core::Down)
    }

    /// Its member.
    #[must_use]
    pub const fn member(&self) -> Option<&Receiver> {
        match &self.core {
            Core::Member(receiver) => Some(receiver),
            _ => None,
        }
    }

    /// Its sender.
    #[must_use]
    pub const fn leader(&self) -> Option<&Leader> {
        match &self.core {
            Core::Sender(leader) => Some(leader),
            _ => None,
        }
    }
}
