//! Storage devices for paper 4's figures 6 and 8 a: channels that serve one request at a time.
//!
//! A request takes the channel that is free first, for the time of a page. So a lone thread has the latency of a
//! device, and many have its requests per second. Requests larger than a page, caches of the device and orders of
//! requests are not modelled. Figures are those of data sheets.

use std::collections::BTreeSet;

use serde::Serialize;

/// Where data or logs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// Persistent memory.
    #[default]
    Pm,
    /// A solid-state disk on NVMe, as Intel's P4610.
    Nvme,
    /// One on SATA, as Intel's D3-S4510.
    Sata,
}

/// Writes of a log that are known at a time: more than clients can be apart.
const APPENDS_MAX: usize = 1_000;

/// A device at work.
#[derive(Clone, Debug)]
pub struct Channels {
    free_at_ns: Vec<u64>,
    read_ns: u64,
    write_ns: u64,
    /// Channels that writes use.
    writers: usize,
    /// When the last writes of a log begin.
    appends_ns: BTreeSet<u64>,
    /// Until when a request is under way, as far as is known.
    busy_to_ns: u64,
    load: DeviceLoad,
}

/// How much a device had to do (figures 6 b and c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLoad {
    /// Pages that were read.
    pub pages_read: u64,
    /// Pages that were written.
    pub pages_written: u64,
    /// Time in which some request was under way: what `iostat` calls the use of a disk.
    pub busy_ns: u64,
    /// Time that threads waited for it, summed over them.
    pub waited_ns: u64,
}

impl DeviceLoad {
    /// The load since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            pages_read: self.pages_read - earlier.pages_read,
            pages_written: self.pages_written - earlier.pages_written,
            busy_ns: self.busy_ns - earlier.busy_ns,
            waited_ns: self.waited_ns - earlier.waited_ns,
        }
    }
}

impl Device {
    /// The device at work; none for memory.
    pub fn channels(self) -> Option<Channels> {
        // Latency of a page of 8 KiB, and so many at a time that the requests of 4 KiB per second of the data sheet
        // (640 and 200 thousand; 97 and 36 thousand) are twice those of pages.
        let of = |read_ns, readers, write_ns, writers| {
            Some(Channels { read_ns, write_ns, writers, ..Channels::of(readers) })
        };
        match self {
            Self::Pm => None,
            Self::Nvme => of(90_000, 29, 25_000, 3),
            Self::Sata => of(130_000, 6, 60_000, 1),
        }
    }

    /// The figures, for outputs.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Pm => "PM",
            Self::Nvme => "NVMe",
            Self::Sata => "SATA",
        }
    }
}

impl Channels {
    /// So many channels.
    fn of(count: usize) -> Self {
        let (appends_ns, busy_to_ns, load) = (BTreeSet::new(), 0, DeviceLoad::default());
        Self { free_at_ns: vec![0; count], read_ns: 0, write_ns: 0, writers: 0, appends_ns, busy_to_ns, load }
    }

    /// The processors of a machine.
    pub fn processors(count: usize) -> Self {
        Self::of(count)
    }

    /// A thread computes for so long, when a processor is free. Returns the end. The wait for a processor counts as
    /// one for the device.
    pub fn compute(&mut self, now_ns: u64, time_ns: u64) -> u64 {
        let end_ns = self.serve(now_ns, self.free_at_ns.len(), time_ns);
        self.load.waited_ns += (end_ns - now_ns).saturating_sub(time_ns);
        end_ns
    }

    /// A page that a thread reads from `now_ns` on. Returns the end.
    pub fn read(&mut self, now_ns: u64) -> u64 {
        let (readers, time_ns) = (self.free_at_ns.len(), self.read_ns);
        self.load.pages_read += 1;
        let end_ns = self.serve(now_ns, readers, time_ns);
        self.load.waited_ns += end_ns - now_ns;
        end_ns
    }

    /// A page that is written. No thread waits for it.
    pub fn write(&mut self, now_ns: u64) -> u64 {
        let (writers, time_ns) = (self.writers, self.write_ns);
        self.load.pages_written += 1;
        self.serve(now_ns, writers, time_ns)
    }

    /// A record of a log, for which a thread waits. Writes of a log follow each other. Records that come while one is
    /// under way are in the next one together, as databases for disks do it.
    pub fn append(&mut self, now_ns: u64) -> u64 {
        // Clients come nearly in the order of their times: there may be later writes already.
        let before = self.appends_ns.range(..now_ns).next_back();
        let free_ns = before.map_or(now_ns, |begins_ns| now_ns.max(begins_ns + self.write_ns));
        let begins_ns = match self.appends_ns.range(now_ns..).next() {
            Some(next_ns) if *next_ns < free_ns + self.write_ns => *next_ns,
            _ => {
                self.appends_ns.insert(free_ns);
                self.load.pages_written += 1;
                self.note_busy(free_ns, free_ns + self.write_ns);
                free_ns
            }
        };
        if self.appends_ns.len() > APPENDS_MAX {
            self.appends_ns.pop_first();
        }
        let ends_ns = begins_ns + self.write_ns;
        self.load.waited_ns += ends_ns - now_ns;
        ends_ns
    }

    /// Its load so far.
    pub fn load(&self) -> DeviceLoad {
        self.load
    }

    fn serve(&mut self, now_ns: u64, channels: usize, time_ns: u64) -> u64 {
        let Some(channel) = self.free_at_ns[..channels].iter_mut().min() else { return now_ns };
        let begins_ns = now_ns.max(*channel);
        *channel = begins_ns + time_ns;
        let ends_ns = *channel;
        // A request that waits for a channel is under way as well.
        self.note_busy(now_ns, ends_ns);
        ends_ns
    }

    /// Requests come in the order of their times, but for a few that are near each other.
    fn note_busy(&mut self, begins_ns: u64, ends_ns: u64) {
        self.load.busy_ns += ends_ns.saturating_sub(begins_ns.max(self.busy_to_ns));
        self.busy_to_ns = self.busy_to_ns.max(ends_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_its_latency_alone_and_its_rate_together() {
        let mut device = Device::Nvme.channels().expect("a device");
        assert_eq!(device.read(1_000), 91_000);
        let last = (0..32_000).map(|_| device.read(0)).max().expect("some");
        let per_second = 32_000.0 / (last as f64 / 1e9);
        assert!((300_000.0..340_000.0).contains(&per_second), "{per_second} pages");
        assert!(Device::Pm.channels().is_none());
    }

    #[test]
    fn a_device_knows_its_load() {
        let mut device = Device::Nvme.channels().expect("a device");
        // Two reads at the same time, a pause, and one more.
        assert_eq!((device.read(0), device.read(10_000), device.read(200_000)), (90_000, 100_000, 290_000));
        let load = device.load();
        assert_eq!((load.pages_read, load.busy_ns, load.waited_ns), (3, 190_000, 270_000));
        device.write(290_000);
        let more = device.load().since(load);
        assert_eq!((more.pages_read, more.pages_written, more.busy_ns, more.waited_ns), (0, 1, 25_000, 0));
    }

    #[test]
    fn threads_wait_for_a_processor() {
        let mut processors = Channels::processors(2);
        assert_eq!([0, 0, 5].map(|now_ns| processors.compute(now_ns, 10)), [10, 10, 20]);
        assert_eq!(processors.load().waited_ns, 5);
    }

    #[test]
    fn records_that_come_together_are_one_write_of_the_log() {
        let mut log = Device::Nvme.channels().expect("a device");
        assert_eq!(log.append(1_000), 26_000);
        // These wait for the end of the first write.
        assert_eq!([2_000, 3_000, 25_000].map(|now_ns| log.append(now_ns)), [51_000; 3]);
        assert_eq!(log.append(30_000), 76_000);
        assert_eq!((log.load().pages_written, log.load().busy_ns), (3, 75_000));
        // One that comes late is not served late: there was time before the last write.
        assert_eq!((log.append(500_000), log.append(200_000), log.append(490_000)), (525_000, 225_000, 525_000));
    }
}
