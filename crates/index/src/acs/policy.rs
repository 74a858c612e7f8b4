//! Which entry of a full bucket makes room: the one that was hit least often, the oldest of several.
//!
//! A bucket has [`WAYS`] entries. Its policy word holds a count of hits per entry, 0 to [`HITS_MAX`], and the order in which the
//! entries came; its ghost word holds 16 bits of the hashes of the last four keys that had to go.
//!
//! 1. A hit raises the count of its entry, until it is full: a hot entry costs no store.
//! 2. A fill into a full bucket takes the place of the entry with the smallest count, the oldest one of these, and lowers all counts
//!    by that count. So whoever is not hit between a few fills goes, whatever it was before.
//! 3. A new entry starts with no hit; with one if its key is a ghost: it left too early.
//!
//! Why this and not one order of all entries (LRU, S3-FIFO, SIEVE): a hit touches the line that it reads anyway and takes no lock, a
//! fill touches one bucket. What a bucket of six loses against the whole cache by keys that collide is less than what counting
//! hits gains over LRU, on every trace of `tests/acs_policy.rs` but one: when the hot keys are exchanged all at once and often, LRU
//! forgets faster.

/// Entries of a bucket.
pub(super) const WAYS: usize = 6;
/// Full count of hits.
const HITS_MAX: u64 = 3;
const HITS_BITS: usize = 2;
/// Where the order begins in the word: three bits for each entry, the oldest one lowest.
const ORDER_SHIFT: usize = WAYS * HITS_BITS;
const ORDER_BITS: usize = 3;
const GHOST_BITS: u32 = 16;

const _: () = assert!(ORDER_SHIFT + WAYS * ORDER_BITS <= 64 && WAYS <= 1 << ORDER_BITS);

fn hits(word: u64, way: usize) -> u64 {
    word >> (way * HITS_BITS) & HITS_MAX
}

fn with_hits(word: u64, way: usize, hits: u64) -> u64 {
    word & !(HITS_MAX << (way * HITS_BITS)) | hits << (way * HITS_BITS)
}

fn in_order(word: u64, place: usize) -> usize {
    (word >> (ORDER_SHIFT + place * ORDER_BITS)) as usize & ((1 << ORDER_BITS) - 1)
}

/// The policy word of an empty bucket.
pub(super) fn fresh() -> u64 {
    (0..WAYS).fold(0, |word, way| word | (way as u64) << (ORDER_SHIFT + way * ORDER_BITS))
}

/// The word after a hit of entry `way`; `None` when it says so already.
#[inline]
pub(super) fn touched(word: u64, way: usize) -> Option<u64> {
    (hits(word, way) < HITS_MAX).then(|| word + (1 << (way * HITS_BITS)))
}

/// The entry that makes room, and the word without its count.
pub(super) fn victim(word: u64) -> (usize, u64) {
    let mut victim = in_order(word, 0);
    for place in 1..WAYS {
        let way = in_order(word, place);
        if hits(word, way) < hits(word, victim) {
            victim = way;
        }
    }
    let lowest = hits(word, victim);
    let lowered = (0..WAYS).fold(word, |word, way| with_hits(word, way, hits(word, way) - lowest));
    (victim, lowered)
}

/// The word after a fill into entry `way`, which is the youngest now.
pub(super) fn filled(word: u64, way: usize, is_ghost: bool) -> u64 {
    let word = with_hits(word, way, u64::from(is_ghost));
    let others = (0..WAYS).map(|place| in_order(word, place)).filter(|other| *other != way);
    let order = others.enumerate().fold((way as u64) << ((WAYS - 1) * ORDER_BITS), |order, (place, other)| {
        order | (other as u64) << (place * ORDER_BITS)
    });
    word & ((1 << ORDER_SHIFT) - 1) | order << ORDER_SHIFT
}

/// What a ghost is known by. Zero is nobody.
pub(super) fn ghost_of(hash: u64) -> u16 {
    ((hash >> 8) as u16).max(1)
}

/// The ghosts after `ghost` has gone.
pub(super) fn remembered(ghosts: u64, ghost: u16) -> u64 {
    ghosts << GHOST_BITS | u64::from(ghost)
}

/// The ghosts without `ghost`, if it is one.
pub(super) fn without_ghost(ghosts: u64, ghost: u16) -> Option<u64> {
    let at = (0..64 / GHOST_BITS).map(|number| number * GHOST_BITS).find(|at| (ghosts >> at) as u16 == ghost)?;
    let below = ghosts & ((1 << at) - 1);
    let above = ghosts.checked_shr(at + GHOST_BITS).unwrap_or(0) << at;
    Some(above | below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_often_hit_goes_and_the_oldest_of_these() {
        let mut word = fresh();
        assert_eq!(victim(word).0, 0);
        for way in [0, 0, 1, 3, 4, 5] {
            word = touched(word, way).expect("not full yet");
        }
        let (gone, word) = victim(word);
        assert_eq!(gone, 2);
        let word = filled(word, 2, false);
        assert_eq!(victim(word).0, 2, "it has no hit, the others have");
        let word = touched(word, 2).expect("not full yet");
        let (gone, lowered) = victim(word);
        assert_eq!(gone, 1, "the oldest one of those with one hit");
        assert_eq!(hits(lowered, 0), 1);
        assert_eq!((1..WAYS).map(|way| hits(lowered, way)).sum::<u64>(), 0);
    }

    #[test]
    fn a_full_count_costs_no_store() {
        let mut word = fresh();
        for _ in 0..HITS_MAX {
            word = touched(word, 5).expect("not full yet");
        }
        assert_eq!(touched(word, 5), None);
        assert_eq!(hits(word, 4), 0);
    }

    #[test]
    fn the_order_stays_a_permutation() {
        let mut word = fresh();
        for number in 0..1000 {
            word = filled(word, number * 7 % WAYS, number % 3 == 0);
            let mut order: Vec<usize> = (0..WAYS).map(|place| in_order(word, place)).collect();
            assert_eq!(order[WAYS - 1], number * 7 % WAYS);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..WAYS));
        }
    }

    #[test]
    fn ghosts_are_the_last_four() {
        let ghosts = [1, 2, 3, 4, 5].into_iter().fold(0, remembered);
        assert_eq!(without_ghost(ghosts, 1), None);
        assert_eq!(without_ghost(ghosts, 0), None);
        for ghost in 2..=5 {
            let rest = without_ghost(ghosts, ghost).expect("one of the last four");
            assert_eq!(without_ghost(rest, ghost), None);
            assert!((2..=5).filter(|other| *other != ghost).all(|other| without_ghost(rest, other).is_some()));
        }
    }
}
