//! Remembers which providers and models have failed, so that no call waits again for one that is down. After a pause, one call
//! goes through and shows whether it has come back. All of it is forgotten when the part ends: one failure is enough to know it again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ken_types::ops::model::{AT_PROVIDER, ProviderHealth};
use ken_types::{Code, Error, Timestamp};
use parking_lot::Mutex;

/// The pauses before one call goes through again: after the first failure, the second in a row, and so on.
const PAUSES_S: [u64; 5] = [5, 10, 20, 40, 60];
/// The number of server errors in a row from which a provider counts as down.
const SERVER_ERRORS: u32 = 2;
/// The maximum number of names. Evaluations can call any model, and each of them has a name.
const MAX_NAMES: usize = 512;

/// What a failed call says about whoever was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: the call was given up, or its answer broke off.
    Unknown,
    /// The provider has answered, and refuses this request or is overloaded. So it can be reached.
    Request,
    /// Nothing else can be expected of the provider: it cannot be reached, or refuses the key.
    Provider,
    /// The model does not exist, or the key is not allowed to use it.
    Model,
    /// The server failed. That happens, so it counts from the second time in a row.
    Server,
}

/// An error of a call, and what it says about the provider.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    pub(crate) fault: Fault,
}

impl Failed {
    pub(crate) fn new(error: Error, fault: Fault) -> Failed {
        Failed { error, fault }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed { error, fault: Fault::Unknown }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        failed.error
    }
}

/// What keeps models from being called.
#[derive(Debug, Default)]
pub(crate) struct Breakers {
    /// What is known of the providers, by `PROVIDER`, and of their models, by `PROVIDER/MODEL`.
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Why the budget does not cover the last call of a model, by `PROVIDER/MODEL`: another model may be cheaper, and its calls say nothing
    /// about this one. With the day, because a new day has its own budget.
    over_budget: Mutex<BTreeMap<String, (String, String)>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Server errors since the last success.
    server_errors: u32,
    last_success: Option<Timestamp>,
    last_failure: Option<Timestamp>,
    cause: String,
    down: Option<Down>,
}

#[derive(Debug, Clone, Copy)]
struct Down {
    since: Timestamp,
    /// The index of the current pause.
    pause: usize,
    /// When the next call goes through.
    next: Instant,
}

impl Entry {
    fn answers(&mut self, name: &str) {
        if self.down.take().is_some() {
            tracing::info!(provider = name, "answers again");
        }
        self.server_errors = 0;
    }
}

impl Down {
    fn pause(&self) -> Duration {
        Duration::from_secs(PAUSES_S.get(self.pause).copied().unwrap_or(60))
    }
}

impl Breakers {
    /// Fails if a provider or its model is down. After a pause, and for a model that a person has chosen, the call goes through and
    /// shows whether it is back; others fail meanwhile.
    pub(crate) fn admit(&self, provider: &str, model: &str, is_chosen: bool, now: Instant) -> Result<(), Error> {
        let mut entries = self.entries.lock();
        // Both are checked before either is changed: a call that does not go through must not take the place of the one that would show
        // whether the provider is back.
        for name in [provider, model] {
            if let Some(entry) = entries.get(name)
                && let Some(down) = entry.down
                && now < down.next
                && !is_chosen
            {
                return Err(is_down(name, &entry.cause, down.since));
            }
        }
        for name in [provider, model] {
            if let Some(down) = entries.get_mut(name).and_then(|entry| entry.down.as_mut()) {
                // No second call goes through before the first one has ended, or a pause is over.
                down.next = now + down.pause();
            }
        }
        Ok(())
    }

    pub(crate) fn succeed(&self, provider: &str, model: &str) {
        let mut entries = self.entries.lock();
        for name in [provider, model] {
            let Some(entry) = entry(&mut entries, name) else { continue };
            entry.answers(name);
            entry.last_success = Some(Timestamp::now());
        }
    }

    /// Records a failure. Returns the error for the caller, which says if there is no use in waiting.
    pub(crate) fn fail(&self, provider: &str, model: &str, failed: Failed, now: Instant) -> Error {
        let Failed { error, fault } = failed;
        let mut entries = self.entries.lock();
        if let (Fault::Request | Fault::Model, Some(known)) = (fault, entries.get_mut(provider)) {
            known.answers(provider);
        }
        let name = if fault == Fault::Model { model } else { provider };
        let Some(entry) = entry(&mut entries, name) else { return error };
        // What keeps it down stays the cause.
        if fault == Fault::Unknown && entry.down.is_some() {
            return error;
        }
        entry.last_failure = Some(Timestamp::now());
        entry.cause = Error { at: None, ..error.clone() }.to_string();
        match fault {
            Fault::Unknown | Fault::Request => return error,
            Fault::Server => entry.server_errors += 1,
            Fault::Provider | Fault::Model => {}
        }
        let is_down = fault != Fault::Server || entry.server_errors >= SERVER_ERRORS || entry.down.is_some();
        if !is_down {
            return error;
        }
        match &mut entry.down {
            Some(down) => {
                down.pause = (down.pause + 1).min(PAUSES_S.len() - 1);
                down.next = now + down.pause();
            }
            None => {
                tracing::warn!(provider = name, "not called for now: {}", entry.cause);
                entry.down =
                    Some(Down { since: Timestamp::now(), pause: 0, next: now + Duration::from_secs(PAUSES_S[0]) });
            }
        }
        match error.code {
            Code::Unavailable | Code::Deadline => error.at(AT_PROVIDER),
            _ => error,
        }
    }

    /// Returns why the budget covers no call of a model at the moment, of any of them.
    pub(crate) fn over_budget(&self) -> Option<String> {
        let refused = self.over_budget.lock();
        let today = Timestamp::now().day();
        refused.values().find(|(day, _)| *day == today).map(|(_, why)| why.clone())
    }

    pub(crate) fn set_over_budget(&self, model: &str, why: Option<String>) {
        let mut refused = self.over_budget.lock();
        let today = Timestamp::now().day();
        refused.retain(|name, (day, _)| name != model && *day == today);
        if let Some(why) = why
            && refused.len() < MAX_NAMES
        {
            refused.insert(model.to_owned(), (today, why));
        }
    }

    /// Returns the names and causes of those that are down.
    pub(crate) fn down(&self) -> Vec<(String, String)> {
        let entries = self.entries.lock();
        let down = entries.iter().filter(|(_, entry)| entry.down.is_some());
        down.map(|(name, entry)| (name.clone(), entry.cause.clone())).collect()
    }

    pub(crate) fn health(&self, now: Instant) -> Vec<ProviderHealth> {
        let left = |next: Instant| i64::try_from(next.saturating_duration_since(now).as_millis()).unwrap_or_default();
        let entries = self.entries.lock();
        let health = entries.iter().map(|(name, entry)| ProviderHealth {
            name: name.clone(),
            last_success: entry.last_success,
            last_failure: entry.last_failure,
            cause: Some(entry.cause.clone()).filter(|cause| !cause.is_empty()),
            down_since: entry.down.map(|down| down.since),
            next_attempt: entry.down.map(|down| Timestamp::now().plus_millis(left(down.next))),
        });
        health.collect()
    }
}

/// Returns the entry of a name. `None` if there are too many names.
fn entry<'a>(entries: &'a mut BTreeMap<String, Entry>, name: &str) -> Option<&'a mut Entry> {
    if entries.len() >= MAX_NAMES && !entries.contains_key(name) {
        return None;
    }
    Some(entries.entry(name.to_owned()).or_default())
}

fn is_down(name: &str, cause: &str, since: Timestamp) -> Error {
    Error::unavailable(format!("{name} is down since {since}: {cause}")).at(AT_PROVIDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "p/m";

    fn failed(fault: Fault) -> Failed {
        Failed::new(Error::unavailable("refused"), fault)
    }

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn is_open(breakers: &Breakers, now: Instant) -> bool {
        breakers.admit("p", MODEL, false, now).is_err()
    }

    #[test]
    fn one_call_goes_through_after_5_10_20_40_60_and_60_seconds() {
        let (breakers, start) = (Breakers::default(), Instant::now());
        let error = breakers.fail("p", MODEL, failed(Fault::Provider), start);
        assert_eq!(error.at.as_deref(), Some(AT_PROVIDER));
        let mut now = start;
        for pause in [5, 10, 20, 40, 60, 60] {
            assert!(is_open(&breakers, at(now, pause) - Duration::from_millis(1)), "{pause}");
            now = at(now, pause);
            assert!(!is_open(&breakers, now), "{pause}");
            assert!(is_open(&breakers, now), "one call only");
            breakers.fail("p", MODEL, failed(Fault::Provider), now);
        }
        breakers.succeed("p", MODEL);
        assert!(!is_open(&breakers, now) && breakers.down().is_empty());
        breakers.fail("p", MODEL, failed(Fault::Provider), now);
        assert!(!is_open(&breakers, at(now, 5)), "the pauses begin anew");
    }

    #[test]
    fn a_call_that_never_ends_does_not_keep_it_down() {
        let (breakers, start) = (Breakers::default(), Instant::now());
        breakers.fail("p", MODEL, failed(Fault::Provider), start);
        assert!(!is_open(&breakers, at(start, 5)));
        assert!(is_open(&breakers, at(start, 9)));
        assert!(!is_open(&breakers, at(start, 10)));
    }

    #[test]
    fn server_errors_count_from_the_second_in_a_row() {
        let (breakers, now) = (Breakers::default(), Instant::now());
        assert_eq!(breakers.fail("p", MODEL, failed(Fault::Server), now).at, None);
        breakers.succeed("p", MODEL);
        breakers.fail("p", MODEL, failed(Fault::Server), now);
        assert!(!is_open(&breakers, now));
        assert_eq!(breakers.fail("p", "p/other", failed(Fault::Server), now).at.as_deref(), Some(AT_PROVIDER));
        assert!(is_open(&breakers, now));
    }

    #[test]
    fn a_missing_model_is_down_and_its_provider_is_not() {
        let (breakers, now) = (Breakers::default(), Instant::now());
        breakers.fail("p", MODEL, failed(Fault::Model), now);
        assert!(is_open(&breakers, now));
        assert!(breakers.admit("p", "p/other", false, now).is_ok());
    }

    #[test]
    fn a_model_that_is_down_takes_no_trial_of_its_provider() {
        let (breakers, start) = (Breakers::default(), Instant::now());
        // The model is missing and down until 15, the provider fails and is down until 11.
        for seconds in [0, 5] {
            breakers.fail("p", "p/a", failed(Fault::Model), at(start, seconds));
        }
        breakers.fail("p", "p/b", failed(Fault::Provider), at(start, 6));
        let admits = |model: &str| breakers.admit("p", model, false, at(start, 11)).is_ok();
        assert_eq!(["p/a", "p/a", "p/b", "p/b"].map(admits), [false, false, true, false]);
    }

    #[test]
    fn an_overload_never_counts() {
        let (breakers, now) = (Breakers::default(), Instant::now());
        for _ in 0..10 {
            assert_eq!(breakers.fail("p", MODEL, failed(Fault::Request), now).at, None);
        }
        assert!(!is_open(&breakers, now));
    }

    #[test]
    fn a_provider_that_refuses_a_request_has_come_back() {
        for fault in [Fault::Request, Fault::Model] {
            let (breakers, now) = (Breakers::default(), Instant::now());
            breakers.fail("p", "p/other", failed(Fault::Provider), now);
            breakers.fail("p", "p/another", failed(fault), at(now, 5));
            assert!(!is_open(&breakers, at(now, 5)), "{fault:?}");
        }
        let (breakers, now) = (Breakers::default(), Instant::now());
        breakers.fail("p", MODEL, failed(Fault::Provider), now);
        breakers.fail("p", MODEL, failed(Fault::Unknown), now);
        assert!(is_open(&breakers, now), "a call that was given up shows nothing");
    }

    #[test]
    fn a_call_that_the_budget_covers_says_nothing_about_other_models() {
        let breakers = Breakers::default();
        breakers.set_over_budget("p/a", Some("a".into()));
        breakers.set_over_budget("p/b", Some("b".into()));
        for (covered, left) in [("p/free", Some("a")), ("p/a", Some("b")), ("p/b", None)] {
            breakers.set_over_budget(covered, None);
            assert_eq!(breakers.over_budget().as_deref(), left, "{covered}");
        }
    }

    #[test]
    fn a_chosen_model_is_called_although_it_is_down() {
        let (breakers, now) = (Breakers::default(), Instant::now());
        breakers.fail("p", MODEL, failed(Fault::Provider), now);
        assert!(breakers.admit("p", MODEL, true, now).is_ok());
    }
}
