//! Handles kept open for reading.

use crate::folder::linked;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Result;
use std::sync::{Arc, Mutex};
use strandline_core::journal::command::FileName;

/// Most files kept open for reading.
const HANDLES_MAX: usize = 16;

/// The files read last, most recent at the back. A handle whose file was replaced or removed is
/// never handed out again.
#[derive(Debug, Default)]
pub(crate) struct ReadHandles {
    recent: Mutex<VecDeque<(FileName, Arc<File>)>>,
}

impl ReadHandles {
    /// The handle of `file`, opened if it is not at hand.
    pub(crate) fn get(&self, file: FileName, open: impl FnOnce() -> Result<File>) -> Result<Arc<File>> {
        // Whoever replaces a file may do so between an open here and its insertion, so that the
        // name in the table proves nothing: only the link count does.
        if let Some(handle) = self.take(file)
            && linked(&handle)?
        {
            self.keep(file, &handle);
            return Ok(handle);
        }
        let handle = Arc::new(open()?);
        self.keep(file, &handle);
        Ok(handle)
    }

    /// Closes the handle of `file`, so that a removed file gives its space back.
    pub(crate) fn forget(&self, file: FileName) {
        drop(self.take(file));
    }

    fn take(&self, file: FileName) -> Option<Arc<File>> {
        let mut recent = self.recent.lock().expect("no holder panics");
        let at = recent.iter().position(|(name, _)| *name == file)?;
        recent.remove(at).map(|(_, handle)| handle)
    }

    fn keep(&self, file: FileName, handle: &Arc<File>) {
        let mut recent = self.recent.lock().expect("no holder panics");
        recent.retain(|(name, _)| *name != file);
        if recent.len() == HANDLES_MAX {
            recent.pop_front();
        }
        recent.push_back((file, Arc::clone(handle)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_reused_until_its_file_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("acked");
        let handles = ReadHandles::default();
        std::fs::write(&path, b"1").unwrap();
        let first = handles.get(FileName::Acked, || File::open(&path)).unwrap();
        let again = handles.get(FileName::Acked, || panic!("the handle is at hand")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"2").unwrap();
        let replaced = handles.get(FileName::Acked, || File::open(&path)).unwrap();
        assert!(!Arc::ptr_eq(&first, &replaced));
    }

    #[test]
    fn handles_are_bounded_and_the_oldest_goes_first() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        std::fs::write(&path, b"").unwrap();
        let handles = ReadHandles::default();
        for number in 0..=HANDLES_MAX as u64 {
            handles.get(FileName::Checkpoint(number), || File::open(&path)).unwrap();
        }
        assert_eq!(handles.recent.lock().unwrap().len(), HANDLES_MAX);
        assert!(handles.take(FileName::Checkpoint(0)).is_none());
        assert!(handles.take(FileName::Checkpoint(1)).is_some());
    }
}
