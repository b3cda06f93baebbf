//! Where the settings say that the data is.

use ken_store::tables::postgres::Postgres;
use ken_types::config::{Config, STORE_URL};
use ken_types::places::Places;
use ken_types::{Error, secrets};

/// Returns the URL of the database server in the files of a system, if one is set.
pub(crate) fn server_url_of(places: &Places) -> Result<Option<String>, Error> {
    server_url(&ken_service::load_config(&places.config)?, secret(places)?)
}

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

/// Returns the URL from the environment or from `secrets.env`, in which kend looks first.
fn secret(places: &Places) -> Result<Option<String>, Error> {
    let path = places.secrets();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Error::invalid(path.display().to_string(), format!("cannot be read: {error}"))),
    };
    let found = secrets::find(&text, STORE_URL).map(str::to_owned);
    Ok(found.or_else(|| std::env::var(STORE_URL).ok()))
}
