//! Plots: their content. `svg.rs` draws it; `scale.rs` computes the position of a value and the ticks of an axis.
//!
//! Invariants:
//! - Values that cannot be drawn (NaN, infinite, not positive on a logarithmic axis) are left out: a line is broken
//!   there. If nothing is left, the figure says "no data".
//! - Series differ by colour *and* by dash and marker, so that a print without colours is readable.
//! - A linear axis of bars starts at zero.

mod scale;
mod svg;

pub use svg::STYLE;

/// The unit of an axis, for its ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unit {
    /// Plain numbers: `200`, `5k`, `1.2M`.
    #[default]
    Count,
    /// Nanoseconds: `200 ns`, `5 us`, `1.2 ms`.
    Nanoseconds,
    /// Bytes: `256 B`, `4 KiB`; ticks at powers of two on a logarithmic axis.
    Bytes,
    /// Bytes per second, in decimal units: `2 GB/s`, `870 MB/s`.
    BytesPerSecond,
    /// A fraction from 0 to 1: `50 %`.
    Fraction,
}

/// How the data is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FigureKind {
    /// Points joined by lines.
    Line,
    /// A distribution function: steps from 0 to 1.
    Distribution,
    /// Groups of bars, one group for each category.
    Bar,
    /// Bars that touch, each over a range of x.
    Histogram,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Axis {
    label: String,
    unit: Unit,
    logarithmic: bool,
    from_zero: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// A plot with a title, two axes and named series.
///
/// ```
/// use lodestone_report::figure::{Figure, Unit};
///
/// let svg = Figure::distribution("Latency of reads")
///     .x_axis("latency", Unit::Nanoseconds)
///     .log_x()
///     .series("block", [(900.0, 0.5), (24_000.0, 0.99), (80_000.0, 1.0)])
///     .to_svg();
/// assert!(svg.starts_with("<svg"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    kind: FigureKind,
    title: String,
    note: String,
    x: Axis,
    y: Axis,
    categories: Vec<String>,
    series: Vec<Series>,
}

impl Figure {
    fn new(kind: FigureKind, title: impl Into<String>) -> Self {
        Self {
            kind,
            title: title.into(),
            note: String::new(),
            x: Axis::default(),
            y: Axis::default(),
            categories: Vec::new(),
            series: Vec::new(),
        }
    }

    /// Points joined by lines.
    #[must_use]
    pub fn line(title: impl Into<String>) -> Self {
        Self::new(FigureKind::Line, title)
    }

    /// A distribution function: series are `(value, fraction at or below)`, both rising.
    #[must_use]
    pub fn distribution(title: impl Into<String>) -> Self {
        Self::new(FigureKind::Distribution, title).y_axis("share of operations", Unit::Fraction)
    }

    /// Groups of bars: one group for each of `categories`, one bar in it for each series.
    #[must_use]
    pub fn bars<Name: Into<String>>(title: impl Into<String>, categories: impl IntoIterator<Item = Name>) -> Self {
        let mut figure = Self::new(FigureKind::Bar, title);
        figure.categories = categories.into_iter().map(Into::into).collect();
        figure
    }

    /// Bars over ranges of x: series are `(lower end, count)`, ended by `(upper end of the last, 0)`.
    #[must_use]
    pub fn histogram(title: impl Into<String>) -> Self {
        Self::new(FigureKind::Histogram, title)
    }

    /// Label (without the unit's name where ticks show it) and unit of the x axis.
    #[must_use]
    pub fn x_axis(mut self, label: impl Into<String>, unit: Unit) -> Self {
        self.x.label = label.into();
        self.x.unit = unit;
        self
    }

    /// Label and unit of the y axis.
    #[must_use]
    pub fn y_axis(mut self, label: impl Into<String>, unit: Unit) -> Self {
        self.y.label = label.into();
        self.y.unit = unit;
        self
    }

    /// Makes the x axis logarithmic; bars have no x values and ignore it.
    #[must_use]
    pub fn log_x(mut self) -> Self {
        self.x.logarithmic = true;
        self
    }

    /// Makes the y axis logarithmic.
    #[must_use]
    pub fn log_y(mut self) -> Self {
        self.y.logarithmic = true;
        self
    }

    /// Makes a linear y axis of a line begin at zero, so that heights compare as the values do. A logarithmic axis has
    /// no zero.
    #[must_use]
    pub fn zero_y(mut self) -> Self {
        self.y.from_zero = true;
        self
    }

    /// A sentence below the figure: how to read it, or how it was measured.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Adds a series of points.
    #[must_use]
    pub fn series(mut self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.series.push(Series { name: name.into(), points: points.into_iter().collect() });
        self
    }

    /// Adds a series of bars: one value for each category, in their order; NaN where there is none.
    #[must_use]
    pub fn bar_series(self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let points = (0_u32..).zip(values).map(|(index, value)| (f64::from(index), value));
        self.series(name, points)
    }

    /// The title.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The sentence below the figure; empty if there is none.
    #[must_use]
    pub fn note_text(&self) -> &str {
        &self.note
    }

    /// The figure as a separate file, with its style inside.
    #[must_use]
    pub fn to_svg(&self) -> String {
        svg::render(self, "figure", svg::Place::File)
    }

    /// The figure for use inside an HTML page whose style holds [`STYLE`]. `id` must be unique in the page and consist
    /// of ASCII letters, digits and `-`.
    #[must_use]
    pub fn to_svg_fragment(&self, id: &str) -> String {
        svg::render(self, id, svg::Place::Page)
    }

    /// The data as rows of text: titles, then one row for each point of each series.
    #[must_use]
    pub fn data_rows(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let x_title = if self.kind == FigureKind::Bar { "category" } else { self.x.label.as_str() };
        let titles = ["series", x_title, self.y.label.as_str()].map(String::from).to_vec();
        let mut rows = Vec::new();
        for series in &self.series {
            for (index, (x, y)) in series.points.iter().enumerate() {
                let place = match self.categories.get(index) {
                    Some(category) if self.kind == FigureKind::Bar => category.clone(),
                    _ => scale::exact_text(*x),
                };
                rows.push(vec![series.name.clone(), place, scale::exact_text(*y)]);
            }
        }
        (titles, rows)
    }
}
