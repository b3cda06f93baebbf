//! Reads knowledge from files, and has the model compute the vectors of entries. The store keeps the jobs and their
//! progress. Therefore two indexers can run at the same time, and one that is killed loses at most one page.

use std::time::Duration;

use ken_service::Stop;
use ken_types::event::{ToolResult, Usage};
use ken_types::ops::documents::*;
use ken_types::ops::model::Embedded;
use ken_types::ops::tools::{CallTool, ToolsCall};
use ken_types::{Code, Error};
use ken_wire::Pool;
use serde::Deserialize;
use serde_json::json;

use crate::embedding::{dimensions, is_refusal, without_vectors};
use crate::model::WireModel;

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the store may hold a call while there is nothing to do, and the deadline of such a call.
const MAX_WAIT: Duration = Duration::from_secs(30);
const WAIT_DEADLINE: Duration = Duration::from_secs(40);
/// How long a page of files may take.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// The pause before the next attempt: the first value if a part cannot be reached, the second if the provider of
/// vectors fails.
const PART_PAUSE: Duration = Duration::from_secs(1);
const PROVIDER_PAUSE: Duration = Duration::from_secs(30);
const READ_TOOL: &str = "read_documents";

/// A text for which every working model returns a vector.
const PROBE_TEXT: &str = "text";

pub(crate) struct Indexer {
    reader: Reader,
    vectors: Vectors,
}

/// Reads knowledge from files.
struct Reader {
    store: Pool,
    tools: Pool,
}

/// Has the model compute the vectors of entries.
struct Vectors {
    store: Pool,
    model: WireModel,
    /// Why the last attempt to compute vectors failed.
    failure: Option<Error>,
    /// The model and the number of dimensions of the last vectors that were stored.
    kind: (String, usize),
}

/// A page in the format that the tool returns.
#[derive(Deserialize)]
struct Page {
    documents: Vec<ReadDocument>,
    gone: Vec<String>,
    done: u64,
    left: u64,
    #[serde(default)]
    next: Option<String>,
}

impl Indexer {
    pub(crate) fn new(store: Pool, tools: Pool, model: WireModel) -> Indexer {
        let vectors = Vectors { store: store.clone(), model, failure: None, kind: Default::default() };
        Indexer { reader: Reader { store, tools }, vectors }
    }

    /// Reads files and computes vectors at the same time: a model that does not answer must not hold up the files.
    pub(crate) async fn run(mut self, mut stop: Stop) {
        let reading = async {
            loop {
                pause_after(self.reader.step().await).await;
            }
        };
        let computing = async {
            loop {
                pause_after(self.vectors.step().await).await;
            }
        };
        tokio::select! {
            () = stop.stopped() => {}
            () = reading => {}
            () = computing => {}
        }
    }
}

/// What has been done, or an error with the pause before the next attempt.
type Step = Result<(), (Error, Duration)>;

async fn pause_after(step: Step) {
    if let Err((error, pause)) = step {
        tracing::debug!(code = error.code.name(), "knowledge: {}", error.message);
        tokio::time::sleep(pause).await;
    }
}

/// Returns the next work, or waits until there is some.
async fn work(store: &Pool, model: Option<String>) -> Result<DocumentWork, (Error, Duration)> {
    let ask = FindWork { model, wait_ms: u64::try_from(MAX_WAIT.as_millis()).unwrap_or_default() };
    store.call::<DocumentsWork>(&ask, WAIT_DEADLINE).await.map_err(|error| (error, PART_PAUSE))
}

impl Reader {
    async fn step(&self) -> Step {
        match work(&self.store, None).await?.job {
            Some(job) => self.read(job).await.map_err(|error| (error, PART_PAUSE)),
            None => Ok(()),
        }
    }

    /// Reads the next page of a job's files.
    async fn read(&self, job: OpenJob) -> Result<(), Error> {
        let list =
            ListDocuments { collection: job.collection.clone(), after: job.after.clone(), limit: PAGE_DOCUMENTS };
        let known = self.store.call::<DocumentsList>(&list, CALL_TIMEOUT).await?;
        let until = known.documents.last().filter(|_| known.has_more);
        let digests = known.documents.iter().map(|one| (one.path.clone(), json!(one.digest)));
        let digests = digests.collect::<serde_json::Map<_, _>>();
        let mut arguments = json!({"collection": job.collection, "after": job.after, "known": digests});
        if let Some(until) = until {
            arguments["until"] = json!(until.path);
        }
        let call = CallTool { name: READ_TOOL.to_owned(), arguments, ..CallTool::default() };
        let page = match self.tools.call::<ToolsCall>(&call, READ_TIMEOUT).await {
            Ok(called) if !called.is_error => page(called.result),
            Ok(called) => Err(called.result.text()),
            // ken-tools is starting or overloaded.
            Err(error) if matches!(error.code, Code::Unavailable | Code::Busy | Code::Deadline) => {
                return Err(error);
            }
            Err(error) => Err(error.message),
        };
        let mut sync = SyncDocuments { collection: job.collection.clone(), ..SyncDocuments::default() };
        let mut step = JobStep { job: job.id, after: job.after, next: None, done: 0, left: 0, error: None };
        match page {
            Ok(page) => {
                (sync.documents, sync.gone) = (page.documents, page.gone);
                (step.next, step.done, step.left) = (page.next, page.done, page.left);
            }
            Err(why) => step.error = Some(format!("{} cannot be read: {why}", job.collection)),
        }
        sync.step = Some(step);
        match self.store.call::<DocumentsSync>(&sync, CALL_TIMEOUT).await {
            // Another indexer has already done this step.
            Err(error) if error.code == Code::Conflict => Ok(()),
            synced => synced.map(drop),
        }
    }
}

impl Vectors {
    async fn step(&mut self) -> Step {
        let model = self.model.embedding().await.map_err(|error| (error, PART_PAUSE))?;
        let work = work(&self.store, model).await?;
        if work.job.is_some() && work.unembedded.is_empty() {
            // The store does not wait while a job reads files.
            tokio::time::sleep(PART_PAUSE).await;
        }
        let before = self.kind.clone();
        let embedded = if work.unembedded.is_empty() { Ok(()) } else { self.embed(work.unembedded).await };
        self.report(embedded.as_ref().err());
        embedded.map_err(|error| (error, PROVIDER_PAUSE))?;
        // Vectors with another number of dimensions replace all others. Behind a server that has two models under one name and uses them by
        // turns, that would never end, so it gets no more than one call in each pause.
        if before.0 == self.kind.0 && before.1 != self.kind.1 {
            let message =
                format!("{} returns vectors of {} dimensions, and returned {} before", before.0, self.kind.1, before.1);
            tracing::warn!("{message}; they are computed anew");
            return Err((Error::unavailable(message), PROVIDER_PAUSE));
        }
        Ok(())
    }

    /// Shows in `ken status` why vectors cannot be computed. The log gets one line when that begins, with the first cause, and one when it
    /// ends: two attempts in a row may describe the same cause differently.
    fn report(&mut self, failure: Option<&Error>) {
        if self.failure.as_ref() == failure {
            return;
        }
        let status = failure.map(|error| format!("entries get no vectors: {}", error.message)).unwrap_or_default();
        match failure {
            Some(error) if self.failure.is_none() => tracing::warn!(code = error.code.name(), "{status}"),
            Some(_) => {}
            None => tracing::info!("entries get vectors again"),
        }
        _ = sd_notify::notify(&[sd_notify::NotifyState::Status(&status)]);
        self.failure = failure.cloned();
    }

    async fn embed(&mut self, entries: Vec<Unembedded>) -> Result<(), Error> {
        // An answer that is of no use is paid for, too. After one, and after any other failure but that of the budget, one word is tried before
        // many texts.
        if self.failure.as_ref().is_some_and(|error| error.code != Code::Forbidden) {
            self.probe().await?;
        }
        let texts = entries.iter().map(|entry| entry.text.clone()).collect();
        match self.vectors(texts).await {
            Err(error) if is_refusal(&error) => self.embed_each(entries, &error).await,
            Err(error) => Err(error),
            Ok((embedded, dimensions)) => self.store_vectors(entries.iter(), embedded, dimensions).await,
        }
    }

    /// Computes the vectors of the entries one by one, because the model refuses the text of at least one of them. An
    /// entry with a refused text gets an empty vector, so that it is not tried again forever. If the model also refuses
    /// a harmless text, the model is at fault, and this fails.
    async fn embed_each(&mut self, entries: Vec<Unembedded>, refusal: &Error) -> Result<(), Error> {
        let model = self.probe().await?;
        let mut refused = Vec::new();
        for entry in &entries {
            match self.vectors(vec![entry.text.clone()]).await {
                Ok((embedded, dimensions)) => {
                    self.store_vectors(std::iter::once(entry), embedded, dimensions).await?;
                }
                Err(error) if is_refusal(&error) => {
                    refused.push(EntryVector { entry: entry.entry, values: Vec::new() })
                }
                Err(error) => return Err(error),
            }
        }
        tracing::warn!(entries = refused.len(), "entries whose text is refused have no vector: {}", refusal.message);
        self.put(PutVectors { model, vectors: refused, dimensions: 0, usage: Usage::default() }).await
    }

    /// Computes the vector of one word. Returns the name of the model.
    async fn probe(&mut self) -> Result<String, Error> {
        let (embedded, dimensions) = self.vectors(vec![PROBE_TEXT.to_owned()]).await?;
        self.put(without_vectors(&embedded, dimensions)).await?;
        Ok(embedded.model)
    }

    /// Computes vectors. Returns them with their number of dimensions, or stores what they have cost if they are of no use.
    async fn vectors(&self, texts: Vec<String>) -> Result<(Embedded, usize), Error> {
        let embedded = self.model.embed(texts).await?;
        match dimensions(&embedded) {
            Ok(dimensions) => Ok((embedded, dimensions)),
            Err(error) => self.put(without_vectors(&embedded, 0)).await.and(Err(error)),
        }
    }

    async fn store_vectors(
        &mut self,
        entries: impl Iterator<Item = &Unembedded>,
        embedded: Embedded,
        dimensions: usize,
    ) -> Result<(), Error> {
        let vectors = entries.zip(embedded.vectors);
        let vectors = vectors.map(|(entry, values)| EntryVector { entry: entry.entry, values }).collect();
        let (model, usage) = (embedded.model, embedded.usage);
        self.kind = (model.clone(), dimensions);
        self.put(PutVectors { model, vectors, dimensions, usage }).await
    }

    async fn put(&self, put: PutVectors) -> Result<(), Error> {
        self.store.call::<VectorsPut>(&put, CALL_TIMEOUT).await.map(drop)
    }
}

fn page(result: ToolResult) -> Result<Page, String> {
    serde_json::from_value(result.details).map_err(|error| format!("the tool {READ_TOOL} answers otherwise: {error}"))
}
