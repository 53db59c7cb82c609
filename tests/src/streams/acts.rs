//! Steps on streams, and the world around them.

use super::backend::Raw;
use super::file::Step;
use super::options;
use super::play::{Came, Play};
use super::shown::{state, told};
use super::value::repeated;
use serde_json::{Value, json};
use strandline_core::stream::error::{CallerError, StreamError};
use strandline_core::stream::event::Event;
use strandline_core::stream::limits::{READ_EVENTS_DEFAULT, REPLAY_BYTES_DEFAULT};
use strandline_core::stream::op::{Condition, Nonce};
use strandline_core::stream::{EventId, Handle, Ids, OnceKey, Outcome, StreamName, StreamReply, Verb};

impl Play<'_> {
    pub(super) fn nonce(&mut self) -> Nonce {
        self.nonces += 1;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.nonces.to_be_bytes());
        Nonce(bytes)
    }

    pub(super) fn handle(&self, step: &Step) -> Result<Result<Handle, CallerError>, String> {
        let name = step.text("h").ok_or("expected a handle")?;
        self.handles.get(name).cloned().ok_or_else(|| format!("the handle {name:?} is unknown"))
    }

    /// Asks for the handle of a step, and lets the handle know.
    pub(super) fn ask(
        &mut self,
        step: &Step,
        verb: Verb,
    ) -> Result<Result<StreamReply, StreamError>, String> {
        let handle = match self.handle(step)? {
            Ok(handle) => handle,
            Err(error) => return Ok(Err(error.into())),
        };
        let nonce = self.nonce();
        let op = handle.op(verb, nonce);
        let result = answered(self.backend.apply(&op))?;
        self.tell(step, &op.stream, &op.verb, &result);
        Ok(result)
    }

    pub(super) fn tell(
        &mut self,
        step: &Step,
        stream: &StreamName,
        verb: &Verb,
        result: &Result<StreamReply, StreamError>,
    ) {
        let handle = step.text("h").and_then(|name| self.handles.get_mut(name));
        if let Some(Ok(handle)) = handle.filter(|h| h.as_ref().is_ok_and(|h| h.stream() == stream)) {
            handle.answered(verb, result);
        }
    }

    pub(super) fn event(&self, step: &Step) -> Result<Event, CallerError> {
        let text = |name| step.arg(name).map(|value| repeated(value, "x")).unwrap_or_default();
        let event = Event::new(text("name"), text("payload"))?;
        let topic = text("topic");
        if topic.is_empty() { Ok(event) } else { event.with_topic(topic) }
    }

    pub(super) fn ids(&self, step: &Step) -> Vec<EventId> {
        let ids = self.names.fill(step.arg("ids").unwrap_or(&Value::Null));
        if let Value::Array(list) = ids {
            return list.iter().filter_map(Value::as_str).filter_map(EventId::parse).collect();
        }
        let count = ids.get("repeat").and_then(Value::as_u64).unwrap_or_default();
        (1..=count).map(|seq| EventId { ms: 1, seq }).collect()
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<Came, String> {
        match step.op.as_str() {
            "handle" | "handle_state" | "wait" | "redis" | "flushall" | "script_flush" => self.around(step),
            "new_reader" | "reader_add_stream" | "reader_remove_stream" | "reader_close" => self.reader(step),
            "read" if step.text("r").is_some() => self.reader(step),
            "new_sink" | "add_stream" | "remove_stream" | "close_sink" | "read" => self.consumer(step),
            "ack" | "lease_acquire" | "lease_renew" | "auto_claim" | "cleanup_stale" | "detach"
            | "register_consumer" | "keep_alive" | "recover_group" => self.group(step),
            "open" | "add" | "add_many" | "add_once" | "remove" | "snapshot" | "destroy" | "replay" => {
                self.stream(step)
            }
            other => Err(format!("the operation {other:?} is unknown")),
        }
    }

    pub(super) fn around(&mut self, step: &Step) -> Result<Came, String> {
        Ok(Came::Ok(match step.op.as_str() {
            "handle" => {
                let args = self.names.fill(step.arg_all());
                let handle = options::handle(&args, self.backend.layout());
                let name = step.text("as").ok_or("expected a name")?;
                self.handles.insert(name.to_string(), handle.clone());
                match handle {
                    Ok(handle) => json!({ "bound": handle.bound().is_some() }),
                    Err(error) => return Ok(Came::Err(error.into())),
                }
            }
            "handle_state" => match self.handle(step)? {
                Ok(handle) => state(&handle),
                Err(error) => return Ok(Came::Err(error.into())),
            },
            "wait" => {
                self.backend.wait(step.arg("ms").and_then(Value::as_u64).unwrap_or_default());
                json!({})
            }
            "flushall" => {
                self.backend.clear();
                self.names.forget_seen();
                // An ID of before the loss must not come again by the clock standing still.
                self.backend.wait(2);
                json!({})
            }
            "script_flush" => {
                self.backend.script_flush();
                json!({})
            }
            _ => {
                let command = self.names.fill(step.arg("cmd").ok_or("expected a command")?);
                let words = command.as_array().ok_or("expected a list of words")?.iter();
                let words: Vec<String> =
                    words.map(|w| w.as_str().map_or_else(|| w.to_string(), String::from)).collect();
                match self.backend.raw(&words) {
                    Raw::Done(id) => {
                        self.names.forget_seen();
                        if let Some(name) = step.text("as") {
                            self.names.bind(name, id);
                        }
                        json!({})
                    }
                    Raw::PulseOnly => return Ok(Came::PulseOnly),
                }
            }
        }))
    }

    pub(super) fn stream(&mut self, step: &Step) -> Result<Came, String> {
        let only_if_exists = step.arg("only_if_exists") == Some(&Value::Bool(true));
        let verb = match step.op.as_str() {
            "open" => Verb::Open,
            "add" | "add_many" => {
                let condition = if only_if_exists { Condition::IfExists } else { Condition::Always };
                let event = if step.op == "add" { self.event(step) } else { Event::new("many", "x") };
                match event {
                    Ok(event) => Verb::Add { event, condition },
                    Err(error) => return Ok(Came::Err(error.into())),
                }
            }
            // Our add_once has no such option: the call cannot be written.
            "add_once" if only_if_exists => {
                return Ok(Came::Err(CallerError::InvalidOnceKey { bytes: 0 }.into()));
            }
            "add_once" => {
                let key = step.arg("key").map(|value| repeated(value, "x")).unwrap_or_default();
                match OnceKey::new(key).and_then(|key| Ok((key, self.event(step)?))) {
                    Ok((key, event)) => Verb::AddOnce { key, event },
                    Err(error) => return Ok(Came::Err(error.into())),
                }
            }
            "remove" => match Ids::new(self.ids(step)) {
                Ok(ids) => Verb::Remove { ids },
                Err(error) => return Ok(Came::Err(error.into())),
            },
            "snapshot" => Verb::Snapshot,
            "destroy" => Verb::Destroy,
            _ => match self.replay(step) {
                Ok(verb) => verb,
                Err(error) => return Ok(Came::Err(error.into())),
            },
        };
        if step.op == "add_many" {
            let count = step.arg("count").and_then(Value::as_u64).unwrap_or_default();
            for _ in 1..count {
                if let Err(error) = self.ask(step, verb.clone())? {
                    return Ok(Came::Err(error));
                }
            }
        }
        if step.arg("lose_reply") == Some(&Value::Bool(true)) {
            let nonce = self.nonce();
            if let Ok(handle) = self.handle(step)? {
                let _lost = self.backend.apply(&handle.op(verb, nonce));
            }
            return Ok(Came::Unconfirmed);
        }
        let asked = verb.clone();
        let result = self.ask(step, verb)?;
        let handle = self.handle(step)?.ok();
        Ok(result.map(|reply| told(&asked, &reply.told, handle.as_ref())).into())
    }

    pub(super) fn replay(&self, step: &Step) -> Result<Verb, CallerError> {
        let after = self.names.fill(step.arg("after").unwrap_or(&Value::Null));
        let after = after.as_str().and_then(EventId::parse).ok_or(CallerError::InvalidReplayPosition)?;
        let events = step.arg("max_events").and_then(Value::as_u64);
        let bytes_max = step.arg("max_bytes").and_then(Value::as_u64).unwrap_or(REPLAY_BYTES_DEFAULT);
        let events_max = events.and_then(|n| u32::try_from(n).ok()).unwrap_or(READ_EVENTS_DEFAULT);
        Ok(Verb::Replay { after, events_max, bytes_max })
    }
}

impl Step {
    pub(super) fn arg_all(&self) -> &Value {
        self.fields.get("args").unwrap_or(&Value::Null)
    }
}

pub(super) fn answered(outcome: Outcome) -> Result<Result<StreamReply, StreamError>, String> {
    match outcome {
        Outcome::Answered { result, .. } => Ok(result),
        Outcome::Uncertain(uncertain) => Err(format!("no answer to {:?}", uncertain.op().verb)),
    }
}
