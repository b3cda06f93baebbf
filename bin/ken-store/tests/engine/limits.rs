//! The limits of arguments: what is as large as a limit is accepted, and what is larger by one is refused. In a list, the second member
//! counts as the first does.

use std::fmt::Debug;

use ken_types::event::Outcome;
use ken_types::ops::Nothing;
use ken_types::ops::documents::*;
use ken_types::ops::messenger::*;
use ken_types::ops::outbox::*;
use ken_types::ops::store::*;
use ken_types::ops::streams::*;
use ken_types::{Code, Error, Octets};
use serde_json::json;
use serde_json::value::RawValue;

use crate::kit::*;

/// Checks that a call was accepted.
#[track_caller]
fn accepted<T: Debug>(result: Result<T, Error>) {
    if let Err(error) = result {
        panic!("refused: {error:?}");
    }
}

/// Checks with which code a call was refused, and that the error names this field.
#[track_caller]
fn refused<T: Debug>(result: Result<T, Error>, code: Code, at: &str) {
    let error = result.unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (code, Some(at)), "{error:?}");
}

fn text(characters: usize) -> String {
    "é".repeat(characters)
}

fn bytes(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[tokio::test]
async fn notes_have_a_number_a_name_and_a_size() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    let put = async |kind, name: &str, body: &str| {
        let args = PutNote { instance: "tui-1".into(), kind, name: name.into(), body: body.into(), turn: None };
        kit.write::<NotesPut>(args).await
    };
    for number in 0..64 {
        accepted(put(NoteKind::Note, &format!("n{number:02}"), "x").await);
    }
    let full = put(NoteKind::Note, "more", "x").await.unwrap_err();
    assert_eq!(full.code, Code::Conflict, "{full:?}");
    accepted(put(NoteKind::Note, "n00", "y").await);
    accepted(put(NoteKind::Note, "n63", "y").await);
    // Those of the other kind are counted by themselves, and one that is deleted makes room.
    accepted(put(NoteKind::Checklist, "more", "x").await);
    accepted(put(NoteKind::Note, "n01", "").await);
    accepted(put(NoteKind::Note, "more", "x").await);
    accepted(put(NoteKind::Checklist, &text(120), &bytes(64 * 1024)).await);
    refused(put(NoteKind::Checklist, &text(121), "x").await, Code::Invalid, "/name");
    refused(put(NoteKind::Checklist, "more", &bytes(64 * 1024 + 1)).await, Code::TooLarge, "/body");
}

#[tokio::test]
async fn users_and_groups_of_the_messenger() {
    let kit = Kit::new();
    let allow = |user_id: String, chat_id: String| kit.write::<MessengerAllow>(Allow { user_id, chat_id });
    accepted(allow(text(64), text(64)).await);
    for wrong in [text(0), text(65), "a\nb".into()] {
        refused(allow(wrong.clone(), "c".into()).await, Code::Invalid, "/userId");
        refused(allow("u".into(), wrong).await, Code::Invalid, "/chatId");
    }
    let group = |allow_from| {
        let group_id = "g".into();
        kit.write::<MessengerPutGroup>(Group { group_id, require_mention: false, allow_from })
    };
    let users = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
    accepted(group(users(1_000)).await);
    refused(group(users(1_001)).await, Code::Invalid, "/allowFrom");
    refused(group(vec!["1".into(), text(65)]).await, Code::Invalid, "/allowFrom/1");
    let update = |update_id| {
        let content = UpdateContent::Ignored("x".into());
        let (kind, sender_id, chat_id) = ("message".into(), None, None);
        kit.write::<MessengerAccept>(AcceptUpdate { update_id, kind, sender_id, chat_id, content })
    };
    accepted(update((1 << 63) - 1).await);
    refused(update(1 << 63).await, Code::Invalid, "/update_id");
    let list = |limit| kit.read::<MessengerUpdates>(ListUpdates { limit, unanswered: false });
    accepted(list(1).await);
    accepted(list(100).await);
    for wrong in [0, 101] {
        refused(list(wrong).await, Code::Invalid, "/limit");
    }
}

#[tokio::test]
async fn messages_to_chats() {
    let kit = Kit::new();
    let put = |text: String, key: String| {
        let (connector, chat_id) = ("messenger".into(), "7".into());
        kit.write::<OutboxPut>(PutMessage { connector, chat_id, text, key, ..PutMessage::default() })
    };
    accepted(put(bytes(1 << 20), text(255)).await);
    refused(put(bytes((1 << 20) + 1), "k".into()).await, Code::Invalid, "/text");
    refused(put(" ".into(), "k".into()).await, Code::Invalid, "/text");
    for wrong in [0, 256] {
        refused(put("x".into(), text(wrong)).await, Code::Invalid, "/key");
    }
    let due = async |max| {
        let args = DueMessages { connector: "messenger".into(), max, held: Vec::new(), wait_ms: 0 };
        kit.due(args).await
    };
    for wrong in [0, 65] {
        refused(due(wrong).await, Code::Invalid, "/max");
    }
    for chat in 0..65 {
        let (connector, text) = ("messenger".into(), "x".into());
        let args =
            PutMessage { connector, chat_id: format!("c{chat}"), text, key: chat.to_string(), ..Default::default() };
        accepted(kit.write::<OutboxPut>(args).await);
    }
    for max in [1, 2, 64] {
        assert_eq!(due(max).await.unwrap().messages.len(), max as usize);
    }
    // Of an error, the beginning is kept.
    for (length, kept) in [(500, 500), (501, 500)] {
        kit.write::<MessengerFault>(Fault { message: Some(text(length)) }).await.unwrap();
        let status = kit.read::<MessengerStatus>(Nothing {}).await.unwrap();
        assert_eq!(status.counts.last_error, Some(text(kept)));
    }
}

#[tokio::test]
async fn appends_to_streams() {
    let kit = Kit::new();
    let create = |name: String, content_type: &str| {
        let content_type = Some(content_type.to_owned());
        kit.write::<StreamsCreate>(CreateStream { content_type, ..create_of(&name) })
    };
    let named = |bytes: usize| format!("streams/{}", "s".repeat(bytes));
    accepted(create(named(512), "text/plain").await);
    refused(create(named(513), "text/plain").await, Code::Invalid, "/stream");
    accepted(create("streams/json".into(), "application/json").await);
    let append = |stream: String, payload, content_type: &str, producer| {
        let (payload, content_type) = (Some(payload), content_type.into());
        kit.write::<StreamsAppend>(AppendStream { payload, content_type, producer, ..append_of(&stream, "") })
    };
    let plain =
        |length, producer| append(named(512), Payload::Bytes(Octets(vec![b'x'; length])), "text/plain", producer);
    accepted(plain(1 << 20, None).await);
    refused(plain((1 << 20) + 1, None).await, Code::TooLarge, "/payload");
    // All messages of an append count.
    let messages = |length: usize| {
        let messages = ["1".into(), format!("\"{}\"", bytes(length - 3))];
        let messages = messages.map(|message| RawValue::from_string(message).unwrap());
        append("streams/json".into(), Payload::Messages(messages.into()), "application/json", None)
    };
    accepted(messages(1 << 20).await);
    refused(messages((1 << 20) + 1).await, Code::TooLarge, "/payload");
    let by = |epoch, seq| plain(1, Some(Producer { id: "p".into(), epoch, seq }));
    accepted(by((1 << 53) - 1, 0).await);
    for (epoch, seq) in [(1 << 53, 0), (0, 1 << 53)] {
        refused(by(epoch, seq).await, Code::Invalid, "/producer");
    }
    let list = |limit| {
        let args = ListStreams { prefix: String::new(), limit, after: None };
        kit.read::<StreamsList>(args)
    };
    accepted(list(1_000).await);
    refused(list(1_001).await, Code::Invalid, "/limit");
}

#[tokio::test]
async fn instances_and_events() {
    let kit = Kit::new();
    let admit = |instance: String, id: &str| kit.write::<SubmissionsAdmit>(admit_of(&instance, id));
    for wrong in [0, 1_025] {
        refused(admit(bytes(wrong), "s0").await, Code::Invalid, "/instance");
    }
    accepted(admit(bytes(1_024), "s1").await);
    let claim = kit.claim_one(1).await;
    let empty = event("s1", 1, "text_delta", json!({"text": ""})).get().len();
    let long = |bytes: usize| {
        let long = event("s1", 1, "text_delta", json!({"text": "x".repeat(bytes - empty)}));
        [deltas("s1", 0, 1), vec![long]].concat()
    };
    refused(kit.add_events(&claim.lease, 0, long(256 * 1024 + 1)).await, Code::TooLarge, "/events/1");
    accepted(kit.add_events(&claim.lease, 0, long(256 * 1024)).await);
}

#[tokio::test]
async fn documents_and_vectors() {
    let kit = Kit::new();
    let list = |collection: String, limit| {
        let after = String::new();
        kit.read::<DocumentsList>(ListDocuments { collection, after, limit })
    };
    accepted(list("share".into(), 500).await);
    for wrong in [0, 501] {
        refused(list("share".into(), wrong).await, Code::Invalid, "/limit");
    }
    accepted(list(format!("/{}", bytes(4_095)), 1).await);
    refused(list(format!("/{}", bytes(4_096)), 1).await, Code::Invalid, "/collection");
    let document = |path: &str, pieces: usize| {
        let piece = |line| Piece { title: "t".into(), line, text: "same".into(), tags: Vec::new() };
        ReadDocument { path: path.into(), digest: "d".into(), pieces: (0..pieces as u64).map(piece).collect() }
    };
    let sync = |second| {
        let args = SyncDocuments {
            collection: "share".into(),
            documents: vec![document("first", 1), second],
            gone: Vec::new(),
            step: None,
        };
        kit.write::<DocumentsSync>(args)
    };
    accepted(sync(document("second", 2_000)).await);
    refused(sync(document("second", 2_001)).await, Code::TooLarge, "/documents/1/pieces");
    let mut wrong = document("second", 2);
    wrong.pieces[1].title.clear();
    refused(sync(wrong).await, Code::Invalid, "/documents/1/pieces/1/title");
    let vectors = |length| {
        let vector = |length| EntryVector { entry: 1, values: vec![0.5; length] };
        let vectors = vec![vector(1), vector(length)];
        kit.write::<VectorsPut>(PutVectors { model: "m/m".into(), vectors, dimensions: 0, usage: Default::default() })
    };
    accepted(vectors(4_096).await);
    refused(vectors(4_097).await, Code::TooLarge, "/vectors/1/values");
}

/// Of the entries that a turn has used, the first hundred are recorded.
#[tokio::test]
async fn entries_that_a_turn_has_used() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.prompt("tui-1", "s1").await;
    let claim = kit.claim_one(1).await;
    let used = (1..=101).map(|number| (format!("kb-{number}"), Used::Found)).collect();
    let settle = Kit::settle_of(&claim.lease, 0, Outcome::Completed, "done");
    kit.write::<SubmissionsSettle>(SettleSubmission { used, ..settle }).await.unwrap();
    let uses = |number: u32| kit.read::<KnowledgeUses>(OfEntry { id: format!("kb-{number}") });
    for number in [1, 2, 100] {
        assert_eq!(uses(number).await.unwrap().uses.len(), 1, "entry {number}");
    }
    refused(uses(101).await, Code::NotFound, "/id");
}

/// The number of an entry has 32 bits in its key, so a stream that is full is refused, and no entry takes the place of another.
/// Nobody writes so many here; the counts are set.
#[tokio::test]
async fn entries_of_a_stream() {
    let mut kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.prompt("tui-1", "s1").await;
    kit.write::<StreamsCreate>(create_of("streams/x")).await.unwrap();
    kit.store = None;
    kit.execute("UPDATE streams SET entries = 4294967293 WHERE name = 'agents/orchestrator/tui-1'");
    kit.execute("UPDATE public_streams SET entries = 4294967294 WHERE name = 'streams/x'");
    kit.open().unwrap();
    let lease = kit.claim_one(1).await.lease;
    let full = async |count| kit.add_events(&lease, 0, deltas("s1", 0, count)).await.unwrap_err().code;
    assert_eq!(full(2).await, Code::TooLarge);
    accepted(kit.add_events(&lease, 0, deltas("s1", 0, 1)).await);
    let more = kit.add_events(&lease, 1, deltas("s1", 1, 1)).await.unwrap_err();
    assert!(more.code == Code::TooLarge && more.message.contains("tui-1 is full"), "{more:?}");
    let append = || kit.write::<StreamsAppend>(append_of("streams/x", "x"));
    accepted(append().await);
    assert_eq!(append().await.unwrap_err().code, Code::TooLarge);
}
