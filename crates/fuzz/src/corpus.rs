//! Inputs that are kept, as a text: one a line, in hexadecimal digits. So a corpus can be checked in and read.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The inputs of a target.
#[derive(Debug, Default)]
pub struct Corpus {
    /// The inputs.
    pub inputs: Vec<Vec<u8>>,
    file: Option<PathBuf>,
}

/// Bytes as digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of digits; `None` if they are none.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl Corpus {
    /// The inputs in `text`; lines that begin with `#` say where they are from.
    ///
    /// # Errors
    /// A line that is no input.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let inputs = lines.map(|line| unhex(line).with_context(|| format!("no hexadecimal digits: {line}")));
        Ok(Self { inputs: inputs.collect::<Result<_>>()?, file: None })
    }

    /// Adds the inputs of a file, and keeps new ones there. The file need not exist.
    ///
    /// # Errors
    /// A file that cannot be read, or that is no corpus.
    pub fn with_file(mut self, file: &Path) -> Result<Self> {
        if file.exists() {
            let text = fs::read_to_string(file).with_context(|| format!("reading the corpus {}", file.display()))?;
            self.inputs.extend(Self::parse(&text)?.inputs);
        }
        self.file = Some(file.to_owned());
        Ok(self)
    }

    /// Keeps an input.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep(&mut self, input: Vec<u8>) -> Result<()> {
        if let Some(file) = &self.file {
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
            }
            let opened = fs::OpenOptions::new().create(true).append(true).open(file);
            let mut opened = opened.with_context(|| format!("opening the corpus {}", file.display()))?;
            writeln!(opened, "{}", hex(&input)).with_context(|| format!("writing to {}", file.display()))?;
        }
        self.inputs.push(input);
        Ok(())
    }
}
