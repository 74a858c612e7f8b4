//! Constraints as the rows of the catalog have them: a number and a text.

use super::object;
use super::store::ConstraintBody;
use crate::parse::ast::KeyAction;

/// Bits of a condition.
const CHECK_NOT_LOCAL: i64 = 16;
const CHECK_NO_INHERIT: i64 = 32;
const CHECK_NOT_VALID: i64 = 64;

fn action_letter(action: KeyAction) -> &'static str {
    match action {
        KeyAction::NoAction => "n",
        KeyAction::Restrict => "r",
        KeyAction::Cascade => "c",
        KeyAction::SetNull => "s",
        KeyAction::SetDefault => "d",
    }
}

fn action_of(letter: &str) -> Option<KeyAction> {
    use KeyAction::{Cascade, NoAction, Restrict, SetDefault, SetNull};
    [NoAction, Restrict, Cascade, SetNull, SetDefault].into_iter().find(|action| action_letter(*action) == letter)
}

impl ConstraintBody {
    /// The number of its kind, and its text.
    pub(super) fn note(&self) -> (i64, String) {
        match self {
            Self::Check { text, is_local, no_inherit, is_valid } => {
                let local = if *is_local { 0 } else { CHECK_NOT_LOCAL };
                let local = local | if *is_valid { 0 } else { CHECK_NOT_VALID };
                (1 | local | if *no_inherit { CHECK_NO_INHERIT } else { 0 }, text.clone())
            }
            Self::Foreign {
                columns,
                parent,
                parent_columns,
                on_delete,
                on_update,
                is_full,
                is_deferrable,
                is_deferred,
                is_valid,
            } => {
                let flag = |is_set: bool, letter: &'static str| if is_set { letter } else { "" };
                let flags =
                    [flag(*is_full, "f"), flag(*is_deferrable, "e"), flag(*is_deferred, "d"), flag(!*is_valid, "v")];
                let flags = flags.concat();
                let (parent, count) = (parent.to_string(), columns.len().to_string());
                let head = [&parent, action_letter(*on_delete), action_letter(*on_update), &flags, &count];
                let names = columns.iter().chain(parent_columns).map(String::as_str);
                (2, object::join(&head.into_iter().chain(names).collect::<Vec<_>>()))
            }
        }
    }

    pub(super) fn of_note(kind: i64, text: &str) -> Option<Self> {
        if kind & 1 == 1 {
            let (is_local, no_inherit) = (kind & CHECK_NOT_LOCAL == 0, kind & CHECK_NO_INHERIT != 0);
            let is_valid = kind & CHECK_NOT_VALID == 0;
            return Some(Self::Check { text: text.to_owned(), is_local, no_inherit, is_valid });
        }
        let parts = object::split(text)?;
        let (head, names) = parts.split_at_checked(5)?;
        let count: usize = head[4].parse().ok()?;
        let (columns, parent_columns) = names.split_at_checked(count)?;
        Some(Self::Foreign {
            columns: columns.to_vec(),
            parent: head[0].parse().ok()?,
            parent_columns: parent_columns.to_vec(),
            on_delete: action_of(&head[1])?,
            on_update: action_of(&head[2])?,
            is_full: head[3].contains('f'),
            is_deferrable: head[3].contains('e'),
            is_deferred: head[3].contains('d'),
            is_valid: !head[3].contains('v'),
        })
    }
}
