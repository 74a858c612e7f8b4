//! How many rows a leaf may have: at most so many, and as many as fit a page.
//!
//! A leaf that fits a page is written and read as one. The payloads of rows are known when they are written, so a round
//! looks whether a leaf still fits its page, and splits it before it writes it.

use lodestone_pages::row_bytes;

use crate::slot::Bytes;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct LeafSize {
    /// Most rows, 2 at least.
    pub rows_max: usize,
    /// Most bytes of the rows in an image of one page.
    pub bytes_max: usize,
}

impl LeafSize {
    /// Whether these are several rows and their image does not fit a page. `rows` are their lengths in it, `low` is the
    /// first possible key.
    pub fn is_too_wide(&self, low: &[u8], rows: impl Iterator<Item = usize>) -> bool {
        let (mut count, mut bytes) = (0, low.len());
        for row in rows {
            count += 1;
            bytes += row;
        }
        count > 1 && bytes > self.bytes_max
    }

    /// For how many rows a leaf has room that begins with `rows` of `bytes` bytes together.
    pub fn room(&self, rows: usize, bytes: usize) -> usize {
        if rows == 0 {
            return self.rows_max;
        }
        // As many as fit a page, and one more; else the leaf that has just been made would be full again soon.
        let fit = self.bytes_max / (bytes / rows).max(1) + 1;
        fit.max(rows + rows / 3 + 2).min(self.rows_max).max(rows)
    }

    /// How many of these rows, from the first one, a leaf has where others follow. If all fit one leaf: all. Else a
    /// quarter of the rows, and an eighth of the page, are left for inserts.
    pub fn take(&self, low: &[u8], rows: &[(Bytes, Bytes)]) -> usize {
        self.take_lengths(low, rows.iter().map(|(key, payload)| row_bytes(key, payload)))
    }

    /// As [`take`](Self::take), of rows of these lengths.
    pub fn take_lengths(&self, low: &[u8], rows: impl Iterator<Item = usize>) -> usize {
        let (most, bytes_most) = ((self.rows_max * 3 / 4).max(1), self.bytes_max - self.bytes_max / 8);
        let (mut bytes, mut part) = (low.len(), None);
        for (number, row) in rows.enumerate() {
            bytes += row;
            if part.is_none() && number > 0 && (number >= most || bytes > bytes_most) {
                part = Some(number);
            }
            if number > 0 && (number >= self.rows_max || bytes > self.bytes_max) {
                return part.unwrap_or(number);
            }
        }
        usize::MAX
    }

    /// As [`take_lengths`](Self::take_lengths), where the leaf is cut into parts of about equal length, no more than
    /// that would make. Inserts at any place leave parts that are fuller on average: where three rows fit a page, each
    /// cut of four into three and one makes a page of one row.
    pub fn take_even(&self, low: &[u8], rows: &[usize]) -> usize {
        let (mut parts, mut from) = (0, 0);
        while from < rows.len() {
            from = from.saturating_add(self.take_lengths(low, rows[from..].iter().copied()));
            parts += 1;
        }
        if parts < 2 {
            return usize::MAX;
        }
        let part = rows.iter().sum::<usize>() / parts;
        let mut bytes = 0;
        for (number, &row) in rows.iter().enumerate() {
            let is_over = number >= self.rows_max || low.len() + bytes + row > self.bytes_max;
            if number > 0 && (is_over || bytes + row / 2 > part) {
                return number;
            }
            bytes += row;
        }
        usize::MAX
    }
}

/// Whether rows with these ticks, by key, were inserted at one place, one after the other: the newest ones stand side
/// by side. The next ones come after them, and a part that is cut before them stays as it is.
pub fn are_in_a_run(ticks: &[u64]) -> bool {
    let newest = (ticks.len() / 4).max(3);
    if newest >= ticks.len() {
        return false;
    }
    let mut order: Vec<usize> = (0..ticks.len()).collect();
    order.sort_by_key(|&number| std::cmp::Reverse(ticks[number]));
    let (run, rest) = order.split_at(newest);
    let (first, last) = (run.iter().min(), run.iter().max());
    let is_side_by_side = first.zip(last).is_some_and(|(first, last)| last - first + 1 == newest);
    // Few rows stand side by side by chance.
    let is_certain = ticks.len() >= 16 || last == run.first();
    is_side_by_side && is_certain && ticks[run[newest - 1]] > ticks[rest[0]]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: LeafSize = LeafSize { rows_max: 8, bytes_max: 800 };

    /// The lengths of all leaves of rows of these lengths.
    fn leaves(mut rows: &[usize]) -> Vec<usize> {
        let mut leaves = Vec::new();
        while !rows.is_empty() {
            let count = SIZE.take_lengths(&[], rows.iter().copied()).min(rows.len());
            leaves.push(count);
            rows = &rows[count..];
        }
        leaves
    }

    #[test]
    fn all_rows_that_fit_are_one_leaf() {
        assert_eq!(leaves(&[100; 8]), [8]);
        assert_eq!(leaves(&[10; 8]), [8]);
        assert_eq!(leaves(&[790]), [1]);
    }

    #[test]
    fn else_some_room_is_left() {
        // A quarter of the rows: 6 of 8. The last ones fit one leaf.
        assert_eq!(leaves(&[10; 20]), [6, 6, 8]);
        // An eighth of the page: 700 bytes.
        assert_eq!(leaves(&[300; 5]), [2, 2, 1]);
        assert_eq!(leaves(&[350, 350, 350]), [2, 1]);
    }

    #[test]
    fn parts_are_of_about_equal_length_where_inserts_are_anywhere() {
        let even = |rows: &[usize]| SIZE.take_even(&[], rows);
        assert_eq!(even(&[210; 3]), usize::MAX, "they fit");
        assert_eq!(even(&[210; 4]), 2);
        assert_eq!(even(&[50, 50, 600, 600]), 3);
        assert_eq!(even(&[10; 20]), 7, "three parts");
        assert_eq!(even(&[5_000, 10, 10]), 1, "a row that fits no page is alone");
        assert_eq!(even(&[10, 10, 5_000]), 2);
    }

    #[test]
    fn rows_of_a_run_stand_side_by_side() {
        assert!(are_in_a_run(&[1, 2, 3, 4]), "at the end");
        assert!(are_in_a_run(&[1, 5, 6, 7, 2]), "before rows that were there");
        assert!(!are_in_a_run(&[4, 2, 1, 3]));
        assert!(!are_in_a_run(&[5, 6, 4, 1]), "the newest one is not the last of them");
        assert!(!are_in_a_run(&[0; 8]), "of an earlier life");
        assert!(!are_in_a_run(&[3, 4]));
        let two_threads: Vec<u64> = (0..32).map(|number| number ^ 1).collect();
        assert!(are_in_a_run(&two_threads));
    }

    #[test]
    fn a_row_that_fits_no_page_has_a_leaf() {
        assert_eq!(leaves(&[5_000, 10, 10]), [1, 2]);
        assert_eq!(leaves(&[10, 5_000, 10]), [1, 1, 1]);
        assert!(!SIZE.is_too_wide(&[], [5_000].into_iter()));
        assert!(SIZE.is_too_wide(&[], [5_000, 10].into_iter()));
    }

    #[test]
    fn a_leaf_has_places_for_the_rows_that_fit() {
        assert_eq!(SIZE.room(0, 0), 8, "an empty leaf may get short rows");
        assert_eq!(SIZE.room(2, 600), 4, "two fit: it has place for two more");
        assert_eq!(SIZE.room(1, 200), 5);
        assert_eq!(SIZE.room(6, 60), 8);
        assert_eq!(SIZE.room(20, 60), 20, "rows that are there have their places");
    }
}
