//! Planted bugs of keepers: each is found by seeds or by a course of events, and the sound code passes the same ones.
//!
//! A program of its own: a bug is planted for the whole process.

#[path = "keepers/histories.rs"]
mod histories;
#[path = "keepers/seeds.rs"]
mod seeds;

use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use histories::Call;
use lodestone_fabric::{NodeId, Registry, Term};
use lodestone_pmem::planted::plant;
use lodestone_pmem::{Memory, PmAddr};
use lodestone_registry::{
    Answer, Keeper, KeeperClient, KeeperClientOptions, KeeperClock, KeeperId, KeeperOptions, KeeperServer,
    KeeperServerOptions, Request, Security,
};
use seeds::{Run, VOLUME, run_seed};

/// Bugs are planted for the whole process: one at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Runs of which one must find the bug, and none finds anything in the sound code.
fn must_be_found(name: &'static str, seeds: u64, run: &dyn Fn(u64) -> Result<(), String>) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    plant(Some(name));
    let found = (0..seeds).find_map(|seed| {
        // A core may also stop at one of its assertions.
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
        let violation = outcome.unwrap_or_else(|_| Err("an assertion".to_owned())).err()?;
        Some((seed, violation.chars().take(200).collect::<String>()))
    });
    plant(None);
    let (seed, violation) = found.unwrap_or_else(|| panic!("{name} was not found in {seeds} seeds"));
    println!("{name}: {} seeds: {violation}", seed + 1);
    for seed in 0..=seed {
        assert_eq!(run(seed), Ok(()), "the sound code, seed {seed}");
    }
}

fn random(seed: u64) -> Result<(), String> {
    run_seed(seed, 60).map(drop)
}

/// A lease, a takeover by another node, and a restart of all keepers or a cut of the leader in between.
fn course(seed: u64, cuts_the_leader: bool) -> Result<(), String> {
    let mut run = Run::new(3, seed);
    let ask = |run: &mut Run, request: Request| {
        let began = run.world.now();
        let answer = run.ask(&request).ok_or("no keeper decides")?;
        let ended = Some(run.world.now());
        run.history.calls.push(Call { began, ended, request, answer: Some(answer.clone()) });
        Ok::<Answer, String>(answer)
    };
    ask(&mut run, Request::Claim(NodeId(1), Term(0)))?;
    ask(&mut run, Request::Renew(Term(1)))?;
    if cuts_the_leader {
        let ids = run.world.ids();
        let leads = |id: &&lodestone_registry::KeeperId| run.world.keeper(**id).is_some_and(Keeper::is_leading);
        let old = *ids.iter().find(leads).ok_or("nobody leads")?;
        // The leader hears no keeper, but the holder of the lease reaches it.
        run.world.cut_from_keepers(&[old]);
        let later = run.world.now() + 200_000_000;
        run.world.run_until(later).map_err(|error| error.to_string())?;
        let (began, token) = (run.world.now(), run.token());
        run.world.request(old, token, VOLUME, &Request::Renew(Term(1)));
        run.world.run_until(began + 50_000_000).map_err(|error| error.to_string())?;
        for (_, answer) in run.world.take_answers() {
            let (ended, request) = (Some(run.world.now()), Request::Renew(Term(1)));
            run.history.calls.push(Call { began, ended, request, answer: Some(answer) });
        }
    } else {
        for id in run.world.ids() {
            run.world.crash(id, 0);
        }
        run.world.heal().map_err(|error| error.to_string())?;
    }
    ask(&mut run, Request::Claim(NodeId(2), Term(1)))?;
    while !matches!(ask(&mut run, Request::Renew(Term(2)))?, Answer::Held(_)) {
        run.world.run_until(run.world.now() + 20_000_000).map_err(|error| error.to_string())?;
    }
    run.history.overlapping_leases().map_or(Ok(()), |pair| Err(format!("{pair:?} at once")))
}

#[test]
fn told_before_it_is_durable() {
    must_be_found("registry-told-before-it-is-durable", 60, &random);
}

#[test]
fn grant_without_the_end() {
    must_be_found("registry-grant-without-the-end", 60, &random);
}

#[test]
fn lease_forgotten() {
    must_be_found("registry-lease-forgotten", 4, &|seed| course(seed, false));
}

#[test]
fn renewed_by_one_keeper() {
    must_be_found("registry-renewed-by-one-keeper", 20, &|seed| course(seed, true));
}

/// A core that panics answers nothing. The keeper says so, and no client is left waiting.
#[test]
fn core_panics() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (id, memory) = (KeeperId(1), Memory::anonymous(1 << 20).unwrap());
    let options = KeeperOptions { id, registry: 7, seed: 1 };
    let keeper = Keeper::create(options, &memory, PmAddr::new(0, 4096), 128 << 10, &[id]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let clock = Arc::new(KeeperClock::default());
    let server = KeeperServerOptions { listener, peers: [].into(), security: Security::Plain, clock };
    let server = KeeperServer::start(keeper, (), server).unwrap();
    plant(Some("registry-core-panics"));
    let patience = Duration::from_millis(200);
    let keepers = [(id, address)].into();
    let options = KeeperClientOptions { keepers, security: Security::Plain, node: NodeId(1), patience };
    let asked = KeeperClient::new(options, VOLUME).state();
    let end = Instant::now() + Duration::from_secs(60);
    while server.status().failure.is_none() {
        assert!(Instant::now() < end, "the keeper does not say that it stopped");
        std::thread::yield_now();
    }
    plant(None);
    assert!(asked.is_err());
    let failure = server.status().failure.unwrap_or_default();
    assert!(failure.contains("panicked"), "{failure}");
    server.stop();
}
