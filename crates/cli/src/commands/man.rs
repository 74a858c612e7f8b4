//! `lodestone man`: the man pages, one for each command, made from the same tree as the help.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap_mangen::Man;
use serde::Serialize;

use crate::new_file::NewFile;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone man --out ~/.local/share/man/man1
  lodestone man --out man --overwrite && man -l man/lodestone-kv-import.1";

/// Arguments of `lodestone man`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Folder for the pages, made if it is missing
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,

    /// Replace existing pages
    #[arg(long)]
    overwrite: bool,
}

#[derive(Serialize)]
struct Written {
    folder: String,
    pages: Vec<String>,
}

/// Writes the pages of `program` and of all its commands.
pub fn run(args: &Args, program: clap::Command, output: &Output) -> Result<()> {
    let folder = args.out.display().to_string();
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("{folder}: making the folder failed; choose a writable place"))?;
    let mut command = program.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    write(&command, "lodestone", args, &mut pages)?;
    ensure!(!pages.is_empty(), "there are no commands");
    output.result(&Written { folder, pages }, |written| {
        format!("{}: {} man pages, from lodestone.1 on", written.folder, written.pages.len())
    })
}

/// Writes the page of `command`, which is called `name`, and the pages of its subcommands.
fn write(command: &clap::Command, name: &str, args: &Args, pages: &mut Vec<String>) -> Result<()> {
    let page = format!("{name}.1");
    let path = args.out.join(&page);
    let mut text = Vec::new();
    // The name of a page is one word. The name of the command keeps its blanks.
    let man = Man::new(command.clone().display_name(name)).title(name.to_uppercase());
    man.render(&mut text).context("rendering a man page failed")?;
    save(&path, &text, args.overwrite)?;
    pages.push(page);
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    inner.into_iter().try_for_each(|inner| write(inner, &format!("{name}-{}", inner.get_name()), args, pages))
}

fn save(path: &Path, text: &[u8], overwrite: bool) -> Result<()> {
    let mut file = NewFile::create(path, overwrite)?;
    file.write_all(text).with_context(|| format!("{}: writing failed; free space there", path.display()))?;
    file.publish()
}
