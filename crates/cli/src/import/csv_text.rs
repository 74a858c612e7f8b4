//! Delimited text (RFC 4180 with any one-byte delimiter) as rows.
//!
//! A row is found line by line: a quoted field that is open at the end of a line goes on in the next one. That can
//! fail, because the quote is never closed, or the resulting row has the wrong number of fields. Then only the first
//! line is rejected, and reading goes on with the second. So one stray quote costs one line, not the rest of the file.
//!
//! 1. [`Splitter::feed`] splits one physical line into fields and returns whether a quoted field is still open.
//! 2. [`CsvRows::next_row`] feeds lines until a row is complete, then picks key and value.
//!
//! Invariant: every byte of the source belongs to exactly one row, a blank line or the header.

use std::io;

use crate::object::ObjectText;

use super::lines::{Ahead, Lines, Position, Raw, too_long, without_end};
use super::rows::{Row, Rows, Selection};

/// Longest row that quotes may hold together. Beyond it the quote counts as never closed.
const ROW_BYTES_MAX: usize = 1 << 20;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The dialect of delimited text.
#[derive(Clone, Debug)]
pub struct CsvFormat {
    /// The byte between fields.
    pub delimiter: u8,
    /// Whether the first row names the columns.
    pub has_header: bool,
}

/// Why a line is no row.
#[derive(Debug, PartialEq, Eq)]
struct Malformed;

/// Splits a row into fields, physical line by physical line.
#[derive(Debug, Default)]
struct Splitter {
    fields: Vec<Vec<u8>>,
    in_quotes: bool,
}

impl Splitter {
    /// Takes one line with its line end. `true` when the row is complete, `false` when a quoted field is still open.
    fn feed(&mut self, line: &[u8], delimiter: u8) -> Result<bool, Malformed> {
        let end = without_end(line).len();
        let mut at = 0;
        loop {
            if self.in_quotes {
                let Some(step) = self.quoted(&line[at..])? else { return Ok(false) };
                at += step;
            } else if line[..end].get(at) == Some(&b'"') {
                self.fields.push(Vec::new());
                self.in_quotes = true;
                at += 1;
                continue;
            } else {
                let rest = line.get(at..end).unwrap_or(&[]);
                let length = rest.iter().position(|byte| *byte == delimiter).unwrap_or(rest.len());
                self.fields.push(rest[..length].to_vec());
                at += length;
            }
            match line[..end].get(at) {
                None => return Ok(true),
                Some(byte) if *byte == delimiter => at += 1,
                // Text between a closing quote and the next delimiter.
                Some(_) => return Err(Malformed),
            }
        }
    }

    /// Reads inside quotes. Returns the bytes up to and with the closing quote, or `None` when the line ends before it.
    fn quoted(&mut self, text: &[u8]) -> Result<Option<usize>, Malformed> {
        let field = self.fields.last_mut().ok_or(Malformed)?;
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            if *byte != b'"' {
                field.push(*byte);
                at += 1;
            } else if text.get(at + 1) == Some(&b'"') {
                field.push(b'"');
                at += 2;
            } else {
                self.in_quotes = false;
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }
}

/// Delimited text as rows.
pub struct CsvRows {
    lines: Lines,
    delimiter: u8,
    /// Names of the columns, once they are known.
    columns: Vec<String>,
    head: Vec<u8>,
    selection: Selection,
    key: usize,
    values: Vec<usize>,
}

impl CsvRows {
    /// Rows of `lines`, which are at the start of the source. Reads the header.
    ///
    /// # Errors
    /// When the source cannot be read, has no row at all, or lacks a selected column.
    pub fn new(mut lines: Lines, format: &CsvFormat, selection: Selection) -> anyhow::Result<Self> {
        skip_blank_lines(&mut lines)?;
        let (count, fields) = match split_row(&mut lines, format.delimiter)? {
            Some((count, Ok(fields))) => (count, fields),
            Some((_, Err(reason))) => anyhow::bail!("line {}: {reason}", lines.position().line),
            None => anyhow::bail!("the source is empty; there is nothing to import"),
        };
        let mut rows = Self {
            lines,
            delimiter: format.delimiter,
            columns: Vec::new(),
            head: Vec::new(),
            selection,
            key: 0,
            values: Vec::new(),
        };
        if format.has_header {
            if let Raw::Bytes(head) = rows.lines.consume(count) {
                rows.head = head;
            }
            rows.columns = fields.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned()).collect();
        } else {
            rows.columns = (1..=fields.len()).map(|number| format!("column_{number}")).collect();
        }
        rows.select()?;
        Ok(rows)
    }

    /// Goes on with `lines`, which are somewhere after the header.
    pub fn resume(&mut self, lines: Lines) {
        self.lines = lines;
    }

    fn select(&mut self) -> anyhow::Result<()> {
        let column = |name: &String| {
            let by_name = self.columns.iter().position(|column| column == name);
            if let Some(first) = by_name {
                refuse_twins(&self.columns, &[first])?;
            }
            let by_number = || name.parse().ok().filter(|number| (1..=self.columns.len()).contains(number));
            by_name.or_else(|| by_number().map(|number: usize| number - 1)).ok_or_else(|| {
                anyhow::anyhow!(
                    "there is no column `{name}`; the columns are {} (a number from 1 works too)",
                    self.columns.join(", ")
                )
            })
        };
        self.key = self.selection.key.as_ref().map_or(Ok(0), column)?;
        self.values = self.selection.values.iter().map(column).collect::<anyhow::Result<_>>()?;
        if self.values.is_empty() {
            self.values = (0..self.columns.len()).filter(|index| *index != self.key).collect();
        }
        if self.values.len() == 1 && self.selection.values.len() == 1 {
            return Ok(());
        }
        // The value is an object, in which each name occurs once.
        let names: Vec<String> = self.values.iter().map(|index| self.columns[*index].clone()).collect();
        match names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            Some((index, _)) => refuse_twins(&self.columns, &[self.values[index]]),
            None => Ok(()),
        }
    }

    fn pick(&self, mut fields: Vec<Vec<u8>>) -> Result<(Vec<u8>, Vec<u8>), String> {
        let value = if let ([only], 1) = (self.values.as_slice(), self.selection.values.len()) {
            fields[*only].clone()
        } else {
            self.object(&fields)?
        };
        let key = std::mem::take(&mut fields[self.key]);
        if key.is_empty() {
            return Err(format!("the key column `{}` is empty", self.columns[self.key]));
        }
        Ok((key, value))
    }

    /// The value columns as one JSON object, in the order of the source.
    fn object(&self, fields: &[Vec<u8>]) -> Result<Vec<u8>, String> {
        let mut text = ObjectText::new();
        for index in &self.values {
            let name = &self.columns[*index];
            let field = std::str::from_utf8(&fields[*index])
                .map_err(|_| format!("column `{name}` is not UTF-8; take it alone with --value to keep raw bytes"))?;
            text.push_text(name, field);
        }
        Ok(text.finish())
    }
}

impl Rows for CsvRows {
    fn next_row(&mut self) -> io::Result<Option<Row>> {
        skip_blank_lines(&mut self.lines)?;
        let Some((mut count, split)) = split_row(&mut self.lines, self.delimiter)? else { return Ok(None) };
        let content = match split {
            Ok(fields) if fields.len() == self.columns.len() => self.pick(fields),
            Ok(fields) => {
                count = 1;
                Err(format!("{} fields where the first row has {}", fields.len(), self.columns.len()))
            }
            Err(reason) => Err(reason),
        };
        let line = self.lines.position().line;
        Ok(Some(Row { line, raw: self.lines.consume(count), content }))
    }

    fn position(&self) -> Position {
        self.lines.position()
    }

    fn head(&self) -> &[u8] {
        &self.head
    }
}

/// Refuses a selection by name where one of the columns at `chosen` shares its name with another.
fn refuse_twins(columns: &[String], chosen: &[usize]) -> anyhow::Result<()> {
    for index in chosen {
        let name = &columns[*index];
        let twins: Vec<usize> = (0..columns.len()).filter(|twin| columns[*twin] == *name).collect();
        if let [first, second, ..] = twins[..] {
            anyhow::bail!(
                "columns {} and {} are both called `{name}`, and the value of one would be lost; rename one in the first \
                 row, or choose the key and one value by number (--key 1 --value {})",
                first + 1,
                second + 1,
                second + 1
            );
        }
    }
    Ok(())
}

fn skip_blank_lines(lines: &mut Lines) -> io::Result<()> {
    while matches!(lines.peek(0)?, Some(Ahead::Line(line)) if without_end(line).is_empty()) {
        lines.consume(1);
    }
    Ok(())
}

type Split = Result<Vec<Vec<u8>>, String>;

/// Splits the row at the position. Returns the number of its physical lines, and its fields or the fault.
fn split_row(lines: &mut Lines, delimiter: u8) -> io::Result<Option<(usize, Split)>> {
    let at_start = lines.position().offset == 0;
    let mut splitter = Splitter::default();
    let mut bytes = 0;
    let mut count = 0;
    loop {
        let mut line = match lines.peek(count)? {
            Some(Ahead::Line(line)) => line,
            Some(Ahead::TooLong(bytes)) if count == 0 => return Ok(Some((1, Err(too_long(bytes))))),
            Some(Ahead::TooLong(_)) => {
                return Ok(Some((1, Err("a quote is opened and not closed within 1 MiB".to_owned()))));
            }
            None => return Ok((count > 0).then(|| (1, Err("a quote is opened and never closed".to_owned())))),
        };
        if at_start && count == 0 {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        bytes += line.len();
        count += 1;
        match splitter.feed(line, delimiter) {
            Ok(true) => return Ok(Some((count, Ok(splitter.fields)))),
            Ok(false) if bytes <= ROW_BYTES_MAX => {}
            Ok(false) => return Ok(Some((1, Err("a quote is opened and not closed within 1 MiB".to_owned())))),
            Err(Malformed) => {
                return Ok(Some((1, Err("text between a closing quote and the next delimiter".to_owned()))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMMA: CsvFormat = CsvFormat { delimiter: b',', has_header: true };

    fn rows(text: &str, format: &CsvFormat, selection: Selection) -> CsvRows {
        let lines = Lines::new(Box::new(io::Cursor::new(text.as_bytes().to_vec())), Position::START);
        CsvRows::new(lines, format, selection).expect("header")
    }

    type Content = Result<(String, String), String>;

    fn all(mut rows: CsvRows) -> Vec<(u64, Content)> {
        let mut found = Vec::new();
        while let Some(row) = rows.next_row().expect("read") {
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
            found.push((row.line, row.content.map(|(key, value)| (text(key), text(value)))));
        }
        found
    }

    fn good(key: &str, value: &str) -> Content {
        Ok((key.to_owned(), value.to_owned()))
    }

    #[test]
    fn the_rest_of_the_row_becomes_json_in_column_order() {
        let text = "\u{feff}id,name,note\r\n1,Ann,\"says \"\"hi\"\"\"\r\n\r\n2,Bob,\"two\r\nlines\"\r\n";
        let found = all(rows(text, &COMMA, Selection::default()));
        assert_eq!(found[0], (2, good("1", r#"{"name":"Ann","note":"says \"hi\""}"#)));
        assert_eq!(found[1], (4, good("2", r#"{"name":"Bob","note":"two\r\nlines"}"#)));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn columns_are_chosen_by_name_or_number() {
        let text = "a;b;c\n1;2;3\n";
        let format = CsvFormat { delimiter: b';', has_header: true };
        let one = Selection { key: Some("c".into()), values: vec!["1".into()] };
        assert_eq!(all(rows(text, &format, one)), [(2, good("3", "1"))]);
        let two = Selection { key: Some("2".into()), values: vec!["c".into(), "a".into()] };
        assert_eq!(all(rows(text, &format, two)), [(2, good("2", r#"{"c":"3","a":"1"}"#))]);
        let plain = CsvFormat { delimiter: b';', has_header: false };
        let found = all(rows(text, &plain, Selection::default()));
        assert_eq!(found[0], (1, good("a", r#"{"column_2":"b","column_3":"c"}"#)));
        let lines = Lines::new(Box::new(&b"a;b\n"[..]), Position::START);
        let missing = Selection { key: Some("zip".into()), values: vec![] };
        let message = CsvRows::new(lines, &format, missing).err().expect("no such column").to_string();
        assert!(message.contains("`zip`") && message.contains("a, b"), "{message}");
    }

    #[test]
    fn columns_of_one_name_are_refused_by_number() {
        let of = |text: &str, key: Option<&str>, values: &[&str]| {
            let lines = Lines::new(Box::new(io::Cursor::new(text.as_bytes().to_vec())), Position::START);
            let values = values.iter().map(|name| (*name).to_owned()).collect();
            CsvRows::new(lines, &COMMA, Selection { key: key.map(str::to_owned), values })
        };
        let text = "id,name,total,name\n1,Ann,7,Beth\n";
        for (key, values) in [(None, &[][..]), (Some("name"), &["total"]), (None, &["name"]), (None, &["2", "4"])] {
            let message = of(text, key, values).err().expect("ambiguous").to_string();
            assert!(message.contains("columns 2 and 4 are both called `name`"), "{message}");
        }
        assert_eq!(all(of(text, None, &["4"]).expect("by number")), [(2, good("1", "Beth"))]);
        assert_eq!(all(of(text, None, &["total"]).expect("not meant")), [(2, good("1", "7"))]);
    }

    #[test]
    fn a_line_of_more_than_16_mib_is_one_bad_row() {
        let text = format!("k,v\n1,one\n2,{}\n3,three\n", "x".repeat(17 << 20));
        let found = all(rows(&text, &COMMA, Selection { key: None, values: vec!["v".into()] }));
        assert_eq!((found.len(), &found[0], &found[2]), (3, &(2, good("1", "one")), &(4, good("3", "three"))));
        assert!(
            found[1].0 == 3 && found[1].1.as_ref().is_err_and(|reason| reason.contains("16 MiB")),
            "{:?}",
            found[1].0
        );
    }

    #[test]
    fn a_bad_row_costs_its_line_and_no_more() {
        let text = "k,v\n1,one\n2,two,too many\n3\n4,\"open\n5,five\n,empty\n6,\"six\" and more\n7,seven\n";
        let found = all(rows(text, &COMMA, Selection { key: None, values: vec!["v".into()] }));
        let lines_bad: Vec<u64> = found.iter().filter(|(_, row)| row.is_err()).map(|(line, _)| *line).collect();
        assert_eq!(lines_bad, [3, 4, 5, 7, 8]);
        let good_rows: Vec<_> = found.into_iter().filter_map(|(_, row)| row.ok()).collect();
        let expected = [("1", "one"), ("5", "five"), ("7", "seven")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(good_rows, expected);
    }

    #[test]
    fn a_stray_quote_that_pairs_with_a_later_one_costs_its_line() {
        let text = "k,v\n1,\"open\n2,two\n3,\"three\"\n4,four\n";
        let found = all(rows(text, &COMMA, Selection { key: None, values: vec!["v".into()] }));
        assert_eq!(found.len(), 4);
        assert!(found[0].1.is_err());
        assert_eq!(found[1..], [(3, good("2", "two")), (4, good("3", "three")), (5, good("4", "four"))]);
    }

    proptest! {
        /// Fields written by the csv crate, quoted or not, are read back unchanged, whatever their content.
        #[test]
        fn what_the_csv_crate_writes_is_read_back(
            table in prop::collection::vec(("[a-z\",\r\n ]{1,8}", "[a-z\",\r\n ]{0,8}"), 1..20),
            always_quote: bool,
        ) {
            let style = if always_quote { csv::QuoteStyle::Always } else { csv::QuoteStyle::Necessary };
            let mut writer = csv::WriterBuilder::new().quote_style(style).from_writer(Vec::new());
            writer.write_record(["key", "value"]).expect("write");
            for (key, value) in &table {
                writer.write_record([key, value]).expect("write");
            }
            let text = String::from_utf8(writer.into_inner().expect("flush")).expect("UTF-8");
            let found = all(rows(&text, &COMMA, Selection { key: None, values: vec!["value".into()] }));
            let found: Vec<_> = found.into_iter().map(|(_, row)| row.expect("good row")).collect();
            prop_assert_eq!(found, table);
        }

        /// No input panics, and every byte is consumed exactly once.
        #[test]
        fn any_bytes_are_rows_or_rejects(bytes in prop::collection::vec(prop::sample::select(b"ab,\"\r\n".to_vec()), 0..200)) {
            let mut whole = b"k,v\n".to_vec();
            whole.extend_from_slice(&bytes);
            let lines = Lines::new(Box::new(io::Cursor::new(whole.clone())), Position::START);
            let mut rows = CsvRows::new(lines, &COMMA, Selection::default()).expect("header");
            while rows.next_row().expect("read").is_some() {}
            prop_assert_eq!(rows.position().offset, whole.len() as u64);
            prop_assert_eq!(rows.position().crc, crc32c::crc32c(&whole));
        }
    }
}
