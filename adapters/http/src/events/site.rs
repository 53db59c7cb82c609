//! Whose page a publish comes from.
//!
//! A page of any site can let a browser send a POST here, with the cookies that the browser has for us and
//! past a firewall that the browser sits behind; only the answer is kept from it. Such a POST is refused.
//! A browser says where the page is from: `Sec-Fetch-Site` where it can, `Origin` with every POST. What
//! says neither is no browser, and carries nobody's cookies.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

/// Where a request comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Site {
    /// A page of ours, or a person who typed the address.
    Ours,
    /// A page of an origin that the embedder named.
    Named,
    /// A program that is no browser.
    Program,
    /// A page of another site, or one whose origin cannot be told.
    Foreign,
}

impl Site {
    /// `origins` are those the embedder named, as browsers write them: `https://app.example`.
    pub(super) fn of(headers: &HeaderMap, origins: &[String]) -> Self {
        let text = |name: &str| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
        let origin: Vec<&str> = text(ORIGIN.as_str()).collect();
        if let [origin] = origin[..]
            && origins.iter().any(|named| named.eq_ignore_ascii_case(origin))
        {
            return Self::Named;
        }
        let sites: Vec<&str> = text("sec-fetch-site").collect();
        match (&sites[..], &origin[..]) {
            (["same-origin" | "none"], _) => Self::Ours,
            ([], []) => Self::Program,
            // An older browser, or one that was reached without TLS.
            ([], [origin]) if is_host(origin, headers) => Self::Ours,
            _ => Self::Foreign,
        }
    }

    pub(super) const fn may_publish(self) -> bool {
        match self {
            Self::Ours | Self::Named | Self::Program => true,
            Self::Foreign => false,
        }
    }
}

/// The scheme is not compared: behind a proxy with TLS ours is another one.
fn is_host(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty());
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.zip(host).is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn site(headers: &[(&str, &str)]) -> Site {
        let header = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers.iter().map(header) {
            map.append(name, value);
        }
        Site::of(&map, &["https://app.example".to_owned()])
    }

    const HOST: (&str, &str) = ("host", "live.example:8080");

    #[test]
    fn ours() {
        assert_eq!(site(&[HOST, ("sec-fetch-site", "same-origin")]), Site::Ours);
        assert_eq!(site(&[HOST, ("sec-fetch-site", "none")]), Site::Ours);
        assert_eq!(site(&[HOST, ("origin", "http://LIVE.example:8080")]), Site::Ours);
        // What the browser says of the site counts before the name that a proxy has changed.
        let behind_a_proxy = [HOST, ("sec-fetch-site", "same-origin"), ("origin", "https://outside.example")];
        assert_eq!(site(&behind_a_proxy), Site::Ours);
    }

    #[test]
    fn named() {
        let named = [HOST, ("sec-fetch-site", "cross-site"), ("origin", "https://app.example")];
        assert_eq!(site(&named), Site::Named);
    }

    #[test]
    fn program() {
        assert_eq!(site(&[HOST]), Site::Program);
    }

    #[test]
    fn foreign() {
        for headers in [
            &[HOST, ("sec-fetch-site", "cross-site")][..],
            &[HOST, ("sec-fetch-site", "same-site"), ("origin", "http://other.live.example")],
            &[HOST, ("sec-fetch-site", "new-word"), ("origin", "http://live.example:8080")],
            &[HOST, ("origin", "http://evil.example")],
            &[HOST, ("origin", "http://live.example")],
            &[HOST, ("origin", "null")],
            &[HOST, ("origin", "")],
            &[("origin", "http://live.example:8080")],
            &[HOST, ("origin", "http://live.example:8080"), ("origin", "http://evil.example")],
            &[HOST, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            &[HOST, ("origin", "https://app.example.evil.example")],
        ] {
            assert_eq!(site(headers), Site::Foreign, "{headers:?}");
        }
    }
}
