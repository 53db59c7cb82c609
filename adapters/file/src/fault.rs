//! From the system's errors to storage faults.

use std::io::{Error, ErrorKind};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};

/// Says what was being done, to what, and where, when the system refused.
pub(crate) trait OrFault<T> {
    /// `file` is named as the directory names it.
    fn or_fault(self, action: StorageAction, file: &str, offset: Option<u64>) -> Result<T, StorageFault>;
}

impl<T> OrFault<T> for Result<T, Error> {
    fn or_fault(self, action: StorageAction, file: &str, offset: Option<u64>) -> Result<T, StorageFault> {
        self.map_err(|error| StorageFault {
            action,
            file: file.to_owned(),
            offset,
            cause: cause(&error),
            detail: error.to_string(),
        })
    }
}

/// A fault in words of ours, where the system reported nothing.
pub(crate) fn refused(
    action: StorageAction,
    file: &str,
    offset: Option<u64>,
    cause: StorageCause,
    detail: impl Into<String>,
) -> StorageFault {
    StorageFault { action, file: file.to_owned(), offset, cause, detail: detail.into() }
}

/// What a machine must tell apart; every other kind is [`StorageCause::Failed`].
#[expect(clippy::wildcard_enum_match_arm, reason = "the system's own list, which may grow")]
fn cause(error: &Error) -> StorageCause {
    match error.kind() {
        ErrorKind::NotFound => StorageCause::Missing,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => StorageCause::Full,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StorageCause::Denied,
        _ => StorageCause::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn system_errors_have_these_causes() {
        for (errno, expected) in [
            (Errno::NOENT, StorageCause::Missing),
            (Errno::NOSPC, StorageCause::Full),
            (Errno::DQUOT, StorageCause::Full),
            (Errno::FBIG, StorageCause::Full),
            (Errno::ACCESS, StorageCause::Denied),
            (Errno::PERM, StorageCause::Denied),
            (Errno::ROFS, StorageCause::Denied),
            (Errno::IO, StorageCause::Failed),
            (Errno::LOOP, StorageCause::Failed),
        ] {
            assert_eq!(cause(&errno.into()), expected, "{errno:?}");
        }
    }

    #[test]
    fn a_fault_keeps_what_was_being_done() {
        let failed: Result<(), Error> = Err(Errno::NOSPC.into());
        let fault = failed.or_fault(StorageAction::Write, "acked", Some(7)).unwrap_err();
        assert_eq!(
            (fault.action, fault.offset, fault.file.as_str()),
            (StorageAction::Write, Some(7), "acked")
        );
    }
}
