//! What takes no disk: encoding, decoding, applying.

use crate::measure::{Better, Row, Scale, medians, ns_per_item, thousands};
use crate::records::record;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use strandline_core::id::Lsn;
use strandline_core::lifecycle::api::Entry;
use strandline_core::lifecycle::views::Views;
use strandline_core::record::{Record, Version};
use strandline_core::wire::batch_builder::BatchBuilder;
use strandline_core::wire::frame::{FrameDecoder, write_frame};
use strandline_core::wire::json_write::write_record;
use strandline_core::wire::limits::{RepairLimits, WireLimits};
use strandline_core::wire::repair::decode_batch;

fn text<S: Serializer>(bytes: &&[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&STANDARD.encode(bytes))
}

fn optional<S: Serializer>(bytes: &Option<&[u8]>, to: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => text(bytes, to),
        None => to.serialize_none(),
    }
}

/// A record as a program would give it to serde.
#[derive(Serialize)]
struct Derived<'a> {
    #[serde(serialize_with = "text")]
    namespace: &'a [u8],
    #[serde(serialize_with = "text")]
    logical_key: &'a [u8],
    state: &'a str,
    #[serde(serialize_with = "optional", skip_serializing_if = "Option::is_none")]
    blob_key: Option<&'a [u8]>,
    version: DerivedVersion,
    authority_id: &'a str,
}

#[derive(Serialize)]
struct DerivedVersion {
    epoch: u64,
    sequence: u64,
}

impl<'a> Derived<'a> {
    fn of(record: &'a Record, blob: Option<&'a [u8; 32]>) -> Self {
        let Version { epoch, sequence } = record.version;
        Self {
            namespace: record.key.namespace(),
            logical_key: record.key.logical_key(),
            state: record.state.name(),
            blob_key: blob.map(<[u8; 32]>::as_slice),
            version: DerivedVersion { epoch, sequence },
            authority_id: record.authority.as_str(),
        }
    }
}

/// Both encodings of a record, beside what serde_json derives for the same JSON.
pub(crate) fn encode(scale: &Scale, rows: &mut Vec<Row>) -> Result<(), Box<dyn Error>> {
    let records: Vec<_> = (1..=1024).map(record).collect();
    let blobs: Vec<_> = records.iter().map(|record| record.state.blob().map(|blob| blob.0)).collect();
    let derived: Vec<_> =
        records.iter().zip(&blobs).map(|(record, blob)| Derived::of(record, blob.as_ref())).collect();
    for (record, derived) in records.iter().zip(&derived) {
        let mut ours = Vec::new();
        write_record(record, &mut ours);
        assert_eq!(ours, serde_json::to_vec(derived)?, "the same JSON");
        let mut canonical = Vec::new();
        record.encode_canonical(&mut canonical);
        assert_eq!(Record::decode_canonical(&canonical)?, *record);
    }
    let (mut json_out, mut canonical_out, mut derived_out) = (Vec::new(), Vec::new(), Vec::new());
    let (count, time) = (records.len(), scale.compute_time);
    let [json, canonical, serde] = medians(
        scale.rounds,
        [
            &mut || {
                ns_per_item(time, count, || {
                    json_out.clear();
                    records.iter().for_each(|record| write_record(record, &mut json_out));
                    black_box(&json_out);
                })
            },
            &mut || {
                ns_per_item(time, count, || {
                    canonical_out.clear();
                    records.iter().for_each(|record| record.encode_canonical(&mut canonical_out));
                    black_box(&canonical_out);
                })
            },
            &mut || {
                ns_per_item(time, count, || {
                    derived_out.clear();
                    for record in &derived {
                        serde_json::to_writer(&mut derived_out, record).expect("a Vec takes all");
                    }
                    black_box(&derived_out);
                })
            },
        ],
    );
    for (name, ours) in [("encode a record as JSON", json), ("encode a record canonically", canonical)] {
        let beside = "serde_json derive, the same JSON";
        rows.push(Row { name: name.into(), ours, theirs: serde, unit: "ns", beside, better: Better::Lower });
    }
    Ok(())
}

/// A frame with a batch of 128 records, decoded and judged, beside serde_json's `Value` of it.
pub(crate) fn decode(scale: &Scale, rows: &mut Vec<Row>) -> Result<(), Box<dyn Error>> {
    let mut batch = BatchBuilder::new(Version::ZERO, RepairLimits::default());
    for sequence in 1..=128 {
        batch.push(&record(sequence), true)?;
    }
    let (mut payload, mut frame) = (Vec::new(), Vec::new());
    batch.finish(true, &mut payload)?;
    write_frame(&payload, &mut frame)?;
    let limits = WireLimits::default();
    let mut decoder = FrameDecoder::default();
    let mut ours = || {
        ns_per_item(scale.compute_time, 1, || {
            assert_eq!(decoder.push(&frame), frame.len());
            let payload = decoder.next_frame().expect("well-formed").expect("whole");
            let batch = decode_batch(payload, &limits).expect("a batch");
            assert_eq!(batch.records.len(), 128);
            black_box(batch);
        }) / 1e3
    };
    let mut theirs = || {
        ns_per_item(scale.compute_time, 1, || {
            let value: serde_json::Value = serde_json::from_slice(&payload).expect("JSON");
            assert_eq!(value["records"].as_array().map(Vec::len), Some(128));
            black_box(value);
        }) / 1e3
    };
    let [ours, theirs] = medians(scale.rounds, [&mut ours, &mut theirs]);
    let name = "decode a frame of 128 records".into();
    let beside = "serde_json::Value of its payload";
    rows.push(Row { name, ours, theirs, unit: "us", beside, better: Better::Lower });
    Ok(())
}

/// Both views brought up to date, beside inserting the same into one map.
pub(crate) fn apply(scale: &Scale, rows: &mut Vec<Row>) {
    let count = 65_536 / scale.divisor;
    let entries: Vec<_> = (1..=count)
        .map(|sequence| {
            let Record { key, state, version, authority } = record(sequence);
            (Lsn::FIRST.plus(sequence - 1), key, Entry { state, version, authority })
        })
        .collect();
    let items = entries.len();
    let mut ours = || {
        ns_per_item(scale.compute_time, items, || {
            let mut views = Views::default();
            let mut published = 0;
            for chunk in entries.chunks(128) {
                for (lsn, key, entry) in chunk {
                    views.submit(*lsn, key.clone(), entry.clone());
                }
                let last = chunk.last().map_or(Lsn::FIRST, |(lsn, _, _)| *lsn);
                views.publish(last, &mut |_, _, _| published += 1);
            }
            assert_eq!((published, views.pending()), (items, 0));
        })
    };
    let mut theirs = || {
        ns_per_item(scale.compute_time, items, || {
            let mut map = BTreeMap::new();
            for (_, key, entry) in &entries {
                map.insert(key.clone(), entry.clone());
            }
            assert_eq!(map.len(), items);
            black_box(map);
        })
    };
    let [ours, theirs] = medians(scale.rounds, [&mut ours, &mut theirs]);
    let name = format!("apply {} records to both views", thousands(count));
    let beside = "BTreeMap insert of the same";
    rows.push(Row { name, ours, theirs, unit: "ns", beside, better: Better::Lower });
}
