//! A query of one row by its key, as a plan without operators.
//!
//! `SELECT b, a FROM t WHERE k = $1` is most of the statements of many programs. Its plan is a list: the values of the
//! key, and the columns of the answer. Outside of a transaction it reads the newest row without one
//! ([`Table::newest`](lodestone_engine::Table::newest)): it is serializable, as there is nothing else that it has read.

use lodestone_engine::{Error as EngineError, Newest, Ticket, Value};
use lodestone_sql_types::{Datum, Result};

use crate::catalog::{ColumnDef, TableDef, value};
use crate::errors::from_engine;
use crate::plan::{Access, Action, Expr, KeyPart, Node, Scan};

/// See the module.
#[derive(Clone, Debug)]
pub struct PointQuery {
    table: std::sync::Arc<TableDef>,
    key: Vec<KeyValue>,
    /// Numbers of the columns of the answer.
    columns: Vec<usize>,
}

/// A value of the key.
#[derive(Clone, Debug)]
enum KeyValue {
    Const(Value),
    Param(usize),
}

/// The answer of a point query.
pub enum PointAnswer {
    /// The row is in the buffer. The answer waits for the ticket.
    Row(Option<Ticket<()>>),
    NoRow(Option<Ticket<()>>),
    /// The plan with operators must be used.
    Elsewhere,
}

/// Buffers that are used again.
#[derive(Debug, Default)]
pub struct PointBuffers {
    key: Vec<Value>,
    values: Vec<Value>,
    pub row: Vec<Datum>,
}

impl PointQuery {
    /// The point query that the plan is, if it is one.
    pub fn of(action: &Action) -> Option<Self> {
        let Action::Select(node) = action else { return None };
        let (scan, columns) = match node {
            Node::Project { input, columns } => match &**input {
                Node::Scan(scan) => (scan, columns.iter().map(own_column).collect::<Option<Vec<_>>>()?),
                _ => return None,
            },
            Node::Scan(scan) => (scan, (0..scan.table.columns.len()).collect()),
            _ => return None,
        };
        let Scan { table, access: Access::Key(parts), filter: None, locks: None, .. } = &**scan else { return None };
        let key = parts.iter().zip(&table.key).map(|(part, column)| key_value(part, &table.columns[*column]));
        Some(Self { table: table.clone(), key: key.collect::<Option<_>>()?, columns })
    }

    /// Looks for the row, outside of a transaction.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn run(&self, parameters: &[Datum], buffers: &mut PointBuffers) -> Result<PointAnswer> {
        let PointBuffers { key, values, row } = buffers;
        key.clear();
        values.clear();
        row.clear();
        for (part, column) in self.key.iter().zip(&self.table.key) {
            let found = match part {
                KeyValue::Const(value) => value.clone(),
                KeyValue::Param(number) => match parameters.get(*number) {
                    None => return Ok(PointAnswer::Elsewhere),
                    Some(Datum::Null) => return Ok(PointAnswer::NoRow(None)),
                    Some(datum) => match value::to_value(&self.table.columns[*column], datum.clone()) {
                        Some(value) => value,
                        // No value of the column is equal to it.
                        None => return Ok(PointAnswer::NoRow(None)),
                    },
                },
            };
            key.push(found);
        }
        let found = match self.table.engine.newest(key, &self.columns, values) {
            // The table goes away at this moment: a transaction meets that, and runs again.
            Err(EngineError::Conflict) => Newest::Elsewhere,
            found => found.map_err(from_engine)?,
        };
        match found {
            Newest::Elsewhere => Ok(PointAnswer::Elsewhere),
            Newest::Nothing(ticket) => Ok(PointAnswer::NoRow(ticket)),
            Newest::Found(ticket) => {
                for (number, found) in self.columns.iter().zip(values.drain(..)) {
                    row.push(value::to_datum(&self.table.columns[*number], found)?);
                }
                Ok(PointAnswer::Row(ticket))
            }
        }
    }
}

fn own_column(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Column { depth: 0, index } => Some(*index),
        _ => None,
    }
}

/// The value of a part of the key, if it needs no conversion but that of integers.
fn key_value(part: &KeyPart, column: &ColumnDef) -> Option<KeyValue> {
    if part.ty != column.ty && !(part.ty.is_integer() && column.ty.is_integer()) {
        return None;
    }
    match &part.expr {
        Expr::Const(datum) if !datum.is_null() => value::to_value(column, datum.clone()).map(KeyValue::Const),
        Expr::Param(number) => Some(KeyValue::Param(*number)),
        _ => None,
    }
}
