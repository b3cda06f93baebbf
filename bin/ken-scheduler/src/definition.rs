//! Checks the definition of a schedule against the rules of the HTTP contract. Errors name the wrong field.

use ken_types::Error;
use ken_types::ops::schedules::{
    AGENTS, DeliverTo, Fields, Missed, Overlap, SCHEDULE_PAYLOAD_BYTES, SCHEDULE_PROMPT_BYTES, SLUG_CHARACTERS,
    Schedule, ScheduleKind, Settings,
};
use serde_json::Value;

/// The definition of a schedule: what a user sets, without its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) settings: Settings,
    pub(crate) prompt: String,
    pub(crate) payload: Option<Value>,
    pub(crate) enabled: bool,
}

impl Definition {
    /// Returns the definition of a new schedule. Missing fields get their defaults.
    pub(crate) fn new(fields: Fields) -> Result<Definition, Error> {
        let kind = required("kind", fields.kind)?;
        let base = Definition {
            settings: Settings {
                kind,
                schedule: required("schedule", fields.schedule.clone())?,
                timezone: "UTC".to_owned(),
                target_agent: "orchestrator".to_owned(),
                max_attempts: 3,
                delete_after_run: kind == ScheduleKind::At,
                missed: Missed::Last,
                grace_ms: 60_000,
                overlap: Overlap::Skip,
                timeout_ms: 600_000,
                jitter_ms: 0,
                deliver_to: None,
                disable_after_failures: None,
            },
            prompt: required("prompt", fields.prompt.clone())?,
            payload: None,
            enabled: true,
        };
        base.with(fields)
    }

    /// Returns a definition for a preview, which only uses the slots.
    pub(crate) fn preview(kind: ScheduleKind, schedule: &str, tz: &str) -> Result<Definition, Error> {
        Definition::new(Fields {
            kind: Some(kind),
            schedule: Some(schedule.to_owned()),
            tz: Some(tz.to_owned()),
            prompt: Some("-".to_owned()),
            ..Fields::default()
        })
    }

    pub(crate) fn of(schedule: Schedule) -> Definition {
        Definition {
            settings: schedule.settings,
            prompt: schedule.prompt,
            payload: schedule.payload,
            enabled: schedule.enabled,
        }
    }

    /// Returns the definition with the given fields changed.
    pub(crate) fn with(self, fields: Fields) -> Result<Definition, Error> {
        if fields.kind.is_some_and(|kind| kind != self.settings.kind) {
            let error = Error::invalid("/kind", "kind: it cannot be changed");
            return Err(error.hint("POST with \"replace\": true makes the schedule anew"));
        }
        let zone = match (fields.tz, fields.timezone) {
            (Some(tz), Some(timezone)) if !tz.eq_ignore_ascii_case(&timezone) => {
                let message = format!("timezone is {timezone:?} and tz is {tz:?}, and they are the same field");
                return Err(Error::invalid("/timezone", message));
            }
            (tz, timezone) => tz.or(timezone),
        };
        let Definition { settings: old, prompt, payload, enabled } = self;
        let changed = Definition {
            settings: Settings {
                kind: old.kind,
                schedule: fields.schedule.unwrap_or(old.schedule),
                timezone: zone.unwrap_or(old.timezone),
                target_agent: fields.target_agent.unwrap_or(old.target_agent),
                max_attempts: fields.max_attempts.unwrap_or(old.max_attempts),
                delete_after_run: fields.delete_after_run.unwrap_or(old.delete_after_run),
                missed: fields.missed.unwrap_or(old.missed),
                grace_ms: fields.grace_ms.unwrap_or(old.grace_ms),
                overlap: fields.overlap.unwrap_or(old.overlap),
                timeout_ms: fields.timeout_ms.unwrap_or(old.timeout_ms),
                jitter_ms: fields.jitter_ms.unwrap_or(old.jitter_ms),
                deliver_to: fields.deliver_to.unwrap_or(old.deliver_to),
                disable_after_failures: fields.disable_after_failures.unwrap_or(old.disable_after_failures),
            },
            prompt: fields.prompt.unwrap_or(prompt),
            payload: fields.payload.unwrap_or(payload),
            enabled: fields.enabled.unwrap_or(enabled),
        };
        changed.check()?;
        Ok(changed)
    }

    fn check(&self) -> Result<(), Error> {
        let settings = &self.settings;
        let number = |name: &str, value: i64, min: i64, max: i64| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(Error::invalid(format!("/{name}"), format!("{name} is {value}, it must be {min} to {max}")))
            }
        };
        number("maxAttempts", settings.max_attempts.into(), 1, 10)?;
        number("graceMs", settings.grace_ms, 0, 86_400_000)?;
        number("timeoutMs", settings.timeout_ms, 1_000, 3_600_000)?;
        number("jitterMs", settings.jitter_ms, 0, 3_600_000)?;
        if let Some(failures) = settings.disable_after_failures {
            number("disableAfterFailures", failures.into(), 1, 1_000)?;
        }
        if !AGENTS.contains(&settings.target_agent.as_str()) {
            let message = format!("targetAgent is {:?}, it must be {}", settings.target_agent, AGENTS.join(" or "));
            return Err(Error::invalid("/targetAgent", message));
        }
        if let Some(DeliverTo::Chat(to)) = &settings.deliver_to
            && to.connector != "messenger"
        {
            let message = format!("deliverTo: the connector is {:?}, it must be messenger", to.connector);
            return Err(Error::invalid("/deliverTo/connector", message));
        }
        self.check_texts()
    }

    fn check_texts(&self) -> Result<(), Error> {
        let bytes = self.prompt.len();
        if self.prompt.trim().is_empty() {
            return Err(Error::invalid("/prompt", "prompt is blank"));
        }
        if bytes > SCHEDULE_PROMPT_BYTES {
            let message = format!("prompt has {bytes} bytes, at most {SCHEDULE_PROMPT_BYTES} are allowed");
            return Err(Error::invalid("/prompt", message));
        }
        let Some(payload) = &self.payload else {
            return Ok(());
        };
        if !payload.is_object() {
            return Err(Error::invalid("/payload", "payload is not an object"));
        }
        let bytes = payload.to_string().len();
        if bytes > SCHEDULE_PAYLOAD_BYTES {
            let message = format!("payload has {bytes} bytes as JSON, at most {SCHEDULE_PAYLOAD_BYTES} are allowed");
            return Err(Error::invalid("/payload", message));
        }
        Ok(())
    }
}

fn required<T>(name: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| Error::invalid(format!("/{name}"), format!("{name} is missing")))
}

/// Checks that a slug consists of lower-case letters, digits and hyphens.
pub(crate) fn check_slug(slug: &str) -> Result<(), Error> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=SLUG_CHARACTERS).contains(&slug.len()) && slug.bytes().all(fits) && !slug.starts_with('-') {
        return Ok(());
    }
    let message =
        format!("slug is {slug:?}, it must have 1 to {SLUG_CHARACTERS} of a-z, 0-9 and -, and not begin with -");
    let error = Error::invalid("/slug", message);
    let lower = slug.to_ascii_lowercase().replace([' ', '_'], "-");
    Err(if lower != slug && check_slug(&lower).is_ok() { error.hint(format!("such as {lower}")) } else { error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Each limit: a value at it is accepted, the next one is refused.
    #[test]
    fn the_limits_of_a_schedule() {
        let check = |field: &str, value: &Value| {
            let mut fields = json!({"kind": "every", "schedule": "1h", "prompt": "x"});
            fields[field] = value.clone();
            let fields: Fields = serde_json::from_value(fields).unwrap();
            Definition::new(fields).map(drop).map_err(|error| error.at.unwrap_or_default())
        };
        let text = |length: usize| json!("x".repeat(length));
        let object = |length: usize| json!({"x": "x".repeat(length - json!({"x": ""}).to_string().len())});
        for (field, fitting, wrong) in [
            ("maxAttempts", [json!(1), json!(10)], [json!(0), json!(11)]),
            ("graceMs", [json!(0), json!(86_400_000)], [json!(-1), json!(86_400_001)]),
            ("timeoutMs", [json!(1_000), json!(3_600_000)], [json!(999), json!(3_600_001)]),
            ("jitterMs", [json!(0), json!(3_600_000)], [json!(-1), json!(3_600_001)]),
            ("disableAfterFailures", [json!(1), json!(1_000)], [json!(0), json!(1_001)]),
            ("prompt", [text(1), text(SCHEDULE_PROMPT_BYTES)], [text(0), text(SCHEDULE_PROMPT_BYTES + 1)]),
            ("payload", [json!({}), object(SCHEDULE_PAYLOAD_BYTES)], [json!([]), object(SCHEDULE_PAYLOAD_BYTES + 1)]),
            ("targetAgent", AGENTS.map(Value::from), [text(0), text(1)]),
        ] {
            for value in &fitting {
                assert_eq!(check(field, value), Ok(()), "{field}");
            }
            for value in &wrong {
                assert_eq!(check(field, value), Err(format!("/{field}")));
            }
        }
        for (length, fits) in [(0, false), (1, true), (SLUG_CHARACTERS, true), (SLUG_CHARACTERS + 1, false)] {
            assert_eq!(check_slug(&"x".repeat(length)).is_ok(), fits, "{length}");
        }
    }
}
