//! The network: for each packet and each receiver its fate, by the seed.

use std::collections::BTreeSet;

use lodestone_fabric::NodeId;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::plan::NetworkFaults;

/// Draws the fates of packets.
pub struct Network {
    /// The faults; all zero after the end of faults.
    pub faults: NetworkFaults,
    /// Nodes on the smaller side of a cut.
    pub cut: BTreeSet<NodeId>,
    /// A node to which everything is slower.
    pub slow: Option<(NodeId, u64)>,
}

/// A copy of a packet that will arrive.
pub struct Arrival {
    /// When, from now.
    pub after_ns: u64,
    /// The bits that are flipped.
    pub flipped: Vec<usize>,
}

fn happens(random: &mut ChaCha8Rng, ppm: u32) -> bool {
    ppm > 0 && random.random_range(0..1_000_000) < ppm
}

impl Network {
    /// The copies of a packet of so many bytes that arrive.
    pub fn arrivals(&self, random: &mut ChaCha8Rng, from: NodeId, to: NodeId, bytes: usize) -> Vec<Arrival> {
        if self.cut.contains(&from) != self.cut.contains(&to) {
            return Vec::new();
        }
        let faults = &self.faults;
        let copies = if happens(random, faults.lose) { 0 } else { 1 + usize::from(happens(random, faults.repeat)) };
        let factor = self.slow.filter(|slow| slow.0 == to).map_or(1, |slow| slow.1);
        (0..copies)
            .map(|_| {
                let usual = random.random_range(0..=faults.delay_ns) + faults.delay_ns / 2 + 500;
                let late =
                    if happens(random, faults.straggle) { random.random_range(0..=faults.straggle_ns) } else { 0 };
                let flips = if happens(random, faults.damage) { random.random_range(1..=3) } else { 0 };
                let flipped = (0..flips).map(|_| random.random_range(0..bytes.max(1) * 8)).collect();
                Arrival { after_ns: usual * factor + late, flipped }
            })
            .collect()
    }
}
