//! The messaging connector: pairing codes expire, and messages fail after a day.

use ken_types::Code;
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

fn message(text: &str) -> PutMessage {
    PutMessage {
        connector: "messenger".into(),
        chat_id: "7".into(),
        text: text.into(),
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
    let id = kit.write::<OutboxPut>(message("Hello.")).await.unwrap().id;
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
    let id = kit.write::<OutboxPut>(message("Hello.")).await.unwrap().id;
    let pass = async |time_ms: i64| {
        kit.turn_clock(time_ms).await;
        kit.turn_clock(600_000).await;
    };
    let count = async || {
        let args = ListMessages { connector: "messenger".into(), limit: 10 };
        kit.read::<OutboxList>(args).await.unwrap().messages.len()
    };
    pass(40 * DAY_MS).await;
    let end = PieceEnd::Sent { message_id: Some("1".into()) };
    kit.write::<OutboxSettle>(SettlePiece { id, piece: 0, last: true, end }).await.unwrap();
    pass(29 * DAY_MS).await;
    assert!(!kit.write::<OutboxPut>(message("Hello.")).await.unwrap().created);
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
        kit.turn_clock(600_000).await;
        assert_eq!(is_duplicate().await, is_known, "after {days} days more");
    }
}

fn to_chat(chat: &str, key: &str) -> PutMessage {
    PutMessage { chat_id: chat.into(), key: key.into(), ..message(key) }
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

/// A reply is one to an answer of ken exactly if the platform has given its id to a piece of it, whatever is still to be sent.
#[tokio::test]
async fn every_piece_of_an_answer_is_known_by_its_id() {
    let kit = Kit::new();
    kit.session("i", "a").await;
    let prompt = |id: &str| kit.accept_of("a", "Tell it all", Target::Selector("i".into()), queued(id));
    let first = prompt("s");
    kit.write::<ChatAccept>(first.clone()).await.unwrap();
    let Scope { connector, conversation_id: chat_id, .. } = first.event.scope;
    let answer = PutMessage { connector, chat_id, key: format!("{}:answer", first.event.id), ..message("All of it.") };
    let id = kit.write::<OutboxPut>(answer).await.unwrap().id;
    let sent = |id: &str| PieceEnd::Sent { message_id: Some(id.into()) };
    let mut strange = 0;
    for (piece, end, own, others) in [
        (0, later(), &[][..], &["", "101"][..]),
        (0, sent("101"), &["101"], &["", "1", "10", "102"]),
        (1, PieceEnd::Unknown { error: "no answer".into() }, &["101"], &["102"]),
        (2, sent("103"), &["101", "103"], &["", "102"]),
    ] {
        kit.write::<OutboxSettle>(SettlePiece { id, piece, last: piece == 2, end }).await.unwrap();
        for (quoted, is_own) in own.iter().map(|id| (id, true)).chain(others.iter().map(|id| (id, false))) {
            let mut reply = prompt(&format!("s-{piece}-{quoted}-{strange}"));
            reply.event.context = Some(json!({ "quotedId": quoted }));
            kit.write::<ChatAccept>(reply).await.unwrap();
            strange += i64::from(!is_own);
            assert_eq!(
                kit.count("submissions WHERE outside LIKE '%quote%'"),
                strange,
                "{quoted:?} after piece {piece}"
            );
        }
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
        let id = kit.write::<OutboxPut>(message("Hello.")).await.unwrap().id;
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
