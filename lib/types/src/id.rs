//! Ids and how they are created. Ids sort by time, except where the HTTP contract requires another format.

use serde::{Deserialize, Serialize};

use crate::{Error, Timestamp};

/// Creates all ids for one request from one time and one seed.
///
/// With the same seed it creates the same ids in the same order. The seed is stored with the idempotency key, so a
/// repeated request uses the ids of its first attempt. An operation that gets an id that it knows repeats its first
/// reply.
#[derive(Debug, Clone)]
pub struct Mint {
    at: Timestamp,
    lanes: [u64; 2],
}

impl Mint {
    /// Creates a mint with the current time and a random seed. Fails if the system provides no random numbers.
    pub fn fresh() -> Result<Mint, Error> {
        Ok(Mint::of(Timestamp::now(), &random()?))
    }

    /// Creates a mint with a stored time and seed.
    pub fn of(at: Timestamp, seed: &[u8; 16]) -> Mint {
        let word = |part: &[u8]| part.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let (low, high) = seed.split_at(8);
        Mint { at, lanes: [word(low), word(high)] }
    }

    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns a ULID without a prefix.
    pub fn ulid(&mut self) -> String {
        let ms = u64::try_from(self.at.millis()).unwrap_or_default();
        ulid::Ulid::from_parts(ms, self.next()).to_string()
    }

    /// Returns a ULID with a prefix that the HTTP contract defines: `op_`, `turn_`, `apr_`, `tui:`, `web:`.
    pub fn prefixed(&mut self, prefix: &str) -> String {
        format!("{prefix}{}", self.ulid())
    }

    pub fn run(&mut self) -> RunId {
        RunId(self.prefixed("run_"))
    }

    /// Returns the id of a submission: a UUID v4 in lower case.
    pub fn submission(&mut self) -> SubmissionId {
        let bytes = self.next().to_be_bytes();
        SubmissionId(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
    }

    /// Returns the id of a session: `<origin>-<UTC time, ':' and '.' as '-'>-<8 hex>`.
    pub fn session(&mut self, origin: Origin) -> SessionId {
        let time = self.at.to_string().replace([':', '.'], "-");
        let tail = self.next() as u32; // every 32 bits of the number are equally random
        SessionId(format!("{}-{time}-{tail:08x}", origin.name()))
    }

    fn next(&mut self) -> u128 {
        let [low, high] = &mut self.lanes;
        u128::from(split_mix(low)) << 64 | u128::from(split_mix(high))
    }
}

/// One step of SplitMix64 (Steele, Lea and Flood 2014). For every seed, the first 2^64 values are all different.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Returns random bytes from the system.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| Error::internal(format!("the system gave no random bytes: {error}")))?;
    Ok(bytes)
}

crate::named! {
    /// Where a session was created. It is the first part of the session id.
    pub enum Origin {
        Tui = "tui",
        Web = "web",
        Connector = "connector",
    }
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

text_ids! {
    /// The id of a chat session, which is also the id of its agent instance.
    SessionId,
    /// The id of a submission: a prompt or a compaction in the queue of an instance.
    SubmissionId,
    /// The id of one execution of a workflow: `run_<ULID>`.
    RunId,
    /// The id of a received message or command: `tui:<ULID>`, `web:<ULID>`, `messenger:<update_id>`.
    EventId,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mint() -> Mint {
        Mint::of("2027-02-03T04:05:06.789Z".parse().unwrap(), &[7; 16])
    }

    #[test]
    fn forms() {
        let mut mint = mint();
        let session = mint.session(Origin::Tui);
        let (time, tail) = session.as_str().rsplit_once('-').unwrap();
        assert_eq!(time, "tui-2027-02-03T04-05-06-789Z");
        assert!(tail.len() == 8 && tail.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let submission = mint.submission().0;
        assert_eq!((submission.len(), submission.as_bytes()[14]), (36, b'4'));
        assert!(b"89ab".contains(&submission.as_bytes()[19]), "{submission}");
        assert_eq!(mint.prefixed("op_").len(), 3 + 26);
    }

    #[test]
    fn one_seed_mints_the_same_ids_again_and_never_one_twice() {
        let list = |mut mint: Mint| (0..1_000).map(|_| mint.ulid()).collect::<Vec<_>>();
        let first = list(mint());
        assert_eq!(first, list(mint()));
        let distinct: std::collections::HashSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), first.len());
    }
}
