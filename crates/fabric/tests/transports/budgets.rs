//! The cost of a durable write, counted exactly: packets, sends and fences.
//!
//! The cores run at one moment of one clock here. So no beat and no timer sends anything, and every count is exact,
//! however slow the machine is.

use lodestone_fabric::{
    ApplyLog, Error, FLAG_INLINE, FLAG_SYNC, Moment, NodeId, Outbound, Packet, PageArea, PagePair, Receiver,
    ReceiverOptions, Result, Ring, Sender, SenderOptions, Sequence, Submission, Target, Term, View, pages_body,
};
use lodestone_pmem::{CounterScope, Memory, PmAddr};

use super::{GROUP, PAGE, SALT, SENDER};

const AT: PmAddr = PmAddr::new(0, 4096);
const RING_BYTES: u64 = 1 << 20;
const NOW: Moment = Moment(1_000_000_000);

/// A packet that a core sent.
type Sent = (Target, Vec<u8>);

struct Still {
    sender: Sender,
    ring: Memory,
    members: Vec<Receiver>,
    now: Moment,
}

fn memory(bytes: u64) -> Result<Memory> {
    Ok(Memory::anonymous(4096 + bytes)?)
}

fn taken(out: &mut Outbound) -> Vec<Sent> {
    out.packets.drain(..).map(|packet| (packet.target, packet.bytes)).collect()
}

impl Still {
    fn new(members: u16, payload_bytes_max: usize) -> Result<Self> {
        let nodes: Vec<NodeId> = (1..=members).map(NodeId).collect();
        let ring = memory(RING_BYTES)?;
        let options =
            SenderOptions { node: SENDER, group: GROUP, salt: SALT, payload_bytes_max, ..SenderOptions::default() };
        let sender = Sender::new(options, Ring::create(&ring, AT, RING_BYTES, SALT)?);
        let member = |node: &NodeId| -> Result<Receiver> {
            let (log_bytes, pages) = (1 << 20, 64);
            let area_bytes = PageArea::bytes_for(PAGE, pages);
            let memory = memory(log_bytes + area_bytes)?;
            let log = ApplyLog::create(&memory, AT, log_bytes, SALT)?;
            let area = PageArea::open(&memory, AT.plus(log_bytes), area_bytes, PAGE, pages)?;
            let options =
                ReceiverOptions { node: *node, group: GROUP, salt: SALT, payload_bytes_max, ..Default::default() };
            Ok(Receiver::new(options, log, area))
        };
        let members = nodes.iter().map(member).collect::<Result<_>>()?;
        let mut still = Self { sender, ring, members, now: NOW };
        let mut out = Outbound::default();
        still.sender.take_over(NOW, Term(1), View::of(&nodes), &mut out);
        let mut sent = taken(&mut out);
        while !sent.is_empty() {
            let answers = still.deliver(&sent, &[])?;
            sent = still.answer(&answers)?;
        }
        assert_eq!(still.sender.acknowledged(), Sequence(1), "the term has begun");
        Ok(still)
    }

    /// Packets of the sender reach the members, but for those that lose them. One batch. Returns their answers.
    fn deliver(&mut self, sent: &[Sent], losers: &[u16]) -> Result<Vec<Sent>> {
        let mut answers = Vec::new();
        for (node, member) in (1..).zip(&mut self.members) {
            let mut out = Outbound::default();
            let reaches = |target: &Target| *target == Target::Group || *target == Target::Node(NodeId(node));
            for (_, bytes) in sent.iter().filter(|(target, _)| reaches(target) && !losers.contains(&node)) {
                member.packet(self.now, &Packet::decode(bytes).expect("a packet of a core"), &mut out)?;
            }
            member.batch_end(self.now, &mut out)?;
            answers.extend(taken(&mut out));
        }
        Ok(answers)
    }

    /// Answers reach the sender. Returns what it sends then.
    fn answer(&mut self, answers: &[Sent]) -> Result<Vec<Sent>> {
        let mut out = Outbound::default();
        for (target, bytes) in answers {
            assert_eq!(*target, Target::Node(SENDER));
            self.sender.packet(self.now, &Packet::decode(bytes).expect("a packet of a core"), &mut out)?;
        }
        Ok(taken(&mut out))
    }

    fn submit(&mut self, number: u64) -> Result<Sequence> {
        let submission = Submission { flags: FLAG_SYNC, count: 1, ..Submission::default() };
        self.sender.submit(&submission, pages_body(&[(PagePair { new: number, old: 0 }, &page(number))]))
    }

    fn pump(&mut self) -> Vec<Sent> {
        let mut out = Outbound::default();
        self.sender.pump(self.now, &mut out);
        taken(&mut out)
    }
}

fn page(number: u64) -> Vec<u8> {
    vec![u8::try_from(0x40 + number).unwrap_or(0); usize::try_from(PAGE).unwrap_or(0)]
}

/// A synced write of 4 KiB that fits into a packet: one packet to all members, one report of each, one fence at each
/// node, one round trip.
#[test]
fn a_synced_write_is_one_packet_and_one_report_of_each_member() -> Result<()> {
    for members in [1, 2, 3, 5] {
        let mut still = Still::new(members, 8000)?;
        for number in 1..=20 {
            let written = still.submit(number)?;
            let sent = still.pump();
            let fences = CounterScope::start();
            still.sender.fence()?;
            assert_eq!(fences.delta().fences, 1, "one fence of the ring");
            let fences = CounterScope::start();
            let reports = still.deliver(&sent, &[])?;
            assert_eq!(fences.delta().fences, u64::from(members), "one fence at each member");
            assert_eq!((sent.len(), sent[0].0), (1, Target::Group), "one packet, to all");
            assert_eq!(reports.len(), usize::from(members), "1 + k packets in all");
            assert!(still.answer(&reports)?.is_empty(), "nothing more is sent");
            assert_eq!(still.sender.acknowledged(), written, "one round trip");
            assert_eq!(still.sender.stable(), written);
        }
    }
    Ok(())
}

/// Fragments are sent once each, however many members there are.
#[test]
fn a_fragment_is_one_send_whatever_the_number_of_members() -> Result<()> {
    let fragments = |members| -> Result<usize> {
        let mut still = Still::new(members, 1000)?;
        still.submit(1)?;
        let sent = still.pump();
        assert!(sent.iter().all(|(target, _)| *target == Target::Group));
        let reports = still.deliver(&sent, &[])?;
        assert_eq!(reports.len(), usize::from(members), "one report for all fragments");
        Ok(sent.len())
    };
    for members in [1, 2, 3, 8] {
        assert_eq!(fragments(members)?, 5, "4,240 bytes in packets of 1,000");
    }
    Ok(())
}

/// A record that its packets cannot carry would never be whole at a member, and nothing after it would be either.
#[test]
fn a_record_of_too_many_packets_is_refused() -> Result<()> {
    let mut still = Still::new(1, 60)?;
    let limit = still.sender.body_bytes_max();
    assert!(limit < usize::try_from(PAGE).unwrap_or(0));
    assert!(matches!(still.submit(1), Err(Error::RecordTooLarge { limit: found, .. }) if found == limit));
    let submission = Submission { flags: FLAG_SYNC | FLAG_INLINE, ..Submission::default() };
    let written = still.sender.submit(&submission, vec![7; limit])?;
    let sent = still.pump();
    assert_eq!(sent.len(), 64, "as many packets as a record may have");
    let reports = still.deliver(&sent, &[])?;
    still.answer(&reports)?;
    assert_eq!(still.sender.acknowledged(), written);
    Ok(())
}

/// Records that come in one batch share its fence and its report.
#[test]
fn a_batch_is_one_fence_and_one_report() -> Result<()> {
    let mut still = Still::new(3, 8000)?;
    for number in 1..=16 {
        still.submit(number)?;
    }
    let fences = CounterScope::start();
    still.sender.fence()?;
    assert_eq!(fences.delta().fences, 1, "one fence of the ring for sixteen records");
    let sent = still.pump();
    assert_eq!(sent.len(), 16);
    let fences = CounterScope::start();
    let reports = still.deliver(&sent, &[])?;
    assert_eq!((fences.delta().fences, reports.len()), (3, 3), "one fence and one report of each member");
    still.answer(&reports)?;
    assert_eq!(still.sender.acknowledged(), Sequence(17));
    Ok(())
}

/// A record is sent again from the ring: the sender keeps no copy of a record that it has sent.
#[test]
fn nothing_is_copied_for_sending_again() -> Result<()> {
    let mut still = Still::new(2, 8000)?;
    still.submit(1)?;
    let first = still.pump();
    assert_eq!(still.sender.queued(), 0, "what was sent waits nowhere but in the ring");
    let reports = still.deliver(&first, &[2])?;
    still.answer(&reports)?;
    still.submit(2)?;
    let second = still.pump();
    let reports = still.deliver(&second, &[])?;
    still.answer(&reports)?;
    assert_eq!(still.sender.acknowledged(), Sequence(1), "member 2 lacks record 2");
    // Its request, and the answer.
    still.now = still.now.plus(60_000);
    let mut out = Outbound::default();
    still.members[1].tick(still.now, &mut out)?;
    let requests = taken(&mut out);
    assert!(still.answer(&requests)?.is_empty());
    still.sender.tick(still.now, &mut out)?;
    let again = taken(&mut out);
    assert_eq!((again.len(), again[0].0), (1, Target::Node(NodeId(2))), "to the one that lacks it");
    let payload = |sent: &[Sent]| Packet::decode(&sent[0].1).map(|packet| packet.payload.to_vec());
    assert_eq!(payload(&again).expect("a packet"), payload(&first).expect("a packet"), "the same bytes");
    // The ring has the only copy: damage in it shows.
    let mut bytes = vec![0; usize::try_from(RING_BYTES).unwrap_or(0)];
    still.ring.read(AT, &mut bytes);
    let at = bytes.windows(64).position(|window| window == [0x41; 64]).expect("the page is in the ring");
    let word = AT.plus(u64::try_from(at.next_multiple_of(8)).unwrap_or(0));
    still.ring.store(word, 0);
    still.now = still.now.plus(20_000_000);
    still.members[1].tick(still.now, &mut out)?;
    let requests = taken(&mut out);
    still.answer(&requests)?;
    assert!(
        matches!(still.sender.tick(still.now, &mut out), Err(Error::Damaged { .. })),
        "it is not sent from elsewhere"
    );
    Ok(())
}
