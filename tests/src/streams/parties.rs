//! Steps of readers and of consumers of groups.

use super::acts::answered;
use super::file::Step;
use super::options;
use super::play::{Came, Member, Play};
use super::shown::{ids, told};
use serde_json::{Value, json};
use strandline_core::stream::error::StreamError;
use strandline_core::stream::event::Entry;
use strandline_core::stream::group::{Consumer, Taken};
use strandline_core::stream::limits::{LEASE_MS_DEFAULT, READ_EVENTS_DEFAULT};
use strandline_core::stream::op::{Lease, Nonce};
use strandline_core::stream::reader::{Read, Reader};
use strandline_core::stream::reply::Told;
use strandline_core::stream::{ConsumerName, EventId, GroupName, Ids, Start, StreamReply, Verb};

impl Play<'_> {
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
                Ok(Read::Entries(_, entries, _)) => all.extend(entries),
                Ok(Read::Lost(..)) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    pub(super) fn reader(&mut self, step: &Step) -> Result<Came, String> {
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
                Ok(Taken::Entries(_, entries, _)) => all.extend(entries),
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

    pub(super) fn consumer(&mut self, step: &Step) -> Result<Came, String> {
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

    pub(super) fn group(&mut self, step: &Step) -> Result<Came, String> {
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
        let start = step.arg("start").map(|value| self.names.fill(value));
        let start = start.as_ref().and_then(Value::as_str).and_then(EventId::parse);
        let nonce = Nonce([0; 16]);
        let verb = match step.op.as_str() {
            "ack" => {
                let ids = Ids::new(self.ids(step)).map_err(|error| error.to_string())?;
                Verb::GroupAck { group, ids }
            }
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
                from: start.unwrap_or(EventId::ZERO),
                events_max: ms("count").and_then(|n| u32::try_from(n).ok()).unwrap_or(READ_EVENTS_DEFAULT),
            },
            "cleanup_stale" => {
                Verb::GroupSweep { group, lease: lease()?, grace_ms: ms("grace_ms").unwrap_or_default() }
            }
            "detach" => Verb::GroupDetach { group, consumer, release: false },
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
