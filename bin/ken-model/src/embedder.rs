//! The model that computes vectors of texts.

use ken_types::Error;
use ken_types::ops::model::Embedded;

use crate::local::Vectors;
use crate::provider::{Provider, Rates, full_name};
use crate::remote::Remote;

#[derive(Debug)]
pub(crate) enum Embedder {
    Remote(Box<Remote>),
    Local(Vectors),
}

impl Embedder {
    /// Returns the name, `provider/model`.
    pub(crate) fn name(&self) -> String {
        match self {
            Embedder::Remote(remote) => full_name(remote.as_ref()),
            Embedder::Local(vectors) => vectors.name(),
        }
    }

    /// Returns why it cannot be called until the configuration changes, or `None` if it can.
    pub(crate) fn unusable(&self) -> Option<String> {
        match self {
            Embedder::Remote(remote) => remote.unusable(),
            Embedder::Local(_) => None,
        }
    }

    pub(crate) fn rates(&self) -> Rates {
        match self {
            Embedder::Remote(remote) => remote.rates(),
            Embedder::Local(_) => Rates::default(),
        }
    }

    /// Returns a vector for each text, in the order of the texts.
    pub(crate) async fn embed(&self, texts: &[String]) -> Result<Embedded, Error> {
        match self {
            Embedder::Remote(remote) => remote.embed(texts).await,
            Embedder::Local(vectors) => vectors.embed(texts).await,
        }
    }
}
