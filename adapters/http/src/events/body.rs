//! The body of a request: read within its bounds in bytes and time, and read off when it is refused.

use super::answer::Problem;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use futures::StreamExt as _;
use http_body_util::LengthLimitError;
use std::error::Error;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What is read off of a refused body, at most. Whoever sends more finds the connection closed.
const REFUSED_BYTES_MAX: usize = 32 << 20;

/// A body on its way.
pub(super) struct Incoming {
    data: BodyDataStream,
    /// The client sends nothing before it is told to go on, which reading does.
    waits: bool,
}

impl Incoming {
    pub(super) fn new(parts: &Parts, body: Body) -> Self {
        Self { data: body.into_data_stream(), waits: parts.headers.contains_key(header::EXPECT) }
    }

    /// The whole of it.
    ///
    /// # Errors
    ///
    /// It is longer than `bytes_max` or than a bound that the embedder set around us, it is not here
    /// within `patience`, or it broke off.
    pub(super) async fn read(&mut self, bytes_max: usize, patience: Duration) -> Result<Bytes, Problem> {
        self.waits = false;
        let deadline = Instant::now() + patience;
        let mut whole = Vec::new();
        loop {
            let Ok(next) = timeout_at(deadline, self.data.next()).await else {
                let message = format!(
                    "expected a whole body within {} ms, found {} bytes of it; nothing was published",
                    patience.as_millis(),
                    whole.len()
                );
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", message));
            };
            let Some(data) = next else { break };
            let data = data.map_err(|e| broken_off(&e))?;
            if data.len() > bytes_max - whole.len() {
                let message = format!("expected a body of at most {bytes_max} bytes, found more");
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.into())
    }

    /// Reads what is left, as far as the bounds go, and forgets it. A connection that is closed on unread
    /// bytes is reset, and with them the client loses the answer that says why.
    pub(super) async fn read_off(mut self, patience: Duration) {
        if self.waits {
            return;
        }
        let mut left = REFUSED_BYTES_MAX;
        let reading = async {
            while let Some(Ok(data)) = self.data.next().await {
                left = left.saturating_sub(data.len());
                if left == 0 {
                    return;
                }
            }
        };
        // Whoever is slower than that loses the answer.
        let _ = tokio::time::timeout(patience, reading).await;
    }
}

/// Why no more of a body comes.
fn broken_off(error: &axum::Error) -> Problem {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(found) = cause {
        if found.is::<LengthLimitError>() {
            let message = "expected a body within the bound that is set around this route, found more";
            return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message);
        }
        cause = found.source();
    }
    let message = format!("expected a whole body, found it broken off: {error}");
    Problem::new(StatusCode::BAD_REQUEST, "bad_request", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use futures::stream;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A body of `count` pieces of a MiB, and how many were taken.
    fn body(expect: Option<&str>, count: usize) -> (Incoming, Arc<AtomicUsize>) {
        let taken = Arc::new(AtomicUsize::new(0));
        let pieces = stream::iter(0..count).map({
            let taken = Arc::clone(&taken);
            move |_| {
                taken.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(vec![b'x'; 1 << 20])
            }
        });
        let mut request = Request::new(());
        if let Some(expect) = expect {
            request.headers_mut().insert(header::EXPECT, expect.parse().expect("a header"));
        }
        (Incoming::new(&request.into_parts().0, Body::from_stream(pieces)), taken)
    }

    #[tokio::test]
    async fn a_body_of_just_the_bound_is_read() {
        let (mut incoming, _) = body(None, 2);
        assert_eq!(incoming.read(2 << 20, PATIENCE).await.map(|bytes| bytes.len()), Ok(2 << 20));
    }

    #[tokio::test]
    async fn a_longer_one_is_refused_and_then_read_to_its_end() {
        let (mut incoming, taken) = body(Some("100-continue"), 4);
        let problem = incoming.read((2 << 20) - 1, PATIENCE).await.expect_err("too long");
        assert_eq!((problem.status, problem.error), (StatusCode::PAYLOAD_TOO_LARGE, "too_large"));
        assert!(problem.message.contains("at most 2097151 bytes"), "{}", problem.message);
        assert_eq!(taken.load(Ordering::Relaxed), 2);
        incoming.read_off(PATIENCE).await;
        assert_eq!(taken.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn one_beyond_the_bound_of_an_embedder_is_too_large_and_not_broken() {
        let pieces = stream::iter([Ok::<_, Infallible>(vec![b'x'; 1 << 20])]);
        let limited = http_body_util::Limited::new(Body::from_stream(pieces), 1 << 10);
        // Each layer between wraps the error once more.
        let body = Body::new(Body::new(limited));
        let mut incoming = Incoming::new(&Request::new(()).into_parts().0, body);
        let problem = incoming.read(2 << 20, PATIENCE).await.expect_err("too long");
        assert_eq!((problem.status, problem.error), (StatusCode::PAYLOAD_TOO_LARGE, "too_large"));
    }

    #[tokio::test]
    async fn one_that_breaks_off_is_told_so() {
        let pieces = stream::iter([Ok(vec![b'x']), Err(std::io::Error::other("gone"))]);
        let mut incoming = Incoming::new(&Request::new(()).into_parts().0, Body::from_stream(pieces));
        let problem = incoming.read(2 << 20, PATIENCE).await.expect_err("broken off");
        assert_eq!((problem.status, problem.error), (StatusCode::BAD_REQUEST, "bad_request"));
        assert!(problem.message.ends_with("broken off: gone"), "{}", problem.message);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_stalls_within_its_bound_is_left_after_the_patience() {
        let pieces = stream::iter([Ok::<_, Infallible>("half")]).chain(stream::pending());
        let mut incoming = Incoming::new(&Request::new(()).into_parts().0, Body::from_stream(pieces));
        let reading = incoming.read(2 << 20, PATIENCE);
        let read = tokio::time::timeout(2 * PATIENCE, reading).await.expect("left");
        let problem = read.expect_err("not whole");
        assert_eq!((problem.status, problem.error), (StatusCode::REQUEST_TIMEOUT, "slow_body"));
        let told = "within 60000 ms, found 4 bytes of it; nothing was published";
        assert!(problem.message.ends_with(told), "{}", problem.message);
    }

    #[tokio::test]
    async fn one_that_does_not_end_is_read_off_up_to_the_bound() {
        let (incoming, taken) = body(None, usize::MAX);
        incoming.read_off(PATIENCE).await;
        assert_eq!(taken.load(Ordering::Relaxed), REFUSED_BYTES_MAX >> 20);
    }

    #[tokio::test]
    async fn a_client_that_waits_to_be_told_is_not_told_to_send_what_nobody_wants() {
        let (incoming, taken) = body(Some("100-continue"), 4);
        incoming.read_off(PATIENCE).await;
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_stalls_is_left_after_the_patience() {
        let request = Request::new(()).into_parts().0;
        let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let read_off = Incoming::new(&request, stalled).read_off(PATIENCE);
        tokio::time::timeout(2 * PATIENCE, read_off).await.expect("left");
    }
}
