//! JSON Schema, for arguments and results.

use std::fmt;

use jsonschema::Validator;
use ken_types::Error;
use serde_json::Value;

/// A compiled schema. References to other documents are not fetched.
pub(crate) struct Schema(Validator);

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

impl Schema {
    /// Compiles the schema at the place `at`. An `invalid` error names that place.
    pub(crate) fn compile(at: &str, schema: &Value) -> Result<Schema, Error> {
        let compiled = jsonschema::validator_for(schema);
        compiled.map(Schema).map_err(|error| Error::invalid(at, format!("not a JSON Schema: {error}")))
    }

    /// Checks the value at the place `at`. An `invalid` error names the place of the first violation below `at`.
    pub(crate) fn check(&self, at: &str, value: &Value) -> Result<(), Error> {
        self.0.validate(value).map_err(|error| {
            let place = format!("{at}{}", error.instance_path());
            Error::invalid(place, error.masked().to_string())
        })
    }
}
