//! Runs the programs and collects their lines.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Options;

/// All lines of all runs.
#[derive(Debug, Default)]
pub struct Lines {
    /// Lines of `bench stm`, ours and the peers'.
    pub structures: Vec<Value>,
    /// Lines of YCSB.
    pub ycsb: Vec<Value>,
    /// Lines of the model, each with the run's name in `run`.
    pub model: Vec<Value>,
}

/// A program and the settings for the files of its runs.
pub(crate) struct Runner<'a> {
    pub(crate) out: &'a Path,
    pub(crate) lodestone: PathBuf,
    pub(crate) peers: Option<PathBuf>,
    pub(crate) place: String,
    /// Take the lines of an earlier run instead of running anything.
    pub(crate) redraw: bool,
}

impl Runner<'_> {
    /// Runs `program` and keeps its lines in the file `name`.
    pub(crate) fn run(&self, program: &Path, name: &str, arguments: &[&str]) -> Result<Vec<Value>> {
        let path = self.out.join(format!("{name}.jsonl"));
        if self.redraw {
            return parse(&std::fs::read_to_string(&path).unwrap_or_default());
        }
        println!("running {} {}", program.display(), arguments.join(" "));
        let output = Command::new(program).args(arguments).output();
        let output = output.with_context(|| format!("{} cannot be run", program.display()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!("{} {}: {}\n{text}", program.display(), arguments.join(" "), output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        std::fs::write(&path, &text).with_context(|| format!("{} cannot be written", path.display()))?;
        parse(&text)
    }

    /// Runs our own command on a file in memory.
    pub(crate) fn ours(&self, name: &str, arguments: &[&str]) -> Result<Vec<Value>> {
        self.ours_in("dax-emulated", name, arguments)
    }

    /// The same in a persistence domain of choice.
    pub(crate) fn ours_in(&self, domain: &str, name: &str, arguments: &[&str]) -> Result<Vec<Value>> {
        let mut all = arguments.to_vec();
        all.extend(["--path", &self.place, "--domain", domain, "--json"]);
        if domain == "process" {
            // It must not be asked for a guarantee that it cannot keep.
            all.extend(["--durability", "process"]);
        }
        self.run(&self.lodestone, name, &all)
    }
}

/// The objects among the lines of a program's output.
fn parse(text: &str) -> Result<Vec<Value>> {
    let objects = text.lines().filter(|line| line.starts_with('{'));
    objects.map(|line| serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))).collect()
}

/// Runs cargo in `folder`.
pub(crate) fn build(folder: &Path, arguments: &[&str]) -> Result<()> {
    let status = Command::new("cargo").args(arguments).current_dir(folder).status().context("cargo cannot be run")?;
    if status.success() { Ok(()) } else { bail!("cargo {} failed in {}", arguments.join(" "), folder.display()) }
}

/// Builds the programs, then runs everything.
pub fn all(root: &Path, out: &Path, options: &Options) -> Result<Lines> {
    let peers_folder = root.join("peers");
    let with_peers = !options.no_peers && Path::new("/usr/include/libpmemobj.h").exists();
    if !with_peers {
        println!("without the peers: {}", if options.no_peers { "as asked" } else { "run peers/setup.sh first" });
    }
    if !options.no_build && !options.redraw {
        build(root, &["build", "--release", "--package", "lodestone-cli"])?;
        if with_peers {
            build(&peers_folder, &["build", "--release"])?;
        }
    }
    let runner = Runner {
        out,
        lodestone: root.join("target/release/lodestone"),
        peers: with_peers.then(|| peers_folder.join("target/release/lodestone-peers")),
        place: options.place.display().to_string(),
        redraw: options.redraw,
    };
    let mut lines = Lines::default();
    structures(&runner, options.quick, &mut lines)?;
    model(&runner, options.quick, &mut lines)?;
    ycsb(&runner, options.quick, &mut lines)?;
    Ok(lines)
}

/// Figures 9 to 11, measured: three mixes, one and two threads.
fn structures(runner: &Runner<'_>, quick: bool, lines: &mut Lines) -> Result<()> {
    let (seconds, warm_up) = if quick { ("0.2", "0.05") } else { ("3", "0.5") };
    let shared = ["--structure", "hash,tree,list,btree", "--updates", "2,20,80", "--seconds", seconds];
    let mut ours = vec!["bench", "stm", "--engine", "stm,tl2-redo,tl2-undo,dram,dram-lock", "--threads", "1,2"];
    ours.extend(["--warm-up", warm_up]);
    ours.extend(shared);
    lines.structures = runner.ours("structures", &ours)?;
    // The three global clocks on real threads, beside the thread clock.
    let mut clocks = vec!["bench", "stm", "--engine", "stm", "--clock", "thread,mutex,add,cas", "--threads", "1,2"];
    clocks.extend(["--mode", "one-fence,address-log,scan", "--structure", "hash", "--updates", "80"]);
    clocks.extend(["--seconds", seconds, "--warm-up", warm_up]);
    lines.structures.extend(runner.ours("clocks", &clocks)?);
    if let Some(peers) = &runner.peers {
        let mut theirs = vec!["stm", "--threads", "1,2", "--warm-up", warm_up, "--folder", &runner.place, "--json"];
        theirs.extend(shared);
        lines.structures.extend(runner.run(peers, "structures-pmemobj", &theirs)?);
    }
    Ok(())
}

/// Figures 1 to 3, and 9 to 11 beyond this machine: the model.
fn model(runner: &Runner<'_>, quick: bool, lines: &mut Lines) -> Result<()> {
    let (seconds, transactions) = if quick { ("0.1", "4000") } else { ("1", "50000") };
    let mut runs = vec![("tl2-redo", "hash", "100"), ("tl2-undo", "tree", "50"), ("tl2-redo", "tree", "50")];
    for structure in ["hash", "tree", "list"] {
        for updates in ["2", "20", "80"] {
            runs.extend([("stm", structure, updates), ("tl2-redo", structure, updates)]);
        }
    }
    for (engine, structure, updates) in runs {
        let name = format!("model-{engine}-{structure}-{updates}");
        let mut arguments = vec!["sim", "stm", "--engine", engine, "--structure", structure, "--updates", updates];
        arguments.extend(["--seconds", seconds, "--transactions", transactions]);
        for mut line in runner.ours(&name, &arguments)? {
            line["run"] = format!("{engine}-{structure}-{updates}").into();
            lines.model.push(line);
        }
    }
    Ok(())
}

/// Figure 12: YCSB A to D on the B+-tree, and on other engines.
fn ycsb(runner: &Runner<'_>, quick: bool, lines: &mut Lines) -> Result<()> {
    let (records, operations) = if quick { ("20000", "20000") } else { ("1000000", "10000000") };
    for engine in ["stm", "tl2-redo", "map"] {
        let arguments = ["bench", "ycsb", "--engine", engine, "--workload", "a,b,c,d", "--threads", "1,2"];
        let sizes = ["--records", records, "--operations", operations, "--seconds", "20"];
        lines.ycsb.extend(runner.ours(&format!("ycsb-{engine}"), &[&arguments[..], &sizes[..]].concat())?);
    }
    let Some(peers) = &runner.peers else { return Ok(()) };
    for engine in ["pmemobj", "redb", "lmdb", "rocksdb"] {
        for workload in ["a", "b", "c", "d"] {
            for threads in ["1", "2"] {
                let name = format!("ycsb-{engine}-{workload}-{threads}");
                let mut arguments = vec!["--engine", engine, "--workload", workload, "--threads", threads];
                arguments.extend(["--records", records, "--operations", operations, "--folder", &runner.place]);
                arguments.extend(["--durability", "sync", "--json"]);
                let found = runner.run(peers, &name, &arguments)?;
                lines.ycsb.extend(found.into_iter().filter(|line| line["workload"] != "load"));
            }
        }
    }
    Ok(())
}
