//! `lodestone kv txn`: several changes of a transactional map, all or nothing.
//!
//! The map is a [`PmBTreeMap`] in the pool's transactional memory, beside the ordered maps of the other commands.

mod script;

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use lodestone_collections::{Bytes, PmBTreeMap};
use lodestone_stm::{Error, Stm, Tx, TxResult};
use serde::Serialize;

use crate::bytes;
use crate::output::Output;

use self::script::{Op, Step};
use super::MapArgs;
use super::record::Record;
use crate::commands::pool::open_store;

const AFTER_HELP: &str = "\
Steps, one a line (# begins a comment; words with blanks stand in double quotes, with \\\" \\\\ \\n \\t \\xNN inside):
  put KEY VALUE        set the key
  get KEY              print the value
  delete KEY           remove the key; nothing happens when it is not there
  expect KEY VALUE     go on only if the key has this value
  absent KEY           go on only if the key is not there
  cas KEY OLD NEW      go on only if the key has the value OLD; set it to NEW
  add KEY NUMBER       add to a value that is a whole number; a missing one counts as 0
  scan [PREFIX]        print the records whose keys begin so, in order

Steps see what the steps before them did. Everything happens or nothing; it is durable when the command returns.

Examples:
  printf 'expect alice 100\\nadd alice -30\\nadd bob 30\\n' \\
    | lodestone kv txn bank.pool
  lodestone kv txn bank.pool transfer.txt --json
  echo scan | lodestone kv txn bank.pool

The map is in the pool's transactional memory. The other `kv` commands reach it as --map OBJECT/NAME (`lodestone pool
info` lists both), or as --map NAME if no object has that name.

Exit code 1 when an expectation does not hold: nothing has changed. Exit code 2 on an error: nothing has changed, or the message says that this is not known (the medium failed).";

/// Arguments of `lodestone kv txn`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    /// The script: a file, or - for standard input
    #[arg(default_value = "-")]
    script: PathBuf,
}

/// The result of a step.
struct Done {
    step: &'static str,
    /// Whether the key was there.
    found: Option<bool>,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The result of a step, as `--json` prints it.
#[derive(Serialize)]
struct StepLine<'d> {
    line: usize,
    step: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    records: Vec<Record<'d>>,
}

#[derive(Serialize)]
struct Committed<'d> {
    committed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    steps: Vec<StepLine<'d>>,
    domain: String,
}

/// Runs the script as one transaction.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let (name, text) = read(&args.script)?;
    let steps = script::parse(&name, &text)?;
    let pool = args.map.open.open()?;
    let stm = Stm::open(&open_store(&pool)?)
        .with_context(|| format!("{}: opening the memory failed", pool.path().display()))?;
    let map = PmBTreeMap::<Bytes, Bytes>::open(&stm, &args.map.map)?;
    let mut failed = None;
    let outcome = stm.update(|tx| {
        failed = None;
        let mut all = Vec::with_capacity(steps.len());
        for step in &steps {
            match execute(tx, map, step)? {
                Ok(done) => all.push(done),
                Err(reason) => {
                    failed = Some((step.line, reason));
                    return tx.cancel("a step does not hold");
                }
            }
        }
        Ok(all)
    });
    let done = match (outcome, &failed) {
        (Ok(done), _) => done,
        (Err(Error::Cancelled { .. }), Some((line, reason))) => {
            output.note(&format!("{name}, line {line}: {reason}; nothing has changed"));
            Vec::new()
        }
        (Err(error), _) => {
            let changed = what_changed(&error);
            return Err(error).with_context(|| format!("{name}: {changed}"));
        }
    };
    let committed = Committed {
        committed: failed.is_none(),
        failed_line: failed.as_ref().map(|(line, _)| *line),
        reason: failed.as_ref().map(|(_, reason)| reason.clone()),
        steps: steps.iter().zip(&done).map(|(step, done)| done.line(step.line)).collect(),
        domain: pool.memory().domain().to_string(),
    };
    if output.is_json() {
        output.json(&committed)?;
    } else {
        print(&steps, &done, output)?;
    }
    Ok(committed.committed)
}

/// The state of the changes when the transaction ended with `error`.
fn what_changed(error: &Error) -> &'static str {
    match error {
        // The medium failed, perhaps after the commit.
        Error::Pool(_) => "either everything has changed or nothing; look with `scan` when the pool is open again",
        _ => "nothing has changed",
    }
}

impl Done {
    fn line(&self, line: usize) -> StepLine<'_> {
        let records = self.entries.iter().map(|(key, value)| Record::new(key, value)).collect();
        StepLine { line, step: self.step, found: self.found, records }
    }
}

fn read(path: &PathBuf) -> Result<(String, String)> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("reading the script from standard input failed")?;
        return Ok(("standard input".into(), text));
    }
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("{name}: reading the script failed"))?;
    Ok((name, text))
}

/// Prints the results of `get` and `scan`.
fn print(steps: &[Step], done: &[Done], output: &Output) -> Result<()> {
    for (step, done) in steps.iter().zip(done) {
        for (key, value) in &done.entries {
            match &step.op {
                Op::Get { .. } => output.line(&bytes::display(value))?,
                Op::Scan { .. } => output.line(&format!("{}\t{}", bytes::display(key), bytes::display(value)))?,
                _ => {}
            }
        }
        if matches!(step.op, Op::Get { .. }) && done.found == Some(false) {
            output.line("(absent)")?;
        }
    }
    Ok(())
}

/// Executes a step. The inner error is the reason why the transaction must not go on.
fn execute(tx: &mut Tx<'_>, map: PmBTreeMap<Bytes, Bytes>, step: &Step) -> TxResult<Result<Done, String>> {
    let line = |step, found, entries| Ok(Ok(Done { step, found, entries }));
    match &step.op {
        Op::Put { key, value } => {
            let was = map.insert(tx, key, value)?;
            line("put", Some(was), Vec::new())
        }
        Op::Delete { key } => {
            let was = map.remove(tx, key)?;
            line("delete", Some(was), Vec::new())
        }
        Op::Get { key } => {
            let value = map.get(tx, key)?;
            line("get", Some(value.is_some()), value.map(|value| (key.clone(), value)).into_iter().collect())
        }
        Op::Scan { prefix } => {
            let entries = map.prefix(tx, prefix)?.collect::<TxResult<Vec<_>>>()?;
            line("scan", None, entries)
        }
        Op::Expect { key, value } => match compare(key, value.as_deref(), map.get(tx, key)?.as_deref()) {
            Ok(()) => line("expect", Some(value.is_some()), Vec::new()),
            Err(reason) => Ok(Err(reason)),
        },
        Op::Cas { key, old, new } => match compare(key, Some(old), map.get(tx, key)?.as_deref()) {
            Ok(()) => {
                map.insert(tx, key, new)?;
                line("cas", Some(true), Vec::new())
            }
            Err(reason) => Ok(Err(reason)),
        },
        Op::Add { key, number } => match add(map.get(tx, key)?.as_deref(), *number) {
            Ok(sum) => {
                let sum = sum.to_string().into_bytes();
                let was = map.insert(tx, key, &sum)?;
                line("add", Some(was), vec![(key.clone(), sum)])
            }
            Err(error) => Ok(Err(format!("key `{}`: {error:#}", bytes::display(key)))),
        },
    }
}

fn compare(key: &[u8], expected: Option<&[u8]>, found: Option<&[u8]>) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let shown = |value: Option<&[u8]>| value.map_or("nothing".into(), |value| format!("`{}`", bytes::display(value)));
    Err(format!("key `{}` holds {}, expected {}", bytes::display(key), shown(found), shown(expected)))
}

fn add(found: Option<&[u8]>, number: i64) -> Result<i64> {
    let found = found.map_or(Ok(0), script::integer)?;
    match found.checked_add(number) {
        Some(sum) => Ok(sum),
        None => bail!("{found} and {number} together do not fit 64 bits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_medium_leaves_it_open_what_changed() {
        let failed = lodestone_pmem::Error::Invalid { what: "medium", finding: "gone".into(), hint: "none" };
        assert!(what_changed(&Error::Pool(failed)).starts_with("either"));
        assert_eq!(what_changed(&Error::Nested), "nothing has changed");
    }
}
