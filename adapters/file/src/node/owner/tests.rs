//! The owner over a root whose every step the test chooses: it accepts mutations, has one append in
//! flight, and becomes durable when the test completes that append.

use super::*;
use crate::node::api::{Written, close_reply};
use crate::node::reply::Waiting;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use strandline_core::error::{StorageAction, StorageCause};
use strandline_core::id::{Lsn, Run};
use strandline_core::journal::command::{SegmentNumber, StorageCommand, StorageOutcome, op};
use strandline_core::lifecycle::api::{Change, Done, SubscribeRefused};
use strandline_core::lifecycle::command::Outcome;
use strandline_core::machine::{FrameInfo, Out, Pending};
use strandline_core::record::{Key, Version};
use strandline_core::ticket::{Ticket, Tickets};

struct Fake {
    out: Out<(), Command, Event>,
    queue_max: u64,
    submitted: u64,
    in_flight: Option<u64>,
    durable: u64,
    fault: Option<StorageFault>,
    closing: bool,
    deadline: Option<Instant>,
    timeouts: u32,
}

impl Fake {
    fn new(queue_max: u64) -> Self {
        Self {
            out: Out::new(Tickets::new(Run(1))),
            queue_max,
            submitted: 0,
            in_flight: None,
            durable: 0,
            fault: None,
            closing: false,
            deadline: None,
            timeouts: 0,
        }
    }

    fn close_when_durable(&mut self) {
        if self.closing && (self.durable == self.submitted || self.fault.is_some()) {
            self.out.event(Event::Closed);
        }
    }
}

impl Machine for Fake {
    type Command = Command;
    type Event = Event;
    type Completion = ReplicaCompletion;
    type Channel = LinkId;

    fn handle_completion(&mut self, _now: Now, completion: ReplicaCompletion) {
        match self.out.tickets().settle(completion) {
            Some(((), Outcome::Storage(StorageOutcome::Append(Ok(()))))) => {
                self.durable = self.in_flight.take().expect("in flight");
                self.out.event(Event::Durable { upto: Lsn::new(self.durable).expect("not zero") });
            }
            Some(((), Outcome::Storage(StorageOutcome::Append(Err(fault))))) => {
                self.fault = Some(fault.clone());
                self.out.event(Event::Halted { fault });
            }
            other => panic!("expected the append, found {other:?}"),
        }
        self.close_when_durable();
    }

    fn handle_timeout(&mut self, _now: Now) {
        self.deadline = None;
        self.timeouts += 1;
    }

    fn poll_command(&mut self) -> Option<Command> {
        if self.in_flight.is_none() && self.durable < self.submitted {
            self.in_flight = Some(self.submitted);
            let entries = usize::try_from(self.submitted - self.durable).expect("few");
            self.out.command::<op::Append, _>((), |ticket| StorageCommand::Append {
                ticket,
                segment: SegmentNumber(1),
                offset: 0,
                bytes: vec![0; entries],
            });
        }
        self.out.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.out.poll_event()
    }

    fn poll_channel(&mut self, _channel: LinkId, _buf: &mut Vec<u8>) -> Option<FrameInfo> {
        None
    }

    fn pending(&self) -> Pending {
        Pending { deadline: self.deadline, ..self.out.pending() }
    }
}

impl Root for Fake {
    fn mutations(&mut self, _now: Now, mutations: &[Mutation]) -> Result<Vec<Accepted>, MutationError> {
        if let Some(fault) = &self.fault {
            return Err(MutationError::Halted(fault.clone()));
        }
        let queued_bytes = self.submitted - self.durable;
        assert!(mutations.len() < 100, "a broken invariant");
        if queued_bytes + mutations.len() as u64 > self.queue_max {
            return Err(MutationError::Full { queued_bytes, bytes_max: self.queue_max });
        }
        let accept = |_: &Mutation| {
            self.submitted += 1;
            let lsn = Lsn::new(self.submitted).expect("not zero");
            Accepted { lsn, version: Version::new(1, self.submitted) }
        };
        Ok(mutations.iter().map(accept).collect())
    }
    fn link_up(&mut self, _: Now, _: &Authenticated, _: LinkRole) -> Result<LinkId, LinkRefused> {
        Err(LinkRefused::Closing)
    }
    fn received(&mut self, _now: Now, _link: LinkId, _bytes: &[u8]) -> Flow {
        Flow::More
    }
    fn link_down(&mut self, _now: Now, _link: LinkId) {}
    fn request(&mut self, _now: Now, _request: Request) -> RequestId {
        self.out.event(Event::Done { request: RequestId(7), done: Done::Members });
        RequestId(7)
    }
    fn subscribe(&mut self, _now: Now, _cursor: Cursor) -> Opened {
        Err(SubscribeRefused::Closing)
    }
    fn subscription(&mut self, _now: Now, _input: SubscriptionInput) {}
    fn close(&mut self, _now: Now) {
        self.closing = true;
        self.close_when_durable();
    }
}

/// An owner's thread, and everything it can be reached by.
struct Running {
    inputs: Sender<Input<Fake>>,
    commands: Receiver<Command>,
    thread: JoinHandle<()>,
    ending: Ending,
}

impl Running {
    fn start(fake: Fake) -> Self {
        let (tx, rx) = channel();
        let (execute, commands) = channel();
        let inputs = tx.clone();
        let ending = Ending::default();
        let end = Ending::clone(&ending);
        let thread = std::thread::spawn(move || {
            let execute = |command| execute.send(command).expect("the test listens");
            Owner::new(fake, (tx, rx), execute, Clock::start()).run().answer(&end);
        });
        Self { inputs, commands, thread, ending }
    }

    fn submit_as(&self, mutations: usize, policy: WaitPolicy) -> Receiver<Written> {
        let (tx, rx) = channel();
        let key = Key::from_parts(b"n", b"k").expect("short");
        let mutation = Mutation { key, change: Change::Delete, if_version: None };
        let submission = Submission {
            mutations: vec![mutation; mutations],
            reply: Reply::new(move |w| drop(tx.send(w)), || Err(Unavailable::Closed.into())),
        };
        drop(self.inputs.send(Input::Submit { submission, policy }));
        rx
    }

    fn submit(&self, mutations: usize) -> Receiver<Written> {
        self.submit_as(mutations, WaitPolicy::Wait)
    }

    /// Reads the root; afterwards every input sent before has been taken.
    fn read<T: Send + 'static>(&self, read: impl FnOnce(&Fake) -> T + Send + 'static) -> T {
        let (tx, rx) = channel();
        let call = move |fake: Result<&Fake, Unavailable>| drop(tx.send(read(fake.expect("running"))));
        let permit = Waiting::new(1).take(1).expect("a permit");
        let read = Read { call: Some(Box::new(call)), _permit: permit };
        self.inputs.send(Input::Read(read)).expect("running");
        rx.recv().expect("an answer")
    }

    /// The append that is in flight, and how many entries it has.
    fn append(&self) -> (Ticket<op::Append>, usize) {
        match self.commands.recv().expect("a command") {
            Command::Storage(StorageCommand::Append { ticket, bytes, .. }) => (ticket, bytes.len()),
            other @ (Command::Storage(_) | Command::Blob(_)) => panic!("expected an append, found {other:?}"),
        }
    }

    fn complete(&self, ticket: Ticket<op::Append>, result: Result<(), StorageFault>) {
        self.inputs.send(Input::Completed(ticket.complete(result).into())).expect("running");
    }

    fn close(&self) -> Receiver<Result<(), StorageFault>> {
        let (tx, rx) = channel();
        let reply = close_reply(move |ended| drop(tx.send(ended)), &self.ending);
        drop(self.inputs.send(Input::Close(reply)));
        rx
    }
}

fn versions(written: Written) -> Vec<u64> {
    written.expect("written").iter().map(|a| a.version.sequence).collect()
}

fn sync_fault() -> StorageFault {
    StorageFault {
        action: StorageAction::Sync,
        file: "segment".into(),
        offset: Some(8),
        cause: StorageCause::Failed,
        detail: "test".into(),
    }
}

#[test]
fn what_comes_while_an_append_is_in_flight_shares_the_next_one() {
    let node = Running::start(Fake::new(100));
    let first = node.submit(1);
    let (ticket, entries) = node.append();
    assert_eq!(entries, 1);
    let (second, third) = (node.submit(2), node.submit(1));
    assert_eq!(node.read(|fake| fake.submitted), 4, "inputs are taken while the disk works");
    assert!(first.try_recv().is_err(), "nothing is durable");
    node.complete(ticket, Ok(()));
    assert_eq!(versions(first.recv().expect("an answer")), [1]);
    let (ticket, entries) = node.append();
    assert_eq!(entries, 3, "one append for both");
    assert!(second.try_recv().is_err(), "not durable yet");
    node.complete(ticket, Ok(()));
    assert_eq!(versions(second.recv().expect("an answer")), [2, 3]);
    assert_eq!(versions(third.recv().expect("an answer")), [4]);
}

#[test]
fn a_fault_leaves_everyone_who_waits_uncertain_and_refuses_the_rest() {
    let node = Running::start(Fake::new(2));
    let in_flight = node.submit(1);
    let (ticket, _) = node.append();
    let (queued, parked) = (node.submit(1), node.submit(1));
    node.complete(ticket, Err(sync_fault()));
    for waiting in [in_flight, queued] {
        assert_eq!(waiting.recv(), Ok(Err(WriteError::Uncertain(sync_fault()))));
    }
    let refused = Ok(Err(WriteError::Refused(MutationError::Halted(sync_fault()))));
    assert_eq!(parked.recv(), refused, "it was never submitted");
    assert_eq!(node.submit(1).recv(), refused);
    assert_eq!(node.close().recv(), Ok(Err(sync_fault())));
}

#[test]
fn a_full_queue_parks_first_come_first_served() {
    let node = Running::start(Fake::new(2));
    let first = node.submit(1);
    let (ticket, _) = node.append();
    let (large, small) = (node.submit(2), node.submit(1));
    let full = MutationError::Full { queued_bytes: 1, bytes_max: 2 };
    let impatient = node.submit_as(1, WaitPolicy::Fail).recv();
    assert_eq!(impatient, Ok(Err(WriteError::Refused(full))), "it would fit, but others came first");
    assert_eq!(node.read(|fake| fake.submitted), 1);
    node.complete(ticket, Ok(()));
    assert_eq!(versions(first.recv().expect("an answer")), [1]);
    let (ticket, entries) = node.append();
    assert_eq!(entries, 2, "the large one is next");
    node.complete(ticket, Ok(()));
    assert_eq!(versions(large.recv().expect("an answer")), [2, 3]);
    node.complete(node.append().0, Ok(()));
    assert_eq!(versions(small.recv().expect("an answer")), [4]);
}

#[test]
fn closing_writes_what_came_before_and_refuses_what_comes_after() {
    let node = Running::start(Fake::new(1));
    let first = node.submit(1);
    let (ticket, _) = node.append();
    let parked = node.submit(1);
    let closed = node.close();
    let late = node.submit(1);
    assert_eq!(late.recv(), Ok(Err(Unavailable::Closed.into())));
    node.complete(ticket, Ok(()));
    assert_eq!(versions(first.recv().expect("an answer")), [1]);
    assert!(closed.try_recv().is_err(), "one is still to be written");
    node.complete(node.append().0, Ok(()));
    assert_eq!(versions(parked.recv().expect("an answer")), [2]);
    assert_eq!(closed.recv(), Ok(Ok(())));
    node.thread.join().expect("the owner ends");
}

#[test]
fn a_closed_owner_answers_every_call() {
    let node = Running::start(Fake::new(1));
    assert_eq!(node.close().recv(), Ok(Ok(())));
    while node.inputs.send(Input::LinkReady(LinkId { slot: 0, uses: 1 })).is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(node.submit(1).recv(), Ok(Err(Unavailable::Closed.into())));
    assert_eq!(node.close().recv(), Ok(Ok(())));
}

#[test]
fn an_owner_that_is_lost_leaves_its_callers_uncertain() {
    let node = Running::start(Fake::new(1));
    let waiting = node.submit(1);
    let _in_flight = node.append();
    let fatal = node.submit(100);
    let lost = Ok(Err(WriteError::Uncertain(owner_lost())));
    assert_eq!(fatal.recv(), lost, "the root panicked in the middle of it");
    assert_eq!(waiting.recv(), lost);
    assert_eq!(node.close().recv(), Ok(Err(owner_lost())), "nobody sealed the journal");
    assert!(node.thread.join().is_err());
}

#[test]
fn the_timer_wakes_the_owner() {
    let now = Clock::start().now().mono;
    let node = Running::start(Fake { deadline: Some(now.after_ms(20)), ..Fake::new(1) });
    let quiet = node.commands.recv_timeout(Duration::from_millis(1));
    assert!(matches!(quiet, Err(RecvTimeoutError::Timeout)));
    while node.read(|fake| fake.timeouts) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(node.read(|fake| (fake.timeouts, fake.deadline)), (1, None));
}

#[test]
fn events_reach_a_subscriber_until_it_has_enough() {
    let node = Running::start(Fake::new(10));
    let (tx, events) = channel();
    let call = Box::new(move |event: &Event| {
        tx.send(event.clone()).expect("listening");
        ControlFlow::Break(())
    });
    let permit = Waiting::new(1).take(1).expect("a permit");
    node.inputs.send(Input::Subscribe { call, permit }).expect("running");
    for _ in 0..2 {
        let _written = node.submit(1);
        node.complete(node.append().0, Ok(()));
    }
    assert_eq!(events.recv(), Ok(Event::Durable { upto: Lsn::FIRST }));
    assert!(events.recv().is_err(), "it said that it had enough");
}

#[test]
fn a_request_is_answered_by_its_event() {
    let node = Running::start(Fake::new(1));
    let (tx, rx) = channel();
    let reply = Reply::new(move |done| drop(tx.send(done)), || Err(Unavailable::Closed));
    let request = Request::Compact { upto: None };
    node.inputs.send(Input::Request { request, reply }).expect("running");
    assert_eq!(rx.recv(), Ok(Ok(Done::Members)));
}
