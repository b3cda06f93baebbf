//! The certificate authorities that HTTPS trusts.

use std::sync::Arc;

use ken_types::Error;
use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

/// Returns the certificates in the file that `SSL_CERT_FILE` names, or Mozilla's if the variable is unset or empty.
/// Fails with `invalid` if the file is unreadable or contains no certificate.
pub fn roots() -> Result<RootCerts, Error> {
    let Some(file) = std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()) else {
        return Ok(RootCerts::WebPki);
    };
    let wrong = |why: String| Error::invalid("SSL_CERT_FILE", format!("{}: {why}", file.display()));
    let pem = std::fs::read(&file).map_err(|error| wrong(error.to_string()))?;
    let items = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<Certificate<'static>> = items.collect();
    if certificates.is_empty() {
        Err(wrong("it holds no certificate".into()))
    } else {
        Ok(RootCerts::Specific(Arc::new(certificates)))
    }
}
