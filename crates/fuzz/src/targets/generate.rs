//! Packets and payloads from an input: with right checksums, and any fields.

use lodestone_fabric::{
    GroupId, Kind, Member, Missing, NodeId, PacketHead, PagePair, Payloads, RecordHead, Role, Sequence, Term, Terms,
    ViewMessage, ViewNumber, merge_body, pages_body,
};

use crate::input::Input;

pub const GROUP: GroupId = GroupId(1);
pub const SALT: u64 = 7;
pub const PAGE_BYTES: u32 = 64;
pub const PAGES: u64 = 8;

/// Terms of a log: mostly possible ones.
pub fn terms(input: &mut Input<'_>) -> Terms {
    let mut terms = Terms::starting(Sequence(input.number() % (1 << 40)), Term(input.half() % 4));
    for _ in 0..input.below(6) {
        let term = terms.last().0.0.saturating_add(u32::from(input.byte() % 3));
        for _ in 0..=input.below(3) {
            terms.push(Term(term));
        }
    }
    terms
}

/// The bytes of terms that no log has.
fn raw_terms(input: &mut Input<'_>) -> Vec<u8> {
    let mut out = input.number().to_le_bytes().to_vec();
    out.extend(input.half().to_le_bytes());
    let runs = input.below(6);
    out.extend(u32::try_from(runs).unwrap_or(0).to_le_bytes());
    for _ in 0..runs {
        out.extend(input.half().to_le_bytes());
        out.extend(input.number().to_le_bytes());
    }
    out
}

fn view(input: &mut Input<'_>) -> Vec<u8> {
    let member = |input: &mut Input<'_>| Member {
        node: NodeId(u16::from(input.byte() % 5)),
        role: if input.flag() { Role::Active } else { Role::Joining },
        since: ViewNumber(input.half()),
    };
    let message = ViewMessage {
        members: (0..input.below(5)).map(|_| member(input)).collect(),
        copy_from: NodeId(u16::from(input.byte() % 5)),
        joins_from: (Sequence(input.number()), Term(input.half())),
        adopted: terms(input),
    };
    message.to_payload()
}

/// A record whose checksum is right.
pub fn record(input: &mut Input<'_>) -> Vec<u8> {
    let pair = |input: &mut Input<'_>| PagePair { new: input.number() % 10, old: input.number() % 10 };
    let (mut flags, mut count) = (u16::from(input.byte() & 31), 0);
    let body = match input.below(4) {
        0 => {
            let pages: Vec<(PagePair, [u8; 64])> =
                (0..input.below(4)).map(|_| (pair(input), [input.byte(); 64])).collect();
            (flags, count) = (flags & 9, pages.len());
            pages_body(&pages.iter().map(|(pair, bytes)| (*pair, &bytes[..])).collect::<Vec<_>>())
        }
        1 => {
            (flags, count) = (flags & 9 | 2, 1);
            merge_body(pair(input), input.half() % 80, input.bytes(80)).unwrap_or_default()
        }
        2 => {
            flags = flags & 9 | 4 | 16;
            let places: Vec<(GroupId, Sequence)> =
                (0..input.below(4)).map(|_| (GroupId(input.half() % 4), Sequence(input.number()))).collect();
            Payloads::body(&places, input.bytes(20))
        }
        _ => input.bytes(200).to_vec(),
    };
    if input.once_in(8) {
        count = usize::try_from(input.half()).unwrap_or(0);
    }
    let mut head = RecordHead {
        sequence: Sequence(input.number()),
        reuse: Sequence(input.number()),
        operation: input.number(),
        term: Term(input.half()),
        flags,
        count: u32::try_from(count).unwrap_or(u32::MAX),
        group: if input.once_in(16) { GroupId(input.half()) } else { GROUP },
        ..RecordHead::default()
    };
    if head.seal(SALT, &body).is_err() {
        return Vec::new();
    }
    [head.to_bytes().as_slice(), &body].concat()
}

/// The payload of some packet, or no payload at all.
pub fn payload(input: &mut Input<'_>) -> Vec<u8> {
    match input.below(7) {
        0 => record(input),
        1 => terms(input).to_payload(),
        2 => raw_terms(input),
        3 => view(input),
        4 => {
            let missing =
                Missing { fragments: input.number(), map: (0..input.below(6)).map(|_| input.number()).collect() };
            missing.to_payload()
        }
        5 => {
            let mut call = u16::from(input.byte() % 6).to_le_bytes().to_vec();
            call.extend([0; 2]);
            call.extend(input.half().to_le_bytes());
            call.extend(input.number().to_le_bytes());
            call.extend([input.byte(); 64]);
            call
        }
        _ => input.bytes(300).to_vec(),
    }
}

/// A packet that a member of the group may have sent.
pub fn packet(input: &mut Input<'_>, group: GroupId) -> Vec<u8> {
    let kind = Kind::ALL[input.below(Kind::ALL.len())];
    let payload = payload(input);
    let whole = u32::try_from(payload.len()).unwrap_or(0);
    let is_record = matches!(kind, Kind::Data | Kind::Reply) && !input.once_in(4);
    let head = PacketHead {
        term: Term(if input.once_in(6) { input.half() } else { 1 }),
        view: ViewNumber(if input.once_in(6) { input.half() } else { 1 }),
        flags: u16::from(input.byte() & 15),
        sequence: Sequence(input.number()),
        stable: Sequence(if input.once_in(4) { input.number() } else { 0 }),
        fragment: if is_record { 0 } else { u16::from(input.byte() % 4) },
        fragments: if is_record { 1 } else { u16::from(input.byte() % 5) },
        record_bytes: if is_record { whole } else { input.half() },
        credit: input.half(),
        counter: input.number(),
        ..PacketHead::new(kind, group, NodeId([1, 2, 3, 9][input.below(4)]))
    };
    head.packet([&payload, &[]])
}
