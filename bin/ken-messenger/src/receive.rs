//! Handles an update: normalises it, passes it to the store, which decides whether its sender may write here, and puts
//! immediate replies into the outbox. The update is acknowledged only then. Each step has its own key or id, so a repeat after
//! a crash completes what is missing and does nothing twice.

use ken_chat::{Connector, Effect, FORWARDED, Inbound, Prepared, QUOTED, QUOTED_ID, Received, chosen_model};
use ken_types::id::{EventId, Mint, random};
use ken_types::limits::PROMPT_BYTES;
use ken_types::ops::messenger::{
    AcceptUpdate, ChatKind, IfAdmitted, IncomingMessage, MessengerAccept, Pairing, UpdateAnswer, UpdateContent,
};
use ken_types::ops::outbox::PutMessage;
use ken_types::ops::store::{Policy, Quoted, Scope};
use ken_types::{Error, json};
use serde_json::{Map, Value};

use crate::app::{ATTEMPT_TIMEOUT, App, CHANGE_TIMEOUT, NAME};
use crate::approvals;
use crate::settings::Settings;
use crate::update::{Content, Message, Unsupported, Update, without_bot};

/// The letters of codes, without those that look alike.
const CODE_LETTERS: &[u8; 31] = b"ABCDEFGHJKMNPQRSTUVWXYZ23456789";
const CODE_LENGTH: usize = 8;

/// Handles an update as it came in.
pub(crate) async fn receive(app: &App, update: &str) -> Result<(), Error> {
    take(app, json::parse(update.as_bytes(), json::MAX_DEPTH)?).await
}

pub(crate) async fn take(app: &App, raw: Value) -> Result<(), Error> {
    let Update { id, kind, content } = Update::read(&raw)?;
    let mut args = AcceptUpdate {
        update_id: id,
        kind,
        sender_id: None,
        chat_id: None,
        content: UpdateContent::Ignored(String::new()),
    };
    match content {
        Content::Message(message) => take_message(app, args, *message, &raw).await,
        Content::Press(press) => {
            args.sender_id = Some(press.sender_id.clone());
            args.chat_id = Some(press.chat_id.clone());
            // Decided before it is stored: a repeat after a crash decides nothing again.
            let is_own = match &app.api {
                Some(api) => approvals::press(app, api, &press).await?,
                None => false,
            };
            args.content =
                if is_own { UpdateContent::Pressed } else { UpdateContent::Ignored("unknown_button".to_owned()) };
            accept(app, &args).await.map(drop)
        }
        Content::Other(why) => {
            args.content = UpdateContent::Ignored(why.to_owned());
            accept(app, &args).await.map(drop)
        }
    }
}

async fn accept(app: &App, args: &AcceptUpdate) -> Result<UpdateAnswer, Error> {
    app.store.change::<MessengerAccept>(args, ATTEMPT_TIMEOUT, CHANGE_TIMEOUT).await
}

async fn take_message(app: &App, mut args: AcceptUpdate, message: Message, raw: &Value) -> Result<(), Error> {
    args.sender_id = Some(message.sender_id.clone());
    args.chat_id = Some(message.chat.id.clone());
    let is_configured = app.settings.users.contains(&message.sender_id);
    let text = without_bot(&message.text, &app.settings.bot_username);
    let is_too_long = text.as_deref().is_some_and(is_too_long);
    let event = EventId(format!("{NAME}:{}", args.update_id));
    let prepare = |text| -> Result<Prepared, Error> {
        Ok(Prepared::new(event, &mut Mint::fresh()?, inbound(app, &message, text, raw)?))
    };
    let chosen = text.as_deref().and_then(chosen_model).filter(|_| message.forwarded.is_none());
    let unknown_model = match chosen {
        Some(model) => app.refusal_of_model(model).await,
        None => None,
    };
    let obstacle = obstacle(message.unsupported, is_too_long, unknown_model.is_some());
    let prepared = text.filter(|_| obstacle.is_none()).map(prepare).transpose()?;
    let if_admitted = match &prepared {
        Some(prepared) => IfAdmitted::Accept(Box::new(prepared.args.clone())),
        None => IfAdmitted::Ignore(obstacle.unwrap_or("other_bot").to_owned()),
    };
    let mentions_bot = message.chat.kind == ChatKind::Group && mentions_bot(&message, &app.settings);
    args.content = UpdateContent::Message(Box::new(IncomingMessage {
        chat_kind: message.chat.kind,
        is_configured,
        mentions_bot,
        if_admitted,
        code: may_get_code(&message, is_configured, &app.settings).then(code).transpose()?,
    }));
    let answer = accept(app, &args).await?;
    if answer.rejected {
        return match answer.pairing {
            Some(pairing) => send_code(app, &message, &pairing).await,
            None => Ok(()),
        };
    }
    if let Some(unsupported) = message.unsupported {
        return if is_meant(message.chat.kind, mentions_bot) {
            app.put(&reply(&message, args.update_id, unsupported.text())).await
        } else {
            Ok(())
        };
    }
    if is_too_long {
        let why = format!("That is too long: a message has at most {} KiB.", PROMPT_BYTES / 1024);
        return app.put(&reply(&message, args.update_id, why)).await;
    }
    if let Some(why) = unknown_model {
        return app.put(&reply(&message, args.update_id, why)).await;
    }
    let received = prepared.zip(answer.accepted);
    if let Some(what) = message.unread.filter(|_| received.is_some()) {
        let text = format!("I cannot read {what}, only the words that came with it.");
        let key = format!("{NAME}:{}:unread", args.update_id);
        app.put(&PutMessage { key, ..reply(&message, args.update_id, text) }).await?;
    }
    match received {
        Some((prepared, accepted)) => reply_at_once(app, &message, args.update_id, prepared.received(accepted)?).await,
        None => Ok(()),
    }
}

/// Whether its sender gets a code with which it can be admitted. Whoever is admitted by the settings needs none.
fn may_get_code(message: &Message, is_configured: bool, settings: &Settings) -> bool {
    settings.pairing_codes && message.chat.kind == ChatKind::Direct && !is_configured
}

fn is_too_long(text: &str) -> bool {
    text.len() > PROMPT_BYTES
}

/// Why a message cannot be a prompt. Its kind is checked before its length.
fn obstacle(unsupported: Option<Unsupported>, is_too_long: bool, is_model_unknown: bool) -> Option<&'static str> {
    match unsupported {
        Some(unsupported) => Some(unsupported.reason()),
        None if is_too_long => Some("text_too_long"),
        None => is_model_unknown.then_some("unknown_model"),
    }
}

/// Whether a message that cannot be read is answered. In a group whose messages need no mention, most pictures and changes
/// are not meant for the agent.
fn is_meant(chat: ChatKind, mentions_bot: bool) -> bool {
    chat == ChatKind::Direct || mentions_bot
}

/// Whether the message addresses the bot: by an entity, by a reply to it, or by a pattern.
fn mentions_bot(message: &Message, settings: &Settings) -> bool {
    let bot = settings.bot_username.as_str();
    let is_bot = |name: &str| (!bot.is_empty() && name == bot) || settings.bot_id() == Some(name);
    let text = message.text.to_lowercase();
    message.mentions.iter().any(|name| is_bot(name))
        || message.replies_to.as_ref().is_some_and(|(id, name)| is_bot(id) || is_bot(name))
        || settings.mention_patterns.iter().any(|pattern| text.contains(pattern))
}

/// Returns the text that a message replies to. Its author is named only if that is neither the sender nor the bot. If the bot has sent the
/// text, the platform's id of that message is returned, too.
fn quoted(message: &Message, settings: &Settings) -> Option<(Quoted, Option<String>)> {
    let quoted = message.quoted.as_ref()?;
    let sender = quoted.sender_id.as_deref();
    let is_of_bot = sender.is_some() && sender == settings.bot_id();
    let is_own = is_of_bot || sender == Some(&message.sender_id);
    let author = (!is_own).then(|| quoted.author.clone().unwrap_or_else(|| "somebody".to_owned()));
    // The store knows no message with an empty id, so that the text counts as one from outside.
    let id = is_of_bot.then(|| quoted.message_id.clone().unwrap_or_default());
    Some((Quoted { text: quoted.text.clone(), author }, id))
}

fn inbound(app: &App, message: &Message, text: String, raw: &Value) -> Result<Inbound, Error> {
    let mut context = Map::new();
    if let Some((quoted, id)) = quoted(message, &app.settings) {
        let quoted = serde_json::to_value(quoted).map_err(|error| Error::internal(error.to_string()))?;
        context.insert(QUOTED.to_owned(), quoted);
        context.extend(id.map(|id| (QUOTED_ID.to_owned(), id.into())));
    }
    for (name, value) in [
        ("actorDisplayName", &message.sender_name),
        ("messageId", &message.message_id),
        ("businessId", &message.business_id),
        (FORWARDED, &message.forwarded),
    ] {
        if let Some(value) = value {
            context.insert(name.to_owned(), value.as_str().into());
        }
    }
    Ok(Inbound {
        connector: Connector::Messenger,
        scope: Scope {
            connector: NAME.to_owned(),
            actor_id: message.sender_id.clone(),
            conversation_id: message.chat.id.clone(),
            thread_id: message.thread_id.clone(),
        },
        text,
        session: None,
        policy: Policy::Queue,
        context: Some(Value::Object(context)),
        raw: Some(raw.to_string()),
    })
}

/// Sends the immediate reply, if there is one. The store adds the answer of a turn or of a compaction when it settles.
async fn reply_at_once(app: &App, message: &Message, update: u64, received: Received) -> Result<(), Error> {
    let text = match received.done {
        Effect::Prompted { .. } => {
            app.typing.notify_one();
            return Ok(());
        }
        Effect::Commanded(command) if command.submission.is_some() => return Ok(()),
        Effect::Commanded(command) => command.text,
        Effect::Refused(error) => error.to_string(),
    };
    app.put(&reply(message, update, text)).await
}

/// The answer to a message, under the key of its turn's answers.
fn reply(message: &Message, update: u64, text: String) -> PutMessage {
    PutMessage {
        connector: NAME.to_owned(),
        chat_id: message.chat.id.clone(),
        thread_id: message.thread_id.clone(),
        reply_to: message.message_id.clone(),
        business_id: message.business_id.clone(),
        text,
        key: format!("{NAME}:{update}:answer"),
        ..PutMessage::default()
    }
}

/// Sends a code to its user, and tells the administrators once that somebody is waiting.
async fn send_code(app: &App, message: &Message, pairing: &Pairing) -> Result<(), Error> {
    let code = &pairing.code;
    let text = format!(
        "I do not know you yet. Ask whoever runs me to admit you with this code, which is valid for an hour:\n\n`{code}`"
    );
    let mut answer = reply(message, 0, text);
    answer.key = format!("code:{code}:{}", pairing.replies);
    app.put(&answer).await?;
    for admin in &app.settings.admins {
        let name = message.sender_name.as_deref().map(|name| format!(" ({})", plain_name(name)));
        let text = format!(
            "User {}{} asks to be admitted with the code `{code}`: `ken messenger pair {code}` or `ken messenger deny {code}`.",
            pairing.sender_id,
            name.unwrap_or_default()
        );
        let notice = PutMessage {
            connector: NAME.to_owned(),
            chat_id: admin.clone(),
            text,
            key: format!("code:{code}:admin:{admin}"),
            ..PutMessage::default()
        };
        app.put(&notice).await?;
    }
    Ok(())
}

/// A name as plain words, so that whoever chose it cannot put markup into a message of ken.
fn plain_name(name: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || " .'-".contains(*letter);
    name.chars().filter(kept).take(64).collect()
}

fn code() -> Result<String, Error> {
    let mut code = String::with_capacity(CODE_LENGTH);
    while code.len() < CODE_LENGTH {
        code.extend(random::<16>()?.into_iter().filter_map(letter).take(CODE_LENGTH - code.len()));
    }
    Ok(code)
}

/// The letter of a random byte; `None` for a byte that would make some letters more likely.
fn letter(byte: u8) -> Option<char> {
    let count = u8::try_from(CODE_LETTERS.len()).unwrap_or(u8::MAX);
    let even = u8::MAX - u8::MAX % count;
    let letter = CODE_LETTERS.get(usize::from(byte % count)).filter(|_| byte < even);
    letter.map(|letter| char::from(*letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Keys;

    #[test]
    fn what_counts_as_a_mention() {
        let settings = Settings {
            keys: Some(Keys { token: "17:x".into(), secret: "s".into() }),
            bot_username: "ken_bot".into(),
            mention_patterns: vec!["hey ken".into(), "ken:".into()],
            ..Settings::default()
        };
        let is = |change: &dyn Fn(&mut Message)| {
            let mut message = Message { text: "Hello".into(), ..Message::default() };
            change(&mut message);
            mentions_bot(&message, &settings)
        };
        assert!(!is(&|_| {}));
        assert!(is(&|message| message.mentions = vec!["ken_bot".into()]));
        assert!(is(&|message| message.mentions = vec!["17".into()]));
        assert!(!is(&|message| message.mentions = vec!["other".into()]));
        assert!(is(&|message| message.replies_to = Some(("17".into(), String::new()))));
        assert!(is(&|message| message.mentions = vec!["other".into(), "ken_bot".into()]));
        assert!(is(&|message| message.replies_to = Some(("18".into(), "ken_bot".into()))));
        assert!(!is(&|message| message.replies_to = Some(("18".into(), "other".into()))));
        assert!(!is(&|message| message.replies_to = Some(("18".into(), String::new()))));
        assert!(is(&|message| message.text = "So, HEY KEN, what now?".into()));
        assert!(is(&|message| message.text = "Ken: what now?".into()));
        // A bot whose name is not known is not mentioned by an empty name.
        let nameless = Settings::default();
        assert!(!mentions_bot(&Message { mentions: vec![String::new()], ..Message::default() }, &nameless));
    }

    #[test]
    fn a_code_is_for_a_stranger_in_a_chat_of_their_own() {
        for (pairing_codes, kind, is_configured, may) in [
            (true, ChatKind::Direct, false, true),
            (true, ChatKind::Direct, true, false),
            (true, ChatKind::Group, false, false),
            (true, ChatKind::Unsupported, false, false),
            (false, ChatKind::Direct, false, false),
        ] {
            let settings = Settings { pairing_codes, ..Settings::default() };
            let mut message = Message::default();
            message.chat.kind = kind;
            assert_eq!(
                may_get_code(&message, is_configured, &settings),
                may,
                "{pairing_codes} {kind:?} {is_configured}"
            );
        }
        let meant =
            [ChatKind::Direct, ChatKind::Group].map(|kind| [true, false].map(|mentions| is_meant(kind, mentions)));
        assert_eq!(meant, [[true, true], [true, false]]);
    }

    #[test]
    fn what_keeps_a_message_from_being_a_prompt() {
        let text = |length: usize| "x".repeat(length);
        assert!(!is_too_long(&text(PROMPT_BYTES)) && is_too_long(&text(PROMPT_BYTES + 1)));
        for (is_long, is_unknown, why) in [
            (false, false, None),
            (true, false, Some("text_too_long")),
            (false, true, Some("unknown_model")),
            (true, true, Some("text_too_long")),
        ] {
            assert_eq!(obstacle(None, is_long, is_unknown), why);
            for kind in [Unsupported::Edited, Unsupported::Holds("a picture")] {
                assert_eq!(obstacle(Some(kind), is_long, is_unknown), Some(kind.reason()));
            }
        }
    }

    #[test]
    fn the_author_of_a_quoted_text_is_named_if_it_is_somebody_else() {
        let settings =
            Settings { keys: Some(Keys { token: "17:x".into(), secret: "s".into() }), ..Settings::default() };
        let author = |sender: Option<&str>, author: Option<&str>| {
            let (sender_id, author) = (sender.map(str::to_owned), author.map(str::to_owned));
            let message_id = Some("5".to_owned());
            let quoted = Some(crate::update::Quoted { text: "x".to_owned(), sender_id, author, message_id });
            let message = Message { sender_id: "7".to_owned(), quoted, ..Message::default() };
            let (quoted, id) = super::quoted(&message, &settings).unwrap();
            (quoted.author, id)
        };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(author(Some("7"), Some("Ada")), (None, None));
        assert_eq!(author(Some("17"), Some("ken")), (None, named("5")));
        assert_eq!(author(Some("8"), Some("Bob")), (named("Bob"), None));
        assert_eq!(author(None, Some("Ada")), (named("Ada"), None));
        assert_eq!(author(Some("8"), None), (named("somebody"), None));
        assert_eq!(author(None, None), (named("somebody"), None));
        assert_eq!(super::quoted(&Message::default(), &settings), None);
        // Without a token the bot has no id, and nothing is its own.
        let message = Message { quoted: Some(crate::update::Quoted::default()), ..Message::default() };
        assert_eq!(super::quoted(&message, &Settings::default()).unwrap().0.author, named("somebody"));
    }

    #[test]
    fn codes() {
        let all: std::collections::HashSet<String> = (0..100).map(|_| code().unwrap()).collect();
        assert_eq!(all.len(), 100);
        assert!(all.iter().all(|code| code.len() == 8 && code.bytes().all(|byte| CODE_LETTERS.contains(&byte))));
        // Of all bytes, as many as possible stand for a letter, and for each letter as many as for any other.
        for wanted in CODE_LETTERS {
            let bytes = (0..=u8::MAX).filter(|byte| letter(*byte) == Some(char::from(*wanted)));
            assert_eq!(bytes.count(), 255 / CODE_LETTERS.len(), "{}", char::from(*wanted));
        }
    }

    #[test]
    fn names_hold_no_markup() {
        assert_eq!(plain_name("Ada `x` [L](http://e.vil)\n"), "Ada x Lhttpe.vil");
    }
}
