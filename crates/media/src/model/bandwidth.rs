//! A ceiling of bandwidth over time: windows that fill up.
//!
//! Time is cut into windows. A block that occupies the medium for some time takes it from the windows from its arrival on;
//! where they are full, it waits. So what is granted depends on the time of arrival, not on the order of the calls: a
//! thread whose clock is behind still finds what the others left in its past.
//!
//! Only the latest windows are kept. For an arrival in a window that is forgotten nothing is known of the others, and it
//! does not wait.
//!
//! Invariant: no window gives more time than it has.

/// Length of a window, picoseconds.
const WINDOW_PS: u64 = 256_000;
/// Windows that are kept: 4 ms.
const WINDOWS: u64 = 1 << 14;

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    number: u64,
    used_ps: u64,
}

#[derive(Debug, Default)]
pub(super) struct Bandwidth {
    /// Empty until the first use: most parts of a model are never touched.
    windows: Box<[Window]>,
}

impl Bandwidth {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Takes `occupancy_ps` from `arrival_ps` on; gives the time at which it was granted whole.
    pub(super) fn take(&mut self, arrival_ps: u64, occupancy_ps: u64) -> u64 {
        if self.windows.is_empty() {
            self.windows = (0..WINDOWS).map(|_| Window::default()).collect();
        }
        let (mut number, mut left_ps) = (arrival_ps / WINDOW_PS, occupancy_ps);
        let first = number;
        loop {
            // The remainder is smaller than the number of windows.
            let window = &mut self.windows[(number % WINDOWS) as usize];
            if window.number > number {
                return arrival_ps.max(number * WINDOW_PS);
            }
            if window.number < number {
                *window = Window { number, used_ps: 0 };
            }
            let granted_ps = left_ps.min(WINDOW_PS - window.used_ps);
            window.used_ps += granted_ps;
            left_ps -= granted_ps;
            if left_ps == 0 {
                let waited = number > first;
                return if waited { number * WINDOW_PS + window.used_ps } else { arrival_ps };
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_windows_make_later_ones_wait_whatever_the_order_of_calls() {
        let mut ahead = Bandwidth::new();
        assert_eq!(ahead.take(10 * WINDOW_PS, WINDOW_PS), 10 * WINDOW_PS);
        assert_eq!(ahead.take(0, WINDOW_PS / 2), 0, "the past of the first one is free");
        assert_eq!(ahead.take(10 * WINDOW_PS, 100), 11 * WINDOW_PS + 100, "its window is not");
        assert_eq!(ahead.take(0, WINDOW_PS), WINDOW_PS + WINDOW_PS / 2);
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

    #[test]
    fn forgotten_windows_do_not_hold_anyone_up() {
        let mut bandwidth = Bandwidth::new();
        bandwidth.take(WINDOWS * WINDOW_PS + 5, WINDOW_PS);
        assert_eq!(bandwidth.take(7, WINDOW_PS), 7);
    }
}
