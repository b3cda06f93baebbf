//! Fetches one page: checks robots.txt, redirects, size and type, and extracts the text.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ken_types::ops::streams::media_type;
use ken_types::{Error, hex};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::Url;

use crate::cache::Cache;
use crate::charset;
use crate::http::{Http, Received};
use crate::page_text::{self, PageText};
use crate::robots::Robots;

/// The maximum number of bytes that are read of a page.
const MAX_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// The maximum number of bytes that are read of a robots.txt (RFC 9309, 2.5).
const MAX_ROBOTS_BYTES: usize = 500 * 1024;
/// How long the rules of a server are kept, and of how many servers.
const ROBOTS_AGE: Duration = Duration::from_secs(3_600);
const MAX_ROBOTS: usize = 64;
const REDIRECTS: usize = 5;
const URL_BYTES: usize = 2_048;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    /// Its address after all redirects.
    pub(crate) url: String,
    /// The title; empty if the page has none.
    pub(crate) title: String,
    pub(crate) text: String,
    /// The SHA-256 digest of the text.
    pub(crate) digest: String,
    /// Whether only a part of the page was read because it is too long.
    pub(crate) truncated: bool,
}

#[derive(Debug)]
pub(crate) struct Fetcher {
    http: Http,
    /// The rules of servers, by origin, and when they were fetched.
    robots: Mutex<HashMap<String, (Instant, Arc<Robots>)>>,
}

/// Parses a URL. It must be http or https, with a host and without a user.
pub(crate) fn web_url(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| Error::invalid("/url", why.to_owned());
    if text.len() > URL_BYTES {
        return Err(wrong("a URL has at most 2048 bytes"));
    }
    let mut url = Url::parse(text).map_err(|error| wrong(&format!("not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("only http and https are fetched"));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("the URL has no host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("the URL holds a user name, which is not sent"));
    }
    url.set_fragment(None);
    Ok(url)
}

impl Fetcher {
    pub(crate) fn new(http: Http) -> Fetcher {
        Fetcher { http, robots: Mutex::default() }
    }

    /// Returns the page, and whether it was in the cache.
    pub(crate) fn page(&self, cache: &Cache, url: &str, until: Instant) -> Result<(Page, bool), Error> {
        let url = web_url(url)?;
        if let Some(page) = cache.get("page", url.as_str()) {
            return Ok((page, true));
        }
        let page = self.fetch(cache, url.clone(), until)?;
        cache.put("page", url.as_str(), &page);
        Ok((page, false))
    }

    fn fetch(&self, cache: &Cache, mut url: Url, until: Instant) -> Result<Page, Error> {
        for _ in 0..=REDIRECTS {
            if !self.rules(cache, &url, until)?.allows(&url[url::Position::BeforePath..]) {
                let message = format!("robots.txt of {} forbids this page", host(&url));
                return Err(Error::forbidden(message));
            }
            let headers = [("accept", "text/html, text/plain;q=0.9, */*;q=0.1")];
            let received = self.http.get(url.as_str(), &headers, MAX_PAGE_BYTES, until)?;
            match redirection(&url, &received)? {
                Some(next) => url = next,
                None => return page(&url, received, until),
            }
        }
        Err(unusable(&url, &format!("redirects more than {REDIRECTS} times")))
    }

    /// Returns the rules of the server of a URL, which are fetched once an hour. A file keeps them for the next process.
    fn rules(&self, cache: &Cache, url: &Url, until: Instant) -> Result<Arc<Robots>, Error> {
        let origin = url.origin().ascii_serialization();
        let known = || self.robots.lock();
        if let Some((at, robots)) = known().get(&origin)
            && at.elapsed() < ROBOTS_AGE
        {
            return Ok(robots.clone());
        }
        let robots = match cache.get("robots", &origin) {
            Some(robots) => robots,
            None => {
                let robots = self.robots(url, until)?;
                // A server that fails is asked again for the next page.
                if robots.is_closed() {
                    return Ok(Arc::new(robots));
                }
                cache.put("robots", &origin, &robots);
                robots
            }
        };
        let robots = Arc::new(robots);
        let mut known = known();
        if known.len() >= MAX_ROBOTS {
            known.clear();
        }
        known.insert(origin, (Instant::now(), robots.clone()));
        Ok(robots)
    }

    /// Returns the rules of a server. If it has no robots.txt, everything is allowed. If the file cannot be fetched,
    /// everything is forbidden (RFC 9309, 2.3.1).
    fn robots(&self, url: &Url, until: Instant) -> Result<Robots, Error> {
        let mut at = url.clone();
        at.set_path("/robots.txt");
        at.set_query(None);
        for _ in 0..=REDIRECTS {
            let headers = [("accept", "text/plain")];
            let received = self.http.get(at.as_str(), &headers, MAX_ROBOTS_BYTES, until)?;
            if let Some(next) = redirection(&at, &received)? {
                at = next;
                continue;
            }
            return Ok(match received.status.as_u16() {
                200..=299 => Robots::parse(&String::from_utf8_lossy(&received.body)),
                400..=499 => Robots::default(),
                _ => Robots::closed(),
            });
        }
        Ok(Robots::closed())
    }
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

fn unusable(url: &Url, why: &str) -> Error {
    Error::unavailable(format!("{} {why}", host(url)))
}

/// Returns the target of a redirect, if there is one. The next request checks its address.
fn redirection(from: &Url, received: &Received) -> Result<Option<Url>, Error> {
    if !matches!(received.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let wrong = || unusable(from, "redirects to nowhere");
    // Many servers send UTF-8 here, which the URL then has escaped.
    let location = received.headers.get("location").ok_or_else(wrong)?;
    let next = from.join(&String::from_utf8_lossy(location.as_bytes())).map_err(|_| wrong())?;
    web_url(next.as_str()).map(Some)
}

fn page(url: &Url, received: Received, until: Instant) -> Result<Page, Error> {
    let status = received.status;
    if !status.is_success() {
        return Err(unusable(url, &format!("answered {}", status.as_u16())));
    }
    let content_type = received.header("content-type").unwrap_or("text/html");
    let kind = media_type(content_type);
    let text = charset::decode(&received.body, Some(content_type));
    let PageText { title, text, cut } = match kind.as_str() {
        "text/html" | "application/xhtml+xml" => page_text::of_html(text, until)?,
        kind if is_text(kind) => page_text::of_plain(&text),
        kind => {
            let kind = page_text::line(kind, 80);
            return Err(unusable(url, &format!("sent {kind}, which is not text")));
        }
    };
    if text.trim().is_empty() {
        return Err(unusable(url, "sent a page without text"));
    }
    let (title, truncated) = (title.unwrap_or_default(), received.cut || cut);
    Ok(Page { url: url.to_string(), title, digest: digest(&text), text, truncated })
}

/// Whether content of a media type is text, such as a feed, whose type is `application/rss+xml`.
fn is_text(kind: &str) -> bool {
    let is_text_of_programs = |format| ["json", "xml", "yaml", "javascript"].contains(&format);
    match kind.split_once('/') {
        Some(("text", _)) => true,
        Some((_, format)) => is_text_of_programs(format.rsplit_once('+').map_or(format, |(_, suffix)| suffix)),
        None => false,
    }
}

pub(crate) fn digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_are_asked_for() {
        for wrong in [
            "file:///etc/passwd", "ftp://a.test/", "http://user@a.test/", "http://:pw@a.test/", "gopher://a.test",
            "a.test", "http://", "javascript:alert(1)", "data:text/html,x",
        ] {
            assert_eq!(web_url(wrong).unwrap_err().at.as_deref(), Some("/url"), "{wrong}");
        }
        assert_eq!(web_url("HTTP://A.test/x#part").unwrap().as_str(), "http://a.test/x");
        let url = |length: usize| format!("http://a.test/{}", "x".repeat(length - "http://a.test/".len()));
        assert!(web_url(&url(URL_BYTES)).is_ok() && web_url(&url(URL_BYTES + 1)).is_err());
        // All notations of 127.0.0.1 are normalised before the address is checked.
        for same in
            ["http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://①②⑦.0.0.1/", "http://１２７。０。０。１/"]
        {
            assert_eq!(web_url(same).unwrap().host_str(), Some("127.0.0.1"), "{same}");
        }
        // Names in other scripts are asked for as the DNS has them.
        for (name, host) in [
            ("http://MÜNCHEN.test/", "xn--mnchen-3ya.test"),
            ("http://faß.test/", "xn--fa-hia.test"),
            ("http://例え。テスト/", "xn--r8jz45g.xn--zckzah"),
        ] {
            assert_eq!(web_url(name).unwrap().host_str(), Some(host), "{name}");
        }
    }
}
