//! Where the settings say that the data is.

use ken_store::tables::postgres::Postgres;
use ken_types::Error;
use ken_types::config::Config;

/// Returns the URL of the database server, if one is set. `secret` is the one of the secrets.
pub(crate) fn server_url(config: &Config, secret: Option<String>) -> Result<Option<String>, Error> {
    if let Some(problem) = config.store.problem() {
        return Err(Error::invalid("store.url", format!("[store] url in ken.toml {problem}")));
    }
    let own = Some(config.store.url.clone()).filter(|url| !url.is_empty());
    let secret = secret.filter(|url| !url.is_empty());
    if let (Some(own), Some(secret)) = (&own, &secret) {
        Postgres::check_same(secret, own)?;
    }
    Ok(secret.or(own))
}
