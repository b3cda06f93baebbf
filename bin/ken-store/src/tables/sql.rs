//! Statements, their parameters, and the rows of their answers. Most statements are the same for both databases: the traits of the nouns have
//! them, and a backend has only those that it says differently.

use std::fmt::Display;

use ken_types::{Error, Timestamp};

/// A connection on which statements are run. Parameters are written `?1`, `?2` and so on in a statement, and nothing else has a question mark.
pub trait Sql {
    /// Runs a statement that changes something, at the latest before the next one that returns something. Its error may come with that one, or
    /// at the end of the change.
    fn execute(&self, sql: &str, values: Parameters<'_>) -> Result<(), Error>;
    /// Runs a statement that changes something. Returns the number of rows.
    fn changed_rows(&self, sql: &str, values: Parameters<'_>) -> Result<usize, Error>;
    /// Runs a statement that inserts one row. Returns its key, which is in the column `key`.
    fn insert(&self, sql: &str, key: &str, values: Parameters<'_>) -> Result<i64, Error>;
    /// Calls `see` with each row of a query until it returns false. Returns false if it did. At most `portion` rows are fetched at a time if
    /// there may be far more than are looked at; otherwise all are.
    fn query(&self, sql: &str, values: Parameters<'_>, portion: Option<u32>, see: See<'_>) -> Result<bool, Error>;
    /// Returns the words for what both databases can do but do not call the same.
    fn dialect(&self) -> Dialect;
}

pub(super) type See<'a> = &'a mut dyn FnMut(&dyn Row) -> Result<bool, Error>;

#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// Follows a text to make JSON of it, from which `->` and `->>` read.
    pub json: &'static str,
    /// The function for the place of one text in another.
    pub position: &'static str,
    /// The condition that the text `name` begins with ?1.
    pub begins: &'static str,
    /// Precedes JOIN, so that SQLite reads the tables in the order in which they are written. A server chooses the order itself.
    pub in_order: &'static str,
    /// Follows the table `vectors`, so that SQLite uses the index by model. A server chooses the index itself.
    pub of_model: &'static str,
    /// The sessions of exchanges, of which ?4 is a list in JSON, each with the newest of them.
    pub sessions_of_exchanges: &'static str,
    /// Follows another assignment in a row of `submissions`, and makes this host the one that holds it.
    pub hold_here: &'static str,
    /// Follows a condition on `submissions`: this host holds it.
    pub is_held_here: &'static str,
    /// The same for the sessions of these streams `s.stream`: this host can do their work.
    pub is_done_here: &'static str,
}

/// A parameter as it is sent.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Whole(Option<i64>),
    Real(Option<f64>),
    Text(Option<&'a str>),
    Texts(&'a [String]),
    Bytes(Option<&'a [u8]>),
}

pub trait Parameter {
    fn value(&self) -> Value<'_>;
}

pub(super) type Parameters<'a> = &'a [&'a dyn Parameter];

macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$(&$value as &dyn $crate::tables::sql::Parameter),*] as &[&dyn $crate::tables::sql::Parameter]
    };
}
pub(super) use params;

macro_rules! parameter {
    ($($type:ty, $self:ident => $value:expr;)*) => {$(
        impl Parameter for $type {
            fn value(&self) -> Value<'_> {
                let $self = self;
                $value
            }
        }
    )*};
}

macro_rules! whole {
    ($($type:ty),*) => {$(
        parameter! {
            $type, number => Value::Whole(Some(i64::from(*number)));
            Option<$type>, number => Value::Whole(number.map(i64::from));
        }
    )*};
}

whole!(i64, u32, u16, bool);

parameter! {
    u64, number => Value::Whole(Some(number.cast_signed()));
    Option<u64>, number => Value::Whole(number.map(u64::cast_signed));
    usize, number => Value::Whole(Some(i64::try_from(*number).unwrap_or(i64::MAX)));
    Timestamp, time => Value::Whole(Some(time.millis()));
    Option<Timestamp>, time => Value::Whole(time.map(Timestamp::millis));
    f64, number => Value::Real(Some(*number));
    Option<f64>, number => Value::Real(*number);
    str, text => Value::Text(Some(text));
    String, text => Value::Text(Some(text));
    Option<&str>, text => Value::Text(*text);
    Option<String>, text => Value::Text(text.as_deref());
    Option<&String>, text => Value::Text(text.map(String::as_str));
    Vec<String>, texts => Value::Texts(texts);
    [String], texts => Value::Texts(texts);
    [u8], bytes => Value::Bytes(Some(bytes));
    Vec<u8>, bytes => Value::Bytes(Some(bytes));
    Value<'_>, value => *value;
}

impl<T: Parameter + ?Sized> Parameter for &T {
    fn value(&self) -> Value<'_> {
        (**self).value()
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    Null,
    Whole(i64),
    Real(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A column of a row: its name, or its number, from 0.
#[derive(Debug, Clone, Copy)]
pub enum Column<'a> {
    Name(&'a str),
    Number(usize),
}

impl<'a> From<&'a str> for Column<'a> {
    fn from(name: &'a str) -> Column<'a> {
        Column::Name(name)
    }
}

impl From<usize> for Column<'_> {
    fn from(number: usize) -> Self {
        Column::Number(number)
    }
}

impl Display for Column<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Column::Name(name) => f.write_str(name),
            Column::Number(number) => number.fmt(f),
        }
    }
}

pub trait Row {
    fn content(&self, column: Column<'_>) -> Result<Content<'_>, Error>;
    /// The manual page that says how a backup is restored.
    fn manual(&self) -> &'static str;
}

impl dyn Row + '_ {
    /// Reads a column. It is an error if the content is of another kind.
    pub(super) fn get<'c, T: FromContent>(&self, column: impl Into<Column<'c>>) -> Result<T, Error> {
        let column = column.into();
        T::of(self.content(column)?).ok_or_else(|| self.unreadable(column, &"it has content of another kind"))
    }

    pub(super) fn text<'c>(&self, column: impl Into<Column<'c>>) -> Result<&str, Error> {
        let column = column.into();
        match self.content(column)? {
            Content::Text(text) => Ok(text),
            _ => Err(self.unreadable(column, &"it is no text")),
        }
    }

    pub(super) fn bytes<'c>(&self, column: impl Into<Column<'c>>) -> Result<&[u8], Error> {
        let column = column.into();
        match self.content(column)? {
            Content::Bytes(bytes) => Ok(bytes),
            _ => Err(self.unreadable(column, &"it is no bytes")),
        }
    }

    /// Returns the error for a column whose content is of another kind than this release writes.
    pub(super) fn unreadable<'c>(&self, column: impl Into<Column<'c>>, cause: &dyn Display) -> Error {
        let (column, line) = (column.into(), log_mark());
        tracing::error!(line, detail = %cause, "column {column} cannot be read");
        Error::internal(format!("the database cannot be read: column {column} (log line {line})"))
            .hint(format!("start the ken-store that wrote it, or restore a backup: {}", self.manual()))
    }
}

/// What can be read from a column. `of` returns `None` if this type has no such value.
pub(super) trait FromContent: Sized {
    fn of(content: Content<'_>) -> Option<Self>;
}

macro_rules! from_whole {
    ($($type:ty, $number:ident => $value:expr;)*) => {$(
        impl FromContent for $type {
            fn of(content: Content<'_>) -> Option<$type> {
                let Content::Whole($number) = content else { return None };
                $value
            }
        }
    )*};
}

from_whole! {
    i64, number => Some(number);
    u32, number => number.try_into().ok();
    u16, number => number.try_into().ok();
    u64, number => Some(number.cast_unsigned());
    Timestamp, millis => Some(Timestamp::from_millis(millis));
    bool, number => Some(number != 0);
}

impl FromContent for f64 {
    fn of(content: Content<'_>) -> Option<f64> {
        match content {
            Content::Real(number) => Some(number),
            // A sum of no values, or of whole ones, is whole in SQLite.
            Content::Whole(number) => Some(number as f64),
            _ => None,
        }
    }
}

impl FromContent for String {
    fn of(content: Content<'_>) -> Option<String> {
        let Content::Text(text) = content else { return None };
        Some(text.to_owned())
    }
}

impl FromContent for Vec<u8> {
    fn of(content: Content<'_>) -> Option<Vec<u8>> {
        let Content::Bytes(bytes) = content else { return None };
        Some(bytes.to_owned())
    }
}

impl<T: FromContent> FromContent for Option<T> {
    fn of(content: Content<'_>) -> Option<Option<T>> {
        if let Content::Null = content { Some(None) } else { T::of(content).map(Some) }
    }
}

/// Returns the first row of a query.
pub(super) fn first<T>(
    database: &dyn Sql,
    sql: &str,
    values: Parameters<'_>,
    read: impl FnOnce(&dyn Row) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let (mut read, mut found) = (Some(read), None);
    database.query(sql, values, None, &mut |row| {
        found = read.take().map(|read| read(row)).transpose()?;
        Ok(false)
    })?;
    Ok(found)
}

/// Returns the only row of a query. It is a defect if there is none.
pub(super) fn unique<T>(
    database: &dyn Sql,
    sql: &str,
    values: Parameters<'_>,
    read: impl FnOnce(&dyn Row) -> Result<T, Error>,
) -> Result<T, Error> {
    first(database, sql, values, read)?.ok_or_else(|| {
        let line = log_mark();
        tracing::error!(line, detail = sql, "a statement returned no row");
        Error::internal(format!("the store could not do this (log line {line})"))
    })
}

/// Returns all rows of a query.
pub(super) fn all<T>(
    database: &dyn Sql,
    sql: &str,
    values: Parameters<'_>,
    mut read: impl FnMut(&dyn Row) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let mut found = Vec::new();
    database.query(sql, values, None, &mut |row| {
        found.push(read(row)?);
        Ok(true)
    })?;
    Ok(found)
}

/// Calls `see` with the text in the first column of each row, until it returns false.
pub(super) fn each_text(
    database: &dyn Sql,
    sql: &str,
    values: Parameters<'_>,
    see: &mut dyn FnMut(&str) -> bool,
) -> Result<(), Error> {
    database.query(sql, values, Some(ENTRIES), &mut |row| Ok(see(row.text(0)?))).map(drop)
}

/// How many entries of a stream are fetched at a time.
const ENTRIES: u32 = 64;

/// Returns a random mark for both the log and the message of an error.
pub(super) fn log_mark() -> String {
    let mark: Result<[u8; 4], _> = ken_types::id::random();
    mark.map_or_else(|_| "?".into(), |bytes| format!("{:08x}", u32::from_be_bytes(bytes)))
}
