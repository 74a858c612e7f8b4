//! The cost of the harness itself: nanoseconds for each drawn operation, prepared value and verified value.
//!
//! `cargo run --release -p lodestone-workload --example generator_cost`

use std::hint::black_box;
use std::time::Instant;

use lodestone_workload::keys::{Distribution, KeyChooser};
use lodestone_workload::mix::OperationKind;
use lodestone_workload::random::Random;
use lodestone_workload::value;
use lodestone_workload::ycsb::{Generator, Spec, Workload};

const ROUNDS: u32 = 5_000_000;
const RECORDS: u64 = 1_000_000;

fn nanoseconds_each(mut action: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        action();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "clock reading        {:6.1} ns",
        nanoseconds_each(|| {
            black_box(Instant::now());
        })
    );
    for distribution in [Distribution::ZIPFIAN, Distribution::Uniform, Distribution::LATEST, Distribution::Sequential] {
        let mut chooser = KeyChooser::new(distribution, RECORDS, RECORDS)?;
        let mut random = Random::new(1);
        let cost = nanoseconds_each(|| {
            black_box(chooser.choose(&mut random, RECORDS));
        });
        println!("{:<20} {cost:6.1} ns", distribution.to_string());
    }
    for workload in Workload::ALL {
        let spec = Spec { records: RECORDS, ..Spec::new(workload) };
        let mut stream = Generator::new(&spec)?.stream(0);
        let cost = nanoseconds_each(|| {
            if black_box(stream.next_operation()).kind == OperationKind::Insert {
                stream.finish_insert();
            }
        });
        println!("operation of {workload}       {cost:6.1} ns");
    }
    let (mut bytes, mut version) = (Vec::new(), 0);
    let make = nanoseconds_each(|| {
        version += 1;
        value::make_into(black_box(b"8 bytes!"), version, 100, &mut bytes);
    });
    let verify = nanoseconds_each(|| {
        let _ = black_box(value::verify(b"8 bytes!", black_box(&bytes)));
    });
    println!("value of 100 bytes   {make:6.1} ns made, {verify:.1} ns verified");
    Ok(())
}
