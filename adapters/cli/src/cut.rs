//! What recovery cut off a journal: people and programs hear of it, whoever opened the directory.

use serde::Serialize;
use std::fmt;
use strandline_core::journal::command::FileName;
use strandline_core::journal::log;
use strandline_core::lifecycle::recovery::RecoveryReport;

/// A torn end that recovery cut. Nothing of it was acknowledged; a copy lies in `cut/`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Cut {
    pub(crate) file: String,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Cut {
    /// What opening a replica cut, if anything.
    pub(crate) fn of(report: &RecoveryReport) -> Option<Self> {
        let (file, offset, bytes) = report.cut.as_ref()?;
        Some(Self { file: file.to_string(), offset: *offset, bytes: *bytes })
    }

    /// What opening a directory of streams cut, if anything.
    pub(crate) fn of_streams(opened: &log::Opened) -> Option<Self> {
        let cut = opened.cut.as_ref()?;
        let file = FileName::Segment(cut.at.segment).to_string();
        Some(Self { file, offset: cut.at.offset, bytes: cut.bytes })
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, bytes } = self;
        write!(f, "{bytes} bytes that were never acknowledged were cut from {file} at offset {offset}")
    }
}
