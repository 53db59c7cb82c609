//! What follows an answer, and an answer that does not come.
//!
//! | the server | it was done | then |
//! |---|---|---|
//! | says that it passes (`LOADING`, `BUSY`) | no | it is asked again |
//! | says that it is not the master (`READONLY`, `MASTERDOWN`) | no | the connection is given up, and asked is whoever the address leads to |
//! | says that somebody must act (`OOM`, `MISCONF`) | no | that is the answer |
//! | says anything else | nobody knows | that is the answer |
//! | says nothing | nobody knows | the connection is given up; what may be done twice is asked again |
//!
//! All within the time of one answer, with pauses that grow. A cluster's client asks again by itself, so
//! what its last answer says holds not for the askings before it.

use crate::reach::{Reach, Unreached};
use crate::script::{failed, fault};
use crate::server::{Commands, Server};
use redis::RedisError;
use std::time::Duration;
use strandline_core::error::{StorageCause, StorageFault};
use strandline_core::stream::unready::{Again, Unready};
use tokio::time::{Instant, sleep};

/// What is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Question {
    /// Writes, and may be done twice.
    Position,
    /// Writes, and is never sent again while it may be in: another server knows no token of this one.
    Publish,
    /// Reads, which a server does that takes no writes.
    History,
}

impl Question {
    const fn repeats(self) -> bool {
        match self {
            Self::Position | Self::History => true,
            Self::Publish => false,
        }
    }

    const fn writes(self) -> bool {
        match self {
            Self::Position | Self::Publish => true,
            Self::History => false,
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was not done.
    Refused(StorageFault),
    /// It may be done.
    Open(StorageFault),
}

impl From<Failed> for StorageFault {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(fault) | Failed::Open(fault) => fault,
        }
    }
}

/// What an error says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Said {
    /// Not done, and soon it will.
    Soon,
    /// Not done: another server is the master.
    Elsewhere,
    /// Not done, until somebody acts.
    Later,
    /// Answered, and not whether anything was done.
    Other,
    /// Not answered.
    Nothing,
}

fn said(server: &Server, error: &RedisError) -> Said {
    match server {
        Server::Cluster(_) if error.is_unrecoverable_error() => return Said::Nothing,
        Server::Cluster(_) => return Said::Other,
        Server::One { .. } => {}
    }
    let Some(word) = error.code() else { return Said::Nothing };
    match Unready::of(word).map(Unready::again) {
        Some(Again::Soon) => Said::Soon,
        Some(Again::Elsewhere) => Said::Elsewhere,
        Some(Again::Later) => Said::Later,
        Some(Again::Never) | None => Said::Other,
    }
}

/// What follows: whether the connection is given up, whether it is asked again, whether it was done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Then {
    gives_up: bool,
    again: bool,
    open: bool,
}

const fn then(said: Said, question: Question) -> Then {
    match said {
        Said::Soon => Then { gives_up: false, again: true, open: false },
        Said::Elsewhere => Then { gives_up: true, again: true, open: false },
        Said::Later => Then { gives_up: false, again: false, open: false },
        Said::Other => Then { gives_up: false, again: false, open: true },
        Said::Nothing => Then { gives_up: true, again: question.repeats(), open: true },
    }
}

/// An answer, and whether it is the first of another server than before.
pub(crate) struct Answered<T> {
    pub(crate) value: T,
    pub(crate) moved: bool,
}

/// Asks. An attempt that has begun may take its own time for the answer.
pub(crate) async fn ask<T, F>(
    reach: &Reach,
    within: Duration,
    question: Question,
    send: impl Fn(Commands) -> F,
) -> Result<Answered<T>, Failed>
where
    F: Future<Output = Result<T, RedisError>>,
{
    let deadline = Instant::now() + within;
    let (mut pauses, mut last) = (None, None);
    loop {
        let (commands, turn) = match reach.connected(deadline).await {
            Ok(reached) => reached,
            // What a server said before says more.
            Err(why) => return Err(last.unwrap_or_else(|| Failed::Refused(unreached(&why, within)))),
        };
        let error = match send(commands).await {
            Ok(value) => {
                let moved = question.writes() && reach.wrote(turn);
                return Ok(Answered { value, moved });
            }
            Err(error) => error,
        };
        let said = said(reach.server(), &error);
        let Then { gives_up, again, open } = then(said, question);
        if gives_up {
            reach.give_up(turn, said == Said::Elsewhere).await;
        }
        let fault = failed(&error);
        let failed = if open { Failed::Open(fault) } else { Failed::Refused(fault) };
        let pause = Duration::from_millis(pauses.get_or_insert_with(|| reach.pauses()).grown_ms());
        if !again || Instant::now() + pause >= deadline {
            return Err(failed);
        }
        last = Some(failed);
        sleep(pause).await;
    }
}

fn unreached(why: &Unreached, within: Duration) -> StorageFault {
    match why {
        Unreached::Failed(error) => failed(error),
        Unreached::Late => {
            let detail = format!("expected a connection within {} ms, found none", within.as_millis());
            fault(StorageCause::Failed, detail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::{Client, ErrorKind, ServerErrorKind};

    const QUESTIONS: [Question; 3] = [Question::Position, Question::Publish, Question::History];

    fn one() -> Server {
        let client = Client::open("redis://127.0.0.1:1/").expect("an address");
        Server::One { client, config: redis::AsyncConnectionConfig::new() }
    }

    fn word(kind: ServerErrorKind) -> Said {
        said(&one(), &RedisError::from((ErrorKind::Server(kind), "by its word")))
    }

    #[test]
    fn what_passes_is_asked_again_over_the_same_connection() {
        assert_eq!(word(ServerErrorKind::BusyLoading), Said::Soon);
        for question in QUESTIONS {
            assert_eq!(then(Said::Soon, question), Then { gives_up: false, again: true, open: false });
        }
    }

    #[test]
    fn a_server_that_is_no_master_is_left_and_did_nothing() {
        assert_eq!(word(ServerErrorKind::ReadOnly), Said::Elsewhere);
        assert_eq!(word(ServerErrorKind::MasterDown), Said::Elsewhere);
        for question in QUESTIONS {
            assert_eq!(then(Said::Elsewhere, question), Then { gives_up: true, again: true, open: false });
        }
    }

    #[test]
    fn what_somebody_must_mend_is_refused_at_once() {
        for question in QUESTIONS {
            assert_eq!(then(Said::Later, question), Then { gives_up: false, again: false, open: false });
        }
    }

    #[test]
    fn another_word_leaves_open_whether_it_was_done() {
        assert_eq!(word(ServerErrorKind::ResponseError), Said::Other);
        for question in QUESTIONS {
            assert_eq!(then(Said::Other, question), Then { gives_up: false, again: false, open: true });
        }
    }

    #[test]
    fn silence_ends_the_connection_and_only_what_may_be_done_twice_is_asked_again() {
        let timed_out = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        assert_eq!(said(&one(), &timed_out), Said::Nothing);
        for (question, again) in QUESTIONS.into_iter().zip([true, false, true]) {
            assert_eq!(then(Said::Nothing, question), Then { gives_up: true, again, open: true });
        }
    }

    #[test]
    fn what_a_cluster_says_last_says_nothing_of_the_askings_before() {
        let client = redis::cluster::ClusterClient::new(vec!["redis://127.0.0.1:1/"]).expect("an address");
        let cluster = Server::Cluster(client);
        let loading = RedisError::from((ErrorKind::Server(ServerErrorKind::BusyLoading), "by its word"));
        assert_eq!(said(&cluster, &loading), Said::Other);
        let lost = RedisError::from((ErrorKind::ClusterConnectionNotFound, "nobody is left"));
        assert_eq!(said(&cluster, &lost), Said::Nothing);
    }
}
