//! Which persistence domain a pool gets, and why.
//!
//! 1. A regular file is mapped for a moment with `MAP_SYNC`. The kernel accepts that on persistent memory only (fsdax).
//!    There a flushed line is persistent, and no journal of the file system can still lose its block.
//! 2. Persistent memory whose region says `cpu_cache` in its `persistence_domain` keeps the CPU caches as well: `eadr`.
//! 3. Other persistent memory is `dax`, where the processor has an instruction that writes a line back. Without one no
//!    store is ever known to be persistent, so there is no `dax` domain.
//! 4. Everything else is an ordinary file: `block`, which needs the pool's journal.
//!
//! All parts of a pool get the same domain, the weakest that one of them needs. There is no silent downgrade: a domain
//! that was asked for by name is an error where it is not available.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{fstatfs, major, minor};

use crate::cpu::FlushInstruction;
use crate::domain::{Domain, DomainChoice};
use crate::error::{Error, Result};
use crate::mapping::{Backing, Mapping};
use crate::pool::layout::PAGE_BYTES;
use crate::pool::part::PartFile;

/// The domain of a pool with its reason.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) domain: Domain,
    pub(crate) backing: Backing,
    /// Why this domain, in words.
    pub(crate) reason: String,
}

/// Chooses the domain for a pool of `parts`.
pub(crate) fn choose(
    parts: &[PartFile],
    choice: DomainChoice,
    journal_bytes: u64,
    read_only: bool,
    sysfs: &Path,
) -> Result<Chosen> {
    let all_devices = parts.iter().all(PartFile::is_device);
    if parts.iter().any(PartFile::is_device) && !all_devices {
        return Err(Error::Invalid {
            what: "parts",
            finding: "some are devices and some are files".into(),
            hint: "make all parts of one kind: they share one persistence domain",
        });
    }
    let chosen = choose_for_writer(parts, choice, journal_bytes, all_devices, sysfs);
    if read_only { Ok(read_only_view(chosen, all_devices)) } else { chosen }
}

/// A reader never changes a file, so no domain can be refused to it; it tells the one that a writer would get.
fn read_only_view(for_writer: Result<Chosen>, devices: bool) -> Chosen {
    let (domain, reason) = match for_writer {
        Ok(Chosen { domain, reason, .. }) => (domain, reason),
        Err(error) => (Domain::Process, format!("a writer would be refused: {error}")),
    };
    let backing = if devices { Backing::SharedReadOnly } else { Backing::Private };
    Chosen { domain, backing, reason }
}

fn choose_for_writer(
    parts: &[PartFile],
    choice: DomainChoice,
    journal_bytes: u64,
    all_devices: bool,
    sysfs: &Path,
) -> Result<Chosen> {
    let path = parts.first().map_or_else(PathBuf::new, |part| part.path.clone());
    let shared = |domain, reason: &str| Ok(Chosen { domain, backing: Backing::Shared, reason: reason.into() });
    match choice {
        DomainChoice::Process => {
            shared(Domain::Process, "the process domain was asked for by name: NOT safe against power loss")
        }
        DomainChoice::DaxEmulated => shared(
            Domain::DaxEmulated,
            "dax-emulated was asked for by name: the instructions of dax on any file, NOT durable, for measurements",
        ),
        DomainChoice::Block if all_devices => Err(Error::Unavailable {
            path,
            domain: Domain::Block,
            finding: "a devdax device has no write(2) and no fsync(2)".into(),
            hint: "use auto, dax or eadr on it",
        }),
        DomainChoice::Block => block(path, journal_bytes, "the block domain was asked for by name".into()),
        DomainChoice::Auto | DomainChoice::Dax | DomainChoice::Eadr => {
            on_persistent_memory(parts, choice, journal_bytes, FlushInstruction::detect(), sysfs)
        }
    }
}

fn block(path: PathBuf, journal_bytes: u64, reason: String) -> Result<Chosen> {
    if journal_bytes == 0 {
        return Err(Error::Unavailable {
            path,
            domain: Domain::Block,
            finding: format!("the pool was created without a journal ({reason})"),
            hint: "put it on persistent memory, open it with --domain process (not safe against power loss), or copy its \
                   data into a pool that has a journal",
        });
    }
    Ok(Chosen { domain: Domain::Block, backing: Backing::Private, reason })
}

fn on_persistent_memory(
    parts: &[PartFile],
    choice: DomainChoice,
    journal_bytes: u64,
    flush: FlushInstruction,
    sysfs: &Path,
) -> Result<Chosen> {
    let path = parts.first().map_or_else(PathBuf::new, |part| part.path.clone());
    let devices = parts.iter().all(PartFile::is_device);
    let refusal = parts.iter().filter(|part| !part.is_device()).find_map(|part| sync_mapping_refusal(&part.file));
    if let Some(refusal) = refusal {
        let finding = format!("not on persistent memory: the kernel refuses MAP_SYNC ({refusal})");
        return match choice {
            DomainChoice::Auto => block(path, journal_bytes, finding),
            _ => Err(Error::Unavailable {
                path,
                domain: if choice == DomainChoice::Eadr { Domain::Eadr } else { Domain::Dax },
                finding,
                hint: "put the pool on a file system mounted with -o dax, or use the block domain",
            }),
        };
    }
    let medium = if devices { "a devdax device" } else { "the kernel accepts MAP_SYNC" };
    let backing = if devices { Backing::Shared } else { Backing::SharedSync };
    let caches_persist = parts.iter().all(|part| persistence_domain(part, sysfs).as_deref() == Some("cpu_cache"));
    let chosen = |domain, reason: String| Ok(Chosen { domain, backing, reason });
    match choice {
        DomainChoice::Auto | DomainChoice::Dax
            if flush == FlushInstruction::None && !(caches_persist && choice == DomainChoice::Auto) =>
        {
            without_flush(path, choice, journal_bytes, devices)
        }
        DomainChoice::Dax => chosen(Domain::Dax, format!("{medium}; the dax domain was asked for by name")),
        _ if caches_persist => {
            chosen(Domain::Eadr, format!("{medium}, and its region reports persistence_domain cpu_cache"))
        }
        DomainChoice::Eadr => Err(Error::Unavailable {
            path,
            domain: Domain::Eadr,
            finding: format!("{medium}, but its region does not report that CPU caches are persistent"),
            hint: "use the dax domain (or auto): lines are flushed then",
        }),
        _ => chosen(Domain::Dax, format!("{medium}; CPU caches are not reported as persistent")),
    }
}

/// Refuses to write to the device at `path` where the processor cannot write its cache lines back.
pub(crate) fn verify_flush(path: &Path) -> Result<()> {
    match FlushInstruction::detect() {
        FlushInstruction::None => without_flush(path.to_owned(), DomainChoice::Dax, 0, true).map(drop),
        _ => Ok(()),
    }
}

/// Persistent memory under a processor that cannot write its cache lines back: `block` for files if any domain will do.
fn without_flush(path: PathBuf, choice: DomainChoice, journal_bytes: u64, devices: bool) -> Result<Chosen> {
    let finding = "this processor has no instruction that writes a cache line back (clwb, clflushopt or clflush): a store \
                   would never be known to be persistent";
    if choice == DomainChoice::Auto && !devices {
        return block(path, journal_bytes, format!("persistent memory, but {finding}"));
    }
    let hint = if devices {
        "make a file system on the device (fsdax) and use the block domain there"
    } else {
        "use the block domain (or auto), which syncs the file"
    };
    Err(Error::Unavailable { path, domain: Domain::Dax, finding: finding.into(), hint })
}

/// Why the kernel refuses a synchronous mapping of `file`; `None` when it grants one.
fn sync_mapping_refusal(file: &File) -> Option<rustix::io::Errno> {
    let probe = Mapping::reserve(PAGE_BYTES, Backing::SyncProbe).ok()?;
    probe.extend(Some(file.as_fd()), PAGE_BYTES).err()
}

/// Folder of the device of `part`, with all links resolved.
fn device_folder(part: &PartFile, sysfs: &Path) -> Option<PathBuf> {
    let found = part.file.metadata().ok()?;
    let (class, number) = if part.is_device() { ("char", found.rdev()) } else { ("block", found.dev()) };
    fs::canonicalize(sysfs.join(format!("dev/{class}/{}:{}", major(number), minor(number)))).ok()
}

/// The value of the file `name` in the folder of the part's device or the nearest folder above that has it. A mapped
/// device (LVM) answers when all devices below it agree.
fn device_attribute(folder: &Path, name: &str, depth: usize) -> Option<String> {
    if let Some(text) = folder.ancestors().find_map(|above| fs::read_to_string(above.join(name)).ok()) {
        return Some(text.trim().to_owned());
    }
    if depth == 0 {
        return None;
    }
    let mut below =
        fs::read_dir(folder.join("slaves")).ok()?.filter_map(|entry| fs::canonicalize(entry.ok()?.path()).ok());
    let first = device_attribute(&below.next()?, name, depth - 1)?;
    below.all(|folder| device_attribute(&folder, name, depth - 1).as_ref() == Some(&first)).then_some(first)
}

/// The persistence domain that the platform reports for `part`: `cpu_cache`, `memory_controller`, or nothing.
pub(crate) fn persistence_domain(part: &PartFile, sysfs: &Path) -> Option<String> {
    device_attribute(&device_folder(part, sysfs)?, "persistence_domain", 4)
}

/// The NUMA node of `part`, where its device reports one.
pub(crate) fn numa_node(part: &PartFile, sysfs: &Path) -> Option<u32> {
    device_attribute(&device_folder(part, sysfs)?, "numa_node", 4)?.parse().ok()
}

/// Name of the file system of `part`.
pub(crate) fn file_system(part: &PartFile) -> String {
    if part.is_device() {
        return "devdax".into();
    }
    let Ok(found) = fstatfs(&part.file) else { return "unknown".into() };
    file_system_name(found.f_type.cast_unsigned())
}

/// The name of a file system by the number that statfs(2) has for it.
pub(crate) fn file_system_name(kind: u64) -> String {
    let kind = kind & 0xFFFF_FFFF;
    let known = [
        (0xEF53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683E, "btrfs"),
        (0x0102_1994, "tmpfs"),
        (0x8584_58F6, "ramfs"),
        (0x794C_7630, "overlay"),
        (0x6573_5546, "fuse"),
        (0xF2F5_2010, "f2fs"),
        (0x2FC1_2FC1, "zfs"),
        (0x6969, "nfs"),
        (0xFF53_4D42, "cifs"),
        (0x0102_1997, "9p"),
    ];
    known
        .iter()
        .find(|(number, _)| *number == kind)
        .map_or_else(|| format!("{kind:#x}"), |(_, name)| (*name).to_owned())
}

/// Whether `part` is on a tmpfs with pages of 2 MiB where possible. The block size of the file tells.
pub(crate) fn has_huge_pages(part: &PartFile) -> bool {
    file_system(part) == "tmpfs" && part.file.metadata().is_ok_and(|found| found.blksize() >= 2 << 20)
}

/// A warning about a durable pool on `file_system`; none for file systems on disks.
pub(crate) fn file_system_warning(file_system: &str) -> Option<String> {
    match file_system {
        "tmpfs" | "ramfs" => {
            Some(format!("{file_system} is volatile memory: nothing in this pool survives power loss"))
        }
        "nfs" | "cifs" | "9p" | "fuse" => Some(format!(
            "{file_system}: durability is what the server makes of fsync; locks may not reach other machines"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::part::PartKind;
    use std::os::unix::fs::symlink;

    /// A fake sysfs in which the device under `file` is a pmem namespace of a region.
    fn fake_sysfs(folder: &Path, file: &File, persistence: &str, node: &str) -> PathBuf {
        let sysfs = folder.join("sys");
        let region = sysfs.join("devices/ndbus0/region0");
        let device = region.join("namespace0.0/block/pmem0");
        fs::create_dir_all(&device).expect("device");
        fs::create_dir_all(sysfs.join("dev/block")).expect("dev");
        fs::write(region.join("persistence_domain"), format!("{persistence}\n")).expect("persistence_domain");
        fs::write(region.join("numa_node"), format!("{node}\n")).expect("numa_node");
        let number = file.metadata().expect("metadata").dev();
        symlink(device, sysfs.join(format!("dev/block/{}:{}", major(number), minor(number)))).expect("link");
        sysfs
    }

    #[test]
    fn the_region_above_the_device_tells_persistence_and_node() -> Result<()> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        let file = File::create_new(&path).expect("file");
        let sysfs = fake_sysfs(folder.path(), &file, "cpu_cache", "1");
        let part = PartFile::measure(&path, file, &sysfs)?;
        assert_eq!(persistence_domain(&part, &sysfs).as_deref(), Some("cpu_cache"));
        assert_eq!(numa_node(&part, &sysfs), Some(1));
        assert_eq!(persistence_domain(&part, Path::new("/nonexistent")), None);
        Ok(())
    }

    #[test]
    fn without_a_flush_instruction_there_is_no_dax() -> Result<()> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        let file = File::create_new(&path).expect("file");
        let sysfs = fake_sysfs(folder.path(), &file, "memory_controller", "0");
        // A regular file that passes for a device: the kernel is not asked for a synchronous mapping then.
        let kind = PartKind::Device { align_bytes: 4096 };
        let parts = [PartFile { path: path.clone(), file, kind, len: 1 << 20 }];
        let choose = |choice, flush| on_persistent_memory(&parts, choice, 1 << 20, flush, &sysfs);
        for choice in [DomainChoice::Auto, DomainChoice::Dax] {
            assert_eq!(choose(choice, FlushInstruction::Clflush)?.domain, Domain::Dax);
            let refused = choose(choice, FlushInstruction::None).expect_err("nothing would ever be persistent");
            assert!(matches!(refused, Error::Unavailable { domain: Domain::Dax, .. }), "{refused}");
            assert!(refused.to_string().contains("no instruction that writes a cache line back"), "{refused}");
        }
        let on_file = |choice, journal| without_flush(path.clone(), choice, journal, false);
        assert_eq!(on_file(DomainChoice::Auto, 1 << 20)?.domain, Domain::Block);
        assert!(on_file(DomainChoice::Auto, 0).is_err(), "no journal");
        assert!(on_file(DomainChoice::Dax, 1 << 20).is_err(), "asked for by name");
        Ok(())
    }

    #[test]
    fn an_ordinary_file_gets_the_block_domain_and_nothing_it_did_not_ask_for() -> Result<()> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("file");
        file.set_len(PAGE_BYTES).expect("length");
        if sync_mapping_refusal(&file).is_none() {
            println!("skipped: the temporary folder is on persistent memory");
            return Ok(());
        }
        let sysfs = fake_sysfs(folder.path(), &file, "cpu_cache", "0");
        let parts = [PartFile::measure(&path, file, &sysfs)?];
        let choose = |choice, journal| choose(&parts, choice, journal, false, &sysfs);
        assert_eq!(choose(DomainChoice::Auto, 1 << 20)?.domain, Domain::Block);
        assert_eq!(choose(DomainChoice::Process, 0)?.domain, Domain::Process);
        for refused in [DomainChoice::Dax, DomainChoice::Eadr] {
            let text = choose(refused, 1 << 20).expect_err("no persistent memory").to_string();
            assert!(text.contains("MAP_SYNC") && text.contains("block domain"), "{text}");
        }
        let text = choose(DomainChoice::Auto, 0).expect_err("no journal").to_string();
        assert!(text.contains("without a journal"), "{text}");
        Ok(())
    }
}
