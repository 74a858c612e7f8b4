//! Large values: pieces in a tree of their own.
//!
//! A row holds its texts and bytes itself as long as they have at most `inline_bytes_max` bytes together. Otherwise the
//! longest of them are moved: pieces of `piece_bytes` are rows of the tree `TABLE.large`, and the row has the length
//! and the number of the pieces. The tree of a table has the number of the table's own with the highest bit set.
//!
//! ```text
//! key of a piece: key of the row, id of the column 2, number of the piece 4 (both big-endian)    payload: bytes
//! ```
//!
//! Pieces are rows like all others, so they are locked, logged, written to pages and recovered with the row that they
//! belong to, in the same transaction.
//!
//! Invariant: the pieces of a row are those that it names. A change that knows the row before removes its pieces. One
//! that does not look at the row reads the keys of its pieces, most often none. So it conflicts with a transaction that
//! adds some meanwhile, but not with another one that puts the same row.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use lodestone_pmem::planted;
use lodestone_width::{exact_u16, exact_u32, to_u64, to_usize};

use crate::core::Core;
use crate::error::Result;
use crate::payload::{self, Limits, Moved};
use crate::reader::{Moment, View};
use crate::rows::Cursor;
use crate::schema::Layout;
use crate::tree::{Bytes, Tree};
use crate::tx::Tx;

/// Set in the number of a tree of pieces. No table has it.
pub const PIECES: u32 = 1 << 31;
/// Bytes of a piece's key after the key of the row.
const SUFFIX_BYTES: usize = 6;

/// A row before a change, as far as the change knows it.
#[derive(Clone, Copy, Debug)]
pub enum Before<'b> {
    /// There was none.
    Nothing,
    /// It had this payload.
    Payload(&'b [u8]),
    /// The change does not look at it.
    Unknown,
}

/// The pieces of a table.
#[derive(Clone, Debug)]
pub struct Pieces {
    pub tree: Arc<Tree>,
    limits: Limits,
}

impl Pieces {
    /// Of the table with the tree `table`. `None`: no column of it can be large.
    pub fn of(core: &Core, table: u32, layout: &Layout) -> Option<Self> {
        layout.has_variable().then(|| Self { tree: core.tree(table | PIECES), limits: core.limits })
    }

    /// Gives the row with `key` the pieces of `values`, by id of their column, and no others.
    pub fn replace(&self, tx: &Tx, key: &[u8], before: Before<'_>, values: &[(usize, &[u8])]) -> Result<()> {
        let mut old = match before {
            Before::Nothing => BTreeSet::new(),
            Before::Payload(payload) if !payload::has_moved(payload) => BTreeSet::new(),
            Before::Unknown if planted::active("engine-large-put-forgets") => BTreeSet::new(),
            Before::Payload(_) | Before::Unknown => self.keys(tx, key)?,
        };
        for (column, value) in values {
            for (number, piece) in value.chunks(self.limits.piece_bytes).enumerate() {
                let key = piece_key(key, *column, number);
                old.remove(&key[..]);
                if planted::active("engine-large-piece-lost") && number == 2 {
                    continue;
                }
                tx.set(&self.tree, key, Some(piece.to_vec()))?;
            }
        }
        if planted::active("engine-large-pieces-kept") {
            return Ok(());
        }
        old.into_iter().try_for_each(|key| tx.set(&self.tree, key.to_vec(), None))
    }

    /// The keys of all pieces of the row with `key`.
    fn keys(&self, tx: &Tx, key: &[u8]) -> Result<BTreeSet<Bytes>> {
        let mut found = BTreeSet::new();
        let mut cursor = self.cursor(&Moment::of(View::Tx(tx)), key);
        while let Some((key, _)) = cursor.step()? {
            found.insert(key);
        }
        Ok(found)
    }

    /// The pieces whose keys begin with `prefix`.
    fn cursor<'t>(&'t self, moment: &Moment<'t>, prefix: &[u8]) -> Cursor<'t> {
        Cursor::new(moment.clone(), &self.tree, Bound::Included(prefix.to_vec()), Bound::Included(prefix.to_vec()))
    }

    /// The value of a column of the row with `key`. An inner `Err` says what is wrong with it.
    pub fn read(&self, moment: &Moment<'_>, key: &[u8], moved: &Moved) -> Result<std::result::Result<Vec<u8>, String>> {
        let mut value = Vec::with_capacity(to_usize(moved.bytes));
        let mut count = 0;
        let mut cursor = self.cursor(moment, &piece_key(key, moved.id, 0)[..key.len() + 2]);
        while let Some((found, piece)) = cursor.step()? {
            if count == moved.pieces {
                return Ok(Err(format!("column {} has more than its {count} pieces", moved.id)));
            }
            if *found != piece_key(key, moved.id, to_usize(count))[..] {
                return Ok(Err(format!("piece {count} of column {} is missing", moved.id)));
            }
            value.extend_from_slice(&piece);
            count += 1;
        }
        let is_whole = count == moved.pieces && to_u64(value.len()) == u64::from(moved.bytes);
        let finding = || {
            let (column, bytes, pieces) = (moved.id, moved.bytes, moved.pieces);
            let found = value.len();
            format!(
                "column {column} has {bytes} bytes in {pieces} pieces, and {found} bytes in {count} pieces are there"
            )
        };
        Ok(if is_whole { Ok(value) } else { Err(finding()) })
    }

    /// Pieces that no row of the tree `rows` names, in words.
    pub fn left_over(&self, tx: &Tx, rows: &Arc<Tree>, layout: &Layout) -> Result<Vec<String>> {
        let mut findings = Vec::new();
        // The row of the piece before, and what it names.
        let mut last: Option<(Vec<u8>, Vec<Moved>)> = None;
        let mut cursor = Cursor::new(Moment::of(View::Tx(tx)), &self.tree, Bound::Unbounded, Bound::Unbounded);
        while let Some((found, _)) = cursor.step()? {
            let Some((row, column, piece)) = split(&found) else {
                findings.push(format!("the key `{}` is that of no piece", found.escape_ascii()));
                continue;
            };
            let named = match &last {
                Some((of, named)) if of == row => named,
                _ => {
                    let payload = tx.get(rows, row)?;
                    let named = payload.and_then(|payload| layout.moved(&payload)).unwrap_or_default();
                    &last.insert((row.to_vec(), named)).1
                }
            };
            if !named.iter().any(|moved| moved.id == column && piece < moved.pieces) {
                findings.push(format!(
                    "piece {piece} of column {column} of the key `{}` belongs to no row",
                    row.escape_ascii()
                ));
            }
        }
        Ok(findings)
    }
}

/// The key of a piece.
pub fn piece_key(key: &[u8], column: usize, piece: usize) -> Vec<u8> {
    [key, &exact_u16(column).to_be_bytes(), &exact_u32(piece).to_be_bytes()].concat()
}

/// Key of the row, column and piece of a piece's key.
fn split(key: &[u8]) -> Option<(&[u8], usize, u32)> {
    let (row, suffix) = key.split_at_checked(key.len().checked_sub(SUFFIX_BYTES)?)?;
    let (column, piece) = suffix.split_first_chunk()?;
    Some((row, u16::from_be_bytes(*column).into(), u32::from_be_bytes(*piece.first_chunk()?)))
}
