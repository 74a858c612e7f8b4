//! Which entry of a full bucket makes room: what an expert says who trusts the last use, or one who trusts the number of uses.
//!
//! A bucket has up to [`WAYS`] entries, each with a byte: six bits of *recency*, two of *uses*.
//!
//! 1. A fill lowers the recency of every entry by one, down to 0; a hit raises that of its entry to the highest. So a recency tells
//!    how many fills ago its entry was used last. A second use between the same two fills stores nothing: a hot entry costs no store.
//! 2. A hit that raises the recency, or is the first one, raises the uses as well, up to three.
//! 3. The expert of *last use* would throw out the entry with the lowest recency (LRU), the expert of *uses* the one with the fewest uses, the
//!    lowest recency among these; if that one has uses left, all entries lose that many. So whoever is not used between a few fills goes,
//!    whatever it was before.
//! 4. Where the two disagree, the bucket remembers the key that had to go as a *ghost* of the expert that was followed: 16 bits of its
//!    hash, the last [`GHOSTS`] of each expert. A key that comes back while it is a ghost speaks against that expert. Which expert is followed is decided by the
//!    *balance* of these voices, one number for the whole cache between plus and minus [`BALANCE_MAX`].
//! 5. A key that was a ghost starts with one use.
//!
//! Why this and not one order of all entries (LRU, S3-FIFO, SIEVE, ARC): a hit touches the line that it reads anyway and takes no lock, a fill
//! touches one bucket. Why two experts: counting uses holds what is popular (zipfian reads, scans between) and lets go too late of what
//! was (a hot set that moves, keys that are read in bursts); there LRU is better, and S3-FIFO and ARC are as wrong as
//! counting alone. Why [`WAYS`] entries: keys that crowd one bucket are what is lost against one order of all, and the more
//! entries share a bucket, the less. `tests/acs_policy.rs` prints the hits beside LRU's, trace by trace.

/// Most entries of a bucket.
pub(super) const WAYS: usize = 24;
/// Words that hold a byte for each entry.
pub(super) const BYTE_WORDS: usize = WAYS / 8;
/// Ghosts of one expert.
pub(super) const GHOSTS: usize = 12;
/// Words of the ghosts of one expert.
pub(super) const GHOST_WORDS: usize = GHOSTS / 4;
/// Farthest that the balance goes to either side.
pub(super) const BALANCE_MAX: i64 = 512;

const RECENCY_MAX: u8 = 63;
const USE: u8 = RECENCY_MAX + 1;
/// The lowest bit of every byte.
const ONES: u64 = 0x0101_0101_0101_0101;

const _: () = assert!(WAYS.is_multiple_of(8) && GHOSTS.is_multiple_of(4));

/// One byte for each entry.
pub(super) type Bytes = [u64; BYTE_WORDS];
/// The ghosts of one expert, the last one first; 0 is nobody.
pub(super) type Ghosts = [u64; GHOST_WORDS];

/// The word after a hit of the entry whose byte is number `at` in it; `None` when it says so already.
#[inline]
pub(super) fn touched(word: u64, at: usize) -> Option<u64> {
    let byte = (word >> (8 * at)) as u8;
    let (uses, recency) = (byte / USE, byte % USE);
    if recency == RECENCY_MAX && uses > 0 {
        return None;
    }
    let byte_now = (uses + 1).min(3) * USE + RECENCY_MAX;
    Some(word ^ u64::from(byte ^ byte_now) << (8 * at))
}

/// What has to go.
pub(super) struct Victim {
    pub(super) way: usize,
    /// The other expert would have chosen another one.
    pub(super) is_disputed: bool,
}

/// The entry of the first `ways` that makes room; `by_uses`: whom to follow.
pub(super) fn victim(bytes: &mut Bytes, ways: usize, by_uses: bool) -> Victim {
    let (mut oldest, mut rarest) = ((u8::MAX, 0), (u8::MAX, 0));
    for way in 0..ways {
        let byte = (bytes[way / 8] >> (8 * (way % 8))) as u8;
        if byte % USE < oldest.0 {
            oldest = (byte % USE, way);
        }
        if byte < rarest.0 {
            rarest = (byte, way);
        }
    }
    if by_uses {
        // Every byte of an entry is at least the rarest one's, so no byte borrows from the next.
        let uses = u64::from(rarest.0 / USE * USE);
        for (number, word) in bytes.iter_mut().enumerate() {
            let taken = ways.saturating_sub(8 * number).min(8);
            let ones = if taken == 8 { ONES } else { ONES & ((1 << (8 * taken)) - 1) };
            *word -= ones * uses;
        }
    }
    Victim { way: if by_uses { rarest.1 } else { oldest.1 }, is_disputed: oldest.1 != rarest.1 }
}

/// The bytes after a fill into entry `way`.
pub(super) fn filled(bytes: &mut Bytes, way: usize, was_ghost: bool) {
    for word in &mut *bytes {
        let recencies = *word & (ONES * u64::from(RECENCY_MAX));
        // Sixty-three more than a recency that is not 0 reaches the bit above.
        *word -= ((recencies + ONES * u64::from(RECENCY_MAX)) >> 6) & ONES;
    }
    let shift = 8 * (way % 8);
    let byte = RECENCY_MAX + if was_ghost { USE } else { 0 };
    bytes[way / 8] = bytes[way / 8] & !(0xFF << shift) | u64::from(byte) << shift;
}

/// What a ghost is known by.
pub(super) fn ghost_of(hash: u64) -> u16 {
    ((hash >> 8) as u16).max(1)
}

fn lanes(ghosts: Ghosts) -> [u16; GHOSTS] {
    std::array::from_fn(|at| (ghosts[at / 4] >> (16 * (at % 4))) as u16)
}

fn words(lanes: [u16; GHOSTS]) -> Ghosts {
    std::array::from_fn(|word| (0..4).fold(0, |all, at| all | u64::from(lanes[4 * word + at]) << (16 * at)))
}

/// The ghosts after `ghost` has gone.
pub(super) fn remembered(ghosts: Ghosts, ghost: u16) -> Ghosts {
    let mut lanes = lanes(ghosts);
    lanes.copy_within(..GHOSTS - 1, 1);
    lanes[0] = ghost;
    words(lanes)
}

/// The ghosts without `ghost`, if it is one.
pub(super) fn without_ghost(ghosts: Ghosts, ghost: u16) -> Option<Ghosts> {
    let mut lanes = lanes(ghosts);
    let at = lanes.iter().position(|other| *other == ghost)?;
    lanes.copy_within(at + 1.., at);
    lanes[GHOSTS - 1] = 0;
    Some(words(lanes))
}

/// The balance when a key comes back that is a ghost of the expert of last use, or of uses, or of both. It is positive while those of last
/// use have come back more often.
pub(super) fn heard(balance: i64, of_last_use: bool, of_uses: bool) -> i64 {
    (balance + i64::from(of_last_use) - i64::from(of_uses)).clamp(-BALANCE_MAX, BALANCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(ways: usize) -> Bytes {
        let mut bytes = [0; BYTE_WORDS];
        (0..ways).for_each(|way| filled(&mut bytes, way, false));
        bytes
    }

    fn touch(bytes: &mut Bytes, way: usize) -> bool {
        touched(bytes[way / 8], way % 8).map(|word| bytes[way / 8] = word).is_some()
    }

    fn byte(bytes: &Bytes, way: usize) -> (u8, u8) {
        let byte = (bytes[way / 8] >> (8 * (way % 8))) as u8;
        (byte / USE, byte % USE)
    }

    #[test]
    fn the_experts_choose_the_oldest_and_the_rarest() {
        for ways in [3, 8, 13, WAYS] {
            let mut bytes = full(ways);
            assert!(!victim(&mut bytes.clone(), ways, true).is_disputed, "nobody was used");
            assert_eq!(victim(&mut bytes, ways, false).way, 0);
            // The first one is used twice, long ago; the second one is new; all others were used once, between.
            assert!(touch(&mut bytes, 0));
            filled(&mut bytes, ways - 1, false);
            assert!(touch(&mut bytes, 0));
            filled(&mut bytes, ways - 1, false);
            assert!((2..ways).all(|way| touch(&mut bytes, way)));
            filled(&mut bytes, 1, false);
            for (by_uses, way) in [(false, 0), (true, 1)] {
                let victim = victim(&mut bytes.clone(), ways, by_uses);
                assert!(victim.way == way && victim.is_disputed);
            }
            assert!(touch(&mut bytes, 1));
            let before = bytes;
            assert_eq!(victim(&mut bytes, ways, true).way, 2, "used once, like the second one, but before it");
            for way in 0..ways {
                let (uses, recency) = byte(&before, way);
                assert_eq!(byte(&bytes, way), (uses - 1, recency), "all lose the uses that the victim had");
            }
            assert_eq!(byte(&bytes, 0).0, 1);
        }
    }

    #[test]
    fn a_second_use_between_two_fills_costs_no_store() {
        let mut bytes = full(WAYS);
        assert!(touch(&mut bytes, 5) && !touch(&mut bytes, 5));
        assert_eq!(byte(&bytes, 5), (1, RECENCY_MAX));
        filled(&mut bytes, 6, true);
        assert_eq!((byte(&bytes, 5), byte(&bytes, 6)), ((1, RECENCY_MAX - 1), (1, RECENCY_MAX)));
        for _ in 0..5 {
            assert!(touch(&mut bytes, 5));
            filled(&mut bytes, 6, false);
        }
        assert_eq!(byte(&bytes, 5), (3, RECENCY_MAX - 1));
        (0..100).for_each(|_| filled(&mut bytes, 6, false));
        assert_eq!(
            (byte(&bytes, 5), byte(&bytes, 4)),
            ((3, 0), (0, 0)),
            "recencies end at 0 and take nothing from the uses"
        );
    }

    #[test]
    fn ghosts_are_the_last_ones() {
        let ghosts = (1..=GHOSTS as u16 + 1).fold([0; GHOST_WORDS], remembered);
        assert_eq!(without_ghost(ghosts, 1), None);
        for ghost in 2..=GHOSTS as u16 + 1 {
            let rest = without_ghost(ghosts, ghost).expect("one of the last");
            assert_eq!(without_ghost(rest, ghost), None);
            let mut others = (2..=GHOSTS as u16 + 1).filter(|other| *other != ghost);
            assert!(others.all(|other| without_ghost(rest, other).is_some()));
        }
    }

    #[test]
    fn the_balance_stays_within_its_bounds() {
        let far = (0..2000).fold(0, |balance, _| heard(balance, true, false));
        assert_eq!((far, heard(far, true, true)), (BALANCE_MAX, BALANCE_MAX));
        assert_eq!((0..2000).fold(far, |balance, _| heard(balance, false, true)), -BALANCE_MAX);
    }
}
