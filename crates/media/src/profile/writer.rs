//! Writing a profile as TOML: every key, in the order of the sections.

use std::fmt::Write as _;

use super::{Curve, MediaProfile};

/// The profile as text.
pub(super) fn write(profile: &MediaProfile) -> String {
    let mut text = Text::default();
    text.string("name", &profile.name);
    text.string("description", &profile.description);
    text.string("source", &profile.source);
    text.section("cpu_cache");
    text.key("bytes", profile.cpu_cache.bytes);
    text.key("ways", profile.cpu_cache.ways);
    text.key("flush_keeps_line", profile.cpu_cache.flush_keeps_line);
    text.section("device");
    text.key("block_bytes", profile.device.block_bytes);
    text.key("read_buffer_bytes", profile.device.read_buffer_bytes);
    text.key("write_buffer_bytes", profile.device.write_buffer_bytes);
    let read = &profile.read;
    text.section("read");
    text.curve("random_latency_ns", &read.random_latency_ns);
    text.curve("sequential_latency_ns", &read.sequential_latency_ns);
    text.number("buffered_latency_ns", read.buffered_latency_ns);
    text.number("bandwidth_bytes_per_second", read.bandwidth_bytes_per_second);
    text.curve("bandwidth_fraction", &read.bandwidth_fraction);
    text.number("latency_growth_per_thread", read.latency_growth_per_thread);
    text.key("threads_best", read.threads_best);
    text.number("bandwidth_loss_per_thread", read.bandwidth_loss_per_thread);
    let write = &profile.write;
    text.section("write");
    text.curve("random_latency_ns", &write.random_latency_ns);
    text.curve("sequential_latency_ns", &write.sequential_latency_ns);
    text.number("bandwidth_bytes_per_second", write.bandwidth_bytes_per_second);
    text.number("latency_growth_per_thread", write.latency_growth_per_thread);
    text.key("threads_best", write.threads_best);
    text.number("bandwidth_loss_per_thread", write.bandwidth_loss_per_thread);
    text.key("unfenced_bytes_max", write.unfenced_bytes_max);
    text.number("torn_fraction", write.torn_fraction);
    text.section("mixed");
    text.number("read_fraction_min", profile.mixed.read_fraction_min);
    text.number("write_fraction_min", profile.mixed.write_fraction_min);
    text.number("threads_half", profile.mixed.threads_half);
    text.section("remote");
    text.number("read_factor", profile.remote.read_factor);
    text.number("write_factor", profile.remote.write_factor);
    text.section("instrument");
    if let Some(curve) = &profile.instrument.cached_read_ns {
        text.curve("cached_read_ns", curve);
    }
    text.number("engine_write_ns", profile.instrument.engine_write_ns);
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn key(&mut self, key: &str, value: impl std::fmt::Display) {
        // Writing into a string does not fail.
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn string(&mut self, key: &str, value: &str) {
        self.key(key, toml::Value::from(value));
    }

    fn number(&mut self, key: &str, value: f64) {
        self.key(key, number(value));
    }

    fn curve(&mut self, key: &str, curve: &Curve) {
        let points: Vec<String> =
            curve.points().iter().map(|(size, value)| format!("    [{size}, {}],\n", number(*value))).collect();
        self.key(key, format!("[\n{}]", points.concat()));
    }

    fn section(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n[{name}]");
    }
}

/// A float that reads back as the same float.
fn number(value: f64) -> String {
    format!("{value:?}")
}
