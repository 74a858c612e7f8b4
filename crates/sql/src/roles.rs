//! Roles: users and their passwords, as rows of the table [`NAME`].
//!
//! ```text
//! lodestone_roles: key (name text)    can_login bool, verifier text (as PostgreSQL writes it), null without a password
//! ```
//!
//! The operating system's user who runs the server needs no row: the unix socket says who it is. By TCP a role must
//! have one, with a password. There are no privileges: every role may do everything.
//!
//! A change of a role is a transaction of its own.

use lodestone_engine::{Database as Engine, Error as EngineError, Row, Schema, Table, Type as Kind, Value};
use lodestone_sql_types::{Error, Result, SqlState};

use crate::errors::from_engine;
use crate::parse::ast::{RoleChange, RoleVerb};
use crate::scram::Verifier;

/// The table with the rows.
pub const NAME: &str = "lodestone_roles";
/// Longest name of a role.
const NAME_BYTES_MAX: usize = 63;

fn table(engine: &Engine) -> Result<Table> {
    let schema = Schema::new(NAME)
        .column("name", Kind::Text)
        .column("can_login", Kind::Bool)
        .nullable("verifier", Kind::Text)
        .key(["name"]);
    engine.create_table(&schema).map_err(from_engine)
}

/// The verifier of a role that may connect.
///
/// # Errors
/// Those of the engine.
pub fn verifier(engine: &Engine, name: &str) -> Result<Option<Verifier>> {
    let table = match engine.table(NAME) {
        Ok(table) => table,
        Err(EngineError::NoTable { .. }) => return Ok(None),
        Err(error) => return Err(from_engine(error)),
    };
    let row = engine.update(|tx| table.get(tx, &[name.into()])).map_err(from_engine)?;
    let Some(row) = row.filter(|row| row[1] == Value::Bool(true)) else { return Ok(None) };
    row[2].as_text().map(str::parse).transpose()
}

/// Whether a role has a row.
///
/// # Errors
/// Those of the engine.
pub fn is_there(engine: &Engine, name: &str) -> Result<bool> {
    let table = match engine.table(NAME) {
        Ok(table) => table,
        Err(EngineError::NoTable { .. }) => return Ok(false),
        Err(error) => return Err(from_engine(error)),
    };
    Ok(engine.update(|tx| table.get(tx, &[name.into()])).map_err(from_engine)?.is_some())
}

/// The verifier of a password as a statement has it: the password, or a verifier that the client made of it.
fn verifier_of(password: &str) -> Result<Verifier> {
    if password.starts_with("SCRAM-SHA-256$") {
        return password.parse();
    }
    let is_md5 = password.len() == 35 && password.starts_with("md5");
    if is_md5 {
        return Err(Error::unsupported("a password as md5").hint("Set password_encryption to scram-sha-256."));
    }
    Verifier::of(password)
}

/// Carries out a change of a role.
///
/// # Errors
/// 42710 and 42704 for a role that is there, or is not; those of the engine.
pub fn change(engine: &Engine, change: &RoleChange) -> Result<Option<Error>> {
    let name = change.name.as_str();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with("pg_") {
        return Err(Error::new(SqlState::RESERVED_NAME, format!("role name \"{name}\" is reserved")));
    }
    let given = match &change.password {
        Some(Some(password)) if !password.is_empty() => Some(Value::from(verifier_of(password)?.to_string())),
        Some(_) => Some(Value::Null),
        None => None,
    };
    let table = table(engine)?;
    let key: [Value; 1] = [name.into()];
    let is_done = engine
        .update(|tx| {
            let found = table.get(tx, &key)?;
            let row = |can_login: bool, before: Value| {
                Row(vec![name.into(), can_login.into(), given.clone().unwrap_or(before)])
            };
            match (change.verb, found) {
                (RoleVerb::Create, None) => {
                    let can_login = change.can_login.unwrap_or(change.is_user);
                    table.insert(tx, &row(can_login, Value::Null)).map(|()| true)
                }
                // The user who runs the server has no row before it has a password.
                (RoleVerb::Alter, None) if change.is_own => {
                    table.insert(tx, &row(change.can_login.unwrap_or(true), Value::Null)).map(|()| true)
                }
                (RoleVerb::Alter, Some(before)) => {
                    let can_login = change.can_login.unwrap_or(before[1] == Value::Bool(true));
                    table.put(tx, &row(can_login, before[2].clone())).map(|()| true)
                }
                (RoleVerb::Drop, Some(_)) => table.delete(tx, &key),
                _ => Ok(false),
            }
        })
        .map_err(from_engine)?;
    match change.verb {
        _ if is_done => Ok(None),
        RoleVerb::Create => Err(Error::new(SqlState::DUPLICATE_OBJECT, format!("role \"{name}\" already exists"))),
        RoleVerb::Drop if change.if_exists => {
            Ok(Some(Error::new(SqlState::SUCCESS, format!("role \"{name}\" does not exist, skipping"))))
        }
        RoleVerb::Alter | RoleVerb::Drop => {
            Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist")))
        }
    }
}
