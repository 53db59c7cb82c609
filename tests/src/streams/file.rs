//! The scenario file, read once.

use serde_json::{Map, Value};

/// One behaviour: handles, then steps with what is expected.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name, such as `st-001`.
    pub id: String,
    /// Whether it is told in prose, to be turned into a test by hand.
    pub is_prose: bool,
    /// Handles made before the first step.
    pub handles: Map<String, Value>,
    /// Instants, as offsets from the server's clock at the start.
    pub times: Map<String, Value>,
    /// Whether the right answer differs from the reference's.
    pub differs: bool,
    /// At which steps it differs. Empty with `differs`: the file says it in words only.
    pub ideal_steps: Vec<usize>,
    /// The steps.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// The operation.
    pub op: String,
    /// The whole step: `h`, `k`, `r`, `lease`, `as`, `args`.
    pub fields: Map<String, Value>,
    /// What is expected.
    pub expect: Value,
    /// Keys that are looked at afterwards.
    pub keys: Map<String, Value>,
    /// The right answer where it differs.
    pub ideal: Option<Value>,
    /// The right keys where they differ.
    pub ideal_keys: Option<Value>,
}

impl Scenario {
    /// Whether it is about what the Tagged layout does by other rules: a loss of the record (there a
    /// nonce tells incarnations apart), adoption of a flat stream, and records of `add_once` without a
    /// deadline (there they have a window of their own). Without an answer of ours such a scenario is
    /// played there, and its differences are told, not judged.
    #[must_use]
    pub fn is_of_pulse(&self) -> bool {
        let command = |step: &Step| {
            let words = step.arg("cmd").and_then(Value::as_array);
            words.is_some_and(|words| {
                let word = |at: usize| words.get(at).and_then(Value::as_str).unwrap_or_default();
                word(0) == "DEL" && word(1).ends_with(":lifecycle")
            })
        };
        let adopts = self.steps.first().is_some_and(|step| step.op == "redis");
        let has_deadlines = self.handles.values().all(|handle| handle.get("deadline").is_some());
        let publishes_once = self.steps.iter().any(|step| step.op == "add_once");
        let loses = self.steps.iter().any(|step| step.op == "flushall" || command(step));
        loses || adopts || publishes_once && !has_deadlines
    }
}

impl Step {
    /// A field that holds text.
    #[must_use]
    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }

    /// An argument.
    #[must_use]
    pub fn arg(&self, name: &str) -> Option<&Value> {
        self.fields.get("args").and_then(|args| args.get(name))
    }
}

/// Reads all scenarios.
///
/// # Errors
/// What is not of the form, with the scenario's name where it has one.
pub fn read(text: &str) -> Result<Vec<Scenario>, String> {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let list = file.as_array().ok_or("expected a list of scenarios")?;
    list.iter().map(scenario).collect()
}

fn object(value: Option<&Value>) -> Map<String, Value> {
    value.and_then(Value::as_object).cloned().unwrap_or_default()
}

fn scenario(value: &Value) -> Result<Scenario, String> {
    let id = value["id"].as_str().ok_or("expected an id")?.to_string();
    let steps = value["steps"].as_array().ok_or_else(|| format!("{id}: expected steps"))?;
    let ideal = &value["ideal"];
    let ideal_steps = ideal["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(Scenario {
        is_prose: value["check"] == "prose",
        handles: object(value["setup"].get("handles")),
        times: object(value["setup"].get("times")),
        differs: ideal["differs"] == true,
        ideal_steps: ideal_steps
            .iter()
            .filter_map(Value::as_u64)
            .filter_map(|at| usize::try_from(at).ok())
            .collect(),
        steps: steps.iter().map(|step| self::step(&id, step)).collect::<Result<_, _>>()?,
        id,
    })
}

fn step(id: &str, value: &Value) -> Result<Step, String> {
    let fields = value.as_object().ok_or_else(|| format!("{id}: a step is no object"))?.clone();
    let op = value["op"].as_str().ok_or_else(|| format!("{id}: a step without op"))?.to_string();
    Ok(Step {
        op,
        expect: value["expect"].clone(),
        keys: object(value.get("keys")),
        ideal: value.get("ideal").cloned(),
        ideal_keys: value.get("ideal_keys").cloned(),
        fields,
    })
}
