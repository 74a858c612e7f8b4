//! A volume against a plain tree of files: random steps, with lives that end in the middle.
//!
//! Every step must do the same to both, or be refused by both with the same number. Lives end without a last batch of
//! the image, so the next one replays the log. After each life the whole volume is compared and checked.

use lodestone_fs::oracle::{Draw, Plain, difference, shots};
use lodestone_fs::{Clock, FormatOptions, Volume, VolumeOptions};
use lodestone_pmem::{DomainChoice, PoolOptions};

/// Steps of a seed.
const STEPS: usize = 400;

fn pool(domain: DomainChoice) -> PoolOptions {
    PoolOptions { domain, size_bytes: 12 << 20, journal_bytes: 2 << 20, ..PoolOptions::default() }
}

fn options(files_in_memory: usize) -> VolumeOptions {
    let mut options = VolumeOptions::default();
    (options.background, options.clock) = (false, Clock::Steps);
    (options.files_in_memory, options.batch_operations) = (files_in_memory, 60);
    options
}

fn same(volume: &Volume, plain: &Plain, when: &str) {
    let found = shots(volume).unwrap_or_else(|error| panic!("{when}: {error}"));
    if let Some(difference) = difference(&found, &plain.shots()) {
        panic!("{when}: {difference}");
    }
}

fn run(seed: u64, domain: DomainChoice) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.vol");
    drop(Volume::format_with(&path, &pool(domain), &FormatOptions::default()).expect("a volume"));
    let (mut draw, mut plain) = (Draw::new(seed), Plain::default());
    let keep = if seed.is_multiple_of(2) { 2 } else { 1000 };
    let again = format!("LODESTONE_FS_SEED={seed} cargo test -p lodestone-fs --test volumes model");
    let mut done = 0;
    while done < STEPS {
        let volume = Volume::open_with(&path, &pool(domain), &options(keep)).expect("it opens");
        assert_eq!(volume.recovery().dropped, 0, "{again}");
        same(&volume, &plain, &format!("after the open, step {done}: {again}"));
        for _ in 0..1 + draw.below(120) {
            let step = draw.step();
            let (found, expected) = (step.run(&volume), plain.run(&step));
            assert_eq!(found, expected, "step {done}, {step:?}: {again}");
            done += 1;
        }
        same(&volume, &plain, &format!("step {done}: {again}"));
        if draw.below(2) == 0 {
            let report = volume.check(true).expect("a check");
            assert!(report.is_clean(), "step {done}: {again}: {:?}", report.findings);
        }
    }
}

#[test]
fn a_volume_is_a_plain_tree_of_files() {
    match std::env::var("LODESTONE_FS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => run(seed, DomainChoice::Process),
        None => (0..8).for_each(|seed| run(seed, DomainChoice::Process)),
    }
}

/// Small writes are in the log as well there.
#[test]
fn a_volume_on_an_ordinary_file_is_a_plain_tree_of_files() {
    (50..52).for_each(|seed| run(seed, DomainChoice::Block));
}

#[test]
#[ignore = "long; `make prove` runs it"]
fn a_volume_is_a_plain_tree_of_files_for_many_seeds() {
    (100..500).for_each(|seed| run(seed, DomainChoice::Process));
}
