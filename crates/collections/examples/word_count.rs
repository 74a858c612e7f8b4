//! Counts words of standard input: a hash map from words to counts, and a tree that ranks them, changed together.
//!
//! `cargo run -p lodestone-collections --example word_count -- words.pool < README.md`. Run it again to count on.

use std::io::BufRead;
use std::ops::Bound;

use lodestone_collections::{Bytes, PmBTreeMap, PmHashMap};
use lodestone_pmem::PoolOptions;
use lodestone_stm::Stm;
use lodestone_store::Store;

/// Orders by count, then by word.
fn rank(count: u64, word: &[u8]) -> Vec<u8> {
    [&count.to_be_bytes(), word].concat()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: word_count POOL < TEXT")?;
    let stm = Stm::open(&Store::open_or_create(path, &PoolOptions::default())?)?;
    let counts = PmHashMap::<Bytes, u64>::open(&stm, "counts")?;
    let ranking = PmBTreeMap::<Bytes, u64>::open(&stm, "ranking")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        // A line is a transaction: a killed run never counts half of one.
        stm.update(|tx| {
            for word in line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
                let word = word.to_lowercase().into_bytes();
                let before = counts.get(tx, &word)?.unwrap_or(0);
                counts.insert(tx, &word, &(before + 1))?;
                ranking.remove(tx, &rank(before, &word))?;
                ranking.insert(tx, &rank(before + 1, &word), &(before + 1))?;
            }
            Ok(())
        })?;
    }
    stm.snapshot(|tx| {
        for entry in ranking.range_down(tx, Bound::Unbounded, Bound::Unbounded)?.take(10) {
            let (key, count) = entry?;
            println!("{count:8}  {}", String::from_utf8_lossy(&key[8..]));
        }
        Ok(())
    })?;
    Ok(())
}
