//! Mutations become records: judged, given versions, and submitted as one group of the journal.

use super::api::{Accepted, Change, Entry, Mutation, MutationError};
use super::entry::{ENTRY_RECORD, ENTRY_RECORD_WANTED};
use super::shared::Shared;
use crate::id::Lsn;
use crate::journal::writer::AppendError;
use crate::machine::Health;
use crate::record::{BlobKey, Key, Record, State, Version};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Judges `mutations` one after the other, gives them versions and submits them as one group: all
/// or none, in this order.
pub(super) fn mutate(shared: &mut Shared, mutations: &[Mutation]) -> Result<Vec<Accepted>, MutationError> {
    writable(shared)?;
    let max = u64::from(shared.config.journal.pending_entries_max);
    let found = mutations.len() as u64;
    if found == 0 || found > max {
        return Err(MutationError::BatchTooLarge { found, max, unit: "mutations" });
    }
    preconditions(shared, mutations)?;
    room(shared, mutations)?;
    let Some(authority) = &mut shared.authority else {
        unreachable!("writable() found an authority");
    };
    let id = authority.id().clone();
    let first = authority
        .allocate(found)
        .map_err(|exhausted| MutationError::Fenced { reason: exhausted.to_string() })?;
    let versions = (first.sequence..).map(|sequence| Version::new(first.epoch, sequence));
    let mut records = Vec::with_capacity(mutations.len());
    for (mutation, version) in mutations.iter().zip(versions) {
        let state = match mutation.change {
            Change::Put { blob } => State::Present { blob },
            Change::Delete => State::Deleted,
        };
        records.push(shared.config.record.record(mutation.key.clone(), state, version, id.clone())?);
    }
    // Its caller may have stored a blob that had been lost, before that was found or after.
    let lost: BTreeSet<BlobKey> =
        records.iter().filter_map(super::receive::blob_of).filter(|blob| shared.wanted.wants(blob)).collect();
    let last = submit(shared, &records, &lost)?;
    if !lost.is_empty() {
        shared.look_for_blobs();
    }
    let lsn_of = |back: usize| Lsn::new(last.get() - back as u64).expect("within the group");
    let accepted = records
        .iter()
        .enumerate()
        .map(|(i, record)| Accepted { lsn: lsn_of(records.len() - 1 - i), version: record.version });
    Ok(accepted.collect())
}

/// Whether this replica takes mutations of its own now.
fn writable(shared: &Shared) -> Result<(), MutationError> {
    if let Some(fault) = &shared.halted {
        return Err(MutationError::Halted(fault.clone()));
    }
    if shared.closing {
        return Err(MutationError::Closing);
    }
    if shared.authority.is_none() {
        if let Some(reason) = &shared.fenced {
            return Err(MutationError::Fenced { reason: reason.clone() });
        }
        let authority = shared.latest_epoch().map_or("another replica", |(_, authority)| authority.as_str());
        return Err(MutationError::NotAuthority { authority: authority.to_string() });
    }
    if shared.fencing.is_some() {
        let reason = "the authority is being moved here".to_string();
        return Err(MutationError::Fenced { reason });
    }
    if shared.install.is_some() {
        return Err(MutationError::Installing);
    }
    Ok(())
}

/// Judges namespaces and conditions, each mutation seeing those before it.
fn preconditions(shared: &Shared, mutations: &[Mutation]) -> Result<(), MutationError> {
    let mut within: BTreeMap<&Key, ()> = BTreeMap::new();
    for mutation in mutations {
        if let Change::Put { blob } = mutation.change
            && shared.is_removing(&blob)
        {
            return Err(MutationError::Collecting { blob });
        }
        let namespace = mutation.key.namespace();
        shared.config.record.key(namespace, mutation.key.logical_key())?;
        if !shared.current.namespaces.iter().any(|n| n == namespace) {
            return Err(MutationError::Namespace {
                found: namespace.escape_ascii().to_string(),
                count: shared.current.namespaces.len(),
            });
        }
        if let Some(expected) = mutation.if_version {
            // A key that this very group changes before has a version nobody can know yet.
            let known =
                if within.contains_key(&mutation.key) { None } else { Some(shared.latest(&mutation.key)) };
            if known != Some(expected) {
                let found = known.unwrap_or(shared.submitted);
                return Err(MutationError::Precondition { key: mutation.key.clone(), expected, found });
            }
        }
        within.insert(&mutation.key, ());
    }
    Ok(())
}

/// Refuses what the journal would refuse, before versions are spent on it.
fn room(shared: &Shared, mutations: &[Mutation]) -> Result<(), MutationError> {
    // Longest authority, state and numbers beside the key.
    let fixed = 128 + u64::from(shared.config.record.authority_bytes_max);
    let bytes: u64 =
        mutations.iter().map(|m| fixed + (m.key.namespace().len() + m.key.logical_key().len()) as u64).sum();
    let max = u64::from(shared.config.journal.batch_bytes_max);
    if bytes > max {
        return Err(MutationError::BatchTooLarge { found: bytes, max, unit: "bytes" });
    }
    let queued = shared.journal.pending_bytes();
    let bytes_max = u64::from(shared.config.journal.pending_bytes_max);
    let entries_max = u64::from(shared.config.journal.pending_entries_max);
    if queued + bytes > bytes_max || shared.journal.pending_entries() + mutations.len() as u64 > entries_max {
        return Err(MutationError::Full { queued_bytes: queued, bytes_max });
    }
    Ok(())
}

/// Submits records of one group. They were judged: in order, of this log, within its limits. Those whose
/// blob is `absent` want it from now on.
pub(super) fn submit(
    shared: &mut Shared,
    records: &[Record],
    absent: &BTreeSet<BlobKey>,
) -> Result<Lsn, MutationError> {
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(records.len());
    for record in records {
        record.encode_canonical(&mut bytes);
        ends.push(bytes.len());
    }
    let mut start = 0;
    let wants = |record: &Record| super::receive::blob_of(record).filter(|blob| absent.contains(blob));
    let entries: Vec<(u8, &[u8])> = ends
        .iter()
        .zip(records)
        .map(|(end, record)| {
            let kind = if wants(record).is_some() { ENTRY_RECORD_WANTED } else { ENTRY_RECORD };
            let entry = (kind, &bytes[start..*end]);
            start = *end;
            entry
        })
        .collect();
    let (first, last) = match shared.journal.append_group(&entries) {
        Ok(lsns) => lsns,
        Err(error) => return Err(refused(shared, error)),
    };
    let mut lsn = first;
    for record in records {
        let entry =
            Entry { state: record.state, version: record.version, authority: record.authority.clone() };
        shared.views.submit(lsn, record.key.clone(), entry);
        if let Some(blob) = wants(record) {
            shared.wanted.want(record.key.clone(), record.version, blob);
        }
        if let State::Present { blob } = record.state {
            shared.name_blob(blob);
        }
        lsn = lsn.plus(1);
    }
    let tail = records.last().expect("the journal refuses an empty group");
    shared.submitted = tail.version;
    shared.submitted_epoch = Some((tail.version.epoch, tail.authority.clone()));
    if shared.authority.is_some() {
        shared.gated.push_back((first, tail.version));
    }
    shared.submit();
    Ok(last)
}

/// What the journal's refusal means to who submitted.
fn refused(shared: &Shared, error: AppendError) -> MutationError {
    match error {
        AppendError::Full { bytes, bytes_max, .. } => {
            MutationError::Full { queued_bytes: bytes, bytes_max: u64::from(bytes_max) }
        }
        AppendError::JournalFull { bytes, bytes_max, entries, entries_max } => {
            let by_entries = entries >= entries_max;
            let (found, max, unit) =
                if by_entries { (entries, entries_max, "entries") } else { (bytes, bytes_max, "bytes") };
            MutationError::JournalFull { found, max, unit, blocked_by: shared.compaction_blocker() }
        }
        AppendError::EntryTooLarge { bytes, bytes_max } | AppendError::GroupTooLarge { bytes, bytes_max } => {
            MutationError::BatchTooLarge { found: bytes, max: u64::from(bytes_max), unit: "bytes" }
        }
        AppendError::GroupTooLong { entries, entries_max } => {
            MutationError::BatchTooLarge { found: entries, max: u64::from(entries_max), unit: "records" }
        }
        AppendError::GroupEmpty => MutationError::BatchTooLarge { found: 0, max: 1, unit: "records" },
        AppendError::Halted => match shared.journal.health() {
            Health::Halted(fault) => MutationError::Halted(fault.clone()),
            Health::Running => unreachable!("a running journal does not refuse as halted"),
        },
    }
}
