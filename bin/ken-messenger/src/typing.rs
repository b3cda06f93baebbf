//! Shows "typing" in each chat that has a running turn.

use std::sync::Arc;
use std::time::Duration;

use ken_service::Stop;
use ken_types::ops::Nothing;
use ken_types::ops::messenger::{BusyChat, BusyChats, MessengerBusy};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::api::{Api, CALL_TIMEOUT, id};
use crate::app::{App, READ_TIMEOUT};

/// The delay before the indicator is shown: shorter turns are not indicated.
const FIRST_DELAY: Duration = Duration::from_millis(300);
/// How often the indicator is renewed: the platform shows it for five seconds.
const RENEW_INTERVAL: Duration = Duration::from_secs(4);
/// The maximum number of chats that show the indicator.
const MAX_CHATS: usize = 20;

/// Checks for running turns when one begins, and for as long as there are any.
pub(crate) async fn run(app: Arc<App>, api: Api, mut stop: Stop) {
    // Turns that began before this process did.
    app.typing.notify_one();
    let show = async {
        loop {
            app.typing.notified().await;
            show_while_busy(&app, &api).await;
        }
    };
    tokio::select! {
        () = stop.stopped() => {}
        () = show => {}
    }
}

async fn show_while_busy(app: &App, api: &Api) {
    let mut pause = FIRST_DELAY;
    loop {
        sleep(pause).await;
        pause = RENEW_INTERVAL;
        let busy = app.store.call::<MessengerBusy>(&Nothing {}, READ_TIMEOUT).await;
        match busy {
            Ok(BusyChats { chats, .. }) if !chats.is_empty() => show(api, &chats).await,
            Ok(BusyChats { waiting: 0, .. }) => return,
            _ => {}
        }
    }
}

async fn show(api: &Api, chats: &[BusyChat]) {
    let mut calls = JoinSet::new();
    for chat in chats.iter().take(MAX_CHATS) {
        let (api, fields) = (api.clone(), action(chat));
        calls.spawn(async move { api.call("sendChatAction", fields, CALL_TIMEOUT).await });
    }
    // An error is ignored: the indicator is only a courtesy.
    while calls.join_next().await.is_some() {}
}

fn action(chat: &BusyChat) -> Value {
    let mut fields = json!({"chat_id": id(&chat.chat_id), "action": "typing"});
    if let Some(thread) = &chat.thread_id {
        fields["message_thread_id"] = id(thread);
    }
    fields
}
