//! Volumes of files, exhausted.

use lodestone_proof::fs;

use crate::common::{audit, exhaust};
