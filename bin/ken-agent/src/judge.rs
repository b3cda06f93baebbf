//! Asks the model of `[model] judge` which sentences of an answer its sources support.

use std::time::Duration;

use ken_support::{Judging, MAX_ANSWER_BYTES, Support};
use ken_types::Error;
use ken_types::event::{JudgeUse, Usage};
use ken_types::fence::Fence;
use ken_types::ops::model::{Delta, Generate};
use tokio::time::{Instant, timeout_at};

use crate::model::{Model, ModelError, Reply};

/// The time limit for all calls for one answer. The answer has been shown to the user already, but the turn does not end
/// before its validation.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// An answer, and what it is compared with.
pub(crate) struct Question<'a> {
    pub(crate) text: &'a str,
    pub(crate) sources: &'a [&'a str],
    /// The instance whose budget the calls use.
    pub(crate) session: &'a str,
}

/// Applies the verdicts of the judge to the lexical comparison, and returns what the judge used. If it does not answer,
/// the comparison stays as it is.
pub(crate) async fn review<M: Model>(
    model: &M,
    name: &str,
    question: &Question<'_>,
    support: &mut Support,
) -> Result<JudgeUse, Error> {
    let started = Instant::now();
    let until = started + LIMIT;
    let mut judging = Judging::new(question.text, question.sources, support, Fence::fresh()?);
    while let Some(request) = judging.next_request() {
        let session = Some(question.session.to_owned());
        let request = Generate { model: Some(name.to_owned()), unlisted: true, session, ..request };
        let late = |_| Error::deadline(format!("the judge did not answer within {} s", LIMIT.as_secs()));
        judging.take(timeout_at(until, ask(model, &request)).await.unwrap_or_else(|elapsed| Err(late(elapsed))));
    }
    let judged = judging.end();
    judged.apply(support);
    let (provider, model) = name.split_once('/').unwrap_or((name, name));
    Ok(JudgeUse {
        provider: provider.to_owned(),
        model: model.to_owned(),
        sentences: support.sentences.len() as u64,
        judged: judged.count() as u64,
        calls: judged.calls,
        usage: judged.usage,
        duration_ms: started.elapsed().as_millis() as u64,
        error: judged.error.map(|error| error.message),
    })
}

async fn ask<M: Model>(model: &M, request: &Generate) -> Result<(String, Usage), Error> {
    let failed = |error: ModelError| match error {
        ModelError::Died => Error::unavailable("ken-model ended in the middle of its answer"),
        ModelError::Failed(error) => error,
    };
    let mut reply = model.generate(request).await.map_err(failed)?;
    let mut text = String::new();
    while let Some(delta) = reply.next().await {
        if let Delta::Text { delta } = delta? {
            text.push_str(&delta);
        }
        if text.len() > MAX_ANSWER_BYTES {
            return Err(Error::unavailable("the judge's answer is too long"));
        }
    }
    Ok((text, reply.end().await.map_err(failed)?.usage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Act, MemoryModel};

    #[tokio::test(start_paused = true)]
    async fn a_turn_waits_for_its_judge_for_a_limited_time() {
        let sources = ["A storm had broken the wall."];
        let question = Question { text: "Bad weather broke the wall.", sources: &sources, session: "s" };
        let mut support = ken_support::support(question.text, &sources);
        let before = support.clone();
        let started = Instant::now();
        let silent = MemoryModel::new(vec![vec![Act::Hang]]);
        let used = review(&silent, "test/m", &question, &mut support).await.unwrap();
        assert_eq!((used.judged, used.calls, support), (0, 1, before));
        assert_eq!(started.elapsed().as_secs(), LIMIT.as_secs());
        assert_eq!(used.error.unwrap(), "the judge did not answer within 20 s");
    }
}
