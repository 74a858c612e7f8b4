//! Random programs for the crash explorer: histories that no target was written for.
//!
//! A program is a name. Kind and number decide the shape of the index, its content before the run, and the few
//! operations during which power fails. The content comes from phases that grow the index, thin it out, empty stretches
//! and change values. So a violation's token finds its program again.
//!
//! They complement the targets of each structure. Those are small on purpose and exhausted. But some states take a
//! history: a line that was emptied among full ones, a leaf that was merged and split again. No target has them unless
//! its author foresaw them.

use lodestone_crash::{CrashMedium, Outcome, Recovered, Redundant, SiteKey, Target};
use lodestone_index::{
    Acs, AcsOptions, CacheMode, CacheOptions, FastFair, FastFairOptions, FpTree, HashOptions, HybridPlus,
    HybridPlusOptions, OpenIndex, OrderedIndex, OrderedMap, SkipList, SkipListOptions, TreeOptions, WarmUp,
};
use lodestone_pmem::PoolOptions;

use super::hash::random_target as hash_target;
use super::index_target::{IndexOp, IndexTarget};
use super::{MapOp, MapTarget};

/// The prefix of all names of random programs.
const PREFIX: &str = "index-random-";
/// Crash states of a program by default. A script of few operations seldom exceeds it.
const STATES_MAX: u64 = 20_000;
/// Accesses that recovery and the judge's first looks may make. The indexes are larger than those of the targets.
const RECOVERY_ACCESSES_MAX: u64 = 1_000_000;

/// Kinds of indexes that random programs run on.
pub const PROGRAM_KINDS: [&str; 11] = [
    "fastfair",
    "fastfair-text",
    "fptree",
    "fptree-text",
    "skiplist",
    "skiplist-text",
    "hash",
    "hash-text",
    "hybrid-plus",
    "acs-fptree",
    "map",
];

/// A change of a program. Keys are below [`KEYS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Put(u8, u8),
    Update(u8, u8),
    Remove(u8),
}

/// More would not fit into the explorer's pools with strings as keys.
const KEYS: u64 = 120;

/// A generator whose whole state is a number: splitmix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }
}

/// The content of the index before, and the script during which power may fail.
#[derive(Clone, Debug)]
struct Program {
    before: Vec<Change>,
    script: Vec<Change>,
}

impl Program {
    fn draw(draw: &mut Draw, before_max: u64) -> Self {
        let keys = [12, 40, KEYS][draw.below(3) as usize];
        let mut before = Vec::new();
        for _ in 0..draw.between(1, 4) {
            Self::phase(draw, keys, &mut before);
        }
        before.truncate(before_max as usize);
        let mut script: Vec<Change> = Vec::new();
        for _ in 0..draw.between(1, 3) {
            // Often near the last one: the second operation meets the result of the first.
            let near = script.last().map(|last| last.key());
            let key = match near {
                Some(near) if draw.below(2) == 0 => ((u64::from(near) + draw.below(3)) % keys) as u8,
                _ => draw.below(keys) as u8,
            };
            script.push(match draw.below(8) {
                0..4 => Change::Put(key, draw.between(100, 120) as u8),
                4 => Change::Update(key, draw.between(100, 120) as u8),
                _ => Change::Remove(key),
            });
        }
        Self { before, script }
    }

    fn phase(draw: &mut Draw, keys: u64, changes: &mut Vec<Change>) {
        let version = draw.between(1, 90) as u8;
        let (first, count) = (draw.below(keys), draw.between(1, 30));
        let stretch = (first..keys.min(first + count)).map(|key| key as u8);
        match draw.below(6) {
            // As a load: ascending, or descending.
            0 => changes.extend(stretch.map(|key| Change::Put(key, version))),
            1 => changes.extend(stretch.rev().map(|key| Change::Put(key, version))),
            2 | 3 => changes.extend((0..count).map(|_| Change::Put(draw.below(keys) as u8, version))),
            // A stretch is emptied, or its keys thinned out.
            4 => changes.extend(stretch.map(Change::Remove)),
            _ => changes.extend((0..count).map(|_| Change::Remove(draw.below(keys) as u8))),
        }
    }
}

impl Change {
    fn key(self) -> u8 {
        match self {
            Self::Put(key, _) | Self::Update(key, _) | Self::Remove(key) => key,
        }
    }
}

/// A target under the name of its program.
struct Named {
    name: String,
    target: Box<dyn Target>,
}

impl Target for Named {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn options(&self) -> PoolOptions {
        self.target.options()
    }

    fn script_len(&self) -> usize {
        self.target.script_len()
    }

    fn op_text(&self, op: usize) -> String {
        self.target.op_text(op)
    }

    fn prepare(&self, medium: &CrashMedium) -> Outcome {
        self.target.prepare(medium)
    }

    fn run(&self, medium: &CrashMedium, ops: &[usize]) -> Outcome {
        self.target.run(medium, ops)
    }

    fn recover(&self, medium: &CrashMedium) -> Outcome<Box<dyn Recovered + '_>> {
        self.target.recover(medium)
    }

    fn audits(&self, site: &SiteKey) -> bool {
        self.target.audits(site)
    }

    fn redundant(&self) -> Vec<Redundant> {
        self.target.redundant()
    }

    fn recovery_accesses_max(&self) -> u64 {
        RECOVERY_ACCESSES_MAX
    }

    fn states_max(&self) -> u64 {
        STATES_MAX
    }
}

fn ordered<I: OpenIndex + OrderedIndex + 'static>(options: I::Options, program: &Program) -> Box<dyn Target>
where
    I::Options: Send + Sync,
{
    let ops = |changes: &[Change]| {
        let op = |change: &Change| match *change {
            Change::Put(key, version) => IndexOp::Insert(key, u64::from(version)),
            Change::Update(key, version) => IndexOp::Update(key, u64::from(version)),
            Change::Remove(key) => IndexOp::Remove(key),
        };
        changes.iter().map(op).collect::<Vec<_>>()
    };
    Box::new(IndexTarget::<I>::new("", options, Some(ops(&program.before)), ops(&program.script)))
}

fn hash_ops(program: &Program) -> [Vec<super::CellOp>; 2] {
    use super::CellOp;
    [&program.before, &program.script].map(|changes| {
        let op = |change: &Change| match *change {
            Change::Put(key, version) | Change::Update(key, version) => CellOp::Put(key, version),
            Change::Remove(key) => CellOp::Remove(key),
        };
        changes.iter().map(op).collect()
    })
}

fn map(draw: &mut Draw, program: &Program) -> Box<dyn Target> {
    let slots = draw.between(2, 9) as usize;
    let mut ops = |changes: &[Change]| {
        let op = |change: &Change| match *change {
            Change::Put(key, version) | Change::Update(key, version) => {
                MapOp::Insert { key, version, bytes: [4, 60, 200][draw.below(3) as usize] }
            }
            Change::Remove(key) => MapOp::Remove { key },
        };
        changes.iter().map(op).collect::<Vec<_>>()
    };
    let (before, script) = (ops(&program.before), ops(&program.script));
    Box::new(MapTarget::<OrderedMap>::new("", slots, &before, &script))
}

/// The name of program number `number` on an index of `kind`.
#[must_use]
pub fn program_name(kind: &str, number: u64) -> String {
    format!("{PREFIX}{kind}-{number}")
}

/// The program of this name; `None` when it is no such name.
///
/// ```
/// use lodestone_proof::index::{program, program_name};
///
/// let target = program(&program_name("fastfair", 7)).expect("a kind that there is");
/// assert_eq!(target.name(), "index-random-fastfair-7");
/// assert!(program("index-random-cuckoo-7").is_none());
/// ```
#[must_use]
pub fn program(name: &str) -> Option<Box<dyn Target>> {
    let (kind, number) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    let draw = &mut Draw(number.parse().ok()?);
    let strings = kind.ends_with("-text") || kind == "map";
    let program = Program::draw(draw, if strings { 60 } else { 120 });
    let lines = [2, 2, 3, 4, 11][draw.below(5) as usize];
    let tree = TreeOptions { lines_per_leaf: draw.between(1, 4) as u32, rebuild_threads: 1 };
    let fastfair = FastFairOptions::with_lines(lines);
    let target = match kind {
        "fastfair" => ordered::<FastFair<u64>>(fastfair, &program),
        "fastfair-text" => ordered::<FastFair<[u8]>>(fastfair, &program),
        "fptree" => ordered::<FpTree<u64>>(tree, &program),
        "fptree-text" => ordered::<FpTree<[u8]>>(tree, &program),
        "skiplist" => ordered::<SkipList<u64>>(SkipListOptions::default(), &program),
        "skiplist-text" => ordered::<SkipList<[u8]>>(SkipListOptions::default(), &program),
        "hash" | "hash-text" => {
            let mut options = HashOptions::small();
            options.buckets = draw.between(1, 3) as u16;
            options.stash_lines = draw.between(1, 2) as u16;
            options.seed = Some(draw.below(1000));
            let [before, script] = hash_ops(&program);
            if kind == "hash" {
                Box::new(hash_target::<u64>(options, before, script)) as Box<dyn Target>
            } else {
                Box::new(hash_target::<[u8]>(options, before, script))
            }
        }
        "hybrid-plus" => {
            let warm_up = WarmUp::WithOperations { keys: draw.below(3) as usize };
            ordered::<HybridPlus<u64>>(HybridPlusOptions::small().with_warm_up(warm_up), &program)
        }
        "acs-fptree" => {
            let mut cache = CacheOptions::default().with_mode(CacheMode::Serial).with_entries(6);
            cache.seed = Some(1);
            ordered::<Acs<FpTree<u64>>>(AcsOptions::new(tree, cache), &program)
        }
        "map" => map(draw, &program),
        _ => return None,
    };
    Some(Box::new(Named { name: name.to_owned(), target }))
}
