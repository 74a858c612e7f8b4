//! A stand-in for `lodestone` that acknowledges writes before they are safe. `cargo xtask vm pmem --planted` runs it in
//! the guest and requires that the power-cut checks detect it. A checker that cannot fail proves nothing.
//!
//! Its "pool" is an ordinary text file beside the pool's path, one line for each write, never synced. It survives a
//! killed process, because the guest's kernel lives on. When the guest dies, it loses all data that the kernel had not
//! yet made permanent. The power cut must show exactly this difference.
//!
//! It understands only the commands that `vm/guest/pools.sh` uses.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::process::ExitCode;

/// Enough writes to outlast the wait for the power cut.
const WRITES_MAX: u64 = 10_000_000;

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["pool", "create", path, ..] => File::create(log_path(path)).map(drop)?,
        ["pool", "info", _, "--json"] => println!("{{\"domain\":\"dax\"}}"),
        ["pool", "check", ..] => {}
        ["torture", "writer", path, ..] => write(path)?,
        ["torture", "verify", path, acks] => return verify(path, acks),
        _ => return Ok(ExitCode::from(2)),
    }
    Ok(ExitCode::SUCCESS)
}

/// A device takes no ordinary writes, so its false pool is on the ext4 place.
fn log_path(path: &str) -> String {
    if path.starts_with("/dev/") { "/mnt/ext4/device.log".to_owned() } else { format!("{path}.log") }
}

fn write(path: &str) -> io::Result<()> {
    let mut log = File::create(log_path(path))?;
    let mut acknowledgements = io::stdout();
    for key in 0..WRITES_MAX {
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let line = format!("{key} {hash:016x}\n");
        log.write_all(line.as_bytes())?;
        // The lie: no data has been synced.
        acknowledgements.write_all(format!("ack {line}").as_bytes())?;
    }
    Ok(())
}

fn verify(path: &str, acks: &str) -> io::Result<ExitCode> {
    let log = fs::read_to_string(log_path(path)).unwrap_or_default();
    let kept: HashSet<&str> = log.lines().collect();
    let acks = fs::read_to_string(acks)?;
    let lost = acks.lines().filter_map(|line| line.strip_prefix("ack ")).filter(|line| !kept.contains(line)).count();
    println!("{lost} acknowledged writes lost");
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
