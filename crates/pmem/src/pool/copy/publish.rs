//! Names the files of a copy. A kill or a power cut at any moment leaves the old pool at the target, the new one, or
//! none that opens.
//!
//! Two backups of one pool have the same identity and may be of the same life. So a mixture of their parts cannot be
//! recognised. It may never have a part 0, by which a pool is opened.
//!
//! 1. All new files are synced.
//! 2. Of several parts: an old part 0 is moved aside, under the name of a file in the making; its folder is synced.
//!    Where there was none, there must be none now.
//! 3. The further parts are renamed into place, each with a sync of its folder; then part 0.
//! 4. The old part 0 is removed. After a kill the next copy to the same target does it.
//!
//! Two copies may go to one target at a time. All new files are locked until part 0 has its name. So a copy that locks
//! a further part, to replace it, finds the part 0 beside it in step 2 and fails. Where there was no further part, only
//! one copy can rename its own.
//!
//! An error before 3 has changed anything puts the old part 0 back; later there is no old pool to put it to.

use crate::error::Result;
use crate::pool::create::{NewFile, sync_folder};
use crate::pool::lock;

/// The last completed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A new file is synced.
    Synced,
    /// The old part 0 has another name.
    SetAside,
    /// A new file has its name.
    Renamed,
    /// The folder of the last change of a name is synced.
    FolderSynced,
    /// Nothing is left to do.
    Done,
}

/// Called after every step; may make it fail (tests).
pub(super) type Observer<'o> = &'o mut dyn FnMut(Step) -> Result<()>;

/// Renames `files`, by part number, to their targets.
pub(super) fn publish_all(mut files: Vec<NewFile>, after: Observer<'_>) -> Result<()> {
    for file in &files {
        // No name may come to lead to bytes that a power cut can still take.
        file.sync()?;
        after(Step::Synced)?;
    }
    // One file replaces another in one step; several need a moment without any pool.
    let old = if files.len() > 1 { files[0].set_aside()? } else { None };
    let mut has_changed = false;
    let published = publish_in_order(&mut files, old.is_some(), &mut has_changed, after);
    match (published, old) {
        (Err(error), Some(old)) if !has_changed => {
            old.put_back()?;
            Err(error)
        }
        (published, old) => {
            drop(old);
            published.and_then(|()| after(Step::Done))
        }
    }
}

/// Step 3, after an old part 0 was set aside. `has_changed` tells whether any file may have got its name.
fn publish_in_order(files: &mut [NewFile], has_old: bool, has_changed: &mut bool, after: Observer<'_>) -> Result<()> {
    if has_old {
        after(Step::SetAside)?;
        // No further part may be replaced while a power cut can bring the old part 0 back.
        sync_folder(&files[0].target)?;
        after(Step::FolderSynced)?;
    }
    // Part 0 last: a set with a part 0 is complete.
    for file in files.iter_mut().rev() {
        let renamed = file.rename();
        *has_changed |= renamed.is_ok() || !matches!(lock::is_at(&file.target, &file.file), Ok(false));
        renamed?;
        after(Step::Renamed)?;
        // The next file, part 0 at last, may not have its name for good before this one has.
        sync_folder(&file.target)?;
        after(Step::FolderSynced)?;
    }
    Ok(())
}
