//! Which entry of a full bucket makes room. Two experts decide: one trusts the last use, the other the number of uses.
//!
//! A bucket has up to [`WAYS`] entries, each with a byte: a *stamp* of six bits, and two bits of *uses*.
//!
//! 1. The cache has a *clock*. The fills of its first [`TICKERS`] buckets make it tick, so it ticks about as often
//!    while each bucket is filled once. A hit or a fill stamps its entry with the time, so ages can be compared between
//!    buckets. A second use within one tick stores nothing: a hot entry costs no store. Stamps wrap; each fill of a
//!    bucket takes those that are older than [`AGE_MAX`] for as old as that.
//! 2. A hit that changes the stamp, or is the first one, raises the uses as well, up to three.
//! 3. The expert of *last use* would throw out the oldest entry (LRU). The expert of *uses* would throw out the one
//!    with the fewest uses, the oldest among these; if that one has uses left, all entries lose that many. So an entry
//!    that is not used for some time goes, however popular it was before.
//! 4. Where the two disagree, one entry goes and the other one is kept: a *dispute*. Whichever of the two keys is asked
//!    for first should have stayed: the kept one is used, a voice for the expert that was followed; the one that went
//!    comes back before, a voice against it. If the kept one goes unused, the dispute is void. A bucket remembers its
//!    last [`DISPUTES`] undecided ones, by 16 bits of the hash of the key that went. Which expert is followed is
//!    decided by the *balance* of the voices, one number for the whole cache between plus and minus [`BALANCE_MAX`].
//! 5. A key that comes back and decides a dispute starts with one use.
//! 6. A key has two buckets that it may be in (`pair`): of the two entries that would make room there, the better one
//!    does, and the first bucket's if they are equal: it is asked first by a hit.
//!
//! Why this and not one order of all entries (LRU, S3-FIFO, SIEVE, ARC): a hit touches the line that it reads anyway
//! and takes no lock, a fill touches two buckets. Why two experts: counting uses holds what is popular (zipfian reads,
//! scans between) and lets go too late of what was (a hot set that moves, keys that are read in bursts); there LRU is
//! better, and S3-FIFO and ARC are as wrong as counting alone. Why both outcomes of a dispute count: with the returns
//! alone, each expert is blamed while it is followed, and the balance swings about the middle although one of the two
//! is better. Why [`WAYS`] entries and two buckets: keys that crowd one bucket are what is lost against one order of
//! all, and with a choice of two buckets hardly any crowd. `tests/acs_policy.rs` prints the hits beside LRU's, trace by
//! trace.

use lodestone_width::{exact_u32, low_u8, low_u16, low_u32, to_usize};

/// Most entries of a bucket.
pub(super) const WAYS: usize = 24;
/// Words that hold a byte for each entry.
pub(super) const BYTE_WORDS: usize = WAYS / 8;
/// Buckets whose fills make the clock tick.
pub(super) const TICKERS: usize = 2;
/// Disputes that a bucket remembers.
pub(super) const DISPUTES: usize = 8;
/// Words of the disputes.
pub(super) const DISPUTE_WORDS: usize = DISPUTES / 2;
/// Farthest that the balance goes to either side.
pub(super) const BALANCE_MAX: i64 = 512;
/// Ticks that ages beyond are not told apart from.
const AGE_MAX: u8 = 48;

const STAMP_MAX: u8 = 63;
const USE: u8 = STAMP_MAX + 1;
const USES_MAX: u8 = u8::MAX / USE;

/// The lowest bit of every byte.
const ONES: u64 = 0x0101_0101_0101_0101;

const _: () = assert!(WAYS.is_multiple_of(8) && WAYS < 32 && DISPUTES.is_multiple_of(2));
const _: () = assert!(AGE_MAX < STAMP_MAX, "a bucket may go without a fill for the ticks between");

/// One byte for each entry.
pub(super) type Bytes = [u64; BYTE_WORDS];
/// The undecided disputes of a bucket, the last one first.
pub(super) type Disputes = [u64; DISPUTE_WORDS];

fn each(bytes: &Bytes) -> [u8; WAYS] {
    std::array::from_fn(|way| low_u8(bytes[way / 8] >> (8 * (way % 8))))
}

fn together(each: [u8; WAYS]) -> Bytes {
    std::array::from_fn(|word| (0..8).fold(0, |all, at| all | u64::from(each[8 * word + at]) << (8 * at)))
}

/// Ticks since the time of this byte.
#[inline]
fn age(byte: u8, now: u64) -> u8 {
    low_u8(now).wrapping_sub(byte) & STAMP_MAX
}

#[inline]
fn stamped(uses: u8, now: u64) -> u8 {
    uses * USE + (low_u8(now) & STAMP_MAX)
}

/// The word after a hit of the entry whose byte is number `at` in it; `None` when it says so already.
#[inline]
pub(super) fn touched(word: u64, at: usize, now: u64) -> Option<u64> {
    let byte = low_u8(word >> (8 * at));
    let uses = byte / USE;
    if age(byte, now) == 0 && uses > 0 {
        return None;
    }
    let byte_now = stamped((uses + 1).min(USES_MAX), now);
    Some(word ^ u64::from(byte ^ byte_now) << (8 * at))
}

/// An entry that may have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) way: usize,
    uses: u8,
    age: u8,
}

impl Victim {
    /// Whether `second`, of a second bucket, should rather go.
    pub(super) fn yields_to(&self, second: &Self, by_uses: bool) -> bool {
        if by_uses && second.uses != self.uses {
            return second.uses < self.uses;
        }
        second.age > self.age
    }
}

/// Which of the first `ways` entries an expert would throw out. Which one of equals depends on `now`, so that it is not
/// always the same.
pub(super) fn victim(bytes: &Bytes, ways: usize, now: u64, by_uses: bool) -> Victim {
    let stamps = ONES * u64::from(STAMP_MAX);
    // In every byte its own age: a turn of the stamps more keeps it from borrowing.
    let later = ONES * (u64::from(low_u8(now) & STAMP_MAX) + u64::from(USE));
    // Above it the uses that are missing, if they matter.
    let uses = if by_uses { !stamps } else { 0 };
    let ranks = bytes.map(|word| (later - (word & stamps)) & stamps | !word & uses);
    let way = place_of_max(&ranks, ways, now);
    let byte = low_u8(bytes[way / 8] >> (8 * (way % 8)));
    Victim { way, uses: byte / USE, age: age(byte, now) }
}

/// The lowest `count` bytes of a word, or all.
fn low_bytes(count: usize) -> u64 {
    if count >= 8 { u64::MAX } else { (1 << (8 * count)) - 1 }
}

/// The largest byte. Not inlined: of bytes in memory the compiler takes sixteen at once.
#[inline(never)]
fn max_of(bytes: &Bytes) -> u8 {
    let mut each = [0; WAYS];
    each.chunks_exact_mut(8).zip(bytes).for_each(|(own, word)| own.copy_from_slice(&word.to_le_bytes()));
    each.iter().copied().fold(0, u8::max)
}

/// Which of the first `ways` bytes is the largest one; of several the first one after `turn`. Without a branch that is
/// hard to foresee.
fn place_of_max(bytes: &Bytes, ways: usize, turn: u64) -> usize {
    const LOWS: u64 = ONES * 0x7F;
    let mut among = *bytes;
    if ways < WAYS {
        among.iter_mut().enumerate().for_each(|(at, word)| *word &= low_bytes(ways.saturating_sub(8 * at)));
    }
    let max = ONES * u64::from(max_of(&among));
    let found = bytes.iter().rev().fold(0, |found, word| {
        // The high bit of each byte that is the largest one, and these bits side by side.
        let differing = word ^ max;
        let equal = !(((differing & LOWS) + LOWS) | differing | LOWS);
        found << 8 | (equal >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
    });
    let (found, turn) = (found & ((1 << ways) - 1), low_u32(turn) % exact_u32(WAYS));
    // Twice, so that those before `turn` come after the others.
    to_usize(((found | found << WAYS) >> turn).trailing_zeros() + turn) % WAYS
}

/// The bytes after all of the first `ways` entries have lost as many uses as the entry `victim` has. It had the fewest
/// when it was chosen; a reader that has used it since may have left others with fewer, and these lose what they have.
pub(super) fn worn(bytes: &Bytes, ways: usize, victim: usize) -> Bytes {
    let mut each = each(bytes);
    let uses = each[victim] / USE * USE;
    each.iter_mut().take(ways).for_each(|byte| *byte -= uses.min(*byte / USE * USE));
    together(each)
}

/// The bytes after a fill into entry `way`.
pub(super) fn filled(bytes: &Bytes, way: usize, now: u64, came_back: bool) -> Bytes {
    let mut each = each(bytes);
    for byte in &mut each {
        let oldest = stamped(*byte / USE, now.wrapping_sub(u64::from(AGE_MAX)));
        *byte = if age(*byte, now) > AGE_MAX { oldest } else { *byte };
    }
    each[way] = stamped(u8::from(came_back), now);
    together(each)
}

/// The mark by which a key that went in a dispute is known.
pub(super) fn ghost_of(hash: u64) -> u16 {
    low_u16(hash >> 8).max(1)
}

/// A dispute: bits 0 to 15 the ghost, never 0; 16 to 20 the entry that was kept; 21 whether the expert of uses was
/// followed.
type Dispute = u32;
const KEPT_SHIFT: u32 = 16;
const BY_USES: Dispute = 1 << 21;

fn kept_of(dispute: Dispute) -> usize {
    to_usize(dispute >> KEPT_SHIFT) % 32
}

/// A voice for the expert that was followed: positive if that is the one of uses.
fn voice(dispute: Dispute) -> i64 {
    if dispute & BY_USES != 0 { 1 } else { -1 }
}

fn lanes(disputes: Disputes) -> [Dispute; DISPUTES] {
    std::array::from_fn(|at| low_u32(disputes[at / 2] >> (32 * (at % 2))))
}

fn words(lanes: [Dispute; DISPUTES]) -> Disputes {
    std::array::from_fn(|word| u64::from(lanes[2 * word]) | u64::from(lanes[2 * word + 1]) << 32)
}

/// The disputes for which `stays` holds, in their order.
fn retained(disputes: Disputes, mut stays: impl FnMut(Dispute) -> bool) -> Disputes {
    let (mut left, mut count) = ([0; DISPUTES], 0);
    for dispute in lanes(disputes).into_iter().filter(|dispute| *dispute != 0) {
        if stays(dispute) {
            left[count] = dispute;
            count += 1;
        }
    }
    words(left)
}

/// The disputes that are undecided, and the voices of those whose kept entry has been used since the bucket's last
/// fill, at `then`.
pub(super) fn settled(disputes: Disputes, bytes: &Bytes, then: u64, now: u64) -> (Disputes, i64) {
    if disputes == [0; DISPUTE_WORDS] {
        return (disputes, 0);
    }
    let (each, since) = (each(bytes), low_u8(now.wrapping_sub(then).min(u64::from(STAMP_MAX))));
    let mut voices = 0;
    let undecided = retained(disputes, |dispute| {
        let is_used = each.get(kept_of(dispute)).is_some_and(|byte| age(*byte, now) < since);
        voices += if is_used { voice(dispute) } else { 0 };
        !is_used
    });
    (undecided, voices)
}

/// The undecided disputes without the one in which `ghost` went, and the voice that its return is.
pub(super) fn returned(disputes: Disputes, ghost: u16) -> Option<(Disputes, i64)> {
    let is_it = |dispute: &Dispute| low_u16(u64::from(*dispute)) == ghost;
    let found = lanes(disputes).into_iter().find(is_it)?;
    Some((retained(disputes, |dispute| !is_it(&dispute)), -voice(found)))
}

/// The undecided disputes when entry `way` goes: those that it was kept in are void.
pub(super) fn voided(disputes: Disputes, way: usize) -> Disputes {
    retained(disputes, |dispute| kept_of(dispute) != way)
}

/// The disputes with one more: `ghost` went and entry `kept` stayed.
pub(super) fn disputed(disputes: Disputes, ghost: u16, kept: usize, by_uses: bool) -> Disputes {
    let mut lanes = lanes(disputes);
    lanes.copy_within(..DISPUTES - 1, 1);
    lanes[0] = Dispute::from(ghost) | exact_u32(kept) << KEPT_SHIFT | if by_uses { BY_USES } else { 0 };
    words(lanes)
}

/// The balance after these voices. It is positive, or 0, while the expert of uses is followed.
pub(super) fn heard(balance: i64, voices: i64) -> i64 {
    (balance + voices).clamp(-BALANCE_MAX, BALANCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries that were filled one tick after another, the first one at time 0.
    fn full(ways: usize) -> Bytes {
        (0..ways).fold([0; BYTE_WORDS], |bytes, way| filled(&bytes, way, way as u64, false))
    }

    fn touch(bytes: &mut Bytes, way: usize, now: u64) -> bool {
        touched(bytes[way / 8], way % 8, now).map(|word| bytes[way / 8] = word).is_some()
    }

    fn byte(bytes: &Bytes, way: usize, now: u64) -> (u8, u8) {
        let byte = each(bytes)[way];
        (byte / USE, age(byte, now))
    }

    #[test]
    fn the_experts_choose_the_oldest_and_the_rarest() {
        for ways in [3, 8, 13, WAYS] {
            let (mut bytes, now) = (full(ways), ways as u64);
            assert_eq!([false, true].map(|by_uses| victim(&bytes, ways, now, by_uses).way), [0, 0], "nobody was used");
            // The first one is used twice, long ago; the second one is new; all others were used once, between.
            assert!(touch(&mut bytes, 0, now) && touch(&mut bytes, 0, now + 1));
            assert!((2..ways).all(|way| touch(&mut bytes, way, now + 2)));
            bytes = filled(&bytes, 1, now + 3, false);
            for later in now + 3..now + 20 {
                assert_eq!([false, true].map(|by_uses| victim(&bytes, ways, later, by_uses).way), [0, 1]);
            }
            assert!(touch(&mut bytes, 1, now + 4));
            let rarest = victim(&bytes, ways, now + 4, true).way;
            assert!((2..ways).contains(&rarest), "used once, like the second one, but before it");
            let after = worn(&bytes, ways, rarest);
            for way in 0..ways {
                let (uses, age) = byte(&bytes, way, now + 4);
                assert_eq!(byte(&after, way, now + 4), (uses - 1, age), "all lose the uses that the victim had");
            }
        }
    }

    #[test]
    fn the_largest_byte_is_found() {
        let mut state = 1_u64;
        for round in 0..20_000_usize {
            let mut drawn = [0; WAYS];
            for byte in &mut drawn {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Few values, so that there are several largest ones; at times only large ones.
                *byte = ((state >> 60) as u8 % 3) * [1, 7, 85, 127][round % 4];
            }
            let (ways, turn) = (1 + round % WAYS, round as u64 / 7);
            let start = turn as usize % WAYS;
            let max = *drawn[..ways].iter().max().expect("some");
            let places = (start..start + WAYS).map(|way| way % WAYS);
            let expected = places.filter(|way| *way < ways).find(|way| drawn[*way] == max);
            assert_eq!(Some(place_of_max(&together(drawn), ways, turn)), expected, "{drawn:?} {ways} {turn}");
        }
    }

    #[test]
    fn which_one_of_equals_goes_takes_turns() {
        let bytes = (0..WAYS).fold([0; BYTE_WORDS], |bytes, way| filled(&bytes, way, 9, false));
        let goes = |now| victim(&bytes, WAYS, now, true).way;
        let all: std::collections::BTreeSet<usize> = (9..9 + WAYS as u64).map(goes).collect();
        assert_eq!(all.len(), WAYS);
    }

    #[test]
    fn a_second_use_within_a_tick_costs_no_store() {
        let mut bytes = full(WAYS);
        assert!(touch(&mut bytes, 5, 30) && !touch(&mut bytes, 5, 30));
        assert_eq!(byte(&bytes, 5, 30), (1, 0));
        for now in 31..36 {
            assert!(touch(&mut bytes, 5, now) && !touch(&mut bytes, 5, now));
        }
        assert_eq!(byte(&bytes, 5, 36), (USES_MAX, 1));
    }

    #[test]
    fn ages_do_not_wrap_while_the_bucket_is_filled() {
        let mut bytes = full(WAYS);
        assert!(touch(&mut bytes, 5, 24));
        for now in (24..400).step_by(usize::from(STAMP_MAX - AGE_MAX)) {
            bytes = filled(&bytes, 6, now as u64, true);
            assert_eq!(byte(&bytes, 6, now as u64), (1, 0));
            assert_eq!(byte(&bytes, 5, now as u64), (1, (now - 24).min(usize::from(AGE_MAX)) as u8));
            assert_eq!(byte(&bytes, 4, now as u64), (0, (now - 4).min(usize::from(AGE_MAX)) as u8));
        }
    }

    #[test]
    fn the_second_bucket_makes_room_if_its_entry_is_better() {
        let with = |uses, ticks| {
            let mut bytes = filled(&[0; BYTE_WORDS], 0, 0, false);
            (0..uses).for_each(|now| assert!(touch(&mut bytes, 0, now)));
            victim(&bytes, 1, ticks + u64::max(uses, 1) - 1, true)
        };
        for by_uses in [false, true] {
            assert!(!with(0, 10).yields_to(&with(0, 10), by_uses) && !with(0, 10).yields_to(&with(0, 9), by_uses));
            assert!(with(0, 10).yields_to(&with(0, 11), by_uses));
        }
        assert!(with(2, 30).yields_to(&with(1, 5), true) && !with(1, 5).yields_to(&with(2, 30), true));
        assert!(!with(2, 30).yields_to(&with(1, 5), false) && with(1, 5).yields_to(&with(2, 30), false));
    }

    #[test]
    fn whichever_of_two_is_used_first_decides_a_dispute() {
        let (mut bytes, then) = (full(WAYS), 24);
        for by_uses in [false, true] {
            let follows = if by_uses { 1 } else { -1 };
            let disputes = disputed([0; DISPUTE_WORDS], 77, 4, by_uses);
            assert_eq!(settled(disputes, &bytes, then, 30), (disputes, 0), "nothing was used");
            assert_eq!(returned(disputes, 78), None);
            assert_eq!(returned(disputes, 77), Some(([0; DISPUTE_WORDS], -follows)));
            assert_eq!(voided(disputes, 5), disputes);
            assert_eq!(voided(disputes, 4), [0; DISPUTE_WORDS]);
            let before = bytes;
            assert!(touch(&mut bytes, 4, 28));
            assert_eq!(settled(disputes, &bytes, then, 30), ([0; DISPUTE_WORDS], follows));
            bytes = before;
        }
    }

    #[test]
    fn the_last_disputes_are_remembered() {
        let all = DISPUTES as u16 + 1;
        let disputes = (1..=all).fold([0; DISPUTE_WORDS], |all, ghost| disputed(all, ghost, ghost.into(), true));
        assert_eq!(returned(disputes, 1), None);
        for ghost in 2..=all {
            let (rest, _) = returned(disputes, ghost).expect("one of the last");
            assert_eq!(voided(disputes, ghost.into()), rest);
            assert!((2..=all).all(|other| returned(rest, other).is_some() == (other != ghost)));
        }
    }

    #[test]
    fn the_balance_stays_within_its_bounds() {
        let far = (0..2000).fold(0, |balance, _| heard(balance, 1));
        assert_eq!(far, BALANCE_MAX);
        assert_eq!((0..2000).fold(far, |balance, _| heard(balance, -1)), -BALANCE_MAX);
    }
}
