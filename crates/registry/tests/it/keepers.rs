//! Single courses of events at keepers.

use lodestone_fabric::{LEASE_NS, NodeId, Term};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_registry::{Answer, Error, KEEPERS_MAX, Keeper, KeeperId, KeeperOptions, Request, Token, VolumeId};

use crate::seeds::{Run, VOLUME};

const AT: PmAddr = PmAddr::new(0, 4096);
const BYTES: u64 = 64 << 10;

fn leader(run: &Run) -> KeeperId {
    let leads = |id: &KeeperId| run.world.keeper(*id).is_some_and(Keeper::is_leading);
    run.world.ids().into_iter().filter(leads).max_by_key(|id| run.world.keeper(*id).map(Keeper::term)).expect("a leader")
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
    for wrong in [&[][..], &[KeeperId(2)], &[KeeperId(0), KeeperId(1)], &many] {
        assert!(matches!(make(wrong), Err(Error::Keepers(_))), "{wrong:?}");
    }
    make(&[KeeperId(1)]).expect("one keeper");
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

/// Nothing that a network brings stops a keeper.
#[test]
fn wrong_messages_are_counted_and_dropped() {
    let options = KeeperOptions { id: KeeperId(1), registry: 9, seed: 0 };
    let memory = Memory::anonymous(1 << 20).unwrap();
    let all = [KeeperId(1), KeeperId(2), KeeperId(3)];
    let mut keeper = Keeper::create(options, &memory, AT, BYTES, &all).unwrap();
    let mut out = lodestone_registry::KeeperOutbound::default();
    let mut now = lodestone_fabric::Moment(1);
    while out.messages.is_empty() {
        now = now.plus(lodestone_registry::TICK_NS);
        keeper.tick(now, &mut out).unwrap();
    }
    // Its own message, to another one.
    let own = out.messages[0].1.clone();
    let mut draw = crate::seeds::Draw(1);
    let mut sent = 0;
    for length in 0..own.len() {
        keeper.message(now, &own[..length], &mut out).unwrap();
        sent += 1;
    }
    for _ in 0..500 {
        let mut bytes = own.clone();
        let place = usize::try_from(draw.below(bytes.len() as u64)).unwrap();
        bytes[place] ^= 1 << draw.below(8);
        if draw.below(2) == 0 {
            // Sealed again: the checksum holds.
            let crc = crc32c::crc32c_append(crc32c::crc32c(&9_u64.to_le_bytes()), &bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
        keeper.message(now, &bytes, &mut out).unwrap();
        sent += 1;
    }
    let counts = keeper.counts();
    assert_eq!(counts.refused + counts.messages, sent);
    assert!(counts.refused > 500, "{counts:?}");
}
