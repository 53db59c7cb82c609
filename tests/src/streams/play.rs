//! Plays scenarios against a backend and compares every answer and key.

use super::answers::Answers;
use super::backend::{Backend, Raw};
use super::file::{Scenario, Step};
use super::options;
use super::value::{Names, key_differs, repeated};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::stream::error::{CallerError, ForeignFault, StreamError};
use strandline_core::stream::event::{Entry, Event};
use strandline_core::stream::group::{Consumer, Taken};
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::limits::{LEASE_MS_DEFAULT, READ_EVENTS_DEFAULT, REPLAY_BYTES_DEFAULT};
use strandline_core::stream::op::{Condition, Lease, Nonce};
use strandline_core::stream::reader::{Read, Reader};
use strandline_core::stream::reply::Told;
use strandline_core::stream::word::word;
use strandline_core::stream::{
    ConsumerName, EventId, GroupName, Handle, Layout, Outcome, Start, StreamName, StreamReply, Verb,
};

/// What playing came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Scenarios played to their end.
    pub scenarios: usize,
    /// Steps whose answer was compared.
    pub steps: usize,
    /// Keys that were compared.
    pub keys: usize,
    /// Steps that the file leaves to us and nobody answered: played, not judged.
    pub unjudged: Vec<String>,
    /// Scenarios that mean something only to a real server with the Pulse layout.
    pub pulse_only: Vec<String>,
    /// Scenarios in prose: tests by hand.
    pub prose: usize,
    /// What differed.
    pub failures: Vec<String>,
}

/// What a step came to.
enum Came {
    Ok(Value),
    Err(StreamError),
    /// The answer was lost on the way.
    Unconfirmed,
    PulseOnly,
}

impl From<Result<Value, StreamError>> for Came {
    fn from(result: Result<Value, StreamError>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(error) => Self::Err(error),
        }
    }
}

struct Member {
    consumer: Consumer,
    home: StreamName,
}

struct Play<'a> {
    backend: &'a mut dyn Backend,
    names: Names,
    handles: BTreeMap<String, Result<Handle, CallerError>>,
    readers: BTreeMap<String, Reader>,
    members: BTreeMap<String, Member>,
    leases: BTreeMap<String, Lease>,
    /// What an earlier step was refused: later steps have nothing to act on.
    refused: BTreeSet<String>,
    log: Option<(String, u64)>,
    nonces: u64,
}

/// Plays every scenario.
///
/// # Errors
/// An operation or expectation that the runner does not know.
pub fn play(backend: &mut dyn Backend, scenarios: &[Scenario], answers: &Answers) -> Result<Report, String> {
    let mut report = Report::default();
    for scenario in scenarios {
        if scenario.is_prose {
            report.prose += 1;
            continue;
        }
        one(backend, scenario, answers, &mut report)?;
    }
    Ok(report)
}

fn one(
    backend: &mut dyn Backend,
    scenario: &Scenario,
    answers: &Answers,
    report: &mut Report,
) -> Result<(), String> {
    backend.clear();
    let layout = backend.layout();
    let start_ms = backend.now().ms();
    let mut play = Play {
        backend,
        names: Names::default(),
        handles: BTreeMap::new(),
        readers: BTreeMap::new(),
        members: BTreeMap::new(),
        leases: BTreeMap::new(),
        refused: BTreeSet::new(),
        log: None,
        nonces: 0,
    };
    for (name, offset) in &scenario.times {
        let at = start_ms.saturating_add_signed(offset.as_i64().unwrap_or_default());
        play.names.bind(name, at.to_string());
    }
    for (name, args) in &scenario.handles {
        let args = play.names.fill(args);
        play.handles.insert(name.clone(), options::handle(&args, layout));
    }
    let judged = answers.has(&scenario.id, layout) || !scenario.ideal_steps.is_empty();
    let in_words = scenario.differs && !judged;
    for (at, step) in scenario.steps.iter().enumerate() {
        let place = format!("{} step {at} ({})", scenario.id, step.op);
        if ["k", "r", "lease"].iter().any(|f| step.text(f).is_some_and(|n| play.refused.contains(n))) {
            report.unjudged.push(format!("{place}: what it acts on was rightly refused"));
            continue;
        }
        let came = play.step(step).map_err(|what| format!("{place}: {what}"))?;
        play.log_changes(step);
        if matches!(came, Came::PulseOnly) {
            report.pulse_only.push(scenario.id.clone());
            return Ok(());
        }
        let answer = answers.of(&scenario.id, at, layout);
        let leaves = scenario.ideal_steps.contains(&at) || step.ideal.is_some();
        let expect = match (answer.and_then(|answer| answer.expect.as_ref()), &step.ideal) {
            (Some(expect), _) => Some(expect.clone()),
            (None, Some(ideal)) => ideal_expectation(step, ideal),
            (None, None) if leaves && step.ideal_keys.is_none() => None,
            (None, None) => Some(step.expect.clone()),
        };
        let keys = match (answer.and_then(|answer| answer.keys.as_ref()), &step.ideal_keys) {
            (Some(keys), _) => keys.clone(),
            (None, Some(Value::Object(keys))) => keys.clone(),
            (None, Some(_)) => Map::new(),
            (None, None) if leaves => Map::new(),
            (None, None) => step.keys.clone(),
        };
        let mut differences = Vec::new();
        match &expect {
            Some(expect) => differences.extend(play.answer_differs(expect, &came)),
            None => report.unjudged.push(place.clone()),
        }
        play.bind_ids(step, &came);
        if let (Came::Err(_), Some(name)) = (&came, step.text("as")) {
            play.refused.insert(name.to_string());
        } else if let Some(name) = step.text("as") {
            play.refused.remove(name);
        }
        let (compared, differ) = play.keys_differ(step, &keys);
        differences.extend(differ);
        report.keys += compared;
        report.steps += 1;
        for difference in differences {
            if in_words {
                report.unjudged.push(format!("{place}: {difference}"));
            } else {
                report.failures.push(format!("{place}: {difference}"));
            }
        }
    }
    report.scenarios += 1;
    Ok(())
}

/// The right answer of a step, where the file says it as an answer. A reply without `ok` is meant as one.
fn ideal_expectation(step: &Step, ideal: &Value) -> Option<Value> {
    let object = ideal.as_object()?;
    if object.contains_key("ok") || object.contains_key("error") {
        return Some(ideal.clone());
    }
    step.expect.get("ok")?;
    Some(json!({ "ok": ideal }))
}

/// What the file calls an error.
fn error_name(error: &StreamError) -> &'static str {
    match error {
        StreamError::Caller(error) => match error {
            CallerError::InvalidOption { .. } => "InvalidOption",
            CallerError::EmptyEventName
            | CallerError::EventTooLarge { .. }
            | CallerError::InvalidOnceKey { .. }
            | CallerError::TooManyIds { .. } => "InvalidArgument",
            CallerError::ConfigMismatch { .. } => "ConfigMismatch",
            CallerError::GroupConfigMismatch => "SinkConfigMismatch",
            CallerError::GroupFull => "GroupFull",
            CallerError::StreamNotFound => "StreamNotFound",
            CallerError::StreamDestroyed { .. } => "StreamDestroyed",
            CallerError::StreamLost { .. } => "StreamLost",
            CallerError::DeadlineElapsed { .. } => "DeadlineElapsed",
            CallerError::SnapshotUnbounded => "SnapshotUnbounded",
            CallerError::SnapshotBoundExceeded { .. } => "SnapshotBoundExceeded",
            CallerError::IdempotencyConflict => "IdempotencyConflict",
            CallerError::IdempotencyFull { .. } => "IdempotencyFull",
            CallerError::LeaseLost { .. } => "LeaseLost",
            CallerError::InvalidReplayPosition => "InvalidReplayPosition",
            CallerError::ReplayPositionUnavailable { .. } => "ReplayPositionUnavailable",
            CallerError::ReplayEventTooLarge { .. } => "ReplayEventTooLarge",
            CallerError::LastStream => "LastStream",
            CallerError::ReaderClosed => "ReaderClosed",
            CallerError::ConsumerClosed => "SinkClosed",
            CallerError::NotAttached => "NotAttached",
        },
        StreamError::Foreign(error) => match error {
            ForeignFault::MalformedEvent { .. } => "MalformedEvent",
            ForeignFault::InvalidRetention { .. } => "InvalidRetention",
            ForeignFault::Lifecycle { .. } => "LifecycleInvalid",
            ForeignFault::Membership => "MembershipInvalid",
            ForeignFault::KeepAlive => "KeepAliveInvalid",
            ForeignFault::Resource | ForeignFault::Idempotency => "RedisError",
        },
        StreamError::Server(_) => "RedisError",
    }
}

fn ids(entries: &[Entry]) -> Value {
    entries.iter().map(|entry| Value::from(entry.id.to_string())).collect()
}

fn events(entries: &[Entry]) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shown = entries.iter().filter_map(|entry| {
        let event = entry.stored.event()?;
        Some(json!({
            "id": entry.id.to_string(), "name": text(event.name()),
            "payload": text(event.payload()), "topic": text(event.topic()),
        }))
    });
    shown.collect()
}

impl Play<'_> {
    fn answer_differs(&self, expect: &Value, came: &Came) -> Option<String> {
        let expect = self.names.fill(expect);
        match (came, expect.get("error").and_then(Value::as_str)) {
            (Came::Ok(found), None) => self.names.differs(&expect["ok"], found),
            (Came::Ok(found), Some(wanted)) => Some(format!("expected {wanted}, found {found}")),
            (Came::Unconfirmed, Some("Unconfirmed")) => None,
            (Came::Unconfirmed, _) => Some(format!("expected {expect}, found no answer")),
            (Came::Err(error), None) => Some(format!("expected {expect}, found {error:?}")),
            (Came::Err(error), Some(wanted)) => {
                let (name, found) = (error_name(error), word(error));
                let words = expect.get("wire").and_then(Value::as_str);
                if name != wanted {
                    Some(format!("expected {wanted}, found {name}: {error:?}"))
                } else {
                    words.filter(|wire| *wire != found).map(|wire| format!("expected {wire}, found {found}"))
                }
            }
            (Came::PulseOnly, _) => None,
        }
    }

    /// IDs are new within one log: another stream or generation may give out the same.
    fn log_changes(&mut self, step: &Step) {
        let handle = step.text("h").and_then(|name| self.handles.get(name)?.as_ref().ok());
        let log = handle.and_then(|h| Some((h.stream().to_string(), h.bound()?.generation)));
        if log.is_some() && self.log != log {
            self.names.forget_seen();
            self.log = log;
        }
    }

    fn bind_ids(&mut self, step: &Step, came: &Came) {
        let Came::Ok(value) = came else { return };
        if let Some(id) = value.get("id").and_then(Value::as_str) {
            self.names.saw(id);
            if let Some(name) = step.text("as") {
                self.names.bind(name, id);
            }
        }
    }

    fn keys_differ(&mut self, step: &Step, keys: &Map<String, Value>) -> (usize, Vec<String>) {
        let orders = StreamName::new("orders").expect("a name");
        let (mut compared, mut differ) = (0, Vec::new());
        let layout = self.backend.layout();
        for (key, expected) in keys {
            let now_ms = self.backend.now().ms();
            let Some(view) = self.backend.view(&orders, key) else { continue };
            compared += 1;
            let expected = self.names.fill(expected);
            let difference = key_differs(key, &expected, &view, now_ms, layout, &self.names);
            differ.extend(difference.map(|what| format!("{key}: {what}")));
        }
        let _ = step;
        (compared, differ)
    }

    fn nonce(&mut self) -> Nonce {
        self.nonces += 1;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.nonces.to_be_bytes());
        Nonce(bytes)
    }

    fn handle(&self, step: &Step) -> Result<Result<Handle, CallerError>, String> {
        let name = step.text("h").ok_or("expected a handle")?;
        self.handles.get(name).cloned().ok_or_else(|| format!("the handle {name:?} is unknown"))
    }

    /// Asks for the handle of a step, and lets the handle know.
    fn ask(&mut self, step: &Step, verb: Verb) -> Result<Result<StreamReply, StreamError>, String> {
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

    fn tell(
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

    fn event(&self, step: &Step) -> Result<Event, CallerError> {
        let text = |name| step.arg(name).map(|value| repeated(value, "x")).unwrap_or_default();
        let event = Event::new(text("name"), text("payload"))?;
        let topic = text("topic");
        if topic.is_empty() { Ok(event) } else { event.with_topic(topic) }
    }

    fn ids(&self, step: &Step) -> Vec<EventId> {
        match self.names.fill(step.arg("ids").unwrap_or(&Value::Null)) {
            Value::Array(list) => list.iter().filter_map(Value::as_str).filter_map(EventId::parse).collect(),
            other => {
                let count = other.get("repeat").and_then(Value::as_u64).unwrap_or_default();
                (1..=count).map(|seq| EventId { ms: 1, seq }).collect()
            }
        }
    }

    fn step(&mut self, step: &Step) -> Result<Came, String> {
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

    fn around(&mut self, step: &Step) -> Result<Came, String> {
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

    fn stream(&mut self, step: &Step) -> Result<Came, String> {
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
                match self.event(step) {
                    Ok(event) => Verb::AddOnce { key: key.into_bytes(), event },
                    Err(error) => return Ok(Came::Err(error.into())),
                }
            }
            "remove" => Verb::Remove { ids: self.ids(step) },
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

    fn replay(&self, step: &Step) -> Result<Verb, CallerError> {
        let after = self.names.fill(step.arg("after").unwrap_or(&Value::Null));
        let after = after.as_str().and_then(EventId::parse).ok_or(CallerError::InvalidReplayPosition)?;
        let events = step.arg("max_events").and_then(Value::as_u64);
        let bytes_max = step.arg("max_bytes").and_then(Value::as_u64).unwrap_or(REPLAY_BYTES_DEFAULT);
        let events_max = events.and_then(|n| u32::try_from(n).ok()).unwrap_or(READ_EVENTS_DEFAULT);
        Ok(Verb::Replay { after, events_max, bytes_max })
    }

    /// Drives a reader until it has nothing to ask.
    fn drive_reader(&mut self, step: &Step, name: &str) -> Result<Result<Vec<Entry>, StreamError>, String> {
        let mut all = Vec::new();
        loop {
            let nonce = self.nonce();
            let Some(op) = self.readers[name].op(nonce) else { return Ok(Ok(all)) };
            let result = answered(self.backend.apply(&op))?;
            self.tell(step, &op.stream, &op.verb, &result);
            let reader = self.readers.get_mut(name).expect("looked up");
            match reader.answered(&op, result) {
                Ok(Read::More) => {}
                Ok(Read::Entries(_, entries)) => all.extend(entries),
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    fn reader(&mut self, step: &Step) -> Result<Came, String> {
        if step.op == "new_reader" {
            return self.new_reader(step);
        }
        let name = step.text("r").ok_or("expected a reader")?.to_string();
        if !self.readers.contains_key(&name) {
            return Err(format!("the reader {name:?} is unknown"));
        }
        let handle = if step.text("h").is_some() { Some(self.handle(step)?) } else { None };
        let reader = self.readers.get_mut(&name).expect("looked up");
        let begun = match (step.op.as_str(), handle) {
            ("reader_add_stream", Some(Ok(handle))) => reader.attach(&handle),
            ("reader_remove_stream", Some(Ok(handle))) => reader.detach(handle.stream()),
            (_, Some(Err(error))) => Err(error),
            ("reader_close", None) => {
                reader.close();
                return Ok(Came::Ok(json!({ "closed": reader.is_closed() })));
            }
            _ => reader.pass(),
        };
        if let Err(error) = begun {
            return Ok(Came::Err(error.into()));
        }
        let result = self.drive_reader(step, &name)?;
        let attached = self.readers[&name].attached();
        Ok(result.map(|entries| json!({ "ids": ids(&entries), "attached": attached })).into())
    }

    fn new_reader(&mut self, step: &Step) -> Result<Came, String> {
        let args = self.names.fill(step.arg_all());
        let taking = match options::taking(&args) {
            Ok(taking) => taking,
            Err(error) => return Ok(Came::Err(error.into())),
        };
        let start = taking.start;
        let mut reader = Reader::new(taking);
        let begun = self.handle(step)?.and_then(|handle| reader.attach(&handle));
        if let Err(error) = begun {
            return Ok(Came::Err(error.into()));
        }
        let name = step.text("as").ok_or("expected a name")?.to_string();
        self.readers.insert(name.clone(), reader);
        let result = self.drive_reader(step, &name)?;
        if result.is_err() {
            self.readers.remove(&name);
        }
        Ok(result.map(|_| json!({ "start": start.to_string() })).into())
    }

    /// Drives a consumer until it has nothing to ask.
    fn drive_consumer(&mut self, step: &Step, name: &str) -> Result<Result<Value, StreamError>, String> {
        let (mut all, mut absent) = (Vec::new(), Vec::new());
        loop {
            let nonce = self.nonce();
            let Some(op) = self.members[name].consumer.op(nonce) else { break };
            let result = answered(self.backend.apply(&op))?;
            self.tell(step, &op.stream, &op.verb, &result);
            let consumer = &mut self.members.get_mut(name).expect("looked up").consumer;
            match consumer.answered(&op, result) {
                Ok(Taken::More) => {}
                Ok(Taken::Entries(_, entries)) => all.extend(entries),
                Ok(Taken::Repaired { log_was_absent, .. }) => absent.push(log_was_absent),
                Err(error) => return Ok(Err(error)),
            }
        }
        let consumer = &self.members[name].consumer;
        Ok(Ok(json!({
            "ids": ids(&all), "recovered": !absent.is_empty(), "data_was_absent": absent,
            "attached": consumer.attached(), "closed": consumer.is_closed(),
        })))
    }

    fn consumer(&mut self, step: &Step) -> Result<Came, String> {
        if step.op == "new_sink" {
            return self.new_consumer(step);
        }
        let name = step.text("k").ok_or("expected a sink")?.to_string();
        if !self.members.contains_key(&name) {
            return Err(format!("the sink {name:?} is unknown"));
        }
        let args = self.names.fill(step.arg_all());
        let start = args.get("start").and_then(Value::as_str).and_then(Start::parse);
        let handle = if step.text("h").is_some() { Some(self.handle(step)?) } else { None };
        let consumer = &mut self.members.get_mut(&name).expect("looked up").consumer;
        let begun = match (step.op.as_str(), handle) {
            (_, Some(Err(error))) => Err(error),
            ("add_stream", Some(Ok(handle))) => {
                options::taking(&args).and_then(|_| consumer.join(&handle, start))
            }
            ("remove_stream", Some(Ok(handle))) => consumer.leave(handle.stream()),
            ("close_sink", _) => {
                consumer.close();
                Ok(())
            }
            _ => consumer.pass(),
        };
        if let Err(error) = begun {
            return Ok(Came::Err(error.into()));
        }
        Ok(self.drive_consumer(step, &name)?.into())
    }

    fn new_consumer(&mut self, step: &Step) -> Result<Came, String> {
        let args = self.names.fill(step.arg_all());
        let text = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
        let built = options::taking(&args).and_then(|taking| {
            Ok((taking, GroupName::new(text("sink"))?, ConsumerName::new(text("consumer"))?))
        });
        let (built, handle) = match (built, self.handle(step)?) {
            (Ok(built), Ok(handle)) => (built, handle),
            (Err(error), _) | (_, Err(error)) => return Ok(Came::Err(error.into())),
        };
        let (taking, group, consumer) = built;
        let mut consumer = Consumer::new(group, consumer, taking, LEASE_MS_DEFAULT);
        if let Err(error) = consumer.join(&handle, None) {
            return Ok(Came::Err(error.into()));
        }
        let name = step.text("as").ok_or("expected a name")?.to_string();
        self.members.insert(name.clone(), Member { consumer, home: handle.stream().clone() });
        let result = self.drive_consumer(step, &name)?;
        if result.is_err() {
            self.members.remove(&name);
        }
        Ok(result.into())
    }

    fn group(&mut self, step: &Step) -> Result<Came, String> {
        let name = step.text("k").ok_or("expected a sink")?.to_string();
        let member = self.members.get(&name).ok_or_else(|| format!("the sink {name:?} is unknown"))?;
        let stream = match self.handle(step) {
            Ok(Ok(handle)) => handle.stream().clone(),
            Ok(Err(_)) | Err(_) => member.home.clone(),
        };
        let handle = member.consumer.handle(&stream).ok_or("the stream is not attached")?.clone();
        let group = member.consumer.group().clone();
        let consumer = member.consumer.name().clone();
        let ms = |name: &str| step.arg(name).and_then(Value::as_u64);
        let lease = || {
            let lease = step.text("lease").and_then(|name| self.leases.get(name)).cloned();
            lease.ok_or("the lease is unknown")
        };
        let nonce = Nonce([0; 16]);
        let verb = match step.op.as_str() {
            "ack" => Verb::GroupAck { group, ids: self.ids(step) },
            "lease_acquire" => {
                let owner = step.arg("owner").and_then(Value::as_str).unwrap_or_default().to_string();
                Verb::LeaseAcquire { group, owner, lease_ms: ms("ms").unwrap_or(LEASE_MS_DEFAULT) }
            }
            "lease_renew" => {
                let mut lease = lease()?;
                lease.lease_ms = ms("ms").unwrap_or(lease.lease_ms);
                Verb::LeaseRenew { group, lease }
            }
            "auto_claim" => Verb::GroupClaim {
                group,
                lease: lease()?,
                consumer,
                idle_ms: ms("min_idle_ms").unwrap_or_default(),
                from: EventId::ZERO,
                events_max: READ_EVENTS_DEFAULT,
            },
            "cleanup_stale" => {
                Verb::GroupSweep { group, lease: lease()?, grace_ms: ms("grace_ms").unwrap_or_default() }
            }
            "detach" => Verb::GroupDetach { group, consumer },
            "register_consumer" => {
                let other = step.arg("consumer").and_then(Value::as_str).map(ConsumerName::new);
                let consumer = other.and_then(Result::ok).unwrap_or(consumer);
                Verb::GroupRegister { group, consumer }
            }
            "keep_alive" => Verb::GroupKeepAlive { group, consumer },
            _ => member.consumer.repair(&stream, nonce).ok_or("the stream is not attached")?.verb,
        };
        let op = handle.op(verb, nonce);
        let result = answered(self.backend.apply(&op))?;
        let member = self.members.get_mut(&name).expect("looked up");
        member.consumer.note_cursor(&op, &result);
        if let (Ok(StreamReply { told: Told::Leased { acquired: true, fence }, .. }), Some(name)) =
            (&result, step.text("as"))
            && let Verb::LeaseAcquire { owner, lease_ms, .. } = &op.verb
        {
            let lease = Lease { owner: owner.clone(), fence: *fence, lease_ms: *lease_ms };
            self.leases.insert(name.to_string(), lease);
        }
        Ok(result.map(|reply| told(&op.verb, &reply.told, None)).into())
    }
}

impl Step {
    fn arg_all(&self) -> &Value {
        self.fields.get("args").unwrap_or(&Value::Null)
    }
}

fn answered(outcome: Outcome) -> Result<Result<StreamReply, StreamError>, String> {
    match outcome {
        Outcome::Answered { result, .. } => Ok(result),
        Outcome::Uncertain(uncertain) => Err(format!("no answer to {:?}", uncertain.op().verb)),
    }
}

/// A handle as the file shows it, whatever its layout.
fn state(handle: &Handle) -> Value {
    let generation = handle.bound().map_or(1, |bound| bound.generation);
    let keys = PulseKeys { stream: handle.stream(), generation };
    let contract = handle.bound().and_then(|bound| bound.contract);
    json!({
        "generation": handle.bound().map(|bound| bound.generation.to_string()).unwrap_or_default(),
        "key": keys.log(),
        "retention": contract.map(|contract| contract.text(Layout::Pulse)).unwrap_or_default(),
    })
}

/// A reply as the file shows it.
fn told(verb: &Verb, told: &Told, handle: Option<&Handle>) -> Value {
    let name = |id: &EventId| Value::from(id.to_string());
    let names = |list: &[ConsumerName]| list.iter().map(|c| Value::from(c.as_str())).collect::<Value>();
    match told {
        Told::Done | Told::Attended { .. } => match (verb, handle) {
            (Verb::Open, Some(handle)) => state(handle),
            _ => json!({}),
        },
        Told::Added { id } => json!({ "id": id.map(|id| id.to_string()).unwrap_or_default() }),
        Told::AddedOnce { id, published } => json!({ "id": name(id), "published": published }),
        Told::Removed { count } => json!({ "deleted": count }),
        Told::Entries(entries) => {
            json!({ "ids": ids(entries), "events": events(entries), "count": entries.len() })
        }
        Told::Replayed { anchor, entries } => {
            json!({ "anchor": anchor.as_ref().map(|entry| entry.id.to_string()), "ids": ids(entries) })
        }
        Told::Destroyed { now } => json!({ "destroyed_now": now }),
        Told::GroupOpened { log_was_absent, .. } => json!({ "data_was_absent": log_was_absent }),
        Told::Acked { count, .. } => json!({ "acked": count }),
        Told::Detached { deleted } => json!({ "consumer_deleted": deleted }),
        Told::Leased { acquired, fence } => json!({ "acquired": acquired, "fence": fence }),
        Told::Claimed { next, entries, vanished } => json!({
            "claimed": ids(entries), "next": name(next), "vanished": vanished.iter().map(name).collect::<Value>(),
        }),
        Told::Swept { removed, malformed } => {
            json!({ "removed": names(removed), "malformed": names(malformed) })
        }
    }
}
