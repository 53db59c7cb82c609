//! `session_handle`: each case played as a session of a real replica with a peer of the reference,
//! over a simulated disk. A session that ended with an error is followed by a new one, as a dialer of
//! the reference would do.

use super::Trouble;
use super::input::{Input, digest};
use super::judge::{Refused, Report};
use strandline_core::compat::streamhive::{Improvement, reference};
use strandline_core::id::{LinkId, LogId};
use strandline_core::lifecycle::api::{CloseReason, Event, LinkRole, PeerFaultKind, Scan};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::lifecycle::recovery::{Init, NotRecovered, Recovery};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::{Machine as _, Next, drain};
use strandline_core::record::{BlobKey, Record, RecordLimits, State, Version};
use strandline_core::seed::Seed;
use strandline_core::time::{Instant, Now, WallTime};
use strandline_core::verdict::Verdict;
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::frame::{FrameDecoder, write_frame};
use strandline_core::wire::handshake::{
    Authenticated, DialAuth, Handshake, ListenAuth, PeerCredential, Progress,
};
use strandline_core::wire::identity::PeerIdentity;
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, decode_message, encode};
use strandline_core::wire::repair::Batch;
use strandline_sim::host::{NodeHost, Outgoing};
use strandline_sim::rng::Rng;

/// The name of the replica, and of its peer.
const NAMES: [&str; 2] = ["replica", "peer"];

/// What a session answered: its frames about repair, and the replica after it.
#[derive(Debug, PartialEq)]
struct Answer {
    writes: Vec<String>,
    floor: Version,
    last: Version,
    entries: u64,
    state: String,
}

/// A replica with its host, and at most one link.
struct Bench {
    host: NodeHost,
    replica: Replica,
    link: Option<(LinkId, FrameDecoder)>,
    capabilities: Capabilities,
    role: LinkRole,
}

fn now() -> Now {
    Now { mono: Instant(1), wall: WallTime(1) }
}

fn authenticated(replica: &Replica, declared: &Capabilities) -> Result<Authenticated, Trouble> {
    let names = NAMES.map(|name| PeerIdentity::parse(name).expect("a name"));
    let [ours, theirs] = names;
    let mut hello = Vec::new();
    let dial = DialAuth {
        token: "t".into(),
        identity: Some(theirs.clone()),
        capabilities: declared.clone(),
        expect: Some(ours.clone()),
    };
    Handshake::dial(dial, &mut hello).map_err(|error| error.to_string())?;
    let listener = Handshake::listen(ListenAuth {
        identity: Some(ours),
        capabilities: replica.capabilities(),
        credentials: vec![PeerCredential::of_token(theirs, "t")],
    });
    match listener.handle_received(&hello, &mut Vec::new()) {
        Ok(Progress::Done { peer, .. }) => Ok(peer),
        _ => Err("the handshake does not end".into()),
    }
}

impl Bench {
    fn new(namespaces: Vec<Vec<u8>>, capabilities: Capabilities, role: LinkRole) -> Result<Self, Trouble> {
        let mut host = NodeHost::new(Rng::new(7), usize::MAX, false);
        let init = Init { log: LogId([7; 16]), identity: NAMES[0].into(), namespaces, authority: None };
        let config = ReplicaConfig::default();
        let mut recovery = Recovery::create(now(), Seed::new([7; 32]), config, init);
        loop {
            while drain(&mut recovery, &mut host, &mut Vec::new(), 64) == Next::More {}
            while host.advance() {}
            let mut answered = false;
            while let Some(answer) = host.answer() {
                recovery.handle_completion(now(), answer);
                answered = true;
            }
            match recovery.finish() {
                Ok((replica, _)) => return Ok(Self { host, replica, link: None, capabilities, role }),
                Err(NotRecovered::Working(back)) if answered => recovery = *back,
                Err(NotRecovered::Working(_)) => return Err("the log is never made".into()),
                Err(NotRecovered::Failed(error)) => return Err(error.to_string()),
            }
        }
    }

    fn settle(&mut self) {
        loop {
            while drain(&mut self.replica, &mut self.host, &mut Vec::new(), 64) == Next::More {}
            if self.host.advance() {
                continue;
            }
            let Some(answer) = self.host.answer() else { return };
            self.replica.handle_completion(now(), answer);
        }
    }

    /// The link, taken up anew if there is none, without what is said first.
    fn link(&mut self) -> Result<LinkId, Trouble> {
        if let Some((link, _)) = &self.link {
            return Ok(*link);
        }
        let peer = authenticated(&self.replica, &self.capabilities)?;
        let link = self.replica.handle_link_up(now(), &peer, self.role).map_err(|error| error.to_string())?;
        self.host.out.insert(link, Outgoing::default());
        self.host.wake(link);
        self.link = Some((link, FrameDecoder::default()));
        self.settle();
        self.heard()?;
        Ok(link)
    }

    /// Hands in one payload; what came back about repair.
    fn exchange(&mut self, payload: &[u8]) -> Result<Vec<String>, Trouble> {
        let link = self.link()?;
        let mut frame = Vec::new();
        write_frame(payload, &mut frame).map_err(|error| error.to_string())?;
        let _ = self.replica.handle_received(now(), link, &frame);
        self.settle();
        self.heard()
    }

    fn heard(&mut self) -> Result<Vec<String>, Trouble> {
        let Some((link, decoder)) = &mut self.link else { return Ok(Vec::new()) };
        let Some(out) = self.host.out.get_mut(link) else { return Ok(Vec::new()) };
        let bytes: Vec<u8> = out.bytes.drain(..).collect();
        let (mut taken, mut payloads) = (0, Vec::new());
        loop {
            taken += decoder.push(&bytes[taken..]);
            match decoder.next_frame().map_err(|error| error.to_string())? {
                Some(payload) => payloads.push(String::from_utf8_lossy(payload).into_owned()),
                None if taken == bytes.len() => break,
                None => {}
            }
        }
        // What a live source sends by itself is no answer.
        let answers = |payload: &String| payload.starts_with(r#"{"type":"lifecycle.repair.ack""#);
        Ok(payloads.into_iter().filter(answers).collect())
    }

    /// How the session ended, if it did; the next step begins a new one.
    fn ended(&mut self) -> Option<Ended> {
        let (link, _) = self.link.as_ref()?;
        let link = *link;
        let mut ended = None;
        for event in self.host.events.drain(..) {
            if let Event::CloseLink { link: closed, reason: CloseReason::Fault(fault) } = &event
                && *closed == link
            {
                ended = Some(Ended::Fault(fault.what, fault.to_string()));
            }
            if let Event::Verdict { link: judged, verdict: Verdict::Diverged(divergence), .. } = &event
                && *judged == link
            {
                ended = Some(Ended::Diverged(divergence.to_string()));
            }
        }
        if ended.is_some() {
            self.close();
        }
        ended
    }

    fn close(&mut self) {
        if let Some((link, _)) = self.link.take() {
            self.replica.handle_link_down(now(), link);
            self.host.forget(link);
            self.settle();
        }
    }

    fn answer(&self, writes: Vec<String>) -> Answer {
        let status = self.replica.status();
        let scan =
            Scan { namespace: None, prefix: Vec::new(), after: None, entries_max: 4096, deleted: true };
        let records: Vec<Record> = self
            .replica
            .scan(&scan)
            .entries
            .into_iter()
            .map(|(key, entry)| Record {
                key,
                state: entry.state,
                version: entry.version,
                authority: entry.authority,
            })
            .collect();
        let state = digest(records.iter());
        Answer { writes, floor: status.floor, last: status.tail, entries: status.entries, state }
    }
}

/// How a session ended.
enum Ended {
    Fault(PeerFaultKind, String),
    Diverged(String),
}

/// What a step was about, for the rule that a difference falls under.
struct Step<'a> {
    payload: &'a [u8],
    capabilities: &'a Capabilities,
    applier: bool,
}

impl Step<'_> {
    fn is_ack(&self) -> bool {
        let message = decode_message(self.payload, &WireLimits::default(), self.capabilities);
        matches!(message, Ok(Message::Ack { .. }))
    }

    /// Our refusal in the reference's words, or the rule by which it differs.
    fn refused(&self, ended: Ended) -> Refused {
        match ended {
            Ended::Fault(PeerFaultKind::Message, text) => {
                match decode_message(self.payload, &WireLimits::default(), self.capabilities) {
                    Err(error) => Refused::new(&error, reference::wire_rule(&error)),
                    Ok(_) => Refused::named("no message", &text),
                }
            }
            Ended::Fault(PeerFaultKind::Order, text) => Refused::named("ErrRepairWatermarkMismatch", &text),
            // A link that only sends has nobody who applies.
            Ended::Fault(PeerFaultKind::Sequence, text) if !self.applier => {
                Refused::named("ErrNilRepairSessionApplier", &text)
            }
            Ended::Fault(PeerFaultKind::Acknowledgement, text) => {
                Refused::ruled(&text, Improvement::ForeignAcknowledgement)
            }
            Ended::Diverged(text) if self.is_ack() => {
                Refused::ruled(&text, Improvement::ForeignAcknowledgement)
            }
            Ended::Diverged(text) => Refused::ruled(&text, Improvement::ForeignHistory),
            Ended::Fault(_, text) => Refused::named("another fault", &text),
        }
    }
}

fn blobs_of(message: &Message) -> Vec<BlobKey> {
    let blob = |record: &Record| match record.state {
        State::Present { blob } => Some(blob),
        State::Deleted => None,
    };
    match message {
        Message::Batch(batch) => batch.records.iter().filter_map(blob).collect(),
        Message::Snapshot(snapshot) => snapshot.records.iter().filter_map(blob).collect(),
        Message::Record(_) | Message::Ack { .. } | Message::Blob(_) | Message::Own(_) => Vec::new(),
    }
}

pub(super) fn session_handle(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let texts = case.texts("capabilities")?;
    let mut declared = Capabilities::parse(texts).map_err(|error| error.to_string())?;
    if case.flag("reconcile")? {
        let with = [Capability::Lifecycle, Capability::RepairReconcile];
        declared = Capabilities::new(with).map_err(|error| error.to_string())?;
    }
    let records = case.good_records("journal_and_state", &RecordLimits::default())?;
    let steps = case.list("steps")?;
    let acks =
        steps.iter().filter(|step| step.text("payload").is_ok_and(|p| p.contains("repair.ack"))).count();
    let applier = case.flag("applier")?;
    let role = if acks > 0 || !applier { LinkRole::Source } else { LinkRole::Receiver };
    let mut bench = Bench::new(vec![b"documents".to_vec()], declared.clone(), LinkRole::Receiver)?;
    for blob in case.text("stored_blobs")?.split(' ') {
        bench.host.blobs.store_bytes(blob.as_bytes());
    }
    begin(&mut bench, records)?;
    bench.role = role;
    for (at, step) in steps.iter().enumerate() {
        let payload = step.text("payload")?.as_bytes();
        let result = step.field("result");
        let what = format!("{name}, step {at}");
        let expected = result.outcome(|result| expected(&result))?;
        let step = Step { payload, capabilities: &declared, applier };
        let writes = bench.exchange(payload)?;
        let waits = decode_message(payload, &WireLimits::default(), &declared)
            .is_ok_and(|message| blobs_of(&message).iter().any(|blob| !bench.host.blobs.holds(blob)));
        let found = match bench.ended() {
            Some(ended) => Err(step.refused(ended)),
            None if waits && writes.is_empty() => {
                // The reference closes the connection here.
                bench.close();
                Err(Refused::ruled("it waits for the blob", Improvement::BlobsFirst))
            }
            None => Ok(bench.answer(writes)),
        };
        let refused_alike = matches!((&expected, &found), (Err(names), Err(found)) if found.is(names));
        report.answer(&what, &expected, &found, None);
        if refused_alike {
            // Neither changed anything.
            let after = bench.answer(Vec::new());
            report.same(&what, &state_of(&result)?, &(after.floor, after.last, after.entries, after.state));
        }
    }
    Ok(())
}

fn state_of(result: &Input<'_>) -> Result<(Version, Version, u64, String), Trouble> {
    Ok((
        result.version("journal_floor_after")?,
        result.version("journal_last_after")?,
        result.number("journal_len_after")?,
        result.text("state_digest_after")?.to_owned(),
    ))
}

fn expected(result: &Input<'_>) -> Result<Answer, Trouble> {
    let (floor, last, entries, state) = state_of(result)?;
    let writes = result.texts("writes")?.into_iter().map(String::from).collect();
    Ok(Answer { writes, floor, last, entries, state })
}

/// The records the case begins with, brought by a session of their own.
fn begin(bench: &mut Bench, records: Vec<Record>) -> Result<(), Trouble> {
    let Some(last) = records.last().map(|record| record.version) else { return Ok(()) };
    let batch = Batch { from: Version::ZERO, to: last, more: false, records };
    let mut payload = Vec::new();
    encode(&Message::Batch(batch), &WireLimits::default(), &mut payload)
        .map_err(|error| error.to_string())?;
    bench.exchange(&payload)?;
    bench.close();
    bench.host.events.clear();
    let found = bench.replica.status().tail;
    if found == last { Ok(()) } else { Err(format!("the case cannot begin: {found} instead of {last}")) }
}
