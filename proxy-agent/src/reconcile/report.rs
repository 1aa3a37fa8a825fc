//! What one sync did.

use std::time::Duration;

use crate::{
    datapath::{Error, Failed},
    model::Warning,
    plan::SlotsFull,
};

/// What one sync did.
#[derive(Debug, Default)]
pub struct Report {
    /// The first after both full lists had come: from here on the maps are this cluster's.
    pub first: bool,
    /// Services (by name) that were looked at.
    pub services: usize,
    /// Map writes that were tried.
    pub writes: usize,
    /// Units that were refused; they are tried again.
    pub failed: Vec<Failed>,
    /// Services whose list found no room; they are tried again.
    pub no_slots: Vec<SlotsFull>,
    /// Why nothing was written: after a failed unit that could not be taken back, the maps could not
    /// be read either. That is tried again.
    pub unreadable: Option<Error>,
    /// What is newly wrong with the input.
    pub warnings: Vec<Warning>,
    /// UDP backends were deleted: sockets may hang on them.
    pub udp_backends_gone: bool,
    /// From the begin of planning to the last map write.
    pub elapsed: Duration,
}

impl Report {
    /// Whether everything that was to be written stands in the maps.
    pub fn is_clean(&self) -> bool {
        self.failed.is_empty() && self.no_slots.is_empty() && self.unreadable.is_none()
    }
}
