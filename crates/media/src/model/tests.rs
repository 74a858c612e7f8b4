//! The model by hand: every figure is derived from the profile.

use std::sync::Arc;

use lodestone_pmem::{Domain, Memory, PmAddr};

use super::*;

const MIB: u64 = 1 << 20;

fn optane(parts: &[usize]) -> (Arc<Model>, Memory) {
    emulated("optane", parts)
}

fn emulated(name: &str, parts: &[usize]) -> (Arc<Model>, Memory) {
    let profile = MediaProfile::builtin(name).expect("built in");
    let topology = Topology::of_machine();
    let model = Model::new(profile, TimeMode::Virtual, &topology, parts);
    let lens = vec![16 * MIB; parts.len()];
    let memory = Memory::anonymous_with(&lens, Domain::Dax, Some(model.clone())).expect("memory");
    (model, memory)
}

fn cost(model: &Model, action: impl FnOnce()) -> u64 {
    let before = model.thread_ns();
    action();
    model.thread_ns() - before
}

#[test]
fn reads_cost_what_the_tables_say_and_cached_lines_nothing() {
    let (model, memory) = optane(&[0]);
    let read = |offset: u64, len: usize| cost(&model, || memory.read(PmAddr::new(0, offset), &mut vec![0; len]));
    assert_eq!([8, 16, 64, 256, 1024].map(|len| read(len as u64 * 8192, len)), [200, 196, 201, 241, 611]);
    assert_eq!(read(256 * 8192, 256), 0, "cached");
    assert_eq!(read(MIB * 12, 64) + read(MIB * 12 + 128, 64), 201 + 66, "a line of a block in the read buffer");
    assert_eq!(read(MIB * 9, 64) + read(MIB * 9 + 64, 64), 201 + 66);
    assert_eq!(read(MIB * 9 + 128, 64) + read(MIB * 9 + 192, 64), 66 + 66);
    assert_eq!(read(MIB * 9 + 256, 64), 191, "the next block, in sequence");
}

#[test]
fn a_persist_costs_the_write_and_on_a_cold_line_the_fetch_before() {
    let (model, memory) = optane(&[0]);
    let at = PmAddr::new(0, MIB);
    let persist = || {
        memory.store(at, 7);
        memory.persist(at, 8);
    };
    assert_eq!(cost(&model, persist), 200 + 190, "the line is fetched first");
    assert_eq!(cost(&model, persist), 190, "it stayed in the cache");
    assert_eq!(cost(&model, || memory.persist(at, 8)), 0, "a clean line");
    assert_eq!(model.counts().needless_flushes, 1);
}

#[test]
fn two_nodes_multiply_and_are_counted() {
    let (model, memory) = optane(&[0, 1]);
    let read = |part: u16| cost(&model, || memory.read(PmAddr::new(part, MIB), &mut [0; 256]));
    model.set_thread_node(0);
    assert_eq!((read(0), read(1)), (241, 2410));
    let stream = |part: u16| {
        cost(&model, || {
            memory.stream(PmAddr::new(part, 2 * MIB), &[1; 256]);
            memory.fence();
        })
    };
    assert_eq!((stream(0), stream(1)), (218, 436));
    let counts = model.counts();
    assert_eq!((counts.remote_read_lines, counts.remote_write_lines), (4, 4));
}

#[test]
fn spinning_takes_wall_time_and_charges_the_same() {
    let profile = MediaProfile::builtin("optane").expect("built in");
    let model = Model::new(profile, TimeMode::Spinning, &Topology::of_machine(), &[0]);
    let memory = Memory::anonymous_with(&[MIB], Domain::Dax, Some(model.clone())).expect("memory");
    let start = std::time::Instant::now();
    for block in 0..1000 {
        memory.read(PmAddr::new(0, block * 7 % 1000 * 1024), &mut [0; 256]);
    }
    assert!(start.elapsed().as_nanos() >= 1000 * 241);
    assert_eq!(model.thread_ns(), 1000 * 241);
    assert_eq!(memory.medium().map(|medium| medium.label()).as_deref(), Some("optane, spinning"));
}

#[test]
fn simulated_threads_share_the_ceiling_and_repeat_bit_for_bit() {
    let run = || {
        let (model, memory) = optane(&[0]);
        let mut random: [u64; 16] = std::array::from_fn(|thread| (thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let runs = model.simulate(&[0; 16], 200_000, |thread| {
            random[thread] =
                random[thread].wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = (random[thread] >> 33) % (16 * MIB / 256);
            memory.read(PmAddr::new(0, block * 256), &mut [0; 256]);
        });
        (runs, model.counts())
    };
    let (runs, counts) = run();
    let bytes_per_ns: f64 = runs.iter().map(|run| run.steps as f64 * 256.0 / run.elapsed_ns as f64).sum();
    assert!((6.3..=7.0 * 1.1).contains(&bytes_per_ns), "{bytes_per_ns} GB/s");
    assert_eq!(run(), (runs, counts));
}
