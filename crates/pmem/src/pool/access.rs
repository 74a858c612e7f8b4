//! Access to a file: owner, group and permissions of one file, applied to another that gets its content or its place.
//!
//! A copy of a private pool is as private as the pool. Sometimes the owner or the group cannot be kept, because only
//! root may change owners. Then the permissions are narrowed. No user may do to the new file what it may not do to the
//! old one, except the user that made it.
//!
//! Access control lists are not copied: a file that has one is given to its owner alone.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

use rustix::fs::{fgetxattr, fremovexattr};
use rustix::process::{getegid, geteuid};

/// Where Linux keeps the access control list of a file.
const ACL: &str = "system.posix_acl_access";
/// Reading, writing and executing, for owner, group and others; nothing else is taken over.
const MODE_MASK: u32 = 0o777;
const OWNER_MASK: u32 = 0o700;

/// Owner, group and permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl Access {
    /// Those of a file that belongs to its maker alone.
    pub(crate) fn private() -> Self {
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw(), mode: 0o600 }
    }

    /// Those of `file`.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        let mode = found.mode() & if has_acl(file) { OWNER_MASK } else { MODE_MASK };
        Ok(Self { uid: found.uid(), gid: found.gid(), mode })
    }

    /// The permissions to create the new file with: it belongs to its maker until [`give_to`](Self::give_to).
    pub(crate) fn mode_at_creation(self) -> u32 {
        self.mode & OWNER_MASK
    }

    /// Applies them to `file`, as far as this process may.
    ///
    /// # Errors
    /// When the file system makes the file wider than this.
    pub(crate) fn give_to(self, file: &File) -> io::Result<()> {
        let made = file.metadata()?;
        let keeps_owner = made.uid() == self.uid || fchown(file, Some(self.uid), None).is_ok();
        let keeps_group = made.gid() == self.gid || fchown(file, None, Some(self.gid)).is_ok();
        // A list that the folder passes on to its files.
        let _ = fremovexattr(file, ACL);
        let wanted = if has_acl(file) { self.mode & OWNER_MASK } else { narrowed(self.mode, keeps_owner, keeps_group) };
        let set = file.set_permissions(Permissions::from_mode(wanted));
        // Some file systems have one mode for all files. That will do where it is no wider.
        let found = file.metadata()?.mode() & MODE_MASK;
        if found & !wanted == 0 {
            return Ok(());
        }
        let finding = format!("the file system makes the file {found:04o}, and it may be {wanted:04o} at most");
        set.and(Err(io::Error::new(io::ErrorKind::PermissionDenied, finding)))
    }
}

/// `mode` for a file that kept or lost its owner and its group. A lost owner now counts among the group or the others,
/// a lost group among the others. So these may do no more than the lost one could.
fn narrowed(mode: u32, keeps_owner: bool, keeps_group: bool) -> u32 {
    let (owner, mut group, mut others) = (mode >> 6 & 7, mode >> 3 & 7, mode & 7);
    if !keeps_owner {
        (group, others) = (group & owner, others & owner);
    }
    if !keeps_group {
        (group, others) = (0, others & group);
    }
    owner << 6 | group << 3 | others
}

fn has_acl(file: &File) -> bool {
    let mut list = [0_u8; 64];
    match fgetxattr(file, ACL, &mut list) {
        Ok(bytes) => bytes > 0,
        Err(error) => error == rustix::io::Errno::RANGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_known_any_more_may_do_no_more_than_before() {
        assert_eq!(narrowed(0o640, true, true), 0o640);
        assert_eq!(narrowed(0o640, true, false), 0o600, "another group may not read it");
        assert_eq!(narrowed(0o664, true, false), 0o604, "the old group counts among the others");
        assert_eq!(narrowed(0o604, true, false), 0o600, "the old group may not read it as others");
        assert_eq!(narrowed(0o066, false, true), 0o000, "the old owner may not read it as others");
        for mode in 0..=0o777 {
            for (owner, group) in [(true, true), (true, false), (false, true), (false, false)] {
                assert_eq!(narrowed(mode, owner, group) & !mode, 0, "{mode:o} {owner} {group}");
            }
        }
    }

    #[test]
    fn a_file_is_private_until_it_has_its_permissions() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let make = |name: &str, mode: u32| -> io::Result<File> {
            let file = File::create_new(folder.path().join(name))?;
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok(file)
        };
        for mode in [0o600, 0o640, 0o644, 0o400, 0o666, 0o4755] {
            let source = make(&format!("source {mode:o}"), mode)?;
            let access = Access::of(&source)?;
            let target = make(&format!("target {mode:o}"), access.mode_at_creation())?;
            assert_eq!(target.metadata()?.mode() & 0o7777 & !0o700, 0);
            access.give_to(&target)?;
            assert_eq!(target.metadata()?.mode() & 0o7777, mode & 0o777);
        }
        Ok(())
    }
}
