//! Operations on names: look up, make, link, remove, rename.

use crate::access::{Caller, EXECUTE, WRITE};
use crate::core::Core;
use crate::error::{Refusal, Result};
use crate::inode::{Attributes, Entry, FileKind, Folder, LINK_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX, ROOT};
use crate::op::{Action, Op};
use crate::requests::Files;
use crate::volume::Volume;

/// A file that is to be made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewFile<'n> {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits.
    pub permissions: u32,
    /// Device number of a device.
    pub device: u32,
    /// Target of a symbolic link.
    pub target: &'n [u8],
}

impl NewFile<'static> {
    /// A file without a target.
    #[must_use]
    pub const fn new(kind: FileKind, permissions: u32) -> Self {
        Self { kind, permissions, device: 0, target: b"" }
    }

    /// A device.
    #[must_use]
    pub const fn device(kind: FileKind, permissions: u32, device: u32) -> Self {
        Self { kind, permissions, device, target: b"" }
    }
}

impl<'n> NewFile<'n> {
    /// A symbolic link.
    #[must_use]
    pub const fn link(target: &'n [u8]) -> Self {
        Self { kind: FileKind::Link, permissions: 0o777, device: 0, target }
    }
}

/// How a rename treats a file that has the new name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// It is removed.
    #[default]
    Replace,
    /// The rename is refused.
    KeepOther,
    /// It gets the old name.
    Exchange,
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Refusal::NameTooLong.into());
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(Refusal::Invalid.into());
    }
    Ok(())
}

/// The folder `ino`; a folder without a name takes no new entries.
fn folder(core: &mut Core, ino: u64) -> Result<(Attributes, &Folder)> {
    let inode = core.file(ino)?;
    let attributes = inode.attributes;
    let folder = inode.folder().ok_or(Refusal::NotFolder)?;
    Ok((attributes, folder))
}

/// The folder `parent`, in which the caller may make an entry `name` that does not exist.
fn vacancy(core: &mut Core, caller: &Caller, parent: u64, name: &[u8]) -> Result<Attributes> {
    check_name(name)?;
    let (attributes, folder) = folder(core, parent)?;
    let is_taken = folder.get(name).is_some();
    if is_taken {
        return Err(Refusal::Exists.into());
    }
    if attributes.links == 0 {
        return Err(Refusal::NotFound.into());
    }
    caller.need(&attributes, WRITE | EXECUTE)?;
    Ok(attributes)
}

/// The entry `name` of `parent`, which the caller may take out.
fn removable(core: &mut Core, caller: &Caller, parent: u64, name: &[u8]) -> Result<(Entry, Attributes)> {
    check_name(name)?;
    let (attributes, folder) = folder(core, parent)?;
    let entry = folder.get(name).ok_or(Refusal::NotFound)?;
    let file = core.attributes(entry.ino)?;
    caller.need_removal(&attributes, &file)?;
    Ok((entry, file))
}

impl Volume {
    /// The file `name` in the folder `parent`; `.` and `..` too.
    ///
    /// # Errors
    /// No such name, no folder, no permission.
    pub fn lookup(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<Attributes> {
        let mut core = self.inner.core();
        if name.len() > NAME_BYTES_MAX {
            return Err(Refusal::NameTooLong.into());
        }
        let (attributes, folder) = folder(&mut core, parent)?;
        caller.need(&attributes, EXECUTE)?;
        let ino = match name {
            b"." => parent,
            b".." => folder.parent,
            name => folder.get(name).ok_or(Refusal::NotFound)?.ino,
        };
        core.attributes(ino)
    }

    /// Makes a file in the folder `parent`. It is open once more for [`unpin`](Self::unpin) when `pin` is set.
    ///
    /// # Errors
    /// The name is in use or not valid; no permission; no space.
    pub fn make_file(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new: &NewFile<'_>,
        pin: bool,
    ) -> Result<Attributes> {
        let is_device = matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice);
        if is_device && !caller.is_root() {
            return Err(Refusal::NotPermitted.into());
        }
        if new.kind == FileKind::Link && (new.target.is_empty() || new.target.len() > LINK_BYTES_MAX) {
            return Err(if new.target.is_empty() { Refusal::NotFound } else { Refusal::NameTooLong }.into());
        }
        let plan = |core: &mut Core, at| {
            let folder = vacancy(core, caller, parent, name)?;
            if new.kind == FileKind::Folder && folder.links >= LINKS_MAX {
                return Err(Refusal::TooManyLinks.into());
            }
            // A folder with the set-group bit hands its group down, to folders the bit too.
            let inherits = folder.permissions() & 0o2000 != 0;
            let gid = if inherits { folder.gid } else { caller.gid };
            let passed_on = if inherits && new.kind == FileKind::Folder { 0o2000 } else { 0 };
            let mode = new.kind.mode_bits() | (new.permissions & 0o7777) | passed_on;
            let (ino, target) = (self.number(core)?, new.target.to_vec());
            let name = name.to_vec();
            let action = Action::Make { parent, name, mode, uid: caller.uid, gid, device: new.device, target };
            Ok((Op { ino, at, action }, ino))
        };
        self.commit(plan, |core, ino| {
            if pin {
                *core.pins.entry(ino).or_default() += 1;
            }
            core.attributes(ino)
        })
    }

    /// The number of a new file: the one that was told before a takeover lost the file, if no other one can have it.
    fn number(&self, core: &Core) -> Result<u64> {
        match self.told {
            Some([told, _]) if told >= core.state.head.next_ino => Ok(told),
            Some(_) => Err(Refusal::Stale.into()),
            None => Ok(core.next_ino()),
        }
    }

    /// The files that up to two names lead to now.
    pub(crate) fn files_at(&self, names: &[(u64, &[u8])]) -> Files {
        let mut core = self.inner.core();
        let mut found = Files::default();
        for ((parent, name), file) in names.iter().zip(&mut found) {
            let entry = folder(&mut core, *parent).ok().and_then(|(_, folder)| folder.get(name));
            *file = entry.map_or(0, |entry| entry.ino);
        }
        found
    }

    /// Refuses a request that comes back, if its names led to other files when it was answered: an operation of a mount
    /// that is gone may have put them there.
    fn check_found(&self, found: Files) -> Result<()> {
        match self.told {
            Some(told) if told != found => Err(Refusal::Stale.into()),
            _ => Ok(()),
        }
    }

    /// Gives the file `ino` another name.
    ///
    /// # Errors
    /// A folder; a file without a name; as [`make_file`](Self::make_file).
    pub fn link(&self, caller: &Caller, ino: u64, parent: u64, name: &[u8]) -> Result<Attributes> {
        let plan = |core: &mut Core, at| {
            let file = core.attributes(ino)?;
            if file.is_folder() {
                return Err(Refusal::NotPermitted.into());
            }
            if file.links == 0 {
                return Err(Refusal::NotFound.into());
            }
            if file.links >= LINKS_MAX {
                return Err(Refusal::TooManyLinks.into());
            }
            vacancy(core, caller, parent, name)?;
            Ok((Op { ino, at, action: Action::Link { parent, name: name.to_vec() } }, ()))
        };
        self.commit(plan, |core, ()| core.attributes(ino))
    }

    /// Removes a name of a file that is no folder. The file goes with its last name and its last user.
    ///
    /// # Errors
    /// No such name; a folder; no permission.
    pub fn unlink(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.take_out(caller, parent, name, false).map(drop)
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// No such name; no folder; entries in it; no permission.
    pub fn remove_folder(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.take_out(caller, parent, name, true).map(drop)
    }

    /// The file whose name it was.
    pub(crate) fn take_out(&self, caller: &Caller, parent: u64, name: &[u8], is_folder: bool) -> Result<u64> {
        match name {
            b"." if is_folder => return Err(Refusal::Invalid.into()),
            b".." if is_folder => return Err(Refusal::NotEmpty.into()),
            _ => {}
        }
        let plan = |core: &mut Core, at| {
            let (entry, _) = removable(core, caller, parent, name)?;
            match (is_folder, entry.kind == FileKind::Folder) {
                (true, false) => return Err(Refusal::NotFolder.into()),
                (false, true) => return Err(Refusal::IsFolder.into()),
                _ => {}
            }
            if is_folder && !folder(core, entry.ino)?.1.is_empty() {
                return Err(Refusal::NotEmpty.into());
            }
            self.check_found([entry.ino, 0])?;
            let keep = core.is_pinned(entry.ino);
            Ok((Op { ino: parent, at, action: Action::Remove { name: name.to_vec(), keep } }, entry.ino))
        };
        self.commit(plan, |_, ino| Ok(ino))
    }

    /// Moves an entry to another name, in one step: no file is ever absent or there twice.
    ///
    /// # Errors
    /// No such name; a folder into itself; a folder over a file or over entries; no permission.
    pub fn rename(&self, caller: &Caller, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Result<()> {
        self.move_entry(caller, from, to, mode).map(drop)
    }

    /// As [`rename`](Self::rename). The files that the names led to.
    pub(crate) fn move_entry(
        &self,
        caller: &Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        mode: RenameMode,
    ) -> Result<Files> {
        let plan = |core: &mut Core, at| {
            let (action, found) = plan_rename(core, caller, from, to, mode)?;
            self.check_found(found)?;
            Ok(action.map(|action| (Op { ino: from.0, at, action }, found)))
        };
        self.inner.commit_for(self.tag, &[], plan, |_, found| Ok(found), || Ok(Files::default()))
    }
}

/// The operation, and the files that the names lead to. `None` when they lead to the same file, and nothing happens.
fn plan_rename(
    core: &mut Core,
    caller: &Caller,
    from: (u64, &[u8]),
    to: (u64, &[u8]),
    mode: RenameMode,
) -> Result<(Option<Action>, Files)> {
    let (entry, file) = removable(core, caller, from.0, from.1)?;
    check_name(to.1)?;
    let (target, folder) = folder(core, to.0)?;
    let old = folder.get(to.1);
    if target.links == 0 {
        return Err(Refusal::NotFound.into());
    }
    match (mode, old) {
        (RenameMode::KeepOther, Some(_)) => return Err(Refusal::Exists.into()),
        (RenameMode::Exchange, None) => return Err(Refusal::NotFound.into()),
        _ => {}
    }
    caller.need(&target, WRITE | EXECUTE)?;
    let is_folder = entry.kind == FileKind::Folder;
    if is_folder && is_within(core, to.0, entry.ino)? {
        return Err(Refusal::Invalid.into());
    }
    if is_folder && from.0 != to.0 {
        // Its `..` changes, so the caller must be allowed to write it.
        caller.need(&file, WRITE)?;
    }
    if let Some(old) = old {
        let other = core.attributes(old.ino)?;
        caller.need_removal(&target, &other)?;
        if old.ino == entry.ino {
            return Ok((None, [entry.ino, old.ino]));
        }
        check_target(core, entry, old, from.0, mode)?;
    } else if is_folder && from.0 != to.0 && target.links >= LINKS_MAX {
        return Err(Refusal::TooManyLinks.into());
    }
    let keep = old.is_some_and(|old| core.is_pinned(old.ino));
    let exchange = mode == RenameMode::Exchange;
    let action = Action::Rename { name: from.1.to_vec(), to: to.0, to_name: to.1.to_vec(), exchange, keep };
    Ok((Some(action), [entry.ino, old.map_or(0, |old| old.ino)]))
}

/// Whether `entry` may take the place of `old`, or change places with it.
fn check_target(core: &mut Core, entry: Entry, old: Entry, from: u64, mode: RenameMode) -> Result<()> {
    let (is_folder, was_folder) = (entry.kind == FileKind::Folder, old.kind == FileKind::Folder);
    if mode == RenameMode::Exchange {
        let goes_into_itself = was_folder && is_within(core, from, old.ino)?;
        return if goes_into_itself { Err(Refusal::Invalid.into()) } else { Ok(()) };
    }
    match (is_folder, was_folder) {
        (true, false) => Err(Refusal::NotFolder.into()),
        (false, true) => Err(Refusal::IsFolder.into()),
        (true, true) if !folder(core, old.ino)?.1.is_empty() => Err(Refusal::NotEmpty.into()),
        _ => Ok(()),
    }
}

/// Whether folder `ino` is `above` or below it.
fn is_within(core: &mut Core, mut ino: u64, above: u64) -> Result<bool> {
    // Damage could lead in a circle: no path has more folders than there are files.
    for _ in 0..=core.state.head.files {
        if ino == above {
            return Ok(true);
        }
        if ino == ROOT {
            return Ok(false);
        }
        ino = folder(core, ino)?.1.parent;
    }
    Err(crate::error::damaged("namespace", format!("folder {above} is below itself")))
}
