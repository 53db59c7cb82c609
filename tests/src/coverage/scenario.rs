//! The scenario file, read strictly: what is not known is trouble, never ignored.

use serde_json::{Map, Value};
use std::path::Path;

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name, as `cov-001`.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// `model`, or `prose` for what must be a test by hand.
    pub check: String,
    /// `per-topic` or `single-stream`.
    pub single_stream: bool,
    /// The backend is shared by several instances.
    pub shared: bool,
    /// Events that the replay buffer holds.
    pub buffer_size: usize,
    /// Events that may wait for a subscriber.
    pub queue: usize,
    /// How long a resume waits.
    pub settle_ms: u64,
    /// Streams in all; zero for no bound.
    pub total_max: u32,
    /// Streams of one client; zero for no bound.
    pub per_user_max: u32,
    /// How the right answer differs from the reference's.
    pub classes: Vec<String>,
    /// What happens.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is done.
    pub op: String,
    /// With what.
    pub args: Args,
    /// What the reference answers.
    pub expect: Map<String, Value>,
    /// The right answer, where it differs.
    pub ideal: Option<Map<String, Value>>,
}

/// The arguments of a step.
#[derive(Clone, Debug, Default)]
pub struct Args(Map<String, Value>);

impl Args {
    /// Text, if there is any of this name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// A number, if there is one of this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    /// A yes or no, if there is one of this name.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    /// A list of numbers; empty if there is none.
    #[must_use]
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        self.0.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect()
    }

    /// The steps within this step.
    ///
    /// # Errors
    /// If one of them has another form.
    pub fn steps(&self, name: &str) -> Result<Vec<Step>, String> {
        let list = self.0.get(name).and_then(Value::as_array);
        list.into_iter().flatten().map(step).collect()
    }

    /// Refuses arguments of other names than these.
    ///
    /// # Errors
    /// Naming the first of them.
    pub fn only(&self, names: &[&str]) -> Result<(), String> {
        match self.0.keys().find(|key| !names.contains(&key.as_str())) {
            Some(key) => Err(format!("argument {key:?} is unknown; expected one of {names:?}")),
            None => Ok(()),
        }
    }
}

/// Reads a file of scenarios.
///
/// # Errors
/// If it cannot be read or has another form.
pub fn read(path: &Path) -> Result<Vec<Scenario>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let value: Value = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let list = value.as_array().ok_or("expected a list of scenarios, found something else")?;
    list.iter()
        .map(|s| scenario(s).map_err(|e| format!("{}: {e}", s.get("id").unwrap_or(&Value::Null))))
        .collect()
}

fn scenario(value: &Value) -> Result<Scenario, String> {
    let text = |of: &Value, name: &str| {
        of.get(name).and_then(Value::as_str).map(str::to_owned).ok_or(format!("expected text {name:?}"))
    };
    let setup = value.get("setup").ok_or("expected \"setup\"")?;
    known("setup", setup, &["buffer_size", "bus", "backend", "queue", "limits", "settle_ms"])?;
    let number =
        |of: &Value, name: &str, otherwise: u64| of.get(name).and_then(Value::as_u64).unwrap_or(otherwise);
    let limits = setup.get("limits").cloned().unwrap_or(Value::Null);
    known("limits", &limits, &["total", "per_user"])?;
    let small = |name: &str| u32::try_from(number(&limits, name, 0)).map_err(|e| format!("{name}: {e}"));
    let classes = value.pointer("/ideal/class").and_then(Value::as_array).cloned().unwrap_or_default();
    let bus = text(setup, "bus")?;
    let backend = text(setup, "backend")?;
    if !["per-topic", "single-stream"].contains(&bus.as_str())
        || !["memory", "shared"].contains(&backend.as_str())
    {
        return Err(format!("bus {bus:?} on backend {backend:?} is unknown"));
    }
    Ok(Scenario {
        id: text(value, "id")?,
        title: text(value, "title")?,
        check: text(value, "check")?,
        single_stream: bus == "single-stream",
        shared: backend == "shared",
        buffer_size: usize::try_from(number(setup, "buffer_size", 1_024)).map_err(|e| e.to_string())?,
        queue: usize::try_from(number(setup, "queue", 64)).map_err(|e| e.to_string())?,
        settle_ms: number(setup, "settle_ms", 250),
        total_max: small("total")?,
        per_user_max: small("per_user")?,
        classes: classes.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        steps: value
            .get("steps")
            .and_then(Value::as_array)
            .ok_or("expected \"steps\"")?
            .iter()
            .map(step)
            .collect::<Result<_, _>>()?,
    })
}

/// Refuses fields of other names than these.
fn known(what: &str, of: &Value, names: &[&str]) -> Result<(), String> {
    match of.as_object().into_iter().flat_map(Map::keys).find(|key| !names.contains(&key.as_str())) {
        Some(key) => Err(format!("{what} {key:?} is unknown; expected one of {names:?}")),
        None => Ok(()),
    }
}

fn step(value: &Value) -> Result<Step, String> {
    let object = |name: &str| value.get(name).and_then(Value::as_object).cloned();
    Ok(Step {
        op: value.get("op").and_then(Value::as_str).ok_or("expected \"op\"")?.to_owned(),
        args: Args(object("args").unwrap_or_default()),
        expect: object("expect").unwrap_or_default(),
        ideal: object("ideal"),
    })
}

/// The topics that a step and the steps within it name.
fn topics_of(step: &Step) -> Vec<&str> {
    let within = step.args.0.get("during").and_then(Value::as_array).into_iter().flatten();
    let within = within.filter_map(|step| step.pointer("/args/topic")?.as_str());
    step.args.text("topic").into_iter().chain(within).collect()
}

impl Scenario {
    /// Whether it names more than one topic: then positions are shared by topics and have holes.
    #[must_use]
    pub fn names_several_topics(&self) -> bool {
        let mut topics: Vec<&str> = self.steps.iter().flat_map(topics_of).collect();
        topics.sort_unstable();
        topics.dedup();
        !self.single_stream && topics.len() > 1
    }

    /// Whether a step must give the right answer, not the reference's.
    #[must_use]
    pub fn ideal_binds(&self) -> bool {
        self.classes.iter().any(|class| class != "spurious")
    }
}
