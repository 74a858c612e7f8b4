//! What stays in the cache: at least as many hits as an exact LRU of the same size has, trace by trace.
//!
//! The oracle is the textbook's LRU over all entries. Both see the same reads; the first quarter warms and does not count. Run with
//! `--nocapture` for the table.

mod cached;

use std::collections::{BTreeMap, HashMap};

use cached::Plain;
use lodestone_index::{Acs, CacheMode, CacheOptions, Result};

const KEYS: u64 = 60_000;
const READS: u64 = 300_000;
/// What two samples of one distribution may differ by.
const NOISE: f64 = 0.003;

/// Random numbers that are the same on every machine.
struct Draw(u64);

impl Draw {
    fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// 0 to 1.
    fn share(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Ranks by the zipfian law, from the whole sum.
struct Zipfian(Vec<f64>);

impl Zipfian {
    fn new(exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=KEYS)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        Self(sums.iter().map(|part| part / sum).collect())
    }

    fn rank(&self, draw: &mut Draw) -> u64 {
        let share = draw.share();
        self.0.partition_point(|sum| *sum < share) as u64
    }
}

/// Hits of an exact LRU, behind the first quarter.
fn lru(trace: &[u64], capacity: usize) -> f64 {
    let (mut last_use, mut order, mut hits) = (HashMap::new(), BTreeMap::new(), 0_u64);
    for (time, key) in trace.iter().enumerate() {
        match last_use.insert(*key, time) {
            Some(before) => {
                order.remove(&before);
                hits += u64::from(time >= trace.len() / 4);
            }
            None if last_use.len() > capacity => {
                let (_, oldest) = order.pop_first().expect("the cache is full");
                last_use.remove(&oldest);
            }
            None => {}
        }
        order.insert(time, *key);
    }
    hits as f64 / (trace.len() - trace.len() / 4) as f64
}

/// Hits of the cache, behind the first quarter, and its capacity.
fn acs(trace: &[u64], entries: usize) -> Result<(f64, usize)> {
    let options = CacheOptions { seed: Some(3), ..CacheOptions::default() };
    let all = trace.iter().map(|key| (*key, *key));
    let cache = Acs::new(Plain::<u64>::new(all), &options.with_mode(CacheMode::Serial).with_entries(entries))?;
    let (warming, counted) = trace.split_at(trace.len() / 4);
    cache.warm(warming)?;
    let before = cache.stats();
    cache.warm(counted)?;
    let after = cache.stats();
    Ok(((after.hits - before.hits) as f64 / counted.len() as f64, after.capacity as usize))
}

/// Compares both on a trace of `READS` keys; how many more hits ours has.
fn compare(name: &str, seed: u64, mut next: impl FnMut(u64, &mut Draw) -> u64) -> f64 {
    let mut draw = Draw(seed);
    let trace: Vec<u64> = (0..READS).map(|number| next(number, &mut draw)).collect();
    let (ours, capacity) = acs(&trace, KEYS as usize / 10).expect("an index in DRAM");
    let theirs = lru(&trace, capacity);
    println!("{name:<24} {ours:.4} of the reads hit, LRU {theirs:.4}");
    ours - theirs
}

#[test]
fn hits_at_least_as_often_as_lru() {
    for exponent in [0.7, 0.99, 1.2] {
        let zipfian = Zipfian::new(exponent);
        let gain = compare(&format!("zipfian {exponent}"), 7, |_, draw| zipfian.rank(draw));
        assert!(gain > 0.0, "zipfian {exponent}: {gain}");
    }
    let gain = compare("uniform", 8, |_, draw| draw.below(KEYS));
    assert!(gain > -NOISE, "uniform: {gain}");
    let zipfian = Zipfian::new(0.99);
    let mut newest = KEYS;
    let gain = compare("latest", 9, |_, draw| {
        newest += u64::from(draw.below(20) == 0);
        newest - 1 - zipfian.rank(draw)
    });
    assert!(gain > 0.0, "latest: {gain}");
    let exponent = 0.2_f64.ln() / 0.8_f64.ln();
    let gain = compare("self-similar 80/20", 10, |_, draw| (KEYS as f64 * draw.share().powf(exponent)) as u64);
    assert!(gain > 0.0, "self-similar: {gain}");
    let gain = compare("looping scan", 11, |number, _| number % (KEYS / 5));
    assert!(gain >= 0.0, "looping scan: {gain}");
    let (mut left, mut place) = (0, 0);
    let gain = compare("zipfian 0.99 and scans", 12, |_, draw| {
        if left == 0 && draw.below(2000) == 0 {
            left = 2000;
        }
        if left == 0 {
            return zipfian.rank(draw);
        }
        (left, place) = (left - 1, place + 1);
        KEYS + place % KEYS
    });
    assert!(gain > 0.02, "scans push hot keys out: {gain}");
}

/// Where LRU is better: the popular keys are exchanged all at once, ten times in the trace. The difference is bounded.
#[test]
fn forgets_a_hot_set_that_is_gone() {
    let zipfian = Zipfian::new(0.99);
    let moved = |number: u64| number / (READS / 10) * (KEYS / 7);
    let gain = compare("moving hot set", 13, |number, draw| (zipfian.rank(draw) + moved(number)) % KEYS);
    assert!(gain > -0.05, "{gain}");
}
