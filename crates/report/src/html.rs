//! A self-contained HTML page: one file, no script, no font, no image, no link to anywhere else.
//!
//! 1. Blocks (headings, paragraphs, tiles, verdicts, tables, figures, listings) are collected in order.
//! 2. [`HtmlReport::to_html`] writes them once, with the style of the page and of the figures in the head. Headings
//!    have anchors and, from three on, a list at the top.
//!
//! Invariants:
//! - The page is well-formed XML after its document type line, so that any tool can read it.
//! - A content security policy forbids all loading, in case a text ever slips through the escaping.

mod table;

pub use table::Table;

use std::fs;
use std::io;
use std::path::Path;

use crate::escape::escape;
use crate::figure::{Figure, STYLE as FIGURE_STYLE};
use crate::provenance::Provenance;

const PAGE_STYLE: &str = include_str!("html/style.css");

/// Number of headings from which on the page has a list of them at the top.
const CONTENTS_FROM: usize = 3;
/// Most rows of data in a figure's table: more are of no use to a reader.
const DATA_ROWS_MAX: usize = 400;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The checked property holds.
    Pass,
    /// It does not.
    Fail,
    /// Worth knowing; neither good nor bad.
    Info,
}

#[derive(Debug, Clone, PartialEq)]
enum Block {
    Heading(String),
    Paragraph(String),
    Tiles(Vec<(String, String)>),
    Verdict(Outcome, String),
    Advice { outcome: Outcome, word: String, sentence: String, evidence: String },
    Table(Table),
    Figure(Box<Figure>),
    Listing(String),
}

/// A page under construction.
///
/// ```
/// use lodestone_report::html::{HtmlReport, Outcome, Table};
///
/// let page = HtmlReport::new("Kill test")
///     .lead("1,000 kills on an ordinary file.")
///     .tiles([("acknowledged writes", "1,204,311"), ("lost", "0")])
///     .verdict(Outcome::Pass, "No acknowledged write was lost.")
///     .to_html();
/// assert!(page.contains("1,204,311"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HtmlReport {
    title: String,
    lead: String,
    provenance: Provenance,
    blocks: Vec<Block>,
}

impl HtmlReport {
    /// An empty page.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), lead: String::new(), provenance: Provenance::new(), blocks: Vec::new() }
    }

    /// One or two sentences below the title: the action and its result.
    #[must_use]
    pub fn lead(mut self, text: impl Into<String>) -> Self {
        self.lead = text.into();
        self
    }

    /// Where the figures come from, at the end of the page.
    #[must_use]
    pub fn provenance(mut self, provenance: Provenance) -> Self {
        self.provenance = provenance;
        self
    }

    /// Starts a section.
    #[must_use]
    pub fn heading(self, text: impl Into<String>) -> Self {
        self.with(Block::Heading(text.into()))
    }

    /// A paragraph.
    #[must_use]
    pub fn paragraph(self, text: impl Into<String>) -> Self {
        self.with(Block::Paragraph(text.into()))
    }

    /// A row of tiles, each a name and its headline figure.
    #[must_use]
    pub fn tiles<Name: Into<String>, Text: Into<String>>(self, tiles: impl IntoIterator<Item = (Name, Text)>) -> Self {
        self.with(Block::Tiles(tiles.into_iter().map(|(name, text)| (name.into(), text.into())).collect()))
    }

    /// The result of a check, in its colour and in words.
    #[must_use]
    pub fn verdict(self, outcome: Outcome, text: impl Into<String>) -> Self {
        self.with(Block::Verdict(outcome, text.into()))
    }

    /// A sentence of advice after a word of the caller, with the figures that support it.
    #[must_use]
    pub fn advice(
        self,
        outcome: Outcome,
        word: impl Into<String>,
        sentence: impl Into<String>,
        evidence: impl Into<String>,
    ) -> Self {
        let (word, sentence, evidence) = (word.into(), sentence.into(), evidence.into());
        self.with(Block::Advice { outcome, word, sentence, evidence })
    }

    /// A table.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.with(Block::Table(table))
    }

    /// A figure, with its data in a table that opens on demand.
    #[must_use]
    pub fn figure(self, figure: Figure) -> Self {
        self.with(Block::Figure(Box::new(figure)))
    }

    /// Text as a terminal shows it: commands, traces.
    #[must_use]
    pub fn listing(self, text: impl Into<String>) -> Self {
        self.with(Block::Listing(text.into()))
    }

    fn with(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    /// The page.
    #[must_use]
    pub fn to_html(&self) -> String {
        let title = escape(&self.title);
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n\
             <style>\n{PAGE_STYLE}{FIGURE_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        );
        if !self.lead.is_empty() {
            page.push_str(&format!("<p class=\"lead\">{}</p>\n", escape(&self.lead)));
        }
        page.push_str(&self.contents());
        for (index, block) in self.blocks.iter().enumerate() {
            page.push_str(&render_block(block, index));
        }
        page.push_str(&render_provenance(&self.provenance));
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }

    /// Writes the page to `path`. It writes a new file beside `path` and then renames it, so that a reader never sees
    /// half a page.
    ///
    /// # Errors
    /// If the folder cannot be written. The message names the file.
    pub fn write_to(&self, path: &Path) -> io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".new");
        let beside = path.with_file_name(name);
        let written = fs::write(&beside, self.to_html()).and_then(|()| fs::rename(&beside, path));
        written.map_err(|error| {
            let text = format!("cannot write the report {}: {error}; choose a writable folder", path.display());
            io::Error::new(error.kind(), text)
        })
    }

    fn contents(&self) -> String {
        let headings: Vec<(usize, &String)> = self
            .blocks
            .iter()
            .enumerate()
            .filter_map(|(index, block)| match block {
                Block::Heading(text) => Some((index, text)),
                _ => None,
            })
            .collect();
        if headings.len() < CONTENTS_FROM {
            return String::new();
        }
        let items: String = headings
            .into_iter()
            .map(|(index, text)| format!("<li><a href=\"#part-{index}\">{}</a></li>\n", escape(text)))
            .collect();
        format!("<nav aria-label=\"Contents\">\n<ul>\n{items}</ul>\n</nav>\n")
    }
}

fn class_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Fail => "fail",
        Outcome::Info => "info",
    }
}

fn render_block(block: &Block, index: usize) -> String {
    match block {
        Block::Heading(text) => format!("<h2 id=\"part-{index}\">{}</h2>\n", escape(text)),
        Block::Paragraph(text) => format!("<p>{}</p>\n", escape(text)),
        Block::Tiles(tiles) => {
            let tile = |(name, text): &(String, String)| {
                format!("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escape(text), escape(name))
            };
            format!("<div class=\"tiles\">\n{}</div>\n", tiles.iter().map(tile).collect::<String>())
        }
        Block::Verdict(outcome, text) => {
            let word = match outcome {
                Outcome::Pass => "Holds",
                Outcome::Fail => "Violated",
                Outcome::Info => "Note",
            };
            format!("<p class=\"verdict {}\"><b>{word}</b>{}</p>\n", class_of(*outcome), escape(text))
        }
        Block::Advice { outcome, word, sentence, evidence } => format!(
            "<p class=\"verdict {}\"><b>{}</b>{}<small>{}</small></p>\n",
            class_of(*outcome),
            escape(word),
            escape(sentence),
            escape(evidence)
        ),
        Block::Table(table) => table.to_html(),
        Block::Figure(figure) => render_figure(figure, index),
        Block::Listing(text) => format!("<pre>{}</pre>\n", escape(text)),
    }
}

fn render_figure(figure: &Figure, index: usize) -> String {
    let note = match figure.note_text() {
        "" => String::new(),
        note => format!("<figcaption>{}</figcaption>\n", escape(note)),
    };
    let svg = figure.to_svg_fragment(&format!("figure-{index}"));
    format!("<figure>\n{svg}{note}{}</figure>\n", render_data(figure))
}

fn render_data(figure: &Figure) -> String {
    let (titles, rows) = figure.data_rows();
    let count = rows.len();
    if count == 0 {
        return String::new();
    }
    let mut data = Table::new(titles);
    for row in rows.into_iter().take(DATA_ROWS_MAX) {
        data = data.row(row);
    }
    if count > DATA_ROWS_MAX {
        data = data.caption(format!("The first {DATA_ROWS_MAX} of {count} points."));
    }
    format!("<details>\n<summary>Data of this figure</summary>\n{}</details>\n", data.to_html())
}

fn render_provenance(provenance: &Provenance) -> String {
    if provenance.facts().is_empty() {
        return String::new();
    }
    let fact = |(name, text): &(String, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(text));
    let facts: String = provenance.facts().iter().map(fact).collect();
    format!("<h2>Where these figures come from</h2>\n<dl class=\"provenance\">\n{facts}</dl>\n")
}
