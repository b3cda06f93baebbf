//! Hash maps whose keys are already hashes.

use std::collections::HashMap;

/// Each key is mixed with a random number of the process, so that nobody can write a text whose words all collide. The standard
/// library's SipHash has the same effect, but would account for a third of the time to judge a text.
pub(crate) type Map<T> = HashMap<u64, T, foldhash::fast::RandomState>;
