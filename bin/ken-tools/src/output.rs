//! Shortens a long result for the model, and stores the whole text.

use std::time::Duration;

use ken_text::head;
use ken_types::event::{Output, READ_OUTPUT};
use ken_types::limits::PIECE_BYTES;
use ken_types::ops::blobs::{BlobsPut, PutBlob};
use ken_types::{Error, Octets, hex, json};
use ken_wire::Pool;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The number of bytes that are shown of the beginning and of the end of a long text.
const HEAD_BYTES: usize = 24 * 1024;
const TAIL_BYTES: usize = 8 * 1024;
/// The maximum size of a result's value that is recorded in addition to its text, in bytes of JSON.
const MAX_DETAILS_BYTES: usize = 128 * 1024;
/// The timeout for storing one piece.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The store for long texts; `None` if there is no store.
#[derive(Debug, Clone)]
pub(crate) struct Outputs(pub(crate) Option<Pool>);

/// The text for a model and, if it is shortened, a reference to the whole text.
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) output: Option<Output>,
}

impl Outputs {
    pub(crate) async fn show(&self, text: &str) -> Shown {
        if text.len() <= HEAD_BYTES + TAIL_BYTES {
            return Shown { text: text.to_owned(), output: None };
        }
        let kept = match &self.0 {
            Some(store) => keep(store, text.as_bytes()).await.map(Some),
            None => Ok(None),
        };
        let (output, note) = match kept {
            Ok(Some(output)) => {
                let id = output.id();
                let note = format!(" The whole output is kept as {id}: {READ_OUTPUT} reads any part of it.");
                (Some(output), note)
            }
            Ok(None) => (None, String::new()),
            Err(Error { code, message, .. }) => {
                tracing::warn!(code = code.name(), "an output is not kept: {message}");
                (None, format!(" The whole output could not be kept: {message}."))
            }
        };
        let (head, tail) = (head(text, HEAD_BYTES), tail(text, TAIL_BYTES));
        let (from, until, all) = (head.len(), text.len() - tail.len(), text.len());
        Shown {
            text: format!("{head}\n[cut: bytes {from} to {until} of {all} are left out here.{note}]\n{tail}"),
            output,
        }
    }
}

impl Outputs {
    /// Keeps a picture, which is given in base64. Returns `None` if it cannot be kept.
    pub(crate) async fn keep_picture(&self, base64: &str) -> Option<Output> {
        let store = self.0.as_ref()?;
        let kept = async {
            let Octets(bytes) = json::from_value(json!({ "base64": base64 }))?;
            keep(store, &bytes).await
        };
        match kept.await {
            Ok(output) => Some(output),
            Err(Error { code, message, .. }) => {
                tracing::warn!(code = code.name(), "a picture is not kept: {message}");
                None
            }
        }
    }
}

/// Returns the value of a result, or null if it is too long to be recorded. `bytes` is its length as JSON.
pub(crate) fn details(value: Value, bytes: usize) -> Value {
    if bytes <= MAX_DETAILS_BYTES { value } else { Value::Null }
}

/// Puts a text, or other bytes, into the store, piece by piece.
pub(crate) async fn keep(store: &Pool, bytes: &[u8]) -> Result<Output, Error> {
    let output = Output { blob: hex::encode(&Sha256::digest(bytes)), bytes: bytes.len() as u64 };
    let mut offset = 0;
    for piece in bytes.chunks(PIECE_BYTES) {
        let put = PutBlob { digest: output.blob.clone(), length: output.bytes, offset, bytes: Octets(piece.to_vec()) };
        // If the store has this blob already, its first reply says that it is complete.
        if store.call::<BlobsPut>(&put, CALL_TIMEOUT).await?.stored == output.bytes {
            break;
        }
        offset += piece.len() as u64;
    }
    Ok(output)
}

/// Returns the end of a text, at most so many bytes, cut between characters.
fn tail(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    // A character has at most four bytes.
    let tail = (from..from + 4).find_map(|from| text.get(from..));
    tail.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_text_begins_with_a_character() {
        assert_eq!(tail("aé", 1), "");
        assert_eq!((tail("aé", 2), tail("aé", 3), tail("aé", 9)), ("é", "aé", "aé"));
    }

    #[tokio::test]
    async fn a_text_and_a_value_are_whole_up_to_the_limit() {
        let text = "x".repeat(HEAD_BYTES + TAIL_BYTES);
        assert_eq!(Outputs(None).show(&text).await.text, text);
        let cut = Outputs(None).show(&format!("{text}x")).await.text;
        assert!(cut.contains("[cut: bytes 24576 to 24577 of 32769 are left out here.]"), "{}", cut.len());
        assert_eq!(details(json!(1), MAX_DETAILS_BYTES), json!(1));
        assert_eq!(details(json!(1), MAX_DETAILS_BYTES + 1), Value::Null);
    }
}
