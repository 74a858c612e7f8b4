//! Small files: secret ones for their owner alone, each whole or not there.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{ControlError, Result};

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(std::io::Error) -> ControlError {
    let path = path.to_owned();
    move |source| ControlError::File { path, doing, source }
}

pub(super) fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(failed(path, "making the folder"))
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(failed(path, "reading"))
}

/// Writes a new file: durable on return. The name comes last, so the file is whole.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let mut file = file.map_err(failed(&new, "making the file"))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed(&new, "writing"))?;
    rename(&new, path)
}

/// Renames: durable on return.
pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(failed(from, "renaming"))?;
    lodestone_pmem::sync_folder_of(to).map_err(failed(to, "making a name durable"))
}

pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| ControlError::Certificate("the system has no random numbers".to_owned()))?;
    Ok(bytes)
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut out = [0; 32];
    out.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    out
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}
