//! The operations of `ken-store` on documents, on the vectors of knowledge entries, and on the turns that used an
//! entry. A document is a file that is stored as pieces, each of them a knowledge entry. The store does not read files:
//! the caller passes their content.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::Timestamp;
use crate::event::Usage;
use crate::id::SubmissionId;

crate::operations! {
    /// Returns the documents of a collection, ordered by path, strictly after a given path.
    DocumentsList, "documents.list": ListDocuments => Documents;
    /// Replaces some documents of a collection and removes others. A piece that a document had before keeps its entry.
    /// If the call is a step of a job: `conflict` if the job has reached another document.
    DocumentsSync, "documents.sync": SyncDocuments => Synced;
    /// Returns the next work for the part that reads files: documents to read, or entries that need vectors. Waits at
    /// most `wait_ms` for it.
    DocumentsWork, "documents.work": FindWork => DocumentWork;
    /// Stores vectors of entries, and adds their cost to the usage. Vectors of deleted entries are ignored. Vectors of the model with another
    /// number of dimensions are deleted.
    VectorsPut, "vectors.put": PutVectors => Nothing;
    /// Returns the turns that used an entry, newest first, at most 100.
    KnowledgeUses, "knowledge.uses": OfEntry => EntryUses;
}

/// The collection of the documents that are installed with ken.
pub const SHARE: &str = "share";
/// The collection of the files in the workspace.
pub const WORKSPACE: &str = "workspace";
/// The collection of the files whose content was given over HTTP.
pub const FILES: &str = "files";
/// The maximum number of documents on a page, and of pieces of a document.
pub const PAGE_DOCUMENTS: usize = 500;
pub const DOCUMENT_PIECES: usize = 2_000;
/// The maximum length of the path of a document, or of the name of a collection.
pub const PATH_BYTES: usize = 4_096;
/// The maximum number of dimensions of a vector.
pub const VECTOR_DIMENSIONS: usize = 4_096;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListDocuments {
    /// `share`, `workspace`, `files`, or the absolute path of a folder that was imported.
    pub collection: String,
    #[serde(default)]
    pub after: String,
    /// The maximum number of documents, 1 to 500.
    #[serde(default = "page_documents")]
    pub limit: usize,
}

fn page_documents() -> usize {
    PAGE_DOCUMENTS
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Documents {
    pub documents: Vec<Document>,
    /// Whether there are more after the last one.
    pub has_more: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The path, relative to the collection.
    pub path: String,
    /// SHA-256 of the file, in hexadecimal.
    pub digest: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncDocuments {
    pub collection: String,
    /// Documents with their current content. A document whose digest is already stored is not written.
    #[serde(default)]
    pub documents: Vec<ReadDocument>,
    /// Paths of documents that no longer exist.
    #[serde(default)]
    pub gone: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<JobStep>,
}

/// A document with the content that the caller has read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadDocument {
    pub path: String,
    pub digest: String,
    /// Its pieces, in order.
    pub pieces: Vec<Piece>,
}

/// A part of a document, which becomes a knowledge entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    pub title: String,
    /// The line where the piece begins, from 1.
    pub line: u64,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobStep {
    pub job: String,
    /// The path of the last document that was processed before this step.
    pub after: String,
    /// The path of the last document of this step. Absent if the collection is complete.
    pub next: Option<String>,
    /// The number of documents in this step, and the number of documents of the collection that remain.
    pub done: u64,
    pub left: u64,
    /// Why the collection cannot be read. The job continues with the next collection and ends as failed.
    pub error: Option<String>,
}

/// The number of entries that the call added, kept or removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    pub added: u64,
    pub removed: u64,
    pub kept: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindWork {
    /// The model whose missing vectors are requested. If absent, no vectors are requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default)]
    pub wait_ms: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DocumentWork {
    /// A job that waits for the content of documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<OpenJob>,
    /// Entries that have no vector of the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unembedded: Vec<Unembedded>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenJob {
    pub id: String,
    pub collection: String,
    pub after: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unembedded {
    pub entry: i64,
    /// The title and the beginning of the content.
    pub text: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutVectors {
    /// The model, as `provider/model`.
    pub model: String,
    pub vectors: Vec<EntryVector>,
    /// The number of dimensions of the vectors that the model returns now, also of those that are not stored, as of a query. If the stored
    /// vectors of the model have another number, no query can be compared with them, and they are deleted, so that they are computed again.
    /// 0 if it is not known.
    #[serde(default)]
    pub dimensions: usize,
    #[serde(default)]
    pub usage: Usage,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryVector {
    pub entry: i64,
    /// A vector of any length. Empty if the model returns none for this text.
    pub values: Vec<f32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfEntry {
    pub id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EntryUses {
    pub uses: Vec<EntryUse>,
}

/// A turn that used an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryUse {
    pub submission_id: SubmissionId,
    pub session_id: String,
    /// The event that the turn answers; absent for a prompt that went directly to an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    pub at: Timestamp,
    pub how: Used,
    pub prompt: String,
}

crate::named! {
    /// How a turn used an entry. If it used it in several ways, the last of these values applies.
    #[derive(PartialOrd, Ord)]
    pub enum Used {
        /// The entry was given to the model at the start of the turn.
        Given = "given",
        /// A tool of the turn found the entry.
        Found = "found",
        /// The answer contains the id of the entry.
        Cited = "cited",
    }
}
