//! Subscriptions, and what their readers must be given.

use super::message;
use crate::input::Input;
use std::collections::BTreeMap;
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{Cursor, Page, SubscriptionId};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::record::{Key, Record, State, Version};
use strandline_core::time::Now;

/// One reader, as far as it has read.
struct Reader {
    at: Version,
    asked: bool,
    /// The last key of the state that a reset is reading.
    last_key: Option<Key>,
}

/// Everyone who reads.
#[derive(Default)]
pub(crate) struct Readers(BTreeMap<SubscriptionId, Reader>);

impl Readers {
    /// One of the things a reader does.
    pub(crate) fn act(&mut self, replica: &mut Replica, now: Now, input: &mut Input<'_>) {
        let ids: Vec<SubscriptionId> = self.0.keys().copied().collect();
        let choice = input.below(8);
        if ids.is_empty() || choice == 0 {
            let status = replica.status();
            let log = if input.below(8) == 1 { LogId([8; 16]) } else { message::LOG };
            let at = message::version(input, &status);
            if let Ok((id, verdict)) = replica.handle_subscribe(now, Cursor::new(log, at)) {
                let reader = Reader { at, asked: false, last_key: None };
                assert!(self.0.insert(id, reader).is_none(), "{id:?} was given twice");
                assert!(!verdict.is_complete() || at <= status.tail, "{at} is above {}", status.tail);
            }
            return;
        }
        let id = input.of(&ids);
        match choice {
            1 => {
                replica.handle_unsubscribe(now, id);
                self.0.remove(&id);
            }
            2 => replica.handle_reset(now, id),
            _ => {
                replica.handle_page_wanted(now, id);
                self.0.get_mut(&id).expect("listed").asked = true;
            }
        }
    }

    /// A page comes. One that was made before its reader left may still come, and is for nobody.
    pub(crate) fn page(&mut self, id: SubscriptionId, page: Page, tail: Version) {
        let Some(reader) = self.0.get_mut(&id) else { return };
        match page {
            Page::Changes { records, .. } => {
                assert!(core::mem::take(&mut reader.asked), "{id} is given what it did not ask for");
                assert!(!records.is_empty());
                for record in records {
                    assert!(record.version > reader.at, "{} after {}", record.version, reader.at);
                    assert!(record.version <= tail, "{} is shown, {tail} is durable", record.version);
                    reader.at = record.version;
                }
            }
            Page::Lost(verdict) => assert!(!verdict.is_complete(), "lost, and complete"),
            Page::ResetBegin { cut } => {
                assert!(cut <= tail);
                (reader.last_key, reader.asked) = (None, false);
            }
            Page::State { records } => {
                reader.asked = false;
                for Record { key, state, version, .. } in records {
                    assert!(matches!(state, State::Present { .. }), "{key} is not present");
                    assert!(version <= tail && reader.last_key.as_ref() < Some(&key), "{key} at {version}");
                    reader.last_key = Some(key);
                }
            }
            Page::ResetEnd { cut, .. } => (reader.at, reader.asked) = (cut, false),
            Page::Ended(_) => {
                self.0.remove(&id);
            }
        }
    }
}
