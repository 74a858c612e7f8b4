//! Agents and clients together, on real threads. Written data is there, in order, and counted exactly. Every failure is
//! an error and never an endless wait.

#![cfg(not(feature = "shuttle"))]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lodestone_numa::{Access, AgentOptions, AgentState, Agents, Client, Error, Operation, Persist};
use lodestone_pmem::{CounterScope, DomainChoice, Memory, PmAddr, Pool, PoolOptions, Topology};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn pool_options(folder: &Path, nodes: usize) -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 512 << 10,
        journal_bytes: 0,
        reserve_bytes: 1 << 30,
        parts: (1..nodes).map(|part| folder.join(format!("a.pool.{part}"))).collect(),
        virtual_nodes: nodes,
        ..PoolOptions::default()
    }
}

/// A pool with one part on each of `nodes` virtual nodes.
fn pool(folder: &Path, nodes: usize) -> Pool {
    Pool::create(folder.join("a.pool"), &pool_options(folder, nodes)).expect("a fresh pool")
}

fn at(pool: &Pool, part: u16, offset: u64) -> PmAddr {
    pool.heap_area(part).0.plus(offset)
}

/// A client that always asks the agent.
fn by_agent(agents: &Agents, node: usize) -> Client {
    let mut client = agents.client_on(node).expect("a node");
    client.set_access(Access::Agent);
    client
}

/// An observer that holds the agent at its first request until the test releases it.
#[derive(Default)]
struct Gate {
    open: AtomicBool,
    waiting: AtomicBool,
}

impl Gate {
    fn options(self: &Arc<Self>) -> AgentOptions {
        let gate = self.clone();
        let mut options = AgentOptions::default();
        options.observer = Some(Arc::new(move |_| {
            gate.waiting.store(true, Ordering::SeqCst);
            while !gate.open.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }));
        options
    }

    fn wait_until_held(&self) {
        while !self.waiting.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

#[test]
fn what_goes_through_agents_of_four_nodes_comes_back() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 4);
    let agents = Agents::for_pool(&pool, AgentOptions::default())?;
    let pattern: Vec<u8> = (0..40_000_u32).map(|i| (i * 13 + i / 251) as u8).collect();
    let lengths = [0, 1, 8, 191, 192, 193, 256, 511, 512, 4096, 8191, 8192, 8193, 30_001];
    for (turn, access) in [Access::Agent, Access::Direct, Access::Auto].into_iter().enumerate() {
        let mut client = agents.client_on(turn)?;
        client.set_access(access);
        for part in 0..4 {
            for (index, len) in lengths.into_iter().enumerate() {
                let bytes = &pattern[index..index + len];
                let place = at(&pool, part, 64 * index as u64);
                client.write(
                    place,
                    bytes,
                    [Persist::Stored, Persist::Flushed, Persist::Fenced, Persist::Durable][index % 4],
                )?;
                let (mut back, mut seen) = (vec![0; len], vec![0; len]);
                client.read(place, &mut back)?;
                pool.memory().read(place, &mut seen);
                assert!(back == bytes && seen == bytes, "{len} bytes in part {part}, {access:?}");
            }
        }
        client.fence(Persist::Durable)?;
        let counts = client.counts();
        let all = 4 * 2 * lengths.len() as u64;
        match access {
            Access::Direct => assert_eq!((counts.messages, counts.direct_remote), (0, counts.direct * 3 / 4)),
            // The quarter on the own node is direct. Long accesses take several messages, empty ones none.
            _ => assert!(counts.messages >= all / 2 && counts.direct_remote == 0, "{counts:?}"),
        }
    }
    let report = agents.report();
    assert!(report.iter().all(|node| node.state == AgentState::Running && node.parts == [node.node as u16]));
    let counts = agents.shutdown()?;
    assert!(counts.reads == counts.writes && counts.messages >= counts.reads + counts.writes, "{counts:?}");
    assert_eq!(counts.bytes_read, counts.bytes_written);
    Ok(())
}

#[test]
fn one_fence_serves_all_writes_of_a_turn_and_none_is_answered_before_it() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 2);
    let gate = Arc::new(Gate::default());
    let agents = Agents::for_pool(&pool, gate.options())?;
    let mut client = by_agent(&agents, 0);
    let tickets: Vec<_> = (0..10)
        .map(|index| client.submit_write(at(&pool, 1, 64 * index), &[index as u8; 64], Persist::Fenced))
        .collect::<Result<_, _>>()?;
    gate.wait_until_held();
    assert!(tickets.iter().all(|ticket| !client.is_done(ticket)));
    gate.open();
    tickets.into_iter().try_for_each(|ticket| client.wait(ticket))?;
    drop(client);
    let counts = agents.shutdown()?;
    assert_eq!((counts.messages, counts.writes, counts.bytes_written), (10, 10, 640));
    // The agent may have seen the first few requests before the others arrived.
    assert!(counts.fences == counts.batches && counts.fences <= 2, "{counts:?}");
    Ok(())
}

#[test]
fn vectors_cost_one_fence_per_node() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 3);
    let agents = Agents::for_pool(&pool, AgentOptions::default())?;
    let mut client = by_agent(&agents, 0);
    let data: Vec<Vec<u8>> = (0..12_u8).map(|index| vec![index; 100]).collect();
    let places: Vec<PmAddr> = (0..12).map(|index| at(&pool, index % 3, 128 * u64::from(index))).collect();
    let ranges: Vec<(PmAddr, &[u8])> = places.iter().copied().zip(data.iter().map(Vec::as_slice)).collect();
    let scope = CounterScope::start();
    client.write_many(&ranges, Persist::Fenced)?;
    assert_eq!(scope.delta().fences, 1, "the client's own part takes the client's own fence");
    let mut back = vec![vec![0; 100]; 12];
    let mut wanted: Vec<(PmAddr, &mut [u8])> =
        places.iter().copied().zip(back.iter_mut().map(Vec::as_mut_slice)).collect();
    client.read_many(&mut wanted)?;
    assert_eq!(back, data);
    let fences: Vec<u64> = agents.report().iter().map(|node| node.counts.fences).collect();
    assert_eq!(fences, [0, 1, 1]);
    Ok(())
}

#[test]
fn a_fence_reaches_every_agent_that_owes_one_and_no_other() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 2);
    let agents = Agents::for_pool(&pool, AgentOptions::default())?;
    let mut client = by_agent(&agents, 0);
    let fenced = |client: &mut Client, persist| -> Result<u64, Error> {
        let before = client.counts().messages;
        client.fence(persist)?;
        Ok(client.counts().messages - before)
    };
    assert_eq!(fenced(&mut client, Persist::Durable)?, 0, "nothing was written");
    client.write(at(&pool, 1, 0), &[1; 64], Persist::Flushed)?;
    // A write that asks for a fence and is refused causes no fence.
    assert!(client.write(PmAddr::new(1, u64::from(u32::MAX)), &[1; 64], Persist::Durable).is_err());
    assert_eq!(fenced(&mut client, Persist::Fenced)?, 1);
    assert_eq!(fenced(&mut client, Persist::Fenced)?, 0, "it is fenced");
    assert_eq!(fenced(&mut client, Persist::Durable)?, 1, "but it was not durable");
    client.write(at(&pool, 1, 0), &[2; 64], Persist::Flushed)?;
    client.write(at(&pool, 1, 64), &[2; 64], Persist::Durable)?;
    assert_eq!(fenced(&mut client, Persist::Durable)?, 0, "the second write covers the first");
    Ok(())
}

#[test]
fn requests_of_one_client_are_carried_out_in_order_by_each_agent() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 3);
    let seen: Arc<Mutex<Vec<(usize, u64)>>> = Arc::default();
    let mut options = AgentOptions::default();
    let notes = seen.clone();
    options.observer = Some(Arc::new(move |request| {
        if request.operation != Operation::Read {
            notes.lock().expect("no panic").push((request.node, request.at.offset()));
        }
    }));
    let agents = Agents::for_pool(&pool, options)?;
    let mut client = by_agent(&agents, 0);
    let mut tickets = Vec::new();
    for index in 0..200_u64 {
        let place = at(&pool, 1 + (index % 2) as u16, 8 * index);
        tickets.push(client.submit_write(place, &index.to_le_bytes(), Persist::Stored)?);
        // A read after a write of the same word sees it, whatever guarantee was acknowledged.
        let read = client.submit_read(place, 8)?;
        let mut word = [0; 8];
        client.wait_read(read, &mut word)?;
        assert_eq!(u64::from_le_bytes(word), index);
    }
    tickets.into_iter().try_for_each(|ticket| client.wait(ticket))?;
    drop(agents);
    let seen = seen.lock().expect("no panic");
    for node in [1, 2] {
        let order: Vec<u64> = seen.iter().filter(|(at, _)| *at == node).map(|(_, offset)| *offset).collect();
        assert!(order.len() == 100 && order.is_sorted(), "node {node}");
    }
    Ok(())
}

#[test]
fn a_full_ring_makes_the_client_wait_and_tickets_may_be_taken_in_any_order() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 2);
    let mut options = AgentOptions::default();
    options.ring_slots = 2;
    let agents = Agents::for_pool(&pool, options)?;
    let mut client = by_agent(&agents, 0);
    for index in 0..100_u64 {
        client.write(at(&pool, 1, 8 * index), &(index * 3).to_le_bytes(), Persist::Stored)?;
    }
    let mut tickets: Vec<_> =
        (0..100).map(|index| client.submit_read(at(&pool, 1, 8 * index), 8)).collect::<Result<_, _>>()?;
    for index in (0..100_u64).rev() {
        let mut word = [0; 8];
        client.wait_read(tickets.pop().expect("a ticket"), &mut word)?;
        assert_eq!(u64::from_le_bytes(word), index * 3);
    }
    Ok(())
}

#[test]
fn many_clients_lose_nothing() -> Outcome {
    const CLIENTS: u64 = 6;
    const WRITES: u64 = 300;
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 2);
    let agents = Agents::for_pool(&pool, AgentOptions::default())?;
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (agents, pool) = (&agents, &pool);
            scope.spawn(move || {
                let mut client = by_agent(agents, (number % 2) as usize);
                for index in 0..WRITES {
                    let place = at(pool, ((number + index) % 2) as u16, 8 * (number * WRITES + index));
                    let persist = if index % 7 == 0 { Persist::Durable } else { Persist::Flushed };
                    client.write(place, &(number << 32 | index).to_le_bytes(), persist).expect("a write");
                }
                client.fence(Persist::Fenced).expect("a fence");
            });
        }
    });
    let counts = agents.shutdown()?;
    assert_eq!(counts.writes, CLIENTS * WRITES / 2, "the other half is on the clients' own nodes");
    for (number, index) in (0..CLIENTS).flat_map(|number| (0..WRITES).map(move |index| (number, index))) {
        let place = at(&pool, ((number + index) % 2) as u16, 8 * (number * WRITES + index));
        assert_eq!(pool.memory().load(place), number << 32 | index);
    }
    Ok(())
}

#[test]
fn a_message_takes_no_shared_read_modify_write_while_nobody_sleeps() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 2);
    let mut options = AgentOptions::default();
    options.spins_max = Some(u32::MAX);
    let agents = Agents::for_pool(&pool, options)?;
    let mut client = by_agent(&agents, 0);
    client.write(at(&pool, 1, 0), &[1; 64], Persist::Fenced)?;
    let scope = CounterScope::start();
    for index in 0..50 {
        client.write(at(&pool, 1, 64 * index), &[7; 64], Persist::Fenced)?;
        client.read(at(&pool, 1, 64 * index), &mut [0; 64])?;
    }
    let delta = scope.delta();
    assert_eq!(
        (delta.shared_rmws, delta.flushes, delta.fences),
        (0, 0, 0),
        "the agent flushes and fences, not the client"
    );
    assert_eq!((client.counts().parks, client.counts().wakes), (0, 0));
    drop(client);
    assert_eq!(agents.shutdown()?.parks, 0);
    Ok(())
}

#[test]
fn a_dead_agent_is_an_error_to_everybody_and_no_wait_without_end() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 2);
    for spins_max in [0, 1_000_000] {
        let requests = Arc::new(AtomicUsize::new(0));
        let mut options = AgentOptions::default();
        options.spins_max = Some(spins_max);
        let count = requests.clone();
        options.observer = Some(Arc::new(move |_| {
            assert!(count.fetch_add(1, Ordering::SeqCst) < 20, "planted: the agent dies at its 21st request");
        }));
        let agents = Agents::for_pool(&pool, options)?;
        let died = thread::scope(|scope| {
            let clients: Vec<_> = (0..3)
                .map(|number| {
                    let (agents, pool) = (&agents, &pool);
                    scope.spawn(move || {
                        let mut client = by_agent(agents, 0);
                        let failed = |client: &mut Client| {
                            client.write(at(pool, 1, 64 * number), &[1; 64], Persist::Fenced).err()
                        };
                        let first = (0..1000).find_map(|_| failed(&mut client)).expect("it dies");
                        let again = failed(&mut client).expect("it stays dead");
                        client.set_access(Access::Direct);
                        assert!(failed(&mut client).is_none(), "the memory is still there");
                        (first.to_string(), again.to_string())
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("no panic")).collect::<Vec<_>>()
        });
        for (first, again) in died {
            assert!(first.contains("agent of node 1 died") && first.contains("may or may not"), "{first}");
            assert!(again.contains("agent of node 1 died"), "{again}");
        }
        assert!(matches!(agents.report()[1].state, AgentState::Died { .. }));
        assert!(matches!(agents.shutdown(), Err(Error::AgentDied { node: 1, .. })));
    }
    Ok(())
}

#[test]
fn shutdown_carries_out_what_was_submitted_and_refuses_what_comes_later() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 2);
    let gate = Arc::new(Gate::default());
    let agents = Agents::for_pool(&pool, gate.options())?;
    let mut client = by_agent(&agents, 0);
    let mut unused = by_agent(&agents, 0);
    let tickets: Vec<_> = (0..30_u64)
        .map(|index| client.submit_write(at(&pool, 1, 8 * index), &(index + 1).to_le_bytes(), Persist::Durable))
        .collect::<Result<_, _>>()?;
    gate.wait_until_held();
    gate.open();
    assert_eq!(agents.shutdown()?.messages, 30);
    tickets.into_iter().try_for_each(|ticket| client.wait(ticket))?;
    assert!((0..30).all(|index| pool.memory().load(at(&pool, 1, 8 * index)) == index + 1));
    for client in [&mut client, &mut unused] {
        let error = client.write(at(&pool, 1, 0), &[0; 8], Persist::Stored).expect_err("no agents any more");
        assert!(matches!(error, Error::Stopped { node: 1 }), "{error}");
    }
    Ok(())
}

#[test]
fn what_is_no_place_in_the_memory_is_refused_and_hurts_nobody() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path(), 2);
    let agents = Agents::for_pool(&pool, AgentOptions::default())?;
    let end = pool.memory().part_len(1);
    for node in [0, 1] {
        let mut client = by_agent(&agents, node);
        for (place, expected) in [
            (PmAddr::new(1, end - 8), "does not lie inside"),
            (PmAddr::new(1, end + 4096), "does not lie inside"),
            (PmAddr::new(1, 12), "multiple of 8"),
            (PmAddr::new(9, 64), "does not lie inside"),
        ] {
            let text = client.read(place, &mut [0; 16]).expect_err("no place").to_string();
            assert!(text.contains(expected) && text.contains("16 bytes"), "{text}");
            assert!(client.write(place, &[0; 16], Persist::Durable).is_err());
        }
        client.write(at(&pool, 1, 0), &[1; 16], Persist::Fenced)?;
        assert!(client.submit_read(at(&pool, 1, 0), 8193).is_err());
    }
    drop(agents);
    drop(pool);
    let pool = Pool::open_read_only(folder.path().join("a.pool"), &pool_options(folder.path(), 2))?;
    let agents = Agents::for_pool(&pool, AgentOptions::default())?;
    let mut client = by_agent(&agents, 0);
    for part in [0, 1] {
        client.read(at(&pool, part, 0), &mut [0; 16])?;
        let error = client.write(at(&pool, part, 0), &[0; 8], Persist::Fenced).expect_err("read-only");
        assert!(matches!(error, Error::ReadOnly), "{error}");
    }
    Ok(())
}

#[test]
fn nodes_without_usable_processors_have_no_agent_and_say_why() -> Outcome {
    let folder = tempfile::tempdir()?;
    let nodes = folder.path().join("devices/system/node");
    for (id, cpus) in [(0, "0\n"), (1, "\n"), (2, "1\n")] {
        std::fs::create_dir_all(nodes.join(format!("node{id}")))?;
        std::fs::write(nodes.join(format!("node{id}/cpulist")), cpus)?;
    }
    std::fs::write(nodes.join("online"), "0-2")?;
    // Node 1 has memory only; the processor of node 2 is closed to this process.
    let topology = Topology::read(folder.path()).restricted_to(&[0]);
    let memory = Memory::anonymous(1 << 16)?;
    for (node, reason) in [(1, "node 1 has no processors"), (2, "may use none of them")] {
        let agents = Agents::start(&memory, &topology, &[Some(node)], AgentOptions::default())?;
        let AgentState::None { reason: told } = agents.report()[node].state.clone() else { panic!("an agent") };
        assert!(told.contains(reason), "{told}");
        let mut client = agents.client_on(0)?;
        client.write(PmAddr::new(0, 64), &[5; 64], Persist::Fenced)?;
        assert_eq!(client.counts().direct_remote, 1, "the client goes itself");
        client.set_access(Access::Agent);
        let text = client.read(PmAddr::new(0, 64), &mut [0; 8]).expect_err("no agent").to_string();
        assert!(text.contains(reason) && text.contains("Access::Auto"), "{text}");
    }
    let refused = |nodes: &[Option<usize>]| {
        Agents::start(&memory, &topology, nodes, AgentOptions::default()).expect_err("refused").to_string()
    };
    assert!(refused(&[Some(7)]).contains("node 7 of 3"));
    assert!(refused(&[]).contains("0 nodes for 1 parts"));
    let mut options = AgentOptions::default();
    options.ring_slots = 0;
    assert!(Agents::start(&memory, &topology, &[Some(0)], options).is_err());
    // A part of unknown node has no agent: clients access it directly.
    let agents = Agents::start(&memory, &topology, &[None], AgentOptions::default())?;
    let mut client = by_agent(&agents, 0);
    client.read(PmAddr::new(0, 64), &mut [0; 8])?;
    assert!(agents.client_on(3).is_err());
    Ok(())
}

#[test]
fn one_processor_is_enough() -> Outcome {
    let machine = Topology::of_machine();
    let only = machine.nodes()[0].usable_cpus[0];
    let topology = machine.restricted_to(&[only]).with_virtual_nodes(2)?;
    let memory = Memory::anonymous(1 << 16)?;
    let agents = Agents::start(&memory, &topology, &[Some(1)], AgentOptions::default())?;
    thread::scope(|scope| {
        scope.spawn(|| {
            topology.pin_thread(0).expect("the one processor");
            let mut client = agents.client().expect("a client");
            assert_eq!(client.node(), 0);
            client.set_access(Access::Agent);
            for index in 0..200 {
                client.write(PmAddr::new(0, 8 * index), &index.to_le_bytes(), Persist::Durable).expect("a write");
            }
        });
    });
    assert_eq!(agents.shutdown()?.writes, 200);
    Ok(())
}

#[test]
fn what_an_agent_made_durable_is_there_in_the_next_life() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut options = pool_options(folder.path(), 2);
    (options.domain, options.journal_bytes) = (DomainChoice::Block, 1 << 20);
    options.size_bytes += options.journal_bytes;
    let pool = Pool::create(folder.path().join("a.pool"), &options)?;
    let agents = Agents::for_pool(&pool, AgentOptions::default())?;
    let mut client = by_agent(&agents, 0);
    for index in 0..20 {
        client.write(at(&pool, 1, 64 * index), &[index as u8 + 1; 64], Persist::Durable)?;
    }
    assert!(agents.shutdown()?.durables >= 1);
    // The files now, without an orderly close.
    let copy = folder.path().join("copy");
    std::fs::create_dir(&copy)?;
    for name in ["a.pool", "a.pool.1"] {
        std::fs::copy(folder.path().join(name), copy.join(name))?;
    }
    options.parts = Vec::new();
    let again = Pool::open(copy.join("a.pool"), &options)?;
    assert!(
        (0..20).all(|index| again.memory().load(at(&again, 1, 64 * index)) == u64::from_le_bytes([index as u8 + 1; 8]))
    );
    Ok(())
}

/// Bytes that an agent answered for are in memory for every thread that reads them there. This holds even if they went
/// around the caches of the agent's processor.
#[test]
fn what_an_agent_answered_is_seen_by_who_reads_the_memory() -> Outcome {
    const LOOKS: u64 = 500_000;
    const TIME_MAX: Duration = Duration::from_secs(10);
    for persist in [Persist::Flushed, Persist::Fenced] {
        let memory = Memory::anonymous(1 << 20)?;
        let topology = Topology::of_machine().with_virtual_nodes(2)?;
        let agents = Agents::start(&memory, &topology, &[Some(0)], AgentOptions::default())?;
        let mut client = by_agent(&agents, 1);
        topology.pin_thread(1)?;
        let started = Instant::now();
        let (mut looks, mut stale) = (0_u64, 0);
        while looks < LOOKS && started.elapsed() < TIME_MAX {
            looks += 1;
            // Few places, so that this thread has the old bytes in its cache.
            let at = PmAddr::new(0, looks % 64 * 512);
            client.write(at, &looks.to_le_bytes().repeat(8), persist)?;
            stale += u64::from(memory.load(at.plus(56)) < looks);
        }
        assert_eq!(stale, 0, "so many of {looks} answers came before their bytes were visible, {persist:?}");
        drop(client);
        agents.shutdown()?;
    }
    Ok(())
}
