//! Which calls fail.
//!
//! `STRANDLINE_SHIM_RULES` holds rules between semicolons, each of four words: a call (`read`,
//! `write`, `sync`, `datasync`, `sync-folder`, `truncate`, `open`, `mkdir`, `unlink`, `rename`), a part of the path as
//! the call has it (`*`: any), which of the calls that fit (`3`: the third; `3+`: from the third on),
//! and what becomes of it: a number, the error of the system that it fails with, doing nothing; or
//! `short`, a write of half its bytes that succeeds. For example
//! `write segment- 4 short; write segment- 5+ 28`. `datasync` is `fdatasync` on a file, `sync` is
//! `fsync` on one, `sync-folder` either of them on a folder.

use crate::trace;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of call.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Call {
    Read,
    Write,
    Sync,
    DataSync,
    SyncFolder,
    Truncate,
    Open,
    Mkdir,
    Unlink,
    Rename,
}

impl Call {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "read" => Self::Read,
            "write" => Self::Write,
            "sync" => Self::Sync,
            "datasync" => Self::DataSync,
            "sync-folder" => Self::SyncFolder,
            "truncate" => Self::Truncate,
            "open" => Self::Open,
            "mkdir" => Self::Mkdir,
            "unlink" => Self::Unlink,
            "rename" => Self::Rename,
            _ => return None,
        })
    }
}

/// What becomes of a call.
#[derive(Clone, Copy)]
pub(crate) enum Strike {
    /// It does nothing and fails with this error.
    Fail(libc::c_int),
    /// It does half of what it was asked for, and says so.
    Short,
}

struct Rule {
    text: String,
    call: Call,
    path: Vec<u8>,
    first: u64,
    goes_on: bool,
    strike: Strike,
    count: AtomicU64,
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [call, path, which, strike] = words[..] else { return None };
        let strike = if strike == "short" { Strike::Short } else { Strike::Fail(strike.parse().ok()?) };
        Some(Self {
            text: text.trim().to_owned(),
            call: Call::parse(call)?,
            path: path.trim_start_matches('*').into(),
            first: which.trim_end_matches('+').parse().ok()?,
            goes_on: which.ends_with('+'),
            strike,
            count: AtomicU64::new(0),
        })
    }

    fn fits(&self, call: Call, path: &[u8]) -> bool {
        self.call == call
            && (self.path.is_empty() || path.windows(self.path.len()).any(|part| part == self.path))
    }

    fn strikes(&self) -> bool {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        number == self.first || (self.goes_on && number > self.first)
    }
}

fn rules() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        let text = std::env::var("STRANDLINE_SHIM_RULES").unwrap_or_default();
        let texts = text.split(';').filter(|text| !text.trim().is_empty());
        // A rule that is not understood must not pass for a fault that did no harm.
        texts.map(|text| Rule::parse(text).unwrap_or_else(|| std::process::abort())).collect()
    })
}

/// Whether rules count now.
fn active() -> bool {
    static GATE: OnceLock<Option<std::ffi::CString>> = OnceLock::new();
    let gate = GATE.get_or_init(|| {
        let path = std::env::var("STRANDLINE_SHIM_WHILE").ok()?;
        std::ffi::CString::new(path).ok()
    });
    // Safety: a C string.
    gate.as_ref().is_none_or(|path| unsafe { libc::access(path.as_ptr(), libc::F_OK) } == 0)
}

/// What a rule says to a call; the first rule that strikes does.
pub(crate) fn strike(call: Call, path: impl FnOnce() -> Vec<u8>) -> Option<Strike> {
    let rules = rules();
    if rules.is_empty() || !active() {
        return None;
    }
    let path = path();
    let mut struck = None;
    // Every rule counts each call that fits it.
    for rule in rules.iter().filter(|rule| rule.fits(call, &path)) {
        if rule.strikes() && struck.is_none() {
            trace::struck(&rule.text);
            struck = Some(rule.strike);
        }
    }
    struck
}
