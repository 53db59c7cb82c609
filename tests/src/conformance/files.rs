//! The five v1 files, the reference's default limits, and its table of printable characters.

use super::Trouble;
use super::input::{Input, Limits, RawParts, digest, sha256};
use super::judge::{Refused, Report};
use serde_json::Value;
use strandline_core::compat::streamhive::authority::{Authority, AuthorityLimits};
use strandline_core::compat::streamhive::checkpoint::{Checkpoint, CheckpointLimits};
use strandline_core::compat::streamhive::journal::{self, End, Journal, JournalLimits};
use strandline_core::compat::streamhive::membership::{Membership, MembershipLimits};
use strandline_core::compat::streamhive::watermarks::{WatermarkLimits, Watermarks};
use strandline_core::compat::streamhive::{Improvement, Rule};
use strandline_core::record::{Record, RecordLimits, Version, is_printable};
use strandline_core::wire::limits::WireLimits;

/// What a journal was read as.
#[derive(Debug, PartialEq)]
struct JournalSummary {
    floor: Version,
    last: Version,
    entries: u64,
    bytes: u64,
    torn: bool,
    digest: String,
}

pub(super) fn journal(
    file: &Input<'_>,
    name: &str,
    bytes: &[u8],
    report: &mut Report,
) -> Result<(), Trouble> {
    let limits = Limits::new(file.field("limits"))?.journal()?;
    let expected = file.outcome(|file| {
        let summary = file.field("summary");
        report.same(name, &summary.version("floor")?, &summary.version("recovery_floor")?);
        report.same(name, &summary.version("last")?, &summary.version("recovery_last")?);
        Ok(JournalSummary {
            floor: summary.version("floor")?,
            last: summary.version("last")?,
            entries: summary.number("entries")?,
            bytes: summary.number("bytes")?,
            torn: summary.flag("truncated_tail")?,
            digest: summary.text("records_digest")?.to_owned(),
        })
    })?;
    let read = Journal::decode(bytes, &limits);
    let accepted = read.as_ref().ok().and_then(|journal| journal.end.improvement()).map(Rule::Improvement);
    let found = match &read {
        Ok(journal) => Ok(summary(journal, bytes.len() as u64)),
        Err(error) => Err(Refused::new(error, error.rule())),
    };
    report.answer(name, &expected, &found, accepted);
    if let (Ok(_), Ok(journal)) = (&expected, &read) {
        check_listed(file.field("summary"), report, name, &journal.records)?;
        let written = journal.encode(&limits).map_err(|error| error.to_string())?;
        report.same(&format!("{name} re-encoded"), &file.flag("reencode_identical")?, &(written == bytes));
    }
    after_open(file, name, bytes, &limits, expected.is_err(), report)
}

fn summary(journal: &Journal, file_bytes: u64) -> JournalSummary {
    JournalSummary {
        floor: journal.floor,
        last: journal.last(),
        entries: journal.records.len() as u64,
        bytes: match journal.end {
            End::Clean => file_bytes,
            End::Torn { offset, .. } | End::Zeros { offset, .. } => offset,
        },
        torn: journal.end != End::Clean,
        digest: digest(&journal.records),
    }
}

/// What the reference leaves on disk. We leave the file as it is; that only is a difference where
/// the reference changes a file it then fails to open.
fn after_open(
    file: &Input<'_>,
    name: &str,
    bytes: &[u8],
    limits: &JournalLimits,
    failed: bool,
    report: &mut Report,
) -> Result<(), Trouble> {
    let what = format!("{name} after open");
    let left = journal::after_open(bytes, limits);
    report.same(&what, &file.number("after_open_size")?, &(left.len() as u64));
    let changed = file.flag_if_any("file_changed_by_open");
    report.same(&what, &changed, &(*left != *bytes));
    if changed {
        report.same(&what, &file.text("after_open_sha256")?.to_owned(), &sha256(&left));
        if failed {
            report.difference(&what, Rule::Improvement(Improvement::FailedOpenUntouched));
        }
    }
    Ok(())
}

/// Compares records with those a summary lists one by one, and their count.
fn check_listed(
    summary: Input<'_>,
    report: &mut Report,
    name: &str,
    found: &[Record],
) -> Result<(), Trouble> {
    report.same(name, &summary.number("records_count")?, &(found.len() as u64));
    let listed = summary.list("records")?;
    for (listed, found) in listed.into_iter().zip(found) {
        let listed = RawParts::read(listed)?.judge(&RecordLimits::default());
        report.same(name, &listed.as_ref(), &Ok(found));
    }
    Ok(())
}

pub(super) fn checkpoint(
    file: &Input<'_>,
    name: &str,
    bytes: &[u8],
    report: &mut Report,
) -> Result<(), Trouble> {
    let limits = Limits::new(file.field("limits"))?.checkpoint()?;
    let expected = file.outcome(|file| {
        let summary = file.field("summary");
        Ok((summary.version("watermark")?, summary.text("records_digest")?.to_owned()))
    })?;
    let read = Checkpoint::decode(bytes, &limits);
    let found = match &read {
        Ok(checkpoint) => Ok((checkpoint.watermark(), digest(checkpoint.records()))),
        Err(error) => Err(Refused::new(error, error.rule())),
    };
    report.answer(name, &expected, &found, None);
    if let (Ok(_), Ok(checkpoint)) = (&expected, &read) {
        check_listed(file.field("summary"), report, name, checkpoint.records())?;
        let written = checkpoint.encode(&limits).map_err(|error| error.to_string())?;
        report.same(&format!("{name} re-encoded"), &file.flag("reencode_identical")?, &(written == bytes));
    }
    Ok(())
}

pub(super) fn authority(
    file: &Input<'_>,
    name: &str,
    bytes: &[u8],
    report: &mut Report,
) -> Result<(), Trouble> {
    let limits = Limits::new(file.field("limits"))?.authority()?;
    let open = file.field("open");
    let identity = String::from_utf8(open.bytes("authority_id_hex")?).map_err(|error| error.to_string())?;
    let expected = file.outcome(|file| file.field("summary").version("current"))?;
    let read = Authority::open(bytes, &identity, open.version("observed")?, &limits);
    let found = match &read {
        Ok(authority) => Ok(authority.current()),
        Err(error) => Err(Refused::new(error, error.rule())),
    };
    report.answer(name, &expected, &found, None);
    let changed = file.flag_if_any("file_changed_by_open");
    let (Ok(_), Ok(mut authority)) = (expected, read) else {
        report.same(&format!("{name} after open"), &changed, &false);
        return Ok(());
    };
    let written = authority.encode(&limits).map_err(|error| error.to_string())?;
    report.same(&format!("{name} re-encoded"), &file.flag("reencode_identical")?, &(written == bytes));
    if changed {
        report.same(
            &format!("{name} after open"),
            &file.text("after_open_sha256")?.to_owned(),
            &sha256(&written),
        );
    }
    authority_next(file, name, &mut authority, &limits, report)
}

fn authority_next(
    file: &Input<'_>,
    name: &str,
    authority: &mut Authority,
    limits: &AuthorityLimits,
    report: &mut Report,
) -> Result<(), Trouble> {
    let what = format!("{name} next");
    let summary = file.field("summary");
    let expected = if summary.field("next_errors").is_null() {
        Ok(summary.version("next")?)
    } else {
        Err(summary.texts("next_errors")?.into_iter().map(String::from).collect())
    };
    let found = authority.next(Version::ZERO).map_err(|error| Refused::plain(&error));
    report.answer(&what, &expected, &found, None);
    if expected.is_ok() {
        let written = authority.encode(limits).map_err(|error| error.to_string())?;
        report.same(&what, &summary.text("after_next_sha256")?.to_owned(), &sha256(&written));
    }
    Ok(())
}

pub(super) fn membership(
    file: &Input<'_>,
    name: &str,
    bytes: &[u8],
    report: &mut Report,
) -> Result<(), Trouble> {
    let limits = Limits::new(file.field("limits"))?.membership()?;
    let expected = file.outcome(|file| {
        let summary = file.field("summary");
        report.same(name, &true, &summary.flag("configured")?);
        summary.texts("members_hex")?.into_iter().map(super::input::unhex).collect::<Result<Vec<_>, _>>()
    })?;
    let read = Membership::decode(bytes, &limits);
    let found = match &read {
        Ok(read) => Ok(read.members().iter().map(|name| name.as_str().as_bytes().to_vec()).collect()),
        Err(error) => Err(Refused::new(error, error.rule())),
    };
    report.answer(name, &expected, &found, None);
    if let (Ok(_), Ok(membership)) = (&expected, &read) {
        let written = membership.encode(&limits).map_err(|error| error.to_string())?;
        report.same(&format!("{name} re-encoded"), &file.flag("reencode_identical")?, &(written == bytes));
    }
    Ok(())
}

pub(super) fn watermarks(
    file: &Input<'_>,
    name: &str,
    bytes: &[u8],
    report: &mut Report,
) -> Result<(), Trouble> {
    let limits = Limits::new(file.field("limits"))?.watermarks()?;
    let expected = file.outcome(|file| {
        let peers = file.field("summary").list("peers")?;
        let mut marks = Vec::new();
        for peer in peers {
            marks.push((peer.bytes("peer_hex")?, peer.as_version()?));
        }
        marks.sort();
        Ok(marks)
    })?;
    let read = Watermarks::decode(bytes, &limits);
    let found = match &read {
        Ok(read) => Ok(read.iter().map(|(name, mark)| (name.as_str().as_bytes().to_vec(), mark)).collect()),
        Err(error) => Err(Refused::new(error, error.rule())),
    };
    report.answer(name, &expected, &found, None);
    if let (Ok(_), Ok(watermarks)) = (&expected, &read) {
        let written = watermarks.encode(&limits).map_err(|error| error.to_string())?;
        report.same(&format!("{name} re-encoded"), &file.flag("reencode_identical")?, &(written == bytes));
    }
    Ok(())
}

/// The reference's default limits are ours.
pub(super) fn defaults(manifest: &Value, report: &mut Report) -> Result<(), Trouble> {
    let (record, journal, wire) = (RecordLimits::default(), JournalLimits::default(), WireLimits::default());
    let (members, marks) = (MembershipLimits::default(), WatermarkLimits::default());
    let ours = [
        ("authority_max_bytes", AuthorityLimits::default().authority_file_bytes_max),
        ("max_authority_id_bytes", record.authority_bytes_max.into()),
        ("max_checkpoint_bytes", CheckpointLimits::default().checkpoint_bytes_max),
        ("max_journal_bytes", journal.journal_bytes_max),
        ("max_journal_entries", journal.entries_max.into()),
        ("max_logical_key_bytes", record.logical_key_bytes_max.into()),
        ("max_namespace_bytes", record.namespace_bytes_max.into()),
        ("max_record_bytes", record.record_bytes_max.into()),
        ("membership_max_bytes", members.membership_file_bytes_max),
        ("membership_max_peer_id_bytes", members.name_bytes_max.into()),
        ("membership_max_peers", members.members_max.into()),
        ("peer_auth_max_payload", super::handshake::PAYLOAD_BYTES_MAX.into()),
        ("repair_max_frame_bytes", wire.repair.payload_bytes_max.into()),
        ("repair_max_logical_key_bytes", wire.repair.key_bytes_max.into()),
        ("repair_max_metadata_bytes", wire.repair.record_json_bytes_max.into()),
        ("repair_max_records", wire.repair.records_max.into()),
        ("shv1_max_payload", strandline_core::limits::FRAME_PAYLOAD_BYTES_MAX.into()),
        ("transport_max_payload_bytes", wire.record_payload_bytes_max.into()),
        ("watermark_max_bytes", marks.watermark_file_bytes_max),
        ("watermark_max_peer_id_bytes", marks.name_bytes_max.into()),
        ("watermark_max_peers", marks.peers_max.into()),
    ];
    let input = Input::new(manifest).field("default_limits");
    if input.is_null() {
        return Ok(());
    }
    for name in input.object()?.keys() {
        let found = ours.iter().find(|(ours, _)| ours == name).map(|(_, limit)| *limit);
        report.same(&format!("default limit {name}"), &Some(input.number(name)?), &found);
    }
    Ok(())
}

/// Every code point prints for us exactly if it does for the reference.
pub(super) fn printable(ranges: &Value, report: &mut Report) -> Result<(), Trouble> {
    let bound = |text: &str| u32::from_str_radix(text, 16).map_err(|error| format!("{text:?}: {error}"));
    let mut printable = Vec::new();
    for range in Input::new(ranges).list("ranges")? {
        let [first, last] = range.elements()?[..] else {
            return Err(format!("expected a pair, found {}", range.0));
        };
        printable.push(bound(first.string()?)?..=bound(last.string()?)?);
    }
    let mut range = printable.iter().peekable();
    let mut differing = Vec::new();
    for point in 0..=0x10_ffff {
        while range.next_if(|range| *range.end() < point).is_some() {}
        let expected = range.peek().is_some_and(|range| range.contains(&point));
        if char::from_u32(point).is_some_and(is_printable) != expected {
            differing.push(point);
        }
    }
    report.same("printable characters that differ", &Vec::new(), &differing);
    Ok(())
}
