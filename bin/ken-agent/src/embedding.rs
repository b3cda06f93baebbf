//! Queries as vectors, where the operator has chosen a model for them.

use std::time::Duration;

use ken_types::Error;
use ken_types::ops::documents::{PutVectors, VectorsPut};
use ken_types::ops::store::QueryVector;
use ken_wire::Pool;

use crate::model::WireModel;

/// A search does not wait longer for a vector; then it is made by words alone.
const PATIENCE: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct Embedding(Option<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    model: WireModel,
    store: Pool,
}

impl Embedding {
    pub(crate) fn new(model: WireModel, store: Pool) -> Embedding {
        Embedding(Some(Parts { model, store }))
    }

    /// Nobody makes vectors.
    pub(crate) fn none() -> Embedding {
        Embedding(None)
    }

    /// The query as a vector; none when no model is chosen for that, or the query has none.
    pub(crate) async fn query(&self, text: &str) -> Result<Option<QueryVector>, Error> {
        let Some(Parts { model, store }) = &self.0 else {
            return Ok(None);
        };
        if model.embedding().await.is_none() {
            return Ok(None);
        }
        let embedded = tokio::time::timeout(PATIENCE, model.embed(vec![text.to_owned()])).await;
        let late = |_| Error::deadline("the model of vectors did not answer in time");
        let embedded = embedded.map_err(late)??;
        let spent = PutVectors {
            model: embedded.model.clone(),
            vectors: Vec::new(),
            usage: embedded.usage,
        };
        let store = store.clone();
        // The search does not wait for the books.
        tokio::spawn(async move { store.call::<VectorsPut>(&spent, CALL).await });
        let values = embedded
            .vectors
            .into_iter()
            .next()
            .filter(|values| !values.is_empty());
        Ok(values.map(|values| QueryVector {
            model: embedded.model,
            values,
        }))
    }
}
