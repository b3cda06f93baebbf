//! How much of the model's context window a conversation uses. All figures are in tokens. They are estimates
//! (`estimated_tokens`) until a model has counted them.

use ken_types::event::estimated_tokens;
use ken_types::ops::model::ModelState;
use serde_json::{Value, json};

use crate::past::Loaded;

#[derive(Debug, Clone)]
pub(crate) struct Budget {
    /// As `provider/model`.
    model: String,
    window: u64,
    reserve: u64,
}

impl Budget {
    pub(crate) fn of(state: &ModelState) -> Budget {
        Budget {
            model: state.models.first().cloned().unwrap_or_default(),
            window: state.context_window,
            reserve: state.output_reserve,
        }
    }

    /// The maximum number of tokens of a request.
    pub(crate) fn usable(&self) -> u64 {
        self.window.saturating_sub(self.reserve)
    }

    fn share(&self, percent: u64) -> u64 {
        self.usable() * percent / 100
    }

    fn warning(&self) -> u64 {
        self.share(70)
    }

    /// From this number of tokens, the history is compacted before the next prompt.
    pub(crate) fn compaction(&self) -> u64 {
        self.share(80)
    }

    fn hard_stop(&self) -> u64 {
        self.share(95)
    }

    fn status(&self, used: u64) -> &'static str {
        match used {
            used if used >= self.hard_stop() => "stop",
            used if used >= self.compaction() => "compact",
            used if used >= self.warning() => "warn",
            _ => "normal",
        }
    }

    /// Returns the `contextUsage` of an answer.
    pub(crate) fn usage(&self, used: u64) -> Value {
        json!({
            "available": true,
            "source": "session-budget",
            "modelSpecifier": self.model,
            "usedTokens": used.min(self.window),
            "capacityTokens": self.window,
        })
    }

    /// Returns the `contextBudget` of `/compact`. `fixed` is the number of tokens that every request contains.
    /// `summary` is the text that now replaces the history, if it was compacted.
    pub(crate) fn report(&self, loaded: &Loaded, fixed: u64, summary: Option<&str>) -> Value {
        let history = &loaded.history;
        let before_history = history_tokens(loaded);
        let before = fixed + before_history;
        let after_history = summary.map_or(before_history, estimated_tokens);
        let used = fixed + after_history;
        let last = loaded.past.last().map_or(0, |past| past.prompt_tokens);
        json!({
            "modelSpecifier": self.model,
            "enforcedContextWindow": self.window,
            "outputReserveTokens": self.reserve,
            "usableInputTokens": self.usable(),
            "warningTokens": self.warning(),
            "compactionTokens": self.compaction(),
            "hardStopTokens": self.hard_stop(),
            "estimatedHistoryTokens": after_history,
            "estimatedPromptTokens": fixed,
            "estimatedUsedTokens": used,
            "remainingInputTokens": self.usable().saturating_sub(used),
            "overageTokens": used.saturating_sub(self.usable()),
            "status": self.status(used),
            "shouldCompactBeforePrompt": used >= self.compaction(),
            "turns": history.turns,
            "compactions": history.compactions + u64::from(summary.is_some()),
            "compactedBeforePrompt": summary.is_some(),
            "prePromptStatus": self.status(before),
            "prePromptEstimatedUsedTokens": before,
            "lastPromptEstimateTokens": last,
        })
    }
}

pub(crate) fn history_tokens(loaded: &Loaded) -> u64 {
    let past = loaded.past.iter().map(|past| past.tokens).sum::<u64>();
    loaded.history.summary.as_deref().map_or(0, estimated_tokens) + past
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::past::Past;
    use crate::testing::{exchange, model_state};
    use ken_types::ops::store::{PastExchange, Quoted};

    fn budget() -> Budget {
        Budget::of(&model_state(vec!["rules/rules-1".into()]))
    }

    #[test]
    fn used_tokens_never_exceed_the_capacity() {
        assert_eq!(budget().usage(1_000_000)["usedTokens"], 98_304);
        assert_eq!(budget().usage(649)["usedTokens"], 649);
    }

    #[test]
    fn the_status_follows_the_marks_in_order() {
        let budget = budget();
        let marks = [0, budget.warning(), budget.compaction(), budget.hard_stop()];
        assert_eq!(marks.map(|used| budget.status(used)), ["normal", "warn", "compact", "stop"]);
    }

    /// What a prompt replies to is sent with it.
    #[test]
    fn the_text_that_a_prompt_replies_to_counts() {
        let tokens = |quoted| Past::all(vec![PastExchange { quoted, ..exchange("1", "p", "a") }])[0].tokens;
        let text = "x".repeat(4_096);
        let quoted = Quoted { text: text.clone(), author: None };
        assert_eq!(tokens(Some(quoted)) - tokens(None), estimated_tokens(&text));
    }
}
