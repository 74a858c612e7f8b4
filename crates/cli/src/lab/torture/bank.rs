//! `lodestone torture bank`: a bank whose process is killed at random moments, reopened and judged, again and again on
//! one pool.
//!
//! After each kill:
//! 1. the sum of all accounts is that of the beginning. Every reader of the bank checks the same and reports a wrong
//!    sum;
//! 2. no thread's count is below its acknowledged transfers, nor above them by more than the one transfer under way;
//! 3. every account holds exactly the result of the counted transfers: no transfer is lost, doubled or halved;
//! 4. no more objects are allocated than a bank without transfers has: nothing leaks.
//!
//! With `--transfers` the bank finally works, unkilled, until it reaches that number, and is judged again.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_workload::random::Random;
use serde::Serialize;

use lodestone_cli::commands::pool::domain;
use lodestone_cli::interrupt::TempFolder;
use lodestone_cli::output::{Output, ProgressUnit};

use super::bank_worker::{Bank, CENTS_AT_START, Transfer};
use super::kill;
use super::life::{self, Moment, ReportLine};

const AFTER_HELP: &str = "\
Examples:
  lodestone torture bank --kills 200 --transfers 1000000 --domain process
  lodestone torture bank --kills 200 --domain block --json

Exit code 0 only when every sum was right and no acknowledged transfer was lost.";

/// Arguments of `lodestone torture bank`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Number of kills
    #[arg(long, default_value_t = 100)]
    kills: u64,

    /// Transfers to reach in the end, all lives and threads together; 0: only those of the lives before the kills
    #[arg(long, default_value_t = 0)]
    transfers: u64,

    /// Persistence domain
    #[arg(long, default_value = "block", value_parser = ["block", "process", "auto", "dax", "eadr"])]
    domain: String,

    /// Seed of the moments and of the transfers
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Threads that transfer
    #[arg(long, default_value_t = 8)]
    threads: u64,

    /// Accounts
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    accounts: u64,

    /// Longest time of load before a kill, in milliseconds
    #[arg(long, default_value_t = 40, value_name = "MS")]
    load_ms_max: u64,

    /// The pool, which must not exist [default: a temporary one]
    #[arg(long)]
    pool: Option<PathBuf>,
}

/// A line of the bank's report.
enum Line {
    Ack { thread: u64, number: u64 },
    Sums { snapshot: bool, count: u64 },
    Wrong { text: String },
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        match words[..] {
            ["ack", thread, number] => Some(Self::Ack { thread: thread.parse().ok()?, number: number.parse().ok()? }),
            ["sums", kind, count] => Some(Self::Sums { snapshot: kind == "snapshot", count: count.parse().ok()? }),
            ["wrong", ..] => Some(Self::Wrong { text: text.trim().into() }),
            _ => None,
        }
    }
}

impl ReportLine for Line {
    fn read(mut source: BufReader<ChildStdout>, each: &mut dyn FnMut(Self) -> Result<()>) -> Result<()> {
        let mut text = String::new();
        while source.read_line(&mut text)? > 0 && text.ends_with('\n') {
            each(Self::parse(&text).context("a damaged report")?)?;
            text.clear();
        }
        Ok(())
    }

    fn is_ack(&self) -> bool {
        matches!(self, Self::Ack { .. })
    }
}

/// The result of the loop.
#[derive(Default, Serialize)]
struct Killed {
    kills: u64,
    kills_during_open: u64,
    transfers: u64,
    acked: u64,
    sums_plain: u64,
    sums_snapshot: u64,
    wrong: Vec<String>,
    reopen_ms_max: f64,
    accounts: u64,
    threads: u64,
    domain: String,
    seed: u64,
    seconds: f64,
}

/// The judge's knowledge of the bank.
struct Judge<'a> {
    args: &'a Args,
    path: &'a Path,
    /// Acknowledged transfers of each thread.
    acked: Vec<u64>,
    /// Each thread's count at the last judgement.
    counts: Vec<u64>,
    /// The content of each account at that time.
    accounts: Vec<i64>,
    /// Objects of the bank at the first judgement. It never has more or fewer.
    objects: Option<u64>,
    killed: Killed,
}

/// Kills and judges.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let folder = TempFolder::new()?;
    let path = args.pool.clone().unwrap_or_else(|| folder.path().join("bank.pool"));
    ensure!(!path.exists(), "{}: exists; the kill test needs a pool of its own", path.display());
    ensure!(args.kills > 0 || args.transfers > 0, "--kills 0 without --transfers tests nothing; ask for one of them");
    let started = Instant::now();
    let mut judge = Judge::new(args, &path)?;
    let mut random = Random::for_stream(args.seed, u64::MAX);
    let bar = output.progress(Some(args.kills), ProgressUnit::Steps).with_prefix("kill");
    while judge.killed.kills < args.kills && judge.killed.wrong.is_empty() {
        let moment = kill::moment(&mut random, args.load_ms_max);
        judge.live(moment, 0)?;
        judge.killed.kills += 1;
        judge.judge()?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let missing = args.transfers.saturating_sub(judge.killed.transfers);
    if missing > 0 && judge.killed.wrong.is_empty() {
        judge.live(Moment::Never, missing)?;
        judge.judge()?;
    }
    let mut killed = judge.killed;
    killed.seconds = started.elapsed().as_secs_f64();
    killed.wrong.iter().for_each(|finding| output.note(&format!("seed {}: {finding}", args.seed)));
    output.result(&killed, |killed| {
        format!(
            "{} kills ({} during open), {} transfers by {} threads among {} accounts, {} acknowledged, {} plain and {} \
             snapshot sums: {} wrong; {} domain, seed {}, {:.1} s",
            killed.kills,
            killed.kills_during_open,
            killed.transfers,
            killed.threads,
            killed.accounts,
            killed.acked,
            killed.sums_plain,
            killed.sums_snapshot,
            killed.wrong.len(),
            killed.domain,
            killed.seed,
            killed.seconds
        )
    })?;
    Ok(killed.wrong.is_empty())
}

impl<'a> Judge<'a> {
    fn new(args: &'a Args, path: &'a Path) -> Result<Self> {
        let (threads, accounts) = (usize::try_from(args.threads)?, usize::try_from(args.accounts)?);
        let killed = Killed {
            accounts: args.accounts,
            threads: args.threads,
            domain: args.domain.clone(),
            seed: args.seed,
            ..Killed::default()
        };
        let (acked, counts) = (vec![0; threads], vec![0; threads]);
        Ok(Self { args, path, acked, counts, accounts: vec![CENTS_AT_START; accounts], objects: None, killed })
    }

    /// One life of the bank.
    fn live(&mut self, moment: Moment, transfers: u64) -> Result<()> {
        let Args { domain, seed, threads, accounts, .. } = self.args;
        let mut command = life::own_binary()?;
        command.args(["torture", "bank-worker", "--domain", domain, "--seed", &seed.to_string()]);
        command.args(["--threads", &threads.to_string(), "--accounts", &accounts.to_string()]);
        command.args(["--transfers", &transfers.to_string()]).arg(self.path);
        let lines: Vec<Line> = life::one_life(&mut command, moment)
            .with_context(|| format!("kill {} of seed {seed}", self.killed.kills + 1))?;
        self.killed.kills_during_open += u64::from(!lines.iter().any(Line::is_ack));
        for line in lines {
            match line {
                Line::Ack { thread, number } => {
                    let Some(acked) = self.acked.get_mut(usize::try_from(thread)?) else {
                        bail!("the bank reports a thread {thread} that it does not have")
                    };
                    self.killed.acked += 1;
                    *acked = (*acked).max(number);
                }
                Line::Sums { snapshot: true, count } => self.killed.sums_snapshot += count,
                Line::Sums { snapshot: false, count } => self.killed.sums_plain += count,
                Line::Wrong { text } => self.killed.wrong.push(format!("a reader said: {text}")),
            }
        }
        Ok(())
    }

    /// Opens the bank and compares it with the expected state.
    fn judge(&mut self) -> Result<()> {
        if !self.path.exists() {
            // Killed before the pool was created: nothing was acknowledged.
            return Ok(());
        }
        let args = self.args;
        let born = Instant::now();
        let choice = domain(&args.domain).map_err(anyhow::Error::msg)?;
        let pool = Pool::open(self.path, &PoolOptions { domain: choice, ..PoolOptions::default() })?;
        self.killed.domain = pool.memory().domain().to_string();
        let bank = Bank::open(&pool, args.threads, args.accounts)?;
        self.killed.reopen_ms_max = self.killed.reopen_ms_max.max(kill::milliseconds(born));
        let (counts, found) = bank.stm.read(|tx| {
            let counts = (0..bank.counts.len()).map(|thread| bank.count(tx, thread)).collect::<Result<Vec<_>, _>>()?;
            let mut found = vec![None; self.accounts.len()];
            bank.accounts.for_each(tx, |account, cents| {
                if let Some(place) = usize::try_from(account).ok().and_then(|account| found.get_mut(account)) {
                    *place = Some(cents);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            bank.accounts.check(tx)?;
            Ok((counts, found))
        })?;
        let checked = bank.stm.check_all();
        if !checked.is_intact() {
            self.wrong(format!("damage: {:?}", checked.findings));
        }
        // Without a transfer, a thread's count is an empty map: each first transfer adds one page.
        let objects = checked.objects - counts.iter().filter(|count| **count > 0).count() as u64;
        if *self.objects.get_or_insert(objects) != objects {
            self.wrong(format!("{objects} objects are allocated, {:?} are the bank's", self.objects));
        }
        self.compare(&counts, &found);
        Ok(())
    }

    fn wrong(&mut self, finding: String) {
        self.killed.wrong.push(format!("after kill {}: {finding}", self.killed.kills));
    }

    fn compare(&mut self, counts: &[u64], found: &[Option<i64>]) {
        for (thread, &count) in counts.iter().enumerate() {
            let acked = self.acked[thread].max(self.counts[thread]);
            if count < acked || count > acked + 1 {
                self.wrong(format!("thread {thread} acknowledged {acked} transfers, the bank knows {count}"));
            }
            for number in self.counts[thread]..count {
                let transfer = Transfer::new(self.args.seed, thread as u64, number, self.args.accounts);
                self.accounts[transfer.from as usize] -= transfer.cents;
                self.accounts[transfer.to as usize] += transfer.cents;
            }
            self.killed.transfers += count.saturating_sub(self.counts[thread]);
            self.counts[thread] = self.counts[thread].max(count);
        }
        let sum: i64 = found.iter().flatten().sum();
        let right = self.args.accounts as i64 * CENTS_AT_START;
        if sum != right {
            self.wrong(format!("all accounts hold {sum} cents, {right} is right"));
        }
        let differing = (0..found.len()).filter(|&account| found[account] != Some(self.accounts[account])).count();
        if differing > 0 {
            self.wrong(format!("{differing} accounts hold something else than their transfers give"));
        }
    }
}
