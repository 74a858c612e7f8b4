//! How a memory is made: from the mapped parts of a pool, of the process alone, or traced for the explorer.

use std::sync::{Arc, OnceLock};

use lodestone_width::{exact_u16, to_u64};

use super::hooks::Hooks;
use super::{Inner, Memory};
use crate::addr::{PmAddr, WORD_BYTES};
use crate::changes::Changes;
use crate::cpu::{FlushInstruction, StreamInstruction};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::mapping::{Backing, Mapping};
use crate::medium::Medium;
use crate::tracer::Tracer;

/// The parts of a [`Memory`] to be made.
pub(crate) struct Setup {
    pub(crate) parts: Vec<Mapping>,
    pub(crate) domain: Domain,
    pub(crate) read_only: bool,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    /// Ignored in the traced domain.
    pub(crate) medium: Option<Arc<dyn Medium>>,
}

impl Memory {
    pub(crate) fn new(setup: Setup) -> Self {
        Self::with_instructions(setup, FlushInstruction::detect(), StreamInstruction::detect())
    }

    /// As [`new`](Self::new), with instructions of the caller's choice; unsupported ones fall back to detection.
    pub(crate) fn with_instructions(mut setup: Setup, flush: FlushInstruction, stream: StreamInstruction) -> Self {
        let hooks = Hooks::of(&mut setup);
        Self {
            inner: Arc::new(Inner {
                parts: setup.parts.into_boxed_slice(),
                domain: setup.domain,
                flush_instruction: if flush.is_supported() { flush } else { FlushInstruction::detect() },
                stream_instruction: if stream.is_supported() { stream } else { StreamInstruction::detect() },
                hooks,
                block: OnceLock::new(),
                gate: Gate::default(),
                changes: Changes::default(),
                watch: OnceLock::new(),
            }),
        }
    }

    /// Zeroed memory of this process in the `dax-emulated` domain, for tests and measurements.
    ///
    /// # Errors
    /// When address space runs out.
    pub fn anonymous(len: u64) -> Result<Self> {
        Self::anonymous_with(&[len], Domain::DaxEmulated, None)
    }

    /// Zeroed memory of this process with parts of the given lengths, in a domain without files, reported to `medium`.
    ///
    /// # Errors
    /// When address space runs out, and for the `dax`, `block` and `traced` domains, which need a pool or a tracer.
    pub fn anonymous_with(parts: &[u64], domain: Domain, medium: Option<Arc<dyn Medium>>) -> Result<Self> {
        if matches!(domain, Domain::Dax | Domain::Block | Domain::Traced) {
            return Err(Error::Invalid {
                what: "domain",
                finding: format!("`{domain}` for memory without a file"),
                hint: "use dax-emulated, eadr or process, or open a pool",
            });
        }
        let parts = parts.iter().map(|len| anonymous_mapping(*len, *len)).collect::<Result<Vec<_>>>()?;
        Ok(Self::new(Setup { parts, domain, read_only: false, tracer: None, medium }))
    }

    /// Memory for the content of a device of so many bytes, to which a block domain is to be attached.
    pub(crate) fn for_device(bytes: u64, medium: Option<Arc<dyn Medium>>) -> Result<Self> {
        let parts = vec![anonymous_mapping(bytes, bytes)?];
        Ok(Self::new(Setup { parts, domain: Domain::Block, read_only: false, tracer: None, medium }))
    }

    /// Traced memory whose parts start with the given images and can grow to `reserve` bytes each.
    ///
    /// # Errors
    /// When address space runs out.
    pub fn traced(images: &[Vec<u8>], reserve: u64, tracer: Arc<dyn Tracer>) -> Result<Self> {
        let mut parts = Vec::with_capacity(images.len());
        for image in images {
            parts.push(anonymous_mapping(to_u64(image.len()), reserve)?);
        }
        let (domain, tracer) = (Domain::Traced, Some(tracer));
        let memory = Self::new(Setup { parts, domain, read_only: false, tracer, medium: None });
        for (part, image) in images.iter().enumerate() {
            for (index, chunk) in image.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                memory.raw_store(PmAddr::new(exact_u16(part), to_u64(index) * WORD_BYTES), u64::from_le_bytes(word));
            }
        }
        Ok(memory)
    }
}

fn anonymous_mapping(len: u64, reserve: u64) -> Result<Mapping> {
    let failed = |source| Error::io("(memory)", "mapping", "free memory or ask for less", source);
    let mapping = Mapping::reserve(reserve.max(len), Backing::Anonymous).map_err(failed)?;
    let whole_pages = len.checked_next_multiple_of(4096).ok_or(failed(rustix::io::Errno::NOMEM))?;
    mapping.extend(None, whole_pages).map_err(failed)?;
    Ok(mapping)
}
