//! `lodestone demo`: a guided first run, from an empty folder to a report, that puts each promise to the test.
//!
//! 1. A pool is made in a temporary folder.
//! 2. Real data is imported by the importer of `lodestone kv import`.
//! 3. The pool is opened again, and records are read by key and by range.
//! 4. A writer in a child process is killed, again and again. The pool must then hold everything that the writer
//!    reported as durable.
//! 5. The crash explorer simulates power failures, and catches a mistake that is made for it.
//! 6. A short benchmark, with the device's own cost beside it.
//! 7. A database is served to clients of `PostgreSQL`, killed under load, and found whole.
//! 8. A volume of files with replicas, whose nodes are killed.
//! 9. One page with everything.
//!
//! The exit code is 0 only when every expectation held.

mod broken;
mod characters;
mod files;
mod floors;
mod page;
mod prove;
mod serve;
mod shop;
mod story;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use lodestone_pmem::{Pool, PoolInfo, PoolOptions};

use crate::bench::ycsb::{self, Measured};
use crate::crash;
use crate::torture::kill::{Killed, Round};
use lodestone_cli::commands::kv::MapArgs;
use lodestone_cli::commands::pool::OpenArgs;
use lodestone_cli::emulation::{self, EmulationArgs, Profile};
use lodestone_cli::import::Summary;
use lodestone_cli::interrupt::{self, TempFolder};
use lodestone_cli::new_file;
use lodestone_cli::output::Output;
use lodestone_cli::size;

use broken::Caught;
use prove::{Audited, Explored};
use serve::Reads;
use story::{Expectation, STEPS, Story};

const AFTER_HELP: &str = "\
Examples:
  lodestone demo
  lodestone demo --report report.html --keep
  lodestone demo --seconds 20 --kills 20 --json
  lodestone demo --profile optane

Needs neither network nor privileges; everything happens in a temporary folder (TMPDIR says where).
Exit code 1 when anything that was promised did not hold.";

const POOL_BYTES: u64 = 160 << 20;
const JOURNAL_BYTES: u64 = 16 << 20;

/// Arguments of `lodestone demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// File of the page [default: lodestone-demo.html in the working folder]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Keep the pools, to look at them with the other commands
    #[arg(long)]
    keep: bool,

    /// Seconds for the explorer, and for the benchmark; half as many for the audit of flushes and fences
    #[arg(long, value_name = "SECONDS", default_value_t = 8)]
    seconds: u64,

    /// How often the writer is killed
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Emulate a medium by spinning, in every pool of the run: dram, optane, cxl, or a TOML file (see `lodestone
    /// media`)
    #[arg(long, value_name = "NAME|FILE", value_parser = emulation::profile)]
    profile: Option<Profile>,
}

impl Args {
    /// The benchmark reads the wall clock, so the model spins for the medium's time.
    fn emulation(&self) -> EmulationArgs {
        EmulationArgs { profile: self.profile.clone(), virtual_time: false }
    }
}

/// All findings of the run. The page is made from them.
pub struct Findings {
    pub pool: PoolInfo,
    pub import: Summary,
    pub reads: Reads,
    pub rounds: Vec<Round>,
    pub killed: Killed,
    pub explored: Vec<Explored>,
    pub audited: Vec<Audited>,
    /// Runs of the explorer for which the time was too short.
    pub not_begun: usize,
    pub caught: Caught,
    pub measured: Vec<Measured>,
    pub expectations: Vec<Expectation>,
    pub seconds: f64,
    pub seed: u64,
}

/// Runs all steps.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let started = Instant::now();
    if let Some(path) = &args.report {
        // Before minutes of work that would have no page.
        new_file::verify_page(path)?;
    }
    interrupt::overall("the pools of this run are removed, and nothing else was touched; run it again at any time");
    let mut story = Story::new(output);
    if !output.is_json() {
        output.line("Lodestone: durable data at memory speed, on persistent memory and on ordinary files.")?;
        output.line(&format!("A guided first run in {STEPS} steps. Nothing outside a temporary folder is touched."))?;
    }
    let (folder, pool) = create_pool(&mut story, &args.emulation())?;
    let mut findings = work(args, &mut story, folder.path(), pool)?;
    story.step("Write a page with everything", "One file without scripts or links; open it in any browser.")?;
    findings.expectations = story.expectations().to_vec();
    findings.seconds = started.elapsed().as_secs_f64();
    let report = write_page(args, &findings)?;
    if args.keep {
        let kept = folder.keep();
        story.say(&format!("The pools stay in {}.", kept.display()))?;
    }
    end(&story, &report, findings.seconds)
}

fn work(args: &Args, story: &mut Story<'_>, folder: &Path, pool: PoolInfo) -> Result<Findings> {
    let open = OpenArgs { emulation: args.emulation(), ..OpenArgs::of(folder.join("demo.pool")) };
    let map = MapArgs { open, map: "characters".into() };
    let import = serve::import(story, folder, &map)?;
    let reads = serve::read(story, &map, args.seed)?;
    let (rounds, killed) = prove::kill(story, folder, args)?;
    let limit = Duration::from_secs(args.seconds);
    let floors = crash::floors();
    let explored = prove::explore(story, &floors, limit, args.seed)?;
    let audited = prove::audit(story, &floors, &explored, limit / 2)?;
    prove::tell(story, &floors, &explored, &audited)?;
    let caught = broken::catch(story)?;
    let measured = measure(story, folder, limit, args)?;
    shop::serve(story, folder)?;
    files::keep(story, folder)?;
    Ok(Findings {
        pool,
        import,
        reads,
        rounds,
        killed,
        not_begun: prove::not_begun(&floors, &explored),
        explored,
        audited,
        caught,
        measured,
        expectations: Vec::new(),
        seconds: 0.0,
        seed: args.seed,
    })
}

/// A pool in a temporary folder. On a disk rather than in a file system in memory, where there is a choice.
fn create_pool(story: &mut Story<'_>, emulation: &EmulationArgs) -> Result<(TempFolder, PoolInfo)> {
    story.step(
        "Create a pool",
        "A pool is one file that holds durable memory. Programs work on it with loads and stores; the persistence domain \
         says what it takes until a store survives a power failure. An ordinary file gets the block domain: stores are \
         gathered into groups, each group is written to a checksummed journal and synced to the device once, however \
         many threads wait for it.",
    )?;
    let make = |folder: TempFolder| -> Result<(TempFolder, PoolInfo)> {
        let path = folder.path().join("demo.pool");
        let options = PoolOptions { size_bytes: POOL_BYTES, journal_bytes: JOURNAL_BYTES, ..PoolOptions::default() };
        let pool = Pool::create(&path, &emulation.apply(options)?)?;
        emulation::place(&pool);
        let info = pool.info();
        Ok((folder, info))
    };
    let mut made = make(TempFolder::new()?)?;
    let in_memory = |info: &PoolInfo| info.parts.iter().any(|part| part.file_system == "tmpfs");
    if in_memory(&made.1) && std::env::var_os("TMPDIR").is_none() {
        // By convention this folder survives a reboot, so it is on a disk. If it cannot be used, memory must do.
        if let Ok(folder) = TempFolder::within(Path::new("/var/tmp")) {
            made = make(folder)?;
        }
    }
    let (folder, info) = made;
    let path = folder.path().join("demo.pool");
    story.command(&format!(
        "lodestone pool create {} --size {}",
        path.display(),
        [&[size::human(POOL_BYTES).replace(' ', "")], &emulation.to_args()[..]].concat().join(" ")
    ))?;
    story.show(&info.to_string())?;
    story.data(&serde_json::json!({
        "event": "pool", "path": path.display().to_string(), "domain": info.domain_label(),
        "promise": info.promise, "medium": info.medium, "size_bytes": POOL_BYTES, "journal_bytes": JOURNAL_BYTES,
    }))?;
    Ok((folder, info))
}

fn measure(story: &mut Story<'_>, folder: &Path, limit: Duration, args: &Args) -> Result<Vec<Measured>> {
    story.step(
        "Measure a little",
        "Workload A of the Yahoo! Cloud Serving Benchmark: half reads, half updates, some records hot. Every update waits \
         until it would survive a power failure, and every read until what it saw would. With more threads more writes \
         share one sync of the device; the last column of the first table is what one sync costs here without us.",
    )?;
    let emulation = args.emulation().to_args();
    let command = [&["lodestone bench ycsb --workload a --threads 1,8".to_owned()], &emulation[..]].concat();
    story.command(&command.join(" "))?;
    let mut all = Vec::new();
    for threads in [1, 8] {
        let mut request = ycsb::Request::guided(folder, threads, limit / 2, args.seed);
        request.place.profile.clone_from(&args.profile);
        all.push(ycsb::measure(&request, story.output())?);
    }
    story.show(&ycsb::text(&all))?;
    all.iter().try_for_each(|measured| story.data(&measured.outcome.result))?;
    story.expect(
        all.iter().all(|measured| measured.outcome.result.operations > 0),
        "every value that was read was whole and belonged to its key",
    )?;
    Ok(all)
}

fn write_page(args: &Args, findings: &Findings) -> Result<PathBuf> {
    let page = page::page(findings).to_html();
    if let Some(path) = &args.report {
        new_file::write_page(path, &page)?;
        return Ok(path.clone());
    }
    let here = PathBuf::from("lodestone-demo.html");
    if new_file::write_page(&here, &page).is_ok() {
        return Ok(here.canonicalize().unwrap_or(here));
    }
    // The page must not be lost in a read-only working folder.
    let elsewhere = std::env::temp_dir().join(format!("lodestone-demo-{}.html", std::process::id()));
    new_file::write_page(&elsewhere, &page)?;
    Ok(elsewhere)
}

fn end(story: &Story<'_>, report: &Path, seconds: f64) -> Result<bool> {
    let failed = story.expectations().iter().filter(|expectation| !expectation.holds).count();
    story.data(&serde_json::json!({
        "event": "end", "expectations": story.expectations().len(), "failed": failed,
        "report": report.display().to_string(), "seconds": (seconds * 10.0).round() / 10.0,
    }))?;
    story.say(&format!("The page is {}", report.display()))?;
    if !story.output().is_json() {
        let count = story.expectations().len();
        story.output().line(&if failed == 0 {
            format!("\nAll {count} expectations held, in {seconds:.0} s. Next: lodestone --help")
        } else {
            format!("\n{failed} of {count} expectations FAILED; the lines marked FAILED above say which.")
        })?;
    }
    Ok(story.holds())
}
