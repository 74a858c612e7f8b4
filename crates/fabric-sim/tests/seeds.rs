//! Seeds.
use lodestone_fabric_sim::{Plan, World, run_seed};

#[test]
fn calm() {
    let outcome = World::new(Plan::calm(), 1).unwrap().run();
    assert_eq!(outcome.violation, None);
}

#[test]
fn some() {
    let read = |name: &str, other: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(other);
    let (from, to, ops) = (read("FROM", 0), read("TO", 50), read("OPS", 300));
    let mut bad = 0;
    for seed in from..to {
        println!("seed {seed}");
        let t = std::time::Instant::now();
        let outcome = run_seed(seed, ops);
        let ms = t.elapsed().as_millis();
        if outcome.violation.is_some() || ms > 2000 || outcome.writes < ops / 3 {
            bad += 1;
            println!("{ms} ms {outcome:?}");
        }
    }
    println!("bad {bad}");
}

#[test]
#[ignore = "by hand"]
fn trace() {
    let seed: u64 = std::env::var("FROM").unwrap().parse().unwrap();
    let plan = lodestone_fabric_sim::plan_of(seed, 300);
    println!("{plan:?}");
    let (outcome, trace) = World::new(plan, seed).unwrap().traced().run_traced();
    trace.iter().for_each(|line| println!("{line}"));
    println!("{outcome:?}");
}
