//! `lodestone media probe`: measures a medium, prints the paper's tables for it, and advises how to use it.
//!
//! 1. The target is opened and the plan made. Nothing is written yet. `--dry-run` ends here.
//! 2. The probe runs under a progress bar.
//! 3. Tables and verdict go to standard output (with `--json` the whole result as one object), the page to `--html`.

mod figures;
mod grids;
mod page;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};
use lodestone_media::probe::{
    Advice, Budget, Job, Probe, ProbeOptions, ProbeResult, Progress, Section, TargetChoice, Verdict, bytes_text,
};
use lodestone_media::{MediaProfile, TimeMode};
use lodestone_report::provenance::Provenance;
use lodestone_width::{nearest_f64, to_u64};
use serde::Serialize;

use crate::new_file;
use crate::output::{Output, ProgressUnit, properties, spare, table};
use crate::size;

use grids::Grid;

const AFTER_HELP: &str = "\
Examples:
  lodestone media probe /mnt/pmem --html pmem.html  # a temporary file there
  lodestone media probe . --quick  # the same here, in less than a minute
  lodestone media probe stock.pool --read-only  # the pool keeps its content
  lodestone media probe /dev/dax0.0 --overwrite-data  # its content goes
  lodestone media probe --dram --threads 8
  lodestone media probe --profile optane  # a model, in virtual time

Sections: latency, threads, fence, instruction, mixed, nodes, compare.

Nothing is overwritten without --overwrite-data. A temporary file has no name, so it is gone however the command ends;
a file that was empty is filled and emptied again.

Latencies are those of accesses issued back to back by one thread, as in the paper's tables; only `dependent` reads wait
for each other. Prefetchers cannot be switched off from here: blocks come in the order of a random permutation.";

fn section(text: &str) -> Result<Section, String> {
    let found = Section::ALL.into_iter().find(|section| section.name() == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = Section::ALL.into_iter().map(Section::name).collect();
        format!("`{text}` is no section; use {}", names.join(", "))
    })
}

/// Arguments of `lodestone media probe`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// A folder (a temporary file is made there), a file, a pool, a block device or a devdax device
    #[arg(value_name = "TARGET", required_unless_present_any = ["dram", "profile"], conflicts_with_all = ["dram", "profile"])]
    target: Option<PathBuf>,

    /// Measure memory of this process
    #[arg(long, conflicts_with = "profile")]
    dram: bool,

    /// Measure a model: a built-in profile or a TOML file
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,

    /// Let the model spin in real time on real threads, instead of virtual time
    #[arg(long, requires = "profile")]
    spinning: bool,

    /// Split the processors into so many virtual nodes, with the model's memory on the first [default: 2 in virtual
    /// time]
    #[arg(long, value_name = "COUNT", requires = "profile", default_value_t = 0, hide_default_value = true)]
    virtual_nodes: usize,

    /// Short repetitions and a smaller range: a first impression in less than a minute
    #[arg(long)]
    quick: bool,

    /// Bytes that accesses range over [default: 512MiB, quick 256MiB, in virtual time 4GiB; the whole size of a file or
    /// device]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Most threads [default: the processors near the target; 16 in virtual time]
    #[arg(long, value_name = "COUNT")]
    threads: Option<u32>,

    /// Sections to measure, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = section)]
    sections: Vec<Section>,

    /// Only read: the target keeps its content
    #[arg(long, conflicts_with = "overwrite_data")]
    read_only: bool,

    /// Overwrite the content of the target
    #[arg(long)]
    overwrite_data: bool,

    /// Folder for a file to compare with, if the target is not a file
    #[arg(long, value_name = "FOLDER")]
    file_folder: Option<PathBuf>,

    /// Write a page with every figure
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print the plan with its duration and written bytes, and stop
    #[arg(long)]
    dry_run: bool,

    /// Milliseconds of a repetition, for tests and for very noisy machines
    #[arg(long, value_name = "MS", hide = true)]
    repetition_ms: Option<u64>,
}

/// Runs the command.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    if let Some(page) = &args.html {
        spare(page, &args.target.as_deref().into_iter().collect::<Vec<_>>())?;
        new_file::verify_page(page)?;
    }
    let probe = Probe::open(choice(args)?, options(args))?;
    if args.dry_run {
        output.result(&Planned::of(&probe), Planned::text)?;
        return Ok(());
    }
    for note in probe.notes() {
        output.note(&format!("note: {note}"));
    }
    let result = measure(probe, output)?;
    let verdict = Verdict::of(&result);
    if let Some(file) = &args.html {
        new_file::write_page(file, &page::page(&result, &verdict).to_html())?;
        output.note(&format!("report: {}", file.display()));
    }
    if output.is_json() {
        output.line(&result.to_json())?;
    } else {
        output.line(&text(&result, &verdict))?;
    }
    Ok(())
}

fn choice(args: &Args) -> Result<TargetChoice> {
    if let Some(name) = &args.profile {
        let mode = if args.spinning { TimeMode::Spinning } else { TimeMode::Virtual };
        return Ok(TargetChoice::Profile(Box::new(MediaProfile::resolve(name)?), mode));
    }
    match (&args.target, args.dram) {
        (_, true) => Ok(TargetChoice::Dram),
        (Some(path), _) => Ok(TargetChoice::Path(path.clone())),
        (None, false) => bail!("nothing to measure: name a target, or give --dram or --profile"),
    }
}

fn options(args: &Args) -> ProbeOptions {
    let mut budget = if args.quick { Budget::QUICK } else { Budget::FULL };
    if let Some(milliseconds) = args.repetition_ms {
        budget.repetition = Duration::from_millis(milliseconds.max(1));
    }
    let facts = Provenance::of_this_machine();
    let fact = |name: &str| {
        let found = facts.facts().iter().find(|(known, _)| known == name);
        found.map_or_else(|| "unknown".to_owned(), |(_, text)| text.clone())
    };
    ProbeOptions {
        range_bytes: args.size,
        threads_max: args.threads,
        sections: if args.sections.is_empty() { Section::ALL.to_vec() } else { args.sections.clone() },
        read_only: args.read_only,
        overwrite_data: args.overwrite_data,
        quick: args.quick,
        budget,
        virtual_nodes: args.virtual_nodes,
        file_folder: args.file_folder.clone(),
        began_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()),
        machine: [fact("machine"), fact("kernel")],
    }
}

fn measure(probe: Probe, output: &Output) -> Result<ProbeResult> {
    let steps = u64::try_from(probe.plan().jobs.len()).unwrap_or(u64::MAX);
    let bar = output.progress(Some(steps), ProgressUnit::Steps);
    bar.set_prefix("probe");
    let result = probe.run(&mut |progress| match progress {
        Progress::Filling(done, all) => bar.set_message(format!("filling {} of {}", bytes_text(done), bytes_text(all))),
        Progress::Measuring(number, _, job) => {
            bar.set_position(u64::try_from(number).unwrap_or(u64::MAX));
            bar.set_message(job_text(job));
        }
    });
    bar.finish_and_clear();
    result.map_err(|error| anyhow!(error))
}

fn job_text(job: &Job) -> String {
    let sizes = job.groups.first().map_or(0, |key| key.access_bytes);
    let threads: u32 = job.groups.iter().map(|key| key.threads).sum();
    format!("{}: {} with {threads} threads", job.section.name(), bytes_text(sizes))
}

/// The output of `--dry-run`.
#[derive(Serialize)]
struct Planned {
    target: lodestone_media::probe::Target,
    sections: Vec<(&'static str, u64)>,
    cells: u64,
    seconds: f64,
    written_bytes: u64,
    thread_counts: Vec<u32>,
    notes: Vec<String>,
}

impl Planned {
    fn of(probe: &Probe) -> Self {
        let estimate = probe.estimate();
        let count = |section: Section| {
            let jobs = probe.plan().jobs.iter().filter(|job| job.section == section);
            (section.name(), jobs.map(|job| to_u64(job.groups.len())).sum())
        };
        Self {
            target: probe.target().clone(),
            sections: Section::ALL.into_iter().map(count).collect(),
            cells: estimate.cells,
            seconds: estimate.duration.as_secs_f64(),
            written_bytes: estimate.written_bytes,
            thread_counts: probe.plan().thread_counts.clone(),
            notes: probe.notes(),
        }
    }

    fn text(&self) -> String {
        let mut figures = table(&["section", "figures"]);
        for (name, count) in &self.sections {
            figures.add_row([(*name).to_owned(), count.to_string()]);
        }
        let counts: Vec<String> = self.thread_counts.iter().map(ToString::to_string).collect();
        let facts = properties([
            ("target", format!("{} ({} {})", self.target.name, self.target.medium, self.target.kind)),
            ("range", bytes_text(self.target.range_bytes)),
            ("threads", counts.join(", ")),
            ("figures", self.cells.to_string()),
            ("time", format!("about {:.0} s", self.seconds.max(1.0))),
            ("written", format!("about {}", bytes_text(self.written_bytes))),
        ]);
        let notes: Vec<String> = self.notes.iter().map(|note| format!("\nnote: {note}")).collect();
        format!("{facts}\n{figures}{}", notes.concat())
    }
}

fn text(result: &ProbeResult, verdict: &Verdict) -> String {
    let mut parts = vec![properties(facts(result).iter().map(|(name, fact)| (*name, fact.clone())))];
    parts.extend(grids::all(result).iter().map(Grid::to_text));
    let mut words = String::from("verdict");
    for finding in &verdict.findings {
        let word = match finding.advice {
            Advice::Prefer => "do   ",
            Advice::Avoid => "avoid",
            Advice::Know => "know ",
        };
        words += &format!("\n  {word}  {}\n         ({})", finding.sentence, finding.evidence);
    }
    if !verdict.findings.is_empty() {
        parts.push(words);
    }
    parts.join("\n\n")
}

/// The facts above the tables, and in the page's provenance.
fn facts(result: &ProbeResult) -> Vec<(&'static str, String)> {
    let (target, method, machine) = (&result.target, &result.method, &result.machine);
    let mut facts = vec![
        ("target", format!("{} ({} {}, {})", target.name, target.medium, target.kind, bytes_text(target.range_bytes))),
        ("domain", format!("{}: {}", target.domain, target.domain_reason)),
    ];
    if let Some(emulated) = &target.emulated {
        facts.push(("EMULATED", format!("{emulated}: no figure here was measured on such a medium")));
    }
    let flush = &machine.flush_instruction;
    facts.push(("instructions", format!("{flush} to flush, {} to stream", machine.stream_instruction)));
    let clock = if method.repetition_ns == 0 {
        method.clock.clone()
    } else {
        let repetition_ms = nearest_f64(method.repetition_ns) / 1e6;
        format!("{}; median of {} repetitions of {repetition_ms} ms", method.clock, method.repetitions)
    };
    facts.push(("clock", clock));
    if method.repetition_ns > 0 {
        let pinned = if method.pinned { "pinned" } else { "not pinned" };
        facts.push((
            "harness",
            format!("{:.2} ns a step without an access, part of every figure; threads {pinned}", method.harness_ns),
        ));
    }
    facts
}
