//! How a session reads and writes values: its time zone, and the settings `DateStyle`, `IntervalStyle`,
//! `extra_float_digits` and `bytea_output`.
//!
//! A style belongs to the thread that runs a statement: [`enter`] sets it, and the guard that it returns takes it back.
//! So a cast or a function need not be handed the settings, and a statement that moves to another thread enters it
//! there. Texts that are kept on the medium are always in the plain style: see [`plain`].

use std::cell::RefCell;
use std::sync::Arc;

use crate::zone::Zone;

/// The order of day, month and year in an input of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum DateOrder {
    #[default]
    Mdy,
    Dmy,
    Ymd,
}

/// How days and moments are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the setting")]
pub enum DateForm {
    #[default]
    Iso,
    Sql,
    Postgres,
    German,
}

/// How spans of time are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the setting")]
pub enum SpanForm {
    #[default]
    Postgres,
    PostgresVerbose,
    SqlStandard,
    Iso8601,
}

/// How a session reads and writes values.
#[derive(Clone, Debug, PartialEq)]
pub struct Style {
    /// The order of the parts of a day.
    pub order: DateOrder,
    /// How days and moments are written.
    pub date: DateForm,
    /// How spans are written.
    pub span: SpanForm,
    /// Above 0: the shortest text of a number that reads back as the same. Otherwise so many digits more than 15, or 6.
    pub float_digits: i64,
    /// Whether bytes are written with escapes, and not as digits to the base 16.
    pub escapes_bytes: bool,
    /// The time zone.
    pub zone: Zone,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            order: DateOrder::Mdy,
            date: DateForm::Iso,
            span: SpanForm::Postgres,
            float_digits: 1,
            escapes_bytes: false,
            zone: Zone::default(),
        }
    }
}

/// The styles that the thread at hand uses.
#[derive(Clone, Debug)]
struct Current {
    style: Arc<Style>,
    /// When the transaction began; `None`: there is none, and the clock counts.
    now: Option<i64>,
}

thread_local! {
    static CURRENT: RefCell<Current> = RefCell::new(Current { style: Arc::default(), now: None });
}

/// Takes the style back that was there before.
#[derive(Debug)]
#[must_use = "the style ends with the guard"]
pub struct Guard(Option<Current>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            CURRENT.with(|current| *current.borrow_mut() = before);
        }
    }
}

/// Values are read and written in this style, until the guard is dropped. `now`: when the transaction began.
pub fn enter(style: Arc<Style>, now: Option<i64>) -> Guard {
    CURRENT.with(|current| Guard(Some(current.replace(Current { style, now }))))
}

/// Runs `work` in the style of values on the medium: ISO and UTC, whatever the session has.
pub fn plain<T>(work: impl FnOnce() -> T) -> T {
    if is_plain() {
        return work();
    }
    let _guard = enter(Arc::default(), None);
    work()
}

/// Asks the style at hand.
pub fn with<T>(ask: impl FnOnce(&Style) -> T) -> T {
    CURRENT.with(|current| ask(&current.borrow().style))
}

fn is_plain() -> bool {
    with(|style| *style == Style::default())
}

/// The time zone of the session.
#[must_use]
pub fn zone() -> Zone {
    with(|style| style.zone.clone())
}

/// The date and time that clocks show at a moment, in the zone of the session.
#[must_use]
pub fn to_local(micros: i64) -> i64 {
    with(|style| style.zone.to_local(micros))
}

/// The moment at which clocks show `local`, in the zone of the session. `None`: it is outside of the calendar.
#[must_use]
pub fn to_utc(local: i64) -> Option<i64> {
    with(|style| style.zone.to_utc(local))
}

/// The moment that `now` means: the begin of the transaction.
#[must_use]
pub fn now() -> i64 {
    CURRENT.with(|current| current.borrow().now).unwrap_or_else(crate::time::now)
}

/// The style of dates after the setting `DateStyle` was given `value`, which may name a form, an order, or both.
/// `None`: the value makes no sense.
#[must_use]
pub fn parse_dates(value: &str, (form, order): (DateForm, DateOrder)) -> Option<(DateForm, DateOrder)> {
    let (mut new_form, mut new_order) = (None, None);
    let mut put_form = |form| new_form.replace(form).is_none_or(|before| before == form);
    let mut put_order = |order| new_order.replace(order).is_none_or(|before| before == order);
    for word in value.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        let is_right = match word.as_str() {
            "iso" => put_form(DateForm::Iso),
            "sql" => put_form(DateForm::Sql),
            word if word.starts_with("postgres") => put_form(DateForm::Postgres),
            "german" => put_form(DateForm::German),
            "ymd" => put_order(DateOrder::Ymd),
            "dmy" => put_order(DateOrder::Dmy),
            word if word.starts_with("euro") => put_order(DateOrder::Dmy),
            "mdy" | "us" => put_order(DateOrder::Mdy),
            word if word.starts_with("noneuro") => put_order(DateOrder::Mdy),
            _ => false,
        };
        if !is_right {
            return None;
        }
    }
    // German dates begin with the day, unless an order is named.
    let order = match (new_order, new_form) {
        (Some(order), _) => order,
        (None, Some(DateForm::German)) => DateOrder::Dmy,
        _ => order,
    };
    Some((new_form.unwrap_or(form), order))
}

/// The text of the setting `DateStyle`.
#[must_use]
pub fn dates_text((form, order): (DateForm, DateOrder)) -> String {
    let form = match form {
        DateForm::Iso => "ISO",
        DateForm::Sql => "SQL",
        DateForm::Postgres => "Postgres",
        DateForm::German => "German",
    };
    let order = match order {
        DateOrder::Mdy => "MDY",
        DateOrder::Dmy => "DMY",
        DateOrder::Ymd => "YMD",
    };
    format!("{form}, {order}")
}

/// The form of spans that the setting `IntervalStyle` names.
#[must_use]
pub fn parse_spans(value: &str) -> Option<SpanForm> {
    Some(match value.to_ascii_lowercase().as_str() {
        "postgres" => SpanForm::Postgres,
        "postgres_verbose" => SpanForm::PostgresVerbose,
        "sql_standard" => SpanForm::SqlStandard,
        "iso_8601" => SpanForm::Iso8601,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_takes_the_style_back() {
        let other = Arc::new(Style { float_digits: 0, ..Style::default() });
        {
            let _guard = enter(other, Some(5));
            assert_eq!((with(|style| style.float_digits), now()), (0, 5));
            assert_eq!(plain(|| with(|style| style.float_digits)), 1);
            assert_eq!((with(|style| style.float_digits), now()), (0, 5));
        }
        assert_eq!(with(|style| style.float_digits), 1);
    }

    #[test]
    fn values_of_datestyle() {
        let first = (DateForm::Iso, DateOrder::Mdy);
        let read = |value: &str| parse_dates(value, first).map(dates_text);
        assert_eq!(read("postgres, dmy").as_deref(), Some("Postgres, DMY"));
        assert_eq!(read("German").as_deref(), Some("German, DMY"));
        assert_eq!(read("european").as_deref(), Some("ISO, DMY"));
        assert_eq!((read("iso, sql"), read("iso, mdy, dmy"), read("fine")), (None, None, None));
    }
}
