//! The question of a request: the newest text of the user, or of a signal if that is newer.

use ken_types::event::Message;
use ken_types::ops::model::Generate;

/// Returns the last text of a user or a signal. Empty if there is none.
pub(crate) fn last(request: &Generate) -> String {
    let newest = request.messages.iter().rev();
    let mut questions = newest.filter(|message| matches!(message, Message::User { .. } | Message::Signal { .. }));
    questions.next().map(Message::text).unwrap_or_default()
}
