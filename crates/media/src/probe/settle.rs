//! Which figures may decide a rule, and how the others are replaced.
//!
//! 1. A figure whose repetitions scatter by more than [`UNSURE`] decides nothing by itself.
//! 2. In a row of figures (by size, by number of threads) such a figure is replaced by a median. The median is taken of
//!    the figure itself and the two nearest sure ones, one on each side. At the ends both are from the same side. An
//!    unsure figure can therefore neither make a peak nor break a row.
//! 3. In a row with fewer than two sure figures nothing is replaced.
//!
//! Invariant: a row in which all figures are sure stays as it is.

use super::Cell;

/// Coefficient of variation above which a figure decides nothing by itself. This is four times the value that the paper
/// accepts (section 2.1). A machine with other work on it can still be measured, and a cell that was interrupted is not
/// used.
pub(super) const UNSURE: f64 = 0.2;

/// Whether the repetitions of `cell` agree well enough to decide something.
pub(super) fn is_sure(cell: &Cell) -> bool {
    cell.latency_ns.variation <= UNSURE && cell.bandwidth_bytes_per_s.variation <= UNSURE
}

/// One figure of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) value: f64,
    pub(super) sure: bool,
}

/// The row's values, with replacements for those that are not sure.
pub(super) fn settled(row: &[Figure]) -> Vec<f64> {
    (0..row.len()).map(|index| if row[index].sure { row[index].value } else { stand_in(row, index) }).collect()
}

fn stand_in(row: &[Figure], index: usize) -> f64 {
    let sure = |figure: &&Figure| figure.sure;
    let before: Vec<f64> = row[..index].iter().rev().filter(sure).take(2).map(|figure| figure.value).collect();
    let after: Vec<f64> = row[index + 1..].iter().filter(sure).take(2).map(|figure| figure.value).collect();
    let neighbours = match (before.as_slice(), after.as_slice()) {
        ([left, ..], [right, ..]) => [*left, *right],
        ([near, far], []) | ([], [near, far]) => [*near, *far],
        _ => return row[index].value,
    };
    let mut three = [neighbours[0], row[index].value, neighbours[1]];
    three.sort_unstable_by(f64::total_cmp);
    three[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[(f64, bool)]) -> Vec<f64> {
        settled(&values.iter().map(|&(value, sure)| Figure { value, sure }).collect::<Vec<_>>())
    }

    #[test]
    fn a_row_of_sure_figures_stays_as_it_is() {
        assert_eq!(row(&[(1.0, true), (9.0, true), (2.0, true)]), [1.0, 9.0, 2.0]);
    }

    #[test]
    fn an_unsure_figure_gives_way_to_its_neighbours_in_the_middle_and_at_the_ends() {
        assert_eq!(row(&[(1.0, true), (9.0, false), (2.0, true)]), [1.0, 2.0, 2.0]);
        assert_eq!(row(&[(1.0, true), (2.0, true), (9.0, false)]), [1.0, 2.0, 2.0]);
        assert_eq!(row(&[(9.0, false), (1.0, true), (2.0, true)]), [2.0, 1.0, 2.0]);
        assert_eq!(row(&[(1.0, true), (1.5, false), (2.0, true)]), [1.0, 1.5, 2.0], "one that fits stays");
        assert_eq!(row(&[(1.0, true), (9.0, false), (8.0, false), (2.0, true)]), [1.0, 2.0, 2.0, 2.0]);
    }

    #[test]
    fn without_two_sure_figures_there_is_nothing_to_go_by() {
        assert_eq!(row(&[(1.0, true), (9.0, false)]), [1.0, 9.0]);
        assert_eq!(row(&[(9.0, false)]), [9.0]);
        assert!(row(&[]).is_empty());
    }
}
