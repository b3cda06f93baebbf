use std::path::PathBuf;
use std::time::Duration;

use ken_flow::{Kind, Protocol, Tool};
use ken_tool::{Error, MAX_DEPTH};
use ken_types::json;
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::attempt::Judgement;

/// ken-laws as a co-process.
pub(crate) struct Laws {
    tool: Tool,
    /// The timeout of one call.
    limit: Duration,
}

/// The timeout of one call without a judge. ken-laws takes less than a second for a text of 8 MiB.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The default time limit of the judge (ken-laws(1)).
const JUDGE_TIMEOUT: Duration = Duration::from_secs(60);

impl Laws {
    /// Fails with the error of the JSON parser, at `--context`, if `context` is not JSON.
    pub(crate) fn new(
        strictness: &str,
        context: Option<&str>,
        sources: &[PathBuf],
        judge: Option<&str>,
    ) -> Result<Laws, Error> {
        let mut laws = Protocol::new("LAWS", Kind::Laws, "ken-laws", "");
        laws.args.extend(["--strictness".to_owned(), strictness.to_owned()]);
        if let Some(context) = context {
            json::parse(context.as_bytes(), MAX_DEPTH).map_err(|error| error.at("--context"))?;
            laws.args.extend(["--context".to_owned(), context.to_owned()]);
        }
        for path in sources {
            let name = path.to_str().ok_or_else(|| Error::invalid("--sources", "the name of the file is not UTF-8"))?;
            laws.args.push(format!("--sources={name}"));
        }
        if let Some(judge) = judge {
            laws.args.push(format!("--judge={judge}"));
            // Without a running system, ken-laws starts ken-model, which needs its settings.
            laws.environment = Kind::Model.environment();
        }
        let limit = if judge.is_some() { CALL_TIMEOUT + JUDGE_TIMEOUT } else { CALL_TIMEOUT };
        Ok(Laws { tool: Tool::new(&laws), limit })
    }

    pub(crate) async fn judge(&self, response: &str, context: &Value) -> Result<Judgement, Error> {
        #[derive(Serialize)]
        struct Line<'a> {
            text: &'a str,
            context: &'a Value,
        }
        let line = serde_json::to_string(&Line { text: response, context })
            .map_err(|error| Error::internal(error.to_string()))?;
        let answer = timeout(self.limit, self.tool.ask(&line, self.limit)).await;
        let answer = answer.map_err(|_| Error::deadline("ken-laws did not answer in time"))??;
        match answer.error() {
            Some(error) => Err(Error::new(error.code, format!("ken-laws cannot judge the draft: {}", error.message))),
            None => Judgement::read(answer.text()),
        }
    }
}
