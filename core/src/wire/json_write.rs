//! Writing JSON byte for byte as the reference does: what we encode is identical to the reference's
//! encoding of the same value, because peers and stored files compare and hash it.
//!
//! The rules are those of Go's `encoding/json`; the sizes they give are in
//! [`crate::record::json_size`].

use crate::record::json_size::{Escape, escape};
use crate::record::{Record, Version};
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Appends a decimal number.
pub fn write_number(value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = value;
    loop {
        start -= 1;
        digits[start] = b'0' + u8::try_from(rest % 10).expect("one digit");
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends a text as a JSON string, quotes included.
///
/// ```
/// let mut out = Vec::new();
/// strandline_core::wire::json_write::write_string("a<b\n", &mut out);
/// assert_eq!(out, br#""a\u003cb\n""#);
/// ```
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut written = 0;
    for (at, c) in text.char_indices() {
        let escaped = escape(c);
        if escaped == Escape::Raw {
            continue;
        }
        out.extend_from_slice(&text.as_bytes()[written..at]);
        written = at + c.len_utf8();
        match escaped {
            Escape::Raw => {}
            Escape::Short(letter) => out.extend_from_slice(&[b'\\', letter]),
            Escape::Unicode(unit) => write_unicode_escape(unit, out),
        }
    }
    out.extend_from_slice(&text.as_bytes()[written..]);
    out.push(b'"');
}

fn write_unicode_escape(unit: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.push(b"0123456789abcdef"[usize::from(unit >> shift & 15)]);
    }
}

/// Appends bytes as a JSON string of standard padded base64, quotes included.
pub fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).expect("room for every group");
    debug_assert_eq!(start + written, out.len());
    out.push(b'"');
}

/// Appends a version.
pub fn write_version(version: Version, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"epoch":"#);
    write_number(version.epoch, out);
    out.extend_from_slice(br#","sequence":"#);
    write_number(version.sequence, out);
    out.push(b'}');
}

/// Appends a record, in exactly [`Record::json_bytes`] bytes.
pub fn write_record(record: &Record, out: &mut Vec<u8>) {
    out.reserve(record.json_bytes());
    out.extend_from_slice(br#"{"namespace":"#);
    write_bytes(record.key.namespace(), out);
    out.extend_from_slice(br#","logical_key":"#);
    write_bytes(record.key.logical_key(), out);
    out.extend_from_slice(br#","state":""#);
    out.extend_from_slice(record.state.name().as_bytes());
    out.push(b'"');
    if let Some(blob) = record.state.blob() {
        out.extend_from_slice(br#","blob_key":"#);
        write_bytes(&blob.0, out);
    }
    out.extend_from_slice(br#","version":"#);
    write_version(record.version, out);
    out.extend_from_slice(br#","authority_id":"#);
    write_string(record.authority.as_str(), out);
    out.push(b'}');
}

/// Appends a list, its elements separated by commas; `[]` if there is none.
pub fn write_list<T>(items: impl IntoIterator<Item = T>, out: &mut Vec<u8>, write: impl Fn(T, &mut Vec<u8>)) {
    out.push(b'[');
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::json_size::{decimal_bytes, string_json_bytes};
    use crate::record::{AuthorityId, BlobKey, Key, State};
    use alloc::string::String;

    fn written(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn numbers_are_plain_decimal() {
        for (value, text) in [(0, "0"), (7, "7"), (10, "10"), (u64::MAX, "18446744073709551615")] {
            assert_eq!(written(|out| write_number(value, out)), text);
            assert_eq!(decimal_bytes(value), text.len());
        }
    }

    #[test]
    fn every_kind_of_character_is_written_as_go_does() {
        let text = "\"\\\u{8}\u{c}\n\r\t\u{1}\u{1f}<>&\u{2028}\u{2029}/\u{7f}\u{e9}\u{1f41d}";
        let expected = "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\\u003c\\u003e\\u0026\\u2028\\u2029/\u{7f}\u{e9}\u{1f41d}\"";
        assert_eq!(written(|out| write_string(text, out)), expected);
        assert_eq!(string_json_bytes(text), expected.len());
    }

    #[test]
    fn bytes_are_padded_base64() {
        for (bytes, text) in [(&b""[..], "\"\""), (b"a", "\"YQ==\""), (b"\xfb\xff\xfe", "\"+//+\"")] {
            assert_eq!(written(|out| write_bytes(bytes, out)), text);
        }
    }

    #[test]
    fn an_empty_list_is_no_null() {
        assert_eq!(written(|out| write_list([0u64; 0], out, write_number)), "[]");
        assert_eq!(written(|out| write_list([1, 2], out, write_number)), "[1,2]");
    }

    #[test]
    fn records_are_written_in_field_order_and_in_the_promised_length() {
        let mut record = Record {
            key: Key::from_parts(b"documents", b"readme.md").expect("short"),
            state: State::Deleted,
            version: Version::new(4, 9),
            authority: AuthorityId::from_text("a&b"),
        };
        let text = written(|out| write_record(&record, out));
        assert_eq!(
            text,
            r#"{"namespace":"ZG9jdW1lbnRz","logical_key":"cmVhZG1lLm1k","state":"deleted","version":{"epoch":4,"sequence":9},"authority_id":"a\u0026b"}"#
        );
        assert_eq!(text.len(), record.json_bytes());
        record.state = State::Present { blob: BlobKey([0; 32]) };
        let text = written(|out| write_record(&record, out));
        assert!(text.contains(r#""present","blob_key":"AAAA"#));
        assert_eq!(text.len(), record.json_bytes());
    }
}
