//! The root of protocol A: a replica of one log. It routes; its parts decide.

mod completed;

use super::api::{
    Accepted, CloseReason, Collect, Cursor, CursorVerdict, Done, Entry, Event, Flow, LinkRefused, LinkRole,
    MembersChange, Mutation, MutationError, RequestError, RequestId, Scan, ScanPage, Scrub, Status,
    SubscribeRefused, SubscriptionId,
};
use super::authority::Authority;
use super::command::{Command, Outcome, ReplicaCompletion};
use super::epoch_source::EpochStep;
use super::links::Links;
use super::session::{Peer, Session};
use super::shared::Shared;
use super::{status, submit};
use crate::id::{LinkId, LogId};
use crate::machine::{Deadlines, FrameInfo, Machine, Pending};
use crate::record::{BlobKey, Key, RecordLimits, Version};
use crate::time::Now;
use crate::wire::capability::{Capabilities, Capability};
use crate::wire::handshake::Authenticated;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What a deadline of a replica is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Due {
    Seal,
    SaveAcked,
    Keepalive,
    /// A link that had no room may have some by now.
    Room,
    /// A collection of blobs goes on.
    Collect,
    /// A scrub reads the next blob.
    Scrub,
}

/// How long a link without room is left alone.
const ROOM_MS: u64 = 5;

/// A replica of one log, made by [`super::recovery::Recovery::finish`] alone.
///
/// **What a caller may do wrongly and still be safe:** poll in any order, hand in completions in any
/// order and late ones of an older run, call `handle_timeout` at any time, hand in bytes or a
/// link-down for a link that is gone, close twice. **What it must do:** execute appends and cuts
/// in the order they were handed out, answer `Ok` only for what survives power loss, and hand in
/// only blob keys of mutations whose blobs are durable.
#[derive(Debug)]
pub struct Replica {
    shared: Shared,
    links: Links,
    due: Deadlines<Due>,
    closed: bool,
}

impl Replica {
    pub(super) fn new(shared: Shared) -> Self {
        let mut replica = Self { shared, links: Links::default(), due: Deadlines::default(), closed: false };
        let keepalive_ms = replica.shared.config.keepalive_ms;
        replica.due.arm(Due::Keepalive, replica.shared.now.mono.after_ms(keepalive_ms));
        replica.shared.begin();
        replica.shared.look_for_blobs();
        replica.settle();
        replica
    }

    /// Submits mutations: all or none, in this order, recovered all or none. Each has happened when
    /// [`Event::Durable`] reaches its LSN.
    ///
    /// # Errors
    /// See [`MutationError`]; nothing was submitted then.
    pub fn handle_mutations(
        &mut self,
        now: Now,
        mutations: &[Mutation],
    ) -> Result<Vec<Accepted>, MutationError> {
        self.advance(now);
        let accepted = submit::mutate(&mut self.shared, mutations);
        self.settle();
        accepted
    }

    /// Takes up a link with an authenticated peer.
    ///
    /// # Errors
    /// See [`LinkRefused`]; close the connection then.
    pub fn handle_link_up(
        &mut self,
        now: Now,
        peer: &Authenticated,
        role: LinkRole,
    ) -> Result<LinkId, LinkRefused> {
        self.advance(now);
        if self.shared.closing || self.shared.halted.is_some() {
            return Err(LinkRefused::Closing);
        }
        let peer_facts = Peer::of(peer);
        super::links::admit(&self.shared, peer, &peer_facts, role)?;
        let replaced = self.links.judge_duplicate(&self.shared, &peer_facts)?;
        if let Some(link) = replaced {
            self.close_link(link, CloseReason::Duplicate);
        }
        let link = self.links.open(self.shared.config.links_max)?;
        let mut session = Session::new(link, peer_facts, role, &self.shared);
        session.start(&mut self.shared);
        self.links.insert(session);
        self.settle();
        Ok(link)
    }

    /// Takes bytes that came over a link after the handshake, split anywhere. A fault of the peer
    /// takes the link down and is told by [`Event::CloseLink`].
    pub fn handle_received(&mut self, now: Now, link: LinkId, bytes: &[u8]) -> Flow {
        self.advance(now);
        let flow = self.with(link, |session, shared| session.received(shared, bytes)).unwrap_or(Flow::More);
        self.settle();
        flow
    }

    /// A link is gone. Idempotent.
    pub fn handle_link_down(&mut self, now: Now, link: LinkId) {
        self.advance(now);
        self.drop_link(link);
        self.settle();
    }

    /// Compacts to the highest version allowed, or to `upto`. The answer is [`Event::Done`].
    pub fn handle_compact(&mut self, now: Now, upto: Option<Version>) -> RequestId {
        self.advance(now);
        let request = self.shared.request();
        if let Err(error) = self.shared.begin_compaction(request, upto) {
            self.shared.out.event(Event::Done { request, done: Done::Refused(error) });
        }
        self.settle();
        request
    }

    /// Takes the right to write the log, in an epoch above all that are known here and at peers. The
    /// answer is [`Event::Done`], once the epoch's first entry is durable; until then mutations are
    /// refused. The epoch comes from a person, or from an [`super::epoch_source::EpochSource`].
    pub fn handle_fence(&mut self, now: Now, epoch: u64) -> RequestId {
        self.advance(now);
        let request = self.shared.request();
        let begun = match self.links.ahead_of(self.shared.history.tail()) {
            Some(error) => Err(error),
            None => self.shared.begin_fence(request, epoch),
        };
        if let Err(error) = begun {
            self.shared.out.event(Event::Done { request, done: Done::Refused(error) });
        }
        self.settle();
        request
    }

    /// Changes who counts for compaction. The answer is [`Event::Done`], once stored.
    pub fn handle_members(&mut self, now: Now, change: MembersChange) -> RequestId {
        self.advance(now);
        let request = self.shared.request();
        let changed = if self.shared.closing {
            Err(RequestError::Closing)
        } else {
            self.shared.change_members(request, change)
        };
        if let Err(error) = changed {
            self.shared.out.event(Event::Done { request, done: Done::Refused(error) });
        }
        self.settle();
        request
    }

    /// Collects the blobs that nothing needs. The answer is [`Event::Done`]; see [`Collect`].
    pub fn handle_collect(&mut self, now: Now, collect: Collect) -> RequestId {
        self.advance(now);
        let request = self.shared.request();
        if let Err(error) = self.shared.begin_collection(request, collect) {
            self.shared.out.event(Event::Done { request, done: Done::Refused(error) });
        }
        self.settle();
        request
    }

    /// Looks for damage in the blobs that keys name. The answer is [`Event::Done`]; see [`Scrub`].
    pub fn handle_scrub(&mut self, now: Now, scrub: Scrub) -> RequestId {
        self.advance(now);
        let request = self.shared.request();
        if let Err(error) = self.shared.begin_scrub(request, scrub) {
            self.shared.out.event(Event::Done { request, done: Done::Refused(error) });
        }
        self.settle();
        request
    }

    /// Subscribes to the changes after `cursor`, and says what can be vouched for. Unless that is
    /// `Complete`, pages come only after [`Replica::handle_reset`].
    ///
    /// # Errors
    /// See [`SubscribeRefused`].
    pub fn handle_subscribe(
        &mut self,
        now: Now,
        cursor: Cursor,
    ) -> Result<(SubscriptionId, CursorVerdict), SubscribeRefused> {
        self.advance(now);
        self.shared.subscribe(cursor)
    }

    /// Asks for the next page of a subscription: [`Event::Page`] brings it as soon as there is one.
    /// A subscription gets one page for each time it asks, so it bounds itself what gathers for it.
    /// Asking again before the page came adds nothing; one that is gone is not answered.
    pub fn handle_page_wanted(&mut self, now: Now, subscription: SubscriptionId) {
        self.advance(now);
        self.shared.ask_page(subscription);
        self.settle();
    }

    /// Lets a subscription begin anew with the state of the key space: the pages that it asks for are
    /// from then on `ResetBegin`, the state, `ResetEnd` and every change after the cut. A page made
    /// before may still come first. While it is read, and for `reset_hold_ms` at most, no compaction
    /// takes the changes after the cut.
    pub fn handle_reset(&mut self, now: Now, subscription: SubscriptionId) {
        self.advance(now);
        self.shared.ask_reset(subscription);
        self.settle();
    }

    /// Ends a subscription; no page comes after those that were made already. Idempotent.
    pub fn handle_unsubscribe(&mut self, now: Now, subscription: SubscriptionId) {
        self.advance(now);
        self.shared.unsubscribe(subscription);
        self.settle();
    }

    /// Takes no more mutations or links, makes everything durable, seals, then says
    /// [`Event::Closed`].
    pub fn handle_close(&mut self, now: Now) {
        self.advance(now);
        self.shared.closing = true;
        for link in self.links.ids() {
            self.close_link(link, CloseReason::Closing);
        }
        self.shared.end_subscriptions();
        self.shared.save_acked();
        self.settle();
    }

    /// What a key durably is; `None` if nothing is known of it.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Entry> {
        self.shared.views.visible(key).cloned()
    }

    /// Whether a key is present and its blob is not here yet: it is fetched when a peer has it.
    #[must_use]
    pub fn blob_pending(&self, key: &Key) -> bool {
        let entry = self.shared.views.visible(key);
        entry.is_some_and(|entry| self.shared.wanted.pending(key, entry.version))
    }

    /// One page of the durable key space.
    #[must_use]
    pub fn scan(&self, scan: &Scan) -> ScanPage {
        self.shared.views.scan(scan, self.shared.history.tail())
    }

    /// What can be vouched for to who has everything up to `cursor`.
    pub fn judge(&self, cursor: Cursor) -> CursorVerdict {
        self.shared.judge_cursor(cursor)
    }

    /// The cursor of who has everything that is durable now.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.shared.current.log, self.shared.history.tail())
    }

    /// How the replica stands.
    #[must_use]
    pub fn status(&self) -> Status {
        status::of(&self.shared, &self.links)
    }

    /// What this replica declares to peers in the handshake: its log, its incarnation, and what it
    /// can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        let current = &self.shared.current;
        let declared = [
            Capability::Lifecycle,
            Capability::RepairReconcile,
            Capability::Log(current.log),
            Capability::Incarnation(current.incarnation),
            Capability::SnapshotChunks,
            Capability::BlobRanges,
            Capability::History,
            Capability::BlobWait,
            Capability::Window,
        ];
        Capabilities::new(declared).expect("nine short capabilities are within the bounds")
    }

    /// What an epoch that an [`super::epoch_source::EpochSource`] gave means here.
    #[must_use]
    pub fn epoch_step(&self, given: Option<u64>) -> EpochStep {
        let writes = self.shared.authority.as_ref().map(Authority::epoch);
        EpochStep::judge(given, self.shared.known_epoch(), writes.filter(|_| self.shared.fenced.is_none()))
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> LogId {
        self.shared.current.log
    }

    /// This replica's name.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.shared.current.identity
    }

    /// What a record may be here, to judge input by.
    #[must_use]
    pub const fn record_limits(&self) -> &RecordLimits {
        &self.shared.config.record
    }

    pub(super) const fn shared(&self) -> &Shared {
        &self.shared
    }

    fn advance(&mut self, now: Now) {
        self.shared.now = self.shared.now.latest(now);
    }

    /// Runs `f` on a session; what it released or finished is then taken care of by `settle`.
    fn with<T>(&mut self, link: LinkId, f: impl FnOnce(&mut Session, &mut Shared) -> T) -> Option<T> {
        let session = self.links.get_mut(link)?;
        Some(f(session, &mut self.shared))
    }

    fn each(&mut self, mut f: impl FnMut(&mut Session, &mut Shared)) {
        for session in self.links.iter_mut() {
            if !session.down {
                f(session, &mut self.shared);
            }
        }
    }

    fn close_link(&mut self, link: LinkId, reason: CloseReason) {
        self.with(link, |session, shared| session.close(shared, reason));
    }

    fn drop_link(&mut self, link: LinkId) {
        if let Some(mut session) = self.links.remove(link) {
            session.release(&mut self.shared);
        }
    }

    /// After every input: sessions that went down release what they held, waiting work goes on, and
    /// the deadlines follow.
    fn settle(&mut self) {
        loop {
            while let Some(link) = self.shared.went_down.pop() {
                self.with(link, Session::release);
            }
            if !core::mem::take(&mut self.shared.freed) {
                break;
            }
            self.each(Session::retry);
        }
        if let Some((link, reason)) = self.shared.advance_install() {
            self.close_link(link, reason);
        }
        self.collect();
        self.shared.advance_fence();
        self.shared.check_doubts();
        self.shared.compact_by_policy();
        self.shared.advance_switching();
        self.shared.serve_subscriptions();
        self.shared.submit();
        self.shared.reserve();
        self.shared.save_superseded();
        let now = self.shared.now.mono;
        if self.shared.acked_dirty() && !self.due.armed(Due::SaveAcked) {
            self.due.arm(Due::SaveAcked, now.after_ms(self.shared.config.acked_save_ms));
        }
        if self.shared.needs_seal() && !self.due.armed(Due::Seal) {
            self.due.arm(Due::Seal, now.after_ms(self.shared.config.journal.seal_ms));
        }
        if !self.shared.blocked.is_empty() && !self.due.armed(Due::Room) {
            self.due.arm(Due::Room, now.after_ms(ROOM_MS));
        }
        self.finish_close();
    }

    /// Goes on with the collection of blobs, and with the scrub, as far as they can.
    fn collect(&mut self) {
        if self.shared.collection_waits() {
            let held: BTreeSet<BlobKey> = self.links.iter().flat_map(Session::held_blobs).collect();
            self.shared.advance_collection(&|blob| held.contains(blob));
        }
        for (due, at) in [(Due::Collect, self.shared.collection_due()), (Due::Scrub, self.shared.scrub_due())]
        {
            match at {
                Some(at) => self.due.arm(due, at),
                None => self.due.disarm(due),
            }
        }
    }

    fn finish_close(&mut self) {
        if !self.shared.closing || self.closed {
            return;
        }
        if self.shared.halted.is_none() {
            if self.shared.journal.pending_entries() > 0 || self.shared.journal.in_flight() {
                return;
            }
            if self.shared.needs_seal() {
                return self.shared.seal();
            }
        }
        if self.shared.saving() {
            return;
        }
        self.closed = true;
        self.shared.out.event(Event::Closed);
    }

    fn keepalive(&mut self) {
        let (now, idle_ms) = (self.shared.now.mono, self.shared.config.idle_ms);
        self.shared.expire_partials();
        self.shared.look_for_blobs();
        if !self.links.iter().any(Session::is_behind) {
            self.shared.sharing.forget_kept();
        }
        self.shared.lagging.rests = false;
        self.shared.judge_lags();
        self.shared.policy_due = true;
        self.shared.expire_resets();
        self.each(|session, shared| {
            session.expire_snapshot(shared);
            session.expire_search(shared);
            session.look_at_waiting(shared);
            if !session.peer.history {
                return;
            }
            if session.heard.after_ms(idle_ms) <= now {
                session.close(shared, CloseReason::Idle);
            } else {
                session.send_standing(shared);
            }
        });
        self.due.arm(Due::Keepalive, now.after_ms(self.shared.config.keepalive_ms));
    }
}

impl Machine for Replica {
    type Command = Command;
    type Event = Event;
    type Completion = ReplicaCompletion;
    type Channel = LinkId;

    fn handle_completion(&mut self, now: Now, completion: ReplicaCompletion) {
        self.advance(now);
        match self.shared.out.tickets().settle(completion) {
            None => {}
            Some((purpose, Outcome::Storage(outcome))) => self.on_storage(purpose, outcome),
            Some((purpose, Outcome::Blob(outcome))) => self.on_blob(purpose, outcome),
        }
        self.settle();
    }

    fn handle_timeout(&mut self, now: Now) {
        self.advance(now);
        while let Some(due) = self.due.expire(self.shared.now.mono) {
            match due {
                Due::Seal => self.shared.seal(),
                Due::SaveAcked => self.shared.save_acked(),
                Due::Keepalive => self.keepalive(),
                Due::Collect => self.shared.step_collection(),
                Due::Scrub => self.shared.step_scrub(),
                Due::Room => {
                    for link in core::mem::take(&mut self.shared.blocked) {
                        self.with(link, Session::on_room);
                    }
                }
            }
        }
        self.settle();
    }

    fn poll_command(&mut self) -> Option<Command> {
        self.shared.out.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.shared.out.poll_event()
    }

    fn poll_channel(&mut self, channel: LinkId, buf: &mut Vec<u8>) -> Option<FrameInfo> {
        let session = self.links.get_mut(channel)?;
        let frame = session.outbox.pop()?;
        buf.extend_from_slice(&frame);
        Some(FrameInfo { bytes: frame.len() })
    }

    fn pending(&self) -> Pending {
        Pending { deadline: self.due.next(), ..self.shared.out.pending() }
    }
}
