//! Remembers which calls have begun, so that a call that was interrupted is repeated only if it never began.

use std::collections::HashSet;

use ken_types::Error;
use ken_types::id::Mint;
use ken_types::ops::tools::CallTool;
use parking_lot::Mutex;

/// The maximum number of calls that are remembered. After that, all are forgotten, under a new name of this process.
const MAX_CALLS: usize = 10_000;

pub(crate) struct Begun(Mutex<Calls>);

struct Calls {
    /// The name of this process in [`Tools::process`](ken_types::ops::tools::Tools::process).
    process: String,
    keys: HashSet<String>,
}

impl Calls {
    fn fresh() -> Result<Calls, Error> {
        Ok(Calls { process: Mint::fresh()?.ulid(), keys: HashSet::new() })
    }
}

impl Begun {
    pub(crate) fn new() -> Result<Begun, Error> {
        Calls::fresh().map(|calls| Begun(Mutex::new(calls)))
    }

    pub(crate) fn process(&self) -> String {
        self.0.lock().process.clone()
    }

    /// Records that a call begins, right before its process starts. Fails with `conflict` if the call has begun before,
    /// or if that is not known. A request of a caller that died can still arrive here after that of the next one: the
    /// first of the two runs.
    pub(crate) fn begin(&self, call: &CallTool, is_idempotent: bool) -> Result<(), Error> {
        let Some(key) = call.key.as_ref().filter(|_| !is_idempotent) else {
            return Ok(());
        };
        let mut calls = self.0.lock();
        let is_known = call.repeated.as_ref().is_none_or(|process| *process == calls.process);
        let key = format!("{}/{key}", call.submission.as_deref().unwrap_or_default());
        if !is_known || calls.keys.contains(&key) {
            let message = format!("the call of {} may have begun before", call.name);
            return Err(Error::conflict(message).at("/repeated"));
        }
        if calls.keys.len() >= MAX_CALLS {
            *calls = Calls::fresh()?;
        }
        calls.keys.insert(key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(key: &str, repeated: Option<&str>) -> CallTool {
        CallTool { key: Some(key.into()), repeated: repeated.map(str::to_owned), ..CallTool::default() }
    }

    #[test]
    fn a_call_is_repeated_only_if_it_certainly_has_not_begun() {
        let begun = Begun::new().unwrap();
        let process = begun.process();
        begun.begin(&call("a", None), false).unwrap();
        assert!(begun.begin(&call("a", Some(&process)), false).is_err());
        assert!(begun.begin(&call("a", None), false).is_err());
        begun.begin(&call("a", None), true).unwrap();
        begun.begin(&call("b", Some(&process)), false).unwrap();
        assert!(begun.begin(&call("c", Some("another process")), false).is_err());
        begun.begin(&CallTool::default(), false).unwrap();
        begun.begin(&CallTool::default(), false).unwrap();
    }

    #[test]
    fn when_calls_are_forgotten_the_process_has_a_new_name() {
        let begun = Begun::new().unwrap();
        let process = begun.process();
        for number in 0..MAX_CALLS {
            begun.begin(&call(&number.to_string(), None), false).unwrap();
        }
        assert_eq!(begun.process(), process);
        begun.begin(&call("one more", None), false).unwrap();
        assert_ne!(begun.process(), process);
        assert!(begun.begin(&call("0", Some(&process)), false).is_err());
    }
}
