//! Angles in degrees. Angles whose result is a short number give exactly that number: each function is scaled by what
//! the library says for such an angle.

use std::hint::black_box;

use super::number::{angle, float, reals, unit};
use super::{FLOAT, Function, of};
use crate::datum::Datum;
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("sind", &[FLOAT], Type::Float8, |_, a| angle(a, sine)),
    of("cosd", &[FLOAT], Type::Float8, |_, a| angle(a, cosine)),
    of("tand", &[FLOAT], Type::Float8, |_, a| {
        angle(a, |value| quotient(value, |at| sine_of_quarter(at) / cosine_of_quarter(at)))
    }),
    of("cotd", &[FLOAT], Type::Float8, |_, a| {
        angle(a, |value| quotient(value, |at| cosine_of_quarter(at) / sine_of_quarter(at)))
    }),
    of("asind", &[FLOAT], Type::Float8, |_, a| unit(a, arc_sine)),
    of("acosd", &[FLOAT], Type::Float8, |_, a| unit(a, arc_cosine)),
    of("atand", &[FLOAT], Type::Float8, |_, a| float(a, |value| value.atan() / known(1.0).atan() * 45.0)),
    of("atan2d", &[FLOAT, FLOAT], Type::Float8, |_, a| {
        let angle = |(one, two): (f64, f64)| one.atan2(two) / known(1.0).atan() * 45.0;
        Ok(reals(a).map_or(Datum::Null, |pair| Datum::Float(angle(pair))))
    }),
];

/// A number that the compiler does not compute with: the library computes this angle as it does others.
fn known(value: f64) -> f64 {
    black_box(value)
}

fn sine_to_30(value: f64) -> f64 {
    radians(value).sin() / radians(known(30.0)).sin() / 2.0
}

fn cosine_to_60(value: f64) -> f64 {
    let rest = |value: f64| 1.0 - radians(value).cos();
    1.0 - rest(value) / rest(known(60.0)) / 2.0
}

/// Degrees as the library reads them.
fn radians(value: f64) -> f64 {
    value * (std::f64::consts::PI / 180.0)
}

/// Of 0 to 90 degrees.
fn sine_of_quarter(value: f64) -> f64 {
    if value <= 30.0 { sine_to_30(value) } else { cosine_to_60(90.0 - value) }
}

/// Of 0 to 90 degrees.
fn cosine_of_quarter(value: f64) -> f64 {
    if value <= 60.0 { cosine_to_60(value) } else { sine_to_30(90.0 - value) }
}

/// The angle of 0 to 90 degrees that has the same distance from the x axis, whether the angle is below that axis, and
/// whether it is left of the y axis.
fn in_quarter(value: f64) -> (f64, bool, bool) {
    let turned = value % 360.0;
    let (mut at, mut is_below) = (turned.abs(), turned < 0.0);
    if at > 180.0 {
        (at, is_below) = (360.0 - at, !is_below);
    }
    if at > 90.0 { (180.0 - at, is_below, true) } else { (at, is_below, false) }
}

fn signed(value: f64, is_negative: bool) -> f64 {
    if is_negative { -value } else { value }
}

fn sine(value: f64) -> f64 {
    let (at, is_below, _) = in_quarter(value);
    signed(sine_of_quarter(at), is_below)
}

fn cosine(value: f64) -> f64 {
    let (at, _, is_left) = in_quarter(value);
    signed(cosine_of_quarter(at), is_left)
}

/// A quotient that is 1 at 45 degrees. Zero has no sign.
fn quotient(value: f64, of_quarter: fn(f64) -> f64) -> f64 {
    let (at, is_below, is_left) = in_quarter(value);
    let found = signed(of_quarter(at) / of_quarter(known(45.0)), is_below != is_left);
    if found == 0.0 { 0.0 } else { found }
}

/// Of 0 to 1.
fn arc_sine_of_quarter(value: f64) -> f64 {
    if value <= 0.5 { value.asin() / known(0.5).asin() * 30.0 } else { 90.0 - value.acos() / known(0.5).acos() * 60.0 }
}

/// Of 0 to 1.
fn arc_cosine_of_quarter(value: f64) -> f64 {
    if value <= 0.5 { 90.0 - value.asin() / known(0.5).asin() * 30.0 } else { value.acos() / known(0.5).acos() * 60.0 }
}

fn arc_sine(value: f64) -> f64 {
    if value < 0.0 { -arc_sine_of_quarter(-value) } else { arc_sine_of_quarter(value) }
}

fn arc_cosine(value: f64) -> f64 {
    if value < 0.0 { 90.0 + arc_sine_of_quarter(-value) } else { arc_cosine_of_quarter(value) }
}
