//! The harnesses hold on this machine: a few kills of each kind, and a bad network between namespaces.
//!
//! Both judge what was acknowledged. How soon the service is back is printed, and not demanded: that depends on the
//! machine. `cargo xtask fabric kills` demands it.

use std::process::{Command, Output};

fn fabric_node(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_fabric-node")).args(arguments).output().expect("the program runs");
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
#[ignore = "it kills processes for some seconds; `make prove` runs it"]
fn nothing_acknowledged_is_lost_in_kills() {
    for transport in ["udp", "tcp"] {
        let output = fabric_node(&[
            "kills",
            "--rounds",
            "24",
            "--lease-ms",
            "200",
            "--back-ms",
            "600000",
            "--transport",
            transport,
            "--seed",
            "5",
        ]);
        if transport == "udp" && String::from_utf8_lossy(&output.stderr).contains("multicast") {
            println!("no multicast on the loopback interface here");
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "over {transport}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("0 acknowledged lost or wrong"));
    }
}

#[test]
#[ignore = "it loads a network for some seconds; `make prove` runs it"]
fn nothing_acknowledged_is_lost_on_a_bad_network() {
    let output = fabric_node(&["namespaces", "--seconds", "0.6", "--faults", "all,cuts", "--transport", "udp,tcp"]);
    if String::from_utf8_lossy(&output.stderr).contains("may not make network namespaces") {
        println!("skipped: no rights for namespaces");
        return;
    }
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("nothing lost").count(), 4);
}

/// The judge fails where it should: a pool that lost what was acknowledged.
#[test]
fn a_lost_page_is_found() {
    let output = fabric_node(&[
        "kills",
        "--rounds",
        "1",
        "--lease-ms",
        "100",
        "--back-ms",
        "600000",
        "--domains",
        "dax-emulated",
        "--transport",
        "unicast",
        "--spoil",
    ]);
    assert_eq!(output.status.code(), Some(1), "a page that was overwritten must be noticed");
    assert!(String::from_utf8_lossy(&output.stdout).contains("has other bytes"));
}
