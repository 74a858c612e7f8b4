//! The columns that a `*` of a view stands for.
//!
//! A view is kept as its text. A `*` in it would be the columns that the tables have when the view is read, and not
//! those from when it was made. So each is written out as the names of its columns first.

use std::collections::BTreeMap;

use lodestone_sql_types::func::quote_ident;

use super::Binder;
use crate::catalog::Catalog;

/// By the place of the `*` in the text, or of the name before it: the columns, each with its table.
pub type Stars = BTreeMap<usize, Vec<Vec<String>>>;

/// The text of a query without any `*`. `None`: it has none, or its columns have no names that say which are meant.
pub fn written_out(catalog: &Catalog, text: &str) -> Option<String> {
    let query = crate::parse::parse_query(text).ok()?;
    let mut binder = Binder { stars: Some(Stars::new()), ..Binder::new(catalog) };
    let (_, columns) = binder.query(&query, None).ok()?;
    let stars = binder.stars.filter(|stars| !stars.is_empty() && !stars.contains_key(&0))?;
    let (mut found, mut rest) = (String::new(), text.chars().enumerate().peekable());
    for (place, names) in stars {
        while let Some((_, letter)) = rest.next_if(|(number, _)| number + 1 < place) {
            found.push(letter);
        }
        // The name of a table, if there is one, ends with the star.
        let mut quoted = false;
        for (_, letter) in rest.by_ref() {
            quoted ^= letter == '"';
            if letter == '*' && !quoted {
                break;
            }
        }
        let names = names.iter().map(|parts| {
            let parts: Vec<String> = parts.iter().map(|part| quote_ident(part)).collect();
            parts.join(".")
        });
        found += &names.collect::<Vec<_>>().join(", ");
    }
    found.extend(rest.map(|(_, letter)| letter));
    // The same columns, or the text stays as it was.
    let again = crate::parse::parse_query(&found).ok()?;
    let (_, others) = Binder::new(catalog).query(&again, None).ok()?;
    let is_same = columns.len() == others.len()
        && columns
            .iter()
            .zip(&others)
            .all(|(one, two)| (&one.name, one.ty, one.origin) == (&two.name, two.ty, two.origin));
    is_same.then_some(found)
}
