//! Finding a key in a table.
//!
//! Every pair of every line that is read is verified, also those of other keys: a damaged key word must not pass for
//! the absence of the key that it was. A caller without the lock asks its version before it believes an answer or an
//! error.

use lodestone_pmem::{Domain, LINE_BYTES, Memory};

use super::key::KeyRef;
use super::line::{LineAt, Meta};
use super::table::{Level, TableAt};
use crate::error::Result;
use crate::medium::IndexMemory;

/// A pair found in a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) line: LineAt,
    pub(crate) meta: Meta,
    pub(crate) slot: usize,
    pub(crate) key: u64,
    pub(crate) value: u64,
}

/// The header of `line`.
#[inline]
pub(crate) fn header(medium: IndexMemory<'_>, line: LineAt) -> Result<Meta> {
    match line.load(medium.memory) {
        Some(meta) => Ok(meta),
        None => Err(medium.damaged(line.header(), "header of a cell line", "checksum mismatch")),
    }
}

/// The pair in `slot` of `line`, verified.
#[inline]
pub(crate) fn pair(medium: IndexMemory<'_>, line: LineAt, meta: Meta, slot: usize) -> Result<(u64, u64)> {
    let memory: &Memory = medium.memory;
    let (key, value) = (memory.load(line.key(slot)), memory.load(line.value(meta.cell(slot))));
    if line.pair_check(key, value) == meta.check(slot) {
        Ok((key, value))
    } else {
        Err(medium.damaged(line.key(slot), "pair of a cell line", "checksum mismatch"))
    }
}

/// The pair of `key`, whose hash is `hash`.
#[inline]
pub(crate) fn find(table: TableAt, medium: IndexMemory<'_>, key: KeyRef<'_>, hash: u64) -> Result<Option<Found>> {
    let home = table.shape.home(hash);
    let line = table.line(home.line);
    let meta = header(medium, line)?;
    if let Some(found) = find_in(line, meta, medium, key, hash)? {
        return Ok(Some(found));
    }
    if meta.level() == Level::HOME {
        return Ok(None);
    }
    find_elsewhere(table, medium, key, hash, meta.level())
}

#[inline(never)]
fn find_elsewhere(
    table: TableAt,
    medium: IndexMemory<'_>,
    key: KeyRef<'_>,
    hash: u64,
    level: u8,
) -> Result<Option<Found>> {
    for (line, _) in table.shape.candidates(table.shape.home(hash), level).skip(1) {
        let line = table.line(line);
        let meta = header(medium, line)?;
        if let Some(found) = find_in(line, meta, medium, key, hash)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[inline]
fn find_in(line: LineAt, meta: Meta, medium: IndexMemory<'_>, key: KeyRef<'_>, hash: u64) -> Result<Option<Found>> {
    for slot in meta.used() {
        let (word, value) = pair(medium, line, meta, slot)?;
        if key.is_in(medium, word, hash)? {
            return Ok(Some(Found { line, meta, slot, key: word, value }));
        }
    }
    Ok(None)
}

/// How far keys at home in the home line of `hash` may have gone.
#[inline]
pub(crate) fn home_level(table: TableAt, medium: IndexMemory<'_>, hash: u64) -> Result<u8> {
    Ok(header(medium, table.line(table.shape.home(hash).line))?.level())
}

/// Waits until what an answer rests on is durable: the line of `found`, or for an absence every line where the key
/// could be. For the block domain; elsewhere what a reader can see is durable already.
pub(crate) fn settle(table: TableAt, memory: &Memory, hash: u64, found: Option<LineAt>) -> Result<()> {
    if memory.domain() != Domain::Block {
        return Ok(());
    }
    if let Some(line) = found {
        return Ok(memory.wait_durable(memory.flushed_at(line.header(), LINE_BYTES))?);
    }
    for (line, _) in table.shape.candidates(table.shape.home(hash), Level::STASH) {
        memory.wait_durable(memory.flushed_at(table.line(line).header(), LINE_BYTES))?;
    }
    Ok(())
}
