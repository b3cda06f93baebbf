//! The messaging connector in a whole system, with a stand-in for the platform.

use std::time::{Duration, Instant};

use ken_tests::bot_api::{BotApi, InjectedFailure, SECRET, TOKEN};
use ken_tests::connect_proxy::ConnectProxy;
use ken_tests::provider::{Provider, Reply, openai};
use ken_tests::wire_tap::{Side, WireTap};
use ken_tests::{Answer, Builder, Client, System, number, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const WEBHOOK: &str = "/channels/messenger/webhook";
const ADMIN: &str = "/api/connectors/messenger";
/// A family emoji: one character, eleven UTF-16 units.
const FAMILY: &str = "👩‍👩‍👧‍👦";
const HELLO: &str = "שלום עולם ";

/// A system with the connector enabled. The settings admit user 7, and user 9 is an administrator.
fn builder(platform: &BotApi) -> Builder {
    Builder::default()
        .secrets(&format!("MESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n"))
        .env("MESSENGER_API_BASE_URL", &platform.url())
        .env("MESSENGER_APPROVED_USER_IDS", "7")
        .env("MESSENGER_ADMIN_USER_IDS", "9")
        .env("MESSENGER_BOT_USERNAME", "ken_bot")
}

fn scripted(platform: &BotApi) -> Builder {
    builder(platform).script(&[
        json!({"purpose": "compaction", "events": [{"text": "They talked."}]}),
        json!({"when": "hold", "events": [{"sleep_ms": 60_000}, {"text": "late"}]}),
        json!({"when": "slow", "events": [{"sleep_ms": 1_500}, {"text": "Rested."}]}),
        json!({"when": "long", "events": [{"text": "word ".repeat(1_000)}]}),
        json!({"when": "stream", "events": [{"text": "One. "}, {"sleep_ms": 1_300}, {"text": "Two. "}, {"sleep_ms": 1_300},
            {"text": "Three."}]}),
        json!({"when": "silence", "events": []}),
        json!({"when": "push", "after_tools": 0, "events": [{"text": "I will push."}, {"tool": {"name": "gated", "arguments": {}}}]}),
        json!({"when": "push", "after_tools": 1, "events": [{"text": "Pushed."}]}),
        json!({"when": "blank", "events": [{"text": " \n"}]}),
        json!({"when": "emoji", "events": [{"text": format!("{}{}", FAMILY.repeat(400), HELLO.repeat(700))}]}),
        json!({"when": "format", "events": [{"text": "**bold** & `code`"}]}),
        json!({"when": "refused", "events": [{"error": {"class": "auth", "message": "the key is not taken"}}]}),
        json!({"events": [{"text": "Hello there."}]}),
    ])
}

fn update(id: u64, from: i64, text: &str) -> Value {
    json!({"update_id": id, "message": {"message_id": id + 1_000, "date": 1, "text": text,
        "from": {"id": from, "is_bot": false, "first_name": "Ada"}, "chat": {"id": from, "type": "private"}}})
}

fn post(system: &System, update: &Value) -> Answer {
    let mut client = system.client();
    client.request("POST", WEBHOOK).header("X-Telegram-Bot-Api-Secret-Token", SECRET).json(update).send()
}

#[track_caller]
fn accepted(system: &System, update: &Value) {
    let answer = post(system, update).expect(200);
    assert!(answer.body.is_empty(), "{}", answer.body_text());
}

fn health(system: &System) -> Value {
    system.get(&format!("{ADMIN}/health")).expect(200).json()
}

fn admin(system: &System, route: &str, body: &Value) -> Answer {
    system.post(&format!("{ADMIN}/{route}"), body)
}

/// Waits until a chat has received this many messages, and returns their texts.
#[track_caller]
fn texts(platform: &BotApi, chat: i64, count: usize) -> Vec<String> {
    until(&format!("{count} messages in chat {chat}"), || platform.texts(chat).len() >= count);
    platform.texts(chat)
}

/// Waits until no message is waiting to be sent, and returns the counts of the outbox.
fn sent(system: &System) -> Value {
    until("the outbox is empty", || health(system)["outbox"]["pending"] == 0);
    health(system)["outbox"].clone()
}

#[test]
fn a_message_is_answered_in_its_chat_and_an_update_is_accepted_once() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let first = update(1, 7, "hello");
    accepted(&system, &first);
    accepted(&system, &first);
    assert_eq!(texts(&platform, 7, 1), ["Hello there."]);
    accepted(&system, &first);
    let call = &platform.calls("sendMessage")[0].body;
    assert_eq!(call["reply_parameters"]["message_id"], 1_001);
    assert_eq!(sent(&system), json!({"pending": 0, "sent": 1, "failed": 0, "unknown": 0}));
    assert_eq!(platform.texts(7).len(), 1);
    let health = health(&system);
    assert_eq!(
        [&health["updateCount"], &health["duplicateCount"], &health["enabled"]],
        [&json!(1), &json!(2), &json!(true)]
    );
    // The session has a transcript like any other.
    let identity = "connector=messenger&actorId=7&conversationId=7";
    let sessions = system.get(&format!("/api/chat/sessions?{identity}")).expect(200);
    let id = sessions.text("/sessions/0/sessionId");
    assert!(id.starts_with("connector-"), "{id}");
    let page = system.get(&format!("/api/chat/sessions/{id}/transcript?{identity}")).expect(200);
    assert_eq!(page.text("/exchanges/0/prompt/id"), "messenger:1");
    assert_eq!(page.text("/exchanges/0/assistant/text"), "Hello there.");
}

#[test]
fn webhook_requests_are_checked_in_order() {
    let platform = BotApi::start();
    let system = builder(&platform).start();
    let send = |method: &str, headers: &[(&str, &str)], body: &[u8]| {
        let mut client = system.client();
        let request = client.request(method, WEBHOOK);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        request.body(body).send()
    };
    let ask = |method: &str, headers: &[(&str, &str)], body: &str| send(method, headers, body.as_bytes());
    let (json, right) = (("Content-Type", "application/json"), ("X-Messenger-Secret-Token", SECRET));
    let ignored = json!({"update_id": 5, "poll": {}}).to_string();
    ask("GET", &[right], "").expect(405);
    ask("POST", &[right], &ignored).expect(415);
    ask("POST", &[right, ("Content-Type", "text/plain")], &ignored).expect(415);
    for wrong in ["", "x", &SECRET[1..], &SECRET.to_uppercase()] {
        ask("POST", &[json, ("X-Telegram-Bot-Api-Secret-Token", wrong)], &ignored).refused(
            401,
            "unauthenticated",
            "x-telegram-bot-api-secret-token",
        );
    }
    ask("POST", &[json], "not JSON").expect(401);
    send("POST", &[json], b"\xff").expect(401);
    send("POST", &[json, right], b"\xff").expect(400);
    let long = format!("{{\"update_id\":1,\"x\":\"{}\"}}", "x".repeat(1 << 20));
    ask("POST", &[json], &long).expect(401);
    ask("POST", &[json, right], &long).expect(413);
    for bad in ["", "[]", "7", "{", "{\"update_id\":-1}", "{\"update_id\":1.5}", "{\"update_id\":\"1\"}", "{}"] {
        ask("POST", &[json, right], bad).expect(400);
    }
    ask("POST", &[json, right], &ignored).expect(200);
    assert_eq!(health(&system)["updateCount"], 1);
    assert_eq!(health(&system)["ignoredCount"], 1);
}

#[test]
fn without_a_token_the_connector_is_off_and_its_routes_work() {
    let system = System::start();
    let answer = post(&system, &update(1, 7, "hello")).expect(503);
    assert!(answer.body_text().contains("MESSENGER_BOT_TOKEN"), "{}", answer.body_text());
    assert_eq!(health(&system)["enabled"], false);
    admin(&system, "allow", &json!({"userId": "5", "chatId": "@channel"})).expect(200);
    let status = system.get(&format!("{ADMIN}/status")).expect(200);
    assert_eq!(status.text("/allowedUsers/0/chatId"), "@channel");
}

#[test]
fn a_token_without_a_secret_prevents_the_start_and_names_both() {
    let system = Builder::default()
        .config("[part.messenger]\nenabled = false\n")
        .secrets(&format!("MESSENGER_BOT_TOKEN={TOKEN}\n"))
        .start();
    let output = system.ken(&["start", "messenger", "--timeout", "3s"]);
    assert!(!output.status.success());
    let log = || std::fs::read_to_string(system.home().join("state/log/messenger.log")).unwrap_or_default();
    until("the log says why", || {
        log().contains("MESSENGER_BOT_TOKEN is set and MESSENGER_WEBHOOK_SECRET_TOKEN is not")
    });
    assert!(!log().contains(TOKEN), "{}", log());
}

#[test]
fn commands_are_answered_in_the_chat() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let mut seen = 0;
    let mut say = |id: u64, text: &str| {
        accepted(&system, &update(id, 7, text));
        seen += 1;
        texts(&platform, 7, seen).pop().unwrap()
    };
    assert!(say(1, "/start").contains("/resume"));
    assert_eq!(say(2, "hello"), "Hello there.");
    let first = say(3, "/session");
    assert!(first.starts_with("This is session <code>connector-"), "{first}");
    assert!(say(4, "/rename@ken_bot  Nightly").contains("<code>Nightly</code>"));
    assert!(say(5, "/new Morning").contains("<code>Morning</code>"));
    assert_ne!(say(6, "/session"), first);
    assert!(say(7, "/resume Nightly").starts_with("Resumed"));
    assert!(say(8, "/session").contains("Nightly"));
    assert!(say(9, "/resume Nowhere").contains("Nowhere"));
    assert!(say(10, "/resume").contains("needs the id"));
    assert!(say(11, "/nonsense").contains("There is no command"));
    assert_eq!(say(12, "/compact"), "Compacted the history of this session.");
    let failed = say(13, "refused");
    assert!(failed.starts_with("That did not work:") && failed.contains("the key is not taken"), "{failed}");
    let silent = say(14, "silence");
    assert!(silent.starts_with("That did not work:") && silent.contains("gave an empty answer twice"), "{silent}");
}

/// The chosen model is kept with the session: a fresh one has the configured models, and the old one still has its own.
#[test]
fn a_user_chooses_a_model_for_the_session() {
    let platform = BotApi::start();
    let provider =
        Provider::answering(|request| Reply::Stream(openai(&[request.body["model"].as_str().unwrap()], &[])));
    let system = builder(&platform)
        .env("KEN_MODEL", "openai/first,openai/second")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .start();
    let mut seen = 0;
    let mut say = |id: u64, text: &str| {
        accepted(&system, &update(id, 7, text));
        seen += 1;
        texts(&platform, 7, seen).pop().unwrap()
    };
    assert_eq!(say(1, "Which model are you?"), "first");
    assert!(say(2, "/rename Old").contains("Old"));
    assert!(say(3, "/model openai/second").starts_with("In this session <code>openai/second</code> answers."));
    assert_eq!(say(4, "And now?"), "second");
    let refused = say(5, "/model openai/secnd");
    assert_eq!(refused, "No model <code>openai/secnd</code> is configured. Configured: openai/first, openai/second.");
    assert_eq!(say(6, "And now?"), "second");
    assert!(say(7, "/new").starts_with("Started"));
    assert_eq!(say(8, "And here?"), "first");
    assert!(say(9, "/resume Old").starts_with("Resumed"));
    assert_eq!(say(10, "Still?"), "second");
    assert!(say(11, "/model").contains("openai/second"));
    assert!(say(12, "/model default").contains("the configured models answer"));
    assert_eq!(say(13, "And now?"), "first");
    // A stranger learns nothing about the models.
    accepted(&system, &update(14, 5, "/model openai/third"));
    assert_eq!(say(15, "Still there?"), "first");
    assert!(platform.texts(5).is_empty());
}

#[test]
fn answers_are_formatted_cut_and_kept_in_order() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    platform.next("sendMessage", InjectedFailure::Refuse(429, "Too Many Requests: retry after 1", Some(1)));
    let begun = Instant::now();
    accepted(&system, &update(1, 7, "long"));
    accepted(&system, &update(2, 7, "format"));
    accepted(&system, &update(3, 9, "hello"));
    // Messages in other chats are not delayed.
    assert_eq!(texts(&platform, 9, 1), ["Hello there."]);
    let got = texts(&platform, 7, 3);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let lengths: Vec<usize> = got.iter().map(String::len).collect();
    assert!(lengths[0] <= 4_096 && lengths[0] + lengths[1] + 1 == 4_999, "{lengths:?}");
    assert_eq!(got[2], "<b>bold</b> &amp; <code>code</code>");
    // If the platform refuses the markup, the text is sent without it, in the same order.
    platform.next("sendMessage", InjectedFailure::Refuse(400, "Bad Request: can't parse entities", None));
    accepted(&system, &update(4, 7, "format"));
    assert_eq!(texts(&platform, 7, 4)[3], "**bold** & `code`");
    assert_eq!(sent(&system), json!({"pending": 0, "sent": 4, "failed": 0, "unknown": 0}));
    assert!(health(&system)["errorCount"] == 1, "{}", health(&system));
}

#[test]
fn messages_that_the_platform_refuses_are_counted() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let troubles = [
        (InjectedFailure::Refuse(403, "Forbidden: bot was blocked by the user", None), "failed", 1),
        (InjectedFailure::TakeAndClose, "unknown", 1),
        (InjectedFailure::Proxy(502), "unknown", 2),
        (InjectedFailure::Refuse(500, "Internal Server Error", None), "sent", 1),
    ];
    for (id, (trouble, state, count)) in (1..).zip(troubles) {
        platform.next("sendMessage", trouble);
        accepted(&system, &update(id, 7, "hello"));
        until(&format!("message {id} is {state}"), || health(&system)["outbox"][state] == count);
        let health = health(&system);
        // The last error is one that lasts: the last message was repeated, and has been sent.
        match state {
            "sent" => assert_eq!(health["lastError"], Value::Null),
            _ => assert!(!health["lastError"].as_str().unwrap().contains(TOKEN), "{health}"),
        }
        assert_eq!(health["errorCount"], id);
    }
    let outbox = json!({"pending": 0, "sent": 1, "failed": 1, "unknown": 2});
    assert_eq!(sent(&system), outbox);
    // The counts are stored, so they survive kills.
    system.kill("store");
    system.kill("messenger");
    assert_eq!(sent(&system), outbox);
    assert_eq!(platform.calls("sendMessage").len(), 5);
}

#[test]
fn the_policy_decides_and_every_rejection_is_counted() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let group = |id: u64, from: i64, chat: i64, text: &str| {
        json!({"update_id": id, "message": {"message_id": id, "text": text, "from": {"id": from},
            "chat": {"id": chat, "type": "supergroup"}, "message_thread_id": 3}})
    };
    accepted(&system, &update(1, 5, "let me in"));
    accepted(&system, &group(2, 7, -100, "hey"));
    admin(&system, "group", &json!({"groupId": "-100"})).expect(200);
    accepted(&system, &group(3, 7, -100, "hey"));
    let mention = json!({"update_id": 4, "message": {"message_id": 4, "text": "@ken_bot hello", "from": {"id": 7},
        "chat": {"id": -100, "type": "supergroup"}, "message_thread_id": 3,
        "entities": [{"type": "mention", "offset": 0, "length": 8}]}});
    accepted(&system, &mention);
    assert_eq!(texts(&platform, -100, 1), ["Hello there."]);
    assert_eq!(platform.calls("sendMessage")[0].body["message_thread_id"], 3);
    let body = json!({"groupId": "-100", "requireMention": false, "allowFrom": ["8"]});
    admin(&system, "group", &body).expect(200);
    accepted(&system, &group(5, 7, -100, "hey"));
    admin(&system, "group", &json!({"groupId": "-100", "requireMention": false})).expect(200);
    accepted(&system, &group(6, 5, -100, "hey"));
    admin(&system, "policy", &json!({"dmPolicy": "allowlist"})).expect(200);
    accepted(&system, &update(7, 5, "let me in"));
    admin(&system, "policy", &json!({"policy": "disabled"})).expect(200);
    accepted(&system, &update(8, 7, "hello"));
    admin(&system, "policy", &json!({"dmPolicy": "pairing"})).expect(200);
    let odd = json!({"update_id": 9, "message": {"text": "x", "from": {"id": 7}, "chat": {"id": 7, "type": "odd"}}});
    accepted(&system, &odd);
    let health = health(&system);
    let reasons = [
        "dm_pairing_required", "group_not_configured", "group_mention_required", "group_allowlist", "user_not_allowed",
        "dm_allowlist", "dm_policy_disabled", "unsupported_chat_type",
    ];
    for reason in reasons {
        assert_eq!(health["rejected"][reason], 1, "{reason}: {health}");
    }
    // If pairing codes are disabled, a rejected user gets no message.
    sent(&system);
    assert_eq!(platform.calls("sendMessage").len(), 1);
    assert_eq!(system.delete(&format!("{ADMIN}/group/-100")).expect(200).at("/removed"), true);
    system.delete(&format!("{ADMIN}/group/-100")).expect(404);
    // A rejected update stays rejected, even if it is repeated after the policy has changed.
    admin(&system, "allow", &json!({"userId": "5"})).expect(200);
    accepted(&system, &update(1, 5, "let me in"));
    accepted(&system, &update(10, 5, "and now?"));
    assert_eq!(texts(&platform, 5, 1), ["Hello there."]);
    sent(&system);
    assert_eq!(platform.texts(5).len(), 1);
}

#[test]
fn pairing_codes_admit_users() {
    let platform = BotApi::start();
    let system = scripted(&platform).env("MESSENGER_PAIRING_CODES", "true").start();
    for id in 1..=5 {
        accepted(&system, &update(id, 5, "let me in"));
    }
    // The code is sent three times, then no more. The administrator gets one message.
    let reported = texts(&platform, 5, 3);
    let status = system.get(&format!("{ADMIN}/status")).expect(200);
    let code = status.text("/pendingPairings/0/code");
    assert!(reported.iter().all(|text| text.contains(&code)), "{reported:?}");
    assert_eq!(status.at("/pendingPairings/0/replies"), 3);
    sent(&system);
    assert_eq!((platform.texts(5).len(), platform.texts(9).len()), (3, 1));
    assert!(platform.texts(9)[0].contains("ken messenger pair"));
    admin(&system, "pair", &json!({"code": "NOSUCHXX"})).expect(404);
    let paired = admin(&system, "pair", &json!({"code": code.to_lowercase()})).expect(200);
    assert_eq!((paired.text("/userId"), paired.text("/chatId")), ("5".into(), "5".into()));
    admin(&system, "pair", &json!({"code": code})).expect(409);
    admin(&system, "deny", &json!({"code": code})).expect(409);
    assert_eq!(admin(&system, "deny", &json!({"code": "NOSUCHXX"})).expect(200).at("/denied"), false);
    assert!(texts(&platform, 5, 4)[3].contains("You may write to me now"));
    accepted(&system, &update(6, 5, "hello"));
    assert_eq!(texts(&platform, 5, 5)[4], "Hello there.");
    // At most twenty codes an hour in total.
    for user in 100..130 {
        accepted(&system, &update(1_000 + user, user.cast_signed(), "let me in"));
    }
    assert_eq!(health(&system)["pendingPairingCount"], 19);
    admin(&system, "remove", &json!({"userId": "5", "notify": true})).expect(200);
    assert!(texts(&platform, 5, 6)[5].contains("no longer"));
}

#[test]
fn the_chat_shows_typing_while_a_turn_runs() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    accepted(&system, &update(1, 7, "slow"));
    assert_eq!(texts(&platform, 7, 1), ["Rested."]);
    let typing = platform.calls("sendChatAction");
    assert!(!typing.is_empty() && typing[0].body["chat_id"] == 7, "{typing:?}");
    assert_eq!(typing[0].body["action"], "typing");
    std::thread::sleep(Duration::from_millis(200));
    drop(system);
}

/// Whoever sends something that cannot be read is told so, once, and strangers learn nothing.
#[test]
fn what_is_not_read_is_answered() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let without_text = |id: u64, from: i64, field: &str, value: Value| {
        let mut update = update(id, from, "x");
        let message = update["message"].as_object_mut().unwrap();
        message.remove("text");
        message.insert(field.to_owned(), value);
        update
    };
    let photo = without_text(1, 7, "photo", json!([{"file_id": "p"}]));
    accepted(&system, &photo);
    accepted(&system, &photo);
    assert_eq!(texts(&platform, 7, 1), ["I cannot read a photo. Please write to me in words."]);
    accepted(&system, &without_text(2, 7, "voice", json!({"file_id": "v"})));
    assert_eq!(texts(&platform, 7, 2)[1], "I cannot read a voice message. Please write to me in words.");
    let mut edited = update(3, 7, "hello");
    edited["edited_message"] = edited.as_object_mut().unwrap().remove("message").unwrap();
    accepted(&system, &edited);
    assert!(texts(&platform, 7, 3)[2].contains("send it again as a new message"));
    // What happens in a chat is no message to the agent, and an unknown user is not served.
    accepted(&system, &without_text(4, 7, "new_chat_members", json!([{"id": 1}])));
    accepted(&system, &without_text(5, 66, "photo", json!([{"file_id": "p"}])));
    accepted(&system, &update(6, 7, "hello"));
    assert_eq!(texts(&platform, 7, 4)[3], "Hello there.");
    sent(&system);
    assert_eq!((platform.texts(7).len(), platform.texts(66).len()), (4, 0));
}

/// Of a picture the caption is taken, and a message says so once, however often the update arrives.
#[test]
fn of_a_picture_the_caption_is_answered() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let mut picture = update(1, 7, "x");
    let message = picture["message"].as_object_mut().unwrap();
    message.remove("text");
    message.insert("caption".to_owned(), json!("What is this?"));
    message.insert("photo".to_owned(), json!([{"file_id": "p"}]));
    accepted(&system, &picture);
    accepted(&system, &picture);
    let mut shown = texts(&platform, 7, 2);
    shown.sort();
    assert_eq!(shown, ["Hello there.", "I cannot read a photo, only the words that came with it."]);
}

/// The model is shown what a message replies to, between marks. That of somebody else counts as text from outside.
#[test]
fn what_a_message_replies_to_is_passed_on() {
    let platform = BotApi::start();
    let system = builder(&platform)
        .script(&[
            json!({"when": "the pump is blue", "events": [{"text": "It is blue."}]}),
            json!({"when": "Tell it all", "events": [{"text": "x".repeat(9_000)}]}),
            json!({"events": [{"text": "Nothing was quoted."}]}),
        ])
        .start();
    // Each message begins a session, but for one. Returns what its turn has read, and the id of the answer.
    let mut count = 0;
    let mut turn = |is_new: bool, change: &dyn Fn(&mut Value)| {
        for is_command in [true, false].into_iter().filter(|is_command| is_new || !is_command) {
            count += 1;
            let mut sent_update = update(count, 7, if is_command { "/new" } else { "Is it so?" });
            if !is_command {
                change(&mut sent_update["message"]);
            }
            let earlier = platform.texts(7).len();
            accepted(&system, &sent_update);
            texts(&platform, 7, earlier + 1);
        }
        sent(&system);
        let session = system.get("/api/chat/sessions").expect(200).text("/sessions/0/sessionId");
        let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).body_text();
        let outside = events.split(r#""outside":["#).nth(1).map(|rest| rest.split(']').next().unwrap().to_owned());
        (outside.unwrap_or_default(), platform.calls("sendMessage").last().unwrap().sent.unwrap())
    };
    let quoting = |original: Value| {
        move |message: &mut Value| {
            message["reply_to_message"] = original.clone();
            message["reply_to_message"]["text"] = json!("I say: the pump is blue");
        }
    };
    // User 17 is the bot.
    let of_bot = |id: i64| json!({"message_id": id, "from": {"id": 17, "is_bot": true, "first_name": "ken"}});
    let of_eve = json!({"from": {"id": 8, "first_name": "Eve"}});
    let (quote, none) = (r#""quote""#.to_owned(), String::new());
    let (read, plain) = turn(true, &|_| {});
    assert_eq!(read, none);
    let (read, tainted) = turn(true, &quoting(of_eve.clone()));
    assert_eq!(read, quote);
    assert_eq!(platform.texts(7).last().unwrap(), "It is blue.");
    let own = json!({"id": 7, "is_bot": false, "first_name": "Ada"});
    for (original, expected) in [
        (of_bot(plain), &none),
        (of_bot(tainted), &quote),
        (of_bot(tainted + 1_000), &quote),
        (json!({"from": {"id": 17}}), &quote),
        (json!({"from": own}), &none),
        (of_eve, &quote),
        (json!({"from": own, "forward_origin": {"type": "user", "sender_user": {"id": 8}}}), &quote),
        (json!({"from": own, "forward_origin": {"type": "user", "sender_user": own}}), &quote),
        (json!({"from": own, "via_bot": {"id": 77, "is_bot": true, "first_name": "Gif"}}), &quote),
    ] {
        assert_eq!(turn(true, &quoting(original.clone())).0, *expected, "{original}");
    }
    // The same holds for each piece of a long answer.
    let (read, last) = turn(true, &|message| message["text"] = json!("Tell it all"));
    assert_eq!(
        (read, platform.texts(7).iter().rev().take_while(|text| text.starts_with('x')).count()),
        (none.clone(), 3)
    );
    for piece in [last - 2, last - 1, last] {
        assert_eq!(turn(true, &quoting(of_bot(piece))).0, none, "{piece} of {last}");
    }
    // A session knows what it has read itself, whatever its answers are quoted for.
    let (_, answer) = turn(true, &|_| {});
    assert_eq!(turn(false, &quoting(of_bot(answer))).0, none);
    let by_bot = turn(true, &|message| message["via_bot"] = json!({"id": 77, "is_bot": true, "first_name": "Gif"}));
    assert_eq!(by_bot.0, r#""forward""#);
}

/// The users whom the configuration admits are in no table, but they may write too.
#[test]
fn the_status_names_the_users_of_the_configuration() {
    let platform = BotApi::start();
    let system = scripted(&platform).env("MESSENGER_APPROVED_USER_IDS", "7,8").start();
    let status = system.get(&format!("{ADMIN}/status")).expect(200);
    let users = status.at("/configuredUsers");
    assert!(["7", "8"].iter().all(|id| users.as_array().unwrap().contains(&json!(id))), "{users}");
    let shown = String::from_utf8(system.ken(&["messenger", "status"]).stdout).unwrap();
    assert!(shown.contains("user       8, by the configuration\n"), "{shown}");
}

#[test]
fn updates_can_be_polled() {
    let platform = BotApi::start();
    let system = scripted(&platform).env("MESSENGER_MODE", "poll").start();
    platform.push(update(1, 7, "hello"));
    assert_eq!(texts(&platform, 7, 1), ["Hello there."]);
    until("it polls", || health(&system)["pollerRunning"] == true);
    system.kill("messenger");
    platform.push(json!({"update_id": 2, "message": 7}));
    platform.push(update(3, 7, "hello again"));
    assert_eq!(texts(&platform, 7, 2).len(), 2);
    sent(&system);
    assert_eq!((platform.texts(7).len(), &health(&system)["updateCount"]), (2, &json!(3)));
    // If the connector is killed in the middle of a batch, the platform repeats the whole batch, and each update is answered once.
    for id in 4..24 {
        platform.push(update(id, 7, "hello"));
    }
    until("some of them are taken", || health(&system)["updateCount"].as_u64() > Some(6));
    system.kill("messenger");
    until("all are answered", || {
        let outbox = &health(&system)["outbox"];
        outbox["sent"].as_u64().unwrap() + outbox["unknown"].as_u64().unwrap() == 22
    });
    assert_eq!(health(&system)["updateCount"], 23);
    let unknown = sent(&system)["unknown"].as_u64().unwrap() as usize;
    assert!((22 - unknown..=22).contains(&platform.texts(7).len()));
}

/// Asking for the next updates confirms the last ones, so an update that the store has not taken must be kept until it has.
#[test]
fn an_update_that_is_polled_while_the_store_is_away_is_answered_when_it_is_back() {
    let platform = BotApi::start();
    let system = scripted(&platform).env("MESSENGER_MODE", "poll").start();
    platform.push(update(1, 7, "hello"));
    assert_eq!(texts(&platform, 7, 1), ["Hello there."]);
    sent(&system);
    for (round, kills_connector) in [(2, false), (4, true)] {
        assert!(system.ken(&["stop", "store"]).status.success());
        let calls = platform.calls("getUpdates").len();
        platform.push(update(round, 7, "hello"));
        platform.push(update(round + 1, 7, "hello"));
        // Longer than the pause between two attempts.
        std::thread::sleep(Duration::from_millis(2_500));
        assert_eq!(platform.calls("getUpdates").len(), calls, "the updates are confirmed");
        if kills_connector {
            system.kill("messenger");
        }
        assert!(system.ken(&["start", "store"]).status.success());
        assert_eq!(texts(&platform, 7, round as usize + 1).len(), round as usize + 1);
        sent(&system);
    }
    assert_eq!(health(&system)["updateCount"], 5);
}

#[test]
fn an_update_without_an_id_is_not_asked_for_again_at_once() {
    let platform = BotApi::start();
    let system = scripted(&platform).env("MESSENGER_MODE", "poll").start();
    platform.push(json!({"update_id": "1", "message": 7}));
    until("it was asked for twice", || platform.calls("getUpdates").len() >= 3);
    let calls = platform.calls("getUpdates");
    assert!(calls[2].at - calls[1].at > Duration::from_millis(900));
    platform.push(update(3, 7, "hello"));
    assert_eq!(texts(&platform, 7, 1), ["Hello there."]);
    assert!(health(&system)["errorCount"].as_u64() > Some(0));
}

/// The platform repeats what is not confirmed, so what came before an update without an id has to stay confirmed.
#[test]
fn an_update_without_an_id_after_another_does_not_bring_that_one_back() {
    let platform = BotApi::start();
    // Both are there before the first poll, so that they come in one answer.
    platform.push(update(5, 7, "hello"));
    platform.push(json!({"message": 7}));
    let system = scripted(&platform).env("MESSENGER_MODE", "poll").start();
    assert_eq!(texts(&platform, 7, 1), ["Hello there."]);
    until("it was asked for more", || platform.calls("getUpdates").len() >= 2);
    assert_eq!(platform.calls("getUpdates")[1].body["offset"], 6);
    platform.push(update(6, 7, "hello"));
    assert_eq!(texts(&platform, 7, 2).len(), 2);
    assert_eq!((&health(&system)["updateCount"], &health(&system)["duplicateCount"]), (&json!(2), &json!(0)));
}

/// The platform may be out of reach when the connector starts, and another program may register a webhook later.
#[test]
fn a_webhook_that_keeps_from_polling_is_removed_as_often_as_it_is_there() {
    let platform = BotApi::start();
    let conflict =
        "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first";
    platform.next("deleteWebhook", InjectedFailure::Proxy(502));
    platform.next("getUpdates", InjectedFailure::Proxy(502));
    platform.next("getUpdates", InjectedFailure::Refuse(409, conflict, None));
    platform.push(update(1, 7, "hello"));
    let system = scripted(&platform).env("MESSENGER_MODE", "poll").start();
    assert_eq!(texts(&platform, 7, 1), ["Hello there."]);
    // Twice, until it is done, and once for the refusal.
    assert_eq!(platform.calls("deleteWebhook").len(), 3);
    let other = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
    for (count, (refusal, removals)) in [(other, 3), (conflict, 4), (conflict, 5)].into_iter().enumerate() {
        platform.next("getUpdates", InjectedFailure::Refuse(409, refusal, None));
        let asked = platform.calls("getUpdates").len();
        until("it was asked again", || platform.calls("getUpdates").len() >= asked + 2);
        platform.push(update(2 + count as u64, 7, "hello"));
        assert_eq!(texts(&platform, 7, 2 + count).len(), 2 + count);
        assert_eq!(platform.calls("deleteWebhook").len(), removals, "{refusal}");
    }
    drop(system);
}

/// Nothing is sent here, so only the platform's next answer shows that it works again.
#[test]
fn a_failed_poll_is_the_last_error_until_the_platform_answers_again() {
    let platform = BotApi::start();
    for _ in 0..2 {
        platform.next("getUpdates", InjectedFailure::Refuse(500, "Internal Server Error", None));
    }
    let system = scripted(&platform).env("MESSENGER_MODE", "poll").start();
    until("the error is shown", || health(&system)["lastError"].as_str().is_some_and(|error| error.contains("500")));
    platform.push(json!({"update_id": 1, "poll": {}}));
    until("it works again", || health(&system)["lastError"].is_null());
    assert_eq!(health(&system)["errorCount"], 2);
}

#[test]
fn a_proxy_leads_to_the_platform() {
    let platform = BotApi::start();
    let port = platform.url().rsplit(':').next().unwrap().parse().unwrap();
    let proxy = ConnectProxy::to(port, "ada:right");
    let with = |password: &str| {
        let secrets = format!("MESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n");
        scripted(&platform)
            .env("MESSENGER_API_BASE_URL", "http://platform.test")
            .secrets(&format!("{secrets}ALL_PROXY=http://ada:{password}@{}\n", proxy.address()))
            .start()
    };
    let system = with("right");
    accepted(&system, &update(1, 7, "hello"));
    assert_eq!(texts(&platform, 7, 1), ["Hello there."]);
    assert_eq!(proxy.hosts()[0], "platform.test:80");
    let system = with("wrong");
    accepted(&system, &update(1, 7, "hello"));
    let named = format!("the platform cannot be reached through the proxy {}: ", proxy.address());
    until("the proxy is named", || health(&system)["lastError"].as_str().is_some_and(|error| error.contains(&named)));
    assert!(!health(&system).to_string().contains("wrong"));
}

/// A chat and a schedule are told what is to be done, because nobody is there to whom a prompt can be refused.
#[test]
fn without_a_usable_model_a_chat_and_a_schedule_are_told_why() {
    let platform = BotApi::start();
    let system = builder(&platform).env("KEN_MODEL", "openai/m").start();
    let why = "no model is configured: openai/m: OPENAI_API_KEY is not set; ";
    for count in 1..=2 {
        accepted(&system, &update(count, 7, "hello"));
        let said = texts(&platform, 7, count as usize).pop().unwrap();
        assert!(said.contains(why), "{said}");
    }
    let schedule = json!({"slug": "daily", "kind": "cron", "schedule": "@daily", "prompt": "hello"});
    system.post("/api/schedules", &schedule).expect(201);
    for _ in 0..2 {
        let ran = system.ken(&["schedule", "run", "daily", "--wait"]);
        let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
        assert!(said.contains(why) && !ran.status.success(), "{said}");
    }
}

/// A user whom the settings admit has no stored record, but gets results. A model that says nothing makes a failed run, and the chat is
/// told so.
#[test]
fn a_schedule_reports_to_a_chat_that_the_settings_admit() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let schedule = |slug: &str, chat: &str, prompt: &str| {
        let to = json!({"connector": "messenger", "chatId": chat});
        json!({"slug": slug, "kind": "cron", "schedule": "@daily", "prompt": prompt, "deliverTo": to})
    };
    system.post("/api/schedules", &schedule("stranger", "8", "hello")).refused(400, "invalid", "/deliverTo/chatId");
    system.post("/api/schedules", &schedule("empty", "7", "blank")).expect(201);
    system.post("/api/schedules", &schedule("full", "9", "hello")).expect(201);
    let ended = system.post("/api/schedules/empty/run?wait=1", &json!({})).expect(502);
    let why = "The model script/script-1 gave an empty answer twice.";
    assert_eq!(
        texts(&platform, 7, 1),
        [format!("The scheduled run {} of \"empty\" ended with error. {why}", ended.text("/runId"))]
    );
    system.post("/api/schedules/full/run?wait=1", &json!({})).expect(200);
    assert_eq!(texts(&platform, 9, 1), ["Hello there."]);
    // The next message in the chat is answered.
    accepted(&system, &update(1, 7, "hello"));
    assert_eq!(texts(&platform, 7, 2)[1], "Hello there.");
    sent(&system);
    // While the connector is stopped, only users in the stored policy are accepted.
    admin(&system, "allow", &json!({"userId": "8"})).expect(200);
    assert!(system.ken(&["stop", "messenger"]).status.success());
    system.post("/api/schedules", &schedule("stored", "8", "hello")).expect(201);
    let refused = system.post("/api/schedules", &schedule("away", "7", "hello"));
    let refused = refused.refused(400, "invalid", "/deliverTo/chatId");
    assert!(refused.body_text().contains("ken-messenger does not answer"), "{}", refused.body_text());
    // A schedule outlives the admission of its chat, which then gets no more results.
    assert!(system.ken(&["start", "messenger"]).status.success());
    system.post("/api/schedules/stored/run?wait=1", &json!({})).expect(200);
    assert_eq!(texts(&platform, 8, 1), ["Hello there."]);
    admin(&system, "remove", &json!({"userId": "8"})).expect(200);
    system.post("/api/schedules/stored/run?wait=1", &json!({})).expect(200);
    let runs = || system.get("/api/schedules/stored/runs").expect(200).json();
    until("its delivery has failed", || runs()["runs"][0]["delivery"] == "failed");
    assert_eq!((texts(&platform, 8, 1).len(), runs()["runs"][1]["delivery"].clone()), (1, json!("sent")));
}

/// The turn of a run has done its work, so the run is `ok` even if the platform refuses its result. Wherever a person looks, it is said why
/// nothing has arrived, for each such run and for no other.
#[test]
fn a_result_that_the_platform_refuses_is_seen_wherever_runs_are() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    for (slug, prompt) in [("report", "hello"), ("broken", "refused")] {
        let to = json!({"connector": "messenger", "chatId": "7"});
        let body = json!({"slug": slug, "kind": "cron", "schedule": "@daily", "prompt": prompt, "deliverTo": to});
        system.post("/api/schedules", &body).expect(201);
    }
    let refusal = "Forbidden: bot was blocked by the user";
    let cause = &format!("{refusal} (403)");
    let newest = |slug: &str| system.get(&format!("/api/schedules/{slug}/runs")).expect(200).at("/runs/0");
    let start = |slug: &str, delivery: &str| {
        _ = system.post(&format!("/api/schedules/{slug}/run?wait=1"), &json!({}));
        until("the delivery has ended", || newest(slug)["delivery"] == delivery);
        newest(slug)
    };
    let printed = |words: &[&str]| String::from_utf8(system.ken(words).stdout).unwrap();
    let line =
        |words: &[&str], id: &str| printed(words).lines().find(|line| line.contains(id)).unwrap_or_default().to_owned();
    let inbox = || system.get("/api/inbox").expect(200).at("/failures").as_array().unwrap().clone();
    let sent = start("report", "sent");
    assert_eq!((&sent["status"], &sent["error"], inbox().len()), (&json!("ok"), &Value::Null, 0));
    assert!(!printed(&["doctor"]).contains("deliver"));
    let mut failed = Vec::new();
    for _ in 0..2 {
        platform.next("sendMessage", InjectedFailure::Refuse(403, refusal, None));
        let run = start("report", "failed");
        let error = format!("the result was not delivered: {cause}");
        assert_eq!((&run["status"], &run["error"]), (&json!("ok"), &json!(error)));
        failed.push(run["runId"].as_str().unwrap().to_owned());
    }
    platform.next("sendMessage", InjectedFailure::Refuse(403, refusal, None));
    let both = start("broken", "failed")["error"].as_str().unwrap().to_owned();
    assert!(
        both.contains("the key is not taken; this was not delivered: ") && both.ends_with(cause.as_str()),
        "{both}"
    );
    for id in &failed {
        let row = line(&["schedule", "runs", "report"], id);
        assert!(row.contains("  failed    the result was not delivered: ") && row.ends_with(cause.as_str()), "{row}");
        let why = line(&["why", id], "answer");
        assert!(why.ends_with(&format!("failed: the result was not delivered: {cause}")), "{why}");
    }
    let row = line(&["schedule", "runs", "report"], sent["runId"].as_str().unwrap());
    assert!(row.contains("  sent ") && row.ends_with("Hello there."), "{row}");
    assert!(line(&["schedule", "list"], "report").ends_with("ok, not delivered"));
    assert!(line(&["doctor"], "report").contains("could not deliver its result"));
    let states: Vec<Value> = inbox().iter().map(|one| json!([one["name"], one["status"]])).collect();
    assert_eq!(
        states,
        [json!(["broken", "error"]), json!(["report", "undelivered"]), json!(["report", "undelivered"])]
    );
    // The next one arrives, so that nothing is wrong any more.
    start("report", "sent");
    assert!(line(&["schedule", "list"], "report").ends_with("  ok"));
    assert!(!printed(&["doctor"]).contains("could not deliver"));
}

#[test]
fn ken_messenger_administers_the_connector() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let printed = |arguments: &[&str]| {
        let output = system.ken(&[&["messenger"], arguments].concat());
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code().unwrap())
    };
    let done = |arguments: &[&str]| {
        let (stdout, stderr, status) = printed(arguments);
        assert_eq!((stderr.as_str(), status), ("", 0), "{arguments:?}");
        stdout
    };
    assert_eq!(done(&["set-webhook", "https://ken.example/hook"]), "the platform posts updates there now\n");
    let body = platform.calls("setWebhook")[0].body.clone();
    assert_eq!((&body["url"], &body["secret_token"]), (&json!("https://ken.example/hook"), &json!(SECRET)));
    platform.next("setWebhook", InjectedFailure::Refuse(400, "Bad Request: bad webhook", None));
    let (_, stderr, status) = printed(&["set-webhook", "https://ken.example/hook"]);
    assert!(status == 2 && stderr.contains("bad webhook"), "{stderr}");
    assert_eq!(done(&["allow", "5"]), "allowed user 5\n");
    assert_eq!(done(&["group", "-100", "--no-mention", "--from", "5"]), "group      -100 every message, from 5\n");
    for setting in [&["--from", "5"][..], &["--no-mention"], &["--rm"]] {
        let (stdout, stderr, status) = printed(&[&["group"], setting].concat());
        assert!(stdout.is_empty() && status == 2 && stderr.contains("<GROUP>"), "{setting:?} {stdout} {stderr}");
    }
    assert_eq!(done(&["group"]), "group      -100 every message, from 5\n");
    assert_eq!(done(&["policy", "allowlist"]), "policy allowlist\n");
    accepted(&system, &update(1, 6, "let me in"));
    accepted(&system, &update(2, 5, "hello"));
    texts(&platform, 5, 1);
    sent(&system);
    let status = done(&["status"]);
    for line in [
        "connector  on",
        "policy     allowlist",
        "rejected   1 dm_allowlist",
        "outbox     pending 0, sent 1,",
        "user       5, since",
        "group      -100 every message, from 5",
    ] {
        assert!(status.contains(line), "{line} is not in:\n{status}");
    }
    let why: Value = serde_json::from_str(&done(&["updates", "--rejected", "--json"])).unwrap();
    assert_eq!((&why["updateId"], &why["reason"]), (&json!(1), &json!("dm_allowlist")));
    assert!(done(&["outbox"]).contains("messenger:2:answer"));
    assert_eq!(done(&["group", "-100", "--rm"]), "removed group -100\n");
    let (_, stderr, status) = printed(&["remove", "55"]);
    assert!(status == 2 && stderr.contains("user 55 is not admitted"), "{stderr}");
    assert_eq!(done(&["remove", "5"]), "removed user 5\n");
    assert_eq!(printed(&["remove", "5"]).2, 2);
    assert_eq!(printed(&["pair", "ABCDEFGH"]).2, 2);
    assert_eq!(printed(&["deny", "ABCDEFGH"]).2, 2);
}

#[test]
fn odd_updates_are_acknowledged_and_counted() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let odd = [
        json!({"update_id": 1}),
        json!({"update_id": 2, "edited_message": {"text": "x"}}),
        json!({"update_id": 3, "message": null}),
        json!({"update_id": 4, "message": {"text": 7, "from": {"id": 7}, "chat": {"id": 7, "type": "private"}}}),
        json!({"update_id": 5, "message": {"text": "x", "from": "7", "chat": [7]}}),
        json!({"update_id": 6, "callback_query": {"id": "q", "from": {"id": 7}, "data": "forged", "message": {"chat": {"id": 7}}}}),
        json!({"update_id": 7, "something_new": {"deep": [[[[]]]]}}),
        json!({"update_id": 8, "message": {"text": "x".repeat(1024 * 1024 - 200), "from": {"id": 7}, "chat": {"id": 7, "type": "private"}}}),
    ];
    for update in &odd {
        accepted(&system, update);
    }
    assert_eq!(health(&system)["ignoredCount"], odd.len());
    assert!(texts(&platform, 7, 1)[0].contains("too long"));
    // Ids beyond 2^53 are exact, and a caption counts as text.
    let far = 9_007_199_254_740_993_i64;
    admin(&system, "allow", &json!({"userId": far.to_string()})).expect(200);
    let photo = json!({"update_id": 9, "message": {"message_id": 9, "caption": "hello", "photo": [{"file_id": "f"}],
        "from": {"id": far}, "chat": {"id": far, "type": "private"}}});
    accepted(&system, &photo);
    assert!(texts(&platform, far, 2).contains(&"Hello there.".to_owned()));
}

#[test]
fn emoji_and_right_to_left_text_are_cut_between_characters() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    accepted(&system, &update(1, 7, "emoji"));
    texts(&platform, 7, 1);
    sent(&system);
    let pieces = platform.texts(7);
    assert!(pieces.len() >= 3, "{}", pieces.len());
    for piece in &pieces {
        assert!(piece.encode_utf16().count() <= 4_096);
        // If a family emoji were cut, a piece would begin or end with the joining character U+200D.
        assert!(!piece.starts_with('\u{200d}') && !piece.ends_with('\u{200d}') && !piece.contains('\u{fffd}'));
    }
    let whole = pieces.concat();
    assert_eq!(whole.matches(FAMILY).count(), 400);
    assert_eq!(whole.matches("שלום").count(), 700);
    assert_eq!(whole.matches("עולם").count(), 700);
}

/// `ken why` explains the outcome of every update that the platform has sent.
#[test]
fn ken_why_explains_every_update() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    accepted(&system, &update(1, 6, "let me in"));
    accepted(&system, &json!({"update_id": 2, "poll": {"id": "x"}}));
    accepted(&system, &update(3, 7, "hello"));
    texts(&platform, 7, 1);
    sent(&system);
    let why = |id: &str| {
        let output = system.ken(&["why", id]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let rejected = why("messenger:1");
    assert!(
        rejected.starts_with("rejected: The update (message) by user 6 in chat 6 was rejected: dm_pairing_required."),
        "{rejected}"
    );
    assert!(rejected.contains("received"), "{rejected}");
    let ignored = why("messenger:2");
    assert!(ignored.starts_with("ignored: The update (poll) was ignored: unsupported_update."), "{ignored}");
    let answered = why("messenger:3");
    assert!(answered.starts_with("completed") && answered.contains("answer    sent"), "{answered}");
    assert!(!system.ken(&["why", "messenger:4"]).status.success());
}

/// The connector gets a SIGKILL every second while clients use the gateway. All their requests are answered. With
/// `KEN_CRASH_SECONDS=60` or more, the 99th percentile of their latencies is compared too.
#[test]
fn a_crashing_connector_does_not_affect_other_clients() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let seconds = number("KEN_CRASH_SECONDS", 3);
    let calm = load(&system, seconds, || {});
    let mut next = Duration::ZERO;
    let begun = Instant::now();
    let mut kills = 0;
    let crashing = load(&system, seconds, || {
        if begun.elapsed() >= next {
            next += Duration::from_secs(1);
            let status = system.call("kend", "parts.status", &[]);
            let parts = status["parts"].as_array().unwrap();
            let one = parts.iter().find(|part| part["name"] == "messenger").unwrap();
            if let Some(pid) = one["pid"].as_i64() {
                _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL);
                kills += 1;
            }
        }
    });
    assert!(kills > 0);
    let p99 = |times: &[Duration]| times[times.len() * 99 / 100];
    let (calm, crashing) = (p99(&calm), p99(&crashing));
    if seconds >= 60 {
        assert!(crashing.as_secs_f64() <= 1.1 * calm.as_secs_f64(), "{crashing:?}, {calm:?} before");
    }
    // After the kills the connector starts again, and the platform repeats updates that were refused meanwhile.
    assert!(system.ken(&["restart", "messenger"]).status.success());
    deliver(system.address(), &update(1, 7, "hello"));
    assert_eq!(texts(&platform, 7, 1), ["Hello there."]);
}

/// Sends requests to the gateway and calls `meanwhile` every 20 ms. Checks that all are answered, and returns the sorted latencies.
fn load(system: &System, seconds: u64, mut meanwhile: impl FnMut()) -> Vec<Duration> {
    let (address, session) = (system.address(), system.session());
    let end = Instant::now() + Duration::from_secs(seconds);
    let target = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c");
    let worker = move || {
        let mut client = Client::connect(address);
        let mut times = Vec::new();
        while Instant::now() < end {
            let begun = Instant::now();
            client.get(&target).expect(200);
            times.push(begun.elapsed());
            std::thread::sleep(Duration::from_millis(2));
        }
        times
    };
    let workers: Vec<_> = (0..2).map(|_| std::thread::spawn(worker.clone())).collect();
    while Instant::now() < end {
        meanwhile();
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut times: Vec<Duration> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    times.sort_unstable();
    times
}

/// SIGKILL at five exact steps: before an update is stored; after it is stored, before it is acknowledged; before a message is marked
/// as being sent; after that, before its first byte is sent; and after the platform has received it. `KEN_KILLS` is the number of
/// kills at each step.
#[test]
fn a_kill_at_any_step_loses_no_update_and_doubles_no_answer() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    let tap = WireTap::put_in(&system.socket("store"));
    // After the restart, the connector calls the store through the tap.
    system.kill("messenger");
    let stops = [
        Some(("messenger.accept", Side::Request)),
        Some(("messenger.accept", Side::Reply)),
        Some(("outbox.attempt", Side::Request)),
        Some(("outbox.attempt", Side::Reply)),
        None,
    ];
    let kills = number("KEN_KILLS", 2);
    // `unknown` counts messages with an unknown outcome; `untold` counts those of them that the platform has not received.
    let (mut unknown, mut untold) = (0, 0);
    for id in 0..kills * 5 {
        system.wait_until_stable("messenger");
        let stop = stops[(id % 5) as usize];
        match stop {
            Some((op, side)) => tap.stop_at(op, side),
            None => platform.next("sendMessage", InjectedFailure::TakeAndHang),
        }
        let (address, taken) = (system.address(), platform.calls("sendMessage").len());
        let posted = std::thread::spawn(move || deliver(address, &update(id, 7, "hello")));
        match stop {
            Some((_, side)) => {
                tap.reached();
                // The message is marked, so the connector cannot know whether it was sent. Here it was not.
                if (id % 5, side) == (3, Side::Reply) {
                    (unknown, untold) = (unknown + 1, untold + 1);
                }
            }
            None => {
                until("the platform has the message", || platform.calls("sendMessage").len() > taken);
                unknown += 1;
            }
        }
        system.kill("messenger");
        posted.join().unwrap();
        until("the message is sent", || {
            let outbox = &health(&system)["outbox"];
            outbox["sent"].as_u64().zip(outbox["unknown"].as_u64()).is_some_and(|(sent, lost)| sent + lost == id + 1)
        });
        let found = sent(&system);
        // If the reply of `messenger.accept` is held back, the kill can hit the connector while it sends the answer. The outcome is
        // then unknown, and the platform has received the message or not.
        let more = found["unknown"].as_u64().unwrap() - unknown;
        let may_hit_a_send = stop == Some(("messenger.accept", Side::Reply));
        assert!(more <= u64::from(may_hit_a_send), "after kill {id} at {stop:?}: {found}");
        (unknown, untold) = (unknown + more, untold + more);
        let outbox = json!({"pending": 0, "sent": id + 1 - unknown, "failed": 0, "unknown": unknown});
        assert_eq!(found, outbox, "after kill {id} at {stop:?}");
        let texts = platform.texts(7).len() as u64;
        assert!((id + 1 - untold..=id + 1).contains(&texts), "after kill {id} at {stop:?}: {texts} messages");
    }
    let health = health(&system);
    assert_eq!(health["updateCount"], kills * 5, "{health}");
}

/// However long the model writes, the answer is one message; until then the chat shows "typing".
#[test]
fn an_answer_is_one_message_and_typing_is_shown_until_then() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    accepted(&system, &update(1, 7, "stream"));
    assert_eq!(texts(&platform, 7, 1), ["One. Two. Three."]);
    assert_eq!(sent(&system), json!({"pending": 0, "sent": 1, "failed": 0, "unknown": 0}));
    assert!(platform.calls("editMessageText").is_empty(), "{:?}", platform.calls("editMessageText"));
    let (answer, typing) = (&platform.calls("sendMessage")[0], platform.calls("sendChatAction"));
    assert!(typing.first().is_some_and(|typing| typing.at < answer.at), "{typing:?}");
}

/// Posts an update like the platform, repeatedly until it is acknowledged.
fn deliver(address: std::net::SocketAddr, update: &Value) {
    for _ in 0..100 {
        let mut client = Client::connect(address);
        let request = client.request("POST", WEBHOOK).header("X-Telegram-Bot-Api-Secret-Token", SECRET);
        if request.json(update).try_send().is_ok_and(|answer| answer.status == 200) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the update was not acknowledged");
}

fn press(id: u64, from: i64, data: &str) -> Value {
    json!({"update_id": id, "callback_query": {"id": format!("q{id}"), "from": {"id": from}, "data": data,
        "message": {"message_id": 1, "chat": {"id": 7}}}})
}

#[test]
fn a_request_for_an_approval_is_decided_in_its_chat() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    accepted(&system, &update(1, 7, "hold"));
    let identity = "connector=messenger&actorId=7&conversationId=7";
    let sessions = system.get(&format!("/api/chat/sessions?{identity}")).expect(200);
    let transcript = format!("/api/chat/sessions/{}/transcript?{identity}", sessions.text("/sessions/0/sessionId"));
    let submission = system.get(&transcript).expect(200).text("/exchanges/0/submissionId");
    let preview = json!({"approval": "ask", "actionType": "git.push", "summary": "Push <b>fix</b>",
        "risk": "high", "target": "repos/site", "action": {"argv": ["git", "push"]}, "fingerprint": "a".repeat(64)});
    let ask = |id: &str, call: &str| {
        system.call(
            "store",
            "approvals.put",
            &[
                &format!("id=apr_{id}"),
                &format!("submissionId=\"{submission}\""),
                &format!("callId={call}"),
                &format!("toolCallId={call}"),
                "requestedBy=coding-worker",
                &format!("preview={preview}"),
                "tool=push",
                "expiresInMs=3600000",
            ],
        )
    };
    ask("1", "c1");
    let shown = texts(&platform, 7, 1);
    assert!(shown[0].contains("git.push") && shown[0].contains("Push &lt;b&gt;fix&lt;/b&gt;"), "{shown:?}");
    let buttons = platform.calls("sendMessage")[0].body["reply_markup"]["inline_keyboard"].clone();
    let data = |number: usize| buttons[0][number]["callback_data"].as_str().unwrap().to_owned();
    let (yes, no) = (data(0), data(1));
    assert!(yes.len() <= 64 && yes != no, "{yes} {no}");
    let notice = |query: &str| {
        let find =
            || platform.calls("answerCallbackQuery").into_iter().find(|call| call.body["callback_query_id"] == query);
        until(&format!("the notice about {query}"), || find().is_some());
        find().unwrap().body["text"].as_str().unwrap().to_owned()
    };
    // The platform takes the notices and never answers. A press does not wait for that.
    platform.always("answerCallbackQuery", Some(InjectedFailure::TakeAndHang));
    let begun = Instant::now();
    let typing = platform.calls("sendChatAction").len();
    // The button is pressed by a stranger, with forged data, and by the user; then again by another user and as a repeated update.
    accepted(&system, &press(2, 6, &yes));
    accepted(&system, &press(3, 7, &yes.replace("y:", "n:")));
    accepted(&system, &press(4, 7, &yes));
    accepted(&system, &press(5, 9, &no));
    accepted(&system, &press(4, 7, &yes));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(notice("q2").starts_with("Only an administrator"), "{}", notice("q2"));
    assert_eq!((notice("q3").as_str(), notice("q4").as_str()), ("This button is not valid.", "Approved."));
    assert!(notice("q5").contains("approved"), "{}", notice("q5"));
    until("the message is edited", || platform.calls("editMessageText").len() == 1);
    let edit = platform.calls("editMessageText")[0].body.clone();
    assert!(edit["text"].as_str().unwrap().contains("approved by"), "{edit}");
    assert_eq!(edit["message_id"], 100);
    // What ken knows about who decided, beside what the connector says.
    let decided = system.get("/api/approvals/apr_1").expect(200).at("/decision/decidedAs");
    assert_eq!(decided, json!({"kind": "messenger", "userId": "7"}));
    until("typing is shown again", || platform.calls("sendChatAction").len() > typing);
    // The approval is decided elsewhere while the connector is stopped.
    ask("2", "c2");
    texts(&platform, 7, 2);
    sent(&system);
    assert!(system.ken(&["stop", "messenger"]).status.success());
    system.call("store", "approvals.decide", &["id=apr_2", "approved=false", "decidedBy=ada"]);
    assert!(system.ken(&["start", "messenger"]).status.success());
    until("the other message is edited", || platform.calls("editMessageText").len() == 2);
    let edit = platform.calls("editMessageText")[1].body.clone();
    assert!(edit["text"].as_str().unwrap().contains("denied by"), "{edit}");
}

/// Adds a tool whose calls need an approval.
fn add_gated(system: &System) {
    let entry = json!({"name": "gated", "description": "Push.", "command": ["echo", "pushed"], "input": {"type": "object"},
        "writes": "text", "agents": ["orchestrator"], "touch": {"write": [system.home().join("tools.d")]}});
    std::fs::create_dir_all(system.home().join("tools.d")).unwrap();
    std::fs::write(system.home().join("tools.d/gated.json"), entry.to_string()).unwrap();
    until("the tool is listed", || system.call("tools", "tools.list", &[]).to_string().contains("gated"));
}

/// Whoever is removed, or whose group is, decides nothing by a button that is still there.
#[test]
fn a_user_who_is_no_longer_admitted_decides_nothing() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    add_gated(&system);
    admin(&system, "allow", &json!({"userId": "5"})).expect(200);
    admin(&system, "group", &json!({"groupId": "-100", "requireMention": false})).expect(200);
    let mut in_group = update(2, 5, "push");
    in_group["message"]["chat"] = json!({"id": -100, "type": "supergroup"});
    accepted(&system, &update(1, 5, "push"));
    accepted(&system, &in_group);
    let buttons = || -> Vec<String> {
        let calls = platform.calls("sendMessage");
        let data =
            calls.iter().map(|call| call.body["reply_markup"]["inline_keyboard"][0][0]["callback_data"].as_str());
        data.flatten().map(str::to_owned).collect()
    };
    until("both requests are shown", || buttons().len() == 2);
    let policy = |name: &str| admin(&system, "policy", &json!({"dmPolicy": name})).expect(200);
    let mut id = 10;
    let mut refused = |why: &str| {
        for button in buttons() {
            id += 1;
            accepted(&system, &press(id, 5, &button));
            let query = format!("q{id}");
            let said = |text: &str| {
                let calls = platform.calls("answerCallbackQuery");
                calls.iter().any(|call| call.body["callback_query_id"] == *query && call.body["text"] == text)
            };
            until(why, || said("You are no longer admitted."));
        }
    };
    policy("disabled");
    refused("the policy is disabled");
    policy("pairing");
    admin(&system, "remove", &json!({"userId": "5"})).expect(200);
    refused("the user is removed");
    assert_eq!(system.get("/api/approvals/pending").expect(200).json().as_array().unwrap().len(), 2);
    admin(&system, "allow", &json!({"userId": "5"})).expect(200);
    for (number, button) in buttons().iter().enumerate() {
        accepted(&system, &press(100 + number as u64, 5, button));
    }
    until("both are decided", || {
        system.get("/api/approvals/pending").expect(200).json().as_array().unwrap().is_empty()
    });
}

/// In a group with topics, the request and the answer are shown in the topic of the prompt, each as one message.
#[test]
fn a_request_for_an_approval_is_shown_in_its_topic() {
    let platform = BotApi::start();
    let system = scripted(&platform).start();
    add_gated(&system);
    admin(&system, "group", &json!({"groupId": "-100", "requireMention": false})).expect(200);
    let mut prompt = update(1, 7, "push");
    prompt["message"]["chat"] = json!({"id": -100, "type": "supergroup"});
    prompt["message"]["message_thread_id"] = json!(9);
    accepted(&system, &prompt);
    let shown = texts(&platform, -100, 1);
    assert!(shown[0].contains("Approval needed"), "{shown:?}");
    let pending = system.get("/api/approvals/pending").expect(200).json();
    assert_eq!((&pending[0]["conversationId"], &pending[0]["threadId"]), (&json!("-100"), &json!("9")), "{pending}");
    let request = platform.calls("sendMessage")[0].body.clone();
    let yes = request["reply_markup"]["inline_keyboard"][0][0]["callback_data"].as_str().unwrap();
    accepted(&system, &press(2, 7, yes));
    until("the answer is shown", || platform.shown_texts(-100).last().is_some_and(|text| text == "Pushed."));
    let shown = platform.shown_texts(-100);
    assert!(shown.len() == 2 && shown[0].contains("approved by"), "{shown:?}");
    let calls = platform.calls("sendMessage");
    assert!(calls.iter().all(|call| call.body["message_thread_id"] == 9), "{calls:?}");
    assert_eq!(sent(&system), json!({"pending": 0, "sent": 3, "failed": 0, "unknown": 0}));
}
