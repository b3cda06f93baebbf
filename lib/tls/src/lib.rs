//! What connections to other machines have in common: the certificate authorities that TLS trusts, the proxy, and how long a look-up takes.
//!
//! The authorities are those in the file that `SSL_CERT_FILE` names, or Mozilla's if the variable is unset or empty. Their functions fail with
//! `invalid` if the file is unreadable or contains no certificate.

use std::fmt::Display;
use std::time::Duration;

use ken_types::Error;
#[cfg(feature = "ureq")]
pub use proxy::{address, proxy};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
#[cfg(feature = "ureq")]
use ureq::tls::{Certificate, RootCerts};

#[cfg(feature = "ureq")]
mod proxy;

/// How long the address of a host may take to be found. The library of the system asks the second name server when the first has not
/// answered for 5 seconds.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(6);

const VARIABLE: &str = "SSL_CERT_FILE";

/// Returns the authorities for rustls.
pub fn root_store() -> Result<RootCertStore, Error> {
    let Some(certificates) = certificates()? else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let mut roots = RootCertStore::empty();
    certificates.into_iter().try_for_each(|certificate| roots.add(certificate)).map_err(wrong)?;
    Ok(roots)
}

/// Returns the authorities for ureq.
#[cfg(feature = "ureq")]
pub fn roots() -> Result<RootCerts, Error> {
    let Some(certificates) = certificates()? else {
        return Ok(RootCerts::WebPki);
    };
    let certificates = certificates.iter().map(|certificate| Certificate::from_der(certificate).to_owned());
    Ok(RootCerts::Specific(std::sync::Arc::new(certificates.collect())))
}

/// Reads the file, if one is named.
fn certificates() -> Result<Option<Vec<CertificateDer<'static>>>, Error> {
    let Some(file) = std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) else {
        return Ok(None);
    };
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(wrong)?;
    if Vec::is_empty(&certificates) { Err(wrong("it holds no certificate")) } else { Ok(Some(certificates)) }
}

fn wrong(why: impl Display) -> Error {
    let file = std::env::var_os(VARIABLE).unwrap_or_default();
    Error::invalid(VARIABLE, format!("{}: {why}", file.display()))
}
