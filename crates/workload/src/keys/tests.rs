//! Tests of the choosers and of the key bytes; all with fixed seeds.

use std::collections::HashSet;

use super::*;

fn counts_of(distribution: Distribution, population: u64, draws: u32) -> Vec<u32> {
    let mut chooser = KeyChooser::new(distribution, population, population).unwrap();
    let mut random = Random::new(99);
    let mut counts = vec![0; usize::try_from(population).unwrap()];
    for _ in 0..draws {
        counts[usize::try_from(chooser.choose(&mut random, population)).unwrap()] += 1;
    }
    counts
}

#[test]
fn the_hottest_scrambled_record_has_the_frequency_of_the_theory() {
    const DRAWS: u32 = 1_000_000;
    let records = 100_000;
    let counts = counts_of(Distribution::ZIPFIAN, records, DRAWS);
    let zeta = Zipfian::new(records, THETA_DEFAULT).unwrap().zeta();
    let hottest = counts[usize::try_from(scramble(0, records)).unwrap()];
    let ratio = f64::from(hottest) * zeta / f64::from(DRAWS);
    assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
    assert_eq!(hottest, *counts.iter().max().unwrap());
}

#[test]
fn hot_records_are_scattered() {
    let records = 100_000;
    let mut hot: Vec<u64> = (0..10).map(|rank| scramble(rank, records)).collect();
    hot.sort_unstable();
    assert!(hot.windows(2).all(|pair| pair[1] - pair[0] > 10), "{hot:?}");
    let codec = KeyCodec::new(8, KeyOrder::Hashed).unwrap();
    let keys: Vec<Vec<u8>> = (0..10).map(|rank| codec.encode(scramble(rank, records))).collect();
    assert!(!keys.is_sorted(), "hot records must not come in key order");
}

#[test]
fn uniform_is_flat_and_latest_leans_to_the_end() {
    let counts = counts_of(Distribution::Uniform, 100, 1_000_000);
    assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");

    let counts = counts_of(Distribution::LATEST, 1_000, 1_000_000);
    let zeta = Zipfian::new(1_000, THETA_DEFAULT).unwrap().zeta();
    let ratio = f64::from(counts[999]) * zeta / 1e6;
    assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
    assert!(counts[999] > counts[998] && counts[998] > counts[900]);
}

#[test]
fn sequential_goes_around() {
    let mut chooser = KeyChooser::new(Distribution::Sequential, 3, 3).unwrap();
    let mut random = Random::new(0);
    chooser.start_at(1);
    let chosen: Vec<u64> = (0..7).map(|_| chooser.choose(&mut random, 3)).collect();
    assert_eq!(chosen, [1, 2, 0, 1, 2, 0, 1]);
}

#[test]
fn growth_reaches_new_records_and_never_runs_ahead() {
    for distribution in [Distribution::ZIPFIAN, Distribution::LATEST, Distribution::Uniform, Distribution::Sequential] {
        let mut chooser = KeyChooser::new(distribution, 10, 2_000).unwrap();
        let mut random = Random::new(3);
        let mut new_record_chosen = false;
        for population in 10..2_000 {
            for _ in 0..20 {
                let record = chooser.choose(&mut random, population);
                assert!(record < population, "{distribution}: {record} of {population}");
                new_record_chosen |= record >= 10;
            }
        }
        assert!(new_record_chosen, "{distribution}");
    }
}

#[test]
fn the_same_seed_chooses_the_same_records() {
    let draw = |seed| {
        let mut chooser = KeyChooser::new(Distribution::ZIPFIAN, 5_000, 5_000).unwrap();
        let mut random = Random::new(seed);
        (0..100).map(|_| chooser.choose(&mut random, 5_000)).collect::<Vec<u64>>()
    };
    assert_eq!(draw(8), draw(8));
    assert_ne!(draw(8), draw(9));
}

#[test]
fn keys_are_unique_fixed_length_and_decodable() {
    for order in [KeyOrder::Hashed, KeyOrder::Ordered] {
        for key_bytes in [8, 9, 16, 23, 32] {
            let codec = KeyCodec::new(key_bytes, order).unwrap();
            let keys: Vec<Vec<u8>> = (0..2_000).map(|record| codec.encode(record)).collect();
            assert!(keys.iter().all(|key| key.len() == key_bytes));
            assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
            assert_eq!(keys.is_sorted(), order == KeyOrder::Ordered);
            for (record, key) in (0..).zip(&keys) {
                assert_eq!(codec.decode(key), Some(record));
            }
            assert_eq!(codec.decode(&keys[0][..7]), None);
            let mut foreign = keys[5].clone();
            foreign.push(0);
            assert_eq!(codec.decode(&foreign), None);
        }
    }
    assert!(matches!(KeyCodec::new(7, KeyOrder::Hashed), Err(KeysError::KeyBytes { key_bytes: 7 })));
}

#[test]
fn names_round_trip_and_bad_ones_are_refused() {
    for text in ["zipfian:0.99", "zipfian:0.5", "latest:0.99", "uniform", "sequential", "self-similar:0.1"] {
        assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
    }
    assert_eq!("zipfian".parse::<Distribution>().unwrap(), Distribution::ZIPFIAN);
    for text in ["", "zipf", "uniform:0.5", "zipfian:x", "zipfian:"] {
        assert!(matches!(text.parse::<Distribution>(), Err(KeysError::Name { .. })), "{text}");
    }
    assert_eq!("self-similar".parse::<Distribution>().unwrap(), Distribution::SELF_SIMILAR);
    for text in ["self-similar:0", "self-similar:0.5", "self-similar:-1"] {
        assert!(matches!(text.parse::<Distribution>(), Err(KeysError::Skew { .. })), "{text}");
    }
    assert!(matches!("zipfian:1".parse::<Distribution>(), Err(KeysError::Theta { .. })));
}

#[test]
fn self_similar_choices_fall_on_a_fifth_and_on_a_fifth_of_it() {
    const RECORDS: u64 = 10_000;
    let mut chooser = KeyChooser::new(Distribution::SELF_SIMILAR, RECORDS, RECORDS).unwrap();
    let mut random = Random::new(4);
    let mut counts = vec![0_u64; usize::try_from(RECORDS).unwrap()];
    for _ in 0..200_000 {
        counts[usize::try_from(chooser.choose(&mut random, RECORDS)).unwrap()] += 1;
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let share = |records: usize| counts[..records].iter().sum::<u64>() as f64 / 200_000.0;
    // A few ranks share a record, so slightly fewer than a fifth of the records are hot.
    assert!((0.78..0.88).contains(&share(2_000)), "{}", share(2_000));
    assert!((0.62..0.75).contains(&share(400)), "{}", share(400));
}
