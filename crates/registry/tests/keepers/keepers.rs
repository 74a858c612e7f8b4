//! Single courses of events at keepers.

use lodestone_fabric::{LEASE_NS, NodeId, Term};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_registry::{
    Answer, Error, KEEPERS_MAX, Keeper, KeeperId, KeeperOptions, KeeperPool, Request, Token, VolumeId,
};

use crate::seeds::{Run, VOLUME};

const AT: PmAddr = PmAddr::new(0, 4096);
const BYTES: u64 = 64 << 10;

fn leader(run: &Run) -> KeeperId {
    let leads = |id: &KeeperId| run.world.keeper(*id).is_some_and(Keeper::is_leading);
    run.world
        .ids()
        .into_iter()
        .filter(leads)
        .max_by_key(|id| run.world.keeper(*id).map(Keeper::term))
        .expect("a leader")
}

/// A leader that was cut off grants nothing, and what it was asked is unknown to its client.
#[test]
fn a_leader_that_was_cut_off_decides_nothing() {
    let mut run = Run::new(3, 3);
    run.ask(&Request::Claim(NodeId(7), Term(0))).expect("a majority");
    assert_eq!(run.ask(&Request::Renew(Term(1))), Some(Answer::Held(LEASE_NS)));
    let old = leader(&run);
    // It is asked, and then cut off before it could tell the others.
    let token = run.token();
    run.world.request(old, token, VOLUME, &Request::Renew(Term(1)));
    run.world.cut(&[old]);
    let end = run.world.now() + 3_000_000_000;
    run.world.run_until(end).expect("keepers run");
    assert_ne!(leader(&run), old, "the others have a leader of their own");
    let told = run.world.take_answers();
    assert!(told.iter().all(|answer| answer.0 != token), "{told:?}");
    // The lease of the first term is over by the clocks of all others.
    run.world.cut(&[]);
    run.ask(&Request::Claim(NodeId(8), Term(1))).expect("a majority");
    assert_eq!(run.ask(&Request::Renew(Term(2))), Some(Answer::Held(LEASE_NS)));
}

/// A keeper that was away for long gets the whole table.
#[test]
fn a_keeper_that_lacks_much_takes_a_table() {
    let mut run = Run::new(3, 4);
    let late = run.world.ids().into_iter().find(|id| *id != leader(&run)).expect("a follower");
    run.world.crash(late, 0);
    for term in 0..200 {
        run.ask(&Request::Claim(NodeId(7), Term(term))).expect("a majority");
    }
    run.world.restart(late).expect("it opens");
    let end = run.world.now() + 2_000_000_000;
    run.world.run_until(end).expect("keepers run");
    let table = run.world.keeper(late).expect("it is up").table();
    assert_eq!(table.state(VOLUME).expect("the volume").term, Term(200));
    assert_eq!(run.world.violation(), None);
}

#[test]
fn impossible_lists_of_keepers_are_refused() {
    let memory = Memory::anonymous(1 << 20).unwrap();
    let make = |keepers: &[KeeperId]| {
        let options = KeeperOptions { id: KeeperId(1), registry: 9, seed: 0 };
        Keeper::create(options, &memory, AT, BYTES, keepers)
    };
    let many: Vec<KeeperId> = (1..=KEEPERS_MAX as u64 + 1).map(KeeperId).collect();
    let too_large = [KeeperId(1), KeeperId(KeeperId::MAX + 1)];
    for wrong in [&[][..], &[KeeperId(2)], &[KeeperId(0), KeeperId(1)], &many, &too_large] {
        assert!(matches!(make(wrong), Err(Error::Keepers(_))), "{wrong:?}");
    }
    make(&[KeeperId(1), KeeperId(KeeperId::MAX)]).expect("the largest number");
}

/// Damage to what was durable is never taken for the end of the log.
#[test]
fn damage_never_makes_a_keeper_forget() {
    let options = KeeperOptions { id: KeeperId(1), registry: 9, seed: 0 };
    let memory = Memory::anonymous(1 << 20).unwrap();
    let mut keeper = Keeper::create(options, &memory, AT, BYTES, &[KeeperId(1)]).unwrap();
    let mut out = lodestone_registry::KeeperOutbound::default();
    let mut now = lodestone_fabric::Moment(1);
    while !keeper.is_leading() {
        now = now.plus(lodestone_registry::TICK_NS);
        keeper.tick(now, &mut out).unwrap();
    }
    keeper.request(now, Token(1), VolumeId(3), Request::Create(vec![]), &mut out).unwrap();
    for term in 0..20 {
        let request = Request::Claim(NodeId(1), Term(term));
        keeper.request(now, Token(2), VolumeId(3), request, &mut out).unwrap();
    }
    assert_eq!(keeper.table().state(VolumeId(3)).unwrap().term, Term(20));
    let (table, term) = (keeper.table().clone(), keeper.term());
    drop(keeper);
    let mut whole = vec![0; BYTES as usize];
    memory.read(AT, &mut whole);
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let mut refused = 0;
    for place in (0..used).step_by(24) {
        let at = AT.plus(place as u64);
        memory.store(at, memory.load(at) ^ 1 << (place % 61));
        match Keeper::open(options, &memory, AT, BYTES) {
            Ok(mut keeper) => {
                // Alone it leads after a while, and then it knows what was committed.
                let mut now = now;
                while !keeper.is_leading() {
                    now = now.plus(lodestone_registry::TICK_NS);
                    keeper.tick(now, &mut out).unwrap();
                }
                assert!(keeper.term() >= term, "byte {place}: it forgot its term");
                assert_eq!(*keeper.table(), table, "byte {place}: it forgot what it told");
            }
            Err(_) => refused += 1,
        }
        memory.write(AT, &whole);
    }
    assert!(refused > 0, "records have checksums");
    // The untouched one opens.
    Keeper::open(options, &memory, AT, BYTES).unwrap();
}

/// A keeper in a file is one object of a store, opened by one process at a time.
#[test]
fn a_keeper_in_a_file_survives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keeper.pool");
    let all = [KeeperId(2)];
    let claim = |pool: &mut KeeperPool, seen: u32| {
        let (mut now, mut out) = (lodestone_fabric::Moment(1), lodestone_registry::KeeperOutbound::default());
        while !pool.keeper.is_leading() {
            now = now.plus(lodestone_registry::TICK_NS);
            pool.keeper.tick(now, &mut out).unwrap();
        }
        pool.keeper.request(now, Token(1), VOLUME, Request::Create(vec![]), &mut out).unwrap();
        pool.keeper.request(now, Token(2), VOLUME, Request::Claim(NodeId(7), Term(seen)), &mut out).unwrap();
        out.answers.pop().unwrap().1
    };
    let mut pool = KeeperPool::create(&path, KeeperId(2), 99, &all).unwrap();
    assert!(matches!(claim(&mut pool, 0), Answer::Done(_)));
    assert!(KeeperPool::open(&path).is_err(), "it is in use");
    drop(pool);
    let mut pool = KeeperPool::open(&path).unwrap();
    assert_eq!((pool.keeper.id(), pool.keeper.keepers()), (KeeperId(2), &all[..]));
    assert!(matches!(claim(&mut pool, 0), Answer::Differs(state) if state.term == Term(1)));
    assert!(matches!(claim(&mut pool, 1), Answer::Done(_)));
    // The tools know it.
    let KeeperPool { keeper, held } = pool;
    drop(keeper);
    let found = held.store().kind_of(&held).unwrap().examine(held).unwrap();
    assert!(found.is_whole() && found.blocks.len() == 1);
    let other = folder.path().join("other.pool");
    drop(lodestone_store::Store::create(&other, &lodestone_pmem::PoolOptions::default()).unwrap());
    assert!(matches!(KeeperPool::open(&other), Err(Error::NoKeeper { .. })));
}

/// A creation that was killed, or refused, leaves nothing that is in the way of the next one.
#[test]
fn a_keeper_gets_its_name_when_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (path, half) = (folder.path().join("keeper.pool"), folder.path().join("keeper.pool.new"));
    let make = |id| KeeperPool::create(&path, KeeperId(id), 99, &[KeeperId(1)]);
    assert!(matches!(make(2), Err(Error::Keepers(_))), "not in the list");
    assert!(!path.exists() && !half.exists());
    // A pool without a keeper: as far as a killed creation came.
    drop(lodestone_store::Store::create(&half, &lodestone_pmem::PoolOptions::default()).unwrap());
    drop(make(1).expect("it begins again"));
    assert!(!half.exists());
    let whole = std::fs::read(&path).unwrap();
    assert!(matches!(make(1), Err(Error::File { .. })), "it exists");
    assert!(!half.exists() && std::fs::read(&path).unwrap() == whole, "and is as it was");
    KeeperPool::open(&path).unwrap();
}
