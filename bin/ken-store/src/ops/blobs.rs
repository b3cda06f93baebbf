//! Blobs: bytes that are identified by their SHA-256. They are stored and read in pieces that fit into a line of the wire. A blob to which
//! no record refers is deleted after a day.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ken_types::event::{OUTPUT_ID, Output};
use ken_types::limits::{BLOB_BYTES, BLOBS_BYTES, KEY_MS, PIECE_BYTES};
use ken_types::ops::blobs::{
    BlobPiece, BlobState, BlobsGet, BlobsPut, GetBlob, GetImage, GetOutput, ImagesGet, OutputsGet, PutBlob,
};
use ken_types::{Error, Octets, Timestamp, hex};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::engine::change::Change;
use crate::ops::{Read, Write};
use crate::rules::{check, record, stream_names};
use crate::tables::{BlobRow, Tables};

/// The maximum number of blobs that one slice of background work deletes.
const SLICE: usize = 4;

/// Adds the next piece of a blob. If the blob is then complete but does not have the expected digest, all its pieces are discarded.
impl Write for BlobsPut {
    fn check(args: &PutBlob) -> Result<(), Error> {
        check_digest(&args.digest, "/digest")?;
        let bytes = args.bytes.0.len();
        if args.length == 0 {
            return Err(Error::invalid("/length", "a blob has at least one byte"));
        }
        if args.length > BLOB_BYTES || bytes > PIECE_BYTES {
            let message = format!("a blob has at most {BLOB_BYTES} bytes, a piece {PIECE_BYTES}");
            return Err(Error::too_large(message).at(if bytes > PIECE_BYTES { "/bytes" } else { "/length" }));
        }
        if args.offset + bytes as u64 > args.length {
            return Err(Error::invalid("/bytes", "the piece ends beyond the length of the blob"));
        }
        if bytes == 0 { Err(Error::invalid("/bytes", "the piece is empty")) } else { Ok(()) }
    }

    fn run(tables: &dyn Tables, args: &PutBlob, change: &mut Change) -> Result<BlobState, Error> {
        let blob = match tables.blob(&args.digest)? {
            Some(blob) => blob,
            None => insert(tables, args, change)?,
        };
        tables.touch_blob(blob.key, change.now)?;
        if blob.length != args.length {
            let message = format!("the blob was begun with {} bytes", blob.length);
            return Err(Error::conflict(message).at("/length"));
        }
        let end = args.offset + args.bytes.0.len() as u64;
        if end <= blob.stored {
            // The call repeats an earlier one, or another caller has already added this piece.
            return Ok(state(&blob));
        }
        if args.offset != blob.stored {
            let message = format!("the next piece begins at byte {}", blob.stored);
            return Err(Error::conflict(message).at("/offset"));
        }
        if end == blob.length && digest_with(tables, &blob, &args.bytes.0)? != args.digest {
            tables.clear_blob(blob.key)?;
            return Ok(state(&BlobRow { stored: 0, ..blob }));
        }
        tables.insert_piece(blob.key, args.offset, &args.bytes.0, change.now)?;
        Ok(state(&BlobRow { stored: end, ..blob }))
    }
}

fn state(blob: &BlobRow) -> BlobState {
    BlobState { length: blob.length, stored: blob.stored }
}

fn insert(tables: &dyn Tables, args: &PutBlob, change: &Change) -> Result<BlobRow, Error> {
    if tables.blob_bytes()? + args.length > BLOBS_BYTES {
        let message = format!("all blobs together have at most {BLOBS_BYTES} bytes");
        return Err(Error::too_large(message).hint("what no record names is deleted after a day"));
    }
    tables.insert_blob(&args.digest, args.length, change.now)
}

/// Returns the digest of the stored bytes followed by `more`.
fn digest_with(tables: &dyn Tables, blob: &BlobRow, more: &[u8]) -> Result<String, Error> {
    let mut hash = Sha256::new();
    tables.pieces(blob.key, 0, &mut |_, bytes| {
        hash.update(bytes);
        true
    })?;
    hash.update(more);
    Ok(hex::encode(&hash.finalize()))
}

fn is_hex(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.bytes().all(is_digit)
}

fn check_digest(digest: &str, at: &str) -> Result<(), Error> {
    match hex::decode::<32>(digest) {
        Some(_) => Ok(()),
        None => Err(Error::invalid(at, "a digest is 64 hexadecimal digits in lower case")),
    }
}

fn unknown(digest: &str, at: &str) -> Error {
    Error::not_found(format!("there is no blob {digest}")).at(at)
}

/// Returns a complete blob; an incomplete one is `not_found`.
pub(super) fn complete(tables: &dyn Tables, digest: &str, at: &str) -> Result<BlobRow, Error> {
    let blob = tables.blob(digest)?.filter(|blob| blob.stored == blob.length);
    blob.ok_or_else(|| unknown(digest, at))
}

impl Read for BlobsGet {
    fn check(args: &GetBlob) -> Result<(), Error> {
        check_digest(&args.digest, "/digest")
    }

    fn run(tables: &dyn Tables, args: &GetBlob) -> Result<BlobPiece, Error> {
        let blob = complete(tables, &args.digest, "/digest")?;
        piece(tables, &blob, args.offset, args.limit)
    }
}

pub(super) fn piece(tables: &dyn Tables, blob: &BlobRow, offset: u64, limit: u32) -> Result<BlobPiece, Error> {
    let limit = (limit as usize).min(PIECE_BYTES);
    let mut found = Vec::new();
    tables.pieces(blob.key, offset, &mut |start, bytes| {
        let skip = usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
        let rest = bytes.get(skip..).unwrap_or_default();
        found.extend(rest.iter().take(limit - found.len()));
        found.len() < limit
    })?;
    Ok(BlobPiece { length: blob.length, bytes: Octets(found), mime_type: None })
}

impl Read for ImagesGet {
    fn run(tables: &dyn Tables, args: &GetImage) -> Result<BlobPiece, Error> {
        let unknown = || {
            let message = format!("the prompt {} has no image {} in this session", args.submission_id, args.number);
            Error::not_found(message).at("/number")
        };
        let stream = stream_names::of_instance(&args.instance);
        let image = tables.image(&stream, &args.submission_id, args.number)?.ok_or_else(unknown)?;
        let bytes = STANDARD.decode(&image.data).map_err(|_| unknown())?;
        Ok(BlobPiece { mime_type: Some(image.mime_type), ..part(&bytes, args.offset, args.limit) })
    }
}

/// Returns a piece of bytes that are no blob.
pub(super) fn part(bytes: &[u8], offset: u64, limit: u32) -> BlobPiece {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let found = bytes.iter().skip(from).take((limit as usize).min(PIECE_BYTES)).copied().collect();
    BlobPiece { length: bytes.len() as u64, bytes: Octets(found), mime_type: None }
}

impl Read for OutputsGet {
    fn check(args: &GetOutput) -> Result<(), Error> {
        if (OUTPUT_ID..=64).contains(&args.id.len()) && is_hex(&args.id) {
            Ok(())
        } else {
            Err(Error::invalid(
                "/id",
                format!("an output is named by at least {OUTPUT_ID} hexadecimal digits in lower case"),
            ))
        }
    }

    fn run(tables: &dyn Tables, args: &GetOutput) -> Result<BlobPiece, Error> {
        let stream = stream_names::of_instance(&args.instance);
        let blob = tables.output(&stream, &args.id)?;
        let blob = blob.filter(|blob| blob.stored == blob.length).ok_or_else(|| {
            let message = format!("there is no output {}, or it is no longer kept", args.id);
            Error::not_found(message).at("/id")
        })?;
        piece(tables, &blob, args.offset, args.limit)
    }
}

/// Records to which outputs of tools the events of a submission refer. If an output has been deleted, nothing is recorded and the event is
/// not changed.
pub(super) fn refer_to_outputs(tables: &dyn Tables, submission: i64, events: &[Box<RawValue>]) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Ended {
        result: Named,
    }
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        output: Option<Output>,
    }
    // Few events refer to an output, and only those are parsed.
    let may_name_one = |event: &&str| check::event_type(event) == "tool" && event.contains(BLOB_FIELD);
    for event in events.iter().map(|event| event.get()).filter(may_name_one) {
        if let Some(output) = record::read::<Ended>(event)?.result.output {
            tables.refer_to_output(&output.blob, submission)?;
        }
    }
    Ok(())
}

/// The text with which an event refers to an output.
const BLOB_FIELD: &str = "\"blob\":";

/// Records that an event refers to blobs. Blobs with such a reference are not deleted.
pub(super) fn refer(tables: &dyn Tables, digests: &[String], event: &str) -> Result<(), Error> {
    for (number, digest) in digests.iter().enumerate() {
        let at = format!("/blobs/{number}");
        check_digest(digest, &at)?;
        complete(tables, digest, &at)?;
        tables.refer_to_blob(digest, event)?;
    }
    Ok(())
}

/// Deletes some of the blobs to which no record refers. Returns true if there may be more.
pub(super) fn prune(tables: &dyn Tables, now: Timestamp) -> Result<bool, Error> {
    let unused = tables.unused_blobs(now.plus_millis(-KEY_MS), SLICE)?;
    for blob in &unused {
        tables.delete_blob(*blob)?;
    }
    Ok(unused.len() == SLICE)
}
