//! The one place where text enters markup.
//!
//! Invariant: the result holds no character that means something in XML text or in a quoted attribute. Nor does it hold
//! a character that XML 1.0 forbids: these become U+FFFD, so that a broken key cannot break a report.

/// `text` for use inside of elements and of quoted attributes.
///
/// ```
/// assert_eq!(lodestone_report::escape::escape("a < \"b\" & c"), "a &lt; &quot;b&quot; &amp; c");
/// ```
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(character),
            '\u{0}'..='\u{1F}' | '\u{7F}' | '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_means_something_is_left() {
        let escaped = escape("<script>alert('x' & \"y\")</script>\u{0}\u{1b}[0m");
        assert!(!escaped.contains(['<', '>', '"', '\'', '\u{0}', '\u{1b}']));
        assert_eq!(escaped.matches('&').count(), escaped.matches(';').count());
        assert_eq!(escape("plain text, 5 %"), "plain text, 5 %");
    }
}
