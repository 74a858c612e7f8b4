//! The operations of one thread, drawn before the clock runs.
//!
//! Kind and record are in one word each, up to a million of them, and then the tape starts again from the front. So a
//! measured operation pays for reading one word in sequence, not for a zipfian draw.

use lodestone_workload::keys::{Distribution, KeyChooser, KeysError};
use lodestone_workload::mix::{Mix, OperationKind};
use lodestone_workload::random::Random;

/// Operations of a tape before it starts again.
const TAPE_MAX: u64 = 1 << 20;
/// Bits of a word below the kind.
const RECORD_BITS: u32 = 60;

/// The operations of one thread, drawn in advance.
#[derive(Debug)]
pub struct Tape {
    words: Vec<u64>,
    next: usize,
    /// Whether records count back from the newest.
    is_latest: bool,
}

impl Tape {
    /// Draws the tape of thread `thread` from `seed`: `length` operations, but at most a million, which then repeat.
    ///
    /// # Errors
    /// Those of the distribution.
    pub fn draw(
        mix: &Mix,
        distribution: Distribution,
        records: u64,
        seed: u64,
        thread: u64,
        length: u64,
    ) -> Result<Self, KeysError> {
        let mut random = Random::for_stream(seed, thread);
        let mut chooser = KeyChooser::new(distribution, records, records)?;
        let is_latest = matches!(distribution, Distribution::Latest { .. });
        let draw = |_| {
            let kind = mix.choose(&mut random);
            let record = chooser.choose(&mut random, records);
            let place = if is_latest { records - 1 - record } else { record };
            (kind.index() as u64) << RECORD_BITS | place
        };
        let words = (0..length.clamp(1, TAPE_MAX)).map(draw).collect();
        Ok(Self { words, next: 0, is_latest })
    }

    /// The next kind and record, with `population` existing records.
    #[inline]
    pub fn next_operation(&mut self, population: u64) -> (OperationKind, u64) {
        let word = self.words[self.next];
        self.next += 1;
        if self.next == self.words.len() {
            self.next = 0;
        }
        let place = word & ((1 << RECORD_BITS) - 1);
        let record = if self.is_latest { population - 1 - place } else { place };
        (OperationKind::ALL[(word >> RECORD_BITS) as usize], record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tapes_keep_to_the_shares_and_repeat_for_a_seed() {
        let mix: Mix = "read=60,update=40".parse().unwrap();
        let draw = || Tape::draw(&mix, Distribution::Uniform, 100, 3, 1, 10_000).unwrap();
        let (mut one, mut two) = (draw(), draw());
        let mut reads = 0;
        for _ in 0..20_000 {
            let (kind, record) = one.next_operation(100);
            assert_eq!((kind, record), two.next_operation(100));
            assert!(record < 100);
            reads += u64::from(kind == OperationKind::Read);
        }
        assert!((11_500..12_500).contains(&reads), "{reads}");
    }

    #[test]
    fn the_latest_are_counted_from_the_newest() {
        let mix: Mix = "d".parse().unwrap();
        let mut tape = Tape::draw(&mix, mix.distribution(), 1000, 1, 0, 5000).unwrap();
        let near = (0..5000).filter(|_| tape.next_operation(2000).1 >= 1900).count();
        assert!(near > 2500, "{near}");
    }
}
