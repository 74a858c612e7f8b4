//! Round trip: a profile is probed in virtual time, a profile is fitted to the probe, and that one is probed again.

use lodestone_media::fit::{Fitted, fit};
use lodestone_media::probe::{
    Access, Budget, Operation, Probe, ProbeOptions, ProbeResult, Section, Subject, TargetChoice,
};
use lodestone_media::{MediaProfile, TimeMode};

/// A built-in profile with a small processor cache, so that a small range is mostly outside of it.
fn builtin(name: &str) -> MediaProfile {
    let mut profile = MediaProfile::builtin(name).expect("built in");
    profile.cpu_cache.bytes = 32 << 10;
    profile
}

fn probe(profile: &MediaProfile) -> ProbeResult {
    let sections = vec![Section::Latency, Section::Threads, Section::Fence, Section::Mixed, Section::Nodes];
    // Small, so that it takes a second: sizes up to 256 KiB, eight threads.
    let budget = Budget { virtual_operations: 64, ..Budget::QUICK };
    let (range_bytes, threads_max) = (Some(2 << 20), Some(8));
    let options = ProbeOptions { sections, budget, range_bytes, threads_max, ..ProbeOptions::default() };
    let target = TargetChoice::Profile(Box::new(profile.clone()), TimeMode::Virtual);
    let probe = Probe::open(target, options).expect("a plan");
    probe.run(&mut |_| {}).expect("a result")
}

/// The largest relative error of `again` against `first` among cells of `section` with accesses of up to `bytes_max`.
fn worst(first: &ProbeResult, again: &ProbeResult, section: Section, bytes_max: u64) -> f64 {
    let mut compared = 0;
    let mut worst: f64 = 0.0;
    for cell in first.cells.iter().filter(|cell| cell.section == section && cell.key.subject == Subject::Target) {
        // Accesses served by the processor's cache cost the measuring program time, not the medium.
        let served = cell.key.operation == Operation::Read && cell.key.access_bytes < 64;
        if served || cell.key.access_bytes > bytes_max || cell.key.access == Access::StoreFlush {
            continue;
        }
        let twin = again.cells.iter().find(|twin| twin.section == cell.section && twin.key == cell.key);
        let twin = twin.expect("the same plan");
        worst = worst.max((twin.latency_ns.median / cell.latency_ns.median - 1.0).abs());
        compared += 1;
    }
    assert!(compared >= 20, "{section:?}: only {compared} cells");
    worst
}

fn round_trip(name: &str) -> (ProbeResult, ProbeResult, Fitted) {
    let first = probe(&builtin(name));
    // A base of another medium.
    let fitted = fit(&first, &builtin(if name == "dram" { "cxl" } else { "dram" }), "mine").expect("a profile");
    let again = probe(&fitted.profile);
    (first, again, fitted)
}

#[test]
fn a_fitted_optane_predicts_what_was_probed() {
    let (first, again, fitted) = round_trip("optane");
    let profile = &fitted.profile;
    assert_eq!((profile.device.block_bytes, profile.name.as_str()), (256, "mine"), "{:#?}", fitted.notes);
    for section in [Section::Latency, Section::Mixed, Section::Fence] {
        let worst = worst(&first, &again, section, u64::MAX);
        assert!(worst <= 0.05, "{section:?}: {worst}");
    }
    for section in [Section::Threads, Section::Nodes] {
        let small = worst(&first, &again, section, 4096);
        assert!(small <= 0.05, "{section:?} up to 4 KiB: {small}");
        // So short a probe has one large access per thread, which tells little of a ceiling.
        let all = worst(&first, &again, section, u64::MAX);
        assert!(all <= 0.25, "{section:?}: {all}");
    }
    assert!(profile.description.contains("profile optane") && profile.source.contains("emulated"), "{profile:?}");
}

#[test]
fn a_fitted_dram_has_no_larger_blocks() {
    let (first, again, fitted) = round_trip("dram");
    let device = &fitted.profile.device;
    assert_eq!((device.block_bytes, device.read_buffer_bytes, device.write_buffer_bytes), (64, 0, 0));
    let worst = worst(&first, &again, Section::Latency, u64::MAX);
    assert!(worst <= 0.05, "{worst}");
}

#[test]
fn what_a_probe_leaves_out_is_named() {
    let whole = probe(&builtin("optane"));
    let without = |leave_out: &dyn Fn(&lodestone_media::probe::Cell) -> bool| {
        let mut part = whole.clone();
        part.cells.retain(|cell| !leave_out(cell));
        fit(&part, &builtin("dram"), "mine")
    };
    let error = without(&|cell| cell.key.operation == Operation::Read).expect_err("no reads").to_string();
    assert!(error.contains("random reads by one thread") && error.contains("media probe"), "{error}");
    let error = without(&|cell| cell.key.operation == Operation::Write).expect_err("no writes").to_string();
    assert!(error.contains("streamed writes by one thread") && error.contains("leave to write"), "{error}");
    let fitted = without(&|cell| cell.section != Section::Latency).expect("a profile");
    for what in ["device: ", "read.latency_growth", "mixed: ", "remote.read_factor: ", "write.torn_fraction: "] {
        assert!(fitted.notes.iter().any(|note| note.starts_with(what)), "{what}: {:#?}", fitted.notes);
    }
    let mut broken = whole.clone();
    broken.cells.iter_mut().for_each(|cell| cell.latency_ns.median = 1e30);
    let error = fit(&broken, &builtin("dram"), "mine").expect_err("no clock is so slow").to_string();
    assert!(error.contains("make no profile") && error.contains("latency_ns"), "{error}");
}
