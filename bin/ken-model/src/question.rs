//! The question of a request: the newest text of the user, or of a signal in place of one.

use ken_types::event::Message;
use ken_types::ops::model::Generate;

/// The last text of a user or a signal; empty when there is none.
pub(crate) fn last(request: &Generate) -> String {
    let newest = request.messages.iter().rev();
    let mut asked = newest.filter(|message| matches!(message, Message::User { .. } | Message::Signal { .. }));
    asked.next().map(Message::text).unwrap_or_default()
}
