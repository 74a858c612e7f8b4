//! Messages of other keepers, right and wrong. The consensus core ends the process for numbers that are out of place:
//! no message may bring it that far.

use lodestone_fabric::{Moment, NodeId, Term};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_registry::{
    Answer, Keeper, KeeperId, KeeperOptions, KeeperOutbound, Request, TICK_NS, Table, Token, VolumeId,
};

use crate::seeds::Draw;

const AT: PmAddr = PmAddr::new(0, 4096);
const BYTES: u64 = 1 << 20;
const REGISTRY: u64 = 9;
const ALL: [KeeperId; 3] = [KeeperId(1), KeeperId(2), KeeperId(3)];

/// Kinds of messages, by their codes.
const APPEND: u8 = 0;
const APPEND_RESPONSE: u8 = 1;
const VOTE: u8 = 2;
const VOTE_RESPONSE: u8 = 3;
const SNAPSHOT: u8 = 4;
const HEARTBEAT: u8 = 5;
const PRE_VOTE: u8 = 7;
const PRE_VOTE_RESPONSE: u8 = 8;
const KINDS: u8 = 9;

/// A message, field by field.
#[derive(Clone, Debug, Default)]
struct Sent {
    kind: u8,
    reject: bool,
    to: u64,
    from: u64,
    term: u64,
    log_term: u64,
    index: u64,
    commit: u64,
    commit_term: u64,
    reject_hint: u64,
    request_snapshot: u64,
    /// Index and term of each.
    entries: Vec<(u64, u64)>,
    /// Index, term and table.
    snapshot: Option<(u64, u64, Vec<u8>)>,
}

impl Sent {
    /// Of keeper 2 to keeper 1, in term 5.
    fn of(kind: u8) -> Self {
        Self { kind, to: 1, from: 2, term: 5, ..Self::default() }
    }

    /// As the network brings it: the checksum holds.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend([self.kind, u8::from(self.reject)]);
        let numbers = [self.to, self.from, self.term, self.log_term, self.index, self.commit, self.commit_term];
        for number in numbers.into_iter().chain([self.reject_hint, self.request_snapshot]) {
            out.extend(number.to_le_bytes());
        }
        // No context.
        out.extend(0_u32.to_le_bytes());
        out.extend(u32::try_from(self.entries.len()).unwrap().to_le_bytes());
        for (index, term) in &self.entries {
            out.extend(index.to_le_bytes());
            out.extend(term.to_le_bytes());
            // As the first entry of a leader, it says nothing.
            out.extend(0_u32.to_le_bytes());
        }
        out.push(u8::from(self.snapshot.is_some()));
        if let Some((index, term, table)) = &self.snapshot {
            out.extend(index.to_le_bytes());
            out.extend(term.to_le_bytes());
            out.extend(u32::try_from(table.len()).unwrap().to_le_bytes());
            out.extend(table);
        }
        seal(&mut out);
        out
    }
}

fn seal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&REGISTRY.to_le_bytes()), &bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Keeper 1 of three, and what it sent.
struct One {
    keeper: Keeper,
    memory: Memory,
    now: Moment,
    out: KeeperOutbound,
}

fn options(id: u64) -> KeeperOptions {
    KeeperOptions { id: KeeperId(id), registry: REGISTRY, seed: id }
}

impl One {
    fn new() -> Self {
        let memory = Memory::anonymous(2 << 20).unwrap();
        let keeper = Keeper::create(options(1), &memory, AT, BYTES, &ALL).unwrap();
        Self { keeper, memory, now: Moment(1), out: KeeperOutbound::default() }
    }

    fn tick(&mut self) {
        self.now = self.now.plus(TICK_NS);
        self.keeper.tick(self.now, &mut self.out).unwrap();
    }

    /// Brings bytes, and returns whether they were taken.
    fn bring(&mut self, bytes: &[u8]) -> bool {
        let before = self.keeper.counts();
        self.keeper.message(self.now, bytes, &mut self.out).unwrap();
        let after = self.keeper.counts();
        let (taken, refused) = (after.messages - before.messages, after.refused - before.refused);
        assert!(taken <= 1 && refused <= 1 && taken + refused > 0, "each one is counted");
        refused == 0
    }

    fn takes(&mut self, sent: &Sent) -> bool {
        self.bring(&sent.to_bytes())
    }

    /// It follows keeper 2 in term 5, has three entries, and knows that the first two are committed.
    fn following() -> Self {
        let mut one = Self::new();
        let append = Sent { index: 1, log_term: 1, commit: 2, entries: vec![(2, 5), (3, 5)], ..Sent::of(APPEND) };
        assert!(one.takes(&append));
        assert_eq!((one.keeper.applied(), one.keeper.leader()), (2, Some(KeeperId(2))));
        one
    }

    /// It asks for votes and is about to get them.
    fn asking() -> Self {
        let mut one = Self::following();
        while one.keeper.leader().is_some() {
            one.tick();
        }
        one
    }

    fn leading() -> Self {
        let mut one = Self::asking();
        let votes = [(PRE_VOTE_RESPONSE, 1), (VOTE_RESPONSE, 0)];
        for (kind, ahead) in votes {
            let term = one.keeper.term() + ahead;
            assert!(one.takes(&Sent { term, ..Sent::of(kind) }));
        }
        assert!(one.keeper.is_leading());
        one
    }

    /// It still does what a keeper does, also after a restart.
    fn works(mut self) {
        self.tick();
        let (term, applied) = (self.keeper.term(), self.keeper.applied());
        drop(self.keeper);
        let keeper = Keeper::open(options(1), &self.memory, AT, BYTES).unwrap();
        assert_eq!(keeper.term(), term);
        assert!(keeper.applied() <= applied, "committed entries are learned again");
    }
}

/// Each of these ends the core, or hides what was committed, if it gets there.
fn wrong_for_a_follower() -> Vec<(&'static str, Sent)> {
    let append = || Sent { index: 3, log_term: 5, commit: 3, ..Sent::of(APPEND) };
    let snapshot = |index, term| Some((index, term, Table::default().to_bytes()));
    vec![
        ("commits more than there is", Sent { commit: 4, ..Sent::of(HEARTBEAT) }),
        ("follows a place that is not there", Sent { index: 9, log_term: 0, entries: vec![(10, 5)], ..append() }),
        ("commits a place that is not there", Sent { index: 9, log_term: 0, commit: 9, ..append() }),
        ("an entry of no term", Sent { entries: vec![(4, 0)], commit: 4, ..append() }),
        ("entries with a gap", Sent { entries: vec![(4, 5), (6, 5)], ..append() }),
        ("entries that do not follow", Sent { entries: vec![(5, 5)], ..append() }),
        ("terms that fall", Sent { entries: vec![(4, 4)], ..append() }),
        ("an entry of a later term", Sent { entries: vec![(4, 6)], ..append() }),
        ("another committed entry", Sent { index: 1, log_term: 1, entries: vec![(2, 4)], ..append() }),
        ("the last place that numbers have", Sent { index: u64::MAX, entries: vec![(0, 5)], ..append() }),
        ("a table of no term", Sent { snapshot: snapshot(9, 0), ..Sent::of(SNAPSHOT) }),
        ("a table of a later term", Sent { snapshot: snapshot(9, 6), ..Sent::of(SNAPSHOT) }),
        ("a table of no place", Sent { snapshot: snapshot(0, 5), ..Sent::of(SNAPSHOT) }),
        ("a table of the last place", Sent { snapshot: snapshot(u64::MAX, 5), ..Sent::of(SNAPSHOT) }),
        ("a table that is none", Sent { snapshot: Some((9, 5, vec![7; 40])), ..Sent::of(SNAPSHOT) }),
        ("no table", Sent::of(SNAPSHOT)),
        ("a table with a vote", Sent { term: 6, snapshot: snapshot(9, 5), ..Sent::of(VOTE) }),
        ("entries with a beat", Sent { entries: vec![(1, 5)], ..Sent::of(HEARTBEAT) }),
        ("the last term", Sent { term: u64::MAX, ..Sent::of(VOTE) }),
        ("a term that elections do not reach", Sent { term: 1 << 40, ..Sent::of(VOTE) }),
        ("no term", Sent { term: 0, ..Sent::of(HEARTBEAT) }),
        ("for another keeper", Sent { to: 3, ..Sent::of(HEARTBEAT) }),
        ("of itself", Sent { from: 1, ..Sent::of(HEARTBEAT) }),
        ("of no keeper", Sent { from: 4, ..Sent::of(HEARTBEAT) }),
        ("of no kind", Sent::of(KINDS)),
    ]
}

#[test]
fn wrong_messages_are_counted_and_dropped() {
    for (what, sent) in wrong_for_a_follower() {
        let mut one = One::following();
        assert!(!one.takes(&sent), "{what}: {sent:?}");
        assert_eq!((one.keeper.applied(), one.keeper.term()), (2, 5), "{what}: nothing changed");
        // The right one is taken.
        assert!(one.takes(&Sent { index: 3, log_term: 5, commit: 3, ..Sent::of(APPEND) }), "{what}");
        assert_eq!(one.keeper.applied(), 3, "{what}");
        one.works();
    }
}

#[test]
fn wrong_answers_to_a_leader_are_dropped() {
    let response = |one: &One| Sent { term: one.keeper.term(), ..Sent::of(APPEND_RESPONSE) };
    let wrong: [fn(&mut Sent); 3] = [
        |sent| sent.index = 5,
        |sent| (sent.reject, sent.index, sent.reject_hint) = (true, 3, u64::MAX),
        |sent| (sent.reject, sent.index, sent.request_snapshot) = (true, 3, 9),
    ];
    for spoil in wrong {
        // It has an entry of its own term, the fourth.
        let mut one = One::leading();
        let mut sent = response(&one);
        spoil(&mut sent);
        assert!(!one.takes(&sent), "{sent:?}");
        assert!(one.takes(&Sent { index: 4, ..response(&one) }), "the right one");
        let request = Request::Claim(NodeId(1), Term(0));
        one.keeper.request(one.now, Token(1), VolumeId(1), request, &mut one.out).unwrap();
        assert!(one.takes(&Sent { index: 5, ..response(&one) }));
        assert!(matches!(one.out.answers[..], [(Token(1), Answer::Refused(_))]), "it decides: {:?}", one.out.answers);
        one.works();
    }
}

/// A number that is likely to be out of place.
fn number(draw: &mut Draw, near: u64) -> u64 {
    match draw.below(12) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << 62,
        3 => (1 << 62) - 1,
        4 => draw.below(9),
        _ => (near + draw.below(4)).saturating_sub(1),
    }
}

fn drawn(draw: &mut Draw, one: &One) -> Sent {
    let (term, last) = (one.keeper.term(), one.keeper.applied() + 1);
    let mut sent = Sent::of(u8::try_from(draw.below(KINDS.into())).unwrap());
    (sent.term, sent.from, sent.reject) = (number(draw, term), 2 + draw.below(2), draw.below(3) == 0);
    (sent.log_term, sent.index, sent.commit) = (number(draw, term), number(draw, last), number(draw, last));
    (sent.commit_term, sent.reject_hint) = (number(draw, term), number(draw, last));
    sent.request_snapshot = if draw.below(8) == 0 { number(draw, last) } else { 0 };
    if draw.below(2) == 0 {
        let first = if draw.below(8) == 0 { number(draw, last) } else { sent.index.wrapping_add(1) };
        let entries = draw.below(4);
        sent.entries = (0..entries).map(|offset| (first.wrapping_add(offset), number(draw, term))).collect();
    }
    if draw.below(if sent.kind == SNAPSHOT { 8 } else { 1 }) > 0 {
        sent.snapshot = Some((number(draw, last), number(draw, term), Table::default().to_bytes()));
    }
    sent
}

/// Random messages of other keepers, at a keeper in each part.
#[test]
fn no_message_stops_a_keeper() {
    let mut draw = Draw(1);
    let mut taken = [0; KINDS as usize + 1];
    let mut refused = 0;
    for round in 0..120 {
        let mut one = [One::following, One::asking, One::leading][round % 3]();
        for _ in 0..60 {
            let sent = drawn(&mut draw, &one);
            if one.takes(&sent) {
                taken[usize::from(sent.kind)] += 1;
            } else {
                refused += 1;
            }
            if draw.below(4) == 0 {
                one.tick();
            }
        }
        one.works();
    }
    println!("taken by kind: {taken:?}, refused: {refused}");
    assert!(taken[..usize::from(KINDS)].iter().all(|count| *count > 5), "right ones of each kind are among them");
    assert!(refused > 1000);
}

/// Real messages, cut and changed.
#[test]
fn damaged_messages_are_dropped() {
    let memory = Memory::anonymous(2 << 20).unwrap();
    let mut two = Keeper::create(options(2), &memory, AT, BYTES, &ALL).unwrap();
    let (mut now, mut out) = (Moment(1), KeeperOutbound::default());
    while out.messages.is_empty() {
        now = now.plus(TICK_NS);
        two.tick(now, &mut out).unwrap();
    }
    let (to, bytes) = out.messages.swap_remove(0);
    assert_eq!((to, bytes[4]), (KeeperId(1), PRE_VOTE));
    let mut one = One::new();
    for length in 0..bytes.len() {
        assert!(!one.bring(&bytes[..length]), "cut after {length}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!one.bring(&changed), "bit {bit}: the checksum does not hold");
        // Sealed again it may be a right one.
        seal(&mut changed);
        one.bring(&changed);
    }
    assert!(one.bring(&bytes), "the whole one is taken");
    one.works();
}
