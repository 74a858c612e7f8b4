//! Whether the program that waits for an answer is killed.
//!
//! `fuser` 0.18 refuses the kernel's interrupts. So a process that a signal ends still waits for the answer to a
//! request that has been taken in. Where an answer may take long, it is asked here whether the program still wants it.
//! A signal that the program handles does not show, and ends no wait: as with NFS.

/// The bit of SIGKILL, number 9, in a set of signals of `/proc`.
const SIGKILL: u64 = 1 << 8;

/// Whether a signal ends this process. The kernel turns each that does into SIGKILL for all threads.
pub(crate) fn is_killed(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let is_pending = |line: &str| {
        let signals = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        let signals = signals.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
        signals.is_some_and(|signals| signals & SIGKILL != 0)
    };
    let mut statuses =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    statuses.any(|status| status.lines().any(is_pending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_is_not_killed_nor_one_that_is_not_there() {
        assert!(!is_killed(std::process::id()) && !is_killed(0) && !is_killed(u32::MAX));
    }
}
