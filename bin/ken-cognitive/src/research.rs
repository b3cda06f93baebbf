//! The workflow `research`. The tool `web_research` finds sources, a model answers from them, and each sentence of the
//! answer is compared with them. The steps are recorded and can be repeated, because none of them changes anything.
//!
//! In this workflow the model gets no tools, so the text of a page cannot make it do anything.

use std::time::{Duration, Instant};

use ken_claims::Run;
use ken_types::event::{Block, Failure, Message, ModelName, Usage};
use ken_types::limits::{PIECE_BYTES, WIRE_DEADLINE_MAX_MS};
use ken_types::ops::Nothing;
use ken_types::ops::blobs::{BlobsPut, PutBlob};
use ken_types::ops::cognitive::{SEARCH, Workflow};
use ken_types::ops::model::{Delta, Generate, ModelGenerate, ModelInfo, Source, SourceKind};
use ken_types::ops::store::{BySession, KnowledgeSearch, Scope, Search, SessionsScope};
use ken_types::ops::tools::{CallTool, ListTools, ToolsCall, ToolsList};
use ken_types::places::Places;
use ken_types::{Code, Error, Octets, json as strict};
use ken_wire::Pool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) const NAME: &str = "research";
const TOOL: &str = "web_research";
const AGENT: &str = "research-worker";

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of a tool call. It is longer than the tool's own timeout.
const TOOL_CALL: Duration = Duration::from_secs(120);
/// The maximum number of knowledge entries that are used in addition to web pages.
const MAX_ENTRIES: u32 = 3;
const TEXT_CHARACTERS: usize = 4_000;

/// The payload of a run. Unknown fields are ignored.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    text: String,
    actor_id: Option<String>,
    conversation_id: Option<String>,
    /// The session for which knowledge is searched. Without it, only global knowledge is searched.
    session: Option<String>,
    depth: Option<String>,
    max_context_tokens: Option<u64>,
    web_fetch: Option<String>,
    fetch_top_k: Option<u64>,
}

impl Question {
    /// Reads a payload. An `invalid` error has a pointer into the payload.
    fn read(payload: &Value) -> Result<Question, Error> {
        let question: Question = strict::from_value(payload.clone())?;
        let invalid = |at: &str, why: String| Err(Error::invalid(at, why));
        if question.text.trim().is_empty() {
            return invalid("/text", "text is blank".to_owned());
        }
        if question.text.chars().count() > TEXT_CHARACTERS {
            return invalid("/text", format!("text has more than {TEXT_CHARACTERS} characters"));
        }
        let choices = [
            ("/depth", &question.depth, ["basic", "standard", "deep"]),
            ("/webFetch", &question.web_fetch, ["auto", "always", "never"]),
        ];
        for (at, given, known) in choices {
            if given.as_ref().is_some_and(|given| !known.contains(&given.as_str())) {
                return invalid(at, format!("it must be one of {}", known.join(", ")));
            }
        }
        let ranges = [
            ("/maxContextTokens", question.max_context_tokens, 200..=7_500),
            ("/fetchTopK", question.fetch_top_k, 1..=20),
        ];
        for (at, given, range) in ranges {
            if given.is_some_and(|given| !range.contains(&given)) {
                return invalid(at, format!("it is not {} to {}", range.start(), range.end()));
            }
        }
        Ok(question)
    }

    fn arguments(&self) -> Value {
        let mut arguments = json!({"question": self.text});
        let given = [
            ("depth", json!(self.depth)),
            ("maxContextTokens", json!(self.max_context_tokens)),
            ("webFetch", json!(self.web_fetch)),
            ("fetchTopK", json!(self.fetch_top_k)),
        ];
        for (name, value) in given.into_iter().filter(|(_, value)| !value.is_null()) {
            if let Some(arguments) = arguments.as_object_mut() {
                arguments.insert(name.to_owned(), value);
            }
        }
        arguments
    }
}

/// Returns the description of the workflow for clients.
pub(crate) fn workflow() -> Workflow {
    Workflow {
        name: NAME.to_owned(),
        description: "Searches the web and answers from what it finds, with sources".to_owned(),
        input: json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARACTERS},
                "actorId": {"type": "string"},
                "conversationId": {"type": "string"},
                "session": {"type": "string"},
                "depth": {"enum": ["basic", "standard", "deep"]},
                "maxContextTokens": {"type": "integer", "minimum": 200, "maximum": 7500},
                "webFetch": {"enum": ["auto", "always", "never"]},
                "fetchTopK": {"type": "integer", "minimum": 1, "maximum": 20}
            },
            "required": ["text"]
        }),
    }
}

/// Clients of the parts that the workflow calls.
#[derive(Debug, Clone)]
pub(crate) struct Research {
    tools: Pool,
    model: Pool,
    store: Pool,
}

/// The sources: the fields of the tool's result that are needed later, and knowledge entries.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Material {
    sources: Vec<Page>,
    #[serde(default)]
    entries: Vec<Source>,
    failures: Vec<Value>,
    confidence: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Page {
    id: String,
    title: String,
    url: String,
    text: String,
    digest: String,
    score: f64,
}

/// An answer of the model, before it is compared with the sources.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Draft {
    text: String,
    model: ModelName,
    usage: Usage,
}

/// The end of a run: its result, and the digests of the blobs to which the result refers.
pub(crate) type RunEnd = Result<(Value, Vec<String>), Failure>;

/// Why a run stops: a step failed, or an event could not be recorded because another process has claimed the run.
enum StepError {
    Failed(Failure),
    Lost(Error),
}

impl Research {
    pub(crate) fn new(places: &Places) -> Research {
        Research {
            tools: Pool::new(places.socket("tools")),
            model: Pool::new(places.socket("model")),
            store: Pool::new(places.socket("store")),
        }
    }

    /// Refuses a payload that no run can use, and every payload while no search service is set up.
    pub(crate) async fn check(&self, payload: &Value) -> Result<(), Error> {
        Question::read(payload)?;
        // While ken-tools cannot be asked, a run is accepted, and says itself what it lacks.
        let Ok(listed) = self
            .tools
            .call::<ToolsList>(&ListTools { agent: Some(AGENT.to_owned()), unless: None }, CALL_TIMEOUT)
            .await
        else {
            return Ok(());
        };
        let is_unusable = listed.tools.iter().any(|tool| tool.name == TOOL && !tool.missing.is_empty());
        if !is_unusable {
            return Ok(());
        }
        let error = Error::unavailable("No search service is configured.").at(SEARCH);
        Err(error.hint(
            "Set KEN_SEARCH_URL, the address of a SearXNG server, in the environment of ken up, or put the key of a service into \
             secrets.env: BRAVE_SEARCH_API_KEY or OLLAMA_API_KEY.",
        ))
    }

    /// Executes a run. Fails if it could not be recorded.
    pub(crate) async fn execute(&self, run: &Run, deadline: Instant) -> Result<RunEnd, Error> {
        match self.steps(run, deadline).await {
            Ok(ended) => Ok(Ok(ended)),
            Err(StepError::Failed(failure)) => Ok(Err(failure)),
            Err(StepError::Lost(error)) => Err(error),
        }
    }

    async fn steps(&self, run: &Run, deadline: Instant) -> Result<(Value, Vec<String>), StepError> {
        let failed = |name: &'static str| move |error: Error| StepError::Failed(failure(name, error.to_string()));
        let question = Question::read(run.payload()).map_err(failed("InvalidRequest"))?;
        let found: Material = step(run, "search", self.search(run, &question)).await?;
        let digests = self.keep(&found).await.map_err(failed("StoreUnavailable"))?;
        if found.sources.is_empty() && found.entries.is_empty() {
            return nothing(&found).map(|result| (result, digests)).map_err(StepError::Failed);
        }
        let request = request(&question, &found);
        let mut draft: Draft = step(run, "answer", self.answer(&request, deadline)).await?;
        let mut unsupported = found.unsupported(&draft);
        if !unsupported.is_empty() {
            let again = revision(request, &draft, &unsupported);
            let revised: Draft = step(run, "revise", self.answer(&again, deadline)).await?;
            let usage = draft.usage;
            draft = revised;
            draft.usage += usage;
            unsupported = found.unsupported(&draft);
        }
        Ok((result(&found, draft, &unsupported), digests))
    }

    async fn search(&self, run: &Run, question: &Question) -> Result<Material, Error> {
        let scope = self.scope(question).await?;
        let call = CallTool {
            name: TOOL.to_owned(),
            arguments: question.arguments(),
            agent: Some(AGENT.to_owned()),
            submission: Some(run.id().as_str().to_owned()),
            session: question.session.clone(),
            ..CallTool::default()
        };
        let called = self.tools.call::<ToolsCall>(&call, TOOL_CALL).await?;
        if called.is_error {
            return Err(Error::unavailable(called.result.text()));
        }
        let material: Material = strict::from_value(called.result.details)?;
        let query = Search { query: question.text.clone(), scope, limit: MAX_ENTRIES, vector: None, session: None };
        let entries = self.store.call::<KnowledgeSearch>(&query, CALL_TIMEOUT).await?.found;
        let entries = entries.into_iter().map(|found| Source {
            id: found.entry.id,
            kind: SourceKind::Knowledge,
            title: found.entry.title,
            text: found.entry.content,
            score: found.score,
            origin: "an entry of the knowledge base".to_owned(),
        });
        Ok(Material { entries: entries.collect(), ..material })
    }

    /// Returns the scope of the session. The error is `forbidden` if the actor or the conversation is not that of the
    /// session.
    async fn scope(&self, question: &Question) -> Result<Option<Scope>, Error> {
        let Some(session) = &question.session else {
            return Ok(None);
        };
        let by = BySession { session_id: session.clone() };
        let scope = self.store.call::<SessionsScope>(&by, CALL_TIMEOUT).await?;
        let is_other = |given: &Option<String>, own: &String| given.as_ref().is_some_and(|given| given != own);
        if is_other(&question.actor_id, &scope.actor_id) || is_other(&question.conversation_id, &scope.conversation_id)
        {
            return Err(Error::forbidden(format!("the session {session} belongs to another scope")));
        }
        Ok(Some(scope))
    }

    /// Stores the texts of the sources, so that an answer can be compared with them later.
    async fn keep(&self, found: &Material) -> Result<Vec<String>, Error> {
        for page in &found.sources {
            let piece = PutBlob {
                digest: page.digest.clone(),
                length: page.text.len() as u64,
                offset: 0,
                bytes: Octets(page.text.as_bytes().iter().copied().take(PIECE_BYTES).collect()),
            };
            match self.store.call::<BlobsPut>(&piece, CALL_TIMEOUT).await {
                // If the store is full, continue without stored sources.
                Err(error) if error.code == Code::TooLarge => return Ok(Vec::new()),
                put => put?,
            };
        }
        Ok(found.sources.iter().map(|page| page.digest.clone()).collect())
    }

    /// Asks the models of the list in order, and returns the first answer.
    async fn answer(&self, request: &Generate, deadline: Instant) -> Result<Draft, Error> {
        let state = self.model.call::<ModelInfo>(&Nothing {}, CALL_TIMEOUT).await?;
        let mut failed = Error::unavailable(state.why_none().unwrap_or_default());
        for model in state.models {
            let request = Generate { model: Some(model.clone()), ..request.clone() };
            match self.generate(&request, deadline).await {
                Ok(draft) => return Ok(draft),
                Err(error) => failed = Error { message: format!("{model}: {}", error.message), ..error },
            }
        }
        Err(failed)
    }

    async fn generate(&self, request: &Generate, deadline: Instant) -> Result<Draft, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = left.min(Duration::from_millis(WIRE_DEADLINE_MAX_MS));
        let mut items = self.model.stream::<ModelGenerate>(request, time).await?;
        let mut text = String::new();
        while let Some(item) = items.next().await {
            if let Delta::Text { delta } = item? {
                text.push_str(&delta);
            }
        }
        let end = items.reply().await?;
        if text.trim().is_empty() {
            return Err(Error::unavailable("it gave an empty answer"));
        }
        Ok(Draft { text, model: end.model, usage: end.usage })
    }
}

pub(crate) fn failure(name: &str, message: impl Into<String>) -> Failure {
    Failure { name: name.to_owned(), message: message.into() }
}

/// Executes a step, unless a process that had claimed the run earlier has recorded its result.
async fn step<T>(run: &Run, name: &str, work: impl Future<Output = Result<T, Error>>) -> Result<T, StepError>
where
    T: Serialize + for<'de> Deserialize<'de>,
{
    let ended = |error: &Error| StepError::Failed(failure("StepFailed", format!("{name}: {error}")));
    match run.recorded().step(name) {
        Some(Ok(output)) => return strict::from_value(output.clone()).map_err(|error| ended(&error)),
        Some(Err(error)) => return Err(ended(error)),
        None => {}
    }
    run.begin(name, true).await.map_err(StepError::Lost)?;
    match work.await {
        Ok(output) => {
            let value = serde_json::to_value(&output).map_err(|error| ended(&Error::internal(error.to_string())))?;
            run.done(name, &value).await.map_err(StepError::Lost)?;
            Ok(output)
        }
        Err(error) => {
            run.failed(name, &error).await.map_err(StepError::Lost)?;
            Err(ended(&error))
        }
    }
}

const SYSTEM: &str = "You answer a question from the sources in the message, and from nothing else. Name the id of each source that a \
                      sentence rests on in brackets after it, as in [web-1]. Where sources disagree, say so. What they do not \
                      tell, say that they do not tell it.";

fn request(question: &Question, found: &Material) -> Generate {
    let pages = found.sources.iter().map(|page| Source {
        id: page.id.clone(),
        kind: SourceKind::Web,
        title: format!("{} ({})", page.title, page.url),
        text: page.text.clone(),
        score: page.score.clamp(0.0, 1.0),
        origin: "a page of the web, which anybody may have written".to_owned(),
    });
    Generate {
        system: SYSTEM.to_owned(),
        sources: found.entries.iter().cloned().chain(pages).collect(),
        messages: vec![user(question.text.clone())],
        ..Generate::default()
    }
}

fn user(text: String) -> Message {
    Message::User { content: vec![Block::text(text)], timestamp: 0, now: None }
}

/// Returns the request for a revision: the first request, the draft, and the sentences that no source supports.
fn revision(mut request: Generate, draft: &Draft, unsupported: &[String]) -> Generate {
    request.messages.push(Message::Assistant {
        content: vec![Block::text(&draft.text)],
        api: String::new(),
        provider: draft.model.provider.clone(),
        model: draft.model.id.clone(),
        usage: Usage::default(),
        stop_reason: None,
        error: None,
        timestamp: 0,
    });
    let listed: String = unsupported.iter().map(|sentence| format!("- {sentence}\n")).collect();
    let note = format!(
        "The sources do not carry these sentences of your answer:\n{listed}Write the whole answer again: leave them out, or \
         say only what the sources say."
    );
    // A note, so that the sources stay with the question, where the provider's cache has them.
    request.messages.push(Message::Signal { content: vec![Block::text(note)], timestamp: 0 });
    request
}

impl Material {
    /// Returns the sentences that a source contradicts or that no source supports, without the ids in brackets. Nothing
    /// is checked for the engine `rules`: it quotes its sources word for word, and its other sentences are about
    /// itself.
    fn unsupported(&self, draft: &Draft) -> Vec<String> {
        if draft.model.provider == "rules" {
            return Vec::new();
        }
        let pages = self.sources.iter().map(|page| page.text.as_str());
        let texts: Vec<&str> = pages.chain(self.entries.iter().map(|entry| entry.text.as_str())).collect();
        let plain = without_ids(&draft.text);
        let support = ken_support::support(&plain, &texts);
        let is_lack = |finding: &ken_support::Finding| finding.kind != ken_support::Kind::Uncarried;
        let lacking = support.sentences.iter().filter(|sentence| sentence.findings.iter().any(is_lack));
        lacking
            .filter_map(|sentence| draft.text.get(sentence.span.start..sentence.span.end))
            .map(str::to_owned)
            .collect()
    }
}

/// Replaces `[web-1]` and similar ids by blanks, so that all other bytes keep their offsets.
fn without_ids(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('[') {
        let (before, from) = rest.split_at(start);
        plain.push_str(before);
        let end = from.find(']').filter(|end| {
            let id = from.get(1..*end).unwrap_or_default();
            (id.starts_with("web-") || id.starts_with("kb-")) && id.len() < 64
        });
        let taken = end.map_or(1, |end| end + 1);
        match end {
            Some(_) => plain.extend(std::iter::repeat_n(' ', taken)),
            None => plain.push('['),
        }
        rest = from.get(taken..).unwrap_or_default();
    }
    plain.push_str(rest);
    plain
}

/// Returns the result if no source was found. It is a failure if no source could be reached.
fn nothing(found: &Material) -> Result<Value, Failure> {
    if !found.failures.is_empty() {
        let failures = found.failures.iter().map(|failed| {
            let field = |name: &str| failed.get(name).and_then(Value::as_str).unwrap_or_default();
            format!("{}: {}", field("at"), field("error"))
        });
        let failures: Vec<String> = failures.collect();
        return Err(failure("NothingReached", failures.join("; ")));
    }
    let draft = Draft {
        text: "The search found nothing about this.".to_owned(),
        model: ModelName::default(),
        usage: Usage::default(),
    };
    Ok(result(found, draft, &[]))
}

/// Returns the result. Sentences that no source supports are marked in it.
fn result(found: &Material, draft: Draft, unsupported: &[String]) -> Value {
    let mut text = draft.text;
    for sentence in unsupported {
        text = text.replacen(sentence, &format!("{sentence} [not in the sources]"), 1);
    }
    let pages = found
        .sources
        .iter()
        .map(|page| json!({"id": page.id, "title": page.title, "url": page.url, "digest": page.digest}));
    let entries = found
        .entries
        .iter()
        .map(|entry| json!({"id": entry.id, "title": entry.title, "url": format!("/api/knowledge/{}", entry.id)}));
    json!({
        "text": text,
        "model": draft.model,
        "usage": draft.usage,
        "sources": pages.chain(entries).collect::<Vec<_>>(),
        "confidence": found.confidence,
        "failures": found.failures,
        "unsupported": unsupported,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_is_named() {
        for (payload, at) in [
            (json!({}), "/text"),
            (json!({"text": " "}), "/text"),
            (json!({"text": "x", "depth": "abyss"}), "/depth"),
            (json!({"text": "x", "maxContextTokens": 1}), "/maxContextTokens"),
            (json!({"text": "x", "webFetch": true}), "/webFetch"),
            (json!({"text": "x", "fetchTopK": 21}), "/fetchTopK"),
        ] {
            assert_eq!(Question::read(&payload).unwrap_err().at.as_deref(), Some(at), "{payload}");
        }
        assert!(Question::read(&json!({"text": "x", "other": 1})).is_ok());
    }

    #[test]
    fn ids_in_brackets_are_replaced_by_blanks_in_place() {
        let text = "Nine [web-1][kb-2]. [Sic] é [web-3";
        let blank = " ".repeat("[web-1][kb-2]".len());
        assert_eq!(without_ids(text), format!("Nine {blank}. [Sic] é [web-3"));
    }
}
