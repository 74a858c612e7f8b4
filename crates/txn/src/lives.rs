//! Lives: which ticks each life of the pool may have used, and which transactions of a crashed life count.
//!
//! ```text
//! state (two mirrored lines): sequence, base, limit, flags, bytes of the table, renewed at, zero, CRC-32C
//! table (two copies): entries { base, limit, count | CRC-32C << 32, count words: thread's last tick - base (54 bits) |
//! writer }
//! ```
//!
//! 1. *Begin*: an open for writing persists a base that no life had before ([`Lives::begin`]). The first transaction
//!    that writes persists the state "open" with a limit above every tick it may use soon. A thread that passes the
//!    limit first reserves more ticks ([`Lives::reserve`]).
//! 2. *End*: a clean close persists "closed" with the last tick. The next life begins after it and needs no table
//!    entry.
//! 3. *Crash*: an open finds the state "open". For each thread the caller decides up to which tick its versions count
//!    ([`record::decide`](crate::record::decide)). [`Lives::close_crashed`] appends these ticks to both copies of the
//!    table, fences, sets the state to "closed" at the old limit, and fences again. If a crash interrupts it, the
//!    repetition writes the same again.
//! 4. Some versions do not certify themselves. Such a version counts ([`Lives::counts`]) iff its tick is in no crashed
//!    life, or is at or below its writer's last tick of that life. Losers need no undo: they simply never count.
//! 5. When the table is full, or version words grow old, the owner of the slots makes every loser invalid. It then
//!    calls [`Lives::renew`], which empties the table.
//!
//! The state is mirrored ([`lodestone_pmem::mirror`]): at rest both lines hold the newest state. Keeping the older
//! state in the second line would be enough for crashes, but not for damage. One flipped bit would then bring back the
//! older state, and with it the losers of a crash that it does not know. An open for writing therefore makes the lines
//! equal before it decides anything ([`Lives::heal`]). An entry of the table never changes while it counts. So its
//! copies need no order between them, and a damaged one is written again from the other.
//!
//! Invariants:
//! - ranges of lives do not overlap and ascend, so a tick names its life;
//! - everything read from the medium is checked against all rules of this module ([`Lives::open`]). So no arithmetic
//!   here can overflow, whatever bytes the medium holds.

mod format;

use lodestone_pmem::mirror::{self, Line, Mirror, Slot};
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, PmPtr, planted};
use lodestone_width::{exact_u32, low_u32, to_u64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, Result};
use crate::slot::SlotHeader;
use crate::tick::{LIFE_TICKS_MAX, TICK_BITS, Tick, WRITER_BITS, Writer};

/// Ticks that a life reserves at a time: one more persisted line each 268 million commits.
pub const RESERVATION_TICKS: u64 = 1 << 28;
const OPEN: u64 = 1;
const ENTRY_HEADER_WORDS: u64 = 3;
/// No life uses ticks above this one, so that additions to a tick do not overflow.
const TICK_LIMIT: u64 = u64::MAX - (1 << (TICK_BITS + 2));

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StateLine {
    sequence: u64,
    base: u64,
    limit: u64,
    flags: u64,
    table_bytes: u64,
    renewed_at: u64,
    zero: [u8; 12],
    crc: u32,
}

const _: () = assert!(to_u64(size_of::<StateLine>()) == LINE_BYTES, "the state fills one line: it persists in order");

impl StateLine {
    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - 4])
    }

    /// The rule of this module that the state breaks, if any. Its checksum is right.
    fn nonsense(&self, layout: &LivesLayout) -> Option<&'static str> {
        if self.base == 0 || self.base > self.limit || self.limit > TICK_LIMIT {
            return Some("its limit is below its base, or too large");
        }
        let is_open = self.flags & OPEN != 0;
        let rules = [
            (self.flags & !OPEN == 0 && self.zero == [0; 12], "it has bits that are never set"),
            (base_from(self.base) == self.base, "no life begins at its base"),
            (is_open || self.limit == self.base, "it is closed and has ticks in reserve"),
            (self.limit - self.base <= LIFE_TICKS_MAX, "it reserves more ticks than a life may use"),
            (self.renewed_at <= self.base, "its losers were made invalid in the future"),
            (
                self.table_bytes.is_multiple_of(8) && self.table_bytes <= layout.table_bytes,
                "it uses more of the table than there is",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map(|(_, finding)| *finding)
    }
}

impl Line for StateLine {
    const SEQUENCE_MAX: u64 = u64::MAX;

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn crc(&self) -> u32 {
        self.crc
    }

    fn seal(&mut self, sequence: u64) {
        self.sequence = sequence;
        self.crc = self.checksum();
    }
}

/// A life that crashed, and up to which tick each of its threads counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The life used ticks above this one,
    pub base: Tick,
    /// up to this one.
    pub limit: Tick,
    /// Last tick of each thread that had a record, by ascending writer. For other threads, no version that needs a
    /// record counts.
    pub last: Vec<(Writer, Tick)>,
}

/// Addresses of the persistent parts. There are two of each, in different media blocks. Damage to one loses nothing.
#[derive(Clone, Copy, Debug)]
pub struct LivesLayout {
    /// The state lines.
    pub state: [PmAddr; 2],
    /// The copies of the table.
    pub table: [PmAddr; 2],
    /// Bytes of a copy of the table.
    pub table_bytes: u64,
}

impl LivesLayout {
    fn lines(&self) -> [PmPtr<StateLine>; 2] {
        self.state.map(PmPtr::new)
    }
}

/// A fault in the persistent parts, which a mirror or a crash may or may not explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivesFinding {
    /// Its address.
    pub at: PmAddr,
    /// The finding, in words.
    pub finding: String,
}

/// Damaged places, and the words that belong there.
type Repairs = Vec<(PmAddr, Vec<u64>)>;

/// The persistent clock of a pool. One thread changes it at a time: the caller locks.
#[derive(Clone, Debug)]
pub struct Lives {
    layout: LivesLayout,
    state: StateLine,
    crashed: Vec<Life>,
    /// Copies of entries that were found damaged.
    damaged: Repairs,
    /// For a pool that is open read-only: transactions that certify themselves but lost, and whose slots cannot be made
    /// invalid.
    undone: Vec<(Writer, Tick)>,
    reservation_ticks: u64,
}

impl Lives {
    /// Reads state and table.
    ///
    /// # Errors
    /// [`Error::Damaged`] if both state lines or both copies of an entry of the table fail their checksums, or hold
    /// values that this module never writes.
    pub fn open(memory: &Memory, layout: LivesLayout) -> Result<Self> {
        let damaged = |finding: &str| Error::Damaged {
            what: "state of the transaction clock",
            at: layout.state[0],
            finding: finding.into(),
        };
        let Some((state, _)) = Mirror::read(memory, layout.lines()).newest() else {
            return Err(damaged("both copies fail their checksum"));
        };
        if let Some(finding) = state.nonsense(&layout) {
            return Err(damaged(finding));
        }
        let table = Table { memory, layout: &layout, state: &state };
        let (crashed, damaged) = table.read()?;
        Ok(Self { layout, state, crashed, damaged, undone: Vec::new(), reservation_ticks: RESERVATION_TICKS })
    }

    /// Makes both state lines equal again if a crash or damage left them different. Returns how many of them were not
    /// whole. An open for writing calls it before it decides anything: while the lines differ, damage to the newest one
    /// would bring back the other one.
    pub fn heal(&mut self, memory: &Memory) -> u32 {
        let found = Mirror::read(memory, self.layout.lines());
        if !found.is_at_rest() {
            self.state = mirror::write(memory, self.layout.lines(), self.state);
        }
        exact_u32(found.slots.iter().filter(|slot| !matches!(slot, Slot::Intact(_))).count())
    }

    /// Makes both copies of the table equal again, and flushes what it writes. The next fence makes it persistent, at
    /// the latest that of [`begin`](Self::begin). Returns how many copies of entries were damaged. No crash does that.
    pub fn heal_table(&mut self, memory: &Memory) -> u32 {
        let damaged = std::mem::take(&mut self.damaged);
        for (at, words) in &damaged {
            memory.write(*at, words.as_bytes());
            // Each entry is whole in one place, and that place may be damaged next.
            memory.flush(*at, to_u64(words.len()) * 8);
        }
        exact_u32(damaged.len())
    }

    /// Copies of entries of the table that are damaged.
    #[must_use]
    pub fn table_copies_damaged(&self) -> u32 {
        exact_u32(self.damaged.len())
    }

    /// State lines and copies of entries that fail their checksum. They are harmless while the other copy is intact,
    /// which `open` ensured.
    #[must_use]
    pub fn findings(&self, memory: &Memory) -> Vec<LivesFinding> {
        let lines = self.layout.lines();
        let found = Mirror::read(memory, lines);
        let name = |at: PmAddr, what: &str| LivesFinding {
            at,
            finding: format!("a copy of the transaction clock's {what} fails its checksum; the other copy is used"),
        };
        (0..2)
            .filter(|&number| !matches!(found.slots[number], Slot::Intact(_)))
            .map(|number| name(lines[number].addr(), "state"))
            .chain(self.damaged.iter().map(|(at, _)| name(*at, "table")))
            .collect()
    }

    /// Reserves `ticks` at a time instead of [`RESERVATION_TICKS`], so that tests reach the limit.
    pub fn set_reservation(&mut self, ticks: u64) {
        self.reservation_ticks = ticks.max(1);
    }

    /// Whether the last life did not end with [`close`](Self::close).
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state.flags & OPEN != 0
    }

    /// The tick at which this life begins, or at which the last one began if that crashed. The life's ticks are larger.
    #[must_use]
    pub fn base(&self) -> Tick {
        Tick(self.state.base)
    }

    /// The largest tick that may be used without a reservation.
    #[must_use]
    pub fn limit(&self) -> Tick {
        if self.is_open() { Tick(self.state.limit) } else { Tick(self.state.base) }
    }

    /// Crashed lives whose losers may still be in slots, oldest first.
    #[must_use]
    pub fn crashed(&self) -> &[Life] {
        &self.crashed
    }

    /// Writes the state to both lines and makes it persistent.
    fn write(&mut self, memory: &Memory, state: StateLine) {
        // The mirror fences: no slot or record with a tick of the new range, and no later decision, may overtake the
        // state that covers it.
        self.state = mirror::write(memory, self.layout.lines(), state);
    }

    /// Makes sure that `tick` is reserved: if it is not, persists "open" and a new limit.
    ///
    /// # Errors
    /// [`Error::ClockExhausted`] if the life has used all ticks that a version word can tell apart.
    pub fn reserve(&mut self, memory: &Memory, tick: Tick) -> Result<()> {
        if tick <= self.limit() {
            return Ok(());
        }
        let limit = tick.0.saturating_add(self.reservation_ticks);
        if limit > TICK_LIMIT || limit - self.state.base > LIFE_TICKS_MAX {
            return Err(Error::ClockExhausted);
        }
        self.write(memory, StateLine { limit, flags: OPEN, ..self.state });
        Ok(())
    }

    /// Ends the life in order; `last` is the largest tick it used. Writes nothing if nothing was reserved.
    pub fn close(&mut self, memory: &Memory, last: Tick) {
        if self.is_open() {
            // One above the last tick: words of this life's versions are stale in the next life.
            let base = base_from(last.0.max(self.state.base) + 1);
            self.write(memory, StateLine { base, limit: base, flags: 0, ..self.state });
        }
    }

    /// Begins a life after one that ended: it gets a base of its own, which is persistent on return. An open for
    /// writing calls it. A life that commits nothing makes version words anew too. The next life must not take them for
    /// its own, since damage may come in between, and words of the life are not verified.
    ///
    /// # Panics
    /// If the last life did not end: see [`close_crashed`](Self::close_crashed).
    pub fn begin(&mut self, memory: &Memory) {
        assert!(!self.is_open(), "the last life has ended");
        let base = base_from(self.state.base + 1);
        // Only reads are left at the end of all ticks.
        if base <= TICK_LIMIT {
            self.write(memory, StateLine { base, limit: base, ..self.state });
        }
    }

    /// Bytes of a table that has room for a life of `threads` threads.
    #[must_use]
    pub const fn entry_bytes(threads: usize) -> u64 {
        (ENTRY_HEADER_WORDS + to_u64(threads)) * 8
    }

    /// Ends a life that crashed: appends `last` to the table, then closes at the old limit. On return both are
    /// persistent.
    ///
    /// # Errors
    /// [`Error::TableFull`]: make all losers invalid and call [`renew`](Self::renew) first.
    pub fn close_crashed(&mut self, memory: &Memory, last: Vec<(Writer, Tick)>) -> Result<()> {
        let life = Life { base: Tick(self.state.base), limit: Tick(self.state.limit), last };
        let bytes = Self::entry_bytes(life.last.len());
        if self.state.table_bytes + bytes > self.layout.table_bytes {
            return Err(Error::TableFull);
        }
        for table in self.layout.table {
            let at = table.plus(self.state.table_bytes);
            memory.write(at, encode_entry(at, &life).as_bytes());
            // Each copy before the fence below: the other one may be damaged when this life's losers are looked for.
            memory.flush(at, bytes);
        }
        if !planted::active("txn-life-state-first") {
            // The state makes the entry count, so it may not overtake the entry.
            memory.fence();
        }
        let base = base_from(life.limit.0 + 1);
        let table_bytes = self.state.table_bytes + bytes;
        self.write(memory, StateLine { base, limit: base, flags: 0, table_bytes, ..self.state });
        self.crashed.push(life);
        Ok(())
    }

    /// As [`close_crashed`](Self::close_crashed), but in DRAM only: for a pool that is open read-only. `undone` names
    /// the transactions whose slots an open for writing would have made invalid.
    pub fn close_crashed_in_memory(&mut self, last: Vec<(Writer, Tick)>, undone: Vec<(Writer, Tick)>) {
        self.undone = undone;
        let life = Life { base: Tick(self.state.base), limit: Tick(self.state.limit), last };
        let base = base_from(life.limit.0 + 1);
        (self.state.base, self.state.limit, self.state.flags) = (base, base, 0);
        self.crashed.push(life);
    }

    /// Whether a whole version with this header counts.
    #[must_use]
    pub fn counts_version(&self, header: &SlotHeader) -> bool {
        if header.flags.certifies_itself {
            self.undone.is_empty() || !self.undone.contains(&(header.writer, header.tick))
        } else {
            self.counts(header.writer, header.tick)
        }
    }

    /// Whether a version that does not certify itself counts.
    #[must_use]
    pub fn counts(&self, writer: Writer, tick: Tick) -> bool {
        let Some(life) = self.crashed_life_of(tick) else { return true };
        let last = life.last.binary_search_by_key(&writer, |(writer, _)| *writer);
        last.is_ok_and(|index| tick <= life.last[index].1)
    }

    /// The crashed life that `tick` belongs to.
    #[must_use]
    pub fn crashed_life_of(&self, tick: Tick) -> Option<&Life> {
        let index = self.crashed.partition_point(|life| life.limit < tick);
        self.crashed.get(index).filter(|life| life.base < tick)
    }

    /// Whether this open should renew all version words and losers. This is so if the table is half full, or if words
    /// are so old that they may soon be mistaken for new ones.
    #[must_use]
    pub fn scrub_is_due(&self) -> bool {
        2 * self.state.table_bytes > self.layout.table_bytes
            || self.state.base - self.state.renewed_at >= LIFE_TICKS_MAX
    }

    /// Empties the table. The caller guarantees that no loser and no old version word is left, and that this is
    /// persistent.
    pub fn renew(&mut self, memory: &Memory) {
        let renewed_at = self.state.base;
        self.write(memory, StateLine { table_bytes: 0, renewed_at, ..self.state });
        self.crashed.clear();
    }
}

/// The first tick from `tick` on at which a life may begin. A version word of zero, as in a cell never used, must not
/// look like a word of the life. So the low bits of the base are in the lower half of the range that a word tells
/// apart.
const fn base_from(tick: u64) -> u64 {
    const LOW: u64 = (1 << TICK_BITS) - 1;
    match tick & LOW {
        0 => tick + 1,
        low if low < LIFE_TICKS_MAX => tick,
        _ => (tick | LOW) + 2,
    }
}

fn encode_entry(at: PmAddr, life: &Life) -> Vec<u64> {
    let mut words = vec![life.base.0, life.limit.0, to_u64(life.last.len())];
    words.extend(
        life.last.iter().map(|(writer, last)| ((last.0 - life.base.0) << WRITER_BITS) | u64::from(writer.number())),
    );
    words[2] |= u64::from(entry_checksum(at, &words)) << 32;
    words
}

fn entry_checksum(at: PmAddr, words: &[u64]) -> u32 {
    let count = words[2] & u64::from(u32::MAX);
    let seed = crc32c::crc32c_append(low_u32(at.to_raw()), [words[0], words[1], count].as_bytes());
    crc32c::crc32c_append(seed, words[3..].as_bytes())
}

/// The table of lives on the medium.
struct Table<'t> {
    memory: &'t Memory,
    layout: &'t LivesLayout,
    state: &'t StateLine,
}

impl Table<'_> {
    /// Reads all entries. Returns the lives, and what belongs where a copy of an entry is damaged.
    fn read(&self) -> Result<(Vec<Life>, Repairs)> {
        let (mut lives, mut damaged): (Vec<Life>, _) = (Vec::new(), Vec::new());
        let mut done = 0;
        while done < self.state.table_bytes {
            let copies = self.layout.table.map(|table| self.entry(table.plus(done), done, lives.last()));
            // The first one that is right counts. Where none is, the fault of the first is named.
            let life = match &copies {
                [Ok(life), _] | [Err(_), Ok(life)] => life.clone(),
                [Err(finding), Err(_)] => {
                    let at = self.layout.table[0].plus(done);
                    return Err(Error::Damaged { what: "table of lives", at, finding: (*finding).into() });
                }
            };
            for (table, copy) in self.layout.table.iter().zip(&copies) {
                if copy.as_ref() != Ok(&life) {
                    let at = table.plus(done);
                    damaged.push((at, encode_entry(at, &life)));
                }
            }
            done += Lives::entry_bytes(life.last.len());
            lives.push(life);
        }
        Ok((lives, damaged))
    }

    /// The entry at `at`, `done` bytes into its copy of the table, after an entry for the life `before`.
    fn entry(&self, at: PmAddr, done: u64, before: Option<&Life>) -> Result<Life, &'static str> {
        let room = (self.state.table_bytes - done) / 8;
        if room < ENTRY_HEADER_WORDS {
            return Err("an entry runs over the end");
        }
        let count = self.memory.load(at.plus(16)) & u64::from(u32::MAX);
        if count > room - ENTRY_HEADER_WORDS {
            return Err("an entry runs over the end");
        }
        let words: Vec<u64> = (0..ENTRY_HEADER_WORDS + count).map(|word| self.memory.load(at.plus(word * 8))).collect();
        if exact_u32(words[2] >> 32) != entry_checksum(at, &words) {
            return Err("an entry fails its checksum");
        }
        let after = before.map_or(0, |life| life.limit.0);
        if words[0] <= after || words[0] >= words[1] || words[1] >= self.state.base {
            return Err("the lives of an entry and of its neighbours overlap");
        }
        let base = Tick(words[0]);
        let tick = |word: u64| Tick(base.0.saturating_add(word >> WRITER_BITS));
        let last: Vec<_> = words[3..].iter().map(|&word| (Writer::from_bits(word), tick(word))).collect();
        let is_sorted = last.is_sorted_by(|(left, _), (right, _)| left < right);
        if !is_sorted || last.iter().any(|(_, tick)| tick.0 > words[1]) {
            return Err("an entry names a thread twice, or a tick that its life did not use");
        }
        Ok(Life { base, limit: Tick(words[1]), last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: LivesLayout = LivesLayout {
        state: [PmAddr::new(0, 4096), PmAddr::new(0, 4096 + 256)],
        table: [PmAddr::new(0, 8192), PmAddr::new(0, 12288)],
        table_bytes: 96,
    };

    fn writer(number: u16) -> Writer {
        Writer::new(number).expect("small")
    }

    #[test]
    fn ticks_are_never_used_twice_whatever_ends_a_life() {
        let memory = Memory::anonymous(16384).expect("memory");
        Lives::format(&memory, &LAYOUT);
        let mut lives = Lives::open(&memory, LAYOUT).expect("formatted");
        assert!(!lives.is_open());
        let first = lives.base().next();
        lives.reserve(&memory, first).expect("room");
        assert!(lives.limit() > first && lives.is_open());
        lives.close(&memory, Tick(first.0 + 10));
        let mut lives = Lives::open(&memory, LAYOUT).expect("closed");
        assert!(!lives.is_open() && lives.base() > Tick(first.0 + 10) && lives.crashed().is_empty());
        let second = lives.base().next();
        lives.set_reservation(100);
        lives.reserve(&memory, second).expect("room");
        let used = lives.limit();
        let mut lives = Lives::open(&memory, LAYOUT).expect("crashed");
        assert!(lives.is_open());
        lives.close_crashed(&memory, vec![(writer(1), second)]).expect("room in the table");
        let lives = Lives::open(&memory, LAYOUT).expect("recovered");
        assert!(!lives.is_open() && lives.base() > used);
        assert!(lives.counts(writer(1), second) && !lives.counts(writer(1), second.next()));
        assert!(!lives.counts(writer(2), second), "a thread without a record");
        assert!(lives.counts(writer(2), first) && lives.counts(writer(2), used.next()), "lives that did not crash");
    }

    #[test]
    fn a_full_table_says_so_and_a_renewed_one_is_empty() {
        let memory = Memory::anonymous(16384).expect("memory");
        Lives::format(&memory, &LAYOUT);
        let mut crashes = 0;
        loop {
            let mut lives = Lives::open(&memory, LAYOUT).expect("intact");
            if lives.is_open() && lives.close_crashed(&memory, vec![(writer(0), lives.base())]).is_err() {
                lives.renew(&memory);
                assert!(lives.crashed().is_empty());
                break;
            }
            let next = lives.base().next();
            lives.reserve(&memory, next).expect("room");
            crashes += 1;
        }
        assert_eq!(crashes, 4, "three entries of four words fit");
    }

    #[test]
    fn damage_is_an_error_and_one_damaged_copy_is_none() {
        let memory = Memory::anonymous(16384).expect("memory");
        Lives::format(&memory, &LAYOUT);
        memory.store(LAYOUT.state[0].plus(8), 77);
        let lives = Lives::open(&memory, LAYOUT).expect("the other copy");
        assert_eq!(lives.findings(&memory).len(), 1);
        memory.store(LAYOUT.state[1].plus(8), 77);
        assert!(matches!(Lives::open(&memory, LAYOUT), Err(Error::Damaged { .. })));
    }

    #[test]
    fn one_copy_of_the_table_of_lives_is_enough_and_makes_the_other_one_whole() {
        let memory = Memory::anonymous(16384).expect("memory");
        Lives::format(&memory, &LAYOUT);
        let crash = |threads: u16| {
            let mut lives = Lives::open(&memory, LAYOUT).expect("intact");
            lives.reserve(&memory, lives.base().next()).expect("room");
            let last = (0..threads).map(|number| (writer(number), lives.base().next())).collect();
            lives.close_crashed(&memory, last).expect("room in the table");
        };
        crash(2);
        crash(1);
        let right = Lives::open(&memory, LAYOUT).expect("intact").crashed().to_vec();
        let bytes = Lives::entry_bytes(2) + Lives::entry_bytes(1);
        for (copy, bit) in [0, 1].into_iter().flat_map(|copy| (0..bytes * 8).map(move |bit| (copy, bit))) {
            let at = LAYOUT.table[copy].plus(bit / 64 * 8);
            let word = memory.load(at);
            memory.store(at, word ^ 1 << (bit % 64));
            let mut lives = Lives::open(&memory, LAYOUT).expect("the other copy");
            assert_eq!(lives.crashed(), right, "copy {copy}, bit {bit}");
            assert_eq!((lives.findings(&memory).len(), lives.heal_table(&memory)), (1, 1), "copy {copy}, bit {bit}");
            assert!(lives.findings(&memory).is_empty());
            assert_eq!(memory.load(at), word, "healed");
        }
        LAYOUT.table.iter().for_each(|table| memory.store(table.plus(8), 7));
        assert!(matches!(Lives::open(&memory, LAYOUT), Err(Error::Damaged { .. })));
    }

    #[test]
    fn a_word_that_was_never_written_is_of_no_life() {
        let memory = Memory::anonymous(16384).expect("memory");
        let zero = crate::VersionWord::default();
        let whole = 1_u64 << TICK_BITS;
        for around in [whole / 2, whole, 3 * whole / 2, 5 * whole] {
            for last in around - 3..around + 3 {
                for crashes in [false, true] {
                    Lives::format(&memory, &LAYOUT);
                    let mut lives = Lives::open(&memory, LAYOUT).expect("formatted");
                    lives.reserve(&memory, lives.base().next()).expect("room");
                    lives.close(&memory, Tick(last));
                    if crashes {
                        lives.set_reservation(2);
                        lives.reserve(&memory, lives.base().next()).expect("room");
                        lives.close_crashed(&memory, vec![]).expect("room in the table");
                    }
                    let base = lives.base();
                    assert!(base.0 > last && base.0 <= last + whole, "{base} after {last}");
                    assert!(zero.ticks_since(base) > LIFE_TICKS_MAX, "{base} after {last}");
                    let known = crate::StartClocks::new(crate::ClockKind::Thread, base);
                    assert!(!known.covers(zero) && !known.covers_live(zero));
                    assert!(last < LIFE_TICKS_MAX || lives.scrub_is_due());
                }
            }
        }
    }
}
