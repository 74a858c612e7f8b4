//! `fio` with verification: two jobs write random blocks, each into its file.
//!
//! While only a node dies, fio verifies all that it wrote itself. When everything died, its logs say which blocks it
//! wrote, in which order, and where it waited for `fsync`. Each block of a file must be one that fio wrote at this
//! place, or nothing; and the blocks that are there must be the first ones that were written, with all before the last
//! answered `fsync`.
//!
//! Block of fio 3 with `verify=crc32c`: magic 2 bytes, kind 2, length 4, seed 8, offset 8, time 8, thread 2, number 2,
//! CRC-32C of these 36 bytes, CRC-32C of what follows these 44 bytes; both without the final inversion.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::program::Program;
use super::{Load, Verdict};

const BLOCK: usize = 4096;
const MAGIC: u16 = 0xACCA;
const HEAD_BYTES: usize = 36;
const DATA_AT: usize = 44;
const JOBS: [&str; 2] = ["a", "b"];
/// Blocks between two calls of `fsync`.
const SYNC_EVERY: u64 = 8;

pub(super) struct Fio {
    place: PathBuf,
    operations: u64,
    mount: PathBuf,
    run: Option<Program>,
}

impl Fio {
    pub(super) fn new(place: &Path, operations: u64) -> Result<Self> {
        let version = Command::new("fio").arg("--version").output();
        let version = version.context("fio is missing; install it by `apt-get install fio`")?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        ensure!(version.starts_with("fio-3."), "fio 3 is needed, this is {version}");
        Ok(Self { place: place.to_owned(), operations, mount: PathBuf::new(), run: None })
    }

    fn run(&mut self) -> Result<&mut Program> {
        self.run.as_mut().context("fio does not run")
    }

    fn log(&self, job: &str) -> PathBuf {
        self.place.join(format!("fio.{job}.log"))
    }
}

impl Load for Fio {
    fn name(&self) -> &'static str {
        "fio"
    }

    fn start(&mut self, mount: &Path, seed: u64) -> Result<()> {
        self.mount = mount.to_owned();
        // fio calls open, write and sync: a job has this many writes.
        let blocks = (self.operations / u64::try_from(JOBS.len())?).max(16);
        let mut command = Command::new("fio");
        // As threads, so that one process counts the calls of all.
        command.current_dir(&self.place).args(["--thread", "--rw=randwrite", "--fallocate=none", "--minimal"]);
        command.arg(format!("--bs={BLOCK}")).arg(format!("--size={}", blocks * u64::try_from(BLOCK)?));
        command.args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0"]);
        command.arg(format!("--fsync={SYNC_EVERY}")).arg(format!("--directory={}", mount.display()));
        for job in JOBS {
            _ = std::fs::remove_file(self.log(job));
            command.arg(format!("--name={job}")).arg(format!("--filename={job}"));
            command.arg(format!("--randseed={seed}")).arg(format!("--write_iolog={}", self.log(job).display()));
        }
        let log = self.place.join("fio.log");
        self.run = Some(Program::start(&mut command, &log)?);
        Ok(())
    }

    /// Calls of the system that write, of all its threads.
    fn begun(&mut self) -> Result<u64> {
        let id = self.run()?.id();
        // It is gone when fio has ended.
        let counts = std::fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
        let writes = counts.lines().find_map(|line| line.strip_prefix("syscw: "));
        Ok(writes.and_then(|count| count.trim().parse().ok()).unwrap_or(0))
    }

    fn has_ended(&mut self) -> Result<bool> {
        self.run()?.has_ended()
    }

    fn finish(&mut self) -> Result<Verdict> {
        let run = self.run()?;
        if run.wait()? {
            return Ok(Verdict::right("all blocks verify"));
        }
        Ok(Verdict::wrong(format!("an error, or other bytes:\n{}", run.said_last()?)))
    }

    fn end(&mut self) -> Result<()> {
        self.run()?.wait().map(drop)
    }

    fn judge(&mut self) -> Result<Verdict> {
        let mut said = Vec::new();
        for job in JOBS {
            let order = Written::of(&std::fs::read_to_string(self.log(job)).context("the log of fio")?);
            let file = match std::fs::read(self.mount.join(job)) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && order.synced == 0 => Vec::new(),
                found => found.with_context(|| format!("the file of job {job}"))?,
            };
            match order.judge(&file) {
                Ok(count) => said.push(format!("{count} of {} blocks, {} synced", order.places.len(), order.synced)),
                Err(finding) => return Ok(Verdict::wrong(format!("job {job}: {finding}"))),
            }
        }
        Ok(Verdict::right(said.join("; ")))
    }
}

/// The blocks that a job has written, by its log.
struct Written {
    /// Places of blocks in their order.
    places: Vec<u64>,
    /// So many of them were written before an answered `fsync`.
    synced: usize,
}

impl Written {
    fn of(log: &str) -> Self {
        let (mut places, mut waiting, mut synced) = (Vec::new(), None, 0);
        for line in log.lines() {
            let mut words = line.split_whitespace().skip(2);
            let action = words.next();
            // A line is written when its call begins, so the next call tells that this one was answered. A file is
            // closed after an error, too.
            if matches!(action, Some("write" | "read" | "sync")) {
                synced = waiting.take().unwrap_or(synced);
            }
            match action {
                Some("write") => places.extend(words.next().and_then(|place| place.parse::<u64>().ok())),
                Some("sync") => waiting = Some(places.len()),
                _ => {}
            }
        }
        Self { places, synced }
    }

    /// How many of the blocks are there. An error says what is wrong.
    fn judge(&self, file: &[u8]) -> Result<usize, String> {
        let mut there = std::collections::BTreeSet::new();
        for (place, block) in (0..).step_by(BLOCK).zip(file.chunks(BLOCK)) {
            if block.iter().any(|byte| *byte != 0) {
                is_of_fio(place, block).map_err(|finding| format!("the block at {place} {finding}"))?;
                there.insert(place);
            }
        }
        let count = self.places.iter().take_while(|place| there.contains(place)).count();
        if let Some(later) = self.places[count..].iter().find(|place| there.contains(place)) {
            return Err(format!("the block at {later} is there, and one that was written before it is not"));
        }
        if there.len() > count {
            return Err(format!("{} blocks are there that were not written", there.len() - count));
        }
        if count < self.synced {
            return Err(format!("{count} blocks are there, and {} were synced", self.synced));
        }
        Ok(count)
    }
}

/// Whether fio wrote this block at this place.
fn is_of_fio(place: u64, block: &[u8]) -> Result<(), &'static str> {
    let word = |at: usize, bytes: usize| {
        let found = block.get(at..at + bytes).unwrap_or_default();
        found.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
    };
    if block.len() != BLOCK || word(0, 2) != u64::from(MAGIC) {
        return Err("is not of fio");
    }
    if word(16, 8) != place {
        return Err("was written at another place");
    }
    let crc = |bytes: &[u8]| u64::from(!crc32c::crc32c(bytes));
    if word(HEAD_BYTES, 4) != crc(&block[..HEAD_BYTES]) || word(HEAD_BYTES + 4, 4) != crc(&block[DATA_AT..]) {
        return Err("is torn, or has other bytes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(place: u64) -> Vec<u8> {
        let mut block = vec![7; BLOCK];
        block[..2].copy_from_slice(&MAGIC.to_le_bytes());
        block[16..24].copy_from_slice(&place.to_le_bytes());
        let head = !crc32c::crc32c(&block[..HEAD_BYTES]);
        block[36..40].copy_from_slice(&head.to_le_bytes());
        let data = !crc32c::crc32c(&block[DATA_AT..]);
        block[40..44].copy_from_slice(&data.to_le_bytes());
        block
    }

    fn file(places: &[u64]) -> Vec<u8> {
        let mut file = vec![0; 4 * BLOCK];
        for place in places {
            let at = usize::try_from(*place).expect("small");
            file[at..at + BLOCK].copy_from_slice(&block(*place));
        }
        file
    }

    const LOG: &str = "fio version 3 iolog\n1 f add\n2 f open\n3 f write 8192 4096\n4 f write 0 4096\n5 f sync 0 0\n\
                       6 f write 4096 4096\n7 f write 12288 4096\n8 f sync 0 0\n9 f close\n";

    #[test]
    fn what_is_there_is_a_prefix_with_all_that_was_synced() {
        let order = Written::of(LOG);
        assert_eq!((order.places.len(), order.synced), (4, 2), "the last sync was not answered");
        assert_eq!(order.judge(&file(&[8192, 0])), Ok(2));
        assert_eq!(order.judge(&file(&[8192, 0, 4096])), Ok(3));
        assert!(order.judge(&file(&[8192])).unwrap_err().contains("2 were synced"));
        assert!(order.judge(&file(&[8192, 0, 12288])).unwrap_err().contains("12288"));
        let written = Written::of("1 f write 0 4096\n");
        assert!(written.judge(&file(&[0, 4096])).unwrap_err().contains("not written"));
    }

    #[test]
    fn a_torn_or_foreign_block_is_found() {
        let order = Written::of(LOG);
        let mut torn = file(&[8192, 0]);
        torn[8192 + 2048..8192 + 4096].fill(0);
        assert!(order.judge(&torn).unwrap_err().contains("torn"));
        let mut moved = file(&[8192]);
        moved.copy_within(8192..8192 + 4096, 0);
        assert!(order.judge(&moved).unwrap_err().contains("another place"));
        let mut foreign = file(&[8192, 0]);
        foreign[4096] = 1;
        assert!(order.judge(&foreign).unwrap_err().contains("not of fio"));
    }
}
