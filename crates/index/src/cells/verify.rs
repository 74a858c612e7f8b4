//! Checking a table on its medium: every line, every pair, every key.

use lodestone_width::to_u64;

use super::key::{KeyKind, record_at};
use super::probe;
use super::table::{Level, TableAt};
use crate::check::{IndexReport, Owned};
use crate::error::Result;
use crate::layout::RecordHead;
use crate::medium::IndexMemory;

/// Verifies the table and notes findings, records and blocks. `judge` gets hash and bytes of each key and says what is
/// wrong with its being here.
pub(crate) fn check_table(
    report: &mut IndexReport,
    owned: &mut Owned<'_>,
    table: TableAt,
    medium: IndexMemory<'_>,
    (kind, seed): (KeyKind, u64),
    mut judge: impl FnMut(u64, Vec<u8>) -> Option<&'static str>,
) {
    for number in 0..table.shape.all_lines() {
        let line = table.line(number);
        let meta = match probe::header(medium, line) {
            Ok(meta) => meta,
            Err(error) => {
                report.find_error(line.header(), error);
                continue;
            }
        };
        for slot in meta.used() {
            let checked = probe::pair(medium, line, meta, slot).and_then(|(word, _)| {
                let key = own_key(report, owned, medium, kind, word)?;
                let hash = kind.hash(medium, word, seed)?;
                Ok((key, hash))
            });
            match checked {
                Ok((key, hash)) => {
                    report.records += 1;
                    let home = table.shape.home(hash);
                    let level = probe::home_level(table, medium, hash).unwrap_or(Level::HOME);
                    if !table.shape.candidates(home, level).any(|(candidate, _)| candidate == number) {
                        report.find(line.key(slot), "pair: no search for its key leads to its line");
                    }
                    if let Some(text) = judge(hash, key) {
                        report.find(line.key(slot), format!("pair: {text}"));
                    }
                }
                Err(error) => report.find_error(line.key(slot), error),
            }
        }
    }
}

/// The bytes of the key in `word`; its record, when it has one, is noted as owned.
fn own_key(
    report: &mut IndexReport,
    owned: &mut Owned<'_>,
    medium: IndexMemory<'_>,
    kind: KeyKind,
    word: u64,
) -> Result<Vec<u8>> {
    let key = kind.bytes(medium, word)?;
    if kind == KeyKind::Bytes {
        let bytes = RecordHead::BYTES + to_u64(key.len());
        owned.own(report, record_at(medium, word)?, bytes, "record of a key");
    }
    Ok(key)
}
