//! A bare journal whose commands end one by one, as a test says.

use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::id::Lsn;
use strandline_core::journal::command::{FileName, Listed, StorageCommand, StorageCompletion};
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::log::{JournalLog, LogEvent, LogRecovery};
use strandline_core::machine::Machine;
use strandline_core::seed::Seed;
use strandline_core::time::Now;

/// Answers as a disk that works; `current` is kept.
fn works(current: &mut Vec<u8>, command: StorageCommand) -> StorageCompletion {
    match command {
        StorageCommand::List { ticket } if current.is_empty() => ticket.complete(Ok(Vec::new())),
        StorageCommand::List { ticket } => {
            ticket.complete(Ok(vec![Listed { file: FileName::Current, bytes: current.len() as u64 }]))
        }
        StorageCommand::Replace { ticket, bytes, .. } => {
            *current = bytes;
            ticket.complete(Ok(()))
        }
        StorageCommand::Read { ticket, .. } => ticket.complete(Ok(current.clone())),
        StorageCommand::Prepare { ticket, .. } => ticket.complete(Ok(())),
        StorageCommand::Append { ticket, .. } => ticket.complete(Ok(())),
        StorageCommand::Remove { ticket, .. } => ticket.complete(Ok(())),
        StorageCommand::Write { ticket, .. } => ticket.complete(Ok(())),
        StorageCommand::Sync { ticket, .. } => ticket.complete(Ok(())),
        other @ StorageCommand::Cut { .. } => panic!("a new journal has no use for {other:?}"),
    }
}

fn settle(log: &mut JournalLog, current: &mut Vec<u8>) {
    while let Some(command) = log.poll_command() {
        let completion = works(current, command);
        log.handle_completion(Now::default(), completion);
    }
    while log.poll_event().is_some() {}
}

/// A new journal with one durable entry.
fn begun(current: &mut Vec<u8>) -> JournalLog {
    let visit = |_: Lsn, _: u8, _: &[u8]| Ok(());
    let mut recovery = LogRecovery::create(JournalLimits::default(), Seed::new([1; 32]), visit);
    while let Some(command) = recovery.poll_command() {
        recovery.handle_completion(Now::default(), works(current, command));
    }
    let Ok((mut log, _)) = recovery.finish() else { panic!("a new journal") };
    log.append(&[(0, b"one")]).expect("room");
    settle(&mut log, current);
    log
}

fn fault(action: StorageAction, file: &str) -> StorageFault {
    StorageFault { action, ..StorageFault::damaged(file, 0, "the disk went away") }
}

/// A host that was told of the fault may have given up its threads: it is asked for nothing more.
#[test]
fn a_halted_journal_writes_no_more_of_its_checkpoint() {
    let mut current = Vec::new();
    let mut log = begun(&mut current);
    log.checkpoint(vec![7; 3 << 20]).expect("begins");
    let Some(StorageCommand::Write { ticket: write, .. }) = log.poll_command() else { panic!("a piece") };
    settle(&mut log, &mut current);
    log.append(&[(0, b"two")]).expect("room");
    let Some(StorageCommand::Append { ticket, .. }) = log.poll_command() else { panic!("an append") };
    log.handle_completion(Now::default(), ticket.complete(Err(fault(StorageAction::Write, "segment"))));
    log.handle_completion(Now::default(), write.complete(Ok(())));
    assert!(log.poll_command().is_none());
}

#[test]
fn a_halted_journal_removes_nothing() {
    let mut current = Vec::new();
    let mut log = begun(&mut current);
    log.switch_segment();
    settle(&mut log, &mut current);
    let (two, _) = log.append(&[(0, b"two")]).expect("room");
    settle(&mut log, &mut current);
    let pin = log.pin();
    log.compact_to(two).expect("the first segment may go");
    let Some(StorageCommand::Replace { ticket: replace, .. }) = log.poll_command() else { panic!("current") };
    log.append(&[(0, b"three")]).expect("room");
    let Some(StorageCommand::Append { ticket, .. }) = log.poll_command() else { panic!("an append") };
    log.handle_completion(Now::default(), ticket.complete(Err(fault(StorageAction::Write, "segment"))));
    log.handle_completion(Now::default(), replace.complete(Ok(())));
    log.unpin(pin);
    assert!(log.poll_command().is_none());
}

/// The replica had this rule before the bare journal did: an append in flight when `current` could not be
/// replaced was still called durable.
#[test]
fn nothing_is_called_durable_after_a_fault_elsewhere() {
    let mut current = Vec::new();
    let mut log = begun(&mut current);
    log.switch_segment();
    settle(&mut log, &mut current);
    let (two, _) = log.append(&[(0, b"two")]).expect("room");
    settle(&mut log, &mut current);

    log.compact_to(two).expect("the first segment may go");
    let Some(StorageCommand::Replace { ticket, .. }) = log.poll_command() else { panic!("current first") };
    log.append(&[(0, b"three")]).expect("room");
    let Some(StorageCommand::Append { ticket: append, .. }) = log.poll_command() else { panic!("an append") };
    log.handle_completion(Now::default(), ticket.complete(Err(fault(StorageAction::Replace, "current"))));
    log.handle_completion(Now::default(), append.complete(Ok(())));
    assert!(matches!(log.poll_event(), Some(LogEvent::Halted(_))));
    assert_eq!(log.poll_event(), None);
}
