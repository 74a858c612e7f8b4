//! `lodestone kv check`.

use anyhow::Result;
use lodestone_store::Acknowledge;
use serde::Serialize;

use crate::commands::pool::ReadArgs;
use crate::output::Output;

use super::MapArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone kv check orders.pool
  lodestone kv check orders.pool --map users --json

Exit code 1 when something does not verify. `lodestone pool check` verifies the pool and its heap as well.";

/// Arguments of `lodestone kv check`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Serialize)]
struct Checked {
    map: String,
    kind: String,
    /// Of the map. `None` when it is in a memory and damage hides it there.
    records: Option<u64>,
    /// Of the memory that contains the map.
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<u64>,
    pm_bytes: u64,
    findings: Vec<String>,
}

/// Verifies everything of the map.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let (store, object, member) = args.map.open_object_to_read(args.read)?;
    let name = object.name();
    let kind = store.kind_of(&object)?;
    let what = kind.describe(&object);
    let contents = kind.examine(object).map_err(anyhow::Error::from_boxed)?;
    let records = match &member {
        None => Some(contents.records),
        Some(member) => {
            let records = kind.records(store.open_object(&name)?, Some(member), Acknowledge::EachChange);
            records.and_then(|records| records.len()).ok()
        }
    };
    let checked = Checked {
        map: member.as_ref().map_or_else(|| name.clone(), |member| format!("{name}/{member}")),
        kind: what,
        records,
        objects: member.is_some().then_some(contents.records),
        pm_bytes: contents.blocks.iter().filter_map(|(at, _)| store.heap().block_bytes(*at)).sum(),
        findings: contents.flaws.iter().map(|flaw| format!("{}: {}", flaw.at, flaw.text)).collect(),
    };
    output.result(&checked, |checked| {
        let mut text = String::new();
        for finding in &checked.findings {
            text.push_str(&format!("{}: {finding}\n", store.pool().path().display()));
        }
        let verdict = if checked.findings.is_empty() {
            "everything verifies".to_owned()
        } else {
            format!(
                "{} findings; restore a backup, or bring out the rest by `lodestone kv export --skip-damaged`",
                checked.findings.len()
            )
        };
        let records = checked.records.map_or_else(|| "unknown".to_owned(), |records| records.to_string());
        let objects = checked.objects.map_or_else(String::new, |objects| format!(" in a memory of {objects} objects"));
        format!("{text}map {}, {}: {records} records{objects}: {verdict}", checked.map, checked.kind)
    })?;
    Ok(checked.findings.is_empty())
}
