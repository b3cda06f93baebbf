//! From the phone: in a topic of a group, a coding task with its plan, its approval and its answer; what goes wrong is
//! said in the chat.

use ken_tests::bot_api::{BotApi, SECRET, TOKEN};
use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai, refusal};
use ken_tests::{Builder, System, until};
use serde_json::{Value, json};

const ADA: i64 = 7;
const GROUP: i64 = -100;
const TOPIC: i64 = 9;
const REASON: &str = "The quota of this month is used up";

/// A model that has the coding worker plan the repair of sum.sh and then do what was planned.
fn reply(request: &ReceivedRequest) -> Reply {
    let messages = request.body["messages"].as_array().unwrap();
    let prompt = request.prompt().to_string();
    let results = messages.iter().rev().take_while(|message| message["role"] != "user");
    let results = results.filter(|message| message["role"] == "tool").count();
    let edit = json!({"path": "repos/site/sum.sh", "old": "$1 - $2", "new": "$1 + $2"});
    let plan = json!({"summary": "Add instead of subtracting", "edits": [edit]});
    let call = match results {
        0 if prompt.contains("worker:") => Some(("propose_plan", plan)),
        1 if prompt.contains("worker:") => Some(("edit_file", edit)),
        0 if prompt.contains("sum.sh") => {
            Some(("task", json!({"agent": "coding-worker", "prompt": "worker: repair it"})))
        }
        _ => None,
    };
    let text = match (call.is_some(), prompt) {
        (true, _) => "",
        (false, prompt) if prompt.contains("quota") => return refusal(400, Vec::new(), "quota", REASON),
        (false, prompt) if prompt.contains("say nothing") => "",
        (false, prompt) if prompt.contains("sum.sh") => "sum.sh adds now.",
        (false, _) => "Repaired.",
    };
    let calls: Vec<_> = call.iter().map(|(name, arguments)| ("c1", *name, arguments.to_string())).collect();
    let calls: Vec<_> = calls.iter().map(|(id, name, arguments)| (*id, *name, arguments.as_str())).collect();
    Reply::Stream(openai(&[text], &calls))
}

fn started(provider: &Provider, platform: &BotApi) -> System {
    let secrets = format!("OPENAI_API_KEY=k\nMESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n");
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .env("MESSENGER_API_BASE_URL", &platform.url())
        .env("MESSENGER_APPROVED_USER_IDS", &ADA.to_string())
        .env("MESSENGER_BOT_USERNAME", "ken_bot")
        .secrets(&secrets)
        .start();
    let site = system.home().join("state/workspace/repos/site");
    std::fs::create_dir_all(&site).unwrap();
    std::fs::write(site.join("sum.sh"), "echo $(($1 - $2))\n").unwrap();
    let group = json!({"groupId": GROUP.to_string(), "requireMention": false});
    system.post("/api/connectors/messenger/group", &group).expect(200);
    system
}

fn send(system: &System, update: &Value) {
    let mut client = system.client();
    let request = client.request("POST", "/channels/messenger/webhook");
    request.header("X-Telegram-Bot-Api-Secret-Token", SECRET).json(update).send().expect(200);
}

fn say(system: &System, id: u64, text: &str) {
    send(
        system,
        &json!({"update_id": id, "message": {"message_id": id, "date": 1, "text": text, "message_thread_id": TOPIC,
            "from": {"id": ADA, "is_bot": false, "first_name": "Ada"}, "chat": {"id": GROUP, "type": "supergroup"}}}),
    );
}

/// Waits for a text in the group and presses the first button below it.
#[track_caller]
fn approves(system: &System, platform: &BotApi, update: u64, shown: &str) {
    let asks = |call: &ken_tests::bot_api::ReceivedCall| {
        let text = call.body["text"].as_str().unwrap_or_default();
        text.contains(shown) && call.body["reply_markup"].is_object()
    };
    until(shown, || platform.calls("sendMessage").iter().any(asks));
    let call = platform.calls("sendMessage").into_iter().find(|call| asks(call)).unwrap();
    let data = &call.body["reply_markup"]["inline_keyboard"][0][0]["callback_data"];
    send(
        system,
        &json!({"update_id": update, "callback_query": {"id": format!("q{update}"), "from": {"id": ADA}, "data": data,
            "message": {"message_id": call.sent, "chat": {"id": GROUP}}}}),
    );
}

#[test]
fn a_task_is_planned_approved_and_done_and_what_fails_is_said() {
    let (provider, platform) = (Provider::answering(reply), BotApi::start());
    let system = started(&provider, &platform);
    say(&system, 1, "sum.sh subtracts. Repair it.");
    // The plan has the diff as text. What was planned needs no second question.
    approves(&system, &platform, 2, "+echo $(($1 + $2))");
    let is_last = |text: &str| platform.shown_texts(GROUP).last().is_some_and(|last| last.contains(text));
    until("the answer is shown", || is_last("sum.sh adds now."));
    let plan = platform.shown_texts(GROUP).remove(0);
    for text in ["Add instead of subtracting", "-echo $(($1 - $2))", "approved by"] {
        assert!(plan.contains(text), "{text}: {plan}");
    }
    let repaired = std::fs::read_to_string(system.home().join("state/workspace/repos/site/sum.sh")).unwrap();
    assert_eq!(repaired, "echo $(($1 + $2))\n");
    say(&system, 3, "quota?");
    until("the reason is shown", || is_last(REASON));
    say(&system, 4, "say nothing");
    until("silence is told", || is_last("gave an empty answer"));
    let sent = platform.calls("sendMessage");
    assert!(sent.iter().all(|call| call.body["message_thread_id"] == TOPIC), "{sent:?}");
}
