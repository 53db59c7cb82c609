//! How many streams a client, and all clients together, may hold.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

/// Why a stream is not admitted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotAdmitted {
    /// All clients together hold the most allowed.
    #[error("expected room for another stream, found the limit of {max} in all")]
    Total {
        /// The limit.
        max: u32,
    },
    /// This client holds the most allowed.
    #[error("expected room for another stream, found the limit of {max} per client")]
    Client {
        /// The limit.
        max: u32,
    },
}

/// The budget of streams. A client is whoever the embedder says it is; one without a name counts in the
/// total only. Releasing twice frees once.
///
/// ```
/// use strandline_core::coverage::{Admission, NotAdmitted};
/// let mut admission = Admission::new(Some(3), Some(1));
/// admission.admit(1, Some("ann")).unwrap();
/// assert_eq!(admission.admit(2, Some("ann")), Err(NotAdmitted::Client { max: 1 }));
/// admission.release(1);
/// admission.release(1);
/// assert_eq!(admission.held(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Admission {
    total_max: Option<u32>,
    client_max: Option<u32>,
    held: BTreeMap<u64, Option<Arc<str>>>,
    by_client: BTreeMap<Arc<str>, u32>,
}

impl Admission {
    /// An empty budget; `None` sets no bound.
    #[must_use]
    pub fn new(total_max: Option<u32>, client_max: Option<u32>) -> Self {
        Self { total_max, client_max, held: BTreeMap::new(), by_client: BTreeMap::new() }
    }

    /// Takes a place for the stream `id`, which must be a new one. The total is looked at first.
    ///
    /// # Errors
    /// [`NotAdmitted`] names the limit that is reached; nothing is taken then.
    pub fn admit(&mut self, id: u64, client: Option<&str>) -> Result<(), NotAdmitted> {
        if let Some(max) = self.total_max.filter(|max| self.held.len() >= *max as usize) {
            return Err(NotAdmitted::Total { max });
        }
        let client = client.filter(|name| !name.is_empty());
        let Some(name) = client else {
            self.held.insert(id, None);
            return Ok(());
        };
        let taken = self.by_client.get(name).copied().unwrap_or(0);
        if let Some(max) = self.client_max.filter(|max| taken >= *max) {
            return Err(NotAdmitted::Client { max });
        }
        let name: Arc<str> = match self.by_client.get_key_value(name) {
            Some((known, _)) => known.clone(),
            None => name.into(),
        };
        self.by_client.insert(name.clone(), taken + 1);
        self.held.insert(id, Some(name));
        Ok(())
    }

    /// Gives the place of `id` back, if it holds one.
    pub fn release(&mut self, id: u64) {
        let Some(Some(client)) = self.held.remove(&id) else { return };
        let Some(taken) = self.by_client.get_mut(&client) else { return };
        *taken -= 1;
        if *taken == 0 {
            self.by_client.remove(&client);
        }
    }

    /// How many streams are held in all.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_looked_at_first() {
        let mut admission = Admission::new(Some(1), Some(1));
        admission.admit(1, Some("ann")).unwrap();
        assert_eq!(admission.admit(2, Some("ann")), Err(NotAdmitted::Total { max: 1 }));
    }

    #[test]
    fn a_nameless_client_counts_in_the_total_only() {
        let mut admission = Admission::new(None, Some(1));
        for id in 0..3 {
            admission.admit(id, Some("")).unwrap();
            admission.admit(10 + id, None).unwrap();
        }
        assert_eq!(admission.held(), 6);
    }

    #[test]
    fn releasing_frees_once_and_forgets_the_client() {
        let mut admission = Admission::new(Some(2), Some(2));
        admission.admit(1, Some("ann")).unwrap();
        admission.admit(2, Some("ann")).unwrap();
        admission.release(1);
        admission.release(1);
        assert_eq!(admission.held(), 1);
        admission.admit(3, Some("bob")).unwrap();
        admission.release(2);
        assert!(!admission.by_client.contains_key("ann"));
    }
}
