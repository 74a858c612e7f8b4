//! Bugs that can be planted, each with the scenario that finds it: the proof that the judges can fail.
//!
//! Rules whose harm takes a rare course of events have a test of their own, which plays that course: `fabric`
//! `tests/rules.rs` (marked "rules" below). All others are found by a scenario here (`tests/planted.rs`, a test of the
//! same name each).
//!
//! *Holes of paper 5.*
//!
//! | hole | planted |
//! | --- | --- |
//! | a write is answered when it was posted | `fabric-acknowledged-at-send` |
//! | a buffer is freed at local completion (unsignalled batches) | `fabric-buffer-freed-at-send` |
//! | the loss of the last packet shows nowhere | `fabric-no-beat` |
//! | one request for each gap | `fabric-one-nack` |
//! | one sequence for all units | `fabric-global-sequence` |
//! | a late packet over a page that is used again | `fabric-no-gate`, `fabric-applied-records-placed-again` |
//! | the tail is what was received | `fabric-tail-is-received` |
//! | the head is outside the checksum | `fabric-head-outside-checksum` |
//! | a half that was made again is not checked | `fabric-halves-alone` |
//! | a write of two packets may be torn | `fabric-first-fragment-counts` |
//! | a part of a page is merged by the sender, which lacks the page | `fabric-merge-without-old` |
//! | addresses that differ by node, one in the head | `fabric-pages-differ-by-member` |
//! | the sender's queue alone is counted, not the receivers' memory | `fabric-no-credit`, `fabric-memory-without-limit` |
//! | a sender that was replaced goes on: it writes, or it reads | `fabric-old-terms-taken`, `fabric-no-lease` |
//! | the metadata node's log is there alone | `fabric-operations-at-one-node` |
//!
//! *Rules of the model of one group.*
//!
//! | rule left out | planted |
//! | --- | --- |
//! | a takeover asks enough members | `fabric-takeover-asks-too-few` |
//! | the best log is not the longest | `fabric-longest-log-wins` |
//! | packets of old terms are dropped | `fabric-old-terms-taken` |
//! | a view cuts what differs | `fabric-view-cuts-nothing` |
//! | the gate waits for all, not for a quorum | `fabric-gate-by-quorum` |
//! | there is a gate | `fabric-no-gate` |
//! | a member that joins places nothing early | `fabric-joiner-places-early` (rules) |
//! | a member is removed when the rest has what is acknowledged | `fabric-removed-before-the-rest-has-it` |
//! | and what was adopted | `fabric-adopted-log-forgotten` (rules) |
//! | a member counts when it has it | `fabric-joined-before-it-has-it` |
//! | a copy begins at the adopted end | `fabric-join-below-the-reuse-floor` (rules) |
//! | a member that lacks pages does not count | `fabric-joined-without-pages` |
//! | a copy is not taken over what a record wrote | `fabric-copy-over-a-newer-page` |
//! | a merge waits for the old bytes of its page | `fabric-merge-before-its-old-page` |
//!
//! *Rules for takeovers with a full ring*: `fabric-ring-without-its-begin`, `fabric-operations-given-up-early` (rules).
//! *A rule for a node that joins again*: `fabric-joiner-reports-its-old-log` (rules).
//! *Rules for copies*: `fabric-copy-hides-damage`, `fabric-copy-of-an-older-term`, `fabric-copy-from-one-member-alone`,
//! `fabric-waits-for-a-stuck-joiner` (rules).
//! *A rule for members that are lost for good*: `fabric-removal-needs-all-others` (rules).
//!
//! The promises P1 to P8 are listed with their judges in `oracle.rs`. The bugs of `PROMISES` name the promise that they
//! break, and their tests demand that the judge of that promise found them. The others count when any judge or an
//! assertion finds them.

use crate::plan::{NetworkFaults, Plan};

/// A bug.
#[derive(Clone, Copy)]
pub struct Bug {
    /// Name for [`lodestone_pmem::planted::active`].
    pub name: &'static str,
    /// The harm to a user.
    pub harm: &'static str,
    /// The promise that is broken: the violation says so. Empty: one of several, by the seed.
    pub promise: &'static str,
    /// The scenario of a seed.
    pub plan: fn(u64) -> Plan,
    /// Seeds within which it must be found.
    pub seeds: u64,
}

/// More records than a slow member has memory for, and packets that overtake each other.
fn flood(_: u64) -> Plan {
    let network =
        NetworkFaults { straggle: 200_000, straggle_ns: 2_000_000, delay_ns: 20_000, ..NetworkFaults::default() };
    Plan { network, write_ns: 5_000, credit_bytes: 2_000, slow_factor: 10, pages: 60, ..Plan::calm() }
}

/// A lossy network, nothing else.
fn lossy(_: u64) -> Plan {
    let network = NetworkFaults {
        lose: 100_000,
        repeat: 50_000,
        straggle: 30_000,
        delay_ns: 20_000,
        straggle_ns: 4_000_000,
        damage: 0,
    };
    Plan { network, pages: 14, operations: 300, ..Plan::calm() }
}

/// A network that damages packets.
fn damaging(seed: u64) -> Plan {
    let plan = lossy(seed);
    Plan { network: NetworkFaults { damage: 30_000, ..plan.network }, ..plan }
}

/// Members that crash on a lossy network, one takeover after the other, few files and pages.
fn takeovers(seed: u64) -> Plan {
    Plan {
        members: if seed.is_multiple_of(2) { 3 } else { 5 },
        senders: 3,
        takeover_ns: 2_500_000,
        crash_member_ns: 3_000_000,
        crash_sender_ns: 8_000_000,
        outage_ns: 1_000_000,
        write_ns: 30_000,
        sync: 1_000_000,
        operations: 400,
        ..lossy(seed)
    }
}

/// Members that come and go.
fn changes(seed: u64) -> Plan {
    Plan {
        members: 3,
        spares: 2,
        change_ns: 1_500_000,
        crash_member_ns: if seed.is_multiple_of(3) { 0 } else { 5_000_000 },
        merges: 400_000,
        write_ns: 40_000,
        operations: 500,
        takeover_ns: if seed.is_multiple_of(2) { 0 } else { 8_000_000 },
        senders: 2,
        outage_ns: 1_000_000,
        ..lossy(seed)
    }
}

/// Members that come and go while senders follow each other, with few pages.
fn churn(seed: u64) -> Plan {
    Plan {
        spares: 1,
        takeover_ns: 2_000_000,
        change_ns: 1_000_000,
        crash_member_ns: 4_000_000,
        crash_sender_ns: 0,
        pages: 10,
        merges: 300_000,
        ..takeovers(seed)
    }
}

/// A member that joins under sustained writes, on a network that is slow at times.
pub(crate) fn joins(seed: u64) -> Plan {
    let network = NetworkFaults { straggle: 100_000, straggle_ns: 400_000, delay_ns: 20_000, ..Default::default() };
    Plan {
        members: 2,
        spares: 1,
        change_ns: 1_000_000,
        crash_member_ns: if seed.is_multiple_of(3) { 4_000_000 } else { 0 },
        outage_ns: 500_000,
        files: 200,
        pages: 300,
        merges: 300_000,
        write_ns: 10_000,
        operations: 2_000,
        network,
        ..Plan::calm()
    }
}

/// Members that crash while pages are scarce.
fn scarce(seed: u64) -> Plan {
    Plan { crash_member_ns: 1_000_000, outage_ns: 500_000, pages: 11, operations: 400, write_ns: 30_000, ..lossy(seed) }
}

/// Operations and payloads on a lossy network, with senders that follow each other.
fn volumes(seed: u64) -> Plan {
    Plan {
        units: if seed.is_multiple_of(2) { 1 } else { 2 },
        standbys: if seed.is_multiple_of(3) { 1 } else { 2 },
        members: if seed.is_multiple_of(4) { 2 } else { 3 },
        senders: 2,
        takeover_ns: 1_500_000,
        crash_member_ns: 0,
        crash_sender_ns: 4_000_000,
        outage_ns: 500_000,
        double: 100_000,
        files: 4,
        pages: 8,
        ..takeovers(seed)
    }
}

/// Senders that follow each other while the former one still runs and does not learn of it, and many reads.
fn leases(seed: u64) -> Plan {
    Plan {
        senders: 2,
        takeover_ns: 6_000_000,
        lease_divisor: 200,
        replaced_is_deaf: true,
        write_ns: 40_000,
        read_ns: 15_000,
        operations: 500,
        files: 3,
        pages: 40,
        network: NetworkFaults { lose: 20_000, delay_ns: 10_000, ..NetworkFaults::default() },
        ..lossy(seed)
    }
}

/// Packets of two halves on a network that damages them.
fn damaged_halves(seed: u64) -> Plan {
    let plan = damaging(seed);
    Plan { halves: true, network: NetworkFaults { damage: 150_000, ..plan.network }, ..plan }
}

/// Bits flip in pages at rest, at one member.
pub(crate) fn flipping(_: u64) -> Plan {
    Plan { flip_ns: 100_000, read_ns: 20_000, operations: 300, merges: 0, ..Plan::calm() }
}

/// All bugs.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    let bug = |name, harm, plan, seeds| Bug { name, harm, promise: "", plan, seeds };
    let mut all = holes_of_the_paper();
    all.extend(rules_of_volumes());
    all.extend([
        bug("fabric-takeover-asks-too-few", "an acknowledged record is lost", takeovers as fn(u64) -> Plan, 200),
        bug("fabric-longest-log-wins", "an acknowledged record is lost", takeovers, 400),
        bug("fabric-old-terms-taken", "a member follows two senders", takeovers, 50),
        bug("fabric-view-cuts-nothing", "a member has records that its sender never had", takeovers, 50),
        bug("fabric-gate-by-quorum", "a late record lands on another file's page", lossy, 50),
        bug("fabric-removed-before-the-rest-has-it", "an acknowledged record is lost with a member", churn, 400),
        bug("fabric-joined-before-it-has-it", "a member counts without the records", churn, 100),
        bug("fabric-joined-without-pages", "a member counts without the pages", joins, 100),
        bug("fabric-copy-over-a-newer-page", "a late copy destroys what a record wrote", joins, 100),
        bug("fabric-merge-before-its-old-page", "a small write erases the rest of its page", joins, 100),
        bug("fabric-change-with-one-quorum", "a record is acknowledged by members of the past", changes, 400),
        bug("fabric-report-of-an-older-view", "pages are used again that a joining member lacks", changes, 400),
        bug("fabric-promise-not-kept", "a member follows the former sender again", takeovers, 100),
        bug("fabric-cut-forgotten", "records that were cut come back after a crash", takeovers, 200),
        bug("fabric-scan-reads-settled-pages", "a member forgets what it reported", scarce, 100),
        bug("fabric-mark-forgotten", "a member forgets what it reported", scarce, 400),
        bug("fabric-cut-not-told", "records are dropped without a line", takeovers, 200),
        bug("fabric-damaged-page-read", "a reader gets damaged bytes", flipping, 20),
    ]);
    for bug in &mut all {
        bug.promise = PROMISES.iter().find(|(name, _)| *name == bug.name).map_or("", |found| found.1);
    }
    all
}

/// The promise whose judge finds a bug: told by the violation. Those that are not here break one of several, by the
/// seed.
const PROMISES: [(&str, &str); 16] = [
    ("fabric-acknowledged-at-send", "P1"),
    ("fabric-tail-is-received", "P1"),
    ("fabric-first-fragment-counts", "P2"),
    ("fabric-gate-by-quorum", "P2"),
    ("fabric-merge-without-old", "P2"),
    ("fabric-no-gate", "P2"),
    ("fabric-old-terms-taken", "P2"),
    ("fabric-pages-differ-by-member", "P2"),
    ("fabric-view-cuts-nothing", "P2"),
    ("fabric-no-lease", "P3"),
    ("fabric-damaged-page-read", "P5"),
    ("fabric-buffer-freed-at-send", "P6"),
    ("fabric-global-sequence", "P6"),
    ("fabric-memory-without-limit", "P7"),
    ("fabric-no-credit", "P7"),
    ("fabric-cut-not-told", "P8"),
];

/// Rules of several groups under one order.
fn rules_of_volumes() -> Vec<Bug> {
    let bug = |name, harm| Bug { name, harm, promise: "", plan: volumes, seeds: 400 };
    vec![
        bug("fabric-operation-without-its-payload", "an acknowledged operation has its bytes nowhere"),
        bug("fabric-operations-taken-whole", "a file refers to a page that was never written"),
        bug("fabric-payload-stable-alone", "a file that comes back has lost its page to another one"),
        bug("fabric-orphan-pages-free", "a payload of no operation lands late on a file's page"),
    ]
}

/// The holes of paper 5, and of the obvious repairs of it.
fn holes_of_the_paper() -> Vec<Bug> {
    let bug = |name, harm, plan, seeds| Bug { name, harm, promise: "", plan, seeds };
    vec![
        bug("fabric-acknowledged-at-send", "an acknowledged record is on no member", takeovers as fn(u64) -> Plan, 50),
        bug("fabric-buffer-freed-at-send", "a lost packet can never be sent again", lossy, 20),
        bug("fabric-no-beat", "the loss of the last record is never noticed", lossy, 50),
        bug("fabric-one-nack", "a lost request is never repeated", lossy, 50),
        bug("fabric-no-gate", "a late record lands on another file's page", lossy, 50),
        bug("fabric-applied-records-placed-again", "a repeated packet destroys a page", lossy, 400),
        bug("fabric-tail-is-received", "a member forgets what it reported", scarce, 50),
        bug("fabric-head-outside-checksum", "damaged addresses send bytes to a wrong page", damaging, 50),
        bug("fabric-first-fragment-counts", "half of a record is applied", lossy, 20),
        bug("fabric-merge-without-old", "a small write erases the rest of its page", lossy, 20),
        bug("fabric-no-credit", "members drop what they have no memory for", flood, 50),
        bug("fabric-memory-without-limit", "a member takes any amount of memory", flood, 50),
        bug("fabric-global-sequence", "a unit waits for records of another unit", volumes, 10),
        bug("fabric-halves-alone", "garbage counts as a page", damaged_halves, 50),
        bug("fabric-pages-differ-by-member", "a replica answers with another file's bytes", lossy, 10),
        bug("fabric-no-lease", "a sender that was replaced answers with old bytes", leases, 200),
        bug("fabric-operations-at-one-node", "an acknowledged operation is lost with its node", volumes, 100),
    ]
}
