//! Who may write: a pure function of the message, the stored policy and the settings.

use ken_types::ops::messenger::{DmPolicy, Standing};

use crate::settings::Settings;
use crate::update::{ChatKind, Message};

/// Why a message was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    DmPolicyDisabled,
    DmAllowlist,
    DmPairingRequired,
    GroupNotConfigured,
    GroupMentionRequired,
    GroupAllowlist,
    UserNotAllowed,
    UnsupportedChatType,
}

impl Reason {
    /// The name that the counters use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::DmPolicyDisabled => "dm_policy_disabled",
            Reason::DmAllowlist => "dm_allowlist",
            Reason::DmPairingRequired => "dm_pairing_required",
            Reason::GroupNotConfigured => "group_not_configured",
            Reason::GroupMentionRequired => "group_mention_required",
            Reason::GroupAllowlist => "group_allowlist",
            Reason::UserNotAllowed => "user_not_allowed",
            Reason::UnsupportedChatType => "unsupported_chat_type",
        }
    }
}

/// Whether the sender may write here. The stored policy decides; the users of the settings are admitted as well.
pub(crate) fn admit(message: &Message, standing: &Standing, settings: &Settings) -> Result<(), Reason> {
    let is_allowed = standing.is_allowed || settings.users.contains(&message.sender_id);
    match (standing.dm_policy, message.chat.kind) {
        (DmPolicy::Disabled, _) => Err(Reason::DmPolicyDisabled),
        (_, ChatKind::Direct) if is_allowed => Ok(()),
        (DmPolicy::Allowlist, ChatKind::Direct) => Err(Reason::DmAllowlist),
        (DmPolicy::Pairing, ChatKind::Direct) => Err(Reason::DmPairingRequired),
        (_, ChatKind::Group) => admit_to_group(message, standing, settings, is_allowed),
        (_, ChatKind::Unsupported) => Err(Reason::UnsupportedChatType),
    }
}

fn admit_to_group(message: &Message, standing: &Standing, settings: &Settings, is_allowed: bool) -> Result<(), Reason> {
    let Some(group) = &standing.group else {
        return Err(Reason::GroupNotConfigured);
    };
    if group.require_mention && !is_mentioned(message, settings) {
        return Err(Reason::GroupMentionRequired);
    }
    if !group.allow_from.is_empty() && !group.allow_from.contains(&message.sender_id) {
        return Err(Reason::GroupAllowlist);
    }
    match is_allowed {
        true => Ok(()),
        false => Err(Reason::UserNotAllowed),
    }
}

/// Whether the message addresses the bot: by an entity, by a reply to it, or by a pattern.
fn is_mentioned(message: &Message, settings: &Settings) -> bool {
    let bot = settings.bot_username.as_str();
    let is_bot = |name: &str| (!bot.is_empty() && name == bot) || settings.bot_id() == Some(name);
    let text = message.text.to_lowercase();
    message.mentions.iter().any(|name| is_bot(name))
        || message.replies_to.as_ref().is_some_and(|(id, name)| is_bot(id) || is_bot(name))
        || settings.mention_patterns.iter().any(|pattern| text.contains(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Keys;
    use crate::update::Chat;
    use ken_types::ops::messenger::Group;

    fn message(kind: ChatKind) -> Message {
        Message {
            chat: Chat { id: "c".into(), kind },
            sender_id: "7".into(),
            text: "Hello".into(),
            ..Message::default()
        }
    }

    fn settings(users: &[&str]) -> Settings {
        Settings {
            keys: Some(Keys { token: "17:x".into(), secret: "s".into() }),
            users: users.iter().map(|user| (*user).to_owned()).collect(),
            bot_username: "ken_bot".into(),
            mention_patterns: vec!["hey ken".into()],
            ..Settings::default()
        }
    }

    fn standing(dm_policy: DmPolicy, is_allowed: bool, group: Option<(bool, &[&str])>) -> Standing {
        let group = group.map(|(require_mention, from)| Group {
            group_id: "c".into(),
            require_mention,
            allow_from: from.iter().map(|user| (*user).to_owned()).collect(),
        });
        Standing { dm_policy, is_allowed, group }
    }

    #[test]
    fn the_matrix() {
        use ChatKind::{Direct, Group, Unsupported};
        use DmPolicy::{Allowlist, Disabled, Pairing};
        type Row<'a> = (ChatKind, DmPolicy, bool, &'a [&'a str], Option<(bool, &'a [&'a str])>, Result<(), Reason>);
        let rows: [Row<'_>; 15] = [
            (Direct, Disabled, true, &["7"], None, Err(Reason::DmPolicyDisabled)),
            (Group, Disabled, true, &["7"], Some((false, &[])), Err(Reason::DmPolicyDisabled)),
            (Unsupported, Disabled, true, &["7"], None, Err(Reason::DmPolicyDisabled)),
            (Direct, Pairing, true, &[], None, Ok(())),
            (Direct, Pairing, false, &["7"], None, Ok(())),
            (Direct, Pairing, false, &["8"], None, Err(Reason::DmPairingRequired)),
            (Direct, Allowlist, false, &["7"], None, Ok(())),
            (Direct, Allowlist, false, &[], None, Err(Reason::DmAllowlist)),
            (Group, Pairing, true, &["7"], None, Err(Reason::GroupNotConfigured)),
            (Group, Pairing, true, &[], Some((true, &[])), Err(Reason::GroupMentionRequired)),
            (Group, Pairing, true, &[], Some((false, &["8"])), Err(Reason::GroupAllowlist)),
            (Group, Pairing, false, &[], Some((false, &["7"])), Err(Reason::UserNotAllowed)),
            (Group, Allowlist, true, &[], Some((false, &["7"])), Ok(())),
            (Group, Pairing, false, &["7"], Some((false, &[])), Ok(())),
            (Unsupported, Pairing, true, &["7"], None, Err(Reason::UnsupportedChatType)),
        ];
        for (number, (kind, policy, stored, configured, group, wanted)) in rows.into_iter().enumerate() {
            let found = admit(&message(kind), &standing(policy, stored, group), &settings(configured));
            assert_eq!(found, wanted, "row {number}");
        }
    }

    #[test]
    fn what_counts_as_a_mention() {
        let is = |change: &dyn Fn(&mut Message)| {
            let mut message = message(ChatKind::Group);
            change(&mut message);
            is_mentioned(&message, &settings(&[]))
        };
        assert!(!is(&|_| {}));
        assert!(is(&|message| message.mentions = vec!["ken_bot".into()]));
        assert!(is(&|message| message.mentions = vec!["17".into()]));
        assert!(!is(&|message| message.mentions = vec!["other".into()]));
        assert!(is(&|message| message.replies_to = Some(("17".into(), String::new()))));
        assert!(!is(&|message| message.replies_to = Some(("18".into(), "other".into()))));
        assert!(is(&|message| message.text = "So, HEY KEN, what now?".into()));
        // A bot whose name is not known is not mentioned by an empty name.
        let nameless = Settings::default();
        assert!(!is_mentioned(&Message { mentions: vec![String::new()], ..Message::default() }, &nameless));
    }
}
