//! What a person means by an id, or by a piece of one.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};
use ken_types::Error;
use ken_types::ops::ids::{FindIds, IdKind, IdsFind, MAX_FOUND, WORD_BYTES};

use crate::app::Gateway;
use crate::body::check_length;
use crate::page;

/// GET /api/ids
pub(crate) async fn find(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let word = query.one("word")?;
    if let Some(word) = word {
        check_length("?word", word, 1, WORD_BYTES)?;
    }
    let kinds = query.one("kind")?.into_iter().flat_map(|kinds| kinds.split(','));
    let named = |name: &str| {
        let names: Vec<&str> = IdKind::ALL.iter().map(|kind| kind.name()).collect();
        let message = || format!("kind is {name:?}, it must be one or more of {}, with commas", names.join(", "));
        IdKind::named(name).ok_or_else(|| Error::invalid("?kind", message()))
    };
    let args = FindIds {
        word: word.map(str::to_owned),
        kinds: kinds.map(named).collect::<Result<_, _>>()?,
        limit: page::limit(&query, MAX_FOUND, 10)?,
    };
    Response::json(200, &gateway.store.call::<IdsFind>(&args).await?)
}
