//! The state that every command uses: settings, connections, cache.

use std::path::PathBuf;

use ken_types::Error;
use ken_types::address::Allowed;

use crate::cache::Cache;
use crate::fetch::Fetcher;
use crate::http::Http;
use crate::search::{Provider, Searcher};

pub(crate) struct Web {
    pub(crate) fetcher: Fetcher,
    pub(crate) searcher: Searcher,
    pub(crate) cache: Cache,
}

impl Web {
    /// Reads the settings from the environment, and the keys from the descriptor `KEN_SECRETS_FD` if it is set. It must
    /// be called only once, because the descriptor can be read only once.
    pub(crate) fn open() -> Result<Web, Error> {
        ken_service::inherit_secrets()?;
        let allow = variable("KEN_WEB_ALLOW").unwrap_or_default();
        let allowed = Allowed::parse_with_ports("KEN_WEB_ALLOW", &allow)?;
        let cache = variable("KEN_STATE_DIR").map(|state| PathBuf::from(state).join("web/cache"));
        let providers = Provider::configured(variable, ken_service::secret)?;
        // The hosts that the operator has configured are allowed for searches only.
        let searched = providers.iter().fold(allowed.clone(), |allowed, provider| {
            let (host, port) = provider.host();
            allowed.with_host(&host, port)
        });
        Ok(Web {
            fetcher: Fetcher::new(Http::new(allowed)?),
            searcher: Searcher::new(Http::new(searched)?, providers),
            cache: Cache::new(cache, &allow),
        })
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}
