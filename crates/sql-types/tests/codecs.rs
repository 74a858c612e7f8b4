//! The codecs: values come back from both formats, and no bytes make them panic.

use std::cmp::Ordering;
use std::sync::Arc;

use lodestone_sql_types::json::Json;
use lodestone_sql_types::{Datum, Interval, Numeric, TYPES, Type, binary, cast, text, time};
use proptest::prelude::*;

/// Spaces of ASCII and two of Unicode, which stand between values in some languages and inside them in others.
fn space() -> impl Strategy<Value = char> {
    proptest::sample::select(vec![' ', '\t', '\n', '\u{b}', '\u{c}', '\r', '\u{85}', '\u{2003}'])
}

fn texts() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof![any::<char>(), Just('"'), Just('\\'), Just(','), Just('{'), space()], 0..12)
        .prop_map(|letters| letters.into_iter().filter(|letter| *letter != '\0').collect())
}

fn numerics() -> impl Strategy<Value = Numeric> {
    (-10_i128.pow(30)..10_i128.pow(30), 0_u8..20)
        .prop_map(|(units, scale)| Numeric::new(units, scale).expect("in limits"))
}

fn datums() -> impl Strategy<Value = (Type, Datum)> {
    let days = -2_000_000_i32..100_000_000;
    let moments = -200_000_000_000_000_000_i64..9_000_000_000_000_000_000;
    prop_oneof![
        any::<bool>().prop_map(|value| (Type::Bool, Datum::Bool(value))),
        any::<i16>().prop_map(|value| (Type::Int2, Datum::Int(value.into()))),
        any::<i32>().prop_map(|value| (Type::Int4, Datum::Int(value.into()))),
        any::<i64>().prop_map(|value| (Type::Int8, Datum::Int(value))),
        any::<u32>().prop_map(|value| (Type::Oid, Datum::Int(value.into()))),
        any::<f64>()
            .prop_filter("equal to itself", |value| !value.is_nan())
            .prop_map(|value| (Type::Float8, Datum::Float(value))),
        any::<f32>()
            .prop_filter("equal to itself", |value| !value.is_nan())
            .prop_map(|v| (Type::Float4, Datum::Float(v.into()))),
        numerics().prop_map(|value| (Type::Numeric, Datum::Numeric(value))),
        texts().prop_map(|value| (Type::Text, Datum::Text(value))),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|value| (Type::Bytea, Datum::Bytes(value))),
        days.prop_map(|value| (Type::Date, Datum::Date(value))),
        moments.clone().prop_map(|value| (Type::Timestamp, Datum::Time(value))),
        moments.prop_map(|value| (Type::Timestamptz, Datum::Time(value))),
        proptest::collection::vec(proptest::option::of(texts()), 0..5).prop_map(|values| {
            let datum = |value: Option<String>| value.map_or(Datum::Null, Datum::Text);
            (Type::TextArray, Datum::Array(values.into_iter().map(datum).collect()))
        }),
        (any::<i16>(), any::<i16>(), -10_i64.pow(15)..10_i64.pow(15)).prop_map(|(months, days, micros)| {
            (Type::Interval, Datum::Interval(Interval { months: months.into(), days: days.into(), micros }))
        }),
        (numerics(), numerics())
            .prop_map(|(one, two)| (Type::Numeric, Datum::Numeric(one.multiply(&two).expect("long")))),
        (texts(), any::<i32>()).prop_map(|(key, number)| {
            let members = vec![(key.clone(), Json::Number(number.to_string())), ("k".into(), Json::Text(key))];
            (Type::Jsonb, Datum::Json(Arc::new(Json::Array(vec![Json::Null, Json::object(members)]))))
        }),
        proptest::collection::vec(any::<i32>(), 0..5).prop_map(|values| {
            (Type::Int4Array, Datum::Array(values.into_iter().map(|value| Datum::Int(value.into())).collect()))
        }),
    ]
}

/// As `PostgreSQL` reads them: six spaces of ASCII stand around values, those of Unicode are letters.
#[test]
fn spaces_around_elements_are_those_of_ascii() {
    let read = |written: &str| match text::decode(Type::TextArray, written) {
        Ok(Datum::Array(values)) => values.iter().map(|value| value.as_text().map(str::to_owned)).collect::<Vec<_>>(),
        other => panic!("{written:?}: {other:?}"),
    };
    assert_eq!(read("\u{b}{\u{c}a\t,\r\n\" b\" }\u{b}"), [Some("a".into()), Some(" b".into())]);
    assert_eq!(read("{\u{2003},a\u{85}}"), [Some("\u{2003}".into()), Some("a\u{85}".into())]);
    assert_eq!(read("{a\\ , nul\\l,NULL}"), [Some("a ".into()), Some("null".into()), None]);
    let value = Datum::Array(vec![Datum::from("\u{b}"), Datum::from("\u{2003}")]);
    assert_eq!(text::encode(Type::TextArray, &value), "{\"\u{b}\",\u{2003}}");
}

proptest! {
    #[test]
    fn values_come_back((ty, datum) in datums()) {
        let shown = text::encode(ty, &datum);
        prop_assert_eq!(text::decode(ty, &shown).expect("its own text"), datum.clone(), "{}", shown);
        let mut bytes = Vec::new();
        binary::encode(ty, &datum, &mut bytes).expect("a binary format");
        prop_assert_eq!(binary::decode(ty, &bytes).expect("its own bytes"), datum);
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        for info in TYPES {
            if let Ok(datum) = binary::decode(info.ty, &bytes) {
                let _ = text::encode(info.ty, &datum);
            }
        }
    }

    #[test]
    fn any_text_is_a_value_or_an_error(value in "[-+0-9a-zA-Z:. {}\",\\\\]{0,24}") {
        for info in TYPES {
            if let Ok(datum) = text::decode(info.ty, &value) {
                let mut key = Vec::new();
                datum.key(&mut key);
                for other in TYPES {
                    let _ = cast::convert(datum.clone(), info.ty, other.ty);
                }
            }
        }
    }

    #[test]
    fn orders_of_numbers_are_those_of_their_differences(one in numerics(), two in numerics()) {
        let difference = one.minus(&two).expect("in limits").signum();
        prop_assert_eq!(one.cmp(&two), difference.cmp(&0));
        prop_assert_eq!(two.cmp(&one), 0.cmp(&difference));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        Datum::Numeric(one.clone()).key(&mut first);
        Datum::Numeric(two.clone()).key(&mut second);
        prop_assert_eq!(first == second, one.cmp(&two) == Ordering::Equal);
    }

    #[test]
    fn quotients_are_right_to_their_last_digit(one in -10_i64.pow(12)..10_i64.pow(12), two in 1_i64..10_i64.pow(6), scale in 0_u8..4) {
        let divisor = Numeric::new(two.into(), scale).expect("in limits");
        let quotient = Numeric::from(one).divide(&divisor).expect("in limits");
        let back = quotient.multiply(&divisor).expect("in limits");
        // The error is at most half a unit of the quotient's last digit, times the divisor.
        let error = back.minus(&one.into()).expect("in limits").absolute();
        let unit: Numeric = format!("1e-{}", quotient.scale()).parse().expect("a number");
        prop_assert!(error.multiply(&2.into()).expect("in limits") <= unit.multiply(&divisor).expect("in limits"));
    }

    #[test]
    fn days_are_those_of_the_calendar(days in -2_000_000_i64..2_000_000) {
        let (year, month, day) = time::civil_of(days);
        prop_assert_eq!(time::days_of(year, month, day), days);
        prop_assert!((1..=12).contains(&month) && (1..=31).contains(&day));
    }
}
