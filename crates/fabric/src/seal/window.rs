//! Which packets of each source were received: a window over its counters, so that each counts once.

use std::collections::BTreeMap;

use lodestone_width::to_usize;

use super::keys::Nonce;
use crate::ids::NodeId;

/// Counters below the newest that are known one by one.
const WINDOW: u64 = 1024;
const WORDS: usize = 16;

/// The packets of a life of a source.
#[derive(Clone, Debug)]
struct Window {
    life: u32,
    newest: u64,
    /// A bit for each counter, at its place modulo the window.
    seen: [u64; WORDS],
}

/// The windows of all sources that ever sent a packet that verified.
#[derive(Debug, Default)]
pub(super) struct Windows(BTreeMap<NodeId, Window>);

fn place(counter: u64) -> (usize, u64) {
    (to_usize(counter % WINDOW / 64), 1 << (counter % 64))
}

impl Windows {
    /// Whether a packet was received, or may have been.
    pub(super) fn is_old(&self, nonce: Nonce) -> bool {
        let Some(window) = self.0.get(&nonce.source) else { return false };
        if nonce.life != window.life {
            return nonce.life < window.life;
        }
        let (word, bit) = place(nonce.counter);
        nonce.counter <= window.newest
            && (window.newest - nonce.counter >= WINDOW || window.seen.get(word).is_some_and(|seen| seen & bit != 0))
    }

    /// A packet verified that is not old.
    pub(super) fn note(&mut self, nonce: Nonce) {
        let fresh = Window { life: nonce.life, newest: nonce.counter, seen: [0; WORDS] };
        let window = self.0.entry(nonce.source).or_insert_with(|| fresh.clone());
        if nonce.life > window.life {
            *window = fresh;
        }
        // Counters that leave the window are forgotten.
        let from = window.newest.saturating_add(1).max(nonce.counter.saturating_sub(WINDOW - 1));
        for counter in from..nonce.counter {
            let (word, bit) = place(counter);
            window.seen.iter_mut().skip(word).take(1).for_each(|seen| *seen &= !bit);
        }
        window.newest = window.newest.max(nonce.counter);
        let (word, bit) = place(nonce.counter);
        window.seen.iter_mut().skip(word).take(1).for_each(|seen| *seen |= bit);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of everything that was received.
        #[test]
        fn each_counts_once(steps in prop::collection::vec((0..3_u32, 0..3_000_u64), 0..300)) {
            let (mut windows, mut seen) = (Windows::default(), BTreeSet::new());
            let mut newest = (0, 0);
            for (life, counter) in steps {
                let nonce = Nonce { source: NodeId(1), life, counter };
                let must_be_old = seen.contains(&(life, counter)) || (!seen.is_empty() && life < newest.0);
                let may_be_old = must_be_old || (life == newest.0 && counter + WINDOW <= newest.1);
                let is_old = windows.is_old(nonce);
                prop_assert!(is_old || !must_be_old);
                prop_assert!(!is_old || may_be_old);
                if !is_old {
                    windows.note(nonce);
                    newest = newest.max((life, counter));
                    seen.insert((life, counter));
                }
            }
        }
    }
}
