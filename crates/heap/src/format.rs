//! The header of a heap: formatting, reading, finishing.
//!
//! 1. *Format*: lanes become idle, root words and the number of zones zero. Fence. Then comes the copy of the header.
//!    Fence. Then comes the front header. Part 0 is the last one.
//! 2. *Read*: the front header counts, else its copy. If the front is all zeroes and the copy is not intact, the heap
//!    was never used. A format that a crash cut short is then begun again.
//! 3. *Finish*: the front header of a heap without zones that a crash cut short is written anew from the copy.
//!
//! Invariant: an intact copy means that everything before it is persistent. So a heap is formatted as soon as its copy
//! is fenced.

use lodestone_pmem::{Memory, PmAddr, Pool, checked};
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::heap::HeapOptions;
use crate::layout::{
    Geometry, HEAP_MAGIC, HEAP_VERSION, HeapHeader, ROOT_WORDS, ROOT_WORDS_OFFSET, ZONES_WORD_OFFSET, encode_zone,
};
use crate::record;

/// Header and geometry of a formatted heap, `None` when the heap was never formatted.
///
/// A header that verifies may still name what the pool has no room for: of two copies the one counts whose sizes fit
/// the pool and lead to the first zone. [`Heap::check`](crate::Heap::check) names the other one.
pub fn read_header(pool: &Pool) -> Result<Option<(HeapHeader, Geometry)>> {
    let memory = pool.memory();
    let (start, _) = pool.heap_area(0);
    let damaged = |finding: &str| Error::Damaged { path: pool.path().to_owned(), at: start, finding: finding.into() };
    let places = HeapHeader::places(start);
    if !memory.contains(places[1].addr(), 64) {
        return Err(Error::NoSpace { path: pool.path().to_owned(), part: 0, wanted_bytes: 4096 });
    }
    let copies = places.map(|place| memory.get(place));
    let intact = || copies.iter().filter(|header| header.is_intact());
    if intact().next().is_none() {
        // The front header is written last: while it is zero, the heap was never used.
        if copies[0] == HeapHeader::new_zeroed() {
            return Ok(None);
        }
        return Err(damaged("both copies of the heap header fail their checksum"));
    }
    let known = || intact().filter(|header| header.version <= HEAP_VERSION);
    let fitting = || known().filter_map(|header| Some((*header, fitting_geometry(pool, header)?)));
    let Some(first) = fitting().next() else {
        return Err(match intact().find(|header| header.version > HEAP_VERSION) {
            Some(newer) if known().next().is_none() => {
                let (path, what) = (pool.path().to_owned(), "header of the heap");
                let (found, known) = (newer.version, HEAP_VERSION);
                lodestone_pmem::Error::OtherVersion { path, what, at: start, found, known }.into()
            }
            _ => damaged("the heap header names sizes that are impossible or do not fit the pool"),
        });
    };
    let found = if copies[0] == copies[1] {
        first
    } else {
        fitting().find(|(_, geometry)| leads_to_a_zone(pool, geometry)).unwrap_or(first)
    };
    finish_header(memory, start, &copies);
    Ok(Some(found))
}

/// The geometry of an intact header of part 0, when header pages, lanes and a first zone of it fit every part.
fn fitting_geometry(pool: &Pool, header: &HeapHeader) -> Option<Geometry> {
    let geometry = Geometry::from_header(header).filter(|geometry| geometry.lanes > 0)?;
    let fits = |part: u16| {
        let (start, end) = pool.heap_area(part);
        let zone = u64::from(geometry.table_chunks() + 1) * geometry.chunk_bytes();
        geometry.zones_offset(start).checked_add(zone).is_some_and(|needed| needed <= end.offset())
    };
    let (start, _) = pool.heap_area(0);
    let says = header.part == 0 && header.zones_offset == geometry.zones_offset(start);
    (says && (0..pool.memory().part_count()).all(fits)).then_some(geometry)
}

/// Whether the first zone is where the geometry says.
fn leads_to_a_zone(pool: &Pool, geometry: &Geometry) -> bool {
    let (start, _) = pool.heap_area(0);
    let zone = PmAddr::new(0, geometry.zones_offset(start));
    pool.memory().load(zone) == encode_zone(zone, 0)
}

/// Writes the front header that a crash cut short while the heap was formatted. Such a header is a beginning of its
/// copy, then zeroes, and the heap was never used. Anything else is damage, which the check reports.
fn finish_header(memory: &Memory, start: PmAddr, copies: &[HeapHeader; 2]) {
    let [front, copy] = copies.each_ref().map(HeapHeader::as_bytes);
    let same = front.chunks(8).zip(copy.chunks(8)).take_while(|(front, copy)| front == copy).count() * 8;
    let zones = start.plus(ZONES_WORD_OFFSET);
    let used = checked::decode(zones, memory.load(zones)) != Some(0);
    if used || memory.is_read_only() || same == front.len() || front[same..].iter().any(|&byte| byte != 0) {
        return;
    }
    write_front(memory, start, &copies[1]);
}

/// Writes the front header.
fn write_front(memory: &Memory, start: PmAddr, header: &HeapHeader) {
    let front = HeapHeader::places(start)[0];
    memory.put(front, header);
    // No zone, whichever thread formats it, may overtake the front header: a used heap has two intact headers.
    memory.persist(front.addr(), 64);
}

/// Formats all parts, part 0 last.
pub fn format(pool: &Pool, options: &HeapOptions) -> Result<(HeapHeader, Geometry)> {
    let memory = pool.memory();
    let mut header = HeapHeader::new_zeroed();
    header.magic = HEAP_MAGIC;
    header.version = HEAP_VERSION;
    header.lanes = options.lanes;
    header.lane_bytes = options.lane_bytes;
    header.chunk_bytes = options.chunk_bytes;
    header.zone_chunks = options.zone_chunks;
    header.boot = pool.boot();
    let geometry = Geometry::from_header(&header).filter(|geometry| geometry.lanes > 0);
    let Some(geometry) = geometry else {
        return Err(Error::Invalid {
            what: "heap options",
            finding: format!("{options:?}"),
            hint: "use powers of two for chunk_bytes (from 512) and zone_chunks (from 4), 1 to 65536 lanes, and a multiple of 64 up to 1 MiB for lane_bytes",
        });
    };
    if memory.is_read_only() {
        return Err(needs_writing());
    }
    for part in (0..memory.part_count()).rev() {
        let (start, end) = pool.heap_area(part);
        header.part = u32::from(part);
        header.zones_offset = geometry.zones_offset(start);
        header.crc = header.checksum();
        let needed = header.zones_offset + u64::from(geometry.table_chunks() + 1) * geometry.chunk_bytes();
        if end.offset() < needed {
            let wanted_bytes = needed - start.offset();
            return Err(Error::NoSpace { path: pool.path().to_owned(), part, wanted_bytes });
        }
        for lane in 0..if part == 0 { geometry.lanes } else { 0 } {
            record::clear(memory, geometry.lane(start, lane));
        }
        let roots = start.plus(ROOT_WORDS_OFFSET);
        memory.zero(roots, ROOT_WORDS * 8);
        let zones = start.plus(ZONES_WORD_OFFSET);
        memory.store(zones, checked::encode(zones, 0));
        memory.flush(roots, (ROOT_WORDS + 1) * 8);
        // The header says that lanes, root words and zones word are there: it may not overtake them.
        memory.fence();
        let copy = HeapHeader::places(start)[1];
        memory.put(copy, &header);
        // Nothing in the heap, the front header included, may overtake the copy that makes it one.
        memory.persist(copy.addr(), 64);
        write_front(memory, start, &header);
    }
    // Part 0 comes last.
    Ok((header, geometry))
}

/// The error of a read-only open that would have to write.
pub fn needs_writing() -> Error {
    Error::Invalid {
        what: "heap",
        finding: "the pool is open read-only, but its heap must be formatted or recovered first".into(),
        hint: "open the pool for writing once",
    }
}
