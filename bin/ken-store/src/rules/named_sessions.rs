//! The sessions that a stored answer names.

use std::borrow::Cow;

use ken_types::uri;

/// What stands before a session in an answer: its id in an object, or the address of its stream, which ends with it.
const ID: &str = "\"id\":";
const ADDRESS: &str = "/agents/orchestrator/";

/// Returns the ids and the ends of addresses in the JSON of an answer, each of which may be that of a session.
pub(crate) fn named_sessions(answer: &str) -> Vec<String> {
    // Neither text can be within a string of the JSON, where its quotation marks would be escaped: the second one ends at one.
    let ids = answer.split(ID).skip(1).filter_map(first_string);
    let addresses = answer.split(ADDRESS).skip(1).filter_map(|rest| {
        let (segment, _) = rest.split_once('"')?;
        uri::decode(segment).map(Cow::into_owned)
    });
    ids.chain(addresses).collect()
}

fn first_string(json: &str) -> Option<String> {
    serde_json::Deserializer::from_str(json).into_iter().next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_named_by_ids_and_addresses() {
        for (answer, named) in [
            (r#"{"session":{"id":"tui-x"},"event":{"id": "e\"1"}}"#, vec!["tui-x", "e\"1"]),
            (r#"{"streamUrl":"http://127.0.0.1:1/agents/orchestrator/a%2Fb","offset":"1"}"#, vec!["a/b"]),
            (r#"{"text":"\"id\":\"tui-x\"","id":7}"#, vec![]),
            (r#"{"text":"see /agents/orchestrator/%zz"}"#, vec![]),
            ("", vec![]),
        ] {
            assert_eq!(named_sessions(answer), named, "{answer}");
        }
    }
}
