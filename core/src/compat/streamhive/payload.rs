//! The JSON inside the envelopes, read strictly: what the reference writes, in any field order, and
//! none of what it merely tolerates.

use super::Rule;
use crate::record::{AuthorityId, Record, RecordError, RecordLimits, Version};
use crate::wire::json_read::{
    Context, FromJson, JsonFault, JsonFaultKind, List, RecordObject, Refusal, Seed, json_object, read_object,
};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// Why a payload is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PayloadError {
    /// It is not the JSON expected.
    #[error("payload: {0}")]
    Json(#[from] JsonFault),
    /// It is, and the record in it is none.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl PayloadError {
    /// The rule under which the reference answers otherwise, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Json(fault) => fault.refusal.map(Rule::Refusal),
            Self::Record(_) => None,
        }
    }

    pub(super) fn unsorted(detail: impl Into<String>) -> Self {
        let (refusal, kind) = (Some(Refusal::Unsorted), JsonFaultKind::Malformed);
        Self::Json(JsonFault { detail: detail.into(), refusal, kind })
    }
}

/// Lists are bounded by the file they stand in, and by limits their readers check.
const LIST_MAX: u32 = u32::MAX;

/// A journal entry's record. `shared` is an authority whose text it may share.
pub(super) fn record(
    text: &[u8],
    limits: &RecordLimits,
    shared: Option<&AuthorityId>,
) -> Result<Record, PayloadError> {
    Ok(read_object::<RecordObject<'_>>(text, LIST_MAX)?.judge(limits, shared)?)
}

json_object! {
    struct CheckpointObject<'de> = "a checkpoint" {
        watermark: Version = always "watermark",
        records: List<RecordObject<'de>> = always "records",
    }
}

/// A checkpoint's watermark and records, not judged yet.
pub(super) fn checkpoint(text: &[u8]) -> Result<(Version, Vec<RecordObject<'_>>), PayloadError> {
    let object = read_object::<CheckpointObject<'_>>(text, LIST_MAX)?;
    Ok((object.watermark, object.records.0))
}

json_object! {
    struct AuthorityObject<'de> = "an authority" {
        identity: Cow<'de, str> = always "authority_id",
        version: Version = always "version",
    }
}

/// An authority's identity and version, not judged yet.
pub(super) fn authority(text: &[u8]) -> Result<(Cow<'_, str>, Version), PayloadError> {
    let object = read_object::<AuthorityObject<'_>>(text, LIST_MAX)?;
    Ok((object.identity, object.version))
}

json_object! {
    struct MembersObject<'de> = "a membership" {
        members: NameList<'de> = unless_empty "members",
    }
}

/// A list of names, or the `null` that Go writes for one that was never made.
#[derive(Debug, Default)]
struct NameList<'de>(Option<Vec<Cow<'de, str>>>);

impl<'de> FromJson<'de> for NameList<'de> {
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error> {
        deserializer.deserialize_option(NameListVisitor(context))
    }
}

struct NameListVisitor<'a>(&'a Context);

impl<'de> Visitor<'de> for NameListVisitor<'_> {
    type Value = NameList<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(NameList(None))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        List::read(deserializer, self.0).map(|list| NameList(Some(list.0)))
    }
}

/// The members' names, not judged yet; `None` if the payload names no set (finding j10): it is `null`,
/// or an object whose `members` is absent or `null`.
pub(super) fn membership(text: &[u8]) -> Result<Option<Vec<Cow<'_, str>>>, PayloadError> {
    if text.trim_ascii() == b"null" {
        return Ok(None);
    }
    Ok(read_object::<MembersObject<'_>>(text, LIST_MAX)?.members.0)
}

json_object! {
    struct WatermarksObject<'de> = "watermarks" {
        marks: Marks<'de> = always "watermarks",
    }
}

/// An object whose names are peers, in strict order.
#[derive(Debug, Default)]
struct Marks<'de>(Vec<(Cow<'de, str>, Version)>);

impl<'de> FromJson<'de> for Marks<'de> {
    fn read<D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MarksVisitor(context))
    }
}

struct MarksVisitor<'a>(&'a Context);

impl MarksVisitor<'_> {
    fn check_after<E: Error>(&self, before: &str, name: &str) -> Result<(), E> {
        match before.cmp(name) {
            Ordering::Less => Ok(()),
            Ordering::Equal => {
                let detail = format!("peer {name:?} appears twice, expected once");
                Err(self.0.refuse(Refusal::DuplicateName, detail))
            }
            Ordering::Greater => {
                let detail = format!("peer {name:?} stands after {before:?}, expected bytewise order");
                Err(self.0.refuse(Refusal::Unsorted, detail))
            }
        }
    }
}

impl<'de> Visitor<'de> for MarksVisitor<'_> {
    type Value = Marks<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of peers and versions")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Err(self.0.refuse(Refusal::Null, "null for an object of peers"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut marks = Vec::<(Cow<'de, str>, Version)>::new();
        while let Some(name) = map.next_key_seed(Seed::<Cow<'de, str>>::new(self.0))? {
            if let Some((before, _)) = marks.last() {
                self.check_after(before, &name)?;
            }
            let mark = map.next_value_seed(Seed::new(self.0))?;
            marks.push((name, mark));
        }
        Ok(Marks(marks))
    }
}

/// The peers and their marks in strict order, not judged yet.
pub(super) fn watermarks(text: &[u8]) -> Result<Vec<(Cow<'_, str>, Version)>, PayloadError> {
    Ok(read_object::<WatermarksObject<'_>>(text, LIST_MAX)?.marks.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T: fmt::Debug>(read: Result<T, PayloadError>) -> Option<Refusal> {
        match read.unwrap_err() {
            PayloadError::Json(fault) => fault.refusal,
            PayloadError::Record(error) => panic!("{error}"),
        }
    }

    #[test]
    fn peers_stand_in_strict_order() {
        let mark = r#"{"epoch":1,"sequence":1}"#;
        let read = |names: [&str; 2]| {
            let text = format!(r#"{{"watermarks":{{"{}":{mark},"{}":{mark}}}}}"#, names[0], names[1]);
            watermarks(text.as_bytes()).map(|marks| marks.len())
        };
        assert_eq!(read(["A", "a"]), Ok(2));
        assert_eq!(refusal(read(["a", "A"])), Some(Refusal::Unsorted));
        assert_eq!(refusal(read(["a", "a"])), Some(Refusal::DuplicateName));
    }

    #[test]
    fn null_for_peers_or_a_mark() {
        assert_eq!(refusal(watermarks(br#"{"watermarks":null}"#)), Some(Refusal::Null));
        assert_eq!(refusal(watermarks(br#"{"watermarks":{"a":null}}"#)), Some(Refusal::Null));
    }

    #[test]
    fn a_null_member_is_no_missing_set() {
        assert_eq!(membership(br#"{"members":null}"#), Ok(None));
        assert_eq!(refusal(membership(br#"{"members":[null]}"#)), Some(Refusal::Null));
        assert_eq!(refusal(membership(br#"{"x":1}"#)), Some(Refusal::UnknownField));
    }

    #[test]
    fn a_checkpoint_has_no_other_field() {
        let text = br#"{"watermark":{"epoch":0,"sequence":0},"x":1,"records":[]}"#;
        assert_eq!(refusal(checkpoint(text)), Some(Refusal::UnknownField));
    }
}
