//! Pools of several parts: which file is which, and how part 0 finds the others.
//!
//! - Every part's header carries the uuid of the set, its own uuid, and the table of all part uuids and paths.
//! - A further part is looked for at the caller's path, else at the table's, else by convention: part `N` of
//!   `name.pool` is `name.pool.N`. Paths that follow the convention are not stored. So a set that is moved or copied as
//!   a whole (all names changed alike) finds its own parts and not those of the original.
//! - A part is accepted only if set uuid, number and part uuid agree with part 0's table. It must also have taken part
//!   in the same life of the pool: every open writes its boot number to all parts. So a file of another pool, a swapped
//!   order and a part from an older copy are each refused by name. That happens before the journal writes anything into
//!   them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use lodestone_width::exact_u16;

use crate::error::{Error, Result};
use crate::pool::PoolOptions;
use crate::pool::header::{self, HeaderFault};
use crate::pool::layout::{PART_PATH_BYTES, PARTS_MAX, PartHeader, STATE_BEGINNING, StateSlot};
use crate::pool::lock::Hold;
use crate::pool::part::PartFile;
use crate::pool::uuid::Uuid;

/// Path of part `index` of the pool at `path` by convention.
pub(crate) fn conventional_path(path: &Path, index: usize) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(format!(".{index}"));
    PathBuf::from(name)
}

/// The paths of all parts of a new pool.
pub(crate) fn paths_of_new(path: &Path, options: &PoolOptions) -> Result<Vec<PathBuf>> {
    let mut paths = vec![path.to_owned()];
    paths.extend(options.parts.iter().cloned());
    if paths.len() > PARTS_MAX {
        return Err(Error::Invalid {
            what: "parts",
            finding: format!("{} parts", paths.len()),
            hint: "a pool has at most 16 parts",
        });
    }
    for (index, one) in paths.iter().enumerate() {
        if paths[..index].contains(one) {
            return Err(Error::Invalid {
                what: "parts",
                finding: format!("{} is named twice", one.display()),
                hint: "name each part once",
            });
        }
    }
    Ok(paths)
}

/// The entry of the part table for a part created at `part`: empty for the conventional path, else relative to the
/// folder of part 0 where possible, else absolute.
pub(crate) fn stored_path(path: &Path, part: &Path, index: usize) -> Result<[u8; PART_PATH_BYTES]> {
    let mut stored = [0; PART_PATH_BYTES];
    if index == 0 || part == conventional_path(path, index) {
        return Ok(stored);
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let text = match part.strip_prefix(folder) {
        Ok(relative) if !folder.as_os_str().is_empty() || part.is_relative() => relative.to_owned(),
        _ => std::path::absolute(part).map_err(|e| Error::io(part, "making the path absolute", "check the path", e))?,
    };
    let bytes = text.as_os_str().as_bytes();
    if bytes.len() > PART_PATH_BYTES {
        return Err(Error::Invalid {
            what: "parts",
            finding: format!("the path {} has {} bytes", text.display(), bytes.len()),
            hint: "use at most 192 bytes",
        });
    }
    stored[..bytes.len()].copy_from_slice(bytes);
    Ok(stored)
}

/// Where part `index` may lie, best guess first.
fn candidates(path: &Path, main: &PartHeader, options: &PoolOptions, index: usize) -> Vec<PathBuf> {
    if let Some(named) = options.parts.get(index - 1) {
        return vec![named.clone()];
    }
    let mut found = Vec::new();
    let stored = &main.part_paths[index];
    let len = stored.iter().position(|byte| *byte == 0).unwrap_or(stored.len());
    if len > 0 {
        let stored = PathBuf::from(OsString::from_vec(stored[..len].to_vec()));
        found.push(path.parent().unwrap_or(Path::new("")).join(stored));
    }
    found.push(conventional_path(path, index));
    found
}

/// Opens and verifies all further parts of the set whose part 0 is `first`.
pub(crate) fn open_others(
    first: PartFile,
    main: &PartHeader,
    options: &PoolOptions,
    hold: Hold,
) -> Result<(Vec<PartFile>, Vec<PartHeader>)> {
    let path = first.path.clone();
    if main.part_index != 0 {
        let finding =
            format!("this is part {} of {} of the pool {}", main.part_index, main.part_count, Uuid(main.set_uuid));
        let hint = "open the pool by the path of its part 0; that finds the others";
        return Err(HeaderFault::new(72, finding, "part 0", hint).into_error(&path));
    }
    if !options.parts.is_empty() && options.parts.len() + 1 != usize::from(main.part_count) {
        return Err(Error::Invalid {
            what: "parts",
            finding: format!("{} paths for a pool of {} parts", options.parts.len() + 1, main.part_count),
            hint: "name all further parts, or none",
        });
    }
    let (mut parts, mut headers) = (vec![first], vec![*main]);
    for index in 1..usize::from(main.part_count) {
        let (part, header) = open_one(&path, main, options, hold, index)?;
        parts.push(part);
        headers.push(header);
    }
    Ok((parts, headers))
}

/// The file that part `index` should be in.
pub(crate) fn find_part(path: &Path, main: &PartHeader, options: &PoolOptions, index: usize) -> Result<PathBuf> {
    let wanted = Uuid(main.part_uuids[index]);
    let candidates = candidates(path, main, options, index);
    if let Some(found) = candidates.iter().find(|candidate| candidate.exists()) {
        return Ok(found.clone());
    }
    let tried: Vec<String> = candidates.iter().map(|tried| tried.display().to_string()).collect();
    let finding = format!("part {index} of the pool, with uuid {wanted}, is missing; looked at {}", tried.join(", "));
    let hint = "if it was moved, move it back, or beside part 0 under the last of these names; else restore a backup";
    Err(HeaderFault::new(184, finding, "all parts of the pool", hint).into_error(path))
}

fn open_one(
    path: &Path,
    main: &PartHeader,
    options: &PoolOptions,
    hold: Hold,
    index: usize,
) -> Result<(PartFile, PartHeader)> {
    let found = find_part(path, main, options, index)?;
    let part = PartFile::open(&found, hold, &options.sysfs_root)?;
    let header = part.verified_header(hold != Hold::Write)?;
    verify_identity(&found, main, &header, index)?;
    Ok((part, header))
}

/// Refuses a part that is not part `index` of the pool whose part 0 has the header `main`.
pub(crate) fn verify_identity(found: &Path, main: &PartHeader, header: &PartHeader, index: usize) -> Result<()> {
    let wanted = Uuid(main.part_uuids[index]);
    let is_there = |offset, finding: String| {
        let expected = format!("part {index} ({wanted}) of the pool {}", Uuid(main.set_uuid));
        let hint =
            "parts of different pools or in the wrong order: put the right file there, or name all parts in order";
        Err(HeaderFault::new(offset, finding, expected, hint).into_error(found))
    };
    if header.set_uuid != main.set_uuid {
        return is_there(40, format!("a part of another pool, {}", Uuid(header.set_uuid)));
    }
    if usize::from(header.part_index) != index || header.part_uuid != main.part_uuids[index] {
        return is_there(56, format!("part {} ({})", header.part_index, Uuid(header.part_uuid)));
    }
    Ok(())
}

/// Which parts come from another life than the set, each as the refusal of an open. `states` are the states after the
/// replay of the journal, `before` those without it. Damaged states are ignored.
///
/// An open that died half-way leaves further parts one ahead of part 0, and marked so. The oldest records of a journal
/// are of the life after the one that the files were last brought up to: so the beginning of a life in it makes no file
/// newer by two.
pub(crate) fn other_lives(
    parts: &[PartFile],
    before: &[Option<StateSlot>],
    states: &[Option<StateSlot>],
) -> Vec<Error> {
    let main = states.first().copied().flatten();
    let mut others = Vec::new();
    for (index, (part, state)) in parts.iter().zip(states).enumerate() {
        let Some(state) = state else { continue };
        let before = before.get(index).copied().flatten().filter(|before| before.boot.saturating_add(1) < state.boot);
        let is_of = |main: StateSlot| {
            let is_announced = state.flags & STATE_BEGINNING != 0 && state.boot == main.boot.saturating_add(1);
            state.boot == main.boot || is_announced
        };
        if let Some(before) = before {
            others.push(other_life(&part.path, before.boot, format!("the journal begins in life {}", state.boot)));
        } else if let Some(main) = main.filter(|main| !is_of(*main)) {
            others.push(other_life(&part.path, state.boot, format!("part 0 in life {}", main.boot)));
        }
    }
    others
}

fn other_life(path: &Path, boot: u64, set: String) -> Error {
    let finding = format!("this part was last open in life {boot} of the pool, {set}");
    let hint = "one of them is an older copy: restore all parts of one backup together";
    let offset = crate::pool::layout::STATE_OFFSETS[0];
    HeaderFault::new(offset, finding, "parts of one life", hint).into_error(path)
}

/// Fills identities and the part table into `header`.
pub(crate) fn identify(header: &mut PartHeader, set: Uuid, uuids: &[Uuid], paths: &[[u8; PART_PATH_BYTES]]) {
    header.set_uuid = set.0;
    header.part_count = exact_u16(uuids.len());
    for (index, uuid) in uuids.iter().enumerate() {
        header.part_uuids[index] = uuid.0;
        header.part_paths[index] = paths[index];
    }
    header.part_uuid = uuids[usize::from(header.part_index)].0;
    header::seal(header);
}

/// The file name of `path`, for messages and temporary names.
pub(crate) fn file_name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or(OsStr::new("pool"))
}
