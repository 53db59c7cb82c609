//! Steps that ask for a place among all streams.

use crate::coverage::scenario::{Scenario, Step};
use serde_json::Value;
use std::collections::BTreeMap;
use strandline_core::coverage::{Admission, NotAdmitted};

/// The budget of streams of a scenario.
pub(super) struct Budget {
    admission: Admission,
    held: BTreeMap<String, Vec<u64>>,
    released: BTreeMap<String, u64>,
    next: u64,
}

impl Budget {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let bound = |max: u32| (max > 0).then_some(max);
        Self {
            admission: Admission::new(bound(scenario.total_max), bound(scenario.per_user_max)),
            held: BTreeMap::new(),
            released: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn admit(&mut self, step: &Step) -> Result<(), String> {
        step.args.only(&["principal"])?;
        let principal = step.args.text("principal").unwrap_or("");
        self.next += 1;
        let refused = match self.admission.admit(self.next, Some(principal)) {
            Ok(()) => {
                self.held.entry(principal.into()).or_default().push(self.next);
                None
            }
            Err(NotAdmitted::Total { .. }) => Some("global"),
            Err(NotAdmitted::Client { .. }) => Some("per_user"),
        };
        let wanted = step.expect.get("refused").and_then(Value::as_str);
        if wanted == refused {
            Ok(())
        } else {
            Err(format!("expected refused {wanted:?}, found {refused:?}"))
        }
    }

    pub(super) fn release(&mut self, step: &Step) -> Result<(), String> {
        step.args.only(&["principal", "again"])?;
        let principal = step.args.text("principal").unwrap_or("");
        let again = step.args.flag("again").unwrap_or(false);
        let id = if again {
            self.released.get(principal).copied()
        } else {
            self.held.get_mut(principal).and_then(Vec::pop)
        };
        let id = id.ok_or("expected something to release")?;
        self.admission.release(id);
        self.released.insert(principal.into(), id);
        let wanted = step.expect.get("held").and_then(Value::as_u64);
        let found = self.admission.held() as u64;
        if wanted.is_none_or(|wanted| wanted == found) {
            Ok(())
        } else {
            Err(format!("expected {wanted:?} held, found {found}"))
        }
    }
}
