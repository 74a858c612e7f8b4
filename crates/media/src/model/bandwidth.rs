//! A ceiling of bandwidth over time: windows that fill up.
//!
//! Time is cut into windows. A block that occupies the medium for some time takes that time from the windows, beginning
//! at its arrival. Where windows are full, it waits. The time granted therefore depends on the time of arrival, not on
//! the order of the calls. A thread whose clock is late still finds the time that the others left in its past.
//!
//! 1. Windows are stored in chunks of about a millisecond, which are created when they are first used.
//! 2. The latest [`CHUNKS`] chunks are kept, which is more than a second. That is the occupancy of gigabytes, so that
//!    calls of many megabytes by many threads still see each other. A medium in light use has few chunks, each of 16
//!    KiB.
//! 3. An arrival in a chunk that is forgotten does not wait, because the occupancy there is no longer known.
//!
//! Invariants: no window grants more time than its length; only a later chunk takes the place of a chunk.

/// Length of a window, picoseconds.
const WINDOW_PS: u32 = 256_000;
/// Windows of a chunk.
const CHUNK_WINDOWS: u64 = 1 << 12;
/// Chunks that are kept: 1.07 s.
const CHUNKS: u64 = 1 << 10;

/// Neighbouring windows: the time taken from each, ps.
#[derive(Debug)]
struct Chunk {
    number: u64,
    used_ps: Box<[u32]>,
}

impl Chunk {
    fn new(number: u64) -> Self {
        Self { number, used_ps: (0..CHUNK_WINDOWS).map(|_| 0).collect() }
    }

    /// Becomes chunk `number`, with nothing taken.
    fn restart(&mut self, number: u64) {
        self.number = number;
        self.used_ps.fill(0);
    }
}

#[derive(Debug, Default)]
pub(super) struct Bandwidth {
    /// By number modulo [`CHUNKS`].
    chunks: Vec<Option<Chunk>>,
}

impl Bandwidth {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The time taken from window `number`; `None` if it is forgotten.
    fn window(&mut self, number: u64) -> Option<&mut u32> {
        let chunk_number = number / CHUNK_WINDOWS;
        // Remainders are smaller than the number of chunks, and of windows in one.
        let (place, offset) = ((chunk_number % CHUNKS) as usize, (number % CHUNK_WINDOWS) as usize);
        if self.chunks.len() <= place {
            self.chunks.resize_with(place + 1, || None);
        }
        let chunk = self.chunks[place].get_or_insert_with(|| Chunk::new(chunk_number));
        if chunk.number > chunk_number {
            return None;
        }
        if chunk.number < chunk_number {
            chunk.restart(chunk_number);
        }
        Some(&mut chunk.used_ps[offset])
    }

    /// Takes `occupancy_ps` from `arrival_ps` on. Returns the time at which all of it was granted.
    pub(super) fn take(&mut self, arrival_ps: u64, occupancy_ps: u64) -> u64 {
        let window_ps = u64::from(WINDOW_PS);
        let first = arrival_ps / window_ps;
        let (mut number, mut left_ps) = (first, occupancy_ps);
        loop {
            let Some(used_ps) = self.window(number) else { return arrival_ps.max(number * window_ps) };
            // The rest of a window is no more than its length.
            let granted_ps = left_ps.min(u64::from(WINDOW_PS - *used_ps)) as u32;
            *used_ps += granted_ps;
            left_ps -= u64::from(granted_ps);
            if left_ps == 0 {
                let waited = number > first;
                return if waited { number * window_ps + u64::from(*used_ps) } else { arrival_ps };
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = WINDOW_PS as u64;

    #[test]
    fn full_windows_make_later_ones_wait_whatever_the_order_of_calls() {
        let mut ahead = Bandwidth::new();
        assert_eq!(ahead.take(10 * WINDOW, WINDOW), 10 * WINDOW);
        assert_eq!(ahead.take(0, WINDOW / 2), 0, "the past of the first one is free");
        assert_eq!(ahead.take(10 * WINDOW, 100), 11 * WINDOW + 100, "its window is not");
        assert_eq!(ahead.take(0, WINDOW), WINDOW + WINDOW / 2);
    }

    #[test]
    fn the_rate_is_the_ceiling() {
        let mut bandwidth = Bandwidth::new();
        let mut finish_ps = 0;
        for _ in 0..1000 {
            finish_ps = bandwidth.take(0, 100_000);
        }
        assert_eq!(finish_ps, 1000 * 100_000);
    }

    /// Sixteen threads arrive together, each with 16 MiB in blocks that take 100 ns. Each call ends later than the
    /// previous one by the time of its own blocks. No thread may receive time that another one has.
    #[test]
    fn calls_of_many_milliseconds_share_one_ceiling() {
        let mut bandwidth = Bandwidth::new();
        let blocks = (16 << 20) / 256;
        let ends: Vec<u64> =
            (0..16).map(|_| (0..blocks).fold(0, |now_ps, _| bandwidth.take(now_ps, 100_000))).collect();
        for (thread, end_ps) in (1..).zip(&ends) {
            let all_ps: u64 = thread * blocks * 100_000;
            assert!(end_ps.abs_diff(all_ps) <= 2 * WINDOW, "thread {thread}: {end_ps} ps, not {all_ps}");
        }
        assert!(ends[15] > 100_000_000_000, "that is 0.1 s");
    }

    #[test]
    fn one_call_may_be_longer_than_what_is_kept() {
        let kept_ps = CHUNKS * CHUNK_WINDOWS * WINDOW;
        let mut bandwidth = Bandwidth::new();
        assert_eq!(bandwidth.take(0, 2 * kept_ps), 2 * kept_ps);
        assert_eq!(bandwidth.take(2 * kept_ps, 5), 2 * kept_ps);
    }

    #[test]
    fn forgotten_windows_do_not_hold_anyone_up() {
        let mut bandwidth = Bandwidth::new();
        bandwidth.take(CHUNKS * CHUNK_WINDOWS * WINDOW + 5, WINDOW);
        assert_eq!(bandwidth.take(7, WINDOW), 7);
    }
}
