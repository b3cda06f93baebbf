//! Finds the gateway: that of this system, or the one that the caller names.

use ken_client::{Endpoint, Gateway, Secret, gateway_url};
use ken_types::Error;
use ken_types::places::Places;

use crate::cli::Cli;

pub(crate) fn gateway(cli: &Cli) -> Result<Gateway, Error> {
    let given = Secret::given(cli.secret_file.as_deref())?;
    let named = || std::env::var("KEN_BASE_URL").ok().filter(|url| !url.is_empty());
    if let Some(url) = cli.url.clone().or_else(named) {
        return Gateway::at(Endpoint::given(&url)?.with_secret(given));
    }
    let places = Places::here(cli.home.as_deref())?;
    let secret = match given {
        Some(secret) => Some(secret),
        None => Secret::configured(&places)?,
    };
    Gateway::located(move || Ok(Endpoint::new(&gateway_url(&places)?).with_secret(secret.clone())))
}
