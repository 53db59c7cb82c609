//! Comparing what came with what a scenario expects.

use super::keys::View;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::stream::Layout;

/// Names that earlier steps bound: events to IDs, times to instants.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    bound: BTreeMap<String, String>,
    seen: BTreeSet<String>,
}

/// `{"repeat": n}` as text of that length; other text as it is.
pub(super) fn repeated(value: &Value, piece: &str) -> String {
    match value.get("repeat").and_then(Value::as_u64) {
        Some(times) => piece.repeat(usize::try_from(times).expect("a length")),
        None => value.as_str().unwrap_or_default().to_string(),
    }
}

impl Names {
    pub(super) fn bind(&mut self, name: &str, value: impl Into<String>) {
        self.bound.insert(name.to_string(), value.into());
    }

    /// Notes an ID as given out, so that it is no longer new.
    pub(super) fn saw(&mut self, id: &str) {
        self.seen.insert(id.to_string());
    }

    /// Another log, or the same one after a loss: it may give out the same IDs.
    pub(super) fn forget_seen(&mut self) {
        self.seen.clear();
    }

    /// Puts what is bound in place of `${name}`. A text that is nothing but a time becomes a number.
    pub(super) fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let mut filled = text.clone();
                for (name, bound) in &self.bound {
                    filled = filled.replace(&format!("${{{name}}}"), bound);
                }
                match filled.parse::<u64>() {
                    Ok(number) if filled != *text => Value::from(number),
                    Ok(_) | Err(_) => Value::String(filled),
                }
            }
            Value::Array(list) => list.iter().map(|value| self.fill(value)).collect(),
            Value::Object(object) => {
                object.iter().map(|(name, value)| (name.clone(), self.fill(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// The ID of the event that a record is expected of: given itself, by name, or as a field.
    fn record_id(&self, record: &Value) -> Option<String> {
        let text = match record {
            Value::Object(fields) => fields.get("id").or_else(|| fields.get("event"))?.as_str()?,
            Value::Array(parts) => parts.first()?.as_str()?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => record.as_str()?,
        };
        Some(self.bound.get(text).map_or(text, String::as_str).to_string())
    }

    /// The first difference between what is expected and what came, if any.
    pub(super) fn differs(&self, expected: &Value, found: &Value) -> Option<String> {
        match (expected, found) {
            (Value::Object(wanted), _) if wanted.get("any") == Some(&Value::Bool(true)) => None,
            (Value::Object(wanted), Value::Object(there)) => wanted.iter().find_map(|(name, value)| {
                let found = there.get(name).unwrap_or(&Value::Null);
                self.differs(value, found).map(|what| format!("{name}: {what}"))
            }),
            (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
                wanted.iter().zip(there).find_map(|(wanted, there)| self.differs(wanted, there))
            }
            (Value::String(wanted), Value::String(id)) if wanted == "new" => {
                (id.is_empty() || self.seen.contains(id)).then(|| format!("expected a new ID, found {id:?}"))
            }
            _ if expected == found => None,
            _ => Some(format!("expected {expected}, found {found}")),
        }
    }
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The first difference between what is expected under a key and what is there, if any.
pub(super) fn key_differs(
    key: &str,
    expected: &Value,
    view: &View,
    now_ms: u64,
    layout: Layout,
    names: &Names,
) -> Option<String> {
    match expected {
        Value::String(word) if word == "absent" => {
            (!view.kind.is_empty()).then(|| format!("expected absence, found a {}", view.kind))
        }
        Value::String(word) if word == "present" => view.kind.is_empty().then(|| "expected presence".into()),
        Value::Object(wanted) => {
            // One hash holds all of a generation's groups: an empty part of it is not there.
            let shared = key.contains(":sink-recovery:") || key.starts_with("map:");
            if layout == Layout::Tagged && shared && view.kind.is_empty() && only_books(wanted) {
                return None;
            }
            let kind = wanted.get("type").and_then(Value::as_str).unwrap_or(view.kind);
            if kind != view.kind {
                return Some(format!("expected type {kind:?}, found {:?}", view.kind));
            }
            wanted.iter().find_map(|(what, value)| {
                part_differs(what, value, wanted, view, now_ms, layout, names)
                    .map(|difference| format!("{what}: {difference}"))
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Some(format!("this expectation is unknown: {expected}"))
        }
    }
}

/// Whether no field is expected but such as the Tagged layout does not have.
fn only_books(wanted: &Map<String, Value>) -> bool {
    let fields = wanted.get("fields").and_then(Value::as_object);
    fields.is_none_or(|fields| fields.keys().all(|name| name.starts_with('=')))
}

fn part_differs(
    what: &str,
    value: &Value,
    wanted: &Map<String, Value>,
    view: &View,
    now_ms: u64,
    layout: Layout,
    names: &Names,
) -> Option<String> {
    let is_book = |name: &str| layout == Layout::Tagged && name.starts_with('=');
    match what {
        "type" | "exact" => None,
        "fields" => {
            let fields = value.as_object()?;
            let extra = view.fields.keys().find(|name| !fields.contains_key(*name) && !is_book(name));
            if wanted.get("exact") == Some(&Value::Bool(true))
                && let Some(extra) = extra
            {
                return Some(format!("expected no field {extra:?}"));
            }
            fields.iter().filter(|(name, _)| !is_book(name)).find_map(|(name, value)| {
                let found = view.fields.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                field_differs(value, found.as_deref(), view.fields.get(name), names)
                    .map(|difference| format!("{name}: {difference}"))
            })
        }
        "lacks" => {
            value.as_array()?.iter().filter_map(Value::as_str).find_map(|name| {
                view.fields.contains_key(name).then(|| format!("expected no field {name:?}"))
            })
        }
        "members" => {
            let mut members: Vec<String> =
                value.as_array()?.iter().filter_map(Value::as_str).map(String::from).collect();
            members.sort();
            (members != view.members).then(|| format!("expected {members:?}, found {:?}", view.members))
        }
        "len" => (number(value) != Some(view.ids.len() as u64))
            .then(|| format!("expected {value}, found {}", view.ids.len())),
        "ids" => {
            let ids: Value = view.ids.iter().map(|id| Value::from(id.to_string())).collect();
            names.differs(value, &ids)
        }
        "groups" => groups_differ(value, view, names),
        "ttl" => ttl_differs(value, view.expires_at_ms, now_ms),
        other => Some(format!("the expectation {other:?} is unknown")),
    }
}

/// `record`, alone or in an object, means the idempotency record of that event.
fn field_differs(
    expected: &Value,
    found: Option<&str>,
    bytes: Option<&Vec<u8>>,
    names: &Names,
) -> Option<String> {
    let Some(found) = found else { return Some("expected a field, found none".into()) };
    if let Some(record) = expected.get("record") {
        let id = names.record_id(record);
        let is_record = bytes.is_some_and(|bytes| {
            let at = bytes.iter().position(|byte| *byte == 0);
            at.is_some_and(|at| at + 1 < bytes.len() && id.is_none_or(|id| bytes[..at] == *id.as_bytes()))
        });
        return (!is_record).then(|| format!("expected the record of {record}"));
    }
    let as_text = expected.as_u64().map(|number| Value::from(number.to_string()));
    names.differs(as_text.as_ref().unwrap_or(expected), &Value::from(found))
}

fn groups_differ(value: &Value, view: &View, names: &Names) -> Option<String> {
    let wanted = value.as_object()?;
    if wanted.is_empty() && !view.groups.is_empty() {
        return Some(format!("expected no group, found {:?}", view.groups.keys()));
    }
    wanted.iter().find_map(|(name, value)| {
        let Some(group) = view.groups.get(name) else { return Some(format!("expected the group {name:?}")) };
        value.as_object()?.iter().find_map(|(what, value)| {
            let found = match what.as_str() {
                "pending" => Value::from(group.pending),
                "last_delivered" => Value::from(group.delivered.to_string()),
                "consumers" => {
                    let there: Map<String, Value> = group
                        .consumers
                        .iter()
                        .map(|(name, count)| (name.clone(), Value::from(*count)))
                        .collect();
                    let there = Value::Object(there);
                    return (there != *value).then(|| format!("{name}: expected {value}, found {there}"));
                }
                other => return Some(format!("{name}: the expectation {other:?} is unknown")),
            };
            names.differs(value, &found).map(|difference| format!("{name}.{what}: {difference}"))
        })
    })
}

fn ttl_differs(expected: &Value, expires_at_ms: Option<u64>, now_ms: u64) -> Option<String> {
    if expected == "none" {
        return expires_at_ms.map(|at| format!("expected no expiry, found {at}"));
    }
    let Some(at) = expires_at_ms else { return Some(format!("expected {expected}, found no expiry")) };
    if let Some(wanted) = expected.get("at") {
        return (number(wanted) != Some(at)).then(|| format!("expected {wanted}, found {at}"));
    }
    let between = expected.get("between_ms").and_then(Value::as_array)?;
    let (low, high) = (number(&between[0])?, number(&between[1])?);
    let left = at.saturating_sub(now_ms);
    (left < low || left > high).then(|| format!("expected {low} to {high} ms left, found {left}"))
}
