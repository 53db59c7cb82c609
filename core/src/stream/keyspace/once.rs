//! Publishing exactly once under a key.

use super::Step;
use super::expiry::touch;
use super::publish::{append, has_position};
use super::space::{Data, Identity, Once, Record, Space};
use crate::stream::error::{CallerError, Mismatch, StreamError};
use crate::stream::event::{Event, EventId, OnceKey};
use crate::stream::layout::Layout;
use crate::stream::limits::{ONCE_DROPPED_MAX, ONCE_RECORDS_MAX};
use crate::stream::reply::Told;
use crate::stream::retention::Expiry;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// What a key stands for when a publication comes.
enum Found {
    /// Nothing, or a record whose window is over.
    Nothing,
    /// The same event.
    Same(EventId),
    /// Another event.
    Other,
}

fn found(once: Option<&Once>, key: &[u8], identity: &Identity, step: &Step<'_>) -> Found {
    match once.and_then(|once| once.records.get(key)) {
        Some(record) if step.now.is_past(record.expires_at_ms) => Found::Nothing,
        Some(record) if record.identity == *identity => Found::Same(record.id),
        Some(_) => Found::Other,
        None => Found::Nothing,
    }
}

pub(super) fn add_once(
    step: &Step<'_>,
    space: &mut Space,
    key: &OnceKey,
    event: &Event,
) -> Result<Told, StreamError> {
    let key = key.as_bytes();
    let generation = step.life().generation;
    let held = step.held(space);
    let identity = identity(step.layout, event);
    let instant = instant(step, held)?;
    let found = found(held.map(|data| &data.once), key, &identity, step);
    if matches!(found, Found::Nothing) {
        has_position(step, held)?;
        if let Some(data) = held {
            has_room(&data.once, step)?;
        }
    }
    let told = match found {
        Found::Other => return Err(CallerError::IdempotencyConflict.into()),
        Found::Same(id) => {
            step.plan.commit(step.layout, space);
            Told::AddedOnce { id, published: false }
        }
        Found::Nothing => {
            step.plan.commit(step.layout, space);
            let data = space.data(generation);
            let id = append(step, data, event);
            drop_expired(&mut data.once, step);
            let expires_at_ms = match step.layout {
                Layout::Tagged => instant,
                Layout::Pulse => u64::MAX,
            };
            data.once.insert(key.to_vec(), Record { id, identity, expires_at_ms });
            Told::AddedOnce { id, published: true }
        }
    };
    settle(step, space.data(generation), instant, &told);
    Ok(told)
}

fn identity(layout: Layout, event: &Event) -> Identity {
    match layout {
        Layout::Tagged => Identity::Digest(Sha256::digest(event.identity()).into()),
        Layout::Pulse => Identity::Exact(event.identity()),
    }
}

/// When the record ends. In the Pulse layout all records end with the data.
fn instant(step: &Step<'_>, held: Option<&Data>) -> Result<u64, StreamError> {
    let contract = &step.life().contract;
    let now_ms = step.now.ms();
    match (step.layout, contract.expiry) {
        (Layout::Tagged, Expiry::Deadline { at_ms }) => {
            Ok(at_ms.min(now_ms.saturating_add(contract.once_window_ms)))
        }
        (Layout::Tagged, Expiry::Never | Expiry::Ttl { .. }) => {
            Ok(now_ms.saturating_add(contract.once_window_ms))
        }
        (Layout::Pulse, Expiry::Deadline { at_ms }) => Ok(at_ms),
        (Layout::Pulse, Expiry::Ttl { ms, sliding }) => {
            let at_ms = now_ms.saturating_add(ms.get());
            let kept = held.and_then(|data| data.log.as_ref()).and_then(|log| log.expires_at_ms);
            // In its last millisecond the data gets a new term: an instant that is not ahead would end it
            // in the step that publishes.
            let kept = kept.filter(|kept| *kept > now_ms);
            Ok(if sliding { at_ms } else { kept.unwrap_or(at_ms) })
        }
        (Layout::Pulse, Expiry::Never) => {
            Err(CallerError::ConfigMismatch { kind: Mismatch::ExpiryRequired }.into())
        }
    }
}

/// A record is never pushed out inside its window.
fn has_room(once: &Once, step: &Step<'_>) -> Result<(), StreamError> {
    let droppable = expired(once, step).len();
    if once.records.len() - droppable < ONCE_RECORDS_MAX {
        return Ok(());
    }
    let oldest_expires_at_ms = once.by_instant.first().map_or(0, |(at, _)| *at);
    Err(CallerError::IdempotencyFull { oldest_expires_at_ms }.into())
}

fn expired(once: &Once, step: &Step<'_>) -> Vec<Vec<u8>> {
    let past = once.by_instant.iter().take_while(|(at, _)| step.now.is_past(*at));
    past.take(ONCE_DROPPED_MAX).map(|(_, key)| key.clone()).collect()
}

fn drop_expired(once: &mut Once, step: &Step<'_>) {
    for key in expired(once, step) {
        once.remove(&key);
    }
}

/// Expiries after a publication with a key, or its repetition.
fn settle(step: &Step<'_>, data: &mut Data, instant: u64, told: &Told) {
    let published = matches!(told, Told::AddedOnce { published: true, .. });
    match step.layout {
        Layout::Tagged if published => {
            let at = data.once.expires_at_ms.map_or(instant, |at| at.max(instant));
            data.once.expires_at_ms = Some(at);
            touch(step, data);
        }
        Layout::Tagged => {}
        Layout::Pulse => {
            if let Some(log) = data.log.as_mut() {
                log.expires_at_ms = Some(instant);
            }
            data.book_once(step.life(), instant, published);
        }
    }
}
