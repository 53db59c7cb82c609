//! `blob.*`: how replicas give each other the blobs that records name.

use super::error::{BlobFault, EncodeError, WireError};
use super::json_read::{Filled, JsonFault, JsonFaultKind, List, Refusal, json_object, read_object};
use super::json_write::{write_bytes, write_list};
use super::limits::BlobLimits;
use super::message::MessageType;
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;
use crate::record::BlobKey;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

/// The key of a blob as a peer names it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PeerKey {
    /// 32 bytes: the SHA-256 of the blob. Only such blobs exist for us.
    Blob(BlobKey),
    /// Any other length: counted and ignored.
    Foreign(Box<[u8]>),
}

impl PeerKey {
    /// The key of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match bytes.try_into() {
            Ok(digest) => Self::Blob(BlobKey(digest)),
            Err(_) => Self::Foreign(bytes.into()),
        }
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Blob(key) => &key.0,
            Self::Foreign(bytes) => bytes,
        }
    }
}

impl From<BlobKey> for PeerKey {
    fn from(key: BlobKey) -> Self {
        Self::Blob(key)
    }
}

/// A blob message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BlobMessage {
    /// Here is a blob. Answered by an ack.
    Put {
        /// Its key.
        key: PeerKey,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// I have these. Answered by what is missing, or not at all.
    Has {
        /// At least one key.
        keys: Vec<PeerKey>,
    },
    /// I have none of these. Answered by puts.
    Missing {
        /// At least one key.
        keys: Vec<PeerKey>,
    },
    /// Send me this one. Answered by a put.
    Get {
        /// Its key.
        key: PeerKey,
    },
    /// The blob was accepted.
    Ack {
        /// Its key.
        key: PeerKey,
    },
}

impl BlobMessage {
    /// Its type.
    #[must_use]
    pub const fn message_type(&self) -> MessageType {
        match self {
            Self::Put { .. } => MessageType::BlobPut,
            Self::Has { .. } => MessageType::BlobHas,
            Self::Missing { .. } => MessageType::BlobMissing,
            Self::Get { .. } => MessageType::BlobGet,
            Self::Ack { .. } => MessageType::BlobAck,
        }
    }

    /// Appends the payload.
    ///
    /// # Errors
    /// A limit is exceeded; `out` is unchanged.
    pub fn encode(&self, limits: &BlobLimits, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check(limits)?;
        let start = out.len();
        self.message_type().write_head(out);
        match self {
            Self::Put { key, data } => {
                write_key(key, out);
                if !data.is_empty() {
                    out.extend_from_slice(br#","data":"#);
                    write_bytes(data, out);
                }
            }
            Self::Has { keys } | Self::Missing { keys } => {
                out.extend_from_slice(br#","keys":"#);
                write_list(keys, out, |key, out| write_bytes(key.as_bytes(), out));
            }
            Self::Get { key } | Self::Ack { key } => write_key(key, out),
        }
        out.push(b'}');
        let bytes = out.len() - start;
        if bytes > FRAME_PAYLOAD_BYTES_MAX as usize {
            out.truncate(start);
            return Err(BlobFault::PayloadTooLarge { bytes, bytes_max: FRAME_PAYLOAD_BYTES_MAX }.into());
        }
        Ok(())
    }

    /// Reads a payload of a type found before.
    pub(super) fn decode(kind: BlobType, payload: &[u8], limits: &BlobLimits) -> Result<Self, WireError> {
        if payload.len() > FRAME_PAYLOAD_BYTES_MAX as usize {
            let (bytes, bytes_max) = (payload.len(), FRAME_PAYLOAD_BYTES_MAX);
            return Err(WireError::Blob(BlobFault::PayloadTooLarge { bytes, bytes_max }));
        }
        let object: BlobObject<'_> =
            read_object(payload, limits.keys_max).map_err(|fault| match fault.kind {
                JsonFaultKind::TooMany { count_max: keys_max } => {
                    WireError::Blob(BlobFault::TooManyKeys { keys: keys_max as usize + 1, keys_max })
                }
                JsonFaultKind::Malformed | JsonFaultKind::Trailing => WireError::BlobMalformed(fault),
            })?;
        let BlobObject { kind: _, key: Filled(key), keys: Filled(List(keys)), data: Filled(data) } = object;
        let one = |other: bool| {
            if other { Err(stray(kind)) } else { Ok(PeerKey::from_bytes(&key)) }
        };
        let many = || {
            if key.is_empty() && data.is_empty() {
                Ok(keys.iter().map(|key| PeerKey::from_bytes(key)).collect())
            } else {
                Err(stray(kind))
            }
        };
        let message = match kind {
            BlobType::Put => Self::Put { key: one(!keys.is_empty())?, data },
            BlobType::Has => Self::Has { keys: many()? },
            BlobType::Missing => Self::Missing { keys: many()? },
            BlobType::Get => Self::Get { key: one(!keys.is_empty() || !data.is_empty())? },
            BlobType::Ack => Self::Ack { key: one(!keys.is_empty() || !data.is_empty())? },
        };
        message.check(limits).map_err(WireError::Blob)?;
        Ok(message)
    }

    fn check(&self, limits: &BlobLimits) -> Result<(), BlobFault> {
        match self {
            Self::Put { key, data } => {
                check_key(key, limits)?;
                let bytes_max = limits.data_bytes_max;
                if data.len() > bytes_max as usize {
                    return Err(BlobFault::DataTooLarge { bytes: data.len(), bytes_max });
                }
                Ok(())
            }
            Self::Has { keys } | Self::Missing { keys } => {
                let keys_max = limits.keys_max;
                if keys.is_empty() {
                    return Err(BlobFault::KeysEmpty { keys_max });
                }
                if keys.len() > keys_max as usize {
                    return Err(BlobFault::TooManyKeys { keys: keys.len(), keys_max });
                }
                keys.iter().try_for_each(|key| check_key(key, limits))
            }
            Self::Get { key } | Self::Ack { key } => check_key(key, limits),
        }
    }
}

/// The types of blob messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BlobType {
    Put,
    Has,
    Missing,
    Get,
    Ack,
}

fn check_key(key: &PeerKey, limits: &BlobLimits) -> Result<(), BlobFault> {
    let (bytes, bytes_max) = (key.as_bytes().len(), limits.key_bytes_max);
    match bytes {
        0 => Err(BlobFault::KeyEmpty { bytes_max }),
        _ if bytes > bytes_max as usize => Err(BlobFault::KeyTooLarge { bytes, bytes_max }),
        _ => Ok(()),
    }
}

fn write_key(key: &PeerKey, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","key":"#);
    write_bytes(key.as_bytes(), out);
}

/// All blob messages share the reference's one object; a field of another of them is a stranger here.
fn stray(kind: BlobType) -> WireError {
    WireError::BlobMalformed(JsonFault {
        detail: format!("a blob message of type {kind:?} has a field of another type"),
        refusal: Some(Refusal::UnknownField),
        kind: JsonFaultKind::Malformed,
    })
}

json_object! {
    struct BlobObject<'de> = "a blob message" {
        kind: Cow<'de, str> = always "type",
        key: Filled<Vec<u8>> = unless_empty "key",
        keys: Filled<List<Vec<u8>>> = unless_empty "keys",
        data: Filled<Vec<u8>> = unless_empty "data",
    }
}

#[cfg(test)]
mod tests {
    use super::super::capability::Capabilities;
    use super::super::limits::WireLimits;
    use super::super::message::{Message, decode_message};
    use super::*;
    use alloc::string::String;
    use alloc::vec;

    fn decode(payload: &str) -> Result<BlobMessage, WireError> {
        let message = decode_message(payload.as_bytes(), &WireLimits::default(), &Capabilities::default())?;
        let Message::Blob(message) = message else { panic!("not a blob message: {message:?}") };
        Ok(message)
    }

    fn encode(message: &BlobMessage) -> Result<String, EncodeError> {
        let mut out = vec![];
        message.encode(&BlobLimits::default(), &mut out)?;
        Ok(String::from_utf8(out).expect("JSON"))
    }

    #[test]
    fn each_type_is_written_as_the_reference_does_and_reads_back() {
        let key = PeerKey::from_bytes(b"a");
        let blob = PeerKey::from_bytes(&[0; 32]);
        assert_eq!(blob, PeerKey::Blob(BlobKey([0; 32])));
        for (message, text) in [
            (
                BlobMessage::Put { key: key.clone(), data: b"b".to_vec() },
                r#"{"type":"blob.put","key":"YQ==","data":"Yg=="}"#,
            ),
            (BlobMessage::Put { key: key.clone(), data: vec![] }, r#"{"type":"blob.put","key":"YQ=="}"#),
            (
                BlobMessage::Has { keys: vec![key.clone(), key.clone()] },
                r#"{"type":"blob.has","keys":["YQ==","YQ=="]}"#,
            ),
            (
                BlobMessage::Missing { keys: vec![blob] },
                r#"{"type":"blob.missing","keys":["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}"#,
            ),
            (BlobMessage::Get { key: key.clone() }, r#"{"type":"blob.get","key":"YQ=="}"#),
            (BlobMessage::Ack { key }, r#"{"type":"blob.ack","key":"YQ=="}"#),
        ] {
            assert_eq!(encode(&message).as_deref(), Ok(text));
            assert_eq!(decode(text), Ok(message));
        }
    }

    #[test]
    fn a_field_of_another_type_is_a_stranger() {
        for text in [
            r#"{"type":"blob.get","key":"YQ==","data":"Yg=="}"#,
            r#"{"type":"blob.put","key":"YQ==","keys":["Yg=="]}"#,
            r#"{"type":"blob.ack","key":"YQ==","keys":["Yg=="]}"#,
            r#"{"type":"blob.has","keys":["YQ=="],"key":"Yg=="}"#,
            r#"{"type":"blob.missing","keys":["YQ=="],"data":"Yg=="}"#,
            r#"{"type":"blob.get","key":"YQ==","x":1}"#,
        ] {
            assert_eq!(decode(text).expect_err(text).refusal(), Some(Refusal::UnknownField), "{text}");
        }
    }

    #[test]
    fn empty_data_is_left_out() {
        let refused = decode(r#"{"type":"blob.put","key":"YQ==","data":""}"#).expect_err("empty");
        assert_eq!(refused.refusal(), Some(Refusal::EmptyForAbsent));
    }

    #[test]
    fn key_empty() {
        for text in [r#"{"type":"blob.get"}"#, r#"{"type":"blob.has","keys":[""]}"#] {
            let expected = WireError::Blob(BlobFault::KeyEmpty { bytes_max: 512 });
            assert_eq!(decode(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn key_too_large() {
        let message = BlobMessage::Get { key: PeerKey::from_bytes(&[1; 513]) };
        let fault = BlobFault::KeyTooLarge { bytes: 513, bytes_max: 512 };
        assert_eq!(encode(&message), Err(EncodeError::Blob(fault)));
    }

    #[test]
    fn keys_empty() {
        let fault = BlobFault::KeysEmpty { keys_max: 4096 };
        assert_eq!(decode(r#"{"type":"blob.missing"}"#), Err(WireError::Blob(fault)));
        assert_eq!(encode(&BlobMessage::Has { keys: vec![] }), Err(EncodeError::Blob(fault)));
    }

    #[test]
    fn too_many_keys() {
        let fault = BlobFault::TooManyKeys { keys: 4097, keys_max: 4096 };
        let keys = vec![PeerKey::from_bytes(b"a"); 4097];
        assert_eq!(encode(&BlobMessage::Has { keys }), Err(EncodeError::Blob(fault)));
        let list = vec!["\"YQ==\""; 4097].join(",");
        let text = format!(r#"{{"type":"blob.has","keys":[{list}]}}"#);
        assert_eq!(decode(&text), Err(WireError::Blob(fault)));
    }

    #[test]
    fn data_too_large_for_its_limit_or_for_a_frame() {
        let put = |bytes| BlobMessage::Put { key: PeerKey::from_bytes(b"a"), data: vec![0; bytes] };
        let bytes_max = 4 << 20;
        assert_eq!(
            encode(&put(bytes_max as usize + 1)),
            Err(EncodeError::Blob(BlobFault::DataTooLarge { bytes: bytes_max as usize + 1, bytes_max }))
        );
        let refused = encode(&put(bytes_max as usize));
        assert!(matches!(refused, Err(EncodeError::Blob(BlobFault::PayloadTooLarge { .. }))));
        assert!(encode(&put(3_145_680)).is_ok());
    }
}
