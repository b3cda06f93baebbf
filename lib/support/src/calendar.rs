//! The days of the week and the months.

pub(crate) const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

pub(crate) const MONTHS: [&str; 12] = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
];

/// Returns whether a word in lower case is a month or a day of the week.
pub(crate) fn is_calendar(word: &str) -> bool {
    WEEKDAYS.contains(&word) || MONTHS.contains(&word)
}
