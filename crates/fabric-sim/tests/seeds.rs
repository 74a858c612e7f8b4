//! Seeds.
use lodestone_fabric_sim::{Plan, World, run_seed};

#[test]
fn calm() {
    let outcome = World::new(Plan::calm(), 1).unwrap().run();
    println!("{outcome:?}");
    assert_eq!(outcome.violation, None);
}

#[test]
fn some() {
    for seed in 0..50 {
        let t = std::time::Instant::now();
        let outcome = run_seed(seed, 300);
        println!("{:?} {outcome:?}", t.elapsed());
    }
}
