//! The published races of the cache, planted one at a time: each is found by a scenario that is clean without it. In a
//! process of its own, because a planted bug is switched on for all threads.

mod conformance;

#[path = "cached/scenarios.rs"]
mod scenarios;

use std::panic::{AssertUnwindSafe, catch_unwind};

use lodestone_pmem::planted::plant;

/// Scenarios that show the bug `name`.
fn found_by(name: &str, schedules: usize, only: impl Fn(&str) -> bool) -> Vec<&'static str> {
    plant(Some(name));
    let all = scenarios::known().into_iter().chain((0..6).map(scenarios::drawn)).filter(|scenario| only(scenario.name));
    let found =
        all.filter(|scenario| catch_unwind(AssertUnwindSafe(|| scenarios::explore(scenario, 1, schedules))).is_err());
    let found = found.map(|scenario| scenario.name).collect();
    plant(None);
    println!("{name}: found by {found:?}");
    found
}

#[test]
fn every_planted_race_is_found() {
    // A reader brings back what an update or a removal has replaced.
    let found = found_by("acs-fill-without-version", 400, |name| name.starts_with("fill and"));
    assert!(found.contains(&"fill and update") && found.contains(&"fill and removal"), "{found:?}");
    // One reader is told the new value by the index, and the next one the old value by the cache.
    let found = found_by("acs-hit-while-changing", 400, |name| name.starts_with("told by"));
    assert!(found.contains(&"told by the index, then by the cache"), "{found:?}");
    // Two updates reach the index in one order and the cache in the other.
    let found = found_by("acs-last-writer-wins", 400, |name| name == "two updates");
    assert!(found.contains(&"two updates"), "{found:?}");
    // A search that began before a change is filled in with the state from after it.
    let found = found_by("acs-search-overtakes-version", 4000, |name| name == "parallel searches and updates");
    assert!(!found.is_empty(), "{found:?}");
    // Two readers cache one key each for itself; a writer changes one of the two.
    let found = found_by("acs-fill-without-miss", 4000, |name| name == "two fills and updates");
    assert!(!found.is_empty(), "{found:?}");
    // An update that finds its key not cached goes past the stripe: a fill that is under way does not hear of it.
    let found = found_by("acs-uncached-unannounced", 400, |name| name == "fill and update");
    assert!(found.contains(&"fill and update"), "{found:?}");
    // A fill looks at its stripe, and takes the latch then: a writer comes and goes between the two.
    let found = found_by("acs-fill-looks-early", 4000, |name| name.starts_with("fill and"));
    assert!(!found.is_empty(), "{found:?}");
    // A writer finds its key not cached while a fill is putting it there.
    let found = found_by("acs-leave-without-waiting", 4000, |name| name.starts_with("fill and"));
    assert!(!found.is_empty(), "{found:?}");
    // Two readers cache one key in two buckets; a writer changes it in the one that it finds first.
    let found = found_by("acs-fill-looks-at-one-bucket", 4000, |name| name.starts_with("fills of two buckets"));
    assert!(!found.is_empty(), "{found:?}");
    // A hit takes the value of the key that was put in the place of its own.
    let found = found_by("acs-hit-without-second-look", 4000, |name| name == "hit and eviction");
    assert!(!found.is_empty(), "{found:?}");
}
