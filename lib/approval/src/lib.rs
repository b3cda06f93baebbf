//! A request for an approval as a person reads it: what would be done, where, why, at what risk, and then the whole
//! command line or diff. Every terminal and the messenger show this, so that a decision is about the same text
//! everywhere.
//!
//! A model may have written any part of a request. Therefore every text here is made visible
//! ([`ken_text::visible`]): control characters, directional marks and characters without a width are named.

mod action;

use std::fmt::Write;

use ken_text::{visible, visible_line};
use serde_json::{Value, json};

pub use action::Part;

/// A request for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub id: String,
    /// `pending`, or how the request ended.
    pub status: String,
    pub session: Option<String>,
    /// The turn that waits for the decision.
    pub submission: Option<String>,
    /// What would be done, in one line.
    pub summary: String,
    /// Where: a file, a folder or a repository.
    pub target: String,
    /// Why the action needs an approval.
    pub reason: String,
    /// `low`, `medium` or `high`.
    pub risk: String,
    /// The kind of action, such as `file.edit`.
    pub action_type: String,
    /// The agent that needs the approval.
    pub agent: String,
    pub expires_at: String,
    /// The whole action, part by part: the command line, its input and so on.
    pub action: Vec<Part>,
    /// A unified diff.
    pub diff: String,
    /// The digest of the whole diff, if the record holds only its beginning. An approval has to name it.
    pub digest: Option<String>,
    /// Whether a part of the action or the diff is missing here.
    pub is_cut: bool,
    /// How the request ended and who decided it, as in `approved by vera, uid 1000 (vera)`.
    pub outcome: Option<String>,
    /// When it was decided: `2026-11-23 18:00 UTC`. Empty if nobody has decided it.
    pub decided_at: String,
}

/// One line of a request, for colours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub kind: Kind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    What,
    Fact,
    Risk,
    /// A line of the action.
    Action,
    Added,
    Removed,
    /// The line before the changes of one place in a file.
    Hunk,
    /// Any other line of a diff.
    Context,
}

impl Request {
    /// Reads the record of a request (ken-gateway(8)). Returns `None` if it has no id.
    pub fn of(record: &Value) -> Option<Request> {
        let request = record.get("request").unwrap_or(record);
        let id = request.get("id").or_else(|| record.get("requestId"))?.as_str()?;
        let line = |name: &str| visible_line(text(request, name));
        let metadata = request.get("metadata").unwrap_or(&Value::Null);
        let action = metadata.get("action").unwrap_or(&Value::Null);
        let diff = text(metadata, "diff");
        Some(Request {
            id: visible_line(id),
            status: visible_line(record.get("status").and_then(Value::as_str).unwrap_or("pending")),
            session: metadata.get("sessionId").and_then(Value::as_str).map(str::to_owned),
            submission: metadata.get("submissionId").and_then(Value::as_str).map(str::to_owned),
            summary: line("summary"),
            target: line("target"),
            reason: line("reason"),
            risk: line("risk"),
            action_type: line("actionType"),
            agent: line("requestedBy"),
            expires_at: line("expiresAt"),
            action: action::parts(action),
            diff: visible(diff).into_owned(),
            digest: metadata.pointer("/whole/digest").and_then(Value::as_str).map(str::to_owned),
            is_cut: metadata.get("cut").is_some()
                || metadata.get("whole").is_some()
                || action.as_str().is_some_and(says_cut)
                || says_cut(diff),
            outcome: outcome(record),
            decided_at: record.pointer("/decision/decidedAt").and_then(Value::as_str).map(minute).unwrap_or_default(),
        })
    }

    /// Returns as much of a request as its event in a stream says (ken-stream(5)).
    pub fn of_event(event: &Value) -> Option<Request> {
        let fields = json!({"requestId": event.get("requestId")?, "request": {"id": event.get("requestId")?,
            "summary": text(event, "actionType"), "risk": event.get("risk"), "expiresAt": event.get("expiresAt"),
            "metadata": {"submissionId": event.get("submissionId")}}});
        Some(Request { is_cut: true, ..Request::of(&fields)? })
    }

    /// Completes a request of which the record holds only the beginning of the diff. `digest` is that of this text, so
    /// that an approval names what is shown here.
    pub fn set_diff(&mut self, diff: &str, digest: String) {
        self.diff = visible(diff).into_owned();
        (self.digest, self.is_cut) = (Some(digest), false);
    }

    pub fn is_pending(&self) -> bool {
        self.status == "pending"
    }

    /// Returns how it ended, who decided it and when, in one line; `None` while it is pending.
    pub fn end(&self) -> Option<String> {
        let at = if self.decided_at.is_empty() { String::new() } else { format!(" · {}", self.decided_at) };
        self.outcome.as_ref().map(|outcome| outcome.clone() + &at)
    }

    /// Returns where, why and at what risk, each with its name. The last one also says who asks, and until when.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut risk = self.risk.clone();
        let until = minute(&self.expires_at);
        for (before, value) in [("", &self.action_type), ("asked by ", &self.agent), ("until ", &until)] {
            if !value.is_empty() {
                _ = write!(risk, " · {before}{value}");
            }
        }
        let facts = [("where", self.target.clone()), ("why", self.reason.clone()), ("risk", risk)];
        facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Returns the whole request in the order in which a person reads it: what, where, why, risk, the command line or
    /// the diff.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line { kind: Kind::What, text: self.summary.clone() }];
        for (name, value) in self.facts() {
            let kind = if name == "risk" { Kind::Risk } else { Kind::Fact };
            lines.push(Line { kind, text: format!("{:<7}{value}", format!("{name}:")) });
        }
        let action = self.action.iter().flat_map(Part::lines);
        lines.extend(action.map(|text| Line { kind: Kind::Action, text }));
        lines.extend(self.diff.lines().map(|text| Line { kind: kind_of(text), text: text.to_owned() }));
        lines
    }

    /// Returns [`Request::lines`] as one text.
    pub fn text(&self) -> String {
        self.lines().into_iter().fold(String::new(), |text, line| text + &line.text + "\n")
    }
}

/// Returns an instant as a person reads it, or as it is if it is none: `2026-11-23 18:00 UTC`.
fn minute(instant: &str) -> String {
    match (instant.split_once('T'), instant.ends_with('Z')) {
        (Some((day, time)), true) if time.is_char_boundary(5) => visible_line(&format!("{day} {} UTC", &time[..5])),
        _ => visible_line(instant),
    }
}

fn kind_of(line: &str) -> Kind {
    match line.as_bytes().first() {
        Some(b'+') => Kind::Added,
        Some(b'-') => Kind::Removed,
        Some(b'@') => Kind::Hunk,
        _ => Kind::Context,
    }
}

/// Whether a text ends with the note that a part of it is left out, as in requests of earlier versions.
fn says_cut(text: &str) -> bool {
    let end = text.trim_end();
    end.ends_with(" bytes are shown]") || end.ends_with(" bytes is shown]")
}

/// Returns how a request ended, and who decided it. `None` while it is pending.
fn outcome(record: &Value) -> Option<String> {
    let status = text(record, "status");
    if matches!(status, "" | "pending") {
        return None;
    }
    let decision = record.get("decision").unwrap_or(&Value::Null);
    let for_session = text(decision, "scope") == "session" && status == "approved";
    let status = if for_session { "approved for the session" } else { status };
    let claim = text(decision, "decidedBy");
    let mut outcome = decided(status, claim);
    if let Some(known) = decision.get("decidedAs").and_then(|known| known_decider(known, claim)) {
        _ = write!(outcome, ", {known}");
    }
    Some(outcome)
}

/// Returns how a request ended, with the name of the person who decided it if there is one: `denied by vera`.
pub fn decided(status: &str, by: &str) -> String {
    match by {
        "" => visible_line(status),
        by => format!("{} by {}", visible_line(status), visible_line(by)),
    }
}

/// Returns the person who decided, as ken itself knows it. A name that is also `claimed` is left out, because it stands there.
fn known_decider(known: &Value, claimed: &str) -> Option<String> {
    Some(match text(known, "kind") {
        "local" => {
            let uid = known.get("uid").and_then(Value::as_u64)?;
            match text(known, "user") {
                user if user.is_empty() || user == claimed => format!("uid {uid}"),
                user => format!("uid {uid} ({})", visible_line(user)),
            }
        }
        "messenger" => {
            let user = text(known, "userId");
            (claimed != format!("messenger:{user}")).then(|| format!("messenger user {}", visible_line(user)))?
        }
        "" => return None,
        kind => visible_line(kind),
    })
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(action: Value, diff: &str) -> Value {
        json!({"requestId": "apr_1", "status": "pending", "request": {"id": "apr_1", "summary": "Edit repos/a/b",
            "target": "repos/a/b", "reason": "no rule allows it", "risk": "low", "actionType": "file.edit",
            "requestedBy": "coding-worker", "expiresAt": "2026-11-23T18:00:00.000Z",
            "metadata": {"action": action, "diff": diff, "sessionId": "tui-1"}}})
    }

    #[test]
    fn a_person_reads_what_where_why_risk_and_then_the_change() {
        let version = json!({"digest": "a".repeat(64), "mode": 33188});
        let action = json!({"count": 1, "files": [{"path": "repos/a/b", "before": version, "after": version}]});
        let request = Request::of(&record(action, "@@ -1 +1 @@\n-old\n+new\u{202e}\n")).unwrap();
        let wanted = "Edit repos/a/b\nwhere: repos/a/b\nwhy:   no rule allows it\n\
            risk:  low · file.edit · asked by coding-worker · until 2026-11-23 18:00 UTC\n\
            files: repos/a/b (changed)\n@@ -1 +1 @@\n-old\n+new<U+202E>\n";
        assert_eq!(request.text(), wanted);
        assert!(!request.is_cut && request.is_pending());
        let kinds: Vec<Kind> = request.lines().into_iter().map(|line| line.kind).collect();
        assert_eq!(kinds[5..], [Kind::Hunk, Kind::Removed, Kind::Added]);
    }

    #[test]
    fn who_decided_is_said_as_the_person_and_as_ken_knows_it() {
        let mut known = record(Value::Null, "");
        known["status"] = json!("approved");
        for (decision, wanted) in [
            (Value::Null, "approved"),
            (json!({"decidedBy": "vera", "scope": "once"}), "approved by vera"),
            (json!({"decidedBy": "a\nb", "scope": "session"}), "approved for the session by a␊b"),
            (
                json!({"decidedBy": "root", "decidedAs": {"kind": "local", "uid": 1000, "user": "vera"}}),
                "approved by root, uid 1000 (vera)",
            ),
            (
                json!({"decidedBy": "vera", "decidedAs": {"kind": "local", "uid": 1000, "user": "vera"}}),
                "approved by vera, uid 1000",
            ),
            (json!({"decidedBy": "x", "decidedAs": {"kind": "local", "uid": 7, "user": ""}}), "approved by x, uid 7"),
            (json!({"decidedBy": "x", "decidedAs": {"kind": "secret"}}), "approved by x, secret"),
            (
                json!({"decidedBy": "x", "decidedAs": {"kind": "messenger", "userId": "7"}}),
                "approved by x, messenger user 7",
            ),
            (
                json!({"decidedBy": "messenger:7", "decidedAs": {"kind": "messenger", "userId": "7"}}),
                "approved by messenger:7",
            ),
        ] {
            known["decision"] = decision;
            assert_eq!(Request::of(&known).unwrap().outcome.as_deref(), Some(wanted));
        }
        // Only an approval is for a session, and what is pending has no end.
        let for_session = json!({"decidedBy": "vera", "scope": "session"});
        for (status, wanted) in [("denied", Some("denied by vera")), ("pending", None), ("", None)] {
            let record = json!({"requestId": "apr_1", "status": status, "decision": for_session});
            assert_eq!(Request::of(&record).unwrap().outcome.as_deref(), wanted, "{status}");
        }
        // The end of a request is enough to say it.
        let decision = json!({"decidedBy": "ada", "decidedAt": "2026-11-23T18:00:07.000Z"});
        let ended = Request::of(&json!({"requestId": "apr_1", "status": "denied", "decision": decision})).unwrap();
        assert_eq!(ended.end().as_deref(), Some("denied by ada · 2026-11-23 18:00 UTC"));
    }

    #[test]
    fn an_instant_that_is_none_is_shown_as_it_is() {
        for (instant, shown) in [
            ("2026-11-23T18:00:07.000Z", "2026-11-23 18:00 UTC"),
            ("2026-11-23T18:00Z", "2026-11-23 18:00 UTC"),
            ("2026-11-23T18:00:07+01:00", "2026-11-23T18:00:07+01:00"),
            ("2026-11-23", "2026-11-23"),
            ("T1234äZ", "T1234äZ"),
            ("T1Z", "T1Z"),
            ("aT\nZ", "aT␊Z"),
        ] {
            assert_eq!(minute(instant), shown, "{instant}");
        }
    }

    #[test]
    fn a_record_that_lacks_a_part_says_so() {
        for (action, diff, is_cut) in [
            (json!("{\"argv\": [cut: 65536 of 90000 bytes are shown]"), "", true),
            (json!({"argv": ["ls"]}), "+x\n[cut: 131072 of 1900000 bytes are shown]", true),
            (json!({"argv": ["ls"]}), "[2 more files change; a diff of at most 131072 bytes is shown]\n", true),
            (json!({"argv": ["ls"]}), "+[cut]", false),
        ] {
            assert_eq!(Request::of(&record(action, diff)).unwrap().is_cut, is_cut);
        }
        let event =
            json!({"type": "approval_requested", "requestId": "apr_1", "actionType": "git.push", "risk": "high"});
        let request = Request::of_event(&event).unwrap();
        assert!(request.is_cut && request.is_pending() && request.text().starts_with("git.push\nrisk:  high\n"));
        let mut cut = record(json!({"argv": ["ls"]}), "+x");
        cut["request"]["metadata"]["cut"] = json!(["diff"]);
        assert!(Request::of(&cut).unwrap().is_cut, "the store has left out what is long");
        let mut long = record(json!({"argv": ["ls"]}), "+x");
        long["request"]["metadata"]["whole"] = json!({"digest": "d", "bytes": 200_000});
        let mut request = Request::of(&long).unwrap();
        assert!(request.is_cut);
        request.set_diff("+x\n+\u{200b}", "e".to_owned());
        assert_eq!(
            (request.is_cut, request.diff.as_str(), request.digest.as_deref()),
            (false, "+x\n+<U+200B>", Some("e"))
        );
    }
}
