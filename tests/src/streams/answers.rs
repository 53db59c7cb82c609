//! Our answers where they are not the file's: per step and layout, each with its reason.

use serde_json::{Map, Value};
use strandline_core::stream::Layout;

/// What a step is held to instead of what the file says.
#[derive(Clone, Debug)]
pub struct Answer {
    id: String,
    step: usize,
    layouts: Vec<String>,
    /// The reply or error; `None` leaves the file's.
    pub expect: Option<Value>,
    /// The keys; `None` leaves the file's.
    pub keys: Option<Map<String, Value>>,
}

/// The list of answers.
#[derive(Clone, Debug, Default)]
pub struct Answers(Vec<Answer>);

/// How a layout is called in files.
#[must_use]
pub const fn layout_name(layout: Layout) -> &'static str {
    match layout {
        Layout::Tagged => "tagged",
        Layout::Pulse => "pulse",
    }
}

impl Answers {
    /// Reads the list.
    ///
    /// # Errors
    /// What is not of the form; an answer without a reason is refused.
    pub fn read(text: &str) -> Result<Self, String> {
        let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let list = file.as_array().ok_or("expected a list of answers")?;
        let answers = list.iter().map(|value| {
            let id = value["id"].as_str().ok_or("an answer without id")?;
            let reason = value["reason"].as_str().unwrap_or_default();
            let layouts = value["layouts"].as_array().ok_or_else(|| format!("{id}: no layouts"))?;
            if reason.is_empty() {
                return Err(format!("{id}: an answer without a reason"));
            }
            Ok(Answer {
                id: id.to_string(),
                step: value["step"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or_default(),
                layouts: layouts.iter().filter_map(Value::as_str).map(String::from).collect(),
                expect: value.get("expect").cloned(),
                keys: value.get("keys").map(|keys| keys.as_object().cloned().unwrap_or_default()),
            })
        });
        answers.collect::<Result<_, _>>().map(Self)
    }

    /// The answer for a step, if there is one.
    #[must_use]
    pub fn of(&self, id: &str, step: usize, layout: Layout) -> Option<&Answer> {
        self.0.iter().find(|answer| {
            answer.id == id && answer.step == step && answer.layouts.iter().any(|l| l == layout_name(layout))
        })
    }

    /// Whether any step of the scenario is answered for the layout.
    #[must_use]
    pub fn has(&self, id: &str, layout: Layout) -> bool {
        self.0.iter().any(|a| a.id == id && a.layouts.iter().any(|l| l == layout_name(layout)))
    }

    /// Every scenario and step that is answered.
    pub fn steps(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|answer| (answer.id.as_str(), answer.step))
    }
}
