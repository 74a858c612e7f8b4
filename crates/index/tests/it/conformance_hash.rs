//! [`HashIndex`] passes the part of the conformance suite that needs no order; `hash_index.rs` tests what is its own.

use crate::conformance::{self, Place, points};
use lodestone_index::{HashIndex, HashOptions, IndexKey, Result};
use proptest::prelude::*;

fn place<K: IndexKey + ?Sized>(pool_bytes: u64) -> Place<HashIndex<K>> {
    Place::new(pool_bytes, HashOptions::small())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_model(steps in conformance::steps(80, 300)) {
        points::run_model(&mut place::<u64>(16 << 20), &steps, true)?;
        points::run_model(&mut place::<[u8]>(16 << 20), &steps, true)?;
    }
}

#[test]
fn takes_every_string_and_says_what_it_cannot_take() -> Result<()> {
    points::many_strings(&mut Place::<HashIndex<[u8]>>::new(32 << 20, HashOptions::default()))?;
    points::damaged_heap(&mut place::<u64>(16 << 20), 200)?;
    points::damaged_heap(&mut place::<[u8]>(16 << 20), 200)
}

#[test]
fn full_pools_are_told() -> Result<()> {
    points::full_pool(&mut place::<u64>(3 << 20))?;
    points::full_pool(&mut place::<[u8]>(3 << 20))
}

#[test]
fn lives_in_the_block_domain() -> Result<()> {
    points::block_domain(&mut place::<u64>(16 << 20))?;
    points::block_domain(&mut place::<[u8]>(16 << 20))
}
