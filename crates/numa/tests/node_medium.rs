//! Agents on a machine with nodes. LODESTONE_PM_NODES names a folder on persistent memory of each node, node 0 first.
//! Without it this test cannot check anything, and says so.

#![cfg(not(feature = "shuttle"))]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use lodestone_numa::{Access, AgentOptions, AgentState, Agents, Persist};
use lodestone_pmem::{Domain, Pool, PoolOptions, Topology};

const WRITES: u64 = 40;

#[test]
fn agents_do_the_io_of_their_node_on_processors_of_their_node() -> Result<(), Box<dyn std::error::Error>> {
    let Ok(names) = std::env::var("LODESTONE_PM_NODES") else {
        println!("skipped: LODESTONE_PM_NODES is not set");
        return Ok(());
    };
    let paths: Vec<PathBuf> =
        names.split_whitespace().map(|folder| PathBuf::from(folder).join("agents.pool")).collect();
    let nodes = paths.len();
    let options =
        PoolOptions { size_bytes: 16 << 20, parts: paths[1..].to_vec(), overwrite: true, ..PoolOptions::default() };
    let pool = Pool::create(&paths[0], &options)?;
    let misplaced = Arc::new(AtomicU64::new(0));
    let seen = misplaced.clone();
    // A topology that pins no thread: the test asks the kernel where the agent runs.
    let kernel = Topology::of_machine();
    let mut agent_options = AgentOptions::default();
    agent_options.observer = Some(Arc::new(move |request| {
        seen.fetch_add(u64::from(kernel.node_of_thread() != request.node), Ordering::Relaxed);
    }));
    let agents = Agents::for_pool(&pool, agent_options)?;
    assert!(agents.report().iter().all(|node| node.state == AgentState::Running && node.parts == [node.node as u16]));
    for node in 0..nodes {
        let work = || -> lodestone_numa::Result<()> {
            pool.topology().pin_thread(node)?;
            let mut client = agents.client()?;
            client.set_access(Access::Agent);
            for index in 0..WRITES {
                let part = index % nodes as u64;
                let at = pool.heap_area(part as u16).0.plus(256 * (node as u64 * WRITES + index));
                client.write(at, &[index as u8 + 1; 200], Persist::Durable)?;
                let mut back = [0; 200];
                client.read(at, &mut back)?;
                assert_eq!(back, [index as u8 + 1; 200]);
            }
            assert!(client.counts().direct_remote == 0 && client.counts().messages > 0);
            Ok(())
        };
        thread::scope(|scope| scope.spawn(work).join().expect("no panic"))?;
    }
    let report = agents.report();
    assert!(report.iter().all(|node| node.counts.writes > 0 && node.counts.fences > 0), "{report:?}");
    assert_eq!(misplaced.load(Ordering::Relaxed), 0, "requests carried out on another node");
    assert!(matches!(pool.memory().domain(), Domain::Dax | Domain::Eadr));
    println!("{report:?}");
    Ok(())
}
