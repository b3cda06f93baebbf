//! The OpenAPI document, which describes every route.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};

use crate::app::Gateway;

const DOCUMENT: &str = include_str!("../../../share/openapi/gateway.json");

/// GET /openapi.json
pub(crate) async fn document(_: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    Ok(Response::json_bytes(200, DOCUMENT))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ken_http::{Limiter, Rate};
    use ken_types::limits::{
        IDENTITY_CHARACTERS, IMAGE_CHARACTERS, IMAGES, INSTANCE_BYTES, KEY_CHARACTERS, KNOWLEDGE_CONTENT_BYTES,
        KNOWLEDGE_TAG_CHARACTERS, KNOWLEDGE_TAGS, KNOWLEDGE_TITLE_CHARACTERS, NAME_CHARACTERS, PAGE_EVENTS,
        PROMPT_BYTES, TITLE_CHARACTERS,
    };
    use serde_json::Value;

    use super::*;

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    /// Converts `/agents/:name` and `/streams/*path` to the form of OpenAPI.
    fn braced(pattern: &str) -> String {
        let segment = |segment: &str| match segment.strip_prefix([':', '*']) {
            Some(name) => format!("{{{name}}}"),
            None => segment.to_owned(),
        };
        pattern.split('/').map(segment).collect::<Vec<_>>().join("/")
    }

    #[test]
    fn it_has_every_route_and_no_other() {
        let limiter = Arc::new(Limiter::new(Rate::per_minute(1)));
        let table = crate::routes::table(&limiter, &limiter);
        let routes: BTreeSet<String> = table.patterns().map(braced).collect();
        let document = document();
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                match method.as_str() {
                    // HEAD works for every GET route. It is described only where it has a separate meaning.
                    "head" => assert!(item.get("get").is_some(), "{path}"),
                    method => drop(described.insert(format!("{} {path}", method.to_uppercase()))),
                }
            }
        }
        assert_eq!(routes, described);
    }

    #[test]
    fn its_limits_are_the_enforced_ones() {
        let document = document();
        for (pointer, limit) in [
            ("/schemas/Message/properties/text/maxLength", PROMPT_BYTES),
            ("/schemas/Message/properties/actorId/maxLength", IDENTITY_CHARACTERS),
            ("/schemas/Message/properties/task/maxLength", IDENTITY_CHARACTERS),
            ("/schemas/NewSession/properties/threadId/maxLength", IDENTITY_CHARACTERS),
            ("/parameters/actorId/schema/maxLength", IDENTITY_CHARACTERS),
            ("/schemas/Prompt/properties/message/maxLength", PROMPT_BYTES),
            ("/schemas/Prompt/properties/images/maxItems", IMAGES),
            ("/schemas/Image/properties/data/maxLength", IMAGE_CHARACTERS),
            ("/schemas/Events/maxItems", PAGE_EVENTS as usize),
            ("/schemas/Session/properties/title/maxLength", TITLE_CHARACTERS),
            ("/schemas/Session/properties/displayName/maxLength", NAME_CHARACTERS),
            ("/schemas/KnowledgeEntry/properties/title/maxLength", KNOWLEDGE_TITLE_CHARACTERS),
            ("/schemas/KnowledgeEntry/properties/content/maxLength", KNOWLEDGE_CONTENT_BYTES),
            ("/schemas/KnowledgeEntry/properties/tags/maxItems", KNOWLEDGE_TAGS),
            ("/schemas/KnowledgeEntry/properties/tags/items/maxLength", KNOWLEDGE_TAG_CHARACTERS),
            ("/parameters/Key/schema/maxLength", KEY_CHARACTERS),
            ("/parameters/instanceId/schema/maxLength", INSTANCE_BYTES),
        ] {
            let described = document.pointer(&format!("/components{pointer}")).and_then(Value::as_u64);
            assert_eq!(described, Some(limit as u64), "{pointer}");
        }
    }
}
