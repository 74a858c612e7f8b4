//! Bytes whose checksum fits and whose content nothing wrote: from a network, and on a medium. Nothing panics, memory
//! stays within the credit, and an impossible head is refused by name.
//!
//! The checksums are made here as `docs/format.md` says, so this is also a second implementation of the formats.

use lodestone_fabric::{
    ApplyLog, Call, Error, FLAG_INLINE, GroupId, Kind, LocalRegistry, Missing, Moment, NodeId, Outbound, Outbox,
    Packet, PacketHead, PageArea, Payloads, Receiver, ReceiverOptions, RecordHead, Registry, Result, Ring, Sender,
    SenderOptions, Sequence, Term, Terms, View, ViewMessage, ViewNumber,
};
use lodestone_pmem::{Memory, PmAddr};
use proptest::prelude::*;

const GROUP: GroupId = GroupId(1);
const OWN: NodeId = NodeId(1);
const SENDER: NodeId = NodeId(9);
const SALT: u64 = 7;
const AT: PmAddr = PmAddr::new(0, 4096);
const RANGE: u64 = 512 + 64 * 64;
const CREDIT: u32 = 2_000;

fn receiver() -> Result<Receiver> {
    let memory = Memory::anonymous(64 << 10)?;
    let area = AT.plus(RANGE);
    let log = ApplyLog::create(&memory, AT, RANGE, SALT)?;
    let pages = PageArea::open(&memory, area, PageArea::bytes_for(64, 8), 64, 8)?;
    let options =
        ReceiverOptions { node: OWN, group: GROUP, salt: SALT, credit_bytes: CREDIT, ..ReceiverOptions::default() };
    let mut receiver = Receiver::new(options, log, pages);
    let view = View::of(&[OWN, NodeId(2)]);
    let message = ViewMessage {
        members: view.members,
        copy_from: SENDER,
        joins_from: (Sequence(0), Term(0)),
        adopted: Terms::default(),
    };
    let head = PacketHead { term: Term(1), view: ViewNumber(1), ..PacketHead::new(Kind::View, GROUP, SENDER) };
    bring(&mut receiver, &head.packet([&message.to_payload(), &[]]))?;
    Ok(receiver)
}

fn bring(receiver: &mut Receiver, bytes: &[u8]) -> Result<()> {
    let mut out = Outbound::default();
    if let Ok(packet) = Packet::decode(bytes) {
        receiver.packet(Moment(1 << 40), &packet, &mut out)?;
        receiver.tick(Moment(1 << 41), &mut out)?;
    }
    Ok(())
}

/// Numbers near the limits of what they count, and small ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..6_u64, Just(1 << 62), Just(u64::MAX), Just(u64::MAX - 63), any::<u64>()]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![0..4_u32, Just(u32::MAX), any::<u32>()]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::collection::vec(number(), 0..12)
        .prop_map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
    let terms = prop::collection::vec((small(), number()), 0..4).prop_map(|runs| {
        let mut out = [0_u64.to_le_bytes().as_slice(), &0_u32.to_le_bytes()].concat();
        out.extend(u32::try_from(runs.len()).unwrap_or(0).to_le_bytes());
        runs.iter().for_each(|(term, last)| {
            out.extend(term.to_le_bytes());
            out.extend(last.to_le_bytes());
        });
        out
    });
    let record = (number(), number(), small(), 0..32_u16, 0..4_u32, prop::collection::vec(0..9_u64, 0..12)).prop_map(
        |(sequence, reuse, term, flags, count, words)| {
            let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut head = RecordHead {
                sequence: Sequence(sequence),
                reuse: Sequence(reuse),
                term: Term(term),
                flags,
                count,
                group: GROUP,
                ..RecordHead::default()
            };
            head.seal(SALT, &body).expect("a short body");
            [head.to_bytes().as_slice(), &body].concat()
        },
    );
    let call = (0..6_u16, number())
        .prop_map(|(code, argument)| [&code.to_le_bytes()[..], &[0; 6], &argument.to_le_bytes(), &[7; 64]].concat());
    prop_oneof![words, terms, record, call, prop::collection::vec(any::<u8>(), 0..200)]
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    let fields = (0..9_usize, small(), small(), 0..16_u16, number(), number(), (0..3_u16, 0..4_u16, any::<bool>()));
    (fields, payload(), prop_oneof![Just(SENDER), Just(NodeId(2)), Just(OWN)]).prop_map(
        |((kind, term, view, flags, sequence, stable, cut), payload, source)| {
            let whole = u32::try_from(payload.len()).unwrap_or(0);
            let head = PacketHead {
                term: Term(term),
                view: ViewNumber(view),
                flags,
                sequence: Sequence(sequence),
                stable: Sequence(stable),
                fragment: cut.0,
                fragments: cut.1,
                record_bytes: if cut.2 { whole } else { term },
                credit: view,
                ..PacketHead::new(Kind::ALL[kind], GROUP, source)
            };
            head.packet([&payload, &[]])
        },
    )
}

proptest! {
    /// Any bytes at all.
    #[test]
    fn no_bytes_upset_the_decoders(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Packet::decode(&bytes);
        let _ = Terms::from_payload(&bytes);
        let _ = ViewMessage::from_payload(&bytes);
        let _ = Missing::from_payload(&bytes).map(|missing| missing.distances().count());
        let _ = Call::from_payload(&bytes);
        let _ = Payloads::of(&bytes).map(|payloads| payloads.places().count());
        let _ = RecordHead::from_bytes(&bytes).map(|head| head.check_form(&bytes, 64, 8).is_ok());
    }

    /// Packets that a member of the group may have sent, with any fields.
    #[test]
    fn no_packet_upsets_a_member(packets in prop::collection::vec(packet(), 1..12)) {
        let mut receiver = receiver()?;
        for bytes in packets {
            bring(&mut receiver, &bytes)?;
            let counts = receiver.counts();
            prop_assert!(counts.loose_bytes_max <= u64::from(CREDIT) + 70_000, "one record beyond the credit: {counts:?}");
        }
    }

    /// The same for a sender, while it takes over and after that.
    #[test]
    fn no_packet_upsets_a_sender(packets in prop::collection::vec(packet(), 1..12)) {
        let ring = Ring::create(&Memory::anonymous(64 << 10)?, AT, RANGE, SALT)?;
        let options = SenderOptions { node: SENDER, group: GROUP, salt: SALT, ..SenderOptions::default() };
        let (mut sender, mut out) = (Sender::new(options, ring), Outbound::default());
        sender.take_over(Moment(1), Term(1), View::of(&[OWN, NodeId(2)]), &mut out);
        for (index, bytes) in (1..).zip(packets) {
            if let Ok(packet) = Packet::decode(&bytes) {
                sender.packet(Moment(index), &packet, &mut out)?;
                sender.tick(Moment(index << 30), &mut out)?;
            }
        }
    }

    /// A head of a log, sealed again: it is refused by name, or the log opens and goes on.
    #[test]
    fn no_head_upsets_a_log(field in 0..14_usize, value in number()) {
        let memory = Memory::anonymous(64 << 10)?;
        let mut ring = Ring::create(&memory, AT, RANGE, SALT)?;
        append(&mut ring, 1)?;
        append(&mut ring, 2)?;
        drop(ring);
        reseal(&memory, field * 4, value);
        match Ring::open(&memory, AT, RANGE, SALT) {
            Ok(mut ring) => {
                let next = ring.last().next().0;
                append(&mut ring, next)?;
                drop(ring);
                prop_assert_eq!(Ring::open(&memory, AT, RANGE, SALT)?.last(), Sequence(next));
            }
            Err(Error::Impossible { .. } | Error::NoLog { .. } | Error::Version { .. } | Error::Damaged { .. }) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    /// An entry of a member's log, sealed again.
    #[test]
    fn no_entry_upsets_a_member(field in 0..24_usize, value in number()) {
        let memory = Memory::anonymous(64 << 10)?;
        let mut log = ApplyLog::create(&memory, AT, RANGE, SALT)?;
        for sequence in 1..=2 {
            let mut head = RecordHead {
                sequence: Sequence(sequence), term: Term(1), count: 1, group: GROUP, ..RecordHead::default()
            };
            let mut kept = sequence.to_le_bytes().to_vec();
            kept.extend(0_u64.to_le_bytes());
            head.seal(SALT, &kept)?;
            let entry =
                lodestone_fabric::Applied { head, stable: Sequence(0), kept, checksums: vec![crc32c::crc32c(&[0; 64])] };
            log.append(&entry, Sequence(0))?;
        }
        drop(log);
        // The second entry: its head has 32 bytes, its payload 64 + 8 + 16 + 4.
        let at = AT.plus(512 + 128);
        memory.store(at.plus(8 * u64::try_from(field % 16).unwrap_or(0)), value);
        let mut bytes = vec![0; 32 + 92];
        memory.read(at, &mut bytes);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&SALT.to_le_bytes()), &bytes[4..]);
        memory.write(at, &crc.to_le_bytes());
        let mut pages = PageArea::open(&memory, AT.plus(RANGE), PageArea::bytes_for(64, 8), 64, 8)?;
        match ApplyLog::open(&memory, AT, RANGE, SALT, &mut pages) {
            Ok(log) => prop_assert!(log.last() >= Sequence(1) && log.last() <= Sequence(2)),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

fn append(ring: &mut Ring, sequence: u64) -> Result<()> {
    let mut head = RecordHead {
        sequence: Sequence(sequence),
        term: Term(1),
        flags: FLAG_INLINE,
        group: GROUP,
        ..RecordHead::default()
    };
    head.seal(SALT, b"record")?;
    ring.append(&head, b"record")?;
    ring.fence()
}

/// Puts `value` at `offset` of both head lines and seals them.
fn reseal(memory: &Memory, offset: usize, value: u64) {
    for copy in [0, 256] {
        let mut line = [0; 64];
        memory.read(AT.plus(copy), &mut line);
        let bytes = if offset <= 48 { 8 } else { 4 };
        line[offset..offset + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        let crc = crc32c::crc32c(&line[..60]);
        line[60..].copy_from_slice(&crc.to_le_bytes());
        memory.write(AT.plus(copy), &line);
    }
}

#[test]
fn impossible_heads_are_named() -> Result<()> {
    for (offset, value, expected) in [
        (16, 3, "its begin"),
        (16, u64::MAX - 63, "its begin"),
        (32, 1 << 61, "its cut"),
        (24, u64::MAX, "its first sequence"),
        (24, 1, "its first sequence"),
        (48, 9, "the term of its view"),
    ] {
        let memory = Memory::anonymous(64 << 10)?;
        let mut ring = Ring::create(&memory, AT, RANGE, SALT)?;
        append(&mut ring, 1)?;
        reseal(&memory, offset, value);
        match Ring::open(&memory, AT, RANGE, SALT) {
            Err(Error::Impossible { field, .. }) => assert_eq!(field, expected, "{value} at {offset}"),
            other => panic!("{value} at {offset}: {other:?}"),
        }
    }
    Ok(())
}

/// No entry of a generation is written before a head of it is durable. If a scan ended there, the cut of the open would
/// begin that generation, and the entry would count.
#[test]
fn an_entry_of_a_later_generation_is_named() -> Result<()> {
    let memory = Memory::anonymous(64 << 10)?;
    let mut ring = Ring::create(&memory, AT, RANGE, SALT)?;
    append(&mut ring, 1)?;
    append(&mut ring, 2)?;
    drop(ring);
    let span = (32 + 64 + 6_usize).next_multiple_of(64);
    let second = AT.plus(512 + u64::try_from(span).unwrap_or(0));
    let mut bytes = vec![0; span];
    memory.read(second, &mut bytes);
    bytes[24..28].copy_from_slice(&2_u32.to_le_bytes());
    let covered = usize::try_from(u32::from_le_bytes([bytes[28], bytes[29], bytes[30], bytes[31]])).unwrap_or(0);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&SALT.to_le_bytes()), &bytes[4..32 + covered]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    memory.write(second, &bytes);
    for _ in 0..2 {
        match Ring::open(&memory, AT, RANGE, SALT) {
            Err(Error::Impossible { field, .. }) => assert_eq!(field, "the generation of an entry"),
            other => panic!("{other:?}"),
        }
    }
    Ok(())
}

#[test]
fn another_version_is_refused_by_name() -> Result<()> {
    let memory = Memory::anonymous(64 << 10)?;
    let ring = Ring::create(&memory, AT, RANGE, SALT)?;
    drop(ring);
    let mut magic = [0; 8];
    memory.read(AT, &mut magic);
    magic[3] = 2;
    reseal(&memory, 0, u64::from_le_bytes(magic));
    let opened = Ring::open(&memory, AT, RANGE, SALT);
    assert!(matches!(opened, Err(Error::Version { found: 2, known: 1, .. })), "{opened:?}");
    Ok(())
}

/// The newest state has an intact checksum and no meaning: the one before would hand out a term twice.
#[test]
fn a_registry_does_not_fall_back_to_an_older_state() -> Result<()> {
    let memory = Memory::anonymous(64 << 10)?;
    let mut registry = LocalRegistry::create(&memory, AT, vec![(GROUP, View::of(&[OWN]))])?;
    registry.claim(SENDER, Term(0))?;
    drop(registry);
    for slot in [0, 2048] {
        let mut bytes = [0; 2048];
        memory.read(AT.plus(slot), &mut bytes);
        let length = usize::try_from(u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]])).unwrap_or(0);
        // The role of the member.
        bytes[24 + 16 + 12 + 2] = 9;
        let crc = crc32c::crc32c(&bytes[8..24 + length]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        memory.write(AT.plus(slot), &bytes);
        let opened = LocalRegistry::open(&memory, AT);
        assert!(matches!(opened, Err(Error::Impossible { .. })), "{opened:?}");
        // One slot alone is damaged from here on, in the next round both.
    }
    Ok(())
}

#[test]
fn a_released_ring_has_no_record_below() -> Result<()> {
    let mut ring = Ring::create(&Memory::anonymous(64 << 10)?, AT, RANGE, SALT)?;
    append(&mut ring, 1)?;
    ring.release(Sequence(1));
    assert!(ring.record(Sequence(1))?.is_none() && ring.record(Sequence(0))?.is_none());
    assert!(ring.record(Sequence::MAX)?.is_none());
    Ok(())
}
