//! The prices of a profile for one access, as integers of picoseconds.
//!
//! Latencies by size are looked up often, so those of small sizes are computed once.

use crate::profile::{Curve, MediaProfile};

/// Sizes up to this one are computed once, in steps of 8 bytes.
const TABLE_BYTES: u64 = 4096;
/// A ceiling never falls below this fraction, however many threads there are.
const CROWD_FRACTION_MIN: f64 = 0.1;

/// Picoseconds of `ns`.
pub(super) fn picoseconds(ns: f64) -> u64 {
    // Profiles limit latencies to a second and factors to a thousand: far inside 64 bits.
    (ns * 1000.0).round() as u64
}

/// Latency by size.
#[derive(Debug)]
pub(super) struct Latency {
    curve: Curve,
    small_ns: Box<[f64]>,
}

impl Latency {
    pub(super) fn new(curve: &Curve) -> Self {
        let small_ns = (0..=TABLE_BYTES / 8).map(|words| curve.at((words * 8).max(1))).collect();
        Self { curve: curve.clone(), small_ns }
    }

    pub(super) fn ns(&self, bytes: u64) -> f64 {
        match usize::try_from(bytes / 8).ok().and_then(|words| self.small_ns.get(words)) {
            Some(ns) if bytes.is_multiple_of(8) => *ns,
            _ => self.curve.at(bytes.max(1)),
        }
    }
}

/// Other threads at work on a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Crowd {
    pub(super) readers: u64,
    pub(super) writers: u64,
}

/// One direction of a medium.
#[derive(Debug)]
pub(super) struct Direction {
    pub(super) random: Latency,
    pub(super) sequential: Latency,
    block_ns: f64,
    growth_per_thread: f64,
    threads_best: u64,
    loss_per_thread: f64,
    mixed_min: f64,
    mixed_threads_half: f64,
    remote_factor: f64,
}

impl Direction {
    pub(super) fn of_reads(profile: &MediaProfile) -> Self {
        let read = &profile.read;
        Self {
            random: Latency::new(&read.random_latency_ns),
            sequential: Latency::new(&read.sequential_latency_ns),
            block_ns: profile.device.block_bytes as f64 / read.bandwidth_bytes_per_second * 1e9,
            growth_per_thread: read.latency_growth_per_thread,
            threads_best: read.threads_best,
            loss_per_thread: read.bandwidth_loss_per_thread,
            mixed_min: profile.mixed.read_fraction_min,
            mixed_threads_half: profile.mixed.threads_half,
            remote_factor: profile.remote.read_factor,
        }
    }

    pub(super) fn of_writes(profile: &MediaProfile) -> Self {
        let write = &profile.write;
        Self {
            random: Latency::new(&write.random_latency_ns),
            sequential: Latency::new(&write.sequential_latency_ns),
            block_ns: profile.device.block_bytes as f64 / write.bandwidth_bytes_per_second * 1e9,
            growth_per_thread: write.latency_growth_per_thread,
            threads_best: write.threads_best,
            loss_per_thread: write.bandwidth_loss_per_thread,
            mixed_min: profile.mixed.write_fraction_min,
            mixed_threads_half: profile.mixed.threads_half,
            remote_factor: profile.remote.write_factor,
        }
    }

    /// The speed left beside threads of the other kind.
    fn mixed(&self, others: u64) -> f64 {
        self.mixed_min + (1.0 - self.mixed_min) / (1.0 + others as f64 / self.mixed_threads_half)
    }

    fn remote(&self, is_remote: bool) -> f64 {
        if is_remote { self.remote_factor } else { 1.0 }
    }

    /// Factor on a latency, with `same` other threads of this kind and `other` of the other kind.
    pub(super) fn latency_factor(&self, same: u64, other: u64, is_remote: bool) -> f64 {
        (1.0 + self.growth_per_thread * same as f64) / self.mixed(other) * self.remote(is_remote)
    }

    /// Time for which a block occupies the medium beside so many other threads, in an access that has `fraction` of the
    /// ceiling.
    pub(super) fn occupancy_ps(&self, same: u64, other: u64, is_remote: bool, fraction: f64) -> u64 {
        let beyond = (same + 1).saturating_sub(self.threads_best);
        let crowd = (1.0 - self.loss_per_thread * beyond as f64).max(CROWD_FRACTION_MIN);
        picoseconds(self.block_ns / (self.mixed(other) * crowd * fraction) * self.remote(is_remote))
    }
}
