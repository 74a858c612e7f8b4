//! The suite that every registry passes: swaps, leases, restarts, two writers, a lost majority.

use std::sync::{Arc, Mutex};

use lodestone_fabric::{
    GroupId, LEASE_NS, Lease, LocalRegistry, Moment, NodeId, Registry, Result, Role, Swap, Term, View, VolumeState,
};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_registry::{Answer, Request};

use crate::seeds::{GROUP, Run, first_view};

/// A registry under test.
pub trait Ground {
    /// A client of its own, of the volume with [`first_view`].
    fn client(&mut self) -> Box<dyn Registry + Send>;

    /// Time passes, on the registry's clock.
    fn pass(&mut self, ns: u64);

    /// The whole registry stops and starts.
    fn restart(&mut self);

    /// Takes so much of it away that it cannot decide. `false`: it has no majority to lose.
    fn lose_majority(&mut self) -> bool;

    /// Gives that back.
    fn heal(&mut self);
}

fn done(swap: Swap) -> VolumeState {
    match swap {
        Swap::Done(state) => state,
        Swap::Differs(state) => panic!("the swap was refused: the state is {state:?}"),
    }
}

/// Everything, in one order: a registry is expensive to start.
pub fn run(ground: &mut dyn Ground) {
    let mut one = ground.client();
    let mut other = ground.client();
    swaps(&mut *one, &mut *other);
    leases(ground, &mut *one, &mut *other);
    restarts(ground, &mut *one);
    two_writers(one, other);
    lost_majority(ground);
}

fn swaps(one: &mut dyn Registry, other: &mut dyn Registry) {
    let state = one.state().expect("a registry that answers");
    assert_eq!(state, VolumeState { groups: vec![(GROUP, first_view())], ..VolumeState::default() });
    let claimed = done(one.claim(NodeId(7), Term(0)).unwrap());
    assert_eq!((claimed.term, claimed.sender), (Term(1), NodeId(7)));
    assert_eq!(other.claim(NodeId(8), Term(0)).unwrap(), Swap::Differs(claimed.clone()), "a term is handed out once");
    assert_eq!(other.state().unwrap(), claimed);
    let view = first_view().with(NodeId(3), Some(Role::Joining));
    let changed = done(one.change(Term(1), 0, GROUP, &view).unwrap());
    assert_eq!((changed.change, changed.view(GROUP)), (1, Some(&view)));
    for (term, change) in [(Term(1), 0), (Term(0), 1), (Term(2), 1)] {
        let swap = other.change(term, change, GROUP, &first_view()).unwrap();
        assert_eq!(swap, Swap::Differs(changed.clone()), "{term} {change}");
    }
    assert!(other.change(Term(1), 1, GroupId(99), &view).is_err(), "a group that does not exist");
    assert_eq!(other.state().unwrap(), changed, "nothing changed by what was refused");
}

/// Asks until the lease is there. Returns the nanoseconds that it was told to wait.
fn held(ground: &mut dyn Ground, client: &mut dyn Registry, term: Term) -> u64 {
    let mut waited = 0;
    loop {
        match client.renew(Moment(0), term).unwrap() {
            Lease::Held(ns) => {
                assert_eq!(ns, LEASE_NS);
                return waited;
            }
            Lease::Wait(ns) => {
                waited += ns;
                ground.pass(ns);
            }
            Lease::Lost(newest) => panic!("{newest} is newer"),
        }
        assert!(waited < 20 * LEASE_NS, "the lease never comes");
    }
}

fn leases(ground: &mut dyn Ground, one: &mut dyn Registry, other: &mut dyn Registry) {
    assert_eq!(held(ground, one, Term(1)), 0, "nobody had it before");
    assert_eq!(one.renew(Moment(0), Term(1)).unwrap(), Lease::Held(LEASE_NS), "a holder gets more of it");
    assert_eq!(one.renew(Moment(0), Term(9)).unwrap(), Lease::Lost(Term(1)));
    done(other.claim(NodeId(8), Term(1)).unwrap());
    assert_eq!(one.renew(Moment(0), Term(1)).unwrap(), Lease::Lost(Term(2)));
    assert!(matches!(other.renew(Moment(0), Term(2)).unwrap(), Lease::Wait(ns) if ns < 5 * LEASE_NS));
    assert!(held(ground, other, Term(2)) > 0, "the former holder may still read");
}

fn restarts(ground: &mut dyn Ground, one: &mut dyn Registry) {
    let state = one.state().unwrap();
    let claimed = done(one.claim(NodeId(7), state.term).unwrap());
    ground.restart();
    let mut later = ground.client();
    assert_eq!(later.state().unwrap(), claimed, "what was told survives");
    assert!(held(ground, &mut *later, claimed.term) > 0, "the lease of before the restart is waited for");
}

/// Two nodes claim again and again: each term belongs to one of them.
fn two_writers(one: Box<dyn Registry + Send>, other: Box<dyn Registry + Send>) {
    let claims = |mut client: Box<dyn Registry + Send>, node: NodeId| {
        let mut own = Vec::new();
        let mut seen = client.state().unwrap().term;
        for _ in 0..20 {
            let state = match client.claim(node, seen) {
                Ok(Swap::Done(state)) => {
                    assert_eq!((state.sender, state.term), (node, Term(seen.0 + 1)));
                    own.push(state.term);
                    state
                }
                Ok(Swap::Differs(state)) => {
                    assert!(state.term > seen);
                    state
                }
                // It may have happened: a keeper that led was too slow.
                Err(_) => client.state().unwrap(),
            };
            seen = state.term;
        }
        own
    };
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| claims(one, NodeId(7)));
        let second = scope.spawn(|| claims(other, NodeId(8)));
        (first.join().expect("claims of one"), second.join().expect("claims of the other"))
    });
    assert!(first.iter().all(|term| !second.contains(term)), "no term belongs to both");
    assert!(!first.is_empty() || !second.is_empty(), "someone wins");
}

fn lost_majority(ground: &mut dyn Ground) {
    let before = ground.client().state().unwrap();
    if !ground.lose_majority() {
        return;
    }
    // A client that knows about the loss gives up sooner.
    let mut client = ground.client();
    client.state().expect_err("without a majority nothing is known");
    client.claim(NodeId(9), before.term).expect_err("nor decided");
    client.renew(Moment(0), before.term).expect_err("nor granted");
    ground.heal();
    let after = ground.client().state().expect("the majority is there again");
    // The claim may have happened: it was asked for and never denied.
    assert!(after == before || (after.term.0, after.sender) == (before.term.0 + 1, NodeId(9)), "{after:?}");
}

/// A registry in a pool of this process.
struct Local {
    memory: Memory,
    registry: Arc<Mutex<LocalRegistry>>,
    now: Arc<Mutex<Moment>>,
}

struct LocalClient(Arc<Mutex<LocalRegistry>>, Arc<Mutex<Moment>>);

impl Registry for LocalClient {
    fn state(&self) -> Result<VolumeState> {
        self.0.lock().unwrap().state()
    }

    fn claim(&mut self, node: NodeId, seen: Term) -> Result<Swap> {
        self.0.lock().unwrap().claim(node, seen)
    }

    fn change(&mut self, term: Term, change: u64, group: GroupId, view: &View) -> Result<Swap> {
        self.0.lock().unwrap().change(term, change, group, view)
    }

    fn renew(&mut self, _: Moment, term: Term) -> Result<Lease> {
        let now = *self.1.lock().unwrap();
        self.0.lock().unwrap().renew(now, term)
    }
}

const AT: PmAddr = PmAddr::new(0, 4096);

impl Ground for Local {
    fn client(&mut self) -> Box<dyn Registry + Send> {
        Box::new(LocalClient(Arc::clone(&self.registry), Arc::clone(&self.now)))
    }

    fn pass(&mut self, ns: u64) {
        let mut now = self.now.lock().unwrap();
        *now = now.plus(ns);
    }

    fn restart(&mut self) {
        *self.registry.lock().unwrap() = LocalRegistry::open(&self.memory, AT).unwrap();
    }

    fn lose_majority(&mut self) -> bool {
        false
    }

    fn heal(&mut self) {}
}

#[test]
fn local() {
    let memory = Memory::anonymous(1 << 16).unwrap();
    let registry = LocalRegistry::create(&memory, AT, vec![(GROUP, first_view())]).unwrap();
    run(&mut Local { memory, registry: Arc::new(Mutex::new(registry)), now: Arc::new(Mutex::new(Moment(5))) });
}

/// Keepers on virtual time.
struct Simulated(Arc<Mutex<Run>>);

struct SimulatedClient(Arc<Mutex<Run>>);

impl SimulatedClient {
    fn ask(&self, request: &Request) -> Result<Answer> {
        let answer = self.0.lock().unwrap().ask(request);
        let error = |text: &str| lodestone_fabric::Error::Registry(text.to_owned());
        answer.ok_or_else(|| error("no keeper decides"))
    }
}

impl Registry for SimulatedClient {
    fn state(&self) -> Result<VolumeState> {
        match self.ask(&Request::State)? {
            Answer::State(state) => Ok(state),
            other => panic!("{other:?}"),
        }
    }

    fn claim(&mut self, node: NodeId, seen: Term) -> Result<Swap> {
        Ok(swap(self.ask(&Request::Claim(node, seen))?))
    }

    fn change(&mut self, term: Term, change: u64, group: GroupId, view: &View) -> Result<Swap> {
        Ok(swap(self.ask(&Request::Change(term, change, group, view.clone()))?))
    }

    fn renew(&mut self, _: Moment, term: Term) -> Result<Lease> {
        Ok(match self.ask(&Request::Renew(term))? {
            Answer::Held(ns) => Lease::Held(ns),
            Answer::Wait(ns) => Lease::Wait(ns),
            Answer::Lost(term) => Lease::Lost(term),
            other => panic!("{other:?}"),
        })
    }
}

fn swap(answer: Answer) -> Swap {
    match answer {
        Answer::Done(state) => Swap::Done(state),
        Answer::Differs(state) => Swap::Differs(state),
        other => panic!("{other:?}"),
    }
}

impl Ground for Simulated {
    fn client(&mut self) -> Box<dyn Registry + Send> {
        Box::new(SimulatedClient(Arc::clone(&self.0)))
    }

    fn pass(&mut self, ns: u64) {
        let mut run = self.0.lock().unwrap();
        let at = run.world.now() + ns;
        run.world.run_until(at).unwrap();
    }

    fn restart(&mut self) {
        let mut run = self.0.lock().unwrap();
        for id in run.world.ids() {
            run.world.crash(id, 0);
        }
        run.world.heal().unwrap();
    }

    fn lose_majority(&mut self) -> bool {
        let mut run = self.0.lock().unwrap();
        let all = run.world.ids();
        for id in &all[..all.len() / 2 + 1] {
            run.world.crash(*id, 0);
        }
        true
    }

    fn heal(&mut self) {
        self.0.lock().unwrap().world.heal().unwrap();
    }
}

fn simulated(keepers: u64) {
    run(&mut Simulated(Arc::new(Mutex::new(Run::new(keepers, keepers)))));
}

#[test]
fn one_keeper() {
    simulated(1);
}

#[test]
fn three_keepers() {
    simulated(3);
}

#[test]
fn five_keepers() {
    simulated(5);
}
