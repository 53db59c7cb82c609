//! When the data of a generation dies: moved in the step that writes.

use super::Step;
use super::space::Data;
use crate::stream::layout::Layout;
use crate::stream::retention::Expiry;

/// A write, or the making of a group, gives the log its expiry.
pub(super) fn touch(step: &Step<'_>, data: &mut Data) {
    let Some(log) = data.log.as_mut() else { return };
    let follow = match step.life().contract.expiry {
        Expiry::Never => return,
        Expiry::Deadline { at_ms } => {
            log.expires_at_ms = Some(at_ms);
            return;
        }
        Expiry::Ttl { ms, sliding } => {
            let at_ms = step.now.ms().saturating_add(ms.get());
            if !sliding && log.expires_at_ms.is_some() {
                return;
            }
            log.expires_at_ms = Some(at_ms);
            sliding.then_some(at_ms)
        }
    };
    // Records must outlive the data they speak of; ours have a window of their own.
    if let (Layout::Pulse, Some(at_ms)) = (step.layout, follow) {
        data.book_expiries(step.life(), at_ms);
    }
}
