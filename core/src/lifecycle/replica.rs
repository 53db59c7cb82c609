//! SEAM SKELETON, replaced by the real root: signatures only.
#![allow(missing_docs, clippy::unimplemented, unused_variables)]
use super::api::*;
use super::command::{Command, ReplicaCompletion};
use crate::error::StorageFault;
use crate::id::{LinkId, LogId};
use crate::machine::{FrameInfo, Machine, Pending};
use crate::record::{AuthorityId, Key};
use crate::seed::Seed;
use crate::time::Now;
use alloc::string::String;
use alloc::vec::Vec;

/// Bounds and periods of a replica; defaults are for servers.
#[derive(Clone, Debug, Default)]
pub struct ReplicaConfig { /* record, journal, wire limits; seal_ms; links_max; ... */ }

/// What a new directory is made for.
#[derive(Clone, Debug)]
pub struct Init { pub log: LogId, pub identity: String, pub namespaces: Vec<Vec<u8>>, /// the authority identity if this replica writes the log
 pub authority: Option<AuthorityId> }

/// What recovery did.
#[derive(Clone, Debug)]
pub struct RecoveryReport { pub cut: Option<(String, u64, u64)> /* file, offset, bytes */, pub entries: u64, pub journal_bytes: u64 }

/// Why recovery is not finished: drain again after completions, or it failed for good.
pub enum NotRecovered { Working(Recovery), Failed(RecoveryError) }

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecoveryError {
    /// Directory holds no log: `init` it first.
    #[error("no log here")] NoLog,
    #[error("a log is already here")] Exists,
    #[error(transparent)] Storage(StorageFault),
}

pub struct Recovery {}
impl Recovery {
    /// Opens an existing log.
    pub fn open(now: Now, seed: Seed, config: ReplicaConfig) -> Self { unimplemented!() }
    /// Creates a log in an empty directory.
    pub fn create(now: Now, seed: Seed, config: ReplicaConfig, init: Init) -> Self { unimplemented!() }
    /// Only after everything kept is durable.
    pub fn finish(self) -> Result<(Replica, RecoveryReport), NotRecovered> { unimplemented!() }
}
impl Machine for Recovery {
    type Command = Command; type Event = core::convert::Infallible; type Completion = ReplicaCompletion; type Channel = LinkId;
    fn handle_completion(&mut self, now: Now, completion: ReplicaCompletion) {}
    fn handle_timeout(&mut self, now: Now) {}
    fn poll_command(&mut self) -> Option<Command> { None }
    fn poll_event(&mut self) -> Option<core::convert::Infallible> { None }
    fn poll_channel(&mut self, channel: LinkId, buf: &mut Vec<u8>) -> Option<FrameInfo> { None }
    fn pending(&self) -> Pending { Pending::default() }
}

pub struct Replica {}
impl Replica {
    /// All or nothing, in one journal batch.
    pub fn handle_mutations(&mut self, now: Now, mutations: &[Mutation]) -> Result<Vec<Accepted>, MutationError> { unimplemented!() }
    /// `Authenticated` is wire::handshake::Authenticated (branch wire).
    pub fn handle_link_up(&mut self, now: Now, peer: (), role: LinkRole) -> Result<LinkId, LinkRefused> { unimplemented!() }
    /// Bytes after the handshake, split anywhere. A fault has already taken the link down; Event::CloseLink follows.
    pub fn handle_received(&mut self, now: Now, link: LinkId, bytes: &[u8]) { unimplemented!() }
    /// Idempotent.
    pub fn handle_link_down(&mut self, now: Now, link: LinkId) { unimplemented!() }
    /// Compacts to the highest version allowed, or to `upto`. Ends in Event::Done.
    pub fn handle_compact(&mut self, now: Now, upto: Option<crate::record::Version>) -> RequestId { unimplemented!() }
    pub fn handle_members(&mut self, now: Now, change: MembersChange) -> RequestId { unimplemented!() }
    /// Ends in Event::Closed.
    pub fn handle_close(&mut self, now: Now) { unimplemented!() }
    /// Durable state only.
    pub fn get(&self, key: &Key) -> Option<Entry> { unimplemented!() }
    pub fn scan(&self, scan: &Scan) -> ScanPage { unimplemented!() }
    pub fn status(&self) -> Status { unimplemented!() }
    /// Judges input against the record limits of this replica.
    pub fn record_limits(&self) -> &crate::record::RecordLimits { unimplemented!() }
}
impl Machine for Replica {
    type Command = Command; type Event = Event; type Completion = ReplicaCompletion; type Channel = LinkId;
    fn handle_completion(&mut self, now: Now, completion: ReplicaCompletion) {}
    fn handle_timeout(&mut self, now: Now) {}
    fn poll_command(&mut self) -> Option<Command> { None }
    fn poll_event(&mut self) -> Option<Event> { None }
    fn poll_channel(&mut self, channel: LinkId, buf: &mut Vec<u8>) -> Option<FrameInfo> { None }
    fn pending(&self) -> Pending { Pending::default() }
}
