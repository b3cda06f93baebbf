//! Cron expressions: five fields, or six of which the first is for seconds; lists, ranges, steps, names and `@daily`.
//! The crate croner parses them and searches the calendar. Other syntax that croner accepts is refused, and errors name
//! the column.

use croner::Cron as Pattern;
use croner::parser::{CronParser, Year};
use jiff::civil::DateTime;
use ken_text::nearest;
use ken_types::Error;

const AT: &str = "/schedule";
const NICKNAMES: [&str; 6] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@hourly"];
const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
/// The fields in order. An expression of five fields has no seconds.
const FIELDS: [Field; 6] = [
    Field { name: "second", values: "0 to 59", names: &[] },
    Field { name: "minute", values: "0 to 59", names: &[] },
    Field { name: "hour", values: "0 to 23", names: &[] },
    Field { name: "day of month", values: "1 to 31", names: &[] },
    Field { name: "month", values: "1 to 12 or JAN to DEC", names: &MONTHS },
    Field { name: "day of week", values: "0 to 7 (0 and 7 are Sunday) or SUN to SAT", names: &WEEKDAYS },
];

struct Field {
    name: &'static str,
    values: &'static str,
    names: &'static [&'static str],
}

/// A parsed cron expression.
#[derive(Debug, Clone)]
pub(crate) struct Cron {
    pattern: Pattern,
    /// Whether the hour field is `*` or `*/n`. Such a schedule follows the elapsed time and not the local time when
    /// daylight saving time begins or ends.
    pub(crate) every_hour: bool,
}

impl Cron {
    /// Parses an expression. Errors are `invalid` at `/schedule`, and name the column of the mistake, counted from 1.
    pub(crate) fn parse(text: &str) -> Result<Cron, Error> {
        if text.trim_start().starts_with('@') {
            return Cron::nickname(text.trim());
        }
        let fields = split(text);
        if !(5..=6).contains(&fields.len()) {
            let column = fields.get(6).map_or(text.chars().count() + 1, |(column, _)| *column);
            let message =
                format!("an expression has five fields, or six with seconds first; this one has {}", fields.len());
            return Err(
                wrong(column, &message).hint("minute hour day-of-month month day-of-week, such as 0 9 * * MON-FRI")
            );
        }
        let kinds = FIELDS.iter().skip(FIELDS.len() - fields.len());
        for ((column, field), kind) in fields.iter().zip(kinds) {
            check(*column, field, kind, fields.len())?;
        }
        let hour = fields.iter().rev().nth(3).map_or("*", |(_, field)| field);
        Ok(Cron {
            pattern: parser().parse(text).map_err(|error| wrong(1, &error.to_string()))?,
            every_hour: hour.split('/').next() == Some("*") && !hour.contains(','),
        })
    }

    fn nickname(text: &str) -> Result<Cron, Error> {
        if !NICKNAMES.contains(&text.to_ascii_lowercase().as_str()) {
            let error = wrong(1, &format!("{text} is none of {}", NICKNAMES.join(", ")));
            return Err(match nearest(text, NICKNAMES) {
                Some(near) => error.hint(format!("did you mean {near}?")),
                None => error,
            });
        }
        let pattern = parser().parse(text).map_err(|error| wrong(1, &error.to_string()))?;
        Ok(Cron { pattern, every_hour: text.eq_ignore_ascii_case("@hourly") })
    }

    /// Returns the first local time at or after `time` that matches; `None` if there is none.
    pub(crate) fn at_or_after(&self, time: DateTime) -> Option<DateTime> {
        self.pattern.find_next_occurrence(&time, true).ok()
    }
}

fn parser() -> CronParser {
    CronParser::builder().year(Year::Disallowed).build()
}

/// Splits an expression into its fields. Each has its column, counted from 1.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut fields = Vec::new();
    let mut rest = text;
    let mut column = 1;
    while let Some(start) = rest.find(|character: char| !character.is_whitespace()) {
        let (blank, field) = rest.split_at(start);
        column += blank.chars().count();
        let end = field.find(char::is_whitespace).unwrap_or(field.len());
        let (field, after) = field.split_at(end);
        fields.push((column, field));
        column += field.chars().count();
        rest = after;
    }
    fields
}

/// Checks the items of a field separately, so that the error can name the wrong one.
fn check(column: usize, field: &str, kind: &Field, fields: usize) -> Result<(), Error> {
    let mut column = column;
    for item in field.split(',') {
        let message = || {
            format!(
                "{item:?} in the field of the {}: it takes {}, *, ranges (a-b) and steps (*/n, a-b/n)",
                kind.name, kind.values
            )
        };
        if !is_allowed(item, kind) {
            return Err(wrong(column, &message()));
        }
        let alone =
            FIELDS.iter().skip(FIELDS.len() - fields).map(|other| if std::ptr::eq(other, kind) { item } else { "*" });
        let alone: Vec<&str> = alone.collect();
        if parser().parse(&alone.join(" ")).is_err() {
            return Err(wrong(column, &message()));
        }
        column += item.chars().count() + 1;
    }
    Ok(())
}

/// Returns whether an item uses only the syntax of the HTTP contract. croner also accepts other syntax, such as names
/// of weekdays as months, and additional letters.
fn is_allowed(item: &str, kind: &Field) -> bool {
    let is_word = |word: &str| {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        is_number || kind.names.contains(&word.to_ascii_uppercase().as_str())
    };
    let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
    let is_step = |step: &str| !step.is_empty() && step.len() <= 4 && step.bytes().all(|byte| byte.is_ascii_digit());
    step.is_none_or(is_step)
        && !range.is_empty()
        && (range == "*" || range.split('-').all(|word| !word.is_empty() && word.len() <= 4 && is_word(word)))
}

fn wrong(column: usize, message: &str) -> Error {
    Error::invalid(AT, format!("schedule, column {column}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_column() {
        for (text, column) in [
            ("", 1),
            ("* * * *", 8),
            ("* * * * * * *", 13),
            ("60 * * * *", 1),
            ("0 9 * * MON-FRY", 9),
            ("0 9 * MON *", 7),
            ("0  25 * * *", 4),
            ("0 9 * * 1,8,2", 11),
            ("0 9,10,x * * *", 8),
            ("*/0 * * * *", 1),
            ("0 9 L * *", 5),
            ("0 9 ? * *", 5),
            ("0 9 * * 1#2", 9),
            ("0 9 * * +1", 9),
            ("0 9-5 * * *", 3),
            ("0 9/2 * * *", 3),
            ("0 é * * x", 3),
            ("61 0 9 * * *", 1),
            ("@fortnightly", 1),
            ("0 0 99999999999 * *", 5),
        ] {
            let error = Cron::parse(text).err().unwrap_or_else(|| panic!("{text} was taken"));
            assert_eq!(error.at.as_deref(), Some("/schedule"));
            assert!(error.message.contains(&format!("column {column}:")), "{text}: {}", error.message);
        }
        assert_eq!(Cron::parse("@dayly").unwrap_err().hint.as_deref(), Some("did you mean @daily?"));
    }

    #[test]
    fn what_the_contract_names_is_taken() {
        for text in [
            "* * * * *",
            "  0 9 * * 1-5  ",
            "0,30 9-17/2 1,15 jan-mar,DEC sun,7,0",
            "*/15 */2 */10 * *",
            "30 0 9 * * MON",
            "@daily",
            "@HOURLY",
            "0 0 29 2 *",
        ] {
            assert!(Cron::parse(text).is_ok(), "{text}: {:?}", Cron::parse(text));
        }
    }
}
