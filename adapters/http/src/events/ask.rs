//! What a request says, read once.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::http::request::Parts;
use std::borrow::Cow;
use std::convert::Infallible;
use strandline_core::coverage::{BadTopic, CURSORS_MAX, From as Begin, TopicName};
use strandline_core::time::WallTime;

/// The ID that a client brings back: the header `Last-Event-ID`, which a browser sets when it connects
/// again, else the parameter `last_event_id`, with which a page says its position at the first time.
///
/// An ID that is not readable text is kept as text that no cursor can be, and so refused; it is never
/// taken for none. Two that differ are one that cannot be read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LastEventId(pub Option<String>);

impl LastEventId {
    fn of(headers: &HeaderMap, query: &str) -> Self {
        let header = headers.get_all("last-event-id").iter();
        let header = one(header.map(|value| String::from_utf8_lossy(value.as_bytes())));
        Self(header.or_else(|| one(pairs(query, "last_event_id"))))
    }
}

impl<S: Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers, parts.uri.query().unwrap_or_default()))
    }
}

/// How a client learns that its resume is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Style {
    /// In its stream, with the status 200.
    EventSource,
    /// By the status, with JSON.
    Fetch,
}

/// What a client that wants to subscribe says.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The topics, each once, at least one.
    pub topics: Vec<TopicName>,
    /// The ID that it brings back.
    pub id: LastEventId,
    /// Where topics begin that the ID has no position of.
    pub fresh: Begin,
    /// Events come as `{"topic","kind","data"}` or `{"topic","kind","base64"}` under the name `message`:
    /// an `EventSource` shows a page neither topics nor names that it did not ask for.
    pub envelope: bool,
    pub(super) style: Style,
}

/// A request that says something wrong: the status 400.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadAsk {
    /// No topic is named, or more than a stream may have.
    #[error("expected 1 to {CURSORS_MAX} topics in topics=a,b or topic=a, found {found}")]
    Count {
        /// How many are named.
        found: usize,
    },
    /// One is named twice.
    #[error("expected each topic once, found {0} again")]
    Twice(TopicName),
    /// See [`BadTopic`].
    #[error(transparent)]
    Topic(#[from] BadTopic),
    /// A beginning that does not exist.
    #[error("expected from= now, earliest, last or since:MILLISECONDS, found {0:?}")]
    From(String),
}

impl Ask {
    /// Reads a request.
    ///
    /// # Errors
    /// [`BadAsk`] says what is wrong with it.
    pub fn read(parts: &Parts) -> Result<Self, BadAsk> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self {
            topics: topics(query)?,
            id: LastEventId::of(&parts.headers, query),
            fresh: fresh(pairs(query, "from").next().as_deref())?,
            envelope: pairs(query, "envelope").any(|value| value == "json"),
            style: style(&parts.headers, query),
        })
    }
}

/// The values of a parameter.
pub(super) fn pairs<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
    form_urlencoded::parse(query.as_bytes()).filter_map(move |(key, value)| (key == name).then_some(value))
}

fn one<'a>(values: impl Iterator<Item = Cow<'a, str>>) -> Option<String> {
    let mut values: Vec<_> = values.filter(|value| !value.is_empty()).collect();
    values.dedup();
    if values.is_empty() { None } else { Some(values.join(",")) }
}

fn topics(query: &str) -> Result<Vec<TopicName>, BadAsk> {
    let mut found: Vec<TopicName> = Vec::new();
    let listed: Vec<Cow<'_, str>> = pairs(query, "topics").collect();
    let named: Vec<Cow<'_, str>> = pairs(query, "topic").collect();
    let listed = listed.iter().flat_map(|list| list.split(',')).filter(|name| !name.is_empty());
    for name in listed.chain(named.iter().map(AsRef::as_ref)) {
        let topic = TopicName::parse(name)?;
        if found.contains(&topic) {
            return Err(BadAsk::Twice(topic));
        }
        found.push(topic);
        if found.len() > CURSORS_MAX {
            break;
        }
    }
    if found.is_empty() || found.len() > CURSORS_MAX {
        return Err(BadAsk::Count { found: found.len() });
    }
    Ok(found)
}

fn fresh(from: Option<&str>) -> Result<Begin, BadAsk> {
    match from {
        None | Some("now") => Ok(Begin::Now),
        Some("earliest") => Ok(Begin::Earliest),
        Some("last") => Ok(Begin::Last),
        Some(other) => match other.strip_prefix("since:").map(str::parse) {
            Some(Ok(millis)) => Ok(Begin::Since(WallTime(millis))),
            Some(Err(_)) | None => Err(BadAsk::From(other.chars().take(40).collect())),
        },
    }
}

fn style(headers: &HeaderMap, query: &str) -> Style {
    let json = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let json = json.flat_map(|list| list.split(',')).any(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    });
    if json || pairs(query, "client").any(|value| value == "fetch") {
        Style::Fetch
    } else {
        Style::EventSource
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn ask(uri: &str, headers: &[(&str, &[u8])]) -> Result<Ask, BadAsk> {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ask::read(&request.body(()).unwrap().into_parts().0)
    }

    fn id(uri: &str, headers: &[(&str, &[u8])]) -> Option<String> {
        ask(uri, headers).unwrap().id.0
    }

    #[test]
    fn the_header_wins_over_the_query_and_emptiness_is_none() {
        let uri = "/events?topics=a&last_event_id=old";
        assert_eq!(id(uri, &[("last-event-id", b"new")]).as_deref(), Some("new"));
        assert_eq!(id(uri, &[("last-event-id", b"")]).as_deref(), Some("old"));
        assert_eq!(id("/events?topics=a&last_event_id=", &[]), None);
    }

    #[test]
    fn an_unreadable_id_is_not_none() {
        assert!(id("/events?topics=a", &[("last-event-id", b"\xff\xfe")]).is_some());
        let two: &[(&str, &[u8])] = &[("last-event-id", b"x"), ("last-event-id", b"y")];
        assert_eq!(id("/events?topics=a", two).as_deref(), Some("x,y"));
        assert_eq!(id("/events?topics=a&last_event_id=x&last_event_id=x", &[]).as_deref(), Some("x"));
    }

    #[test]
    fn topics_are_listed_or_named() {
        let ask = ask("/events?topics=a,b%2Fc&topic=d%2Ce", &[]).unwrap();
        let names: Vec<&str> = ask.topics.iter().map(TopicName::as_str).collect();
        assert_eq!(names, ["a", "b/c", "d,e"]);
    }

    #[test]
    fn topics_that_make_no_stream() {
        assert_eq!(ask("/events", &[]).unwrap_err(), BadAsk::Count { found: 0 });
        let many: Vec<String> = (0..=CURSORS_MAX).map(|n| n.to_string()).collect();
        let many = format!("/events?topics={}", many.join(","));
        assert_eq!(ask(&many, &[]).unwrap_err(), BadAsk::Count { found: CURSORS_MAX + 1 });
        assert!(matches!(ask("/events?topics=a&topic=a", &[]), Err(BadAsk::Twice(_))));
        assert!(matches!(ask("/events?topics=%7Ba", &[]), Err(BadAsk::Topic(_))));
    }

    #[test]
    fn each_beginning() {
        let from = |text: &str| ask(&format!("/events?topics=a&from={text}"), &[]).map(|ask| ask.fresh);
        assert_eq!(from("now"), Ok(Begin::Now));
        assert_eq!(from("earliest"), Ok(Begin::Earliest));
        assert_eq!(from("last"), Ok(Begin::Last));
        assert_eq!(from("since:12"), Ok(Begin::Since(WallTime(12))));
        assert!(from("since:x").is_err() && from("0").is_err());
    }

    #[test]
    fn only_who_asks_for_a_status_gets_one() {
        let style = |uri: &str, accept: &[u8]| ask(uri, &[("accept", accept)]).unwrap().style;
        assert_eq!(style("/events?topics=a", b"text/event-stream"), Style::EventSource);
        assert_eq!(style("/events?topics=a", b"*/*"), Style::EventSource);
        assert_eq!(style("/events?topics=a&client=fetch", b"text/event-stream"), Style::Fetch);
        assert_eq!(style("/events?topics=a", b"text/event-stream, Application/JSON;q=0.5"), Style::Fetch);
    }
}
