//! Planted bugs: each is found, and the sound code passes the same seeds.

use lodestone_fabric_sim::{World, bugs};
use lodestone_pmem::planted::plant;

#[test]
fn every_planted_bug_is_found() {
    let only = std::env::var("BUG").ok();
    let mut missed = Vec::new();
    for bug in bugs().into_iter().filter(|bug| only.as_ref().is_none_or(|only| bug.name.contains(only))) {
        let t = std::time::Instant::now();
        let run = |seed| World::new((bug.plan)(seed), seed).expect("plans have room").run().violation;
        plant(Some(bug.name));
        let found = (0..bug.seeds).find_map(|seed| {
            let found = std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| Some("a panic".to_owned()));
            found.map(|violation| (seed, violation))
        });
        plant(None);
        match found {
            Some((seed, violation)) => {
                let clean = (0..=seed).find_map(run);
                println!(
                    "{:40} seed {seed:4} {:5} ms {}",
                    bug.name,
                    t.elapsed().as_millis(),
                    &violation[..violation.len().min(110)]
                );
                if let Some(clean) = clean {
                    println!("   CLEAN FAILS {clean}");
                }
            }
            None => {
                println!("{:40} MISSED in {} seeds, {} ms", bug.name, bug.seeds, t.elapsed().as_millis());
                missed.push(bug.name)
            }
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
#[ignore = "by hand"]
fn clean() {
    let bug = bugs().into_iter().find(|bug| bug.name == std::env::var("BUG").unwrap()).unwrap();
    let read = |name: &str, other: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(other);
    for seed in read("FROM", 0)..read("TO", 100) {
        let world = World::new((bug.plan)(seed), seed).unwrap();
        if std::env::var("TRACE").is_ok() {
            let (outcome, lines) = world.traced().run_traced();
            lines.iter().for_each(|line| println!("{line}"));
            println!("{outcome:?}");
        } else if let Some(violation) = world.run().violation {
            println!("seed {seed}: {violation}");
        }
    }
}
