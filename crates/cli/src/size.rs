//! Byte counts in people's notation: `64MiB`, `4k`, `1GB`, `4096`.
//!
//! Units without `B` and units with `iB` are powers of 1024. `KB`, `MB`, `GB`, `TB` are powers of 1000. Case does not
//! matter.

use lodestone_width::{exact_u32, nearest_f64};

/// Parses a byte count with an optional unit.
///
/// ```text
/// 4096   64MiB   64M   1.5GiB   10MB
/// ```
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = factor(unit.trim())
        .ok_or_else(|| format!("`{unit}` is no unit of size; use KiB, MiB, GiB or TiB, as in 64MiB"))?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let bad = || format!("`{text}` is no size; write a number and a unit, as in 64MiB");
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let too_large = || format!("`{text}` is more than 2^64 bytes");
    let mut bytes = whole.checked_mul(factor).ok_or_else(too_large)?;
    if !fraction.is_empty() {
        let part: u64 = fraction.parse().map_err(|_| bad())?;
        let scale = 10_u64.checked_pow(exact_u32(fraction.len())).ok_or_else(bad)?;
        let share = u128::from(part) * u128::from(factor) / u128::from(scale);
        bytes = u64::try_from(share).ok().and_then(|share| bytes.checked_add(share)).ok_or_else(too_large)?;
    }
    Ok(bytes)
}

/// As [`parse`], for the size of a page of a database: a power of two from 256 bytes to 1 MiB.
pub fn parse_page(text: &str) -> Result<u32, String> {
    let bytes = parse(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (256..=1 << 20).contains(bytes))
        .ok_or_else(|| format!("a page cannot have {bytes} bytes; give a power of two from 256 to 1MiB, as in 16KiB"))
}

fn factor(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    Some(match lower.as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

/// A byte count in the largest unit that leaves at least one whole: `64 MiB`, `1.5 GiB`, `100 B`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = "B";
    let mut scale = 1_u64;
    for name in UNITS {
        let next = scale << 10;
        if bytes < next {
            break;
        }
        (unit, scale) = (name, next);
    }
    if bytes.is_multiple_of(scale) {
        format!("{} {unit}", bytes / scale)
    } else {
        format!("{:.1} {unit}", nearest_f64(bytes) / nearest_f64(scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_what_people_expect() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64MiB"), Ok(64 << 20));
        assert_eq!(parse("64 mib"), Ok(64 << 20));
        assert_eq!(parse("64M"), Ok(64 << 20));
        assert_eq!(parse("10MB"), Ok(10_000_000));
        assert_eq!(parse("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse("1_000k"), Ok(1000 << 10));
    }

    #[test]
    fn a_page_has_a_power_of_two() {
        assert_eq!(parse_page("16KiB"), Ok(16 << 10));
        assert_eq!((parse_page("256"), parse_page("1MiB")), (Ok(256), Ok(1 << 20)));
        for text in ["0", "128", "12KiB", "2MiB", "4GiB"] {
            let message = parse_page(text).expect_err(text);
            assert!(message.contains("16KiB"), "{message}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for text in ["", "MiB", "-1", "64XB", "1.2.3", "99999999TiB", "1..5K", "0.99999999999999999999999999K"] {
            let message = parse(text).expect_err(text);
            assert!(message.contains('`'), "{message}");
        }
    }

    #[test]
    fn people_read_back_what_they_wrote() {
        for text in ["1 B", "100 B", "4 KiB", "64 MiB", "1 GiB", "2 TiB", "1.5 GiB"] {
            assert_eq!(human(parse(text).expect("size")), text);
        }
        assert_eq!(human(0), "0 B");
    }
}
