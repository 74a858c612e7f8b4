//! `lodestone sql`: SQL on a database, without a server.

use std::io::{BufRead, IsTerminal};

use anyhow::Result;
use lodestone_sql::{Answer, Connection, Database};
use serde::Serialize;

use super::db::place::DbArgs;
use crate::output::{Output, table};
use crate::size;

const AFTER_HELP: &str = "\
Examples:
  lodestone sql shop.pool -c 'create table t (k int primary key, v text)'
  lodestone sql shop.pool -c 'insert into t values (1)' -c 'select * from t'
  lodestone sql shop.pool < statements.sql

Without -c statements are read from standard input; one ends with ; at the end of a
line. The exit code is 1 when a statement was refused. The ones after it do not run.";

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

    /// Bytes of the log of a new database [default: a quarter of the free space, at most 256 MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    log_bytes: Option<u64>,
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
    let engine = args.db.make(args.log_bytes, output)?;
    let stem = args.db.open.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let database = Database::new(engine, &args.isolation)?;
    let mut connection = database.connect("lodestone", &stem);
    if !args.command.is_empty() {
        for text in &args.command {
            if !run_text(&mut connection, text, output)? {
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
        text += &line;
        text.push('\n');
        if line.trim_end().ends_with(';')
            && !run_text(&mut connection, &std::mem::take(&mut text), output)?
            && !is_person
        {
            return Ok(false);
        }
    }
    run_text(&mut connection, &text, output)
}

/// Runs a text, and prints its answers. `false`: it was refused.
fn run_text(connection: &mut Connection, text: &str, output: &Output) -> Result<bool> {
    match connection.run(text) {
        Ok(answers) => {
            for answer in answers {
                let line = Line { tag: &answer.tag, columns: &answer.columns, rows: &answer.rows };
                output.result(&line, |_| shown(&answer))?;
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
