//! Statements about roles, from tokens.

use lodestone_sql_types::Result;

use super::ast::{RoleChange, RoleVerb, Statement};
use super::refuse;
use super::utility::Tokens;

/// A change of a role. `None`: it is one of something else.
pub(super) fn role(tokens: &mut Tokens<'_>, verb: &str) -> Result<Option<Statement>> {
    let is_user = tokens.accept("USER");
    if !is_user && !tokens.accept("ROLE") {
        return Ok(None);
    }
    let verb = match verb {
        "CREATE" => RoleVerb::Create,
        "ALTER" => RoleVerb::Alter,
        _ => RoleVerb::Drop,
    };
    let if_exists = verb == RoleVerb::Drop && tokens.accept("IF");
    if if_exists {
        tokens.expect("EXISTS")?;
    }
    // The session knows who this is.
    let is_own = verb == RoleVerb::Alter && tokens.accept_any(&["CURRENT_USER", "SESSION_USER", "CURRENT_ROLE"]);
    let name = if is_own { String::new() } else { tokens.name()?.value };
    let mut change = RoleChange { verb, name, is_user, is_own, if_exists, can_login: None, password: None };
    if verb != RoleVerb::Drop {
        tokens.accept("WITH");
        while tokens.peek().is_some() {
            role_option(tokens, &mut change)?;
        }
    }
    tokens.end(Statement::Role(change))
}

fn role_option(tokens: &mut Tokens<'_>, change: &mut RoleChange) -> Result<()> {
    let at = tokens.at();
    let name = tokens.name()?.value;
    match name.as_str() {
        "login" => change.can_login = Some(true),
        "nologin" => change.can_login = Some(false),
        "encrypted" => {}
        "password" if tokens.accept("NULL") => change.password = Some(None),
        "password" => change.password = Some(Some(tokens.quoted()?)),
        // Every role may do everything.
        "superuser" | "createdb" | "createrole" | "inherit" | "replication" | "bypassrls" => {}
        _ => return Err(refuse(format!("the option {} of a role", name.to_uppercase()), at)),
    }
    Ok(())
}
