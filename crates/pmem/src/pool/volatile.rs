//! Whether a file system keeps its files only as long as the machine has power.
//!
//! 1. `tmpfs` and `ramfs` are memory by their type.
//! 2. `overlay` keeps what is written in its upper folder, which `/proc/self/mountinfo` names: the file system of that
//!    folder decides. Where it cannot be reached from here (another mount namespace), that is said.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, statfs};

use crate::pool::part::PartFile;
use crate::pool::platform;

/// The volatile file system that the file of `part` is really on, as a phrase; `None` where it is not known to be one.
pub(crate) fn medium_of(part: &PartFile) -> Option<String> {
    let file_system = platform::file_system(part);
    match file_system.as_str() {
        "tmpfs" | "ramfs" => Some(file_system),
        "overlay" => {
            let device = part.file.metadata().ok()?.dev();
            let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
            let upper = upper_folder(&mounts, (major(device), minor(device)))?;
            of_folder(&upper).map(|below| format!("overlay over {below}"))
        }
        _ => None,
    }
}

fn of_folder(folder: &Path) -> Option<String> {
    let name = platform::file_system_name(statfs(folder).ok()?.f_type.cast_unsigned());
    matches!(name.as_str(), "tmpfs" | "ramfs").then_some(name)
}

/// The upper folder of the overlay with this device number in the text of `/proc/self/mountinfo`.
fn upper_folder(mounts: &[u8], device: (u32, u32)) -> Option<PathBuf> {
    let wanted = format!("{}:{}", device.0, device.1).into_bytes();
    let words = |line: &[u8]| line.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mount = mounts.split(|byte| *byte == b'\n').map(words).find(|words| words.get(2) == Some(&wanted))?;
    let options = mount.last()?;
    let upper = options.split(|byte| *byte == b',').find_map(|option| option.strip_prefix(b"upperdir="))?;
    Some(PathBuf::from(OsString::from_vec(unescape(upper))))
}

/// A path as the kernel writes it there: blanks and the like as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"\
22 27 0:21 / /proc rw - proc proc rw
40 27 0:52 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/dev/shm/upper\\040folder,workdir=/w
41 27 254:0 / /disk rw - ext4 /dev/vda rw
";

    #[test]
    fn the_upper_folder_of_an_overlay_decides() {
        assert_eq!(upper_folder(MOUNTS, (0, 52)), Some(PathBuf::from("/dev/shm/upper folder")));
        assert_eq!(upper_folder(MOUNTS, (254, 0)), None);
        assert_eq!(upper_folder(MOUNTS, (9, 9)), None);
        assert_eq!(unescape(b"a\\040b\\9\\"), b"a b\\9\\");
        if Path::new("/dev/shm").is_dir() {
            assert_eq!(of_folder(Path::new("/dev/shm")).as_deref(), Some("tmpfs"));
        }
        assert_eq!(of_folder(Path::new("/no/such/folder")), None);
    }
}
