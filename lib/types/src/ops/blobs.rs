//! The operations of `ken-store` on blobs. A blob holds content that is too long for a line of the wire (images,
//! attachments, outputs of tools, fetched pages), and is named by its SHA-256. Records refer to a blob by this digest.
//! A blob to which no record refers is deleted a day after it was last put. Outputs of tools are kept as long as the
//! summary of their submission.

use serde::{Deserialize, Serialize};

use crate::Octets;
use crate::id::SubmissionId;

crate::operations! {
    /// Adds the next piece of a blob; the first piece creates it. A piece that is already stored changes nothing. If
    /// the complete bytes have another digest, none of them is kept and `stored` is 0. `conflict` at `/offset` if the
    /// piece is not the next one. `too_large` if the blob exceeds 16 MiB, the piece 1 MiB, or all blobs together 1 GiB.
    BlobsPut, "blobs.put": PutBlob => BlobState;
    /// Returns at most `limit` bytes from an offset on. `not_found` until the blob is complete.
    BlobsGet, "blobs.get": GetBlob => BlobPiece;
    /// Like `blobs.get`, for an output of a tool, which only turns of the same instance may read. `not_found` for any
    /// other id, and if the output has been deleted.
    OutputsGet, "outputs.get": GetOutput => BlobPiece;
    /// Like `blobs.get`, for an image of a prompt of the named instance. `not_found` if the prompt does not have it, as a copy in a
    /// fork does not.
    ImagesGet, "images.get": GetImage => BlobPiece;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutBlob {
    /// SHA-256 of all bytes: 64 hexadecimal digits in lower case.
    pub digest: String,
    /// The length of the whole blob, in bytes.
    pub length: u64,
    /// The number of bytes before this piece.
    #[serde(default)]
    pub offset: u64,
    pub bytes: Octets,
}

/// The progress of a blob. It is complete when both numbers are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobState {
    /// The length of the whole blob, in bytes.
    pub length: u64,
    /// The number of stored bytes: the offset of the next piece.
    pub stored: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetBlob {
    pub digest: String,
    #[serde(default)]
    pub offset: u64,
    /// The maximum number of bytes to return, at most 1 MiB.
    #[serde(default = "piece_bytes")]
    pub limit: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetOutput {
    pub instance: String,
    /// The first digits of the digest, at least 16.
    pub id: String,
    #[serde(default)]
    pub offset: u64,
    /// The maximum number of bytes to return, at most 1 MiB.
    #[serde(default = "piece_bytes")]
    pub limit: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetImage {
    pub instance: String,
    pub submission_id: SubmissionId,
    /// Counts from 0.
    pub number: u32,
    #[serde(default)]
    pub offset: u64,
    /// The maximum number of bytes to return, at most 1 MiB.
    #[serde(default = "piece_bytes")]
    pub limit: u32,
}

pub(super) fn piece_bytes() -> u32 {
    u32::try_from(crate::limits::PIECE_BYTES).unwrap_or(u32::MAX)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobPiece {
    /// The length of the whole blob, in bytes.
    pub length: u64,
    /// The bytes of the piece. Empty if the offset is at or beyond the end.
    pub bytes: Octets,
    /// The type of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}
