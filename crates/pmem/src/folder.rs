//! Names of files: durable when the folder that has them is synced.

use std::fs::File;
use std::io;
use std::path::Path;

/// The folder that has the name of `path`. Of a name alone it is the current folder.
///
/// ```
/// use std::path::Path;
///
/// assert_eq!(lodestone_pmem::folder_of(Path::new("/pm/a.pool")), Path::new("/pm"));
/// assert_eq!(lodestone_pmem::folder_of(Path::new("a.pool")), Path::new("."));
/// ```
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the name of `path` durable: that a file was made, renamed or removed there survives power loss on return. The
/// bytes of the file have to be synced by themselves, before it gets its name.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// let (new, path) = (folder.path().join("a.new"), folder.path().join("a"));
/// let mut file = std::fs::File::create(&new)?;
/// std::io::Write::write_all(&mut file, b"whole")?;
/// file.sync_all()?;
/// std::fs::rename(&new, &path)?;
/// lodestone_pmem::sync_folder_of(&path)?; // a crash leaves `a` with all of its bytes
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// A folder that cannot be opened: it is missing, or the user may not read it. A file system that fails to sync it.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path)).and_then(|folder| folder.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_missing_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        sync_folder_of(&folder.path().join("a")).expect("the name need not be there any more");
        let error = sync_folder_of(&folder.path().join("none/a")).expect_err("no such folder");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        sync_folder_of(Path::new("a")).expect("the current folder");
    }
}
