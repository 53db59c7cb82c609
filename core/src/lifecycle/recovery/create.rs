//! Making a new log: the files it begins with, `current` last.

use super::{Init, Purpose, Recovery, RecoveryError, Stage};
use crate::id::{Incarnation, Run};
use crate::journal::command::{FileName, Listed, SegmentNumber, StorageCommand};
use crate::journal::current::{self, Current};
use crate::lifecycle::authority::Authority;
use crate::lifecycle::config::ReplicaConfig;
use crate::lifecycle::opaque::{Opaque, floor_bytes};
use crate::lifecycle::sidecars::AUTHORITY;
use crate::record::Version;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl Recovery {
    pub(super) fn listed(&mut self, listed: Vec<Listed>) -> Result<(), RecoveryError> {
        let has_current = listed.iter().any(|l| l.file == FileName::Current);
        if self.init.is_some() {
            // What a crash during an earlier try may have left: all of it but `current` is unnamed.
            let first = listed.iter().find(|l| has_current || l.file != FileName::Authority);
            if let Some(found) = first {
                return Err(RecoveryError::Exists { found: found.file.to_string() });
            }
            return self.create_files();
        }
        if !has_current {
            return Err(RecoveryError::NoLog);
        }
        self.found.listed = listed;
        self.read_sidecars();
        Ok(())
    }

    pub(super) fn create_files(&mut self) -> Result<(), RecoveryError> {
        let Some(init) = &self.init else { unreachable!("only a new log is created") };
        let current = Current {
            log: init.log,
            incarnation: Incarnation { counter: 1, nonce: self.seed.bytes("incarnation", 0) },
            identity: init.identity.clone(),
            namespaces: init.namespaces.clone(),
            run: Run(1),
            first_segment: SegmentNumber(1),
            next_checkpoint: 1,
            checkpoint: None,
            floor: floor_bytes(Version::ZERO),
            floor_digest: [0; 32],
            opaque: Opaque {
                wanting: false,
                chained: true,
                entered: false,
                checkpoint_records: 0,
                authority: init.authority.clone(),
            }
            .encode(),
        };
        let mut files = Vec::new();
        if let Some(id) = &init.authority {
            let content = Authority::create(id.clone(), 1).initial_content();
            files.push((FileName::Authority, AUTHORITY.encode(&content)));
        }
        self.found.current = Some(current);
        self.stage = Stage::Creating;
        for (file, bytes) in files {
            self.out.command(Purpose::Create, |ticket| StorageCommand::Replace { ticket, file, bytes });
        }
        if self.init.as_ref().is_some_and(|init| init.authority.is_none()) {
            self.create_current();
        }
        Ok(())
    }

    /// `current` comes last: it is what makes the directory a log.
    pub(super) fn create_current(&mut self) {
        let Some(current) = &self.found.current else { unreachable!("its content was made first") };
        let (file, bytes) = (FileName::Current, current.encode());
        self.stage = Stage::Creating;
        self.out.command(Purpose::Create, |ticket| StorageCommand::Replace { ticket, file, bytes });
        self.init = None;
    }

    pub(super) fn created(&mut self) -> Result<(), RecoveryError> {
        if self.init.is_some() {
            self.create_current();
        } else {
            // The new log is opened as any other: one way in.
            self.stage = Stage::Listing;
            self.out.command(Purpose::List, |ticket| StorageCommand::List { ticket });
        }
        Ok(())
    }
}

/// Whether a log may be made for this.
pub(super) fn allowed(init: &Init, config: &ReplicaConfig) -> Result<(), RecoveryError> {
    let refuse = |what, expected: String, found: String| Err(RecoveryError::Init { what, expected, found });
    if let Some(found) = crate::lifecycle::membership::identity_fault(&init.identity) {
        return refuse("identity", "1 to 128 printable bytes".into(), found);
    }
    let most = current::NAMESPACES_MAX;
    if init.namespaces.is_empty() || init.namespaces.len() > most {
        let expected = alloc::format!("1 to {most} namespaces");
        return refuse("namespaces", expected, init.namespaces.len().to_string());
    }
    for namespace in &init.namespaces {
        let bytes_max = (config.record.namespace_bytes_max as usize).min(current::NAMESPACE_BYTES_MAX);
        if namespace.is_empty() || namespace.len() > bytes_max {
            let found = alloc::format!("{} bytes", namespace.len());
            return refuse("namespace", alloc::format!("1 to {bytes_max} bytes"), found);
        }
    }
    if let Some(authority) = &init.authority
        && let Err(error) = config.record.authority(authority.as_str())
    {
        return refuse("authority", "an authority identity".into(), error.to_string());
    }
    Ok(())
}
