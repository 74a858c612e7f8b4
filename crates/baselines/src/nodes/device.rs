//! Storage devices for paper 4's figures 6 and 8 a: channels that serve one request at a time.
//!
//! A request takes the channel that is free first, for the time of a page. So a lone thread has the latency of a
//! device, and many have its requests per second. Requests larger than a page, caches of the device and orders of
//! requests are not modelled. Figures are those of data sheets.

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

/// A device at work.
#[derive(Clone, Debug)]
pub struct Channels {
    free_at_ns: Vec<u64>,
    read_ns: u64,
    write_ns: u64,
    /// Channels that writes use.
    writers: usize,
}

impl Device {
    /// The device at work; none for memory.
    pub fn channels(self) -> Option<Channels> {
        // Latency of a page of 8 KiB, and so many at a time that the requests of 4 KiB per second of the data sheet
        // (640 and 200 thousand; 97 and 36 thousand) are twice those of pages.
        let of = |read_ns, readers, write_ns, writers| {
            Some(Channels { free_at_ns: vec![0; readers], read_ns, write_ns, writers })
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
    /// A page that is read from `now_ns` on. Returns the end.
    pub fn read(&mut self, now_ns: u64) -> u64 {
        let (readers, time_ns) = (self.free_at_ns.len(), self.read_ns);
        self.serve(now_ns, readers, time_ns)
    }

    /// A page that is written.
    pub fn write(&mut self, now_ns: u64) -> u64 {
        let (writers, time_ns) = (self.writers, self.write_ns);
        self.serve(now_ns, writers, time_ns)
    }

    fn serve(&mut self, now_ns: u64, channels: usize, time_ns: u64) -> u64 {
        let Some(channel) = self.free_at_ns[..channels].iter_mut().min() else { return now_ns };
        *channel = now_ns.max(*channel) + time_ns;
        *channel
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
}
