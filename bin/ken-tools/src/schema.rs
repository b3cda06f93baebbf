//! JSON Schema, for arguments and results.

use std::fmt;

use jsonschema::Validator;
use ken_types::Error;
use serde_json::Value;

/// A compiled schema. References lead nowhere but into itself: nothing is fetched.
pub(crate) struct Schema(Validator);

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

impl Schema {
    /// `invalid` with `at`, where the schema stands, when it is none.
    pub(crate) fn compile(at: &str, schema: &Value) -> Result<Schema, Error> {
        let compiled = jsonschema::validator_for(schema);
        compiled
            .map(Schema)
            .map_err(|error| Error::invalid(at, format!("not a JSON Schema: {error}")))
    }

    /// `invalid` for the first value that is not as the schema says; its place is a pointer below `at`.
    pub(crate) fn check(&self, at: &str, value: &Value) -> Result<(), Error> {
        self.0.validate(value).map_err(|error| {
            let place = format!("{at}{}", error.instance_path());
            Error::invalid(place, error.masked().to_string())
        })
    }
}
