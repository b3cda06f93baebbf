//! The console: its files, and the trade of a code for a token.

use std::path::PathBuf;
use std::sync::Arc;

use ken_http::http::HeaderMap;
use ken_http::http::header::{AUTHORIZATION, HOST, ORIGIN};
use ken_http::{Failure, Files, Request, Response, single};
use ken_types::id::random;
use ken_types::ops::gateway::LinkCode;
use ken_types::{Code, Error, Timestamp, hex, share};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::app::Gateway;
use crate::body::{self, given, required};
use crate::idempotency::begin;
use crate::link::LinkKey;

/// The headers of each file. Scripts, styles and requests are those of this origin alone; no other page can frame this one or
/// learn its address; and text never becomes markup.
const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; font-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// The files of the console. If they are not installed, each of them is 404.
pub(crate) fn files() -> Arc<Files> {
    let folder = share::find("console").next().unwrap_or_else(|| PathBuf::from("/nonexistent"));
    Arc::new(Files::new(folder, HEADERS, env!("CARGO_PKG_VERSION")))
}

/// GET of any path that is no route.
pub(crate) async fn file(files: Arc<Files>, request: Request) -> Result<Response, Failure> {
    files.answer(&request).await
}

/// Makes a code for `ken open`.
pub(crate) fn code(gateway: &Gateway) -> Result<LinkCode, Error> {
    let (code, expires_at) = gateway.link_key.code(Timestamp::now())?;
    let public_url = Some(gateway.public_url.clone()).filter(|url| !url.is_empty());
    Ok(LinkCode { code, expires_at, public_url })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Trade {
    #[serde(default, deserialize_with = "given")]
    code: Option<String>,
}

/// POST /console/token: trades a code for a token of this origin.
pub(crate) async fn trade(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let Some(host) = own_host(request.headers(), &gateway.public_url).map(str::to_owned) else {
        return Err(Error::forbidden("a page of another origin has sent this").at("origin").into());
    };
    let bytes = request.body().await?;
    let code = required("code", body::read::<Trade>(&bytes)?.code)?;
    let now = Timestamp::now();
    if !gateway.link_key.is_code(&code, now) {
        return Err(refused("the link is wrong, or older than a minute"));
    }
    use_up(&gateway, &code).await?;
    let (token, expires_at) = gateway.link_key.token(&host, now);
    Response::json(200, &json!({"token": token, "expiresAt": expires_at}))
}

fn refused(message: &str) -> Failure {
    let error = Error::new(Code::Unauthenticated, message).at("/code");
    error.hint("`ken open` makes a new link").into()
}

/// Marks a code as used, in the store: a gateway that is killed here must not take the code again. The body of each attempt
/// differs, so that the second one is a conflict.
async fn use_up(gateway: &Gateway, code: &str) -> Result<(), Failure> {
    let key = hex::encode(&Sha256::digest(format!("the code of a link {code}")));
    let begun = begin(gateway, &key, hex::encode(&random::<16>()?)).await;
    begun.map(drop).map_err(|error| match error.code {
        Code::Conflict => refused("the link was used before"),
        _ => error.into(),
    })
}

/// Whether a request has a token that is valid for the host to which it was sent. `public_url` is the configured one, or empty.
pub(crate) fn has_token(key: &LinkKey, public_url: &str, headers: &HeaderMap) -> bool {
    let given = single(headers, AUTHORIZATION).and_then(|value| std::str::from_utf8(value).ok());
    let token = given.and_then(|value| value.strip_prefix("Bearer "));
    match (token, own_host(headers, public_url)) {
        (Some(token), Some(host)) => key.is_token(token, host, Timestamp::now()),
        _ => false,
    }
}

/// The host to which a request was sent; `None` if a page of another origin has sent it.
fn own_host<'a>(headers: &'a HeaderMap, public_url: &str) -> Option<&'a str> {
    let host = headers.get(HOST)?.to_str().ok()?;
    let is_own = |origin: &str| {
        let called = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        // A proxy may pass on the name without the port.
        called.is_some_and(|called| called.eq_ignore_ascii_case(host)) || origin.eq_ignore_ascii_case(public_url)
    };
    let origins_are_own = headers.get_all(ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(is_own));
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes().to_ascii_lowercase());
    let is_same_site = site.is_none_or(|site| matches!(site.as_slice(), b"same-origin" | b"none"));
    (origins_are_own && is_same_site).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_http::http::HeaderValue;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn a_token_holds_only_where_it_was_made() {
        let key = LinkKey::new(Some("secret"), std::path::Path::new("/nowhere")).unwrap();
        let (token, _) = key.token("ken.example:8443", Timestamp::now());
        let bearer = format!("Bearer {token}");
        let (host, token) = (("host", "ken.example:8443"), ("authorization", bearer.as_str()));
        for (given, holds) in [
            (&[host, token][..], true),
            (&[host, token, ("origin", "https://ken.example:8443")], true),
            (&[host, token, ("sec-fetch-site", "same-origin")], true),
            (&[host, token, ("origin", "https://ken.example")], false),
            (&[host, token, ("origin", "null")], false),
            (&[host, token, ("sec-fetch-site", "cross-site")], false),
            (&[host, token, ("sec-fetch-site", "same-site")], false),
            (&[("host", "evil.test"), token], false),
            (&[host, token, token], false),
            (&[token], false),
            (&[host], false),
            (&[host, ("authorization", "Bearer x")], false),
            (&[host, ("authorization", &bearer["Bearer ".len()..])], false),
        ] {
            assert_eq!(has_token(&key, "", &headers(given)), holds, "{given:?}");
        }
        let (token, _) = key.token("ken.example", Timestamp::now());
        let bearer = format!("Bearer {token}");
        let behind_a_proxy =
            [("host", "ken.example"), ("authorization", bearer.as_str()), ("origin", "https://ken.example:8443")];
        for (public_url, holds) in [("https://ken.example:8443", true), ("https://ken.example", false), ("", false)] {
            assert_eq!(has_token(&key, public_url, &headers(&behind_a_proxy)), holds, "{public_url:?}");
        }
    }
}
