//! Who may do what: owners, groups, the sticky bit and set-id bits.
//!
//! A mount lets the kernel check (it knows all groups of a process). The library checks here.

use crate::error::{Refusal, Result};
use crate::inode::Attributes;

/// May be read.
pub const READ: u32 = 4;
/// May be changed.
pub const WRITE: u32 = 2;
/// May be executed, or searched if it is a folder.
pub const EXECUTE: u32 = 1;

/// In whose name an operation is done.
///
/// ```
/// use lodestone_fs::Caller;
///
/// assert!(Caller::root().is_root());
/// let caller = Caller { uid: 1000, gid: 1000, groups: vec![27], ..Caller::default() };
/// assert!(caller.is_in(27) && !caller.is_in(0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Whether the kernel has checked already.
    pub is_checked: bool,
}

impl Caller {
    /// The superuser.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// A caller that the kernel has checked.
    #[must_use]
    pub fn checked(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Vec::new(), is_checked: true }
    }

    /// Whether it is the superuser.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it may do everything, as far as this crate knows.
    const fn passes(&self) -> bool {
        self.is_checked || self.uid == 0
    }

    /// Whether it is in the group.
    #[must_use]
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether it has all of `wanted`, of [`READ`], [`WRITE`] and [`EXECUTE`].
    #[must_use]
    pub fn may(&self, file: &Attributes, wanted: u32) -> bool {
        let mode = file.permissions();
        if self.is_checked {
            return true;
        }
        if self.is_root() {
            // Root executes a file that somebody may execute.
            return wanted & EXECUTE == 0 || file.is_folder() || mode & 0o111 != 0;
        }
        let bits = if self.uid == file.uid {
            mode >> 6
        } else if self.is_in(file.gid) {
            mode >> 3
        } else {
            mode
        };
        bits & wanted == wanted
    }

    pub(crate) fn need(&self, file: &Attributes, wanted: u32) -> Result<()> {
        if self.may(file, wanted) { Ok(()) } else { Err(Refusal::Access.into()) }
    }

    /// Owner or root.
    pub(crate) fn need_owner(&self, file: &Attributes) -> Result<()> {
        if self.passes() || self.uid == file.uid { Ok(()) } else { Err(Refusal::NotPermitted.into()) }
    }

    /// May take `file` out of `folder`: it may change the folder, and in a sticky one it owns one of them.
    pub(crate) fn need_removal(&self, folder: &Attributes, file: &Attributes) -> Result<()> {
        self.need(folder, WRITE | EXECUTE)?;
        let is_sticky = folder.permissions() & 0o1000 != 0;
        if !is_sticky || self.passes() || self.uid == folder.uid || self.uid == file.uid {
            return Ok(());
        }
        Err(Refusal::NotPermitted.into())
    }

    /// May give `file` these owners.
    pub(crate) fn need_chown(&self, file: &Attributes, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        if self.passes() {
            return Ok(());
        }
        let keeps_owner = uid.is_none_or(|uid| uid == file.uid);
        let own_group = gid.is_none_or(|gid| gid == file.gid || self.is_in(gid));
        if keeps_owner && own_group && self.uid == file.uid { Ok(()) } else { Err(Refusal::NotPermitted.into()) }
    }

    /// The mode after a `chmod` to `mode`: the set-group bit stays only for members of the group.
    pub(crate) fn chmod(&self, file: &Attributes, mode: u32) -> u32 {
        if self.passes() || file.is_folder() || self.is_in(file.gid) { mode } else { mode & !0o2000 }
    }
}

/// The mode without the bits that a change of content or owner takes away.
pub(crate) const fn without_set_id(mode: u32) -> u32 {
    let group_executes = mode & 0o010 != 0;
    mode & !(if group_executes { 0o6000 } else { 0o4000 })
}
