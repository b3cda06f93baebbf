//! ken-messenger: the messaging connector. Updates of a platform that speaks the Telegram Bot API come in, answers go out.
//! It alone holds the bot token. See ken-messenger(8).

mod api;
mod app;
mod approvals;
mod html;
mod piece;
mod poll;
mod receive;
mod request;
mod send;
mod settings;
mod split;
mod typing;
mod update;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ken_service::{NoOptions, Program, Start};
use ken_types::Error;
use ken_types::ops::Nothing;
use ken_types::ops::messenger::{ConnectorAdmit, ConnectorReceive, ConnectorSetWebhook, ConnectorState, SetWebhook};
use ken_wire::{Pool, Table};
use serde_json::json;
use tokio::sync::Notify;

use crate::api::{Api, CALL_TIMEOUT, CallOutcome};
use crate::app::App;
use crate::settings::Settings;

const PROGRAM: Program = Program {
    name: "ken-messenger",
    version: env!("CARGO_PKG_VERSION"),
    about: "Connect ken to a messaging platform that speaks the Telegram Bot API",
    drain: Duration::from_secs(5),
};

fn main() -> ExitCode {
    ken_service::run(PROGRAM, start)
}

async fn start(start: &mut Start<NoOptions>) -> Result<(Table<App>, Arc<App>), Error> {
    let settings = Settings::read(ken_service::secret)?;
    let app = Arc::new(App {
        api: Api::new(&settings),
        store: Pool::new(start.places.socket("store")),
        model: Pool::new(start.places.socket("model")),
        typing: Notify::new(),
        polling: AtomicBool::new(false),
        settings,
    });
    match &app.api {
        None => tracing::info!("the connector is off: MESSENGER_BOT_TOKEN is not set"),
        Some(api) => {
            let stop = || start.stop.clone();
            start.tasks.spawn(send::run(app.clone(), api.clone(), stop()));
            start.tasks.spawn(typing::run(app.clone(), api.clone(), stop()));
            start.tasks.spawn(approvals::run(app.clone(), stop()));
            if app.settings.polls {
                start.tasks.spawn(poll::run(app.clone(), api.clone(), stop()));
            }
        }
    }
    Ok((table(), app))
}

fn table() -> Table<App> {
    Table::new(PROGRAM.part(), PROGRAM.version)
        .op::<ConnectorAdmit, _, _>(|app: Arc<App>, _, args| async move {
            app.admit(args.secret.as_deref()).map(|()| Nothing {})
        })
        .op::<ConnectorReceive, _, _>(|app: Arc<App>, _, args| async move {
            app.admit(args.secret.as_deref())?;
            receive::receive(&app, &args.update).await.map(|()| Nothing {})
        })
        .op::<ConnectorState, _, _>(|app: Arc<App>, _, _| async move { Ok(app.state()) })
        .op::<ConnectorSetWebhook, _, _>(|app: Arc<App>, _, args| async move {
            set_webhook(&app, &args).await.map(|()| Nothing {})
        })
}

/// Registers the webhook: the address that the platform posts updates to, and its secret. An empty address removes it.
async fn set_webhook(app: &App, args: &SetWebhook) -> Result<(), Error> {
    let (Some(api), Some(keys)) = (&app.api, &app.settings.keys) else {
        return app.admit(None);
    };
    if app.settings.polls && !args.url.is_empty() {
        let error = Error::conflict("MESSENGER_MODE is `poll`, and the platform then refuses to be asked for updates");
        return Err(error.hint("set MESSENGER_MODE=webhook, or leave the webhook alone"));
    }
    let (method, fields) = if args.url.is_empty() {
        ("deleteWebhook", json!({}))
    } else {
        ("setWebhook", json!({"url": args.url, "secret_token": keys.secret, "allowed_updates": poll::UPDATE_KINDS}))
    };
    match api.call(method, fields, CALL_TIMEOUT).await {
        CallOutcome::Done(_) => Ok(()),
        CallOutcome::Refused(refusal) if (400..500).contains(&refusal.code) => {
            let message = format!("the platform refuses: {} ({})", refusal.description, refusal.code);
            Err(Error::invalid("/url", message))
        }
        answer => Err(Error::unavailable(answer.error().unwrap_or_default())),
    }
}
