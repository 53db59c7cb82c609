//! The JSON inside the envelopes, read strictly: what the reference writes, in any field order, and
//! none of what it merely tolerates.

use super::Rule;
use crate::record::{Record, RecordError, RecordLimits, Version};
use crate::wire::json_read::Refusal;
use crate::wire::json_read::object::ObjectSeed;
use crate::wire::json_read::scalar::{List, Text};
use crate::wire::json_read::{
    Context, Field, JsonFault, JsonFaultKind, Names, Object, RecordObject, VersionObject, read_object,
};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};

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

/// A journal entry's record.
pub(super) fn record(text: &[u8], limits: &RecordLimits) -> Result<Record, PayloadError> {
    Ok(read_object::<RecordObject<'_>>(text, LIST_MAX)?.judge(limits, None)?)
}

#[derive(Default)]
pub(super) struct CheckpointObject<'de> {
    pub(super) watermark: Version,
    pub(super) records: Vec<RecordObject<'de>>,
}

impl<'de> Object<'de> for CheckpointObject<'de> {
    const WHAT: &'static str = "a checkpoint";
    const NAMES: Names =
        Names { fields: &[Field::always("watermark"), Field::always("records")], skip_unknown: false };

    fn read<A: MapAccess<'de>>(
        &mut self,
        index: usize,
        map: &mut A,
        context: &Context,
    ) -> Result<(), A::Error> {
        match index {
            0 => self.watermark = map.next_value_seed(ObjectSeed::<VersionObject>::new(context))?.0,
            _ => self.records = map.next_value_seed(List::new(context))?,
        }
        Ok(())
    }
}

/// A checkpoint's watermark and records, not judged yet.
pub(super) fn checkpoint(text: &[u8]) -> Result<CheckpointObject<'_>, PayloadError> {
    Ok(read_object(text, LIST_MAX)?)
}

#[derive(Default)]
struct AuthorityObject {
    identity: String,
    version: Version,
}

impl<'de> Object<'de> for AuthorityObject {
    const WHAT: &'static str = "an authority";
    const NAMES: Names =
        Names { fields: &[Field::always("authority_id"), Field::always("version")], skip_unknown: false };

    fn read<A: MapAccess<'de>>(
        &mut self,
        index: usize,
        map: &mut A,
        context: &Context,
    ) -> Result<(), A::Error> {
        match index {
            0 => self.identity = map.next_value_seed(Text(context))?.into_owned(),
            _ => self.version = map.next_value_seed(ObjectSeed::<VersionObject>::new(context))?.0,
        }
        Ok(())
    }
}

/// An authority's identity and version, not judged yet.
pub(super) fn authority(text: &[u8]) -> Result<(String, Version), PayloadError> {
    let object = read_object::<AuthorityObject>(text, LIST_MAX)?;
    Ok((object.identity, object.version))
}

#[derive(Default)]
struct MembersObject<'de> {
    members: Option<Vec<Cow<'de, str>>>,
}

impl<'de> Object<'de> for MembersObject<'de> {
    const WHAT: &'static str = "a membership";
    const NAMES: Names = Names { fields: &[Field::unless_empty("members")], skip_unknown: false };

    fn read<A: MapAccess<'de>>(&mut self, _: usize, map: &mut A, context: &Context) -> Result<(), A::Error> {
        self.members = map.next_value_seed(OptionalList(context))?;
        Ok(())
    }
}

/// A list, or the `null` that Go writes for one that was never made.
struct OptionalList<'a>(&'a Context);

impl<'de> DeserializeSeed<'de> for OptionalList<'_> {
    type Value = Option<Vec<Cow<'de, str>>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for OptionalList<'_> {
    type Value = Option<Vec<Cow<'de, str>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names")
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        List::new(self.0).deserialize(deserializer).map(Some)
    }
}

/// The members' names, not judged yet; `None` if the payload names no set (finding j10): it is `null`,
/// or an object whose `members` is absent or `null`.
pub(super) fn membership(text: &[u8]) -> Result<Option<Vec<String>>, PayloadError> {
    if text.trim_ascii() == b"null" {
        return Ok(None);
    }
    let members = read_object::<MembersObject<'_>>(text, LIST_MAX)?.members;
    Ok(members.map(|names| names.into_iter().map(Cow::into_owned).collect()))
}

#[derive(Default)]
struct WatermarksObject {
    marks: Vec<(String, Version)>,
}

impl<'de> Object<'de> for WatermarksObject {
    const WHAT: &'static str = "watermarks";
    const NAMES: Names = Names { fields: &[Field::always("watermarks")], skip_unknown: false };

    fn read<A: MapAccess<'de>>(&mut self, _: usize, map: &mut A, context: &Context) -> Result<(), A::Error> {
        self.marks = map.next_value_seed(Marks(context))?;
        Ok(())
    }
}

/// An object whose names are peers.
struct Marks<'a>(&'a Context);

impl<'de> DeserializeSeed<'de> for Marks<'_> {
    type Value = Vec<(String, Version)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Marks<'_> {
    type Value = Vec<(String, Version)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of peers and versions")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Err(self.0.refuse(Refusal::Null, "null for an object of peers"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut marks = Vec::<(String, Version)>::new();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            if let Some((before, _)) = marks.last() {
                match before.as_str().cmp(&name) {
                    core::cmp::Ordering::Less => {}
                    core::cmp::Ordering::Equal => {
                        let detail = format!("peer {before:?} appears twice, expected once");
                        return Err(self.0.refuse(Refusal::DuplicateName, detail));
                    }
                    core::cmp::Ordering::Greater => {
                        let detail = format!("a peer stands after {before:?}, expected bytewise order");
                        return Err(self.0.refuse(Refusal::Unsorted, detail));
                    }
                }
            }
            let mark = map.next_value_seed(ObjectSeed::<VersionObject>::new(self.0))?.0;
            marks.push((name.into_owned(), mark));
        }
        Ok(marks)
    }
}

/// The peers and their marks in strict order, not judged yet.
pub(super) fn watermarks(text: &[u8]) -> Result<Vec<(String, Version)>, PayloadError> {
    Ok(read_object::<WatermarksObject>(text, LIST_MAX)?.marks)
}
