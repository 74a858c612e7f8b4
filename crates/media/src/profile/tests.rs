//! Profiles: the built-in ones are valid, written ones can be read, and wrong ones are refused with the name of the
//! key.

use super::*;

#[test]
fn every_builtin_profile_reads_and_round_trips() {
    for name in MediaProfile::names() {
        let text = MediaProfile::builtin_text(name).expect("a text");
        let profile = MediaProfile::from_toml(text, name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(profile.name, name);
        let again = MediaProfile::from_toml(&profile.to_toml(), "written").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, profile);
        assert_eq!(MediaProfile::resolve(name).ok(), Some(profile));
    }
}

#[test]
fn an_unknown_name_lists_the_names_and_a_missing_file_is_named() {
    let text = MediaProfile::resolve("optain").expect_err("unknown").to_string();
    assert!(text.contains("`optain`") && text.contains("dram, optane, cxl"), "{text}");
    let text = MediaProfile::resolve("/nonexistent/my.toml").expect_err("missing").to_string();
    assert!(text.contains("/nonexistent/my.toml") && text.contains("No such file"), "{text}");
}

/// Replaces the first line that starts with `key` after `section`, and returns the error.
fn bent(section: &str, key: &str, replacement: &str) -> String {
    let text = MediaProfile::builtin("cxl").expect("built in").to_toml();
    let start = text.find(&format!("[{section}]")).expect("section");
    let at = start + text[start..].find(&format!("\n{key} =")).expect("key") + 1;
    let value_end = match text[at..].find('\n') {
        Some(end) if text[at..at + end].ends_with('[') => at + text[at..].find("\n]").expect("end of the list") + 2,
        Some(end) => at + end,
        None => text.len(),
    };
    let bent = format!("{}{replacement}{}", &text[..at], &text[value_end..]);
    MediaProfile::from_toml(&bent, "my.toml").expect_err(&bent).to_string()
}

#[test]
fn what_is_wrong_is_named_by_file_key_expectation_and_finding() {
    let cases = [
        ("read", "buffered_latency_ns", "", "`read.buffered_latency_ns`: expected a number from 0", "found nothing"),
        ("read", "buffered_latency_ns", "buffered_latency_ns = -1.0", "read.buffered_latency_ns", "found -1.0"),
        ("read", "buffered_latency_ns", "buffered_latency_ns = nan", "read.buffered_latency_ns", "found nan"),
        ("write", "bandwidth_bytes_per_second", "bandwidth_bytes_per_second = inf", "write.bandwidth", "found inf"),
        ("write", "threads_best", "threads_best = 0", "write.threads_best", "found 0"),
        ("write", "threads_best", "threads_best = 2.5", "a whole number from 1", "found 2.5"),
        ("write", "torn_fraction", "torn_fraction = 1.5", "write.torn_fraction", "found 1.5"),
        ("remote", "read_factor", "read_factor = 0.5", "a number from 1 to 1000", "found 0.5"),
        ("device", "block_bytes", "block_bytes = 96", "a power of two", "found 96"),
        ("device", "read_buffer_bytes", "read_buffer_bytes = 100", "a multiple of block_bytes, 64", "found 100"),
        ("cpu_cache", "bytes", "bytes = 1000", "a multiple of 1024", "found 1000"),
        ("cpu_cache", "flush_keeps_line", "flush_keeps_line = 1", "true or false", "found 1"),
        ("mixed", "threads_half", "thread_half = 1.0", "`mixed.threads_half`", "found nothing"),
        ("remote", "read_factor", "read_factor = 2.0\nreed_factor = 2.0", "remote.reed_factor", "an unknown key"),
        ("read", "random_latency_ns", "random_latency_ns = [[64, 1.0], [8, 2.0]]", "ascending", "found [[64, 1.0]"),
        ("read", "random_latency_ns", "random_latency_ns = [[64, -1.0]]", "values positive", "found [[64, -1.0]]"),
        ("read", "random_latency_ns", "random_latency_ns = []", "pairs [bytes, value]", "found []"),
        ("read", "random_latency_ns", "random_latency_ns = [[64]]", "pairs [bytes, value]", "found [[64]]"),
        ("read", "bandwidth_fraction", "bandwidth_fraction = [[64, 0.5], [128, 0.6]]", "do not rise", "0.6"),
    ];
    for (section, key, replacement, expectation, finding) in cases {
        let text = bent(section, key, replacement);
        assert!(text.starts_with("my.toml: "), "{text}");
        assert!(text.contains(expectation) && text.contains(finding), "{replacement}: {text}");
    }
}

#[test]
fn broken_toml_is_told_with_its_line() {
    let text = MediaProfile::from_toml("name = \"x\"\n[read", "my.toml").expect_err("broken").to_string();
    assert!(text.contains("my.toml: not valid TOML") && text.contains("line 2"), "{text}");
}
