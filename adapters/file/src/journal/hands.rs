//! Executes commands where they are handed in.

use crate::appender::Appender;
use crate::construction::Construction;
use crate::directory::Directory;
use std::sync::Arc;
use strandline_core::journal::command::{StorageCommand, StorageCompletion};

/// Executes the commands of one thread at a time, each before it returns.
#[derive(Debug)]
pub(super) struct Hands {
    directory: Arc<Directory>,
    appender: Appender,
    construction: Construction,
}

impl Hands {
    pub(super) fn new(directory: Arc<Directory>) -> Self {
        let appender = Appender::new(Arc::clone(&directory));
        let construction = Construction::new(Arc::clone(&directory));
        Self { directory, appender, construction }
    }

    pub(super) fn execute(&mut self, command: StorageCommand) -> StorageCompletion {
        let Self { directory, appender, construction } = self;
        match command {
            StorageCommand::List { ticket } => ticket.complete(directory.list()),
            StorageCommand::Read { ticket, file, offset, bytes_max } => {
                ticket.complete(directory.read(file, offset, bytes_max))
            }
            StorageCommand::Prepare { ticket, segment, bytes } => {
                ticket.complete(directory.prepare(segment, bytes))
            }
            StorageCommand::Append { ticket, segment, offset, bytes } => {
                ticket.complete(appender.append(segment, offset, &bytes))
            }
            StorageCommand::Cut { ticket, segment, offset } => ticket.complete(appender.cut(segment, offset)),
            StorageCommand::Replace { ticket, file, bytes } => {
                ticket.complete(directory.replace(file, &bytes))
            }
            StorageCommand::Write { ticket, file, offset, bytes } => {
                ticket.complete(construction.write(file, offset, &bytes))
            }
            StorageCommand::Sync { ticket, file } => ticket.complete(construction.sync(file)),
            StorageCommand::Remove { ticket, files } => ticket.complete(construction.remove(&files)),
        }
    }
}
