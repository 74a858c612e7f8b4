//! Choosing crash states among the options of the lines: how one choice is decided, and the representative sample.

use std::collections::BTreeMap;

use foldhash::{HashSet, HashSetExt};
use lodestone_pmem::LineAddr;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::options::{Contents, Options};
use crate::token::Kept;

/// Most lines for which all pairs are tried.
const PAIR_LINES_MAX: usize = 24;
/// Random states per visit.
const RANDOM_STATES: usize = 16;

/// The contents with the chosen option of each line, and with the last one (everything kept) where none is chosen.
pub(crate) fn decide(options: &Contents, choice: &BTreeMap<LineAddr, usize>) -> Contents {
    let pick = |(line, all): (&LineAddr, &Options)| {
        (*line, Options::One(all.at(choice.get(line).copied().unwrap_or(usize::MAX))))
    };
    options.iter().map(pick).collect()
}

/// The choice in the form of the token: only lines that lost something.
pub(crate) fn kept(options: &Contents, choice: &BTreeMap<LineAddr, usize>) -> Kept {
    Kept::Lines(
        choice.iter().filter(|(line, taken)| **taken + 1 < options[line].count()).map(|(l, t)| (*l, *t)).collect(),
    )
}

/// A sample of states: none, all, each line alone, each missing, prefix cuts, pairs, seeded random.
pub(crate) fn representative(options: &Contents, seed: u64) -> Vec<BTreeMap<LineAddr, usize>> {
    let open: Vec<(LineAddr, usize)> =
        options.iter().filter(|(_, all)| all.is_open()).map(|(&line, all)| (line, all.count() - 1)).collect();
    let none = || open.iter().map(|(line, _)| (*line, 0)).collect::<BTreeMap<_, _>>();
    let all = || open.iter().copied().collect::<BTreeMap<_, _>>();
    let mut states = vec![none(), all()];
    let mut add = |mut state: BTreeMap<LineAddr, usize>, changes: &[(LineAddr, usize)]| {
        state.extend(changes.iter().copied());
        states.push(state);
    };
    for &(line, full) in &open {
        add(none(), &[(line, full)]);
        add(all(), &[(line, 0)]);
        for cut in 1..full {
            add(none(), &[(line, cut)]);
            add(all(), &[(line, cut)]);
        }
    }
    if open.len() <= PAIR_LINES_MAX {
        for (index, &(first, first_full)) in open.iter().enumerate() {
            for &(second, second_full) in &open[index + 1..] {
                add(none(), &[(first, first_full), (second, second_full)]);
                add(all(), &[(first, 0), (second, 0)]);
            }
        }
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..RANDOM_STATES {
        states.push(open.iter().map(|&(line, full)| (line, random.random_range(0..=full))).collect());
    }
    let mut known = HashSet::new();
    states.retain(|state| known.insert(state.clone()));
    // The first ones are a sample, too.
    if let Some(rest) = states.get_mut(2..) {
        rest.shuffle(&mut random);
    }
    states
}
