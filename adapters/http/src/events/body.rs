//! The body of a request: read within a bound, and read off when it is refused.

use super::answer::Problem;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use futures::StreamExt as _;
use std::time::Duration;

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
    /// It is longer than `bytes_max`, or it broke off.
    pub(super) async fn read(&mut self, bytes_max: usize) -> Result<Bytes, Problem> {
        self.waits = false;
        let mut whole = Vec::new();
        while let Some(data) = self.data.next().await {
            let data = data.map_err(|e| {
                let message = format!("expected a whole body, found it broken off: {e}");
                Problem::new(StatusCode::BAD_REQUEST, "bad_request", message)
            })?;
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
        assert_eq!(incoming.read(2 << 20).await.map(|bytes| bytes.len()), Ok(2 << 20));
    }

    #[tokio::test]
    async fn a_longer_one_is_refused_and_then_read_to_its_end() {
        let (mut incoming, taken) = body(Some("100-continue"), 4);
        let problem = incoming.read((2 << 20) - 1).await.expect_err("too long");
        assert_eq!((problem.status, problem.error), (StatusCode::PAYLOAD_TOO_LARGE, "too_large"));
        assert!(problem.message.contains("at most 2097151 bytes"), "{}", problem.message);
        assert_eq!(taken.load(Ordering::Relaxed), 2);
        incoming.read_off(PATIENCE).await;
        assert_eq!(taken.load(Ordering::Relaxed), 4);
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
