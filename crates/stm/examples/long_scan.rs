//! A scan of many objects as one snapshot while writers transfer money between them at full speed. It never restarts,
//! and its sum is right to the cent.
//!
//! ```text
//! cargo run --release -p lodestone-stm --example long_scan -- --objects 1000000 --writers 2 --scans 3 --json
//! cargo run --release -p lodestone-stm --example long_scan -- --domain block --folder /var/tmp
//! ```
//!
//! Prints the writers' throughput alone and beside the scans, and the number of versions kept aside. Exit code 1 when a
//! scan restarted or a sum was wrong.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestone_pmem::PoolOptions;
use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr, Result, Stm, Tx};
use lodestone_store::Store;

const START_CENTS: u64 = 1000;
const USAGE: &str = "\
usage: long_scan [--objects N] [--writers N] [--scans N] [--domain NAME] [--folder PATH] [--seed N] [--json]
  --objects   accounts that a scan adds up (default 1000000)
  --writers   threads that transfer between them (default 2)
  --scans     scans, one after the other (default 3)
  --domain    auto, dax, dax-emulated, eadr, block or process (default dax-emulated)
  --folder    where the pool is made and removed again (default /dev/shm)
  --seed      of the transfers (default 1)";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Account {
    cents: u64,
}

struct Args {
    objects: usize,
    writers: u64,
    scans: u64,
    domain: String,
    folder: PathBuf,
    seed: u64,
    json: bool,
}

fn arguments() -> Option<Args> {
    let (domain, folder) = ("dax-emulated".into(), "/dev/shm".into());
    let mut args = Args { objects: 1_000_000, writers: 2, scans: 3, domain, folder, seed: 1, json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--json" {
            args.json = true;
            continue;
        }
        let value = words.next()?;
        match word.as_str() {
            "--objects" => args.objects = value.parse().ok().filter(|&count| count > 1)?,
            "--writers" => args.writers = value.parse().ok()?,
            "--scans" => args.scans = value.parse().ok()?,
            "--domain" => args.domain = value,
            "--folder" => args.folder = value.into(),
            "--seed" => args.seed = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(args)
}

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 8) as usize
}

fn transfer(stm: &Stm, accounts: &[PmPtr<Account>], state: &mut u64) -> Result<()> {
    let (from, to) = (random(state) % accounts.len(), random(state) % accounts.len());
    stm.update(|tx| {
        let source = tx.write(accounts[from])?;
        let moved = source.cents.min(7);
        source.cents -= moved;
        tx.write(accounts[to])?.cents += moved;
        Ok(())
    })
}

fn fill(stm: &Stm, objects: usize) -> Result<Vec<PmPtr<Account>>> {
    let mut all = Vec::with_capacity(objects);
    while all.len() < objects {
        let batch = (objects - all.len()).min(1000);
        let make = |tx: &mut Tx<'_>| (0..batch).map(|_| tx.alloc(Account { cents: START_CENTS })).collect();
        all.extend(stm.update::<Vec<_>>(make)?);
    }
    Ok(all)
}

/// The measurements.
#[derive(Default)]
struct Outcome {
    transfers_per_s_alone: f64,
    transfers_per_s_beside: f64,
    scan_seconds: Vec<f64>,
    attempts: u64,
    wrong_sums: u64,
    side_versions_max: u64,
    side_bytes_max: u64,
}

fn run(args: &Args, stm: &Stm) -> Result<Outcome> {
    let accounts = fill(stm, args.objects)?;
    let (stop, transfers) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..args.writers {
            let (accounts, stop, transfers) = (&accounts, &stop, &transfers);
            scope.spawn(move || {
                let mut state = (args.seed << 20 | writer).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                while !stop.load(Ordering::Relaxed) {
                    transfer(stm, accounts, &mut state).expect("a transfer");
                    transfers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let measured = measure(args, stm, &accounts, &transfers);
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn measure(args: &Args, stm: &Stm, accounts: &[PmPtr<Account>], transfers: &AtomicU64) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let rate =
        |since: u64, began: Instant| (transfers.load(Ordering::Relaxed) - since) as f64 / began.elapsed().as_secs_f64();
    let (since, began) = (transfers.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    outcome.transfers_per_s_alone = rate(since, began);
    let (since, began) = (transfers.load(Ordering::Relaxed), Instant::now());
    for _ in 0..args.scans {
        let started = Instant::now();
        let sum = stm.snapshot(|tx| {
            outcome.attempts += 1;
            let sum = accounts.iter().try_fold(0, |sum, &account| Ok(sum + tx.read(account)?.cents));
            let stats = stm.stats();
            outcome.side_versions_max = outcome.side_versions_max.max(stats.side_versions);
            outcome.side_bytes_max = outcome.side_bytes_max.max(stats.side_bytes);
            sum
        })?;
        outcome.scan_seconds.push(started.elapsed().as_secs_f64());
        outcome.wrong_sums += u64::from(sum != args.objects as u64 * START_CENTS);
    }
    outcome.transfers_per_s_beside = rate(since, began);
    Ok(outcome)
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{model}, {processors} processors")
}

#[expect(clippy::print_stderr, reason = "a command says how it is used")]
fn main() -> std::result::Result<ExitCode, Box<dyn std::error::Error>> {
    let Some(args) = arguments() else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    let path = args.folder.join(format!("long-scan-{}.pool", std::process::id()));
    let size_bytes = (args.objects as u64 * 64) * 5 / 4 + (64 << 20);
    let options = PoolOptions { size_bytes, domain: args.domain.parse()?, ..PoolOptions::default() };
    let stm = Stm::open(&Store::create(&path, &options)?);
    let outcome = stm.and_then(|stm| Ok((run(&args, &stm)?, stm.pool().memory().domain(), stm.stats())));
    std::fs::remove_file(&path)?;
    let (outcome, domain, stats) = outcome?;
    let longest = outcome.scan_seconds.iter().copied().fold(0.0, f64::max);
    let again = outcome.attempts - args.scans;
    if args.json {
        println!(
            "{{\"objects\":{},\"writers\":{},\"scans\":{},\"scans_begun_again\":{again},\"wrong_sums\":{},\
             \"scan_seconds_max\":{longest:.4},\"transfers_per_s_alone\":{:.0},\"transfers_per_s_beside\":{:.0},\
             \"side_copies\":{},\"side_versions_max\":{},\"side_bytes_max\":{},\"domain\":\"{domain}\",\
             \"domain_asked\":\"{}\",\"profile\":\"none\",\"seed\":{},\"machine\":\"{}\"}}",
            args.objects,
            args.writers,
            args.scans,
            outcome.wrong_sums,
            outcome.transfers_per_s_alone,
            outcome.transfers_per_s_beside,
            stats.side_copies,
            outcome.side_versions_max,
            outcome.side_bytes_max,
            args.domain,
            args.seed,
            machine(),
        );
    } else {
        println!(
            "{} scans of {} objects beside {} writers: {again} begun again, {} wrong sums, longest {longest:.3} s\n\
             transfers per second: {:.0} alone, {:.0} beside the scans\n\
             kept aside: {} copies, at most {} versions ({} bytes) at a time\n\
             domain {domain} (asked for: {}), no media profile, seed {}, {}",
            args.scans,
            args.objects,
            args.writers,
            outcome.wrong_sums,
            outcome.transfers_per_s_alone,
            outcome.transfers_per_s_beside,
            stats.side_copies,
            outcome.side_versions_max,
            outcome.side_bytes_max,
            args.domain,
            args.seed,
            machine(),
        );
    }
    Ok(ExitCode::from(u8::from(again > 0 || outcome.wrong_sums > 0)))
}
