//! Errors of the engine as errors of SQL.

use lodestone_engine::Error as Engine;
use lodestone_sql_types::{Error, SqlState};

/// The error of SQL for an error of the engine.
pub fn from_engine(error: Engine) -> Error {
    let text = error.to_string();
    let is_full = error.is_full();
    match error {
        Engine::Conflict | Engine::TableChanged { .. } => Error::new(
            SqlState::SERIALIZATION_FAILURE,
            "could not serialize access due to read/write dependencies among transactions",
        )
        .hint("The transaction might succeed if retried."),
        Engine::SnapshotTooOld => {
            Error::new(SqlState::SERIALIZATION_FAILURE, "the snapshot of the transaction is too old")
                .detail(text)
                .hint("The transaction might succeed if retried.")
        }
        Engine::Duplicate { table, index, key } => {
            let constraint = index.unwrap_or_else(|| format!("{table}_pkey"));
            Error::new(
                SqlState::UNIQUE_VIOLATION,
                format!("duplicate key value violates unique constraint \"{constraint}\""),
            )
            .detail(format!("Key {key} already exists."))
            .table(table)
            .constraint(constraint)
        }
        Engine::NoTable { table } => {
            Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{table}\" does not exist"))
        }
        Engine::TransactionTooLarge { .. } => {
            Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the transaction changes too much")
                .detail(text)
                .hint("Split the transaction, or make the database with larger `log_bytes`.")
        }
        Engine::TooLarge { .. } => Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, text),
        Engine::ReadOnly { .. } => Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, text),
        Engine::BadSchema { .. } => Error::new(SqlState::INVALID_TABLE_DEFINITION, text),
        Engine::Damaged { .. } => Error::new(SqlState::DATA_CORRUPTED, text),
        Engine::Full { .. } => Error::new(SqlState::DISK_FULL, "the log of the database is full")
            .detail(text)
            .hint("Copy the rows into a database made with larger `log_bytes`."),
        _ if is_full => Error::new(SqlState::DISK_FULL, "the pool is full")
            .detail(text)
            .hint("Drop what is not needed, or let the pool grow: `lodestone pool grow`."),
        Engine::Pool(_) | Engine::Poisoned { .. } => Error::new(SqlState::IO_ERROR, text),
        _ => Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, text),
    }
}
