//! Gain and cost of a cache in DRAM before an index on a slow medium:
//! `cargo run --release -p lodestone-index-bench --example acs -- POOL_FILE [KEYS [ROUNDS [PROFILE [INDEX]]]]`.
//!
//! For each index: zipfian (0.99) and uniform reads and zipfian updates by one thread, with a cache of a tenth of the
//! keys and without, in turns of 2,000 operations of one thread, so that whatever else the machine does harms both. The
//! medium is emulated (`optane`, spinning; any built-in name, or `none`), the pool is created with the flush
//! instructions of persistent memory (not durable on an ordinary file) and removed at the end. Prints nanoseconds of
//! the thread's processor time (the emulated medium's included: it spins) per operation, the median of all rounds; by
//! how much each round's turns differ, the median and the quartiles; and from which share of hits the cache pays, by
//! the times of a hit, of a miss and of a read of the index.

use std::sync::Arc;

use lodestone_index::{
    Acs, CacheCapacity, CacheMode, CacheOptions, Durability, FastFair, FpTree, OpenIndex, PointIndex, SkipList,
};
use lodestone_media::{MediaProfile, Model, TimeMode};
use lodestone_pmem::{DomainChoice, Medium, Pool, PoolOptions, Topology};
use lodestone_store::Store;
use lodestone_workload::keys::{Distribution, KeyChooser};
use lodestone_workload::random::{Random, mix64};

const TURN: usize = 2000;

/// How the keys of one measurement are drawn, by a seed that every run has.
struct Load {
    chooser: KeyChooser,
    random: Random,
    keys: u64,
}

impl Load {
    fn new(distribution: Distribution, keys: u64, seed: u64) -> Self {
        let chooser = KeyChooser::new(distribution, keys, keys).expect("a distribution over some keys");
        Self { chooser, random: Random::new(seed), keys }
    }

    fn turn(&mut self) -> Vec<u64> {
        (0..TURN).map(|_| mix64(self.chooser.choose(&mut self.random, self.keys))).collect()
    }
}

/// Nanoseconds of processor time that this thread has had: on a busy machine others do less harm to it than to the wall
/// clock.
fn processor_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds per operation of one turn.
fn timed(keys: &[u64], mut operation: impl FnMut(&u64)) -> f64 {
    let begun = processor_ns();
    keys.iter().for_each(&mut operation);
    (processor_ns() - begun) / keys.len() as f64
}

/// The `part` quantile.
fn quantile(figures: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[((figures.len() - 1) as f64 * part).round() as usize]
}

/// Turns without and with the cache, round by round.
struct Turns(Vec<(f64, f64)>);

impl Turns {
    fn without(&self) -> f64 {
        quantile(self.0.iter().map(|(without, _)| *without), 0.5)
    }

    fn with(&self) -> f64 {
        quantile(self.0.iter().map(|(_, with)| *with), 0.5)
    }

    /// Percent that the cache adds, by the pairs of turns.
    fn change(&self, part: f64) -> f64 {
        quantile(self.0.iter().map(|(without, with)| (with / without - 1.0) * 100.0), part)
    }
}

/// `rounds` turns without and with the cache.
fn beside(rounds: usize, load: &mut Load, bare: impl Fn(&u64), cached: impl Fn(&u64)) -> Turns {
    let mut turns = Vec::new();
    for round in 0..rounds {
        let (mut without, mut with) = (0.0, 0.0);
        // The second finds the lines that the first has left in the processor's cache: they take turns in that as well.
        for second in [false, true] {
            let keys = load.turn();
            if second == round.is_multiple_of(2) {
                with = timed(&keys, &cached);
            } else {
                without = timed(&keys, &bare);
            }
        }
        turns.push((without, with));
    }
    Turns(turns)
}

fn tell(what: &str, turns: &Turns, hit_rate: f64) {
    let (without, with) = (turns.without(), turns.with());
    let [low, middle, high] = [0.25, 0.5, 0.75].map(|part| turns.change(part));
    println!(
        "  {what:<34} {without:>6.0} ns, cached {with:>6.0} ns ({middle:>+6.1} %, half of the rounds {low:>+6.1} to {high:>+6.1} %), \
         hit rate {hit_rate:.3}"
    );
}

fn read(found: lodestone_index::Result<Option<u64>>) {
    assert!(found.expect("a read").is_some());
}

/// From which share of hits the cache pays; `uniform` are turns of uniform reads, of which `hit_rate` hit.
fn tell_break_even<I: PointIndex<Key = u64>>(
    cached: &Acs<I>,
    keys: u64,
    rounds: usize,
    uniform: &Turns,
    hit_rate: f64,
) -> lodestone_index::Result<()> {
    // Half as many keys as the cache holds: after some reads nearly all are there.
    let mut load = Load::new(Distribution::Uniform, keys / 20, 12);
    for _ in 0..(keys as usize / 5).div_ceil(TURN) {
        load.turn().iter().try_for_each(|key| cached.get(key).map(|_| ()))?;
    }
    let hits = beside(rounds, &mut load, |key| read(cached.index().get(key)), |key| read(cached.get(key)));
    let (hit, bare) = (hits.with(), uniform.without());
    let miss = (uniform.with() - hit_rate * hit) / (1.0 - hit_rate) - bare;
    let share = miss / (miss + bare - hit) * 100.0;
    println!(
        "  a hit takes {hit:.0} ns, the index {bare:.0} ns, a miss {miss:.0} ns more: the cache pays from {share:.1} % hits"
    );
    Ok(())
}

fn measure<I: PointIndex<Key = u64> + 'static>(mut index: I, keys: u64, rounds: usize) -> lodestone_index::Result<()> {
    let zipfian = Distribution::Zipfian { theta: 0.99 };
    for mode in CacheMode::ALL {
        for (name, distribution) in [("zipfian 0.99", zipfian), ("uniform", Distribution::Uniform)] {
            let options = CacheOptions { seed: Some(1), ..CacheOptions::default().with_mode(mode) };
            let options = CacheOptions { capacity: CacheCapacity::Entries((keys / 10) as usize), ..options };
            let cached = Acs::new(index, &options)?;
            let mut load = Load::new(distribution, keys, 11);
            for _ in 0..(keys as usize / 2).div_ceil(TURN) {
                load.turn().iter().try_for_each(|key| cached.get(key).map(|_| ()))?;
            }
            let before = cached.stats();
            let turns = beside(rounds, &mut load, |key| read(cached.index().get(key)), |key| read(cached.get(key)));
            let after = cached.stats();
            let asked = (after.hits + after.misses + after.bypasses) - (before.hits + before.misses + before.bypasses);
            let hit_rate = (after.hits - before.hits) as f64 / asked as f64;
            tell(&format!("{mode:?} read, {name}"), &turns, hit_rate);
            if mode == CacheMode::Serial {
                let updates = beside(
                    rounds,
                    &mut load,
                    |key| read(cached.index().update(key, 7)),
                    |key| read(cached.update(key, 7)),
                );
                tell(&format!("update, {name}"), &updates, 0.0);
                if distribution == Distribution::Uniform {
                    tell_break_even(&cached, keys, rounds, &turns, hit_rate)?;
                }
            }
            index = cached.into_index();
        }
    }
    Ok(())
}

fn run<I: OpenIndex<Key = u64> + 'static>(
    name: &str,
    path: &str,
    keys: u64,
    rounds: usize,
    profile: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut options = PoolOptions {
        domain: DomainChoice::DaxEmulated,
        size_bytes: (64 << 20) + keys * 160,
        ..PoolOptions::default()
    };
    let open = |options: &PoolOptions| -> Result<I, Box<dyn std::error::Error>> {
        let pool = Pool::open_or_create(path, options)?;
        let store = Store::over(&pool)?;
        Ok(I::open_index(&store, "index", &I::Options::default(), Durability::Sync)?)
    };
    let index = open(&options)?;
    for number in 0..keys {
        index.insert(&mix64(number), number)?;
    }
    drop(index);
    if let Some(profile) = MediaProfile::builtin(profile) {
        let topology = Topology::for_pool(&options.sysfs_root, options.virtual_nodes)?;
        let medium: Arc<dyn Medium> = Model::new(profile, TimeMode::Spinning, &topology, &[0]);
        println!("{name}, {keys} keys, medium {}", medium.label());
        options.medium = Some(medium);
    } else {
        println!("{name}, {keys} keys, the pool's own memory");
    }
    measure(open(&options)?, keys, rounds)?;
    Ok(std::fs::remove_file(path)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, rest @ ..] = &arguments[..] else {
        return Err("usage: acs POOL_FILE [KEYS [ROUNDS [PROFILE [FastFair|FpTree|SkipList]]]]".into());
    };
    let keys = rest.first().map_or(Ok(1_000_000), |keys| keys.parse())?;
    let rounds = rest.get(1).map_or(Ok(100), |rounds| rounds.parse())?;
    let profile = rest.get(2).map_or("optane", String::as_str);
    println!("domain dax-emulated, seed 11, {} processors", std::thread::available_parallelism()?);
    let is_wanted = |name: &str| rest.get(3).is_none_or(|wanted| wanted == name);
    if is_wanted("FastFair") {
        run::<FastFair<u64>>("FastFair", path, keys, rounds, profile)?;
    }
    if is_wanted("FpTree") {
        run::<FpTree<u64>>("FpTree", path, keys, rounds, profile)?;
    }
    if is_wanted("SkipList") {
        run::<SkipList<u64>>("SkipList", path, keys, rounds, profile)?;
    }
    Ok(())
}
