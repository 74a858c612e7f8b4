//! Persist and stream through the primitives, beside the same instructions unchecked and uncounted.

use anyhow::{Context, Result};
use lodestone_pmem::measuring::BareLines;
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr};
use lodestone_workload::random::Random;

use super::compare::{Comparison, compare};

/// Lines that a hot pattern cycles through: more than the write-backs in flight, few enough for the nearest cache.
const HOT_LINES: u64 = 64;
/// Lines in one round of persists.
const PERSISTS: usize = 2000;
/// Streams in one round.
const STREAMS: usize = 200;
const STREAM_BYTES: usize = 4096;
/// The divisor of the part that leaves its first half alone: the header of a pool is no scratch memory.
const SCRATCH_SHARE: u64 = 2;

/// All comparisons.
pub fn measure(memory: &Memory, rounds: usize, seed: u64) -> Result<Vec<Comparison>> {
    // The second half of the part, as a power of two of lines: after headers and journal, before the second header.
    let lines = (memory.part_len(0) / SCRATCH_SHARE / LINE_BYTES / 2).next_power_of_two();
    let base = PmAddr::new(0, memory.part_len(0) / SCRATCH_SHARE / 4096 * 4096);
    let bare = BareLines::new(memory, base, lines)
        .context("these instructions belong to the dax domain; give a file where it can be opened, or none")?;
    // Touch every page once, so that the kernel's first-touch work counts on neither side.
    for page in 0..lines * LINE_BYTES / 4096 {
        memory.store(base.plus(page * 4096), 1);
    }
    let mut random = Random::new(seed);
    let hot: Vec<u64> = (0..PERSISTS as u64).map(|number| number % HOT_LINES).collect();
    let scattered: Vec<u64> = (0..PERSISTS * 16).map(|_| random.below(lines)).collect();
    let stream_lines = (STREAM_BYTES as u64) / LINE_BYTES;
    let hot_pages: Vec<u64> = (0..STREAMS as u64).map(|number| number % 4 * stream_lines).collect();
    let pages: Vec<u64> = (0..STREAMS * 16).map(|_| random.below(lines / stream_lines) * stream_lines).collect();
    Ok(vec![
        persists(memory, base, &bare, "hot", &hot, rounds)?,
        persists(memory, base, &bare, "random", &scattered, rounds)?,
        streams(memory, base, &bare, "hot", &hot_pages, rounds)?,
        streams(memory, base, &bare, "random", &pages, rounds)?,
    ])
}

/// The slice of `all` that round `round` uses.
fn stretch(all: &[u64], count: usize, round: usize) -> &[u64] {
    let start = round * count % all.len();
    &all[start..start + count]
}

fn persists(
    memory: &Memory,
    base: PmAddr,
    bare: &BareLines<'_>,
    pattern: &'static str,
    lines: &[u64],
    rounds: usize,
) -> Result<Comparison> {
    let mut word = 0_u64;
    compare(
        ("persist(64 B)", pattern, "store, flush, fence"),
        rounds,
        PERSISTS,
        |round| {
            for &line in stretch(lines, PERSISTS, round) {
                word = word.wrapping_add(1);
                let at = base.plus(line * LINE_BYTES);
                memory.write(at, std::hint::black_box(&bytes_of(word)));
                // Nothing is ordered here: the fence itself is measured.
                memory.persist(at, LINE_BYTES);
            }
            Ok(())
        },
        |round| {
            let mut word = round as u64;
            for &line in stretch(lines, PERSISTS, round) {
                word = word.wrapping_add(1);
                bare.persist_line(line, std::hint::black_box(&[word; 8]));
            }
            Ok(())
        },
    )
}

#[inline(always)]
fn bytes_of(word: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn streams(
    memory: &Memory,
    base: PmAddr,
    bare: &BareLines<'_>,
    pattern: &'static str,
    lines: &[u64],
    rounds: usize,
) -> Result<Comparison> {
    let source = vec![0x5A_u8; STREAM_BYTES];
    compare(
        ("stream(4 KiB)", pattern, "streaming stores, fence"),
        rounds,
        STREAMS,
        |round| {
            for &line in stretch(lines, STREAMS, round) {
                memory.stream(base.plus(line * LINE_BYTES), std::hint::black_box(&source));
                // Nothing is ordered here: the fence itself is measured.
                memory.fence();
            }
            Ok(())
        },
        |round| {
            for &line in stretch(lines, STREAMS, round) {
                bare.stream(line, std::hint::black_box(&source));
            }
            Ok(())
        },
    )
}
