//! Vectors of texts from an OpenAI-compatible server: `POST /embeddings`.

use std::sync::Arc;

use ken_types::Error;
use ken_types::event::{Usage, estimated_tokens};
use ken_types::ops::model::Embedded;
use serde::Deserialize;
use serde_json::json;

use super::format::bounded;
use super::{MAX_CALLS, Remote};
use crate::breaker::{Failed, Fault};
use crate::http;
use crate::prices::price;

#[derive(Deserialize)]
struct Response {
    data: Vec<Item>,
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: Option<u64>,
}

impl Remote {
    /// Returns a vector for each text, in the order of the texts.
    pub(crate) async fn embed(&self, texts: &[String]) -> Result<Embedded, Error> {
        let permit = Arc::clone(&self.room).try_acquire_owned();
        let permit = permit.map_err(|_| Error::busy(format!("{MAX_CALLS} calls are under way"), 1_000))?;
        let model = format!("{}/{}", self.name.provider, self.name.id);
        let body = json!({"model": self.name.id, "input": texts, "encoding_format": "float"}).to_string();
        let (endpoint, who) = (self.endpoint.clone(), model.clone());
        let connection = self.endpoint.http.connection();
        let caller = connection.caller();
        let call = tokio::task::spawn_blocking(move || {
            let text = http::text(endpoint.accepted(&who, endpoint.post(&caller, "embeddings", &body)?)?)?;
            drop(permit);
            Ok::<_, Failed>(text)
        });
        let text = call.await.map_err(|error| Error::internal(format!("a call ended without an answer: {error}")))?;
        connection.keep();
        // A server can fail to make vectors, and answer: that says nothing about its models that answer.
        let text = self.noted(text.map_err(|failed| match failed.fault {
            Fault::Server => Failed::from(failed.error),
            _ => failed,
        }))?;
        let (vectors, tokens) =
            read(&text, texts.len()).map_err(|why| Error::unavailable(format!("{model}: {why}")))?;
        let input = tokens.unwrap_or_else(|| texts.iter().map(|text| estimated_tokens(text)).sum());
        let mut usage = Usage { input, total_tokens: input, ..Usage::default() };
        usage.cost = price(&self.model, &usage);
        Ok(Embedded { model, vectors, usage })
    }
}

/// Returns the vectors in the order of the texts, and the number of tokens if the server counted
/// them.
fn read(text: &str, count: usize) -> Result<(Vec<Vec<f32>>, Option<u64>), String> {
    let answer: Response =
        serde_json::from_str(text).map_err(|error| format!("the vectors are not understood: {error}"))?;
    let mut vectors = vec![Vec::new(); count];
    for item in answer.data {
        if let Some(place) = vectors.get_mut(item.index) {
            *place = item.embedding;
        }
    }
    if vectors.iter().any(Vec::is_empty) {
        Err(format!("{count} vectors were asked for, and some are missing"))
    } else {
        let tokens = bounded(answer.usage.and_then(|usage| usage.prompt_tokens));
        Ok((vectors, (tokens > 0).then_some(tokens)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::read;

    #[test]
    fn vectors_come_in_any_order_and_none_may_be_missing() {
        let text = r#"{"data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1, 0.5]}], "usage": {"prompt_tokens": 7}}"#;
        assert_eq!(read(text, 2), Ok((vec![vec![1.0, 0.5], vec![2.0]], Some(7))));
        assert!(read(text, 3).unwrap_err().contains("missing"));
        assert!(read("{}", 1).unwrap_err().contains("not understood"));
    }
}
