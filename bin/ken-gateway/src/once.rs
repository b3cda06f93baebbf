//! Repeating a request: `Idempotency-Key`. The store keeps a seed for each key, and all ids of the work are minted from
//! it, so that a repeat finds whatever its first try has made and goes on from there, also after a crash.

use ken_http::http::header::{HeaderName, HeaderValue};
use ken_http::{Caller, Envelope, Failure, Request, Response};
use ken_types::id::{Mint, random};
use ken_types::limits::KEY_CHARACTERS;
use ken_types::ops::store::{BeginKey, FinishKey, KeptAnswer, KeyState, KeysBegin, KeysFinish};
use ken_types::{Error, Timestamp};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::gateway::{CALL, Gateway};
use crate::read::header_value;

/// An answer that can be kept.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    body: Vec<u8>,
    headers: Vec<(String, String)>,
    keep: bool,
}

impl Answer {
    pub(crate) fn json(status: u16, value: &impl Serialize) -> Result<Answer, Failure> {
        let body = serde_json::to_vec(value)
            .map_err(|error| Error::internal(format!("an answer could not be written: {error}")))?;
        Ok(Answer {
            status,
            body,
            headers: Vec::new(),
            keep: true,
        })
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Answer {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The work goes on and a repeat shall join it rather than get this again.
    pub(crate) fn not_kept(mut self) -> Answer {
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

    fn replayed(kept: KeptAnswer) -> Answer {
        Answer {
            status: kept.status,
            body: kept.body.into_bytes(),
            headers: kept.headers,
            keep: false,
        }
        .header("idempotency-replayed", "true")
    }
}

/// Does work that accepts something. With a key: at most once, however often it is asked for.
pub(crate) async fn once<W>(
    gateway: &Gateway,
    request: &Request,
    body: &[u8],
    envelope: Envelope,
    work: W,
) -> Result<Response, Failure>
where
    W: AsyncFnOnce(Mint) -> Result<Answer, Failure>,
{
    let Some(key) = key(request)? else {
        return work(Mint::fresh()?).await?.into_response();
    };
    let name = digest(&[
        caller(request).as_bytes(),
        request.method().as_str().as_bytes(),
        request.path().as_bytes(),
        key,
    ]);
    let state = begin(gateway, &name, body).await?;
    if let Some(kept) = state.answer {
        return Answer::replayed(kept).into_response();
    }
    let done = work(Mint::of(state.at, &seed(&state.seed)?)).await;
    finish(gateway, name, &done, |failure| {
        failure.body(envelope, request.id())
    })
    .await?;
    done?.into_response()
}

async fn begin(gateway: &Gateway, name: &str, body: &[u8]) -> Result<KeyState, Failure> {
    let fresh: [u8; 16] = random()?;
    let begin = BeginKey {
        key: name.to_owned(),
        body: digest(&[body]),
        seed: hex(&fresh),
        at: Timestamp::now(),
    };
    let begun = gateway.store.call::<KeysBegin>(&begin, CALL).await;
    begun.map_err(|error| match error.code {
        ken_types::Code::Conflict => Failure::from(error.at("idempotency-key")).kind("idempotency_conflict"),
        _ => error.into(),
    })
}

/// Keeps what was accepted, and forgets the key of what was not: it may be tried again, with another body too. An
/// answer that is neither stays open, to be joined.
async fn finish(
    gateway: &Gateway,
    key: String,
    done: &Result<Answer, Failure>,
    body: impl Fn(&Failure) -> Vec<u8>,
) -> Result<(), Error> {
    let answer = match done {
        Ok(answer) if !answer.keep => return Ok(()),
        Ok(answer) => Some(answer.kept()),
        Err(failure) => match failure.status_code().as_u16() {
            400..=429 | 503 => None,
            status => Some(kept(status, &body(failure), own_headers(failure))),
        },
    };
    gateway
        .store
        .call::<KeysFinish>(&FinishKey { key, answer }, CALL)
        .await?;
    Ok(())
}

fn kept(status: u16, body: &[u8], headers: Vec<(String, String)>) -> KeptAnswer {
    KeptAnswer {
        status,
        body: String::from_utf8_lossy(body).into_owned(),
        headers,
    }
}

fn own_headers(failure: &Failure) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).ok();
    let headers = failure.headers().iter();
    headers
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)))
        .collect()
}

/// 1 to 255 visible characters.
fn key(request: &Request) -> Result<Option<&[u8]>, Error> {
    let Some(value) = request.headers().get("idempotency-key") else {
        return Ok(None);
    };
    let key = value.as_bytes();
    let fits = (1..=KEY_CHARACTERS).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    match fits && request.headers().get_all("idempotency-key").iter().count() == 1 {
        true => Ok(Some(key)),
        false => Err(Error::invalid(
            "idempotency-key",
            "one key of 1 to 255 visible characters",
        )),
    }
}

/// Whose keys these are: the operator's, or those of an address.
fn caller(request: &Request) -> String {
    match request.caller() {
        Caller::Operator => "operator".to_owned(),
        Caller::Local | Caller::Anyone => request.peer().to_string(),
    }
}

/// SHA-256 in hex over parts of any content, each with its length in front.
fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn seed(text: &str) -> Result<[u8; 16], Error> {
    let number =
        u128::from_str_radix(text, 16).map_err(|_| Error::internal("a kept seed is not hexadecimal"))?;
    Ok(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_read_as_they_are_written() {
        let bytes: [u8; 16] = random().unwrap();
        assert_eq!(seed(&hex(&bytes)).unwrap(), bytes);
        assert!(seed("x").is_err());
    }

    #[test]
    fn parts_of_a_digest_cannot_run_into_each_other() {
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
