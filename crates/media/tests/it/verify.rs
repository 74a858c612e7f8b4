//! The built-in profiles agree with the papers, with the same figures twice. A changed profile does not agree.

use lodestone_media::profile::{Above, Curve};
use lodestone_media::verify::verify;
use lodestone_media::{MediaProfile, verify::Verification};

fn builtin(name: &str) -> MediaProfile {
    MediaProfile::builtin(name).expect("built in")
}

fn lines(verification: &Verification) -> String {
    let line = |cell: &lodestone_media::verify::Cell| {
        format!(
            "{:5} {:+6.1} % {:12.2} + {:6.2} {:8} {:?} {}: {}\n",
            if cell.holds() { "" } else { "WRONG" },
            cell.error() * 100.0,
            cell.model,
            cell.instrument,
            cell.unit,
            cell.expected,
            cell.group,
            cell.name
        )
    };
    verification.cells.iter().map(line).collect()
}

#[test]
fn optane_and_dram_say_what_the_papers_say_bit_for_bit() {
    let first = verify(&builtin("optane"), &builtin("dram")).expect("memory");
    assert!(first.holds(), "{}", lines(&first));
    let again = verify(&builtin("optane"), &builtin("dram")).expect("memory");
    assert_eq!(again, first);
    assert_eq!(first.cells.iter().filter(|cell| cell.group.contains("Table")).count(), 12 * 8);
}

#[test]
fn a_bent_profile_fails_where_it_is_bent() {
    let mut bent = builtin("optane");
    let mut points = bent.read.random_latency_ns.points().to_vec();
    points.iter_mut().filter(|(size, _)| *size == 256).for_each(|(_, ns)| *ns *= 1.2);
    bent.read.random_latency_ns = Curve::new(points, Above::Proportional).expect("a curve");
    bent.write.bandwidth_bytes_per_second *= 1.2;
    bent.remote.read_factor = 5.0;
    let verification = verify(&bent, &builtin("dram")).expect("memory");
    let failures: Vec<String> = verification.failures().map(|cell| format!("{}: {}", cell.group, cell.name)).collect();
    for expected in [
        "paper 2, Table 3: AEP random read 256 B",
        "paper 2, section 2.2.2, Fig. 4: random write: highest bandwidth",
        "paper 4, section 2.1.1, Fig. 2: AEP random read 256 B: local against remote bandwidth",
    ] {
        assert!(failures.iter().any(|failure| failure == expected), "{expected} in {failures:#?}");
    }
    assert!(!failures.iter().any(|failure| failure.contains("512 B")), "{failures:#?}");
}
