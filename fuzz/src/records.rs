//! Canonical bytes of records, and their JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use strandline_core::record::{Record, RecordLimits, RecordView};
use strandline_core::wire::json_write::{write_bytes, write_record, write_string};

/// What decodes encodes to the same bytes, in the announced lengths, and its JSON says the same.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    strings(data);
    let Ok(record) = Record::decode_canonical(data) else {
        assert!(RecordView::parse(data).is_err(), "a view of what does not decode");
        return false;
    };
    assert_eq!(RecordView::parse(data).map(|view| view.to_record()), Ok(record.clone()));

    let mut bytes = Vec::new();
    record.encode_canonical(&mut bytes);
    assert_eq!(bytes, data, "canonical bytes are the only encoding");
    assert_eq!(record.canonical_bytes(), bytes.len());

    json(&record);
    judged(&record);
    true
}

fn json(record: &Record) {
    let mut json = Vec::new();
    write_record(record, &mut json);
    assert_eq!(record.json_bytes(), json.len());
    let value: Value = serde_json::from_slice(&json).expect("a record is written as JSON");
    let bytes = |field: &str| STANDARD.decode(value[field].as_str().expect("a string")).expect("base64");
    assert_eq!(bytes("namespace"), record.key.namespace());
    assert_eq!(bytes("logical_key"), record.key.logical_key());
    assert_eq!(value["state"], record.state.name());
    assert_eq!(value.get("blob_key").is_some(), record.state.blob().is_some());
    if let Some(blob) = record.state.blob() {
        assert_eq!(bytes("blob_key"), blob.0);
    }
    assert_eq!(value["version"]["epoch"], record.version.epoch);
    assert_eq!(value["version"]["sequence"], record.version.sequence);
    assert_eq!(value["authority_id"], record.authority.as_str());
}

/// Limits judge a decoded record as they judge its parts, and change nothing in it.
fn judged(record: &Record) {
    let limits = RecordLimits::default();
    let key = limits.key(record.key.namespace(), record.key.logical_key());
    let authority = limits.authority(record.authority.as_str());
    if let (Ok(key), Ok(authority)) = (key, authority)
        && let Ok(admitted) = limits.record(key, record.state, record.version, authority)
    {
        assert_eq!(admitted, *record);
        assert!(record.json_bytes() <= limits.record_bytes_max as usize);
    }
}

fn strings(data: &[u8]) {
    let mut json = Vec::new();
    write_bytes(data, &mut json);
    let text: String = serde_json::from_slice(&json).expect("bytes are written as a JSON string");
    assert_eq!(STANDARD.decode(text).expect("base64"), data);

    if let Ok(text) = core::str::from_utf8(data) {
        json.clear();
        write_string(text, &mut json);
        let read: String = serde_json::from_slice(&json).expect("a text is written as a JSON string");
        assert_eq!(read, text);
    }
}
