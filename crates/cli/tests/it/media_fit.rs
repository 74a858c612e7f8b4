//! From a probe to a profile to a pool, as a user does it.

use crate::common::Place;

#[test]
fn a_probe_becomes_a_profile_that_can_be_used() {
    let place = Place::with_pool("16MiB");
    let sections = ["--sections", "latency", "--size", "4MiB", "--quick"];
    let probe = place.run(["media", "probe", "--profile", "optane", "--json"].iter().chain(&sections)).ok();
    place.write("probe.json", probe);
    let fitted = place.run(["media", "fit", "probe.json", "-o", "mine.toml"]).ok();
    assert!(fitted.contains("mine.toml: profile mine") && fitted.contains("device: from the base profile"), "{fitted}");
    let info = place.run(["pool", "info", "a.pool", "--profile", "mine.toml"]).ok();
    assert!(info.contains("emulated: mine, spinning"), "{info}");
    place.run(["media", "fit", "probe.json", "-o", "mine.toml"]).fails_with(&["mine.toml: exists", "--overwrite"]);
    place.run(["media", "fit", "probe.json", "-o", "mine.toml", "--overwrite", "--json"]).ok();
    place.run(["media", "fit", "mine.toml", "-o", "x.toml"]).fails_with(&["mine.toml", "media probe --json"]);
    place.run(["media", "fit", "probe.json", "-o", "probe.json", "--overwrite"]).fails_with(&["would destroy"]);
}
