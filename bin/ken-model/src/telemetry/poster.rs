//! Sends requests to the collector.

use std::time::Duration;

use ken_types::{Error, config::OtlpProtocol, uri};
use ureq::Proxy;

use super::otlp::{self, OfHost};
use crate::http::{self, Http};

/// How long a collector may send nothing. Nobody waits for it, and a batch that is given up is sent again, so it gets
/// more than the 10 seconds that the specification of OpenTelemetry suggests.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Posts spans to one URL, with headers that can contain secrets.
pub(super) struct Poster {
    url: String,
    protocol: OtlpProtocol,
    headers: Vec<(String, String)>,
    http: Http,
}

impl Poster {
    pub(super) fn new(
        url: String,
        protocol: OtlpProtocol,
        headers: Vec<(String, String)>,
        proxy: Option<Proxy>,
    ) -> Result<Poster, Error> {
        if uri::after_http(&url).is_none() {
            return Err(Error::invalid("", "it is not an http or https address"));
        }
        Ok(Poster { url, protocol, headers, http: Http::new(SILENCE_TIMEOUT, proxy)? })
    }

    pub(super) fn protocol(&self) -> OtlpProtocol {
        self.protocol
    }

    /// Sends spans and returns the status of the response. Dropping the future ends the request.
    pub(super) async fn post(&self, hosts: &[OfHost]) -> Result<u16, Error> {
        let (content_type, body) = otlp::request(self.protocol, hosts);
        let mut headers = self.headers.clone();
        headers.push(("content-type".to_owned(), content_type.to_owned()));
        let connection = self.http.connection();
        let (caller, url) = (connection.caller(), self.url.clone());
        let posted = tokio::task::spawn_blocking(move || {
            let response = caller.post(&url, &headers, &body)?;
            let status = response.status().as_u16();
            // The response is read to its end so that the connection can be used again.
            _ = http::text(response);
            Ok::<u16, Error>(status)
        });
        let status = posted.await.map_err(|error| Error::internal(format!("telemetry was not sent: {error}")))?;
        connection.keep();
        status
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
                .and_then(|(name, value)| Some((name.trim().to_owned(), uri::decode(value.trim())?.into_owned())));
            pair.ok_or_else(|| "it is not a list of name=value, separated by commas".to_owned())
        })
        .collect()
}
