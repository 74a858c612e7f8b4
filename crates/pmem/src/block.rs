//! The block domain: placeholder of the group commit engine.
use crate::addr::LineAddr;
use crate::error::Result;
use crate::memory::Memory;

#[derive(Debug)]
pub(crate) struct BlockDomain {}

impl BlockDomain {
    pub(crate) fn flush(&self, _memory: &Memory, _line: LineAddr) {}
    pub(crate) fn durable(&self) -> Result<()> {
        Ok(())
    }
    pub(crate) fn durable_lines(&self, _lines: impl Iterator<Item = LineAddr>) -> Result<()> {
        Ok(())
    }
}
