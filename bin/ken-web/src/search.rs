//! Web search. The providers are tried in the order SearXNG, Brave, Ollama until one returns results.

use std::fmt;
use std::time::Instant;

use ken_types::{Code, Error, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::cache::Cache;
use crate::fetch::web_url;
use crate::http::{Http, Received};
use crate::page_text::{line, snippet};

/// The maximum number of bytes that are read of a provider's response.
const MAX_ANSWER_BYTES: usize = 2 * 1024 * 1024;
const MAX_DEPTH: usize = 64;
const MAX_TITLE_CHARACTERS: usize = 300;
/// The maximum length of a result's text, in characters. Some providers send the content of the page, most send one
/// line.
const MAX_SNIPPET_CHARACTERS: usize = 4_000;
const MAX_QUERY_CHARACTERS: usize = 400;

/// A page that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hit {
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) snippet: String,
}

/// The failure of a search provider or of a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Failed {
    /// The name of a provider, or a URL.
    pub(crate) at: String,
    pub(crate) error: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.error)
    }
}

/// The result of one query.
#[derive(Debug)]
pub(crate) struct Found {
    /// The last provider that replied; `None` if none did.
    pub(crate) provider: Option<&'static str>,
    pub(crate) hits: Vec<Hit>,
    pub(crate) failures: Vec<Failed>,
    pub(crate) cached: bool,
}

/// A search provider, with its key.
pub(crate) enum Provider {
    SearXng { url: Url },
    Brave { url: Url, key: String },
    Ollama { url: Url, key: String },
}

impl Provider {
    /// Returns the configured providers, first choice first.
    pub(crate) fn configured(
        variable: impl Fn(&str) -> Option<String>,
        secret: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Provider>, Error> {
        let base = |name: &str, default: &str| {
            let text = variable(name).unwrap_or_else(|| default.to_owned());
            web_url(&text).map_err(|error| Error::invalid(name, error.message))
        };
        let mut providers = Vec::new();
        if variable("KEN_SEARCH_URL").is_some() {
            let url = base("KEN_SEARCH_URL", "")?;
            providers.push(Provider::SearXng { url });
        }
        if let Some(key) = secret("BRAVE_SEARCH_API_KEY") {
            let url = base("BRAVE_SEARCH_BASE_URL", "https://api.search.brave.com")?;
            providers.push(Provider::Brave { url, key });
        }
        if let Some(key) = secret("OLLAMA_API_KEY") {
            let url = base("OLLAMA_SEARCH_BASE_URL", "https://ollama.com")?;
            providers.push(Provider::Ollama { url, key });
        }
        Ok(providers)
    }

    fn name(&self) -> &'static str {
        match self {
            Provider::SearXng { .. } => "searxng",
            Provider::Brave { .. } => "brave",
            Provider::Ollama { .. } => "ollama",
        }
    }

    fn url(&self) -> &Url {
        match self {
            Provider::SearXng { url } | Provider::Brave { url, .. } | Provider::Ollama { url, .. } => url,
        }
    }

    pub(crate) fn host(&self) -> (String, u16) {
        let url = self.url();
        (url.host_str().unwrap_or_default().to_owned(), url.port_or_known_default().unwrap_or_default())
    }

    fn ask(&self, http: &Http, query: &str, count: usize, until: Instant) -> Result<Vec<Hit>, Error> {
        let at = |path: &str| {
            let mut url = self.url().clone();
            let base = url.path().trim_end_matches('/').to_owned();
            if !base.ends_with(path) {
                url.set_path(&format!("{base}{path}"));
            }
            url
        };
        let get = |mut url: Url, parameter: (&str, &str), headers: &[(&str, &str)]| {
            url.query_pairs_mut().append_pair("q", query).append_pair(parameter.0, parameter.1);
            http.get(url.as_str(), headers, MAX_ANSWER_BYTES, until)
        };
        let accept = ("accept", "application/json");
        let (received, place, text) = match self {
            Provider::SearXng { .. } => (get(at("/search"), ("format", "json"), &[accept])?, "/results", "content"),
            Provider::Brave { key, .. } => {
                let headers = [accept, ("x-subscription-token", key.as_str())];
                let url = at("/res/v1/web/search");
                let received = get(url, ("count", &count.to_string()), &headers)?;
                (received, "/web/results", "description")
            }
            Provider::Ollama { key, .. } => {
                let bearer = format!("Bearer {key}");
                let body = serde_json::json!({"query": query, "max_results": count.min(10)});
                let url = at("/api/web_search");
                let headers = [("authorization", bearer.as_str())];
                let received = http.post(url.as_str(), &headers, &body, MAX_ANSWER_BYTES, until)?;
                (received, "/results", "content")
            }
        };
        let answer = self.answer(received)?;
        // If there are no results, some providers send an empty list and others omit the list.
        let results = answer.pointer(place).and_then(Value::as_array);
        let hits = results.into_iter().flatten();
        Ok(hits.filter_map(|result| hit(result, text)).take(count).collect())
    }

    fn answer(&self, received: Received) -> Result<Value, Error> {
        match received.status.as_u16() {
            200 => {}
            status @ (401 | 403) => {
                // The caller learns only the messages of those that have failed.
                let remedy = match self {
                    Provider::SearXng { .. } => "its settings.yml has to allow `json` in search.formats",
                    Provider::Brave { .. } => "is BRAVE_SEARCH_API_KEY right?",
                    Provider::Ollama { .. } => "is OLLAMA_API_KEY right?",
                };
                return Err(Error::new(Code::Unauthenticated, format!("answered {status}: {remedy}")));
            }
            429 => {
                return Err(Error::busy("has no room for more searches now", 60_000));
            }
            status => return Err(Error::unavailable(format!("answered {status}"))),
        }
        if received.cut {
            return Err(Error::too_large(format!("sent more than {MAX_ANSWER_BYTES} bytes")));
        }
        json::parse_output(&received.body, MAX_DEPTH)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| Error::unavailable("did not send the JSON of a search"))
    }
}

/// Returns a hit, or `None` if the result has no usable address.
fn hit(result: &Value, text: &str) -> Option<Hit> {
    let field = |name: &str| result.get(name).and_then(Value::as_str).unwrap_or_default();
    Some(Hit {
        url: web_url(field("url")).ok()?.to_string(),
        title: snippet(field("title"), MAX_TITLE_CHARACTERS),
        snippet: snippet(field(text), MAX_SNIPPET_CHARACTERS),
    })
}

pub(crate) struct Searcher {
    http: Http,
    providers: Vec<Provider>,
}

impl Searcher {
    pub(crate) fn new(http: Http, providers: Vec<Provider>) -> Searcher {
        Searcher { http, providers }
    }

    /// Searches with the first provider. If it fails or finds nothing, the next one is tried. Failures of providers are
    /// part of the result. Fails with `unavailable` if no provider is configured.
    pub(crate) fn search(&self, cache: &Cache, query: &str, count: usize, until: Instant) -> Result<Found, Error> {
        if self.providers.is_empty() {
            return Err(Error::unavailable("no search provider is configured").hint(
                "KEN_SEARCH_URL is the address of a SearXNG server, BRAVE_SEARCH_API_KEY or OLLAMA_API_KEY the key of a service",
            ));
        }
        let query = line(query, MAX_QUERY_CHARACTERS);
        let mut found = Found { provider: None, hits: Vec::new(), failures: Vec::new(), cached: false };
        for provider in &self.providers {
            let key = format!("{} {count} {query}", provider.url());
            if let Some(hits) = cache.get(provider.name(), &key) {
                return Ok(Found { provider: Some(provider.name()), hits, cached: true, ..found });
            }
            match provider.ask(&self.http, &query, count, until) {
                Ok(hits) => {
                    found.provider = Some(provider.name());
                    if !hits.is_empty() {
                        cache.put(provider.name(), &key, &hits);
                        return Ok(Found { hits, ..found });
                    }
                }
                Err(error) => found.failures.push(Failed { at: provider.name().to_owned(), error: error.message }),
            }
        }
        Ok(found)
    }
}
