//! Ranges of keys: the arguments that `scan`, `count` and `export` share.

use std::ops::ControlFlow;

use anyhow::{Context, Result, bail};
use lodestone_store::{KeyForm, Records};

use crate::bytes;

type Key = Vec<u8>;

/// A range of keys.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RangeArgs {
    /// First key
    #[arg(long, value_name = "KEY")]
    from: Option<String>,

    /// First key after the range
    #[arg(long, value_name = "KEY")]
    to: Option<String>,

    /// Keys with this prefix
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,

    /// --from, --to and --prefix are hexadecimal digits; `scan` prints keys and values the same way
    #[arg(long)]
    pub hex: bool,
}

impl RangeArgs {
    /// Whether it is the whole map.
    pub fn is_everything(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.prefix.is_none()
    }

    /// First key of the range, and first key after it.
    fn bounds(&self) -> Result<(Option<Key>, Option<Key>)> {
        let key = |text: &Option<String>| text.as_deref().map(|text| bytes::key(text, self.hex)).transpose();
        match key(&self.prefix)? {
            Some(prefix) => {
                let end = bytes::prefix_end(&prefix);
                Ok((Some(prefix), end))
            }
            None => Ok((key(&self.from)?, key(&self.to)?)),
        }
    }

    /// Calls `visit` for each record in key order until it stops or fails.
    pub fn scan(
        &self,
        records: &dyn Records,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (from, to) = self.bounds()?;
        let mut failed = None;
        let is_number = records.key_form() == KeyForm::Number;
        if is_number && self.prefix.is_some() {
            bail!("the keys of this map are numbers, which have no prefix; use --from and --to");
        }
        let end = to.as_deref().map(|end| comparable(end, is_number)).transpose()?;
        let is_over = |key: &[u8]| match (&end, comparable(key, is_number)) {
            (Some(end), Ok(key)) => key >= *end,
            _ => false,
        };
        let show = &mut |key: &[u8], value: &[u8]| {
            if is_over(key) {
                return ControlFlow::Break(());
            }
            visit(key, value).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        };
        records.scan(from.as_deref(), show).map_err(anyhow::Error::from_boxed)?;
        failed.map_or(Ok(()), Err)
    }
}

/// The key in a form that has the same order as the keys of the map.
fn comparable(key: &[u8], is_number: bool) -> Result<Vec<u8>> {
    if !is_number {
        return Ok(key.to_vec());
    }
    let number: Option<i128> = std::str::from_utf8(key).ok().and_then(|text| text.parse().ok());
    let number =
        number.with_context(|| format!("the keys of this map are numbers, and `{}` is none", key.escape_ascii()))?;
    // The sign bit is flipped, so that negative numbers come first.
    Ok((number.cast_unsigned() ^ 1 << 127).to_be_bytes().to_vec())
}
