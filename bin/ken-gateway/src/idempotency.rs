//! Idempotency keys: a client can repeat a request with the same `Idempotency-Key`. The store keeps a seed for each
//! key, and all ids of the work are derived from that seed. A repeated request therefore finds what the first one has
//! created, even after a crash, and continues from there.

use std::net::IpAddr;

use ken_http::http::header::{HeaderMap, HeaderName, HeaderValue};
use ken_http::{Caller, Envelope, Failure, Request, Response, header_value};
use ken_types::id::{Mint, random};
use ken_types::limits::KEY_CHARACTERS;
use ken_types::ops::store::{Accepted, BeginKey, FinishKey, KeptAnswer, KeyEnd, KeyState, KeysBegin, KeysFinish};
use ken_types::{Code, Error, Timestamp, hex};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::app::Gateway;

const REPLAYED: &str = "idempotency-replayed";

/// A response that can be stored with its key and replayed.
#[derive(Debug)]
pub(crate) struct ReplayableResponse {
    status: u16,
    body: Vec<u8>,
    headers: Vec<(String, String)>,
    keep: bool,
}

impl ReplayableResponse {
    pub(crate) fn json(status: u16, value: &impl Serialize) -> Result<ReplayableResponse, Failure> {
        let body = serde_json::to_vec(value)
            .map_err(|error| Error::internal(format!("an answer could not be written: {error}")))?;
        Ok(ReplayableResponse { status, body, headers: Vec::new(), keep: true })
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> ReplayableResponse {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Marks the response as temporary: the work is still running, and a repeated request waits for it too instead of
    /// getting this response.
    pub(crate) fn temporary(mut self) -> ReplayableResponse {
        self.keep = false;
        self
    }

    fn into_response(self) -> Result<Response, Failure> {
        let response = Response::json_bytes(self.status, self.body);
        self.headers.iter().try_fold(response, |response, (name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| Error::internal("the name of a kept header is none"))?;
            Ok(response.header(name, header_value(value)?))
        })
    }

    fn kept(&self) -> KeptAnswer {
        kept(self.status, &self.body, self.headers.clone())
    }

    fn replayed(kept: KeptAnswer) -> ReplayableResponse {
        ReplayableResponse { status: kept.status, body: kept.body.into_bytes(), headers: kept.headers, keep: false }
            .header(REPLAYED, "true")
    }
}

/// Does work that has an effect. With an idempotency key, the effect happens at most once, even if the request is
/// repeated.
pub(crate) async fn once<W>(
    gateway: &Gateway,
    request: &Request,
    body: &[u8],
    envelope: Envelope,
    work: W,
) -> Result<Response, Failure>
where
    W: AsyncFnOnce(Mint) -> Result<ReplayableResponse, Failure>,
{
    let Some(KeyName(name)) = KeyName::of(request)? else {
        return work(Mint::fresh()?).await?.into_response();
    };
    let state = begin_for(gateway, &name, body).await?;
    if let Some(kept) = state.answer {
        return ReplayableResponse::replayed(kept).into_response();
    }
    let done = work(mint(&state)?).await;
    let body = |failure: &Failure| failure.body(envelope, request.id());
    if let Some(end) = key_end(&done, body) {
        finish(gateway, &name, end).await;
    }
    done?.into_response()
}

/// The name under which the store keeps the key of a request.
pub(crate) struct KeyName(String);

impl KeyName {
    /// Returns `None` for a request without a key.
    pub(crate) fn of(request: &Request) -> Result<Option<KeyName>, Error> {
        let Some(key) = key(request.headers())? else { return Ok(None) };
        let (method, path) = (request.method().as_str().as_bytes(), request.path().as_bytes());
        Ok(Some(KeyName(digest(&[caller_name(request).as_bytes(), method, path, key]))))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}

/// Returns the name of the caller of a request, for keys and digests.
pub(crate) fn caller_name(request: &Request) -> String {
    owner(request.caller(), request.peer())
}

/// Begins the key of a request. Fails with 409 if the key stands for a request with another body.
pub(crate) async fn begin_for(gateway: &Gateway, name: &str, body: &[u8]) -> Result<KeyState, Failure> {
    begin(gateway, name, digest(&[body])).await.map_err(|error| match error.code {
        Code::Conflict => Failure::from(error.at("idempotency-key")).kind("idempotency_conflict"),
        _ => error.into(),
    })
}

/// Begins a key, or finds its state. A key that was begun with another body is a conflict.
pub(crate) async fn begin(gateway: &Gateway, name: &str, body: String) -> Result<KeyState, Error> {
    let seed = hex::encode(&random::<16>()?);
    let begin = BeginKey { key: name.to_owned(), body, seed, at: Timestamp::now() };
    gateway.store.call::<KeysBegin>(&begin).await
}

/// Returns how the key ends. `None` leaves it open, because the work is still running or its outcome is unknown. A
/// repeated request then continues the work.
fn key_end(done: &Result<ReplayableResponse, Failure>, body: impl Fn(&Failure) -> Vec<u8>) -> Option<KeyEnd> {
    match done {
        Ok(answer) => answer.keep.then(|| KeyEnd::Answered(answer.kept())),
        Err(failure) if failure.error().is_outcome_unknown() => None,
        Err(failure) => Some(not_accepted(failure).unwrap_or_else(|| {
            KeyEnd::Answered(kept(failure.status_code().as_u16(), &body(failure), own_headers(failure)))
        })),
    }
}

/// Returns how the key of a request ends that certainly accepted nothing.
fn not_accepted(failure: &Failure) -> Option<KeyEnd> {
    match failure.status_code().as_u16() {
        400..=429 => Some(KeyEnd::Refused),
        503 => Some(KeyEnd::NotReached),
        _ => None,
    }
}

/// Frees the key of a request that failed, unless that may have been accepted.
pub(crate) async fn release(gateway: &Gateway, key: &str, failure: &Failure) {
    if let Some(end) = not_accepted(failure) {
        finish(gateway, key, end).await;
    }
}

/// Keeps with a key what was accepted, in place of an answer, for work whose answer is made again of what is stored. It is kept before
/// there is an answer, because it names the session: if that is deleted for good, also while the turn runs, the key ends with it.
pub(crate) async fn keep_accepted(gateway: &Gateway, key: &str, accepted: &Accepted) {
    finish(gateway, key, KeyEnd::Answered(kept(200, json!(accepted).to_string().as_bytes(), Vec::new()))).await;
}

/// Says that an answer is that of an earlier request.
pub(crate) fn replayed(done: Result<Response, Failure>) -> Result<Response, Failure> {
    let (name, value) = (HeaderName::from_static(REPLAYED), HeaderValue::from_static("true"));
    match done {
        Ok(response) => Ok(response.header(name, value)),
        Err(failure) => Err(failure.header(name, value)),
    }
}

/// Records how the work ended. If the store cannot be reached, the key stays open. This is safe, because a repeated
/// request derives the same ids and finds the work done, so this request can be answered in any case.
pub(crate) async fn finish(gateway: &Gateway, key: &str, end: KeyEnd) {
    let finished = gateway.store.call::<KeysFinish>(&FinishKey { key: key.to_owned(), end }).await;
    if let Err(error) = finished {
        tracing::warn!("an idempotency key stays open: {error}");
    }
}

fn kept(status: u16, body: &[u8], headers: Vec<(String, String)>) -> KeptAnswer {
    KeptAnswer { status, body: String::from_utf8_lossy(body).into_owned(), headers }
}

fn own_headers(failure: &Failure) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).ok();
    let headers = failure.headers().iter();
    headers.filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?))).collect()
}

/// Returns the key of a request, which has 1 to 255 visible characters.
fn key(headers: &HeaderMap) -> Result<Option<&[u8]>, Error> {
    let fits = |key: &[u8]| (1..=KEY_CHARACTERS).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    let mut given = headers.get_all("idempotency-key").iter().map(HeaderValue::as_bytes);
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some(key), None) if fits(key) => Ok(Some(key)),
        _ => Err(Error::invalid("idempotency-key", "one key of 1 to 255 visible characters")),
    }
}

/// Returns the owner of a key: the operator, this machine (with any of its addresses), or another address. The three
/// forms differ, so no two owners share a key.
pub(crate) fn owner(caller: Caller, peer: IpAddr) -> String {
    match caller {
        Caller::Operator => "operator".to_owned(),
        Caller::Local { .. } => "local".to_owned(),
        Caller::Anyone => format!("address {}", peer.to_canonical()),
    }
}

/// Returns the SHA-256 digest of several parts, in hexadecimal. Each part is preceded by its length, so two different
/// lists of parts have different input.
pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize())
}

/// Returns the source of the ids of a key's work.
pub(crate) fn mint(state: &KeyState) -> Result<Mint, Error> {
    let seed = hex::decode(&state.seed).ok_or_else(|| Error::internal("a kept seed is not hexadecimal"))?;
    Ok(Mint::of(state.at, &seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_the_same_keys_on_ipv4_and_ipv6() {
        let owner = |caller, peer: &str| owner(caller, peer.parse().unwrap());
        let loopback = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"];
        let mut local = loopback.map(|peer| owner(Caller::Local { uid: Some(1) }, peer)).to_vec();
        local.dedup();
        assert_eq!(local.len(), 1);
        let mapped = owner(Caller::Anyone, "::ffff:10.0.0.1");
        assert_eq!(mapped, owner(Caller::Anyone, "10.0.0.1"));
        assert_ne!(mapped, owner(Caller::Anyone, "10.0.0.2"));
        // The operator has the same keys from every address, and shares them with nobody.
        let operator = owner(Caller::Operator, "127.0.0.1");
        assert_eq!(operator, owner(Caller::Operator, "10.0.0.1"));
        assert!(![local[0].as_str(), &mapped, &owner(Caller::Anyone, "127.0.0.1")].contains(&operator.as_str()));
        assert_ne!(local[0], mapped);
    }

    #[test]
    fn what_is_kept_with_a_key() {
        let end = |done: Result<ReplayableResponse, Failure>| match key_end(&done, |_| b"body".to_vec()) {
            None => "open".to_owned(),
            Some(KeyEnd::Refused) => "refused".to_owned(),
            Some(KeyEnd::NotReached) => "not reached".to_owned(),
            Some(KeyEnd::Answered(kept)) => format!("{} {}", kept.status, kept.body),
        };
        let answer = || ReplayableResponse::json(201, &1).unwrap();
        assert_eq!(end(Ok(answer())), "201 1");
        assert_eq!(end(Ok(answer().temporary())), "open");
        assert_eq!(end(Err(Error::internal("x").outcome_unknown().into())), "open");
        for (status, kept) in [
            (400, "refused"),
            (429, "refused"),
            (430, "430 body"),
            (500, "500 body"),
            (502, "502 body"),
            (503, "not reached"),
            (504, "504 body"),
        ] {
            let status = ken_http::http::StatusCode::from_u16(status).unwrap();
            assert_eq!(end(Err(Failure::new(status, Code::Internal, "x"))), kept);
        }
    }

    #[test]
    fn parts_of_a_digest_are_separated() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
