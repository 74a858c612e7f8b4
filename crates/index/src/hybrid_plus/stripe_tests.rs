//! A stripe beside a map of the standard library, with hashes chosen so that keys crowd few lines, the last ones above
//! all: there the way of a key goes on at the first line.

use std::collections::HashMap;

use super::*;

/// Step after step, the stripe and the map agree; keys' hashes are the keys.
fn agrees_with_a_map(hash_of: impl Fn(u64) -> u64, keys: u64, steps: u64) {
    let stripe = &Stripe::many::<u64>(1, true, false)[0];
    let mut model = HashMap::new();
    let mut state = 7_u64;
    for step in 0..steps {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = hash_of((state >> 33) % keys);
        let mut writing = stripe.write();
        assert_eq!(writing.get(key, &key), model.get(&key).copied());
        assert_eq!(stripe.read(key, &key), Known::No, "busy");
        // Grows at first, then shrinks.
        if (state >> 20) % 16 < if step < steps / 2 { 10 } else { 5 } {
            writing.put(key, &key, step);
            model.insert(key, step);
        } else {
            writing.remove(key, &key);
            model.remove(&key);
        }
        writing.finish();
        assert_eq!(stripe.count(), model.len() as u64);
        if step % 64 == 0 {
            for key in (0..keys).map(&hash_of) {
                assert_eq!(
                    stripe.read(key, &key),
                    Known::Yes(model.get(&key).copied()),
                    "key {key:#x} after {step} steps"
                );
            }
        }
    }
}

#[test]
fn crowded_lines_lose_and_resurrect_nothing() {
    // All at one home; all at the last four lines of every length; evenly, with the word whose hash is 0.
    agrees_with_a_map(|key| key << 20 | 3, 40, 20_000);
    agrees_with_a_map(|key| (key / 4) << 24 | (0xFF_FFFC + key % 4), 100, 40_000);
    agrees_with_a_map(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15), 300, 60_000);
}

#[test]
fn strings_with_one_hash_are_told_apart() {
    let stripe = &Stripe::many::<[u8]>(1, true, false)[0];
    let key = |number: u64| format!("{number:0width$}", width = 1 + number as usize % 40).into_bytes();
    for round in 0..4 {
        for number in 0..200 {
            let mut writing = stripe.write();
            writing.put(number % 3, &key(number)[..], number + round);
            writing.finish();
        }
        for number in (0..200).filter(|number| number % 4 == round) {
            let mut writing = stripe.write();
            writing.remove(number % 3, &key(number)[..]);
            writing.finish();
        }
        for number in 0..200 {
            let expected = (number % 4 != round).then_some(number + round);
            assert_eq!(stripe.read(number % 3, &key(number)[..]), Known::Yes(expected));
        }
    }
}

#[test]
fn a_change_that_does_not_end_leaves_a_stripe_that_only_the_tree_speaks_for() {
    let stripe = &Stripe::many::<u64>(1, true, false)[0];
    let fill = |key: u64| {
        let mut writing = stripe.write();
        writing.put(key, &key, key);
        writing.finish_fill();
    };
    (0..50).for_each(fill);
    let changes = stripe.changes();
    assert_eq!(stripe.read(7, &7_u64), Known::Yes(Some(7)));
    drop(stripe.write());
    assert!(stripe.changes() > changes, "a fill that began before is dropped");
    assert!((0..60).all(|key| stripe.read(key, &key) == Known::No));
    assert_eq!(stripe.count(), 0);
    // Pairs put there later are right again; the stripe never is complete again.
    fill(7);
    stripe.write().set_complete(true);
    assert_eq!((stripe.read(7, &7_u64), stripe.read(8, &8_u64)), (Known::Yes(Some(7)), Known::No));
}
