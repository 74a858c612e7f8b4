//! Kill tests of real processes on real files, in a modest number. `lodestone torture kill --kills 1000` does the full
//! one. A check of the checker too: a report that claims too much must be detected.

use crate::common::Place;

fn kill(domain: &str, threads: &str) {
    let place = Place::new();
    let objects =
        place.json(["torture", "kill", "--kills", "25", "--domain", domain, "--threads", threads, "--seed", "20"]);
    let [summary] = &objects[..] else { panic!("one summary: {objects:?}") };
    assert_eq!((&summary["kills"], &summary["domain"]), (&25.into(), &domain.into()), "{summary}");
    assert_eq!((&summary["lost"], &summary["torn"], &summary["other"]), (&0.into(), &0.into(), &0.into()), "{summary}");
    assert!(summary["acked"].as_u64() > Some(0), "the kills hit a load: {summary}");
}

#[test]
fn no_acknowledged_write_is_lost_to_a_kill_in_the_process_domain() {
    kill("process", "2");
}

#[test]
fn no_acknowledged_write_is_lost_to_a_kill_in_the_block_domain() {
    kill("block", "3");
}

#[test]
fn a_report_that_claims_too_much_is_found_out() {
    let place = Place::new();
    let report = place.run(["torture", "writer", "t.pool", "--seed", "4", "--ops", "100", "--domain", "block"]).ok();
    place.write("true", &report);
    place.run(["torture", "verify", "t.pool", "true"]).ok();
    // A write that was never made.
    place.write("more", format!("{report}start put 3 999999999999999\nack put 3 999999999999999\n"));
    assert!(place.run(["torture", "verify", "t.pool", "more"]).finding().stderr.contains("999999999999999"));
    // A missing acknowledgement is no promise. A write without a start comes from nowhere.
    let last = report.lines().rfind(|line| line.starts_with("ack put")).expect("a put");
    let without: String = report.lines().filter(|line| *line != last).map(|line| format!("{line}\n")).collect();
    place.write("without-ack", &without);
    place.run(["torture", "verify", "t.pool", "without-ack"]).ok();
    let start = last.replace("ack", "start");
    place.write("unstarted", without.replace(&format!("{start}\n"), ""));
    place.run(["torture", "verify", "t.pool", "unstarted"]).finding();
    // The writer goes on after the versions that it finds, and reports those.
    let further = place.run(["torture", "writer", "t.pool", "--seed", "5", "--ops", "50", "--domain", "block"]).ok();
    assert!(further.starts_with("have "));
    place.write("further", further);
    place.run(["torture", "verify", "t.pool", "further"]).ok();
}

#[test]
fn a_database_keeps_its_conditions_and_promises_when_it_is_killed() {
    let place = Place::new();
    let places = ["--domain", "dax-emulated", "--parts", "2", "--virtual-nodes", "2"];
    let kills = ["torture", "tpcc", "--kills", "4", "--lives", "2", "--load-ms-max", "60", "--seed", "7"];
    let objects = place.json(kills.into_iter().chain(places));
    let [summary] = &objects[..] else { panic!("one summary: {objects:?}") };
    assert_eq!((&summary["kills"], &summary["parts"]), (&4.into(), &2.into()), "{summary}");
    assert!(summary["acked"].as_u64() > Some(0), "the kills hit a load: {summary}");
    // A worker that has no tables, and a report that claims too much.
    let worker = ["torture", "tpcc-worker", "t.pool", "--domain", "dax-emulated"];
    place.run(worker).fails_with(&["t.pool", "--load"]);
    let verify = ["torture", "tpcc-verify", "t.pool", "report", "--domain", "dax-emulated"];
    place.write("report", "ack 0 1\nack 99 1\n");
    place.run(verify).fails_with(&["report, line 2", "`ack 99 1` is no receipt"]);
    place.run(["pool", "create", "t.pool", "--size", "64MiB", "--domain", "dax-emulated"]).ok();
    place.write("report", "ack 7 4711\n");
    assert!(place.run(verify).finding().stderr.contains("acknowledged and lost: row 0x1267"));
}
