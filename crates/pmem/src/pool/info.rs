//! The description of a pool: one plain struct, and the text that `lodestone pool info` prints.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use lodestone_width::{exact_u16, nearest_f64};

use crate::addr::PmAddr;
use crate::block::JournalRecovery;
use crate::cpu::{FlushInstruction, StreamInstruction};
use crate::domain::Domain;
use crate::pool::layout::{PAGE_BYTES, PartHeader};
use crate::pool::part::PartKind;
use crate::pool::uuid::Uuid;
use crate::pool::{NodeOrigin, PartNode, Pool, header, nodes, platform, roots, volatile};
use crate::topology::Topology;

/// One part of a pool.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let info = Pool::create(&path, &options)?.info();
/// assert_eq!(info.parts[0].part_bytes, 16 << 20);
/// assert!(info.parts[0].heap_bytes < info.parts[0].part_bytes, "the journal takes room, too");
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartInfo {
    /// Its path; "(traced)" for the explorer's memory.
    pub path: PathBuf,
    /// File or device.
    pub kind: PartKind,
    /// Its identity.
    pub uuid: Uuid,
    /// Length in use, bytes.
    pub part_bytes: u64,
    /// Length of the heap area, bytes.
    pub heap_bytes: u64,
    /// Name of the file system ("ext4", "xfs", "tmpfs", ...), "devdax", or "memory".
    pub file_system: String,
    /// Whether it is a tmpfs with pages of 2 MiB where possible (mounted with `huge=always`), as DAX has them.
    pub huge_pages: bool,
    /// NUMA node of the device under it, where the platform tells.
    pub numa_node: Option<u32>,
    /// NUMA node that counts for placement, and how it is known.
    pub node: PartNode,
}

/// One named root.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let (start, _end) = pool.heap_area(0);
/// pool.set_root("counter", 7, start)?;
/// let root = &pool.info().roots[0];
/// assert_eq!((root.name.as_str(), root.kind, root.addr), ("counter", 7, start));
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RootInfo {
    /// Its name.
    pub name: String,
    /// Type of the object, as its owner counts.
    pub kind: u32,
    /// Where the object is.
    pub addr: PmAddr,
}

/// The description of a pool and of the events that its memory survives. `Display` prints the text for people.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let info = Pool::create(&path, &options)?.info();
/// assert_eq!((info.boot, info.parts.len(), info.read_only), (1, 1, false));
/// println!("{info}"); // the text of `lodestone pool info`
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolInfo {
    /// The parts, by number.
    pub parts: Vec<PartInfo>,
    /// Persistence domain; of a read-only pool the one that a writer would get.
    pub domain: Domain,
    /// Why this domain.
    pub domain_reason: String,
    /// The events that the domain survives.
    pub promise: String,
    /// Whether this open can write.
    pub read_only: bool,
    /// Identity of the pool.
    pub set_uuid: Uuid,
    /// Version of the format.
    pub format_version: u32,
    /// Feature flags: compatible, read-only compatible, incompatible.
    pub features: [u64; 3],
    /// Name of the application's layout.
    pub layout_name: String,
    /// Version of the application's layout.
    pub layout_version: u32,
    /// Creation time, nanoseconds since 1970.
    pub created_unix_ns: u64,
    /// Number of this life (read-only: of the last).
    pub boot: u64,
    /// Whether the life before this one was closed in order.
    pub was_clean: bool,
    /// Findings of this open in the journal.
    pub recovery: JournalRecovery,
    /// Offset of the journal in part 0.
    pub journal_offset: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Named roots.
    pub roots: Vec<RootInfo>,
    /// How lines are written back.
    pub flush_instruction: FlushInstruction,
    /// How bulk data goes around the cache.
    pub stream_instruction: StreamInstruction,
    /// The model that accesses are reported to, as it calls itself: figures of this pool are emulated.
    pub medium: Option<String>,
    /// Warnings for the user, most important first.
    pub warnings: Vec<String>,
}

impl Pool {
    /// Describes this pool.
    #[must_use]
    pub fn info(&self) -> PoolInfo {
        let shared = &self.shared;
        let main = &shared.headers[0];
        let domain = self.memory.domain();
        let parts: Vec<PartInfo> = (0..shared.headers.len()).map(|index| self.part_info(index)).collect();
        let (flush_instruction, stream_instruction) = self.memory.instructions();
        PoolInfo {
            warnings: self.warnings(&parts, domain),
            parts,
            domain,
            domain_reason: shared.reason.clone(),
            promise: promise(domain, self.volatile_medium().as_deref()),
            read_only: self.memory.is_read_only(),
            set_uuid: Uuid(main.set_uuid),
            format_version: main.format_version,
            features: [main.features_compatible, main.features_read_only_compatible, main.features_incompatible],
            layout_name: header::layout_name(main),
            layout_version: main.layout_version,
            created_unix_ns: main.created_unix_ns,
            boot: self.boot(),
            was_clean: self.was_clean(),
            recovery: self.recovery(),
            journal_offset: main.journal_offset,
            journal_bytes: main.journal_bytes,
            roots: self.root_infos(),
            flush_instruction,
            stream_instruction,
            medium: self.memory.medium().map(|medium| medium.label()),
        }
    }

    /// The NUMA node of the device under `part`, where the platform tells; the kernel's number, see
    /// [`Topology::index_of`](crate::Topology::index_of).
    #[must_use]
    pub fn numa_node(&self, part: u16) -> Option<u32> {
        nodes::detect(self.shared.parts.get(usize::from(part))?, &self.shared.sysfs_root)
    }

    /// The volatile file system that a part is on; one such part is enough to lose the pool.
    fn volatile_medium(&self) -> Option<String> {
        self.shared.parts.iter().find_map(volatile::medium_of)
    }

    fn warnings(&self, parts: &[PartInfo], domain: Domain) -> Vec<String> {
        let mut found = Vec::new();
        let read_only = self.memory.is_read_only();
        if !read_only && domain == Domain::DaxEmulated {
            found.push("dax-emulated: acknowledged writes are lost with the power; for measurements only".into());
        }
        if !read_only && domain == Domain::Process {
            found
                .push("process domain: acknowledged writes survive the death of the process, not of the system".into());
        }
        let mut file_systems: Vec<&str> = parts.iter().map(|part| part.file_system.as_str()).collect();
        file_systems.dedup();
        found.extend(file_systems.into_iter().filter_map(platform::file_system_warning));
        if let Some(medium) = self.volatile_medium().filter(|medium| medium.starts_with("overlay")) {
            found.push(format!(
                "{medium}: the files are in volatile memory, and nothing in this pool survives power loss"
            ));
        }
        found.extend(node_warnings(parts, self.topology()));
        found
    }

    fn part_info(&self, index: usize) -> PartInfo {
        let header: &PartHeader = &self.shared.headers[index];
        let part = self.shared.parts.get(index);
        let part_bytes = self.shared.part_bytes[index].load(Ordering::Acquire);
        PartInfo {
            path: part.map_or_else(|| self.shared.path.clone(), |part| part.path.clone()),
            kind: part.map_or(PartKind::File, |part| part.kind),
            uuid: Uuid(header.part_uuid),
            part_bytes,
            heap_bytes: part_bytes - PAGE_BYTES - header.heap_offset,
            file_system: part.map_or_else(|| "memory".into(), platform::file_system),
            huge_pages: part.is_some_and(platform::has_huge_pages),
            numa_node: self.numa_node(exact_u16(index)),
            node: self.shared.part_nodes[index],
        }
    }

    fn root_infos(&self) -> Vec<RootInfo> {
        roots::read_all(&self.memory)
            .iter()
            .filter_map(|mirror| mirror.newest())
            .filter(|(found, _)| found.name_bytes > 0)
            .map(|(found, _)| RootInfo {
                name: String::from_utf8_lossy(roots::name_of(&found)).into_owned(),
                kind: found.kind,
                addr: PmAddr::from_raw(found.addr),
            })
            .collect()
    }
}

fn promise(domain: Domain, volatile: Option<&str>) -> String {
    match volatile {
        Some(medium) if !matches!(domain, Domain::Traced | Domain::DaxEmulated) => format!(
            "NOT durable here: {medium} is memory, and nothing in this pool survives power loss; the death of the process it \
             does survive"
        ),
        _ => domain.promise().into(),
    }
}

/// Warnings about the nodes of the parts for users of the pool.
fn node_warnings(parts: &[PartInfo], topology: &Topology) -> Vec<String> {
    let mut found = Vec::new();
    let bare: Vec<String> = (0..topology.nodes().len())
        .filter(|index| parts.iter().all(|part| part.node.index != Some(*index)))
        .map(|index| topology.nodes()[index].id.to_string())
        .collect();
    let known = parts.iter().filter(|part| part.node.index.is_some()).count();
    if parts.len() > 1 && known > 0 && !bare.is_empty() {
        found.push(format!("no part on node {}: its threads use the parts of the nearest node", bare.join(", ")));
    }
    for (number, part) in parts.iter().enumerate() {
        match (part.node.id, part.node.index) {
            (Some(id), None) => found.push(format!("part {number} is on node {id}, which this machine does not have")),
            (None, _) if parts.len() > 1 && topology.nodes().len() > 1 => {
                found.push(format!("the node of part {number} is unknown; say it with --node"));
            }
            _ => {}
        }
    }
    found
}

impl PoolInfo {
    /// The domain as it is printed.
    #[must_use]
    pub fn domain_label(&self) -> String {
        self.domain.to_string()
    }

    /// The medium of the memory, as figures name it: the file system of part 0, or the emulated medium over it.
    #[must_use]
    pub fn media_label(&self) -> String {
        let file_system = self.parts.first().map_or("unknown".into(), PartInfo::file_system_label);
        match &self.medium {
            Some(medium) => format!("emulated: {medium} (on {file_system})"),
            None => file_system,
        }
    }
}

impl PartInfo {
    /// The file system, and the size of its pages where that is not the usual one: it decides how far a table of
    /// translations reaches.
    fn file_system_label(&self) -> String {
        format!("{}{}", self.file_system, if self.huge_pages { " with huge pages" } else { "" })
    }
}

impl fmt::Display for PoolInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.parts.first().map(|part| part.path.display().to_string()).unwrap_or_default();
        writeln!(f, "pool           {path}")?;
        if self.read_only {
            writeln!(f, "access         read-only: nothing is written; the domain is what a writer gets")?;
        }
        writeln!(f, "domain         {}: {}", self.domain_label(), self.promise)?;
        writeln!(f, "               because {}", self.domain_reason)?;
        writeln!(f, "uuid           {}", self.set_uuid)?;
        let [compatible, read_only, incompatible] = self.features;
        writeln!(
            f,
            "format         version {}, features {compatible:#x} / {read_only:#x} / {incompatible:#x}",
            self.format_version
        )?;
        let layout = if self.layout_name.is_empty() { "(none)" } else { &self.layout_name };
        writeln!(f, "layout         {layout}, version {}", self.layout_version)?;
        writeln!(f, "created        {}", utc(self.created_unix_ns / 1_000_000_000))?;
        let ended = if self.was_clean { "the life before ended in order" } else { "the life before ended in a crash" };
        let open = if self.read_only { "last life; read-only now" } else { "this life" };
        writeln!(f, "boot           {} ({open}); {ended}", self.boot)?;
        writeln!(f, "journal        {} at {:#x}", bytes(self.journal_bytes), self.journal_offset)?;
        if self.recovery.groups > 0 || self.recovery.unfinished_group.is_some() {
            writeln!(f, "recovery       {}", self.recovery)?;
        }
        writeln!(f, "instructions   flush {:?}, stream {:?}", self.flush_instruction, self.stream_instruction)?;
        if let Some(medium) = &self.medium {
            writeln!(f, "medium         emulated: {medium}; times and block counts of this pool are the model's")?;
        }
        for (index, part) in self.parts.iter().enumerate() {
            let node = match (part.node.id, part.node.origin) {
                (Some(id), NodeOrigin::Virtual) => format!("virtual node {id}"),
                (Some(id), origin) => format!("node {id}, {origin}"),
                (None, _) => "node unknown".into(),
            };
            writeln!(
                f,
                "part {index:<9} {}, heap {}, {} ({node}), {}, uuid {}",
                bytes(part.part_bytes),
                bytes(part.heap_bytes),
                part.file_system_label(),
                part.path.display(),
                part.uuid
            )?;
        }
        for root in &self.roots {
            writeln!(f, "root           {} (kind {}) at {}", root.name, root.kind, root.addr)?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning        {warning}")?;
        }
        Ok(())
    }
}

/// A byte count for people.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..=1023 => format!("{count} B"),
        1024..=1_048_575 => format!("{:.1} KiB", nearest_f64(count) / 1024.0),
        1_048_576..=1_073_741_823 => format!("{:.1} MiB", nearest_f64(count) / 1_048_576.0),
        _ => format!("{:.2} GiB", nearest_f64(count) / 1_073_741_824.0),
    }
}

/// Seconds since 1970 as a date in UTC (the civil-from-days computation on the proleptic Gregorian calendar).
fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(utc(4_102_444_800), "2100-01-01 00:00:00 UTC");
    }
}
