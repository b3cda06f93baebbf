//! A write that shows that the store can write.

use ken_types::Error;
use ken_types::ops::Nothing;
use ken_types::ops::store::StoreProbe;

use crate::engine::change::Change;
use crate::ops::Write;
use crate::tables::Tables;

/// The time of the last probe.
const PROBED_AT: &str = "probed_at";

impl Write for StoreProbe {
    const COMES_FIRST: bool = true;

    fn run(tables: &dyn Tables, _: &Nothing, change: &mut Change) -> Result<Nothing, Error> {
        // Another value each time, because a row that stays as it is could be found without a write.
        tables.set_stored_value(PROBED_AT, &change.now.millis().to_string())?;
        Ok(Nothing {})
    }
}
