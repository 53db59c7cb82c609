//! Reading the vectors' JSON: every access says what was expected.

use super::Trouble;
use super::judge::Names;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use strandline_core::compat::streamhive::authority::AuthorityLimits;
use strandline_core::compat::streamhive::checkpoint::CheckpointLimits;
use strandline_core::compat::streamhive::journal::JournalLimits;
use strandline_core::compat::streamhive::membership::MembershipLimits;
use strandline_core::compat::streamhive::reference::authority_text;
use strandline_core::compat::streamhive::watermarks::WatermarkLimits;
use strandline_core::id::hex;
use strandline_core::record::{RawRecord, Record, RecordError, RecordLimits, Version};
use strandline_core::wire::limits::WireLimits;

/// A JSON value of the vectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a>(pub(super) &'a Value);

impl<'a> Input<'a> {
    pub(super) const fn new(value: &'a Value) -> Self {
        Self(value)
    }

    /// The field, or null if there is none.
    pub(super) fn field(self, name: &str) -> Self {
        Self(self.0.get(name).unwrap_or(&Value::Null))
    }

    pub(super) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(super) fn object(self) -> Result<&'a Map<String, Value>, Trouble> {
        self.0.as_object().ok_or_else(|| format!("expected an object, found {}", self.0))
    }

    pub(super) fn list(self, name: &str) -> Result<Vec<Self>, Trouble> {
        self.field(name).elements()
    }

    pub(super) fn elements(self) -> Result<Vec<Self>, Trouble> {
        if self.is_null() {
            return Ok(Vec::new());
        }
        let list = self.0.as_array().ok_or_else(|| format!("expected a list, found {}", self.0))?;
        Ok(list.iter().map(Self).collect())
    }

    pub(super) fn string(self) -> Result<&'a str, Trouble> {
        self.0.as_str().ok_or_else(|| format!("expected a text, found {}", self.0))
    }

    pub(super) fn text(self, name: &str) -> Result<&'a str, Trouble> {
        self.field(name).string().map_err(|trouble| format!("{name}: {trouble}"))
    }

    pub(super) fn number(self, name: &str) -> Result<u64, Trouble> {
        let value = self.field(name).0;
        value.as_u64().ok_or_else(|| format!("{name}: expected a number, found {value}"))
    }

    pub(super) fn flag(self, name: &str) -> Result<bool, Trouble> {
        let value = self.field(name).0;
        value.as_bool().ok_or_else(|| format!("{name}: expected true or false, found {value}"))
    }

    /// A flag that is left out when false.
    pub(super) fn flag_if_any(self, name: &str) -> bool {
        self.field(name).0 == &Value::Bool(true)
    }

    pub(super) fn bytes(self, name: &str) -> Result<Vec<u8>, Trouble> {
        unhex(self.text(name)?)
    }

    /// Bytes that are left out when there are none.
    pub(super) fn bytes_if_any(self, name: &str) -> Result<Option<Vec<u8>>, Trouble> {
        if self.field(name).is_null() { Ok(None) } else { self.bytes(name).map(Some) }
    }

    pub(super) fn version(self, name: &str) -> Result<Version, Trouble> {
        self.field(name).as_version().map_err(|trouble| format!("{name}: {trouble}"))
    }

    /// The epoch and sequence of this object.
    pub(super) fn as_version(self) -> Result<Version, Trouble> {
        Ok(Version::new(self.number("epoch")?, self.number("sequence")?))
    }

    pub(super) fn texts(self, name: &str) -> Result<Vec<&'a str>, Trouble> {
        self.list(name)?.into_iter().map(Self::string).collect()
    }

    /// The names of errors, without those of Go's reader of JSON texts, which are its own business.
    pub(super) fn errors(self) -> Result<Names, Trouble> {
        let names = self.texts("errors")?;
        Ok(names.into_iter().filter(|name| !name.starts_with("io.")).map(String::from).collect())
    }

    /// Either what `read` makes of this object, or its errors.
    pub(super) fn outcome<T>(
        self,
        read: impl FnOnce(Self) -> Result<T, Trouble>,
    ) -> Result<Result<T, Names>, Trouble> {
        if self.field("errors").is_null() { read(self).map(Ok) } else { self.errors().map(Err) }
    }

    /// A record's parts, judged.
    pub(super) fn record(self, limits: &RecordLimits) -> Result<Result<Record, RecordError>, Trouble> {
        Ok(RawParts::read(self)?.judge(limits))
    }

    pub(super) fn records(
        self,
        name: &str,
        limits: &RecordLimits,
    ) -> Result<Vec<Result<Record, RecordError>>, Trouble> {
        self.list(name)?.into_iter().map(|record| record.record(limits)).collect()
    }

    /// Records that must be such.
    pub(super) fn good_records(self, name: &str, limits: &RecordLimits) -> Result<Vec<Record>, Trouble> {
        let judged = self.records(name, limits)?.into_iter().collect::<Result<Vec<_>, _>>();
        judged.map_err(|error| format!("{name}: {error}"))
    }
}

/// The parts of a record as the vectors write them.
pub(super) struct RawParts {
    pub(super) namespace: Vec<u8>,
    pub(super) logical_key: Vec<u8>,
    pub(super) state: String,
    pub(super) blob_key: Vec<u8>,
    pub(super) version: Version,
    pub(super) authority: Vec<u8>,
}

impl RawParts {
    pub(super) fn read(input: Input<'_>) -> Result<Self, Trouble> {
        Ok(Self {
            namespace: input.bytes("namespace_hex")?,
            logical_key: input.bytes("logical_key_hex")?,
            state: input.text("state")?.to_owned(),
            blob_key: input.bytes_if_any("blob_key_hex")?.unwrap_or_default(),
            version: input.as_version()?,
            authority: input.bytes("authority_hex")?,
        })
    }

    /// Judges the parts. An authority that is not UTF-8 cannot even be handed to us as a text; what
    /// stands before it in the order is judged all the same.
    pub(super) fn judge(&self, limits: &RecordLimits) -> Result<Record, RecordError> {
        limits.key(&self.namespace, &self.logical_key)?;
        let authority = authority_text(&self.authority, limits)?;
        let raw = RawRecord {
            namespace: &self.namespace,
            logical_key: &self.logical_key,
            state: &self.state,
            blob_key: &self.blob_key,
            version: self.version,
            authority,
        };
        limits.judge(&raw, None)
    }
}

/// Limits other than the defaults. Zero and negative ones mean the default. Unknown ones are trouble.
pub(super) struct Limits<'a> {
    given: Option<&'a Map<String, Value>>,
    used: Vec<&'static str>,
}

impl<'a> Limits<'a> {
    pub(super) fn new(input: Input<'a>) -> Result<Self, Trouble> {
        let given = if input.is_null() { None } else { Some(input.object()?) };
        Ok(Self { given, used: Vec::new() })
    }

    fn set<N: TryFrom<u64>>(&mut self, name: &'static str, limit: &mut N) -> Result<(), Trouble> {
        self.used.push(name);
        let given = self.given.and_then(|given| given.get(name));
        if let Some(value) = given.and_then(Value::as_u64).filter(|value| *value > 0) {
            *limit = N::try_from(value).map_err(|_| format!("{name}: {value} is out of range"))?;
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Trouble> {
        let names = self.given.into_iter().flat_map(Map::keys);
        match names.into_iter().find(|name| !self.used.contains(&name.as_str())) {
            Some(name) => Err(format!("limit {name:?} is unknown to this runner")),
            None => Ok(()),
        }
    }

    fn set_record(&mut self, limits: &mut RecordLimits) -> Result<(), Trouble> {
        self.set("max_namespace_bytes", &mut limits.namespace_bytes_max)?;
        self.set("max_logical_key_bytes", &mut limits.logical_key_bytes_max)?;
        self.set("max_authority_id_bytes", &mut limits.authority_bytes_max)?;
        self.set("max_record_bytes", &mut limits.record_bytes_max)?;
        // The reference keeps it beside these; a record alone does not ask for it.
        self.used.push("max_checkpoint_bytes");
        Ok(())
    }

    pub(super) fn record(mut self) -> Result<RecordLimits, Trouble> {
        let mut limits = RecordLimits::default();
        self.set_record(&mut limits)?;
        self.finish().map(|()| limits)
    }

    pub(super) fn journal(mut self) -> Result<JournalLimits, Trouble> {
        let mut limits = JournalLimits::default();
        self.set_record(&mut limits.record)?;
        self.set("max_journal_bytes", &mut limits.journal_bytes_max)?;
        self.set("max_journal_entries", &mut limits.entries_max)?;
        self.finish().map(|()| limits)
    }

    pub(super) fn checkpoint(mut self) -> Result<CheckpointLimits, Trouble> {
        let mut limits = CheckpointLimits::default();
        self.set_record(&mut limits.record)?;
        self.set("max_checkpoint_bytes", &mut limits.checkpoint_bytes_max)?;
        self.finish().map(|()| limits)
    }

    pub(super) fn authority(mut self) -> Result<AuthorityLimits, Trouble> {
        let mut limits = AuthorityLimits::default();
        self.set_record(&mut limits.record)?;
        self.set("authority_max_bytes", &mut limits.authority_file_bytes_max)?;
        self.set("max_bytes", &mut limits.authority_file_bytes_max)?;
        self.finish().map(|()| limits)
    }

    pub(super) fn membership(mut self) -> Result<MembershipLimits, Trouble> {
        let mut limits = MembershipLimits::default();
        self.set("max_peers", &mut limits.members_max)?;
        self.set("max_peer_id_bytes", &mut limits.name_bytes_max)?;
        self.set("max_bytes", &mut limits.membership_file_bytes_max)?;
        self.finish().map(|()| limits)
    }

    pub(super) fn watermarks(mut self) -> Result<WatermarkLimits, Trouble> {
        let mut limits = WatermarkLimits::default();
        self.set("max_peers", &mut limits.peers_max)?;
        self.set("max_peer_id_bytes", &mut limits.name_bytes_max)?;
        self.set("max_bytes", &mut limits.watermark_file_bytes_max)?;
        self.finish().map(|()| limits)
    }

    /// Here `max_logical_key_bytes` is of all keys of a message together.
    pub(super) fn wire(mut self) -> Result<WireLimits, Trouble> {
        let mut limits = WireLimits::default();
        self.set("max_payload_bytes", &mut limits.record_payload_bytes_max)?;
        self.set("max_records", &mut limits.repair.records_max)?;
        self.set("max_logical_key_bytes", &mut limits.repair.key_bytes_max)?;
        self.set("max_metadata_bytes", &mut limits.repair.record_json_bytes_max)?;
        self.set("max_frame_bytes", &mut limits.repair.payload_bytes_max)?;
        self.finish().map(|()| limits)
    }

    pub(super) fn frame_payload_bytes_max(mut self) -> Result<u32, Trouble> {
        let mut limit = strandline_core::limits::FRAME_PAYLOAD_BYTES_MAX;
        self.set("max_payload", &mut limit)?;
        self.finish().map(|()| limit)
    }
}

pub(super) fn unhex(text: &str) -> Result<Vec<u8>, Trouble> {
    let digits = text.as_bytes();
    let pair =
        |pair: &[u8]| core::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes = digits.chunks(2).map(|digits| (digits.len() == 2).then(|| pair(digits)).flatten());
    bytes.collect::<Option<Vec<_>>>().ok_or_else(|| format!("expected hexadecimal, found {text:?}"))
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The manifest's `records_digest`.
pub(super) fn digest<'a>(records: impl IntoIterator<Item = &'a Record>) -> String {
    let mut bytes = Vec::new();
    for record in records {
        record.encode_canonical(&mut bytes);
    }
    sha256(&bytes)
}
