//! Physical lines of a source, with their place. Any number of lines can be read ahead.
//!
//! 1. [`Lines::peek`] reads as far ahead as asked. Nothing is consumed.
//! 2. [`Lines::consume`] returns the first lines and moves the position after them.
//! 3. A line that is too long for a row ([`LINE_BYTES_MAX`]) is kept in a file without a name. So its row can be
//!    rejected whole, and reading goes on after it.
//!
//! Invariants: the position is always at the start of a line, and its checksum covers every byte before it. So a later
//! run can tell whether the bytes it skips are those that an earlier run read. Memory holds no more than
//! [`LINE_BYTES_MAX`] bytes of a line.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};

use lodestone_width::to_u64;

/// Longest line that may be a row. No key or value comes near it.
pub const LINE_BYTES_MAX: u64 = 16 << 20;

/// Longest line that is read at all. A longer one is a binary file, or a stream that never ends.
const LINE_BYTES_READ_MAX: u64 = 1 << 30;

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

    fn after(self, line: &Line) -> Self {
        let (offset, next) = (self.offset + line.len(), self.line + 1);
        match line {
            Line::Whole(bytes) => Self { offset, line: next, crc: crc32c::crc32c_append(self.crc, bytes) },
            Line::Long(long) => {
                // Lossless: a line has fewer bytes than memory could hold.
                let bytes = usize::try_from(long.bytes).unwrap_or(usize::MAX);
                Self { offset, line: next, crc: crc32c::crc32c_combine(self.crc, long.crc, bytes) }
            }
        }
    }
}

/// A line that was read.
#[derive(Debug)]
enum Line {
    Whole(Vec<u8>),
    Long(LongLine),
}

impl Line {
    fn len(&self) -> u64 {
        match self {
            Self::Whole(bytes) => to_u64(bytes.len()),
            Self::Long(long) => long.bytes,
        }
    }
}

/// A line of more than [`LINE_BYTES_MAX`] bytes, in a file without a name.
#[derive(Debug)]
pub struct LongLine {
    file: File,
    bytes: u64,
    crc: u32,
}

/// A line ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead<'a> {
    /// The line with its line end.
    Line(&'a [u8]),
    /// A line of so many bytes, which are too many.
    TooLong(u64),
}

/// The text of a row as it is in the source, with line ends.
#[derive(Debug)]
pub enum Raw {
    /// In memory.
    Bytes(Vec<u8>),
    /// One line that is too long for memory.
    Long(LongLine),
}

impl Raw {
    /// Writes the text to `target`. Returns the number of bytes. A line end is added where the source has none.
    pub fn write_to(&mut self, target: &mut impl Write) -> io::Result<u64> {
        let (bytes, last) = match self {
            Self::Bytes(bytes) => {
                target.write_all(bytes)?;
                (to_u64(bytes.len()), bytes.last().copied())
            }
            Self::Long(long) => {
                let mut last = [0];
                long.file.seek(SeekFrom::End(-1))?;
                long.file.read_exact(&mut last)?;
                long.file.seek(SeekFrom::Start(0))?;
                (io::copy(&mut long.file, target)?, Some(last[0]))
            }
        };
        if last == Some(b'\n') {
            return Ok(bytes);
        }
        target.write_all(b"\n")?;
        Ok(bytes + 1)
    }
}

/// A source, line by line.
pub struct Lines {
    input: Box<dyn BufRead>,
    ahead: VecDeque<Line>,
    position: Position,
}

impl Lines {
    /// Lines of `input`, whose next byte is at `position` of the source.
    pub fn new(input: Box<dyn BufRead>, position: Position) -> Self {
        Self { input, ahead: VecDeque::new(), position }
    }

    /// The start of the first line that is not consumed.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The line `index` lines ahead, or `None` after the last one.
    pub fn peek(&mut self, index: usize) -> io::Result<Option<Ahead<'_>>> {
        while self.ahead.len() <= index {
            let mut line = Vec::new();
            (&mut self.input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(None);
            }
            let line = if to_u64(line.len()) > LINE_BYTES_MAX {
                let number = self.position.line + to_u64(self.ahead.len());
                Line::Long(keep_long(&mut self.input, &line, number)?)
            } else {
                Line::Whole(line)
            };
            self.ahead.push_back(line);
        }
        Ok(self.ahead.get(index).map(|line| match line {
            Line::Whole(bytes) => Ahead::Line(bytes),
            Line::Long(long) => Ahead::TooLong(long.bytes),
        }))
    }

    /// Returns the first `count` lines, which were peeked at, as one piece. A long line comes alone.
    pub fn consume(&mut self, count: usize) -> Raw {
        let mut raw = Vec::new();
        for _ in 0..count {
            let Some(line) = self.ahead.pop_front() else { break };
            self.position = self.position.after(&line);
            match line {
                Line::Long(long) => return Raw::Long(long),
                Line::Whole(bytes) if raw.is_empty() => raw = bytes,
                Line::Whole(bytes) => raw.extend_from_slice(&bytes),
            }
        }
        Raw::Bytes(raw)
    }
}

/// Keeps a line whose `head` is already too long in a file without a name, and reads it to its end.
fn keep_long(input: &mut dyn BufRead, head: &[u8], number: u64) -> io::Result<LongLine> {
    let kept = |error: io::Error| {
        let text = format!(
            "line {number} is longer than 16 MiB and cannot be kept aside: {error}; set TMPDIR to a folder with room"
        );
        io::Error::new(error.kind(), text)
    };
    let mut file = tempfile::tempfile().map_err(kept)?;
    file.write_all(head).map_err(kept)?;
    let (mut bytes, mut crc) = (to_u64(head.len()), crc32c::crc32c(head));
    let mut ended = head.ends_with(b"\n");
    while !ended {
        let found = input.fill_buf()?;
        if found.is_empty() {
            break;
        }
        let end = found.iter().position(|byte| *byte == b'\n');
        let step = &found[..end.map_or(found.len(), |end| end + 1)];
        (bytes, crc, ended) = (bytes + to_u64(step.len()), crc32c::crc32c_append(crc, step), end.is_some());
        if bytes > LINE_BYTES_READ_MAX {
            let text = format!("line {number} is longer than 1 GiB: this is no CSV or JSON Lines text");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        file.write_all(step).map_err(kept)?;
        let count = step.len();
        input.consume(count);
    }
    Ok(LongLine { file, bytes, crc })
}

/// Why a line of `bytes` bytes is no row.
pub fn too_long(bytes: u64) -> String {
    format!("the line has {bytes} bytes; at most {LINE_BYTES_MAX} (16 MiB) fit a row")
}

/// Reads `offset` bytes of `input` and returns their CRC-32C, or `None` when the input is shorter.
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
        left -= to_u64(count);
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

    fn line(text: &[u8]) -> Option<Ahead<'_>> {
        Some(Ahead::Line(text))
    }

    fn text_of(mut raw: Raw) -> Vec<u8> {
        let mut text = Vec::new();
        raw.write_to(&mut text).expect("memory");
        text
    }

    #[test]
    fn the_position_is_after_what_was_consumed() {
        let text: &[u8] = b"one\r\ntwo\n\nlast";
        let mut lines = Lines::new(Box::new(text), Position::START);
        assert_eq!(lines.peek(1).expect("read"), line(b"two\n"));
        assert_eq!(lines.position(), Position::START);
        assert_eq!(text_of(lines.consume(2)), b"one\r\ntwo\n");
        assert_eq!(lines.position(), Position { offset: 9, line: 3, crc: crc32c::crc32c(&text[..9]) });
        assert_eq!(checksum_of_prefix(text, 9).expect("read"), Some(lines.position().crc));
        assert_eq!(checksum_of_prefix(text, 900).expect("read"), None);
        assert_eq!(lines.peek(1).expect("read"), line(b"last"));
        assert_eq!(lines.peek(2).expect("read"), None);
        lines.consume(2);
        assert_eq!(lines.position().offset, text.len() as u64);
    }

    #[test]
    fn a_long_line_is_kept_whole_and_reading_goes_on_after_it() {
        let long = "x".repeat(LINE_BYTES_MAX as usize + 4000);
        for end in ["\nlast\n", "\n", ""] {
            let text = format!("first\n{long}{end}").into_bytes();
            let mut lines = Lines::new(Box::new(io::Cursor::new(text.clone())), Position::START);
            assert_eq!(lines.peek(0).expect("read"), line(b"first\n"));
            let bytes = long.len() as u64 + u64::from(!end.is_empty());
            assert_eq!(lines.peek(1).expect("read"), Some(Ahead::TooLong(bytes)));
            lines.consume(1);
            assert!(text_of(lines.consume(1)) == format!("{long}\n").into_bytes(), "the whole line");
            let read = text.len() - end.len() + usize::from(!end.is_empty());
            let position = Position { offset: read as u64, line: 3, crc: crc32c::crc32c(&text[..read]) };
            assert_eq!(lines.position(), position);
            assert_eq!(lines.peek(0).expect("read"), (end.len() > 1).then_some(Ahead::Line(b"last\n")));
        }
    }

    /// An endless source without a line end.
    struct Endless(u64);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += buffer.len() as u64;
            buffer.fill(b'x');
            Ok(buffer.len())
        }
    }

    #[test]
    fn an_endless_line_is_an_error_and_not_all_of_memory_or_of_the_disk() {
        let mut input = io::BufReader::with_capacity(1 << 20, Endless(0).take(LINE_BYTES_READ_MAX + (8 << 20)));
        let head = vec![b'x'; LINE_BYTES_MAX as usize + 1];
        let message = keep_long(&mut input, &head, 7).expect_err("too long").to_string();
        assert!(message.contains("line 7") && message.contains("1 GiB"), "{message}");
    }
}
