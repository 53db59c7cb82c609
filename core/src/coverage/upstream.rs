//! A topic over a server: its subscription, and what the shared state says was published.
//!
//! Two streams of knowledge meet here. What comes over the subscription is in the server's order, so a
//! position there that lies above what came is a loss. What a script answered came by another way and
//! may be older or newer than the subscription: it is only a target that must be reached in time.

use super::api::{Command, Event, From, Message, Opened, Standing, SubscriberId, SubscriptionId, Upstream};
use super::arrival::{Arrival, Held, classify};
use super::config::{Sequencing, Source};
use super::decide::{Claim, Reason};
use super::owed::{Clock, Owed};
use super::position::{Mark, Position};
use super::report::{EndReason, LostReason, count};
use super::shared::{Due, Purpose, Shared};
use super::topic::{Topic, entry_of};
use crate::error::StorageFault;
use crate::id::Incarnation;

/// The subscription of a topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LinkState {
    /// None is wanted.
    Off,
    /// Asked for.
    Asking(SubscriptionId),
    /// Confirmed by the server.
    Up(SubscriptionId),
    /// Lost; asked for again at its deadline.
    Lost,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) state: LinkState,
    /// Runs of the position script that are out.
    runs: u32,
    /// Somebody came while a run was out, which may have read before that client's last event.
    joined_under_way: bool,
    /// What must be reached before resumes are judged.
    target: Option<Position>,
    /// What must come of our own publishes.
    owed: Owed,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self { state: LinkState::Off, runs: 0, joined_under_way: false, target: None, owed: Owed::new() }
    }

    fn up(&self) -> Option<SubscriptionId> {
        match self.state {
            LinkState::Up(id) => Some(id),
            LinkState::Off | LinkState::Asking(_) | LinkState::Lost => None,
        }
    }
}

fn sequencing(shared: &Shared) -> Sequencing {
    shared.config.source.sequencing()
}

impl Topic {
    /// Sees to it that a subscription is there or on its way.
    pub(super) fn want(&mut self, shared: &mut Shared) {
        match self.link.state {
            LinkState::Off => self.ask(shared),
            LinkState::Asking(_) | LinkState::Up(_) | LinkState::Lost => {}
        }
    }

    pub(super) fn ask(&mut self, shared: &mut Shared) {
        let id = SubscriptionId { topic: self.id, number: shared.number() };
        let again = match self.link.state {
            LinkState::Lost => true,
            LinkState::Off | LinkState::Asking(_) | LinkState::Up(_) => false,
        };
        shared.counters.resubscriptions += u64::from(again);
        self.link.state = LinkState::Asking(id);
        let topic = self.name.clone();
        shared.out.push(Command::Subscribe { id, topic });
        // A request that is never answered must not wait for ever either.
        shared.arm(Due::Silence, self.id, shared.silence_ms());
    }

    /// A new subscriber waits to be judged.
    pub(super) fn join(&mut self, shared: &mut Shared, id: SubscriberId, from: From) {
        self.want(shared);
        let resumes = matches!(from, From::After(_));
        match (sequencing(shared), self.link.up(), self.coverage) {
            (_, _, Some(_)) if !resumes => return self.open_fresh(shared, id, from, None),
            // Sparse positions have no authority: what is known here is all there is to know.
            (Sequencing::Sparse, Some(_), _) => return self.judge_known(shared),
            (Sequencing::Contiguous, Some(_), _) if self.link.runs == 0 => self.run_position(shared),
            (Sequencing::Contiguous, Some(_), _) => self.link.joined_under_way = true,
            (_, None, _) => {}
        }
        if !shared.due.armed((Due::Settle, self.id)) {
            shared.arm(Due::Settle, self.id, shared.config.times.settle_ms);
        }
    }

    /// Judges who waits by what is known here.
    fn judge_known(&mut self, shared: &mut Shared) {
        if self.coverage.is_some() {
            return self.judge_waiting(shared, None);
        }
        for (id, from) in self.waiting() {
            match from {
                From::After(_) => self.refuse(shared, id, Reason::NoCoverage),
                From::Now | From::Earliest | From::Since(_) | From::Last => {
                    shared.counters.fresh += 1;
                    self.open(shared, id, Opened::default(), None);
                }
            }
        }
    }

    pub(super) fn run_position(&mut self, shared: &mut Shared) {
        self.run_position_with(shared, self.seen());
    }

    fn run_position_with(&mut self, shared: &mut Shared, seen: Option<Mark>) {
        self.link.runs += 1;
        shared.counters.position_runs += 1;
        let (nonce, topic) = (shared.nonce(), self.name.clone());
        let purpose = Purpose::Position(self.id, self.link.up(), seen);
        shared.out.command(purpose, |ticket| Command::Position { ticket, topic, seen, nonce });
    }

    /// Something came over the subscription: both clocks of silence start anew.
    fn heard(&mut self, shared: &mut Shared) {
        let period = shared.heartbeat_ms();
        shared.arm(Due::Heartbeat, self.id, period);
        shared.arm(Due::Silence, self.id, shared.silence_ms());
    }

    /// Takes what came over subscription `id`, which is this topic's.
    pub(super) fn on_upstream(&mut self, shared: &mut Shared, id: SubscriptionId, input: Upstream) {
        // Only a confirmed subscription carries anything: what comes before may be another's.
        let confirms = matches!(input, Upstream::Confirmed | Upstream::Resubscribed | Upstream::Lost);
        let current = match self.link.state {
            LinkState::Up(current) => current == id,
            LinkState::Asking(current) => current == id && confirms,
            LinkState::Off | LinkState::Lost => false,
        };
        if !current {
            shared.counters.ignored += 1;
            return;
        }
        match input {
            Upstream::Lost => self.on_lost(shared, LostReason::ConnectionLost),
            Upstream::Confirmed => self.on_confirmed(shared, id),
            Upstream::Resubscribed => {
                self.end(shared, LostReason::Resubscribed);
                self.owe_nothing(shared);
                self.on_confirmed(shared, id);
            }
            Upstream::Undecodable => {
                self.heard(shared);
                self.end(shared, LostReason::Undecodable);
                self.owe_nothing(shared);
                self.run_position(shared);
            }
            Upstream::Position { incarnation, minted } => {
                self.heard(shared);
                match sequencing(shared) {
                    Sequencing::Contiguous => self.on_channel_position(shared, incarnation, minted),
                    Sequencing::Sparse => {}
                }
            }
            Upstream::Message(message) => {
                self.heard(shared);
                self.on_message(shared, message);
            }
        }
    }

    fn on_confirmed(&mut self, shared: &mut Shared, id: SubscriptionId) {
        self.link.state = LinkState::Up(id);
        self.heard(shared);
        match sequencing(shared) {
            Sequencing::Contiguous => self.run_position(shared),
            Sequencing::Sparse => self.judge_known(shared),
        }
    }

    fn on_message(&mut self, shared: &mut Shared, message: Message) {
        let mark = message.mark;
        let before = Mark { position: mark.position.before(), ..mark };
        let entry = entry_of(shared, &self.name, message.clone(), false);
        let held = match self.buffer.at(mark.position) {
            None => Held::Nothing,
            Some(known) if known.repeats(&entry) => Held::Same,
            Some(_) => Held::Other,
        };
        match classify(self.coverage.as_ref(), sequencing(shared), mark, held) {
            Arrival::First => self.begin(shared, before),
            Arrival::Next => {}
            Arrival::Hole { missed } => self.skip(shared, LostReason::Missed, missed, before),
            Arrival::Repeat => {
                shared.counters.repeated += 1;
                return;
            }
            Arrival::Late => {
                if self.link.runs == 0 {
                    self.run_position(shared);
                }
                return;
            }
            Arrival::OutOfOrder => {
                let Some(head) = self.head() else { return };
                self.end(shared, LostReason::OutOfOrder);
                return self.begin(shared, head);
            }
            Arrival::Conflict => {
                // Two events had one position: whatever the state says now, its space is spent.
                self.end(shared, LostReason::Rewound);
                self.owe_nothing(shared);
                let spent = Mark { position: Position::sequence(u64::MAX), ..mark };
                return self.run_position_with(shared, Some(spent));
            }
            Arrival::NewSpace => {
                self.end(shared, LostReason::NewIncarnation);
                self.begin(shared, before);
                self.owe_nothing(shared);
                self.run_position(shared);
            }
        }
        self.push(shared, message);
        self.settle(shared);
    }

    /// A position that came in the order of the channel.
    fn on_channel_position(&mut self, shared: &mut Shared, incarnation: Incarnation, minted: Position) {
        let at = Mark { incarnation, position: minted };
        match self.coverage {
            None => self.begin(shared, at),
            Some(c) if c.incarnation != incarnation => {
                self.end(shared, LostReason::NewIncarnation);
                self.owe_nothing(shared);
                self.begin(shared, at);
            }
            Some(c) if minted > c.head => {
                let missed = u64::try_from(minted.get() - c.head.get()).unwrap_or(u64::MAX);
                self.skip(shared, LostReason::Missed, missed, at);
            }
            Some(c) if minted < c.head => {
                if self.link.runs == 0 {
                    self.run_position(shared);
                }
            }
            Some(_) => {}
        }
        self.settle(shared);
    }

    /// A run of the position script ended.
    pub(super) fn on_position(
        &mut self,
        shared: &mut Shared,
        begun_on: Option<SubscriptionId>,
        seen: Option<Mark>,
        result: Result<Standing, StorageFault>,
    ) {
        self.link.runs = self.link.runs.saturating_sub(1);
        if sequencing(shared) == Sequencing::Sparse {
            return;
        }
        // A run that began before this subscription was confirmed says nothing about what it carries.
        if begun_on.is_none() || begun_on != self.link.up() {
            return;
        }
        match result {
            Err(_) => self.judge_waiting(shared, Some(Reason::Unreachable)),
            Ok(Standing::Unreadable) => {
                let unless = self.coverage.is_none().then_some(Reason::StateUnreadable);
                self.judge_waiting(shared, unless);
            }
            Ok(Standing::At { incarnation, minted }) => {
                self.on_standing(shared, seen, Mark { incarnation, position: minted });
            }
        }
        self.rest(shared);
    }

    fn on_standing(&mut self, shared: &mut Shared, seen: Option<Mark>, at: Mark) {
        match self.coverage {
            None => self.begin(shared, at),
            Some(c) if c.incarnation == at.incarnation => {
                self.link.target = self.link.target.max(Some(at.position));
            }
            // The space changed under the run: its answer may be the older one.
            Some(c) if seen.is_none_or(|seen| seen.incarnation != c.incarnation) => {
                return self.run_position(shared);
            }
            Some(_) => {
                self.end(shared, LostReason::NewIncarnation);
                self.owe_nothing(shared);
                self.begin(shared, at);
            }
        }
        self.settle(shared);
        if self.link.target.is_some() {
            shared.arm(Due::Settle, self.id, shared.config.times.settle_ms);
        }
    }

    /// A publish of ours has this position: what the subscription must reach.
    pub(super) fn on_own_publish(&mut self, shared: &mut Shared, mark: Mark) {
        let Some(c) = self.coverage.filter(|_| self.link.up().is_some()) else { return };
        if c.incarnation == mark.incarnation && mark.position > c.head {
            let clock = self.link.owed.add(mark.position);
            self.turn(shared, clock);
        }
    }

    fn turn(&self, shared: &mut Shared, clock: Clock) {
        match clock {
            Clock::Stays => {}
            Clock::Starts => shared.arm(Due::Owed, self.id, shared.config.times.settle_ms),
            Clock::Stops => shared.due.disarm((Due::Owed, self.id)),
        }
    }

    /// What must be reached belongs to an ID space, or a subscription, that is no more.
    fn owe_nothing(&mut self, shared: &mut Shared) {
        self.link.target = None;
        self.link.owed = Owed::new();
        self.turn(shared, Clock::Stops);
    }

    /// Judges who waits once everything the shared state spoke of has come. While a run is out its
    /// answer is waited for.
    fn settle(&mut self, shared: &mut Shared) {
        let Some(c) = self.coverage else { return };
        let clock = self.link.owed.came(c.head);
        self.turn(shared, clock);
        if self.link.target.is_some_and(|target| c.head < target) {
            return;
        }
        self.link.target = None;
        if self.link.runs > 0 {
            return;
        }
        if core::mem::take(&mut self.link.joined_under_way) && self.somebody_is_ahead(c.head) {
            return self.run_position(shared);
        }
        self.judge_waiting(shared, None);
        self.rest(shared);
    }

    fn somebody_is_ahead(&self, head: Position) -> bool {
        self.waiting().iter().any(|(_, from)| match from {
            From::After(Claim::Cursor(mark)) => mark.position > head,
            From::After(Claim::Legacy(position)) => *position > head,
            From::After(Claim::Unreadable) | From::Now | From::Earliest | From::Since(_) | From::Last => {
                false
            }
        })
    }

    fn rest(&mut self, shared: &mut Shared) {
        if self.link.target.is_none() && self.waiting().is_empty() {
            shared.due.disarm((Due::Settle, self.id));
        }
    }

    /// The time to settle is over.
    pub(super) fn on_settled(&mut self, shared: &mut Shared) {
        match (self.coverage, self.link.target.take()) {
            (Some(c), Some(target)) if c.head < target => {
                let missed = u64::try_from(target.get() - c.head.get()).unwrap_or(u64::MAX);
                let to = Mark { incarnation: c.incarnation, position: target };
                self.skip(shared, LostReason::Behind, missed, to);
                self.judge_waiting(shared, None);
            }
            (Some(_), Some(_)) => self.judge_waiting(shared, None),
            (Some(_), None) => self.judge_waiting(shared, Some(Reason::Unreachable)),
            (None, _) => self.judge_waiting(shared, Some(Reason::NoCoverage)),
        }
    }

    /// What our own publishes were answered did not come in time.
    pub(super) fn on_overdue(&mut self, shared: &mut Shared) {
        let Some((c, newest)) = self.coverage.zip(self.link.owed.take()) else { return };
        let missed = u64::try_from(newest.get().saturating_sub(c.head.get())).unwrap_or(u64::MAX);
        if missed > 0 {
            self.skip(
                shared,
                LostReason::Behind,
                missed,
                Mark { incarnation: c.incarnation, position: newest },
            );
            self.settle(shared);
        }
    }

    /// Nothing came for one period: the heartbeat is the position script, whose message all hear.
    pub(super) fn on_heartbeat(&mut self, shared: &mut Shared) {
        if self.link.up().is_some() {
            self.run_position(shared);
            let period = shared.heartbeat_ms();
            shared.arm(Due::Heartbeat, self.id, period);
        }
    }

    /// Nothing came for three periods: the connection is replaced, whatever it says of itself.
    pub(super) fn on_silence(&mut self, shared: &mut Shared) {
        match self.link.state {
            LinkState::Asking(id) | LinkState::Up(id) => {
                let topic = self.name.clone();
                shared.out.push(Command::Abandon { id, topic });
                self.on_lost(shared, LostReason::Silent);
                shared.due.disarm((Due::Resubscribe, self.id));
                self.ask(shared);
            }
            LinkState::Off | LinkState::Lost => {}
        }
    }

    fn on_lost(&mut self, shared: &mut Shared, reason: LostReason) {
        let was_up = self.link.up().is_some();
        self.link.state = LinkState::Lost;
        self.owe_nothing(shared);
        self.quiet(shared);
        self.end(shared, reason);
        if was_up {
            self.ended(shared, EndReason::Lost);
        }
        shared.arm(Due::Resubscribe, self.id, shared.config.times.resubscribe_ms);
    }

    /// Ends the subscription: coverage ends with it.
    pub(super) fn stop(&mut self, shared: &mut Shared, lost: LostReason, reason: EndReason) {
        let Source::Broker(_) = shared.config.source else { return };
        if let LinkState::Asking(id) | LinkState::Up(id) = self.link.state {
            let topic = self.name.clone();
            shared.out.push(Command::Unsubscribe { id, topic });
            self.ended(shared, reason);
        }
        self.link.state = LinkState::Off;
        self.owe_nothing(shared);
        self.quiet(shared);
        for due in [Due::Resubscribe, Due::Settle] {
            shared.due.disarm((due, self.id));
        }
        self.end(shared, lost);
    }

    fn quiet(&self, shared: &mut Shared) {
        shared.due.disarm((Due::Heartbeat, self.id));
        shared.due.disarm((Due::Silence, self.id));
    }

    fn ended(&self, shared: &mut Shared, reason: EndReason) {
        count(&mut shared.counters.ended, reason);
        shared.out.event(Event::SubscriptionEnded { topic: self.name.clone(), reason });
    }
}
