//! The `lodestone` command: pools, a durable key-value map, imports, media. `bench`, `sim`, `torture`, `crash` and
//! `demo` are commands of `lodestone-lab`. This program becomes that one for them.

mod lab_program;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use lodestone_cli::commands::Daily;
use lodestone_cli::log::command_word;
use lodestone_cli::output::Output;
use lodestone_cli::program::{self, Commands};

/// Threads free rows that others have allocated. The system's allocator makes them wait for each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The commands.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one, for the time of the command")]
enum Command {
    #[command(flatten)]
    Daily(Daily),
    /// Explore the possible states after a power failure (lodestone-lab)
    Crash,
    /// Kill writers and judge the pools they leave, on your file system and device (lodestone-lab)
    Torture,
    /// Measure throughput, latency and cost (lodestone-lab)
    Bench,
    /// Model machines that are absent (lodestone-lab)
    Sim,
    /// A guided first run: a pool, real data, kills, power failures, figures, one page (lodestone-lab)
    Demo,
}

/// Commands of the laboratory.
const LAB: [&str; 5] = ["crash", "torture", "bench", "sim", "demo"];

impl Commands for Command {
    fn is_worker(&self) -> bool {
        false
    }

    fn run(self, program: clap::Command, output: &Output) -> Result<ExitCode> {
        match self {
            Self::Daily(command) => command.run(program, output),
            Self::Crash | Self::Torture | Self::Bench | Self::Sim | Self::Demo => lab_program::become_it(),
        }
    }
}

fn main() -> ExitCode {
    // Before the arguments are parsed: `lodestone-lab` parses those of its commands.
    let words: Vec<String> = std::env::args().skip(1).collect();
    match command_word(words.iter().map(String::as_str)) {
        Some(word) if LAB.contains(&word) => lab_program::run(),
        // Pages and completions cover all commands, when `lodestone-lab` is installed.
        Some("man" | "completions") if lab_program::is_here() => lab_program::run(),
        // `lodestone help bench`
        Some("help") if words.iter().any(|word| LAB.contains(&word.as_str())) => lab_program::run(),
        _ => program::run::<Command>(),
    }
}
