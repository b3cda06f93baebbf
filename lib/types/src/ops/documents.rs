//! The operations of `ken-store` on documents: files whose pieces are knowledge entries, the vectors of entries, and which turns
//! used an entry. The store reads no files: whoever does tells it what it found.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::Timestamp;
use crate::event::Usage;
use crate::id::SubmissionId;

crate::operations! {
    /// The documents of a collection in the order of their paths, strictly after one.
    DocumentsList, "documents.list": ListDocuments => Documents;
    /// Puts documents of a collection in place of what there was of them, and drops others. A piece that a document had
    /// before stays the entry that it was. As a step of a job it is `conflict` when the job is at another place.
    DocumentsSync, "documents.sync": SyncDocuments => Synced;
    /// The next work for the reader of files: documents to read, or entries that need vectors. Waits at most `wait_ms` for some.
    DocumentsWork, "documents.work": FindWork => DocumentWork;
    /// Stores vectors of entries, and counts what they cost. Those of entries that are gone are dropped.
    VectorsPut, "vectors.put": PutVectors => Nothing;
    /// The turns that used an entry, newest first, at most 100.
    KnowledgeUses, "knowledge.uses": OfEntry => EntryUses;
}

/// The documents of the installation.
pub const SHARE: &str = "share";
/// The files of the workspace.
pub const WORKSPACE: &str = "workspace";
/// The most documents of a page, and pieces of a document.
pub const PAGE_DOCUMENTS: usize = 500;
pub const DOCUMENT_PIECES: usize = 2_000;
/// The longest path of a document, or name of a collection.
pub const PATH_BYTES: usize = 4_096;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListDocuments {
    /// `share`, `workspace`, or the absolute path of a folder that was imported.
    pub collection: String,
    #[serde(default)]
    pub after: String,
    /// 1 to 500.
    #[serde(default = "most")]
    pub limit: usize,
}

fn most() -> usize {
    PAGE_DOCUMENTS
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Documents {
    pub documents: Vec<Document>,
    /// There are more after the last one.
    pub has_more: bool,
}

/// A document that the store has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Relative to its collection.
    pub path: String,
    /// SHA-256 of the file, in hexadecimal.
    pub digest: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncDocuments {
    pub collection: String,
    /// Documents as they are now; one whose digest is known is not written.
    #[serde(default)]
    pub documents: Vec<ReadDocument>,
    /// Paths of documents that no longer exist.
    #[serde(default)]
    pub gone: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<JobStep>,
}

/// A document as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadDocument {
    pub path: String,
    pub digest: String,
    /// Its pieces, in order.
    pub pieces: Vec<Piece>,
}

/// A part of a document that becomes an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    pub title: String,
    /// Where it begins, from 1.
    pub line: u64,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Where a job goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobStep {
    pub job: String,
    /// The place that the job is at: the path of the last document that is done.
    pub after: String,
    /// The next place; absent when the collection is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The documents of this step, and how many of the collection are left.
    pub done: u64,
    pub left: u64,
    /// Why the collection cannot be read. The job goes on with the next one and ends as failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Counts entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    pub added: u64,
    pub removed: u64,
    pub kept: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindWork {
    /// The model whose vectors are missing; absent: none is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default)]
    pub wait_ms: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DocumentWork {
    /// A job that wants documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<OpenJob>,
    /// Entries without a vector of the model.
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
    /// Title and beginning of the content.
    pub text: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutVectors {
    /// `provider/model`.
    pub model: String,
    pub vectors: Vec<EntryVector>,
    #[serde(default)]
    pub usage: Usage,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryVector {
    pub entry: i64,
    /// Of any length; empty when the model has none for this text.
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
    /// The event that the turn answers; absent for a prompt straight to an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    pub at: Timestamp,
    pub how: Used,
    /// The beginning of the prompt.
    pub prompt: String,
}

/// How a turn used an entry; the strongest of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Used {
    /// The turn began with it.
    Given,
    /// A tool of the turn found it.
    Found,
    /// The answer names its id.
    Cited,
}

impl Used {
    pub fn name(self) -> &'static str {
        match self {
            Used::Given => "given",
            Used::Found => "found",
            Used::Cited => "cited",
        }
    }
}
