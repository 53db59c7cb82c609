use super::entry::tests::operations;
use super::*;
use crate::error::StorageFault;
use crate::journal::command::{FileName, Listed};
use crate::journal::current::Current;
use crate::machine::{Host, Next, Sent, drain};
use crate::seed::Seed;
use crate::stream::op::{Condition, Nonce, Verb};
use crate::stream::reply::Told;
use crate::stream::retention::Wanted;
use crate::stream::{ConsumerName, Event, GroupName, Handle, Ids};
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;

/// A folder in memory that keeps whatever it is given, until it is told to fail.
#[derive(Debug, Default)]
struct Folder {
    files: BTreeMap<FileName, Vec<u8>>,
    completed: Vec<StorageCompletion>,
    events: Vec<EmbeddedEvent>,
    /// Nothing is executed: commands are kept.
    holding: bool,
    held: Vec<StorageCommand>,
    failing: bool,
}

impl Folder {
    fn run(&mut self, command: StorageCommand) -> StorageCompletion {
        fn whole(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
            let from = usize::try_from(offset).unwrap();
            file.resize(file.len().max(from + bytes.len()), 0);
            file[from..from + bytes.len()].copy_from_slice(bytes);
        }
        let fault = StorageFault::damaged("disk", 0, "injected");
        match command {
            StorageCommand::List { ticket } => {
                let list = self.files.iter().map(|(file, b)| Listed { file: *file, bytes: b.len() as u64 });
                ticket.complete(Ok(list.collect()))
            }
            StorageCommand::Read { ticket, file, offset, bytes_max } => {
                let from = usize::try_from(offset).unwrap();
                let bytes = &self.files[&file][from..];
                ticket.complete(Ok(bytes[..bytes.len().min(bytes_max as usize)].to_vec()))
            }
            StorageCommand::Prepare { ticket, segment, bytes } => {
                self.files.insert(FileName::Segment(segment), vec![0; usize::try_from(bytes).unwrap()]);
                ticket.complete(Ok(()))
            }
            StorageCommand::Append { ticket, .. } if self.failing => ticket.complete(Err(fault)),
            StorageCommand::Append { ticket, segment, offset, bytes } => {
                whole(self.files.entry(FileName::Segment(segment)).or_default(), offset, &bytes);
                ticket.complete(Ok(()))
            }
            StorageCommand::Cut { .. } => unreachable!("nothing is torn"),
            StorageCommand::Replace { ticket, file, bytes } => {
                self.files.insert(file, bytes);
                ticket.complete(Ok(()))
            }
            StorageCommand::Write { ticket, .. } if self.failing => ticket.complete(Err(fault)),
            StorageCommand::Write { ticket, file, offset, bytes } => {
                whole(self.files.entry(file).or_default(), offset, &bytes);
                ticket.complete(Ok(()))
            }
            StorageCommand::Sync { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Remove { ticket, files } => {
                self.files.retain(|file, _| !files.contains(file));
                ticket.complete(Ok(()))
            }
        }
    }

    fn open(&mut self, limits: EmbeddedLimits) -> Result<Embedded, EmbeddedError> {
        let mut recovery = StreamRecovery::open(limits, Seed::new([9; 32]));
        loop {
            while let Some(command) = recovery.poll_command() {
                let completion = self.run(command);
                recovery.handle_completion(Now::default(), completion);
            }
            match recovery.finish() {
                Ok((embedded, _)) => return Ok(embedded),
                Err(NotRecovered::Working(working)) => recovery = *working,
                Err(NotRecovered::Failed(error)) => return Err(error),
            }
        }
    }

    fn settle(&mut self, embedded: &mut Embedded) -> Vec<EmbeddedEvent> {
        loop {
            let next = drain(embedded, self, &mut Vec::new(), 64);
            let idle = self.completed.is_empty() && matches!(next, Next::Sleep(_));
            for completion in core::mem::take(&mut self.completed) {
                embedded.handle_completion(Now::default(), completion);
            }
            if idle {
                return core::mem::take(&mut self.events);
            }
        }
    }
}

impl Host<Embedded> for Folder {
    fn execute(&mut self, command: StorageCommand) {
        if self.holding {
            self.held.push(command);
        } else {
            let completion = self.run(command);
            self.completed.push(completion);
        }
    }
    fn notify(&mut self, event: EmbeddedEvent) {
        self.events.push(event);
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

fn now(ms: u64) -> Now {
    Now { wall: WallTime(ms), ..Now::default() }
}

fn handle() -> Handle {
    Handle::new(StreamName::new("orders").unwrap(), Wanted::default(), LAYOUT).unwrap()
}

fn add(payload: &str) -> StreamOp {
    let event = Event::new("e", payload).unwrap();
    handle().op(Verb::Add { event, condition: Condition::Always }, Nonce([1; 16]))
}

fn small() -> EmbeddedLimits {
    let mut limits = EmbeddedLimits::default();
    limits.journal.segment_bytes = 8192;
    limits.journal.batch_bytes_max = 4096;
    limits.journal.pending_bytes_max = 4096;
    limits.journal.entry_bytes_max = 2048;
    limits.checkpoint_after_bytes = 2000;
    limits
}

fn answered(events: &[EmbeddedEvent]) -> usize {
    events.iter().filter(|event| matches!(event, EmbeddedEvent::Answered { .. })).count()
}

#[test]
fn what_was_answered_is_there_after_a_reopen() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(EmbeddedLimits::default()).unwrap();
    let mut done = 0;
    for (at, mut op) in operations().into_iter().cycle().take(60).enumerate() {
        op.by.bound = None;
        op.by.ended = false;
        embedded.handle_ask(now(5 + at as u64), op).unwrap();
        done += answered(&folder.settle(&mut embedded));
        if at % 7 == 0 {
            let (keyspace, clock) = (embedded.keyspace().clone(), embedded.clock());
            embedded = folder.open(EmbeddedLimits::default()).unwrap();
            assert_eq!(embedded.keyspace(), &keyspace, "after {at}");
            assert!(embedded.clock() <= clock);
        }
    }
    assert_eq!(done, 60);
}

#[test]
fn a_checkpoint_replaces_what_is_in_it() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(small()).unwrap();
    let mut made = 0;
    for at in 0..200 {
        embedded.handle_ask(now(at), add("a body of some bytes")).unwrap();
        let events = folder.settle(&mut embedded);
        made += events.iter().filter(|e| matches!(e, EmbeddedEvent::Checkpointed { .. })).count();
    }
    assert!(made > 2, "{made} checkpoints");
    let checkpoints = folder.files.keys().filter(|file| matches!(file, FileName::Checkpoint(_))).count();
    assert_eq!(checkpoints, 1, "{:?}", folder.files.keys());
    assert!(folder.files.len() < 8, "{:?}", folder.files.keys());
    let keyspace = embedded.keyspace().clone();
    let again = folder.open(small()).unwrap();
    assert_eq!(again.keyspace(), &keyspace);
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_all_as_it_is() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(EmbeddedLimits::default()).unwrap();
    embedded.handle_ask(now(1), add("one")).unwrap();
    folder.settle(&mut embedded);
    folder.failing = true;
    embedded.handle_checkpoint();
    while let Some(command) = embedded.poll_command() {
        // The header of the segment that was asked for is an append, and works.
        folder.failing = matches!(command, StorageCommand::Write { .. });
        let completion = folder.run(command);
        embedded.handle_completion(now(2), completion);
    }
    folder.failing = false;
    let events: Vec<_> = core::iter::from_fn(|| embedded.poll_event()).collect();
    assert!(matches!(events[..], [EmbeddedEvent::NotCheckpointed(_)]), "{events:?}");
    embedded.handle_ask(now(3), add("two")).unwrap();
    folder.settle(&mut embedded);
    embedded.handle_checkpoint();
    let events = folder.settle(&mut embedded);
    assert!(matches!(events[..], [EmbeddedEvent::Checkpointed { .. }]), "{events:?}");
    let keyspace = embedded.keyspace().clone();
    assert_eq!(folder.open(EmbeddedLimits::default()).unwrap().keyspace(), &keyspace);
}

/// The segments that it stands for go once `current` names it: by then it must outlast a power cut.
#[test]
fn a_checkpoint_is_named_only_once_it_is_synced() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(EmbeddedLimits::default()).unwrap();
    embedded.handle_ask(now(1), add("one")).unwrap();
    folder.settle(&mut embedded);
    embedded.handle_checkpoint();
    let mut sync = None;
    while let Some(command) = embedded.poll_command() {
        if matches!(command, StorageCommand::Sync { file: FileName::Checkpoint(_), .. }) {
            sync = Some(command);
            continue;
        }
        let completion = folder.run(command);
        embedded.handle_completion(now(2), completion);
    }
    let named =
        |folder: &Folder| Current::decode(&folder.files[&FileName::Current]).unwrap().checkpoint.is_some();
    assert!(!named(&folder), "all else is done, the segment that follows is there");
    let completion = folder.run(sync.expect("it is to be synced"));
    embedded.handle_completion(now(3), completion);
    let events = folder.settle(&mut embedded);
    assert!(matches!(events[..], [EmbeddedEvent::Checkpointed { .. }]), "{events:?}");
    assert!(named(&folder));
}

/// Its next entries would be taken for some that the checkpoint holds.
#[test]
fn a_journal_that_ends_before_its_checkpoint_is_damage() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(EmbeddedLimits::default()).unwrap();
    folder.settle(&mut embedded);
    let early = folder.files.clone();
    for n in 1..4 {
        embedded.handle_ask(now(n), add("one")).unwrap();
    }
    folder.settle(&mut embedded);
    let whole = folder.files.clone();
    embedded.handle_checkpoint();
    folder.settle(&mut embedded);
    let mut current = Current::decode(&folder.files[&FileName::Current]).unwrap();
    current.first_segment = Current::decode(&whole[&FileName::Current]).unwrap().first_segment;
    let checkpoint = FileName::Checkpoint(current.checkpoint.unwrap().number);
    let open = |segments: &BTreeMap<FileName, Vec<u8>>| {
        let mut files = segments.clone();
        files.insert(FileName::Current, current.encode());
        files.insert(checkpoint, folder.files[&checkpoint].clone());
        Folder { files, ..Folder::default() }.open(EmbeddedLimits::default())
    };
    assert!(open(&whole).is_ok(), "it goes on where the checkpoint ends");
    let error = open(&early).expect_err("it ends before").to_string();
    assert!(error.contains("goes on at 4") && error.contains("next entry is 1"), "{error}");
}

#[test]
fn nothing_is_answered_before_it_is_durable_reads_included() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(EmbeddedLimits::default()).unwrap();
    folder.settle(&mut embedded);
    folder.holding = true;
    embedded.handle_ask(now(1), add("one")).unwrap();
    let read = handle().op(Verb::Read { after: EventId::ZERO, events_max: 9 }, Nonce([0; 16]));
    embedded.handle_ask(now(1), read.clone()).unwrap();
    assert_eq!(folder.settle(&mut embedded), [], "the write is under way");
    folder.holding = false;
    for command in core::mem::take(&mut folder.held) {
        let completion = folder.run(command);
        embedded.handle_completion(now(2), completion);
    }
    assert_eq!(answered(&folder.settle(&mut embedded)), 2);
    embedded.handle_ask(now(3), read).unwrap();
    assert_eq!(answered(&folder.settle(&mut embedded)), 1, "nothing is open any more");
}

#[test]
fn a_failed_write_leaves_what_waited_uncertain_and_takes_no_more() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(EmbeddedLimits::default()).unwrap();
    folder.settle(&mut embedded);
    folder.failing = true;
    embedded.handle_ask(now(1), add("one")).unwrap();
    let events = folder.settle(&mut embedded);
    let [EmbeddedEvent::Answered { outcome: Outcome::Uncertain(op), .. }, EmbeddedEvent::Halted(_)] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(op.op(), &add("one"));
    assert_eq!(embedded.handle_ask(now(2), add("two")), Err(AppendError::Halted.into()));
}

#[test]
fn what_changes_nothing_is_not_written() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(EmbeddedLimits::default()).unwrap();
    let (group, consumer) = (GroupName::new("g").unwrap(), ConsumerName::new("c").unwrap());
    let mut entries = Vec::new();
    let read = Verb::GroupRead { group: group.clone(), consumer, events_max: 9 };
    let open = operations().into_iter().find_map(|op| {
        let Verb::GroupOpen { contract, .. } = op.verb else { return None };
        Some(contract)
    });
    let contract = open.unwrap();
    for verb in [
        Verb::Open,
        Verb::Open,
        Verb::GroupOpen { group: group.clone(), contract, settled: None },
        read.clone(),
        read,
        Verb::GroupAck { group, ids: Ids::default() },
        Verb::Attend,
        Verb::Snapshot,
        Verb::Destroy,
        Verb::Attend,
    ] {
        embedded.handle_ask(now(1), handle().op(verb, Nonce([1; 16]))).unwrap();
        folder.settle(&mut embedded);
        entries.push(embedded.log().unwrap().journal().durable().map_or(0, Lsn::get));
    }
    assert_eq!(entries, [1, 1, 2, 3, 3, 3, 3, 3, 4, 4]);
}

/// Whoever has read on is handed nothing by the last position given out, only by what is kept behind its own.
#[test]
fn nothing_that_is_gone_is_news() {
    let mut embedded = Embedded::in_memory(EmbeddedLimits::default());
    let orders = StreamName::new("orders").unwrap();
    embedded.handle_ask(now(5), add("one")).unwrap();
    assert!(embedded.has_news(&orders, 1, EventId::ZERO));
    let ids = Ids::new([EventId { ms: 5, seq: 0 }]).unwrap();
    embedded.handle_ask(now(6), handle().op(Verb::Remove { ids }, Nonce([1; 16]))).unwrap();
    assert!(!embedded.has_news(&orders, 1, EventId::ZERO), "it was removed");
    embedded.handle_ask(now(7), add("two")).unwrap();
    assert!(embedded.has_news(&orders, 1, EventId::ZERO));
    assert!(!embedded.has_news(&orders, 1, EventId { ms: 7, seq: 0 }));
}

#[test]
fn the_clock_never_falls() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(EmbeddedLimits::default()).unwrap();
    let mut ids = Vec::new();
    for ms in [500, 400, 900] {
        embedded.handle_ask(now(ms), add("x")).unwrap();
        for event in folder.settle(&mut embedded) {
            if let EmbeddedEvent::Answered { outcome: Outcome::Answered { result: Ok(reply), .. }, .. } =
                event
                && let Told::Added { id: Some(id) } = reply.told
            {
                ids.push(id.ms);
            }
        }
        embedded = folder.open(EmbeddedLimits::default()).unwrap();
    }
    assert_eq!(ids, [500, 500, 900]);
}

#[test]
fn a_journal_of_something_else_is_not_opened() {
    let mut folder = Folder::default();
    let mut other = crate::journal::log::LogRecovery::create(
        crate::journal::limits::JournalLimits::default(),
        Seed::new([1; 32]),
        |_: Lsn, _: u8, _: &[u8]| Ok(()),
    );
    while let Some(command) = other.poll_command() {
        let completion = folder.run(command);
        other.handle_completion(Now::default(), completion);
    }
    let error = folder.open(EmbeddedLimits::default()).unwrap_err();
    assert!(error.to_string().contains("a keyspace of streams"), "{error}");
}

#[test]
fn an_operation_over_the_limit_is_refused_and_nothing_is_done() {
    let mut folder = Folder::default();
    let mut embedded = folder.open(small()).unwrap();
    let refused = embedded.handle_ask(now(1), add(&"x".repeat(3000)));
    assert!(matches!(refused, Err(NotAsked::Refused(AppendError::EntryTooLarge { .. }))), "{refused:?}");
    assert_eq!(embedded.keyspace().spaces().count(), 0);
}

#[test]
fn a_full_journal_makes_room_by_a_checkpoint() {
    let mut limits = small();
    limits.journal.journal_bytes_max = 4096;
    limits.checkpoint_after_bytes = 4096;
    let mut folder = Folder::default();
    let mut embedded = folder.open(limits).unwrap();
    let (mut done, mut full) = (0, 0);
    for at in 0..100 {
        match embedded.handle_ask(now(at), add("a body of some bytes")) {
            Ok(_) => done += 1,
            Err(NotAsked::Refused(AppendError::JournalFull { .. })) => full += 1,
            Err(other) => panic!("{other}"),
        }
        folder.settle(&mut embedded);
    }
    assert!(full > 0 && done > 80, "{done} done, {full} refused");
    let keyspace = embedded.keyspace().clone();
    assert_eq!(folder.open(limits).unwrap().keyspace(), &keyspace);
}

/// Whatever a handle of an ended generation asks is refused and leaves nothing behind, before and after
/// the next generation is made.
#[test]
fn no_mutation_of_an_ended_generation_leaves_anything() {
    let mut embedded = Embedded::in_memory(EmbeddedLimits::default());
    let ask = |embedded: &mut Embedded, op: StreamOp| {
        embedded.handle_ask(now(5), op).unwrap();
        let events: Vec<_> = core::iter::from_fn(|| embedded.poll_event()).collect();
        let answer = events.into_iter().find_map(|event| {
            let EmbeddedEvent::Answered { outcome: Outcome::Answered { result, .. }, .. } = event else {
                return None;
            };
            Some(result)
        });
        answer.expect("in memory all is answered at once")
    };
    let mut old = handle();
    for verb in [Verb::Open, Verb::Destroy] {
        let answer = ask(&mut embedded, old.op(verb.clone(), Nonce([1; 16])));
        old.answered(&verb, &answer);
    }
    let bound = *old.bound().unwrap();
    for next in [false, true] {
        if next {
            ask(&mut embedded, add("of the next generation")).unwrap();
        }
        let before = embedded.keyspace().clone();
        for mut op in operations() {
            op.by = old.op(Verb::Open, Nonce([2; 16])).by;
            let answer = ask(&mut embedded, op.clone());
            // Every handle may repeat it while the tombstone is its own generation's.
            let refused = if op.verb == Verb::Destroy && !next {
                answer.unwrap().told == Told::Destroyed { now: false }
            } else {
                matches!(
                    answer,
                    Err(StreamError::Caller(crate::stream::error::CallerError::StreamDestroyed { current }))
                        if current == Some(bound.generation + u64::from(next))
                )
            };
            assert!(refused, "{:?}", op.verb);
            assert_eq!(embedded.keyspace(), &before, "{:?}", op.verb);
        }
    }
}
