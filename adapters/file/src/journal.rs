//! The bare journal of opaque payloads, for programs without an asynchronous runtime.

mod commit;
mod group;
mod hands;

use crate::directory::{Directory, OpenMode};
use crate::lock::OpenError;
use commit::{Commit, Side};
use hands::Hands;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, JoinHandle};
use strandline_core::error::StorageFault;
use strandline_core::id::Lsn;
use strandline_core::journal::command::{StorageCommand, StorageCompletion};
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::log::{JournalLog, LogError, LogRecovery, Never, NotOpened, Opened};
use strandline_core::journal::read::{Dropped, EntryReader};
use strandline_core::journal::writer::AppendError;
use strandline_core::machine::{Host, Machine, Next, Sent, drain};
use strandline_core::seed::Seed;
use strandline_core::time::Now;

/// The kind of every entry: what is in it is the program's own.
const KIND: u8 = 0;

/// Outputs of a root between two looks at what else is to do.
const OUTPUTS_MAX: u32 = 1024;

/// How a bare journal works.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct JournalOptions {
    /// Its bounds. Those of what is stored already must be allowed still.
    pub limits: JournalLimits,
}

/// Why a bare journal was not opened or created. Each family has its own variants.
#[derive(Debug, thiserror::Error)]
pub enum JournalOpenError {
    /// The directory could not be opened, or is open already.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal could not be recovered or created.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The system gave no random bytes.
    #[error("expected 32 random bytes from the system, found: {0}")]
    Entropy(getrandom::Error),
}

/// Why an append was not acknowledged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JournalAppendError {
    /// The caller's: nothing was appended.
    #[error(transparent)]
    Refused(#[from] AppendError),
    /// Storage failed meanwhile: the next open tells whether the entries are there. The journal
    /// takes no more.
    #[error("the outcome is unknown until the journal is opened again: {0}")]
    Uncertain(StorageFault),
}

/// Why entries were not read back.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// The caller asks for entries that compaction dropped.
    #[error(transparent)]
    Dropped(#[from] Dropped),
    /// The disk failed, or holds other bytes than were written.
    #[error(transparent)]
    Storage(#[from] StorageFault),
}

/// Opaque payloads under consecutive LSNs in a directory of their own, without an asynchronous
/// runtime. Share it between threads by reference or in an `Arc`.
///
/// What several threads append at the same time becomes durable in one write and one sync: the
/// caller that finds none under way makes it for all. One thread beside the callers prepares
/// segments ahead, and seals the journal when it was idle for `seal_ms`.
///
/// ```
/// use std::ops::ControlFlow;
/// use strandline_core::id::Lsn;
/// use strandline_file::{BareJournal, JournalOptions};
///
/// let parent = tempfile::tempdir()?;
/// let path = parent.path().join("journal");
/// let (journal, _) = BareJournal::create(&path, JournalOptions::default())?;
/// journal.append(b"one")?;
/// let last = journal.append_batch(&[b"two", b"three"])?;
/// journal.close()?;
///
/// let (journal, opened) = BareJournal::open(&path, JournalOptions::default())?;
/// assert_eq!((opened.entries, journal.durable()), (3, Some(last)));
/// let mut found = Vec::new();
/// journal.replay(Lsn::FIRST, |_, payload| {
///     found.push(payload.to_vec());
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(found, [&b"one"[..], b"two", b"three"]);
/// # journal.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BareJournal {
    commit: Arc<Commit>,
    directory: Arc<Directory>,
    helper: Option<JoinHandle<()>>,
}

impl BareJournal {
    /// Creates a journal at `path`, and the directory if it is missing.
    ///
    /// # Errors
    /// The directory is in use, cannot be written, or holds a log already.
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub fn create(
        path: impl AsRef<Path>,
        options: JournalOptions,
    ) -> Result<(Self, Opened), JournalOpenError> {
        let visit = |_, kind, _: &[u8]| expected(kind);
        Self::start(path.as_ref(), OpenMode::Create, |seed| LogRecovery::create(options.limits, seed, visit))
    }

    /// Opens the journal at `path`: locks the directory and recovers. On return everything that is
    /// kept is durable.
    ///
    /// # Errors
    /// The directory is in use, cannot be read, or holds no journal; or the journal is damaged.
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub fn open(path: impl AsRef<Path>, options: JournalOptions) -> Result<(Self, Opened), JournalOpenError> {
        Self::open_with(path, options, |_, _| {})
    }

    /// Opens as [`BareJournal::open`] does and shows `visit` every entry that is kept, in order, as
    /// recovery reads it. If the open fails, drop what `visit` built.
    ///
    /// # Errors
    /// As [`BareJournal::open`].
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: JournalOptions,
        mut visit: impl FnMut(Lsn, &[u8]),
    ) -> Result<(Self, Opened), JournalOpenError> {
        let visit = move |lsn, kind, payload: &[u8]| expected(kind).map(|()| visit(lsn, payload));
        Self::start(path.as_ref(), OpenMode::Existing, |seed| LogRecovery::open(options.limits, seed, visit))
    }

    /// Appends one entry; durable on return. Waits while too much is under way.
    ///
    /// # Errors
    /// [`JournalAppendError`] says whether anything was appended.
    pub fn append(&self, payload: &[u8]) -> Result<Lsn, JournalAppendError> {
        self.commit.append(&[(KIND, payload)])
    }

    /// Appends entries as one unit, all or nothing, with one wait; durable on return. Answers with
    /// the LSN of the last. Waits while too much is under way.
    ///
    /// # Errors
    /// [`JournalAppendError`] says whether anything was appended.
    pub fn append_batch(&self, payloads: &[&[u8]]) -> Result<Lsn, JournalAppendError> {
        let entries: Vec<_> = payloads.iter().map(|payload| (KIND, *payload)).collect();
        self.commit.append(&entries)
    }

    /// The last entry that survives power loss; `None` if there never was one.
    #[must_use]
    pub fn durable(&self) -> Option<Lsn> {
        self.commit.with(|log| log.journal().durable())
    }

    /// The first entry that is retained, or the LSN the next one gets if none is.
    #[must_use]
    pub fn first(&self) -> Lsn {
        self.commit.with(|log| log.journal().index().first_lsn())
    }

    /// Shows `visit` the entries from `from` on that are durable now, in order, until it breaks.
    /// Appends and compactions go on meanwhile.
    ///
    /// # Errors
    /// [`ReplayError::Dropped`] if the next entry is no longer retained: `from` itself, or one that a
    /// compaction dropped before the replay came to it, which ends midway then. The disk's faults. What
    /// was shown before stands.
    pub fn replay(
        &self,
        from: Lsn,
        mut visit: impl FnMut(Lsn, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), ReplayError> {
        let _pinned = self.commit.pin();
        let Some(through) = self.durable() else { return Ok(()) };
        let mut reader = EntryReader::new(from, through);
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() {
            let request = self.commit.with(|log| {
                let journal = log.journal();
                reader.request(journal.index(), journal.limits().read_bytes_max)
            })?;
            let Some(request) = request else { break };
            let bytes = self.directory.read(request.file, request.offset, request.bytes)?;
            reader.accept(&request, &bytes, &mut |lsn, _, payload| {
                flow = visit(lsn, payload);
                flow
            })?;
        }
        Ok(())
    }

    /// Drops the segments whose entries are all below `lsn` and answers with the first entry that
    /// is still retained. Durable on return; files that a replay still reads go when it ends. A replay
    /// that has not come to `lsn` yet ends with [`ReplayError::Dropped`].
    ///
    /// # Errors
    /// The disk's fault. If `current` could not be replaced, the journal takes no more.
    pub fn compact_to(&self, lsn: Lsn) -> Result<Lsn, StorageFault> {
        self.commit.compact_to(lsn)
    }

    /// Seals the journal and releases the directory.
    ///
    /// # Errors
    /// The fault that had stopped the journal.
    pub fn close(mut self) -> Result<(), StorageFault> {
        self.shut()
    }

    fn start<V>(
        path: &Path,
        mode: OpenMode,
        recovery: impl FnOnce(Seed) -> LogRecovery<V>,
    ) -> Result<(Self, Opened), JournalOpenError>
    where
        V: FnMut(Lsn, u8, &[u8]) -> Result<(), String>,
    {
        let directory = Arc::new(Directory::open(path, mode)?);
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(JournalOpenError::Entropy)?;
        let mut hands = Hands::new(Arc::clone(&directory));
        let (log, opened) = recover(recovery(Seed::new(seed)), &mut hands)?;
        let (side, work) = channel();
        let commit = Arc::new(Commit::new(log, hands, side));
        let helper = {
            let (commit, hands) = (Arc::clone(&commit), Hands::new(Arc::clone(&directory)));
            let thread = Builder::new().name("journal".into());
            thread.spawn(move || help(&commit, &work, hands)).expect("the system gives us a thread")
        };
        commit.started();
        Ok((Self { commit, directory, helper: Some(helper) }, opened))
    }

    fn shut(&mut self) -> Result<(), StorageFault> {
        let Some(helper) = self.helper.take() else { return Ok(()) };
        let ended = self.commit.close();
        helper.join().expect("the helper ends without a panic");
        ended
    }
}

impl Drop for BareJournal {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`; the fault was told to every append it concerns.
        let _ = self.shut();
    }
}

fn expected(kind: u8) -> Result<(), String> {
    if kind == KIND { Ok(()) } else { Err(format!("expected an entry of kind {KIND}, found {kind}")) }
}

/// Executes each command of a recovery as it comes.
struct Opening<'a> {
    hands: &'a mut Hands,
    completed: Vec<StorageCompletion>,
}

impl<V: FnMut(Lsn, u8, &[u8]) -> Result<(), String>> Host<LogRecovery<V>> for Opening<'_> {
    fn execute(&mut self, command: StorageCommand) {
        self.completed.push(self.hands.execute(command));
    }

    fn notify(&mut self, event: Never) {
        match event {}
    }

    fn ready(&mut self) -> Option<Never> {
        None
    }

    fn send(&mut self, channel: Never, _: &[u8]) -> Sent {
        match channel {}
    }

    fn done(&mut self, channel: Never) {
        match channel {}
    }
}

fn recover<V>(mut recovery: LogRecovery<V>, hands: &mut Hands) -> Result<(JournalLog, Opened), LogError>
where
    V: FnMut(Lsn, u8, &[u8]) -> Result<(), String>,
{
    let mut host = Opening { hands, completed: Vec::new() };
    loop {
        let next = drain(&mut recovery, &mut host, &mut Vec::new(), OUTPUTS_MAX);
        let idle = host.completed.is_empty() && matches!(next, Next::Sleep(_));
        for completion in host.completed.drain(..) {
            recovery.handle_completion(Now::default(), completion);
        }
        if !idle {
            continue;
        }
        match recovery.finish() {
            Ok(done) => return Ok(done),
            Err(NotOpened::Failed(error)) => return Err(error),
            Err(NotOpened::Working(_)) => unreachable!("every command was answered"),
        }
    }
}

/// What runs beside the appends, until the journal closes.
fn help(commit: &Commit, work: &Receiver<Side>, mut hands: Hands) {
    let mut timed = false;
    loop {
        let next = if timed { commit.wait_for_work(work) } else { work.recv().ok() };
        match next {
            Some(Side::Command(command)) => commit.completed(hands.execute(command)),
            Some(Side::Timed) => timed = true,
            Some(Side::Stop) => return,
            None => timed = commit.timeout(),
        }
    }
}
