//! Who may write to the agent in a messaging chat.

use ken_types::ops::messenger::{ChatKind, DmPolicy, Group, IncomingMessage};

/// Why a message was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    DmPolicyDisabled,
    DmAllowlist,
    DmPairingRequired,
    GroupNotConfigured,
    GroupMentionRequired,
    GroupAllowlist,
    UserNotAllowed,
    UnsupportedChatType,
}

impl Rejection {
    /// The name that the counters and `ken why` use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rejection::DmPolicyDisabled => "dm_policy_disabled",
            Rejection::DmAllowlist => "dm_allowlist",
            Rejection::DmPairingRequired => "dm_pairing_required",
            Rejection::GroupNotConfigured => "group_not_configured",
            Rejection::GroupMentionRequired => "group_mention_required",
            Rejection::GroupAllowlist => "group_allowlist",
            Rejection::UserNotAllowed => "user_not_allowed",
            Rejection::UnsupportedChatType => "unsupported_chat_type",
        }
    }
}

/// The policy, as far as it concerns one sender in one chat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) dm_policy: DmPolicy,
    /// Whether the sender is an allowed user, by the stored policy or by the settings.
    pub(crate) is_allowed: bool,
    /// The record of the chat, if it is a stored group.
    pub(crate) group: Option<Group>,
}

/// Decides whether the sender of a message may write in its chat.
pub(crate) fn admit(sender: &str, message: &IncomingMessage, standing: &Standing) -> Result<(), Rejection> {
    match (standing.dm_policy, message.chat_kind) {
        (DmPolicy::Disabled, _) => Err(Rejection::DmPolicyDisabled),
        (_, ChatKind::Direct) if standing.is_allowed => Ok(()),
        (DmPolicy::Allowlist, ChatKind::Direct) => Err(Rejection::DmAllowlist),
        (DmPolicy::Pairing, ChatKind::Direct) => Err(Rejection::DmPairingRequired),
        (_, ChatKind::Group) => admit_to_group(sender, message, standing),
        (_, ChatKind::Unsupported) => Err(Rejection::UnsupportedChatType),
    }
}

fn admit_to_group(sender: &str, message: &IncomingMessage, standing: &Standing) -> Result<(), Rejection> {
    let Some(group) = &standing.group else {
        return Err(Rejection::GroupNotConfigured);
    };
    if group.require_mention && !message.mentions_bot {
        return Err(Rejection::GroupMentionRequired);
    }
    if !group.allow_from.is_empty() && !group.allow_from.iter().any(|user| user == sender) {
        return Err(Rejection::GroupAllowlist);
    }
    if standing.is_allowed { Ok(()) } else { Err(Rejection::UserNotAllowed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::ops::messenger::IfAdmitted;

    #[test]
    fn the_matrix() {
        use ChatKind::{Direct, Group as InGroup, Unsupported};
        use DmPolicy::{Allowlist, Disabled, Pairing};
        // Kind of the chat, policy, whether the sender is allowed, and the group: whether it requires a mention, and its users.
        type Row<'a> = (ChatKind, DmPolicy, bool, Option<(bool, &'a [&'a str])>, Result<(), Rejection>);
        let rows: [Row<'_>; 13] = [
            (Direct, Disabled, true, None, Err(Rejection::DmPolicyDisabled)),
            (InGroup, Disabled, true, Some((false, &[])), Err(Rejection::DmPolicyDisabled)),
            (Unsupported, Disabled, true, None, Err(Rejection::DmPolicyDisabled)),
            (Direct, Pairing, true, None, Ok(())),
            (Direct, Pairing, false, None, Err(Rejection::DmPairingRequired)),
            (Direct, Allowlist, true, None, Ok(())),
            (Direct, Allowlist, false, None, Err(Rejection::DmAllowlist)),
            (InGroup, Pairing, true, None, Err(Rejection::GroupNotConfigured)),
            (InGroup, Pairing, true, Some((false, &["8"])), Err(Rejection::GroupAllowlist)),
            (InGroup, Pairing, false, Some((false, &["7"])), Err(Rejection::UserNotAllowed)),
            (InGroup, Allowlist, true, Some((false, &["7"])), Ok(())),
            (InGroup, Allowlist, true, Some((false, &["8", "7"])), Ok(())),
            (Unsupported, Pairing, true, None, Err(Rejection::UnsupportedChatType)),
        ];
        for (number, (chat_kind, dm_policy, is_allowed, group, expected)) in rows.into_iter().enumerate() {
            let message = message(chat_kind, false);
            let standing = Standing { dm_policy, is_allowed, group: group.map(|(mention, from)| of(mention, from)) };
            assert_eq!(admit("7", &message, &standing), expected, "row {number}");
        }
    }

    #[test]
    fn a_group_can_require_a_mention() {
        let standing = Standing { dm_policy: DmPolicy::Pairing, is_allowed: true, group: Some(of(true, &[])) };
        let admitted = |mentions| admit("7", &message(ChatKind::Group, mentions), &standing);
        assert_eq!((admitted(false), admitted(true)), (Err(Rejection::GroupMentionRequired), Ok(())));
    }

    fn message(chat_kind: ChatKind, mentions_bot: bool) -> IncomingMessage {
        let if_admitted = IfAdmitted::Ignore("a test".into());
        IncomingMessage { chat_kind, is_configured: false, mentions_bot, if_admitted, code: None }
    }

    fn of(require_mention: bool, allow_from: &[&str]) -> Group {
        let allow_from = allow_from.iter().map(|user| (*user).to_owned()).collect();
        Group { group_id: "c".into(), require_mention, allow_from }
    }
}
