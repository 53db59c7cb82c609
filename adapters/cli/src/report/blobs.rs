//! What a collection and a scrub found, as data.

use super::BlobText;
use crate::text::KeyText;
use serde::{Deserialize, Serialize};
use strandline_core::lifecycle::api::{BadBlob, Collected, Scrubbed};

/// What a collection removed, or would remove.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct CollectedReport {
    pub(crate) dry_run: bool,
    pub(crate) looked: u64,
    pub(crate) blobs: u64,
    pub(crate) bytes: u64,
    /// The first of them.
    pub(crate) keys: Vec<BlobText>,
}

impl CollectedReport {
    pub(crate) fn new(dry_run: bool, collected: &Collected) -> Self {
        Self {
            dry_run,
            looked: collected.looked,
            blobs: collected.blobs,
            bytes: collected.bytes,
            keys: collected.keys.iter().copied().map(BlobText).collect(),
        }
    }
}

impl From<CollectedReport> for Collected {
    fn from(report: CollectedReport) -> Self {
        let keys = report.keys.into_iter().map(|blob| blob.0).collect();
        Self { looked: report.looked, blobs: report.blobs, bytes: report.bytes, keys }
    }
}

/// A blob that is not what its key needs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct BadReport {
    #[serde(flatten)]
    pub(crate) key: KeyText,
    pub(crate) blob: BlobText,
    /// Whether other bytes were there; else there were none.
    pub(crate) damaged: bool,
}

/// What a scrub found.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct ScrubbedReport {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
    pub(crate) found: u64,
    /// The first of them.
    pub(crate) bad: Vec<BadReport>,
    /// How many blobs are still wanted from peers.
    #[serde(default)]
    pub(crate) wanted: u64,
}

impl From<&Scrubbed> for ScrubbedReport {
    fn from(scrubbed: &Scrubbed) -> Self {
        let bad = |bad: &BadBlob| BadReport {
            key: KeyText::from(&bad.key),
            blob: BlobText(bad.blob),
            damaged: bad.damaged,
        };
        Self {
            keys: scrubbed.keys,
            bytes: scrubbed.bytes,
            found: scrubbed.bad,
            bad: scrubbed.blobs.iter().map(bad).collect(),
            wanted: 0,
        }
    }
}

impl ScrubbedReport {
    pub(crate) fn to_scrubbed(&self) -> Result<Scrubbed, String> {
        let bad =
            |bad: &BadReport| Ok(BadBlob { key: bad.key.to_key()?, blob: bad.blob.0, damaged: bad.damaged });
        let blobs = self.bad.iter().map(bad).collect::<Result<_, String>>()?;
        Ok(Scrubbed { keys: self.keys, bytes: self.bytes, bad: self.found, blobs })
    }
}
