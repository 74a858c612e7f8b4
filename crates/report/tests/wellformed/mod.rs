//! A small strict reader of markup: checks that tags match, attributes are quoted and text is escaped.

/// Checks `markup` (an optional document type line, then one element).
pub fn check(markup: &str) -> Result<(), String> {
    let mut rest = markup.strip_prefix("<!DOCTYPE html>").unwrap_or(markup).trim();
    let mut open: Vec<&str> = Vec::new();
    let mut roots = 0;
    while !rest.is_empty() {
        let Some(start) = rest.find('<') else {
            return Err(format!("text after the end: {rest:.40}"));
        };
        check_text(&rest[..start], open.last().copied())?;
        let end = rest.find('>').ok_or("a tag without an end")?;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let expected = open.pop().ok_or_else(|| format!("</{name}> closes nothing"))?;
            if expected != name {
                return Err(format!("</{name}> closes <{expected}>"));
            }
        } else {
            roots += usize::from(open.is_empty());
            let empty = tag.ends_with('/');
            let inner = tag.strip_suffix('/').unwrap_or(tag);
            let name = inner.split_whitespace().next().ok_or("an empty tag")?;
            check_attributes(inner[name.len()..].trim())?;
            if !empty {
                open.push(name);
            }
        }
        if open.is_empty() {
            rest = rest.trim();
        }
    }
    match (open.pop(), roots) {
        (Some(name), _) => Err(format!("<{name}> is never closed")),
        (None, 1) => Ok(()),
        (None, count) => Err(format!("{count} outermost elements")),
    }
}

fn check_text(text: &str, inside: Option<&str>) -> Result<(), String> {
    if inside != Some("style") && text.contains('>') {
        return Err(format!("'>' in text: {text:.60}"));
    }
    for (at, _) in text.match_indices('&') {
        let entity = text[at..].split(';').next().unwrap_or_default();
        if !["&amp", "&lt", "&gt", "&quot", "&#39"].contains(&entity) {
            return Err(format!("unknown entity {entity:.20}"));
        }
    }
    Ok(())
}

fn check_attributes(mut text: &str) -> Result<(), String> {
    while !text.is_empty() {
        let (name, after) = text.split_once("=\"").ok_or_else(|| format!("attribute without a value: {text}"))?;
        if !name.chars().all(|character| character.is_ascii_alphanumeric() || character == '-') || name.is_empty() {
            return Err(format!("odd attribute name '{name}'"));
        }
        let (value, after) = after.split_once('"').ok_or("an attribute without an end")?;
        check_text(value, None)?;
        text = after.trim_start();
    }
    Ok(())
}

#[test]
fn the_reader_itself_can_fail() {
    assert_eq!(check("<a b=\"1\"><c/>x &amp; y</a>"), Ok(()));
    for bad in ["<a>", "<a></b>", "<a/><b/>", "<a>&</a>", "<a b=1></a>", "<a b></a>", "x<a/>y", "<a>></a>"] {
        assert!(check(bad).is_err(), "{bad}");
    }
}
