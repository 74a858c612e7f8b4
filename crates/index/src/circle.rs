//! Notices a walk along links that leads in a circle, without a list of the places visited (Brent's way).
//!
//! Each link verifies on its own, so no single link shows a circle. A pinned reader never visits the same place twice:
//! an unlinked block still leads onward, and it is not reused before the reader leaves. So a place that comes again is
//! damage.

use lodestone_pmem::PmAddr;

/// A walk: the place where it was at some step that is a power of two.
#[derive(Debug)]
pub(crate) struct Walk {
    mark: PmAddr,
    steps: u64,
}

impl Walk {
    /// A walk that begins.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { mark: PmAddr::NULL, steps: 0 }
    }

    /// Notes the next place, which is not null; `false` when the walk is known to be a circle.
    #[inline]
    pub(crate) fn goes_on(&mut self, at: PmAddr) -> bool {
        if at == self.mark {
            return false;
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.mark = at;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_circle_is_noticed_and_no_line_is_taken_for_one() {
        let place = |number: u64| PmAddr::new(0, 64 * (number + 1));
        let mut walk = Walk::new();
        assert!((0..10_000).all(|number| walk.goes_on(place(number))));
        for (tail, circle) in (0..40).flat_map(|tail| (1..40).map(move |circle| (tail, circle))) {
            let mut walk = Walk::new();
            let at = |step: u64| if step < tail { step } else { tail + (step - tail) % circle };
            let noticed = (0..).find(|&step| !walk.goes_on(place(at(step))));
            assert!(noticed.is_some_and(|step| step <= 4 * (tail + circle)), "{tail} before {circle}: {noticed:?}");
        }
    }
}
