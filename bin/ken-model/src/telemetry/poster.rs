//! Requests to the collector.

use ken_types::Error;

use crate::http::{self, Http};

/// Posts JSON to one URL, with headers that can contain secrets.
#[derive(Clone)]
pub(super) struct Poster {
    url: String,
    headers: Vec<(String, String)>,
    http: Http,
}

impl Poster {
    pub(super) fn new(url: String, headers: Vec<(String, String)>) -> Result<Poster, Error> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Error::invalid("", "it is not an http or https address"));
        }
        let http = Http::from_environment()?;
        Ok(Poster { url, headers, http })
    }

    /// Sends a body and returns the status of the response. Blocks.
    pub(super) fn post(&self, body: &str) -> Result<u16, Error> {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = headers.collect();
        let response = self.http.post(&self.url, &headers, body)?;
        let status = response.status().as_u16();
        // The response is read to its end so that the connection can be used again.
        _ = http::text(response);
        Ok(status)
    }
}

/// Parses headers in the format of `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,name=value` with percent-encoded values.
/// The error does not contain them.
pub(super) fn decoded_headers(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let pair = pair
                .split_once('=')
                .and_then(|(name, value)| Some((name.trim().to_owned(), percent_decoded(value.trim())?)));
            pair.ok_or_else(|| "it is not a list of name=value, separated by commas".to_owned())
        })
        .collect()
}

/// Returns `None` if the percent-encoding is malformed or the result is not UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
