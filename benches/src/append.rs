//! Durable appends, beside a plain write and fdatasync of the same payloads.

use crate::measure::{Better, Row, Scale, medians};
use crate::records::{PAYLOAD_BYTES, payload};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use strandline_file::{BareJournal, JournalOptions};

const ZEROED_BYTES: u64 = 64 << 20;

/// How the file of a reference starts a round.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Empty: every append makes it longer.
    Growing,
    /// Its blocks are written: an append changes no metadata. At its end it starts over.
    Zeroed,
}

/// One file, one write and one fdatasync for each append, one caller at a time.
struct Plain {
    layout: Layout,
    file: File,
    end: Mutex<u64>,
}

impl Plain {
    fn create(path: &Path, layout: Layout) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        if let Layout::Zeroed = layout {
            let zeros = vec![0; 1 << 20];
            for at in (0..ZEROED_BYTES).step_by(zeros.len()) {
                file.write_all_at(&zeros, at)?;
            }
        }
        file.sync_all()?;
        Ok(Self { layout, file, end: Mutex::new(0) })
    }

    /// Back to the start, as far as the layout grows.
    fn restart(&self) -> std::io::Result<()> {
        if let Layout::Growing = self.layout {
            self.file.set_len(0)?;
            self.file.sync_all()?;
        }
        *self.end.lock().expect("no holder panics") = 0;
        Ok(())
    }

    fn append(&self, bytes: &[u8]) -> std::io::Result<()> {
        let mut end = self.end.lock().expect("no holder panics");
        if let Layout::Zeroed = self.layout
            && *end + bytes.len() as u64 > ZEROED_BYTES
        {
            *end = 0;
        }
        self.file.write_all_at(bytes, *end)?;
        self.file.sync_data()?;
        *end += bytes.len() as u64;
        Ok(())
    }
}

/// Entries a second that `writers` threads append in calls of `batch`.
fn rate(writers: usize, batch: usize, time: Duration, append: &(dyn Fn(usize) + Sync)) -> f64 {
    let (barrier, calls) = (Barrier::new(writers + 1), AtomicU64::new(0));
    let mut elapsed = Duration::ZERO;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (barrier, calls) = (&barrier, &calls);
            scope.spawn(move || {
                barrier.wait();
                let start = Instant::now();
                let mut mine = 0;
                while start.elapsed() < time {
                    append(writer);
                    mine += 1;
                }
                calls.fetch_add(mine, Relaxed);
                barrier.wait();
            });
        }
        barrier.wait();
        let start = Instant::now();
        barrier.wait();
        elapsed = start.elapsed();
    });
    calls.load(Relaxed) as f64 * batch as f64 / elapsed.as_secs_f64()
}

/// Four loads, each beside the growing and the zeroed file.
pub(crate) fn rows(scale: &Scale, work: &Path, rows: &mut Vec<Row>) -> Result<(), Box<dyn Error>> {
    let path = work.join("append");
    let (journal, _) = BareJournal::create(&path, JournalOptions::default())?;
    let growing = Plain::create(&work.join("growing"), Layout::Growing)?;
    let zeroed = Plain::create(&work.join("zeroed"), Layout::Zeroed)?;
    let payloads: Vec<_> = (0..1024).map(payload).collect();
    let acknowledged = AtomicU64::new(0);
    for (name, writers, batch) in
        [("1 writer", 1, 1), ("8 writers", 8, 1), ("64 writers", 64, 1), ("1 writer, batches of 100", 1, 100)]
    {
        let chosen = |writer: usize| payloads[writer * 7..][..batch].iter();
        let ours = |writer: usize| {
            let entries: Vec<&[u8]> = chosen(writer).map(Vec::as_slice).collect();
            journal.append_batch(&entries).expect("the disk works");
            acknowledged.fetch_add(batch as u64, Relaxed);
        };
        let plain = |file: &Plain, writer: usize| {
            let mut bytes = Vec::with_capacity(batch * PAYLOAD_BYTES);
            chosen(writer).for_each(|payload| bytes.extend_from_slice(payload));
            file.append(&bytes).expect("the disk works");
        };
        let side = |file: &Plain| {
            file.restart().expect("the disk works");
            rate(writers, batch, scale.append_time, &|writer| plain(file, writer))
        };
        let [ours, grown, overwritten] = medians(
            scale.rounds,
            [&mut || rate(writers, batch, scale.append_time, &ours), &mut || side(&growing), &mut || {
                side(&zeroed)
            }],
        );
        for (theirs, beside) in [
            (grown, "write+fdatasync each, growing file"),
            (overwritten, "write+fdatasync each, zeroed file"),
        ] {
            let (name, unit) = (format!("append, {name}"), "entries/s");
            rows.push(Row { name, ours, theirs, unit, beside, better: Better::Higher });
        }
    }
    journal.close()?;
    let (journal, opened) = BareJournal::open(&path, JournalOptions::default())?;
    assert_eq!(opened.entries, acknowledged.load(Relaxed), "what was acknowledged is there");
    journal.close()?;
    Ok(std::fs::remove_dir_all(path)?)
}
