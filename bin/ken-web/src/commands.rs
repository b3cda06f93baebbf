//! The commands: `ken-web search`, `ken-web fetch`, `ken-web research`.

use std::cell::OnceCell;
use std::fmt;
use std::time::{Duration, Instant};

use clap::Args;
use ken_text::for_terminal;
use ken_tool::{Answer, Error, Filter, MAX_DEPTH, Replied, Reply};
use ken_types::json;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::fetch::Page;
use crate::research::{Confidence, Question, Researched, research};
use crate::search::{Failed, Hit};
use crate::source::{Source, fenced};
use crate::web::Web;

/// The time limit for one search or one page.
const TIME: Duration = Duration::from_secs(30);
const MAX_RESULTS: usize = 20;

/// The shared state, which is opened for the first input and kept for the others.
#[derive(Default)]
struct Opened(OnceCell<Web>);

impl Opened {
    fn get(&self) -> Result<&Web, Error> {
        if let Some(web) = self.0.get() {
            return Ok(web);
        }
        let web = Web::open()?;
        Ok(self.0.get_or_init(|| web))
    }
}

fn read<T: DeserializeOwned>(input: &str) -> Result<T, Error> {
    json::from_value(json::parse(input.as_bytes(), MAX_DEPTH)?)
}

#[derive(Args)]
pub(crate) struct Search {
    /// The query as JSON, for instance {"query": "tide tables"}
    #[arg(short, long, value_name = "JSON")]
    json: Option<String>,
    #[arg(skip)]
    web: Opened,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    query: String,
    #[serde(default = "ten")]
    limit: usize,
}

fn ten() -> usize {
    10
}

#[derive(Serialize)]
struct Results {
    query: String,
    /// The last provider that replied.
    provider: &'static str,
    results: Vec<Hit>,
    failures: Vec<Failed>,
}

impl Filter for Search {
    const NAME: &'static str = "ken-web search";
    const ABOUT: &'static str = "Search the web: {\"query\": …} in, titles and addresses out";

    fn inline(&self) -> Option<&str> {
        self.json.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let input: Query = read(input)?;
        if input.query.trim().is_empty() {
            return Err(Error::invalid("/query", "the query is blank"));
        }
        if !(1..=MAX_RESULTS).contains(&input.limit) {
            let message = format!("{} is not 1 to {MAX_RESULTS}", input.limit);
            return Err(Error::invalid("/limit", message));
        }
        let web = self.web.get()?;
        let until = Instant::now() + TIME;
        let found = web.searcher.search(&web.cache, &input.query, input.limit, until)?;
        let Some(provider) = found.provider else {
            let failures: Vec<String> = found.failures.iter().map(Failed::to_string).collect();
            return Err(Error::unavailable(failures.join("; ")));
        };
        web.cache.prune();
        Ok(reply.send(&Results { query: input.query, provider, results: found.hits, failures: found.failures }))
    }
}

impl Answer for Results {
    fn summary(&self, _verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for hit in &self.results {
            writeln!(to, "{}\n  {}", for_terminal(&hit.title), for_terminal(&hit.url))?;
        }
        failures(&self.failures, to)
    }
}

fn failures(failures: &[Failed], to: &mut dyn fmt::Write) -> fmt::Result {
    for failed in failures {
        writeln!(to, "failed: {}", for_terminal(&failed.to_string()))?;
    }
    Ok(())
}

#[derive(Args)]
pub(crate) struct Fetch {
    /// The address as JSON, for instance {"url": "https://example.org/"}
    #[arg(short, long, value_name = "JSON")]
    json: Option<String>,
    #[arg(skip)]
    web: Opened,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Address {
    url: String,
}

/// A page, with its text between marks for a model.
#[derive(Serialize)]
struct Fetched {
    #[serde(flatten)]
    page: Page,
    context: String,
}

/// The maximum number of bytes of a page that a model gets.
const MAX_SHOWN_BYTES: usize = 28 * 1024;

impl Filter for Fetch {
    const NAME: &'static str = "ken-web fetch";
    const ABOUT: &'static str = "Fetch a page: {\"url\": …} in, its text out";

    fn inline(&self) -> Option<&str> {
        self.json.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let input: Address = read(input)?;
        let web = self.web.get()?;
        let (page, _) = web.fetcher.page(&web.cache, &input.url, Instant::now() + TIME)?;
        web.cache.prune();
        let source = Source {
            id: "web-1".to_owned(),
            title: page.title.clone(),
            url: page.url.clone(),
            text: ken_text::head(&page.text, MAX_SHOWN_BYTES).to_owned(),
            digest: page.digest.clone(),
            score: 1.0,
            fetched: true,
        };
        let context = fenced(&[source])?;
        Ok(reply.send(&Fetched { page, context }))
    }
}

impl Answer for Fetched {
    fn summary(&self, _verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        let page = &self.page;
        writeln!(to, "{}\n{}\n", for_terminal(&page.title), for_terminal(&page.url))?;
        writeln!(to, "{}", for_terminal(&page.text))
    }
}

#[derive(Args)]
pub(crate) struct Research {
    /// The question as JSON, for instance {"question": "When is high tide?", "depth": "basic"}
    #[arg(short, long, value_name = "JSON")]
    json: Option<String>,
    #[arg(skip)]
    web: Opened,
}

impl Filter for Research {
    const NAME: &'static str = "ken-web research";
    const ABOUT: &'static str = "Search, fetch, rank and pack: {\"question\": …} in, sources for an answer out";

    fn inline(&self) -> Option<&str> {
        self.json.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let input: Question = read(input)?;
        let researched = research(self.web.get()?, &input)?;
        Ok(reply.send(&researched))
    }
}

impl Answer for Researched {
    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        let (count, Confidence { score, level }) = (self.sources.len(), self.confidence);
        writeln!(to, "{count} sources, confidence {level} ({score})")?;
        for source in &self.sources {
            let (title, url) = (for_terminal(&source.title), for_terminal(&source.url));
            writeln!(to, "[{}] {title}\n  {url}", source.id)?;
            if verbose {
                writeln!(to, "{}\n", for_terminal(&source.text))?;
            }
        }
        failures(&self.failures, to)
    }
}
