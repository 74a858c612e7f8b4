//! Every state of a model that can be reached, breadth first. States are known by fingerprints of 128 bits.

use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};

use crate::model::{Model, State};

/// The result of an exploration.
#[derive(Debug)]
pub struct Explored {
    pub states: usize,
    pub is_exhausted: bool,
    pub violation: Option<String>,
}

/// Two sums over the bytes of a state.
struct Fingerprint(u64, u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
            self.1 = (self.1.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }
}

fn fingerprint(state: &State) -> (u64, u64) {
    let mut sums = Fingerprint(0xCBF2_9CE4_8422_2325, 0x243F_6A88_85A3_08D3);
    state.hash(&mut sums);
    (sums.0, sums.1)
}

/// Visits the states up to the first violation, or to so many.
pub fn explore(model: &Model, states_max: usize) -> Explored {
    let (mut seen, mut queue) = (HashSet::new(), VecDeque::new());
    let first = model.first();
    seen.insert(fingerprint(&first));
    queue.push_back(first);
    let mut next = Vec::new();
    while let Some(state) = queue.pop_front() {
        if let Some(violation) = model.violation(&state) {
            return Explored { states: seen.len(), is_exhausted: false, violation: Some(violation) };
        }
        model.next(&state, &mut next);
        for mut state in next.drain(..) {
            model.canonical(&mut state);
            if seen.insert(fingerprint(&state)) {
                queue.push_back(state);
            }
        }
        if seen.len() > states_max {
            return Explored { states: seen.len(), is_exhausted: false, violation: None };
        }
    }
    Explored { states: seen.len(), is_exhausted: true, violation: None }
}
