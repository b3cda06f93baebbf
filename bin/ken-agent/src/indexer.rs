//! What keeps knowledge in step with files, and gives entries their vectors. The store says what there is to do and where each job
//! stands, so nothing is kept here: two of these do no harm, and one that was killed costs one page.

use std::time::Duration;

use ken_service::Stop;
use ken_types::event::{Block, ToolResult};
use ken_types::ops::documents::*;
use ken_types::ops::tools::{CallTool, ToolsCall};
use ken_types::{Code, Error};
use ken_wire::Pool;
use serde::Deserialize;
use serde_json::json;

use crate::model::WireModel;

const CALL: Duration = Duration::from_secs(10);
/// How long the store may hold a call while there is nothing to do, and the deadline of such a call.
const WAIT: Duration = Duration::from_secs(30);
const WAITED: Duration = Duration::from_secs(40);
/// How long a page of files may take.
const READ: Duration = Duration::from_secs(120);
/// The pause when a part cannot be reached, or a provider of vectors fails.
const PAUSE: Duration = Duration::from_secs(1);
const RESTED: Duration = Duration::from_secs(30);
/// The tool that reads files.
const READER: &str = "read_documents";

pub(crate) struct Indexer {
    pub(crate) store: Pool,
    pub(crate) tools: Pool,
    pub(crate) model: WireModel,
}

/// A page as the tool writes it.
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
    pub(crate) async fn run(self, mut stop: Stop) {
        loop {
            let pause = tokio::select! {
                () = stop.stopped() => return,
                done = self.step() => match done {
                    Ok(()) => continue,
                    Err((error, pause)) => {
                        tracing::debug!(code = error.code.name(), "knowledge: {}", error.message);
                        pause
                    }
                },
            };
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does the next piece of work, or waits until there is some. An error comes with the pause before the next attempt.
    async fn step(&self) -> Result<(), (Error, Duration)> {
        let soon = |error| (error, PAUSE);
        let ask = FindWork {
            model: self.model.embedding().await,
            wait_ms: u64::try_from(WAIT.as_millis()).unwrap_or_default(),
        };
        let work = self
            .store
            .call::<DocumentsWork>(&ask, WAITED)
            .await
            .map_err(soon)?;
        if let Some(job) = work.job {
            return self.read(job).await.map_err(soon);
        }
        match work.unembedded.is_empty() {
            true => Ok(()),
            false => self.embed(work.unembedded).await.map_err(|error| (error, RESTED)),
        }
    }

    /// Reads the next page of a job's files.
    async fn read(&self, job: OpenJob) -> Result<(), Error> {
        let list = ListDocuments {
            collection: job.collection.clone(),
            after: job.after.clone(),
            limit: PAGE_DOCUMENTS,
        };
        let known = self.store.call::<DocumentsList>(&list, CALL).await?;
        let until = known.documents.last().filter(|_| known.has_more);
        let mut arguments = json!({"collection": job.collection, "after": job.after});
        if let (Some(until), Some(fields)) = (until, arguments.as_object_mut()) {
            fields.insert("until".into(), json!(until.path));
        }
        let digests = known
            .documents
            .iter()
            .map(|one| (one.path.clone(), json!(one.digest)));
        if let Some(fields) = arguments.as_object_mut() {
            fields.insert("known".into(), digests.collect::<serde_json::Map<_, _>>().into());
        }
        let call = CallTool {
            name: READER.to_owned(),
            arguments,
            ..CallTool::default()
        };
        let page = match self.tools.call::<ToolsCall>(&call, READ).await {
            Ok(called) if !called.is_error => page(called.result),
            Ok(called) => Err(words(&called.result)),
            // ken-tools is starting or overloaded.
            Err(error) if matches!(error.code, Code::Unavailable | Code::Busy | Code::Deadline) => {
                return Err(error);
            }
            Err(error) => Err(error.message),
        };
        let mut sync = SyncDocuments {
            collection: job.collection.clone(),
            ..SyncDocuments::default()
        };
        let mut step = JobStep {
            job: job.id,
            after: job.after,
            next: None,
            done: 0,
            left: 0,
            error: None,
        };
        match page {
            Ok(page) => {
                (sync.documents, sync.gone) = (page.documents, page.gone);
                (step.next, step.done, step.left) = (page.next, page.done, page.left);
            }
            Err(why) => step.error = Some(format!("{} cannot be read: {why}", job.collection)),
        }
        sync.step = Some(step);
        match self.store.call::<DocumentsSync>(&sync, CALL).await {
            // Somebody else has taken this step.
            Err(error) if error.code == Code::Conflict => Ok(()),
            synced => synced.map(drop),
        }
    }

    async fn embed(&self, entries: Vec<Unembedded>) -> Result<(), Error> {
        let (keys, texts): (Vec<i64>, Vec<String>) =
            entries.into_iter().map(|entry| (entry.entry, entry.text)).unzip();
        let embedded = self.model.embed(texts).await?;
        let vectors = keys.into_iter().zip(embedded.vectors);
        let put = PutVectors {
            model: embedded.model,
            vectors: vectors
                .map(|(entry, values)| EntryVector { entry, values })
                .collect(),
            usage: embedded.usage,
        };
        self.store.call::<VectorsPut>(&put, CALL).await.map(drop)
    }
}

fn page(result: ToolResult) -> Result<Page, String> {
    serde_json::from_value(result.details)
        .map_err(|error| format!("the tool {READER} answers otherwise: {error}"))
}

fn words(result: &ToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
