//! Nodes on the command line: the topology, pools over several nodes, the agents' benchmark, and invalid arguments.

use crate::common::Place;

#[test]
fn the_topology_shows_every_node_and_what_asking_costs() {
    let place = Place::new();
    let lines = place.json(["topology", "--virtual-nodes", "4"]);
    assert_eq!(lines.len(), 5, "four nodes and the cost");
    for (index, line) in lines[..4].iter().enumerate() {
        assert_eq!((line["node"].as_u64(), line["is_virtual"].as_bool()), (Some(index as u64), Some(true)));
        assert_eq!(line["distances"][index], 10);
    }
    assert!(lines[4]["pinned_ns"].as_f64().is_some() && lines[4]["unpinned_ns"].as_f64().is_some());
    place.run(["topology", "--virtual-nodes", "99"]).fails_with(&["99 nodes", "use 1 to 16"]);
}

#[test]
fn a_pool_with_a_part_per_node_shows_its_nodes() {
    let place = Place::new();
    let create = ["pool", "create", "a.pool", "--size", "4MiB", "--journal", "1MiB"];
    place.run(create.into_iter().chain(["--parts-per-node", "--virtual-nodes", "3"])).ok();
    assert!(place.path("a.pool.2").exists());
    let info = place.json(["pool", "info", "a.pool", "--virtual-nodes", "3"]);
    let parts = info[0]["parts"].as_array().expect("parts");
    let nodes: Vec<_> = parts.iter().map(|part| (part["node"].as_u64(), part["node_origin"].as_str())).collect();
    assert_eq!(nodes, [(Some(0), Some("virtual")), (Some(1), Some("virtual")), (Some(2), Some("virtual"))]);
    // Parts that were moved are named. Data is found wherever it was placed.
    place.run(["kv", "put", "a.pool", "key", "value", "--virtual-nodes", "3"]).ok();
    std::fs::rename(place.path("a.pool.1"), place.path("moved")).expect("rename");
    place.run(["kv", "get", "a.pool", "key"]).fails_with(&["part 1 of the pool", "is missing", "a.pool.1"]);
    let found = place.run(["kv", "get", "a.pool", "key", "--part", "moved", "--part", "a.pool.2"]).ok();
    assert!(found.contains("value"), "{found}");
    place.run(["pool", "info", "a.pool", "--part", "a.pool.2", "--part", "moved"]).fails_with(&["wrong order"]);
    place
        .run(["pool", "info", "a.pool", "--node", "0", "--part", "moved", "--part", "a.pool.2"])
        .fails_with(&["1 nodes for 3 parts"]);
    let create = ["pool", "create", "b.pool", "--part", "b.1", "--node", "0", "--node", "4711"];
    place.run(create).fails_with(&["no node 4711", "lodestone topology"]);
    assert!(!place.path("b.pool").exists() && !place.path("b.1").exists());
}

#[test]
fn the_agents_benchmark_prints_prediction_and_measurement_side_by_side() {
    let place = Place::new();
    let small = ["bench", "agents", "--operations", "40", "--bytes", "64,256"];
    let simulated = place.json(small.into_iter().chain(["--no-real-time"]));
    let again = place.json(small.into_iter().chain(["--no-real-time"]));
    assert_eq!(simulated, again, "virtual time is the same in every run");
    assert_eq!(simulated.len(), 8 + 3 + 8);
    assert!(simulated.iter().all(|line| line["media"] == "emulated: optane"));
    let transaction = |name: &str| simulated.iter().find(|line| line["workload"] == name).expect("a transaction");
    let percent = |line: &serde_json::Value| (100.0 * line["paper"][2].as_f64().expect("a change")).trunc();
    assert_eq!((percent(transaction("pure_write")), percent(transaction("pure_read"))), (-32.0, -78.0));
    assert!(transaction("pure_read")["virtual_time"][2].as_f64().expect("a change") < -0.5);
    let real = place.json(small.into_iter().chain(["--virtual-nodes", "3"]));
    assert!(real.iter().all(|line| line.get("real_ns").is_none_or(|ns| ns.as_f64().is_some_and(|ns| ns > 0.0))));
    assert!(real.iter().all(|line| line["measured"].as_array().is_some_and(|names| names.len() == 3)), "{real:?}");
    let text = place.run(small.into_iter().chain(["--no-real-time", "-q"])).ok();
    let labels = text.lines().find(|line| line.contains("input")).expect("labels under the columns");
    for label in ["input", "predicted", "measured"] {
        assert!(labels.contains(label), "{label}: {labels}");
    }
    place.run(["bench", "agents", "--virtual-nodes", "1"]).fails_with(&["2 to 16"]);
    place.run(["bench", "agents", "--profile", "flux"]).fails_with(&["flux", "optane"]);
}
