//! Bytes on a medium that nothing wrote, with right checksums: refused by name, or opened and gone on with.

use lodestone_fabric::{
    Applied, ApplyLog, Error, FLAG_INLINE, LocalRegistry, NodeId, PageArea, RecordHead, Registry, Ring, Sequence, Term,
    View,
};
use lodestone_pmem::{Memory, PmAddr};

use super::demand;
use super::generate::{GROUP, PAGE_BYTES, PAGES, SALT};
use crate::input::{Features, Input};

const AT: PmAddr = PmAddr::new(0, 4096);
const RANGE: u64 = 512 + 64 * 64;
const SLOT: u64 = 2048;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub fn registry(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let memory = Memory::anonymous(64 << 10).map_err(text)?;
    let view = View::of(&[NodeId(1), NodeId(2)]);
    drop(LocalRegistry::create(&memory, AT, vec![(GROUP, view)]).map_err(text)?);
    for slot in 0..2 {
        let mut bytes = vec![0; usize::try_from(SLOT).unwrap_or(0)];
        memory.read(AT.plus(slot * SLOT), &mut bytes);
        for _ in 0..input.below(6) {
            let at = input.below(120);
            bytes[at] = input.byte();
        }
        if !input.once_in(4) {
            let length = usize::try_from(u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]])).unwrap_or(0);
            let end = 24_usize.saturating_add(length).min(bytes.len());
            let crc = crc32c::crc32c(&bytes[8..end]);
            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        }
        memory.write(AT.plus(slot * SLOT), &bytes);
    }
    let mut registry = match LocalRegistry::open(&memory, AT) {
        Ok(registry) => registry,
        Err(error) => {
            features.saw(&format!("{:?}", std::mem::discriminant(&error)), 0);
            return Ok(());
        }
    };
    let state = registry.state().map_err(text)?;
    features.counted("groups", u64::try_from(state.groups.len()).unwrap_or(0));
    if state.term < Term(u32::MAX) {
        registry.claim(NodeId(7), state.term).map_err(text)?;
        let next = registry.state().map_err(text)?;
        demand(next.term.0 == state.term.0 + 1, || format!("{} after {}", next.term, state.term))?;
        drop(registry);
        let again = LocalRegistry::open(&memory, AT).and_then(|registry| registry.state()).map_err(text)?;
        demand(again == next, || "another state after a restart".to_owned())?;
    }
    Ok(())
}

/// Changes bytes of a range, and puts right checksums into the heads if the input says so.
fn damage(memory: &Memory, input: &mut Input<'_>) {
    for _ in 0..=input.below(6) {
        let at = if input.flag() { input.below(64) } else { 512 + input.below(1024) };
        let mut word = [0; 8];
        let place = AT.plus(u64::try_from(at).unwrap_or(0) / 8 * 8);
        memory.read(place, &mut word);
        if input.flag() {
            word = input.number().to_le_bytes();
        } else {
            word[at % 8] = input.byte();
        }
        memory.write(place, &word);
        if at < 64 {
            memory.write(place.plus(256), &word);
        }
    }
    if input.once_in(8) {
        return;
    }
    for copy in [0, 256] {
        let mut line = [0; 64];
        memory.read(AT.plus(copy), &mut line);
        let crc = crc32c::crc32c(&line[..60]);
        memory.write(AT.plus(copy + 60 / 8 * 8), &[&line[56..60], &crc.to_le_bytes()[..]].concat());
    }
    // The first entries, where they are if nothing moved them. Later ones of a generation that has not begun get none:
    // once it has, no scan can tell them from its own.
    let mut at = 512;
    for number in 0..3 {
        let mut bytes = vec![0; 512];
        memory.read(AT.plus(at), &mut bytes);
        let length = usize::try_from(u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])).unwrap_or(0);
        let covered = usize::try_from(u32::from_le_bytes([bytes[28], bytes[29], bytes[30], bytes[31]])).unwrap_or(0);
        let end = 32 + covered.min(length).min(bytes.len() - 32);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&SALT.to_le_bytes()), &bytes[4..end]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        if number == 0 || bytes[24..28] == 1_u32.to_le_bytes() {
            memory.write(AT.plus(at), &bytes[..8]);
        }
        let span = (32 + length.min(400)).next_multiple_of(64);
        at += u64::try_from(span).unwrap_or(64);
    }
}

fn record(sequence: u64, flags: u16, body: &[u8]) -> Result<RecordHead, String> {
    let mut head =
        RecordHead { sequence: Sequence(sequence), term: Term(1), flags, group: GROUP, ..RecordHead::default() };
    head.count = u32::from(flags & FLAG_INLINE == 0);
    head.seal(SALT, body).map_err(text)?;
    Ok(head)
}

pub fn log(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    if input.flag() { ring(input, features) } else { apply_log(input, features) }
}

/// Refusals that are right for a damaged log.
fn refused(error: &Error, features: &mut Features) -> Result<(), String> {
    features.saw(&format!("{:?}", std::mem::discriminant(error)), 1);
    let is_named =
        matches!(error, Error::NoLog { .. } | Error::Version { .. } | Error::Impossible { .. } | Error::Damaged { .. });
    demand(is_named, || format!("a damaged log: {error}"))
}

fn ring(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let memory = Memory::anonymous(64 << 10).map_err(text)?;
    let mut ring = Ring::create(&memory, AT, RANGE, SALT).map_err(text)?;
    for sequence in 1..=3 {
        ring.append(&record(sequence, FLAG_INLINE, b"record")?, b"record").map_err(text)?;
    }
    // No store of the damage may overtake these records: it has to hit them.
    ring.fence().map_err(text)?;
    drop(ring);
    damage(&memory, input);
    let mut ring = match Ring::open(&memory, AT, RANGE, SALT) {
        Ok(ring) => ring,
        Err(error) => return refused(&error, features),
    };
    features.counted("records", ring.last().0 - ring.first().0.min(ring.last().0));
    let next = ring.last().next();
    if next >= Sequence::MAX {
        // No sender lives so long.
        return Ok(());
    }
    let head = RecordHead { term: Term(u32::MAX), ..record(next.0, FLAG_INLINE, b"next")? };
    let mut head = head;
    head.seal(SALT, b"next").map_err(text)?;
    ring.append(&head, b"next").map_err(text)?;
    // No store of the ring that is opened next may overtake this record: it has to be found there.
    ring.fence().map_err(text)?;
    drop(ring);
    let last = Ring::open(&memory, AT, RANGE, SALT).map_err(text)?.last();
    demand(last == next, || format!("{next} was appended, and {last} is the last after a restart"))
}

fn apply_log(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let memory = Memory::anonymous(64 << 10).map_err(text)?;
    let area = || PageArea::open(&memory, AT.plus(RANGE), PageArea::bytes_for(PAGE_BYTES, PAGES), PAGE_BYTES, PAGES);
    let applied = |sequence: u64| -> Result<Applied, String> {
        let kept = [sequence.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        let head = record(sequence, 0, &kept)?;
        Ok(Applied { head, stable: Sequence(0), kept, checksums: vec![crc32c::crc32c(&[0; 64])] })
    };
    let mut log = ApplyLog::create(&memory, AT, RANGE, SALT).map_err(text)?;
    for sequence in 1..=3 {
        log.append(&applied(sequence)?, Sequence(0)).map_err(text)?;
    }
    drop(log);
    damage(&memory, input);
    let mut log = match ApplyLog::open(&memory, AT, RANGE, SALT, &mut area().map_err(text)?) {
        Ok(log) => log,
        Err(error) => return refused(&error, features),
    };
    features.saw("standing", log.standing() as u64);
    features.counted("last", log.last().0);
    let (term, last) = (Term(u32::MAX), log.last());
    log.promise(term);
    drop(log);
    let log = ApplyLog::open(&memory, AT, RANGE, SALT, &mut area().map_err(text)?).map_err(text)?;
    demand(log.last() == last && log.promised().0 == term, || format!("{last} before a restart, {} after", log.last()))
}
