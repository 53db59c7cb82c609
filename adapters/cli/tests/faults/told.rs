//! What a client was told of its writes, and whether a replica keeps to it.
//!
//! A client says `submit put KEY CONTENT` or `submit delete KEY` before it asks, and `ack VERSION KEY`
//! once it is answered, `refused KEY` if it was told that nothing happened. A key has one client, which
//! waits for each answer. What has neither may have happened, as long as nothing newer was
//! acknowledged.

use std::collections::BTreeMap;
use std::io::Read;
use strandline_core::lifecycle::api::Scan;
use strandline_core::record::{State, Version};
use strandline_file::blocking::BlockingReplica;

/// One write of a key.
#[derive(Clone, Debug)]
struct Asked {
    /// `None`: a delete.
    content: Option<String>,
    acked: Option<String>,
}

/// All writes of all clients, in order for each key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    keys: BTreeMap<String, Vec<Asked>>,
    unfinished: Vec<u8>,
    /// Whether there is a log: its client said `opened`.
    pub(crate) opened: bool,
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) uncertain: u64,
}

/// What a replica holds: content and version of each key.
pub(crate) type Found = BTreeMap<String, (String, String)>;

impl Told {
    /// Takes what a client printed. Only whole lines count.
    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        self.unfinished.extend_from_slice(bytes);
        while let Some(end) = self.unfinished.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unfinished.drain(..=end).collect();
            self.line(&String::from_utf8_lossy(&line));
        }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The test runner's own line has no end when a client begins to speak.
        match words[..] {
            [.., "submit", "put", key, content] => self.ask(key, Some(content.to_owned())),
            [.., "submit", "delete", key] => self.ask(key, None),
            [.., "ack", version, key] => self.ack(key, version),
            [.., "refused", key] => self.refuse(key),
            [.., "uncertain", _] => self.uncertain += 1,
            [.., "opened"] => self.opened = true,
            _ => {}
        }
    }

    /// A write is asked for.
    pub(crate) fn ask(&mut self, key: &str, content: Option<String>) {
        self.keys.entry(key.to_owned()).or_default().push(Asked { content, acked: None });
    }

    /// The last write of a key is acknowledged.
    pub(crate) fn ack(&mut self, key: &str, version: &str) {
        self.acknowledged += 1;
        let asked = self.keys.get_mut(key).and_then(|asked| asked.last_mut());
        asked.expect("asked before").acked = Some(version.to_owned());
    }

    /// The last write of a key is refused: it did not happen.
    pub(crate) fn refuse(&mut self, key: &str) {
        self.refused += 1;
        self.keys.get_mut(key).and_then(Vec::pop).expect("asked before");
    }

    /// Each key as it was last acknowledged, if that is present.
    pub(crate) fn last(&self) -> Found {
        let last = |asked: &[Asked]| {
            let last = asked.iter().rfind(|asked| asked.acked.is_some())?;
            Some((last.content.clone()?, last.acked.clone()?))
        };
        self.keys.iter().filter_map(|(key, asked)| Some((key.clone(), last(asked)?))).collect()
    }

    /// Looks for what nobody ever asked for.
    ///
    /// # Errors
    /// The first key of that kind.
    pub(crate) fn invented(&self, found: &Found) -> Result<(), String> {
        for (key, (content, version)) in found {
            let asked = self.keys.get(key).map_or(&[][..], Vec::as_slice);
            if !asked.iter().any(|asked| asked.content.as_ref() == Some(content)) {
                return Err(format!("{key} is {content:?} at {version}, and nobody asked for that"));
            }
        }
        Ok(())
    }

    /// Compares.
    ///
    /// # Errors
    /// The first key whose state nobody was told of.
    pub(crate) fn judge(&self, found: &Found) -> Result<(), String> {
        if let Some(key) = found.keys().find(|key| !self.keys.contains_key(*key)) {
            return Err(format!("{key} was never submitted"));
        }
        for (key, asked) in &self.keys {
            if asked.is_empty() && found.contains_key(key) {
                return Err(format!("{key} is {:?}, and all that was asked of it was refused", found[key]));
            }
            let last = asked.iter().rposition(|asked| asked.acked.is_some());
            let may_be = &asked[last.unwrap_or(0)..];
            let fits = match found.get(key) {
                None => last.is_none() || may_be.iter().any(|asked| asked.content.is_none()),
                Some((content, version)) => may_be.iter().any(|asked| {
                    asked.content.as_ref() == Some(content)
                        && asked.acked.as_ref().is_none_or(|acked| acked == version)
                }),
            };
            if !fits {
                return Err(format!("{key} is {:?}, expected one of {may_be:?}", found.get(key)));
            }
        }
        // Two writes that were one unit are there together or not at all.
        for key in found.keys().filter_map(|key| key.strip_suffix("-left")) {
            if !found.contains_key(&format!("{key}-right")) {
                return Err(format!("of the pair {key} only one half is there"));
            }
        }
        Ok(())
    }
}

/// Everything present in a replica; every blob is read.
pub(crate) fn found(replica: &BlockingReplica) -> Result<Found, String> {
    let mut found = Found::new();
    let mut after = None;
    loop {
        let scan = Scan { namespace: None, prefix: Vec::new(), after, entries_max: 1000, deleted: false };
        let page = replica.scan(scan).map_err(|e| e.to_string())?;
        for (key, entry) in page.entries {
            let State::Present { blob } = entry.state else { continue };
            let key = String::from_utf8_lossy(key.logical_key()).into_owned();
            replica.blobs().verify(blob).map_err(|e| e.to_string())?;
            let file = replica.read_blob(blob).map_err(|e| e.to_string())?;
            let mut content = String::new();
            let read = file.ok_or_else(|| format!("the blob of {key} is gone"))?.read_to_string(&mut content);
            read.map_err(|e| format!("the blob of {key}: {e}"))?;
            found.insert(key, (content, text(entry.version)));
        }
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// A version as the program writes it.
pub(crate) fn text(version: Version) -> String {
    format!("{}.{}", version.epoch, version.sequence)
}

#[test]
fn each_way_of_lying_is_seen() {
    let mut told = Told::default();
    told.hear(b"test x ... submit put a one\nack 1.1 a\nsubmit put a two\nsubmit delete gone\nack 1.");
    told.hear(b"2 gone\nsubmit put b open\nsubmit put p-left x\nsubmit put p-right x\n");
    told.hear(b"submit put no x\nrefused no\n");
    let found = |entries: &[(&str, &str, &str)]| -> Found {
        entries.iter().map(|(k, c, v)| ((*k).into(), ((*c).into(), (*v).into()))).collect()
    };
    assert_eq!(told.acknowledged, 2);
    assert_eq!(told.judge(&found(&[("a", "one", "1.1")])), Ok(()));
    assert_eq!(told.judge(&found(&[("a", "two", "1.3"), ("b", "open", "1.4")])), Ok(()));
    for lie in [
        &[][..],
        &[("a", "one", "1.2")],
        &[("a", "three", "1.3")],
        &[("a", "one", "1.1"), ("gone", "x", "1.1")],
        &[("a", "one", "1.1"), ("never", "x", "1.5")],
        &[("a", "one", "1.1"), ("no", "x", "1.5")],
        &[("a", "one", "1.1"), ("p-left", "x", "1.5")],
    ] {
        assert!(told.judge(&found(lie)).is_err(), "{lie:?}");
    }
}
