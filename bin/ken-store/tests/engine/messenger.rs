//! The messaging connector: pairing codes expire, messages fail after a day, and drafts become answers.

use ken_types::Code;
use ken_types::event::Outcome;
use ken_types::id::EventId;
use ken_types::ops::messenger::*;
use ken_types::ops::outbox::*;
use ken_types::ops::store::*;
use serde_json::json;

use crate::kit::*;

const HOUR_MS: i64 = 3_600_000;

fn stranger(update_id: u64, code: &str) -> AcceptUpdate {
    AcceptUpdate {
        update_id,
        kind: "message".into(),
        sender_id: Some("5".into()),
        chat_id: Some("5".into()),
        content: UpdateContent::Message(Box::new(IncomingMessage {
            chat_kind: ChatKind::Direct,
            is_configured: false,
            mentions_bot: false,
            if_admitted: IfAdmitted::Ignore("text_too_long".into()),
            code: Some(code.into()),
        })),
    }
}

fn of_code(code: &str) -> OfCode {
    OfCode { code: code.into(), notice: None }
}

#[tokio::test]
async fn a_code_expires_after_an_hour_and_another_one_follows() {
    let kit = Kit::new();
    let accept = |update, code| kit.write::<MessengerAccept>(stranger(update, code));
    assert_eq!(accept(1, "FIRST234").await.unwrap().pairing.unwrap().code, "FIRST234");
    kit.turn_clock(HOUR_MS - 1).await;
    let again = accept(2, "OTHER234").await.unwrap().pairing.unwrap();
    assert_eq!((again.code.as_str(), again.replies), ("FIRST234", 2));
    kit.turn_clock(1).await;
    let late = kit.write::<MessengerPair>(of_code("FIRST234")).await.unwrap_err();
    assert_eq!((late.code, late.at.as_deref()), (Code::NotFound, Some("/code")));
    assert!(!kit.write::<MessengerDeny>(of_code("FIRST234")).await.unwrap().denied);
    let next = accept(3, "NEXT2345").await.unwrap().pairing.unwrap();
    assert_eq!((next.code.as_str(), next.replies), ("NEXT2345", 1));
    assert_eq!(kit.write::<MessengerPair>(of_code("next2345")).await.unwrap().user_id, "5");
}

/// Each stranger has a code of their own, however many wait before them.
#[tokio::test]
async fn the_second_stranger_keeps_the_code_that_was_sent_first() {
    let kit = Kit::new();
    let accept = async |sender: &str, update, code| {
        let update =
            AcceptUpdate { sender_id: Some(sender.into()), chat_id: Some(sender.into()), ..stranger(update, code) };
        let pairing = kit.write::<MessengerAccept>(update).await.unwrap().pairing.unwrap();
        (pairing.code, pairing.replies)
    };
    assert_eq!(accept("5", 1, "FIRST234").await, ("FIRST234".into(), 1));
    assert_eq!(accept("6", 2, "SECND234").await, ("SECND234".into(), 1));
    assert_eq!(accept("6", 3, "OTHER234").await, ("SECND234".into(), 2));
    assert_eq!(accept("5", 4, "OTHER234").await, ("FIRST234".into(), 2));
}

/// Codes are limited for each chat, for each stranger, and in each hour. An hour later, they can be had again.
#[tokio::test]
async fn codes_are_limited_by_stranger_by_chat_and_by_hour() {
    let kit = Kit::new();
    let mut update = 0;
    let mut code_of = async |sender: &str, chat: &str| {
        update += 1;
        let code = format!("CODE{update:04}");
        let args =
            AcceptUpdate { sender_id: Some(sender.into()), chat_id: Some(chat.into()), ..stranger(update, &code) };
        let pairing = kit.write::<MessengerAccept>(args).await.unwrap().pairing;
        pairing.map(|pairing| pairing.replies)
    };
    for expected in [Some(1), Some(2), Some(3), None] {
        assert_eq!(code_of("s1", "c1").await, expected, "one code is sent three times");
    }
    for (sender, expected) in [("s2", Some(1)), ("s3", Some(1)), ("s4", None)] {
        assert_eq!(code_of(sender, "c1").await, expected, "three codes wait in a chat");
    }
    for number in 3..20 {
        assert_eq!(code_of(&format!("t{number}"), &format!("d{number}")).await, Some(1), "the code {number}");
    }
    assert_eq!(code_of("late", "late").await, None, "there were twenty in this hour");
    kit.turn_clock(HOUR_MS - 1).await;
    assert_eq!(code_of("late", "late").await, None);
    kit.turn_clock(1).await;
    assert_eq!(code_of("late", "late").await, Some(1));
}

fn message(draft: bool, text: &str) -> PutMessage {
    PutMessage {
        connector: "messenger".into(),
        chat_id: "7".into(),
        text: text.into(),
        draft,
        key: "k".into(),
        ..PutMessage::default()
    }
}

async fn due(kit: &Kit) -> Vec<DueMessage> {
    let args = DueMessages { connector: "messenger".into(), max: 8, held: Vec::new(), wait_ms: 0 };
    kit.due(args).await.unwrap().messages
}

fn later() -> PieceEnd {
    PieceEnd::Later { after_ms: 1_000, error: "no connection".into() }
}

async fn state(kit: &Kit) -> MessageState {
    let args = ListMessages { connector: "messenger".into(), limit: 10 };
    kit.read::<OutboxList>(args).await.unwrap().messages[0].state
}

#[tokio::test]
async fn a_message_is_tried_for_a_day() {
    let kit = Kit::new();
    let id = kit.write::<OutboxPut>(message(false, "Hello.")).await.unwrap().id;
    let fail = || SettlePiece { id, piece: 0, last: true, end: later() };
    kit.write::<OutboxSettle>(fail()).await.unwrap();
    assert!(due(&kit).await.is_empty());
    kit.turn_clock(24 * HOUR_MS - 1).await;
    assert_eq!(due(&kit).await[0].tries, 1);
    kit.write::<OutboxSettle>(fail()).await.unwrap();
    assert_eq!(state(&kit).await, MessageState::Pending);
    kit.turn_clock(1).await;
    kit.write::<OutboxSettle>(fail()).await.unwrap();
    assert_eq!(state(&kit).await, MessageState::Failed);
}

/// A message that was sent late is kept for thirty days after its end. Until then, its key prevents a second message.
#[tokio::test]
async fn a_finished_message_is_kept_for_thirty_days_from_its_end() {
    let kit = Kit::new();
    let id = kit.write::<OutboxPut>(message(false, "Hello.")).await.unwrap().id;
    let pass = async |time_ms: i64| {
        kit.turn_clock(time_ms).await;
        // The second tick is answered after the background work that the first one started.
        kit.turn_clock(600_000).await;
        kit.tick().await;
    };
    let count = async || {
        let args = ListMessages { connector: "messenger".into(), limit: 10 };
        kit.read::<OutboxList>(args).await.unwrap().messages.len()
    };
    pass(40 * DAY_MS).await;
    let end = PieceEnd::Sent { message_id: Some("1".into()) };
    kit.write::<OutboxSettle>(SettlePiece { id, piece: 0, last: true, end }).await.unwrap();
    pass(29 * DAY_MS).await;
    assert!(!kit.write::<OutboxPut>(message(false, "Hello.")).await.unwrap().created);
    assert_eq!(count().await, 1);
    pass(2 * DAY_MS).await;
    assert_eq!(count().await, 0);
}

/// The platform may repeat an update, so it is known for thirty days, and no longer.
#[tokio::test]
async fn an_update_is_known_for_thirty_days() {
    let kit = Kit::new();
    let is_duplicate = async || {
        let content = UpdateContent::Ignored("x".into());
        let args = AcceptUpdate { update_id: 1, kind: "poll".into(), sender_id: None, chat_id: None, content };
        kit.write::<MessengerAccept>(args).await.unwrap().duplicate
    };
    assert!(!is_duplicate().await);
    for (days, is_known) in [(29, true), (2, false)] {
        kit.turn_clock(days * DAY_MS).await;
        // The second tick is answered after the background work that the first one started.
        kit.turn_clock(600_000).await;
        kit.tick().await;
        assert_eq!(is_duplicate().await, is_known, "after {days} days more");
    }
}

/// A text that arrives while an earlier one is being sent is sent next. A draft that arrives after the answer changes nothing.
#[tokio::test]
async fn the_answer_ends_a_draft() {
    let kit = Kit::new();
    let id = kit.write::<OutboxPut>(message(true, "One.")).await.unwrap().id;
    let show = |revision, message: Option<&str>, end| ShowMessage {
        id,
        revision,
        pieces: vec![DisplayedPiece { message_id: message.map(str::to_owned), digest: revision.to_string() }],
        end,
    };
    let sent = PieceEnd::Sent { message_id: None };
    kit.write::<OutboxShow>(show(0, None, None)).await.unwrap();
    kit.write::<OutboxPut>(message(true, "One. Two.")).await.unwrap();
    kit.write::<OutboxShow>(show(0, Some("101"), Some(sent.clone()))).await.unwrap();
    assert!(due(&kit).await.is_empty(), "it pauses for a second");
    kit.turn_clock(1_000).await;
    let next = due(&kit).await.remove(0);
    let shown = next.shown.unwrap();
    assert_eq!((next.message.text.as_str(), shown.revision), ("One. Two.", 1));
    assert_eq!(shown.pieces[0].message_id.as_deref(), Some("101"));
    kit.write::<OutboxShow>(show(1, Some("101"), Some(sent.clone()))).await.unwrap();
    kit.turn_clock(1_000).await;
    assert!(due(&kit).await.is_empty(), "nothing is left to be shown");
    kit.write::<OutboxPut>(message(false, "One. Two.")).await.unwrap();
    kit.write::<OutboxPut>(message(true, "Late.")).await.unwrap();
    let last = due(&kit).await.remove(0);
    assert_eq!((last.message.text.as_str(), last.message.draft), ("One. Two.", false));
    for _ in 0..2 {
        kit.write::<OutboxShow>(show(2, Some("101"), Some(sent.clone()))).await.unwrap();
    }
    kit.write::<OutboxShow>(show(2, None, None)).await.unwrap_err();
    assert_eq!(state(&kit).await, MessageState::Sent);
    let counts = kit.read::<MessengerStatus>(ken_types::ops::Nothing {}).await.unwrap();
    assert_eq!(counts.outbox.sent, 1);
}

#[tokio::test]
async fn a_draft_waits_for_its_chat_and_its_answer_has_a_day_of_its_own() {
    let kit = Kit::new();
    let id = kit.write::<OutboxPut>(message(true, "One.")).await.unwrap().id;
    let other = PutMessage { key: "other".into(), ..message(false, "Other.") };
    let other = kit.write::<OutboxPut>(other).await.unwrap().id;
    let held = DueMessages { connector: "messenger".into(), max: 8, held: vec![other], wait_ms: 0 };
    let ready = kit.due(held).await.unwrap();
    assert!(ready.messages.is_empty(), "its chat is being written to");
    kit.turn_clock(25 * HOUR_MS).await;
    kit.write::<OutboxPut>(message(false, "One. Two.")).await.unwrap();
    let failed = ShowMessage { id, revision: 1, pieces: Vec::new(), end: Some(later()) };
    kit.write::<OutboxShow>(failed).await.unwrap();
    let args = ListMessages { connector: "messenger".into(), limit: 10 };
    let rows = kit.read::<OutboxList>(args).await.unwrap().messages;
    let answer = rows.iter().find(|row| row.id == id).unwrap();
    assert_eq!(answer.state, MessageState::Pending, "it is tried for a day from its end on");
}

#[tokio::test]
async fn failed_attempts_with_a_draft_do_not_count_for_its_answer() {
    let kit = Kit::new();
    let id = kit.write::<OutboxPut>(message(true, "One.")).await.unwrap().id;
    for _ in 0..2 {
        let failed = ShowMessage { id, revision: 0, pieces: Vec::new(), end: Some(later()) };
        kit.write::<OutboxShow>(failed).await.unwrap();
        kit.turn_clock(HOUR_MS).await;
    }
    assert_eq!(due(&kit).await.remove(0).tries, 2);
    kit.write::<OutboxPut>(message(false, "One. Two.")).await.unwrap();
    kit.turn_clock(HOUR_MS).await;
    assert_eq!(due(&kit).await.remove(0).tries, 0);
}

/// The request for an approval has followed the draft, so the answer has to follow the request.
#[tokio::test]
async fn another_text_follows_what_was_sent_after_a_draft() {
    let kit = Kit::new();
    let put = |message| kit.write::<OutboxPut>(message);
    let first = put(message(true, "I will push.")).await.unwrap().id;
    put(PutMessage { key: "request".into(), ..message(false, "May I?") }).await.unwrap();
    assert_eq!(put(message(true, "I will push. Soon.")).await.unwrap().id, first, "it is the same text, but longer");
    let second = put(message(true, "Let me see.")).await.unwrap();
    assert!(second.created && second.id > first);
    let edit = PutMessage { key: "request:end".into(), edits: Some("request".into()), ..message(false, "Yes.") };
    put(edit).await.unwrap();
    let answer = put(message(false, "Pushed.")).await.unwrap();
    assert_eq!((answer.id, answer.created), (second.id, false), "nothing follows it");
    let args = ListMessages { connector: "messenger".into(), limit: 10 };
    let rows = kit.read::<OutboxList>(args).await.unwrap().messages;
    let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys, ["request:end", "k", "request", &format!("k:{first}")]);
    let ended = due(&kit).await.remove(0);
    assert_eq!((ended.id, ended.message.text.as_str(), ended.message.draft), (first, "I will push. Soon.", false));
}

/// The last message of the turn has no text, but an earlier one had a text that was shown.
#[tokio::test]
async fn a_turn_that_ends_without_a_text_keeps_what_was_shown() {
    let kit = Kit::new();
    let prompt = Action::Prompt { submission_id: sub("s1"), policy: Policy::Queue };
    let mut accept = kit.accept_of("7", "Look.", Target::Fresh(fresh("m-1")), prompt);
    accept.event.id = EventId("messenger:1".into());
    accept.event.scope.connector = "messenger".into();
    kit.write::<ChatAccept>(accept).await.unwrap();
    let claim = kit.claim_one(1).await;
    let draft = PutMessage { key: "messenger:1:answer".into(), ..message(true, "I look.") };
    kit.write::<OutboxPut>(draft).await.unwrap();
    let settle = Kit::settle_of(&claim.lease, 0, Outcome::Completed, "");
    kit.write::<SubmissionsSettle>(settle).await.unwrap();
    let left = due(&kit).await.remove(0);
    assert_eq!((left.message.text.as_str(), left.message.draft), ("I look.", false));
}

/// A caller that says how far it has read a turn gets only the new text, even if the turn waits for an approval.
#[tokio::test]
async fn only_what_is_new_of_a_text_is_read() {
    let kit = Kit::new();
    let prompt = Action::Prompt { submission_id: sub("s1"), policy: Policy::Queue };
    let mut accept = kit.accept_of("7", "Count.", Target::Fresh(fresh("m-1")), prompt);
    accept.event.id = EventId("messenger:1".into());
    accept.event.scope.connector = "messenger".into();
    kit.write::<ChatAccept>(accept).await.unwrap();
    let claim = kit.claim_one(1).await;
    let begun = event("s1", 0, "message_start", json!({"message": {"role": "assistant"}}));
    kit.add_events(&claim.lease, 0, [vec![begun], deltas("s1", 1, 1_500)].concat()).await.unwrap();
    let mut read = ReadTurns::default();
    let mut text = String::new();
    for (has_more, begins) in [(true, true), (false, false), (false, false)] {
        let found = kit.read::<MessengerDrafts>(read.clone()).await.unwrap();
        let [draft] = &found.drafts[..] else { panic!("{found:?}") };
        assert_eq!((found.turns, draft.has_more, draft.begins), (1, has_more, begins));
        assert_eq!((draft.answer.key.as_str(), draft.answer.chat_id.as_str()), ("messenger:1:answer", "talk"));
        text.push_str(&draft.text);
        read.read.insert(draft.submission_id.clone(), draft.read);
    }
    assert_eq!(text, (1..=1_500).map(|index| format!("w{index}")).collect::<String>());
    let fields = json!({"toolCallId": "t1", "requestId": "apr_1"});
    kit.add_events(&claim.lease, 1_501, vec![event("s1", 1_501, "approval_requested", fields)]).await.unwrap();
    assert_eq!(kit.state("s1").await, State::Waiting);
    let found = kit.read::<MessengerDrafts>(ReadTurns::default()).await.unwrap();
    assert_eq!((found.turns, found.drafts.len()), (0, 1));
}

fn to_chat(chat: &str, key: &str) -> PutMessage {
    PutMessage { chat_id: chat.into(), key: key.into(), ..message(false, key) }
}

/// Each chat that is being written to is left alone, and not only the first.
#[tokio::test]
async fn the_second_chat_that_is_being_written_to_is_left_alone() {
    let kit = Kit::new();
    let put = async |chat: &str, key: String, draft| {
        let message = PutMessage { draft, ..to_chat(chat, &key) };
        kit.write::<OutboxPut>(message).await.unwrap().id
    };
    let mut held = Vec::new();
    for chat in ["7", "8", "9"] {
        put(chat, format!("draft {chat}"), true).await;
        held.push(put(chat, format!("message {chat}"), false).await);
    }
    for (held, expected) in [(&held[..], &[][..]), (&held[..2], &["9"]), (&held[1..], &["7"]), (&[], &["7", "8", "9"])]
    {
        let args = DueMessages { connector: "messenger".into(), max: 8, held: held.to_vec(), wait_ms: 0 };
        let due = kit.due(args).await.unwrap().messages;
        let chats: Vec<_> = due.iter().map(|due| due.message.chat_id.as_str()).collect();
        assert_eq!(chats, expected, "{held:?} are held");
    }
}

/// A message that the platform refuses for now is before the later ones of its chat. Other chats do not wait for it.
#[tokio::test]
async fn a_message_that_is_sent_later_stays_before_those_behind_it() {
    let kit = Kit::new();
    for (chat, key) in [("7", "first"), ("7", "second"), ("8", "other")] {
        kit.write::<OutboxPut>(to_chat(chat, key)).await.unwrap();
    }
    let texts = async || {
        let texts = due(&kit).await.into_iter().map(|due| due.message.text);
        texts.collect::<Vec<_>>()
    };
    let settle = async |end| {
        let first = due(&kit).await.remove(0);
        kit.write::<OutboxSettle>(SettlePiece { id: first.id, piece: 0, last: true, end }).await.unwrap();
    };
    assert_eq!(texts().await, ["first", "other"]);
    settle(later()).await;
    assert_eq!(texts().await, ["other"]);
    kit.write::<OutboxPut>(to_chat("7", "third")).await.unwrap();
    kit.turn_clock(999).await;
    assert_eq!(texts().await, ["other"]);
    kit.turn_clock(1).await;
    assert_eq!(texts().await, ["first", "other"]);
    for rest in [["second", "other"], ["other", "third"]] {
        settle(PieceEnd::Sent { message_id: None }).await;
        assert_eq!(texts().await, rest);
    }
}

/// The end of a message is that of all of its pieces, not of the last one.
#[tokio::test]
async fn a_doubtful_piece_makes_the_message_doubtful_whatever_follows() {
    let sent = || PieceEnd::Sent { message_id: Some("1".into()) };
    let unknown = || PieceEnd::Unknown { error: "no answer".into() };
    let failed = || PieceEnd::Failed { error: "refused".into() };
    for (pieces, expected) in [
        (vec![sent(), sent()], MessageState::Sent),
        (vec![unknown(), sent()], MessageState::Unknown),
        (vec![sent(), unknown()], MessageState::Unknown),
        (vec![sent(), unknown(), sent()], MessageState::Unknown),
        (vec![unknown(), later(), sent()], MessageState::Unknown),
        (vec![unknown(), failed()], MessageState::Failed),
    ] {
        let kit = Kit::new();
        let id = kit.write::<OutboxPut>(message(false, "Hello.")).await.unwrap().id;
        let (mut piece, count) = (0, pieces.len());
        for (number, end) in pieces.clone().into_iter().enumerate() {
            let is_later = matches!(end, PieceEnd::Later { .. });
            let settle = SettlePiece { id, piece, last: number + 1 == count, end };
            kit.write::<OutboxSettle>(settle).await.unwrap();
            piece += u32::from(!is_later);
        }
        assert_eq!(state(&kit).await, expected, "{pieces:?}");
    }
}

/// A piece of an edited answer that may or may not have arrived makes the whole answer doubtful, wherever it stands.
#[tokio::test]
async fn one_piece_without_a_number_makes_an_edited_answer_doubtful() {
    for (numbers, expected) in [
        ([Some("101"), Some("102")], MessageState::Sent),
        ([None, Some("102")], MessageState::Unknown),
        ([Some("101"), None], MessageState::Unknown),
    ] {
        let kit = Kit::new();
        let id = kit.write::<OutboxPut>(message(true, "One.")).await.unwrap().id;
        let show = |revision, end| {
            let pieces = numbers
                .iter()
                .map(|number| DisplayedPiece { message_id: number.map(str::to_owned), digest: "d".into() })
                .collect();
            ShowMessage { id, revision, pieces, end }
        };
        kit.write::<OutboxShow>(show(0, None)).await.unwrap();
        kit.write::<OutboxPut>(message(false, "One. Two.")).await.unwrap();
        let sent = PieceEnd::Sent { message_id: None };
        kit.write::<OutboxShow>(show(1, Some(sent))).await.unwrap();
        assert_eq!(state(&kit).await, expected, "{numbers:?}");
    }
}
