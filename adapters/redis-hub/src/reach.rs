//! The connection that commands go over, made when it is needed and anew when it was given up.

use crate::server::{Commands, Server};
use redis::RedisError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strandline_core::backoff::Backoff;
use strandline_core::seed::Seed;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The first and longest pause before another connection.
const RETRY_MS: (u64, u64) = (50, 2_000);
/// The first and longest pause before a server is asked again that will soon do its work.
const PAUSE_MS: (u64, u64) = (10, 500);

/// Why there is no connection: nothing was asked.
#[derive(Debug)]
pub(crate) enum Unreached {
    /// The last attempt ended so.
    Failed(RedisError),
    /// The time was over before an attempt ended.
    Late,
}

/// A server, and the connection to it. What turns out to be the wrong server is left by connecting anew:
/// its name may lead to another one by now.
pub(crate) struct Reach {
    server: Server,
    held: Mutex<Held>,
    seed: Seed,
    asked: AtomicU64,
}

struct Held {
    commands: Option<Commands>,
    /// How many connections there have been.
    turn: u64,
    /// No attempt before.
    not_before: Option<Instant>,
    backoff: Backoff,
    /// A server was left because another one is the master, and nobody has taken a write since.
    moved: bool,
}

impl Held {
    fn pause(&mut self) {
        let pause = Duration::from_millis(self.backoff.grown_ms());
        self.not_before = Some(Instant::now() + pause);
    }
}

impl Reach {
    pub(crate) fn new(server: Server, seed: Seed) -> Self {
        let backoff = Backoff::new(RETRY_MS.0, RETRY_MS.1, seed.clone(), "commands");
        let held = Held { commands: None, turn: 0, not_before: None, backoff, moved: false };
        Self { server, held: Mutex::new(held), seed, asked: AtomicU64::new(0) }
    }

    /// The pauses of one question, with random numbers of their own.
    pub(crate) fn pauses(&self) -> Backoff {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        Backoff::new(PAUSE_MS.0, PAUSE_MS.1, self.seed.clone(), format!("pause {number}"))
    }

    pub(crate) const fn server(&self) -> &Server {
        &self.server
    }

    /// The connection and its number. Attempts that fail are followed by pauses that grow, until the
    /// deadline.
    pub(crate) async fn connected(&self, deadline: Instant) -> Result<(Commands, u64), Unreached> {
        let Ok(mut held) = timeout_at(deadline, self.held.lock()).await else { return Err(Unreached::Late) };
        let mut last = Unreached::Late;
        loop {
            if let Some(commands) = &held.commands {
                return Ok((commands.clone(), held.turn));
            }
            if let Some(at) = held.not_before {
                if at >= deadline {
                    return Err(last);
                }
                sleep_until(at).await;
            }
            // An attempt ends by itself, within the time of one answer.
            match self.server.connect().await {
                Ok(commands) => {
                    held.turn += 1;
                    held.commands = Some(commands);
                }
                Err(error) => {
                    held.pause();
                    last = Unreached::Failed(error);
                }
            }
        }
    }

    /// Gives a connection up, unless another one has taken its place. `moved`: its server said that it is
    /// not the master.
    pub(crate) async fn give_up(&self, turn: u64, moved: bool) {
        let mut held = self.held.lock().await;
        if held.turn == turn && held.commands.take().is_some() {
            held.moved |= moved;
            held.pause();
        }
    }

    /// The server took a write. Whether it is the first one since another server was left: what else goes to
    /// that server must follow.
    pub(crate) fn wrote(&self, turn: u64) -> bool {
        // Whoever holds it now makes another connection, or does this same thing.
        let Ok(mut held) = self.held.try_lock() else { return false };
        if held.turn != turn {
            return false;
        }
        held.backoff.start_over();
        std::mem::take(&mut held.moved)
    }
}
