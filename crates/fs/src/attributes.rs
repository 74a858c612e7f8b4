//! Operations on attributes, extended ones too, and on users of files.

use crate::access::{Caller, READ, WRITE, without_set_id};
use crate::core::Core;
use crate::error::{Refusal, Result};
use crate::inode::{ATTRIBUTE_BYTES_MAX, Attributes, Content, FileKind, NAME_BYTES_MAX, Stamp};
use crate::op::{Action, Op};
use crate::volume::Volume;

/// Nanoseconds of a day.
const DAY_NS: Stamp = 86_400_000_000_000;

/// A time that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The present one.
    Now,
    /// This one.
    At(Stamp),
}

/// Attributes that are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permission bits.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub atime: Option<NewTime>,
    /// Last change of the content.
    pub mtime: Option<NewTime>,
}

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExtraMode {
    /// Whether it is there or not.
    #[default]
    Set,
    /// Only if it is not there.
    Create,
    /// Only if it is there.
    Replace,
}

/// Room in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages.
    pub pages: u64,
    /// Pages that no file has.
    pub free: u64,
    /// Pages that users may take: free ones without the reserve.
    pub available: u64,
    /// Files.
    pub files: u64,
}

fn is_known_space(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"security."].iter().any(|space| name.starts_with(space) && name.len() > space.len())
}

/// Whether a caller may see and change attributes of this name at all.
fn check_space(caller: &Caller, file: &Attributes, name: &[u8], wanted: u32) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Refusal::Range.into());
    }
    if !is_known_space(name) {
        return Err(Refusal::NotSupported.into());
    }
    if name.starts_with(b"trusted.") && !caller.is_root() {
        return Err(if wanted == READ { Refusal::NoAttribute } else { Refusal::NotPermitted }.into());
    }
    if name.starts_with(b"user.") {
        let has_content = matches!(file.kind(), FileKind::File | FileKind::Folder);
        if !has_content {
            return Err(if wanted == READ { Refusal::NoAttribute } else { Refusal::NotPermitted }.into());
        }
        return caller.need(file, wanted);
    }
    if wanted == WRITE { caller.need_owner(file) } else { Ok(()) }
}

impl Volume {
    /// The attributes of the file, as `stat` tells them.
    ///
    /// # Errors
    /// No such file.
    pub fn attributes(&self, ino: u64) -> Result<Attributes> {
        self.inner.core().attributes(ino)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// No link.
    pub fn read_link(&self, ino: u64) -> Result<Vec<u8>> {
        match &self.inner.core().file(ino)?.content {
            Content::Link(target) => Ok(target.clone()),
            _ => Err(Refusal::Invalid.into()),
        }
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// No such file; no permission.
    pub fn set_attributes(&self, caller: &Caller, ino: u64, changes: &Changes) -> Result<Attributes> {
        let plan = |core: &mut Core, at| {
            let file = core.attributes(ino)?;
            check_changes(caller, &file, changes)?;
            let stamp = |time: Option<NewTime>| time.map(|time| if let NewTime::At(set) = time { set } else { at });
            let mut mode = changes.permissions.map(|mode| caller.chmod(&file, mode & 0o7777));
            let changes_owner = changes.uid.is_some() || changes.gid.is_some();
            if changes_owner && mode.is_none() && !file.is_folder() {
                // A file that changes hands does not run in the name of its new owner.
                mode = Some(without_set_id(file.permissions())).filter(|mode| *mode != file.permissions());
            }
            let (uid, gid) = (changes.uid, changes.gid);
            let (atime, mtime) = (stamp(changes.atime), stamp(changes.mtime));
            Ok((Op { ino, at, action: Action::Set { mode, uid, gid, atime, mtime, is_read: false } }, ()))
        };
        self.commit(plan, |core, ()| core.attributes(ino))
    }

    /// The file was read: its access time changes at most once a day, or when it is not newer than the last change.
    pub(crate) fn touch_read(&self, ino: u64) -> Result<()> {
        let plan = |core: &mut Core, at| {
            let is_recent = is_recent_read(&core.attributes(ino)?, at);
            let (mode, uid, gid, mtime) = (None, None, None, None);
            let action = Action::Set { mode, uid, gid, atime: Some(at), mtime, is_read: true };
            Ok((!is_recent).then_some((Op { ino, at, action }, ())))
        };
        self.inner.commit_or_not(&[], plan, |_, ()| Ok(()), || Ok(()))
    }

    /// Whether a read now would change the access time.
    pub(crate) fn notes_read(&self, ino: u64) -> Result<bool> {
        let mut core = self.inner.core();
        let at = core.time(self.inner.options.clock);
        Ok(!is_recent_read(&core.attributes(ino)?, at))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// None of this name; no permission.
    pub fn extra(&self, caller: &Caller, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        let mut core = self.inner.core();
        let file = core.file(ino)?;
        check_space(caller, &file.attributes, name, READ)?;
        Ok(file.extra.get(name).ok_or(Refusal::NoAttribute)?.clone())
    }

    /// Names of extended attributes.
    ///
    /// # Errors
    /// No such file.
    pub fn extra_names(&self, caller: &Caller, ino: u64) -> Result<Vec<Vec<u8>>> {
        let mut core = self.inner.core();
        let names = core.file(ino)?.extra.keys();
        let is_shown =
            |name: &&Vec<u8>| !crate::cluster::is_own(name) && (caller.is_root() || !name.starts_with(b"trusted."));
        Ok(names.filter(is_shown).cloned().collect())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// A name outside `user.`, `trusted.` and `security.`; a value that is too long; no permission.
    pub fn set_extra(&self, caller: &Caller, ino: u64, name: &[u8], value: &[u8], mode: ExtraMode) -> Result<()> {
        if value.len() > ATTRIBUTE_BYTES_MAX {
            return Err(Refusal::AttributeTooLarge.into());
        }
        let plan = |core: &mut Core, at| {
            let file = core.file(ino)?;
            check_space(caller, &file.attributes, name, WRITE)?;
            match (mode, file.extra.contains_key(name)) {
                (ExtraMode::Create, true) => return Err(Refusal::Exists.into()),
                (ExtraMode::Replace, false) => return Err(Refusal::NoAttribute.into()),
                _ => {}
            }
            let action = Action::Extra { name: name.to_vec(), value: Some(value.to_vec()) };
            Ok((Op { ino, at, action }, ()))
        };
        self.commit(plan, |_, ()| Ok(()))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// None of this name; no permission.
    pub fn remove_extra(&self, caller: &Caller, ino: u64, name: &[u8]) -> Result<()> {
        let plan = |core: &mut Core, at| {
            let file = core.file(ino)?;
            check_space(caller, &file.attributes, name, WRITE)?;
            if !file.extra.contains_key(name) {
                return Err(Refusal::NoAttribute.into());
            }
            Ok((Op { ino, at, action: Action::Extra { name: name.to_vec(), value: None } }, ()))
        };
        self.commit(plan, |_, ()| Ok(()))
    }

    /// The file is used: it stays when its last name goes.
    pub fn pin(&self, ino: u64) {
        *self.inner.core().pins.entry(ino).or_default() += 1;
    }

    /// `count` users of the file are gone. A file without a name goes with the last of them.
    ///
    /// # Errors
    /// A device that failed.
    pub fn unpin(&self, ino: u64, count: u64) -> Result<()> {
        let plan = |core: &mut Core, at| {
            if core.is_pinned(ino) {
                return Ok(None);
            }
            let is_orphan = core.state.find(ino)?.is_some_and(|file| file.attributes.links == 0);
            Ok(is_orphan.then_some((Op { ino, at, action: Action::Forget }, ())))
        };
        {
            let mut core = self.inner.core();
            let left = core.pins.get(&ino).map_or(0, |pins| pins.saturating_sub(count));
            if left > 0 {
                core.pins.insert(ino, left);
                return Ok(());
            }
            core.pins.remove(&ino);
            // Most files still have a name.
            if core.state.find(ino)?.is_none_or(|file| file.attributes.links > 0) {
                return Ok(());
            }
        }
        self.inner.commit_or_not(&[], plan, |_, ()| Ok(()), || Ok(()))
    }

    /// Room in the volume.
    #[must_use]
    pub fn room(&self) -> Room {
        let core = self.inner.core();
        let space = &core.state.space;
        // Pages in quarantine count as free: a write that needs them ends it.
        let free = space.pages() - 1 - space.used();
        let available = free.saturating_sub(crate::content::reserve_pages(space.pages()));
        Room {
            page_bytes: self.inner.page_bytes(),
            pages: space.pages() - 1,
            free,
            available,
            files: core.state.head.files,
        }
    }
}

/// Whether a read at `at` leaves the access time as it is.
pub(crate) fn is_recent_read(file: &Attributes, at: Stamp) -> bool {
    file.atime > file.mtime && file.atime > file.ctime && at - file.atime < DAY_NS
}

fn check_changes(caller: &Caller, file: &Attributes, changes: &Changes) -> Result<()> {
    if changes.permissions.is_some() {
        caller.need_owner(file)?;
    }
    if changes.uid.is_some() || changes.gid.is_some() {
        caller.need_chown(file, changes.uid, changes.gid)?;
    }
    let sets = |time: Option<NewTime>| matches!(time, Some(NewTime::At(_)));
    if sets(changes.atime) || sets(changes.mtime) {
        caller.need_owner(file)?;
    } else if (changes.atime.is_some() || changes.mtime.is_some()) && caller.need_owner(file).is_err() {
        caller.need(file, WRITE)?;
    }
    Ok(())
}
