//! The header of a checkpoint, as bytes.

use super::checkpoint::be32;
use super::history::{EPOCHS_MAX, EpochMark};
use crate::id::LogId;
use crate::limits::PIECE_BYTES_MAX;
use crate::record::{AuthorityId, RecordLimits, Version};
use crate::wire::own::position::check_epochs;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub(super) const MAGIC: &[u8; 8] = b"STRNDCKP";
/// The format this program writes, and the newest it reads.
pub const CHECKPOINT_FORMAT: u32 = 1;
/// Longest body of a header.
pub(super) const BODY_BYTES_MAX: u32 = PIECE_BYTES_MAX;

/// What a body holds beside its epochs.
const FIXED_BYTES: u32 = 16 + 16 + 32 + 4;
/// What an epoch needs beside its authority.
const EPOCH_BYTES: u32 = 8 + 16 + 16 + 4;
/// Longest authority with which a header of the most epochs still fits.
pub(super) const EPOCH_AUTHORITY_BYTES_MAX: u32 =
    (BODY_BYTES_MAX - FIXED_BYTES) / EPOCHS_MAX as u32 - EPOCH_BYTES;

/// What a checkpoint stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckpointHeader {
    /// The log.
    pub log: LogId,
    /// No record in it is above this version, and none at or below it is missing.
    pub cut: Version,
    /// Digest of the history up to the cut.
    pub cut_digest: [u8; 32],
    /// The latest epochs that begin at or below the cut, oldest first, at most 64.
    pub epochs: Vec<EpochMark>,
}

fn put_version(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(&version.epoch.to_be_bytes());
    out.extend_from_slice(&version.sequence.to_be_bytes());
}

pub(super) fn encode_header(header: &CheckpointHeader) -> Vec<u8> {
    assert!(header.epochs.len() <= EPOCHS_MAX, "a checkpoint names at most {EPOCHS_MAX} epochs");
    let mut body = Vec::new();
    body.extend_from_slice(&header.log.0);
    put_version(&mut body, header.cut);
    body.extend_from_slice(&header.cut_digest);
    body.extend_from_slice(&be32(header.epochs.len()));
    for mark in &header.epochs {
        body.extend_from_slice(&mark.epoch.to_be_bytes());
        put_version(&mut body, mark.start);
        put_version(&mut body, mark.previous_end);
        body.extend_from_slice(&be32(mark.authority.as_str().len()));
        body.extend_from_slice(mark.authority.as_str().as_bytes());
    }
    assert!(body.len() <= BODY_BYTES_MAX as usize, "authority identities are bounded");
    let mut out = Vec::with_capacity(body.len() + 20);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&CHECKPOINT_FORMAT.to_be_bytes());
    out.extend_from_slice(&be32(body.len()));
    out.extend_from_slice(&body);
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    out
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

pub(super) fn take_sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bytes = take(rest, 4)?;
    take(rest, u32_at(bytes, 0) as usize)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(take(rest, 8)?.try_into().ok()?))
}

fn take_version(rest: &mut &[u8]) -> Option<Version> {
    Some(Version::new(take_u64(rest)?, take_u64(rest)?))
}

pub(super) fn parse_body(mut rest: &[u8]) -> Option<CheckpointHeader> {
    let rest = &mut rest;
    let log = LogId(take(rest, 16)?.try_into().ok()?);
    let cut = take_version(rest)?;
    let cut_digest = take(rest, 32)?.try_into().ok()?;
    let count = u32_at(take(rest, 4)?, 0) as usize;
    if count > EPOCHS_MAX {
        return None;
    }
    let mut epochs = Vec::with_capacity(count);
    for _ in 0..count {
        let (epoch, start, previous_end) = (take_u64(rest)?, take_version(rest)?, take_version(rest)?);
        let authority = AuthorityId::from_text(core::str::from_utf8(take_sized(rest)?).ok()?);
        epochs.push(EpochMark { epoch, start, previous_end, authority });
    }
    rest.is_empty().then_some(CheckpointHeader { log, cut, cut_digest, epochs })
}

/// What the epochs of a header break, as what is expected and what was found: what is read here is told to
/// peers and written again, and they are held to the same.
pub(super) fn check_header(header: &CheckpointHeader, record: &RecordLimits) -> Result<(), (String, String)> {
    let (epochs, cut) = (&header.epochs, header.cut);
    check_epochs(epochs).map_err(|fault| {
        ("epochs that ascend, each above what came before".to_string(), fault.to_string())
    })?;
    if let Some(mark) = epochs.iter().find(|mark| mark.start.epoch != mark.epoch || mark.start > cut) {
        let expected = format!("an epoch that begins with its own number, at {cut} at most");
        return Err((expected, format!("epoch {} from {} on", mark.epoch, mark.start)));
    }
    let bytes_max = record.authority_bytes_max;
    match epochs.iter().find_map(|mark| record.authority(mark.authority.as_str()).err()) {
        Some(error) => {
            Err((format!("an authority of at most {bytes_max} printable bytes"), error.to_string()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(epochs: usize) -> Vec<u8> {
        let (start, previous_end) = (Version::new(1, 1), Version::ZERO);
        let mark = EpochMark { epoch: 1, start, previous_end, authority: AuthorityId::from_text("a") };
        let epochs = alloc::vec![mark; epochs];
        let header =
            CheckpointHeader { log: LogId([1; 16]), cut: Version::new(2, 2), cut_digest: [3; 32], epochs };
        let bytes = encode_header(&header);
        let body = bytes[16..bytes.len() - 4].to_vec();
        assert_eq!(parse_body(&body), Some(header));
        body
    }

    #[test]
    fn a_body_of_another_length() {
        let whole = body(2);
        for end in 0..whole.len() {
            assert_eq!(parse_body(&whole[..end]), None, "{end}");
        }
        assert_eq!(parse_body(&[&whole[..], &[0]].concat()), None);
    }

    #[test]
    fn more_epochs_than_are_kept() {
        let mut full = body(EPOCHS_MAX);
        full[67] += 1;
        assert_eq!(parse_body(&full), None);
    }

    fn broken(change: impl FnOnce(&mut Vec<EpochMark>), limits: &RecordLimits) -> String {
        let mark = |epoch: u64| EpochMark {
            epoch,
            start: Version::new(epoch, 1),
            previous_end: Version::new(epoch - 1, 9),
            authority: AuthorityId::from_text("abc"),
        };
        let cut = Version::new(2, 1);
        let mut header = CheckpointHeader {
            log: LogId([1; 16]),
            cut,
            cut_digest: [3; 32],
            epochs: Vec::from([1, 2].map(mark)),
        };
        assert_eq!(check_header(&header, limits), Ok(()));
        change(&mut header.epochs);
        check_header(&header, limits).expect_err("broken").1
    }

    #[test]
    fn epochs_that_no_position_could_tell() {
        let limits = RecordLimits::default();
        let ends = |at| move |e: &mut Vec<EpochMark>| e[1].previous_end = Version::new(2, at);
        assert!(broken(ends(1), &limits).contains("2.1"));
        assert!(broken(ends(5), &limits).contains("2.5"));
        assert!(broken(|e| e.swap(0, 1), &limits).contains('2'));
        assert!(broken(|e| e.push(e[1].clone()), &limits).contains('2'));
    }

    #[test]
    fn an_epoch_that_begins_elsewhere() {
        let limits = RecordLimits::default();
        assert_eq!(broken(|e| e[1].start.sequence = 2, &limits), "epoch 2 from 2.2 on");
        assert_eq!(broken(|e| e[1].epoch = 3, &limits), "epoch 3 from 2.1 on");
    }

    #[test]
    fn an_authority_beyond_the_limits() {
        let limits = RecordLimits { authority_bytes_max: 3, ..RecordLimits::default() };
        for text in ["", "abcd", "\n"] {
            broken(|e| e[0].authority = AuthorityId::from_text(text), &limits);
        }
    }

    #[test]
    fn the_longest_authorities_fit() {
        let text = "a".repeat(EPOCH_AUTHORITY_BYTES_MAX as usize);
        let mark = |epoch| EpochMark {
            epoch,
            start: Version::new(epoch, 1),
            previous_end: Version::ZERO,
            authority: AuthorityId::from_text(&text),
        };
        let epochs = (1..=EPOCHS_MAX as u64).map(mark).collect();
        let header =
            CheckpointHeader { log: LogId([1; 16]), cut: Version::new(99, 1), cut_digest: [3; 32], epochs };
        let bytes = encode_header(&header);
        assert_eq!(parse_body(&bytes[16..bytes.len() - 4]), Some(header));
    }

    #[test]
    fn an_authority_that_is_no_text() {
        let mut one = body(1);
        *one.last_mut().expect("not empty") = 0xff;
        assert_eq!(parse_body(&one), None);
    }
}
