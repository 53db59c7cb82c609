//! Following the changes of the replica in the node that serves its directory.

use super::remote::{Remote, other};
use crate::control::message::{Answer, ChunkedRequest, WatchItem};
use crate::exit::Failure;
use crate::watch::{CursorReport, CursorText, PageReport, Watch};

struct RemoteWatch<'a> {
    remote: &'a mut Remote,
    verdict: CursorReport,
}

pub(super) fn watch(remote: &mut Remote, cursor: Option<CursorText>) -> Result<Box<dyn Watch + '_>, Failure> {
    let Answer::Watching { verdict } = remote.read(&ChunkedRequest::Watch { cursor })? else {
        return Err(other("watch"));
    };
    Ok(Box::new(RemoteWatch { remote, verdict }))
}

impl Watch for RemoteWatch<'_> {
    fn verdict(&self) -> &CursorReport {
        &self.verdict
    }

    fn next(&mut self) -> Result<Option<PageReport>, Failure> {
        let Answer::Watched { page } = self.remote.read(&WatchItem::Next)? else { return Err(other("next")) };
        Ok(page)
    }

    fn reset(&mut self) -> Result<(), Failure> {
        let Answer::Resetting = self.remote.read(&WatchItem::Reset)? else { return Err(other("reset")) };
        Ok(())
    }
}

impl Drop for RemoteWatch<'_> {
    fn drop(&mut self) {
        // A connection that fails here fails the next request too, which reports it.
        let _ = self.remote.read(&WatchItem::End);
    }
}
