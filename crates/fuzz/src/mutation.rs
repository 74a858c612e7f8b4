//! New inputs from those that are known.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// Longest input.
const BYTES_MAX: usize = 4096;

/// An input that differs from one of the corpus by a few changes.
#[must_use]
pub fn mutate(random: &mut ChaCha8Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus.choose(random).cloned().unwrap_or_default();
    if bytes.is_empty() || random.random_range(0..20) == 0 {
        let length = random.random_range(1..200);
        bytes = (0..length).map(|_| random.random()).collect();
    }
    for _ in 0..random.random_range(1..=6) {
        change(random, &mut bytes, corpus);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(random: &mut ChaCha8Rng, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = random.random_range(0..=bytes.len());
    let span = random.random_range(1..=16).min(bytes.len() - at);
    match random.random_range(0..8) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.random();
            }
        }
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = byte.wrapping_add(random.random_range(0..=4)).wrapping_sub(2);
            }
        }
        3 => {
            let new: Vec<u8> = (0..random.random_range(1..=12)).map(|_| random.random()).collect();
            bytes.splice(at..at, new);
        }
        4 => {
            bytes.drain(at..at + span);
        }
        5 => {
            let copy = bytes[at..at + span].to_vec();
            let to = random.random_range(0..=bytes.len());
            bytes.splice(to..to, copy);
        }
        6 => bytes.iter_mut().skip(at).take(span).for_each(|byte| *byte = 0),
        _ => {
            // The end of another input.
            let other = corpus.choose(random).cloned().unwrap_or_default();
            let from = random.random_range(0..=other.len());
            bytes.truncate(at);
            bytes.extend(&other[from..]);
        }
    }
}
