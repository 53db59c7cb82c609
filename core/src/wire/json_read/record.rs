//! Versions and records as JSON objects.

use super::{Context, Field, Filled, Names, Object, Seed, json_object};
use crate::record::{AuthorityId, RawRecord, Record, RecordError, RecordLimits, Version};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use serde::de::MapAccess;

impl<'de> Object<'de> for Version {
    const WHAT: &'static str = "a version";
    const NAMES: Names =
        Names { fields: &[Field::always("epoch"), Field::always("sequence")], skip_unknown: false };

    fn read_field<A: MapAccess<'de>>(
        &mut self,
        index: usize,
        map: &mut A,
        context: &Context,
    ) -> Result<(), A::Error> {
        let number = map.next_value_seed(Seed::new(context))?;
        match index {
            0 => self.epoch = number,
            _ => self.sequence = number,
        }
        Ok(())
    }
}

json_object! {
    /// A record as read, before its values are judged.
    pub struct RecordObject<'de> = "a record" {
        namespace: Vec<u8> = always "namespace",
        logical_key: Vec<u8> = always "logical_key",
        state: Cow<'de, str> = always "state",
        blob_key: Filled<Vec<u8>> = unless_empty "blob_key",
        version: Version = always "version",
        authority: Cow<'de, str> = always "authority_id",
    }
}

impl RecordObject<'_> {
    /// Its version, judged or not.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Judges the values; see [`RecordLimits::judge`].
    ///
    /// # Errors
    /// The first value that is not a record's.
    pub fn judge(&self, limits: &RecordLimits, shared: Option<&AuthorityId>) -> Result<Record, RecordError> {
        let raw = RawRecord {
            namespace: &self.namespace,
            logical_key: &self.logical_key,
            state: &self.state,
            blob_key: &self.blob_key.0,
            version: self.version,
            authority: &self.authority,
        };
        limits.judge(&raw, shared)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Refusal, read_object};
    use super::*;

    #[test]
    fn what_we_write_reads_back() {
        let limits = RecordLimits::default();
        let record = limits
            .record(
                limits.key(b"n\0", b"\xff").expect("valid"),
                crate::record::State::Deleted,
                Version::new(u64::MAX, 0),
                limits.authority("<a&b>").expect("valid"),
            )
            .expect("valid");
        let mut text = Vec::new();
        crate::wire::json_write::write_record(&record, &mut text);
        let object: RecordObject<'_> = read_object(&text, 0).expect("just written");
        assert_eq!(object.judge(&limits, None), Ok(record));
    }

    #[test]
    fn an_empty_blob_key_is_left_out() {
        let text = br#"{"namespace":"bg==","logical_key":"aw==","state":"deleted","blob_key":"","version":{"epoch":1,"sequence":1},"authority_id":"a"}"#;
        let fault = read_object::<RecordObject<'_>>(text, 0).expect_err("empty for absent");
        assert_eq!(fault.refusal, Some(Refusal::EmptyForAbsent));
    }

    #[test]
    fn a_version_always_has_both_numbers() {
        for text in [r#"{"epoch":1}"#, r#"{"sequence":1}"#, "{}"] {
            let fault = read_object::<Version>(text.as_bytes(), 0).expect_err(text);
            assert_eq!(fault.refusal, Some(Refusal::AbsentField), "{text}");
        }
    }
}
