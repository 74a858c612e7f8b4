//! A table of text. A column whose cells are all numbers (or `-`) is aligned to the right.

use crate::escape::escape;

/// A table with a row of titles.
///
/// ```
/// use lodestone_report::html::Table;
///
/// let html = Table::new(["engine", "ops/s"]).caption("Workload A").row(["lodestone", "212,000"]).to_html();
/// assert!(html.contains("<td class=\"number\">212,000</td>"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    caption: String,
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these column titles.
    #[must_use]
    pub fn new<Title: Into<String>>(titles: impl IntoIterator<Item = Title>) -> Self {
        Self { titles: titles.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A sentence above the table.
    #[must_use]
    pub fn caption(mut self, text: impl Into<String>) -> Self {
        self.caption = text.into();
        self
    }

    /// Adds a row; missing cells are empty, surplus cells are dropped.
    #[must_use]
    pub fn row<Cell: Into<String>>(mut self, cells: impl IntoIterator<Item = Cell>) -> Self {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.titles.len(), String::new());
        self.rows.push(row);
        self
    }

    /// The table as HTML.
    #[must_use]
    pub fn to_html(&self) -> String {
        let numeric: Vec<bool> = (0..self.titles.len()).map(|column| self.is_numeric(column)).collect();
        let class = |column: usize| if numeric[column] { " class=\"number\"" } else { "" };
        let mut html = String::from("<div class=\"scroll\"><table>\n");
        if !self.caption.is_empty() {
            html.push_str(&format!("<caption>{}</caption>\n", escape(&self.caption)));
        }
        html.push_str("<thead><tr>");
        for (column, title) in self.titles.iter().enumerate() {
            html.push_str(&format!("<th scope=\"col\"{}>{}</th>", class(column), escape(title)));
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                html.push_str(&format!("<td{}>{}</td>", class(column), escape(cell)));
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody>\n</table></div>\n");
        html
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().map(|row| row[column].as_str()).filter(|cell| !cell.is_empty()).peekable();
        cells.peek().is_some() && cells.all(looks_numeric)
    }
}

/// A figure, with or without a unit: `1,204`, `3.5 us`, `99 %`, `-`.
fn looks_numeric(cell: &str) -> bool {
    let mut words = cell.split(' ');
    let number = words.next().unwrap_or_default().trim_start_matches(['+', '-', '<', '>']);
    let unit = words.next().unwrap_or_default();
    let is_number =
        number.chars().all(|character| character.is_ascii_digit() || matches!(character, '.' | ',' | 'x' | '%'));
    (cell == "-" || (is_number && number.starts_with(|first: char| first.is_ascii_digit())))
        && unit.len() <= 4
        && words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_numbers_stand_right() {
        for cell in ["1", "1,204", "3.5 us", "99 %", "-", "-7", "2.1x", "12%"] {
            assert!(looks_numeric(cell), "{cell}");
        }
        for cell in ["a", "1 is a lot", "block", "", "8 threads", "v1"] {
            assert!(!looks_numeric(cell), "{cell}");
        }
        let html = Table::new(["name", "n"]).row(["a", "1"]).row(["b"]).row(["c", "2", "surplus"]).to_html();
        assert_eq!(html.matches("class=\"number\"").count(), 4);
        assert!(!html.contains("surplus"));
    }
}
