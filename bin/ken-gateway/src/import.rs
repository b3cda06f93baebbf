//! The import of a Markdown or text file into the knowledge, by its content: the console has no folders, as `ken knowledge import` has.

use std::sync::Arc;

use ken_http::{Failure, Request, Response, plain};
use ken_text::sections;
use ken_types::id::Mint;
use ken_types::limits::KNOWLEDGE_CONTENT_BYTES;
use ken_types::ops::documents::{DocumentsSync, FILES, PATH_BYTES, Piece, ReadDocument, SyncDocuments, Synced};
use ken_types::{Error, hex};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::app::Gateway;
use crate::body::{self, check_size, given, required};
use crate::idempotency::{ReplayableResponse, once};

#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    /// Its name. A file of the same name is replaced.
    path: Option<String>,
    content: Option<String>,
}

impl File {
    fn read(self) -> Result<ReadDocument, Error> {
        let path = required("path", self.path)?;
        check_size("path", &path, PATH_BYTES)?;
        if path.trim().is_empty() || path.chars().any(char::is_control) {
            return Err(Error::invalid("/path", "path is blank, or has a control character"));
        }
        let content = required("content", self.content)?;
        check_size("content", &content, KNOWLEDGE_CONTENT_BYTES)?;
        if content.trim().is_empty() || content.contains('\0') {
            return Err(Error::invalid("/content", "content is blank, or has a NUL character"));
        }
        let pieces = sections(&path, &content).into_iter().map(|section| Piece {
            title: section.title,
            line: section.line as u64,
            text: section.text,
            tags: section.tags,
        });
        Ok(ReadDocument { digest: hex::encode(&Sha256::digest(&content)), pieces: pieces.collect(), path })
    }
}

/// POST /api/knowledge/import
pub(crate) async fn import(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let document = body::read::<File>(&bytes)?.read()?;
    let work = async |_: Mint| {
        let path = document.path.clone();
        let sync =
            SyncDocuments { collection: FILES.to_owned(), documents: vec![document], ..SyncDocuments::default() };
        // Repeated, it finds the digest of the file stored, and writes nothing.
        let Synced { added, removed, kept } = gateway.store.change::<DocumentsSync>(&sync).await?;
        ReplayableResponse::json(200, &json!({"path": path, "added": added, "removed": removed, "kept": kept}))
    };
    once(&gateway, &request, &bytes, plain, work).await
}
