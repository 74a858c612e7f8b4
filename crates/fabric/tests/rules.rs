//! Rules of the protocol, each as the shortest course of events that needs it. With the feature `planted-bugs` each
//! rule is left out once, and its test must notice.

use std::sync::{Mutex, PoisonError};

use lodestone_fabric::{
    Applied, ApplyLog, Call, Error, FLAG_INLINE, FLAG_PAYLOADS, FLAG_SYNC, GroupId, Kind, LEASE_NS, Leader,
    LocalRegistry, Member, Moment, NodeId, OPERATIONS, Outbound, Outbox, PACKET_ANSWER, PACKET_GONE, PACKET_SYNC,
    Packet, PacketHead, PageArea, PagePair, Payload, Payloads, Reads, Receiver, ReceiverOptions, RecordHead, Registry,
    RegistryCall, Result, Ring, Role, Sender, SenderEvent, SenderOptions, Sequence, Standing, Submission, Target, Term,
    Terms, View, ViewMessage, ViewNumber, VolumeSender, VolumeState, fragments, pages_body,
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

/// A last report is lost, and nothing is written any more: without the question a member would join for ever.
#[test]
fn a_beat_asks_until_every_member_has_reported_everything() -> Result<()> {
    rule("fabric-last-report-not-asked-for", || {
        let (mut sender, mut out) = (taken_over(&[(1, 2), (3, 2)])?, Outbound::default());
        assert_eq!(sender.acknowledged(), sender.ring().last(), "no caller waits");
        sender.tick(Moment(1 << 30), &mut out)?;
        let is_asking = |bytes: &[u8]| {
            let head = decoded(bytes).head;
            head.kind == Kind::Beat && head.has(PACKET_SYNC)
        };
        Ok(out.packets.iter().any(|outgoing| is_asking(&outgoing.bytes)))
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

/// Two of five members are gone for good. Neither keeps the other one in.
#[test]
fn members_that_are_gone_can_be_removed_one_after_the_other() -> Result<()> {
    rule("fabric-removal-needs-all-others", || {
        let (mut sender, mut out) = (sender()?, Outbound::default());
        let nodes: Vec<NodeId> = (1..=5).map(NodeId).collect();
        sender.take_over(Moment(0), Term(3), View::of(&nodes), &mut out);
        for node in [1, 2, 3] {
            sender.packet(Moment(1), &decoded(&promise(node, Term(3))), &mut out)?;
        }
        for node in [1, 2, 3] {
            sender.packet(Moment(2), &decoded(&report(node, Term(3), 2)), &mut out)?;
        }
        assert_eq!(sender.acknowledged(), Sequence(2));
        Ok(sender.propose_removal(NodeId(4)).is_ok())
    })
}

/// Of two members one is gone: the first record of the term has no quorum, and the other may be removed all the same.
#[test]
fn of_two_members_one_may_be_gone_for_good() -> Result<()> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut sender, mut out) = (sender()?, Outbound::default());
    sender.take_over(Moment(0), Term(3), View::of(&[NodeId(1), NodeId(2)]), &mut out);
    sender.packet(Moment(1), &decoded(&promise(1, Term(3))), &mut out)?;
    assert!(sender.is_sending(), "a promise of one of two is enough");
    assert!(sender.propose_removal(NodeId(2)).is_err(), "member 1 lacks the first record of the term");
    sender.packet(Moment(2), &decoded(&report(1, Term(3), 2)), &mut out)?;
    assert_eq!(sender.acknowledged(), Sequence(0));
    assert!(sender.propose_removal(NodeId(1)).is_err(), "member 2 has nothing");
    let view = sender.propose_removal(NodeId(2))?;
    sender.decided(Moment(3), &view, &mut out);
    assert_eq!(sender.acknowledged(), Sequence(2));
    Ok(())
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

/// The answers of a member whose log has the runs `terms`, to a sender of `term`. `make` makes bodies and flags.
fn answers(
    node: NodeId,
    asked: &[u8],
    terms: &Terms,
    term: Term,
    make: impl Fn(u64) -> (u16, Vec<u8>),
) -> Result<Vec<Vec<u8>>> {
    let asked = decoded(asked);
    let answer = |kind| PacketHead { flags: PACKET_ANSWER, term, ..PacketHead::new(kind, asked.head.group, node) };
    let mut all = Vec::new();
    if asked.head.kind == Kind::Promise {
        all.push(answer(Kind::Promise).packet([&terms.to_payload(), &[]]));
    } else if let Some((Call::Record(sequence), _, _)) = Call::from_payload(asked.payload) {
        let (flags, body) = make(sequence.0);
        let made_in = terms.term_of(sequence).unwrap_or_default();
        let mut record =
            RecordHead { sequence, term: made_in, flags, group: asked.head.group, ..RecordHead::default() };
        record.seal(SALT, &body)?;
        let head = PacketHead { sequence, ..answer(Kind::Reply) };
        fragments(&head, &record.to_bytes(), &body, 1400, u64::MAX, &mut |bytes| all.push(bytes));
    }
    Ok(all)
}

/// A sender gave up the records 1 to 8 of term 1 when all members had them, and left the first of its term at no one.
/// The next sender had a record of term 2 in their place, and cut them at the members. Now the first one comes back.
#[test]
fn a_ring_that_begins_beyond_the_logs_of_members_does_not_count() -> Result<()> {
    let again = |members_have: u64| -> Result<(Sender, Vec<SenderEvent>)> {
        let mut ring = Ring::create(&Memory::anonymous(64 << 10)?, AT, RANGE, SALT)?;
        for (sequence, term) in (1..=8).map(|sequence| (sequence, 1)).chain([(9, 3)]) {
            let head = RecordHead { sequence: Sequence(sequence), term: Term(term), ..RecordHead::default() };
            let mut head = RecordHead { flags: FLAG_INLINE, group: GROUP, ..head };
            head.seal(SALT, b"old")?;
            ring.append(&head, b"old")?;
        }
        ring.fence()?;
        ring.release(Sequence(8));
        let options = SenderOptions { node: OWN, group: GROUP, salt: SALT, ..SenderOptions::default() };
        let (mut sender, mut out) = (Sender::new(options, ring), Outbound::default());
        sender.take_over(Moment(0), Term(6), View::of(&[NodeId(1), NodeId(2), NodeId(3)]), &mut out);
        let terms = Terms::from_parts(Sequence(0), Term(0), vec![(Term(1), Sequence(members_have))]);
        let terms = terms.unwrap_or_default();
        for _ in 0..8 {
            for outgoing in std::mem::take(&mut out).packets {
                let Target::Node(node) = outgoing.target else { continue };
                let make = |_| (FLAG_INLINE, b"old".to_vec());
                for bytes in answers(node, &outgoing.bytes, &terms, Term(6), make)? {
                    sender.packet(Moment(1), &decoded(&bytes), &mut out)?;
                }
            }
        }
        assert!(sender.is_sending());
        let events = sender.take_events();
        Ok((sender, events))
    };
    rule("fabric-ring-without-its-begin", || {
        let (sender, _) = again(8)?;
        assert_eq!(sender.base(), Sequence(9), "it counts: all have the record at which it begins");
        let (sender, events) = again(5)?;
        let members = Terms::from_parts(Sequence(0), Term(0), vec![(Term(1), Sequence(5))]).unwrap_or_default();
        let can_follow = members.common(sender.ring().terms()) == Some(Sequence(5));
        let cut = (Term(3), Sequence(9), Sequence(9));
        let is_told =
            events.iter().any(|e| matches!(e, SenderEvent::Adopted { cut: Some(found), .. } if *found == cut));
        assert_eq!(is_told, can_follow, "{events:?}");
        Ok(can_follow)
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
        let (mut member, mut out) = joined()?;
        let head = view_head(2);
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

/// A view in which a member still joins comes when the member counts already: it would forget what it has reported.
#[test]
fn a_view_that_is_late_changes_nothing() -> Result<()> {
    rule("fabric-late-view-entered", || {
        let (mut member, mut out) = joined()?;
        member.packet(Moment(4), &decoded(&view(3, Role::Active)), &mut out)?;
        assert_eq!(member.log().standing(), Standing::Active);
        member.packet(Moment(5), &decoded(&view(2, Role::Joining)), &mut out)?;
        Ok(member.log().standing() == Standing::Active && member.log().view() == ViewNumber(3))
    })
}

/// A view says that the node joins, and names no member to copy from yet. With its log of before, the node would report
/// records that it gives up as soon as it copies.
#[test]
fn a_node_that_joins_reports_nothing_before_it_copies() -> Result<()> {
    rule("fabric-joiner-reports-its-old-log", || {
        let (mut member, mut out) = joined()?;
        member.packet(Moment(4), &decoded(&view(3, Role::Active)), &mut out)?;
        out.packets.clear();
        let again = |copy_from| view_of(5, &[(1, Role::Active, 1), (4, Role::Joining, 5)], copy_from);
        member.packet(Moment(5), &decoded(&again(OWN)), &mut out)?;
        let is_silent = out.packets.is_empty();
        member.packet(Moment(6), &decoded(&again(NodeId(1))), &mut out)?;
        assert_eq!(member.log().standing(), Standing::Copying, "now there is a member to copy from");
        Ok(is_silent)
    })
}

/// The answer of a member that counts.
fn asked(member: &mut Receiver, call: Call) -> Result<Vec<u8>> {
    let mut out = Outbound::default();
    let request = PacketHead { term: Term(1), view: ViewNumber(3), ..PacketHead::new(Kind::Request, GROUP, NodeId(1)) };
    member.packet(Moment(8), &decoded(&request.packet([&call.to_payload(0), &[]])), &mut out)?;
    member.tick(Moment(9), &mut out)?;
    let is_reply = |outgoing: &&lodestone_fabric::Outgoing| decoded(&outgoing.bytes).head.kind == Kind::Reply;
    Ok(out.packets.iter().find(is_reply).expect("an answer").bytes.clone())
}

/// A bit of a page flips at the member that another one copies from. With a checksum of the bytes that came, the copy
/// would be read as sound.
#[test]
fn a_copy_of_a_damaged_page_is_damaged() -> Result<()> {
    rule("fabric-copy-hides-damage", || {
        let memory = Memory::anonymous(256 << 10)?;
        let (mut source, mut out) = joined_from(&memory, &mut |page| Ok(copy_of(page)))?;
        source.packet(Moment(4), &decoded(&view(3, Role::Active)), &mut out)?;
        memory.store(source.pages().address(3), 6);
        let (mut copy, mut out) = joined_from(&Memory::anonymous(256 << 10)?, &mut |page| {
            let answer = asked(&mut source, Call::Copy(page))?;
            let answer = decoded(&answer);
            let head = PacketHead { source: NodeId(1), ..answer.head };
            Ok(head.packet([answer.payload, &[]]))
        })?;
        copy.packet(Moment(4), &decoded(&view(3, Role::Active)), &mut out)?;
        let is_refused = |copy: &mut Receiver, page| -> Result<bool> {
            Ok(decoded(&asked(copy, Call::Page(page))?).head.has(PACKET_GONE))
        };
        assert!(!is_refused(&mut copy, 2)?, "the others are sound");
        is_refused(&mut copy, 3)
    })
}

/// The requests for pages that a member sends in this time, by whom they are for.
fn asks_for_copies(member: &mut Receiver, from: Moment, ms: u64) -> Result<Vec<Target>> {
    let mut asked = Vec::new();
    for step in 0..ms {
        let mut out = Outbound::default();
        member.tick(from.plus(step * 1_000_000), &mut out)?;
        let requests = out.packets.iter().filter(|outgoing| decoded(&outgoing.bytes).head.kind == Kind::Request);
        asked.extend(requests.map(|outgoing| outgoing.target));
    }
    Ok(asked)
}

/// Node 4, which is to copy from node 1, of the members 1 and 2.
fn joins_two(memory: &Memory) -> Result<Receiver> {
    let log = ApplyLog::create(memory, AT, RANGE, SALT)?;
    let area = PageArea::open(memory, AT.plus(RANGE), RANGE, 256, 8)?;
    let options = ReceiverOptions { node: NodeId(4), group: GROUP, salt: SALT, ..ReceiverOptions::default() };
    let mut member = Receiver::new(options, log, area);
    let two = view_of(2, &[(1, Role::Active, 1), (2, Role::Active, 1), (4, Role::Joining, 2)], NodeId(1));
    member.packet(Moment(1), &decoded(&two), &mut Outbound::default())?;
    Ok(member)
}

/// The member to copy from is gone, and its sender may not remove it, or still hears it. The node that joins reports
/// what it applies, so no other node finds that it does not go on.
#[test]
fn a_copy_goes_on_without_the_member_that_it_began_with() -> Result<()> {
    rule("fabric-copy-from-one-member-alone", || {
        let mut member = joins_two(&Memory::anonymous(256 << 10)?)?;
        let asked = asks_for_copies(&mut member, Moment(1_000_000), 10)?;
        assert!(
            !asked.is_empty() && asked.iter().all(|target| *target == Target::Node(NodeId(1))),
            "first the named one"
        );
        let asked = asks_for_copies(&mut member, Moment(11_000_000), 40)?;
        let mut out = Outbound::default();
        for page in 1..8 {
            let node = if page == 7 { 1 } else { 2 };
            member.packet(Moment(60_000_000), &decoded(&copy_from(node, Term(1), page, 5)), &mut out)?;
        }
        assert_eq!(
            member.log().standing(),
            Standing::Replaying,
            "an answer of the former one that was late counts too"
        );
        Ok(asked.contains(&Target::Node(NodeId(2))))
    })
}

/// A copy was under way for long. Its sequence is of a term whose last records were cut, so it may be older than what
/// this term wrote to the page.
#[test]
fn a_copy_of_an_older_term_is_not_taken() -> Result<()> {
    rule("fabric-copy-of-an-older-term", || {
        let (mut member, mut out) = (joins_two(&Memory::anonymous(256 << 10)?)?, Outbound::default());
        member.packet(Moment(2), &decoded(&copy_from(1, Term(0), 3, 6)), &mut out)?;
        for page in 1..8 {
            member.packet(Moment(3), &decoded(&copy_from(1, Term(1), page, 5)), &mut out)?;
        }
        assert_eq!(member.log().standing(), Standing::Replaying);
        Ok(member.pages().read(3)?[0] == 5)
    })
}

/// A member that has promised a term does not know yet which of its records are cut for it.
#[test]
fn a_member_between_two_terms_gives_no_copy() -> Result<()> {
    let (mut source, mut out) = joined()?;
    source.packet(Moment(4), &decoded(&view(3, Role::Active)), &mut out)?;
    assert!(decoded(&asked(&mut source, Call::Copy(3))?).head.term == Term(1));
    let ask = PacketHead { term: Term(2), ..PacketHead::new(Kind::Promise, GROUP, OWN) };
    source.packet(Moment(5), &decoded(&ask.packet([&[], &[]])), &mut out)?;
    out.packets.clear();
    let request = PacketHead { term: Term(2), ..PacketHead::new(Kind::Request, GROUP, NodeId(1)) };
    source.packet(Moment(8), &decoded(&request.packet([&Call::Copy(3).to_payload(0), &[]])), &mut out)?;
    source.tick(Moment(9), &mut out)?;
    assert!(out.packets.iter().all(|outgoing| decoded(&outgoing.bytes).head.kind != Kind::Reply));
    Ok(())
}

/// A record writes a page of which the copy is damaged, before the copy comes and after it: the page is sound. A page
/// that no record writes stays damaged.
#[test]
fn a_record_heals_a_page_whose_copy_is_damaged() -> Result<()> {
    let (mut member, mut out) = (joins_two(&Memory::anonymous(256 << 10)?)?, Outbound::default());
    let bring = |member: &mut Receiver, out: &mut Outbound, sequence: u64, page: u64| -> Result<()> {
        let body = pages_body(&[(PagePair { new: page, old: 0 }, &[8; 256])]);
        let (sequence, term) = (Sequence(sequence), Term(1));
        let mut record = RecordHead { sequence, term, flags: FLAG_SYNC, count: 1, group: GROUP, ..Default::default() };
        record.seal(SALT, &body)?;
        let head = PacketHead { kind: Kind::Data, sequence, ..view_head(2) };
        let mut packets = Vec::new();
        fragments(&head, &record.to_bytes(), &body, 1400, u64::MAX, &mut |bytes| packets.push(bytes));
        packets.iter().try_for_each(|bytes| member.packet(Moment(3), &decoded(bytes), out))
    };
    bring(&mut member, &mut out, 1, 3)?;
    for page in 1..8 {
        let copy = copy_from(1, Term(1), page, 5);
        let copy = decoded(&copy);
        let is_damaged = [3, 4, 5].contains(&page);
        let head = PacketHead { flags: copy.head.flags | if is_damaged { PACKET_GONE } else { 0 }, ..copy.head };
        member.packet(Moment(4), &decoded(&head.packet([copy.payload, &[]])), &mut out)?;
        if page == 4 {
            bring(&mut member, &mut out, 2, 4)?;
        }
    }
    assert_eq!((member.log().standing(), member.exposed()), (Standing::Replaying, Sequence(2)));
    let is_sound = |page| Ok(member.pages().checksum(page) == Some(crc32c::crc32c(&member.pages().read(page)?)));
    let sound: Result<Vec<bool>> = (2..7).map(is_sound).collect();
    assert_eq!(sound?, [true, true, true, false, true], "page 5 alone is damaged");
    assert_eq!((member.pages().read(3)?[0], member.pages().read(4)?[0]), (8, 8));
    Ok(())
}

/// A member that joins reports, and does not go on: it waits for a page that no member gives it. The others write on.
#[test]
fn nobody_waits_for_a_joiner_that_is_stuck() -> Result<()> {
    rule("fabric-waits-for-a-stuck-joiner", || {
        let (mut sender, mut out) = (sender()?, Outbound::default());
        sender.take_over(Moment(0), Term(2), View::of(&[NodeId(1)]), &mut out);
        sender.packet(Moment(1), &decoded(&promise(1, Term(2))), &mut out)?;
        sender.packet(Moment(2), &decoded(&report(1, Term(2), 2)), &mut out)?;
        let next = sender.propose_join(NodeId(4))?;
        sender.decided(Moment(3), &next, &mut out);
        let of_view = |kind, node, tail, credit| {
            let head = PacketHead {
                term: Term(2),
                view: ViewNumber(2),
                sequence: Sequence(tail),
                credit,
                ..PacketHead::new(kind, GROUP, NodeId(node))
            };
            head.packet([&[], &[]])
        };
        let mut hear = |sender: &mut Sender, now, tail| -> Result<()> {
            sender.packet(now, &decoded(&of_view(Kind::Report, 1, tail, 1 << 20)), &mut out)?;
            sender.packet(now, &decoded(&of_view(Kind::Copying, 4, 2, 500)), &mut out)
        };
        hear(&mut sender, Moment(4), 2)?;
        let submission = Submission { flags: FLAG_INLINE, ..Submission::default() };
        let mut sent = Outbound::default();
        for _ in 0..9 {
            sender.submit(&submission, vec![7; 64])?;
            sender.pump(Moment(5), &mut sent);
        }
        assert!(sender.queued() > 0, "it waits for the credit of the joiner");
        assert_eq!(sender.stuck(Moment(200_000_000), 250_000_000), None);
        for step in 1..=6 {
            let now = Moment(step * 50_000_000);
            hear(&mut sender, now, 4)?;
            sender.pump(now, &mut sent);
        }
        assert_eq!(sender.stuck(Moment(300_000_000), 250_000_000), Some(NodeId(4)));
        assert_eq!(sender.stuck(Moment(300_000_000), 350_000_000), None);
        Ok(sender.queued() == 0)
    })
}

fn view_head(number: u32) -> PacketHead {
    PacketHead { term: Term(1), view: ViewNumber(number), ..PacketHead::new(Kind::View, GROUP, OWN) }
}

/// The view with a number, in which node 4 has a part.
fn view(number: u32, role: Role) -> Vec<u8> {
    view_of(number, &[(1, Role::Active, 1), (4, role, 2)], NodeId(1))
}

/// The view with a number, of nodes with their roles and the views of their joins.
fn view_of(number: u32, members: &[(u16, Role, u32)], copy_from: NodeId) -> Vec<u8> {
    let of = |&(node, role, since)| Member { node: NodeId(node), role, since: ViewNumber(since) };
    let message = ViewMessage {
        members: members.iter().map(of).collect(),
        copy_from,
        joins_from: (Sequence(0), Term(0)),
        adopted: Terms::default(),
    };
    view_head(number).packet([&message.to_payload(), &[]])
}

/// Node 4 joins in view 2 and has copied all pages, each of bytes 5.
fn joined() -> Result<(Receiver, Outbound)> {
    joined_from(&Memory::anonymous(256 << 10)?, &mut |page| Ok(copy_of(page)))
}

/// The answer of node 1 to a member that copies.
fn copy_of(page: u64) -> Vec<u8> {
    copy_from(1, Term(1), page, 5)
}

/// The answer of a node, whose log is of a term. It has everything up to record 9.
fn copy_from(node: u16, term: Term, page: u64, byte: u8) -> Vec<u8> {
    let head = PacketHead { term, sequence: Sequence(9), ..PacketHead::new(Kind::Reply, GROUP, NodeId(node)) };
    head.packet([&Call::Copy(page).to_payload(0), &[byte; 256]])
}

/// As [`joined`], with the answers of another member.
fn joined_from(memory: &Memory, reply: &mut dyn FnMut(u64) -> Result<Vec<u8>>) -> Result<(Receiver, Outbound)> {
    let pages = 8;
    let log = ApplyLog::create(memory, AT, RANGE, SALT)?;
    let area = PageArea::open(memory, AT.plus(RANGE), RANGE, 256, pages)?;
    let options = ReceiverOptions { node: NodeId(4), group: GROUP, salt: SALT, ..ReceiverOptions::default() };
    let (mut member, mut out) = (Receiver::new(options, log, area), Outbound::default());
    member.packet(Moment(1), &decoded(&view(2, Role::Joining)), &mut out)?;
    assert_eq!(member.log().standing(), Standing::Copying);
    for page in 1..pages {
        member.packet(Moment(2), &decoded(&reply(page)?), &mut out)?;
    }
    assert_eq!(member.log().standing(), Standing::Replaying);
    Ok((member, out))
}

/// A volume of one unit in term 3, whose members have nothing. Operations have the members 1 and 2, the unit has 3.
fn volume() -> Result<(VolumeSender, Outbound)> {
    let sender = |group| -> Result<Sender> {
        let ring = Ring::create(&Memory::anonymous(64 << 10)?, AT, RANGE, SALT)?;
        Ok(Sender::new(SenderOptions { node: OWN, group, salt: SALT, ..SenderOptions::default() }, ring))
    };
    let mut volume = VolumeSender::new(sender(OPERATIONS)?, vec![sender(GROUP)?])?;
    let views = vec![(OPERATIONS, View::of(&[NodeId(1), NodeId(2)])), (GROUP, View::of(&[NodeId(3)]))];
    let state = VolumeState { term: Term(3), sender: OWN, change: 0, groups: views };
    let mut out = Outbound::default();
    volume.take_over(Moment(0), &state, &mut out)?;
    Ok((volume, out))
}

fn of_group(packet: &[u8], group: GroupId) -> Vec<u8> {
    let found = decoded(packet);
    PacketHead { group, ..found.head }.packet([found.payload, &[]])
}

/// The unit's first record of the term takes the place of a payload that this sender did not find. A later sender may
/// find its operation, as long as nothing of this term is in group 0: the place must not count as settled.
#[test]
fn nothing_is_stable_before_the_first_record_of_the_term() -> Result<()> {
    rule("fabric-payload-stable-before-the-term", || {
        let (mut volume, mut out) = volume()?;
        let mut bring =
            |volume: &mut VolumeSender, packet: Vec<u8>| volume.packet(Moment(1), &decoded(&packet), &mut out);
        bring(&mut volume, of_group(&promise(1, Term(3)), OPERATIONS))?;
        assert!(!volume.operations().is_sending(), "it waits for the unit");
        bring(&mut volume, promise(3, Term(3)))?;
        assert!(volume.is_sending());
        bring(&mut volume, report(3, Term(3), 1))?;
        let unit = |volume: &VolumeSender| volume.group(GROUP).map(|unit| (unit.acknowledged(), unit.stable()));
        let early = unit(&volume);
        for node in [1, 2] {
            bring(&mut volume, of_group(&report(node, Term(3), 1), OPERATIONS))?;
        }
        assert_eq!(unit(&volume), Some((Sequence(1), Sequence(1))), "then it is");
        Ok(early == Some((Sequence(1), Sequence(0))))
    })
}

/// An operation counts when its payload does, although every member of group 0 has it.
#[test]
fn an_operation_waits_for_its_payload() -> Result<()> {
    rule("fabric-operation-without-its-payload", || {
        let (mut volume, mut out) = volume()?;
        let first = [of_group(&promise(1, Term(3)), OPERATIONS), promise(3, Term(3)), report(3, Term(3), 1)];
        let begun = [1, 2].map(|node| of_group(&report(node, Term(3), 1), OPERATIONS));
        for packet in first.iter().chain(&begun) {
            volume.packet(Moment(1), &decoded(packet), &mut out)?;
        }
        let pair = PagePair { new: 1, old: 0 };
        let submission = Submission { count: 1, ..Submission::default() };
        let payload = Payload { unit: GROUP, submission, body: pages_body(&[(pair, &[7; 64])]) };
        let number = volume.submit(&Submission::default(), b"write", vec![payload])?;
        assert_eq!(number, Sequence(2));
        for node in [1, 2] {
            let packet = of_group(&report(node, Term(3), 2), OPERATIONS);
            volume.packet(Moment(2), &decoded(&packet), &mut out)?;
        }
        let early = volume.acknowledged();
        volume.packet(Moment(3), &decoded(&report(3, Term(3), 2)), &mut out)?;
        assert_eq!(volume.acknowledged(), number);
        assert_eq!(volume.group(GROUP).map(Sender::stable), Some(number), "both are the second of their group");
        Ok(early == Sequence(1))
    })
}

/// The ring has no room for 100 operations. The first 50 have payloads, which the unit's only member has, and which no
/// quorum has reported in this term: a later takeover of the unit might not find them. So they are not given up yet,
/// and nothing is acknowledged.
#[test]
fn operations_are_given_up_when_their_units_are_settled() -> Result<()> {
    rule("fabric-operations-given-up-early", || {
        let (mut volume, mut out) = volume()?;
        let terms = Terms::from_parts(Sequence(0), Term(0), vec![(Term(2), Sequence(100))]).unwrap_or_default();
        let make = |sequence: u64| match sequence {
            ..=50 => (FLAG_INLINE | FLAG_PAYLOADS, Payloads::body(&[(GROUP, Sequence(sequence))], &[7; 400])),
            _ => (FLAG_INLINE, vec![7; 400]),
        };
        let mut run = |volume: &mut VolumeSender, from: u64, unit_has: u64| -> Result<()> {
            let first = report(3, Term(3), unit_has);
            volume.packet(Moment(from), &decoded(&first), &mut out)?;
            for at in (1..=60).map(|step| Moment(from + step * 1_000_000)) {
                for outgoing in std::mem::take(&mut out).packets {
                    let Target::Node(node) = outgoing.target else { continue };
                    for bytes in answers(node, &outgoing.bytes, &terms, Term(3), make)? {
                        volume.packet(at, &decoded(&bytes), &mut out)?;
                    }
                }
                volume.tick(at, &mut out)?;
            }
            for node in [1, 2] {
                let packet = of_group(&report(node, Term(3), 101), OPERATIONS);
                volume.packet(Moment(from + 61_000_000), &decoded(&packet), &mut out)?;
            }
            Ok(())
        };
        run(&mut volume, 0, 100)?;
        let early = volume.acknowledged();
        run(&mut volume, 100_000_000, 101)?;
        assert_eq!(volume.acknowledged(), Sequence(101), "then it goes on");
        Ok(early == Sequence(0))
    })
}

/// An operation that does not fit as a whole changes nothing, in no group.
#[test]
fn an_operation_is_submitted_whole_or_not_at_all() -> Result<()> {
    let (mut volume, mut out) = volume()?;
    let payload = |bytes| Payload { unit: GROUP, submission: Submission::default(), body: vec![7; bytes] };
    let refused = volume.submit(&Submission::default(), b"early", vec![payload(64)]);
    assert!(matches!(refused, Err(Error::NotSender { .. })), "{refused:?}");
    for packet in [of_group(&promise(1, Term(3)), OPERATIONS), promise(3, Term(3))] {
        volume.packet(Moment(1), &decoded(&packet), &mut out)?;
    }
    let lasts = |volume: &VolumeSender| volume.groups().map(|sender| sender.ring().last()).collect::<Vec<_>>();
    let before = lasts(&volume);
    let of_no_unit = Payload { unit: GroupId(7), ..payload(64) };
    for payloads in [vec![payload(64), payload(30 << 10)], vec![payload(70 << 10)], vec![payload(64), of_no_unit]] {
        let refused = volume.submit(&Submission::default(), b"write", payloads);
        assert!(refused.is_err());
        assert_eq!(lasts(&volume), before, "{refused:?}");
    }
    Ok(())
}
