//! `lodestone pool check` and `lodestone pool repair`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use lodestone_pmem::{Pool, Severity};
use lodestone_store::{Adopted, Foreseen, Rebuilt, Unrepaired};
use serde::Serialize;

use crate::examine::{self, Examination};
use crate::interrupt;
use crate::output::Output;
use crate::size;

use super::OpenArgs;

/// So many repairs that say the same of other places have a line each.
const ALIKE_MAX: usize = 10;

/// Arguments of `lodestone pool check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    open: OpenArgs,

    /// For symmetry with the other commands that read: without --repair a check never changes a byte
    #[arg(long, conflicts_with = "repair")]
    read_only: bool,

    /// Repair what can be repaired
    #[arg(long)]
    repair: bool,

    #[command(flatten)]
    repair_args: RepairOptions,
}

/// How far a repair may go.
#[derive(Debug, clap::Args)]
struct RepairOptions {
    /// Empty a journal that is damaged: acknowledged writes in it are lost
    #[arg(long)]
    accept_journal_loss: bool,
}

/// Arguments of `lodestone pool repair`.
#[derive(Debug, clap::Args)]
pub struct RepairArgs {
    #[command(flatten)]
    open: OpenArgs,

    #[command(flatten)]
    options: RepairOptions,

    /// Rebuild each damaged object from its readable records; the others are named, and lost. Without --yes: say what
    /// would go, and change nothing
    #[arg(long)]
    accept_loss: bool,

    /// Confirm that unreadable records may go
    #[arg(long, requires = "accept_loss")]
    yes: bool,
}

#[derive(Serialize)]
struct Repaired {
    path: String,
    repaired: Vec<String>,
    /// Objects whose names were lost.
    adopted: Vec<Adopted>,
    /// Rebuilt objects, with their losses and their doubtful records.
    rebuilt: Vec<Rebuilt>,
    /// Damaged objects that stay as they are.
    left: Vec<Unrepaired>,
}

/// Checks the pool, and repairs it when asked.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    if args.repair {
        mend(&args.open, args.repair_args.accept_journal_loss, false, output)?;
    }
    let found = look(&args.open, output)?;
    output.result(&found, text)?;
    Ok(found.clean)
}

/// The plan of a repair that accepts loss.
#[derive(Serialize)]
struct Plan {
    path: String,
    /// The damaged objects.
    plan: Vec<Foreseen>,
}

/// Repairs the pool and checks the rest.
pub fn run_repair(args: &RepairArgs, output: &Output) -> Result<bool> {
    if args.accept_loss && !args.yes {
        let plan = plan(&args.open)?;
        output.result(&plan, what_would_go)?;
        bail!("{}: nothing was changed; say --yes to accept that loss", plan.path);
    }
    mend(&args.open, args.options.accept_journal_loss, args.accept_loss, output)?;
    let found = look(&args.open, output)?;
    output.result(&found, text)?;
    Ok(found.clean)
}

/// The losses that a repair would accept, found without a change.
fn plan(open: &OpenArgs) -> Result<Plan> {
    let path = open.path.display().to_string();
    let pool = open.open_read_only().with_context(|| format!("{path}: nothing was changed, and no plan was made"))?;
    Ok(Plan { path, plan: examine::foresee_loss(&pool, &mut |_| {}) })
}

fn what_would_go(plan: &Plan) -> String {
    let path = &plan.path;
    if plan.plan.is_empty() {
        return format!("{path}: no readable object would lose a record");
    }
    plan.plan.iter().map(|object| format!("{path}: {}", foreseen(object))).collect::<Vec<_>>().join("\n")
}

fn foreseen(object: &Foreseen) -> String {
    let Foreseen { name, records, lost, doubtful, .. } = object;
    let advice = match doubtful {
        0 => String::new(),
        _ => format!(
            "; keep the doubtful ones first with `lodestone kv export POOL --map {name} --skip-damaged --doubtful FILE`"
        ),
    };
    format!("`{name}` would keep {records} records; {lost} losses and {doubtful} doubtful records would go{advice}")
}

/// Checks the pool through all layers, once no other process has it open.
fn look(open: &OpenArgs, output: &Output) -> Result<Examination> {
    let options = open.options()?;
    let _busy = output.busy("check");
    interrupt::so_far("the check was not finished, and nothing was changed; run it again");
    open.wait.retry(|| examine::examine(&open.path, &options, &mut |_| {}))
}

fn mend(open: &OpenArgs, accept_journal_loss: bool, accept_loss: bool, output: &Output) -> Result<()> {
    let options = open.options()?;
    let report = open.wait.retry(|| Ok(Pool::repair(&open.path, &options, accept_journal_loss)?))?;
    let mut repaired = report.done;
    let (mut adopted, mut rebuilt, mut left) = (Vec::new(), Vec::new(), Vec::new());
    // The check that follows describes a pool that still cannot be opened.
    if report.after.is_clean() {
        let pool = open.open()?;
        if accept_loss {
            // Before anything is dropped.
            for object in examine::foresee_loss(&pool, &mut |_| {}) {
                output.note(&format!("{}: {}", open.path.display(), foreseen(&object)));
            }
            interrupt::so_far("each object is as it was, or made anew; run it again");
        }
        let inside = examine::repair_inside(&pool, accept_loss, &mut |_| {})
            .with_context(|| format!("{}: repairing what is in the pool failed", open.path.display()))?;
        repaired.extend(inside.repaired);
        (adopted, rebuilt, left) = (inside.adopted, inside.rebuilt, inside.left);
    }
    let repaired = Repaired { path: open.path.display().to_string(), repaired, adopted, rebuilt, left };
    output.result(&repaired, what_was_done)
}

fn what_was_done(done: &Repaired) -> String {
    let path = &done.path;
    let mut lines: Vec<String> =
        in_short(&done.repaired).iter().map(|text| format!("{path}: repaired: {text}")).collect();
    for Adopted { name, kind, .. } in &done.adopted {
        lines.push(format!("{path}: {kind} had lost its name; it is called `{name}` now"));
    }
    for object in &done.rebuilt {
        let Rebuilt { name, kind, records, lost, doubtful, .. } = object;
        let (losses, doubts) = (lost.len(), doubtful.len());
        let doubts = if doubts == 0 { String::new() } else { format!(", {doubts} doubtful records dropped") };
        lines.push(format!("{path}: `{name}`, {kind}, was made anew with {records} records; {losses} losses{doubts}"));
        lines.extend(lost.iter().map(|lost| format!("{path}: `{name}`: lost: {lost}")));
        lines.extend(doubtful.iter().map(|found| format!("{path}: `{name}`: doubtful, and dropped: {found}")));
    }
    lines.extend(done.left.iter().map(|left| format!("{path}: `{}` stays as it is: {}", left.name, left.why)));
    if lines.is_empty() { format!("{path}: there was nothing to repair") } else { lines.join("\n") }
}

/// Texts that say the same of many places, in one line.
fn in_short(texts: &[String]) -> Vec<String> {
    let mut alike: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for text in texts {
        alike.entry(text.rsplit_once(": ").map_or(text, |(_, what)| what)).or_default().push(text);
    }
    let lines = alike.into_values().flat_map(|texts| match texts.len() {
        0..=ALIKE_MAX => texts.into_iter().cloned().collect(),
        count => vec![format!("{}; and the same {} times more, which --json lists", texts[0], count - 1)],
    });
    lines.collect()
}

fn text(found: &Examination) -> String {
    let mut lines: Vec<_> = found.findings.iter().map(ToString::to_string).collect();
    let damaged = found.findings.iter().filter(|finding| finding.severity != Severity::Note).count();
    let verdict = if found.clean { "no damage".to_owned() } else { format!("{damaged} DAMAGED") };
    let ownership = if found.ownership_checked { "every block has one owner" } else { "ownership not checked" };
    lines.push(format!(
        "{}: {verdict}; {} read, {} words of heap metadata, {} blocks ({}), {} records in {} objects",
        found.path,
        size::human(found.read_bytes),
        found.heap_words,
        found.heap_blocks,
        if found.clean { ownership } else { "see above" },
        found.records,
        found.objects.len()
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_repairs_of_one_kind_are_one_line() {
        let blocks = (0..50).map(|at| format!("block {at}: nothing reaches it"));
        let all: Vec<String> = blocks.chain(["word 7: it was mended".to_owned()]).collect();
        let expected = [
            "word 7: it was mended".to_owned(),
            "block 0: nothing reaches it; and the same 49 times more, which --json lists".to_owned(),
        ];
        assert_eq!(in_short(&all), expected);
        assert_eq!(in_short(&all[..5]), all[..5]);
    }
}
