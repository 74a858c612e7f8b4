//! The database under the crash explorer: every target, every profile, every mutant killed or excused.

use lodestone_crash::{Config, Mode, Profile, Target};
use lodestone_proof::engine::targets;

type Targets = Vec<Box<dyn Target>>;

/// Targets with more states than there is time for, and the others. The lines of a new database may all be lost, one by
/// one, and so may those of pages that are written again, those of a record with many pieces, of records in several
/// logs, of cells beside pages, of a table with its rows, of a load, and of pages that move to another part.
fn large_and_others() -> (Targets, Targets) {
    let large = [
        "db-create",
        "db-rounds-after",
        "db-define",
        "db-large",
        "db-load",
        "db-load-older-round",
        "db-load-again",
        "db-together",
        "db-together-rounds",
        "db-mixed-cells",
        "db-move",
    ];
    targets().into_iter().partition(|target| large.contains(&target.name().as_str()))
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_crash_state_is_right_and_so_is_each_in_a_crashed_open() {
    let (large, others) = large_and_others();
    crate::common::exhaust(&others, Profile::Adr, Mode::Reading, 1);
    for target in large {
        // Those of which even a sample has very many states.
        let is_long =
            matches!(target.name().as_str(), "db-create" | "db-load" | "db-load-older-round" | "db-load-again");
        let config = Config { nested_depth: u32::from(!is_long), states_max: 5_000, ..Config::default() };
        crate::common::sample_and_reach_the_end(&[target], &config);
    }
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_crash_state_with_persistent_caches_is_right() {
    let (large, others) = large_and_others();
    // The code makes the same stores as for ADR. So the states after crashed opens are among those of ADR, of which the
    // test above has all but for the large targets.
    crate::common::exhaust(&others, Profile::Eadr, Mode::Reading, 0);
    crate::common::exhaust(&large, Profile::Eadr, Mode::Reading, 1);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_prefix_of_flushes_is_right() {
    crate::common::exhaust(&targets(), Profile::Block, Mode::Reading, 1);
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_mutant_is_killed_or_excused() {
    crate::common::audit(&targets(), |name| {
        let states_max = match name {
            "db-create" | "db-large" | "db-load" | "db-dual" => 4_000,
            "db-rounds-after" => 1000,
            // They audit no call: their states are explored above, and nothing is dropped or moved here.
            "db-load-again"
            | "db-load-older-round"
            | "db-ddl"
            | "db-ddl-images"
            | "db-define"
            | "db-together-rounds"
            | "db-mixed"
            | "db-mixed-cells"
            | "db-backup"
            | "db-dual-rounds"
            | "db-dual-older-round"
            | "db-dual-moves"
            | "db-added"
            | "db-added-load"
            | "db-added-older-round" => 500,
            _ => Config::default().states_max,
        };
        Config { states_max, ..Config::default() }
    });
}
