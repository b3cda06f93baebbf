//! The parameters of statements and the columns of rows. There are five types: `bigint` for whole numbers, times and flags, `text`,
//! `text[]`, `bytea` and `double precision`.

use std::error::Error as StdError;
use std::fmt::Display;

use ken_types::{Error, Timestamp};
use serde::de::DeserializeOwned;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::fault;
use crate::tables::columns::UnknownWord;

/// A parameter as it is sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Whole(Option<i64>),
    Real(Option<f64>),
    Text(Option<&'a str>),
    Texts(&'a [String]),
    Bytes(Option<&'a [u8]>),
}

impl Value<'_> {
    /// Returns the type that the statement is told. The server then need not guess it, and does so in one round trip.
    pub(super) fn sql_type(&self) -> Type {
        match self {
            Value::Whole(_) => Type::INT8,
            Value::Real(_) => Type::FLOAT8,
            Value::Text(_) => Type::TEXT,
            Value::Texts(_) => Type::TEXT_ARRAY,
            Value::Bytes(_) => Type::BYTEA,
        }
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Value::Whole(value) => value.to_sql(ty, out),
            Value::Real(value) => value.to_sql(ty, out),
            Value::Text(value) => value.to_sql(ty, out),
            Value::Texts(value) => value.to_sql(ty, out),
            Value::Bytes(value) => value.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// What can be a parameter.
pub(super) trait Parameter {
    fn value(&self) -> Value<'_>;
}

macro_rules! whole {
    ($($type:ty),*) => {$(
        impl Parameter for $type {
            fn value(&self) -> Value<'_> {
                Value::Whole(Some(i64::from(*self)))
            }
        }
        impl Parameter for Option<$type> {
            fn value(&self) -> Value<'_> {
                Value::Whole(self.map(i64::from))
            }
        }
    )*};
}

whole!(i64, u32, u16, bool);

macro_rules! text {
    ($($type:ty),*) => {$(
        impl Parameter for $type {
            fn value(&self) -> Value<'_> {
                Value::Text(Some(self))
            }
        }
        impl Parameter for Option<$type> {
            fn value(&self) -> Value<'_> {
                Value::Text(self.as_ref().map(|text| text.as_ref()))
            }
        }
    )*};
}

text!(&str, String, &String);

impl Parameter for f64 {
    fn value(&self) -> Value<'_> {
        Value::Real(Some(*self))
    }
}

impl Parameter for &[u8] {
    fn value(&self) -> Value<'_> {
        Value::Bytes(Some(self))
    }
}

impl Parameter for Vec<String> {
    fn value(&self) -> Value<'_> {
        Value::Texts(self)
    }
}

impl Parameter for &[String] {
    fn value(&self) -> Value<'_> {
        Value::Texts(self)
    }
}

impl Parameter for &i64 {
    fn value(&self) -> Value<'_> {
        Value::Whole(Some(**self))
    }
}

impl Parameter for &Option<String> {
    fn value(&self) -> Value<'_> {
        Value::Text(self.as_deref())
    }
}

impl Parameter for Value<'_> {
    fn value(&self) -> Value<'_> {
        *self
    }
}

/// The parameters of one statement.
pub(super) type Parameters<'a> = &'a [&'a dyn Parameter];

macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$(&$value as &dyn $crate::tables::postgres::values::Parameter),*]
            as &[&dyn $crate::tables::postgres::values::Parameter]
    };
}
pub(super) use params;

/// A row of an answer.
#[derive(Debug)]
pub(super) struct Row(pub(super) tokio_postgres::Row);

/// What can be read from a column.
pub(super) trait Column: Sized {
    type Raw<'a>: FromSql<'a>;
    /// Converts what was read. Returns `None` if this type has no such value.
    fn of(raw: Self::Raw<'_>) -> Option<Self>;
}

macro_rules! column {
    ($type:ty, $raw:ty, $raw_value:ident, $of:expr) => {
        impl Column for $type {
            type Raw<'a> = $raw;
            fn of($raw_value: $raw) -> Option<$type> {
                $of
            }
        }
    };
}

column!(i64, i64, raw, Some(raw));
column!(u32, i64, raw, raw.try_into().ok());
column!(u16, i64, raw, raw.try_into().ok());
column!(bool, i64, raw, Some(raw != 0));
column!(f64, f64, raw, Some(raw));
column!(Vec<i64>, Vec<i64>, raw, Some(raw));

impl Column for String {
    type Raw<'a> = &'a str;
    fn of(raw: &str) -> Option<String> {
        Some(raw.to_owned())
    }
}

impl<T: Column> Column for Option<T> {
    type Raw<'a> = Option<T::Raw<'a>>;
    fn of(raw: Option<T::Raw<'_>>) -> Option<Option<T>> {
        raw.map_or(Some(None), |raw| T::of(raw).map(Some))
    }
}

impl Row {
    pub(super) fn get<T: Column>(&self, column: impl RowIndex + Display + Copy) -> Result<T, Error> {
        let raw = self.0.try_get(column).map_err(|error| fault::unreadable(&column, &error))?;
        T::of(raw).ok_or_else(|| fault::unreadable(&column, &"a number out of its range"))
    }

    pub(super) fn text(&self, column: impl RowIndex + Display + Copy) -> Result<&str, Error> {
        self.0.try_get(column).map_err(|error| fault::unreadable(&column, &error))
    }

    pub(super) fn bytes(&self, column: impl RowIndex + Display + Copy) -> Result<&[u8], Error> {
        self.0.try_get(column).map_err(|error| fault::unreadable(&column, &error))
    }
}

/// Reads a time from a column that contains milliseconds.
pub(super) fn time(row: &Row, column: &str) -> Result<Timestamp, Error> {
    row.get(column).map(Timestamp::from_millis)
}

/// Reads a count from a column.
pub(super) fn count(row: &Row, column: &str) -> Result<u64, Error> {
    row.get::<i64>(column).map(i64::cast_unsigned)
}

/// Reads a value from a column that contains JSON or NULL.
pub(super) fn stored<T: DeserializeOwned>(row: &Row, column: &str) -> Result<Option<T>, Error> {
    let text: Option<&str> = row.0.try_get(column).map_err(|error| fault::unreadable(&column, &error))?;
    let value = text.map(serde_json::from_str).transpose();
    value.map_err(|error| fault::unreadable(&column, &error))
}

/// Reads a word from a column. `place` is the table and the column, with a dot between them.
pub(super) fn word<T>(row: &Row, place: &'static str, named: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
    let word = row.text(place.rsplit('.').next().unwrap_or(place))?;
    named(word).ok_or_else(|| fault::unknown_word(&UnknownWord { place, word: word.to_owned() }))
}

/// Reads a word from a column that may be NULL.
pub(super) fn optional_word<T>(
    row: &Row,
    place: &'static str,
    named: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let column = place.rsplit('.').next().unwrap_or(place);
    let word: Option<&str> = row.0.try_get(column).map_err(|error| fault::unreadable(&column, &error))?;
    word.map(|word| named(word).ok_or_else(|| fault::unknown_word(&UnknownWord { place, word: word.to_owned() })))
        .transpose()
}
