//! The root's side of an installation: verify the whole snapshot, make it durable, commit it with
//! `current`, and make it our state.

use super::api::{CloseReason, Event, PeerFaultKind};
use super::checkpoint_read::{CheckpointLimits, CheckpointReader};
use super::install::{Install, Stage};
use super::shared::{Commit, InstallPurpose, Purpose, Shared};
use super::subscribe::Recent;
use crate::error::StorageFault;
use crate::id::LinkId;
use crate::journal::command::{FileName, SegmentNumber, StorageCommand};
use crate::record::{BlobKey, State};
use alloc::string::ToString;
use alloc::vec::Vec;

impl Shared {
    /// Gives up a snapshot that is not going to be installed.
    pub(super) fn abandon_install(&mut self, install: &Install) {
        self.removals.insert(install.file());
        self.remove_unused();
        self.freed = true;
    }

    /// Whether a snapshot is being installed that some link brings, or that is past that.
    pub(super) fn installing(&self) -> bool {
        self.install.as_ref().is_some_and(|install| !install.is_idle())
    }

    /// Gives up a snapshot that nobody brings.
    pub(super) fn abandon_idle_install(&mut self) {
        if let Some(install) = self.install.take_if(|install| install.is_idle()) {
            self.abandon_install(&install);
        }
    }

    /// A command of the installation was answered. `Err` carries the link that must go down.
    pub(super) fn on_install(
        &mut self,
        number: u64,
        purpose: InstallPurpose,
        result: Result<Vec<Option<u64>>, StorageFault>,
    ) -> Option<(LinkId, CloseReason)> {
        // An answer to one that was given up says nothing of its successor.
        let mut install = self.install.take_if(|install| install.number == number)?;
        let lengths = match result {
            Ok(lengths) => lengths,
            Err(fault) => {
                self.abandon_install(&install);
                return install.link.map(|link| (link, CloseReason::Storage(fault)));
            }
        };
        match purpose {
            InstallPurpose::Write => install.writes_out -= 1,
            InstallPurpose::Stat(keys) => {
                install.stats_out -= 1;
                let missing = keys.iter().zip(&lengths).filter(|(_, length)| length.is_none());
                install.missing.extend(missing.map(|(key, _)| *key));
            }
            InstallPurpose::Sync => {
                install.stage = Stage::Entering;
                let gate = self.gate();
                self.journal.switch_segment(gate, &mut self.out);
            }
        }
        self.install = Some(install);
        self.advance_install()
    }

    /// A blob is stored, whoever brought it.
    pub(super) fn install_has_blob(&mut self, key: BlobKey) {
        if let Some(install) = &mut self.install {
            install.missing.remove(&key);
            install.absent.remove(&key);
        }
    }

    /// Whether the snapshot that `link` brings lacks a blob.
    pub(super) fn install_misses(&self, link: LinkId, key: &BlobKey) -> bool {
        self.install.as_ref().is_some_and(|i| i.link == Some(link) && i.missing.contains(key))
    }

    /// The peer that brings the snapshot does not have a blob of it either: it is installed without, if
    /// not too many are missing already.
    pub(super) fn install_goes_without(&mut self, link: LinkId, key: BlobKey) {
        let wanted_max = self.config.blobs_wanted_max as usize;
        if let Some(install) = self.install.as_mut().filter(|install| install.link == Some(link))
            && install.absent.len() < wanted_max
            && install.missing.remove(&key)
        {
            install.absent.insert(key);
        }
    }

    /// Goes on with the installation as far as it can. The link that must go down, if one must.
    pub(super) fn advance_install(&mut self) -> Option<(LinkId, CloseReason)> {
        let mut install = self.install.take()?;
        let complete = install.received == install.offer.bytes
            && install.writes_out == 0
            && install.stats_out == 0
            && install.unlooked.is_empty()
            && install.missing.is_empty();
        match install.stage {
            Stage::Reading if complete => {
                if let Err((link, reason)) = self.verify_install(&mut install) {
                    self.abandon_install(&install);
                    return link.map(|link| (link, reason));
                }
                install.stage = Stage::Syncing;
                let file = install.file();
                let purpose = Purpose::Install(install.number, InstallPurpose::Sync);
                self.out.command(purpose, |ticket| StorageCommand::Sync { ticket, file });
            }
            // One replacement of `current` at a time.
            Stage::Entering if self.committing.is_some() => {}
            Stage::Entering => {
                if let Some(switched) = self.journal.take_switched() {
                    install.stage = Stage::Committing;
                    self.commit_install(&install, switched.segment);
                }
            }
            Stage::Reading | Stage::Syncing | Stage::Committing => {}
        }
        self.install = Some(install);
        None
    }

    /// All bytes are here: they must be what was offered.
    fn verify_install(&self, install: &mut Install) -> Result<(), (Option<LinkId>, CloseReason)> {
        let limits = CheckpointLimits::of(self.current.log);
        let reader = core::mem::replace(&mut install.reader, CheckpointReader::new(limits));
        let fault = |expected: alloc::string::String, found: alloc::string::String| {
            let fault = super::api::PeerFault { what: PeerFaultKind::Snapshot, expected, found };
            (install.link, CloseReason::Fault(fault))
        };
        let summary = reader.finish().map_err(|error| fault(error.expected.clone(), error.to_string()))?;
        let digest_fits = install.offer.cut_digest.is_none_or(|digest| digest == summary.header.cut_digest);
        if summary.sha256 != install.offer.sha256
            || summary.records != install.offer.records
            || summary.header.cut != install.offer.cut
            || !digest_fits
        {
            let expected = alloc::format!("{} records at {}", install.offer.records, install.offer.cut);
            let found = alloc::format!(
                "{} records at {}, or another SHA-256 or digest",
                summary.records,
                summary.header.cut
            );
            return Err(fault(expected, found));
        }
        install.header = Some(summary.header);
        Ok(())
    }

    fn commit_install(&mut self, install: &Install, first_segment: SegmentNumber) {
        self.obsolete = self.current.checkpoint.map(|c| FileName::Checkpoint(c.number)).into_iter().collect();
        let (mut current, mut opaque) = (self.current.clone(), self.opaque.clone());
        current.first_segment = first_segment;
        current.checkpoint = Some(install.reference());
        current.floor = super::opaque::floor_bytes(install.offer.cut);
        current.floor_digest = install.header.as_ref().map_or([0; 32], |header| header.cut_digest);
        opaque.chained = install.offer.cut_digest.is_some();
        opaque.checkpoint_records = install.records;
        opaque.wanting =
            !install.absent.is_empty() || self.may_lose_blobs() || install.blobs_lost != self.blobs_lost;
        self.save_current(Commit::Installation, current, opaque);
    }

    /// `current` names the snapshot: it is our state now.
    pub(super) fn installed(&mut self) {
        let Some(install) = self.install.take() else { return };
        let cut = install.offer.cut;
        self.views = install.views;
        self.wanted.clear();
        if !install.absent.is_empty() {
            for (key, entry) in self.views.visible_from(None) {
                if let State::Present { blob } = entry.state
                    && install.absent.contains(&blob)
                {
                    self.wanted.want(key.clone(), entry.version, blob);
                }
            }
        }
        if install.blobs_lost != self.blobs_lost {
            self.look_anew();
        }
        let (digest, epochs) = match install.header {
            Some(header) => (header.cut_digest, header.epochs),
            None => ([0; 32], Vec::new()),
        };
        self.submitted_epoch = epochs.last().map(|mark| (mark.epoch, mark.authority.clone()));
        self.history.reset(cut, digest, &epochs);
        self.submitted = cut;
        self.recent = Recent::new(cut);
        self.wake_subscriptions();
        self.drop_segments();
        self.out.event(Event::Installed { cut, records: install.records });
    }
}
