//! The command tree: one file per command, each with its arguments and a `run` that returns the exit code.

mod bench;
mod completions;
mod crash;
mod demo;
mod kv;
mod man;
mod media;
mod pool;
mod sim;
mod topology;
mod torture;

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};

use crate::output::Output;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

const AFTER_HELP: &str = "\
Examples:
  lodestone pool create orders.pool --size 256MiB
  lodestone kv import orders.pool orders.csv --key id
  lodestone kv scan orders.pool --prefix 2026- --limit 10
  lodestone pool check orders.pool
  lodestone crash run --all

Exit codes:
  0  what was asked holds
  1  a finding: damage, a missing key, rejected rows, a crash-consistency violation, a surviving mutant
  2  wrong usage, or the work could not be done; the message names the file, the finding and the next step

Every command takes --json (one JSON object per line on standard output) and --help (with examples).";

/// Durable data on persistent memory and on ordinary files.
#[derive(Debug, Parser)]
#[command(
    name = "lodestone",
    version,
    about,
    after_help = AFTER_HELP,
    styles = STYLES,
    propagate_version = true,
    max_term_width = 110
)]
pub struct Cli {
    /// Print one JSON object per line instead of text
    #[arg(long, global = true)]
    pub json: bool,

    /// Print results and errors only: no notes, no progress
    #[arg(long, short, global = true)]
    pub quiet: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create, inspect, check and maintain pools
    Pool(pool::Args),
    /// Store, read, import and export keys and values
    Kv(kv::Args),
    /// Explore what a power failure can leave behind
    Crash(crash::Args),
    /// Kill writers and judge what they leave: the project's own kill tests, for your file system and device
    Torture(torture::Args),
    /// Measure throughput, latency and cost, with the figures' origin
    Bench(bench::Args),
    /// Know what memories cost: profiles, models, and how they compare with the papers
    Media(media::Args),
    /// Model machines that are not here, with every assumption stated
    Sim(sim::Args),
    /// A guided first run: a pool, real data, kills, power failures, figures, one page
    Demo(demo::Args),
    /// Show the NUMA nodes of this machine, or virtual ones, and what it costs a thread to know its node
    Topology(topology::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Write the man pages
    Man(man::Args),
}

impl Command {
    /// Whether another command of this program started this one, reads what it prints and ends it.
    pub fn is_worker(&self) -> bool {
        match self {
            Self::Torture(args) => args.is_worker(),
            Self::Bench(args) => args.is_worker(),
            _ => false,
        }
    }

    /// Runs the command.
    pub fn run(self, output: &Output) -> Result<ExitCode> {
        match self {
            Self::Pool(args) => pool::run(args, output),
            Self::Kv(args) => kv::run(args, output),
            Self::Torture(args) => torture::run(args, output),
            Self::Crash(args) => crash::run(args, output),
            Self::Media(args) => media::run(args, output),
            Self::Bench(args) => bench::run(args, output),
            Self::Sim(args) => sim::run(args, output),
            Self::Demo(args) => demo::run(&args, output),
            Self::Topology(args) => topology::run(&args, output),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args, output),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Calls `check` with every command and the words that lead to it.
    fn visit(command: &clap::Command, path: &str, check: &mut dyn FnMut(&clap::Command, &str)) {
        let path = format!("{path} {}", command.get_name());
        check(command, path.trim());
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            visit(inner, &path, check);
        }
    }

    /// Every command explains itself with examples.
    #[test]
    fn every_command_has_examples() {
        visit(&Cli::command(), "", &mut |command, path| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "`{path} --help` has no examples");
            assert!(help.contains("lodestone "), "`{path} --help` shows no command line");
        });
    }

    /// The examples of a help text as it is printed, one a line.
    fn examples(help: &str) -> Vec<String> {
        let lines = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
        let text = lines.take_while(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n");
        // A line that ends in a backslash goes on in the next one.
        text.replace("\\\n", " ").lines().map(str::to_owned).collect()
    }

    /// The words of each simple command on a line of a shell: quotes, pipes, redirections and comments, nothing more.
    fn shell(line: &str) -> Vec<Vec<String>> {
        let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
        let mut chars = line.chars().peekable();
        while let Some(found) = chars.next() {
            match found {
                '\'' | '"' => {
                    let text = word.get_or_insert_default();
                    text.extend(chars.by_ref().take_while(|inner| *inner != found));
                }
                '#' if word.is_none() => break,
                '|' | '&' | ';' => {
                    words.extend(word.take());
                    commands.push(std::mem::take(&mut words));
                }
                found if found.is_whitespace() => words.extend(word.take()),
                found => word.get_or_insert_default().push(found),
            }
        }
        words.extend(word);
        commands.push(words);
        for words in &mut commands {
            let redirection = words.iter().position(|word| matches!(word.as_str(), ">" | "<" | "2>"));
            words.truncate(redirection.unwrap_or(words.len()));
        }
        commands.retain(|words| !words.is_empty());
        commands
    }

    /// What is pasted from the help of a terminal of 80 columns is understood: no line is broken, no option is gone.
    #[test]
    fn every_example_survives_pasting() {
        let mut count = 0;
        visit(&Cli::command(), "", &mut |command, path| {
            let help = command.clone().term_width(80).max_term_width(80).render_long_help().to_string();
            for example in examples(&help) {
                let calls = shell(&example);
                assert!(calls.iter().any(|words| words[0] == "lodestone"), "`{path} --help`: {example}");
                for words in calls.iter().filter(|words| words[0] == "lodestone") {
                    count += 1;
                    if let Err(error) = Cli::try_parse_from(words) {
                        // A file of the user's own is not here.
                        let is_no_file = error.to_string().contains("No such file");
                        assert!(is_no_file || !error.use_stderr(), "`{path} --help`: {example}\n{error}");
                    }
                }
            }
        });
        assert!(count > 100, "{count} examples");
    }

    #[test]
    fn the_shell_of_the_test_is_one() {
        let line = "A | lodestone kv txn 'a b' \"c d\" > out; lodestone x & kill -9 $! # why | not";
        let expected: [&[&str]; 4] =
            [&["A"], &["lodestone", "kv", "txn", "a b", "c d"], &["lodestone", "x"], &["kill", "-9", "$!"]];
        assert_eq!(shell(line), expected);
        assert_eq!(examples("Examples:\n  a \\\n    b\n  c\n\nmore"), ["  a      b", "  c"]);
    }
}
