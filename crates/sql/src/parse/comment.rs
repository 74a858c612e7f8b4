//! COMMENT ON.

use lodestone_sql_types::Result;

use super::ast::{Comment, CommentTarget, ObjectKind, Position, Statement};
use super::refuse;
use super::utility::Tokens;

const KINDS: [(&str, ObjectKind); 7] = [
    ("TABLE", ObjectKind::Table),
    ("INDEX", ObjectKind::Index),
    ("VIEW", ObjectKind::View),
    ("SEQUENCE", ObjectKind::Sequence),
    ("SCHEMA", ObjectKind::Schema),
    ("TYPE", ObjectKind::Type),
    ("DOMAIN", ObjectKind::Domain),
];

/// The statement after the word COMMENT, which is at `at`.
pub(super) fn comment(tokens: &mut Tokens<'_>, at: Position) -> Result<Option<Statement>> {
    tokens.expect("ON")?;
    let target = target(tokens, at)?;
    tokens.expect("IS")?;
    let text = if tokens.accept("NULL") { None } else { Some(tokens.quoted()?) };
    tokens.end(Statement::Comment(Comment { target, text }))
}

fn target(tokens: &mut Tokens<'_>, at: Position) -> Result<CommentTarget> {
    if tokens.accept("COLUMN") {
        let place = tokens.at();
        let (table, name) = tokens.column()?;
        return Ok(CommentTarget::Column { table, name: super::ast::Name { value: name, at: place } });
    }
    if tokens.accept("CONSTRAINT") {
        let name = tokens.name()?;
        tokens.expect("ON")?;
        let is_domain = tokens.upcoming("DOMAIN", 0) && !tokens.upcoming("IS", 1);
        tokens.next += usize::from(is_domain);
        return Ok(CommentTarget::Constraint { name, of: tokens.object()?, is_domain });
    }
    match KINDS.iter().find(|(word, _)| tokens.accept(word)) {
        Some((_, kind)) => Ok(CommentTarget::Object(*kind, tokens.object()?)),
        None => {
            let what = tokens.name()?.value.to_uppercase();
            Err(refuse(format!("COMMENT ON {what}"), at))
        }
    }
}
