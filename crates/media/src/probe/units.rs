//! Figures as people read them: `256 B`, `1.25 us`, `6.9 GB/s`.

/// Three significant digits, without trailing zeroes after the point.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        magnitude if magnitude >= 99.95 => 0,
        magnitude if magnitude >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    // A value that would be rounded up to the next unit is written in that unit.
    let unit = units.iter().rev().find(|(size, _)| value.abs() >= size * 0.9995).or(units.first());
    unit.map_or_else(|| short(value), |(size, name)| format!("{} {name}", short(value / size)))
}

/// A size, in binary units.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    scaled(bytes as f64, &[(1.0, "B"), (1024.0, "KiB"), (1_048_576.0, "MiB"), (1_073_741_824.0, "GiB")])
}

/// A time in nanoseconds.
#[must_use]
pub fn time_text(nanoseconds: f64) -> String {
    scaled(nanoseconds, &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")])
}

/// A rate in bytes per second, in decimal units as vendors and papers write it.
#[must_use]
pub fn rate_text(bytes_per_s: f64) -> String {
    scaled(bytes_per_s, &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")])
}

/// A ratio: `3.5 times`.
#[must_use]
pub fn times_text(ratio: f64) -> String {
    if ratio.is_finite() { format!("{} times", short(ratio)) } else { "-".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(
            [8, 256, 1024, 4096, 16 << 20, 3 << 29].map(bytes_text),
            ["8 B", "256 B", "1 KiB", "4 KiB", "16 MiB", "1.5 GiB"]
        );
        assert_eq!(
            [0.0, 0.25, 201.4, 999.9, 1234.0, 22.81e6, 2e9].map(time_text),
            ["0 ns", "0.25 ns", "201 ns", "1 us", "1.23 us", "22.8 ms", "2 s"]
        );
        assert_eq!([6.94e9, 2e9, 870e6].map(rate_text), ["6.94 GB/s", "2 GB/s", "870 MB/s"]);
        assert_eq!(times_text(3.5), "3.5 times");
        assert_eq!((time_text(f64::NAN), times_text(f64::INFINITY)), ("-".into(), "-".into()));
    }
}
