//! A replica under any order of operations: each byte of the input is an operation or a choice of one.
//!
//! Peers say what is nearly true, frames come back altered, commands end in any order that is allowed
//! or fail, the power goes, answers come late, clocks jump.

pub(crate) mod host;
pub(crate) mod message;
mod readers;
mod watch;

use crate::blobs::{Blobs, blob_key};
use crate::input::Input;
use host::{Outside, commands_max, config};
use message::{LOG, Peer};
use readers::Readers;
use std::collections::BTreeMap;
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{
    Change, CloseReason, Done, Event, Flow, LinkRole, MembersChange, Mutation, RequestId,
};
use strandline_core::lifecycle::command::ReplicaCompletion;
use strandline_core::lifecycle::recovery::{Init, NotRecovered, Recovery};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::{Machine, Next, drain};
use strandline_core::record::AuthorityId;
use strandline_core::seed::Seed;
use strandline_core::time::{Instant, Now};
use strandline_core::wire::frame::write_frame;
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, encode};
use watch::Watch;

/// One operation. What comes more often stands more often in [`OPERATIONS`].
#[derive(Clone, Copy, Debug)]
enum Operation {
    Mutate,
    Compact,
    Members,
    LinkUp,
    LinkDown,
    Message,
    /// A peer answers what it was asked.
    Answer,
    Altered,
    Complete,
    Fail,
    Time,
    Stall,
    Read,
    Late,
    Crash,
    Close,
}

const OPERATIONS: [Operation; 32] = {
    use Operation::{
        Altered, Answer, Close, Compact, Complete, Crash, Fail, Late, LinkDown, LinkUp, Members, Message,
        Mutate, Read, Stall, Time,
    };
    [
        Mutate, Compact, Members, LinkUp, LinkDown, Message, Altered, Complete, Fail, Time, Stall, Late,
        Crash, Close, Message, Message, Message, Answer, Complete, Complete, Complete, Answer, Complete,
        Complete, Mutate, Answer, LinkUp, Read, Answer, Message, Read, Complete,
    ]
};

/// Most operations of one input.
const OPERATIONS_MAX: usize = 2000;

struct Driven {
    replica: Replica,
    outside: Outside,
    watch: Watch,
    peers: BTreeMap<LinkId, Peer>,
    readers: Readers,
    /// Requests that were not answered yet.
    asked: Vec<RequestId>,
    now: Now,
    starts: u8,
    closing: bool,
    halted: bool,
}

/// Whatever the operations are: nothing panics; the tail never falls, also over a crash, and nothing is
/// told to a peer before it is durable; what is written is read as it was written; queues stay within
/// their bounds; late answers change nothing; every request is answered once, and every command that was
/// handed out can be answered. Says whether anything became durable.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let writes = input.below(2) == 0;
    let mut driven = Driven::new(writes);
    for _ in 0..OPERATIONS_MAX {
        let Some(byte) = input.next() else { break };
        driven.operate(OPERATIONS[usize::from(byte) % OPERATIONS.len()], &mut input);
        driven.look();
    }
    driven.end();
    driven.replica.status().tail.sequence > 0
}

fn seed(start: u8) -> Seed {
    Seed::new([start; 32])
}

/// Runs a recovery until it gives its replica; the disk works.
fn recovered(mut recovery: Recovery, outside: &mut Outside) -> Replica {
    loop {
        let _ = drain(&mut recovery, outside, &mut Vec::new(), u32::MAX);
        while !outside.commands.is_empty() {
            let command = outside.commands.remove(0);
            let completion = outside.complete(command);
            recovery.handle_completion(Now::default(), completion);
            let _ = drain(&mut recovery, outside, &mut Vec::new(), u32::MAX);
        }
        match recovery.finish() {
            Ok((replica, _)) => return replica,
            Err(NotRecovered::Working(back)) => recovery = *back,
            Err(NotRecovered::Failed(error)) => panic!("a disk that keeps what it synced: {error}"),
        }
    }
}

impl Driven {
    fn new(writes: bool) -> Self {
        let init = Init {
            log: LOG,
            identity: "us".into(),
            namespaces: vec![b"files".to_vec()],
            authority: writes.then(|| AuthorityId::from_text("w")),
        };
        let mut outside = Outside::default();
        let replica = recovered(Recovery::create(Now::default(), seed(1), config(), init), &mut outside);
        Self {
            replica,
            outside,
            watch: Watch::new(writes),
            peers: BTreeMap::new(),
            readers: Readers::default(),
            asked: Vec::new(),
            now: Now::default(),
            starts: 1,
            closing: false,
            halted: false,
        }
    }

    fn operate(&mut self, operation: Operation, input: &mut Input<'_>) {
        match operation {
            Operation::Mutate => self.mutate(input),
            Operation::Compact => {
                let upto = (input.below(3) == 0).then(|| message::version(input, &self.replica.status()));
                self.asked.push(self.replica.handle_compact(self.now, upto));
            }
            Operation::Members => {
                let change = match input.below(4) {
                    0 => MembersChange::Clear,
                    1 => MembersChange::Remove(input_name(input.byte()).into()),
                    _ => MembersChange::Add(input_name(input.byte()).into()),
                };
                self.asked.push(self.replica.handle_members(self.now, change));
            }
            Operation::LinkUp => self.link_up(input),
            Operation::LinkDown => {
                if let Some(link) = self.any_link(input) {
                    self.replica.handle_link_down(self.now, link);
                    self.forget(link);
                    // Once more, and a word from beyond: nobody is there any more.
                    self.replica.handle_link_down(self.now, link);
                    assert_eq!(self.replica.handle_received(self.now, link, b"SHV1"), Flow::More);
                }
            }
            Operation::Message => self.message(input),
            Operation::Answer => self.answer(input),
            Operation::Altered => self.altered(input),
            Operation::Complete => {
                if let Some(command) = self.outside.pick(input) {
                    let completion = self.outside.complete(command);
                    self.answered(completion);
                }
            }
            Operation::Fail => self.fail(input),
            Operation::Time => {
                self.now.mono = match input.below(4) {
                    0 => self.now.mono.after_ms(u64::from(input.byte())),
                    1 => self.now.mono.after_ms(1 << (input.byte() % 28)),
                    2 => Instant(self.now.mono.0 / 2),
                    _ => self.replica.pending().deadline.unwrap_or(self.now.mono),
                };
                self.replica.handle_timeout(self.now);
            }
            Operation::Stall => {
                if let Some(link) = self.any_link(input)
                    && !self.outside.stalled.remove(&link)
                {
                    self.outside.stalled.insert(link);
                }
            }
            Operation::Read => self.readers.act(&mut self.replica, self.now, input),
            Operation::Late => self.late(),
            Operation::Crash => self.crash(),
            // Rarely: a log that is closed does nothing more.
            Operation::Close if input.below(8) != 0 => {}
            Operation::Close => {
                self.replica.handle_close(self.now);
                self.closing = true;
            }
        }
    }

    fn answered(&mut self, completion: ReplicaCompletion) {
        self.replica.handle_completion(self.now, completion);
    }

    fn mutate(&mut self, input: &mut Input<'_>) {
        let before = self.replica.status().submitted;
        let mutations: Vec<Mutation> = (0..=input.below(3))
            .map(|_| {
                let key = message::key(input);
                let change = if input.below(3) == 0 {
                    Change::Delete
                } else {
                    let bytes = message::blob(input);
                    self.outside.blobs.stored.insert(blob_key(bytes), bytes.to_vec());
                    Change::Put { blob: blob_key(bytes) }
                };
                let status = self.replica.status();
                let if_version = (input.below(6) == 0).then(|| message::version(input, &status));
                Mutation { key, change, if_version }
            })
            .collect();
        match self.replica.handle_mutations(self.now, &mutations) {
            Ok(accepted) => self.watch.wrote(&mutations, &accepted, before),
            Err(_) => assert_eq!(self.replica.status().submitted, before, "refused, and submitted"),
        }
    }

    fn link_up(&mut self, input: &mut Input<'_>) {
        let name = input_name(input.byte());
        let role = input.of(&[LinkRole::Both, LinkRole::Both, LinkRole::Source, LinkRole::Receiver]);
        let (capabilities, dialed) = (message::capabilities(input), input.below(2) == 0);
        let peer = message::authenticated(name, capabilities, dialed);
        if let Ok(link) = self.replica.handle_link_up(self.now, &peer, role) {
            self.peers.insert(link, Peer::default());
        }
    }

    fn any_link(&self, input: &mut Input<'_>) -> Option<LinkId> {
        let links: Vec<LinkId> = self.peers.keys().copied().collect();
        (!links.is_empty()).then(|| input.of(&links))
    }

    fn forget(&mut self, link: LinkId) {
        self.peers.remove(&link);
        for set in [&mut self.outside.ready, &mut self.outside.stalled, &mut self.outside.paused] {
            set.remove(&link);
        }
        self.outside.last.remove(&link);
    }

    fn message(&mut self, input: &mut Input<'_>) {
        let Some(link) = self.any_link(input) else { return };
        let status = self.replica.status();
        let message = self.peers.get_mut(&link).expect("a live link").message(input, &status);
        self.say(link, &message, input);
    }

    /// A peer answers the oldest frame it was sent, as it should.
    fn answer(&mut self, input: &mut Input<'_>) {
        let Some(link) = self.any_link(input) else { return };
        let (status, capabilities) = (self.replica.status(), self.replica.capabilities());
        let peer = self.peers.get_mut(&link).expect("a live link");
        if let Some(message) = peer.answer(&status, &capabilities) {
            self.say(link, &message, input);
        }
    }

    fn say(&mut self, link: LinkId, message: &Message, input: &mut Input<'_>) {
        let (mut payload, mut frame) = (Vec::new(), Vec::new());
        if encode(message, &WireLimits::default(), &mut payload).is_err() {
            return;
        }
        write_frame(&payload, &mut frame).expect("a short message");
        if input.below(32) == 1 {
            let at = input.below(frame.len().min(200));
            frame[at] ^= 1 << (input.byte() % 8);
        }
        self.receive(link, &frame, input);
    }

    /// What we said ourselves comes back, altered or not, or bytes that nobody said.
    fn altered(&mut self, input: &mut Input<'_>) {
        let Some(link) = self.any_link(input) else { return };
        let mut bytes = match self.outside.last.get(&link) {
            Some(last) if input.below(4) != 0 => last.clone(),
            Some(_) | None => {
                let count = input.below(32);
                input.bytes(count).to_vec()
            }
        };
        if !bytes.is_empty() && input.below(2) == 0 {
            let at = input.below(bytes.len().min(256));
            bytes[at] = input.byte();
        }
        self.receive(link, &bytes, input);
    }

    /// Bytes come in, in two pieces.
    fn receive(&mut self, link: LinkId, bytes: &[u8], input: &mut Input<'_>) {
        let at = if input.below(4) == 0 { input.below(bytes.len() + 1) } else { bytes.len() };
        let (first, second) = bytes.split_at(at.min(bytes.len()));
        for piece in [first, second] {
            // A host hands in nothing while it is told to wait.
            if !self.outside.paused.contains(&link) {
                if self.replica.handle_received(self.now, link, piece) == Flow::Pause {
                    self.outside.paused.insert(link);
                }
                self.take();
            }
        }
    }

    fn fail(&mut self, input: &mut Input<'_>) {
        // Rarely: a log that has stopped does nothing more.
        if input.below(4) != 0 {
            return;
        }
        if let Some(command) = self.outside.pick(input) {
            let completion = self.outside.fail(command, input.below(2) == 0);
            self.answered(completion);
        }
    }

    /// An answer to a command of an earlier run changes nothing.
    fn late(&mut self) {
        let Some(command) = self.outside.late.pop() else { return };
        let before = format!("{:?}", self.replica.status());
        let completion = self.outside.answer_late(command);
        self.answered(completion);
        assert_eq!(format!("{:?}", self.replica.status()), before, "an answer of an earlier run counts");
    }

    fn crash(&mut self) {
        let old = core::mem::take(&mut self.outside);
        let mut disk = old.disk;
        disk.power_cut();
        let mut late = old.late;
        late.extend(old.commands);
        let blobs = Blobs { stored: old.blobs.stored, ..Blobs::default() };
        self.outside = Outside { disk, blobs, late, ..Outside::default() };
        self.starts = self.starts.wrapping_add(1);
        self.replica = recovered(Recovery::open(self.now, seed(self.starts), config()), &mut self.outside);
        self.peers.clear();
        self.readers = Readers::default();
        self.asked.clear();
        (self.closing, self.halted) = (false, false);
        self.watch.recovered(&self.replica.status());
    }

    /// Takes all that the replica has to say.
    fn take(&mut self) {
        let next = drain(&mut self.replica, &mut self.outside, &mut Vec::new(), u32::MAX);
        assert!(matches!(next, Next::Sleep(_)), "it does not come to an end");
        let pending = self.replica.pending();
        assert!(!pending.commands && !pending.events, "{pending:?} after everything was taken");
        let capabilities = self.replica.capabilities();
        let tail = self.replica.status().tail;
        for (link, frame) in core::mem::take(&mut self.outside.frames) {
            self.watch.sent(&frame, &capabilities, tail);
            if let Some(peer) = self.peers.get_mut(&link) {
                peer.heard(frame);
            }
        }
        for event in core::mem::take(&mut self.outside.events) {
            self.event(event);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Durable { upto } => self.watch.durable(upto),
            Event::Halted { .. } => {
                assert!(!self.halted, "halted twice");
                self.halted = true;
            }
            Event::CloseLink { link, reason } => {
                assert!(
                    self.peers.contains_key(&link),
                    "{link:?} is closed twice, or was never up: {reason:?}"
                );
                assert!(
                    self.closing || self.halted || !matches!(reason, CloseReason::Closing),
                    "closed as closing"
                );
                self.forget(link);
                self.replica.handle_link_down(self.now, link);
            }
            Event::Done { request, done } => {
                let at = self.asked.iter().position(|asked| *asked == request);
                self.asked.remove(at.unwrap_or_else(|| panic!("{request:?} answered, not asked: {done:?}")));
                assert!(
                    !matches!(done, Done::Compacted(_)) || !self.halted,
                    "compacted by a log that stopped"
                );
            }
            Event::Page { subscription, page } => {
                self.readers.page(subscription, page, self.replica.status().tail);
            }
            Event::Closed => assert!(self.closing, "closed unasked"),
            Event::Frames { .. }
            | Event::Resume { .. }
            | Event::Verdict { .. }
            | Event::Synced { .. }
            | Event::Installed { .. }
            | Event::EpochStarted { .. }
            | Event::MemberLapsed { .. }
            | Event::Compacted { .. } => {}
        }
    }

    /// What holds after every operation.
    fn look(&mut self) {
        self.take();
        let status = self.replica.status();
        let max = commands_max(&config()) + self.asked.len();
        assert!(status.commands_outstanding <= max, "{} commands are out", status.commands_outstanding);
        assert_eq!(
            status.commands_outstanding,
            self.outside.commands.len(),
            "a command is out that nobody has"
        );
        assert!(status.links.len() <= config().links_max as usize);
        self.watch.look(&self.replica, &status, &self.outside.blobs);
    }

    /// Every command that is out is answered, every frame taken: then nothing may be left to do.
    fn end(&mut self) {
        self.outside.stalled.clear();
        for _ in 0..100_000 {
            self.take();
            if self.outside.commands.is_empty() {
                break;
            }
            let command = self.outside.pick(&mut Input::new(&[])).expect("one is out");
            let completion = self.outside.complete(command);
            self.answered(completion);
        }
        self.look();
        assert_eq!(self.replica.status().commands_outstanding, 0, "it goes on for ever");
        assert!(self.halted || self.asked.is_empty(), "never answered: {:?}", self.asked);
    }
}

fn input_name(byte: u8) -> &'static str {
    // One of them is our own.
    ["p", "q", "r", "p", "q", "r", "zz", "us"][usize::from(byte) % 8]
}
