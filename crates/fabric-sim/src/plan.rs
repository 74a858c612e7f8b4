//! Scenarios: sizes and faults, drawn from a seed.
//!
//! **Fault model.** Nodes stop at any store, flush or fence, and restart; their memory is then any content that the
//! persistence contract allows. The network loses, repeats, reorders, delays, cuts and damages packets. Clocks run up
//! to a twentieth too fast or too slow, so two of them differ by a tenth. The registry answers late or not at all.
//! Nodes are lost for good, with everything that they had: of each group fewer than a quorum, and senders while
//! another one is left. Not modelled here: devices that lie, nodes that lie.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::keepers::KeeperFaults;

/// Probabilities, in millionths.
pub type Ppm = u32;

/// Faults of the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkFaults {
    /// A packet is lost on its way to one node.
    pub lose: Ppm,
    /// It arrives twice.
    pub repeat: Ppm,
    /// One to three bits of it are flipped.
    pub damage: Ppm,
    /// It is delayed for long.
    pub straggle: Ppm,
    /// Usual delay, in nanoseconds.
    pub delay_ns: u64,
    /// Longest delay of a straggler.
    pub straggle_ns: u64,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes with data: members at first, then spare ones.
    pub members: u16,
    /// Spare nodes.
    pub spares: u16,
    /// Nodes that may send.
    pub senders: u16,
    /// Units of a volume, whose operations are in a group of their own; 0: one group alone.
    pub units: u16,
    /// Members of the group of operations.
    pub standbys: u16,
    /// Share of operations that write to two units.
    pub double: Ppm,
    /// Records that clients try to write.
    pub operations: u64,
    /// Files: each is one page.
    pub files: u64,
    /// Pages of a unit.
    pub pages: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Longest payload of a packet.
    pub payload_bytes: usize,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Bytes of the log of applied records.
    pub log_bytes: u64,
    /// Memory of a member for loose records.
    pub credit_bytes: u32,
    /// Mean time between writes.
    pub write_ns: u64,
    /// Mean time between reads.
    pub read_ns: u64,
    /// Faults of the network.
    pub network: NetworkFaults,
    /// Mean time between crashes of some member; 0: none.
    pub crash_member_ns: u64,
    /// Mean time between crashes of some sender; 0: none.
    pub crash_sender_ns: u64,
    /// Mean time between takeovers from a sender that lives; 0: none.
    pub takeover_ns: u64,
    /// Mean time between wishes for other members; 0: none.
    pub change_ns: u64,
    /// A member that joins is removed if it was silent for so long and the ring is half full of what it lacks, as the
    /// file system does; 0: not for that.
    pub joiner_patience_ns: u64,
    /// Mean time between cuts of the network; 0: none.
    pub cut_ns: u64,
    /// Mean time between losses of a member for good; 0: none.
    pub lose_member_ns: u64,
    /// Mean time between losses of a sender for good; 0: none.
    pub lose_sender_ns: u64,
    /// How long a cut or a crash lasts, on average.
    pub outage_ns: u64,
    /// Share of writes that are merges, inline, and for which a caller waits.
    pub merges: Ppm,
    /// Inline records.
    pub inline: Ppm,
    /// Records for which a caller waits.
    pub sync: Ppm,
    /// One member is so many times slower than the others.
    pub slow_factor: u64,
    /// Mean time between bits that flip in pages of one member; 0: none. The others can still answer then.
    pub flip_ns: u64,
    /// The lease is so many times shorter than [`LEASE_NS`](lodestone_fabric::LEASE_NS): a run is short, too.
    pub lease_divisor: u64,
    /// Packets are two halves with parity, as in paper 5.
    pub halves: bool,
    /// Answers of the registry that are lost.
    pub registry_lose: Ppm,
    /// Keepers of the registry; 0: it is that of one process.
    pub keepers: u64,
    /// Faults of their messages and of calls to them.
    pub keeper_faults: KeeperFaults,
    /// Mean time between crashes and cuts of keepers; 0: none.
    pub keeper_fault_ns: u64,
    /// When all keepers stop, until the end of faults; 0: never.
    pub keepers_stop_ns: u64,
    /// Whether a sender that was replaced does not reach the registry, and so does not learn of it.
    pub replaced_is_deaf: bool,
}

impl Plan {
    /// Without faults: two members of which none is spare.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            members: 3,
            spares: 0,
            senders: 1,
            units: 0,
            standbys: 0,
            double: 0,
            operations: 200,
            files: 8,
            pages: 64,
            page_bytes: 256,
            payload_bytes: 160,
            ring_bytes: 32 << 10,
            log_bytes: 64 << 10,
            credit_bytes: 4 << 10,
            write_ns: 50_000,
            read_ns: 100_000,
            network: NetworkFaults { delay_ns: 10_000, ..NetworkFaults::default() },
            crash_member_ns: 0,
            crash_sender_ns: 0,
            takeover_ns: 0,
            change_ns: 0,
            joiner_patience_ns: 0,
            cut_ns: 0,
            lose_member_ns: 0,
            lose_sender_ns: 0,
            flip_ns: 0,
            lease_divisor: 1,
            halves: false,
            outage_ns: 5_000_000,
            merges: 150_000,
            inline: 50_000,
            sync: 500_000,
            slow_factor: 1,
            registry_lose: 0,
            keepers: 0,
            keeper_faults: KeeperFaults::default(),
            keeper_fault_ns: 0,
            keepers_stop_ns: 0,
            replaced_is_deaf: false,
        }
    }

    /// Whether no packet is lost and every node runs: then a member has memory for all that it gets.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let crashes = [self.crash_member_ns, self.crash_sender_ns, self.lose_member_ns, self.lose_sender_ns];
        let others = [self.takeover_ns, self.change_ns, self.cut_ns];
        (self.network.lose, self.network.damage) == (0, 0) && crashes == [0; 4] && others == [0; 3]
    }

    /// The same with several groups under one order: smaller units, and members of the group of operations.
    pub fn drawn_volume(random: &mut ChaCha8Rng, operations: u64) -> Self {
        let plan = Self::drawn(random, operations);
        let units = random.random_range(1..=3);
        Self {
            units,
            standbys: random.random_range(1..=3),
            members: plan.members.min(3),
            spares: plan.spares.min(1),
            double: if units > 1 { random.random_range(0..=300_000) } else { 0 },
            files: plan.files.max(u64::from(units)),
            pages: plan.pages.max(u64::from(units) + 3),
            slow_factor: if plan.members.min(3) == plan.members { plan.slow_factor } else { 1 },
            ..plan
        }
    }

    /// The same with keepers, which have faults too.
    pub fn drawn_keepers(random: &mut ChaCha8Rng, operations: u64) -> Self {
        let plan = Self::drawn(random, operations);
        let keeper_faults = KeeperFaults {
            lose: random.random_range(0..=20_000),
            damage: random.random_range(0..=5_000),
            repeat: random.random_range(0..=100_000),
            lose_client: random.random_range(0..=50_000),
            delay_ns: random.random_range(10_000..=2_000_000),
            straggle: random.random_range(0..=20_000),
            straggle_ns: 400_000_000,
        };
        let keepers = if random.random_bool(0.7) { 3 } else { 5 };
        Self { keepers, keeper_faults, keeper_fault_ns: random.random_range(100_000_000..=2_000_000_000), ..plan }
    }

    /// All faults, as the seed draws them.
    pub fn drawn(random: &mut ChaCha8Rng, operations: u64) -> Self {
        // Most runs lack some kind of fault: too many at once hide each other.
        let mut often = |share: f64, low: u64, high: u64| {
            let value = random.random_range(low..=high);
            if random.random_bool(share) { value } else { 0 }
        };
        let to_ppm = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let network = NetworkFaults {
            lose: to_ppm(often(0.7, 1_000, 150_000)),
            repeat: to_ppm(often(0.6, 1_000, 100_000)),
            damage: to_ppm(often(0.4, 100, 30_000)),
            straggle: to_ppm(often(0.7, 1_000, 60_000)),
            delay_ns: often(1.0, 1_000, 60_000),
            straggle_ns: often(1.0, 100_000, 8_000_000),
        };
        let files = often(1.0, 2, 10);
        let spare_pages = often(1.0, 2, 14);
        let replaced_is_deaf = often(0.5, 1, 1) == 1;
        // Three to seven; sometimes two, of which both are needed.
        let members = u16::try_from(often(0.9, 3, 7)).unwrap_or(3).max(2);
        let lease_divisor = [1, 1, 10, 30, 100][usize::try_from(often(1.0, 0, 4)).unwrap_or(0)];
        let span = operations * 60_000;
        let ring_bytes = 512 + 64 * often(1.0, 150, 600);
        Self {
            members,
            spares: u16::try_from(often(0.7, 1, 2)).unwrap_or(0),
            senders: u16::try_from(often(1.0, 1, 3)).unwrap_or(1),
            operations,
            files,
            pages: files + spare_pages + 1,
            write_ns: often(1.0, 10_000, 120_000),
            read_ns: often(1.0, 20_000, 200_000),
            ring_bytes,
            log_bytes: 2 * ring_bytes + 64 * often(1.0, 0, 200),
            credit_bytes: to_ppm(often(1.0, 1_500, 20_000)),
            network,
            replaced_is_deaf,
            crash_member_ns: often(0.7, span / 12 + 1, span),
            crash_sender_ns: often(0.6, span / 6 + 1, span),
            takeover_ns: often(0.6, span / 6 + 1, span),
            change_ns: often(0.6, span / 10 + 1, span),
            cut_ns: often(0.4, span / 6 + 1, span),
            outage_ns: often(1.0, 100_000, 4_000_000),
            merges: to_ppm(often(0.7, 10_000, 400_000)),
            inline: to_ppm(often(0.5, 10_000, 200_000)),
            sync: to_ppm(often(1.0, 0, 1_000_000)),
            slow_factor: often(1.0, 1, 1 + 19 * u64::from(members % 2)),
            registry_lose: to_ppm(often(0.4, 10_000, 300_000)),
            lease_divisor,
            lose_member_ns: often(0.3, span / 4 + 1, span),
            lose_sender_ns: often(0.3, span / 4 + 1, span),
            ..Self::calm()
        }
    }
}
