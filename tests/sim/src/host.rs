//! The host of one simulated replica: executes commands effect by effect, keeps answers until they
//! are handed in, and holds the bytes that go out on its links.

use crate::blobs::{BlobJob, BlobStore};
use crate::effect::{Appended, Armed, StorageJob};
use crate::fault::{Counts, Fault};
use crate::fs::{Fs, Tearing};
use crate::rng::{Choose, Rng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use strandline_core::id::LinkId;
use strandline_core::journal::command::StorageCommand;
use strandline_core::lifecycle::api::Event;
use strandline_core::lifecycle::command::{Command, ReplicaCompletion};
use strandline_core::machine::{Host, Machine, Sent};

/// Which commands wait for one another, as in the file adapter.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Lane {
    /// Appends and cuts: strictly one after the other.
    Append,
    /// Writes, syncs, removals: one after the other.
    Files,
    /// Two at a time.
    Steps,
    /// Pieces of blobs: one after the other.
    Pieces,
    /// All at once.
    Free,
}

#[derive(Debug)]
enum Work {
    Storage(StorageJob),
    Blob(BlobJob),
}

#[derive(Debug)]
struct Job {
    lane: Lane,
    work: Work,
}

fn lane(command: &Command) -> Lane {
    match command {
        Command::Storage(command) => match command {
            StorageCommand::Append { .. } | StorageCommand::Cut { .. } => Lane::Append,
            StorageCommand::Write { .. } | StorageCommand::Sync { .. } | StorageCommand::Remove { .. } => {
                Lane::Files
            }
            StorageCommand::List { .. } | StorageCommand::Prepare { .. } | StorageCommand::Replace { .. } => {
                Lane::Steps
            }
            StorageCommand::Read { .. } => Lane::Free,
        },
        Command::Blob(_) => Lane::Free,
    }
}

/// Bytes on their way out on one link.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Not delivered yet.
    pub bytes: VecDeque<u8>,
    /// The link took no more when it was last offered some.
    pub full: bool,
}

/// The host of one replica.
#[derive(Debug)]
pub struct NodeHost {
    /// Its folder.
    pub fs: Fs,
    /// Its blobs.
    pub blobs: BlobStore,
    /// Faults that wait for their chance.
    pub armed: Armed,
    /// How often each fault was injected here.
    pub counts: Counts,
    /// Events not looked at yet.
    pub events: VecDeque<Event>,
    /// Bytes by link.
    pub out: BTreeMap<LinkId, Outgoing>,
    /// Answers not handed in yet.
    pub answers: VecDeque<ReplicaCompletion>,
    /// Answers of runs that ended.
    pub stale: Vec<ReplicaCompletion>,
    /// Batches that are durable, in order.
    pub appended: Vec<Appended>,
    /// Most bytes that wait on a link before it takes no more.
    pub window: usize,
    /// Commands are sometimes executed at once.
    pub instant: bool,
    ready: BTreeSet<LinkId>,
    jobs: Vec<Job>,
    temporaries: u64,
    rng: Rng,
}

impl NodeHost {
    /// A host with an empty folder.
    #[must_use]
    pub fn new(rng: Rng, window: usize, instant: bool) -> Self {
        Self {
            fs: Fs::default(),
            blobs: BlobStore::default(),
            armed: Armed::default(),
            counts: Counts::default(),
            events: VecDeque::new(),
            out: BTreeMap::new(),
            answers: VecDeque::new(),
            stale: Vec::new(),
            appended: Vec::new(),
            window,
            instant,
            ready: BTreeSet::new(),
            jobs: Vec::new(),
            temporaries: 0,
            rng,
        }
    }

    /// Decides from here on by another seed.
    pub const fn reseed(&mut self, seed: u64) {
        self.rng = Rng::new(seed);
    }

    /// Whether commands wait to be executed.
    #[must_use]
    pub fn busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Commands that are out.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.jobs.len() + self.answers.len()
    }

    /// The jobs that may go on now.
    fn runnable(&self) -> Vec<usize> {
        let mut taken: BTreeMap<Lane, u32> = BTreeMap::new();
        let mut runnable = Vec::new();
        for (at, job) in self.jobs.iter().enumerate() {
            let width = match job.lane {
                Lane::Append | Lane::Files | Lane::Pieces => 1,
                Lane::Steps => 2,
                Lane::Free => u32::MAX,
            };
            let used = taken.entry(job.lane).or_default();
            if *used < width {
                *used += 1;
                runnable.push(at);
            }
        }
        runnable
    }

    /// Executes one effect of one command. False if there is none.
    pub fn advance(&mut self) -> bool {
        let runnable = self.runnable();
        if runnable.is_empty() {
            return false;
        }
        let pick = self.rng.index(runnable.len());
        if pick > 0 {
            self.counts.add(Fault::OutOfOrder);
        }
        self.advance_job(runnable[pick]);
        true
    }

    /// Executes one effect of the first command, for scripts. False if there is none.
    pub fn advance_first(&mut self) -> bool {
        if self.jobs.is_empty() {
            return false;
        }
        self.advance_job(0);
        true
    }

    fn advance_job(&mut self, at: usize) -> bool {
        let Self { fs, blobs, armed, counts, rng, .. } = self;
        let result = match &mut self.jobs[at].work {
            Work::Storage(job) => match job.advance(fs, armed, rng, counts) {
                Some(result) => result,
                None => return false,
            },
            Work::Blob(job) => {
                if !job.advance(blobs) {
                    return false;
                }
                Ok(())
            }
        };
        let job = self.jobs.remove(at);
        if let (Work::Storage(job), Ok(())) = (&job.work, &result) {
            self.done_append(job);
        }
        let answer = match job.work {
            Work::Storage(job) => job.complete(result, &self.fs, &mut self.armed, &mut self.counts).into(),
            Work::Blob(job) => {
                let fails = self.armed.once.remove(&Fault::BlobFailed);
                if fails {
                    self.counts.add(Fault::BlobFailed);
                }
                job.complete(&mut self.blobs, fails)
            }
        };
        self.answers.push_back(answer);
        true
    }

    /// Remembers a batch that is durable.
    fn done_append(&mut self, job: &StorageJob) {
        let Some(appended) = job.appended() else { return };
        // Recovery writes the last batch again; that ends nothing behind it.
        if !self.appended.contains(&appended) {
            self.appended.retain(|a| (a.segment, a.offset) < (appended.segment, appended.offset));
            self.appended.push(appended);
        }
    }

    /// The next answer to hand in, any of those there are.
    pub fn answer(&mut self) -> Option<ReplicaCompletion> {
        if self.answers.is_empty() {
            return None;
        }
        let pick = self.rng.index(self.answers.len());
        if pick > 0 {
            self.counts.add(Fault::OutOfOrder);
        }
        self.answers.remove(pick)
    }

    /// The process ends: commands that are not done are lost. Answers that were not handed in are
    /// kept, as ones that come too late.
    pub fn kill(&mut self) {
        self.jobs.clear();
        self.stale.truncate(2);
        self.stale.extend(self.answers.drain(..).take(2));
        self.events.clear();
        self.out.clear();
        self.ready.clear();
        let Self { blobs, rng, counts, .. } = self;
        blobs.crash(rng, counts);
    }

    /// The machine loses power.
    pub fn power_cut(&mut self) {
        self.kill();
        let Self { fs, rng, counts, .. } = self;
        fs.power_cut(rng, Tearing::Anywhere, counts);
    }

    /// Frames may be polled for this link again.
    pub fn wake(&mut self, link: LinkId) {
        self.ready.insert(link);
    }

    /// A link is gone.
    pub fn forget(&mut self, link: LinkId) {
        self.out.remove(&link);
        self.ready.remove(&link);
    }

    /// What commands are out, for people.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let text = |job: &Job| match &job.work {
            Work::Storage(job) => format!("{:?}", job.command()),
            Work::Blob(job) => format!("{:?}", job.command()),
        };
        self.jobs.iter().map(text).collect()
    }
}

impl<M: Machine<Command = Command, Event = Event, Channel = LinkId>> Host<M> for NodeHost {
    fn execute(&mut self, command: Command) {
        let mut lane = lane(&command);
        let work = match command {
            Command::Storage(command) => {
                self.temporaries += 1;
                Work::Storage(StorageJob::new(command, self.temporaries, &mut self.rng))
            }
            Command::Blob(command) => {
                let job = BlobJob::new(command);
                if job.ordered() {
                    lane = Lane::Pieces;
                }
                Work::Blob(job)
            }
        };
        let first = lane == Lane::Free || self.jobs.iter().all(|job| job.lane != lane);
        self.jobs.push(Job { lane, work });
        if self.instant && first && self.rng.once_in(2) {
            self.counts.add(Fault::InstantCompletion);
            let at = self.jobs.len() - 1;
            while !self.advance_job(at) {}
        }
    }

    fn notify(&mut self, event: Event) {
        if let Event::Frames { link } = &event
            && self.out.get(link).is_some_and(|out| !out.full)
        {
            self.ready.insert(*link);
        }
        self.events.push_back(event);
    }

    fn ready(&mut self) -> Option<LinkId> {
        self.ready.first().copied()
    }

    fn send(&mut self, link: LinkId, bytes: &[u8]) -> Sent {
        let window = self.window;
        let Some(out) = self.out.get_mut(&link) else { return Sent::Enough };
        out.bytes.extend(bytes);
        out.full = out.bytes.len() > window;
        if out.full { Sent::Enough } else { Sent::More }
    }

    fn done(&mut self, link: LinkId) {
        self.ready.remove(&link);
    }
}
