//! The cores under hostile packets with right checksums, as a member of the group that is broken may send them: no
//! panic, memory within the credit, and few answers for each packet.

use lodestone_fabric::{
    ApplyLog, FLAG_INLINE, FLAG_SYNC, GroupId, Kind, Moment, NodeId, OPERATIONS, Outbound, PACKET_ANSWER, Packet,
    PacketHead, PageArea, PagePair, Payload, RECORD_BYTES_MAX, Receiver, ReceiverOptions, Ring, Sender, SenderOptions,
    Sequence, Submission, Term, Terms, View, ViewMessage, ViewNumber, VolumeSender, VolumeState, pages_body,
};
use lodestone_pmem::{Memory, PmAddr};

use super::demand;
use super::generate::{GROUP, PAGE_BYTES, PAGES, SALT, packet};
use crate::input::{Features, Input};

const OWN: NodeId = NodeId(1);
const SENDER: NodeId = NodeId(9);
const AT: PmAddr = PmAddr::new(0, 4096);
const RANGE: u64 = 512 + 64 * 64;
const CREDIT: u32 = 2_000;
/// Packets and bytes that a packet and a tick may bring about: 64 records are sent again at a time, and each has up to
/// 64 fragments of this ring's records.
const ANSWERS_MAX: usize = 600;
const ANSWER_BYTES_MAX: usize = 400_000;

fn text(error: lodestone_fabric::Error) -> String {
    format!("a core failed: {error}")
}

fn judge_answers(out: &Outbound) -> Result<(), String> {
    let bytes: usize = out.packets.iter().map(|outgoing| outgoing.bytes.len()).sum();
    let is_bounded = out.packets.len() <= ANSWERS_MAX && bytes <= ANSWER_BYTES_MAX;
    demand(is_bounded, || format!("{} packets of {bytes} bytes for one packet", out.packets.len()))
}

pub fn member(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let memory = Memory::anonymous(64 << 10).map_err(|error| error.to_string())?;
    let area = || PageArea::open(&memory, AT.plus(RANGE), PageArea::bytes_for(PAGE_BYTES, PAGES), PAGE_BYTES, PAGES);
    let log = ApplyLog::create(&memory, AT, RANGE, SALT).map_err(text)?;
    let options =
        ReceiverOptions { node: OWN, group: GROUP, salt: SALT, credit_bytes: CREDIT, ..ReceiverOptions::default() };
    let mut member = Receiver::new(options, log, area().map_err(text)?);
    let (mut now, mut out) = (1 << 40, Outbound::default());
    bring(&mut member, now, &first_view(), &mut out)?;
    while !input.is_empty() {
        let bytes = packet(input, GROUP);
        now += input.number() % (1 << 30);
        out.packets.clear();
        bring(&mut member, now, &bytes, &mut out)?;
        if input.flag() {
            member.batch_end(Moment(now), &mut out).map_err(text)?;
        }
        if input.flag() {
            member.tick(Moment(now), &mut out).map_err(text)?;
        }
        judge_answers(&out)?;
        let (counts, limit) = (member.counts(), u64::from(CREDIT) + RECORD_BYTES_MAX as u64);
        demand(counts.loose_bytes_max <= limit, || format!("more memory than the credit and a record: {counts:?}"))?;
        demand(member.tail() <= member.exposed(), || "the tail is beyond what is applied".to_owned())?;
    }
    let counts = member.counts();
    features.counted("dropped", counts.dropped);
    features.counted("refused", counts.refused);
    features.counted("exposed", counts.exposed);
    features.counted("without room", counts.without_room);
    features.counted("nacks", counts.nacks);
    features.counted("reports", counts.reports);
    features.counted("marks", counts.mark_fences);
    features.saw("standing", member.log().standing() as u64);
    // A restart finds what was exposed: this memory loses nothing.
    let (exposed, promised) = (member.exposed(), member.log().promised());
    drop(member);
    let log = ApplyLog::open(&memory, AT, RANGE, SALT, &mut area().map_err(text)?).map_err(text)?;
    demand(log.last() == exposed && log.promised() == promised, || {
        format!("it had applied {exposed} and has {} after a restart", log.last())
    })
}

fn bring(member: &mut Receiver, now: u64, bytes: &[u8], out: &mut Outbound) -> Result<(), String> {
    match Packet::decode(bytes) {
        Ok(packet) => member.packet(Moment(now), &packet, out).map_err(text),
        Err(_) => Ok(()),
    }
}

fn first_view() -> Vec<u8> {
    let message = ViewMessage {
        members: View::of(&[OWN, NodeId(2)]).members,
        copy_from: SENDER,
        joins_from: (Sequence(0), Term(0)),
        adopted: Terms::default(),
    };
    let head = PacketHead { term: Term(1), view: ViewNumber(1), ..PacketHead::new(Kind::View, GROUP, SENDER) };
    head.packet([&message.to_payload(), &[]])
}

fn sender_of(group: GroupId) -> Result<Sender, String> {
    let memory = Memory::anonymous(64 << 10).map_err(|error| error.to_string())?;
    let ring = Ring::create(&memory, AT, 4 * RANGE, SALT).map_err(text)?;
    Ok(Sender::new(SenderOptions { node: SENDER, group, salt: SALT, ..SenderOptions::default() }, ring))
}

fn promise(group: GroupId, node: NodeId) -> Vec<u8> {
    let head = PacketHead { flags: PACKET_ANSWER, term: Term(1), ..PacketHead::new(Kind::Promise, group, node) };
    head.packet([&Terms::default().to_payload(), &[]])
}

pub fn sender(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let is_volume = input.flag();
    let nodes = View::of(&[OWN, NodeId(2)]);
    let (mut sender, groups) = if is_volume {
        let volume = VolumeSender::new(sender_of(OPERATIONS)?, vec![sender_of(GROUP)?]).map_err(text)?;
        (volume, vec![(OPERATIONS, nodes.clone()), (GROUP, nodes)])
    } else {
        (VolumeSender::alone(sender_of(GROUP)?), vec![(GROUP, nodes)])
    };
    let (mut now, mut out) = (1 << 40, Outbound::default());
    let state = VolumeState { term: Term(1), sender: SENDER, change: 0, groups };
    sender.take_over(Moment(now), &state, &mut out).map_err(text)?;
    while !input.is_empty() {
        now += input.number() % (1 << 30);
        out.packets.clear();
        let group = if is_volume && input.flag() { OPERATIONS } else { GROUP };
        match input.below(8) {
            0 => submit(&mut sender, is_volume, input),
            1 => take(&mut sender, now, &promise(group, NodeId(u16::from(input.byte() % 3))), &mut out)?,
            // As a driver does it: no answer to a plain write may overtake the submitted records in the rings.
            2 => sender.fence().map_err(text)?,
            _ => {
                let bytes = packet(input, group);
                take(&mut sender, now, &bytes, &mut out)?;
            }
        }
        judge_answers(&out)?;
        out.packets.clear();
        sender.tick(Moment(now), &mut out).map_err(text)?;
        judge_answers(&out)?;
        let _ = sender.take_events();
    }
    features.saw("sends", u64::from(sender.is_sending()) << 1 | u64::from(is_volume));
    features.counted("acknowledged", sender.acknowledged().0);
    for group in sender.groups() {
        let counts = group.counts();
        features.counted("submitted", counts.submitted);
        features.counted("resent", counts.resent);
        features.counted("held", counts.held);
        demand(group.acknowledged() <= group.ring().last(), || "acknowledges what it does not have".to_owned())?;
        demand(group.stable() <= group.ring().last(), || "releases what it does not have".to_owned())?;
    }
    Ok(())
}

fn take(sender: &mut VolumeSender, now: u64, bytes: &[u8], out: &mut Outbound) -> Result<(), String> {
    match Packet::decode(bytes) {
        Ok(packet) => sender.packet(Moment(now), &packet, out).map_err(text),
        Err(_) => Ok(()),
    }
}

fn submit(sender: &mut VolumeSender, is_volume: bool, input: &mut Input<'_>) {
    let pair = PagePair { new: 1 + input.number() % (PAGES - 1), old: 0 };
    let submission = Submission { flags: FLAG_SYNC, count: 1, ..Submission::default() };
    // Refused while it takes over, or when the ring is full.
    let _ = if is_volume {
        let payload = Payload { unit: GROUP, submission, body: pages_body(&[(pair, &[7; 64])]) };
        sender.submit(&Submission::default(), input.bytes(20), vec![payload])
    } else {
        let inline = Submission { flags: FLAG_INLINE, ..Submission::default() };
        sender.operations_mut().submit(&inline, input.bytes(400).to_vec())
    };
}
