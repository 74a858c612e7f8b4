//! Damage with valid checksums: many small cases, each damaged and sealed again, none of which may panic or hang.
//!
//! A checksum detects flipped bits. It does not detect a value that was computed wrongly, written by a bug or forged.
//! So no value read from a medium may be trusted only because its checksum fits. A *layer* here is one structure with a
//! function that runs one case. The function makes a pool with content, changes something in it and seals it again.
//! Then it opens, checks, reads and changes the structure. [`Layer::run`]
//!
//! 1. runs the cases one after the other, each with numbers from its own seed;
//! 2. catches panics, and keeps one case for each place that panicked;
//! 3. ends the whole process if a case takes longer than [`Layer::seconds_max`], because a thread that hangs cannot be
//!    ended;
//! 4. reports at the end the fates of the cases, by kind of damage.
//!
//! Two environment variables control the run: `LODESTONE_HOSTILE_CASES` is the number of cases for each layer, and
//! `LODESTONE_HOSTILE_SEED` is the seed of the first one. The seeds of the others follow, so a failed case is replayed
//! with its own seed and one case.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// Numbers from a seed: the sequence is the same in every run.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        // Weyl steps with a finisher, so that neighbouring seeds have nothing in common.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number().checked_rem(limit).unwrap_or(0)
    }

    /// One of `all`.
    ///
    /// # Panics
    /// If `all` is empty.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let index = self.below(all.len() as u64);
        &all[usize::try_from(index).unwrap_or(0)]
    }

    /// A number that is likely to upset arithmetic, in place of `old`.
    pub fn nasty(&mut self, old: u64) -> u64 {
        const EDGES: [u64; 14] = [0, 1, 2, 7, 8, 47, 48, 63, 64, 4096, 0xFFFF_FFFF, 1 << 47, (1 << 48) - 1, u64::MAX];
        match self.below(6) {
            0 => self.number(),
            1 => {
                let shift = self.below(64);
                self.number() >> shift
            }
            2 => old.wrapping_add(1),
            3 => old.wrapping_sub(1),
            4 => old ^ 1 << self.below(64),
            _ => *self.pick(&EDGES),
        }
    }
}

/// The outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// An open returned an error.
    Refused,
    /// Every answer was the same as without the damage.
    Same {
        /// Whether the check reported anything.
        reported: bool,
    },
    /// An answer was an error, and no answer was wrong.
    Failed {
        /// Whether the check reported anything.
        reported: bool,
    },
    /// An answer was wrong, without an error.
    Wrong {
        /// Whether the check reported anything.
        reported: bool,
    },
}

/// How many cases had which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Opens that refused.
    pub refused: u64,
    /// Same answers, reported and not.
    pub same: [u64; 2],
    /// Errors, reported and not.
    pub failed: [u64; 2],
    /// Wrong answers, reported and not.
    pub wrong: [u64; 2],
}

impl Counts {
    fn add(&mut self, fate: Fate) {
        let (counts, reported) = match fate {
            Fate::Refused => {
                self.refused += 1;
                return;
            }
            Fate::Same { reported } => (&mut self.same, reported),
            Fate::Failed { reported } => (&mut self.failed, reported),
            Fate::Wrong { reported } => (&mut self.wrong, reported),
        };
        counts[usize::from(!reported)] += 1;
    }

    fn cases(&self) -> u64 {
        self.refused + [self.same, self.failed, self.wrong].iter().flatten().sum::<u64>()
    }
}

/// The outcomes of the cases of a layer, by kind of damage.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By kind of damage.
    pub kinds: BTreeMap<&'static str, Counts>,
}

impl Tally {
    /// Wrong answers that the check did not report, of the kinds for which `counts` returns true.
    pub fn wrong_unreported(&self, counts: impl Fn(&str) -> bool) -> u64 {
        self.kinds.iter().filter(|(kind, _)| counts(kind)).map(|(_, counts)| counts.wrong[1]).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:32} {:>8} {:>8} | {:>8} {:>8} | {:>8} {:>8} | {:>8} {:>8}",
            "damage", "cases", "refused", "same", "unrep.", "errors", "unrep.", "wrong", "unrep."
        )?;
        for (kind, counts) in &self.kinds {
            let [same, failed, wrong] = [counts.same, counts.failed, counts.wrong];
            writeln!(
                f,
                "{kind:32} {:>8} {:>8} | {:>8} {:>8} | {:>8} {:>8} | {:>8} {:>8}",
                counts.cases(),
                counts.refused,
                same[0],
                same[1],
                failed[0],
                failed[1],
                wrong[0],
                wrong[1]
            )?;
        }
        Ok(())
    }
}

/// A structure that is damaged case by case.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Its name, and that of its test.
    pub name: &'static str,
    /// The command that runs the layer's test, without the test's name.
    pub command: &'static str,
    /// Cases in the usual run.
    pub cases: u64,
    /// Seed of the first case in the usual run.
    pub seed: u64,
    /// Longest time that a case may take, even on a busy machine.
    pub seconds_max: u64,
}

thread_local! {
    /// Whether panics of this thread are caught, and where the last one was.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CAUGHT.get() {
                PLACE.set(info.location().map(ToString::to_string));
            } else {
                former(info);
            }
        }));
    });
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let digits = text.strip_prefix("0x");
    digits.map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

impl Layer {
    /// The command that replays the case with `seed`.
    fn replay(&self, seed: u64) -> String {
        format!("LODESTONE_HOSTILE_SEED={seed:#x} LODESTONE_HOSTILE_CASES=1 {}{}", self.command, self.name)
    }

    /// Runs all cases. `case` makes the damage that its numbers select, and returns the kind of damage and its fate.
    ///
    /// # Panics
    /// If a case panicked. The message names the places, and for each the command that replays one of its cases.
    pub fn run(&self, mut case: impl FnMut(&mut Numbers) -> (&'static str, Fate)) -> Tally {
        install_hook();
        let cases = variable("LODESTONE_HOSTILE_CASES").unwrap_or(self.cases);
        let first = variable("LODESTONE_HOSTILE_SEED").unwrap_or(self.seed);
        let watch = Watch::start(*self);
        let (mut tally, mut panics) = (Tally::default(), BTreeMap::<String, (u64, u64, String)>::new());
        for seed in (0..cases).map(|number| first.wrapping_add(number)) {
            watch.begin(seed);
            CAUGHT.set(true);
            let outcome = catch_unwind(AssertUnwindSafe(|| case(&mut Numbers::new(seed))));
            CAUGHT.set(false);
            match outcome {
                Ok((kind, fate)) => tally.kinds.entry(kind).or_default().add(fate),
                Err(payload) => {
                    let text = payload.downcast_ref::<String>().cloned();
                    let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                    let place = PLACE.take().unwrap_or_default();
                    let text = text.unwrap_or_default().chars().take(200).collect();
                    panics.entry(place).or_insert((0, seed, text)).0 += 1;
                }
            }
        }
        println!("{}: {cases} cases from seed {first:#x}, the slowest took {:?}", self.name, watch.slowest());
        println!("{tally}");
        let told: Vec<String> = panics
            .iter()
            .map(|(place, (count, seed, text))| format!("{count} times at {place}: {text}\n    {}", self.replay(*seed)))
            .collect();
        assert!(told.is_empty(), "{}: cases panicked:\n{}", self.name, told.join("\n"));
        tally
    }
}

/// Watches the running case.
struct Watch {
    shared: Arc<Shared>,
    begun: Instant,
}

#[derive(Default)]
struct Shared {
    /// Seed of the running case, and its start in milliseconds from the beginning, plus one; 0: the run is over.
    seed: AtomicU64,
    since: AtomicU64,
    slowest: AtomicU64,
}

impl Watch {
    fn start(layer: Layer) -> Self {
        let (shared, begun) = (Arc::new(Shared { since: AtomicU64::new(1), ..Shared::default() }), Instant::now());
        let watched = Arc::clone(&shared);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(200));
                let since = watched.since.load(Ordering::Acquire);
                if since == 0 {
                    return;
                }
                let now = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                if now.saturating_sub(since) > layer.seconds_max * 1000 {
                    let seed = watched.seed.load(Ordering::Acquire);
                    let (name, seconds) = (layer.name, layer.seconds_max);
                    say(&format!("{name}: a case hangs for more than {seconds} s; {}", layer.replay(seed)));
                    std::process::exit(101);
                }
            }
        });
        Self { shared, begun }
    }

    fn begin(&self, seed: u64) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = self.shared.since.load(Ordering::Relaxed);
        self.shared.slowest.fetch_max(now.saturating_sub(before - 1), Ordering::Relaxed);
        self.shared.seed.store(seed, Ordering::Release);
        self.shared.since.store(now + 1, Ordering::Release);
    }

    fn slowest(&self) -> Duration {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = now.saturating_sub(self.shared.since.load(Ordering::Relaxed) - 1);
        Duration::from_millis(self.shared.slowest.load(Ordering::Relaxed).max(last))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.since.store(0, Ordering::Release);
    }
}

/// Prints text that a test's captured output would lose, because the process ends.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
