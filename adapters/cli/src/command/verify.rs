//! `strandline verify`: journal, checkpoint and blobs against what they say they are.

use crate::backend::{Backend, PAGE_ENTRIES_MAX, scan_all};
use crate::context::Context;
use crate::cut::Cut;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::report::BlobText;
use crate::text::{KeyText, shown};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use strandline_core::lifecycle::api::Scan;
use strandline_core::record::{BlobKey, Key, State};

/// Check journal, checkpoint and every blob. The journal is checked by recovery: now, or by the
/// running node when it started.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Read every blob that a key names, set damaged ones aside, and fetch what is bad from a peer:
    /// through the node that serves the directory, while it works.
    #[arg(long)]
    blobs: bool,
    /// With --blobs: most bytes read in a second.
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20, requires = "blobs",
        value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// With --blobs: how long to wait for peers to mend what is bad.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "blobs")]
    wait: u64,
}

/// A blob that is not what a key needs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
struct Bad {
    #[serde(flatten)]
    key: KeyText,
    blob: BlobText,
    problem: &'static str,
    detail: String,
}

#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
struct Summary {
    keys: u64,
    blobs: u64,
    bytes: u64,
    missing: u64,
    damaged: u64,
    /// Blobs that no present key names.
    unnamed: u64,
    /// What recovery cut off the journal just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<Cut>,
}

impl Summary {
    const fn sound(&mut self, bytes: u64) {
        self.blobs += 1;
        self.bytes += bytes;
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    if args.blobs {
        return super::scrub::run(args.rate, Duration::from_secs(args.wait), context);
    }
    let output = context.output;
    let summary = context.with_recovered(|replica, cut| Ok(Summary { cut, ..verify(replica, output)? }))?;
    output.result(
        format!(
            "{} keys, {} blobs ({} bytes) checked: {} missing, {} damaged, {} named by no present key",
            summary.keys, summary.blobs, summary.bytes, summary.missing, summary.damaged, summary.unnamed
        ),
        &summary,
    )?;
    if summary.missing + summary.damaged == 0 {
        return Ok(());
    }
    Err(Failure::storage(format!("{} blobs are missing, {} damaged", summary.missing, summary.damaged))
        .advise("serve with a peer that has them, or put or import the keys named again"))
}

fn verify(replica: &mut dyn Backend, output: Output) -> Result<Summary, Failure> {
    let (keys, named) = named_blobs(replica)?;
    let mut summary = Summary { keys, ..Summary::default() };
    let bar = output.progress("blobs", named.len() as u64);
    let mut suspects = Vec::new();
    for blob in named.keys() {
        match look(replica, *blob)? {
            Found::Sound(bytes) => summary.sound(bytes),
            Found::Missing | Found::Damaged(_) => suspects.push(*blob),
        }
        bar.inc(1);
    }
    // A running replica may have replaced the key and collected the blob meanwhile: only what a key
    // still needs can be wrong.
    let (_, named) = if suspects.is_empty() { (0, BTreeMap::new()) } else { named_blobs(replica)? };
    for blob in suspects {
        let Some(key) = named.get(&blob) else { continue };
        match look(replica, blob)? {
            Found::Sound(bytes) => summary.sound(bytes),
            Found::Missing => {
                summary.missing += 1;
                let detail = "no such file in the blob store".to_owned();
                report(output, &bar, key, blob, "missing", detail)?;
            }
            Found::Damaged(detail) => {
                summary.damaged += 1;
                report(output, &bar, key, blob, "damaged", detail)?;
            }
        }
    }
    bar.finish_and_clear();
    summary.unnamed = replica.blob_count()?.saturating_sub(summary.blobs + summary.damaged);
    Ok(summary)
}

/// What one blob turned out to be.
enum Found {
    /// Its bytes are those of its key; how many.
    Sound(u64),
    Missing,
    Damaged(String),
}

fn look(replica: &mut dyn Backend, blob: BlobKey) -> Result<Found, Failure> {
    match replica.verify(blob) {
        Ok(Some(bytes)) => Ok(Found::Sound(bytes)),
        Ok(None) => Ok(Found::Missing),
        Err(failure) if failure.exit == Exit::Storage => Ok(Found::Damaged(failure.message)),
        Err(failure) => Err(failure),
    }
}

/// How many keys are present, and each blob with one key that names it.
fn named_blobs(replica: &mut dyn Backend) -> Result<(u64, BTreeMap<BlobKey, Key>), Failure> {
    let scan = Scan {
        namespace: None,
        prefix: Vec::new(),
        after: None,
        entries_max: PAGE_ENTRIES_MAX,
        deleted: false,
    };
    let mut keys = 0;
    let mut named = BTreeMap::new();
    scan_all(replica, scan, |key, entry| {
        if let State::Present { blob } = entry.state {
            keys += 1;
            named.entry(blob).or_insert_with(|| key.clone());
        }
        Ok(())
    })?;
    Ok((keys, named))
}

fn report(
    output: Output,
    bar: &indicatif::ProgressBar,
    key: &Key,
    blob: BlobKey,
    problem: &'static str,
    detail: String,
) -> Result<(), Failure> {
    let text = format!("{problem}: blob {blob} of {}: {detail}", shown(key.logical_key()));
    let bad = Bad { key: KeyText::from(key), blob: BlobText(blob), problem, detail };
    bar.suspend(|| output.result(text, &bad))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::Fake;
    use strandline_core::lifecycle::api::{Change, Mutation};

    #[test]
    fn missing_and_damaged_blobs_are_counted_and_unnamed_ones_are_no_fault() {
        let mut fake = Fake::default();
        let mut group = fake.group().expect("opens");
        let blobs: Vec<_> = [&b"whole"[..], b"lost", b"bent", b"unnamed"]
            .map(|mut b| group.add(&mut b).expect("adds").0)
            .into();
        group.commit().expect("stores");
        let put = |name: &[u8], blob| Mutation {
            key: Key::from_parts(b"files", name).expect("short"),
            change: Change::Put { blob },
            if_version: None,
        };
        fake.batch(&[put(b"a", blobs[0]), put(b"same", blobs[0]), put(b"b", blobs[1]), put(b"c", blobs[2])])
            .expect("accepted");
        fake.lose(blobs[1]);
        fake.damage(blobs[2]);
        let summary = verify(&mut fake, Output::new(true)).expect("verifies");
        assert_eq!(
            summary,
            Summary { keys: 4, blobs: 1, bytes: 5, missing: 1, damaged: 1, unnamed: 1, cut: None }
        );
    }
}
