//! Records as CSV or JSON Lines.
//!
//! Two shapes for each: *key and value*, from which an import makes the same records again byte for byte; and *flat*,
//! where a value that is a JSON object is spread over columns or fields. Flat never drops anything silently: a value
//! that does not fit the columns is an error that says how to export it.

use std::io::Write;

use anyhow::{Context, Result, bail};

use crate::bytes::{display, to_hex};
use crate::object::{Object, ObjectText, plain_text};

/// A sink of records.
pub trait Export {
    /// Writes one record. The `io::Error` of a failing sink is returned as it came.
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes what is buffered.
    fn finish(&mut self) -> Result<()>;
}

type Sink<'a> = Box<dyn Write + 'a>;

/// `{"key":...,"value":...}` for each record; `key_hex` and `value_hex` where the bytes are no text.
pub struct JsonExport<'a>(Sink<'a>);

impl<'a> JsonExport<'a> {
    /// Writes to `sink`.
    pub fn new(sink: Sink<'a>) -> Self {
        Self(sink)
    }
}

impl Export for JsonExport<'_> {
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut text = ObjectText::new();
        for (name, bytes) in [("key", key), ("value", value)] {
            match std::str::from_utf8(bytes) {
                Ok(plain) => text.push_text(name, plain),
                Err(_) => text.push_text(&format!("{name}_hex"), &to_hex(bytes)),
            }
        }
        write_line(&mut self.0, text)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

/// The columns `key` and `value`, with the bytes as they are.
pub struct CsvExport<'a> {
    writer: csv::Writer<Sink<'a>>,
    has_header: bool,
}

impl<'a> CsvExport<'a> {
    /// Writes to `sink`.
    pub fn new(sink: Sink<'a>) -> Self {
        Self { writer: csv::Writer::from_writer(sink), has_header: false }
    }

    fn header(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.has_header, true) {
            self.writer.write_record(["key", "value"]).map_err(unwrap_io)?;
        }
        Ok(())
    }
}

impl Export for CsvExport<'_> {
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.header()?;
        self.writer.write_record([key, value]).map_err(unwrap_io)
    }

    fn finish(&mut self) -> Result<()> {
        self.header()?;
        Ok(self.writer.flush()?)
    }
}

/// The fields of each value, after the key.
pub struct FlatJsonExport<'a> {
    sink: Sink<'a>,
    key_name: &'a str,
}

impl<'a> FlatJsonExport<'a> {
    /// Writes to `sink`; the key becomes the field `key_name`.
    pub fn new(sink: Sink<'a>, key_name: &'a str) -> Self {
        Self { sink, key_name }
    }
}

impl Export for FlatJsonExport<'_> {
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let object = flat(key, value, self.key_name)?;
        let mut text = ObjectText::new();
        text.push_text(self.key_name, key_text(key)?);
        for (name, value) in &object.0 {
            text.push_raw(name, value.get());
        }
        write_line(&mut self.sink, text)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.sink.flush()?)
    }
}

/// The key and the fields of each value as columns.
pub struct FlatCsvExport<'a> {
    writer: csv::Writer<Sink<'a>>,
    key_name: &'a str,
    /// `None` until the first record names them.
    columns: Option<Vec<String>>,
    /// Whether the user chose the columns, and with it what is left out.
    chosen: bool,
    has_header: bool,
}

impl<'a> FlatCsvExport<'a> {
    /// Writes to `sink`; the key becomes the column `key_name`.
    pub fn new(sink: Sink<'a>, key_name: &'a str, columns: &[String]) -> Self {
        let chosen = !columns.is_empty();
        let columns = chosen.then(|| columns.to_vec());
        Self { writer: csv::Writer::from_writer(sink), key_name, columns, chosen, has_header: false }
    }

    fn header(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.has_header, true) {
            let columns = self.columns.iter().flatten().map(String::as_str);
            self.writer.write_record([self.key_name].into_iter().chain(columns)).map_err(unwrap_io)?;
        }
        Ok(())
    }
}

impl Export for FlatCsvExport<'_> {
    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let object = flat(key, value, self.key_name)?;
        if self.columns.is_none() {
            self.columns = Some(object.0.iter().map(|(name, _)| name.clone()).collect());
        }
        self.header()?;
        let columns = self.columns.as_deref().unwrap_or_default();
        if let Some((name, _)) = object.0.iter().find(|(name, _)| !self.chosen && !columns.contains(name)) {
            bail!(
                "key `{}`: the value has a field `{name}` that the first record lacks; name the columns with --columns, \
                 or export with --format jsonl",
                display(key)
            );
        }
        let mut row = vec![key_text(key)?.to_owned()];
        row.extend(columns.iter().map(|name| object.field(name).map(plain_text).unwrap_or_default()));
        self.writer.write_record(row).map_err(unwrap_io)
    }

    fn finish(&mut self) -> Result<()> {
        self.header()?;
        Ok(self.writer.flush()?)
    }
}

/// The fields of a value that is to be spread.
fn flat(key: &[u8], value: &[u8], key_name: &str) -> Result<Object> {
    let object: Object = serde_json::from_slice(value)
        .map_err(|_| anyhow::anyhow!("key `{}`: the value is no JSON object; export without --flat", display(key)))?;
    if let Some(name) = object.repeated() {
        bail!("key `{}`: the value has two fields `{name}`; export without --flat", display(key));
    }
    if object.field(key_name).is_some() {
        bail!("key `{}`: the value has a field `{key_name}` of its own; give the key another name", display(key));
    }
    Ok(object)
}

fn key_text(key: &[u8]) -> Result<&str> {
    std::str::from_utf8(key).with_context(|| format!("key `{}` is no text; export without --flat", display(key)))
}

fn write_line(sink: &mut dyn Write, text: ObjectText) -> Result<()> {
    let mut line = text.finish();
    line.push(b'\n');
    Ok(sink.write_all(&line)?)
}

fn unwrap_io(error: csv::Error) -> anyhow::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        kind => anyhow::anyhow!("writing CSV failed: {kind:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(make: impl for<'a> Fn(Sink<'a>) -> Box<dyn Export + 'a>, records: &[(&str, &str)]) -> Result<String> {
        let mut text = Vec::new();
        let mut sink = make(Box::new(&mut text));
        for (key, value) in records {
            sink.record(key.as_bytes(), value.as_bytes())?;
        }
        sink.finish()?;
        drop(sink);
        Ok(String::from_utf8(text)?)
    }

    #[test]
    fn flat_rows_are_what_was_imported() {
        let records = [("1", r#"{"name":"Ann","n":1.50}"#), ("2", r#"{"n":null}"#)];
        let csv = export(|sink| Box::new(FlatCsvExport::new(sink, "id", &[])), &records).expect("csv");
        assert_eq!(csv, "id,name,n\n1,Ann,1.50\n2,,null\n");
        let json = export(|sink| Box::new(FlatJsonExport::new(sink, "id")), &records).expect("jsonl");
        assert_eq!(json, "{\"id\":\"1\",\"name\":\"Ann\",\"n\":1.50}\n{\"id\":\"2\",\"n\":null}\n");
    }

    #[test]
    fn nothing_is_dropped_silently() {
        let more = [("1", r#"{"a":1}"#), ("2", r#"{"a":1,"b":2}"#)];
        let message = export(|sink| Box::new(FlatCsvExport::new(sink, "id", &[])), &more).expect_err("b");
        assert!(message.to_string().contains("`b`"), "{message}");
        let chosen = ["a".to_owned()];
        let csv = export(|sink| Box::new(FlatCsvExport::new(sink, "id", &chosen)), &more).expect("chosen");
        assert_eq!(csv, "id,a\n1,1\n2,1\n");
        for (value, name) in [("plain", "id"), (r#"{"id":1}"#, "id"), (r#"{"a":1,"a":2}"#, "id")] {
            assert!(export(|sink| Box::new(FlatJsonExport::new(sink, name)), &[("k", value)]).is_err());
        }
    }

    #[test]
    fn an_empty_map_is_a_header() {
        assert_eq!(export(|sink| Box::new(CsvExport::new(sink)), &[]).expect("csv"), "key,value\n");
    }
}
