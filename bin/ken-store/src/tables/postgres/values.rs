//! How parameters are sent and columns read. There are five types: `bigint` for whole numbers, times and flags, `text`, `text[]`, `bytea` and
//! `double precision`.

use std::error::Error as StdError;

use ken_types::Error;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::tables::sql::{Column, Content, Row, Value};

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

/// A parameter of a statement that is sent later.
#[derive(Debug)]
pub(super) struct Encoded(Option<BytesMut>);

impl Encoded {
    pub(super) fn of(value: Value<'_>) -> Result<(Encoded, Type), Error> {
        let (ty, mut bytes) = (value.sql_type(), BytesMut::new());
        let encoded = value.to_sql(&ty, &mut bytes);
        let is_null = encoded.map_err(|error| Error::too_large(format!("a value cannot be stored: {error}")))?;
        Ok((Encoded(matches!(is_null, IsNull::No).then_some(bytes)), ty))
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |bytes| bytes.len())
    }
}

impl ToSql for Encoded {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        let Some(bytes) = &self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The content of a column as it came.
struct Raw<'a>(Content<'a>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Raw<'a>, Box<dyn StdError + Sync + Send>> {
        Ok(Raw(match *ty {
            Type::INT8 => Content::Whole(i64::from_sql(ty, raw)?),
            Type::FLOAT8 => Content::Real(f64::from_sql(ty, raw)?),
            Type::BYTEA => Content::Bytes(raw),
            _ => Content::Text(<&str>::from_sql(ty, raw)?),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Raw<'a>, Box<dyn StdError + Sync + Send>> {
        Ok(Raw(Content::Null))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT8 | Type::FLOAT8 | Type::BYTEA) || <&str as FromSql>::accepts(ty)
    }
}

impl Row for tokio_postgres::Row {
    fn content(&self, column: Column<'_>) -> Result<Content<'_>, Error> {
        let content = match column {
            Column::Name(name) => self.try_get(name),
            Column::Number(number) => self.try_get(number),
        };
        let Raw(content) = content.map_err(|error| (self as &dyn Row).unreadable(column, &error))?;
        Ok(content)
    }

    fn manual(&self) -> &'static str {
        "ken-postgres(7)"
    }
}
