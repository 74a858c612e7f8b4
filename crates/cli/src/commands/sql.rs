//! `lodestone sql`: SQL on a database, without a server.

mod backslash;

use std::io::{BufRead, IsTerminal};
use std::time::Instant;

use anyhow::{Context, Result};
use lodestone_sql::{Answer, Connection, Database};
use serde::Serialize;

use self::backslash::Command;
use super::db::place::{DbArgs, NewDatabaseArgs};
use crate::output::{Output, table};

const AFTER_HELP: &str = "\
Examples:
  lodestone sql shop.pool -c 'create table t (k int primary key, v text)'
  lodestone sql shop.pool -c 'insert into t values (1)' -c 'select * from t'
  lodestone sql shop.pool < statements.sql

Without -c statements are read from standard input; one ends with ; at the end of a
line. A line that begins with a backslash is a command as in psql: \\? lists them.
The exit code is 1 when a statement was refused. The ones after it do not run.";

/// Arguments of `lodestone sql`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    /// Run these statements
    #[arg(short, long, value_name = "SQL")]
    command: Vec<String>,

    /// Level of transactions that name none
    #[arg(long, value_name = "LEVEL", default_value = "serializable", value_parser =
        ["serializable", "repeatable read", "read committed", "read uncommitted"])]
    isolation: String,

    #[command(flatten)]
    new: NewDatabaseArgs,
}

#[derive(Serialize)]
struct Line<'l> {
    tag: &'l str,
    columns: &'l [String],
    rows: &'l [Vec<Option<String>>],
}

#[derive(Serialize)]
struct Refused {
    code: &'static str,
    message: String,
    hint: Option<String>,
}

/// Runs the statements. Whether all of them were accepted.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let engine = args.db.make(&args.new, output)?;
    let stem = args.db.open.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let database = Database::new(engine, &args.isolation)?;
    let mut shell = Shell {
        connection: database.connect("lodestone", &stem),
        output,
        shows_time: false,
        is_expanded: false,
        has_ended: false,
    };
    if !args.command.is_empty() {
        for text in &args.command {
            let is_accepted = if text.starts_with('\\') { shell.command(text)? } else { shell.run(text)? };
            if !is_accepted {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let input = std::io::stdin();
    let is_person = input.is_terminal();
    if is_person {
        output.note("end each statement with ; and the input with Ctrl-D");
    }
    let mut text = String::new();
    for line in input.lock().lines() {
        let line = line?;
        if text.trim().is_empty() && line.trim_start().starts_with('\\') {
            if !shell.command(&line)? && !is_person {
                return Ok(false);
            }
            if shell.has_ended {
                return Ok(true);
            }
            continue;
        }
        text += &line;
        text.push('\n');
        if line.trim_end().ends_with(';') && !shell.run(&std::mem::take(&mut text))? && !is_person {
            return Ok(false);
        }
    }
    shell.run(&text)
}

/// A connection, and how its answers are shown.
struct Shell<'o> {
    connection: Connection,
    output: &'o Output,
    shows_time: bool,
    is_expanded: bool,
    has_ended: bool,
}

impl Shell<'_> {
    fn run(&mut self, text: &str) -> Result<bool> {
        let begin = Instant::now();
        let outcome = run_text(&mut self.connection, text, (self.is_expanded, self.output));
        if self.shows_time && !text.trim().is_empty() {
            self.output.note(&format!("Time: {:.3} ms", begin.elapsed().as_secs_f64() * 1000.0));
        }
        outcome
    }

    /// Carries out a command that begins with a backslash. `false`: it was refused.
    fn command(&mut self, line: &str) -> Result<bool> {
        let state = |is_on: bool| if is_on { "on" } else { "off" };
        match backslash::read(line) {
            Some(Command::Quit) => self.has_ended = true,
            Some(Command::Help) => self.output.result(&backslash::HELP, |help| (*help).to_owned())?,
            Some(Command::Echo(text)) => self.output.result(&text, Clone::clone)?,
            Some(Command::Timing) => {
                self.shows_time = !self.shows_time;
                self.output.note(&format!("Timing is {}.", state(self.shows_time)));
            }
            Some(Command::Expanded) => {
                self.is_expanded = !self.is_expanded;
                self.output.note(&format!("Expanded display is {}.", state(self.is_expanded)));
            }
            Some(Command::Include(path)) => {
                let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
                return self.run(&text);
            }
            Some(Command::Queries(queries)) => {
                for (title, query) in queries {
                    self.output.note(&title);
                    if !run_text(&mut self.connection, &query, (self.is_expanded, self.output))? {
                        return Ok(false);
                    }
                }
            }
            None => {
                self.output.note(&format!("invalid command {}. Try \\? for help.", line.trim()));
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Runs a text, and prints its answers. `false`: it was refused.
fn run_text(connection: &mut Connection, text: &str, (is_expanded, output): (bool, &Output)) -> Result<bool> {
    match connection.run(text) {
        Ok(answers) => {
            for answer in answers {
                let line = Line { tag: &answer.tag, columns: &answer.columns, rows: &answer.rows };
                output.result(&line, |_| if is_expanded { expanded(&answer) } else { shown(&answer) })?;
            }
            Ok(true)
        }
        Err(error) => {
            let hint = error.hint_text().map(str::to_owned);
            let refused = Refused { code: error.state().code(), message: error.message().to_owned(), hint };
            output.result(&refused, |refused| {
                let hint = refused.hint.as_ref().map_or(String::new(), |hint| format!("\nHINT: {hint}"));
                format!("ERROR {}: {}{hint}", refused.code, refused.message)
            })?;
            Ok(false)
        }
    }
}

fn shown(answer: &Answer) -> String {
    if answer.columns.is_empty() {
        return answer.tag.clone();
    }
    let columns: Vec<&str> = answer.columns.iter().map(String::as_str).collect();
    let mut shown = table(&columns);
    for row in &answer.rows {
        shown.add_row(row.iter().map(|cell| cell.as_deref().unwrap_or("null")));
    }
    format!("{shown}\n{}", answer.tag)
}

/// A line for each column.
fn expanded(answer: &Answer) -> String {
    let width = answer.columns.iter().map(|column| column.chars().count()).max().unwrap_or_default();
    let mut lines = Vec::new();
    for (number, row) in answer.rows.iter().enumerate() {
        lines.push(format!("-[ RECORD {} ]-", number + 1));
        let cells = answer.columns.iter().zip(row);
        lines.extend(cells.map(|(column, cell)| format!("{column:width$} | {}", cell.as_deref().unwrap_or("null"))));
    }
    lines.push(answer.tag.clone());
    lines.join("\n")
}
