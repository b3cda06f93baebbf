//! Research: plans queries, searches, fetches, ranks and selects passages, within a budget that the depth determines.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ken_types::Error;
use ken_types::event::estimated_tokens;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::fetch::{Page, digest, web_url};
use crate::plan::queries;
use crate::rank::{Packed, pack, terms};
use crate::search::{Failed, Hit};
use crate::source::{Source, fenced};
use crate::web::Web;

/// The number of pages that are fetched at the same time.
const AT_ONCE: usize = 4;
/// If the text of a search result has at least this many characters, it is used as the page itself.
const MIN_WHOLE_SNIPPET: usize = 1_500;
/// The estimated number of tokens for the marks around a source, its title and its address. The sentence before all sources takes
/// at most as many.
const FRAME_TOKENS: u64 = 90;
/// The maximum number of failures that are reported.
const MAX_FAILURES: usize = 20;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Question {
    pub(crate) question: String,
    /// Queries given by the caller. They come before the planned ones.
    #[serde(default)]
    pub(crate) queries: Vec<String>,
    #[serde(default)]
    pub(crate) depth: Depth,
    pub(crate) max_context_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) web_fetch: WebFetch,
    pub(crate) fetch_top_k: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Depth {
    Basic,
    #[default]
    Standard,
    Deep,
}

/// Whether pages are fetched, or the text of the search results is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WebFetch {
    /// Pages are fetched, unless the search returned their content.
    #[default]
    Auto,
    Always,
    Never,
}

struct Budget {
    searches: usize,
    /// The number of results per search.
    results: usize,
    fetches: usize,
    tokens: u64,
    time: Duration,
}

const MAX_TOKENS: u64 = 7_500;
const MIN_TOKENS: u64 = 200;
const MAX_FETCHES: usize = 20;

impl Depth {
    fn budget(self) -> Budget {
        let (searches, results, fetches, tokens, seconds) = match self {
            Depth::Basic => (1, 5, 2, 2_000, 15),
            Depth::Standard => (2, 8, 5, 4_000, 30),
            Depth::Deep => (4, 10, 10, MAX_TOKENS, 60),
        };
        Budget { searches, results, fetches, tokens, time: Duration::from_secs(seconds) }
    }
}

impl Question {
    fn budget(&self) -> Result<Budget, Error> {
        let invalid = |at: &str, why: String| Err(Error::invalid(at, why));
        if self.question.trim().is_empty() {
            return invalid("/question", "the question is blank".to_owned());
        }
        let mut budget = self.depth.budget();
        if let Some(tokens) = self.max_context_tokens {
            if !(MIN_TOKENS..=MAX_TOKENS).contains(&tokens) {
                let message = format!("{tokens} is not {MIN_TOKENS} to {MAX_TOKENS}");
                return invalid("/maxContextTokens", message);
            }
            budget.tokens = tokens;
        }
        if let Some(fetches) = self.fetch_top_k {
            if !(1..=MAX_FETCHES).contains(&fetches) {
                return invalid("/fetchTopK", format!("{fetches} is not 1 to {MAX_FETCHES}"));
            }
            budget.fetches = fetches;
        }
        Ok(budget)
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Researched {
    pub(crate) question: String,
    pub(crate) depth: Depth,
    pub(crate) queries: Vec<String>,
    pub(crate) confidence: Confidence,
    /// All sources as one text for a model.
    pub(crate) context: String,
    pub(crate) sources: Vec<Source>,
    pub(crate) failures: Vec<Failed>,
    pub(crate) used: Used,
}

/// How well the sources can support an answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Confidence {
    /// From 0 to 1.
    pub(crate) score: f64,
    pub(crate) level: &'static str,
}

/// How much of the budget was used.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Used {
    pub(crate) searches: usize,
    pub(crate) fetches: usize,
    /// The number of searches and pages found in the cache.
    pub(crate) cached: usize,
    pub(crate) context_tokens: u64,
    pub(crate) max_context_tokens: u64,
    pub(crate) duration_ms: u64,
}

pub(crate) fn research(web: &Web, question: &Question) -> Result<Researched, Error> {
    let begun = Instant::now();
    let budget = question.budget()?;
    let until = begun + budget.time;
    let mut used = Used { max_context_tokens: budget.tokens, ..Used::default() };
    let queries = queries(&question.question, &question.queries, budget.searches);
    let mut failures = Vec::new();
    let mut hits = named(&question.question);
    match search(web, &queries, &budget, until, &mut used, &mut failures) {
        Ok(found) => hits.extend(found),
        // If the search fails, the addresses named in the question can still be used.
        Err(error) if hits.is_empty() => return Err(error),
        Err(error) => failures.push(Failed { at: "search".to_owned(), error: error.message }),
    }
    let pages = fetch(web, question, &hits, &budget, until, &mut used, &mut failures);
    let texts: Vec<&str> = pages.iter().map(|page| page.text.as_str()).collect();
    let packed = packed(&question.question, &texts, budget.tokens);
    let sources: Vec<Source> =
        (1..).zip(packed).filter_map(|(number, packed)| source(number, packed, &pages)).collect();
    let confidence = confidence(&question.question, &sources);
    let context = fenced(&sources)?;
    used.context_tokens = estimated_tokens(&context);
    used.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    failures.truncate(MAX_FAILURES);
    web.cache.prune();
    Ok(Researched {
        question: question.question.clone(),
        depth: question.depth,
        queries,
        confidence,
        context,
        sources,
        failures,
        used,
    })
}

/// Returns the addresses that the question itself names. They are fetched even if no search finds them.
fn named(question: &str) -> Vec<Hit> {
    let words = question.split_whitespace();
    let words = words.map(|word| word.trim_matches(|c: char| "()<>[]\"'.,;!?".contains(c)));
    let urls = words.filter(|word| word.starts_with("http://") || word.starts_with("https://"));
    urls.filter_map(|word| web_url(word).ok())
        .map(|url| Hit { title: String::new(), url: url.to_string(), snippet: String::new() })
        .collect()
}

/// Returns the passages that fit into the budget together with the marks around them.
fn packed(question: &str, texts: &[&str], tokens: u64) -> Vec<Packed> {
    let mut room = tokens.saturating_sub(2 * FRAME_TOKENS);
    loop {
        let packed = pack(question, texts, room);
        let frames = FRAME_TOKENS * packed.len() as u64;
        let taken: u64 = packed.iter().map(|packed| estimated_tokens(&packed.text)).sum();
        if taken + frames + FRAME_TOKENS <= tokens || room <= FRAME_TOKENS {
            return packed;
        }
        room = room.saturating_sub(frames.max(FRAME_TOKENS));
    }
}

/// Returns the hits of all queries. Hits that several queries found, or ranked high, come first (reciprocal rank
/// fusion).
fn search(
    web: &Web,
    queries: &[String],
    budget: &Budget,
    until: Instant,
    used: &mut Used,
    failures: &mut Vec<Failed>,
) -> Result<Vec<Hit>, Error> {
    let mut fused: Vec<(f64, Hit)> = Vec::new();
    for query in queries {
        let found = web.searcher.search(&web.cache, query, budget.results, until)?;
        used.searches += 1;
        used.cached += usize::from(found.cached);
        for failure in found.failures {
            if !failures.contains(&failure) {
                failures.push(failure);
            }
        }
        for (place, hit) in found.hits.into_iter().enumerate() {
            let score = 1.0 / (60.0 + f64::from(u32::try_from(place).unwrap_or(u32::MAX)));
            let key = same_page(&hit.url);
            match fused.iter_mut().find(|(_, known)| same_page(&known.url) == key) {
                Some((known, _)) => *known += score,
                None => fused.push((score, hit)),
            }
        }
    }
    fused.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    Ok(fused.into_iter().map(|(_, hit)| hit).collect())
}

/// Returns a URL without the parts that do not identify the page.
fn same_page(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else {
        return url.to_owned();
    };
    let is_campaign = |name: &str| name.starts_with("utm_") || matches!(name, "fbclid" | "gclid");
    let kept: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| !is_campaign(name))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    url.set_query(None);
    if !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(kept);
    }
    let text = url.to_string();
    let text = text.trim_end_matches('/');
    text.split_once("://").map_or(text, |(_, rest)| rest.trim_start_matches("www.")).to_owned()
}

/// A page, or a search hit that is used in place of its page.
struct Material {
    url: String,
    title: String,
    text: String,
    fetched: bool,
}

impl Material {
    fn of_hit(hit: &Hit) -> Material {
        Material { url: hit.url.clone(), title: hit.title.clone(), text: hit.snippet.clone(), fetched: false }
    }

    fn of_page(hit: &Hit, page: Page) -> Material {
        Material {
            url: page.url,
            title: if page.title.is_empty() { hit.title.clone() } else { page.title },
            text: page.text,
            fetched: true,
        }
    }
}

/// Returns the best hits. Those whose pages are wanted and can be fetched have the text of the page.
fn fetch(
    web: &Web,
    question: &Question,
    hits: &[Hit],
    budget: &Budget,
    until: Instant,
    used: &mut Used,
    failures: &mut Vec<Failed>,
) -> Vec<Material> {
    let wants = |hit: &Hit| match question.web_fetch {
        WebFetch::Never => false,
        WebFetch::Always => true,
        WebFetch::Auto => hit.snippet.len() < MIN_WHOLE_SNIPPET,
    };
    let wanted: Vec<usize> =
        (0..hits.len()).filter(|place| hits.get(*place).is_some_and(wants)).take(budget.fetches).collect();
    used.fetches = wanted.len();
    let mut pages = fetch_all(web, hits, &wanted, until);
    let mut materials = Vec::new();
    for (place, hit) in hits.iter().enumerate() {
        match pages.remove(&place) {
            Some(Ok((page, cached))) => {
                used.cached += usize::from(cached);
                materials.push(Material::of_page(hit, page));
            }
            Some(Err(error)) => {
                let at = web_url(&hit.url).map_or_else(|_| hit.url.clone(), |url| url.to_string());
                failures.push(Failed { at, error: error.message });
                materials.push(Material::of_hit(hit));
            }
            None => materials.push(Material::of_hit(hit)),
        }
    }
    // Two addresses of the same page count as one source.
    let mut seen = HashSet::new();
    materials.retain(|material| seen.insert(same_page(&material.url)));
    materials
}

/// A page, and whether it was in the cache.
type Fetched = Result<(Page, bool), Error>;

/// Fetches the pages of the hits with these indices, `AT_ONCE` at a time. Returns them by index.
fn fetch_all(web: &Web, hits: &[Hit], wanted: &[usize], until: Instant) -> HashMap<usize, Fetched> {
    let (sender, receiver) = mpsc::channel();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(wanted.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(place) = wanted.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                    && let Some(hit) = hits.get(*place)
                {
                    let page = web.fetcher.page(&web.cache, &hit.url, until);
                    // The receiver outlives every sender.
                    _ = sender.send((*place, page));
                }
            });
        }
    });
    drop(sender);
    receiver.into_iter().collect()
}

fn source(number: usize, packed: Packed, pages: &[Material]) -> Option<Source> {
    let page = pages.get(packed.page)?;
    Some(Source {
        id: format!("web-{number}"),
        title: page.title.clone(),
        url: page.url.clone(),
        digest: digest(&packed.text),
        text: packed.text,
        score: rounded(packed.score),
        fetched: page.fetched,
    })
}

fn rounded(score: f64) -> f64 {
    (score * 1_000.0).round() / 1_000.0
}

/// Returns the confidence, a sum of three terms: up to 0.6 for the share of the question's words that the sources
/// contain, up to 0.3 for the number of hosts (three or more), and up to 0.1 for the share of sources that were fetched
/// as pages.
fn confidence(question: &str, sources: &[Source]) -> Confidence {
    let share = |part: usize, whole: usize| {
        f64::from(u32::try_from(part).unwrap_or(u32::MAX)) / f64::from(u32::try_from(whole.max(1)).unwrap_or(u32::MAX))
    };
    let question_terms: HashSet<String> = terms(question).into_iter().collect();
    let source_terms: HashSet<String> = sources.iter().flat_map(|source| terms(&source.text)).collect();
    let host = |source: &Source| Some(Url::parse(&source.url).ok()?.host_str()?.to_owned());
    let hosts: HashSet<Option<String>> = sources.iter().map(host).collect();
    let covered = share(question_terms.intersection(&source_terms).count(), question_terms.len());
    let fetched = sources.iter().filter(|source| source.fetched).count();
    let read = share(fetched, sources.len());
    let score =
        if sources.is_empty() { 0.0 } else { rounded(0.6 * covered + 0.3 * share(hosts.len().min(3), 3) + 0.1 * read) };
    let level = match score {
        score if score >= 0.75 => "high",
        score if score >= 0.45 => "medium",
        _ => "low",
    };
    Confidence { score, level }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_the_same_under_other_spellings() {
        assert_eq!(
            same_page("https://www.a.test/x/?utm_source=y#z".trim_end_matches("#z")),
            same_page("http://a.test/x")
        );
        assert_ne!(same_page("https://a.test/x?id=1"), same_page("https://a.test/x?id=2"));
    }

    #[test]
    fn addresses_in_the_question_are_read() {
        let hits = named("What does <https://a.test/x?y=1> say, and (http://b.test/)? Not ftp://c.test or http://.");
        let urls: Vec<&str> = hits.iter().map(|hit| hit.url.as_str()).collect();
        assert_eq!(urls, ["https://a.test/x?y=1", "http://b.test/"]);
    }

    #[test]
    fn no_sources_give_no_confidence() {
        assert_eq!(confidence("tides", &[]), Confidence { score: 0.0, level: "low" });
        let source = |host: &str, text: &str| Source {
            id: "web-1".into(),
            title: String::new(),
            url: format!("http://{host}/"),
            text: text.into(),
            digest: String::new(),
            score: 1.0,
            fetched: true,
        };
        let one = confidence("high tide", &[source("a", "The tide is high.")]);
        let three = ["a", "b", "c"].map(|host| source(host, "The tide is high."));
        assert_eq!((one.score, confidence("high tide", &three).score), (0.8, 1.0));
    }

    /// The second hit of one query is also the second of the other one, under another spelling.
    #[test]
    fn a_page_that_two_queries_found_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let http = || crate::http::Http::new(ken_types::address::Allowed::parse("", "").unwrap()).unwrap();
        let provider = crate::search::Provider::SearXng { url: web_url("http://search.test").unwrap() };
        let web = Web {
            fetcher: crate::fetch::Fetcher::new(http()),
            searcher: crate::search::Searcher::new(http(), vec![provider]),
            cache: crate::cache::Cache::new(Some(folder.path().to_owned()), ""),
        };
        let hit = |url: &str| Hit { title: String::new(), url: url.to_owned(), snippet: String::new() };
        web.cache.put("searxng", "http://search.test/ 5 one", &["http://a.test/", "http://b.test/"].map(hit));
        web.cache.put("searxng", "http://search.test/ 5 two", &["http://c.test/", "http://www.b.test"].map(hit));
        let (mut used, mut failures) = (Used::default(), Vec::new());
        let queries = ["one", "two"].map(str::to_owned);
        let until = Instant::now() + Duration::from_secs(60);
        let found = search(&web, &queries, &Depth::Basic.budget(), until, &mut used, &mut failures).unwrap();
        let urls: Vec<&str> = found.iter().map(|hit| hit.url.as_str()).collect();
        assert_eq!(urls, ["http://b.test/", "http://a.test/", "http://c.test/"]);
        assert_eq!((used.searches, used.cached), (2, 2));
    }

    #[test]
    fn the_limits_of_a_question() {
        let budget = |field: &str, value: usize| {
            let question = serde_json::json!({"question": "tides", field: value});
            let question: Question = serde_json::from_value(question).unwrap();
            question.budget().map(drop).map_err(|error| error.at.unwrap_or_default())
        };
        for (field, min, max) in
            [("maxContextTokens", MIN_TOKENS as usize, MAX_TOKENS as usize), ("fetchTopK", 1, MAX_FETCHES)]
        {
            for (value, fits) in [(min - 1, false), (min, true), (max, true), (max + 1, false)] {
                let expected = if fits { Ok(()) } else { Err(format!("/{field}")) };
                assert_eq!(budget(field, value), expected, "{value}");
            }
        }
    }
}
