//! A handle: made without I/O, bound by its first operation to one generation, for ever.

use super::error::{CallerError, ReplayCause, StreamError};
use super::layout::Layout;
use super::name::StreamName;
use super::op::{Bound, By, Nonce, StreamOp, Verb};
use super::reply::{StreamReply, Told};
use super::retention::Wanted;

/// Stands for one generation of a stream, or, before its first operation, for none yet.
///
/// A failed first operation leaves it unbound. A bound handle never follows to a later generation.
/// Asking by several operations at once is safe: the first answer binds, and the server refuses what
/// was asked for another generation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Handle {
    stream: StreamName,
    layout: Layout,
    wanted: Wanted,
    bound: Option<Bound>,
    ended: bool,
}

impl Handle {
    /// A handle that is bound to nothing.
    ///
    /// # Errors
    /// `InvalidOption` for a name that cannot live in the layout.
    pub fn new(stream: StreamName, wanted: Wanted, layout: Layout) -> Result<Self, CallerError> {
        layout.admits(&stream)?;
        Ok(Self { stream, layout, wanted, bound: None, ended: false })
    }

    /// The stream's name.
    #[must_use]
    pub const fn stream(&self) -> &StreamName {
        &self.stream
    }

    /// What the handle asks for.
    #[must_use]
    pub const fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// The generation it stands for; `None` before its first operation.
    #[must_use]
    pub const fn bound(&self) -> Option<&Bound> {
        self.bound.as_ref()
    }

    /// The operation that asks `verb` for this handle. `nonce` must be fresh.
    #[must_use]
    pub fn op(&self, verb: Verb, nonce: Nonce) -> StreamOp {
        let by = By { bound: self.bound, wanted: self.wanted, nonce, ended: self.ended };
        StreamOp { stream: self.stream.clone(), by, verb }
    }

    /// Takes note of an answer. An answer that never came leaves the handle as it was.
    pub fn answered(&mut self, verb: &Verb, result: &Result<StreamReply, StreamError>) {
        match result {
            Ok(reply) => self.bind(verb, reply),
            Err(StreamError::Caller(error)) if self.bound.is_some() => {
                self.ended |= matches!(
                    error,
                    CallerError::StreamDestroyed { .. }
                        | CallerError::ReplayPositionUnavailable { cause: ReplayCause::Destroyed }
                );
            }
            Err(_) => {}
        }
    }

    fn bind(&mut self, verb: &Verb, reply: &StreamReply) {
        match &mut self.bound {
            None => self.bound = Some(reply.bound),
            Some(bound) if bound.contract.is_none() => bound.contract = reply.bound.contract,
            Some(_) => {}
        }
        self.ended |= *verb == Verb::Destroy && matches!(reply.told, Told::Destroyed { .. });
    }

    /// Whether the handle was told that its generation ended.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The layout of the server it is for.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> Handle {
        Handle::new(StreamName::new("s").unwrap(), Wanted::default(), Layout::Tagged).unwrap()
    }

    fn reply(generation: u64) -> Result<StreamReply, StreamError> {
        let bound = Bound { generation, nonce: Some(Nonce([1; 16])), contract: None };
        Ok(StreamReply { bound, told: Told::Done })
    }

    #[test]
    fn the_first_answer_binds_and_no_later_one_does() {
        let mut handle = handle();
        handle.answered(&Verb::Open, &Err(CallerError::StreamNotFound.into()));
        assert_eq!(handle.bound(), None);
        handle.answered(&Verb::Open, &reply(2));
        handle.answered(&Verb::Open, &reply(3));
        assert_eq!(handle.bound().unwrap().generation, 2);
    }

    #[test]
    fn a_handle_remembers_that_its_generation_ended() {
        let mut handle = handle();
        let destroyed = Err(CallerError::StreamDestroyed { current: None }.into());
        handle.answered(&Verb::Open, &destroyed);
        assert!(!handle.has_ended(), "an unbound handle may make the next generation");
        handle.answered(&Verb::Open, &reply(1));
        handle.answered(&Verb::Open, &destroyed);
        assert!(handle.has_ended());
    }
}
