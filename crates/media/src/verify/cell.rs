//! One compared figure.

use serde::Serialize;

/// The paper's statement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Expected {
    /// A figure, which the model may miss by a fraction of it.
    Value {
        /// As printed.
        value: f64,
        /// Largest allowed error, as a fraction of the figure.
        tolerance: f64,
    },
    /// A sentence, as the range that satisfies it.
    Between {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
}

/// One figure of a paper beside the model's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cell {
    /// Table, figure or section.
    pub group: String,
    /// The measured quantity.
    pub name: String,
    /// Unit of all values.
    pub unit: &'static str,
    /// The paper's statement.
    pub expected: Expected,
    /// The model's figure.
    pub model: f64,
    /// The time added by the measuring program. The sum is compared.
    pub instrument: f64,
    /// Whether it counts; if not, it is only shown to the reader.
    pub judged: bool,
}

impl Cell {
    /// Model and instrument.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.model + self.instrument
    }

    /// Relative error against the paper's figure, or against the nearer end of a range that was missed; 0 inside the
    /// range.
    #[must_use]
    pub fn error(&self) -> f64 {
        let total = self.total();
        let nearest = match self.expected {
            Expected::Value { value, .. } => value,
            Expected::Between { min, max } => total.max(min).min(max),
        };
        if nearest == 0.0 { total } else { total / nearest - 1.0 }
    }

    /// Whether the model agrees with the paper.
    #[must_use]
    pub fn agrees(&self) -> bool {
        match self.expected {
            Expected::Value { tolerance, .. } => self.error().abs() <= tolerance,
            Expected::Between { min, max } => (min..=max).contains(&self.total()),
        }
    }

    /// Whether it agrees or is not judged.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.judged || self.agrees()
    }
}
