//! Many syncs at once: devices flush several files in little more than the time of one.

use crate::fault::OrFault;
use crate::threads::Threads;
use crossbeam_channel::{Receiver, bounded};
use std::fs::File;
use std::sync::{Arc, Mutex};
use strandline_core::error::{StorageAction, StorageFault};

/// Files handed in and not synced yet, at most: each holds a descriptor.
const WAITING_MAX: usize = 64;

/// One sync to be done.
type Sync = Box<dyn FnOnce() -> Result<(), StorageFault> + Send>;

/// Syncs files on some threads while more are handed in.
#[derive(Debug)]
pub(crate) struct Syncs {
    threads_max: usize,
    threads: Option<Threads<Sync>>,
    fault: Arc<Mutex<Option<StorageFault>>>,
}

impl Syncs {
    /// With no threads every file is synced where it is handed in.
    pub(crate) fn new(threads_max: usize) -> Self {
        Self { threads_max, threads: None, fault: Arc::default() }
    }

    /// Syncs and closes the file, now or before [`Syncs::finish`] returns. Waits while too many are
    /// waiting.
    pub(crate) fn submit(&mut self, file: File, name: String) {
        self.run(move || file.sync_all().or_fault(StorageAction::Sync, &name, None));
    }

    /// As [`Syncs::submit`], for what is synced in a way of its own.
    pub(crate) fn run(&mut self, sync: impl FnOnce() -> Result<(), StorageFault> + Send + 'static) {
        if self.threads_max == 0 {
            return keep_first(sync(), &self.fault);
        }
        let (fault, threads_max) = (&self.fault, self.threads_max);
        let threads = self.threads.get_or_insert_with(|| {
            let bodies = std::iter::repeat_n(Arc::clone(fault), threads_max).map(|fault| {
                move |syncs: Receiver<Sync>| syncs.iter().for_each(|sync| keep_first(sync(), &fault))
            });
            Threads::start("sync", bounded(WAITING_MAX), bodies)
        });
        threads.send(Box::new(sync));
    }

    /// Waits for everything handed in so far. A fault stays: all later calls report it too.
    pub(crate) fn finish(&mut self) -> Result<(), StorageFault> {
        self.threads = None;
        match &*self.fault.lock().expect("no holder panics") {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }
}

fn keep_first(synced: Result<(), StorageFault>, first: &Mutex<Option<StorageFault>>) {
    if let Err(fault) = synced {
        first.lock().expect("no holder panics").get_or_insert(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    fn unsyncable() -> File {
        // A socket can be written and never synced.
        File::from(OwnedFd::from(std::os::unix::net::UnixStream::pair().unwrap().0))
    }

    #[test]
    fn every_file_is_waited_for_and_a_fault_stays() {
        for threads in [0, 3] {
            let mut syncs = Syncs::new(threads);
            for _ in 0..2 * WAITING_MAX {
                syncs.submit(tempfile::tempfile().unwrap(), "fine".into());
            }
            assert_eq!(syncs.finish(), Ok(()));
            syncs.submit(unsyncable(), "bad".into());
            syncs.submit(tempfile::tempfile().unwrap(), "fine".into());
            let fault = syncs.finish().unwrap_err();
            assert_eq!((fault.action, fault.file.as_str()), (StorageAction::Sync, "bad"));
            assert_eq!(syncs.finish(), Err(fault));
        }
    }
}
