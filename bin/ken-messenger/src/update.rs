//! Normalises an update of the platform. A field of the wrong type counts as absent, because the platform would repeat a
//! refused update for ever.

use ken_types::Error;
use ken_types::ops::messenger::ChatKind;
use serde_json::Value;

/// Kinds that hold a message.
const MESSAGES: [&str; 3] = ["message", "channel_post", "business_message"];
const BUTTON_PRESS: &str = "callback_query";
const EDITED: &str = "edited_message";
/// What a message can hold instead of a text, by the platform's fields, and its name for people. An animation is a document
/// too, so it comes first.
const WITHOUT_TEXT: [(&str, &str); 11] = [
    ("photo", "a photo"),
    ("voice", "a voice message"),
    ("audio", "an audio file"),
    ("animation", "an animation"),
    ("video", "a video"),
    ("video_note", "a video message"),
    ("document", "a file"),
    ("sticker", "a sticker"),
    ("location", "a location"),
    ("contact", "a contact"),
    ("poll", "a poll"),
];
/// The longest name that is kept, in characters.
const MAX_NAME_CHARACTERS: usize = 256;
/// The longest quoted text that is kept, in characters: that of one message of the platform.
const MAX_QUOTED_CHARACTERS: usize = 4096;

/// An update, normalised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) id: u64,
    /// The name that the platform has for its kind.
    pub(crate) kind: String,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Message(Box<Message>),
    Press(Press),
    /// An update that ken does not handle, and why.
    Other(&'static str),
}

/// A message with a sender, a chat and a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) message_id: Option<String>,
    pub(crate) chat: Chat,
    pub(crate) thread_id: Option<String>,
    pub(crate) business_id: Option<String>,
    pub(crate) sender_id: String,
    pub(crate) sender_name: Option<String>,
    /// The text, else the caption; empty if there is neither.
    pub(crate) text: String,
    pub(crate) unsupported: Option<Unsupported>,
    /// What came with the text and is not read, in words.
    pub(crate) unread: Option<&'static str>,
    /// The text that it replies to.
    pub(crate) quoted: Option<Quoted>,
    /// Who wrote the text, if the sender has only forwarded it, or has let a bot make it.
    pub(crate) forwarded: Option<String>,
    /// Usernames that the text mentions, in lower case without `@`; ids of users that it names without a username.
    pub(crate) mentions: Vec<String>,
    /// The user whose message it replies to: id, and username in lower case.
    pub(crate) replies_to: Option<(String, String)>,
}

/// The text that a message replies to: the part that the sender has marked, or else all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Quoted {
    pub(crate) text: String,
    /// The id of its sender, if the sender has also written it; unknown for a message of another chat.
    pub(crate) sender_id: Option<String>,
    /// The name of its author.
    pub(crate) author: Option<String>,
    pub(crate) message_id: Option<String>,
}

/// Why a message cannot be a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsupported {
    /// It has no text, but this.
    Holds(&'static str),
    /// It is a message that was received before, and has been changed.
    Edited,
}

impl Unsupported {
    /// The reason in the list of updates.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Unsupported::Holds(_) => "no_text",
            Unsupported::Edited => "edited",
        }
    }

    /// The answer to its sender.
    pub(crate) fn text(self) -> String {
        match self {
            Unsupported::Holds(what) => format!("I cannot read {what}. Please write to me in words."),
            Unsupported::Edited => {
                "I do not read changes of a message that was sent before. Please send it again as a new message."
                    .to_owned()
            }
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chat {
    pub(crate) id: String,
    pub(crate) kind: ChatKind,
}

/// A button that was pressed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Press {
    pub(crate) id: String,
    pub(crate) sender_id: String,
    pub(crate) data: String,
    /// The chat of the message that has the button.
    pub(crate) chat_id: String,
}

impl Update {
    /// Reads an update. The only error is an input that is not an object with an `update_id`.
    pub(crate) fn read(update: &Value) -> Result<Update, Error> {
        let Some(fields) = update.as_object() else {
            return Err(Error::invalid("", "an update is an object"));
        };
        let id = fields.get("update_id").and_then(Value::as_u64);
        let Some(id) = id.filter(|id| i64::try_from(*id).is_ok()) else {
            let message = "update_id is not an integer from 0 to 2^63 - 1";
            return Err(Error::invalid("/update_id", message));
        };
        let kind = fields.keys().find(|name| *name != "update_id");
        let kind = MESSAGES
            .iter()
            .chain([&BUTTON_PRESS, &EDITED])
            .find(|kind| fields.contains_key(**kind))
            .map(|kind| (*kind).to_owned())
            .or_else(|| kind.cloned())
            .unwrap_or_default();
        let inner = fields.get(&kind).unwrap_or(&Value::Null);
        let content = match kind.as_str() {
            BUTTON_PRESS => press(inner),
            kind if MESSAGES.contains(&kind) => message(inner),
            EDITED => match message(inner) {
                Content::Message(message) => {
                    Content::Message(Box::new(Message { unsupported: Some(Unsupported::Edited), ..*message }))
                }
                other => other,
            },
            _ => Content::Other("unsupported_update"),
        };
        Ok(Update { id, kind: kind.chars().take(64).collect(), content })
    }
}

fn message(fields: &Value) -> Content {
    let sender = ["from", "sender_chat"]
        .iter()
        .filter_map(|name| fields.get(*name))
        .find_map(|sender| Some((id(sender)?, sender)));
    let Some((sender_id, sender)) = sender else {
        return Content::Other("no_sender");
    };
    let Some(chat) = fields.get("chat").and_then(chat) else {
        return Content::Other("no_chat");
    };
    let texts = [("text", "entities"), ("caption", "caption_entities")];
    let with_text = |(text, entities): &(&str, &str)| {
        let text = fields.get(*text)?.as_str().filter(|text| !text.trim().is_empty())?;
        Some((text.to_owned(), mentions(text, fields.get(*entities))))
    };
    let holds = || WITHOUT_TEXT.iter().find(|(field, _)| fields.get(*field).is_some());
    let held = holds().map(|(_, what)| *what);
    let (text, mentions, unsupported, unread) = match (texts.iter().find_map(with_text), held) {
        (Some((text, mentions)), held) => (text, mentions, None, held),
        (None, Some(what)) => (String::new(), Vec::new(), Some(Unsupported::Holds(what)), None),
        // The platform also sends what happens in a chat, such as a new member.
        (None, None) => return Content::Other("no_text"),
    };
    Content::Message(Box::new(Message {
        message_id: fields.get("message_id").and_then(number),
        chat,
        thread_id: fields.get("message_thread_id").and_then(number),
        business_id: short_text(fields, "business_connection_id"),
        sender_id,
        sender_name: name(sender),
        text,
        unsupported,
        unread,
        quoted: quoted(fields),
        forwarded: forwarded(fields),
        mentions,
        replies_to: fields.pointer("/reply_to_message/from").and_then(|user| Some((id(user)?, username(user)))),
    }))
}

/// The author of a message that its sender has not written: that of `forward_origin`, or of the fields that platforms had before
/// it, or the bot that has made it for the sender. The name may be unknown, but such a message always has an author. ken makes
/// none for others.
fn forwarded(fields: &Value) -> Option<String> {
    let (origin, bot) = (fields.get("forward_origin"), fields.get("via_bot"));
    if origin.is_none() && fields.get("forward_date").is_none() && bot.is_none() {
        return None;
    }
    let of_origin = ["sender_user", "sender_chat", "chat"].iter().filter_map(|name| origin?.get(*name)).find_map(name);
    let of_fields = ["forward_from", "forward_from_chat"].iter().filter_map(|field| fields.get(*field)).find_map(name);
    let hidden = || {
        let name = origin.and_then(|origin| origin.get("sender_user_name")).or(fields.get("forward_sender_name"));
        name?.as_str().map(str::to_owned)
    };
    let known = of_origin.or(of_fields).or_else(hidden).or_else(|| name(bot?));
    Some(known.unwrap_or_else(|| "somebody".to_owned()).chars().take(MAX_NAME_CHARACTERS).collect())
}

/// The text that a message replies to. In a topic of a group, every message replies to the one that opened the topic, which
/// has no text.
fn quoted(fields: &Value) -> Option<Quoted> {
    let original = fields.get("reply_to_message").or_else(|| fields.get("external_reply"))?;
    let part = fields.pointer("/quote/text");
    let text = [part, original.get("text"), original.get("caption")].into_iter().flatten().find_map(Value::as_str)?;
    let text: String = text.chars().take(MAX_QUOTED_CHARACTERS).collect();
    // What a bot sends for a business has the person whose account it is in `from`.
    let mut senders = ["sender_business_bot", "from", "sender_chat"].iter().filter_map(|field| original.get(*field));
    let (sender_id, author) = match (forwarded(original), senders.find_map(|sender| Some((id(sender)?, name(sender)))))
    {
        (Some(author), _) => (None, Some(author)),
        (None, Some((id, name))) => (Some(id), name),
        (None, None) => (None, None),
    };
    let message_id = original.get("message_id").and_then(number);
    Some(Quoted { text, sender_id, author, message_id }).filter(|quoted| !quoted.text.trim().is_empty())
}

fn press(fields: &Value) -> Content {
    let sender = fields.get("from").and_then(id);
    let chat = fields.pointer("/message/chat").and_then(id);
    match (short_text(fields, "id"), sender, short_text(fields, "data"), chat) {
        (Some(id), Some(sender_id), Some(data), Some(chat_id)) => {
            Content::Press(Press { id, sender_id, data, chat_id })
        }
        _ => Content::Other("no_button"),
    }
}

fn chat(chat: &Value) -> Option<Chat> {
    let kind = match chat.get("type").and_then(Value::as_str) {
        Some("private") => ChatKind::Direct,
        Some("group" | "supergroup" | "channel") => ChatKind::Group,
        _ => ChatKind::Unsupported,
    };
    Some(Chat { id: id(chat)?, kind })
}

/// The id of a user or chat. Ids of the platform go beyond 2^53, so they are never floating-point numbers.
fn id(user_or_chat: &Value) -> Option<String> {
    number(user_or_chat.get("id")?)
}

fn number(value: &Value) -> Option<String> {
    value.as_i64().map(|number| number.to_string())
}

/// A text of 1 to 256 bytes.
fn short_text(fields: &Value, name: &str) -> Option<String> {
    let text = fields.get(name)?.as_str()?;
    Some(text.to_owned()).filter(|text| !text.is_empty() && text.len() <= 256)
}

/// The name of a user or a chat for people.
fn name(sender: &Value) -> Option<String> {
    let part = |name: &str| sender.get(name).and_then(Value::as_str).map(str::trim).filter(|part| !part.is_empty());
    let full: Vec<&str> = ["first_name", "last_name"].iter().filter_map(|name| part(name)).collect();
    let shown = if full.is_empty() { part("title").or_else(|| part("username"))?.to_owned() } else { full.join(" ") };
    let shown: String = shown.chars().filter(|letter| !letter.is_control()).take(MAX_NAME_CHARACTERS).collect();
    Some(shown).filter(|shown| !shown.is_empty())
}

fn username(user: &Value) -> String {
    user.get("username").and_then(Value::as_str).unwrap_or_default().to_lowercase()
}

/// Who is mentioned. Entities count in UTF-16 code units.
fn mentions(text: &str, entities: Option<&Value>) -> Vec<String> {
    let wide: Vec<u16> = text.encode_utf16().collect();
    let mut found = Vec::new();
    for entity in entities.and_then(Value::as_array).into_iter().flatten() {
        let at = |name: &str| entity.get(name).and_then(Value::as_u64).and_then(|at| usize::try_from(at).ok());
        let marked =
            at("offset").zip(at("length")).and_then(|(offset, length)| wide.get(offset..offset.checked_add(length)?));
        let marked = marked.map(String::from_utf16_lossy).unwrap_or_default();
        match entity.get("type").and_then(Value::as_str) {
            Some("mention") => found.push(marked.trim_start_matches('@').to_lowercase()),
            Some("bot_command") => found.extend(marked.split_once('@').map(|(_, bot)| bot.to_lowercase())),
            Some("text_mention") => {
                let user = entity.get("user").unwrap_or(&Value::Null);
                found.extend(id(user));
                found.push(username(user));
            }
            _ => {}
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

/// A command without the name of the bot: `/new@ken_bot x` is `/new x`. None for a command to another bot.
pub(crate) fn without_bot(text: &str, bot: &str) -> Option<String> {
    let trimmed = text.trim_start();
    let word = trimmed.split_whitespace().next().unwrap_or_default();
    let Some((command, addressed)) = word.split_once('@').filter(|(command, _)| command.starts_with('/')) else {
        return Some(start_is_help(text));
    };
    if !bot.is_empty() && !addressed.eq_ignore_ascii_case(bot) {
        return None;
    }
    let rest = trimmed.get(word.len()..).unwrap_or_default();
    Some(start_is_help(&format!("{command}{rest}")))
}

/// The platform begins every chat with `/start`.
fn start_is_help(text: &str) -> String {
    let word = text.split_whitespace().next().unwrap_or_default();
    if word.eq_ignore_ascii_case("/start") { "/help".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(update: Value) -> Content {
        Update::read(&update).unwrap().content
    }

    #[test]
    fn a_message_in_full() {
        let content = read(
            json!({"update_id": 7, "message": {"message_id": 5, "message_thread_id": 9, "text": "Hi @Ken_Bot",
            "from": {"id": 9_007_199_254_740_993_i64, "first_name": "Ada", "last_name": "L."}, "chat": {"id": -100_123, "type": "supergroup"},
            "entities": [{"type": "mention", "offset": 3, "length": 8}],
            "reply_to_message": {"from": {"id": 17, "username": "Ken_Bot"}}}}),
        );
        let Content::Message(message) = content else { panic!("{content:?}") };
        assert_eq!(message.sender_id, "9007199254740993");
        assert_eq!((message.chat.id.as_str(), message.chat.kind), ("-100123", ChatKind::Group));
        assert_eq!(message.thread_id.as_deref(), Some("9"));
        assert_eq!(message.sender_name.as_deref(), Some("Ada L."));
        assert_eq!(message.mentions, ["ken_bot"]);
        assert_eq!(message.replies_to, Some(("17".to_owned(), "ken_bot".to_owned())));
    }

    /// The platform counts in UTF-16 units: an emoji is two of them, four bytes, and one character.
    #[test]
    fn a_mention_is_found_behind_any_text() {
        for before in ["", "é ", "\u{1F600} ", "\u{1F468}\u{200D}\u{1F469} \u{1F600}\u{1F600} ", "日本 ", "שלום "]
        {
            let offset = before.encode_utf16().count();
            let content =
                read(json!({"update_id": 7, "message": {"message_id": 5, "text": format!("{before}@ken_bot go on"),
                "from": {"id": 1}, "chat": {"id": -1, "type": "group"},
                "entities": [{"type": "mention", "offset": offset, "length": 8}]}}));
            let Content::Message(message) = content else { panic!("{content:?}") };
            assert_eq!(message.mentions, ["ken_bot"], "{before}");
        }
    }

    #[test]
    fn captions_channels_and_users_without_a_name() {
        let photo = json!({"update_id": 1, "message": {"from": {"id": 1}, "chat": {"id": 1, "type": "private"}, "photo": [{}], "caption": "Look"}});
        assert!(
            matches!(read(photo), Content::Message(message) if message.text == "Look" && message.unread == Some("a photo") && message.sender_name.is_none())
        );
        let post = json!({"update_id": 1, "channel_post": {"sender_chat": {"id": -5, "title": "News"}, "chat": {"id": -5, "type": "channel"}, "text": "x"}});
        assert!(
            matches!(read(post), Content::Message(message) if message.sender_id == "-5" && message.chat.kind == ChatKind::Group)
        );
    }

    #[test]
    fn what_a_message_replies_to() {
        let ada = json!({"id": 7, "first_name": "Ada"});
        let quoted = |original: Value, part: Value| {
            let message = json!({"from": {"id": 1}, "chat": {"id": 1, "type": "private"}, "text": "Is it so?",
                "reply_to_message": original, "quote": part});
            match read(json!({"update_id": 1, "message": message})) {
                Content::Message(message) => message.quoted,
                other => panic!("{other:?}"),
            }
        };
        let of = |text: &str, sender: Option<&str>, author: Option<&str>| {
            let (sender_id, author) = (sender.map(str::to_owned), author.map(str::to_owned));
            Some(Quoted { text: text.to_owned(), sender_id, author, message_id: None })
        };
        let whole = json!({"from": ada, "text": "All of it."});
        assert_eq!(quoted(whole.clone(), Value::Null), of("All of it.", Some("7"), Some("Ada")));
        assert_eq!(quoted(whole, json!({"text": "of it"})), of("of it", Some("7"), Some("Ada")));
        // The message that opened a topic has no text.
        assert_eq!(quoted(json!({"from": {"id": 7}, "forum_topic_created": {}}), json!(7)), None);
        let long = json!({"caption": "é".repeat(MAX_QUOTED_CHARACTERS + 1)});
        assert_eq!(quoted(long, Value::Null), of(&"é".repeat(MAX_QUOTED_CHARACTERS), None, None));
        // What somebody has only passed on is not their own, also if they wrote it once.
        for (field, value, author) in [
            ("forward_origin", json!({"type": "user", "sender_user": {"id": 66, "first_name": "Eve"}}), "Eve"),
            ("forward_origin", json!({"type": "user", "sender_user": ada}), "Ada"),
            ("forward_origin", json!({}), "somebody"),
            ("forward_date", json!(1), "somebody"),
            ("via_bot", json!({"id": 77, "username": "gif_bot"}), "gif_bot"),
        ] {
            let original = json!({"from": ada, "text": "x", field: value});
            assert_eq!(quoted(original, Value::Null), of("x", None, Some(author)), "{field} {value}");
        }
        let by_bot =
            json!({"from": ada, "sender_business_bot": {"id": 17, "first_name": "ken"}, "text": "x", "message_id": 5});
        let message_id = Some("5".to_owned());
        assert_eq!(
            quoted(by_bot, Value::Null),
            of("x", Some("17"), Some("ken")).map(|quoted| Quoted { message_id, ..quoted })
        );
    }

    #[test]
    fn wrong_types_are_absent() {
        let whole = json!({"message_id": 1, "from": {"id": 1}, "chat": {"id": 1, "type": "private"}, "text": "x"});
        for (field, reason) in [("from", "no_sender"), ("chat", "no_chat"), ("text", "no_text")] {
            for wrong in [
                json!(null),
                json!(7),
                json!([]),
                json!({"id": "1"}),
                json!({"id": 1.5}),
                json!({"id": 18_446_744_073_709_551_615_u64}),
            ] {
                let mut message = whole.clone();
                message[field] = wrong.clone();
                assert_eq!(
                    read(json!({"update_id": 1, "message": message})),
                    Content::Other(reason),
                    "{field} {wrong}"
                );
            }
        }
        for odd in [json!(null), json!("x"), json!([1])] {
            assert_eq!(read(json!({"update_id": 1, "message": odd})), Content::Other("no_sender"));
        }
        let odd = json!([{"type": "mention", "offset": -1, "length": 9e99}, 7, {"type": "mention", "offset": 1, "length": u64::MAX}]);
        let mut message = whole.clone();
        message["entities"] = odd;
        assert!(
            matches!(read(json!({"update_id": 1, "message": message})), Content::Message(found) if found.mentions.is_empty())
        );
    }

    #[test]
    fn ids_and_kinds_of_updates() {
        for bad in [
            json!([]),
            json!({}),
            json!({"update_id": -1}),
            json!({"update_id": 1.0}),
            json!({"update_id": "1"}),
            json!({"update_id": u64::MAX}),
        ] {
            assert!(Update::read(&bad).is_err(), "{bad}");
        }
        let edited = Update::read(&json!({"update_id": 0, "edited_message": {"text": "x"}})).unwrap();
        assert_eq!((edited.kind.as_str(), edited.content), ("edited_message", Content::Other("no_sender")));
        assert_eq!(Update::read(&json!({"update_id": 0})).unwrap().kind, "");
    }

    #[test]
    fn presses() {
        let press = json!({"id": "q", "from": {"id": 3}, "data": "t", "message": {"chat": {"id": 4}}});
        assert!(
            matches!(read(json!({"update_id": 1, "callback_query": press})), Content::Press(press) if press.chat_id == "4")
        );
        assert_eq!(read(json!({"update_id": 1, "callback_query": {"id": 7}})), Content::Other("no_button"));
    }

    #[test]
    fn the_name_of_the_bot_is_dropped() {
        for (text, bot, found) in [
            ("/new@Ken_Bot x y", "ken_bot", Some("/new x y")),
            ("/new@ken_bot", "", Some("/new")),
            ("/new@other x", "ken_bot", None),
            ("/start abc", "ken_bot", Some("/help")),
            ("/start@ken_bot", "ken_bot", Some("/help")),
            ("mail me@x.example", "ken_bot", Some("mail me@x.example")),
            ("hello", "", Some("hello")),
        ] {
            assert_eq!(without_bot(text, bot).as_deref(), found, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_it(text in "\\PC{0,60}", offset in 0u64..80, length in 0u64..80) {
            let entities = json!([{"type": "mention", "offset": offset, "length": length}]);
            let update = json!({"update_id": 1, "message": {"from": {"id": 1}, "chat": {"id": 1, "type": "private"}, "text": text, "entities": entities}});
            let is_blank = text.trim().is_empty();
            proptest::prop_assert_eq!(matches!(read(update), Content::Message(_)), !is_blank);
        }
    }

    #[test]
    fn the_lengths_of_names_and_of_short_texts() {
        for (length, is_kept) in [(256, true), (257, false)] {
            let fields =
                json!({"data": "é".repeat(length / 2) + &"x".repeat(length % 2), "first_name": "é".repeat(length)});
            assert_eq!(short_text(&fields, "data").is_some(), is_kept, "{length}");
            assert_eq!(name(&fields), Some("é".repeat(256)));
            let forward = json!({"forward_date": 1, "forward_sender_name": "é".repeat(length)});
            assert_eq!(forwarded(&forward), Some("é".repeat(256)));
        }
    }
}
