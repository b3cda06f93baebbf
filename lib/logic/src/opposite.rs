//! Pairs of words of which exactly one holds, such as open and closed.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The list that ken-laws reads, too. Only the pairs above its second heading are complementary: of the others, such as
/// fast and slow, both can be wrong.
const LIST: &str = include_str!("../../../share/laws/opposites.txt");
const SECOND_HEADING: &str = "# Contrary";

/// The second word of each pair, with the first.
static AFFIRMATIVE: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lines = LIST.lines().take_while(|line| !line.starts_with(SECOND_HEADING)).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(first, second)| (second, first)).collect()
});

/// Returns the statement that a statement denies with its last word after a form of "be": "the door is open" for "the door
/// is closed".
pub(crate) fn affirmative(statement: &str) -> Option<String> {
    let (subject, last) = statement.rsplit_once(' ')?;
    let (_, verb) = subject.rsplit_once(' ')?;
    if !matches!(verb, "is" | "are" | "was" | "were" | "be") {
        return None;
    }
    AFFIRMATIVE.get(last).map(|first| format!("{subject} {first}"))
}
