//! Physical lines of a source, with their place, and any number of them ahead.
//!
//! 1. [`Lines::peek`] reads as far ahead as asked; nothing is consumed.
//! 2. [`Lines::consume`] gives the first lines away and moves the position behind them.
//!
//! Invariants: the position always stands at the start of a line, and its checksum covers every byte before it, so
//! that a later run can tell whether what it skips is what an earlier run read.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

/// Longest line that is read: more is a binary file, or a mistake.
pub const LINE_BYTES_MAX: u64 = 16 << 20;

/// A place in a source: the start of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Bytes before it.
    pub offset: u64,
    /// Number of the line that starts here, from 1.
    pub line: u64,
    /// CRC-32C of the bytes before it.
    pub crc: u32,
}

impl Position {
    /// The first byte of a source.
    pub const START: Self = Self { offset: 0, line: 1, crc: 0 };

    fn after(self, line: &[u8]) -> Self {
        Self {
            offset: self.offset + line.len() as u64,
            line: self.line + 1,
            crc: crc32c::crc32c_append(self.crc, line),
        }
    }
}

/// A source, line by line.
pub struct Lines {
    input: Box<dyn BufRead>,
    ahead: VecDeque<Vec<u8>>,
    position: Position,
}

impl Lines {
    /// Lines of `input`, whose next byte is at `position` of the source.
    pub fn new(input: Box<dyn BufRead>, position: Position) -> Self {
        Self { input, ahead: VecDeque::new(), position }
    }

    /// Where the first line that is not consumed starts.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The line `index` lines ahead with its line end, or `None` behind the last one.
    pub fn peek(&mut self, index: usize) -> io::Result<Option<&[u8]>> {
        while self.ahead.len() <= index {
            let mut line = Vec::new();
            (&mut self.input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(None);
            }
            if line.len() as u64 > LINE_BYTES_MAX {
                let number = self.position.line + self.ahead.len() as u64;
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("line {number} is longer than 16 MiB: this is no CSV or JSON Lines text"),
                ));
            }
            self.ahead.push_back(line);
        }
        Ok(self.ahead.get(index).map(Vec::as_slice))
    }

    /// Gives away the first `count` lines, which were peeked at, as one piece.
    pub fn consume(&mut self, count: usize) -> Vec<u8> {
        let mut raw = Vec::new();
        for _ in 0..count {
            let Some(line) = self.ahead.pop_front() else { break };
            self.position = self.position.after(&line);
            if raw.is_empty() {
                raw = line;
            } else {
                raw.extend_from_slice(&line);
            }
        }
        raw
    }
}

/// Reads `offset` bytes of `input` and gives their CRC-32C, or `None` when the input is shorter.
pub fn checksum_of_prefix(mut input: impl Read, offset: u64) -> io::Result<Option<u32>> {
    let mut crc = 0;
    let mut left = offset;
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        let step = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = input.read(&mut buffer[..step])?;
        if count == 0 {
            return Ok(None);
        }
        crc = crc32c::crc32c_append(crc, &buffer[..count]);
        left -= count as u64;
    }
    Ok(Some(crc))
}

/// A line without its line end (`\n` or `\r\n`).
pub fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_is_behind_what_was_consumed() {
        let text: &[u8] = b"one\r\ntwo\n\nlast";
        let mut lines = Lines::new(Box::new(text), Position::START);
        assert_eq!(lines.peek(1).expect("read"), Some(&b"two\n"[..]));
        assert_eq!(lines.position(), Position::START);
        assert_eq!(lines.consume(2), b"one\r\ntwo\n");
        assert_eq!(lines.position(), Position { offset: 9, line: 3, crc: crc32c::crc32c(&text[..9]) });
        assert_eq!(checksum_of_prefix(text, 9).expect("read"), Some(lines.position().crc));
        assert_eq!(checksum_of_prefix(text, 900).expect("read"), None);
        assert_eq!(lines.peek(1).expect("read"), Some(&b"last"[..]));
        assert_eq!(lines.peek(2).expect("read"), None);
        lines.consume(2);
        assert_eq!(lines.position().offset, text.len() as u64);
    }

    #[test]
    fn an_endless_line_is_an_error_and_not_all_of_memory() {
        let mut lines = Lines::new(Box::new(io::BufReader::new(io::repeat(b'x'))), Position::START);
        let message = lines.peek(0).expect_err("too long").to_string();
        assert!(message.contains("line 1"), "{message}");
    }
}
