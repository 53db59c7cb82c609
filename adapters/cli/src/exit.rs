//! How the program ends: one exit code per kind of end, and failures that say what to do.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;
use strandline_core::error::{StorageCause, StorageFault};
use strandline_core::lifecycle::api::{MutationError, RequestError};
use strandline_core::record::RecordError;

/// The kinds of end. Their codes are part of the program's interface.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Exit {
    /// Done, and everything done is durable.
    Done,
    /// Refused by the state found: no such key, a condition that does not hold, a follower asked to
    /// write, a blocked compaction. Nothing changed.
    Refused,
    /// The command line, or a file given with it, is wrong. Nothing changed.
    Usage,
    /// Storage failed or holds what was not written.
    Storage,
    /// A peer, the network or the running node could not be reached or broke a rule.
    Peer,
    /// What was asked may or may not have happened; look before asking again.
    Uncertain,
    /// Done in part: what is not is named.
    Incomplete,
    /// Whoever read standard output went away.
    OutputGone,
}

impl Exit {
    /// The process exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Refused => 1,
            Self::Usage => 2,
            Self::Storage => 3,
            Self::Peer => 4,
            Self::Uncertain => 5,
            Self::Incomplete => 6,
            Self::OutputGone => 7,
        }
    }
}

/// The exit codes, as `--help` shows them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done; everything done is durable
  1  refused by the state found (no such key, a condition that does not hold, a follower asked to
     write, a blocked compaction, a failed step of the demo); nothing changed
  2  the command line, or a file given with it, is wrong; nothing changed
  3  storage failed or is damaged; the message names file, offset and what to do
  4  a peer, the network or the running node could not be reached or broke a rule
  5  uncertain: what was asked may or may not have happened; look before asking again
  6  done in part; what is not done is named
  7  nobody reads standard output any more (as after `| head`); ended there, without a message

Output: tables and text for people; with --json one JSON object a line on standard output, and
failures as {\"error\": {exit, message, advice}} on standard error. Bytes are a JSON string where
they are UTF-8, else {\"base64\": \"...\"}. Versions are \"EPOCH.SEQUENCE\".";

/// Why a command did not end as [`Exit::Done`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Failure {
    /// Which kind.
    pub(crate) exit: Exit,
    /// What was expected and what was found.
    pub(crate) message: String,
    /// What a person can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "\n  what to do: {advice}"),
            None => Ok(()),
        }
    }
}

impl Failure {
    fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), advice: None }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn storage(message: impl Into<String>) -> Self {
        Self::new(Exit::Storage, message)
    }

    pub(crate) fn peer(message: impl Into<String>) -> Self {
        Self::new(Exit::Peer, message)
    }

    pub(crate) fn uncertain(message: impl Into<String>) -> Self {
        Self::new(Exit::Uncertain, message)
    }

    pub(crate) fn incomplete(message: impl Into<String>) -> Self {
        Self::new(Exit::Incomplete, message)
    }

    /// A system call on a file that failed.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        Self::storage(format!("cannot {action} {}: {error}", path.display()))
    }

    /// Standard output that failed. That its reader went away is no fault of anybody.
    pub(crate) fn output(error: &io::Error) -> Self {
        let text = format!("cannot write standard output: {error}");
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::new(Exit::OutputGone, text)
        } else {
            Self::storage(text)
        }
    }

    /// The same failure of a command that has changed something, which `done` says: the codes that promise
    /// that nothing changed would lie.
    pub(crate) fn partly(self, done: impl fmt::Display) -> Self {
        match self.exit {
            Exit::Refused | Exit::Usage => {
                Self { exit: Exit::Incomplete, message: format!("{done}: {}", self.message), ..self }
            }
            Exit::Done
            | Exit::Storage
            | Exit::Peer
            | Exit::Uncertain
            | Exit::Incomplete
            | Exit::OutputGone => self,
        }
    }

    /// The same failure with more advice, behind what it has.
    pub(crate) fn advise_also(self, more: impl fmt::Display) -> Self {
        let advice =
            self.advice.as_ref().map_or_else(|| more.to_string(), |first| format!("{first}; {more}"));
        self.advise(advice)
    }

    /// The same failure with advice.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

impl From<StorageFault> for Failure {
    fn from(fault: StorageFault) -> Self {
        let advice = match fault.cause {
            StorageCause::Missing => {
                "if the directory is a copy, copy it again whole; else reseed it from a peer"
            }
            StorageCause::Full => "free space on the file system, then start again",
            StorageCause::Denied => "run as the owner of the directory, on a writable file system",
            StorageCause::Damaged => {
                "keep a copy of the directory, do not edit it; restore a backup or reseed it from a peer"
            }
            StorageCause::Newer => "use the program version that wrote this directory, or a newer one",
            StorageCause::Failed => "look at the system's log for the device, then start again",
        };
        Self::storage(fault.to_string()).advise(advice)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<MutationError> for Failure {
    fn from(error: MutationError) -> Self {
        let text = error.to_string();
        match error {
            MutationError::Collecting { .. } => Self::refused(text).advise("put it again"),
            MutationError::Full { .. } => Self::refused(text).advise("try again"),
            MutationError::BatchTooLarge { .. } => Self::usage(text).advise("write less at once"),
            MutationError::JournalFull { .. } => {
                Self::refused(text).advise("bring the member named up to date or remove it, then `compact`")
            }
            MutationError::Precondition { .. } => {
                Self::refused(text).advise("read the key again and decide anew")
            }
            MutationError::NotAuthority { .. } => {
                Self::refused(text).advise("write to the authority's replica")
            }
            MutationError::Fenced { .. } => {
                Self::refused(text).advise("fence the authority above everything its peers hold")
            }
            MutationError::Record(_) => Self::usage(text),
            MutationError::Namespace { .. } => {
                Self::usage(text).advise("`status` lists the namespaces this log holds")
            }
            MutationError::Installing => Self::refused(text).advise("try again when it is done"),
            MutationError::Closing => Self::refused(text),
            MutationError::Halted(fault) => {
                let advice = Self::from(fault).advice;
                Self { exit: Exit::Storage, message: text, advice }
            }
        }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let text = error.to_string();
        match error {
            RequestError::MembershipMissing => {
                Self::refused(text).advise("`members add ID` for each replica, or `members clear` for none")
            }
            RequestError::Behind { .. } => {
                Self::refused(text).advise("bring that member up to date, or `members remove` it")
            }
            RequestError::NoProgress { .. } | RequestError::Closing => Self::refused(text),
            RequestError::Target { .. } => Self::refused(text).advise("`status` shows floor and tail"),
            RequestError::Busy { .. } => Self::refused(text).advise("try again when it is done"),
            RequestError::Member { .. } => Self::refused(text),
            RequestError::Fence(_) => {
                Self::refused(text).advise("`status` of each replica shows the epoch it knows")
            }
            RequestError::PeerAhead { .. } => Self::refused(text)
                .advise("try again; to give those records up, stop that peer and reseed it"),
            RequestError::EpochStart { .. } => Self::refused(text).advise("`compact`, then fence again"),
            RequestError::Storage(fault) => Self::from(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Exit; 8] = [
        Exit::Done,
        Exit::Refused,
        Exit::Usage,
        Exit::Storage,
        Exit::Peer,
        Exit::Uncertain,
        Exit::Incomplete,
        Exit::OutputGone,
    ];

    #[test]
    fn every_exit_code_is_its_own_and_documented() {
        for (i, exit) in ALL.iter().enumerate() {
            assert_eq!(usize::from(exit.code()), i);
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", exit.code())), "{exit:?} is not documented");
        }
    }

    #[test]
    fn the_documentation_says_what_the_help_says() {
        let page = include_str!("../../../docs/CLI.md");
        for line in EXIT_CODES.lines() {
            assert!(page.contains(line), "docs/CLI.md lacks {line:?}");
        }
    }

    #[test]
    fn a_failure_after_a_change_does_not_say_that_nothing_changed() {
        for exit in ALL {
            let failure = Failure::new(exit, "full").partly("half is done");
            let promises = matches!(exit, Exit::Refused | Exit::Usage);
            let told =
                if promises { Failure::incomplete("half is done: full") } else { Failure::new(exit, "full") };
            assert_eq!(failure, told, "{exit:?}");
        }
    }

    #[test]
    fn a_storage_fault_names_file_offset_and_advice() {
        let failure = Failure::from(StorageFault::damaged("seg-1", 48, "expected CRC 1, found 2"));
        assert_eq!(failure.exit, Exit::Storage);
        let text = failure.to_string();
        assert!(text.contains("seg-1 at offset 48") && text.contains("what to do: keep a copy"), "{text}");
    }

    #[test]
    fn a_condition_that_does_not_hold_is_refused_and_a_limit_is_usage() {
        use strandline_core::record::{Key, Version};
        let key = Key::from_parts(b"files", b"a").expect("short");
        let refused =
            MutationError::Precondition { key, expected: Version::new(1, 2), found: Version::new(1, 3) };
        assert_eq!(Failure::from(refused).exit, Exit::Refused);
        let usage = MutationError::BatchTooLarge { found: 2, max: 1, unit: "records" };
        assert_eq!(Failure::from(usage).exit, Exit::Usage);
    }
}
