use std::cmp::Ordering;
use std::fmt;

use ken_tool::{Answer, Error, Verdict};
use serde::{Serialize, Serializer};

use crate::attempt::{Attempt, Status};
use crate::draft::Drafter;
use crate::laws::Laws;
use crate::question::Question;

/// All attempts and which of them is the best. There is at least one.
pub(crate) struct Response {
    best: usize,
    attempts: Vec<Attempt>,
    /// Why no further attempt was made.
    ended: Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Ended {
    Passed,
    /// The next draft was the same as an earlier one.
    Unchanged,
    OutOfRounds,
}

impl Response {
    /// Requests and judges drafts. Ends when a draft passes without conditions, when a draft equals an earlier one, or
    /// after `rounds` drafts.
    pub(crate) async fn to(
        question: &Question,
        drafter: &Drafter,
        laws: &Laws,
        rounds: usize,
    ) -> Result<Response, Error> {
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut ended = Ended::OutOfRounds;
        while attempts.len() < rounds {
            let response = drafter.draft(question, &attempts).await?;
            if attempts.iter().any(|attempt| attempt.response == response) {
                ended = Ended::Unchanged;
                break;
            }
            let judgement = laws.judge(&response, &question.context).await?;
            let status = judgement.pass_fail_status;
            attempts.push(Attempt { response, judgement });
            if status == Status::Pass {
                ended = Ended::Passed;
                break;
            }
        }
        Ok(Response { best: best(&attempts), attempts, ended })
    }

    fn best(&self) -> Option<&Attempt> {
        self.attempts.get(self.best)
    }
}

/// Returns the index of the best attempt: the one with the best status and, among those, with the highest score. If
/// scores are equal, it is the latest one.
fn best(attempts: &[Attempt]) -> usize {
    let compare = |a: &Attempt, b: &Attempt| -> Ordering {
        let (a, b) = (&a.judgement, &b.judgement);
        let by_score = a.overall().total_cmp(&b.overall());
        a.pass_fail_status.cmp(&b.pass_fail_status).then(by_score)
    };
    let numbered = attempts.iter().enumerate();
    numbered.max_by(|(_, a), (_, b)| compare(a, b)).map_or(0, |(place, _)| place)
}

impl Serialize for Response {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            response: Option<&'a str>,
            scores: Option<&'a serde_json::value::RawValue>,
            attempts: &'a [Attempt],
            pass_fail_status: Option<Status>,
            ended: Ended,
        }
        let best = self.best();
        Document {
            response: best.map(|best| best.response.as_str()),
            scores: best.map(|best| best.judgement.scores.as_ref()),
            attempts: &self.attempts,
            pass_fail_status: best.map(|best| best.judgement.pass_fail_status),
            ended: self.ended,
        }
        .serialize(serializer)
    }
}

impl Answer for Response {
    fn verdict(&self) -> Verdict {
        match self.best() {
            Some(best) if best.judgement.pass_fail_status > Status::Fail => Verdict::Positive,
            _ => Verdict::Negative,
        }
    }

    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        if let Some(best) = self.best() {
            writeln!(to, "{}\n", best.response.trim_end())?;
        }
        for (number, attempt) in self.attempts.iter().enumerate() {
            let judgement = &attempt.judgement;
            let chosen = if number == self.best { ", chosen" } else { "" };
            let (status, overall) = (judgement.pass_fail_status.name(), judgement.overall());
            writeln!(to, "attempt {}: {status}, {overall:.1} %{chosen}", number + 1)?;
            for violation in judgement.violations.iter().filter(|_| verbose) {
                writeln!(to, "  {violation}")?;
            }
        }
        if self.ended == Ended::Unchanged {
            writeln!(to, "the next draft was the same")?;
        }
        Ok(())
    }
}
