//! Rules for the budget: how much a model call can use under the limits for tokens and cost.

use ken_types::ops::budget::Reserve;

use crate::tables::Amount;

/// Returns the scope under which the usage of a day (in UTC) is stored. Its prefix distinguishes it from a session.
pub(crate) fn day_scope(day: &str) -> String {
    format!("day:{day}")
}

pub(crate) fn session_scope(session: &str) -> String {
    format!("session:{session}")
}

/// Converts US dollars to billionths of a US dollar.
pub(crate) fn billionths(dollars: f64) -> i64 {
    (dollars * 1e9).round() as i64
}

pub(crate) fn dollars(billionths: i64) -> f64 {
    billionths as f64 / 1e9
}

/// The refusal of a call: says which limit leaves too little for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exceeded(pub(crate) String);

/// A limit and what counts against it, both in tokens or both in billionths of a US dollar.
struct Cap {
    name: &'static str,
    max: i64,
    used: i64,
    /// What the request uses of the limit. `output` is what each token of the answer uses.
    input: i64,
    output: i64,
    is_cost: bool,
}

impl Cap {
    /// Returns how many tokens the answer can have; negative if the limit does not even cover the request.
    fn room(&self) -> i64 {
        let left = self.max.saturating_sub(self.used).saturating_sub(self.input);
        match self.output {
            _ if left < 0 => -1,
            0 => i64::MAX,
            price => left / price,
        }
    }

    fn message(&self, min: i64) -> String {
        let say =
            |amount: i64| if self.is_cost { format!("${:.6}", dollars(amount)) } else { format!("{amount} tokens") };
        let needed = self.input.saturating_add(self.output.saturating_mul(min));
        format!(
            "the budget of {} per {} does not cover this call: {} are used, and it needs {}",
            say(self.max),
            self.name,
            say(self.used),
            say(needed)
        )
    }
}

/// Returns how many tokens the answer can have. `day` and `session` are what already counts against their limits.
pub(crate) fn output(ask: &Reserve, day: Amount, session: Amount) -> Result<i64, Exceeded> {
    let tokens = |name, max: u64, used: Amount| Cap {
        name,
        max: whole(max),
        used: used.tokens,
        input: whole(ask.input_tokens),
        output: 1,
        is_cost: false,
    };
    let cost = |name, max: f64, used: Amount| Cap {
        name,
        max: billionths(max),
        used: used.cost,
        input: billionths(ask.input_price * ask.input_tokens as f64),
        output: billionths(ask.output_price),
        is_cost: true,
    };
    let is_free = ask.input_price == 0.0 && ask.output_price == 0.0;
    let caps = [
        tokens("day", ask.caps.tokens_per_day, day),
        tokens("session", ask.caps.tokens_per_session, session),
        cost("day", ask.caps.cost_per_day, day),
        cost("session", ask.caps.cost_per_session, session),
    ];
    let in_force = caps
        .iter()
        .filter(|cap| cap.max > 0 && !(cap.is_cost && is_free))
        .filter(|cap| cap.name == "day" || ask.session.is_some());
    let max = whole(ask.output_tokens);
    let min = whole(ask.least_output_tokens).min(max);
    match in_force.min_by_key(|cap| cap.room()) {
        Some(cap) if cap.room() < min => Err(Exceeded(cap.message(min))),
        Some(cap) => Ok(cap.room().min(max)),
        None => Ok(max),
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::config::Budget;

    fn ask(caps: Budget) -> Reserve {
        Reserve {
            id: "1".into(),
            session: Some("s".into()),
            input_tokens: 100,
            output_tokens: 1_000,
            least_output_tokens: 10,
            input_price: 1e-6,
            output_price: 2e-6,
            caps,
        }
    }

    fn used(tokens: i64, dollars: f64) -> Amount {
        Amount { tokens, cost: billionths(dollars) }
    }

    #[test]
    fn the_tightest_cap_limits_the_answer_and_a_spent_one_refuses() {
        let caps = Budget { tokens_per_day: 1_000, cost_per_session: 0.001, ..Budget::default() };
        let ask = ask(caps);
        let none = Amount::default();
        // The limit for tokens would allow more, but the remaining 0.0009 dollars only pay for 450 tokens of an answer.
        assert_eq!(output(&ask, none, none), Ok(450));
        assert_eq!(output(&ask, used(700, 0.0), none), Ok(200));
        assert_eq!(output(&ask, used(890, 0.0), none), Ok(10));
        let spent = output(&ask, used(891, 0.0), none).unwrap_err();
        assert_eq!(
            spent.0,
            "the budget of 1000 tokens per day does not cover this call: 891 tokens are used, and it needs 110 tokens"
        );
        let spent = output(&ask, none, used(0, 0.00095)).unwrap_err();
        assert!(spent.0.starts_with("the budget of $0.001000 per session"), "{spent:?}");
    }

    /// All combinations of limits, prices and uses, against the sentences of the configuration: each limit in force leaves so
    /// many tokens, the least of them counts, and less than what is needed is refused.
    #[test]
    fn each_limit_in_force_counts() {
        let some = [0, 1];
        let mut seen = std::collections::BTreeMap::new();
        for bits in 0..256u32 {
            let [day, session, day_cost, session_cost, is_session, is_free, is_used, is_short] =
                std::array::from_fn(|bit| bits & 1 << bit != 0);
            let caps = Budget {
                tokens_per_day: if day { 700 } else { 0 },
                tokens_per_session: if session { 600 } else { 0 },
                cost_per_day: if day_cost { 0.0006 } else { 0.0 },
                cost_per_session: if session_cost { 0.0005 } else { 0.0 },
            };
            let mut ask = ask(caps);
            ask.session = Some("s".to_owned()).filter(|_| is_session);
            if is_free {
                (ask.input_price, ask.output_price) = (0.0, 0.0);
            }
            ask.least_output_tokens = if is_short { 301 } else { 10 };
            let [of_day, of_session] = some.map(|number| used(if is_used { 100 * (number + 1) } else { 0 }, 0.0));
            // The prompt has 100 tokens, or costs 0.0001 dollars; a token of the answer costs 0.000002.
            let rooms = [
                (day, 700 - of_day.tokens - 100),
                (session && is_session, 600 - of_session.tokens - 100),
                (day_cost && !is_free, 250),
                (session_cost && is_session && !is_free, 200),
            ];
            let room = rooms.into_iter().filter(|(is_in_force, _)| *is_in_force).map(|(_, room)| room).min();
            let expected =
                room.map_or(Some(1_000), |room| Some(room).filter(|room| *room >= if is_short { 301 } else { 10 }));
            assert_eq!(output(&ask, of_day, of_session).ok(), expected, "{bits:08b}");
            *seen.entry(expected).or_insert(0) += 1;
        }
        assert!(seen.len() > 5, "{seen:?}");
    }

    #[test]
    fn what_is_needed_is_no_more_than_what_is_asked_for() {
        let mut ask = ask(Budget { tokens_per_day: 105, ..Budget::default() });
        (ask.output_tokens, ask.least_output_tokens) = (5, 10);
        assert_eq!(output(&ask, Amount::default(), Amount::default()), Ok(5));
        assert!(output(&ask, used(1, 0.0), Amount::default()).is_err());
        // A limit that the prompt alone exceeds is refused, even for no answer at all.
        (ask.output_tokens, ask.least_output_tokens) = (0, 0);
        assert_eq!(output(&ask, used(5, 0.0), Amount::default()), Ok(0));
        assert!(output(&ask, used(6, 0.0), Amount::default()).is_err());
        // An answer without a price is limited by nothing but its prompt.
        let mut ask = super::tests::ask(Budget { cost_per_day: 0.0001, ..Budget::default() });
        ask.output_price = 0.0;
        assert_eq!(output(&ask, Amount::default(), Amount::default()), Ok(1_000));
        assert!(output(&ask, used(0, 0.000_000_001), Amount::default()).is_err());
        ask.input_price = 0.0;
        ask.output_price = 2e-6;
        assert_eq!(output(&ask, Amount::default(), Amount::default()), Ok(50));
    }

    #[test]
    fn what_costs_nothing_counts_tokens_only_and_no_session_has_no_cap() {
        let caps = Budget { cost_per_day: 0.000_001, tokens_per_session: 1, ..Budget::default() };
        let mut free = ask(caps);
        (free.input_price, free.output_price) = (0.0, 0.0);
        assert!(output(&free, Amount::default(), Amount::default()).is_err());
        free.session = None;
        assert_eq!(output(&free, used(0, 5.0), Amount::default()), Ok(1_000));
    }
}
