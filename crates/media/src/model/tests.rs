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
    let memory = Memory::anonymous_with(&lens, Domain::DaxEmulated, Some(model.clone())).expect("memory");
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
    let memory = Memory::anonymous_with(&[MIB], Domain::DaxEmulated, Some(model.clone())).expect("memory");
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

/// Blocks in an order that never takes neighbours in sequence and repeats none.
fn scattered(index: u64) -> u64 {
    (index * 40_503) % (16 * MIB / 256) * 256
}

#[test]
fn amplification_at_256_bytes_is_four_at_random_and_one_in_sequence() {
    let write = |place: fn(u64) -> u64| {
        let (model, memory) = optane(&[0]);
        for index in 0..4096 {
            memory.stream(PmAddr::new(0, place(index)), &[1; 64]);
            memory.fence();
        }
        model.drain();
        let counts = model.counts();
        (counts.write_amplification(256), counts.blocks_modified, counts.write_buffer_hits)
    };
    assert_eq!(write(scattered), (4.0, 4096, 0));
    assert_eq!(write(|index| index * 64), (1.0, 0, 3 * 1024));
    let read = |place: fn(u64) -> u64| {
        let (model, memory) = optane(&[0]);
        for index in 0..4096 {
            memory.read(PmAddr::new(0, place(index)), &mut [0; 64]);
        }
        (model.counts().read_amplification(256), model.counts().read_buffer_hits)
    };
    assert_eq!(read(scattered), (4.0, 0));
    assert_eq!(read(|index| index * 64), (1.0, 3 * 1024));
}

#[test]
fn where_a_flush_does_nothing_dirty_lines_reach_the_medium_when_they_are_evicted() {
    for domain in [Domain::Eadr, Domain::Process] {
        let profile = MediaProfile::builtin("optane").expect("built in");
        let lines = profile.cpu_cache.bytes / 64;
        let model = Model::new(profile, TimeMode::Virtual, &Topology::of_machine(), &[0]);
        let memory = Memory::anonymous_with(&[16 * MIB], domain, Some(model.clone())).expect("memory");
        for line in 0..lines {
            memory.store(PmAddr::new(0, line * 64), 1);
            memory.persist(PmAddr::new(0, line * 64), 8);
        }
        assert_eq!((model.counts().sent_lines, model.counts().evicted_lines), (0, 0), "{domain}: all fit");
        for line in lines..2 * lines {
            memory.store(PmAddr::new(0, line * 64), 1);
        }
        assert_eq!(model.counts().evicted_lines, lines, "{domain}");
    }
}

#[test]
fn a_stream_evicts_its_lines_and_a_flush_keeps_them() {
    let (model, memory) = optane(&[0]);
    let at = PmAddr::new(0, MIB);
    memory.store(at, 1);
    memory.persist(at, 8);
    assert_eq!(cost(&model, || assert_eq!(memory.load(at), 1)), 0);
    memory.stream(at, &[2; 64]);
    memory.fence();
    let reload = cost(&model, || assert_eq!(memory.load(at), 0x0202_0202_0202_0202));
    assert_eq!(reload, 66, "its block waits in the medium's write buffer");
}

#[test]
fn writes_between_two_fences_are_paid_together() {
    let (model, memory) = optane(&[0]);
    let epoch = |lines: u64| {
        cost(&model, || {
            let piece = |line| (PmAddr::new(0, 4 * MIB + lines * 8192 + line * 128), [1; 64].as_slice());
            memory.stream_each(&(0..lines).map(piece).collect::<Vec<_>>());
            memory.fence();
        })
    };
    // 1, 2 and 4 lines: 64, 128 and 256 bytes of Table 5.
    assert_eq!([1, 2, 4].map(epoch), [190, 203, 218]);
    assert_eq!(cost(&model, || memory.fence()), 0, "nothing is under way");
}

#[test]
fn eight_streamed_bytes_cost_more_than_a_line() {
    let (model, memory) = optane(&[0]);
    let small = |offset: u64, count: u64| {
        cost(&model, || {
            for index in 0..count {
                model.stream(PmAddr::new(0, offset + index * 4096), 8);
            }
            memory.fence();
        })
    };
    assert_eq!((small(MIB, 1), small(2 * MIB, 3)), (658, 3 * 658));
}

#[test]
fn a_lone_thread_is_not_in_its_own_way_and_others_are() {
    let (model, memory) = optane(&[0]);
    let read = |block: u64| memory.read(PmAddr::new(0, scattered(block)), &mut [0; 256]);
    let write = |block: u64| {
        memory.stream(PmAddr::new(0, scattered(block)), &[1; 256]);
        memory.fence();
    };
    write(1);
    assert_eq!(cost(&model, || read(2)), 241, "its own write does not count as another's");
    // One other writer leaves min + (1 - min) / 2 = 0.75 of a reader's speed. One other reader adds 7 %.
    let now = model.thread_ns();
    model.as_thread(SimulatedThread(1), 0, || {
        model.wait_until_ns(now);
        write(3);
    });
    assert_eq!(cost(&model, || read(4)), 321, "241 / 0.75");
    let now = model.thread_ns();
    model.as_thread(SimulatedThread(2), 0, || {
        model.wait_until_ns(now + 5000);
        read(5);
    });
    model.wait_until_ns(now + 5000);
    assert_eq!(cost(&model, || read(6)), 257, "241 x 1.07; the writer is done for long");
}

#[test]
fn real_threads_in_virtual_time_count_exactly_and_never_pay_less_than_alone() {
    let (model, memory) = optane(&[0]);
    let clocks: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| {
                let (model, memory) = (&model, &memory);
                scope.spawn(move || {
                    cost(model, || {
                        for index in 0..500 {
                            memory.read(PmAddr::new(0, scattered(index * 4 + thread)), &mut [0; 256]);
                        }
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it only reads")).collect()
    });
    assert_eq!(model.counts().blocks_read, 2000);
    // Both are rounded down to ns, a clock at its start and at its end.
    let sum = clocks.iter().sum::<u64>();
    assert!(model.counts().charged_ns.abs_diff(sum) <= clocks.len() as u64, "{} {sum}", model.counts().charged_ns);
    assert!(clocks.iter().all(|clock| *clock >= 500 * 241), "{clocks:?}");
    // Their threads have ended. A new thread reuses one of their slots, and the sum stays.
    let after = model.counts();
    std::thread::scope(|scope| scope.spawn(|| model.thread_ns()).join().expect("it only looks"));
    assert_eq!(model.counts(), after);
}

#[test]
fn labels_and_media_counts_are_json() {
    let (model, _memory) = optane(&[0]);
    assert_eq!(model.label(), "optane, virtual time");
    let text = serde_json::to_string(&model.counts()).expect("plain data");
    assert!(text.contains("\"blocks_read\":0") && text.contains("\"charged_ns\":0"), "{text}");
}
