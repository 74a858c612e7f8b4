//! Rules of the protocol, each as the shortest course of events that needs it. With the feature `planted-bugs` each
//! rule is left out once, and its test must notice.

use std::sync::{Mutex, PoisonError};

use lodestone_fabric::{
    Applied, ApplyLog, Call, FLAG_INLINE, FLAG_SYNC, GroupId, Kind, LEASE_NS, Leader, LocalRegistry, Member, Moment,
    NodeId, Outbound, PACKET_ANSWER, Packet, PacketHead, PageArea, PagePair, Reads, Receiver, ReceiverOptions,
    RecordHead, Registry, RegistryCall, Result, Ring, Role, Sender, SenderEvent, SenderOptions, Sequence, Standing,
    Target, Term, Terms, View, ViewMessage, ViewNumber, fragments, pages_body,
};
use lodestone_pmem::{Memory, PmAddr};

const GROUP: GroupId = GroupId(1);
const OWN: NodeId = NodeId(9);
const SALT: u64 = 7;
const AT: PmAddr = PmAddr::new(0, 4096);
const RANGE: u64 = 32 << 10;

static ONE: Mutex<()> = Mutex::new(());

/// The rule holds, and does not with the bug `name`.
fn rule(name: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(holds()?, "{name}: the sound code");
    #[cfg(feature = "planted-bugs")]
    {
        lodestone_pmem::planted::plant(Some(name));
        let found = holds();
        lodestone_pmem::planted::plant(None);
        assert!(!found?, "{name} was not found");
    }
    Ok(())
}

/// A sender whose ring has one record of term 1, from a former life.
fn sender() -> Result<Sender> {
    let mut ring = Ring::create(&Memory::anonymous(64 << 10)?, AT, RANGE, SALT)?;
    let mut head =
        RecordHead { sequence: Sequence(1), term: Term(1), flags: FLAG_INLINE, group: GROUP, ..RecordHead::default() };
    head.seal(SALT, b"old")?;
    ring.append(&head, b"old")?;
    ring.fence()?;
    let options = SenderOptions { node: OWN, group: GROUP, salt: SALT, ..SenderOptions::default() };
    Ok(Sender::new(options, ring))
}

fn promise(node: u16, term: Term) -> Vec<u8> {
    let head = PacketHead { flags: PACKET_ANSWER, term, ..PacketHead::new(Kind::Promise, GROUP, NodeId(node)) };
    head.packet([&Terms::default().to_payload(), &[]])
}

fn report(node: u16, term: Term, tail: u64) -> Vec<u8> {
    let head = PacketHead {
        term,
        view: ViewNumber(1),
        sequence: Sequence(tail),
        credit: 1 << 20,
        ..PacketHead::new(Kind::Report, GROUP, NodeId(node))
    };
    head.packet([&[], &[]])
}

fn decoded(bytes: &[u8]) -> Packet<'_> {
    Packet::decode(bytes).expect("a packet of this test")
}

/// The sender in term 3, with the record of term 1 adopted; record 2 is the first of the term.
fn taken_over(reports: &[(u16, u64)]) -> Result<Sender> {
    let (mut sender, mut out) = (sender()?, Outbound::default());
    sender.take_over(Moment(0), Term(3), View::of(&[NodeId(1), NodeId(2), NodeId(3)]), &mut out);
    for node in [1, 3] {
        sender.packet(Moment(1), &decoded(&promise(node, Term(3))), &mut out)?;
    }
    assert!(sender.is_sending() && sender.ring().last() == Sequence(2));
    for (node, tail) in reports {
        sender.packet(Moment(2), &decoded(&report(*node, Term(3), *tail)), &mut out)?;
    }
    Ok(sender)
}

/// Sender 1 left its record at one member, sender 2 another one at another member. Sender 3 brings the first to a
/// quorum: sender 4 could still adopt the second.
#[test]
fn records_of_earlier_terms_count_below_one_of_this_term_alone() -> Result<()> {
    rule("fabric-old-terms-acknowledged", || {
        let early = taken_over(&[(1, 1), (3, 1)])?.acknowledged();
        let late = taken_over(&[(1, 2), (3, 2)])?.acknowledged();
        assert_eq!(late, Sequence(2));
        Ok(early == Sequence(0))
    })
}

/// Every member has the record, and it is not acknowledged: the pages that it freed may come back.
#[test]
fn stable_is_acknowledged() -> Result<()> {
    rule("fabric-stable-without-acknowledgement", || {
        let all = taken_over(&[(1, 1), (2, 1), (3, 1)])?.stable();
        assert_eq!(taken_over(&[(1, 2), (2, 1), (3, 2)])?.stable(), Sequence(1));
        Ok(all == Sequence(0))
    })
}

/// Before its first record is acknowledged, a sender does not know which adopted records a quorum of the rest has.
#[test]
fn members_change_when_the_adopted_log_is_everywhere() -> Result<()> {
    rule("fabric-adopted-log-forgotten", || Ok(taken_over(&[])?.propose_removal(NodeId(2)).is_err()))
}

/// A former sender may have used pages again that were freed up to the adopted log's end.
#[test]
fn a_copy_begins_at_the_adopted_end() -> Result<()> {
    rule("fabric-join-below-the-reuse-floor", || {
        let (mut sender, mut out) = (taken_over(&[(1, 2), (3, 2)])?, Outbound::default());
        let view = sender.propose_join(NodeId(4))?;
        sender.decided(Moment(3), &view, &mut out);
        let views =
            out.packets.iter().filter_map(|outgoing| ViewMessage::from_payload(decoded(&outgoing.bytes).payload));
        let begins = views.map(|view| view.joins_from.0).next().expect("the view is sent");
        Ok(begins >= Sequence(1))
    })
}

/// A leader of a group with one member, and its registry. Answers every call that `leader` makes.
fn answer(leader: &mut Leader, registry: &mut LocalRegistry, at: u64, out: &mut Outbound) -> Result<Vec<RegistryCall>> {
    let calls = leader.take_calls();
    for call in &calls {
        let found = call.make(registry, Moment(at), Moment(at))?;
        leader.answered(Moment(at), found, out);
    }
    Ok(calls)
}

fn registry() -> Result<LocalRegistry> {
    LocalRegistry::create(&Memory::anonymous(64 << 10)?, AT, vec![(GROUP, View::of(&[NodeId(1)]))])
}

/// A leader that took over in term 2 from a sender whose lease is running. Its events until `end`.
fn follows_a_lease(end: u64) -> Result<(Leader, Vec<SenderEvent>)> {
    let (mut registry, mut out) = (registry()?, Outbound::default());
    registry.claim(NodeId(8), Term(0))?;
    registry.renew(Moment(0), Term(1))?;
    let mut leader = Leader::new(OWN, GROUP, sender()?);
    leader.claim(Moment(1));
    let mut events = Vec::new();
    for step in 1..=20 {
        let at = step * end / 20;
        answer(&mut leader, &mut registry, at, &mut out)?;
        let term = leader.sender().term();
        leader.sender_mut().packet(Moment(at), &decoded(&promise(1, term)), &mut out)?;
        leader.sender_mut().packet(Moment(at), &decoded(&report(1, term, 2)), &mut out)?;
        events.extend(leader.tick(Moment(at), &mut out)?);
    }
    assert!(leader.sender().is_sending());
    Ok((leader, events))
}

/// The former sender may read until its lease is over: what is acknowledged before would be missing there.
#[test]
fn nothing_is_acknowledged_before_the_lease_of_the_former_sender_is_over() -> Result<()> {
    rule("fabric-acknowledged-before-the-lease", || {
        let is_told = |event: &SenderEvent| matches!(event, SenderEvent::Acknowledged(_));
        assert!(follows_a_lease(3 * LEASE_NS)?.1.iter().any(is_told));
        Ok(!follows_a_lease(LEASE_NS / 2)?.1.iter().any(is_told))
    })
}

#[test]
fn reads_need_the_lease() -> Result<()> {
    rule("fabric-no-lease", || {
        let (leader, _) = follows_a_lease(3 * LEASE_NS)?;
        assert!(leader.may_read(Moment(3 * LEASE_NS)));
        Ok(!leader.may_read(Moment(5 * LEASE_NS)))
    })
}

/// The registry says that this node has the newest term: it was given to a former life, of whose records members know.
#[test]
fn a_new_life_claims_a_new_term() -> Result<()> {
    rule("fabric-term-of-a-former-life", || {
        let (mut registry, mut out) = (registry()?, Outbound::default());
        registry.claim(OWN, Term(0))?;
        let mut leader = Leader::new(OWN, GROUP, sender()?);
        leader.claim(Moment(1));
        for at in 2..5 {
            answer(&mut leader, &mut registry, at, &mut out)?;
        }
        Ok(leader.sender().term() == Term(2))
    })
}

/// The page was another file's when the replica sent this.
#[test]
fn a_late_answer_to_a_read_does_not_count() -> Result<()> {
    rule("fabric-late-answer-counts", || {
        let mut reads = Reads::default();
        let number = reads.begin(7, Sequence(5));
        reads.ask(Moment(0), number, [NodeId(1)].into_iter());
        let mut answer = |tail| {
            let head = PacketHead { sequence: Sequence(tail), ..PacketHead::new(Kind::Reply, GROUP, NodeId(1)) };
            let bytes = head.packet([&Call::Page(7).to_payload(number), &[1; 256]]);
            reads.answered(&decoded(&bytes)).is_some()
        };
        let late = answer(4);
        Ok(!late && answer(5))
    })
}

/// The entry of the last batch survived a crash, its page did not.
#[test]
fn an_entry_of_the_last_batch_counts_with_its_pages_alone() -> Result<()> {
    rule("fabric-scan-trusts-pages", || {
        let memory = Memory::anonymous(256 << 10)?;
        let area = |memory: &Memory| PageArea::open(memory, AT.plus(RANGE), RANGE, 256, 16);
        let mut log = ApplyLog::create(&memory, AT, RANGE, SALT)?;
        let kept = pages_body(&[(PagePair { new: 3, old: 0 }, &[])]);
        let head = RecordHead { sequence: Sequence(1), term: Term(1), count: 1, group: GROUP, ..RecordHead::default() };
        let applied = Applied { head, stable: Sequence(0), kept, checksums: vec![crc32c::crc32c(&[9; 256])] };
        log.append(&applied, Sequence(0))?;
        drop(log);
        Ok(ApplyLog::open(&memory, AT, RANGE, SALT, &mut area(&memory)?)?.last() == Sequence(0))
    })
}

/// A member that joins has pages of different moments: a record that is placed early could be under one that is read.
#[test]
fn a_member_that_joins_places_nothing_early() -> Result<()> {
    rule("fabric-joiner-places-early", || {
        let (memory, pages) = (Memory::anonymous(256 << 10)?, 8);
        let log = ApplyLog::create(&memory, AT, RANGE, SALT)?;
        let area = PageArea::open(&memory, AT.plus(RANGE), RANGE, 256, pages)?;
        let options = ReceiverOptions { node: NodeId(4), group: GROUP, salt: SALT, ..ReceiverOptions::default() };
        let (mut member, mut out) = (Receiver::new(options, log, area), Outbound::default());
        let of = |node, role, since| Member { node: NodeId(node), role, since: ViewNumber(since) };
        let message = ViewMessage {
            members: vec![of(1, Role::Active, 1), of(4, Role::Joining, 2)],
            copy_from: NodeId(1),
            joins_from: (Sequence(0), Term(0)),
            adopted: Terms::default(),
        };
        let head = PacketHead { term: Term(1), view: ViewNumber(2), ..PacketHead::new(Kind::View, GROUP, OWN) };
        member.packet(Moment(1), &decoded(&head.packet([&message.to_payload(), &[]])), &mut out)?;
        assert_eq!(member.log().standing(), Standing::Copying);
        for page in 1..pages {
            let reply =
                PacketHead::new(Kind::Reply, GROUP, NodeId(1)).packet([&Call::Copy(page).to_payload(0), &[5; 256]]);
            member.packet(Moment(2), &decoded(&reply), &mut out)?;
        }
        assert_eq!(member.log().standing(), Standing::Replaying);
        let body = pages_body(&[(PagePair { new: 3, old: 0 }, &[8; 256])]);
        let mut record = RecordHead {
            sequence: Sequence(2),
            term: Term(1),
            flags: FLAG_SYNC,
            count: 1,
            group: GROUP,
            ..Default::default()
        };
        record.seal(SALT, &body)?;
        let head = PacketHead { kind: Kind::Data, sequence: Sequence(2), ..head };
        let mut packets = Vec::new();
        fragments(&head, &record.to_bytes(), &body, 1400, u64::MAX, &mut |bytes| packets.push(bytes));
        for bytes in &packets {
            member.packet(Moment(3), &decoded(bytes), &mut out)?;
        }
        assert_eq!(member.exposed(), Sequence(0), "record 1 is missing");
        assert!(out.packets.iter().all(|outgoing| outgoing.target != Target::Group), "members never send to the group");
        Ok(member.pages().read(3)?[0] == 5)
    })
}
