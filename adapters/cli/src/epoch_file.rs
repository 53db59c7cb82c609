//! The right to write, as a lease's agent on this machine says it: in a file that holds the epoch.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::time::Duration;
use strandline_core::lifecycle::epoch_source::EpochSource;
use strandline_net::{EpochTaken, Handle};

/// Time between two looks at the file.
const LOOK: Duration = Duration::from_millis(250);

/// Longest file: the digits of the largest epoch, and room for white space.
const BYTES_MAX: u64 = 64;

/// A file with the epoch in decimal digits; none while it is missing or empty. To be replaced by renaming.
#[derive(Debug)]
pub(crate) struct EpochFile(pub(crate) PathBuf);

/// Why the file gives no epoch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EpochFileError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// It holds something else.
    #[error("{} holds {found:?}, expected an epoch in decimal digits, or nothing", .path.display())]
    Text {
        /// Which.
        path: PathBuf,
        /// Its beginning.
        found: String,
    },
}

impl EpochSource for EpochFile {
    type Error = EpochFileError;

    fn epoch(&mut self) -> Result<Option<u64>, EpochFileError> {
        let path = || self.0.clone();
        let mut bytes = Vec::new();
        match File::open(&self.0).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(EpochFileError::Read { path: path(), error }),
        }
        let text = String::from_utf8_lossy(&bytes);
        let digits = text.trim();
        if digits.is_empty() {
            return Ok(None);
        }
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
        number.map(Some).ok_or_else(|| EpochFileError::Text { path: path(), found: text.into_owned() })
    }
}

/// Takes each new epoch that the file gives. Says what came of it whenever that changes; never ends.
pub(crate) async fn follow(handle: Handle, mut file: EpochFile) -> Infallible {
    let mut said = String::new();
    loop {
        let (fault, now) = match handle.take_epoch(&mut file).await {
            Ok(EpochTaken::Taken(fenced)) => {
                (false, format!("epoch {} begins after {}", fenced.epoch, fenced.previous_end))
            }
            Ok(EpochTaken::Held | EpochTaken::NotHeld) => (false, String::new()),
            Ok(EpochTaken::Over { known }) => {
                (true, format!("{} holds an epoch that is over: {known} is known", file.0.display()))
            }
            Err(error) => (true, format!("no epoch is taken: {error}")),
        };
        if now != said {
            match (fault, now.is_empty()) {
                (true, _) => tracing::warn!("{now}"),
                (false, false) => tracing::info!("{now}"),
                (false, true) => {}
            }
            said = now;
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_an_epoch_and_nothing_is_none() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let mut file = EpochFile(folder.path().join("epoch"));
        assert_eq!(file.epoch()?, None);
        for (text, epoch) in
            [("", None), (" \n", None), ("7\n", Some(7)), ("18446744073709551615", Some(u64::MAX))]
        {
            std::fs::write(&file.0, text)?;
            assert_eq!(file.epoch()?, epoch, "{text:?}");
        }
        for text in ["two", "+7", "7 8", "18446744073709551616", &"7".repeat(100)] {
            std::fs::write(&file.0, text)?;
            assert!(matches!(file.epoch(), Err(EpochFileError::Text { .. })), "{text:?}");
        }
        file.0 = folder.path().into();
        assert!(matches!(file.epoch(), Err(EpochFileError::Read { .. })));
        Ok(())
    }
}
