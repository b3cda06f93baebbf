//! Computes vectors of search queries, if the operator has chosen a model for it.

use std::sync::Arc;
use std::time::Duration;

use ken_types::ops::documents::{PutVectors, VECTOR_DIMENSIONS, VectorsPut};
use ken_types::ops::model::Embedded;
use ken_types::ops::store::QueryVector;
use ken_types::{Code, Error};
use ken_wire::Pool;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::WireModel;

/// How long a search waits for a vector. After that it uses words only.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// After a failure, no vectors are requested for this time, so that not every turn waits for a server that does
/// not respond.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct Embedding(Option<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    model: WireModel,
    store: Pool,
    /// The time and error of the model's last failure. Clones share it.
    failed: Arc<Mutex<Option<(Instant, Error)>>>,
}

impl Embedding {
    pub(crate) fn new(model: WireModel, store: Pool) -> Embedding {
        Embedding(Some(Parts { model, store, failed: Arc::default() }))
    }

    pub(crate) fn none() -> Embedding {
        Embedding(None)
    }

    /// Returns the query as a vector. Returns `None` if no model is chosen for it.
    pub(crate) async fn query(&self, text: &str) -> Result<Option<QueryVector>, Error> {
        let Some(parts) = &self.0 else {
            return Ok(None);
        };
        if parts.model.embedding().await?.is_none() {
            return Ok(None);
        }
        let embedded = parts.embed(text).await?;
        let values = embedded.vectors.into_iter().next();
        Ok(values.map(|values| QueryVector { model: embedded.model, values }))
    }
}

impl Parts {
    async fn embed(&self, text: &str) -> Result<Embedded, Error> {
        match &*self.failed.lock() {
            Some((at, error)) if at.elapsed() < PAUSE_AFTER_FAILURE => return Err(error.clone()),
            _ => {}
        }
        let embedded = tokio::time::timeout(QUERY_TIMEOUT, self.model.embed(vec![text.to_owned()])).await;
        let late = |_| Error::deadline("the model of vectors did not answer in time");
        let embedded = embedded.map_err(late).flatten().and_then(|embedded| self.paid(embedded));
        if let Err(error) = &embedded {
            tracing::warn!(code = error.code.name(), "knowledge is searched by words alone: {}", error.message);
        }
        // If the model refuses one text, it can still accept the next one.
        let failed = embedded.as_ref().err();
        let failed = failed.filter(|error| !is_refusal(error));
        *self.failed.lock() = failed.map(|error| (Instant::now(), error.clone()));
        embedded
    }

    /// Stores what a query's vector has cost, also if it is of no use. The search does not wait for that.
    fn paid(&self, embedded: Embedded) -> Result<Embedded, Error> {
        let (checked, store) = (dimensions(&embedded), self.store.clone());
        let put = without_vectors(&embedded, checked.clone().unwrap_or_default());
        tokio::spawn(async move { store.call::<VectorsPut>(&put, CALL_TIMEOUT).await });
        checked.map(|_| embedded)
    }
}

/// Returns the number of dimensions of vectors. Fails if they cannot be stored or compared. If all of them are zero, that is a refusal of the
/// texts: a zero vector has no direction.
pub(crate) fn dimensions(embedded: &Embedded) -> Result<usize, Error> {
    let Embedded { model, vectors, .. } = embedded;
    let dimensions = vectors.first().map(Vec::len).unwrap_or_default();
    if vectors.iter().any(|vector| vector.len() != dimensions) {
        return Err(Error::unavailable(format!("{model} returns vectors of different lengths")));
    }
    if dimensions > VECTOR_DIMENSIONS {
        let message = format!(
            "{model} returns vectors of {dimensions} dimensions, and at most {VECTOR_DIMENSIONS} can be stored: \
             choose another model with `embed` in ken.toml(5)"
        );
        return Err(Error::unavailable(message));
    }
    let has_direction =
        |vector: &Vec<f32>| vector.iter().any(|value| *value != 0.0) && vector.iter().all(|value| value.is_finite());
    if !vectors.iter().any(has_direction) {
        return Err(Error::invalid("", format!("{model} returns vectors that are zero or not finite")));
    }
    Ok(dimensions)
}

/// Returns what is stored of a call whose vectors are not: what it has cost.
pub(crate) fn without_vectors(embedded: &Embedded, dimensions: usize) -> PutVectors {
    PutVectors { model: embedded.model.clone(), vectors: Vec::new(), dimensions, usage: embedded.usage }
}

/// Whether the provider refuses this text, so that repeated attempts would fail, too.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error.code, Code::Invalid | Code::TooLarge)
}
