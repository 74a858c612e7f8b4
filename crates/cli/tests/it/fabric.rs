//! `lodestone fabric` from the authority to the state of a volume, with one keeper on loopback.

use crate::common::{Place, Process};

/// A keeper as a process.
struct Keeping {
    _process: Process,
    /// As clients name it.
    keepers: String,
}

impl Keeping {
    /// Keeper 1 in the folder `k1`, on a free port.
    fn start(place: &Place, more: &[&str]) -> Self {
        let arguments = ["fabric", "keep", "--dir", "k1", "--id", "1", "--keepers", "1=127.0.0.1:0"];
        let (process, line) = Process::start(place, arguments.iter().chain(more));
        let address = line.split(" at ").nth(1).and_then(|rest| rest.split(' ').next());
        let keepers = format!("1={}", address.unwrap_or_else(|| panic!("no address in {line:?}")));
        Self { _process: process, keepers }
    }

    fn address(&self) -> &str {
        &self.keepers[2..]
    }
}

#[test]
fn from_an_authority_to_the_state_of_a_volume() {
    let place = Place::new();
    place.run(["fabric", "authority", "ca"]).ok();
    place.run(["fabric", "token", "ca", "--keeper", "1", "--dir", "k1"]).ok();
    // Nothing makes a keeper by itself: it may have lost its votes.
    let keep = ["fabric", "keep", "--dir", "k1", "--id", "1", "--keepers", "1=127.0.0.1:0"];
    place.run(keep).fails_with(&["k1/keeper.pool", "--new", "forgotten its votes"]);
    let keeping = Keeping::start(&place, &["--new", "--authority", "ca"]);
    place.run(keep.iter().chain(&["--new"])).fails_with(&["k1/keeper.pool", "without --new"]);
    let join = |name: &[&str], folder: &str| {
        let token = place.run(["fabric", "token", "ca"].iter().chain(name)).ok();
        let token = token.trim();
        place.run(["fabric", "join", keeping.address(), "--dir", folder, "--token", token]).ok();
        let again = ["fabric", "join", keeping.address(), "--dir", "again", "--token", token];
        place.run(again).fails_with(&["used before"]);
    };
    join(&["--operator"], "operator");
    join(&["--node", "2"], "two");
    let volume = |folder: &str| {
        let groups = ["fabric", "volume", "1f", "--group", "0=4", "--group", "1=1,2,3"];
        place.run(groups.iter().chain(&["--keepers", &keeping.keepers, "--dir", folder]))
    };
    volume("two").fails_with(&["only an operator"]);
    // The same again is as good as the first: its answer may have been lost.
    let made = [volume("operator").ok(), volume("operator").ok()];
    assert_eq!(made[0], made[1]);
    let other = ["fabric", "volume", "1f", "--group", "0=4", "--keepers", &keeping.keepers, "--dir", "operator"];
    place.run(other).fails_with(&["exists already"]);
    let state = |keepers: &str, folder: &str| {
        let found = place.json(["fabric", "state", "1f", "--keepers", keepers, "--dir", folder]).remove(0);
        assert_eq!((&found["volume"], &found["term"]), (&"1f".into(), &0.into()), "{found}");
        assert_eq!((&found["groups"][1]["active"], &found["security"]), (&vec![1, 2, 3].into(), &"tls".into()));
    };
    state(&keeping.keepers, "two");
    // It is killed, and knows everything after it.
    drop(keeping);
    let keeping = Keeping::start(&place, &[]);
    state(&keeping.keepers, "operator");
}

/// A keeper without certificates is for loopback, unless it was asked for otherwise.
#[test]
fn a_plain_keeper_stays_on_loopback() {
    let place = Place::new();
    let keep = ["fabric", "keep", "--new", "--dir", "k1", "--id", "1", "--keepers", "1=127.0.0.1:0"];
    place.run(keep.iter().chain(&["--listen", "0.0.0.0:0"])).fails_with(&["--plain-network"]);
    assert!(!place.path("k1/keeper.pool").exists(), "nothing was made");
    let keeping = Keeping::start(&place, &["--new", "--listen", "0.0.0.0:0", "--plain-network"]);
    assert!(keeping.address().starts_with("0.0.0.0:"));
    // A number of two bytes is all that answers can tell.
    let wrong = ["fabric", "keep", "--new", "--dir", "k2", "--id", "65536", "--keepers", "65536=127.0.0.1:0"];
    place.run(wrong).fails_with(&["65535"]);
}
