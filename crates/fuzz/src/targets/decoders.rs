//! Decoders: whatever the bytes, they return an error or a value that encodes to the same bytes.

use lodestone_fabric::{
    Call, Form, Merge, Missing, Packet, Payloads, RECORD_BYTES_MAX, RecordHead, Refusal, Sequence, Terms, ViewMessage,
    halves,
};

use super::demand;
use super::generate::{self, GROUP, PAGE_BYTES, PAGES, SALT};
use crate::input::{Features, Input};

/// Puts a right checksum into a packet.
pub fn with_checksum(bytes: &mut [u8]) {
    if bytes.len() >= 64 {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..60]), &bytes[64..]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    }
}

pub fn packet(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let way = input.byte();
    let mut bytes = if way & 1 == 0 { generate::packet(input, GROUP) } else { input.bytes(400).to_vec() };
    for _ in 0..usize::from(way >> 1 & 3) {
        let at = input.below(bytes.len().max(1));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = input.byte();
        }
    }
    if way & 8 != 0 {
        bytes.truncate(input.below(bytes.len() + 1));
    }
    if way & 16 != 0 {
        with_checksum(&mut bytes);
    }
    let sent = halves::seal(&bytes);
    let joins = bytes.len() < 64 || halves::open(&sent) == Some((bytes.clone(), false));
    demand(joins, || "halves do not join".to_owned())?;
    features.saw("halves", u64::from(halves::open(&bytes).is_some()));
    match Packet::decode(&bytes) {
        Ok(packet) => {
            features.saw("kind", u64::from(bytes[3]));
            let again = packet.head.packet([packet.payload, &[]]);
            demand(again == bytes, || format!("{:?} encodes to other bytes", packet.head))?;
            let whole = usize::try_from(packet.head.record_bytes).unwrap_or(usize::MAX);
            if let Some(at) = packet.head.fragment_place(packet.payload.len()) {
                features.counted("place", u64::try_from(at).unwrap_or(u64::MAX));
                let is_inside = at + packet.payload.len() <= whole && whole <= RECORD_BYTES_MAX;
                demand(is_inside, || format!("a fragment at {at} of {whole} bytes"))?;
            }
        }
        Err(refusal) => features.saw("refused", refusal_code(refusal)),
    }
    Ok(())
}

fn refusal_code(refusal: Refusal) -> u64 {
    match refusal {
        Refusal::Length => 0,
        Refusal::Magic => 1,
        Refusal::Version => 2,
        Refusal::Kind => 3,
        Refusal::Checksum => 4,
        Refusal::Fields => 5,
        _ => 6,
    }
}

pub fn record(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let way = input.byte();
    let mut bytes = if way & 1 == 0 { generate::record(input) } else { input.bytes(400).to_vec() };
    if way & 2 != 0 {
        let at = input.below(bytes.len().max(1));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = input.byte();
        }
    }
    let Some(head) = RecordHead::from_bytes(&bytes) else { return Ok(()) };
    demand(head.to_bytes() == bytes[..64], || format!("{head:?} encodes to other bytes"))?;
    let body = &bytes[64..];
    features.saw("verifies", u64::from(head.verifies(SALT, body)));
    features.counted("kept", u64::try_from(head.kept_bytes()).unwrap_or(u64::MAX));
    if let Some(merge) = Merge::of(body) {
        features.counted("merge", u64::from(merge.at));
    }
    if let Some(payloads) = Payloads::of(body) {
        let places: Vec<_> = payloads.places().collect();
        features.counted("places", u64::try_from(places.len()).unwrap_or(0));
        let again = Payloads::body(&places, payloads.rest());
        demand(Payloads::of(&again).is_some_and(|again| again.places().eq(places)), || "payloads differ".to_owned())?;
    }
    match head.check_form(body, PAGE_BYTES, PAGES) {
        Ok(()) => {
            features.saw("form", u64::from(head.flags & 6) << 8 | u64::from(head.count));
            let pairs: Vec<_> = head.pairs(body).collect();
            let is_inside = pairs.iter().all(|pair| pair.new > 0 && pair.new < PAGES && pair.old < PAGES);
            demand(is_inside, || format!("pages outside the area passed: {pairs:?}"))?;
            demand(head.kept_bytes() <= body.len(), || format!("keeps more than it has: {head:?}"))?;
            if head.form() == Form::Merge {
                let merge = Merge::of(body).ok_or("a merge without one passed")?;
                let end = u64::from(merge.at) + u64::try_from(merge.bytes.len()).unwrap_or(u64::MAX);
                demand(end <= u64::from(PAGE_BYTES), || format!("a merge up to byte {end} passed"))?;
            }
        }
        Err(error) => features.saw(&error.to_string().replace(|letter: char| letter.is_ascii_digit(), ""), 0),
    }
    Ok(())
}

pub fn message(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let is_raw = input.flag();
    let bytes = if is_raw { input.bytes(300).to_vec() } else { generate::payload(input) };
    if let Some(terms) = Terms::from_payload(&bytes) {
        features.counted("runs", u64::try_from(terms.runs().len()).unwrap_or(0));
        demand(Terms::from_payload(&terms.to_payload()).as_ref() == Some(&terms), || format!("{terms:?} differs"))?;
        calculate(terms, input)?;
    }
    if let Some(view) = ViewMessage::from_payload(&bytes) {
        features.counted("members", u64::try_from(view.members.len()).unwrap_or(0));
        demand(ViewMessage::from_payload(&view.to_payload()).as_ref() == Some(&view), || format!("{view:?} differs"))?;
    }
    if let Some(missing) = Missing::from_payload(&bytes) {
        features.counted("missing", u64::try_from(missing.distances().count()).unwrap_or(0));
        demand(Missing::from_payload(&missing.to_payload()).as_ref() == Some(&missing), || {
            format!("{missing:?} differs")
        })?;
        demand(missing.distances().all(|distance| distance < 256), || "a distance beyond the map".to_owned())?;
    }
    if let Some((call, number, _)) = Call::from_payload(&bytes) {
        features.saw("call", u64::from(bytes[0]));
        let again = call.to_payload(number);
        let same = Call::from_payload(&again).map(|found| (found.0, found.1));
        demand(same == Some((call, number)), || format!("{call:?} differs"))?;
    }
    Ok(())
}

/// The calculations that are made with terms of others.
fn calculate(mut terms: Terms, input: &mut Input<'_>) -> Result<(), String> {
    let other = generate::terms(input);
    demand(terms.common(&other) == other.common(&terms), || format!("{terms:?} and {other:?} disagree"))?;
    if let Some(common) = terms.common(&other) {
        demand(terms.term_of(common) == other.term_of(common), || format!("{terms:?} and {other:?} at {common}"))?;
    }
    let at = Sequence(input.number());
    terms.forget_below(at);
    terms.cut(Sequence(input.number()));
    let (base, last) = (terms.base().0, terms.last().1);
    demand(base <= last, || format!("the base is after the last: {terms:?}"))?;
    let is_known = terms.term_of(last).is_some() && terms.term_of(last.next()).is_none();
    demand(is_known, || format!("the last is not the last: {terms:?}"))
}
