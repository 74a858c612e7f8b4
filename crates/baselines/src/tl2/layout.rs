//! The layout: a header, the root, the logs, and pages of equal blocks, in one block of the heap.
//!
//! 1. The heap's root word [`ROOT_WORD`] holds the address of the area. It is set in the action that allocates the
//!    area, after all writes of the formatting, so a crash leaves the whole area or nothing.
//! 2. The header has a checksum and names the log for which the area was made.

use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, checked};
use lodestone_workload::engine::EngineError;

use super::{LogKind, Tl2Options};

/// The root word of the heap that holds the area.
pub(super) const ROOT_WORD: u64 = 0;
/// Bytes of the header; the root object follows.
pub(super) const HEADER_BYTES: u64 = LINE_BYTES;
const ROOT_BYTES: u64 = LINE_BYTES;
/// Largest object with its header word, in bytes.
pub(super) const STRIDE_MAX: u64 = 1024;

/// The numbers of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) area: PmAddr,
    pub(super) kind: LogKind,
    pub(super) pages: u64,
    pub(super) page_bytes: u64,
    pub(super) workers: u64,
    pub(super) log_bytes: u64,
}

impl Geometry {
    /// Start of the log of `worker`.
    pub(super) fn log(&self, worker: u64) -> PmAddr {
        self.area.plus(HEADER_BYTES + ROOT_BYTES + worker * self.log_bytes)
    }

    /// Start of page `page`: its class word, in a separate line, then blocks.
    pub(super) fn page(&self, page: u64) -> PmAddr {
        self.log(self.workers).plus(page * self.page_bytes)
    }

    fn bytes(&self) -> u64 {
        HEADER_BYTES + ROOT_BYTES + self.workers * self.log_bytes + self.pages * self.page_bytes
    }

    /// Header words with their checksums against their own addresses.
    fn words(&self) -> [u64; 5] {
        let kind = match self.kind {
            LogKind::Undo => MAGIC_UNDO,
            LogKind::Redo => MAGIC_REDO,
        };
        [kind, self.pages, self.page_bytes, self.workers, self.log_bytes]
    }
}

/// 48 bits: "tl2und" and "tl2red" with the version of the format.
const MAGIC_UNDO: u64 = 0x746C_3275_6E01;
const MAGIC_REDO: u64 = 0x746C_3272_6501;

/// Finds the area, or makes it.
pub(super) fn open_or_format(heap: &Heap, options: &Tl2Options) -> Result<Geometry, EngineError> {
    let raw = heap.memory().load(heap.root_word(ROOT_WORD));
    let geometry = if raw == 0 { format(heap, options)? } else { read(heap.memory(), PmAddr::from_raw(raw))? };
    if geometry.kind != options.log {
        return Err(EngineError::new(format!(
            "the pool holds a TL2 with a log of kind {:?}, but {:?} was requested; use a separate pool",
            geometry.kind, options.log
        )));
    }
    Ok(geometry)
}

fn read(memory: &Memory, area: PmAddr) -> Result<Geometry, EngineError> {
    let damaged = |finding: &str| EngineError::new(format!("TL2 header at {area}: {finding}; restore a backup"));
    if area.line().start() != area || !memory.contains(area, HEADER_BYTES) {
        return Err(damaged("the root word refers to no line of the pool"));
    }
    let mut words = [0; 5];
    for (index, word) in (0..).zip(&mut words) {
        let at = area.plus(index * 8);
        *word = checked::decode(at, memory.load(at)).ok_or_else(|| damaged("a word fails its checksum"))?;
    }
    let kind = match words[0] {
        MAGIC_UNDO => LogKind::Undo,
        MAGIC_REDO => LogKind::Redo,
        _ => return Err(damaged("the magic is that of another format")),
    };
    let geometry =
        Geometry { area, kind, pages: words[1], page_bytes: words[2], workers: words[3], log_bytes: words[4] };
    if memory.contains(area, geometry.bytes()) { Ok(geometry) } else { Err(damaged("it reaches beyond the pool")) }
}

fn format(heap: &Heap, options: &Tl2Options) -> Result<Geometry, EngineError> {
    let line_multiple = |bytes: u64| bytes >= LINE_BYTES && bytes.is_multiple_of(LINE_BYTES);
    if !line_multiple(options.page_bytes) || !line_multiple(options.log_bytes) || options.workers == 0 {
        return Err(EngineError::new("pages and logs are multiples of 64 bytes, and there is at least one worker"));
    }
    let memory = heap.memory();
    let mut geometry = Geometry {
        area: PmAddr::NULL,
        kind: options.log,
        pages: options.object_bytes / options.page_bytes,
        page_bytes: options.page_bytes,
        workers: options.workers,
        log_bytes: options.log_bytes,
    };
    let mut action = heap.action();
    geometry.area = action.alloc(geometry.bytes()).map_err(EngineError::new)?;
    // Header, root and logs. Of a page only the class word counts while it is zero.
    memory.zero(geometry.area, HEADER_BYTES + ROOT_BYTES + geometry.workers * geometry.log_bytes);
    for (index, word) in (0..).zip(geometry.words()) {
        let at = geometry.area.plus(index * 8);
        memory.store(at, checked::encode(at, word));
    }
    // The commit below fences before it makes the area reachable, and these words may not persist after it.
    memory.flush(geometry.area, HEADER_BYTES + ROOT_BYTES + geometry.workers * geometry.log_bytes);
    for page in 0..geometry.pages {
        memory.store(geometry.page(page), 0);
        memory.flush(geometry.page(page), 8);
    }
    action.set(heap.root_word(ROOT_WORD), geometry.area.to_raw());
    action.commit().map_err(EngineError::new)?;
    Ok(geometry)
}
