//! Grants of a table: room for takeovers, rights of nodes, and a volume that is made twice.

use lodestone_fabric::{GroupId, LEASE_NS, Moment, NodeId, Role, Term, View, VolumeState};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_registry::{
    Answer, Keeper, KeeperId, KeeperOptions, KeeperOutbound, Request, TABLE_BYTES_MAX, TICK_NS, Token, VolumeId,
};

use crate::seeds::{GROUP, VOLUME, first_view};

const AT: PmAddr = PmAddr::new(0, 4096);
const BYTES: u64 = 4 << 20;
const OPTIONS: KeeperOptions = KeeperOptions { id: KeeperId(1), registry: 9, seed: 0 };

/// A keeper that decides alone, at once.
struct Alone {
    keeper: Keeper,
    now: Moment,
}

impl Alone {
    fn new(memory: &Memory) -> Self {
        Self::leading(Keeper::create(OPTIONS, memory, AT, BYTES, &[KeeperId(1)]).unwrap())
    }

    fn leading(keeper: Keeper) -> Self {
        let mut alone = Self { keeper, now: Moment(1) };
        while !alone.keeper.is_leading() {
            alone.pass(TICK_NS);
        }
        alone
    }

    fn pass(&mut self, ns: u64) {
        self.now = self.now.plus(ns);
        self.keeper.tick(self.now, &mut KeeperOutbound::default()).unwrap();
    }

    fn ask(&mut self, volume: VolumeId, request: Request) -> Answer {
        self.ask_as(None, volume, request)
    }

    fn ask_as(&mut self, node: Option<NodeId>, volume: VolumeId, request: Request) -> Answer {
        let mut out = KeeperOutbound::default();
        self.keeper.request_of(self.now, Token(1), node, (volume, request), &mut out).unwrap();
        out.answers.pop().expect("it decides alone").1
    }
}

fn memory() -> Memory {
    Memory::anonymous(8 << 20).unwrap()
}

fn refused(answer: &Answer, text: &str) -> bool {
    matches!(answer, Answer::Refused(reason) if reason.contains(text))
}

/// Volumes until there is no room for another one, first large ones. Returns how many.
fn fill(alone: &mut Alone) -> u64 {
    let mut made = 0;
    for groups in [600, 20, 1, 0] {
        loop {
            let groups = (0..groups).map(|group| (GroupId(group), first_view())).collect();
            match alone.ask(VolumeId(made), Request::Create(groups)) {
                Answer::Done(_) => made += 1,
                answer => {
                    assert!(refused(&answer, "no room for another volume"), "{answer:?}");
                    break;
                }
            }
        }
    }
    made
}

/// As many members as there is room for, in the groups of the first volume.
fn fill_members(alone: &mut Alone) -> VolumeState {
    let Answer::State(mut state) = alone.ask(VolumeId(0), Request::State) else { panic!("a volume") };
    for group in (0..600).map(GroupId) {
        for members in [32, 3] {
            let nodes: Vec<NodeId> = (1..=members).map(NodeId).collect();
            match alone.ask(VolumeId(0), Request::Change(state.term, state.change, group, View::of(&nodes))) {
                Answer::Done(next) => {
                    state = next;
                    break;
                }
                answer => assert!(refused(&answer, "no room for more members"), "{answer:?}"),
            }
        }
    }
    state
}

#[test]
fn a_full_table_takes_terms_leases_and_members_that_leave() {
    let memory = memory();
    let mut alone = Alone::new(&memory);
    let volumes = fill(&mut alone);
    let state = fill_members(&mut alone);
    let bytes = alone.keeper.table().to_bytes().len();
    assert!(bytes <= TABLE_BYTES_MAX && bytes > TABLE_BYTES_MAX - 64, "{bytes}: it is full");
    // A second takeover waits for the lease of the first: all of it has room.
    for term in 0..2 {
        for volume in (0..volumes).map(VolumeId) {
            let claimed = alone.ask(volume, Request::Claim(NodeId(7), Term(term)));
            assert!(matches!(claimed, Answer::Done(_)), "{volume}: {claimed:?}");
            let renewed = alone.ask(volume, Request::Renew(Term(term + 1)));
            assert_eq!(renewed, Answer::Held(LEASE_NS), "{volume}");
        }
        alone.pass(2 * LEASE_NS);
    }
    let fewer = state.groups[0].1.with(NodeId(1), None);
    let left = alone.ask(VolumeId(0), Request::Change(Term(2), state.change, GroupId(0), fewer));
    assert!(matches!(left, Answer::Done(_)), "a member that leaves: {left:?}");
    let table = alone.keeper.table().clone();
    drop(alone);
    let alone = Alone::leading(Keeper::open(OPTIONS, &memory, AT, BYTES).unwrap());
    assert!(*alone.keeper.table() == table, "the log had room for all of it");
}

/// The answer to the first request was lost.
#[test]
fn a_volume_that_is_made_twice_is_made_once() {
    let mut alone = Alone::new(&memory());
    let create = || Request::Create(vec![(GROUP, first_view())]);
    let made = alone.ask(VOLUME, create());
    assert!(matches!(made, Answer::Done(_)));
    assert_eq!(alone.ask(VOLUME, create()), made);
    let Answer::Done(claimed) = alone.ask(VOLUME, Request::Claim(NodeId(1), Term(0))) else { panic!("a claim") };
    assert_eq!(alone.ask(VOLUME, create()), Answer::Done(claimed.clone()), "a sender came meanwhile");
    assert_eq!(alone.ask(VOLUME, Request::Create(vec![])), Answer::Differs(claimed), "another volume of that name");
    let view = first_view().with(NodeId(3), Some(Role::Joining));
    assert!(matches!(alone.ask(VOLUME, Request::Change(Term(1), 0, GROUP, view)), Answer::Done(_)));
    assert!(matches!(alone.ask(VOLUME, create()), Answer::Differs(_)), "its members changed");
}

/// Rights are those of the state that the request finds, and an answer that changes nothing needs none.
#[test]
fn a_node_that_was_removed_may_do_nothing() {
    let mut alone = Alone::new(&memory());
    alone.ask(VOLUME, Request::Create(vec![(GROUP, first_view())]));
    let (one, two) = (NodeId(1), NodeId(2));
    let claim = |node, seen| Request::Claim(node, Term(seen));
    assert!(refused(&alone.ask_as(Some(NodeId(9)), VOLUME, claim(NodeId(9), 0)), "no member"));
    assert!(matches!(alone.ask_as(Some(one), VOLUME, claim(one, 0)), Answer::Done(_)));
    assert_eq!(alone.ask_as(Some(one), VOLUME, Request::Renew(Term(1))), Answer::Held(LEASE_NS));
    let without = |node| Request::Change(Term(1), 0, GROUP, first_view().with(node, None));
    assert!(refused(&alone.ask_as(Some(two), VOLUME, without(one)), "not the sender"));
    assert!(refused(&alone.ask_as(Some(two), VOLUME, Request::Renew(Term(1))), "not the sender"));
    assert!(matches!(alone.ask_as(Some(one), VOLUME, without(one)), Answer::Done(_)), "it removes itself");
    // It is the sender still, and nothing more.
    let back = Request::Change(Term(1), 1, GROUP, first_view());
    for request in [claim(one, 1), Request::Renew(Term(1)), back] {
        let answer = alone.ask_as(Some(one), VOLUME, request.clone());
        assert!(refused(&answer, "no member"), "{request:?}: {answer:?}");
    }
    assert!(matches!(alone.ask_as(Some(one), VOLUME, claim(one, 0)), Answer::Differs(_)));
    assert!(matches!(alone.ask_as(Some(two), VOLUME, claim(two, 1)), Answer::Done(_)));
    assert_eq!(alone.ask_as(Some(one), VOLUME, Request::Renew(Term(1))), Answer::Lost(Term(2)));
}
