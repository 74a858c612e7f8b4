//! `cargo xtask vm rdma`: the fabric over RDMA verbs, on guests whose kernel makes a card of a network interface
//! (`rdma_rxe`, soft-RoCE).
//!
//! Several guests are joined by a network of unix sockets; nothing of it is on this machine's network.
//!
//! 1. The first guest runs the tests of all transports over its card: a sender and three members with a queue each.
//! 2. Then it sends to members in the other guests: one multicast for all of them, until every member has everything.
//!
//! It shows function: the queues, keys, groups and completions of a real kernel. It shows no speed, and no card.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::checks::Checks;
use super::guest::{Guest, Link, Platform};
use super::session::{Session, verify_set_up};
use super::share::{Share, TestPrograms};

/// A test program that mentions this variable has tests for a card.
const PROGRAMS: TestPrograms =
    TestPrograms { packages: &["lodestone-fabric"], only: Some("transports"), variable: b"LODESTONE_RDMA_DEVICE" };

/// Options of `cargo xtask vm rdma`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object per check and line, and nothing else.
    #[arg(long)]
    json: bool,
    /// Guests: a sender, and a member in each of the others.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    guests: u8,
    /// Records that the sender writes to the other guests.
    #[arg(long, default_value_t = 500)]
    records: u64,
    /// Longest time for the boot and the run, in seconds. Slow machines need more.
    #[arg(long, default_value_t = 900)]
    boot_seconds_max: u64,
}

pub(super) fn run(root: &Path, options: &Options) -> Result<bool> {
    let cache = root.join("vm/.cache");
    verify_set_up(&cache)?;
    let share = Share::fill_nodes(root, &cache)?;
    share.copy_test_programs(root, &PROGRAMS)?;
    let guests = usize::from(options.guests);
    let variables = [
        ("MODE", "rdma".to_owned()),
        ("EXPECTED", "-".to_owned()),
        ("GUESTS", guests.to_string()),
        ("RECORDS", options.records.to_string()),
        ("PROGRAM_SECONDS_MAX", (options.boot_seconds_max / 2).to_string()),
    ];
    share.write_job(&variables).context("the guest would not know what to do")?;
    let boot_max = Duration::from_secs(options.boot_seconds_max);
    let mut session = Session { cache: &cache, checks: Checks::new(options.json), boot_max };
    session.checks.note(&format!("-- {guests} guests with a card of soft-RoCE each"));
    let (link, started) = (Link::new(guests), Instant::now());
    let first = Guest::boot_linked(&cache, &link, 1)?;
    while !link.is_ready() {
        if started.elapsed() > Duration::from_secs(60) {
            bail!("QEMU makes no sockets for the other guests; see vm/.cache/qemu-errors-1.log");
        }
        thread::sleep(Duration::from_millis(50));
    }
    let others = (2..=guests).map(|number| Guest::boot_linked(&cache, &link, number)).collect::<Result<Vec<_>>>()?;
    // The others wait for the first one, which tells of the whole group. Their own lines are read afterwards.
    let ending = session.listen(&first, Platform::Plain);
    session.expect_finished(Platform::Plain, "rdma-boot-1", started, &ending);
    for (number, guest) in (2..).zip(&others) {
        let ending = session.listen(guest, Platform::Plain);
        session.expect_finished(Platform::Plain, &format!("rdma-boot-{number}"), started, &ending);
    }
    Ok(session.checks.finish())
}
