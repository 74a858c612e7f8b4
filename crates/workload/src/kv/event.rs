//! The events that a writer under test reports over its pipe, of 24 bytes each.
//!
//! Byte map (little-endian):
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | event: 1 started, 2 acknowledged |
//! | 1 | 1 | kind of write: 1 put, 2 removal |
//! | 2 | 2 | zero |
//! | 4 | 4 | check: low half of a mix of all other fields |
//! | 8 | 8 | record number |
//! | 16 | 8 | version |
//!
//! A pipe takes writes of this size whole or not at all, so a killed writer leaves no partial event. The reader still
//! accepts a partial event at the very end, and ignores it: it was not reported whole.

use std::io::{self, Read};

use crate::random::mix64;

/// Size of an event on the wire.
pub const EVENT_BYTES: usize = 24;

/// Whether a write was started or acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The write is about to be passed to the engine.
    Started,
    /// The engine called the write durable.
    Acknowledged,
}

/// The effect of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// The record has a value of this version afterwards.
    Put,
    /// The record is absent afterwards.
    Remove,
}

/// One report of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Started or acknowledged.
    pub kind: EventKind,
    /// Put or removal.
    pub write: WriteKind,
    /// The record; a [`crate::keys::KeyCodec`] turns it into its key.
    pub record: u64,
    /// The version. It grows for each record, from 1.
    pub version: u64,
}

/// Why bytes are not an event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The pipe failed.
    #[error("reading events failed: {0}")]
    Io(#[from] io::Error),
    /// The writer printed something else, or two writers mixed their bytes.
    #[error("event {number} (at byte {offset} of the pipe) is damaged; the writer must print nothing else there")]
    Damaged {
        /// Number of the event, from 0.
        number: u64,
        /// The offset at which it starts.
        offset: u64,
    },
}

impl Event {
    /// The event on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; EVENT_BYTES] {
        let mut bytes = [0; EVENT_BYTES];
        bytes[0] = match self.kind {
            EventKind::Started => 1,
            EventKind::Acknowledged => 2,
        };
        bytes[1] = match self.write {
            WriteKind::Put => 1,
            WriteKind::Remove => 2,
        };
        bytes[8..16].copy_from_slice(&self.record.to_le_bytes());
        bytes[16..].copy_from_slice(&self.version.to_le_bytes());
        let check = check_of(bytes[0], bytes[1], self.record, self.version);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The event of these bytes; `None` if they are not an event.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; EVENT_BYTES]) -> Option<Self> {
        let (head, tail) = bytes.split_first_chunk::<8>()?;
        let (record, version) = tail.split_first_chunk::<8>()?;
        let record = u64::from_le_bytes(*record);
        let version = u64::from_le_bytes(*version.first_chunk()?);
        let check = check_of(head[0], head[1], record, version).to_le_bytes();
        if head[2..4] != [0, 0] || head[4..] != check {
            return None;
        }
        Some(Self {
            kind: match head[0] {
                1 => EventKind::Started,
                2 => EventKind::Acknowledged,
                _ => return None,
            },
            write: match head[1] {
                1 => WriteKind::Put,
                2 => WriteKind::Remove,
                _ => return None,
            },
            record,
            version,
        })
    }
}

fn check_of(kind: u8, write: u8, record: u64, version: u64) -> u32 {
    let mixed = mix64(mix64(record) ^ version ^ (u64::from(kind) << 56) ^ (u64::from(write) << 48));
    (mixed & u64::from(u32::MAX)) as u32
}

/// Reads events until the writer's end of the pipe closes.
#[derive(Debug)]
pub struct EventReader<R> {
    source: R,
    number: u64,
}

impl<R: Read> EventReader<R> {
    /// Reads from `source`, which should be buffered.
    pub fn new(source: R) -> Self {
        Self { source, number: 0 }
    }

    fn read_event(&mut self) -> Result<Option<Event>, EventError> {
        let mut bytes = [0; EVENT_BYTES];
        let mut filled = 0;
        while filled < EVENT_BYTES {
            match self.source.read(&mut bytes[filled..]) {
                Ok(0) => return Ok(None),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let damaged = EventError::Damaged { number: self.number, offset: self.number * EVENT_BYTES as u64 };
        self.number += 1;
        Event::from_bytes(&bytes).map(Some).ok_or(damaged)
    }
}

impl<R: Read> Iterator for EventReader<R> {
    type Item = Result<Event, EventError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_event().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Vec<Event> {
        let mut events = Vec::new();
        for kind in [EventKind::Started, EventKind::Acknowledged] {
            for write in [WriteKind::Put, WriteKind::Remove] {
                let (record, version) = (u64::MAX - 5, 77);
                events.push(Event { kind, write, record, version });
            }
        }
        events
    }

    #[test]
    fn events_travel_whole_and_a_cut_last_one_is_ignored() {
        let mut wire: Vec<u8> = events().into_iter().flat_map(Event::to_bytes).collect();
        for cut in 0..EVENT_BYTES {
            let read: Result<Vec<Event>, _> = EventReader::new(&wire[..]).collect();
            let whole = if cut == 0 { 4 } else { 3 };
            assert_eq!(read.unwrap(), events()[..whole]);
            wire.pop();
        }
    }

    #[test]
    fn damage_is_found_and_located() {
        let wire: Vec<u8> = events().into_iter().flat_map(Event::to_bytes).collect();
        for bit in EVENT_BYTES * 8..2 * EVENT_BYTES * 8 {
            let mut flipped = wire.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read: Result<Vec<Event>, _> = EventReader::new(&flipped[..]).collect();
            let error = read.unwrap_err();
            assert!(matches!(error, EventError::Damaged { number: 1, offset: 24 }), "bit {bit}: {error}");
        }
    }
}
