//! Turns that a schedule started: the agent that runs them, and the note in its prompt.

use ken_types::ops::schedules::target_agent;
use ken_types::ops::store::Claim;
use serde_json::Value;

pub(crate) fn agent(claim: &Claim) -> &'static str {
    target_agent(claim.context.as_ref())
}

/// Returns a note for the prompt, or `None` if a person or program sent the prompt.
pub(crate) fn note(claim: &Claim) -> Option<String> {
    let schedule = claim.context.as_ref()?.get("schedule")?;
    let text = |name: &str| schedule.get(name).and_then(Value::as_str);
    let mut note = format!(
        "\n# A scheduled turn\n\nThe schedule {:?} started this turn. Nobody is present: nobody can be asked, and nobody waits. \
         Do what the prompt says, and answer with the result alone.\n",
        text("slug")?
    );
    match text("slotAt") {
        Some(slot) => note.push_str(&format!(
            "It was due at {slot}; the time zone of the schedule is {}.\n",
            text("timezone").unwrap_or("UTC")
        )),
        None => note.push_str("It was started by hand.\n"),
    }
    Some(note)
}

/// Returns the data that were given with the schedule, as JSON.
pub(crate) fn payload(claim: &Claim) -> Option<String> {
    let payload = claim.context.as_ref()?.pointer("/schedule/payload")?;
    (!payload.is_null()).then(|| payload.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::names::{CODING_WORKER, ORCHESTRATOR};
    use crate::testing::claim;

    #[test]
    fn only_a_scheduled_turn_has_the_note() {
        let mut claim = claim("Good morning.");
        assert_eq!((note(&claim), agent(&claim)), (None, ORCHESTRATOR));
        claim.context = Some(json!({"workflow": "x"}));
        assert_eq!((note(&claim), agent(&claim)), (None, ORCHESTRATOR));
        claim.context = Some(json!({"schedule": {"slug": "morning", "slotAt": "2027-02-03T08:00:00.000Z",
            "timezone": "Europe/Zurich", "targetAgent": "coding-worker", "payload": {"a": "b"}}}));
        assert_eq!(agent(&claim), CODING_WORKER);
        assert_eq!(payload(&claim).as_deref(), Some(r#"{"a":"b"}"#));
        let note = note(&claim).unwrap();
        for part in ["\"morning\"", "2027-02-03T08:00:00.000Z", "Europe/Zurich"] {
            assert!(note.contains(part), "{note}");
        }
    }
}
