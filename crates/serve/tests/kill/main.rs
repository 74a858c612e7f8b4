//! SIGKILL of a server under load: nothing that was acknowledged is lost, and all that the loads promise holds.
//!
//! The server is this test program, started again with a variable that says so. In the `block` domain an
//! acknowledgement waits for the disk. In the `process` domain the pool is a file in the page cache.
//!
//! | load | judged after each kill |
//! | --- | --- |
//! | `bank` | sums of balances, and each acknowledged transfer; the transactions of pgbench |
//! | `orders` | foreign keys, an index and its rows, sums, numbers of a sequence that never repeat |
//! | `lists` | the history of the round has a serial order |
//! | `types` | no object of a type that is gone; labels and rows of enumerations that were acknowledged |
//!
//! `cargo xtask judge sql kills --rounds N` runs many rounds, by the variables below.

mod bank;
#[path = "../common/mod.rs"]
mod common;
mod lists;
mod load;
mod orders;
mod types;
mod wire;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bank::Bank;
use lists::Lists;
use load::Load;
use lodestone_workload::random::Random;
use orders::Orders;
use types::Types;
use wire::{Client, start};

/// Rounds, the domain and the seed of the long test.
const ROUNDS: &str = "LODESTONE_KILL_ROUNDS";
const DOMAIN: &str = "LODESTONE_KILL_DOMAIN";
const SEED: &str = "LODESTONE_KILL_SEED";

struct Plan<'p> {
    domain: &'p str,
    /// Where the rows of all tables are.
    placement: &'p str,
    rounds: u64,
    /// Transactions of a round, about.
    turns: u64,
    seed: u64,
}

fn kill_and_judge(plan: &Plan<'_>) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path();
    let (bank, orders, lists, types) = (Bank::new(), Orders::new(), Lists::default(), Types::default());
    let loads: [&dyn Load; 4] = [&bank, &orders, &lists, &types];
    let mut server = start(path, plan.domain);
    let placed = format!("set lodestone.default_placement = {}", plan.placement);
    let mut client = Client::connect(path);
    client.must(&[&placed]);
    loads.iter().for_each(|load| load.make(&mut client));
    for round in 0..plan.rounds {
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for (place, load) in (0..).zip(loads) {
                for number in 0..load.clients() {
                    let stream = (round * 10 + place) * 10 + u64::try_from(number).expect("few");
                    let (done, placed) = (&done, &placed);
                    scope.spawn(move || {
                        let mut random = Random::for_stream(plan.seed, stream);
                        let mut client = Client::connect(path);
                        if client.run(placed).is_none() {
                            return;
                        }
                        while load.work(&mut client, number, round, &mut random).is_some() {
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
            }
            let goal = plan.turns / 2 + Random::for_stream(plan.seed, round).below(plan.turns);
            let until = Instant::now() + Duration::from_secs(120);
            while done.load(Ordering::SeqCst) < goal && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            assert!(done.load(Ordering::SeqCst) >= goal, "the server answers too slowly, or not at all");
        });
        server = start(path, plan.domain);
        client = Client::connect(path);
        println!("round {round} of seed {}, {}: {} transactions", plan.seed, plan.domain, done.into_inner());
        loads.iter().for_each(|load| load.judge(&mut client, round));
    }
    server.kill();
}

/// A test that fails ends its server.
#[test]
fn a_server_goes_with_its_test() {
    let folder = tempfile::tempdir().expect("folder");
    let failed = std::panic::catch_unwind(|| {
        let _server = start(folder.path(), "process");
        let mut client = Client::connect(folder.path());
        client.must(&["select 1"]);
        panic!("as a test that fails");
    });
    assert!(failed.is_err());
    assert!(
        std::os::unix::net::UnixStream::connect(lodestone_serve::socket_path(folder.path(), 5432)).is_err(),
        "the server is still there"
    );
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn a_killed_server_loses_nothing_that_it_acknowledged() {
    kill_and_judge(&Plan { domain: "block", placement: "paged", rounds: 3, turns: 60, seed: 1 });
}

/// With all rows in cells.
#[test]
fn a_killed_server_loses_no_row_of_a_cell() {
    kill_and_judge(&Plan { domain: "process", placement: "dual", rounds: 3, turns: 120, seed: 1 });
}

#[test]
#[ignore = "`make prove` runs it"]
fn a_killed_server_loses_nothing_in_many_rounds() {
    let rounds = variable(ROUNDS).unwrap_or(15);
    let seed = variable(SEED).unwrap_or(2);
    let domain = std::env::var(DOMAIN);
    if let Ok(only) = &domain {
        assert!(["block", "process"].contains(&only.as_str()), "{DOMAIN} is {only}: it is `block` or `process`");
    }
    assert!(rounds > 0, "{ROUNDS} is 0: nothing would be killed");
    for one in ["block", "process"].into_iter().filter(|one| domain.as_ref().map_or(true, |only| only == one)) {
        // Half of them with rows in pages, half with rows in cells.
        for (placement, rounds) in [("paged", rounds.div_ceil(2)), ("dual", rounds / 2)] {
            kill_and_judge(&Plan { domain: one, placement, rounds, turns: 300, seed });
        }
    }
}
