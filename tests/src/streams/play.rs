//! Plays scenarios against a backend and compares every answer and key.

use super::answers::Answers;
use super::backend::Backend;
use super::file::{Scenario, Step};
use super::options;
use super::shown::error_name;
use super::value::{Names, key_differs};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::stream::error::{CallerError, StreamError};
use strandline_core::stream::group::Consumer;
use strandline_core::stream::op::Lease;
use strandline_core::stream::reader::Reader;
use strandline_core::stream::word::word;
use strandline_core::stream::{Handle, Layout, StreamName};

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
pub(super) enum Came {
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

pub(super) struct Member {
    pub(super) consumer: Consumer,
    pub(super) home: StreamName,
}

pub(super) struct Play<'a> {
    pub(super) backend: &'a mut dyn Backend,
    pub(super) names: Names,
    pub(super) handles: BTreeMap<String, Result<Handle, CallerError>>,
    pub(super) readers: BTreeMap<String, Reader>,
    pub(super) members: BTreeMap<String, Member>,
    pub(super) leases: BTreeMap<String, Lease>,
    /// What an earlier step was refused: later steps have nothing to act on.
    pub(super) refused: BTreeSet<String>,
    pub(super) log: Option<(String, u64)>,
    pub(super) nonces: u64,
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
    let other_rules =
        layout == Layout::Tagged && !answers.has(&scenario.id, layout) && scenario.is_of_pulse();
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
        let (compared, differ) = play.keys_differ(&keys);
        differences.extend(differ);
        report.keys += compared;
        report.steps += 1;
        for difference in differences {
            if in_words || other_rules {
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

    fn keys_differ(&mut self, keys: &Map<String, Value>) -> (usize, Vec<String>) {
        let (mut compared, mut differ) = (0, Vec::new());
        let layout = self.backend.layout();
        for (key, expected) in keys {
            let now_ms = self.backend.now().ms();
            let Some(view) = self.backend.view(key) else { continue };
            compared += 1;
            let expected = self.names.fill(expected);
            let difference = key_differs(key, &expected, &view, now_ms, layout, &self.names);
            differ.extend(difference.map(|what| format!("{key}: {what}")));
        }
        (compared, differ)
    }
}
