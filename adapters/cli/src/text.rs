//! Bytes, keys and versions as text: one form for output and for the control protocol.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use strandline_core::record::{Key, Version};

/// Bytes in JSON: a string where they are UTF-8, else `{"base64": "..."}`; both directions exact.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum BytesForm {
    Text(String),
    Raw { base64: String },
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => BytesForm::Raw { base64: STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match BytesForm::deserialize(deserializer)? {
            BytesForm::Text(text) => Ok(Self(text.into_bytes())),
            BytesForm::Raw { base64 } => STANDARD.decode(base64).map(Self).map_err(de::Error::custom),
        }
    }
}

/// A version in JSON and on the command line: `EPOCH.SEQUENCE`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct VersionText(pub(crate) Version);

impl std::str::FromStr for VersionText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if digits { part.parse::<u64>().ok() } else { None }
        };
        text.split_once('.')
            .and_then(|(epoch, sequence)| Some(Version::new(number(epoch)?, number(sequence)?)))
            .map(Self)
            .ok_or_else(|| format!("expected a version as EPOCH.SEQUENCE, like 1.42; found {text:?}"))
    }
}

impl fmt::Display for VersionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for VersionText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VersionText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A key in JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct KeyText {
    /// The namespace.
    pub(crate) namespace: Bytes,
    /// The key within it.
    pub(crate) key: Bytes,
}

impl From<&Key> for KeyText {
    fn from(key: &Key) -> Self {
        Self { namespace: Bytes(key.namespace().to_vec()), key: Bytes(key.logical_key().to_vec()) }
    }
}

impl KeyText {
    /// The key. It is judged by the replica it is given to.
    pub(crate) fn to_key(&self) -> Result<Key, String> {
        Key::from_parts(&self.namespace.0, &self.key.0)
            .ok_or_else(|| format!("namespace has {} bytes: at most 65535", self.namespace.0.len()))
    }
}

/// Bytes for a person: as they are where they print on one line, else escaped.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() || c == '\\') => text.to_owned(),
        Ok(_) | Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// A byte count for a person.
pub(crate) fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_as_text_or_base64() {
        for (bytes, json) in
            [(&b"a/\xc3\xa9"[..], "\"a/\u{e9}\""), (&b"\xff\x00"[..], r#"{"base64":"/wA="}"#)]
        {
            let value = Bytes(bytes.to_vec());
            assert_eq!(serde_json::to_string(&value).expect("encodes"), json);
            assert_eq!(serde_json::from_str::<Bytes>(json).expect("decodes"), value);
        }
    }

    #[test]
    fn a_version_is_two_numbers_and_nothing_else() {
        assert_eq!("3.14".parse(), Ok(VersionText(Version::new(3, 14))));
        for bad in ["", "3", "3.", ".1", "+3.1", "3.1.2", "3.-1", "18446744073709551616.1"] {
            assert!(bad.parse::<VersionText>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn control_characters_are_escaped_for_people() {
        assert_eq!(shown("été".as_bytes()), "été");
        assert_eq!(shown(b"a\x1b[2Jb"), "a\\x1b[2Jb");
        assert_eq!(shown(b"a\\n"), "a\\\\n");
    }
}
