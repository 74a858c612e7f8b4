//! The `lodestone-lab` program: everything that `lodestone` does, and the commands that measure and prove.
//!
//! | command | purpose |
//! | --- | --- |
//! | [`mod@bench`] | measures this machine |
//! | [`sim`] | models machines that are absent |
//! | [`torture`] | kills writers and judges the pools they leave |
//! | [`crash`] | explores the possible states after a power failure |
//! | [`demo`] | the guided first run: all of them |
//!
//! A user types `lodestone bench`, and that program becomes this one. So the names in help and examples are
//! `lodestone`.

mod allocator;
mod bench;
mod crash;
mod demo;
mod sim;
mod torture;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use lodestone_cli::commands::Daily;
use lodestone_cli::output::Output;
use lodestone_cli::program::{self, Commands, Outcome};

/// The commands.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Daily(Daily),
    /// Explore the possible states after a power failure
    #[command(subcommand)]
    Crash(crash::CrashCommand),
    /// Kill writers and judge the pools they leave: the project's own kill tests, for your file system and device
    #[command(subcommand)]
    Torture(torture::TortureCommand),
    /// Measure throughput, latency and cost, with the figures' origin
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Model machines that are absent, with every assumption stated
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// A guided first run: a pool, real data, kills, power failures, figures, one page
    Demo(demo::Args),
}

impl Commands for Command {
    fn is_worker(&self) -> bool {
        match self {
            Self::Torture(command) => command.is_worker(),
            Self::Bench(command) => command.is_worker(),
            _ => false,
        }
    }

    fn run(self, program: clap::Command, output: &Output) -> Result<ExitCode> {
        match self {
            Self::Daily(command) => command.run(program, output),
            Self::Torture(command) => command.run(output),
            Self::Crash(command) => command.run(output),
            Self::Bench(command) => command.run(output),
            Self::Sim(command) => command.run(output),
            Self::Demo(args) => demo::run(&args, output).map(Outcome::code),
        }
    }
}

fn main() -> ExitCode {
    // Only this program can replay its targets.
    lodestone_crash::replay_with("lodestone crash replay");
    program::run::<Command>()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    type Cli = program::Cli<Command>;

    #[test]
    fn the_command_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Calls `check` with every command and its path of words.
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

    /// The examples of a help text as printed, one a line.
    fn examples(help: &str) -> Vec<String> {
        let lines = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
        let text = lines.take_while(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("\n");
        // A line that ends in a backslash goes on in the next line.
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
            let redirection = words.iter().position(|word| matches!(word.as_str(), ">" | ">>" | "<" | "2>"));
            words.truncate(redirection.unwrap_or(words.len()));
        }
        commands.retain(|words| !words.is_empty());
        commands
    }

    /// Examples pasted from the help of a terminal of 80 columns parse: no line is broken, no option is missing.
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
                        // The user's file in an example does not exist here.
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
